//! How volumes are shared, and what protocols keep with them.
//!
//! Both are user properties, so that they go where the pool goes: [`shares::PROPERTY`], which people set, and
//! [`KEPT`], which is a protocol's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use engine::dsl::Dataset;
use engine::pool::live::LivePool;
use tokio::sync::oneshot;

use super::exports::NO_KEY;
use super::list::Volume;
use crate::api::{self, ApiError, Listed, SharedThrough, VolumeShares};
use crate::block::{Protocol, shares};
use crate::daemon::{Daemon, OpenPool, dataset_error};
use crate::daemon::{names, sync_tasks};

/// The user property of volumes with what a protocol keeps: persistent reservations of iSCSI.
const KEPT: &str = "org.cenote:reservations";

/// What a protocol kept with a volume: only what the volume has itself.
pub(in crate::daemon) async fn kept(pool: &OpenPool, name: &str) -> engine::Result<Option<String>> {
    let dsl = pool.dsl().await?;
    let dataset: Dataset = dsl.find(name).await?;
    Ok(dsl.user_text(&dataset, KEPT).await?.filter(|text| !text.is_empty()))
}

/// Keeps that, in place of what was kept before. A change of the pool may take its time and stack, so it has
/// a thread of its own.
pub(in crate::daemon) async fn keep(
    pool: Arc<OpenPool>,
    name: String,
    text: Option<String>,
) -> engine::Result<()> {
    let (sender, kept) = oneshot::channel();
    let work = move || drop(sender.send(device::block_on(store(&pool, name, text))));
    let thread = thread::Builder::new().name("reservations".into()).stack_size(device::STACK_BYTES);
    let failed = || engine::Error::Unsupported("no thread to keep reservations".into());
    thread.spawn(work).map_err(|_| failed())?;
    kept.await.unwrap_or_else(|_| Err(failed()))
}

async fn store(pool: &OpenPool, name: String, text: Option<String>) -> engine::Result<()> {
    let Some(live) = pool.live() else {
        return Err(engine::Error::ReadOnly(format!("pool '{}' is open read-only", pool.name())));
    };
    let change = sync_tasks::change(live, None, move |s| async move {
        match text {
            Some(text) => sync_tasks::set(&s, &name, &[(KEPT.to_owned(), text)]).await.map(drop),
            None => sync_tasks::inherit(&s, &name, KEPT, false).await.map(drop),
        }
    });
    change.await
}

/// A volume that is no unit of a target any more, because another one has its place, is a target of its own.
/// Without that it would come back as that unit, with old data, when the other one goes.
pub(in crate::daemon) async fn leave_target(
    pool: &OpenPool,
    live: &Arc<LivePool>,
    name: &str,
) -> engine::Result<()> {
    let text = {
        let dsl = pool.dsl().await?;
        dsl.user_text(&dsl.find(name).await?, shares::PROPERTY).await?
    };
    let shares = text.and_then(|text| text.parse::<shares::Shares>().ok());
    let Some(own) = shares.and_then(shares::Shares::with_own_target) else { return Ok(()) };
    let name = name.to_owned();
    let change = sync_tasks::change(live, None, move |s| async move {
        let property = (shares::PROPERTY.to_owned(), own.to_string());
        sync_tasks::set(&s, &name, &[property]).await.map(drop)
    });
    change.await
}

/// Has volumes that were exchanged for a copy leave their targets, where a crash came between both.
///
/// An exchange gives each of the two volumes the other one's number to be recognized by. The one that was
/// made earlier is the old one; where the other one is still the same unit, this one leaves.
pub(in crate::daemon) async fn leave_targets(pool: &OpenPool) -> engine::Result<()> {
    let Some(live) = pool.live() else { return Ok(()) };
    let old = {
        let volumes = pool.volumes();
        let mut by_unit: HashMap<(String, u8), Vec<&Volume>> = HashMap::new();
        for volume in volumes.iter() {
            let Some(share) = volume.share(Protocol::Iscsi) else { continue };
            let Some(target) = share.target else { continue };
            by_unit.entry((target, share.lun)).or_default().push(volume);
        }
        by_unit.retain(|_, volumes| volumes.len() > 1);
        if by_unit.is_empty() {
            return Ok(());
        }
        let (dsl, mut old) = (pool.dsl().await?, Vec::new());
        for volumes in by_unit.values() {
            let mut datasets = Vec::new();
            for volume in volumes {
                datasets.push((volume, dsl.find(&volume.name).await?));
            }
            for (volume, dataset) in &datasets {
                let is_exchanged = |other: &Dataset| {
                    other.phys.guid == volume.guid && dataset.phys.creation_txg < other.phys.creation_txg
                };
                if datasets.iter().any(|(_, other)| is_exchanged(other)) {
                    old.push(volume.name.clone());
                }
            }
        }
        old
    };
    for name in &old {
        tracing::info!(volume = name, "an old volume leaves its target, where a copy has its place");
        leave_target(pool, live, name).await?;
    }
    if old.is_empty() { Ok(()) } else { pool.find_volumes().await }
}

