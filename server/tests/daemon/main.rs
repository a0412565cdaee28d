//! The daemon as its clients see it: golden pools imported, mounted, served, listed and exported.

mod filesystems;
mod harness;
mod http;
mod mounts;
mod pools;
mod volumes;
