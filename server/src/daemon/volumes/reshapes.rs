//! Volumes that get another block size while clients use them.
//!
//! The engine copies them ([`engine::pool::live::ReshapeStatus`]). At the end it asks the pool that is served
//! to hold the clients of the volume: their requests wait, the copy takes the volume's name, and they go on
//! with it. The size and the data are the same then, and so is the number by which clients recognize a disk.
//! Clients of snapshots go on as before; the snapshots have the name of the old volume.
//!
//! While a volume is copied, it cannot be destroyed, renamed, rolled back or resized. The copy is no user's
//! dataset: it is neither served nor in recursive snapshots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::dsl::Kind;
use engine::jobs::JobState;
use engine::pool::live::{LivePool, ReshapeStatus, Swapped, VolumeUsers};
use engine::zvol::Extent;
use futures_util::future::LocalBoxFuture;

use super::sharing;
use crate::api::{self, ApiError, ReshapeAction, ReshapePlan, ReshapeState, ReshapeTime, Reshaping};
use crate::daemon::refusals::refused;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks;
use crate::daemon::{Daemon, OpenPool, dataset_error};

/// How long requests of clients may take that the exchange waits for. Then they go on, and it is tried again.
const REQUESTS_LIMIT: Duration = Duration::from_secs(2);

/// To say how long it takes, so much is read of a volume, or for so long.
const SAMPLE_BYTES: u64 = 64 << 20;
const SAMPLE_TIME: Duration = Duration::from_millis(500);
const SAMPLE_READ_BYTES: u64 = 1 << 20;
/// Places of the volume that are read, as far apart as they can be.
const SAMPLE_PLACES: u64 = 16;
/// Data are read and written.
const TIMES_SAMPLED: u64 = 2;

impl OpenPool {
    /// Has volumes whose copies are complete be exchanged for them.
    pub(in crate::daemon) fn serve_reshapes(self: &Arc<Self>) {
        if let Some(live) = self.live() {
            let users: Arc<dyn VolumeUsers> = Arc::<Self>::clone(self);
            live.set_volume_users(Arc::downgrade(&users));
        }
    }

    fn unfinished(&self) -> impl Iterator<Item = ReshapeStatus> {
        let all = self.live().map(|live| live.reshapes()).unwrap_or_default();
        all.into_iter().filter(is_unfinished)
    }

    /// The names of copies that are not complete.
    pub(in crate::daemon) fn unfinished_copies(&self) -> Vec<String> {
        self.unfinished().map(|reshape| reshape.copy).collect()
    }

    /// Refuses what cannot be done to volumes, or their copies, while they are copied.
    pub(in crate::daemon) fn refuse_reshaped(
        &self,
        doing: &str,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<(), ApiError> {
        match self.unfinished().find(|reshape| is_meant(&reshape.volume) || is_meant(&reshape.copy)) {
            Some(reshape) => Err(refusal(doing, &reshape)),
            None => Ok(()),
        }
    }

    /// Refuses what cannot be done to copies that are not complete.
    pub(in crate::daemon) fn refuse_copies(
        &self,
        doing: &str,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<(), ApiError> {
        match self.unfinished().find(|reshape| is_meant(&reshape.copy)) {
            Some(reshape) => Err(refusal(doing, &reshape)),
            None => Ok(()),
        }
    }

    /// How they stand.
    pub(in crate::daemon) fn reshapes(&self) -> Vec<Reshaping> {
        let all = self.live().map(|live| live.reshapes()).unwrap_or_default();
        all.into_iter().map(told).collect()
    }

    async fn exchange_volume(
        &self,
        live: &Arc<LivePool>,
        volume: &str,
        exchange: LocalBoxFuture<'_, engine::Result<Swapped>>,
    ) -> engine::Result<Option<Swapped>> {
        // A request that changes the pool may wait for this very work.
        let Some(_changing) = self.try_change() else { return Ok(None) };
        let Ok(mut clients) = self.hold_clients(volume, REQUESTS_LIMIT) else { return Ok(None) };
        let swapped = exchange.await?;
        clients.replaced();
        self.rename_snapshot_clients(&swapped.volume, &swapped.kept);
        let went_on = async {
            let dataset = self.dsl().await?.find(&swapped.volume).await?;
            clients.go_on_with(live, &dataset).await
        };
        if let Err(error) = went_on.await {
            tracing::warn!(volume, %error, "clients of a volume were disconnected");
        }
        if let Err(error) = sharing::leave_target(self, live, &swapped.kept).await {
            tracing::warn!(volume = swapped.kept, %error, "an old volume is shared as it was");
        }
        if let Err(error) = self.find_volumes().await {
            tracing::warn!(%error, pool = self.name(), "not all volumes are served");
        }
        Ok(Some(swapped))
    }
}

impl VolumeUsers for OpenPool {
    fn exchange<'a>(
        &'a self,
        volume: &'a str,
        exchange: LocalBoxFuture<'a, engine::Result<Swapped>>,
    ) -> LocalBoxFuture<'a, engine::Result<Option<Swapped>>> {
        Box::pin(async move {
            match self.live() {
                Some(live) => self.exchange_volume(live, volume, exchange).await,
                None => Ok(None),
            }
        })
    }
}

