//! Freeing what destroyed datasets left behind, some of it in each group.
//!
//! The pool's list of blocks goes first, then the trees, then the livelists of clones, one of their lists
//! after the other. All of it counts for the hidden directory `$FREE` until it is freed.
//!
//! # Pace
//! A group frees no more blocks than `zfs_async_block_max_blocks`, no more deduplicated ones, each of which
//! needs its entry, than `zfs_max_async_dedup_frees`, and none after `zfs_free_min_time_ms`. While there is
//! more, the next group follows at once: groups stay short, and what waits for one does not wait for all.
//!
//! # Deduplicated blocks of files
//! A file's blocks are freed with the group that removes the file, or cuts or overwrites it; those of a large
//! one part by part ([`crate::dmu::LiveObject`], `parts`). Of deduplicated
//! blocks a group frees the first [`FREED_AT_ONCE`] like this; the others go into the pool's list, as if
//! they were those of a destroyed dataset ([`free_or_list`]), and are freed from there at this pace. In the
//! list they are references like any others: entries count them until they are freed. The list takes space:
//! where little is free, it gets no more than that has room for, and the rest is freed at once.
//!
//! A tree with a damaged block stops where that is met, and the others go on; it is tried again after the
//! next import or `zpool clear`.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_scan.c` (`dsl_process_async_destroys`,
//! `dsl_scan_async_block_should_pause`). That files' blocks go through the list is our own.

use std::time::{Duration, Instant};

use ondisk::blkptr::Blkptr;
use ondisk::pool_directory::{FREE_BPOBJ, hidden_dir};
use ondisk::pool_version as version;

use super::space::{Change, Used, counts, did_use, sum, weigh};
use super::{account, bpobj, bptree, livelist};
use crate::dmu::Space;
use crate::dsl::SyncTask;
use crate::error::Result;
use crate::patience;
use crate::tunables;

/// Blocks taken from a list or tree at once.
const BATCH: usize = 4096;
/// The same in pools with dedup tables: what is read of these between two looks at the clock.
const BATCH_OF_DEDUP: usize = 1024;
/// Deduplicated blocks that files gave up and that a group frees without the list.
const FREED_AT_ONCE: usize = 1024;

/// Bytes that a pointer takes in the list: three copies of it, if it cannot be compressed.
const LISTED_BYTES: u64 = 3 * Blkptr::SIZE as u64;
/// The part of the free space that a head's pointers in the list may take: one in this many.
const LIST_SHARE: u64 = 8;

/// What a group may still free.
#[derive(Debug)]
struct Left {
    blocks: usize,
    deduplicated: usize,
    batch: usize,
    /// Whether anything was taken: a group that runs late takes something too.
    has_taken: bool,
    began: Instant,
}

impl Left {
    fn new(has_dedup: bool, blocks: usize) -> Self {
        let batch = if has_dedup { BATCH_OF_DEDUP } else { BATCH };
        let deduplicated = tunables::ZFS_MAX_ASYNC_DEDUP_FREES.size();
        Self { blocks, deduplicated, batch, has_taken: false, began: Instant::now() }
    }

    /// Most blocks that may be taken at once.
    fn batch(&self) -> usize {
        self.batch.min(self.blocks).min(self.deduplicated)
    }

    /// Whether the group frees nothing more.
    fn is_spent(&self) -> bool {
        let most = Duration::from_millis(tunables::ZFS_FREE_MIN_TIME_MS.get());
        self.batch() == 0 || (self.has_taken && self.began.elapsed() >= most)
    }

    fn took(&mut self, blocks: &[Blkptr]) {
        let deduplicated = blocks.iter().filter(|bp| bp.is_dedup()).count();
        self.has_taken = true;
        self.blocks = self.blocks.saturating_sub(blocks.len());
        self.deduplicated = self.deduplicated.saturating_sub(deduplicated);
    }
}

