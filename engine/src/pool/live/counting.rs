//! Filesystems that count more since the pool got features: files (`userobj_accounting`) and what projects use (`project_quota`).
//!
//! What is open begins when the features are enabled, the others when they are opened to be changed.

use std::sync::{Arc, PoisonError};

use ondisk::ObjsetId;
use ondisk::features::Feature;

use super::LivePool;
use crate::dataset::dsl::edit;
use crate::dataset::zpl::LiveZpl;

impl LivePool {
    /// Has open filesystems count what enabled features ask for.
    pub fn count_what_is_enabled(self: &Arc<Self>) {
        let open: Vec<_> = {
            let datasets = self.datasets();
            let written = datasets.iter().filter(|(_, dataset)| !dataset.is_read_only());
            let filesystem = |dataset: &super::LiveDataset| {
                dataset.filesystem.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
            };
            written.filter_map(|(id, dataset)| Some((*id, filesystem(dataset)?))).collect()
        };
        open.iter().for_each(|(id, zpl)| self.complete_counts(*id, zpl));
    }

    /// Begins to make complete what a filesystem counts, where it is not.
    pub(super) fn complete_counts(self: &Arc<Self>, id: ObjsetId, zpl: &Arc<LiveZpl>) {
        let is_enabled = |feature| self.features.count(feature).is_some();
        if !is_enabled(Feature::UserobjAccounting)
            || !zpl.objset().begin_counting(is_enabled(Feature::ProjectQuota))
        {
            return;
        }
        let (pool, objset) = (Arc::downgrade(self), Arc::clone(zpl.objset()));
        let zpl = Arc::downgrade(zpl);
        let driven = Arc::clone(&objset);
        let count = move || {
            let counted = device::block_on(async {
                let Some(live) = pool.upgrade() else { return Ok(()) };
                live.change(move |s| async move { edit::count_files(&s, id).await }).await?;
                drop(live);
                LiveZpl::count_all(&zpl).await
            });
            if let Err(error) = counted {
                tracing::warn!("objset {id}: what is used is not counted completely: {error}");
            }
            driven.pause_counting();
        };
        if let Err(error) = std::thread::Builder::new().name(format!("count {id}")).spawn(count) {
            tracing::warn!(%error, "objset {id}: what is used is not counted completely");
            objset.pause_counting();
        }
    }
}
