//! Reading and checking every block of a pool.
//!
//! # The idea
//! Every block pointer that can be reached from the uberblock is followed once: the MOS, from it each dataset
//! and snapshot (a snapshot only as far as blocks are newer than the snapshot before it, since older blocks
//! were met there), their intent logs, and the lists of blocks that wait to be freed. What is reached is
//! counted as `zdb -b` counts, read in all copies, and claimed. At the end the claims must be exactly what
//! the space maps call allocated: what is allocated but not claimed has leaked; what is claimed twice, or
//! claimed and not allocated, will be overwritten one day.
//!
//! # How it is fast
//! The blocks are walked many at a time ([`crate::traverse::survey`]). Neighbours are joined to large
//! transfers ([`crate::vdev::scrub::Window`]), and checksums are computed straight out of these. Only blocks
//! that lead to others are decompressed.
//!
//! # Encrypted datasets
//! Checksums need no key. Where the key of a dataset is loaded, each of its blocks that is read is
//! authenticated besides: object sets by their MACs, indirect blocks by those of their pointers, dnodes and
//! all else by their own, and blocks of its intent log. Of a dataset whose key is not loaded, indirect blocks
//! alone are authenticated, which takes none.
//!
//! | module | what it owns |
//! |---|---|
//! | `dedup` | whether dedup tables count right |
//! | `simulated` | what a dedup table of all data would hold |
//! | `roots` | where a verification begins, and blocks that wait to be freed |
//! | `visit` | what is done with a block |
//! | `stats` | counters by type and level, as `zdb` keeps them |
//! | `space` | what is allocated, and whether it is what was claimed |

mod dedup;
mod roots;
mod simulated;
mod space;
mod stats;
mod visit;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device::{IgnorePoison, block_on};
use ondisk::blkptr::{Blkptr, Dva};
use ondisk::{ObjsetId, Txg};

use crate::Bookmark;
use crate::Pool;
use crate::dmu::Objset;
use crate::error::{Attempt, Error, Result};
use crate::traverse::survey;
use dedup::Entries;
use roots::Work;
use simulated::Simulation;

pub use dedup::DedupReport;
pub use simulated::{References, Simulated, simulate_dedup};
pub use space::{Claim, Range, SpaceReport, metaslab_bounds};
pub use stats::{BlockKind, BlockStats, Counters, Histogram};

/// Most errors that are kept with their details; all are counted.
const MAX_ERRORS_KEPT: usize = 10_000;

/// How thoroughly to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Threads that read and compute.
    pub threads: usize,
    /// What is read.
    pub depth: Depth,
    /// Compare with the space maps.
    pub check_space: bool,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, depth: Depth::Everything, check_space: true }
    }
}

/// What a verification reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// What it must to find all block pointers (`zdb -b`).
    Structure,
    /// All metadata, every copy (`zdb -bc`).
    Metadata,
    /// All blocks, every copy, and parity (`zdb -bcc`).
    Everything,
}

/// How far a running verification is, for a progress bar. Shared with the thread that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of allocated space that were met so far.
    pub asize: AtomicU64,
    /// Bytes allocated in all, once known.
    pub total_asize: AtomicU64,
    /// Blocks met so far.
    pub blocks: AtomicU64,
    /// Errors so far.
    pub errors: AtomicU64,
    /// Set to end the verification early.
    pub cancel: AtomicBool,
}

/// A block of which some or all that is stored is bad.
#[derive(Debug, Clone)]
pub struct BlockError {
    /// Which block.
    pub at: Bookmark,
    /// What failed.
    pub tried: Vec<Attempt>,
    /// Why nothing could be read at all; `None` when another copy or parity gave the right bytes.
    pub fatal: Option<Error>,
}

