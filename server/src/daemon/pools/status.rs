//! The health of open pools and of pools that could be imported.
//!
//! The engine judges; this module asks it for the right pools and adds facts that the engine does not have:
//! where filesystems are mounted, and which host this is.

use std::path::PathBuf;

use engine::dsl::Dsl;
use engine::jobs::JobState;
use engine::pool::discovery::FoundPool;
use engine::pool::live::{LivePool, Sweep, sweeps_of};
use engine::pool::{errlog, status};
use ondisk::ObjectId;
use ondisk::features::Feature;
use ondisk::nvlist::ByteString;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;

use super::properties::features_of;
use crate::api::edge::Edge;
use crate::api::{
    self, ApiError, DamagedRange, Dedup, DedupRow, ImportablePool, Listed, PoolHealth, PoolStatus, Reason,
};
use crate::daemon::host::host_id;
use crate::daemon::sync_tasks::features_missing;
use crate::daemon::{Daemon, OpenPool, dataset_error};

impl Daemon {
    /// The health of open pools.
    ///
    /// # Errors
    /// None: a pool that cannot be told of becomes an entry of `failed`.
    pub async fn status(&self, request: api::GetStatus) -> Result<Listed<PoolStatus>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            match pool_status(&pool, &request).await {
                Ok(status) => listed.entries.push(status),
                Err(error) => listed.failed.push(dataset_error("read the status of", pool.name(), error)),
            }
        }
        Ok(listed)
    }

    /// Looks for pools that could be imported.
    ///
    /// # Errors
    /// The error of the search.
    pub async fn discover(&self, request: api::DiscoverPools) -> Result<Vec<ImportablePool>, ApiError> {
        let mut found = match &request.cachefile {
            Some(file) => self.search_cached(file).await?,
            None => self.search(&request.search).await?,
        };
        found.retain(|pool| (pool.state() == PoolState::Destroyed) == request.destroyed);
        if let Some(wanted) = &request.pool {
            found.retain(|pool| pool.name == *wanted || wanted.parse() == Ok(pool.guid.0));
        }
        found.sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
        let mut pools = Vec::new();
        for pool in found {
            pools.push(importable(pool).await);
        }
        Ok(pools)
    }
}

async fn importable(found: FoundPool) -> ImportablePool {
    let preview = status::preview(&found, host_id()).await;
    let label = &found.label;
    let text =
        |text: &Option<ByteString>| text.as_ref().map(|text| String::from_utf8_lossy(text.as_bytes()).into());
    ImportablePool {
        guid: found.guid.0,
        state: preview.state.edge(),
        destroyed: label.state == PoolState::Destroyed,
        exported: label.state != PoolState::Active,
        version: label.version,
        reason: preview.reason.edge(),
        errata: preview.errata,
        comment: text(&label.comment),
        hostname: text(&label.host_name),
        hostid: label.host_id.unwrap_or(0),
        timestamp: preview.timestamp,
        unknown_features: preview.unknown_features,
        missing_tops: preview.missing_tops,
        vdevs: preview.vdevs.edge(),
        duplicates: preview.duplicates,
        name: found.name,
    }
}

async fn pool_status(open: &OpenPool, request: &api::GetStatus) -> engine::Result<PoolStatus> {
    if let Some(live) = open.live() {
        live.diagnose().await;
        if let Some((_, mode)) = live.suspended() {
            let pool = live.view();
            return Ok(PoolStatus {
                name: open.name().to_owned(),
                guid: pool.guid().0,
                txg: pool.uberblock().txg.0,
                version: pool.uberblock().version,
                health: status::health_of_suspended(&pool, mode).await.edge(),
                error_files: Vec::new(),
                damaged: Vec::new(),
                dedup: None,
                sweeps: Vec::new(),
                counting: None,
                pruning: None,
                reshapes: open.reshapes(),
            });
        }
    }
    let dsl = open.dsl().await?;
    let pool = dsl.pool();
    let health = match open.live() {
        Some(live) => status::health_of_live(&dsl, live).await?,
        None => status::health(&dsl).await?,
    };
    let mut health: PoolHealth = health.edge();
    // Features that are not maintained here are no reason to upgrade a pool that is written here.
    if health.reason == Reason::FeaturesDisabled
        && open.live().is_some_and(|live| features_missing(live).is_empty())
    {
        health.reason = Reason::Ok;
    }
    if let (Reason::Ok, Some(live)) = (health.reason, open.live())
        && pool.uberblock().version == version::FEATURES
    {
        health.reason = by_compatibility(live);
    }
    let (error_files, damaged) = match request.files {
        true => error_files(open, &dsl).await?,
        false => Default::default(),
    };
    Ok(PoolStatus {
        name: open.name().to_owned(),
        guid: pool.guid().0,
        txg: pool.uberblock().txg.0,
        version: pool.uberblock().version,
        health,
        error_files,
        damaged,
        dedup: if request.dedup { Some(dedup(open, &dsl, request.dedup_cached).await?) } else { None },
        sweeps: sweeps(open, &dsl).await?,
        counting: counting(open, &dsl).await,
        pruning: pruning(open),
        reshapes: open.reshapes(),
    })
}

