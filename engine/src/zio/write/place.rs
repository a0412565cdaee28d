//! Where encoded blocks go: space for each, and the pieces that are to be written there.
//!
//! Plain functions over [`Space`], so that gangs can be tested without a pool. A [`Placement`] collects the pieces of a batch, and what it
//! allocated, to give it back when the batch fails.

use device::SharedBuf;
use ondisk::Txg;
use ondisk::blkptr::Dva;

use super::encode::Units;
use crate::alloc::{Allocator, Denied};
use crate::vdev::Class;
use crate::vdev::write::Piece;

/// Where space comes from.
pub(super) trait Space {
    /// As [`Allocator::try_allocate`].
    fn allocate(&self, class: Class, psize: u64, copies: usize, txg: Txg) -> Result<Vec<Dva>, Denied>;

    /// As [`Allocator::takes_small_blocks`].
    fn takes_small_blocks(&self) -> bool;
}

impl Space for Allocator {
    fn allocate(&self, class: Class, psize: u64, copies: usize, txg: Txg) -> Result<Vec<Dva>, Denied> {
        self.try_allocate(class, psize, copies, txg)
    }

    fn takes_small_blocks(&self) -> bool {
        Allocator::takes_small_blocks(self)
    }
}

/// The pieces of a batch.
pub(super) struct Placement<'a, S: Space> {
    pub space: &'a S,
    pub units: Units,
    pub txg: Txg,
    /// What is written, and for which block of the batch.
    pub pieces: Vec<Piece>,
    pub owners: Vec<usize>,
    /// Allocated by this batch. The addresses of gang headers without their members.
    pub fresh: Vec<Dva>,
}

impl<'a, S: Space> Placement<'a, S> {
    pub fn new(space: &'a S, units: Units, txg: Txg) -> Self {
        Self { space, units, txg, pieces: Vec::new(), owners: Vec::new(), fresh: Vec::new() }
    }

    /// Space for one block or gang header.
    pub fn allocate(&mut self, class: Class, psize: u64, copies: usize) -> Result<Vec<Dva>, Denied> {
        let dvas = self.space.allocate(class, psize, copies, self.txg)?;
        self.fresh.extend(&dvas);
        Ok(dvas)
    }

    /// Has `bytes` written to all of `dvas`. The vdevs fill their last sectors with zeroes.
    pub fn write(&mut self, owner: usize, dvas: &[Dva], bytes: SharedBuf) {
        for dva in dvas {
            let (top, offset_bytes) = (dva.vdev.get(), dva.offset.get());
            self.pieces.push(Piece { top, offset_bytes, data: bytes.clone() });
            self.owners.push(owner);
        }
    }
}
