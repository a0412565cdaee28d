//! Creating filesystems, volumes and clones.

use std::sync::Arc;

use engine::dsl::{Dataset, Dsl, Kind};
use engine::pool::live::LivePool;
use engine::properties::{Prop, kept};
use engine::vdev::{self, Class, Vdev};

use super::entry;
use super::keys::key_of_new;
use super::userspace::{set_quotas_at_once, take_quotas};
use crate::api::{self, ApiError, Created, DatasetKind};
use crate::daemon::names;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks::{self, New};
use crate::daemon::{Daemon, OpenPool, not_of_this_type};
use crate::sizes::parse_size;

/// Default block size of a volume.
const DEFAULT_VOLBLOCKSIZE: u64 = 16 << 10;

impl Daemon {
    /// Creates a filesystem or a volume.
    ///
    /// # Errors
    /// A bad name or property; it exists; no room.
    pub async fn create_dataset(&self, request: api::CreateDataset) -> Result<Created, ApiError> {
        let name = &request.name;
        let doing = format!("cannot {} '{name}'", if request.dry_run { "verify" } else { "create" });
        let kind = if request.volume_bytes.is_some() { DatasetKind::Volume } else { DatasetKind::Filesystem };
        names::check_dataset_name("create", name, kind)?;
        let pool = self.pool_for(&doing, name)?;
        let live = pool.writable(&doing)?;
        let dsl = pool.dsl().await.map_err(|error| said(&doing, error))?;
        let is_wanted = |there| match kind {
            DatasetKind::Volume => there == Kind::Volume,
            _ => there == Kind::Filesystem,
        };
        let parents = match missing_parents(&dsl, name, request.parents.then_some(&is_wanted), &doing).await?
        {
            Some(parents) => parents,
            None => return Ok(Created::default()),
        };
        drop(dsl);
        pool.check_zone(&doing, names::parent_of(name), &request.properties).await?;
        let mut properties = request.properties.clone();
        let quotas = take_quotas(&doing, &mut properties)?;
        if !quotas.is_empty() && request.volume_bytes.is_some() {
            return Err(ApiError::invalid(format!("{doing}: quotas of users do not apply to volumes")));
        }
        let mut warnings = kept::notes(&request.properties);
        warnings.extend(self.nfs_notes(&request.properties));
        let volume = match request.volume_bytes {
            Some(bytes) => {
                let block = volume_block(live, &mut properties, &doing, &mut warnings)?;
                Some((whole_blocks(bytes, block, &doing)?, request.sparse))
            }
            None => None,
        };
        let above = parents.first().unwrap_or(name);
        let above = names::parent_of(above).unwrap_or_default().to_owned();
        let mut all: Vec<New> = parents.iter().map(New::filesystem).collect();
        let key = match request.dry_run {
            true => None,
            // Before others are kept from changing the pool: it may take a while.
            false => key_of_new(&doing, &**live.env(), &properties, request.key.clone())?,
        };
        let new = New { name: name.clone(), volume, properties: properties.clone(), key };
        all.push(new.clone());
        let adding = pool.add().await?;
        let dry_run = request.dry_run;
        let command = request.command.clone().filter(|_| !dry_run);
        let done = sync_tasks::change(live, command, move |s| async move {
            let reserved = sync_tasks::check_create(&s, &new, &above, dry_run).await?;
            if !dry_run {
                for new in &all {
                    sync_tasks::create(&s, new).await?;
                }
            }
            Ok(reserved)
        });
        let reserves = matches!(volume, Some((_, false)));
        let reserved = done.await.map_err(|error| match error {
            engine::Error::NoSpace(_) if reserves => {
                let ApiError { kind, message } = said(&doing, error);
                ApiError { kind, message: format!("{message}; -s reserves nothing for a volume") }
            }
            error => said(&doing, error),
        })?;
        let properties = shown(volume, &request.properties, properties, reserved);
        let created =
            Created { created: true, parents: parents.clone(), properties, warnings, unmounted: Vec::new() };
        if request.dry_run {
            return Ok(created);
        }
        set_quotas_at_once(&pool, live, name, &quotas).await.map_err(|error| said(&doing, error))?;
        drop(adding);
        Ok(self.serve_new(&pool, name, request.no_mount, created).await)
    }

