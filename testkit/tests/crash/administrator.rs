//! Somebody who takes snapshots, clones, promotes, rolls back, renames, destroys and adds devices while clients write.

use std::sync::Arc;

use engine::Error;
use engine::dataset::dsl::edit;
use engine::pool::live::{LivePool, NewTop};
use testkit::Rng;

use super::history::{Shared, wait_or_end};
use super::pools::{self, POOL};
use super::tree::{Change, OWN_SECTORS, Tree, fill};

/// A change that was asked for.
pub struct Asked {
    pub change: Change,
    /// How all is after it.
    pub tree: Tree,
    pub begun_at: usize,
    /// When it was answered.
    pub done_at: Option<usize>,
}

/// Makes changes until the clients are done. `more` are devices to add, with their sector size.
pub async fn administrator(
    shared: &Shared,
    pool: &Arc<LivePool>,
    mut tree: Tree,
    mut more: Option<(Vec<NewTop>, u8)>,
    mut rng: Rng,
) {
    for next in 1.. {
        if wait_or_end(shared, 40 + rng.below(500)).await {
            break;
        }
        let grow = more.is_some() && rng.once_in(12);
        let Some(change) = (if grow { Some(Change::Grow) } else { tree.choose(&mut rng, next) }) else {
            continue;
        };
        let least = shared.answered();
        let after = tree.after(&change);
        shared.changes.borrow_mut().push(Asked {
            change: change.clone(),
            tree: after.clone(),
            begun_at: shared.recorder.position(),
            done_at: None,
        });
        tree = after;
        let done = match &change {
            Change::Grow => match more.take() {
                Some((tops, ashift)) => pool.add(tops, Some(ashift)).await,
                None => Ok(()),
            },
            change => make(pool, change).await,
        };
        if let Change::Snapshot { of, number } = &change {
            let most = shared.begun();
            tree.set_bounds(&format!("{of}@s{number}"), least.into_iter().zip(most).collect());
        }
        if let Some(asked) = shared.changes.borrow_mut().last_mut() {
            asked.tree = tree.clone();
            asked.done_at = Some(shared.recorder.position());
        }
        if let Err(error) = done {
            shared.trouble(format!("{change:?}: {error}"));
            break;
        }
    }
    shared.administrator_is_done.set(true);
}

fn full(name: &str) -> String {
    format!("{POOL}/{name}")
}

async fn make(pool: &Arc<LivePool>, change: &Change) -> Result<(), Error> {
    match change.clone() {
        Change::Snapshot { of, number } => {
            let name = format!("{}@s{number}", full(&of));
            let new = vec![edit::NewSnapshot { name, properties: Vec::new() }];
            pool.change(|s| async move { edit::snapshot(&s, &new).await }).await
        }
        Change::Clone { from, to } => {
            pool.change(|s| async move { edit::clone(&s, &full(&from), &full(&to), &[]).await.map(drop) })
                .await
        }
        Change::Fill { volume, step } => {
            let volume = pools::open_volume(pool, &volume).await?;
            let bytes: Vec<u8> = (0..OWN_SECTORS).flat_map(|sector| fill(step, sector)).collect();
            volume.write_at(0, &bytes, true).await
        }
        Change::DestroySnapshot(name) => {
            pool.change(|s| async move { edit::destroy_snapshots(&s, &[full(&name)], false).await }).await
        }
        Change::DestroyVolume(name) => {
            close_log(pool, &name).await?;
            let destroy = |s: engine::pool::live::Syncing| async move {
                let destroyed = edit::destroy(&s, &full(&name)).await?;
                s.forget_dataset(destroyed.objset);
                Ok(())
            };
            pool.change(destroy).await
        }
        Change::RenameSnapshot { from, to } | Change::RenameVolume { from, to } => {
            pool.change(|s| async move { edit::rename(&s, &full(&from), &full(&to)).await }).await
        }
        Change::Rollback { volume, to } => {
            close_log(pool, &volume).await?;
            let rollback = |s: engine::pool::live::Syncing| async move {
                let id = edit::rollback(&s, &full(&volume), Some(&full(&to))).await?;
                s.forget_dataset(id);
                Ok(())
            };
            pool.change(rollback).await
        }
        Change::Promote(clone) => {
            pool.change(|s| async move { edit::promote(&s, &full(&clone)).await }).await
        }
        Change::Grow => Ok(()),
    }
}

/// What is destroyed or rolled back has given its intent log back before.
async fn close_log(pool: &Arc<LivePool>, name: &str) -> Result<(), Error> {
    let id = pools::objset_of(pool, name).await?;
    pool.dataset(id).await?.zil.close().await
}
