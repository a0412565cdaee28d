//! What becomes of datasets, noted in the pool's history: `zpool history -i` shows it.
//!
//! Each note belongs to the change that it is about, and is committed with it. Source of the words: OpenZFS
//! 2.3 `spa_history_log_internal_ds` and its callers.

use ondisk::ObjectId;

use crate::dsl::SyncTask;
use crate::dsl::history;
use crate::error::Result;

/// What stands where there is nothing to say.
pub(super) const NOTHING: &str = " ";

/// Notes that `event` happened to the dataset `name`, which is object `id`.
pub(super) async fn note(s: &SyncTask, event: &str, name: &str, id: ObjectId, text: &str) -> Result<()> {
    let host = s.dsl_pool().host_name();
    let record = history::event(event, text, Some((name, id.get())), s.txg().get(), s.now(), host);
    s.append_history(&record).await
}
