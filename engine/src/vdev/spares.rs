//! Hot spares that several pools have.
//!
//! # The idea
//! Pools of one machine may have the same hot spare, as in OpenZFS: its guid stands in the list of each. A
//! device is open once in all processes, under a lock ([`super::open`]). So the pools of this process share
//! one opening of it, and a register says which pools these are and which of them uses the spare. It knows
//! the spare by the identity of its device.
//!
//! | what a pool does | what the others see |
//! |---|---|
//! | has the spare in its list (`list_spare`) | nothing, but they share the opening |
//! | takes it (`take_spare`), before it writes a label of its own | it is in use, and they have it not open |
//! | gives it back (`give_spare_back`), after its label is one of a spare again | it is available |
//! | keeps it for good, or is closed while it uses it | it is in use as long as its label says so |
//!
//! While a pool uses a spare it has the only opening, so it may close it and open it again. A spare of a pool
//! in another process cannot be opened here, and is not available.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `REGISTER` | who has and uses which spare; for a few lines | before those of the tree and of slots |
//!
//! Source of the facts: OpenZFS 2.4 `spa_misc.c` (`spa_spare_add`, `spa_spare_exists`, `spa_spare_activate`),
//! `vdev_label.c` (`vdev_inuse`).

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use device::address::is_complete;
use device::{Device, Identity, IgnorePoison, IoError, OpenOptions};
use ondisk::vdev_config::{PoolConfig, PoolState};
use ondisk::{Guid, Txg};

use super::label::{best_label, read_labels};
use super::open::open_again;
use super::slot::WeakSlot;
use super::{Aux, Kind, Lasting, State, Status, Vdev, VdevTree};
use crate::events::Reporter;

/// Who has which hot spare. There are few.
static REGISTER: Mutex<Register> = Mutex::new(Register(Vec::new()));

/// The status of a hot spare that is in use, here or by another pool.
pub(crate) const IN_USE: Status = Status::new(State::CantOpen, Aux::Spared);
/// The status of one that is not there.
const AWAY: Status = Status::new(State::CantOpen, Aux::OpenFailed);

struct Register(Vec<Entry>);

/// A device that is a hot spare of pools.
struct Entry {
    identity: Identity,
    guid: Guid,
    members: Vec<Member>,
    user: Option<Weak<Reporter>>,
}

/// A pool that has the spare in its list. A pool is known by its reporter, which lasts as long as it.
struct Member {
    pool: Weak<Reporter>,
    spare: Weak<Lasting>,
    slot: WeakSlot,
}

impl Member {
    fn is(&self, spare: &Vdev) -> bool {
        std::ptr::eq(self.spare.as_ptr(), Arc::as_ptr(spare.lasting()))
    }

    /// Gives the spare of this pool another device and status, if it is still there.
    fn set(&self, device: Option<Arc<dyn Device>>, status: Status) {
        if let (Some(spare), Some(slot)) = (self.spare.upgrade(), self.slot.upgrade()) {
            spare.status.set(status);
            drop(slot.replace(device));
        }
    }
}

impl Entry {
    fn user(&self) -> Option<Arc<Reporter>> {
        self.user.as_ref().and_then(Weak::upgrade)
    }

    /// Whether a pool has the device open. Otherwise its identity may be that of another one by now: the
    /// number of a file that is gone is given to the next one.
    fn is_open(&self) -> bool {
        let has_device = |member: &Member| member.slot.upgrade().is_some_and(|slot| slot.device().is_some());
        self.user().is_some() || self.members.iter().any(has_device)
    }

    fn others(&self, pool: &Arc<Reporter>) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| !is(&member.pool, pool))
    }
}

fn is(one: &Weak<Reporter>, pool: &Arc<Reporter>) -> bool {
    std::ptr::eq(one.as_ptr(), Arc::as_ptr(pool))
}

fn register() -> MutexGuard<'static, Register> {
    let mut register = REGISTER.lock().ignore_poison();
    for entry in &mut register.0 {
        let is_there = |spare: Arc<Lasting>| !spare.is_removed.load(std::sync::atomic::Ordering::Acquire);
        entry.members.retain(|member| member.spare.upgrade().is_some_and(is_there));
    }
    register.0.retain(|entry| !entry.members.is_empty() || entry.user().is_some());
    register
}

