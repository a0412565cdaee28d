//! [`Allocator`]: which space of a pool is free, and which block gets it.
//!
//! # The idea
//! Each vdev belongs to a class of allocations. A request names a class, and goes on to the next class when
//! that one is full or has no vdev, as in OpenZFS. The exception is the log, which borrows space for data
//! from the layer that accepts data (see [`crate::zio::LogRoom`]):
//!
//! | asked for | then |
//! |---|---|
//! | normal | |
//! | special | normal |
//! | dedup | special, normal |
//! | log | the metaslabs set apart for the log on normal vdevs |
//!
//! Copies of a block go to different vdevs while several have room; otherwise they lie far apart on one vdev.
//!
//! Space that a group frees is handed out again after two more groups are committed, so that the states
//! before can still be opened after a crash, and not while a reader holds a view that refers to it. When
//! little space is left, the two groups are not waited for, as in OpenZFS.
//!
//! The free space of a metaslab is read when space in it is first requested ([`Allocator::load_metaslab`]).
//! Allocation itself never waits: it returns the metaslab that must be loaded.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `maps` | the space map objects: they are not written while one is read; held across awaits | first |
//! | `state` | everything in memory; never held across an await | after `maps` |
//!
//! Only the sync thread calls `sync`, `sync_done` and `add_top`; it first copies from the state what it
//! writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use device::IgnorePoison;
use futures_util::future::BoxFuture;
use futures_util::lock::Mutex as AsyncMutex;
use ondisk::blkptr::{Dva, GANG_HEADER_SIZE};
use ondisk::features::Feature;
use ondisk::{Asize, ByteOffset, ObjectId, Txg, VdevId};

use crate::error::{Error, Result};
use crate::store::Store;
use crate::vdev::indirect::Place;
use crate::vdev::{Class, Kind, VdevTree};

use super::class::{Rotor, share};
use super::group::{Answer, Group, Totals, Use, reusable_after};
use super::log::Logs;
use super::metaslab::Bounds;
use super::slop_bytes;
use super::vdev_map::VdevMap;
use crate::range_set::RangeSet;
use crate::tunables;

/// The reason why there is no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No free run is long enough, or the pool is full.
    NoSpace,
    /// This metaslab must be loaded first ([`Allocator::load_metaslab`]). Then the caller asks again.
    NotLoaded(MetaslabId),
}

/// A metaslab: its vdev and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetaslabId {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// The index of the metaslab on its vdev, from 0.
    pub place: usize,
}

/// The deflated size of a sector on a vdev without parity.
const SECTOR_BYTES: u64 = 512;
/// This share of the special class is reserved for metadata (`zfs_special_class_metadata_reserve_pct`).
const METADATA_RESERVE_PERCENT: u128 = 25;
/// The number of free runs of idle metaslabs that may be in memory; beyond it the metaslabs that were idle
/// for longest are unloaded earlier,
const IDLE_RUNS: usize = 1 << 20;
/// after this many groups.
const UNLOAD_EARLY_AFTER_TXGS: u64 = 8;

/// The source of space maps: the MOS, whose own blocks occupy the space that the maps describe.
pub(crate) trait SpaceMaps: fmt::Debug + Send + Sync {
    /// The ranges of a metaslab that the space map `map` records as allocated.
    fn read(&self, map: ObjectId, bounds: Bounds) -> BoxFuture<'_, Result<RangeSet>>;
}

/// The space of an open pool: metaslabs of all top-level vdevs, by class.
#[derive(Debug)]
pub struct Allocator {
    pub(crate) store: Arc<Store>,
    /// The source of the space maps, once there are any.
    pub(crate) source: OnceLock<Box<dyn SpaceMaps>>,
    pub(crate) maps: AsyncMutex<()>,
    /// The group of the pool's checkpoint; 0 for none.
    pub(crate) checkpoint: AtomicU64,
    state: Mutex<State>,
}

