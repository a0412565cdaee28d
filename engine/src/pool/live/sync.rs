//! The sync of a transaction group: from changes in memory to a new uberblock.
//!
//! # The order
//! 1. The group is quiesced. It does not change any more. Tasks run that must come first (the pool's
//!    checkpoint).
//! 2. References to cloned blocks are counted, before anything is freed. Intent logs are notified; every dataset
//!    that the group changed is written, and the dataset layer counts what it wrote and frees.
//! 3. The tasks that asked for this group run, one after the other. What they change in datasets is written
//!    as in step 2.
//! 4. Destroyed datasets give back a bounded share of their blocks; the configuration is written if it
//!    changed.
//! 5. The MOS and the space maps are written in turns until neither changes any more: writing the MOS
//!    allocates, what was allocated is noted in the space maps, and these are objects of the MOS. A block
//!    that this group wrote before is written again in its place, so that this ends after a few turns.
//! 6. Flush; labels and uberblock; flush. From here on the group is committed.
//! 7. Readers get the new view, the feed tells what changed, space that was freed two groups ago becomes
//!    free, waiters are woken.
//!
//! A write that fails waits until it can be made ([`crate::store::suspend`]), and so does a read that fails
//! because devices do ([`crate::patience`]). Any other failure on the way, a panic of the thread that
//! commits included, stops the pool: what is on the devices is the group before.
//!
//! # Labels
//! When the configuration changed, even labels are written before the uberblock and odd ones after it, so
//! that whichever is read with the uberblock that counts is at least as new as it must be to find all
//! devices. Source: OpenZFS 2.3 `vdev_label.c` (`vdev_config_sync`).

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::nvlist::{Encoding, Nvlist};
use ondisk::pool_directory as directory;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{PoolConfig, PoolState, VdevKind};
use ondisk::{ByteOrder, Guid, Txg};

use super::config::Needed;
use super::{LivePool, Syncing, checkpoint, errlog};
use crate::dmu::{LiveObject, NewObject, zap};
use crate::dsl::edit;
use crate::error::{Attempt, Error, Result};
use crate::events::feed::What;
use crate::mos::enlarge_gang_headers;
use crate::patience;
use crate::space_maps::sync_dtls;
use crate::tunables;
use crate::vdev::{Class, Kind};

/// Turns of MOS and space maps after which something must be wrong.
const MAX_TURNS: u32 = 64;
/// Bytes in a block of a packed nvlist.
const CONFIG_BLOCK_BYTES: u32 = 16 << 10;
/// The newest version, which this writes.
const SOFTWARE_VERSION: u64 = 5000;

/// How long closing waits for what is loaded ahead, so that devices are free when it has ended.
const LOADS_AHEAD_PATIENCE: Duration = Duration::from_secs(1);

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A change of the MOS that waits for the sync of its group.
pub(super) struct Task {
    /// The group that was open when it was asked for. No group before that may take it along: what was
    /// written before the task was asked for may be of this group, and a snapshot must have it.
    txg: Txg,
    /// Before anything of the group is written or freed.
    first: bool,
    run: Box<dyn FnOnce(Syncing) -> Running + Send>,
    /// Gives its caller this error in place of a result.
    fail: Box<dyn FnOnce(Error) + Send>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

impl LivePool {
    /// Runs `task` as part of the sync of the group that is open now, after all that was changed before, and
    /// waits until that is committed. A task that fails must not have changed anything.
    pub async fn change<T, F>(self: &Arc<Self>, task: impl FnOnce(Syncing) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.change_when(false, task).await
    }

    /// As [`LivePool::change`], before anything of the group is written or freed.
    pub(super) async fn change_first<T, F>(
        self: &Arc<Self>,
        task: impl FnOnce(Syncing) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.change_when(true, task).await
    }

