//! Versions of pools (OpenZFS: `SPA_VERSION_*`).
//!
//! Pools had version numbers before they had features: 1 to 28, each of which allows what those before it
//! allow and a little more. Version 5000 means that features say what is allowed. A pool is written as its
//! version and features allow, so that the software it is kept old for can still open it.
//!
//! | version | what is not written below it |
//! |---|---|
//! | 5000 | features, of which the pool directory has no lists before |
//! | 28 | (nothing that is written here) |
//! | 27 | intent logs: a snapshot must not have one below 27, so `fsync` waits for its group instead |
//! | 26 | deadlists in parts, lists of clones in directories, `$FREE` with its list: below, a deadlist is one list and what is destroyed is freed at once |
//! | 24 | filesystems of version 5 |
//! | 22 | received values of properties |
//! | 20 | the compression `zle` |
//! | 19 | holes where log devices were |
//! | 18 | holds, and destruction that waits for the last of them |
//! | 17 | `raidz3` |
//! | 16 | user properties of 1024 bytes and more |
//! | 15 | space by users: object sets have 1024 bytes below; filesystems of version 4 |
//! | 14 | `aclinherit=passthrough-x` |
//! | 13 | what the space of a directory is used for |
//! | 12 | properties of snapshots |
//! | 11 | `$ORIGIN`, of which everything is a clone; the clones of a snapshot |
//! | 10 | cache devices |
//! | 9 | `refquota`, `refreservation`; unique space that is right; filesystems of version 3 |
//! | 8 | delegated permissions |
//! | 7 | log devices |
//! | 6 | `bootfs` |
//! | 5 | the compression `gzip` |
//! | 4 | the history |
//! | 3 | spares, `raidz2`, space less its parity, space of dnodes in bytes, lists that count compressed space |
//! | 2 | copies: blocks have one address |
//!
//! Source of the facts: OpenZFS 2.4 `sys/fs/zfs.h` and all that asks for them; `zfeature_common.c`,
//! `zfs_comutil.c` (the versions of filesystems).

use crate::zpl::ZPL_VERSION;

/// The oldest version.
pub const OLDEST: u64 = 1;
/// Blocks may have several addresses (`SPA_VERSION_DITTO_BLOCKS`).
pub const DITTO_BLOCKS: u64 = 2;
/// Hot spares.
pub const SPARES: u64 = 3;
/// raidz with two parity columns.
pub const RAIDZ2: u64 = 3;
/// Lists of blocks count compressed and uncompressed space too (`SPA_VERSION_BPOBJ_ACCOUNT`).
pub const BPOBJ_ACCOUNT: u64 = 3;
/// Space is counted without its parity (`SPA_VERSION_RAIDZ_DEFLATE`).
pub const RAIDZ_DEFLATE: u64 = 3;
/// Dnodes count their space in bytes.
pub const DNODE_BYTES: u64 = 3;
/// The pool's history.
pub const HISTORY: u64 = 4;
/// The compression gzip.
pub const GZIP: u64 = 5;
/// The property `bootfs`.
pub const BOOTFS: u64 = 6;
/// Log devices.
pub const SLOGS: u64 = 7;
/// Delegated permissions.
pub const DELEGATED_PERMS: u64 = 8;
/// Filesystems of version 3.
pub const FUID: u64 = 9;
/// The properties `refquota` and `refreservation`.
pub const REFRESERVATION: u64 = 9;
/// What is unique to a head is right (`SPA_VERSION_UNIQUE_ACCURATE`).
pub const UNIQUE_ACCURATE: u64 = 9;
/// Cache devices.
pub const L2CACHE: u64 = 10;
/// `$ORIGIN`, and lists of the clones of a snapshot (`SPA_VERSION_ORIGIN`, `SPA_VERSION_NEXT_CLONES`).
pub const ORIGIN: u64 = 11;
/// Properties of snapshots.
pub const SNAP_PROPS: u64 = 12;
/// Directories count what their space is used for.
pub const USED_BREAKDOWN: u64 = 13;
/// `aclinherit=passthrough-x`.
pub const PASSTHROUGH_X: u64 = 14;
/// Space by users and groups.
pub const USERSPACE: u64 = 15;
/// Long values of user properties (`SPA_VERSION_STMF_PROP`).
pub const LONG_VALUES: u64 = 16;
/// raidz with three parity columns.
pub const RAIDZ3: u64 = 17;
/// Holds on snapshots.
pub const USERREFS: u64 = 18;
/// Holes in the vdev tree, so that log devices can be removed.
pub const HOLES: u64 = 19;
/// The compression zle.
pub const ZLE: u64 = 20;
/// Deduplication.
pub const DEDUP: u64 = 21;
/// Received values of properties.
pub const RECVD_PROPS: u64 = 22;
/// Filesystems of version 5.
pub const SYSTEM_ATTRIBUTES: u64 = 24;
/// Deadlists in parts; directories know their clones (`SPA_VERSION_DEADLISTS`, `SPA_VERSION_DIR_CLONES`).
pub const DEADLISTS: u64 = 26;
/// A snapshot may be taken of a dataset that has an intent log (`SPA_VERSION_FAST_SNAP`).
pub const FAST_SNAP: u64 = 27;
/// The last version before features.
pub const LAST_NUMBERED: u64 = 28;
/// The version of pools with features.
pub const FEATURES: u64 = 5000;

/// Whether there is such a version.
pub fn exists(version: u64) -> bool {
    (OLDEST..=LAST_NUMBERED).contains(&version) || version == FEATURES
}

/// The first version of pools that may have filesystems of a version (`zfs_spa_version_map`).
pub fn for_filesystem(filesystem: u64) -> u64 {
    match filesystem {
        ..3 => OLDEST,
        3 => FUID,
        4 => USERSPACE,
        _ => SYSTEM_ATTRIBUTES,
    }
}

/// The newest version of filesystems in a pool of this version (`zfs_zpl_version_map`).
pub fn newest_filesystem(version: u64) -> u64 {
    (1..=ZPL_VERSION).rev().find(|filesystem| for_filesystem(*filesystem) <= version).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_of_the_newest_version_that_a_pool_may_have_fits_into_it() {
        for version in (OLDEST..=LAST_NUMBERED).chain([FEATURES]) {
            assert!(exists(version) && for_filesystem(newest_filesystem(version)) <= version);
        }
        assert!([0, LAST_NUMBERED + 1, FEATURES - 1, FEATURES + 1].iter().all(|version| !exists(*version)));
    }
}