/// Frees up to about `budget` blocks of what was destroyed. True when there is more to be freed.
pub async fn free_some(s: &SyncTask, budget: usize) -> Result<bool> {
    let mut left = Left::new(s.dsl_pool().tables().has_dedup(), budget);
    if let Some(list) = super::objects::pool_entry(s, FREE_BPOBJ).await? {
        loop {
            if bpobj::is_empty(s, list).await? {
                break;
            }
            if left.is_spent() {
                return Ok(true);
            }
            let blocks = bpobj::take(s, list, left.batch()).await?;
            left.took(&blocks);
            free_all(s, &blocks).await?;
        }
    }
    if free_trees(s, &mut left).await? {
        return Ok(true);
    }
    while let Some(blocks) = livelist::take_deleted(s).await? {
        left.took(&blocks);
        free_all(s, &blocks).await?;
        if left.is_spent() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Frees blocks of trees. True when there are more.
async fn free_trees(s: &SyncTask, left: &mut Left) -> Result<bool> {
    let Some(mut trees) = bptree::open(s).await? else { return Ok(false) };
    for place in trees.places() {
        if s.dsl_pool().stalled_trees().contains(&place) {
            continue;
        }
        let entry = trees.entry(place).await?;
        let mut walk = bptree::Walk::new(entry.bp, entry.since, entry.resume);
        let mut freed = Space::default();
        let mut resume = entry.resume;
        let is_stalled = loop {
            match patience::failing(walk.next(s.pool(), left.batch())).await {
                Ok(blocks) => {
                    left.took(&blocks);
                    freed = sum(freed, free_all(s, &blocks).await?);
                    resume = walk.stopped;
                    if resume.is_none() || left.is_spent() {
                        break false;
                    }
                }
                Err(error) if error.is_damage() => {
                    let pool = s.pool().name();
                    tracing::warn!(pool, %error, "a part of a destroyed dataset cannot be read: what is left of it keeps its space until the pool is cleared or imported again");
                    s.dsl_pool().stalled_trees().insert(place);
                    break true;
                }
                Err(error) => return Err(error),
            }
        };
        if resume.is_some() || !is_stalled {
            trees.freed(s, place, entry, freed, resume).await?;
        }
        if resume.is_some() && !is_stalled {
            return Ok(true);
        }
    }
    if trees.is_empty() {
        trees.destroy(s).await?;
    }
    Ok(false)
}

/// Frees blocks that a head gave up; of deduplicated ones beyond what a group frees at once, lists the rest.
pub(super) async fn free_or_list(s: &SyncTask, mut blocks: Vec<Blkptr>) -> Result<()> {
    let at_once = s.dsl_pool().tables().may_free_at_once(FREED_AT_ONCE);
    let most_listed = s.dsl_pool().free_on_devices() / LIST_SHARE / LISTED_BYTES;
    let (mut deduplicated, mut listed) = (0, 0);
    let is_too_much = |bp: &mut Blkptr| {
        deduplicated += usize::from(bp.is_dedup());
        let is = bp.is_dedup() && deduplicated > at_once && listed < most_listed;
        listed += u64::from(is);
        is
    };
    // Pools that are older have no such list.
    let list = match s.has_version(version::DEADLISTS) {
        true => super::objects::pool_entry(s, FREE_BPOBJ).await?,
        false => None,
    };
    if let Some(list) = list {
        let later: Vec<Blkptr> = blocks.extract_if(.., is_too_much).collect();
        bpobj::append(s, list, &later, bpobj::Kind::Alloc).await?;
        let listed = later.iter().fold(Space::default(), |listed, bp| sum(listed, weigh(s, bp)));
        if listed != Space::default() {
            did_use(s, account::hidden(s, hidden_dir::FREE).await?, Used::Head, Change::more(listed)).await?;
        }
    }
    s.dsl_pool().tables().freed_at_once(blocks.iter().filter(|bp| bp.is_dedup()).count());
    account::free(s, &blocks).await
}

/// Frees blocks that `$FREE` counts.
async fn free_all(s: &SyncTask, blocks: &[Blkptr]) -> Result<Space> {
    let counted: Vec<Blkptr> = blocks.iter().filter(|bp| counts(bp)).copied().collect();
    account::free(s, &counted).await?;
    let freed = counted.iter().fold(Space::default(), |freed, bp| sum(freed, weigh(s, bp)));
    if freed != Space::default() {
        did_use(s, account::hidden(s, hidden_dir::FREE).await?, Used::Head, Change::less(freed)).await?;
    }
    Ok(freed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_ends_freeing_by_number_and_by_time_but_not_before_it_began() {
        let mut left = Left::new(true, 1500);
        assert_eq!(left.batch(), BATCH_OF_DEDUP);
        left.took(&[Blkptr::HOLE; 1000]);
        assert!(!left.is_spent());
        assert_eq!(left.batch(), 500);
        left.took(&[Blkptr::HOLE; 600]);
        assert!(left.is_spent());
        assert_eq!(Left::new(false, 1 << 20).batch(), BATCH);

        let began = Instant::now().checked_sub(Duration::from_millis(500)).unwrap();
        let mut left = Left { began, ..Left::new(true, 1500) };
        let mut is_spent_after = |most, has_taken| {
            tunables::ZFS_FREE_MIN_TIME_MS.set(most).unwrap();
            left.has_taken = has_taken;
            let is_spent = left.is_spent();
            tunables::ZFS_FREE_MIN_TIME_MS.reset();
            is_spent
        };
        assert!(!is_spent_after(100_000, true));
        assert!(is_spent_after(200, true));
        assert!(!is_spent_after(200, false), "it takes something however late it is");
    }
}
