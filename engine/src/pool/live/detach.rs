//! Devices that are detached: copies that are not wanted any more, devices that were replaced, and spares
//! that go back.
//!
//! # The idea
//! A device is detached in the sync of one group, where the others hold everything that it holds. Writes that
//! began in the old tree may still end on it; so the tree changes first, the device comes to rest, and only
//! then is it checked once more that nothing is only there. When the group is committed, the labels of the
//! device are wiped, and it is closed. A crash before that leaves labels of an older group, which no later
//! import takes for part of the pool: its configuration does not know the device.
//!
//! In the place of the labels one of no group stays, without the pool's name. Only an import that goes back
//! to a group whose configuration has the device looks at it ([`crate::pool::discovery::FoundPool`]): then
//! the device holds all that it held, and may be the only one that does.
//!
//! Source of the facts: OpenZFS 2.4 `spa.c` (`spa_vdev_detach`, `spa_vdev_resilver_done`), `vdev_label.c`
//! (`vdev_label_init` with `VDEV_LABEL_REMOVE`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::Device;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::pool_directory as directory;
use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, ObjectId};

use super::attach::{note, path_of};
use super::devices::GivingUp;
use super::parts::Part;
use super::{Auxiliary, JobKey, LivePool, Syncing};
use crate::dmu::zap;
use crate::error::{Error, Result};
use crate::jobs::{Job, Step, Turn, Unit};
use crate::vdev::Vdev;
use crate::vdev::config::{Devices, Renamed};
use crate::vdev::label::leave_former_labels;
use crate::vdev::read::yield_now;
use crate::vdev::release::release;
use crate::vdev::topology;

/// How long transfers that began before a device was detached may take.
const REST_PATIENCE: Duration = Duration::from_secs(30);

/// The line of jobs that detach devices.
const LINE: &str = "detach";

/// The job that detaches them.
struct Done;

impl Job<LivePool> for Done {
    fn name(&self) -> &'static str {
        LINE
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        async move {
            let pool = turn.host()?;
            if let Err(error) = pool.detach_resilvered().await {
                tracing::warn!(pool = pool.pool.name(), %error, "a device stays attached");
            }
            Ok(Step::Complete)
        }
        .boxed_local()
    }
}

/// Detaches devices whose work is done.
#[derive(Debug, Default)]
pub(super) struct Detaching;

impl Part for Detaching {
    /// The pool may have ended between a resilver and that.
    fn start(&self, pool: &Arc<LivePool>) {
        pool.devices_resilvered();
    }
}

/// What must still be so when a device is detached because its work is done.
#[derive(Clone, Copy)]
struct Expected {
    /// The vdev above it.
    parent: Guid,
    /// The leaf that has everything instead.
    holder: Guid,
}

/// A device that is not part of the tree any more.
struct Gone {
    guid: Guid,
    /// The top-level vdev above it.
    top: Guid,
    is_spare: bool,
    device: Option<Arc<dyn Device>>,
}

impl LivePool {
    /// Detaches a device from the others that hold the same data; returns when that is committed, its labels
    /// are wiped, and it is free for other uses. A hot spare goes back to the others.
    ///
    /// # Errors
    /// There is no such device, it is not one of several copies, or others do not hold everything; there is a
    /// checkpoint.
    pub async fn detach(self: &Arc<Self>, leaf: Guid) -> Result<()> {
        self.detach_from(leaf, None).await
    }

    /// Devices hold what they missed: those whose work is done are detached in the background. May be called
    /// in syncing context.
    pub(super) fn devices_resilvered(self: &Arc<Self>) {
        self.look_at_sizes();
        self.detach_in_background();
    }

    fn detach_in_background(self: &Arc<Self>) {
        if self.next_done().is_none() || !self.has_thread() {
            return;
        }
        let job = (Unit::Objects, Box::new(Done) as Box<dyn Job<Self>>);
        if let Err(error) = self.jobs.line_up(self, LINE, JobKey::DetachResilvered, job) {
            tracing::warn!(pool = self.pool.name(), %error, "devices stay attached");
        }
    }