/// Space of one class, in raw bytes (parity included).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassSpace {
    /// Size.
    pub size_bytes: u64,
    /// Allocated, including freed space that is not yet reusable.
    pub allocated_bytes: u64,
    /// Of that, freed and waiting to become reusable.
    pub deferred_bytes: u64,
    /// Size without parity, as in `available`.
    pub deflated_size_bytes: u64,
    /// Allocated without parity, as in `used`.
    pub deflated_allocated_bytes: u64,
}

/// The state that the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    /// Whether the pool accounts in deflated space, as all but the oldest pools do.
    pub(crate) deflate: bool,
    /// By number of the vdev; absent for removed vdevs and holes.
    pub(crate) groups: Vec<Option<Group>>,
    /// Space maps of whole vdevs.
    pub(crate) vdev_maps: BTreeMap<VdevId, VdevMap>,
    /// By [`slot`].
    pub(crate) rotors: [Rotor; 5],
    /// Log space maps.
    pub(crate) logs: Logs,
    /// Runs of changes of all metaslabs that their own maps do not contain yet.
    pub(crate) unflushed_runs: usize,
    /// The next sync flushes all metaslabs.
    pub(crate) flush_all: bool,
    /// Uses of features that began or ended, not reported yet.
    pub(crate) feature_changes: Vec<(Feature, i64)>,
    /// The group that is being synced, and its number of passes so far.
    pub(crate) pass: (Txg, u16),
}

/// The index of a source of space: a class, or the metaslabs set apart for the log.
fn slot(class: Class, usage: Use) -> usize {
    match (class, usage) {
        (_, Use::EmbeddedLog) => 4,
        (Class::Normal, _) => 0,
        (Class::Special, _) => 1,
        (Class::Dedup, _) => 2,
        (Class::Log, _) => 3,
    }
}

/// The sources that a request for a class tries, in order.
fn chain(class: Class) -> &'static [(Class, Use)] {
    const NORMAL: (Class, Use) = (Class::Normal, Use::Class);
    match class {
        Class::Normal => &[NORMAL],
        Class::Special => &[(Class::Special, Use::Class), NORMAL],
        Class::Dedup => &[(Class::Dedup, Use::Class), (Class::Special, Use::Class), NORMAL],
        Class::Log => &[(Class::Log, Use::Class), (Class::Normal, Use::EmbeddedLog)],
    }
}

impl State {
    /// A state without vdevs.
    pub(crate) fn new(deflate: bool) -> Self {
        Self {
            deflate,
            groups: Vec::new(),
            vdev_maps: BTreeMap::new(),
            rotors: Default::default(),
            logs: Logs::default(),
            unflushed_runs: 0,
            flush_all: false,
            feature_changes: Vec::new(),
            pass: (Txg::NONE, 0),
        }
    }

    /// The deflated size of raw bytes on a vdev.
    fn deflated(&self, group: &Group, bytes: u64) -> u64 {
        if self.deflate { group.deflate(bytes) } else { bytes }
    }

    /// Adds a vdev.
    pub(crate) fn add_group(&mut self, group: Group) {
        let place = group.vdev as usize;
        self.rotors[slot(group.class, Use::Class)].members.push(place);
        if group.totals(Use::EmbeddedLog).size > 0 {
            self.rotors[slot(group.class, Use::EmbeddedLog)].members.push(place);
        }
        if self.groups.len() <= place {
            self.groups.resize_with(place + 1, || None);
        }
        self.groups[place] = Some(group);
    }

    pub(crate) fn group(&mut self, vdev: VdevId) -> Result<&mut Group> {
        let group = usize::try_from(vdev.get()).ok().and_then(|place| self.groups.get_mut(place)?.as_mut());
        group.ok_or_else(|| {
            Error::corrupt(format!("top-level vdev {vdev}"), "space on it is named, and it has no metaslabs")
        })
    }

