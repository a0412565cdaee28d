//! Vdevs that grow with their devices.
//!
//! A device that has become larger is noticed when it is looked at: it is opened anew, taken online, or the
//! pool is imported. From then on the vdev could be larger (`expandsize`). It becomes so when a person wants
//! it (`zpool online -e`), or always (`autoexpand=on`), as soon as its smallest device has the room.
//!
//! All of it happens in the sync of a group, so that no labels are written while those at the end of a device
//! move. The size of a vdev stands in the configuration; blocks are put into the new space when the group
//! that brings it is committed ([`crate::alloc::Allocator::grow`]). What the disks hold is right after a
//! crash at any point: a vdev that is smaller than its devices is as good as one that is not.
//!
//! Source of the facts: OpenZFS 2.3 `vdev.c` (`vdev_online`, `vdev_expand`), `spa.c`
//! (`spa_async_autoexpand`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use futures_util::FutureExt;
use ondisk::{Asize, Guid};

use super::attach::note;
use super::parts::{Doing, Part};
use super::{LivePool, Syncing};
use crate::error::{Error, Result};
use crate::pool::properties::PoolProp;
use crate::vdev::{Class, Vdev};

/// What is to grow.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// `autoexpand`.
    automatic: AtomicBool,
    /// Sizes of devices are to be looked at.
    look: AtomicBool,
    /// Top-level vdevs that a person wants to grow.
    wanted: Mutex<BTreeSet<Guid>>,
}

impl Growth {
    fn wanted(&self) -> MutexGuard<'_, BTreeSet<Guid>> {
        self.wanted.lock().ignore_poison()
    }
}

impl Part for Growth {
    fn property(&self) -> Option<PoolProp> {
        Some(PoolProp::Autoexpand)
    }

    fn turn(&self, pool: &Arc<LivePool>, is_on: bool) {
        self.automatic.store(is_on, Ordering::Relaxed);
        pool.look_at_sizes();
    }

    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        s.pool.grow(s).boxed()
    }
}

impl LivePool {
    /// The next group looks whether devices have grown.
    pub(super) fn look_at_sizes(&self) {
        self.parts.grow.look.store(true, Ordering::Relaxed);
        self.txgs.kick();
    }

    /// Lets the vdev that a device belongs to use all that its devices have: with the next group, if there is
    /// more by then.
    ///
    /// # Errors
    /// It is a spare or cache device, or none at all.
    pub fn expand(&self, leaf: Guid) -> Result<()> {
        let vdevs = self.pool.vdevs();
        if vdevs.spares.iter().chain(vdevs.l2cache.iter()).any(|vdev| vdev.guid == leaf) {
            return Err(Error::Unsupported("cannot expand cache devices and spares".into()));
        }
        let top = vdevs.tops.iter().find(|top| top.walk().any(|vdev| vdev.guid == leaf));
        let top = top.ok_or_else(|| Error::NotFound(format!("device {leaf}")))?;
        self.parts.grow.wanted().insert(top.guid);
        self.look_at_sizes();
        Ok(())
    }

    /// Looks at the devices if it is to, and lets grow what may.
    async fn grow(&self, s: &Syncing) -> Result<()> {
        if !self.parts.grow.look.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let wanted = std::mem::take(&mut *self.parts.grow.wanted());
        let mut added = 0;
        for top in &self.pool.vdevs().tops {
            for leaf in top.walk() {
                leaf.notice_growth().await;
            }
            if self.parts.grow.automatic.load(Ordering::Relaxed) || wanted.contains(&top.guid) {
                added += self.grow_top(s, top)?;
            }
        }
        if added == 0 {
            return Ok(());
        }
        let classes =
            [Class::Normal, Class::Special, Class::Dedup].map(|class| self.allocator().space(class));
        let embedded = self.allocator().embedded_log_space();
        let before: u64 = classes.iter().chain([&embedded]).map(|space| space.size_bytes).sum();
        let text = format!("pool '{}' size: {}(+{added})", self.pool.name(), before.saturating_add(added));
        note(s, "vdev online", &text).await
    }

    /// The bytes of the metaslabs that are added.
    fn grow_top(&self, s: &Syncing, top: &Vdev) -> Result<u64> {
        let Some(asize) = top.larger_asize() else { return Ok(0) };
        let shift = top.metaslab_shift().unwrap_or(0);
        let in_metaslabs = |asize: u64| asize.checked_shr(shift).map_or(0, |count| count << shift);
        let before = in_metaslabs(top.asize());
        self.allocator().grow(top, asize, s.txg())?;
        tracing::info!(vdev = top.name, from = top.asize(), to = asize, "a vdev grows");
        top.set_asize(asize);
        if let Some(config) = self.config().find_mut(top.guid) {
            config.asize = Some(Asize(asize));
        }
        self.config_changed();
        Ok(in_metaslabs(asize).saturating_sub(before))
    }
}