    /// Detaches devices whose work is done in the background, if there are any that could not be detached
    /// when it was done. If there are none, no group is committed for that: the daemon asks again and again.
    pub fn detach_done(self: &Arc<Self>) {
        if self.refuse_with_checkpoint().is_ok() && self.suspended().is_none() {
            self.detach_in_background();
        }
    }

    /// Whether devices whose work is done are being detached: it is not over before the configuration without
    /// them is committed and their labels are wiped.
    pub fn is_detaching(&self) -> bool {
        self.jobs.state_of(&JobKey::DetachResilvered).is_some()
    }

    /// Detaches devices whose work is done: the old one where the new one has everything, and spares where
    /// the original has. Not in syncing context.
    ///
    /// # Errors
    /// A device cannot be detached now. It stays until the next resilver.
    pub async fn detach_resilvered(self: &Arc<Self>) -> Result<()> {
        while let Some(done) = self.next_done() {
            let expected = Expected { parent: done.parent, holder: done.holder };
            self.detach_from(done.leaf, Some(expected)).await?;
        }
        self.look_at_sizes();
        Ok(())
    }

    /// The next device whose work is done.
    fn next_done(&self) -> Option<topology::Done> {
        let vdevs = self.pool.vdevs();
        let has_all = |guid| self.has_all(guid);
        let is_needed = |guid| vdevs.find(guid).is_none_or(|leaf| !vdevs.can_do_without(leaf));
        let tops = self.config().root.children.clone();
        tops.iter().find_map(|top| topology::next_done(top, &has_all, &is_needed))
    }

    /// Whether a leaf is there and missed nothing.
    fn has_all(&self, leaf: Guid) -> bool {
        let leaf = self.pool.vdevs().find(leaf);
        leaf.is_some_and(|leaf| leaf.status().is_readable() && leaf.missing_txgs.is_empty())
    }

    /// Detaches a device, if what is expected is still so.
    async fn detach_from(self: &Arc<Self>, leaf: Guid, expected: Option<Expected>) -> Result<()> {
        self.refuse_with_checkpoint()?;
        let _giving_up = GivingUp::of(self);
        let (_, detached) = self.top_without(leaf, expected)?;
        // What goes through its free space ends, and so it does for a device that gets another guid.
        let renamed = detached.renamed.map(|renamed| renamed.from);
        self.jobs.give_up(self, |key| key.is_on(leaf) || renamed.is_some_and(|from| key.is_on(from))).await?;
        let gone = self.change(move |s| async move { detach_in(&s, leaf, expected).await }).await?;
        self.let_device_go(gone).await;
        Ok(())
    }

    /// The top-level vdev that a leaf belongs to, and what it is without that leaf.
    fn top_without(&self, leaf: Guid, expected: Option<Expected>) -> Result<(&Vdev, topology::Detached)> {
        let vdevs = self.pool.vdevs();
        let no_device = || Error::NotFound(format!("device {leaf}"));
        let top = vdevs.top_above(leaf).ok_or_else(no_device)?;
        let config = self.config().root.children.get(top.id as usize).cloned().ok_or_else(no_device)?;
        let above = topology::parent_of(&config, leaf).map(|above| above.guid);
        // The tree may have changed, or the other device may have gone, while this waited for its group.
        if expected.is_some_and(|Expected { parent, holder }| above != Some(parent) || !self.has_all(holder))
        {
            return Err(Error::Busy("the device was detached or replaced meanwhile".into()));
        }
        let detached = topology::detach(&config, leaf)?;
        let vdev = vdevs.find(leaf).ok_or_else(no_device)?;
        match vdevs.can_do_without(vdev) {
            true => Ok((top, detached)),
            false => Err(Error::Busy("no valid replicas".into())),
        }
    }

