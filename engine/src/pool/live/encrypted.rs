//! Encrypted datasets whose keys come and go while the pool is open.
//!
//! # The idea
//! A dataset is written with the key that the pool's [`Keystore`] has for its object set. What needs no key
//! goes on without: snapshots, destroying, the space that blocks take, scrubs, resilvers, and claiming intent
//! logs. Opening a filesystem or volume needs the key.
//!
//! A log that was found at import, of a dataset whose key is not loaded, is claimed and stays. It is replayed
//! when the key is there: [`LivePool::replay_unlocked`] is for callers that load keys, and opening the
//! filesystem or volume does it in any case, before anything reads or changes what the log will change.
//! Destroying the dataset, or rolling it back, gives the log up in the same change.
//!
//! # Invariants
//! - A key is never unloaded while its dataset has changes that are not committed: the group could not be
//!   written without it. [`LivePool::unload_key`] first has them committed and closes the datasets.
//! - An object set that was opened without its key was not authenticated. It is closed before the key is
//!   used, and opened anew with it.
//!
//! [`Keystore`]: crate::store::keystore::Keystore

use std::sync::Arc;

use futures_util::future::BoxFuture;
use ondisk::ObjsetId;

use super::LivePool;
use crate::dsl::{Dsl, LiveDataset};
use crate::error::{Error, Result};

/// How often datasets are asked to become clean before the key is said to be in use.
const PATIENCE: usize = 8;

impl LivePool {
    /// Makes a dataset ready to be used: its key is loaded, and its log is replayed. A plain dataset is.
    ///
    /// # Errors
    /// [`Error::KeyNotLoaded`]; the log cannot be replayed.
    pub(super) async fn unlocked(self: &Arc<Self>, dataset: &LiveDataset) -> Result<()> {
        if dataset.objset.key()?.is_none() || !dataset.zil.needs_replay() {
            return Ok(());
        }
        let replay: BoxFuture<'_, Result<()>> = Box::pin(async {
            let _replaying = dataset.replaying.lock().await;
            if dataset.zil.needs_replay() {
                let replayed = self.replay_onto(dataset).await?;
                let objset = dataset.objset.id();
                tracing::info!(%objset, records = replayed.records, "intent log replayed");
            }
            Ok(())
        });
        replay.await
    }

    /// Replays the logs of datasets whose keys are loaded by now. For the caller that loaded keys, before
    /// anything of these datasets is served.
    ///
    /// # Errors
    /// That of the first log that cannot be replayed; the others are. It stays, and its dataset cannot be
    /// opened.
    pub async fn replay_unlocked(self: &Arc<Self>) -> Result<()> {
        let mut failed = Ok(());
        for id in self.heads().await? {
            if !self.pool.keystore().is_loaded(id) {
                continue;
            }
            let replayed = async {
                let dataset = self.dataset(id).await?;
                self.unlocked(&dataset).await
            };
            failed = failed.and(replayed.await);
        }
        failed
    }

    /// Gives back the intent log of a dataset whose contents are about to be replaced. One that waits for its
    /// key to be replayed is given up, whatever becomes of the change.
    pub fn close_log(self: &Arc<Self>, id: ObjsetId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let dataset = self.dataset(id).await?;
            match self.unlocked(&dataset).await {
                Err(Error::KeyNotLoaded { .. }) => dataset.zil.discard().await?,
                unlocked => unlocked?,
            }
            dataset.zil.close().await
        })
    }

    /// Gives back the intent log of a dataset that is to be destroyed or rolled back, unless it waits for its
    /// key to be replayed: then the change gives it up, and one that fails leaves it.
    pub fn settle_log(self: &Arc<Self>, id: ObjsetId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let dataset = self.dataset(id).await?;
            match self.unlocked(&dataset).await {
                Err(Error::KeyNotLoaded { .. }) => Ok(()),
                unlocked => {
                    unlocked?;
                    dataset.zil.close().await
                }
            }
        })
    }

    /// Unloads the key of the encryption root `name`, after everything that was changed with it is committed
    /// and its datasets are closed.
    ///
    /// # Errors
    /// A dataset with this key is in use; `name` is no encryption root, or its key is not loaded.
    pub async fn unload_key(self: &Arc<Self>, name: &str) -> Result<()> {
        for _ in 0..PATIENCE {
            let users = self.users_of_key(name).await?;
            for id in &users {
                let open = self.datasets().get(id).cloned();
                if let Some(open) = open {
                    open.zil.close().await?;
                }
            }
            // What else is dirty is in the open group at the latest.
            self.txgs().wait_synced(self.txgs().open_txg()).await?;
            let _turn = self.syncing.take().await;
            if users.iter().all(|id| self.dsl.close(*id)) {
                return Dsl::open_in(self.mos().view()).await?.unload_key(name).await;
            }
        }
        Err(Error::Busy(format!("the key of '{name}' is in use")))
    }

    /// The heads that are written with the key of an encryption root.
    async fn users_of_key(self: &Arc<Self>, name: &str) -> Result<Vec<ObjsetId>> {
        let _turn = self.syncing.take().await;
        let dsl = Dsl::open_in(self.mos().view()).await?;
        let root = dsl.encryption_root_of(name).await?.dir.object;
        let mut users = Vec::new();
        for dir in dsl.dirs(dsl.root()).await? {
            if dsl.encryption_root(&dir).await?.is_some_and(|used| used.object == root) {
                users.push(ObjsetId(dir.phys.head_dataset.get()));
            }
        }
        Ok(users)
    }
}
