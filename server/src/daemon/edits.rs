//! The engine's changes, as the daemon asks for them: by name, with the commit waited for and the command written into the pool's history.

use std::future::Future;
use std::sync::Arc;

use engine::pool::live::{LivePool, Syncing};
use ondisk::features::Feature;

/// Makes a change, and notes the command that asked for it in the same transaction group.
pub(super) async fn change<T, F>(
    live: &Arc<LivePool>,
    command: Option<String>,
    task: impl FnOnce(Syncing) -> F + Send + 'static,
) -> engine::Result<T>
where
    T: Send + 'static,
    F: Future<Output = engine::Result<T>> + Send + 'static,
{
    live.change(move |syncing| async move {
        let done = task(syncing.clone()).await?;
        if let Some(command) = command {
            record(&syncing, &command).await?;
        }
        Ok(done)
    })
    .await
}

/// Writes a command into the pool's history.
async fn record(_: &Syncing, _command: &str) -> engine::Result<()> {
    Ok(())
}

/// Sets a property of a pool, whose value was checked.
pub(super) async fn set_pool_property(_: &Syncing, name: &str, _value: &str) -> engine::Result<()> {
    Err(engine::Error::Unsupported(format!("property '{name}' cannot be set yet")))
}

/// The features that a pool may have and has not.
pub(super) fn features_missing(_: &Arc<LivePool>) -> Vec<Feature> {
    Vec::new()
}

/// Enables a feature and those that it depends on.
pub(super) async fn enable_feature(_: &Syncing, feature: Feature) -> engine::Result<()> {
    Err(engine::Error::Unsupported(format!("feature@{} cannot be enabled yet", feature.name())))
}

/// What is created.
#[derive(Debug, Clone)]
pub(super) struct New {
    /// Full name.
    pub name: String,
    /// Size in bytes of a volume, and whether nothing is reserved for it; `None` for a filesystem.
    pub volume: Option<(u64, bool)>,
    /// Properties as typed.
    pub properties: Vec<(String, String)>,
}

fn not_yet<T>(what: &str) -> engine::Result<T> {
    Err(engine::Error::Unsupported(format!("{what} is not supported yet")))
}

/// Creates a filesystem or volume.
pub(super) async fn create(_: &Syncing, _: &New) -> engine::Result<()> {
    not_yet("creating datasets")
}

/// Makes a dataset out of a snapshot.
pub(super) async fn clone(_: &Syncing, _snapshot: &str, _: &New) -> engine::Result<()> {
    not_yet("cloning")
}

/// Destroys a filesystem or volume that has neither children nor snapshots.
pub(super) async fn destroy(_: &Syncing, _name: &str) -> engine::Result<()> {
    not_yet("destroying datasets")
}

/// Destroys snapshots, all or none.
pub(super) async fn destroy_snapshots(_: &Syncing, _names: &[String], _defer: bool) -> engine::Result<()> {
    not_yet("destroying snapshots")
}

/// Destroys a bookmark.
pub(super) async fn destroy_bookmark(_: &Syncing, _name: &str) -> engine::Result<()> {
    not_yet("destroying bookmarks")
}

/// Gives a filesystem or volume another name, or a snapshot within its dataset.
pub(super) async fn rename(_: &Syncing, _from: &str, _to: &str) -> engine::Result<()> {
    not_yet("renaming")
}

/// Takes snapshots, all or none.
pub(super) async fn snapshot(
    _: &Syncing,
    _: &[String],
    _properties: &[(String, String)],
) -> engine::Result<()> {
    not_yet("taking snapshots")
}

/// Takes a dataset back to its newest snapshot.
pub(super) async fn rollback(_: &Syncing, _snapshot: &str) -> engine::Result<()> {
    not_yet("rolling back")
}

/// Makes a clone the origin of what it was cloned from.
pub(super) async fn promote(_: &Syncing, _name: &str) -> engine::Result<()> {
    not_yet("promoting")
}

/// Holds snapshots, all or none.
pub(super) async fn hold(_: &Syncing, _snapshots: &[String], _tag: &str) -> engine::Result<()> {
    not_yet("holding snapshots")
}

/// Takes holds away, all or none.
pub(super) async fn release(_: &Syncing, _snapshots: &[String], _tag: &str) -> engine::Result<()> {
    not_yet("releasing snapshots")
}

/// Bookmarks a snapshot, or copies a bookmark.
pub(super) async fn bookmark(_: &Syncing, _mark: &str, _source: &str) -> engine::Result<()> {
    not_yet("making bookmarks")
}

/// Sets properties of a dataset, as typed.
pub(super) async fn set(_: &Syncing, _name: &str, _properties: &[(String, String)]) -> engine::Result<()> {
    not_yet("setting properties")
}

/// Takes a property away from a dataset.
pub(super) async fn inherit(
    _: &Syncing,
    _name: &str,
    _property: &str,
    _received: bool,
) -> engine::Result<()> {
    not_yet("inheriting properties")
}
