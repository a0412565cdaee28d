//! Compiles `src/oracle/at_once.c`, which lets `zdb` end as soon as it has said everything (see `oracle.rs`).
//!
//! Without a C compiler nothing is lost but time: `zdb` is run as it is.

use std::path::Path;
use std::process::Command;

fn main() {
    let source = "src/oracle/at_once.c";
    println!("cargo:rerun-if-changed={source}");
    println!("cargo:rerun-if-env-changed=CC");
    let Ok(directory) = std::env::var("OUT_DIR") else { return };
    let library = Path::new(&directory).join("at_once.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    if compiled.is_ok_and(|status| status.success()) {
        println!("cargo:rustc-env=ZDB_ENDS_AT_ONCE={}", library.display());
    }
}
