//! The guest's memory, as the client lends it.
//!
//! # The idea
//! The client names regions: where the guest sees each (*guest address*), where the client has it in its own
//! address space (*user address*, which only the addresses of rings are given in), and a file with an offset.
//! Each is mapped here. A [`Memory`] is a set of regions at one time. It is never changed but replaced, and a
//! request keeps the one that it began with, so that nothing is unmapped under it.
//!
//! # Trust
//! All of it may change at any time: what is read here is copied first and looked at then. No reference to it
//! is ever made; all accesses go through `vm-memory`, which checks each address and length. A region must be
//! in memory (tmpfs or hugetlbfs, which is where `memfd` and `/dev/shm` are), so that no page of it can make
//! the daemon wait for a device or for a filesystem of the client's own. Its file must have the size that is
//! claimed, and may become shorter all the same: see [`super::fault`].

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use engine::dmu::Sink;
use vm_memory::{
    Address, Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap,
    MmapRegion,
};

use super::fault::Guard;

/// Regions of one client.
pub(super) const MOST_REGIONS: usize = 32;
/// Magic numbers of the filesystems that regions may be in.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
/// What zeroes are copied from.
static ZEROES: [u8; 16 << 10] = [0; 16 << 10];

/// A region as a client describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Described {
    pub guest_address: u64,
    pub len_bytes: u64,
    pub user_address: u64,
    pub file_offset: u64,
}

/// A file's bytes that are mapped and may become inaccessible.
#[derive(Debug)]
pub(super) struct Mapped {
    // Dropped first.
    guard: Guard,
    region: Arc<MmapRegion>,
}

impl Mapped {
    /// Maps a part of a file.
    ///
    /// # Errors
    /// The file is too short or not in memory, or the system refuses.
    pub fn new(file: OwnedFd, offset: u64, len_bytes: u64) -> io::Result<Self> {
        let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why.to_owned()));
        let kind = u64::try_from(rustix::fs::fstatfs(&file)?.f_type).unwrap_or_default();
        if ![TMPFS, HUGETLBFS].contains(&kind) {
            return refuse("guest memory must be in tmpfs or hugetlbfs (share=on, a memfd or /dev/shm)");
        }
        let file = File::from(file);
        let end = offset.checked_add(len_bytes);
        if len_bytes == 0 || end.is_none_or(|end| end > file.metadata().map_or(0, |metadata| metadata.len()))
        {
            return refuse("a region of guest memory is larger than its file");
        }
        let len = usize::try_from(len_bytes).map_err(io::Error::other)?;
        let region = MmapRegion::from_file(FileOffset::new(file, offset), len).map_err(io::Error::other)?;
        let guard = Guard::new(region.as_ptr(), len)?;
        Ok(Self { guard, region: Arc::new(region) })
    }

    /// The memory.
    pub fn region(&self) -> &MmapRegion {
        &self.region
    }

    /// Whether all that was accessed was there.
    pub fn is_intact(&self) -> bool {
        self.guard.is_intact()
    }
}

/// A region that is mapped.
#[derive(Debug)]
struct Region {
    described: Described,
    mapped: Mapped,
}

/// The regions that a client lends.
#[derive(Debug, Default)]
pub(super) struct Memory {
    // Dropped before the mappings.
    regions: Vec<Arc<Region>>,
    map: GuestMemoryMmap,
}

impl Memory {
    /// One with a region more.
    ///
    /// # Errors
    /// The region is not valid, or overlaps others; there are too many.
    pub fn with(&self, described: Described, file: OwnedFd) -> io::Result<Self> {
        if self.regions.len() >= MOST_REGIONS {
            return Err(io::Error::other("too many regions of guest memory"));
        }
        if described.user_address.checked_add(described.len_bytes).is_none() {
            return Err(io::Error::other("a region of guest memory reaches beyond all addresses"));
        }
        let mapped = Mapped::new(file, described.file_offset, described.len_bytes)?;
        let mut regions = self.regions.clone();
        regions.push(Arc::new(Region { described, mapped }));
        Self::of(regions)
    }

