//! An object set that is open for writing: open objects, dirty objects, used numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use codec::crypt::DatasetKey;
use device::IgnorePoison;
use hashbrown::HashMap;
use ondisk::blkptr::{Blkptr, CryptParts};
use ondisk::dnode::{DNODES_PER_BLOCK, Dnode, MAX_OBJECT};
use ondisk::objset::{
    FLAG_PROJECT_QUOTA_COMPLETE, FLAG_USER_OBJECT_ACCOUNTING_COMPLETE, OBJSET_SIZE_V1, ObjsetType,
};
use ondisk::zil::ZilHeader;
use ondisk::{ByteOrder, ObjectId, ObjsetId, Txg};

use super::accounting::Completing;
use super::dnodes::{self, Slots};
use super::layer::Core;
use super::object::LiveObject;
use super::references::{Holding, References};
use super::sets::SetChanges;
use super::{NewObject, Policy};
use crate::cache::PrimaryCache;
use crate::dmu::Objset;
use crate::dmu::tree::{Found, Tree};
use crate::error::{Error, Result};
use crate::stats::DatasetStats;
use crate::txg::{GUESSED_BYTES_PER_SECOND, Tx, Txgs};
use crate::zio::{Seal, is_heavy};
use crate::{Bookmark, Pool};

/// Linux's number for an I/O error.
const EIO: i32 = 5;

/// The number of clean objects that are kept open before unused ones are dropped.
const MIN_OPEN: usize = 1024;
/// After this many freed objects, the search for free numbers starts from the beginning again.
pub(super) const RESCAN_AFTER_FREED: u64 = 4096;

/// An object set that is open for writing: its committed state and the changes of groups that are not
/// committed yet.
pub struct LiveObjset {
    pool: Arc<Pool>,
    id: ObjsetId,
    kind: ObjsetType,
    primary: PrimaryCache,
    stats: Arc<DatasetStats>,
    policies: Mutex<Policies>,
    progress: Mutex<Option<Arc<Txgs>>>,
    lists_births: AtomicBool,
    can_clone: AtomicBool,
    references: OnceLock<Arc<dyn References>>,
    can_count_projects: AtomicBool,
    lacks_counts: AtomicBool,
    was_used: AtomicBool,
    gone: AtomicBool,
    /// It was opened without its key.
    opened_locked: bool,
    /// A raw stream fills it.
    raw: AtomicBool,
    state: Mutex<State>,
}

/// How blocks are written.
struct Policies {
    now: Arc<Policy>,
    /// The policy from this group on.
    later: Option<(Txg, Arc<Policy>)>,
}

pub(super) struct State {
    /// The state as of the last sync. Each sync sets another handle.
    pub(super) committed: Arc<Objset>,
    /// Open objects: all dirty ones, and others as long as they are used or recent.
    pub(super) cores: HashMap<u64, Arc<Core>>,
    sweep_at: usize,
    /// Objects that are not in the committed dnodes yet: slots, and the group.
    pub(super) pending: BTreeMap<u64, (u8, Txg)>,
    /// Freed objects that are still in the committed dnodes.
    pub(super) freed: BTreeSet<u64>,
    pub(super) freed_since_rescan: u64,
    pub(super) dirty: BTreeMap<Txg, Dirty>,
    pub(super) zil_header: ZilHeader,
    /// Where the search for the next number starts.
    pub(super) cursor: u64,
    /// Counts that are being completed.
    pub(super) completing: Option<Completing>,
}

/// The changes of one group.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) objects: BTreeMap<u64, Arc<Core>>,
    pub(super) zil_header: Option<ZilHeader>,
    pub(super) sets: SetChanges,
    /// All files are counted.
    pub(super) completes_counts: bool,
    /// With what senders of raw streams protected blocks of dnodes ([`super::raw`]).
    pub(super) raw_ranges: BTreeMap<u64, CryptParts>,
}

impl Dirty {
    /// Whether nothing but the header of the intent log changes.
    fn is_of_log_alone(&self) -> bool {
        self.objects.is_empty() && !self.completes_counts && self.zil_header.is_some()
    }
}

