//! The intent log: what was promised to be stable before its transaction group is committed.
//!
//! # The idea
//! Whoever changes a dataset *notes* the change in memory, while it holds the change's group open. When its
//! group is committed, the note is forgotten. Only when somebody wants stability before that (a flush,
//! `fsync`, a write with FUA) the notes become records in a chain of log blocks of the dataset, and one flush
//! of the devices makes them stable. After a crash the chain is found from the header in the dataset's object
//! set, its blocks are claimed before anything else is allocated, and the records whose groups were not
//! committed are applied again.
//!
//! | module | what it owns |
//! |---|---|
//! | `itx` | the notes, by group and object |
//! | `plan` | how notes become blocks of records: pure functions |
//! | `chain` | which blocks the log consists of, and what the header says: pure state |
//! | `indirect_write` | large writes: their blocks are written where they will stay, and the log holds pointers |
//! | `commit` | group commit: one batch at a time, everybody else waits with it |
//! | `claim` | the walk along a chain, and taking its blocks over at import |
//! | `replay` | applying the records |
//! | `backing` | what all this asks of the pool |
//!
//! # Invariants
//! - A block is written after the one behind it was allocated, because it says where that is. So a chain ends
//!   with a block that is allocated and not yet written, and whoever reads the chain knows its end by that
//!   block's not being what it should be.
//! - The header on disk points to the first block that holds a record of a group that is not committed, or
//!   further back. Blocks before it are freed in the same group that moves the header.
//! - A group in which a block was allocated is not committed before the block that points to it is stable.
//!   Otherwise a crash would leave an allocated block that nothing points to.
//! - The first commit of a dataset without a chain waits for the commit of the group that puts the header on
//!   disk.
//! - A log that cannot be written (no space, a device that fails) is no error: whoever waits, waits for its
//!   group instead. The chain is then given up as a whole, once all that it holds is committed.
//! - Data of a write are not kept with its note: they are read from the object when they are logged, and may
//!   then be newer than the write. That is right, since whatever is newer was written after it, and has its
//!   own note. What was cut off or freed meanwhile is left out of the record ([`Source`]); where what did
//!   that is not in the same batch, the commit waits for its group.
//!
//! # What a commit waits for
//! The devices, and the batch that is under way. A group only where correctness demands it: there is no chain
//! on disk yet, a change has no record, or it cannot be in the log because what came before is not. For the
//! sake of speed or room, too: a batch that is most of what is dirty, where groups are encoded quickly; more
//! than the pool lends its logs. It never waits for what other datasets have encoded: blocks of the log are
//! not compressed, large writes that are logged by pointer have threads of their own
//! (`Writer::write_promptly`), and holding a group (`Txgs::hold`) never waits.
//!
//! # Locks
//! | lock | guards | order |
//! |---|---|---|
//! | `groups` | which batch is being written, who wants the next one | first |
//! | `pending` | the notes | second |
//! | `chain` | the blocks | third |
//!
//! None is held across an await.
//!
//! Source: OpenZFS 2.3 `zil.c`, `zvol.c`.

mod backing;
mod chain;
mod claim;
mod commit;
mod indirect_write;
mod itx;
mod plan;
mod replay;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
pub use claim::{check, has_records};
pub use replay::{Applied, Replay, Replayed};

