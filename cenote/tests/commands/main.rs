//! `cenote zpool` and `cenote zfs` through the real binary, each test with a daemon of its own.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls under test")]

mod cachefile;
mod completion;
mod counters;
mod created;
mod dashboard;
mod dedup_files;
mod dedup_seen;
mod dedup_tables;
mod delegation;
mod devices;
mod diff;
mod faults;
mod feed;
mod golden;
mod import;
mod keys;
mod manual;
mod many_mounts;
mod memory;
mod mounts;
mod object_store;
mod raw;
mod receive;
mod remote;
mod replacing;
mod replicate;
mod replication;
mod reports;
mod reshape;
mod scans;
mod send;
mod serving;
mod session;
mod snapshot_schedule;
mod standby;
mod suspended;
mod tunables;
mod upgrades;
mod vdev_states;
mod whole_disks;
mod wrong_words;
