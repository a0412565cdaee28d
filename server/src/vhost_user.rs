//! vhost-user-blk: volumes as disks of virtual machines that share their memory with the daemon.
//!
//! # The idea
//! Each volume has a Unix socket in a folder (`sockets`). A machine's monitor (QEMU, cloud-hypervisor,
//! libvirt) connects to it and hands over the guest's memory, and for each of the disk's rings two eventfds.
//! From then on the guest's driver and the daemon talk through the rings alone: a request costs no system
//! call when both are busy, and no copy through a socket ever.
//!
//! A connection is a session, a task on one shard. Each ring is a task on a shard too, so that the rings of
//! one machine use all of them. What a request does is the same as for every other protocol
//! ([`crate::block::Export`]).
//!
//! | module | what it owns |
//! |---|---|
//! | `sockets` | the sockets of volumes |
//! | `protocol` | messages, and the files beside them |
//! | `session` | a client's connection, and what it says of its rings |
//! | `memory` | the guest's memory |
//! | `fault` | memory whose file becomes shorter |
//! | `chain` | descriptors |
//! | `request` | what is asked for, and the answer |
//! | `queue` | a ring that is served |
//! | `device` | features, configuration, what is known of writes |
//! | `inflight` | requests under way, for the daemon that comes after this one |
//!
//! Guest memory is accessed through rust-vmm's `vm-memory`, and rings through its `virtio-queue`. Its
//! `vhost-user-backend` has a thread for each ring, where here everything lives on shards, and it has no
//! requests under way that outlive it; `vhost`, which it stands on, waits in the thread for the rest of a
//! message. So messages are read here. The tests speak with `vhost`'s frontend, which was written by others.
//!
//! # Copies
//! What a guest writes is copied out of its memory before anything looks at it, because the guest can change
//! it at any time: the block that is written has the checksum of the bytes that are written. What it reads is
//! copied out of the cache into a buffer and from there to the guest. A slice of guest memory for the cache
//! to fill would save the second copy, but Rust promises its optimizer that nothing else changes such a
//! slice.
//!
//! # What a client cannot do
//! - Affect others: its memory, requests and rings are bounded ([`crate::block::Limits`]), and a shard gives
//!   each ring a turn.
//! - Make a shard wait: its files are eventfds and memory, and are checked to be.
//! - End the daemon by taking memory away (`fault`), or by descriptors, lengths or addresses that make no
//!   sense: each is checked when it is used. Where an answer has a place, it is an error; else the session
//!   ends.
//!
//! It can fill its own guest's memory, which is charged to the daemon where the client has not touched it
//! yet. Only the daemon's user and root may connect.
//!
//! # What is left out
//! Migration with a log of changed pages, packed rings, IOMMUs, and rings without eventfds.

mod chain;
mod device;
mod fault;
mod inflight;
mod memory;
mod protocol;
mod queue;
mod request;
mod session;
mod sockets;
pub mod untrusted;

pub use sockets::{Faults, serve_folder, socket_of};