impl LiveObjset {
    /// Opens the object set whose block is at `root`.
    pub async fn open(pool: &Arc<Pool>, id: ObjsetId, root: &Blkptr, policy: Policy) -> Result<Arc<Self>> {
        let committed = Objset::open(pool, id, root).await?;
        let zil_header = ZilHeader::parse(&committed.phys().zil_header, ByteOrder::Little)
            .map_err(Error::format(format!("objset {id}, header of the intent log")))?;
        Ok(Self::new(committed, policy, zil_header, BTreeMap::new()))
    }

    /// A new, empty object set, which is written with the group of `tx`.
    pub fn create(pool: &Arc<Pool>, id: ObjsetId, kind: ObjsetType, policy: Policy, tx: &Tx) -> Arc<Self> {
        let phys = dnodes::new_objset(kind);
        let committed = Objset::of(pool, id, (Blkptr::HOLE, false), phys, PrimaryCache::default());
        Self::new(committed, policy, ZilHeader::default(), BTreeMap::from([(tx.txg(), Dirty::default())]))
    }

    /// Makes a filesystem that was just created, and has no file yet, count files (`objects`) and projects
    /// too.
    pub(crate) fn count_also(&self, objects: bool, projects: bool) {
        let mut state = self.lock();
        let mut phys = state.committed.phys().clone();
        phys.flags |= if objects { FLAG_USER_OBJECT_ACCOUNTING_COMPLETE } else { 0 };
        phys.flags |= if projects { FLAG_PROJECT_QUOTA_COMPLETE } else { 0 };
        state.committed =
            Objset::of(&self.pool, self.id, (*state.committed.root(), false), phys, self.primary.clone());
    }

    /// Makes an object set that was just created count nothing by users: for a pool that is too old.
    pub(crate) fn count_nothing(&self) {
        let mut state = self.lock();
        let mut phys = state.committed.phys().clone();
        (phys.flags, phys.size) = (0, OBJSET_SIZE_V1);
        state.committed =
            Objset::of(&self.pool, self.id, (*state.committed.root(), false), phys, self.primary.clone());
    }

    fn new(
        committed: Arc<Objset>,
        policy: Policy,
        zil_header: ZilHeader,
        dirty: BTreeMap<Txg, Dirty>,
    ) -> Arc<Self> {
        let opened_locked =
            committed.root().uses_crypt() && !committed.pool().keystore().is_loaded(committed.id());
        Arc::new(Self {
            opened_locked,
            raw: AtomicBool::new(false),
            pool: Arc::clone(committed.pool()),
            id: committed.id(),
            kind: committed.objset_type(),
            primary: committed.primary().clone(),
            stats: committed.pool().datasets.of(committed.id()),
            policies: Mutex::new(Policies { now: Arc::new(policy), later: None }),
            progress: Mutex::new(None),
            lists_births: AtomicBool::new(false),
            can_clone: AtomicBool::new(false),
            references: OnceLock::new(),
            can_count_projects: AtomicBool::new(false),
            lacks_counts: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            state: Mutex::new(State {
                committed,
                cores: HashMap::new(),
                sweep_at: MIN_OPEN,
                pending: BTreeMap::new(),
                freed: BTreeSet::new(),
                freed_since_rescan: 0,
                dirty,
                zil_header,
                cursor: 1,
                completing: None,
            }),
        })
    }

    /// Taken after the lock of an object, never before it.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// The counters of the dataset.
    pub fn stats(&self) -> &DatasetStats {
        &self.stats
    }

    /// Object number of the dataset in the MOS; 0 is the MOS.
    pub fn id(&self) -> ObjsetId {
        self.id
    }