fn is_unfinished(reshape: &ReshapeStatus) -> bool {
    matches!(reshape.job.state, JobState::Active | JobState::Suspended)
}

fn refusal(doing: &str, reshape: &ReshapeStatus) -> ApiError {
    let ReshapeStatus { volume, copy, .. } = reshape;
    ApiError::busy(format!(
        "{doing}: dataset is busy\nvolume '{volume}' is being copied to '{copy}' for another volblocksize; \
         'cenote reshape {volume} --cancel' gives that up"
    ))
}

fn told(reshape: ReshapeStatus) -> Reshaping {
    let job = reshape.job;
    let seconds = |time: Duration| time.as_secs();
    Reshaping {
        state: match job.state {
            JobState::Active => ReshapeState::Active,
            JobState::Suspended => ReshapeState::Paused,
            JobState::Complete => ReshapeState::Complete,
            JobState::Canceled => ReshapeState::Canceled,
        },
        done_bytes: job.done.min(job.total),
        total_bytes: job.total,
        bytes_per_second: job.rate,
        seconds_left: job.time_left().map(seconds),
        last_pass_milliseconds: reshape
            .last_pass
            .map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        start_time: job.time,
        pass: reshape.pass,
        volume: reshape.volume,
        copy: reshape.copy,
        kept: reshape.kept,
        old_volblocksize: reshape.old_block_bytes,
        new_volblocksize: reshape.new_block_bytes,
        error: reshape.error,
    }
}

impl Daemon {
    /// Begins to give a volume another block size, or pauses, resumes or cancels that.
    ///
    /// # Errors
    /// It is no volume, the size is none that it can have, there is no room; nothing is under way.
    pub async fn reshape_volume(&self, request: api::ReshapeVolume) -> Result<Option<ReshapePlan>, ApiError> {
        let name = &request.volume;
        let pool = self.pool_of(name)?;
        let doing = match request.action {
            ReshapeAction::Start => format!("cannot change volblocksize of '{name}'"),
            ReshapeAction::Pause => format!("cannot pause the copy of '{name}'"),
            ReshapeAction::Resume => format!("cannot resume the copy of '{name}'"),
            ReshapeAction::Cancel => format!("cannot cancel the copy of '{name}'"),
        };
        let live = pool.writable(&doing)?;
        if request.action == ReshapeAction::Start {
            return self.begin_reshape(&pool, &doing, &request).await.map(Some);
        }
        let done = async {
            match request.action {
                ReshapeAction::Pause => live.pause_reshape(name).await,
                ReshapeAction::Resume => live.resume_reshape(name).await,
                ReshapeAction::Cancel => live.cancel_reshape(name).await,
                ReshapeAction::Start => Ok(()),
            }
        };
        done.await.map_err(|error| refused(&doing, error))?;
        sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        Ok(None)
    }