    /// Bytes of all vdevs of a class, or of their metaslabs that are set apart for the log.
    fn totals(&self, class: Class, usage: Use) -> Totals {
        let groups = self.groups.iter().flatten().filter(|group| group.class == class);
        groups.map(|group| group.totals(usage)).fold(Totals::default(), Totals::plus)
    }

    /// Allocates from the first source with room among those that a request for `class` tries.
    fn allocate(
        &mut self,
        class: Class,
        copies: usize,
        txg: Txg,
        asize_on: &dyn Fn(u32) -> Option<u64>,
    ) -> Result<Vec<Dva>, Denied> {
        for &place in chain(class) {
            match self.allocate_in(place, copies, txg, asize_on) {
                Err(Denied::NoSpace) => {}
                result => return result,
            }
        }
        Err(Denied::NoSpace)
    }

    /// Allocates all copies in one class, or nothing.
    fn allocate_in(
        &mut self,
        (class, usage): (Class, Use),
        copies: usize,
        txg: Txg,
        asize_on: &dyn Fn(u32) -> Option<u64>,
    ) -> Result<Vec<Dva>, Denied> {
        let mut dvas: Vec<Dva> = Vec::with_capacity(copies);
        for copy in 0..copies {
            match self.allocate_copy((class, usage), (copy, copies), &dvas, txg, asize_on) {
                Ok(dva) => dvas.push(dva),
                Err(denied) => {
                    self.undo(&dvas, txg);
                    return Err(denied);
                }
            }
        }
        Ok(dvas)
    }

    fn allocate_copy(
        &mut self,
        (class, usage): (Class, Use),
        (copy, copies): (usize, usize),
        others: &[Dva],
        txg: Txg,
        asize_on: &dyn Fn(u32) -> Option<u64>,
    ) -> Result<Dva, Denied> {
        let (slot, is_single) = (slot(class, usage), copies == 1);
        let members = self.rotors[slot].members.len();
        // First the vdevs without a copy of the block, then all.
        for same_vdev in [false, true] {
            if same_vdev && others.is_empty() {
                break;
            }
            for turn in 0..members {
                let Some(place) = self.rotors[slot].order().nth(turn) else { break };
                let Some(group) = self.groups.get_mut(place).and_then(Option::as_mut) else { continue };
                let vdev = group.vdev;
                let here: Vec<u64> = others
                    .iter()
                    .filter(|other| other.vdev.get() == vdev)
                    .map(|other| other.offset.get())
                    .collect();
                let is_too_new = group.added.is_some_and(|added| txg > added);
                if here.is_empty() == same_vdev || is_too_new || !group.allocating {
                    continue;
                }
                let Some(asize) = asize_on(vdev).filter(|asize| *asize > 0) else { continue };
                let answer = match is_single {
                    true => group.allocate_single(usage, asize, txg),
                    false => group.allocate(usage, asize, txg, copy, &here),
                };
                let at = match answer {
                    Answer::At(at) => at,
                    Answer::None => continue,
                    Answer::Load(place) => {
                        return Err(Denied::NotLoaded(MetaslabId { vdev: VdevId(vdev), place }));
                    }
                };
                let (aliquot, totals) = (group.aliquot_bytes, group.totals(usage));
                let share = if members > 1 { share(aliquot, totals, self.totals(class, usage)) } else { 0 };
                self.rotors[slot].took(place, asize, share);
                return Ok(Dva {
                    vdev: VdevId(vdev),
                    offset: ByteOffset(at),
                    asize: Asize(asize),
                    gang: false,
                });
            }
        }
        Err(Denied::NoSpace)
    }

    fn undo(&mut self, dvas: &[Dva], txg: Txg) {
        for dva in dvas {
            if let Ok(group) = self.group(dva.vdev) {
                let from = dva.offset.get();
                group.undo(from, from + dva.asize.get(), txg);
            }
        }
    }