impl Register {
    fn entry(&mut self, identity: Identity, guid: Guid) -> &mut Entry {
        let known = self.0.iter().position(|entry| entry.identity == identity && entry.guid == guid);
        let index = known.unwrap_or_else(|| {
            self.0.push(Entry { identity, guid, members: Vec::new(), user: None });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    fn of(&self, spare: &Vdev) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.members.iter().any(|member| member.is(spare)))
    }
}

/// The opening of a hot spare that pools of this process have, if `device` is one that none of them uses.
pub fn shared(device: &dyn Device) -> Option<Arc<dyn Device>> {
    let identity = device.identity()?;
    let register = register();
    let mut free = register.0.iter().filter(|entry| entry.identity == identity && entry.user().is_none());
    free.find_map(|entry| entry.members.iter().find_map(|member| member.slot.upgrade()?.device()))
}

/// The guid of a device that is a hot spare of a pool of this process.
pub(crate) fn shared_guid(device: &dyn Device) -> Option<Guid> {
    let identity = device.identity()?;
    let register = register();
    let known = register.0.iter().find(|entry| entry.identity == identity && entry.is_open());
    known.map(|entry| entry.guid)
}

/// Whether the path of a device still leads to it.
fn is_in_place(device: &dyn Device) -> bool {
    match device.identity() {
        Some(identity) if device.path().is_absolute() => Identity::at(device.path()) == Some(identity),
        _ => true,
    }
}

/// What is found of a hot spare that is not in use here.
pub(crate) enum Found {
    /// It is as it was, or its status was set.
    Settled,
    /// It is available as soon as it has a label that says that it is no device of a pool.
    NeedsLabel(Arc<dyn Device>),
}

impl VdevTree {
    /// A hot spare is in the pool's list: pools that have the same one share it. `device` is its device, also
    /// where that is a leaf's by now.
    pub(crate) fn list_spare(&self, spare: &Vdev, device: &dyn Device) {
        if let Some(identity) = device.identity() {
            self.list_in(&mut register(), spare, identity);
        }
    }

    fn list_in(&self, register: &mut Register, spare: &Vdev, identity: Identity) {
        let Kind::Leaf(slot) = &spare.kind else { return };
        register.0.iter_mut().for_each(|entry| entry.members.retain(|member| !member.is(spare)));
        let pool = self.reporter();
        let entry = register.entry(identity, spare.guid);
        let (of, lasting) = (Arc::downgrade(pool), Arc::downgrade(spare.lasting()));
        let member = Member { pool: of, spare: lasting, slot: slot.downgrade() };
        if entry.user().is_some_and(|user| !Arc::ptr_eq(&user, pool)) {
            member.set(None, IN_USE);
        }
        entry.members.push(member);
    }

    /// The pool uses a hot spare from now on, and no other one does.
    ///
    /// # Errors
    /// The name of the pool that uses it.
    pub(crate) fn take_spare(&self, guid: Guid, device: &dyn Device) -> Result<(), String> {
        let Some(identity) = device.identity() else { return Ok(()) };
        let (mut register, pool) = (register(), self.reporter());
        let users = register.0.iter().filter(|entry| entry.identity == identity).filter_map(Entry::user);
        if let Some(other) = users.into_iter().find(|user| !Arc::ptr_eq(user, pool)) {
            return Err(other.pool_name());
        }
        let entry = register.entry(identity, guid);
        entry.user = Some(Arc::downgrade(pool));
        entry.others(pool).for_each(|member| member.set(None, IN_USE));
        Ok(())
    }

    /// The pool uses a hot spare no more; `device` has the label of a spare, or is not there.
    pub(crate) fn give_spare_back(&self, guid: Guid, device: Option<&Arc<dyn Device>>) {
        let (mut register, pool) = (register(), self.reporter());
        let status = if device.is_some() { Status::HEALTHY } else { AWAY };
        let is_ours = |entry: &&mut Entry| entry.user.as_ref().is_some_and(|user| is(user, pool));
        for entry in register.0.iter_mut().filter(|entry| entry.guid == guid).filter(is_ours) {
            entry.user = None;
            entry.others(pool).for_each(|member| member.set(device.cloned(), status));
        }
    }

    /// The pool is closed: it has and uses no spare any more. What it used has its label, by which other
    /// pools know that.
    pub(crate) fn leave_spares(&self) {
        let (mut register, pool) = (register(), self.reporter());
        for entry in &mut register.0 {
            entry.members.retain(|member| !is(&member.pool, pool));
            let _ = entry.user.take_if(|user| is(user, pool));
        }
    }

    /// The other pool that uses a hot spare of this one.
    pub(crate) fn user_of_spare(&self, spare: &Vdev) -> Option<String> {
        let user = register().of(spare)?.user()?;
        (!Arc::ptr_eq(&user, self.reporter())).then(|| user.pool_name())
    }

    /// Whether another pool of this process has a hot spare that this one uses.
    pub(crate) fn is_shared(&self, guid: Guid) -> bool {
        let (register, pool) = (register(), self.reporter());
        let mut of_guid = register.0.iter().filter(|entry| entry.guid == guid);
        of_guid.any(|entry| {
            entry.user().is_some_and(|user| Arc::ptr_eq(&user, pool)) && entry.others(pool).next().is_some()
        })
    }

