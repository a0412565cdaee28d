//! All targets of libFuzzer: which one this is says the name of the binary.
#![no_main]

use std::sync::LazyLock;

use fuzz_targets::{Target, target};

static TARGET: LazyLock<Target> =
    LazyLock::new(|| target(env!("CARGO_BIN_NAME")).expect("the binary is named as a target"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
