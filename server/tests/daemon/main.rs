//! The daemon as its clients see it: golden pools imported, mounted, served, listed and exported.

mod harness;
mod http;
mod mounts;
mod pools;
mod volumes;
