//! Upgrade in place: daemons that take over from each other while clients go on.
//!
//! `fio` over NBD is a client that takes no error and verifies what it reads (`CENOTE_SKIP=fio` leaves these
//! tests out).

#![allow(clippy::unwrap_used, reason = "a test")]

mod daemons;
mod dashboard;
mod mounted;
mod refusals;
mod service;
mod under_load;
