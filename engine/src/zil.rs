//! The intent log: changes that must be stable before their transaction group is committed.
//!
//! # The idea
//! The code that changes a dataset *notes* the change in memory, while it holds the change's group open. When
//! the group is committed, the note is forgotten. When a client wants stability before that (a flush,
//! `fsync`, a write with FUA), the notes become records in a chain of log blocks of the dataset, and one
//! flush of the devices makes them stable. After a crash the header in the dataset's object set leads to the
//! chain. Its blocks are claimed before any other allocation, and the records whose groups were not committed
//! are applied again.
//!
//! | module | what it owns |
//! |---|---|
//! | `itx` | the notes, by group and object |
//! | `plan` | the layout of notes in blocks of records: pure functions |
//! | `chain` | the blocks of the log, and its header: pure state |
//! | `indirect_write` | large writes: their blocks are written to their final places, and the log holds pointers |
//! | `counting` | the counters |
//! | `commit` | group commit: one batch at a time, shared by all its waiters |
//! | `claim` | the walk along a chain, and claiming its blocks at import |
//! | `replay` | applying the records |
//! | `backing` | the services of the pool that the log uses |
//!
//! # Invariants
//! - A block is written after the next one was allocated, because it contains the address of the next one. So
//!   a chain ends with a block that is allocated and not yet written; a reader recognizes the end by the
//!   invalid contents of that block.
//! - The header on disk points to the first block that holds a record of a group that is not committed, or to
//!   an earlier block. Blocks before it are freed in the same group that moves the header.
//! - A group in which a block was allocated is not committed before the block that points to it is stable.
//!   Otherwise a crash would leave an allocated block without a pointer to it.
//! - The first commit of a dataset without a chain waits for the commit of the group that puts the header on
//!   disk.
//! - A log that cannot be written (no space, a failing device) is no error: the callers wait for their group
//!   instead. The whole chain is then given up, once all its records are committed.
//! - The data of a write are not kept with its note: they are read from the object when they are logged, and
//!   may then be newer than the write. That is right, because newer data come from a later write with its own
//!   note. Data that were truncated or freed meanwhile are left out of the record ([`Source`]); if the change
//!   that did that is not in the same batch, the commit waits for its group.
//!
//! # Encryption
//! Log blocks of an encrypted dataset are encrypted with the dataset's key, and authenticated; only links,
//! record headers and block pointers are in the clear. So a log is claimed, scrubbed and given up without the
//! key, and replayed when the key is loaded; until then it stays as it was claimed. The IV of a block is in
//! the pointer to it, which is written first: so a block is written once, and a batch that failed is never
//! written to the same blocks again.
//!
//! # What a commit waits for
//! A commit waits for the devices, and for the batch in progress. It waits for a group where correctness
//! demands it: there is no chain on disk yet, a change has no record, or an earlier change is not in the log.
//! It also waits for a group for the sake of speed or space: when a batch is most of the dirty data, and
//! groups are encoded quickly; or when the batch is more than the pool lends its logs. A commit never waits
//! for the encoding of other datasets: blocks of the log are not compressed, large writes that are logged by
//! pointer have threads of their own (`Writer::write_promptly`), and holding a group (`Txgs::hold`) never
//! waits.
//!
//! # Locks
//! | lock | guards | order |
//! |---|---|---|
//! | `groups` | the batch being written, the waiters for the next one | first |
//! | `pending` | the notes | second |
//! | `chain` | the blocks | third |
//!
//! No lock is held across an await.
//!
//! Source: OpenZFS 2.3 `zil.c`, `zvol.c`.

mod backing;
mod chain;
mod claim;
mod commit;
mod counting;
mod indirect_write;
mod itx;
mod plan;
mod replay;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use device::IgnorePoison;
use ondisk::blkptr::Blkptr;
use ondisk::zil::Record;
use ondisk::zil::ZilHeader;
use ondisk::{ByteOrder, Txg};

use backing::{Backing, Live};
use chain::Chain;
use commit::Groups;
use itx::{Pending, Scope, What};

use crate::dmu::LiveObjset;
use crate::env::Env;
use crate::error::Result;
use crate::txg::{Tx, Txgs};
use crate::zio::Writer;

pub use backing::{Fetched, Source, Written};
pub(crate) use claim::waiting_blocks;
pub use claim::{Unreadable, check, has_records};
pub(crate) use replay::held;
pub use replay::{Applied, Replay, Replayed};