/// The outcome of a verification.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Blocks by type and level.
    pub stats: BlockStats,
    /// Blocks that are damaged in some copy, the first ones with details.
    pub errors: Vec<BlockError>,
    /// Blocks of which no right copy was found.
    pub unreadable_blocks: u64,
    /// Blocks of which some copy or parity was wrong.
    pub damaged_blocks: u64,
    /// Blocks of encrypted datasets that were found to be what their keys made.
    pub authenticated_blocks: u64,
    /// Comparison with the space maps, if asked for.
    pub space: Option<SpaceReport>,
    /// Comparison of dedup tables with the pointers that were met, if space was compared too and the pool has
    /// such tables.
    pub dedup: Option<DedupReport>,
    /// What could not be followed, for people.
    pub notes: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// It was ended early: counts are incomplete.
    pub cancelled: bool,
}

impl Report {
    /// Whether nothing at all was found wrong.
    pub fn is_clean(&self) -> bool {
        self.unreadable_blocks == 0
            && self.damaged_blocks == 0
            && self.space.as_ref().is_none_or(SpaceReport::is_clean)
            && self.dedup.as_ref().is_none_or(|dedup| dedup.wrong_entries == 0)
    }
}

/// Verifies a pool, on threads of its own. Blocks the calling thread until done.
pub fn verify(pool: &Arc<Pool>, options: VerifyOptions, progress: &Progress) -> Result<Report> {
    let start = Instant::now();
    let (cloned, mut roots, allocated, entries) = block_on(async {
        let cloned = space::cloned_blocks(pool).await?;
        let mut roots = roots::of(pool).await?;
        let allocated = if options.check_space { Some(space::allocated(pool).await?) } else { None };
        let entries = match options.check_space {
            true => Entries::load(pool).await.unwrap_or_else(|error| {
                roots.notes.push(format!("dedup tables: {error}"));
                None
            }),
            false => None,
        };
        Ok::<_, Error>((cloned, roots, allocated, entries))
    })?;
    let total = allocated.as_ref().map_or(0, space::Allocated::total);
    progress.total_asize.store(total, Ordering::Relaxed);
    let shared = Shared { entries, ..Shared::new(pool, options, progress, cloned) };
    let mut results = Results::default();
    for pointer in roots.waiting_to_be_freed.drain(..) {
        shared.count(&mut results, &pointer, BlockKind::DeferredFree);
        // It may never have been written as a whole; its headers say what it takes.
        block_on(shared.claim_members(&pointer, &mut results));
    }
    results.merge(shared.run(roots.work)?);
    let space = match allocated {
        Some(allocated) => Some(block_on(allocated.compare(pool, results.claims))),
        None => None,
    };
    Ok(Report {
        stats: results.stats,
        errors: results.errors,
        unreadable_blocks: results.unreadable_blocks,
        damaged_blocks: results.damaged_blocks,
        authenticated_blocks: results.authenticated_blocks,
        space,
        dedup: shared.entries.map(Entries::report),
        notes: roots.notes,
        elapsed: start.elapsed(),
        cancelled: progress.cancel.load(Ordering::Relaxed),
    })
}

/// The copies of blocks that livelists of destroyed clones name and the space maps do not call allocated.
/// They would be freed twice.
///
/// # Errors
/// A space map contradicts itself, or something cannot be read.
pub async fn livelists_not_allocated(pool: &Arc<Pool>) -> Result<Vec<Dva>> {
    let mos = Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?;
    let allocated = space::allocated(pool).await?;
    let mut pointers = Vec::new();
    roots::of_deleted_clones(&mos, &mut pointers).await?;
    let claims = pointers.iter().flat_map(|bp| bp.dvas().map(|dva| (dva, bp.physical_birth().get())));
    let not_there = claims.filter(|(dva, birth)| !allocated.has(pool, dva, *birth));
    Ok(not_there.map(|(dva, _)| dva).collect())
}

/// Whether all that was written in group `txg`, of which `pool` is the view, is on the devices. Blocks the
/// calling thread until that is known.
///
/// # Errors
/// It cannot be known: a block could not be read.
pub fn is_group_there(pool: &Arc<Pool>, txg: Txg) -> Result<bool> {
    let options = VerifyOptions { check_space: false, ..VerifyOptions::default() };
    let progress = Progress::default();
    let shared = Shared::new(pool, options, &progress, HashSet::new());
    let root = roots::mos(pool, Txg(txg.get().saturating_sub(1)));
    if root.bp.is_hole() || root.bp.birth() <= root.tag.min_txg {
        return Ok(true);
    }
    let results = shared.run(vec![root])?;
    let of_devices = |found: &BlockError| found.fatal.clone().filter(Error::may_pass);
    if let Some(error) = results.errors.iter().find_map(of_devices) {
        return Err(error);
    }
    Ok(results.unreadable_blocks == 0 && results.damaged_blocks == 0)
}