    /// After the commit: the device becomes free for other uses.
    async fn let_device_go(&self, gone: Gone) {
        let Gone { guid, top, is_spare, device } = gone;
        if is_spare {
            return self.spare_is_free(guid, device).await;
        }
        // It may have been a spare that stayed for good.
        self.pool.vdevs().give_spare_back(guid, None);
        let Some(device) = device else { return };
        let label = self.config().for_former_label(top, guid, self.version());
        if let Err(error) = leave_former_labels(&*device, &label).await {
            tracing::warn!(%error, "a label of a detached device stays");
        }
        release(vec![device]).await;
    }
}

async fn detach_in(s: &Syncing, leaf: Guid, expected: Option<Expected>) -> Result<Gone> {
    s.pool.refuse_with_checkpoint()?;
    let vdevs = s.pool.pool().vdevs();
    let (top, detached) = s.pool.top_without(leaf, expected)?;
    let id = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
    let old = topology::find_vdev(top, leaf).ok_or_else(|| Error::NotFound(format!("device {leaf}")))?;
    let renamed = detached.renamed;
    let facts = vdevs.facts(old);
    let now = vdevs.rebuild_top(id, &detached.top, renamed, &Devices::new(), |_| {})?;
    comes_to_rest(old).await;
    if !now.holds_what_was_written() {
        let back = renamed.map(|Renamed { from, to }| Renamed { from: to, to: from });
        let was = s.pool.config().root.children.get(id as usize).cloned();
        if let Some(was) = was {
            s.or_stop(vdevs.rebuild_top(id, &was, back, &Devices::new(), |_| {}))?;
        }
        return Err(Error::Busy("no valid replicas".into()));
    }
    let gone = Gone { guid: leaf, top: top.guid, is_spare: detached.leaf.is_spare, device: old.close() };
    let log = old.missing_txgs.object();
    // The MOS and the tree must not say different things.
    s.or_stop(forget(s, id, detached, log).await)?;
    vdevs.reporter().sysevent("vdev_remove", Some(&facts), Vec::new());
    s.pool.look_at_sizes();
    Ok(gone)
}

/// The pool forgets a leaf that is in the tree no more, and whose dirty time log is `log`.
async fn forget(s: &Syncing, id: u32, detached: topology::Detached, log: Option<ObjectId>) -> Result<()> {
    forget_objects(s, &detached.leaf, log).await?;
    if let Some(Renamed { from, to }) = detached.renamed {
        s.pool.parts.devices.rename(from, to);
    }
    s.pool.set_top(id, detached.top);
    if let Some(spare) = detached.unspared {
        let spares = &s.pool.pool().vdevs().spares;
        if let Some(spare) = spares.iter().find(|vdev| vdev.guid == spare) {
            spares.remove(spare);
        }
        Auxiliary::Spares.write(s).await?;
    }
    note(s, "detach", &format!("vdev={}", path_of(&detached.leaf))).await
}

/// Waits until transfers that began before the tree changed have ended.
async fn comes_to_rest(leaf: &Vdev) {
    let start = Instant::now();
    while leaf.in_flight.load(Ordering::Acquire) > 0 && start.elapsed() < REST_PATIENCE {
        yield_now().await;
    }
}

/// Frees what the MOS has of a leaf.
async fn forget_objects(s: &Syncing, leaf: &VdevConfig, log: Option<ObjectId>) -> Result<()> {
    if let Some(zap) = leaf.leaf_zap {
        let map = s.directory_object(directory::VDEV_ZAP_MAP).await?;
        let key = zap::Key::Name(format!("{:x}", zap.get()).into_bytes());
        zap::edit::remove(&map, &s.tx, &key).await?;
        s.mos().free(&s.tx, zap).await?;
    }
    if let Some(log) = log.or(leaf.dtl_object) {
        s.mos().free(&s.tx, log).await?;
    }
    Ok(())
}
