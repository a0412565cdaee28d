//! Changes by the engine as the daemon requests them: by dataset names, waiting for the commit, with the
//! command added to the pool's history.

mod ioctls;

use std::future::Future;
use std::sync::Arc;

use engine::dsl::edit::{self, Grant, NewContents, NewDataset, NewSnapshot};
use engine::dsl::history;
use engine::dsl::keys::UserKey;
use engine::pool::live::{self, LivePool, Syncing, default_features};
use ondisk::ObjsetId;
use ondisk::features::Feature;

use crate::caller::Caller;
use crate::daemon::host::host_name;
use ioctls::Ioctl;

/// Makes a change, and notes the command that asked for it in the same transaction group.
pub(in crate::daemon) async fn change<T, F>(
    live: &Arc<LivePool>,
    command: Option<String>,
    task: impl FnOnce(Syncing) -> F + Send + 'static,
) -> engine::Result<T>
where
    T: Send + 'static,
    F: Future<Output = engine::Result<T>> + Send + 'static,
{
    let (caller, asker) = (Caller::current(), Caller::asker());
    live.change(move |syncing| async move {
        let syncing = syncing.asked_by(asker);
        let work = async {
            let done = task(syncing.clone()).await?;
            if let Some(command) = command {
                record(&syncing, &command).await?;
            }
            Ok(done)
        };
        // It runs on another thread than the request.
        match caller {
            Some(caller) => caller.scope(work).await,
            None => work.await,
        }
    })
    .await
}

/// Writes a command into the pool's history.
async fn record(s: &Syncing, command: &str) -> engine::Result<()> {
    let user = Caller::current_uid();
    let record = history::command(command, s.now(), user.into(), &Caller::on_host(&host_name()));
    s.append_history(&record).await
}

/// Sets a property of a vdev.
pub(in crate::daemon) async fn set_vdev_property(
    s: &Syncing,
    vdev: ondisk::Guid,
    name: &str,
    value: &str,
) -> engine::Result<()> {
    live::properties::set_of_vdev(s, vdev, name, value).await
}

/// Sets a property of a pool, whose value was checked.
pub(in crate::daemon) async fn set_pool_property(s: &Syncing, name: &str, value: &str) -> engine::Result<()> {
    live::properties::set(s, name, value).await
}

/// The features that a pool may have and has not.
pub(in crate::daemon) fn features_missing(live: &Arc<LivePool>) -> Vec<Feature> {
    default_features().into_iter().filter(|feature| live.feature_count(*feature).is_none()).collect()
}

/// Features that the pool has not: those that an upgrade enables, and those that must be named.
pub(in crate::daemon) fn missing_features(live: &Arc<LivePool>) -> Vec<Feature> {
    Feature::ALL.iter().copied().filter(|feature| live.feature_count(*feature).is_none()).collect()
}

/// Enables a feature and those that it depends on.
pub(in crate::daemon) async fn enable_feature(s: &Syncing, feature: Feature) -> engine::Result<()> {
    s.enable_feature(feature).await
}

/// A dataset to create.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct New {
    /// Full name.
    pub name: String,
    /// Size in bytes of a volume, and whether nothing is reserved for it; `None` for a filesystem.
    pub volume: Option<(u64, bool)>,
    /// Properties as typed.
    pub properties: Vec<(String, String)>,
    /// Its user's key, where it is a new encryption root.
    pub key: Option<Arc<UserKey>>,
}

impl New {
    /// A filesystem without properties of its own.
    pub(in crate::daemon) fn filesystem(name: impl Into<String>) -> Self {
        Self { name: name.into(), volume: None, properties: Vec::new(), key: None }
    }

    fn dataset(&self) -> NewDataset {
        let contents = match self.volume {
            Some((size, sparse)) => NewContents::Volume { size, sparse },
            None => NewContents::Filesystem,
        };
        NewDataset { name: self.name.clone(), contents, properties: self.properties.clone() }
    }
}

/// Checks all that can refuse a filesystem or volume whose parents up to `above` exist. Gives its
/// refreservation.
pub(in crate::daemon) async fn check_create(
    s: &Syncing,
    new: &New,
    above: &str,
    dry_run: bool,
) -> engine::Result<Option<u64>> {
    edit::check_create(s, &new.dataset(), above, dry_run).await
}

/// Creates a filesystem or volume.
pub(in crate::daemon) async fn create(s: &Syncing, new: &New) -> engine::Result<()> {
    edit::create_with_key(s, &new.dataset(), new.key.as_ref()).await?;
    grant_to_creator(s, &new.name).await?;
    Ioctl::create(new.volume.is_some(), &new.properties).note(s).await
}

/// Makes a dataset out of a snapshot.
pub(in crate::daemon) async fn clone(s: &Syncing, snapshot: &str, new: &New) -> engine::Result<()> {
    edit::clone(s, snapshot, &new.name, &new.properties).await?;
    grant_to_creator(s, &new.name).await?;
    Ioctl::clone_of(snapshot, &new.properties).note(s).await
}

/// Destroys a filesystem or volume that has neither children nor snapshots. Its intent log must be closed.
pub(in crate::daemon) async fn destroy(s: &Syncing, name: &str) -> engine::Result<()> {
    let destroyed = edit::destroy(s, name).await?;
    s.forget_dataset(destroyed.objset);
    Ok(())
}