    /// Looks whether a hot spare that is not in use is there. With `thorough` its label is read although
    /// nothing seems to be wrong with it. `path` is where it was last seen.
    pub(crate) async fn look_at_spare(
        &self,
        spare: &Vdev,
        (pool, path): (Guid, Option<&std::path::Path>),
        thorough: bool,
    ) -> Found {
        let Kind::Leaf(slot) = &spare.kind else { return Found::Settled };
        if !self.may_look_at(spare) {
            return Found::Settled;
        }
        let open = slot.device().filter(|device| is_in_place(&**device));
        if spare.status().is_readable() {
            return match open {
                Some(_) if !thorough => Found::Settled,
                Some(device) => self.settle_spare(spare, pool, device).await,
                None => self.set_spare(spare, None, (AWAY, None)),
            };
        }
        if let Some(device) = open.filter(|device| device.identity().is_none()) {
            return self.settle_spare(spare, pool, device).await;
        }
        let Some(path) = path.filter(|path| is_complete(path)) else { return Found::Settled };
        let Ok(looked_at) = OpenOptions::read_only().open_device(path) else {
            return self.set_spare(spare, None, (AWAY, None));
        };
        let looked_at = self.injected(spare, looked_at);
        let identity = looked_at.identity();
        let status = status_by(spare, pool, &label_of(&*looked_at).await);
        if !status.is_readable() {
            return self.set_spare(spare, None, (status, identity));
        }
        // Its own opening is a lock too.
        drop(slot.replace(None));
        let opened = shared(&*looked_at).map_or_else(|| open_again(path, spare.ashift), Ok);
        match opened {
            Ok(device) => {
                let device = self.injected(spare, device);
                self.settle_spare(spare, pool, device).await
            }
            Err(error) => {
                tracing::info!(%error, "a hot spare cannot be opened");
                self.set_spare(spare, None, (AWAY, identity))
            }
        }
    }

    /// Whether a spare is in no use that the register knows of.
    fn may_look_at(&self, spare: &Vdev) -> bool {
        let is_known = match register().of(spare) {
            Some(entry) if entry.user().is_some() => return false,
            entry => entry.is_some(),
        };
        let is_offline = spare.status().state == State::Offline;
        // One that goes back is labelled before it is available.
        let is_going_back = spare.status() == IN_USE && !is_known;
        !is_offline && !is_going_back && self.top_above(spare.guid).is_none()
    }

    /// Gives a spare the status that its label tells.
    async fn settle_spare(&self, spare: &Vdev, pool: Guid, device: Arc<dyn Device>) -> Found {
        let label = label_of(&*device).await;
        let status = status_by(spare, pool, &label);
        match status.is_readable() {
            true if label.ok().flatten().is_some_and(|label| label.pool_guid.is_some()) => {
                Found::NeedsLabel(device)
            }
            true => self.set_spare(spare, Some(Arc::clone(&device)), (status, device.identity())),
            false => self.set_spare(spare, None, (status, device.identity())),
        }
    }

    /// Gives a spare a device and a status, unless it came into use meanwhile. `identity` is that of what is
    /// in its place.
    pub(crate) fn set_spare(
        &self,
        spare: &Vdev,
        device: Option<Arc<dyn Device>>,
        (status, identity): (Status, Option<Identity>),
    ) -> Found {
        let Kind::Leaf(slot) = &spare.kind else { return Found::Settled };
        let mut register = register();
        let is_used = register.of(spare).is_some_and(|entry| entry.user().is_some());
        if !is_used && self.top_above(spare.guid).is_none() {
            drop(slot.replace(device));
            self.set_status(spare, status);
            if let Some(identity) = identity {
                self.list_in(&mut register, spare, identity);
            }
        }
        Found::Settled
    }
}

/// The best label of a device, if it has one.
///
/// # Errors
/// The device cannot be read.
async fn label_of(device: &dyn Device) -> Result<Option<PoolConfig>, IoError> {
    device.read(0, 512).await?;
    Ok(best_label(read_labels(device).await))
}

/// The status of a hot spare of this pool that has this label.
fn status_by(spare: &Vdev, pool: Guid, label: &Result<Option<PoolConfig>, IoError>) -> Status {
    let Ok(label) = label else { return AWAY };
    let Some(label) = label.as_ref().filter(|label| label.guid == Some(spare.guid)) else {
        return Status::new(State::CantOpen, Aux::CorruptData);
    };
    let is_of_group = label.txg.is_some_and(|txg| txg != Txg::NONE);
    match label.pool_guid {
        Some(other) if other != pool && is_of_group && label.state != PoolState::Destroyed => IN_USE,
        _ => Status::HEALTHY,
    }
}
