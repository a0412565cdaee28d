//! Where encoded blocks go: space for each, and the pieces that are to be written there.
//!
//! Plain functions over [`Space`], so that gangs can be tested without a pool. A [`Placement`] collects the pieces of a batch, and what it
//! allocated, to give it back when the batch fails.

use device::IoBuf;
use ondisk::Txg;
use ondisk::blkptr::Dva;

use super::encode::Units;
use crate::alloc::{Allocator, NoSpace};
use crate::vdev::write::Piece;
use crate::vdev::{Class, VdevTree};

/// Where space comes from.
pub(super) trait Space {
    /// As [`Allocator::allocate`].
    fn allocate(&self, class: Class, psize: u64, copies: usize, txg: Txg) -> Result<Vec<Dva>, NoSpace>;

    /// Bytes in a sector of a top-level vdev.
    fn sector(&self, top: u32) -> u64;
}

/// The space of an open pool.
pub(super) struct PoolSpace<'a> {
    pub allocator: &'a Allocator,
    pub tree: &'a VdevTree,
}

impl Space for PoolSpace<'_> {
    fn allocate(&self, class: Class, psize: u64, copies: usize, txg: Txg) -> Result<Vec<Dva>, NoSpace> {
        self.allocator.allocate(class, psize, copies, txg)
    }

    fn sector(&self, top: u32) -> u64 {
        self.tree.top(top).and_then(|top| 1u64.checked_shl(top.ashift)).unwrap_or(512)
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
    pub fn allocate(&mut self, class: Class, psize: u64, copies: usize) -> Result<Vec<Dva>, NoSpace> {
        let dvas = self.space.allocate(class, psize, copies, self.txg)?;
        self.fresh.extend(&dvas);
        Ok(dvas)
    }

    /// Has the first `psize` bytes of `bytes` written to all of `dvas`. After them come zeroes up to whole sectors of any vdev.
    pub fn write(&mut self, owner: usize, dvas: &[Dva], psize: u64, bytes: IoBuf) {
        let Some((last, others)) = dvas.split_last() else { return };
        for dva in others {
            let length = self.whole_sectors(dva, psize).min(bytes.len());
            self.piece(owner, dva, IoBuf::from(&bytes[..length]));
        }
        let mut bytes = bytes;
        bytes.truncate(self.whole_sectors(last, psize));
        self.piece(owner, last, bytes);
    }

    /// As [`Placement::write`], of bytes without anything after them.
    pub fn write_unpadded(&mut self, owner: usize, dvas: &[Dva], bytes: &[u8]) {
        self.write(owner, dvas, bytes.len() as u64, padded(bytes, &self.units));
    }

    /// What `psize` bytes take where `dva` leads: a vdev may have smaller sectors than another.
    fn whole_sectors(&self, dva: &Dva, psize: u64) -> usize {
        psize.next_multiple_of(self.space.sector(dva.vdev.get())) as usize
    }

    fn piece(&mut self, owner: usize, dva: &Dva, data: IoBuf) {
        self.pieces.push(Piece { top: dva.vdev.get(), offset_bytes: dva.offset.get(), data: data.into() });
        self.owners.push(owner);
    }
}

/// A copy of `bytes`, and zeroes after them up to whole sectors of any vdev.
pub(super) fn padded(bytes: &[u8], units: &Units) -> IoBuf {
    let mut buffer = IoBuf::for_overwrite(bytes.len().next_multiple_of(units.max_sector as usize));
    let (head, tail) = buffer.split_at_mut(bytes.len());
    device::copy(head, bytes);
    tail.fill(0);
    buffer
}
