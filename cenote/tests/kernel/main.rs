//! OpenZFS's kernel module judges pools of ours: it imports and scrubs them, sees what we see in them,
//! changes them, exports; then we see what it sees. And the other way round: pools that it made, and that
//! crash, go to and fro.
//!
//! What is seen is printed by one script (`scripts/observe.sh`), which asks Cenote and OpenZFS with the same
//! words, so that nothing has to be said twice: the two lists of lines must be equal. All pools share one
//! boot of the machine.
//!
//! | module | what it owns |
//! |---|---|
//! | `pools` | kinds of pools, and what is in them |
//! | `hand` | pools in a daemon of ours: commands, mounts, volumes |
//! | `judge` | the module's judgement of many pools |
//! | `crashed` | pools that the module made and did not export |
//! | `lab` | the lab on a host that runs the module |
//!
//! These tests are run by hand, `cargo test -p cenote --test kernel -- --ignored --nocapture`: they take a
//! quarter of an hour. Those that `./test` runs are in `testkit/tests/kernel`. Needs the virtual machine that
//! `scripts/make-kernel-vm` makes; `CENOTE_SKIP=kernel` leaves it out. `CENOTE_KERNEL_POOLS` names the kinds
//! of pools to judge, if not all, and `CENOTE_KERNEL_SECONDS` gives the machine another time than ten
//! minutes. `CENOTE_KERNEL_LEFT` is a folder with pools that others left there, each in one file of its name,
//! as `scripts/judge-files` and `scripts/run-fsx` do with `KEEP_POOL`; copies of them are judged.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls under test")]

mod crashed;
#[path = "../../../engine/tests/live/data.rs"]
#[allow(dead_code, reason = "parts of it are for others")]
mod data;
#[path = "../../../engine/tests/live/files.rs"]
#[allow(dead_code, reason = "parts of it are for others")]
mod files;
mod hand;
#[path = "../../../engine/tests/live/history.rs"]
#[allow(dead_code, reason = "parts of it are for others")]
mod history;
#[path = "../../../engine/tests/live/ivs.rs"]
#[allow(dead_code, reason = "parts of it are for others")]
mod ivs;
mod judge;
mod lab;
mod pools;
#[path = "../commands/session.rs"]
#[allow(dead_code, reason = "parts of it are for others")]
mod session;
#[path = "../../../engine/tests/live/support.rs"]
#[allow(dead_code, reason = "parts of it are for others")]
mod support;

use std::path::PathBuf;
use std::process::Command;

use testkit::kernel::KernelVm;

use hand::Hand;
use judge::Pool;
use pools::Event;

/// The pools with random histories, and the seeds of those. One misses a disk for a while, the other has a
/// checkpoint: the module does not end the resilver of a pool that has one.
const HISTORIES: [(&str, u64, Event); 2] =
    [("absence", 77, Event::DiskIsAway), ("checkpoint", 78, Event::Checkpoint)];

/// The machine; `None` where these tests are left out.
fn machine() -> Option<KernelVm> {
    if testkit::skipped("fuse", "the kernel module's judgement of filesystems") {
        return None;
    }
    KernelVm::find()
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn the_kernel_sees_in_our_pools_what_we_see_and_the_other_way_round() {
    let Some(vm) = machine() else { return };
    let wanted = std::env::var("CENOTE_KERNEL_POOLS").ok();
    let is_wanted =
        |name: &str| wanted.as_deref().is_none_or(|list| list.split([',', ' ']).any(|word| word == name));
    let hand = Hand::new();
    let kinds = pools::KINDS.iter().filter(|kind| is_wanted(kind.name));
    let made = kinds.map(|kind| {
        let folder = tempfile::tempdir().expect("a folder");
        kind.make(&hand, folder.path());
        Pool::new(&hand, kind.name, folder)
    });
    let histories = HISTORIES.into_iter().filter(|(name, ..)| is_wanted(name));
    let histories = histories
        .map(|(name, seed, event)| Pool::new(&hand, name, pools::with_history(&hand, name, seed, event)));
    let pools: Vec<Pool> = made.chain(histories).collect();
    judge::judge(&vm, &hand, &pools);
}

#[test]
#[ignore = "needs pools that were left by others"]
fn the_kernel_sees_in_pools_that_were_left_what_we_see() {
    let Some(left) = std::env::var_os("CENOTE_KERNEL_LEFT").map(PathBuf::from) else {
        println!("left out: CENOTE_KERNEL_LEFT names no folder with pools");
        return;
    };
    let Some(vm) = machine() else { return };
    let hand = Hand::new();
    let copied = |pool: &PathBuf| {
        let folder = tempfile::tempdir().expect("a folder");
        let copied =
            Command::new("cp").arg("--sparse=always").arg(pool).arg(folder.path().join("disk")).status();
        assert!(copied.is_ok_and(|status| status.success()), "{} cannot be copied", pool.display());
        let name = pool.file_name().and_then(|name| name.to_str()).expect("the name of a pool");
        Pool::new(&hand, name, folder)
    };
    let pools: Vec<Pool> = judge::files_of(&left).iter().map(copied).collect();
    assert!(!pools.is_empty(), "no pool in {}", left.display());
    judge::judge(&vm, &hand, &pools);
}
