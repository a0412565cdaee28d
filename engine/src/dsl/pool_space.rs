//! Space accounting: what each top-level vdev and each allocation class holds, and what may still be written.
//!
//! A top-level vdev is cut into metaslabs of one size. Each metaslab's space map says in its header how much
//! of it is allocated and how long its free segments are; log space maps hold what was not yet folded in.
//! Every vdev belongs to one allocation class; on vdevs of the normal class with many metaslabs, the emptiest
//! one is set apart for the intent log.
//!
//! Sizes are raw (parity included). *Deflated* space is what files can use: 512-byte units times the number
//! of data bytes that one raw unit of a 128 KiB block stands for. Of the deflated space of the normal class,
//! a share is kept back ([`PoolSpace::slop_bytes`]) so that deleting always works. What is allocated on
//! special and dedup vdevs is counted as room too, since it is among what the datasets use, and takes nothing
//! from the normal class.
//!
//! Fragmentation is a mark from 0 to 100 for how short free segments are: each power of two has its mark, a
//! metaslab's is the mean over its free bytes, a vdev's the mean over its metaslabs by free bytes, a class's
//! over its vdevs by size. Source of the facts: OpenZFS 2.4 `metaslab.c`, `vdev.c`, `spa_misc.c`
//! (`spa_update_dspace`).

mod load;
mod tables;

pub(super) use tables::dedup_cached_bytes;
pub use tables::{CloneSpace, DedupSpace};

use ondisk::Asize;
use ondisk::blkptr::Blkptr;
use ondisk::space_map::HISTOGRAM_BUCKETS;

use crate::alloc;
use crate::vdev::Class;

const MIN_BLOCK_SHIFT: u32 = 9;
/// The smallest number of metaslabs with which none is set apart for the intent log.
const EMBEDDED_LOG_MAX_NONE: usize = 64;

/// Mark for free segments of 512 B, 1 KiB, 2 KiB and so on; longer ones than the last have the last's.
const FRAGMENTATION_MARKS: [u8; 21] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];

/// One metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metaslab {
    /// Its size; on dRAID vdevs a little less than `1 << ms_shift`.
    pub size_bytes: u64,
    /// Bytes allocated in it.
    pub allocated_bytes: u64,
    /// Its fragmentation; `None` where its space map keeps no histogram.
    pub fragmentation: Option<u64>,
}

/// The mark for a metaslab whose free segments are counted by `histogram`, in units of `1 << shift` bytes.
pub fn fragmentation(histogram: &[u64; HISTOGRAM_BUCKETS], shift: u32) -> u64 {
    let (mut weighted, mut total) = (0u128, 0u128);
    for (bucket, &count) in (0u32..).zip(histogram) {
        let space = u128::from(count) << (bucket + shift.min(32));
        let place = (shift.saturating_sub(MIN_BLOCK_SHIFT) + bucket) as usize;
        let mark = FRAGMENTATION_MARKS.get(place).copied().unwrap_or(0);
        total = total.saturating_add(space);
        weighted = weighted.saturating_add(space.saturating_mul(mark.into()));
    }
    weighted.checked_div(total).unwrap_or(0) as u64
}

/// Space of one top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevSpace {
    /// Number of the top-level vdev.
    pub id: u64,
    /// What it is for.
    pub class: Class,
    /// Raw size in bytes.
    pub size_bytes: u64,
    /// Raw bytes allocated.
    pub allocated_bytes: u64,
    /// Mean fragmentation; `None` where too few metaslabs keep histograms.
    pub fragmentation: Option<u64>,
    /// Whether new blocks may be put on it.
    pub allocating: bool,
    /// Raw size of one metaslab, where one is set apart for the intent log.
    embedded_log_bytes: u64,
    /// Data bytes for 512 raw bytes.
    deflate_ratio: u64,
}

impl VdevSpace {
    /// Adds up the metaslabs of a vdev.
    ///
    /// `deflate_ratio` is the number of data bytes that 512 raw bytes of a 128 KiB block hold.
    pub fn new(id: u64, class: Class, deflate_ratio: u64, metaslabs: &[Metaslab]) -> Self {
        let log = (class == Class::Normal && metaslabs.len() > EMBEDDED_LOG_MAX_NONE)
            .then(|| (0..metaslabs.len()).min_by_key(|&index| metaslabs[index].allocated_bytes))
            .flatten();
        let (mut weighted, mut free_units, mut marked, mut counted) = (0u128, 0u128, 0usize, 0usize);
        for (index, metaslab) in metaslabs.iter().enumerate() {
            if Some(index) == log {
                continue;
            }
            counted += 1;
            if let Some(mark) = metaslab.fragmentation {
                let units = metaslab.size_bytes.saturating_sub(metaslab.allocated_bytes) >> MIN_BLOCK_SHIFT;
                marked += 1;
                free_units += u128::from(units);
                weighted += u128::from(units) * u128::from(mark);
            }
        }
        let sum = |of: fn(&Metaslab) -> u64| metaslabs.iter().map(of).fold(0, u64::saturating_add);
        let known = marked >= counted.div_ceil(2) && free_units > 0;
        Self {
            id,
            class,
            size_bytes: sum(|metaslab| metaslab.size_bytes),
            allocated_bytes: sum(|metaslab| metaslab.allocated_bytes),
            fragmentation: known.then(|| (weighted / free_units) as u64),
            allocating: true,
            embedded_log_bytes: log.map_or(0, |index| metaslabs[index].size_bytes),
            deflate_ratio,
        }
    }

