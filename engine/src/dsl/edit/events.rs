//! What becomes of datasets, noted in the pool's history, which `zpool history -i` shows, and announced for
//! the feed of changes ([`crate::events::feed`]).
//!
//! Each note belongs to the change that it is about, and is committed with it. What is announced is told when
//! the group is committed. Hidden datasets have notes and no announcements. Source of the words: OpenZFS 2.3
//! `spa_history_log_internal_ds` and its callers.

use ondisk::{Guid, ObjectId};

use crate::dsl::history;
use crate::dsl::{SyncTask, is_hidden};
use crate::error::Result;
use crate::events::feed::What;

/// What stands where there is nothing to say.
pub(super) const NOTHING: &str = " ";

/// Notes that `event` happened to the dataset `name`, which is object `id`.
pub(super) async fn note(s: &SyncTask, event: &str, name: &str, id: ObjectId, text: &str) -> Result<()> {
    let host = s.dsl_pool().host_name();
    let record = history::event(event, text, Some((name, id.get())), s.txg().get(), s.now(), host);
    s.append_history(&record).await
}

fn announce(s: &SyncTask, name: &str, what: impl FnOnce(String) -> What) {
    if !is_hidden(name) {
        s.announce(what(name.to_owned()));
    }
}

/// A dataset, snapshot or bookmark is new.
pub(super) fn created(s: &SyncTask, name: &str, guid: Guid, volume_bytes: Option<u64>) {
    announce(s, name, |name| What::Created { name, guid, volume_bytes });
}

/// A dataset, snapshot or bookmark is there no more.
pub(super) fn destroyed(s: &SyncTask, name: &str, guid: Guid) {
    announce(s, name, |name| What::Destroyed { name, guid });
}

/// A dataset or snapshot has another name.
pub(super) fn renamed(s: &SyncTask, from: &str, to: &str, guid: Guid) {
    announce(s, to, |to| What::Renamed { from: from.to_owned(), to, guid });
}

/// A dataset has the contents of a snapshot or a stream.
pub(super) fn replaced(s: &SyncTask, name: &str, guid: Guid) {
    announce(s, name, |name| What::Replaced { name, guid });
}

/// A property of a dataset or snapshot is set otherwise.
pub(super) fn set(s: &SyncTask, name: &str, guid: Guid, property: &str) {
    announce(s, name, |name| What::Set { name, guid, property: property.to_owned() });
}