/// Whether writes become stable when they are asked to (the property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum SyncMode {
    /// When asked.
    #[default]
    Standard = 0,
    /// Each at once.
    Always = 1,
    /// Only with their group, whoever asks.
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
    /// The log of an open object set. If the object set was found at import with a log on disk,
    /// [`Zil::claim`] comes next, in the first group. When there is something to replay then
    /// ([`Zil::needs_replay`]), commits wait for their group until that is done.
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

    /// From now on. What was changed while it was [`SyncMode::Disabled`] is not in the log: a later commit
    /// waits for its group.
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.inner.sync_mode.store(mode as u8, Ordering::Release);
    }

    /// Whether writes of any size are logged by pointer (`logbias=throughput`), not only large ones.
    pub fn set_for_throughput(&self, for_throughput: bool) {
        self.inner.for_throughput.store(for_throughput, Ordering::Release);
    }

    /// Whether the dataset uses the feature `zilsaxattr`, so that changes of extended attributes inside files
    /// are noted as records.
    pub fn logs_xattrs(&self) -> bool {
        self.inner.logs_xattrs.load(Ordering::Acquire)
    }

    /// The dataset uses that feature, as of a committed group.
    pub fn set_logs_xattrs(&self) {
        self.inner.logs_xattrs.store(true, Ordering::Release);
    }

    /// What the dataset's property says.
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::from_raw(self.inner.sync_mode.load(Ordering::Acquire))
    }

    /// Takes over what was found on disk, in the first group after import, in syncing context, before
    /// anything is allocated or noted. Where the pool went back to a `checkpoint` of this group, a log that
    /// was not claimed then is given up. Gives stored blocks to which the log is one more reference from now
    /// on.
    pub async fn claim(&self, tx: &Tx, checkpoint: Option<Txg>) -> Result<Vec<Blkptr>> {
        self.inner.claim(tx, checkpoint).await
    }

    /// Notes a change that [`Zil::commit_object`] of any object makes stable: one of names, or one that
    /// others may depend on.
    pub fn note(&self, tx: &Tx, record: &Record<'_>) {
        self.inner.note(tx, None, record);
    }

    /// Notes a change of one object that is made stable with this object only. The order with other notes of
    /// the object is kept.
    pub fn note_object(&self, tx: &Tx, object: u64, record: &Record<'_>) {
        self.inner.note(tx, Some(object), record);
    }

    /// Notes a write to an object, whose data can be read from it from now on. As [`Zil::note_object`].
    pub fn note_write(&self, tx: &Tx, object: u64, offset: u64, length: u64) {
        self.note_write_of(tx, (object, 0), offset, length);
    }

    /// The same, where the number may become another object's, which then has another generation.
    pub fn note_write_of(&self, tx: &Tx, (object, generation): (u64, u64), offset: u64, length: u64) {
        self.inner.note_what(tx.txg(), Some(object), What::Write { object, generation, offset, length });
    }

    /// Notes a change that no record can tell: whoever wants it stable (with the object, or with any if there
    /// is none) waits for its group.
    pub fn note_unloggable(&self, tx: &Tx, object: Option<u64>) {
        self.inner.note_what(tx.txg(), object, What::Unloggable);
    }

    /// What was noted of an object is made stable with any object from now on, before anything that is noted
    /// later: it is about to be renamed.
    pub fn order_object(&self, object: u64) {
        lock(&self.inner.pending).order(object);
    }

    /// The object was freed, and what freed it is noted: nothing else need be known of it. Its number may be
    /// another object's in a later group.
    pub fn forget_object(&self, object: u64) {
        lock(&self.inner.pending).forget_object(object);
    }

    /// Who knows what is left of noted writes. Without it the objects themselves are asked.
    pub fn set_source(&self, source: Weak<dyn Source>) {
        self.inner.backing.set_source(source);
    }

    /// Makes all that was noted so far stable, unless the dataset is not to be ([`SyncMode::Disabled`]).
    /// Errors only when the pool can commit nothing any more.
    pub async fn commit(&self) -> Result<()> {
        self.commit_scope(Scope::All).await
    }

    async fn commit_scope(&self, scope: Scope) -> Result<()> {
        self.inner.backing.check()?;
        match self.sync_mode() {
            SyncMode::Disabled => Ok(()),
            SyncMode::Standard | SyncMode::Always => {
                self.inner.commit(scope).await?;
                // It may have gone meanwhile, and taken along what was to be stable.
                self.inner.backing.check()
            }
        }
    }

    /// Makes all that was noted of an object stable, and what was noted of no object in particular.
    pub async fn commit_object(&self, object: u64) -> Result<()> {
        self.commit_scope(Scope::Objects([object].into())).await
    }

    /// In syncing context, before the object set of this group is written: moves the header on, frees blocks
    /// that are no longer needed. Gives the stored blocks to which the log is a reference no more.
    pub async fn sync(&self, tx: &Tx) -> Result<Vec<Blkptr>> {
        self.inner.sync(tx).await
    }

    /// Gives the blocks of the log up, as soon as what they hold is committed; the next commit begins anew,
    /// with other blocks.
    pub async fn leave(&self) -> Result<()> {
        self.inner.leave().await
    }

    /// Whether there is neither a log nor anything to be logged, so that it can be dropped. A log that nobody
    /// adds to begins to end: some groups later there is none. Nobody else may use it.
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

    /// Applies the log that was found, then destroys it. On an error the log stays, and the dataset must not
    /// be changed.
    pub async fn replay(&self, onto: &impl Replay) -> Result<Replayed> {
        self.inner.replay(onto).await
    }

    /// Waits until everything is committed, and gives all blocks of the log back. A log that was not replayed
    /// stays. Afterwards the log can be used again.
    pub async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

impl Inner {
    fn note(&self, tx: &Tx, object: Option<u64>, record: &Record<'_>) {
        let what = match record.encode(tx.txg(), 0, ByteOrder::Little) {
            Ok(bytes) if bytes.len() <= plan::MAX_RECORD_BYTES => What::Record(bytes),
            // Whoever wants it stable waits for its group.
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
