//! Writing to the vdev tree.

use device::IoBuf;
use ondisk::{Guid, Txg};

use super::VdevTree;
use crate::error::{Attempt, Result};

/// One piece for one top-level vdev.
#[derive(Debug)]
pub struct Piece {
    /// Top-level vdev.
    pub top: u32,
    /// Offset in its allocatable space, a multiple of its sector.
    pub offset_bytes: u64,
    /// The bytes; padded with zeroes to whole sectors.
    pub data: IoBuf,
}

impl VdevTree {
    /// Writes all pieces of group `txg`. Runs that lie together on a leaf become one transfer. One result a piece: written to as many devices as
    /// its vdev needs to be able to read it again, or what failed. Leaves that missed a write are noted ([`super::Vdev::missing_txgs`]).
    pub async fn write(&self, _txg: Txg, _pieces: Vec<Piece>) -> Vec<Result<(), Vec<Attempt>>> {
        todo!()
    }

    /// Makes all that was written durable on every leaf that was written to since its last flush.
    pub async fn flush(&self) -> Result<(), Vec<Attempt>> {
        todo!()
    }

    /// Writes an uberblock (the encoded 168 bytes and what follows, unsealed) into the slot of its txg, in all four labels of the leaves given.
    /// Error when no leaf took it.
    pub async fn write_uberblock(
        &self,
        _leaves: &[Guid],
        _txg: Txg,
        _uberblock: &[u8],
    ) -> Result<(), Vec<Attempt>> {
        todo!()
    }

    /// Writes the configuration into the labels of one leaf: labels 0 and 2, or 1 and 3.
    pub async fn write_label(
        &self,
        _leaf: Guid,
        _odd: bool,
        _config: &ondisk::nvlist::Nvlist,
    ) -> Result<(), Vec<Attempt>> {
        todo!()
    }
}
