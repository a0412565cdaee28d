//! What goes on in a filesystem.

use engine::dsl::Kind;

use crate::api::{Activity, ApiError, GetActivity};
use crate::daemon::{Daemon, dataset_error, not_of_this_type};

impl Daemon {
    /// What goes on in a filesystem.
    ///
    /// # Errors
    /// It does not exist, or is no filesystem.
    pub async fn activity(&self, request: GetActivity) -> Result<Activity, ApiError> {
        let name = &request.dataset;
        let pool = self.pool_of(name)?;
        let failed = |error| dataset_error("open", name, error);
        let entry = pool.dsl().await.map_err(failed)?.entry(name).await.map_err(failed)?;
        let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else {
            return Err(not_of_this_type(name));
        };
        let Some(live) = pool.live().filter(|_| pool.mounted().contains_key(name)) else {
            return Ok(Activity::default());
        };
        let filesystem = live.filesystem(dataset.objset_id()).await.map_err(failed)?;
        Ok(Activity { delete_queue: filesystem.unlinked().await.map_err(failed)?.len() as u64 })
    }
}
