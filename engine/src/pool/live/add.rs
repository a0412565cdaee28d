//! Adding top-level vdevs to a pool that is written.
//!
//! The new vdevs join the tree, the configuration and the allocator in the sync of one group. Their labels name no group until then; the commit writes the first half of all
//! labels before the uberblock, so that whoever finds that uberblock finds labels on the new devices too. When something fails before, the pool is
//! what it was, and the devices belong to nobody.
//!
//! Source of the facts: OpenZFS 2.3 `spa.c` (`spa_vdev_add`).

use std::sync::Arc;

use ondisk::VdevId;

use super::create::{label_new, take_up_top, top_config};
use super::{LivePool, NewTop, Syncing};
use crate::error::{Error, Result};
use crate::vdev::config::Devices;

impl LivePool {
    /// Adds top-level vdevs; returns when that is committed. `ashift` as in a new pool. What the devices held is lost.
    pub async fn add(self: &Arc<Self>, tops: Vec<NewTop>, ashift: Option<u8>) -> Result<()> {
        self.change(move |s| async move { add_tops(&s, &tops, ashift).await }).await
    }
}

async fn add_tops(s: &Syncing, tops: &[NewTop], ashift: Option<u8>) -> Result<()> {
    let mut devices = Devices::new();
    let mut configs = Vec::new();
    let vdevs = s.pool.pool().vdevs();
    // All of them are checked before the first is added.
    for (id, top) in (vdevs.tops.len()..).zip(tops) {
        let id = u32::try_from(id).map_err(|_| Error::Invalid("there are too many vdevs".into()))?;
        configs.push(top_config(top, VdevId(id), ashift, s.txg(), &**s.pool.env(), &mut devices)?);
    }
    for (config, top) in configs.into_iter().zip(tops) {
        let id = vdevs.add_top(&config, &devices)?;
        if let Some(added) = vdevs.top(id) {
            let _ = added.class.set(top.class);
        }
        let pool_config = s.pool.config().clone();
        label_new(s.pool.pool(), &pool_config, &config).await?;
        s.pool.config().root.children.push(config);
        take_up_top(s, id as usize).await?;
    }
    Ok(())
}
