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
//! | `snapshot_schedule` | snapshots that are taken and destroyed by schedule |
//! | `rollback_mount` | the mount of a filesystem that is rolled back |
//! | `rename` | names, and promotion |
//! | `properties` | setting and inheriting |
//! | `userspace` | the space of users and groups, and their quotas |
//! | `activity` | what goes on in a filesystem |
//! | `equal_blocks` | equal blocks of files and volumes, which become shared |
//! | `listing` | pools, datasets, properties, holds, history |
//! | `keys` | encryption keys |
//! | `delegation` | permissions that users were given, and whether they do for a request |

mod activity;
mod create;
mod delegation;
mod destroy;
mod equal_blocks;
mod keys;
pub(super) mod listing;
mod properties;
mod rename;
mod rollback_mount;
mod snapshot_schedule;
mod snapshots;
mod userspace;

use std::sync::Arc;

use engine::dsl::{Dsl, Entry};

use super::refusals::said;
use super::volumes::clients::Connected;
use super::volumes::held_clients::{Closed, InUse};
use super::{Daemon, OpenPool, names, sync_tasks};
use crate::api::{ApiError, DatasetKind};

pub(super) use keys::{FoundKeys, key_of_new};
pub(super) use snapshot_schedule::Turn;
pub(super) use userspace::{set_quotas_at_once, take_quotas};

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
