//! What follows the feed of changes: the list of a pool's volumes, their block devices, what Samba shares,
//! the pool's entry in the cache file.
//!
//! # The idea
//! Each open pool knows up to which change of the feed its followers are in line, and what is out of line
//! since ([`Followed`]). Reading on in the feed is cheap, and most changes concern no follower: a snapshot of
//! a filesystem costs no look at the volumes.
//!
//! | follower | is out of line after |
//! |---|---|
//! | the list of volumes, and with it what NBD, iSCSI and vhost-user serve | a volume or a snapshot of one that was created, destroyed, renamed, promoted, replaced or resized; the property that says how volumes are shared |
//! | block devices | another list of volumes; `volmode` or `snapdev` set anywhere; a device that was detached for an action |
//! | usershares of Samba | a filesystem that is mounted, unmounted or renamed; `sharesmb` set anywhere |
//! | the cache file | another configuration |
//!
//! # No window
//! An action is answered when the followers are through with its changes: [`Daemon::catch_up`] runs after
//! every action that may change volumes, failed ones too, because devices may have been detached for them;
//! actions that change vdevs wait for their own pool ([`Daemon::catch_up_in`]). What changes without an
//! action (a volume that was exchanged for its copy, a device that was replaced by a spare) is caught up with
//! by the thread of the agents, which the feed wakes. That thread waits for no action: a pool that is being
//! changed is left to the action, and looked at again soon.
//!
//! # What still calls by hand
//! - Opening a pool looks for its volumes and makes their devices itself, because the reply has the warnings.
//! - Actions that hold back clients of volumes while they change them (rollback, receive, destroy, rename, an
//!   exchange for a copy) look for the volumes before they let the clients go on, which must find the new
//!   ones. Keys are in no group.
//! - Mounts are moved by the actions, which take them down before the change and put them up after it, and
//!   take all back where the change fails: a follower would come too late.
//! - Pools in files of a mounted filesystem are imported after the actions that mount. An import waits for
//!   locks of other pools, and the thread of the agents must not.
//! - The agents look every few seconds for devices that are back, because devices do not say so.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Followed::settling` | that one caller brings a pool in line; held across `.await`, which it exists for | before `OpenPool::changes` |
//! | `Followed::behind` | what is out of line; for a few lines | before that of the feed |

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use engine::events::feed::{Change, What};
use engine::properties::Prop;

use crate::block::shares;
use crate::daemon::names::is_at_or_below;
use crate::daemon::{Daemon, OpenPool, VolumeList, lock};

/// Changes that are looked at at once.
const MAX_BATCH: usize = 256;

/// How far the followers of one pool are.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Followed {
    behind: Mutex<Behind>,
    volumes: Lag,
    devices: Lag,
    config: Lag,
    settling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Behind {
    /// The last change that was looked at.
    last: u64,
    /// The list of volumes is not complete. What is wrong is looked at again by the next action, and not by
    /// the thread of the agents again and again.
    are_volumes_missing: bool,
}

/// Whether one follower is out of line. It is so until it was brought in line, and not only until
/// that began: an action that is answered meanwhile would show what was before.
#[derive(Debug, Default)]
struct Lag {
    /// How often it came to be out of line.
    noted: AtomicU64,
    /// How often that was when it was last brought in line.
    settled: AtomicU64,
}

/// What was noted before a follower is brought in line.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(in crate::daemon) struct Noted(u64);

impl Lag {
    fn note(&self) {
        self.noted.fetch_add(1, Ordering::SeqCst);
    }

    fn begin(&self) -> Noted {
        Noted(self.noted.load(Ordering::SeqCst))
    }

    fn settle(&self, noted: Noted) {
        self.settled.fetch_max(noted.0, Ordering::SeqCst);
    }

    fn is_behind(&self) -> bool {
        self.noted.load(Ordering::SeqCst) != self.settled.load(Ordering::SeqCst)
    }
}

impl Followed {
    /// Block devices may be out of line with the volumes.
    pub(in crate::daemon) fn note_devices(&self) {
        self.devices.note();
    }
}

impl OpenPool {
    /// Tells the feed of something that belongs to no group.
    pub(in crate::daemon) fn tell(&self, what: What) {
        self.view().vdevs().reporter().tell(what);
    }