/// Whether a pool has the features that the lists of its `compatibility` name, and no others.
fn by_compatibility(live: &LivePool) -> Reason {
    let requested = match features_of(&live.compatibility().unwrap_or_default()) {
        Ok(Some(requested)) => requested,
        Ok(None) => return Reason::Ok,
        Err(_) => return Reason::CompatibilityError,
    };
    for feature in Feature::ALL.iter().filter(|feature| feature.is_upgraded()) {
        match (requested.contains(feature), live.feature_count(*feature).is_some()) {
            (true, false) => return Reason::FeaturesDisabled,
            (false, true) => return Reason::IncompatibleFeatures,
            _ => {}
        }
    }
    Reason::Ok
}

async fn counting(open: &OpenPool, dsl: &Dsl) -> Option<api::Counting> {
    let status = open.live()?.quota_upgrade()?;
    // One that was destroyed meanwhile has no name.
    let filesystem = dsl.name_of_object(ObjectId(status.filesystem.get())).await.ok()?;
    Some(api::Counting {
        filesystem,
        start_time: status.start_time,
        to_count: status.total_objects,
        counted: status.done_objects,
        waiting: status.waiting as u64,
    })
}

fn pruning(open: &OpenPool) -> Option<api::Pruning> {
    let status = open.live()?.dedup_prune()?;
    Some(api::Pruning {
        start_time: status.start_time,
        to_look_at: status.total,
        looked_at: status.looked_at,
        pruned: status.pruned,
        waiting: status.waiting as u64,
    })
}

async fn sweeps(open: &OpenPool, dsl: &Dsl) -> engine::Result<Vec<api::Sweeping>> {
    let known = match open.live() {
        Some(live) => live.sweeps(),
        None => sweeps_of(dsl).await?,
    };
    let told = known.into_iter().map(|((work, guid), run)| api::Sweeping {
        guid: guid.0,
        work: match work {
            Sweep::Initialize => api::Sweep::Initialize,
            Sweep::Trim => api::Sweep::Trim,
        },
        state: match run.state {
            JobState::Active => api::SweepState::Active,
            JobState::Suspended => api::SweepState::Suspended,
            JobState::Complete => api::SweepState::Complete,
            JobState::Canceled => api::SweepState::Canceled,
        },
        done_bytes: run.done,
        total_bytes: run.total,
        time: run.time,
    });
    Ok(told.collect())
}

/// Statistics of the dedup tables.
async fn dedup(open: &OpenPool, dsl: &Dsl, with_cached: bool) -> engine::Result<Dedup> {
    let live = open.live().map(|live| live.dedup_counters()).unwrap_or_default();
    let dedup = &dsl.pool_space().await?.dedup;
    let rows = (0..).zip(&dedup.by_references).filter(|(_, blocks)| blocks.blocks > 0);
    let rows = rows.map(|(log2_references, blocks)| DedupRow {
        log2_references,
        blocks: blocks.blocks,
        lsize: blocks.lsize,
        psize: blocks.psize,
        dsize: blocks.dsize,
        referenced_blocks: blocks.ref_blocks,
        referenced_lsize: blocks.ref_lsize,
        referenced_psize: blocks.ref_psize,
        referenced_dsize: blocks.ref_dsize,
    });
    Ok(Dedup {
        entries: dedup.entries,
        bytes_on_disk: dedup.table_bytes,
        bytes_in_core: dedup.memory_bytes,
        bytes_cached: if with_cached { Some(dsl.dedup_cached_bytes().await?) } else { None },
        logged_entries: live.logged_entries,
        flushing_entries: live.flushing_entries,
        histogram: rows.collect(),
    })
}

/// The files with damaged blocks, each once, and which bytes of them are damaged.
async fn error_files(open: &OpenPool, dsl: &Dsl) -> engine::Result<(Vec<String>, Vec<DamagedRange>)> {
    let mountpoints = open.mountpoints();
    let (mut files, mut damaged) = (Vec::new(), Vec::<DamagedRange>::new());
    for error in errlog::read(dsl).await? {
        let mountpoint = |name: &str| mountpoints.get(name).map(|path: &PathBuf| path.display().to_string());
        let file = errlog::describe(dsl, &error, &mountpoint).await;
        if let Some(bytes) = errlog::bytes_of(dsl, &error).await {
            let (offset, length) = (bytes.start, bytes.end - bytes.start);
            match damaged.last_mut().filter(|last| last.file == file && last.offset + last.length == offset) {
                Some(last) => last.length += length,
                None => damaged.push(DamagedRange { file: file.clone(), offset, length }),
            }
        }
        if files.last() != Some(&file) {
            files.push(file);
        }
    }
    Ok((files, damaged))
}