/// Takes a dataset back to its newest snapshot. Its intent log must be closed.
pub(in crate::daemon) async fn rollback(s: &Syncing, snapshot: &str) -> engine::Result<()> {
    let name = snapshot.split('@').next().unwrap_or(snapshot);
    let objset = edit::rollback(s, name, Some(snapshot)).await?;
    s.forget_dataset(objset);
    Ioctl::rollback(snapshot).note(s).await
}

/// Takes snapshots, all or none.
pub(in crate::daemon) async fn snapshot(
    s: &Syncing,
    names: &[String],
    properties: &[(String, String)],
) -> engine::Result<()> {
    let new = |name: &String| NewSnapshot { name: name.clone(), properties: properties.to_vec() };
    let all: Vec<NewSnapshot> = names.iter().map(new).collect();
    edit::snapshot(s, &all).await?;
    Ioctl::snapshot(names, properties).note(s).await
}

/// Destroys snapshots; with `defer` those that are in use later.
pub(in crate::daemon) async fn destroy_snapshots(
    s: &Syncing,
    names: &[String],
    defer: bool,
) -> engine::Result<()> {
    edit::destroy_snapshots(s, names, defer).await?;
    Ioctl::destroy_snapshots(names, defer).note(s).await
}

/// Holds snapshots.
pub(in crate::daemon) async fn hold(s: &Syncing, names: &[String], tag: &str) -> engine::Result<()> {
    edit::hold(s, names, tag).await?;
    Ioctl::hold(names, tag).note(s).await
}

/// Gives holds up.
pub(in crate::daemon) async fn release(s: &Syncing, names: &[String], tag: &str) -> engine::Result<()> {
    edit::release(s, names, tag).await?;
    Ioctl::release(names, tag).note(s).await
}

/// Gives the user who asked for a new dataset what its creator gets.
pub(in crate::daemon) async fn grant_to_creator(s: &Syncing, name: &str) -> engine::Result<()> {
    match Caller::current_creator() {
        Some(user) => edit::grant_to_creator(s, name, user).await,
        None => Ok(()),
    }
}

/// Grants permissions.
pub(in crate::daemon) async fn allow(s: &Syncing, name: &str, grants: &[Grant]) -> engine::Result<()> {
    edit::allow(s, name, grants).await
}

/// Takes permissions away.
pub(in crate::daemon) async fn unallow(s: &Syncing, name: &str, grants: &[Grant]) -> engine::Result<()> {
    edit::unallow(s, name, grants).await
}

/// Makes a bookmark of a snapshot or of another bookmark.
pub(in crate::daemon) async fn bookmark(s: &Syncing, name: &str, of: &str) -> engine::Result<()> {
    edit::create_bookmark(s, name, of).await?;
    Ioctl::bookmark(name, of).note(s).await
}

/// Destroys a bookmark.
pub(in crate::daemon) async fn destroy_bookmark(s: &Syncing, name: &str) -> engine::Result<()> {
    edit::destroy_bookmark(s, name).await?;
    Ioctl::destroy_bookmarks(&[name.to_owned()]).note(s).await
}

/// Work that is left for the dataset itself after a property was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum Left {
    /// A volume gets this size.
    Resize(u64),
    /// A filesystem gets this version.
    Upgrade(u64),
}

impl Left {
    fn of(changed: &edit::Changed) -> Option<Self> {
        changed.volsize.map(Self::Resize).or(changed.version.map(Self::Upgrade))
    }

    /// Does it.
    pub(in crate::daemon) async fn finish(self, live: &Arc<LivePool>, id: ObjsetId) -> engine::Result<()> {
        match self {
            Self::Resize(bytes) => resize(live, id, bytes).await?,
            Self::Upgrade(version) => {
                live.filesystem(id).await?.upgrade(version).await?;
                live.count_all(id).await?;
            }
        }
        // A later request reads committed state.
        live.txgs().wait_synced(live.txgs().open_txg()).await
    }
}

/// Sets properties of a dataset, as typed.
pub(in crate::daemon) async fn set(
    s: &Syncing,
    name: &str,
    properties: &[(String, String)],
) -> engine::Result<Option<Left>> {
    Ok(Left::of(&edit::set_properties(s, name, properties).await?))
}

/// Takes a property away from a dataset.
pub(in crate::daemon) async fn inherit(
    s: &Syncing,
    name: &str,
    property: &str,
    received: bool,
) -> engine::Result<Option<Left>> {
    Ok(Left::of(&edit::inherit_property(s, name, property, received).await?))
}

/// Gives back the intent log of a dataset that is to be destroyed or rolled back. One that waits for its key
/// goes with the change.
pub(in crate::daemon) async fn settle_log(live: &Arc<LivePool>, id: ObjsetId) -> engine::Result<()> {
    live.settle_log(id).await
}

/// Gives back the intent log of a dataset whose contents are about to be replaced.
pub(in crate::daemon) async fn close_log(live: &Arc<LivePool>, id: ObjsetId) -> engine::Result<()> {
    live.close_log(id).await
}

/// Gives a volume another size.
async fn resize(live: &Arc<LivePool>, id: ObjsetId, bytes: u64) -> engine::Result<()> {
    live.volume(id).await?.resize(bytes).await
}