    /// Reads on in the feed, and notes what is out of line.
    fn read_feed(&self) {
        let Some(feed) = self.view().vdevs().reporter().feed() else { return };
        let volumes = self.volumes();
        let mut behind = lock(&self.followed.behind);
        loop {
            let batch = feed.after(behind.last, MAX_BATCH);
            if batch.missed {
                for lag in [&self.followed.volumes, &self.followed.devices, &self.followed.config] {
                    lag.note();
                }
                self.note_all_smb();
                behind.last = feed.last().max(behind.last);
            }
            let Some((last, _)) = batch.changes.last() else { return };
            behind.last = *last;
            for (_, change) in batch.changes.iter().filter(|(_, change)| change.pool == self.name()) {
                let concerned = [
                    (&self.followed.volumes, concerns_volumes(change, &volumes)),
                    (&self.followed.devices, concerns_devices(change)),
                    (&self.followed.config, change.what == What::Configured),
                ];
                for (lag, _) in concerned.into_iter().filter(|(_, is_concerned)| *is_concerned) {
                    lag.note();
                }
                self.note_smb(change);
            }
        }
    }

    /// Whether anything is out of line.
    fn is_behind(&self) -> bool {
        let followed = &self.followed;
        let are_devices_behind = followed.devices.is_behind() && self.may_have_devices();
        followed.volumes.is_behind()
            || followed.config.is_behind()
            || are_devices_behind
            || self.is_smb_behind()
    }

    /// The list of volumes is about to be made anew.
    pub(in crate::daemon) fn begin_volumes(&self) -> Noted {
        self.read_feed();
        self.followed.volumes.begin()
    }

    /// There is a new list of volumes, and whether all of them are in it.
    pub(in crate::daemon) fn end_volumes(&self, noted: Noted, are_missing: bool) {
        lock(&self.followed.behind).are_volumes_missing = are_missing;
        // Before it is said that the list is in line: its devices are not.
        self.followed.note_devices();
        self.followed.volumes.settle(noted);
    }

    /// Looks for the volumes that can be read, if they may be others than before. For those who have the
    /// right to change the pool.
    ///
    /// # Errors
    /// As those of [`OpenPool::find_volumes`].
    pub(in crate::daemon) async fn follow_volumes(&self) -> engine::Result<()> {
        self.read_feed();
        let are_old = self.followed.volumes.is_behind() || lock(&self.followed.behind).are_volumes_missing;
        if are_old { self.find_volumes().await } else { Ok(()) }
    }
}

impl Daemon {
    /// Brings in line what follows the feed, in all pools, and waits for others that do the same. What cannot
    /// be done is said in the log.
    pub(in crate::daemon) async fn catch_up(&self) {
        for pool in self.open_pools() {
            self.catch_up_in(&pool).await;
        }
    }

    /// The same in one pool.
    pub(in crate::daemon) async fn catch_up_in(&self, pool: &Arc<OpenPool>) {
        pool.read_feed();
        if !pool.is_behind() || pool.is_suspended() {
            return;
        }
        let _turn = pool.followed.settling.lock().await;
        // Another one may have done it. A pool that is being closed gets nothing new.
        if pool.is_behind()
            && let Ok(_changing) = pool.change().await
        {
            self.bring_in_line(pool).await;
        }
    }

    /// The same, but leaves pools that are being changed. Whether there are such.
    pub(in crate::daemon) async fn catch_up_idle(&self) -> bool {
        let mut is_left = false;
        for pool in self.open_pools() {
            pool.read_feed();
            if !pool.is_behind() || pool.is_suspended() {
                continue;
            }
            let turn = pool.followed.settling.try_lock();
            match turn.ok().and_then(|turn| Some((turn, pool.try_change()?))) {
                Some(_right) => self.bring_in_line(&pool).await,
                None => is_left = true,
            }
        }
        is_left
    }

