//! Pools that the engine writes, judged by its own reader and by OpenZFS's `zdb`.

#![allow(clippy::unwrap_used, reason = "a test")]

mod attach;
mod attach_cut;
mod cached;
mod checkpoint;
mod clone;
mod clone_volumes;
mod compressed;
mod counters;
mod create;
mod damaged;
mod data;
mod datasets;
mod dedup;
mod dedup_pruned;
mod dedup_traps;
mod dedup_verified;
mod diff;
mod diff_model;
mod errlog;
mod events;
mod faults;
mod files;
mod filesystem;
mod fill;
mod full;
mod golden;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../golden/support.rs"]
mod golden_support;
mod golden_written;
mod grow;
mod history;
mod idle;
mod inject;
mod l2arc;
mod log;
mod multihost;
mod old_filesystems;
mod old_software;
mod old_versions;
mod outage;
mod quotas;
mod random;
mod receive;
mod receive_cut;
mod receive_hostile;
mod repair;
mod replace;
mod reshape;
mod resilver;
mod rewrite;
mod scrub;
mod share;
mod shared_spare;
mod space;
mod spare;
mod spare_halves;
mod support;
mod sweep;
mod trim;
mod unlinked;
mod volumes;
mod xattrs;