    /// Raw bytes free.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.allocated_bytes)
    }

    /// How full it is, in percent.
    pub fn capacity(&self) -> u64 {
        percent(self.allocated_bytes, self.size_bytes)
    }

    /// Raw bytes of it that belong to its class, without the metaslab set apart for the intent log.
    fn class_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.embedded_log_bytes)
    }

    /// The deflated size of `bytes` raw bytes.
    pub fn deflate(&self, bytes: u64) -> u64 {
        (bytes >> MIN_BLOCK_SHIFT).saturating_mul(self.deflate_ratio)
    }

    /// Its deflated size.
    pub fn deflated_bytes(&self) -> u64 {
        self.deflate(self.size_bytes)
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)) as u64 }
}

/// Space of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// Its top-level vdevs that hold blocks (no removed ones, no holes).
    pub vdevs: Vec<VdevSpace>,
    /// Whether the pool accounts in deflated space, as all but the oldest do.
    pub deflate: bool,
    /// Bytes that only the checkpoint still refers to.
    pub checkpoint_bytes: u64,
    /// Bytes freed in the last transaction group, whose blocks are given back in the next.
    pub deferred_frees_bytes: u64,
    /// What the dedup tables say.
    pub dedup: DedupSpace,
    /// What the tables of cloned blocks say.
    pub clones: CloneSpace,
}

impl PoolSpace {
    fn counted(&self) -> impl Iterator<Item = &VdevSpace> {
        self.vdevs.iter().filter(|vdev| vdev.class != Class::Log)
    }

    /// Raw size of all classes but the log.
    pub fn size_bytes(&self) -> u64 {
        self.counted().fold(0, |sum: u64, vdev| sum.saturating_add(vdev.size_bytes))
    }

    /// Raw bytes allocated in all classes but the log.
    pub fn allocated_bytes(&self) -> u64 {
        self.counted().fold(0, |sum: u64, vdev| sum.saturating_add(vdev.allocated_bytes))
    }