    /// One without a region. The file offset is not compared.
    ///
    /// # Errors
    /// There is none like this.
    pub fn without(&self, described: Described) -> io::Result<Self> {
        let is_it = |region: &Region| {
            let Described { guest_address, len_bytes, user_address, .. } = region.described;
            (guest_address, len_bytes, user_address)
                == (described.guest_address, described.len_bytes, described.user_address)
        };
        let mut regions = self.regions.clone();
        let before = regions.len();
        regions.retain(|region| !is_it(region));
        match regions.len() < before {
            true => Self::of(regions),
            false => Err(io::Error::other("a region of guest memory that is not there is to go")),
        }
    }

    fn of(mut regions: Vec<Arc<Region>>) -> io::Result<Self> {
        regions.sort_by_key(|region| region.described.guest_address);
        if regions.is_empty() {
            return Ok(Self::default());
        }
        let map = |region: &Arc<Region>| {
            let base = GuestAddress(region.described.guest_address);
            GuestRegionMmap::with_arc(Arc::clone(&region.mapped.region), base).map(Arc::new)
        };
        let mapped: Option<Vec<_>> = regions.iter().map(map).collect();
        let mapped = mapped.ok_or_else(|| io::Error::other("guest memory beyond all addresses"))?;
        let map = GuestMemoryMmap::from_arc_regions(mapped).map_err(io::Error::other)?;
        Ok(Self { regions, map })
    }

    /// The memory by guest addresses.
    pub fn map(&self) -> &GuestMemoryMmap {
        &self.map
    }

    /// Whether all that was accessed was there. What was copied before is to be used only if so.
    pub fn is_intact(&self) -> bool {
        self.regions.iter().all(|region| region.mapped.is_intact())
    }

    /// The guest address of a user address.
    pub fn guest_address(&self, user_address: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let Described { guest_address, len_bytes, user_address: start, .. } = region.described;
            let offset = user_address.checked_sub(start)?;
            (offset < len_bytes).then(|| GuestAddress(guest_address + offset))
        })
    }

    /// Copies out of the pieces, in order, as much as `into` takes.
    pub fn gather(&self, pieces: &[Piece], mut into: &mut [u8]) -> Option<()> {
        for piece in pieces {
            let here = into.len().min(piece.len as usize);
            let (now, later) = std::mem::take(&mut into).split_at_mut(here);
            self.map.read_slice(now, piece.address).ok()?;
            into = later;
        }
        into.is_empty().then_some(())
    }

    /// Copies into the pieces, in order. `None` when not all of it is there.
    pub fn scatter(&self, pieces: &[Piece], from: &[u8]) -> Option<()> {
        let mut target = self.target(pieces);
        target.put(from);
        target.is_intact().then_some(())
    }

    /// The pieces as what takes the bytes of a read.
    pub fn target<'memory>(&'memory self, pieces: &'memory [Piece]) -> Target<'memory> {
        Target { map: &self.map, pieces, filled: 0, is_intact: true }
    }

    /// Whether a range is there.
    pub fn has(&self, address: GuestAddress, len_bytes: usize) -> bool {
        GuestMemoryBackend::check_range(&self.map, address, len_bytes)
    }
}

/// Pieces of guest memory that are filled in order.
#[derive(Debug)]
pub(super) struct Target<'memory> {
    map: &'memory GuestMemoryMmap,
    /// What is not full.
    pieces: &'memory [Piece],
    /// Bytes of the first of them that are.
    filled: u32,
    is_intact: bool,
}

impl Target<'_> {
    /// Whether all that was put lies in guest memory.
    pub fn is_intact(&self) -> bool {
        self.is_intact
    }
}

impl Sink for Target<'_> {
    fn put(&mut self, mut bytes: &[u8]) {
        while self.is_intact && !bytes.is_empty() {
            let Some((piece, later)) = self.pieces.split_first() else {
                self.is_intact = false;
                return;
            };
            let (now, rest) = bytes.split_at(bytes.len().min((piece.len - self.filled) as usize));
            let at = piece.address.checked_add(u64::from(self.filled));
            self.is_intact = at.is_some_and(|at| self.map.write_slice(now, at).is_ok());
            bytes = rest;
            // It is not more than the piece has.
            self.filled += now.len() as u32;
            if self.filled == piece.len {
                (self.pieces, self.filled) = (later, 0);
            }
        }
    }

    fn put_zeroes(&mut self, len_bytes: usize) {
        let mut rest = len_bytes;
        while rest > 0 {
            let here = rest.min(ZEROES.len());
            self.put(&ZEROES[..here]);
            rest -= here;
        }
    }
}

/// A part of guest memory. Not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub address: GuestAddress,
    pub len: u32,
}