    /// By who has the right to change the pool, and the turn.
    async fn bring_in_line(&self, pool: &Arc<OpenPool>) {
        if let Err(error) = pool.follow_volumes().await {
            tracing::warn!(%error, pool = pool.name(), "not all volumes are served");
        }
        let devices = pool.followed.devices.begin();
        for warning in self.settle_devices_of(pool).await {
            tracing::warn!(pool = pool.name(), "{warning}");
        }
        pool.followed.devices.settle(devices);
        self.settle_smb_of(pool).await;
        if pool.followed.config.is_behind() {
            let config = pool.followed.config.begin();
            self.keep(pool);
            pool.followed.config.settle(config);
        }
    }
}

/// Whether the list of volumes may be another one after a change.
fn concerns_volumes(change: &Change, volumes: &VolumeList) -> bool {
    let is_volume = |name: &str| volumes.get(name).is_some();
    match &change.what {
        What::Created { name, volume_bytes, .. } => {
            volume_bytes.is_some() || name.split_once('@').is_some_and(|(of, _)| is_volume(of))
        }
        What::Destroyed { name, .. } | What::Promoted { name, .. } => is_volume(name),
        What::Renamed { from, .. } => volumes.iter().any(|volume| is_at_or_below(volume.name(), from)),
        // It may be a new one.
        What::Replaced { .. } | What::Resized { .. } => true,
        What::Set { property, .. } => property == shares::PROPERTY,
        _ => false,
    }
}

/// Whether other volumes may have block devices after a change.
fn concerns_devices(change: &Change) -> bool {
    let is_of = |property: &str| [Prop::Volmode, Prop::Snapdev].iter().any(|of| of.desc().name == property);
    matches!(&change.what, What::Set { property, .. } if is_of(property))
}

#[cfg(test)]
mod tests {
    use ondisk::{Guid, Txg};

    use super::*;
    use crate::daemon::volumes::list::Volume;

    #[test]
    fn a_follower_is_behind_until_it_was_brought_in_line() {
        let lag = Lag::default();
        assert!(!lag.is_behind());
        lag.note();
        let first = lag.begin();
        assert!(lag.is_behind(), "an action that looks now has to wait");
        // Something else changes while that is under way.
        lag.note();
        lag.settle(first);
        assert!(lag.is_behind());
        let second = lag.begin();
        lag.settle(second);
        assert!(!lag.is_behind());
        // One that was slower knows less.
        lag.settle(first);
        assert!(!lag.is_behind());
    }

    #[test]
    fn only_what_may_change_a_volume_has_volumes_looked_for() {
        let volume = |name: &str| Volume {
            name: name.into(),
            guid: Guid(1),
            size_bytes: 1 << 20,
            block_bytes: 16 << 10,
            shares: Err("none".into()),
        };
        let volumes = VolumeList::new(vec![volume("tank/a/vol"), volume("tank/a/vol@one")], Vec::new());
        let (guid, name) = (Guid(7), |name: &str| name.to_owned());
        let created = |at: &str, volume_bytes| What::Created { name: name(at), guid, volume_bytes };
        let renamed = |from: &str| What::Renamed { from: name(from), to: name("tank/new"), guid };
        let set = |of: &str, property: &str| What::Set { name: name(of), guid, property: name(property) };
        for (what, expected) in [
            (created("tank/fs", None), false),
            (created("tank/new", Some(1 << 20)), true),
            (created("tank/fs@two", None), false),
            (created("tank/a/vol@two", None), true),
            (created("tank/a/vol#mark", None), false),
            (What::Destroyed { name: name("tank/a/vol@one"), guid }, true),
            (What::Destroyed { name: name("tank/fs@one"), guid }, false),
            (What::Promoted { name: name("tank/fs"), guid }, false),
            (renamed("tank/a"), true),
            (renamed("tank/a/vol@one"), true),
            (renamed("tank/a/v"), false),
            (What::Replaced { name: name("tank/fs"), guid }, true),
            (set("tank/fs", shares::PROPERTY), true),
            (set("tank/a/vol", "compression"), false),
            (What::Configured, false),
        ] {
            let change = Change { pool: name("tank"), guid, txg: Txg(9), what };
            assert_eq!(concerns_volumes(&change, &volumes), expected, "{change:?}");
        }
        let change = |what| Change { pool: name("tank"), guid, txg: Txg(9), what };
        assert!(concerns_devices(&change(set("tank", "volmode"))));
        assert!(!concerns_devices(&change(set("tank", "atime"))));
    }
}
