//! Where encoded blocks go: the space for each block, and the pieces to write there.
//!
//! These are plain functions over [`Space`], so that gangs can be tested without a pool. A [`Placement`]
//! collects the pieces of a batch and its allocations, so that these can be given back when the batch fails.

use device::SharedBuf;
use ondisk::Txg;
use ondisk::blkptr::{Dva, GANG_HEADER_SIZE, MAX_BLOCK_SIZE};

use super::encode::Units;
use super::features::{GangHeaders, WriterFeatures};
use crate::alloc::{Allocator, Denied};
use crate::vdev::write::Piece;
use crate::vdev::{Class, Vdev};

/// The source of space.
pub(super) trait Space {
    /// See [`Allocator::try_allocate`].
    fn allocate(&self, class: Class, psize: u64, copies: usize, txg: Txg) -> Result<Vec<Dva>, Denied>;

    /// See [`Allocator::takes_small_blocks`].
    fn takes_small_blocks(&self) -> bool;

    /// The smallest allocation among the vdevs of these addresses, in bytes.
    fn min_alloc_of(&self, dvas: &[Dva]) -> u64;
}

impl Space for Allocator {
    fn allocate(&self, class: Class, psize: u64, copies: usize, txg: Txg) -> Result<Vec<Dva>, Denied> {
        self.try_allocate(class, psize, copies, txg)
    }

    fn takes_small_blocks(&self) -> bool {
        Allocator::takes_small_blocks(self)
    }

    fn min_alloc_of(&self, dvas: &[Dva]) -> u64 {
        let tops = dvas.iter().filter_map(|dva| self.vdevs().top(dva.vdev.get()));
        tops.map(Vdev::min_alloc).min().unwrap_or(GANG_HEADER_SIZE as u64)
    }
}

/// The pieces of a batch.
pub(super) struct Placement<'a, S: Space> {
    pub space: &'a S,
    pub units: Units,
    pub txg: Txg,
    pub gang_headers: GangHeaders,
    /// The most copies of a gang header.
    pub max_copies: usize,
    /// A gang found no room for a part, and a larger header would have had a pointer for it.
    pub wants_larger_headers: bool,
    /// The pieces to write, each with its block in the batch.
    pub pieces: Vec<Piece>,
    pub owners: Vec<usize>,
    /// The addresses that this batch allocated. The size of a gang header is without its members.
    pub fresh: Vec<Dva>,
}

impl<'a, S: Space> Placement<'a, S> {
    pub fn new(space: &'a S, units: Units, features: WriterFeatures, txg: Txg) -> Self {
        Self {
            space,
            units,
            txg,
            gang_headers: features.gang_headers,
            max_copies: features.max_copies.into(),
            wants_larger_headers: false,
            pieces: Vec::new(),
            owners: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// Space for one block or gang header.
    pub fn allocate(&mut self, class: Class, psize: u64, copies: usize) -> Result<Vec<Dva>, Denied> {
        let dvas = self.space.allocate(class, psize, copies, self.txg)?;
        self.fresh.extend(&dvas);
        Ok(dvas)
    }

    /// The most bytes that a gang header at these addresses may have: it must fit at each of them.
    pub fn largest_header(&self, headers: &[Dva]) -> usize {
        let size = self.space.min_alloc_of(headers);
        size.clamp(GANG_HEADER_SIZE as u64, MAX_BLOCK_SIZE) as usize
    }

    /// Bytes of a gang header that is written at these addresses now.
    pub fn header_size(&self, headers: &[Dva]) -> usize {
        match self.gang_headers {
            GangHeaders::Large => self.largest_header(headers),
            GangHeaders::Small | GangHeaders::SmallYet => GANG_HEADER_SIZE,
        }
    }

    /// Schedules a write of `bytes` to all of `dvas`. The vdevs fill their last sectors with zeroes.
    pub fn write(&mut self, owner: usize, dvas: &[Dva], bytes: SharedBuf) {
        for dva in dvas {
            let (top, offset_bytes) = (dva.vdev.get(), dva.offset.get());
            self.pieces.push(Piece { top, offset_bytes, data: bytes.clone() });
            self.owners.push(owner);
        }
    }
}
