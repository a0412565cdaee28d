//! [`SyncTask`]: a change of datasets as part of one transaction group (OpenZFS: `dsl_sync_task`).
//!
//! The dataset layer's changes happen in such tasks and nowhere else, one after the other. So they never meet
//! each other, and what one of them reads is as all before it left it. A task changes the MOS at once, and
//! tells open datasets what has become of them.

use std::ops::Deref;
use std::sync::Arc;

use ondisk::ObjsetId;
use ondisk::blkptr::Blkptr;
use ondisk::history::{HistoryEvent, HistoryRecord};
use ondisk::pool_version;

use super::history;
use super::live_dataset::LiveDataset;
use super::pool::DslPool;
use crate::error::Result;
use crate::events::{self, feed::What};
use crate::mos::MosTask;
use crate::txg::Tx;

/// Who asked for a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Asker {
    /// Root, or the pool itself: limits of filesystems and snapshots do not bind them.
    #[default]
    Root,
    /// A user, who may do what was granted.
    User {
        /// The user's number.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// The user's further groups.
        groups: Vec<u32>,
    },
}

/// A change of datasets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SyncTask {
    dsl_pool: Arc<DslPool>,
    task: MosTask,
    asker: Arc<Asker>,
}

impl Deref for SyncTask {
    type Target = MosTask;

    fn deref(&self) -> &MosTask {
        &self.task
    }
}

impl SyncTask {
    /// A task of the group that `tx` belongs to.
    pub(crate) fn new(dsl_pool: &Arc<DslPool>, tx: Tx) -> Self {
        let task = MosTask::new(dsl_pool.mos(), tx);
        Self { dsl_pool: Arc::clone(dsl_pool), task, asker: Arc::default() }
    }

    /// The same, which this one asked for.
    #[must_use]
    pub fn asked_by(self, asker: Asker) -> Self {
        Self { asker: Arc::new(asker), ..self }
    }

    /// Who asked for it.
    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// The datasets of the pool.
    pub(crate) fn dsl_pool(&self) -> &Arc<DslPool> {
        &self.dsl_pool
    }

    /// The head dataset `id`, opened if it is not.
    pub async fn dataset(&self, id: ObjsetId) -> Result<Arc<LiveDataset>> {
        self.dsl_pool.dataset(id).await
    }

    /// Forgets a head dataset that was destroyed, or whose contents were replaced; what it had not written is
    /// dropped. Users that have it open get errors from now on.
    pub fn forget_dataset(&self, id: ObjsetId) {
        if let Some(gone) = self.dsl_pool.datasets().remove(&id) {
            gone.objset.set_gone();
        }
    }

    /// The head dataset `id`, if it is open.
    pub fn open_dataset(&self, id: ObjsetId) -> Option<Arc<LiveDataset>> {
        self.dsl_pool.datasets().get(&id).cloned()
    }

    /// Whether a stream is being received into a dataset.
    pub(crate) fn is_receiving(&self, id: ObjsetId) -> bool {
        self.dsl_pool.receiving().contains(&id)
    }

    /// Notes whether a stream is being received into a dataset.
    pub(crate) fn set_receiving(&self, id: ObjsetId, is: bool) {
        let mut receiving = self.dsl_pool.receiving();
        match is {
            true => receiving.insert(id),
            false => receiving.remove(&id),
        };
    }

    /// A reference to a block of a dataset is gone. True when it was the last one, so that the block is to be
    /// freed.
    pub(crate) async fn release(&self, bp: &Blkptr) -> Result<bool> {
        self.dsl_pool.tables().release(self, bp).await
    }

    /// Has it told, when the group is committed, what the change makes different.
    pub(crate) fn announce(&self, what: What) {
        self.pool().vdevs().reporter().announce(self.txg(), what);
    }

    /// Posts an internal record of the history as an event (`spa_history_log_notify`).
    fn report(&self, record: &HistoryRecord) {
        let HistoryEvent::Internal { name, txg, dataset, text } = record.event() else { return };
        let mut more = vec![events::text("history_hostname", &record.host().unwrap_or_default())];
        if let Some((name, _)) = &dataset {
            more.push(events::text("history_dsname", name));
        }
        more.extend([
            events::text("history_internal_str", &text),
            events::text("history_internal_name", &name),
        ]);
        more.extend(dataset.map(|(_, id)| events::field("history_dsid", id)));
        more.extend([
            events::field("history_txg", txg),
            events::field("history_time", record.time().unwrap_or_default()),
        ]);
        self.pool().vdevs().reporter().sysevent("history_event", None, more);
    }

    /// Adds a record to the pool's history, which pools of the first versions have not.
    pub async fn append_history(&self, record: &HistoryRecord) -> Result<()> {
        self.report(record);
        match self.has_version(pool_version::HISTORY) {
            true => history::append(self.mos(), &self.tx, record, self.allocator().usable_bytes()).await,
            false => Ok(()),
        }
    }
}
