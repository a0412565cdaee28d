//! The daemon as its clients see it: golden pools imported, mounted, served, listed and exported.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls under test")]

mod attached;
mod boards;
mod counters;
mod datasets;
mod delegation;
mod diff;
mod feed;
mod filesystems;
#[allow(clippy::duplicate_mod, reason = "the same tests on mounts that are made otherwise")]
#[path = "filesystems.rs"]
mod filesystems_through_rings;
mod harness;
mod http;
mod loads;
mod mounts;
mod nbd_client;
mod pools;
mod public;
mod remount;
mod reshape;
mod semantics;
mod smb;
mod sparse;
mod ublk;
mod vhost_user;
mod views;
mod volumes;