    /// Its type.
    pub fn kind(&self) -> ObjsetType {
        self.kind
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The policy for blocks that are written from now on.
    pub fn policy(&self) -> Arc<Policy> {
        let policies = self.policies();
        let (now, later) = (&policies.now, &policies.later);
        Arc::clone(later.as_ref().map_or(now, |(_, later)| later))
    }

    /// The policy for the blocks of a group.
    pub(super) fn policy_of(&self, txg: Txg) -> Arc<Policy> {
        let policies = self.policies();
        let later = policies.later.as_ref().filter(|(since, _)| *since <= txg);
        Arc::clone(later.map_or(&policies.now, |(_, later)| later))
    }

    /// Sets the policy, from the next block on.
    pub fn set_policy(&self, policy: Policy) {
        self.set_policy_since(Txg::NONE, policy);
    }

    /// Sets the policy for blocks from group `since` on, for which room was requested with this policy.
    pub(crate) fn set_policy_since(&self, since: Txg, policy: Policy) {
        let before = self.policy();
        let policy = Arc::new(policy);
        {
            let mut policies = self.policies();
            match since {
                Txg::NONE => *policies = Policies { now: Arc::clone(&policy), later: None },
                since => {
                    if let Some((_, later)) = policies.later.replace((since, Arc::clone(&policy))) {
                        policies.now = later;
                    }
                }
            }
        }
        if policy.is_encoded_otherwise(&before) {
            self.expect_pace();
        }
    }

    fn policies(&self) -> MutexGuard<'_, Policies> {
        self.policies.lock().ignore_poison()
    }

    /// The measured pace of encoding is no longer valid, or not known yet.
    fn expect_pace(&self) {
        if let Some(txgs) = self.progress() {
            txgs.set_pace(self.id, is_heavy(self.policy().compress).then_some(GUESSED_BYTES_PER_SECOND));
        }
    }

    /// Which of its blocks the ARC caches.
    pub fn primary(&self) -> &PrimaryCache {
        &self.primary
    }

    /// The state as of the last sync.
    pub(in crate::dmu) fn committed(&self) -> Arc<Objset> {
        Arc::clone(&self.lock().committed)
    }

    /// Its dataset was destroyed or rolled back: no sync writes this object set any more, and its blocks are
    /// freed. All users of it get errors from now on, for reads, changes and commits.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// See [`LiveObjset::set_gone`].
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether a raw stream fills it: nothing of it is read or written with a key ([`super::raw`]).
    pub(crate) fn is_raw(&self) -> bool {
        self.raw.load(Ordering::Acquire)
    }

    pub(super) fn set_raw(&self) {
        self.raw.store(true, Ordering::Release);
    }

    /// Whether its blocks are encrypted. A new object set is if its key is registered before its first group
    /// is written.
    pub fn is_encrypted(&self) -> bool {
        let root = *self.committed().root();
        self.is_raw() || root.uses_crypt() || (root.is_hole() && self.pool.keystore().is_loaded(self.id))
    }

    /// The key of an encrypted object set; none where it is not encrypted.
    ///
    /// # Errors
    /// [`Error::KeyNotLoaded`]
    pub(crate) fn key(&self) -> Result<Option<Arc<DatasetKey>>> {
        if !self.is_encrypted() {
            return Ok(None);
        }
        let key = self.pool.keystore().get(self.id);
        key.map(Some).ok_or(Error::KeyNotLoaded { at: Bookmark::objset_root(self.id.get()) })
    }

