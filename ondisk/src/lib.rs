//! OpenZFS on-disk structures: bytes to types and back, no I/O, no policy.
//!
//! Every module describes one structure with its layout table and offers
//! `parse(&[u8], ByteOrder) -> Result<T>` and `encode`. Input is never trusted: a parse returns a well-formed
//! value or an [`Error`], and never panics, never allocates more than the input justifies and never loops
//! without a bound. OpenZFS pools are written in the byte order of the machine that wrote them, block by
//! block, hence [`ByteOrder`] is a value and not a type.

#![forbid(unsafe_code)]

pub mod blkptr;
pub mod bytes;
pub mod byteswap;
pub mod dmu;
pub mod dnode;
mod error;
pub mod label;
pub mod nvlist;
pub mod objset;
pub mod sa;
pub mod types;
pub mod uberblock;
pub mod vdev_config;
pub mod zap;
pub mod zpl;

pub use bytes::{ByteOrder, Reader, Writer};
pub use error::{Error, Result};
pub use types::{Asize, BlockId, ByteOffset, Guid, Level, Lsize, ObjectId, ObjsetId, Psize, Txg, VdevId};

pub mod accounting;
pub mod bookmark;
pub mod bpobj;
pub mod brt;
pub mod checkpoint;
pub mod crypto_key;
pub mod ddt;
pub mod deadlist;
pub mod deleg;
pub mod dsl_dataset;
pub mod dsl_dir;
pub mod errlog;
pub mod features;
pub mod history;
pub mod holds;
pub mod indirect;
pub mod l2arc;
pub mod log_space_map;
pub mod metaslab;
pub mod nearest;
pub mod pool_directory;
pub mod pool_version;
pub mod redaction;
pub mod scan;
pub mod send;
pub mod space_map;
mod words;
pub mod zil;
