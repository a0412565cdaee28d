//! The daemon: HTTP API, NBD, iSCSI and vhost-user exports, FUSE mounts.

pub mod api;
pub mod audit;
pub mod block;
pub mod blockdev;
mod bounded;
pub mod cachefile;
pub mod caller;
mod commit_on_unmount;
mod cpu_latency;
pub mod daemon;
pub mod descriptors;
mod feed;
pub mod fuse;
pub mod http;
pub mod iscsi;
mod key_server;
pub mod listening;
mod load;
pub mod metrics;
pub mod nbd;
pub mod public;
pub mod runtime;
pub mod sizes;
pub mod socket;
mod users;
pub mod vhost_user;
