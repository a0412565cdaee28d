//! The mount of a filesystem whose contents are rolled back: it stays and shows the new contents.
//!
//! As in OpenZFS the filesystem is suspended and resumed with its new contents, at all places where it is
//! mounted; mounts inside it are not touched. If the two states cannot be compared because one of them is
//! damaged, or if the mount is of a read-only filesystem, it is unmounted by force and mounted again.

use std::sync::Arc;

use crate::api::{ApiError, Mounted};
use crate::daemon::mounts::mount_error;
use crate::daemon::open_pool::Changing;
use crate::daemon::refusals::said;
use crate::daemon::{Daemon, OpenPool};
use crate::fuse::{Difference, FrozenMount, LiveSource, Source};

/// A filesystem whose contents are about to be others.
pub(in crate::daemon) enum RollbackMount {
    /// Its mount waits for the new ones.
    Held(FrozenMount, Difference),
    /// It is to be mounted again, if it was.
    Unmounted(Vec<Mounted>),
}

impl Daemon {
    /// Holds back who uses a filesystem that goes back to a snapshot, until one of the other two is called.
    pub(in crate::daemon) async fn begin_rollback(
        &self,
        pool: &Arc<OpenPool>,
        changing: &Changing<'_>,
        doing: &str,
        of: &str,
        snapshot: &str,
    ) -> Result<RollbackMount, ApiError> {
        if let Some(mount) = pool.live_mount(of) {
            let held = mount.freeze().map_err(|error| ApiError::busy(format!("{doing}: {error}")))?;
            match difference(pool, of, snapshot).await {
                Ok(difference) => return Ok(RollbackMount::Held(held, difference)),
                Err(error) => tracing::warn!("{doing}: unmounting it first: {error}"),
            }
        }
        let unmounted = self.unmount_mounts(pool, changing, true, |mounted| mounted == of).await?;
        Ok(RollbackMount::Unmounted(unmounted))
    }

    /// Its contents are others: goes on with them.
    pub(in crate::daemon) async fn finish_rollback(
        &self,
        pool: &Arc<OpenPool>,
        changing: &Changing<'_>,
        of: &str,
        exchange: RollbackMount,
    ) -> Result<(), ApiError> {
        let (held, difference) = match exchange {
            RollbackMount::Held(held, difference) => (held, difference),
            RollbackMount::Unmounted(unmounted) => {
                self.mount_again(pool, changing, unmounted).await;
                return Ok(());
            }
        };
        let doing = format!("cannot resume '{of}'");
        let opened = async {
            let live = Arc::clone(pool.writable(&doing)?);
            let failed = |error| said(&doing, error);
            let dataset = pool.dsl().await.map_err(failed)?.find(of).await.map_err(failed)?;
            let zpl = live.filesystem(dataset.objset_id()).await.map_err(failed)?;
            Ok(Source::Live(LiveSource { pool: live, dataset, zpl }))
        };
        let went_on = match opened.await {
            Ok(source) => held.thaw_with(source, &difference).map_err(mount_error),
            Err(error) => {
                drop(held);
                Err(error)
            }
        };
        if went_on.is_err() {
            // What was there before is gone.
            let unmounted = self.unmount_mounts(pool, changing, true, |mounted| mounted == of).await?;
            self.mount_again(pool, changing, unmounted).await;
        }
        went_on
    }

    /// Its contents stay what they were.
    pub(in crate::daemon) async fn cancel_rollback(
        &self,
        pool: &Arc<OpenPool>,
        changing: &Changing<'_>,
        exchange: RollbackMount,
    ) {
        match exchange {
            RollbackMount::Held(held, _) => drop(held),
            RollbackMount::Unmounted(unmounted) => self.mount_again(pool, changing, unmounted).await,
        }
    }
}

/// The differences between a frozen filesystem and a snapshot, or what is received for it.
async fn difference(pool: &OpenPool, of: &str, snapshot: &str) -> engine::Result<Difference> {
    if let Some(live) = pool.live() {
        live.txgs().wait_synced(live.txgs().open_txg()).await?;
    }
    let dsl = pool.dsl().await?;
    let (head, snapshot) = (dsl.find(of).await?, dsl.find(snapshot).await?);
    Difference::between(&dsl.open_objset(&head).await?, &dsl.open_objset(&snapshot).await?).await
}
