//! The dashboard as browsers, programs and strangers see it: real HTTP over TCP.

#![allow(clippy::unwrap_used, reason = "a test")]

mod answers;
mod browsing;
mod harness;
mod signing_in;
mod strangers;
mod tls;
mod tokens;