    /// Makes a filesystem or volume out of a snapshot.
    ///
    /// # Errors
    /// As for creating one.
    pub async fn clone_snapshot(&self, request: api::CloneSnapshot) -> Result<Created, ApiError> {
        let (snapshot, name) = (&request.snapshot, &request.target);
        let doing = format!("cannot create '{name}'");
        names::check_dataset_name("create", name, DatasetKind::Filesystem)?;
        let of = self.pool_of(snapshot)?;
        let open = |error| crate::daemon::dataset_error("open", snapshot, error);
        let dsl = of.dsl().await.map_err(open)?;
        let origin = dsl.entry(snapshot).await.map_err(open)?;
        if !matches!(origin.kind, Kind::Snapshot { .. }) {
            return Err(not_of_this_type(snapshot));
        }
        if origin.dataset().is_some_and(Dataset::is_taken_for_copy) {
            return Err(ApiError::busy(format!(
                "{doing}: '{snapshot}' goes when the copy of its volume is complete; take a snapshot of your \
                 own"
            )));
        }
        if names::pool_of(snapshot) != names::pool_of(name) {
            return Err(ApiError::invalid(format!("{doing}: source and target pools differ")));
        }
        let live = of.writable(&doing)?;
        let is_wanted = |there| matches!(there, Kind::Filesystem | Kind::Volume);
        let parents = match missing_parents(&dsl, name, request.parents.then_some(&is_wanted), &doing).await?
        {
            Some(parents) => parents,
            None => return Ok(Created::default()),
        };
        drop(dsl);
        of.check_zone(&doing, names::parent_of(name), &request.properties).await?;
        let mut properties = request.properties.clone();
        let quotas = take_quotas(&doing, &mut properties)?;
        if !quotas.is_empty() && origin.kind == (Kind::Snapshot { of_volume: true }) {
            return Err(ApiError::invalid(format!("{doing}: quotas of users do not apply to volumes")));
        }
        let adding = of.add().await?;
        let new = New { properties, ..New::filesystem(name) };
        let (from, above) = (snapshot.clone(), parents.clone());
        let done = sync_tasks::change(live, request.command.clone(), move |s| async move {
            for name in above {
                sync_tasks::create(&s, &New::filesystem(name)).await?;
            }
            sync_tasks::clone(&s, &from, &new).await
        });
        done.await.map_err(|error| said(&doing, error))?;
        set_quotas_at_once(&of, live, name, &quotas).await.map_err(|error| said(&doing, error))?;
        drop(adding);
        let created = Created {
            created: true,
            parents: parents.clone(),
            warnings: [kept::notes(&request.properties), self.nfs_notes(&request.properties)].concat(),
            properties: request.properties,
            ..Created::default()
        };
        Ok(self.serve_new(&of, name, request.no_mount, created).await)
    }

