//! An administrator who takes snapshots, clones, promotes, rolls back, renames, destroys, adds devices, lets
//! vdevs grow with theirs and prunes dedup tables while clients write.

use std::sync::Arc;

use engine::pool::live::{LivePool, NewTop, Prune};
use testkit::Rng;
use testkit::tree::{Change, Tree};

use super::contents::{Contents, fill};
use super::history::{Shared, wait_or_end};
use super::pools;
use super::support::make_change;

/// The volume that the administrator has to itself, and its size.
pub const OWN: &str = "r";
/// Sectors of it.
pub const OWN_SECTORS: u64 = 24;
/// Most volumes and snapshots, so that looking at all of them takes no time.
const MOST: usize = 14;

/// Something that the administrator does.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Changes the tree of datasets.
    Change(Change),
    /// Fills a volume.
    Fill { volume: String, step: u64 },
    /// Adds devices.
    Grow,
    /// Lets all vdevs use what their devices have.
    Expand,
    /// Prunes dedup tables: so many percent of the entries of blocks with one reference.
    Prune(u64),
}

/// Something that was asked for.
pub struct Asked {
    pub deed: Deed,
    /// How all is after it.
    pub tree: Tree<Contents>,
    pub begun_at: usize,
    /// When it was answered.
    pub done_at: Option<usize>,
    /// Entries that it removed from dedup tables.
    pub pruned: u64,
}

/// Makes changes until the clients are done. `more` are devices to add, with their sector size. With `prunes`
/// dedup tables are pruned too.
pub async fn administrator(
    shared: &Shared,
    pool: &Arc<LivePool>,
    mut tree: Tree<Contents>,
    mut more: Option<(Vec<NewTop>, u8)>,
    prunes: bool,
    mut rng: Rng,
) {
    for next in 1.. {
        if wait_or_end(shared, 40 + rng.below(500)).await {
            break;
        }
        let Some(deed) = choose(&tree, &mut rng, next, (more.is_some(), prunes)) else { continue };
        let least = shared.answered();
        apply(&mut tree, &deed);
        shared.deeds.borrow_mut().push(Asked {
            deed: deed.clone(),
            tree: tree.clone(),
            begun_at: shared.recorder.position(),
            done_at: None,
            pruned: 0,
        });
        let mut pruned = 0;
        let done = match (&deed, more.take_if(|_| matches!(deed, Deed::Grow))) {
            (Deed::Change(change), _) => make_change(pool, change).await,
            (Deed::Fill { volume, step }, _) => fill_volume(pool, volume, *step).await,
            (Deed::Grow, Some((tops, ashift))) => pool.add(tops, Some(ashift)).await,
            (Deed::Grow, None) => Ok(()),
            (Deed::Expand, _) => expand(pool).await,
            (Deed::Prune(percent), _) => prune(pool, *percent).await.map(|entries| pruned = entries),
        };
        if let Deed::Change(Change::Snapshot { to, .. }) = &deed
            && let Some(Contents::Moment { bounds, .. }) = tree.contents_mut(to)
            && bounds.is_empty()
        {
            *bounds = least.into_iter().zip(shared.begun()).collect();
        }
        if let Some(asked) = shared.deeds.borrow_mut().last_mut() {
            asked.tree = tree.clone();
            asked.pruned = pruned;
            asked.done_at = Some(shared.recorder.position());
        }
        if let Err(error) = done {
            shared.trouble(format!("{deed:?}: {error}"));
            break;
        }
    }
    shared.changers.set(shared.changers.get() - 1);
}

fn choose(tree: &Tree<Contents>, rng: &mut Rng, next: u64, (can_grow, prunes): (bool, bool)) -> Option<Deed> {
    if prunes && rng.once_in(6) {
        return Some(Deed::Prune(40 + rng.below(61)));
    }
    if can_grow && rng.once_in(12) {
        return Some(Deed::Grow);
    }
    if rng.once_in(20) {
        return Some(Deed::Expand);
    }
    if rng.once_in(4) {
        let heads = tree.heads();
        let filled = |name: &&&str| tree.contents(name).is_some_and(Contents::is_filled);
        let all: Vec<_> = heads.iter().filter(filled).collect();
        return Some(Deed::Fill { volume: rng.pick(&all)?.to_string(), step: next });
    }
    tree.choose(rng, next, MOST, Contents::is_filled).map(Deed::Change)
}

fn apply(tree: &mut Tree<Contents>, deed: &Deed) {
    match deed {
        Deed::Change(change) => {
            tree.apply(change);
            // What a volume held that clients write is still to be said.
            if let Change::Snapshot { to, .. } = change
                && let Some(contents) = tree.contents_mut(to)
                && let Contents::Live(volume) = contents
            {
                *contents = Contents::Moment { volume, bounds: Vec::new() };
            }
        }
        Deed::Fill { volume, step } => {
            if let Some(contents) = tree.contents_mut(volume) {
                *contents = Contents::Filled(*step);
            }
        }
        Deed::Grow | Deed::Expand | Deed::Prune(_) => {}
    }
}

/// Groups after which entries of dedup tables are not in logs any more, if nothing changes them.
const FLUSHED_AFTER: usize = 24;

/// Prunes dedup tables, once their entries are out of the logs.
async fn prune(pool: &Arc<LivePool>, percent: u64) -> engine::Result<u64> {
    for _ in 0..FLUSHED_AFTER {
        if !pool.has_logged_dedup() {
            break;
        }
        pool.change(|_| async { Ok(()) }).await?;
    }
    pool.prune_dedup(Prune::Percent(percent)).await
}

async fn expand(pool: &Arc<LivePool>) -> engine::Result<()> {
    let leaves: Vec<_> = pool.pool().vdevs().leaves().map(|leaf| leaf.guid).collect();
    leaves.into_iter().try_for_each(|leaf| pool.expand(leaf))?;
    pool.change(|_| async { Ok(()) }).await
}

async fn fill_volume(pool: &Arc<LivePool>, volume: &str, step: u64) -> engine::Result<()> {
    let volume = pools::open_volume(pool, volume).await?;
    let bytes: Vec<u8> = (0..OWN_SECTORS).flat_map(|sector| fill(step, sector)).collect();
    volume.write_at(0, &bytes, true).await
}
