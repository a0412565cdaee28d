//! Parameters that OpenZFS has for its kernel module, for tests that set them.
//!
//! Cenote has no such parameters: it finds out itself, or has a property. OpenZFS's test suite holds scans by
//! one, so that a scrub of a few megabytes is still there when it looks. The daemon of such tests is given a
//! folder of files with the names of the parameters, as the kernel shows them in `/sys/module/zfs/parameters`.
//!
//! | name | what it does |
//! |---|---|
//! | `zfs_checksum_events_per_second` | how many checksum errors of a vdev become events in a second |
//! | `zfs_scan_suspend_progress` | scrubs, resilvers and error scrubs make no progress while it is not 0 |

use std::path::PathBuf;
use std::sync::OnceLock;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Has all pools of this process look into a folder. The first folder counts.
pub fn use_folder(folder: PathBuf) {
    FOLDER.get_or_init(|| folder);
}

/// Whether scans are to make no progress.
pub(crate) fn scans_are_held() -> bool {
    number("zfs_scan_suspend_progress").is_some_and(|value| value != 0)
}

/// How many errors of checksums of a vdev are passed on in a second, where that is said.
pub(crate) fn checksum_events_per_second() -> Option<u64> {
    number("zfs_checksum_events_per_second")
}

fn number(name: &str) -> Option<u64> {
    std::fs::read_to_string(FOLDER.get()?.join(name)).ok()?.trim().parse().ok()
}