    /// Mounts or exports a dataset and its parents that were just created, and notes what went wrong with
    /// that.
    async fn serve_new(
        &self,
        pool: &Arc<OpenPool>,
        name: &str,
        no_mount: bool,
        mut created: Created,
    ) -> Created {
        // Another request may have closed the pool, or changed what was created.
        let changing = match pool.change().await {
            Ok(changing) => changing,
            Err(error) => {
                created.warnings.push(format!("'{name}' was created and is not served: {}", error.message));
                return created;
            }
        };
        if let Err(error) = pool.follow_volumes().await {
            created.warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
        let parents = created.parents.clone();
        for name in parents.iter().map(String::as_str).chain([name]).filter(|_| !no_mount) {
            if let Err(error) = self.mount_if_wanted(pool, &changing, name).await {
                let message = error.message;
                let text = format!("{message}\nfilesystem successfully created, but not mounted");
                created.unmounted.push(text);
            }
        }
        created
    }
}

/// The properties of a new dataset, as `zfs create -v` prints them: the size of a volume, what was typed,
/// and what follows from that.
fn shown(
    volume: Option<(u64, bool)>,
    typed: &[(String, String)],
    all: Vec<(String, String)>,
    reserved: Option<u64>,
) -> Vec<(String, String)> {
    let size = volume.map(|(bytes, _)| ("volsize".to_owned(), bytes.to_string()));
    let is_new = |name: &str| !typed.iter().any(|(other, _)| other == name);
    let follows = all.into_iter().filter(|(name, _)| is_new(name));
    let mut shown: Vec<_> = size.into_iter().chain(typed.iter().cloned()).chain(follows).collect();
    let reserved = reserved.filter(|_| matches!(volume, Some((_, false))) && is_new("refreservation"));
    shown.extend(reserved.map(|bytes| ("refreservation".to_owned(), bytes.to_string())));
    shown
}

/// The names above `name` that do not exist, the uppermost first. With `may_be`, they may be created, and
/// `name` itself may exist where it is of a kind that this allows: then there are none.
pub(super) async fn missing_parents(
    dsl: &Dsl,
    name: &str,
    may_be: Option<&(dyn Fn(Kind) -> bool + Sync)>,
    doing: &str,
) -> Result<Option<Vec<String>>, ApiError> {
    let look = async |name: &str| entry(dsl, name).await.map_err(|error| said(doing, error));
    if let Some(there) = look(name).await? {
        return match may_be.is_some_and(|may_be| may_be(there.kind)) {
            true => Ok(None),
            false => Err(ApiError::busy(format!("{doing}: dataset already exists"))),
        };
    }
    let mut missing = Vec::new();
    let mut above = names::parent_of(name);
    while let Some(parent) = above {
        match look(parent).await? {
            Some(there) if there.kind != Kind::Filesystem => {
                return Err(ApiError::invalid(format!("{doing}: parent is not a filesystem")));
            }
            Some(_) => break,
            None if may_be.is_none() => {
                return Err(ApiError::not_found(format!("{doing}: parent does not exist")));
            }
            None => missing.push(parent.to_owned()),
        }
        above = names::parent_of(parent);
    }
    if names::parent_of(name).is_none() {
        return Err(ApiError::invalid(format!(
            "{doing}: missing dataset name\nuse 'zpool create {name}' to create a pool"
        )));
    }
    missing.reverse();
    Ok(Some(missing))
}

/// The block size of a new volume: what is said, and then perhaps a word of warning; else one that the vdevs
/// can store without much waste, which becomes one of its properties if it is not the default
/// (`default_volblocksize`).
fn volume_block(
    live: &LivePool,
    properties: &mut Vec<(String, String)>,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<u64, ApiError> {
    let unit = largest_unit(live);
    let mut advised = DEFAULT_VOLBLOCKSIZE;
    while advised * 2 <= unit {
        advised *= 2;
    }
    let is_block_size = |name: &str| Prop::from_name(name) == Some(Prop::Volblocksize);
    let Some((_, text)) = properties.iter().rev().find(|(name, _)| is_block_size(name)) else {
        if advised != DEFAULT_VOLBLOCKSIZE {
            properties.push(("volblocksize".to_owned(), advised.to_string()));
        }
        return Ok(advised);
    };
    let block = parse_size(text)
        .map_err(|why| ApiError::invalid(format!("{doing}: bad volume block size '{text}': {why}")))?;
    if block < DEFAULT_VOLBLOCKSIZE {
        warnings.push(format!(
            "Warning: volblocksize ({block}) is less than the default minimum block size \
             ({DEFAULT_VOLBLOCKSIZE}).\n\
             To reduce wasted space a volblocksize of {advised} is recommended."
        ));
    } else if block < advised {
        warnings.push(format!(
            "Warning: volblocksize ({block}) is much less than the minimum allocation\n\
             unit ({unit}), which wastes at least {}% of space. To reduce wasted space,\n\
             use a larger volblocksize ({advised} is recommended), fewer dRAID data disks\n\
             per group, or smaller sector size (ashift).",
            100 * (unit - block) / unit
        ));
    }
    Ok(block)
}

/// The largest of the units in which the normal vdevs of a pool allocate (`vdev_get_min_alloc`).
fn largest_unit(live: &LivePool) -> u64 {
    let tops = live.pool().vdevs().tops.iter().filter(|top| top.class() == Class::Normal);
    let unit = |top: &Vdev| {
        let columns = match &top.kind {
            vdev::Kind::Draid(draid) => draid.config().data as u64,
            _ => 1,
        };
        columns << top.ashift
    };
    tops.map(unit).max().unwrap_or(512)
}

/// A volume's size, rounded up to whole blocks.
fn whole_blocks(bytes: u64, block: u64, doing: &str) -> Result<u64, ApiError> {
    if bytes == 0 {
        return Err(ApiError::invalid(format!("{doing}: volume size cannot be zero")));
    }
    bytes
        .checked_next_multiple_of(block.max(1))
        .ok_or_else(|| ApiError::invalid(format!("{doing}: volume size is too large")))
}