    /// Whether it was opened without its key, so that its block was not authenticated, and the key is there
    /// now: it must be opened anew.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        self.opened_locked && !self.is_raw() && self.pool.keystore().is_loaded(self.id)
    }

    /// Whether blocks of another object set may be blocks of this one too: they are not encrypted, or with
    /// the same key.
    pub fn may_share_with(&self, other: &Self) -> bool {
        let guid = |objset: &Self| objset.key().map(|key| key.map(|key| key.guid()));
        self.id == other.id || matches!((guid(self), guid(other)), (Ok(one), Ok(other)) if one == other)
    }

    /// How the blocks of a group are protected. Without the key, nothing but the header of the intent log can
    /// be written.
    pub(super) fn seal(&self, committed: &Objset, dirty: &Dirty) -> Result<Option<Seal>> {
        if self.is_raw() {
            return Ok(Some(Seal::kept()));
        }
        let at = Bookmark::objset_root(self.id.get());
        // What was not authenticated must not get MACs of the key.
        let key = if self.opened_locked { Err(Error::KeyNotLoaded { at }) } else { self.key() };
        match key {
            Err(Error::KeyNotLoaded { .. }) if committed.root().uses_crypt() && dirty.is_of_log_alone() => {
                Ok(Some(Seal::kept()))
            }
            key => Ok(key?.map(Seal::of)),
        }
    }

    /// Fails once the dataset is gone.
    pub fn check(&self) -> Result<()> {
        match self.is_gone() {
            true => Err(Error::Os {
                what: format!("objset {}: its dataset was destroyed or rolled back", self.id),
                errno: EIO,
            }),
            false => Ok(()),
        }
    }

    /// Opens an object.
    pub async fn object(self: &Arc<Self>, id: ObjectId) -> Result<Arc<LiveObject>> {
        self.check()?;
        loop {
            let committed = {
                let state = self.lock();
                if state.freed.contains(&id.0) {
                    return Err(self.no_object(id));
                }
                if let Some(core) = state.cores.get(&id.0) {
                    return Ok(LiveObject::new(Arc::clone(self), Arc::clone(core)));
                }
                Arc::clone(&state.committed)
            };
            let dnode = committed.dnode(id).await;
            let mut state = self.lock();
            if !Arc::ptr_eq(&committed, &state.committed) || state.cores.contains_key(&id.0) {
                // The object was created, freed or written meanwhile.
                continue;
            }
            let dnode = dnode?;
            if dnode.order == ByteOrder::Big {
                let what = "was written by a big-endian machine and can only be read";
                return Err(Error::Unsupported(format!("objset {}, object {id} {what}", self.id)));
            }
            let core = self.core(id, dnode);
            state.open(&core);
            return Ok(LiveObject::new(Arc::clone(self), core));
        }
    }

    /// Creates an object with a free number.
    pub async fn allocate(self: &Arc<Self>, tx: &Tx, new: NewObject) -> Result<Arc<LiveObject>> {
        loop {
            let from = self.lock().cursor;
            if from >= MAX_OBJECT {
                return Err(Error::Unsupported(format!("objset {}: no object numbers left", self.id)));
            }
            let (block_id, slot) = place(from);
            let (committed, mut slots) = self.committed_slots(block_id).await?;
            let mut state = self.lock();
            if !Arc::ptr_eq(&committed, &state.committed) || state.cursor != from {
                continue;
            }
            state.take_pending(block_id, &mut slots);
            match slots.find(slot, usize::from(new.slots)) {
                Some(first) => {
                    let id = block_id * DNODES_PER_BLOCK + first as u64;
                    state.cursor = id + u64::from(new.slots);
                    return self.create_at(state, tx, ObjectId(id), &new);
                }
                None => state.cursor = (block_id + 1) * DNODES_PER_BLOCK,
            }
        }
    }

    /// Creates an object with a given free number.
    pub async fn claim(self: &Arc<Self>, tx: &Tx, id: ObjectId, new: NewObject) -> Result<Arc<LiveObject>> {
        let (block_id, slot) = place(id.0);
        loop {
            let (committed, mut slots) = self.committed_slots(block_id).await?;
            let state = self.lock();
            if !Arc::ptr_eq(&committed, &state.committed) {
                continue;
            }
            state.take_pending(block_id, &mut slots);
            if id == ObjectId::META_DNODE
                || id.0 >= MAX_OBJECT
                || !slots.is_free(slot, usize::from(new.slots))
            {
                return Err(Error::Busy(format!("objset {}: object {id} is taken", self.id)));
            }
            return self.create_at(state, tx, id, &new);
        }
    }

    /// Creates an object under a number that is known to be free.
    fn create_at(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        tx: &Tx,
        id: ObjectId,
        new: &NewObject,
    ) -> Result<Arc<LiveObject>> {
        let dnode = dnodes::new_dnode(new)?;
        let core = self.core(id, dnode);
        state.open(&core);
        state.pending.insert(id.0, (new.slots, tx.txg()));
        drop(state);
        self.note_use();
        let object = LiveObject::new(Arc::clone(self), core);
        object.touch(tx);
        Ok(object)
    }

    /// The state of an object that is opened.
    fn core(&self, id: ObjectId, dnode: Dnode) -> Arc<Core> {
        let last_block = self.is_raw().then_some(dnode.max_block_id.0);
        let tree = Tree::new(self.id, id, dnode, self.is_raw(), self.primary.clone());
        Core::new(id, Arc::new(tree), last_block)
    }

    /// The slots of a dnode block, as of the last sync.
    async fn committed_slots(&self, block_id: u64) -> Result<(Arc<Objset>, Slots)> {
        let committed = self.committed();
        let slots = match committed.meta().find(&self.pool, 0, block_id).await? {
            Found::Hole { .. } => Slots::default(),
            // Each slot has a dnode of its own.
            Found::Data(pointer) if pointer.fill() >= DNODES_PER_BLOCK => Slots::FULL,
            Found::Data(pointer) => {
                let at = committed.meta().bookmark(0, block_id);
                Slots::of(&committed.meta().read(&self.pool, &pointer, &at).await?)
            }
        };
        Ok((committed, slots))
    }

    /// Frees an object and all its blocks. Its number can be reused when the group is committed.
    pub async fn free(self: &Arc<Self>, tx: &Tx, id: ObjectId) -> Result<()> {
        let object = self.object(id).await?;
        if !object.free(tx) {
            return Err(self.no_object(id));
        }
        self.lock().freed.insert(id.0);
        Ok(())
    }

    /// The first object whose number is at least `from`, including changes.
    pub async fn next_object(&self, from: ObjectId) -> Result<Option<ObjectId>> {
        let mut from = from;
        loop {
            let committed = self.committed();
            let next = committed.next_object(from).await?.map(|id| id.0);
            let state = self.lock();
            if !Arc::ptr_eq(&committed, &state.committed) {
                continue;
            }
            let created = state.pending.range(from.0..).next().map(|(id, _)| *id);
            let Some(next) = next.into_iter().chain(created).min() else { return Ok(None) };
            if !state.freed.contains(&next) {
                return Ok(Some(ObjectId(next)));
            }
            from = ObjectId(next + 1);
        }
    }

    /// The object set for readers: objects opened from it show all changes up to now, of all groups.
    pub fn view(self: &Arc<Self>) -> Arc<Objset> {
        self.committed().live(self)
    }

    /// The number of used objects, as of the last sync.
    pub fn used_objects(&self) -> u64 {
        self.committed().root().fill()
    }

    /// Whether it counts the space of users.
    pub fn counts_users(&self) -> bool {
        self.committed().phys().is_user_accounting_complete()
    }

    /// Whether it counts the space of projects.
    pub fn counts_projects(&self) -> bool {
        self.committed().phys().is_project_quota_complete()
    }

    /// Whether it counts files, and not only their space.
    pub fn counts_files(&self) -> bool {
        self.committed().phys().is_user_object_accounting_complete()
    }

    /// Whether the group `txg` changed anything.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.lock().dirty.contains_key(&txg)
    }

    /// Whether there are no uncommitted changes.
    pub fn is_clean(&self) -> bool {
        self.lock().dirty.is_empty()
    }

    /// Notes that an object has a layer for the group of `tx` now. Called with the lock of the object.
    pub(super) fn note_dirty(&self, tx: &Tx, core: &Arc<Core>) {
        self.lock().dirty.entry(tx.txg()).or_default().objects.insert(core.id.0, Arc::clone(core));
    }

    /// The header of its intent log.
    pub fn zil_header(&self) -> ZilHeader {
        self.lock().zil_header
    }

    /// Sets the header of its intent log, from the group of `tx` on.
    pub fn set_zil_header(&self, tx: &Tx, header: ZilHeader) {
        tx.note_changed();
        let mut state = self.lock();
        state.zil_header = header;
        state.dirty.entry(tx.txg()).or_default().zil_header = Some(header);
    }

    /// Reports written bytes of data to `txgs`, as they are written.
    pub(crate) fn set_progress(&self, txgs: &Arc<Txgs>) {
        *self.progress.lock().ignore_poison() = Some(Arc::clone(txgs));
        self.expect_pace();
    }

    /// Sets whether syncs from now on list the blocks that they wrote, and not only their space.
    pub fn list_births(&self, list: bool) {
        self.lists_births.store(list, Ordering::Relaxed);
    }

    /// Whether blocks may become references to stored blocks: the writer of the object set counts references.
    pub fn can_clone(&self) -> bool {
        self.can_clone.load(Ordering::Relaxed)
    }

    /// See [`LiveObjset::can_clone`].
    pub fn set_can_clone(&self, can: bool) {
        self.can_clone.store(can, Ordering::Relaxed);
    }

    /// Sets who knows how deduplicated blocks are counted. Without, no block is refused.
    pub(crate) fn set_references(&self, references: &Arc<dyn References>) {
        self.references.get_or_init(|| Arc::clone(references));
    }

    /// Holds stored blocks, so that blocks of this object set may become references to them.
    pub(super) async fn hold(&self, blocks: impl Iterator<Item = Blkptr>) -> Result<Holding> {
        Holding::of(self.references.get().map(|references| &**references), blocks).await
    }

    /// Whether it counts the space of projects, or will as soon as it is used.
    pub fn can_count_projects(&self) -> bool {
        self.counts_projects() || self.can_count_projects.load(Ordering::Relaxed)
    }

    /// See [`LiveObjset::can_count_projects`].
    pub(crate) fn set_can_count_projects(&self, can: bool) {
        self.can_count_projects.store(can, Ordering::Relaxed);
    }

    /// Sets whether there are counts that could be complete and are not.
    pub(crate) fn set_lacks_counts(&self, lacks: bool) {
        self.lacks_counts.store(lacks, Ordering::Relaxed);
    }

    /// Notes a use of the object set that concerns owners: its incomplete counts should be completed soon.
    pub(crate) fn note_use(&self) {
        let is_news = !self.was_used.swap(true, Ordering::Relaxed);
        if is_news
            && self.lacks_counts.load(Ordering::Relaxed)
            && let Some(txgs) = self.progress()
        {
            txgs.kick();
        }
    }

    /// Whether [`LiveObjset::note_use`] was called since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }

    pub(super) fn lists_births(&self) -> bool {
        self.lists_births.load(Ordering::Relaxed)
    }

    pub(super) fn progress(&self) -> Option<Arc<Txgs>> {
        self.progress.lock().ignore_poison().clone()
    }

    fn no_object(&self, id: ObjectId) -> Error {
        Error::NotFound(format!("objset {}, object {id}", self.id))
    }
}