/// What all threads of a verification share.
struct Shared<'a> {
    pool: &'a Arc<Pool>,
    options: VerifyOptions,
    progress: &'a Progress,
    /// Blocks that the block reference table knows, by vdev and offset of the first copy.
    cloned: HashSet<(u32, u64)>,
    /// Those of the deduplicated and cloned blocks that were met.
    seen: Mutex<HashSet<(u32, u64)>>,
    /// Intent-log blocks that were met: logs of several objsets cannot share blocks, but a damaged chain may
    /// come back to itself.
    log_blocks: Mutex<HashSet<(u32, u64)>>,
    /// What a dedup table would hold.
    simulated: Option<Simulation>,
    /// The entries of dedup tables.
    entries: Option<Entries>,
}

/// What one thread found.
#[derive(Default)]
struct Results {
    stats: BlockStats,
    errors: Vec<BlockError>,
    unreadable_blocks: u64,
    damaged_blocks: u64,
    authenticated_blocks: u64,
    claims: Vec<Claim>,
}

impl Results {
    fn merge(&mut self, other: Results) {
        self.stats.merge(&other.stats);
        self.unreadable_blocks += other.unreadable_blocks;
        self.damaged_blocks += other.damaged_blocks;
        self.authenticated_blocks += other.authenticated_blocks;
        self.claims.extend(other.claims);
        let room = MAX_ERRORS_KEPT.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
    }

    fn report(&mut self, progress: &Progress, error: BlockError) {
        progress.errors.fetch_add(1, Ordering::Relaxed);
        match error.fatal {
            Some(_) => self.unreadable_blocks += 1,
            None => self.damaged_blocks += 1,
        }
        if self.errors.len() < MAX_ERRORS_KEPT {
            self.errors.push(error);
        }
    }
}

impl<'a> Shared<'a> {
    fn new(
        pool: &'a Arc<Pool>,
        options: VerifyOptions,
        progress: &'a Progress,
        cloned: HashSet<(u32, u64)>,
    ) -> Self {
        let (seen, log_blocks) = (Mutex::default(), Mutex::default());
        Self { pool, options, progress, cloned, seen, log_blocks, simulated: None, entries: None }
    }

    /// Visits these and all below them, on threads.
    fn run(&self, roots: Vec<Work>) -> Result<Results> {
        survey(self, self.options.threads, roots)
    }

    /// Counts a block and claims its space, once for blocks with several references.
    fn count(&self, results: &mut Results, bp: &Blkptr, kind: BlockKind) {
        let metaslab_shift = |vdev| {
            let top = self.pool.vdevs().top(vdev);
            top.and_then(|top| top.config.metaslab_shift)
        };
        results.stats.add(bp, kind, metaslab_shift);
        self.progress.blocks.fetch_add(1, Ordering::Relaxed);
        if let Some(simulation) = &self.simulated {
            simulation.add(bp, kind);
        }
        let Some(first) = bp.dva(0) else { return };
        let of_entry = self.entries.as_ref().filter(|_| bp.is_dedup()).and_then(|all| all.count(bp));
        let place = (first.vdev.get(), first.offset.get());
        let is_shared = bp.is_dedup() || self.cloned.contains(&place);
        if is_shared && !self.seen.lock().ignore_poison().insert(place) {
            results.stats.add_repeated(bp);
            return;
        }
        self.progress.asize.fetch_add(bp.asize().get(), Ordering::Relaxed);
        if self.options.check_space {
            let birth = bp.physical_birth().get();
            let dvas = of_entry.unwrap_or_else(|| bp.dvas().collect());
            results.claims.extend(dvas.iter().map(|dva| Claim::of(self.pool, dva, birth)));
        }
    }
}