    async fn begin_reshape(
        &self,
        pool: &Arc<OpenPool>,
        doing: &str,
        request: &api::ReshapeVolume,
    ) -> Result<ReshapePlan, ApiError> {
        let (live, name, block) = (pool.writable(doing)?, &request.volume, request.volblocksize);
        let failed = |error| dataset_error("open", name, error);
        let entry = pool.dsl().await.map_err(failed)?.entry(name).await.map_err(failed)?;
        if entry.kind != Kind::Volume {
            return Err(crate::daemon::not_of_this_type(name));
        }
        let _changing = pool.change().await?;
        let time = time_of(live, name).await;
        let plan = match request.dry_run {
            true => live.plan_reshape(name, block).await,
            false => live.reshape(name, block).await,
        };
        let plan = plan.map_err(|error| said(doing, error))?;
        if !request.dry_run {
            sync_tasks::change(live, request.command.clone(), |_| async { Ok(()) }).await?;
        }
        Ok(ReshapePlan {
            time,
            volume: plan.volume,
            copy: plan.copy,
            kept: plan.kept,
            old_volblocksize: plan.old_block_bytes,
            new_volblocksize: plan.new_block_bytes,
            data_bytes: plan.data_bytes,
            needed_bytes: plan.needed_bytes,
            available_bytes: plan.available_bytes,
        })
    }

    /// How volumes stand that get another block size, or did since their pools were opened.
    ///
    /// # Errors
    /// None.
    pub fn list_reshapes(&self, request: &api::ListReshapes) -> Result<Vec<Reshaping>, ApiError> {
        let all = self.open_pools().into_iter().flat_map(|pool| pool.reshapes());
        let is_asked =
            |reshape: &Reshaping| request.volumes.is_empty() || request.volumes.contains(&reshape.volume);
        Ok(all.filter(is_asked).collect())
    }
}

/// How long copying a volume takes at least: a few places of it are read. What is in memory is read, too, and
/// is faster than the rest is going to be.
async fn time_of(live: &Arc<LivePool>, name: &str) -> Option<ReshapeTime> {
    let sampled = async {
        let id = engine::dsl::Dsl::open(&live.view()).await?.find(name).await?;
        let (data, volume) = (id.phys.uncompressed_bytes, live.volume(id.objset_id()).await?);
        drop(id);
        let (size, began) = (volume.size(), Instant::now());
        let mut sampled_bytes = 0u64;
        let mut buffer = vec![0; SAMPLE_READ_BYTES as usize];
        for place in 0..SAMPLE_PLACES {
            let until = size / SAMPLE_PLACES * (place + 1);
            let mut at = size / SAMPLE_PLACES * place;
            let most = sampled_bytes + SAMPLE_BYTES / SAMPLE_PLACES;
            while at < until && sampled_bytes < most && began.elapsed() < SAMPLE_TIME {
                let extent = volume.extents(at, (until - at).min(SAMPLE_READ_BYTES), 1).await?;
                let Some(Extent { length, is_hole }) = extent.first().copied() else { break };
                if is_hole {
                    let hole = volume.extents(at, until - at, 1).await?;
                    at += hole.first().map_or(length, |hole| hole.length);
                    continue;
                }
                volume.read_at(at, buffer.get_mut(..length as usize).unwrap_or_default()).await?;
                sampled_bytes += length;
                at += length;
            }
        }
        let took_ms = began.elapsed().as_millis().max(1);
        let per_second = u128::from(sampled_bytes) * 1000 / took_ms;
        let all = u128::from(data.min(size)) * u128::from(TIMES_SAMPLED);
        Ok::<_, engine::Error>((sampled_bytes > 0).then(|| ReshapeTime {
            seconds: u64::try_from(all.div_ceil(per_second.max(1))).unwrap_or(u64::MAX),
            sampled_bytes,
            bytes_per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
        }))
    };
    sampled.await.ok().flatten()
}
