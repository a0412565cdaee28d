//! When hot spares go back: the devices that they stand in for are whole again.
//!
//! # The idea
//! A device that is back, or whose errors are forgotten, is marked (`unspare`). Its spare goes back as soon
//! as the device has everything: at once, or when it is resilvered for what it missed ([`super::detach`]).
//!
//! # Doubts
//! A device that returned wrong bytes may have more of them where nothing has read since, and a resilver
//! looks only at what it missed. While the spare is there, the right bytes are. So the device is in doubt
//! until a scrub of all data that began afterwards has come to its end, with the device there all the time.
//! Only then its spare may go, and for that a scrub begins by itself as soon as no other scan runs. A device
//! that fails again meanwhile keeps its spare. OpenZFS gives the spare back at once.
//!
//! Doubts are not stored: after an import the spare stays until it is detached or the errors of the device
//! are cleared.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Doubts::of` | the devices in doubt; for a few lines, never across an await | after `ScanControl::state` |
//!
//! Source of the facts: OpenZFS 2.4 `vdev.c` (`vdev_clear`), `spa.c` (`spa_vdev_resilver_done_hunt`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use ondisk::{Guid, Txg};

use super::{LivePool, scan};
use crate::error::{Error, Result};
use crate::vdev::{Aux, State, Status, Vdev, topology};

/// The devices in doubt.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    of: Mutex<HashMap<Guid, Doubt>>,
}

/// A device may hold wrong bytes.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// The number of the scan that was under way or the last one then: later ones verify the device.
    since: u64,
    /// The group that was open then: what is newer was written to the device afterwards.
    txg: Txg,
    /// Its spare is to go back.
    is_back: bool,
}

impl Doubts {
    fn of(&self) -> MutexGuard<'_, HashMap<Guid, Doubt>> {
        self.of.lock().ignore_poison()
    }
}

impl LivePool {
    /// The errors of a leaf are about to be forgotten. If there are wrong bytes among them and a spare stands
    /// in for the leaf, it is in doubt from now on.
    pub(super) fn note_doubt(&self, leaf: &Vdev) {
        let is_poor = leaf.status() == Status::new(State::Degraded, Aux::ErrorsExceeded);
        if (leaf.errors.checksum() > 0 || is_poor) && self.has_spare(leaf.guid) {
            let (since, txg) = (self.scan().number(), self.txgs.open_txg());
            let mut doubts = self.doubts.of();
            let doubt = doubts.entry(leaf.guid).or_insert(Doubt { since, txg, is_back: false });
            (doubt.since, doubt.txg) = (since, txg);
        }
    }

    /// Whether a spare stands in for a leaf that is not marked yet.
    fn has_spare(&self, leaf: Guid) -> bool {
        let mut tops = self.config().root.children.clone();
        tops.iter_mut().any(|top| topology::set_unspare(top, &[leaf]))
    }

    /// Devices are back, or their errors are forgotten: spares in use for them are to go back, at once
    /// where the devices have everything, otherwise when they are resilvered, and where they are in doubt
    /// when a scrub has verified them, which begins here.
    ///
    /// # Errors
    /// The pool cannot be changed.
    pub async fn unspare(self: &Arc<Self>, leaves: Vec<Guid>) -> Result<()> {
        let is_here = |guid: &Guid| {
            let leaf = self.pool.vdevs().find(*guid);
            leaf.is_some_and(|leaf| leaf.status().is_readable())
        };
        let mut leaves: Vec<Guid> = leaves.into_iter().filter(is_here).collect();
        let mut has_doubts = false;
        leaves.retain(|leaf| match self.doubts.of().get_mut(leaf) {
            Some(doubt) => {
                (doubt.is_back, has_doubts) = (true, true);
                false
            }
            None => true,
        });
        if has_doubts {
            self.look_for_resilver();
        }
        // On a copy: nothing waits for a group where there are no spares.
        let mut tops = self.config().root.children.clone();
        if !tops.iter_mut().fold(false, |any, top| topology::set_unspare(top, &leaves) | any) {
            return Ok(());
        }
        self.change(move |s| async move {
            s.pool.mark_unspare(&leaves);
            Ok(())
        })
        .await?;
        self.devices_resilvered();
        Ok(())
    }

    fn mark_unspare(&self, leaves: &[Guid]) {
        for top in &mut self.config().root.children {
            topology::set_unspare(top, leaves);
        }
        self.config_changed();
    }

    /// Whether a spare waits for a scrub to verify the device that it stands in for.
    pub(super) fn awaits_scrub(&self) -> bool {
        let waiting: Vec<Guid> =
            self.doubts.of().iter().filter(|(_, doubt)| doubt.is_back).map(|(guid, _)| *guid).collect();
        waiting.into_iter().any(|leaf| self.has_spare(leaf))
    }

    /// Begins the scrub that a spare waits for, unless a scan is under way.
    pub(super) async fn scrub_if_awaited(self: &Arc<Self>) -> Result<()> {
        let is_scanning = {
            let scan = self.scan();
            scan.phys.is_running() || scan.error_scrub.is_running()
        };
        if is_scanning || !self.awaits_scrub() {
            return Ok(());
        }
        match self.scrub(scan::ScrubRange::default()).await {
            // Another one began meanwhile; this is looked at again when it ends.
            Err(Error::Busy(_)) => Ok(()),
            begun => begun,
        }
    }

    /// A scrub that began with the oldest data came to its end, and what leaves hold now is noted. In syncing
    /// context.
    pub(super) fn resolve_doubts(&self) {
        let mut verified = Vec::new();
        // Blocks that only the checkpoint has were not looked at.
        let has_checkpoint = self.refuse_with_checkpoint().is_err();
        {
            let scan = self.scan();
            // The number went up when the scrub began, and when it ended.
            let is_later = |doubt: &Doubt| scan.number() >= doubt.since + 2 && scan.phys.max_txg >= doubt.txg;
            self.doubts.of().retain(|guid, doubt| {
                let leaf = self.pool.vdevs().find(*guid).filter(|_| is_later(doubt));
                let Some(leaf) = leaf else { return self.pool.vdevs().find(*guid).is_some() };
                let is_whole = scan.was_present(leaf) && leaf.missing_txgs.is_empty();
                let is_right = is_whole && leaf.status() == Status::HEALTHY && !has_checkpoint;
                if is_right && doubt.is_back {
                    verified.push(*guid);
                }
                // One that failed again keeps its spare until it is said to be back once more.
                doubt.is_back = false;
                !is_right
            });
        }
        if !verified.is_empty() {
            self.mark_unspare(&verified);
        }
    }
}
