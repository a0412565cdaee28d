//! Datasets: listing them, and changing them: what a request means, what forbids it, and what has to be
//! unmounted and mounted around it.
//!
//! A change reads the last commit to find its datasets, reports in OpenZFS's words what forbids it, and asks
//! the engine for the change. The engine checks again, because another request may have come between. The
//! daemon takes mounts and NBD clients of a dataset away before the change and brings them back afterwards.
//!
//! | module | what it owns |
//! |---|---|
//! | `create` | filesystems, volumes, clones, and those above them |
//! | `destroy` | datasets with all their dependents |
//! | `snapshots` | taking, destroying and holding snapshots; rollback; bookmarks |
//! | `rollback_mount` | the mount of a filesystem that is rolled back |
//! | `rename` | names, and promotion |
//! | `properties` | setting and inheriting |
//! | `userspace` | the space of users and groups, and their quotas |
//! | `activity` | what goes on in a filesystem |
//! | `equal_blocks` | equal blocks of files and volumes, which become shared |
//! | `listing` | pools, datasets, properties, holds, history |
//! | `keys` | encryption keys |
//! | `delegation` | permissions that users were given, and whether they do for a request |
//! | `names` | the rules for names |
//! | `sync_tasks`, `ioctls` | calling the engine for changes, and what OpenZFS calls these in the history |

mod activity;
mod create;
pub(super) mod delegation;
mod destroy;
mod equal_blocks;
mod ioctls;
mod keys;
pub(super) mod listing;
pub(super) mod names;
mod properties;
mod rename;
mod rollback_mount;
mod snapshots;
pub(super) mod sync_tasks;
mod userspace;

use std::sync::Arc;

use engine::dsl::{Dsl, Entry};

use super::volumes::clients::Connected;
use super::volumes::held_clients::{Closed, InUse};
use super::{Daemon, OpenPool};
use crate::api::{ApiError, DatasetKind, ErrorKind};

pub(super) use userspace::{set_quotas_at_once, take_quotas};

/// The message of a change for an engine's error, after the operation: OpenZFS's sentence where it has one.
pub(super) fn said(doing: &str, error: engine::Error) -> ApiError {
    let (kind, why) = match error {
        engine::Error::NotFound(_) => (ErrorKind::NotFound, "dataset does not exist".to_owned()),
        engine::Error::Exists(_) => (ErrorKind::Busy, "dataset already exists".to_owned()),
        // The engine says how much there is where it knows how much is needed.
        engine::Error::NoSpace(detail) if detail.ends_with(" is available") => {
            (ErrorKind::Failed, format!("out of space: {detail}"))
        }
        engine::Error::NoSpace(_) | engine::Error::Quota(_) => (ErrorKind::Failed, "out of space".to_owned()),
        other => {
            let ApiError { kind, message } = other.into();
            (kind, message)
        }
    };
    ApiError { kind, message: format!("{doing}: {why}") }
}

impl Daemon {
    /// The open pool that `name` is or would be in.
    fn pool_for(&self, doing: &str, name: &str) -> Result<Arc<OpenPool>, ApiError> {
        let pool = names::pool_of(name);
        self.find_pool(pool).ok_or_else(|| ApiError::not_found(format!("{doing}: no such pool '{pool}'")))
    }

    /// Gives back the intent log of a filesystem or volume that is about to go.
    pub(super) async fn close_log(&self, pool: &OpenPool, name: &str) -> Result<(), ApiError> {
        let doing = format!("cannot close '{name}'");
        let live = pool.writable(&doing)?;
        let closed = async {
            let id = pool.dsl().await?.find(name).await?.objset_id();
            sync_tasks::close_log(live, id).await
        };
        closed.await.map_err(|error| said(&doing, error))
    }
}

/// The dataset called `name`, if there is one.
pub(super) async fn entry(dsl: &Dsl, name: &str) -> engine::Result<Option<Entry>> {
    match dsl.entry(name).await {
        Ok(entry) => Ok(Some(entry)),
        Err(engine::Error::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

impl OpenPool {
    /// Refuses when a client has one of these volumes. No client gets one as long as the returned guard is
    /// kept.
    fn keep_unused(&self, doing: &str, is_meant: impl Fn(&str) -> bool) -> Result<Closed<'_>, ApiError> {
        // A device that nothing uses is no reason against it.
        let in_use = self.detach_devices(&is_meant, false);
        if let Some(error) = in_use.into_iter().next() {
            return Err(ApiError::busy(format!("{doing}: dataset is busy\n{}", error.message)));
        }
        self.close_to_clients(is_meant).map_err(|InUse(connected)| {
            ApiError::busy(format!("{doing}: dataset is busy\n{}", Connected::sentence(&connected)))
        })
    }
}

/// A dataset's kind in the words of messages.
fn word_of(entry: &Entry) -> &'static str {
    match entry.kind {
        engine::dsl::Kind::Volume => DatasetKind::Volume.word(),
        _ => DatasetKind::Filesystem.word(),
    }
}
