//! Volumes: who is connected to them, through what, and what becomes of clients while a volume is changed.
//!
//! Protocols know volumes as exports ([`crate::block`]). A volume that is open for a client is an
//! `open_volume`; its `connection` does what is done around each request. Everything that exchanges, renames
//! or destroys a volume goes by `held_clients`.
//!
//! | module | what it owns |
//! |---|---|
//! | `exports` | volumes and their snapshots as exports of protocols |
//! | `list` | the volumes of a pool, by name |
//! | `open_volume`, `freeze` | a volume that is open for a client, and how it is exchanged under the client |
//! | `connection` | what is done around each request of a client |
//! | `fence` | whether another host has the pool: its clients are told nothing more |
//! | `clients` | who the clients are, what they did, and requests that take long |
//! | `held_clients` | what becomes of clients while volumes are changed |
//! | `sharing`, `endpoints` | how volumes are shared, where they are served, and where clients find them |
//! | `attached` | volumes as block devices of the kernel |
//! | `reshapes` | volumes that get another block size |
//! | `recording`, `loads` | what clients ask for, and load from inside, for the lab |

pub(super) mod attached;
pub(super) mod clients;
mod connection;
pub(super) mod endpoints;
pub(super) mod exports;
pub(super) mod fence;
mod freeze;
pub(super) mod held_clients;
pub(super) mod list;
mod loads;
mod open_volume;
pub(super) mod recording;
mod reshapes;
pub(super) mod sharing;

pub use connection::VolumeExport;
