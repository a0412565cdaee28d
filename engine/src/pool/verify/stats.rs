//! Counters of blocks by type and level, as `zdb -b` keeps them.
//!
//! Each block counts in its own level and type. Embedded blocks count with their logical size and no physical
//! one. Blocks of the self-describing types count together as "other", blocks that wait to be freed as
//! "deferred free". Types by level, totals and the metadata line of `zdb` all follow from these.

use std::collections::BTreeMap;

use ondisk::blkptr::{Blkptr, Dva, EmbeddedType};
use ondisk::dmu::DmuType;

/// What `zdb` files a block under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// A numbered object type.
    Type(DmuType),
    /// Waits to be freed.
    DeferredFree,
    /// A self-describing object type.
    Other,
}

impl BlockKind {
    /// What the block that `bp` points to is filed under.
    pub fn of(bp: &Blkptr) -> Self {
        let ty = bp.dmu_type();
        if ty.is_self_describing() { Self::Other } else { Self::Type(ty) }
    }
}

/// Sums over some blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks.
    pub count: u64,
    /// Logical bytes.
    pub lsize: u64,
    /// Physical bytes.
    pub psize: u64,
    /// Allocated bytes, all copies.
    pub asize: u64,
    /// Copies that are gangs.
    pub gangs: u64,
    /// Blocks with two copies on one vdev.
    pub ditto_same_vdev: u64,
    /// Blocks with two copies in one metaslab.
    pub ditto_same_metaslab: u64,
}

impl Counters {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.lsize += other.lsize;
        self.psize += other.psize;
        self.asize += other.asize;
        self.gangs += other.gangs;
        self.ditto_same_vdev += other.ditto_same_vdev;
        self.ditto_same_metaslab += other.ditto_same_metaslab;
    }
}

/// Blocks and bytes by power of two of a size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Blocks whose size is at least two to the power of the index, and less than the next.
    pub count: [u64; 32],
    /// Their bytes.
    pub bytes: [u64; 32],
}

impl Histogram {
    fn add(&mut self, size: u64) {
        let bin = size.checked_ilog2().unwrap_or(0).min(31) as usize;
        self.count[bin] += 1;
        self.bytes[bin] += size;
    }

    fn merge(&mut self, other: &Self) {
        let pairs = [(&mut self.count, &other.count), (&mut self.bytes, &other.bytes)];
        for (mine, theirs) in pairs {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        }
    }
}

/// All counters of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockStats {
    by_kind: BTreeMap<(BlockKind, i8), Counters>,
    /// By physical size.
    pub psizes: Histogram,
    /// By logical size.
    pub lsizes: Histogram,
    /// By allocated size.
    pub asizes: Histogram,
    /// Embedded blocks, by kind of payload (data, reserved, redacted).
    pub embedded: [u64; 3],
    /// References to deduplicated blocks beyond the first.
    pub dedup_blocks: u64,
    /// The space that these would take.
    pub dedup_asize: u64,
    /// References to cloned blocks beyond the first.
    pub cloned_blocks: u64,
    /// The space that these would take.
    pub cloned_asize: u64,
}

impl BlockStats {
    /// Counts one block. `metaslab_shift` gives the size of a vdev's metaslabs.
    pub(super) fn add(&mut self, bp: &Blkptr, kind: BlockKind, metaslab_shift: impl Fn(u32) -> Option<u8>) {
        let mut dvas = [None; 3];
        for (place, dva) in dvas.iter_mut().zip(bp.dvas()) {
            *place = Some(dva);
        }
        let same_vdev = |a: &Dva, b: &Dva| a.vdev == b.vdev;
        let same_metaslab = |a: &Dva, b: &Dva| {
            let shift = metaslab_shift(a.vdev.get()).map_or(63, u32::from);
            same_vdev(a, b) && a.offset.get().checked_shr(shift) == b.offset.get().checked_shr(shift)
        };
        let pairs = [(dvas[0], dvas[1]), (dvas[0], dvas[2]), (dvas[1], dvas[2])];
        let pairs = || pairs.iter().filter_map(|(a, b)| a.zip(*b));
        // Of three copies only the first pair on one vdev is asked whether it shares a metaslab.
        let first_on_vdev = pairs().find(|(a, b)| same_vdev(a, b));
        let block = Counters {
            count: 1,
            lsize: bp.lsize().get(),
            psize: bp.psize().get(),
            asize: bp.asize().get(),
            gangs: bp.dvas().filter(|dva| dva.gang).count() as u64,
            ditto_same_vdev: first_on_vdev.is_some().into(),
            ditto_same_metaslab: pairs().any(|(a, b)| same_metaslab(&a, &b)).into(),
        };
        self.by_kind.entry((kind, bp.level().get())).or_default().add(&block);
        match bp.embedded() {
            Some(embedded) => self.embedded[embedded_index(embedded.kind)] += 1,
            None => {
                self.psizes.add(block.psize);
                self.lsizes.add(block.lsize);
                self.asizes.add(block.asize);
            }
        }
    }

    /// Counts a further reference to a block that was counted before.
    pub(super) fn add_repeated(&mut self, bp: &Blkptr) {
        let (blocks, asize) = match bp.is_dedup() {
            true => (&mut self.dedup_blocks, &mut self.dedup_asize),
            false => (&mut self.cloned_blocks, &mut self.cloned_asize),
        };
        *blocks += 1;
        *asize += bp.asize().get();
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (key, counters) in &other.by_kind {
            self.by_kind.entry(*key).or_default().add(counters);
        }
        self.psizes.merge(&other.psizes);
        self.lsizes.merge(&other.lsizes);
        self.asizes.merge(&other.asizes);
        self.embedded.iter_mut().zip(other.embedded).for_each(|(mine, theirs)| *mine += theirs);
        self.dedup_blocks += other.dedup_blocks;
        self.dedup_asize += other.dedup_asize;
        self.cloned_blocks += other.cloned_blocks;
        self.cloned_asize += other.cloned_asize;
    }

    /// The counters of each kind and level that occurred.
    pub fn levels(&self) -> impl Iterator<Item = (BlockKind, i8, &Counters)> {
        self.by_kind.iter().map(|(&(kind, level), counters)| (kind, level, counters))
    }

    /// The counters of one kind, all levels together.
    pub fn kind(&self, kind: BlockKind) -> Counters {
        self.sum(|of, _, _| of == kind)
    }

    /// The counters of all blocks.
    pub fn total(&self) -> Counters {
        self.sum(|_, _, _| true)
    }

    /// The counters of one level, all kinds together.
    pub fn level(&self, level: i8) -> Counters {
        self.sum(|_, of, _| of == level)
    }

    /// The counters of metadata: all indirect blocks, and the data of metadata types. As `zdb` counts, what
    /// is embedded alone does not appear.
    pub fn metadata(&self) -> Counters {
        self.sum(|kind, level, counters| match kind {
            BlockKind::Type(ty) => counters.asize > 0 && (level > 0 || ty.is_metadata()),
            BlockKind::DeferredFree | BlockKind::Other => false,
        })
    }

    fn sum(&self, wanted: impl Fn(BlockKind, i8, &Counters) -> bool) -> Counters {
        let mut sum = Counters::default();
        for (&(kind, level), counters) in &self.by_kind {
            if wanted(kind, level, counters) {
                sum.add(counters);
            }
        }
        sum
    }
}

fn embedded_index(kind: EmbeddedType) -> usize {
    match kind {
        EmbeddedType::Data => 0,
        EmbeddedType::Reserved => 1,
        EmbeddedType::Redacted => 2,
    }
}
