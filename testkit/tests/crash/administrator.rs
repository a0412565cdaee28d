//! An administrator who takes snapshots, clones, promotes, rolls back, renames, destroys, adds devices, lets
//! vdevs grow with theirs, prunes dedup tables, changes keys and takes one away for a while, while clients
//! write.

use std::sync::Arc;

use engine::Error;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, KeyChange};
use engine::pool::live::{LivePool, NewTop, Prune};
use testkit::Rng;
use testkit::tree::{Change, Tree};

use super::contents::{Contents, fill};
use super::history::{Shared, wait_or_end};
use super::keys::Root;
use super::pools::{self, Kind};
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
    /// Gives an encryption root the user's key of this number.
    ChangeKey(Root, u64),
    /// Unloads the key of the administrator's own volumes.
    Lock,
    /// Loads it again: that of this number.
    Unlock(u64),
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

/// What may be chosen now.
struct Choices {
    grow: bool,
    prune: bool,
    /// There are keys.
    keys: bool,
    /// The number of the key of the administrator's own volumes, and whether it is not loaded.
    own: (u64, bool),
}

/// Makes changes until the clients are done. `more` are devices to add, with their sector size. Where there
/// are dedup tables they are pruned too, and where there are keys they change.
pub async fn administrator(
    shared: &Shared,
    pool: &Arc<LivePool>,
    mut tree: Tree<Contents>,
    mut more: Option<(Vec<NewTop>, u8)>,
    kind: &Kind,
    mut rng: Rng,
) {
    let mut choices = Choices {
        grow: true,
        prune: kind.is_deduplicated(),
        keys: kind.encryption.is_some(),
        own: (0, false),
    };
    for next in 1.. {
        if wait_or_end(shared, 40 + rng.below(500)).await {
            break;
        }
        choices.grow = more.is_some();
        let Some(deed) = choose(&tree, &mut rng, next, &choices) else { continue };
        let least = shared.answered();
        let before = tree.clone();
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
            (Deed::ChangeKey(root, number), _) => change_key(pool, *root, *number).await,
            (Deed::Lock, _) => lock(pool).await,
            (Deed::Unlock(number), _) => unlock(pool, *number).await,
        };
        if let Err(error) = &done
            && is_for_want_of_a_key(&deed, error, choices.own.1)
        {
            // Nothing was done.
            tree = before;
            shared.deeds.borrow_mut().pop();
            continue;
        }
        match deed {
            Deed::ChangeKey(Root::Own, number) => choices.own.0 = number,
            Deed::Lock => choices.own.1 = true,
            Deed::Unlock(_) => choices.own.1 = false,
            _ => {}
        }
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

/// Whether a change was refused because of a key: what inherits one cannot leave its root, and some changes
/// need it to be loaded.
fn is_for_want_of_a_key(deed: &Deed, error: &Error, is_locked: bool) -> bool {
    let text = error.to_string();
    match deed {
        Deed::Change(Change::RenameHead { .. }) if text.contains("outside of its encryption root") => true,
        Deed::Change(_) => {
            is_locked && (matches!(error, Error::KeyNotLoaded { .. }) || text.contains("key is not loaded"))
        }
        _ => false,
    }
}

fn choose(tree: &Tree<Contents>, rng: &mut Rng, next: u64, choices: &Choices) -> Option<Deed> {
    if choices.keys && rng.once_in(4) {
        let (number, is_locked) = choices.own;
        return Some(match rng.below(3) {
            0 => Deed::ChangeKey(Root::Pool, next),
            _ if is_locked => Deed::Unlock(number),
            1 => Deed::ChangeKey(Root::Own, next),
            _ => Deed::Lock,
        });
    }
    if choices.prune && rng.once_in(6) {
        return Some(Deed::Prune(40 + rng.below(61)));
    }
    if choices.grow && rng.once_in(12) {
        return Some(Deed::Grow);
    }
    if rng.once_in(20) {
        return Some(Deed::Expand);
    }
    if rng.once_in(4) && !choices.own.1 {
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
        Deed::Grow | Deed::Expand | Deed::Prune(_) | Deed::ChangeKey(..) | Deed::Lock | Deed::Unlock(_) => {}
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

async fn change_key(pool: &Arc<LivePool>, root: Root, number: u64) -> engine::Result<()> {
    let Some(name) = root.name(pool).await? else { return Ok(()) };
    let change = KeyChange::New { key: root.key(number, &**pool.env()), location: None };
    pool.change(|s| async move { edit::change_key(&s, &name, &change, &[]).await }).await
}

async fn lock(pool: &Arc<LivePool>) -> engine::Result<()> {
    let Some(name) = Root::Own.name(pool).await? else { return Ok(()) };
    pool.unload_key(&name).await
}

async fn unlock(pool: &Arc<LivePool>, number: u64) -> engine::Result<()> {
    let Some(name) = Root::Own.name(pool).await? else { return Ok(()) };
    Dsl::open(&pool.view()).await?.load_key(&name, &Root::Own.material(number), false).await?;
    pool.replay_unlocked().await
}
