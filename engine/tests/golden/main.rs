//! Golden pools, made by OpenZFS, read by the engine and compared with what was recorded of them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod compressed;
mod diff;
#[path = "../live/diff_model.rs"]
mod diff_model;
mod discovery;
mod encrypted;
mod filesystems;
mod import;
mod mos;
mod names;
mod redundancy;
mod replay;
mod send;
mod send_model;
mod support;
mod verify;
mod volumes;