    /// Raw bytes free in all classes but the log.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes().saturating_sub(self.allocated_bytes())
    }

    /// How full the pool is, in percent.
    pub fn capacity(&self) -> u64 {
        percent(self.allocated_bytes(), self.size_bytes())
    }

    /// Fragmentation of the normal class; `None` where a vdev's is not known.
    pub fn fragmentation(&self) -> Option<u64> {
        let (mut weighted, mut total) = (0u128, 0u128);
        for vdev in self.vdevs.iter().filter(|vdev| vdev.class == Class::Normal) {
            let bytes = u128::from(vdev.class_bytes());
            weighted += u128::from(vdev.fragmentation?) * bytes;
            total += bytes;
        }
        (total > 0).then(|| (weighted / total) as u64)
    }

    fn sum(&self, of: impl Fn(Class) -> bool, bytes: impl Fn(&VdevSpace) -> u64) -> u64 {
        let counted = |vdev: &VdevSpace| {
            if self.deflate { vdev.deflate(bytes(vdev)) } else { bytes(vdev) }
        };
        let vdevs = self.vdevs.iter().filter(|vdev| of(vdev.class));
        vdevs.fold(0, |sum: u64, vdev| sum.saturating_add(counted(vdev)))
    }

    fn usable(&self, bytes: impl Fn(&VdevSpace) -> u64) -> u64 {
        self.sum(|class| class == Class::Normal, bytes)
    }

    /// Deflated bytes that are allocated on vdevs for metadata, small blocks and dedup tables.
    fn special_bytes(&self) -> u64 {
        self.sum(|class| matches!(class, Class::Special | Class::Dedup), |vdev| vdev.allocated_bytes)
    }

    /// Deflated size of the normal class, without vdevs on which nothing new is put.
    fn real_bytes(&self) -> u64 {
        self.usable(|vdev| if vdev.allocating { vdev.class_bytes() } else { 0 })
    }

    /// What is kept back: a thirty-second of the space, at least 128 MiB but at most half, at most 128 GiB.
    pub fn slop_bytes(&self) -> u64 {
        alloc::slop_bytes(self.real_bytes(), self.usable(|vdev| vdev.embedded_log_bytes))
    }

    /// The deflated size of `asize` raw bytes on a top-level vdev.
    fn deflated(&self, vdev: u64, asize: Asize) -> u64 {
        match self.vdevs.iter().find(|space| space.id == vdev) {
            Some(space) if self.deflate => space.deflate(asize.0),
            _ => asize.0,
        }
    }

    /// The deflated size of a block, all its copies together.
    pub fn block_bytes(&self, bp: &Blkptr) -> u64 {
        bp.dvas().fold(0, |sum: u64, dva| sum.saturating_add(self.deflated(u64::from(dva.vdev.0), dva.asize)))
    }

    /// What all datasets together may occupy: the root dataset's `used` and `available` add up to it.
    pub fn adjusted_bytes(&self) -> u64 {
        self.real_bytes()
            .saturating_add(self.special_bytes())
            .saturating_add(self.dedup.saved_bytes())
            .saturating_add(self.clones.saved_bytes)
            .saturating_sub(self.checkpoint_bytes)
            .saturating_sub(self.deferred_frees_bytes)
            .saturating_sub(self.slop_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab(allocated_bytes: u64, fragmentation: Option<u64>) -> Metaslab {
        Metaslab { size_bytes: 1 << 24, allocated_bytes, fragmentation }
    }

    #[test]
    fn small_pools_keep_back_128_mib_or_half() {
        let vdev = VdevSpace::new(0, Class::Normal, 512, &[slab(0, Some(0)); 30]);
        let pool = PoolSpace { vdevs: vec![vdev], deflate: true, ..PoolSpace::default() };
        assert_eq!(pool.size_bytes(), 480 << 20);
        assert_eq!(pool.slop_bytes(), 128 << 20);
        assert_eq!(pool.adjusted_bytes(), 352 << 20);
        let vdev = VdevSpace::new(0, Class::Normal, 512, &[slab(0, Some(0)); 4]);
        let pool = PoolSpace { vdevs: vec![vdev], deflate: true, ..PoolSpace::default() };
        assert_eq!(pool.slop_bytes(), 32 << 20);
    }

    #[test]
    fn what_special_vdevs_hold_takes_no_room_of_the_others() {
        let normal = VdevSpace::new(0, Class::Normal, 512, &[slab(0, Some(0)); 30]);
        let special = VdevSpace::new(1, Class::Special, 512, &[slab(5 << 20, Some(0)); 2]);
        let dedup = VdevSpace::new(2, Class::Dedup, 512, &[slab(1 << 20, Some(0))]);
        let log = VdevSpace::new(3, Class::Log, 512, &[slab(1 << 20, Some(0))]);
        let vdevs = vec![normal, special, dedup, log];
        let pool = PoolSpace { vdevs, deflate: true, ..PoolSpace::default() };
        assert_eq!(pool.slop_bytes(), 128 << 20);
        assert_eq!(pool.adjusted_bytes(), (352 + 10 + 1) << 20);
    }

    #[test]
    fn one_metaslab_of_many_is_set_apart_for_the_log() {
        let mut slabs = vec![slab(4096, Some(10)); 65];
        slabs[7].allocated_bytes = 0;
        slabs[7].fragmentation = Some(100);
        let vdev = VdevSpace::new(0, Class::Normal, 512, &slabs);
        assert_eq!(vdev.fragmentation, Some(10));
        assert_eq!(vdev.size_bytes, 65 << 24);
        let pool = PoolSpace { vdevs: vec![vdev], deflate: true, ..PoolSpace::default() };
        assert_eq!(pool.real_bytes(), 64 << 24);
    }

    #[test]
    fn fragmentation_is_unknown_when_fewer_than_half_the_metaslabs_know_theirs() {
        let slabs = [slab(0, Some(8)), slab(0, None), slab(0, None)];
        assert_eq!(VdevSpace::new(0, Class::Normal, 512, &slabs).fragmentation, None);
        let slabs = [slab(0, Some(8)), slab(0, Some(4)), slab(0, None)];
        assert_eq!(VdevSpace::new(0, Class::Normal, 512, &slabs).fragmentation, Some(6));
    }

    #[test]
    fn short_free_segments_mark_high() {
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        assert_eq!(fragmentation(&histogram, 12), 0);
        histogram[0] = 1;
        assert_eq!(fragmentation(&histogram, 9), 100);
        assert_eq!(fragmentation(&histogram, 12), 93);
        histogram = [0; HISTOGRAM_BUCKETS];
        histogram[31] = u64::MAX;
        assert_eq!(fragmentation(&histogram, 12), 0);
    }
}