impl State {
    /// Adds an open object, and drops unused objects when there are many.
    fn open(&mut self, core: &Arc<Core>) {
        if self.cores.len() >= self.sweep_at {
            // No caller can get a handle meanwhile: that needs this lock. `dirty` holds the dirty objects.
            self.cores.retain(|_, core| Arc::strong_count(core) > 1);
            self.sweep_at = MIN_OPEN.max(self.cores.len().saturating_mul(2));
        }
        self.cores.insert(core.id.0, Arc::clone(core));
    }

    /// Marks the slots of objects that are not in the committed dnode block yet.
    fn take_pending(&self, block_id: u64, slots: &mut Slots) {
        let first = block_id.saturating_mul(DNODES_PER_BLOCK);
        for (id, (count, _)) in self.pending.range(first..first.saturating_add(DNODES_PER_BLOCK)) {
            slots.take((id - first) as usize, usize::from(*count));
        }
        if block_id == 0 {
            // Slot 0 belongs to the meta-dnode.
            slots.take(0, 1);
        }
    }
}

/// Block of the meta-dnode, and slot in it.
fn place(id: u64) -> (u64, usize) {
    (id / DNODES_PER_BLOCK, (id % DNODES_PER_BLOCK) as usize)
}

impl fmt::Debug for LiveObjset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveObjset({} {} of {})", self.kind, self.id, self.pool.name())
    }
}