    async fn change_when<T, F>(
        self: &Arc<Self>,
        first: bool,
        task: impl FnOnce(Syncing) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let result: Arc<Mutex<Option<Result<T>>>> = Arc::default();
        let (slot, failed) = (Arc::clone(&result), Arc::clone(&result));
        let run = move |s: Syncing| -> Running {
            let running = task(s);
            Box::pin(async move {
                let result = running.await;
                *slot.lock().ignore_poison() = Some(result);
            })
        };
        let fail = move |error| *failed.lock().ignore_poison() = Some(Err(error));
        if self.has_thread() {
            self.dsl.until_freed_is_free().await?;
        }
        let txg = self.txgs.open_txg();
        self.tasks().push(Task { txg, first, run: Box::new(run), fail: Box::new(fail) });
        loop {
            if self.has_thread() {
                // Or the group after it, when its tasks have begun meanwhile.
                let next = Txg(self.txgs.synced_txg().get() + 1);
                self.txgs.wait_synced(next.max(txg)).await?;
            } else {
                self.sync().await?;
            }
            if let Some(result) = result.lock().ignore_poison().take() {
                return result;
            }
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Task>> {
        self.tasks.lock().ignore_poison()
    }

    pub(super) fn has_thread(&self) -> bool {
        self.thread.lock().ignore_poison().is_some()
    }

    /// Starts the thread that commits groups, and goes on with what was under way when the pool was closed.
    /// Without it nothing is committed but by [`LivePool::sync`].
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let (txgs, pool) = (Arc::clone(&self.txgs), Arc::downgrade(self));
        self.pool.suspension.enable(&self.txgs);
        let run = move || {
            while txgs.wait_until_due() {
                let Some(pool) = pool.upgrade() else { return };
                let synced = catch_unwind(AssertUnwindSafe(|| device::block_on(pool.sync())));
                let error = match synced {
                    Ok(Ok(_)) => continue,
                    Ok(Err(error)) => error,
                    Err(panic) => {
                        let error = panicked(&*panic);
                        pool.stop(error.clone());
                        error
                    }
                };
                tracing::error!(pool = pool.pool.name(), %error, "nothing more can be written");
                return;
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("txg-sync {}", self.pool.name()))
            .stack_size(device::STACK_BYTES)
            .spawn(run);
        let thread = thread.map_err(|error| Error::os("starting the thread that commits", &error))?;
        *self.thread.lock().ignore_poison() = Some(thread);
        self.begin_repairs();
        self.start_l2arc();
        self.look_for_resilver();
        // The pool may have ended between a resilver and that.
        self.devices_resilvered();
        self.jobs.resume(self);
        Ok(())
    }

    /// Commits the open group here and now. For tests, and for callers that run without the thread.
    // All of a sync hangs on this. In a box it is compiled here, and not again in each crate that waits for
    // it.
    pub fn sync(self: &Arc<Self>) -> LocalBoxFuture<'_, Result<Txg>> {
        Box::pin(self.sync_open_group())
    }

    async fn sync_open_group(self: &Arc<Self>) -> Result<Txg> {
        let _turn = self.syncing.take().await;
        if let Some(error) = self.txgs.stopped() {
            return Err(error);
        }
        let txg = self.txgs.quiesce().await?;
        match patience::waiting(self.sync_group(txg)).await {
            Ok(()) => {
                self.dsl.close_idle();
                Ok(txg)
            }
            Err(error) => {
                self.stop(error.clone());
                Err(error)
            }
        }
    }

    /// Nothing more is committed: all that wait, for a group or for devices, get the error, and so do later
    /// callers.
    pub(super) fn stop(&self, error: Error) {
        self.txgs.stop(error);
        self.pool.l2arc().stop();
        self.pool.suspension.give_up();
        self.pool.repairs.give_up();
    }

    /// Commits everything, gives the logs back, marks the labels as exported (or destroyed) and stops. The
    /// pool must not be in use.
    ///
    /// # Errors
    /// Not all could be committed. The pool is closed as after a crash then: what was stable is on its
    /// devices, which it has let go.
    pub async fn close(self: &Arc<Self>, state: PoolState) -> Result<()> {
        if self.txgs.is_frozen() {
            return self.close_frozen().await;
        }
        let committed = match self.txgs.stopped() {
            Some(error) => Err(error),
            None => self.commit_all(state).await,
        };
        if let Err(error) = &committed {
            self.stop(error.clone());
        }
        self.end_l2arc(committed.is_ok()).await;
        self.end_thread();
        self.view().end_loads_ahead(LOADS_AHEAD_PATIENCE);
        match committed {
            Ok(()) => {
                self.pool.repairs.give_up();
                self.txgs.stop(Error::Busy(format!("pool '{}' is closed", self.pool.name())));
            }
            Err(_) => drop(self.let_go()),
        }
        committed
    }

    /// Commits no group from now on: only intent logs grow, and what would wait for a group fails. For tests
    /// of what is replayed: all that is left to do with the pool is to close it, which is as a crash to it,
    /// and to import it again.
    pub async fn freeze(self: &Arc<Self>) -> Result<()> {
        self.change(|_| async { Ok(()) }).await?;
        self.txgs.freeze();
        Ok(())
    }

    /// Makes all that was written so far stable: in a group, or of a frozen pool in the intent logs.
    pub async fn make_stable(self: &Arc<Self>) -> Result<()> {
        if !self.txgs.is_frozen() {
            return self.txgs.wait_synced(self.txgs.open_txg()).await;
        }
        let open: Vec<_> = self.datasets().values().cloned().collect();
        for dataset in open {
            dataset.zil.commit().await?;
        }
        Ok(())
    }

    /// Closes a frozen pool: all that can be logged is, and no label is written.
    async fn close_frozen(self: &Arc<Self>) -> Result<()> {
        if let Err(error) = self.make_stable().await {
            tracing::warn!(%error, pool = self.pool.name(), "not all of a frozen pool is logged");
        }
        self.stop(Error::Suspended("the pool was frozen".into()));
        self.end_l2arc(false).await;
        self.end_thread();
        self.view().end_loads_ahead(LOADS_AHEAD_PATIENCE);
        drop(self.let_go());
        Ok(())
    }

    /// What closing has to write.
    async fn commit_all(self: &Arc<Self>, state: PoolState) -> Result<()> {
        // Closing a log waits for groups.
        if !self.has_thread() {
            self.start()?;
        }
        self.jobs.end();
        let open: Vec<_> = self.datasets().values().cloned().collect();
        for dataset in open {
            dataset.zil.close().await?;
        }
        // What they write is flushed with the last group.
        self.repairs_done().await;
        // So that the pool opens quickly.
        self.allocator().flush_all();
        self.change(move |s| async move {
            s.pool.config().state = state;
            s.pool.config_changed();
            Ok(())
        })
        .await
    }

    fn end_thread(&self) {
        self.heartbeat.stop();
        self.txgs.end();
        let thread = self.thread.lock().ignore_poison().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    async fn sync_group(self: &Arc<Self>, txg: Txg) -> Result<()> {
        self.txgs.history().syncing(txg, self.pool.vdevs().io());
        let s = Syncing::new(self, txg);
        enlarge_gang_headers(&s).await?;
        // What was used before a feature comes begins nothing.
        self.count_what_is_used();
        self.run_tasks(&s, true).await?;
        s.count_clones().await?;
        let written = s.sync_datasets(&[]).await?;
        self.run_tasks(&s, false).await?;
        self.follow_lineage(&s).await?;
        // Logs of those that were written stay as they are: a snapshot may have the object set as it was
        // written.
        s.sync_datasets(&written).await?;
        // Freeing what the checkpoint keeps takes space, and gives none back.
        let may_free = self.checkpoint().is_none() || self.dsl.free_on_devices() > 0;
        if may_free && edit::free_some(&s, tunables::ZFS_ASYNC_BLOCK_MAX_BLOCKS.size()).await? {
            self.txgs.kick();
        }
        if checkpoint::discard_some(&s).await? {
            self.txgs.kick();
        }
        self.dsl.tables().write(&s).await?;
        self.store_missed(&s).await?;
        errlog::sync(&s).await?;
        self.tell_what_counts();
        self.free_large_files();
        self.autotrim(&s).await;
        self.diagnose().await;
        self.grow(&s).await?;
        self.take_up_states();
        // Both are taken: what both say is written once.
        let config_changed =
            self.config_changed.swap(false, Ordering::Relaxed) | self.features.take_labels_are_old();
        if config_changed {
            self.write_config(&s).await?;
            // Devices may be new.
            if let Err(error) = self.apply_thresholds().await {
                tracing::warn!(%error, "the properties of vdevs cannot be read");
            }
        }
        let root = self.converge(&s).await?;
        self.commit(&s, root, config_changed).await?;
        self.fill_begun_filter();
        Ok(())
    }

    /// Runs the tasks of this group, those that come first or the others.
    /// One that panics before it changed anything fails alone.
    ///
    /// # Errors
    /// A task failed when its change was half done: nothing of the group may be committed.
    async fn run_tasks(self: &Arc<Self>, s: &Syncing, first: bool) -> Result<()> {
        let is_due = |task: &mut Task| task.first == first && task.txg <= s.txg();
        let tasks: Vec<Task> = self.tasks().extract_if(.., is_due).collect();
        for task in tasks {
            let s = Syncing::new(self, s.txg());
            let had_config_changed = self.config_changed.load(Ordering::Relaxed);
            let run = async { (task.run)(s.clone()).await };
            let ended = AssertUnwindSafe(run).catch_unwind().await;
            if let Some(error) = s.tx.half_done() {
                return Err(error.clone());
            }
            let Err(panic) = ended else { continue };
            let changed_config = self.config_changed.load(Ordering::Relaxed) && !had_config_changed;
            if s.tx.has_changed() || changed_config {
                // Half a change must not be committed.
                resume_unwind(panic);
            }
            let error = Error::Panicked(said_by(&*panic).to_owned());
            tracing::error!(pool = self.pool.name(), %error);
            (task.fail)(error);
        }
        Ok(())
    }

    /// Writes the dirty time logs that changed. Returns whether a leaf got its first one, so that the
    /// configuration must be written.
    async fn store_missed(&self, s: &Syncing) -> Result<bool> {
        let created = sync_dtls(self.pool.vdevs(), self.mos(), &s.tx).await?;
        for (leaf, object) in &created {
            if let Some(leaf) = self.config().find_mut(*leaf) {
                leaf.dtl_object = Some(*object);
            }
            self.config_changed();
        }
        Ok(!created.is_empty())
    }

    /// Writes the MOS and the space maps in turns until neither changes. Gives the pointer of the MOS.
    async fn converge(self: &Arc<Self>, s: &Syncing) -> Result<Blkptr> {
        let mut root = None;
        for _ in 0..MAX_TURNS {
            // What a leaf misses of the MOS itself is in the log too: this may be the last group.
            if self.store_missed(s).await? {
                self.write_config(s).await?;
            }
            let space_changed = self.allocator().sync(self.mos(), &s.tx).await?;
            for (feature, change) in self.allocator().take_feature_changes() {
                s.use_feature(feature, change).await?;
            }
            if !space_changed && !self.mos().is_dirty(s.txg()) {
                return match root {
                    Some(root) => Ok(root),
                    // Nothing changed at all: the MOS stays as it is.
                    None => Ok(self.views.newest().uberblock().root_bp),
                };
            }
            if self.mos().is_dirty(s.txg()) {
                let synced = self.mos().sync(self.writer(), s.txg()).await?;
                root = Some(synced.root);
                edit::mos_synced(s, &synced).await?;
            }
        }
        Err(Error::corrupt(self.pool.name(), "writing the meta object set does not end"))
    }

    /// Makes the group the pool's state.
    async fn commit(self: &Arc<Self>, s: &Syncing, root: Blkptr, config_changed: bool) -> Result<()> {
        let txg = s.txg();
        let last = self.views.newest();
        let uberblock = Uberblock {
            order: ByteOrder::Little,
            version: s.version(),
            txg,
            guid_sum: self.config().guid_sum(),
            timestamp: s.now(),
            root_bp: root,
            software_version: SOFTWARE_VERSION,
            mmp: Some(self.heartbeat.fields(&**self.env())),
            checkpoint_txg: Txg::NONE,
            raidz_reflow_info: last.uberblock().raidz_reflow_info,
        };
        self.make_newest(&uberblock, config_changed).await?;
        let config = match config_changed {
            true => self.parsed_config(txg)?,
            false => last.config().clone(),
        };
        drop(last);
        self.heartbeat.committed(&uberblock);
        self.views.replace(self.pool.at(uberblock, config, self.checkpoint()));
        if self.allocator().waits_for_much() {
            self.views.end_lent();
        }
        self.pool.repairs.committed(txg);
        self.pool.damage.committed();
        let reporter = self.pool.vdevs().reporter();
        if config_changed {
            self.sysevent("config_sync", None);
            reporter.announce(txg, What::Configured);
        }
        // Readers see the group, and callers that wait for it do not go on yet.
        reporter.committed(txg);
        self.allocator().sync_done(txg, self.views.oldest());
        self.dsl.committed(txg).await?;
        self.txgs.history().committed(txg, self.pool.vdevs().io());
        self.txgs.committed(txg);
        Ok(())
    }

    /// Makes an uberblock that everything below is written of the newest one of the pool.
    pub(super) async fn make_newest(&self, uberblock: &Uberblock, config_changed: bool) -> Result<()> {
        let txg = uberblock.txg;
        self.until_durable(uberblock, async || Ok(())).await?;
        if config_changed {
            self.until_durable(uberblock, async || self.write_labels(txg, false).await).await?;
        }
        let leaves = self.uberblock_leaves();
        let encoded = uberblock.encode();
        self.pool.suspension.check()?;
        self.until_durable(uberblock, async || {
            let written = self.pool.vdevs().write_uberblock(&leaves, txg, &encoded).await;
            written.map_err(|tried| cannot_commit(txg, &tried))
        })
        .await?;
        if config_changed {
            self.until_durable(uberblock, async || self.write_labels(txg, true).await).await?;
        }
        Ok(())
    }

    /// Leaves that take uberblocks: all that hold blocks, log devices apart.
    pub(super) fn uberblock_leaves(&self) -> Vec<Guid> {
        let tops = self.pool.vdevs().tops.iter().filter(|top| top.class() != Class::Log);
        tops.flat_map(|top| top.walk())
            .filter(|vdev| matches!(vdev.kind, Kind::Leaf(_)))
            .map(|leaf| leaf.guid)
            .collect()
    }

    /// Writes one of the two halves of the labels of every leaf. It is enough that one leaf takes it.
    async fn write_labels(&self, txg: Txg, odd: bool) -> Result<()> {
        let labels: Vec<(Guid, Nvlist)> = {
            let config = self.config();
            let needed = Needed::of(&self.features);
            let tops = config.root.children.iter();
            let tops = tops
                .filter(|top| !matches!(top.kind, VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect));
            tops.flat_map(|top| {
                let leaves = top.leaves().into_iter();
                let leaves = leaves.filter(|leaf| !matches!(leaf.kind, VdevKind::DraidSpare { .. }));
                leaves.map(|leaf| (leaf.guid, config.for_label(txg, top, leaf.guid, needed.clone())))
            })
            .collect()
        };
        let mut good = false;
        let mut tried = Vec::new();
        for (leaf, config) in &labels {
            match self.pool.vdevs().write_label(*leaf, odd, config).await {
                Ok(()) => good = true,
                Err(more) => tried.extend(more),
            }
        }
        if good { Ok(()) } else { Err(cannot_commit(txg, &tried)) }
    }

    fn parsed_config(&self, txg: Txg) -> Result<PoolConfig> {
        let list = self.config().for_mos(txg, Needed::of(&self.features));
        PoolConfig::parse(list).map_err(Error::format("pool configuration"))
    }

    /// Writes the configuration into its object of the MOS.
    async fn write_config(&self, s: &Syncing) -> Result<()> {
        let list = self.config().for_mos(s.txg(), Needed::of(&self.features));
        let object = match s.directory_u64(directory::CONFIG).await? {
            Some(_) => s.directory_object(directory::CONFIG).await?,
            None => {
                let object = new_packed_nvlist(s).await?;
                s.set_in_directory(directory::CONFIG, zap::Value::U64(vec![object.id().get()])).await?;
                object
            }
        };
        write_packed_nvlist(s, &object, &list).await
    }
}

impl Syncing {
    /// The result of a change that cannot be undone any more: if it is an error, nothing of the group is
    /// committed, and the pool stops.
    pub(super) fn or_stop<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.tx.note_half_done(error.clone());
        }
        done
    }
}

/// An object for a packed nvlist.
pub(super) async fn new_packed_nvlist(s: &Syncing) -> Result<Arc<LiveObject>> {
    let new = NewObject {
        dmu_type: DmuType::PACKED_NVLIST,
        block_size: CONFIG_BLOCK_BYTES,
        bonus_type: DmuType::PACKED_NVLIST_SIZE,
        bonus: vec![0; 8],
        slots: 1,
    };
    s.mos().allocate(&s.tx, new).await
}

/// Replaces the nvlist that an object holds. The last block is filled up with zeroes; the bonus area tells
/// the length.
pub(super) async fn write_packed_nvlist(s: &Syncing, object: &Arc<LiveObject>, list: &Nvlist) -> Result<()> {
    let packed = list.encode(Encoding::Xdr).map_err(Error::format("packed nvlist"))?;
    let length = packed.len() as u64;
    let mut padded = packed;
    padded.resize(length.next_multiple_of(CONFIG_BLOCK_BYTES.into()) as usize, 0);
    object.write_at(&s.tx, 0, &padded).await?;
    object.punch(&s.tx, padded.len() as u64, u64::MAX).await?;
    object.set_bonus(&s.tx, DmuType::PACKED_NVLIST_SIZE, &length.to_le_bytes());
    Ok(())
}

/// What a panic of the thread that commits means for the pool.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::Suspended(format!("the thread that commits ended with a panic: {}", said_by(panic)))
}

fn said_by(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    said.unwrap_or("it said nothing")
}

fn cannot_commit(txg: Txg, tried: &[Attempt]) -> Error {
    let tried: Vec<String> = tried.iter().map(Attempt::to_string).collect();
    Error::Suspended(format!(
        "group {txg} cannot be committed: no label could be written ({})",
        tried.join("; ")
    ))
}