/// When writes become stable (the property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum SyncMode {
    /// When a client asks for it.
    #[default]
    Standard = 0,
    /// Every write at once.
    Always = 1,
    /// Only with their group, whatever a client asks for.
    Disabled = 2,
}

impl SyncMode {
    fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Always,
            2 => Self::Disabled,
            _ => Self::Standard,
        }
    }
}

/// The intent log of one dataset. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Zil {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    backing: Box<dyn Backing>,
    txgs: Arc<Txgs>,
    env: Arc<dyn Env>,
    sync_mode: AtomicU8,
    for_throughput: AtomicBool,
    logs_xattrs: AtomicBool,
    groups: Mutex<Groups>,
    pending: Mutex<Pending>,
    chain: Mutex<Chain>,
}

impl Zil {
    /// The log of an open object set. If the object set was found at import with a log on disk, the caller
    /// calls [`Zil::claim`] next, in the first group. If there are records to replay then
    /// ([`Zil::needs_replay`]), commits wait for their group until the replay is done.
    pub fn open(objset: &Arc<LiveObjset>, writer: &Writer, txgs: &Arc<Txgs>, env: &Arc<dyn Env>) -> Self {
        let header = objset.zil_header();
        Self::over(Box::new(Live::new(objset, writer)), &header, txgs, env)
    }

    fn over(backing: Box<dyn Backing>, header: &ZilHeader, txgs: &Arc<Txgs>, env: &Arc<dyn Env>) -> Self {
        let chain = Chain::found(header, txgs.open_txg());
        let inner = Inner {
            backing,
            txgs: Arc::clone(txgs),
            env: Arc::clone(env),
            sync_mode: AtomicU8::new(SyncMode::Standard as u8),
            for_throughput: AtomicBool::new(false),
            logs_xattrs: AtomicBool::new(false),
            groups: Mutex::default(),
            pending: Mutex::default(),
            chain: Mutex::new(chain),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the mode from now on. Changes made under [`SyncMode::Disabled`] are not in the log: a later
    /// commit waits for their group.
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.inner.sync_mode.store(mode as u8, Ordering::Release);
    }

    /// Sets whether writes of any size are logged by pointer (`logbias=throughput`), not only large ones.
    pub fn set_for_throughput(&self, for_throughput: bool) {
        self.inner.for_throughput.store(for_throughput, Ordering::Release);
    }

    /// Whether the dataset uses the feature `zilsaxattr`, so that changes of extended attributes inside files
    /// are noted as records.
    pub fn logs_xattrs(&self) -> bool {
        self.inner.logs_xattrs.load(Ordering::Acquire)
    }

    /// Notes that the dataset uses that feature, as of a committed group.
    pub fn set_logs_xattrs(&self) {
        self.inner.logs_xattrs.store(true, Ordering::Release);
    }

    /// The mode of the dataset's property.
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::from_raw(self.inner.sync_mode.load(Ordering::Acquire))
    }

    /// Claims the log found on disk, in the first group after import, in syncing context, before any
    /// allocation or note. If the pool was rewound to a `checkpoint` of this group, a log that was not
    /// claimed then is given up. Returns stored blocks to which the log is one more reference from now on.
    ///
    /// # Errors
    /// [`Error::UnreadableLog`], as `unreadable` says; the group may not be committed then.
    ///
    /// [`Error::UnreadableLog`]: crate::Error::UnreadableLog
    pub async fn claim(
        &self,
        tx: &Tx,
        checkpoint: Option<Txg>,
        unreadable: Unreadable,
    ) -> Result<Vec<Blkptr>> {
        self.inner.claim(tx, checkpoint, unreadable).await
    }

    /// Notes a change that [`Zil::commit_object`] of any object makes stable: a change of names, or a change
    /// on which other changes may depend.
    pub fn note(&self, tx: &Tx, record: &Record<'_>) {
        self.inner.note(tx, None, record);
    }

    /// Notes a change of one object that is made stable only with this object. The order with other notes of
    /// the object is kept.
    pub fn note_object(&self, tx: &Tx, object: u64, record: &Record<'_>) {
        self.inner.note(tx, Some(object), record);
    }

    /// Notes a write to an object, whose data can be read from it from now on. Otherwise like
    /// [`Zil::note_object`].
    pub fn note_write(&self, tx: &Tx, object: u64, offset: u64, length: u64) {
        self.note_write_of(tx, (object, 0), offset, length);
    }