/// Refuses a value of the property that makes no sense.
pub(in crate::daemon) fn check(doing: &str, properties: &[(String, String)]) -> Result<(), ApiError> {
    for (name, value) in properties {
        if name == shares::PROPERTY
            && let Err(fault) = value.parse::<shares::Shares>()
        {
            return Err(ApiError::invalid(format!("{doing}: {fault}")));
        }
    }
    Ok(())
}

impl Daemon {
    /// How volumes are shared.
    ///
    /// # Errors
    /// None: a name that is of nothing becomes an entry of `failed`.
    pub async fn list_shares(&self, request: api::ListShares) -> Result<Listed<VolumeShares>, ApiError> {
        let mut listed = Listed { entries: Vec::new(), failed: Vec::new() };
        let pools = self.open_pools();
        let lists: Vec<_> = pools.iter().map(|pool| pool.volumes()).collect();
        let is_listed = |volume: &&Volume| {
            !volume.name().contains('@') || request.names.iter().any(|n| n == volume.name())
        };
        let all = lists.iter().flat_map(|list| list.iter().chain(list.locked()));
        let volumes: Vec<&Volume> = all.filter(is_listed).collect();
        for name in &request.names {
            let is_meant = |volume: &&Volume| names::is_at_or_below(volume.name(), name);
            if !volumes.iter().any(is_meant) {
                let error = match self.pool_of(name) {
                    Err(error) => error,
                    Ok(pool) => match pool.dsl().await {
                        Ok(dsl) => match dsl.entry(name).await {
                            Ok(_) => continue,
                            Err(error) => dataset_error("open", name, error),
                        },
                        Err(error) => dataset_error("open", name, error),
                    },
                };
                listed.failed.push(error);
            }
        }
        let taken = |volume: &Volume, target: &str, lun: u8| {
            let before = volumes.iter().take_while(|other| other.name() != volume.name());
            before
                .filter_map(|other| Some((other, other.share(Protocol::Iscsi)?)))
                .find(|(_, share)| share.target.as_deref() == Some(target) && share.lun == lun)
                .map(|(other, _)| format!("unit {lun} of {target} is {}: it is not served", other.name()))
        };
        for &volume in &volumes {
            let meant = &request.names;
            if !meant.is_empty() && !meant.iter().any(|name| names::is_at_or_below(volume.name(), name)) {
                continue;
            }
            let locked = lists.iter().any(|list| list.is_locked(volume.name()));
            let through = Protocol::ALL.into_iter().filter_map(|protocol| {
                let share = volume.share(protocol)?;
                let taken = || share.target.as_deref().and_then(|target| taken(volume, target, share.lun));
                let fault = if locked { Some(NO_KEY.to_owned()) } else { taken() };
                Some(SharedThrough {
                    protocol: protocol.name().to_owned(),
                    uris: if fault.is_some() { Vec::new() } else { self.addresses_of(volume, protocol) },
                    initiators: share.initiators,
                    addresses: share.addresses.iter().map(ToString::to_string).collect(),
                    sector_bytes: share.sector.get(),
                    threshold_percent: share.threshold.get(),
                    fault,
                    not_listening: self.not_listening(volume, protocol),
                })
            });
            listed.entries.push(VolumeShares {
                name: volume.name().to_owned(),
                through: through.collect(),
                fault: volume.shares.as_ref().err().cloned(),
                waiting: pools.iter().flat_map(|pool| pool.waiting_requests(volume.name())).collect(),
            });
        }
        Ok(listed)
    }
}