    /// Unloads metaslabs that were not used for long.
    fn unload_idle(&mut self, txg: Txg) {
        let groups = self.groups.iter().enumerate();
        let idle = groups.filter_map(|(vdev, group)| Some((vdev, group.as_ref()?)));
        let mut idle: Vec<(Txg, usize, usize, usize)> = idle
            .flat_map(|(vdev, group)| group.idle().map(move |(used, place, runs)| (used, vdev, place, runs)))
            .collect();
        idle.sort_unstable();
        let mut runs: usize = idle.iter().map(|(.., runs)| runs).sum();
        for (used_in, vdev, place, its_runs) in idle {
            let patience = if runs > IDLE_RUNS {
                UNLOAD_EARLY_AFTER_TXGS
            } else {
                tunables::METASLAB_UNLOAD_DELAY.get()
            };
            if used_in.get() + patience > txg.get() {
                break;
            }
            if let Some(Some(group)) = self.groups.get_mut(vdev) {
                group.unload(place);
            }
            runs -= its_runs;
        }
    }
}

impl Allocator {
    pub(crate) fn of(store: &Arc<Store>, state: State) -> Arc<Self> {
        let state = Mutex::new(state);
        Arc::new(Self {
            store: Arc::clone(store),
            source: OnceLock::new(),
            maps: AsyncMutex::new(()),
            checkpoint: AtomicU64::new(0),
            state,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// The vdevs whose space this is.
    pub(crate) fn vdevs(&self) -> &VdevTree {
        self.store.vdevs()
    }

    /// For a pool that is being created: no vdev yet.
    pub fn empty(store: &Arc<Store>, deflate: bool) -> Arc<Self> {
        Self::of(store, State::new(deflate))
    }

    /// Sets the ZAP of a top-level vdev that had none.
    pub(crate) fn set_top_zap(&self, top: usize, zap: ObjectId) -> Result<()> {
        let id = u32::try_from(top).map_err(|_| Error::corrupt("vdev tree", "too many vdevs"))?;
        self.state().group(VdevId(id))?.top_zap = Some(zap);
        Ok(())
    }

    /// The size of a top-level vdev's metaslabs as a power of two; none if it has no metaslabs.
    pub(crate) fn metaslab_shift(&self, vdev: VdevId) -> Option<u8> {
        self.state().group(vdev).ok().map(|group| group.ms_shift)
    }

    /// Counts space without its parity from now on, if the ratio is the same on all present vdevs. Returns
    /// whether it is.
    pub(crate) fn deflate_if_equal(&self) -> bool {
        let mut state = self.state();
        let is_equal = |group: &Group| group.deflate_ratio == SECTOR_BYTES;
        state.deflate |= state.groups.iter().flatten().all(is_equal);
        state.deflate
    }

    /// Reads the space map of a metaslab, so that its space can be handed out. A metaslab that cannot be read
    /// is not read again.
    pub async fn load_metaslab(&self, id: MetaslabId) -> Result<()> {
        let _turn = self.maps.lock().await;
        let (bounds, on_disk) = {
            let mut state = self.state();
            match state.group(id.vdev)?.metaslabs().get(id.place) {
                Some(metaslab) if metaslab.is_unloaded() => (metaslab.bounds(), metaslab.on_disk),
                _ => return Ok(()),
            }
        };
        let read = match (on_disk.object, self.source.get()) {
            (None, _) => Ok(RangeSet::default()),
            (Some(map), Some(source)) => source.read(map, bounds).await,
            (Some(map), None) => Err(Error::corrupt(format!("space map {map}"), "nobody knows where it is")),
        };
        let (read, error) = match read {
            Ok(allocated) => (Some(allocated), None),
            Err(error) => (None, Some(error)),
        };
        let loaded = {
            let mut state = self.state();
            let txg = state.pass.0;
            state.group(id.vdev)?.load(id.place, read, txg)
        };
        if let Some(error) = error.or(loaded.err()) {
            let (vdev, place) = (id.vdev, id.place);
            tracing::error!(%vdev, place, %error, "the free space of a metaslab is not used");
        }
        Ok(())
    }

    /// Allocates `copies` copies of a block of `psize` bytes, in `class` or, when that has no room, in the
    /// classes that OpenZFS falls back to. Copies lie on different vdevs if there are several, and far apart
    /// otherwise. Nothing stays allocated on an error.
    pub fn try_allocate(
        &self,
        class: Class,
        psize: u64,
        copies: usize,
        txg: Txg,
    ) -> Result<Vec<Dva>, Denied> {
        let asize_on = |vdev: u32| {
            let top = self.store.vdevs().top(vdev)?;
            top.status().is_readable().then(|| top.psize_to_asize(psize, txg.get())).flatten()
        };
        self.state().allocate(class, copies, txg, &asize_on)
    }

    /// Like [`Allocator::try_allocate`], and loads metaslabs as necessary. `None`: there is no space.
    pub async fn allocate(
        &self,
        class: Class,
        psize: u64,
        copies: usize,
        txg: Txg,
    ) -> Result<Option<Vec<Dva>>> {
        loop {
            match self.try_allocate(class, psize, copies, txg) {
                Ok(dvas) => return Ok(Some(dvas)),
                Err(Denied::NoSpace) => return Ok(None),
                Err(Denied::NotLoaded(id)) => self.load_metaslab(id).await?,
            }
        }
    }

    /// Whether small blocks of data may go to the special class: it exists, and has more free space than the
    /// reserve for metadata.
    pub(crate) fn takes_small_blocks(&self) -> bool {
        let special = self.state().totals(Class::Special, Use::Class);
        let limit = u128::from(special.size) * (100 - METADATA_RESERVE_PERCENT) / 100;
        u128::from(special.allocated + special.waiting) < limit
    }

    /// Undoes an allocation that was just made in `txg`; nothing was written there.
    pub fn undo(&self, dvas: &[Dva], txg: Txg) {
        self.state().undo(dvas, txg);
    }

    /// The bytes that an address occupies itself; of a gang, its header.
    fn range_of(&self, dva: &Dva, txg: Txg) -> (u64, u64) {
        let size = match self.store.vdevs().top(dva.vdev.get()) {
            Some(top) if dva.gang => {
                top.psize_to_asize(GANG_HEADER_SIZE as u64, txg.get()).unwrap_or(dva.asize.get())
            }
            _ => dva.asize.get(),
        };
        (dva.offset.get(), dva.offset.get().saturating_add(size))
    }

    /// Frees one address in `txg`; of a gang, its header. It is reused when no state that could be opened
    /// refers to it any more. An error when it is not allocated: then the free space is not known correctly,
    /// and no group must be committed any more. An address that is to be `kept` for the checkpoint stays
    /// allocated ([`Allocator::keeps`]).
    pub fn free(&self, dva: &Dva, txg: Txg, kept: bool) -> Result<()> {
        let (from, to) = self.range_of(dva, txg);
        let vdevs = self.store.vdevs();
        let is_removed = vdevs.top(dva.vdev.get()).is_some_and(|top| matches!(top.kind, Kind::Indirect(_)));
        if !is_removed && !kept {
            return self.state().group(dva.vdev)?.free(from, to, txg);
        }
        let places = vdevs.places(dva.vdev, from, to)?;
        let mut state = self.state();
        for Place { vdev, from, to, is_removed } in places {
            match is_removed {
                false if kept => state.keep(vdev, from, to, txg)?,
                false => state.group(vdev)?.free(from, to, txg)?,
                // Without a map, obsolete ranges are not noted.
                true => state.vdev_maps.get_mut(&vdev).map_or(Ok(()), |map| map.add(from, to, txg))?,
            }
        }
        Ok(())
    }

    /// Marks an address of an intent log that was found at import as allocated.
    pub async fn claim(&self, dva: &Dva, txg: Txg) -> Result<()> {
        let (from, to) = self.range_of(dva, txg);
        let unloaded = self.state().group(dva.vdev)?.unloaded_at(from)?;
        if let Some(place) = unloaded {
            self.load_metaslab(MetaslabId { vdev: dva.vdev, place }).await?;
        }
        self.state().group(dva.vdev)?.claim(from, to, txg)
    }

    /// The group is committed. Its freed space becomes reusable two groups later, and not while older views
    /// of the pool are held: `oldest_view` is the oldest group that a reader still uses.
    pub fn sync_done(&self, txg: Txg, oldest_view: Txg) {
        let mut state = self.state();
        let by_rule = reusable_after(txg, oldest_view);
        let at_once = txg.min(oldest_view);
        let scarce = |class: Class| {
            let totals = state.totals(class, Use::Class);
            totals.free() <= (totals.size >> 5).clamp((totals.size >> 1).min(128 << 20), 128 << 30)
        };
        let is_scarce =
            [Class::Normal, Class::Special, Class::Dedup, Class::Log].map(|class| (class, scarce(class)));
        for group in state.groups.iter_mut().flatten() {
            let scarce = is_scarce.iter().any(|&(class, scarce)| class == group.class && scarce);
            group.sync_done(txg, if scarce { at_once } else { by_rule });
        }
        state.unload_idle(txg);
    }

    /// Whether more space is freed but not reusable yet than is free.
    pub fn waits_for_much(&self) -> bool {
        let state = self.state();
        [Class::Normal, Class::Special, Class::Dedup].into_iter().any(|class| {
            let totals = state.totals(class, Use::Class);
            totals.waiting > totals.free()
        })
    }

    /// Whether some space for data is freed but not reusable yet.
    pub fn has_deferred(&self) -> bool {
        self.state().totals(Class::Normal, Use::Class).waiting > 0
    }

    /// The number of metaslabs whose free space is in memory, and the number of all metaslabs.
    pub fn loaded_metaslabs(&self) -> (usize, usize) {
        let state = self.state();
        let metaslabs = || state.groups.iter().flatten().flat_map(Group::metaslabs);
        (metaslabs().filter(|metaslab| metaslab.is_loaded()).count(), metaslabs().count())
    }

    /// The space of one class, without the space on normal vdevs that is set apart for the intent log: see
    /// [`Allocator::embedded_log_space`].
    pub fn space(&self, class: Class) -> ClassSpace {
        self.space_of(|group| (group.class == class).then(|| group.totals(Use::Class)))
    }

    /// Free raw bytes that only the intent log may take: on log vdevs, and set apart on normal ones.
    pub fn free_for_log(&self) -> u64 {
        let state = self.state();
        state.totals(Class::Log, Use::Class).free() + state.totals(Class::Normal, Use::EmbeddedLog).free()
    }

    /// The space on normal vdevs that is set apart for the intent log.
    pub fn embedded_log_space(&self) -> ClassSpace {
        self.space_of(|group| Some(group.totals(Use::EmbeddedLog)))
    }

    fn space_of(&self, totals: impl Fn(&Group) -> Option<Totals>) -> ClassSpace {
        let mut space = ClassSpace::default();
        let state = self.state();
        for group in state.groups.iter().flatten() {
            let Some(totals) = totals(group) else { continue };
            let used = totals.allocated + totals.waiting;
            space.size_bytes += totals.size;
            space.allocated_bytes += used;
            space.deferred_bytes += totals.waiting;
            space.deflated_size_bytes += state.deflated(group, totals.size);
            space.deflated_allocated_bytes += state.deflated(group, used);
        }
        space
    }

    /// The deflated bytes that all datasets together may occupy, without the savings of dedup and clones: the
    /// normal class without the space set apart for the log, less the slop that is reserved so that deleting
    /// always works, plus the allocated bytes of special and dedup vdevs. A checkpoint, or blocks whose
    /// freeing is deferred, reduce it further ([`crate::dsl::pool_space::PoolSpace::adjusted_bytes`]).
    pub fn usable_bytes(&self) -> u64 {
        let (real, slop) = self.real_and_slop_bytes();
        let state = self.state();
        let special = state.groups.iter().flatten();
        let special = special.filter(|group| matches!(group.class, Class::Special | Class::Dedup));
        let special: u64 =
            special.map(|group| state.deflated(group, group.totals(Use::Class).allocated)).sum();
        real.saturating_sub(slop).saturating_add(special)
    }

    /// Deflated bytes of the normal class that are reserved so that deleting always works.
    pub fn slop_bytes(&self) -> u64 {
        self.real_and_slop_bytes().1
    }

    /// Deflated bytes of the normal class for data, and how many of them are reserved.
    fn real_and_slop_bytes(&self) -> (u64, u64) {
        let (mut real, mut embedded) = (0u64, 0u64);
        let state = self.state();
        for group in state.groups.iter().flatten().filter(|group| group.class == Class::Normal) {
            if group.allocating {
                real = real.saturating_add(state.deflated(group, group.totals(Use::Class).size));
            }
            embedded = embedded.saturating_add(state.deflated(group, group.totals(Use::EmbeddedLog).size));
        }
        (real, slop_bytes(real, embedded).min(real))
    }

    /// Deflated bytes that are free for data now: on vdevs of the normal class, without the space set apart
    /// for the log.
    pub fn free_for_data(&self) -> u64 {
        let state = self.state();
        let groups = state.groups.iter().flatten();
        let groups = groups.filter(|group| group.class == Class::Normal && group.allocating);
        groups.map(|group| state.deflated(group, group.totals(Use::Class).free())).sum()
    }

    /// Deflated bytes of that space that may be taken, in blocks of any size, before a block of `psize` bytes
    /// can lack a run: for each of some sizes.
    pub(crate) fn free_in_runs_of<const N: usize>(&self, psizes: [u64; N], txg: Txg) -> [u64; N] {
        let state = self.state();
        let mut free = [0; N];
        let groups = state.groups.iter().flatten();
        for group in groups.filter(|group| group.class == Class::Normal && group.allocating) {
            let top = self.store.vdevs().top(group.vdev);
            let asize = |psize: u64| top.and_then(|top| top.psize_to_asize(psize, txg.get()));
            let in_runs = group.free_in_runs_of(psizes.map(|psize| asize(psize).unwrap_or(u64::MAX)));
            free.iter_mut().zip(in_runs).for_each(|(sum, bytes)| *sum += state.deflated(group, bytes));
        }
        free
    }

    /// The most deflated bytes that a copy of a block of `psize` bytes takes on any vdev for data, including
    /// sectors that are not full, and the parity and padding of small blocks.
    pub fn most_for(&self, psize: u64, txg: Txg) -> u64 {
        let state = self.state();
        let groups = state.groups.iter().flatten();
        let groups = groups.filter(|group| group.class == Class::Normal && group.allocating);
        let takes = groups.filter_map(|group| {
            let asize = self.store.vdevs().top(group.vdev)?.psize_to_asize(psize, txg.get())?;
            Some(state.deflated(group, asize))
        });
        takes.max().unwrap_or(psize)
    }

    /// The deflated bytes of an address, as quotas and listings count them.
    pub fn deflated(&self, dva: &Dva) -> u64 {
        let (state, asize) = (self.state(), dva.asize.get());
        let group = state.groups.get(dva.vdev.get() as usize).and_then(Option::as_ref);
        group.map_or(asize, |group| state.deflated(group, asize))
    }

    /// Makes the next sync write all contents of log space maps to the metaslabs' own maps: before a pool is
    /// exported, so that it opens quickly.
    pub fn flush_all(&self) {
        self.state().flush_all = true;
    }

    /// Uses of features that began (or ended) since the last call: the sync counts them in the MOS before the
    /// group is committed.
    pub fn take_feature_changes(&self) -> Vec<(Feature, i64)> {
        std::mem::take(&mut self.state().feature_changes)
    }
}

#[cfg(test)]
mod tests;
