//! The NBD server, judged by the clients that people use and by clients that mean harm.

#![allow(clippy::unwrap_used, reason = "a test")]

mod clients;
mod handing;
mod harness;
mod hostile;
mod protocol;
mod tls;
mod writes;
