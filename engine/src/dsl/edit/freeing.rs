//! Freeing what destroyed datasets left behind, some of it in each group.
//!
//! The pool's list of blocks goes first, then the trees, then the livelists of clones, one of their lists
//! after the other. All of it counts for the hidden directory `$FREE` until it is freed.
//!
//! A tree with a damaged block stops where that is met, and the others go on; it is tried again after the
//! next import or `zpool clear`.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_scan.c` (`dsl_process_async_destroys`).

use ondisk::blkptr::Blkptr;
use ondisk::pool_directory::{FREE_BPOBJ, hidden_dir};

use super::space::{Change, Used, counts, did_use, sum, weigh};
use super::{account, bpobj, bptree, livelist};
use crate::dmu::Space;
use crate::dsl::SyncTask;
use crate::error::Result;
use crate::patience;

/// Blocks taken from a list or tree at once.
const BATCH: usize = 4096;

/// Frees up to about `budget` blocks of what was destroyed. True when there is more to be freed.
pub async fn free_some(s: &SyncTask, budget: usize) -> Result<bool> {
    let mut left = budget;
    if let Some(list) = super::objects::pool_entry(s, FREE_BPOBJ).await? {
        loop {
            if bpobj::is_empty(s, list).await? {
                break;
            }
            if left == 0 {
                return Ok(true);
            }
            let blocks = bpobj::take(s, list, left.min(BATCH)).await?;
            left -= blocks.len().min(left);
            free_all(s, &blocks).await?;
        }
    }
    if free_trees(s, &mut left).await? {
        return Ok(true);
    }
    while let Some(blocks) = livelist::take_deleted(s).await? {
        left = left.saturating_sub(blocks.len());
        free_all(s, &blocks).await?;
        if left == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Frees up to about `left` blocks of trees. True when there are more.
async fn free_trees(s: &SyncTask, left: &mut usize) -> Result<bool> {
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
            match patience::failing(walk.next(s.pool(), (*left).min(BATCH))).await {
                Ok(blocks) => {
                    *left -= blocks.len().min(*left);
                    freed = sum(freed, free_all(s, &blocks).await?);
                    resume = walk.stopped;
                    if resume.is_none() || *left == 0 {
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