    /// The same, if another object may get the number later, with another generation.
    pub fn note_write_of(&self, tx: &Tx, (object, generation): (u64, u64), offset: u64, length: u64) {
        self.inner.note_what(tx.txg(), Some(object), What::Write { object, generation, offset, length });
    }

    /// Notes a change without a record: a caller that wants it stable (with the object, or with any object if
    /// there is none) waits for its group.
    pub fn note_unloggable(&self, tx: &Tx, object: Option<u64>) {
        self.inner.note_what(tx.txg(), object, What::Unloggable);
    }

    /// The notes of an object are made stable with any object from now on, before later notes: the object is
    /// about to be renamed.
    pub fn order_object(&self, object: u64) {
        lock(&self.inner.pending).order(object);
    }

    /// The object was freed, and the change that freed it is noted: its other notes are not needed. Another
    /// object may get its number in a later group.
    pub fn forget_object(&self, object: u64) {
        lock(&self.inner.pending).forget_object(object);
    }

    /// Sets the source of the data of noted writes. Without it the log reads the objects themselves.
    pub fn set_source(&self, source: Weak<dyn Source>) {
        self.inner.backing.set_source(source);
    }

    /// Makes all notes so far stable, unless the mode is [`SyncMode::Disabled`]. Fails only when the pool can
    /// no longer commit.
    pub async fn commit(&self) -> Result<()> {
        self.commit_scope(Scope::All).await
    }

    async fn commit_scope(&self, scope: Scope) -> Result<()> {
        self.inner.backing.check()?;
        match self.sync_mode() {
            SyncMode::Disabled => Ok(()),
            SyncMode::Standard | SyncMode::Always => {
                self.inner.commit(scope).await?;
                // The dataset may have been destroyed meanwhile, with the changes that should be stable.
                self.inner.backing.check()
            }
        }
    }

    /// Makes all notes of an object stable, and the notes that belong to no object.
    pub async fn commit_object(&self, object: u64) -> Result<()> {
        self.commit_scope(Scope::Objects([object].into())).await
    }

    /// In syncing context, before the object set of this group is written: moves the header on, and frees
    /// blocks that are no longer needed. Returns the stored blocks to which the log is no longer a reference.
    pub async fn sync(&self, tx: &Tx) -> Result<Vec<Blkptr>> {
        self.inner.sync(tx).await
    }

    /// Gives up the blocks of the log as soon as their records are committed; the next commit begins a new
    /// chain, with other blocks.
    pub async fn leave(&self) -> Result<()> {
        self.inner.leave().await
    }

    /// Whether there is neither a log nor a note, so that it can be dropped. An idle log begins to end: some
    /// groups later it is gone. The caller must be the only user.
    pub fn settles(&self) -> bool {
        self.inner.settles()
    }

    /// The group is committed: its notes are forgotten.
    pub fn synced(&self, txg: Txg) {
        lock(&self.inner.pending).forget(txg);
    }

    /// Whether the log that was found must be replayed before the dataset is changed.
    pub fn needs_replay(&self) -> bool {
        lock(&self.inner.chain).needs_replay()
    }

    /// Replays the log that was found, then destroys it. On an error the log stays, and the dataset must not
    /// be changed.
    pub async fn replay(&self, onto: &impl Replay) -> Result<Replayed> {
        self.inner.replay(onto).await
    }

    /// Gives up a log that waits to be replayed, with all its changes: for a dataset that is about to be
    /// destroyed.
    pub async fn discard(&self) -> Result<()> {
        self.inner.discard().await
    }

    /// Waits until everything is committed, and frees all blocks of the log. A log that was not replayed
    /// stays. Afterwards the log can be used again.
    pub async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

impl Inner {
    fn note(&self, tx: &Tx, object: Option<u64>, record: &Record<'_>) {
        let what = match record.encode(tx.txg(), 0, ByteOrder::Little) {
            Ok(bytes) if bytes.len() <= plan::MAX_RECORD_BYTES => What::Record(bytes),
            // A caller that wants it stable waits for its group.
            _ => What::Unloggable,
        };
        self.note_what(tx.txg(), object, what);
    }

    fn note_what(&self, txg: Txg, object: Option<u64>, what: What) {
        if self.sync_mode.load(Ordering::Acquire) == SyncMode::Disabled as u8 {
            let mut chain = lock(&self.chain);
            chain.unlogged = chain.unlogged.max(txg);
        } else {
            lock(&self.pending).note(txg, object, what);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
