//! Keys of encrypted datasets that are forgotten while the pool is open for writing.
//!
//! What is open of the datasets, and not used, is closed first: its intent log ends with a group, after which
//! nothing of it waits to be written. The keys go as a task of a later group
//! ([`crate::dsl::edit::unload_key`]), which looks again.

use std::sync::Arc;

use super::LivePool;
use crate::dsl::{Dsl, LiveDataset, edit};
use crate::error::Result;

impl LivePool {
    /// Forgets the key of the encryption root called `name`, and closes what was open with it.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) where something that takes it is in use.
    pub async fn unload_key(self: &Arc<Self>, name: &str) -> Result<()> {
        for dataset in self.open_with_key_of(name).await? {
            dataset.zil.close().await?;
        }
        let name = name.to_owned();
        self.change(move |s| async move { edit::unload_key(&s, &name).await }).await
    }

    /// What is open of datasets whose keys are wrapped with that of a root.
    async fn open_with_key_of(&self, name: &str) -> Result<Vec<Arc<LiveDataset>>> {
        let dsl = Dsl::open(&self.view()).await?;
        let root = dsl.find_dir(name).await?;
        let users = dsl.key_users(&root).await?;
        let open = self.datasets();
        let heads = users.iter().map(|dir| ondisk::ObjsetId(dir.phys.head_dataset.get()));
        Ok(heads.filter_map(|head| open.get(&head).cloned()).collect())
    }
}
