//! Snapshots by schedule: which datasets have one, and what a run takes and destroys.
//!
//! The schedule is a user property of datasets ([`SNAPSHOT_SCHEDULE`]), so that it is inherited, seen by
//! `zfs get`, and goes where the pool goes. A value that came with a send stream is shown and not run: the
//! snapshots of a copy come from where it was sent from.
//!
//! | value of the dataset | it runs |
//! |---|---|
//! | set locally | yes |
//! | inherited from a dataset where it is set locally, with `recursive` | yes |
//! | inherited otherwise, or received | no |
//!
//! What is due, and what may go, is decided from the snapshots that are there ([`plan`]), never from what was
//! done before. All runs of a daemon take turns, and a pool is open in one daemon at a time. So neither two
//! commands nor a restart take two snapshots for one slot.
//!
//! The agents begin a run once in each quarter of an hour, and soon after the start of the daemon or the
//! import of a pool. It has a thread of its own, because a snapshot waits for a commit.

mod plan;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use self::plan::{Deed, Taken};
use crate::api::{
    self, AUTO_SNAPSHOT, ApiError, DatasetEntry, DatasetKind, Listed, SNAPSHOT_KIND, SNAPSHOT_SCHEDULE,
    ScheduledKind, SnapshotKind, SnapshotPlan, SnapshotSchedule, SnapshotsScheduled, Source,
};
use crate::daemon::host::utc_offset;
use crate::daemon::names::pool_of;
use crate::daemon::{Daemon, OpenPool};

/// What the daemon remembers of the schedules: the quarter of an hour in which each open pool was run last,
/// by the number of its import. The run that goes on has it locked.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Turn {
    done: HashMap<u64, u64>,
}

/// A dataset with a schedule.
struct Scheduled {
    dataset: String,
    value: String,
    source: Source,
    /// What it is, or why it is not run.
    plan: Result<SnapshotPlan, String>,
    /// Kinds that `com.sun:auto-snapshot` rules out.
    ruled_out: Vec<SnapshotKind>,
    snapshots: Vec<Taken>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Daemon {
    /// The schedules of datasets.
    ///
    /// # Errors
    /// None: a dataset that does not exist or cannot be read becomes an entry of `failed`.
    pub async fn snapshot_schedules(
        &self,
        request: api::GetSnapshotSchedules,
    ) -> Result<Listed<SnapshotSchedule>, ApiError> {
        let (scheduled, failed) = self.scheduled(&request.datasets).await?;
        Ok(Listed { entries: scheduled.iter().map(shown).collect(), failed })
    }

    /// Takes the snapshots that are due, and destroys those beyond what is kept.
    ///
    /// # Errors
    /// None: what cannot be done becomes an entry of `failed`.
    pub async fn run_snapshot_schedules(
        &self,
        request: api::RunSnapshotSchedules,
    ) -> Result<SnapshotsScheduled, ApiError> {
        let _turn = self.snapshot_turn.lock().await;
        self.run_in_turn(&request).await
    }

    /// Runs the schedules of pools that were not run in this quarter of an hour, unless that goes on.
    pub(in crate::daemon) fn run_due_snapshot_schedules(self: &Arc<Self>) {
        let is_due = match self.snapshot_turn.try_lock() {
            Ok(turn) => self.due_pools(&turn).next().is_some(),
            Err(_) => false,
        };
        if !is_due {
            return;
        }
        let daemon = Arc::clone(self);
        let run = move || device::block_on(daemon.run_due_pools());
        let name = "snapshots".to_owned();
        let started = std::thread::Builder::new().name(name).stack_size(device::STACK_BYTES).spawn(run);
        if let Err(error) = started {
            tracing::warn!(%error, "snapshots by schedule are not taken");
        }
    }

    /// The pools that can be changed and were not run yet, with the numbers of their imports.
    fn due_pools(&self, turn: &Turn) -> impl Iterator<Item = Arc<OpenPool>> {
        let quarter = plan::quarter(now());
        let is_done = |open: &Arc<OpenPool>| turn.done.get(&open.load_guid()) == Some(&quarter);
        let open = self.open_pools().into_iter();
        let due: Vec<Arc<OpenPool>> =
            open.filter(|open| open.live().is_some() && !open.is_suspended() && !is_done(open)).collect();
        due.into_iter()
    }

    async fn run_due_pools(&self) {
        let mut turn = self.snapshot_turn.lock().await;
        let quarter = plan::quarter(now());
        turn.done.retain(|_, done| *done == quarter);
        let due: Vec<Arc<OpenPool>> = self.due_pools(&turn).collect();
        for open in due {
            let pool = open.name().to_owned();
            let request = api::RunSnapshotSchedules { datasets: vec![pool.clone()], ..Default::default() };
            match self.run_in_turn(&request).await {
                Ok(done) => {
                    if !done.taken.is_empty() || !done.destroyed.is_empty() {
                        let (taken, destroyed) = (done.taken.len(), done.destroyed.len());
                        tracing::info!(pool, taken, destroyed, "snapshots by schedule");
                    }
                    for error in &done.failed {
                        tracing::warn!(pool, error = error.message, "snapshots by schedule");
                    }
                }
                Err(error) => tracing::warn!(pool, error = error.message, "snapshots by schedule"),
            }
            // What failed is tried again in the next quarter.
            turn.done.insert(open.load_guid(), quarter);
        }
    }

    /// A run, by the caller that has the turn.
    async fn run_in_turn(&self, request: &api::RunSnapshotSchedules) -> Result<SnapshotsScheduled, ApiError> {
        let (scheduled, failed) = self.scheduled(&request.datasets).await?;
        let mut done = SnapshotsScheduled { failed, ..Default::default() };
        let now = now();
        let offset = i64::from(utc_offset(i64::try_from(now).unwrap_or(0)));
        // Snapshots of one kind are taken in one moment in each pool.
        let mut due: BTreeMap<(String, SnapshotKind), Vec<String>> = BTreeMap::new();
        let mut surplus = Vec::new();
        for of in &scheduled {
            let Ok(plan) = &of.plan else { continue };
            for kind in SnapshotKind::ALL.into_iter().filter(|kind| !of.ruled_out.contains(kind)) {
                let Deed { is_due, surplus: beyond, in_use } =
                    plan::deed(plan, kind, &of.snapshots, now, |moment| i64::from(utc_offset(moment)));
                let name = plan::name(plan.names, kind, now, offset).filter(|_| is_due);
                if let Some(short) = name {
                    let key = (pool_of(&of.dataset).to_owned(), kind);
                    due.entry(key).or_default().push(format!("{}@{short}", of.dataset));
                }
                done.in_use.extend(in_use);
                if !beyond.is_empty() {
                    surplus.push(beyond);
                }
            }
        }
        for ((_, kind), names) in due {
            self.take_due(request, kind, names, &mut done).await;
        }
        for names in surplus {
            self.destroy_surplus(request, names, &mut done).await;
        }
        Ok(done)
    }

    /// Takes snapshots of one kind in one pool: all at once, or those that can be taken.
    async fn take_due(
        &self,
        request: &api::RunSnapshotSchedules,
        kind: SnapshotKind,
        names: Vec<String>,
        done: &mut SnapshotsScheduled,
    ) {
        if request.dry_run {
            done.taken.extend(names);
            return;
        }
        let take = |names: Vec<String>| api::TakeSnapshots {
            names,
            recursive: false,
            properties: vec![(SNAPSHOT_KIND.to_owned(), kind.word().to_owned())],
            command: request.command.clone(),
        };
        match self.take_snapshots(take(names.clone())).await {
            Ok(taken) => done.taken.extend(taken),
            Err(error) if names.len() == 1 => done.failed.push(error),
            Err(_) => {
                for name in names {
                    match self.take_snapshots(take(vec![name])).await {
                        Ok(taken) => done.taken.extend(taken),
                        Err(error) => done.failed.push(error),
                    }
                }
            }
        }
    }

    /// Destroys snapshots of one kind of one dataset: all at once, or those that can be destroyed. The engine
    /// refuses those that were held meanwhile.
    async fn destroy_surplus(
        &self,
        request: &api::RunSnapshotSchedules,
        names: Vec<String>,
        done: &mut SnapshotsScheduled,
    ) {
        if request.dry_run {
            done.destroyed.extend(names);
            return;
        }
        let (Some(first), true) = (names.first(), !names.is_empty()) else { return };
        let destroy = |name: &str| api::DestroyDataset {
            name: name.to_owned(),
            command: request.command.clone(),
            ..Default::default()
        };
        let pool = match self.find_pool(pool_of(first)) {
            Some(pool) => pool,
            // It was exported meanwhile.
            None => return,
        };
        match self.destroy_all(&pool, names.clone(), None, &destroy(first)).await {
            Ok(destroyed) => done.destroyed.extend(destroyed.names),
            Err(error) if names.len() == 1 => done.failed.push(error),
            Err(_) => {
                for name in names {
                    match self.destroy_all(&pool, vec![name.clone()], None, &destroy(&name)).await {
                        Ok(destroyed) => done.destroyed.extend(destroyed.names),
                        Err(error) => done.failed.push(error),
                    }
                }
            }
        }
    }

    /// The datasets with schedules at and below these, with their snapshots.
    async fn scheduled(&self, below: &[String]) -> Result<(Vec<Scheduled>, Vec<ApiError>), ApiError> {
        let mut properties = vec![SNAPSHOT_SCHEDULE.to_owned(), AUTO_SNAPSHOT.to_owned()];
        properties.extend(SnapshotKind::ALL.map(|kind| format!("{AUTO_SNAPSHOT}:{}", kind.word())));
        let request = api::ListDatasets {
            names: below.to_vec(),
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
            properties,
            ..Default::default()
        };
        let listed = self.list_datasets(request).await?;
        let mut failed = listed.failed;
        let copies: HashSet<String> =
            self.open_pools().iter().flat_map(|open| open.unfinished_copies()).collect();
        let is_meant =
            |entry: &&DatasetEntry| !copies.contains(&entry.name) && !entry.name.contains(['%', '$']);
        let mut scheduled: Vec<Scheduled> =
            listed.entries.iter().filter(is_meant).filter_map(scheduled_of).collect();
        self.check_sources(&mut scheduled).await?;
        let names = scheduled.iter().map(|of| of.dataset.clone()).collect();
        let snapshots = self.snapshots_there(names, &mut failed).await?;
        for of in &mut scheduled {
            of.snapshots = snapshots.get(&of.dataset).cloned().unwrap_or_default();
        }
        Ok((scheduled, failed))
    }

    /// A schedule is not inherited from where it was received.
    async fn check_sources(&self, scheduled: &mut [Scheduled]) -> Result<(), ApiError> {
        let sources: HashSet<String> = scheduled.iter().filter_map(|of| inherited_from(&of.source)).collect();
        if sources.is_empty() {
            return Ok(());
        }
        let request = api::ListDatasets {
            names: sources.into_iter().collect(),
            depth: Some(0),
            properties: vec![SNAPSHOT_SCHEDULE.to_owned()],
            ..Default::default()
        };
        let listed = self.list_datasets(request).await?.entries;
        let is_local = |name: &str| {
            let entry = listed.iter().find(|entry| entry.name == name);
            let property = entry.and_then(|entry| entry.property(SNAPSHOT_SCHEDULE));
            property.is_some_and(|property| property.source == Source::Local)
        };
        for of in scheduled {
            if let Some(from) = inherited_from(&of.source).filter(|from| of.plan.is_ok() && !is_local(from)) {
                of.plan = Err(format!("{from} received it"));
            }
        }
        Ok(())
    }

    /// The snapshots of datasets.
    async fn snapshots_there(
        &self,
        datasets: Vec<String>,
        failed: &mut Vec<ApiError>,
    ) -> Result<HashMap<String, Vec<Taken>>, ApiError> {
        let mut there: HashMap<String, Vec<Taken>> = HashMap::new();
        if datasets.is_empty() {
            return Ok(there);
        }
        let properties = ["creation", "userrefs", "clones", SNAPSHOT_KIND];
        let request = api::ListDatasets {
            names: datasets,
            depth: Some(1),
            kinds: vec![DatasetKind::Snapshot],
            properties: properties.map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let listed = self.list_datasets(request).await?;
        failed.extend(listed.failed);
        for entry in &listed.entries {
            if let Some((dataset, _)) = entry.name.split_once('@') {
                there.entry(dataset.to_owned()).or_default().push(taken_of(entry));
            }
        }
        Ok(there)
    }
}

fn inherited_from(source: &Source) -> Option<String> {
    match source {
        Source::Inherited(from) => Some(from.clone()),
        _ => None,
    }
}

/// The value of a property of an entry, for programs.
fn value<'a>(entry: &'a DatasetEntry, name: &str) -> Option<&'a str> {
    entry.property(name)?.parsable.as_deref()
}

/// A dataset with a schedule that is for it; none where there is none, or where it is for the datasets above.
fn scheduled_of(entry: &DatasetEntry) -> Option<Scheduled> {
    let property = entry.property(SNAPSHOT_SCHEDULE)?;
    let value_of_it = property.parsable.clone()?;
    let plan = value_of_it.parse::<SnapshotPlan>();
    let is_local = property.source == Source::Local;
    if plan.as_ref().is_ok_and(|plan| plan.keep.is_empty() || !plan.recursive && !is_local)
        && !is_received(property)
    {
        return None;
    }
    let is_false = |text: &str| text.eq_ignore_ascii_case("false");
    let all_out = value(entry, AUTO_SNAPSHOT).is_some_and(is_false);
    let is_out = |kind: &SnapshotKind| {
        // What is said of one kind counts more than what is said of all.
        value(entry, &format!("{AUTO_SNAPSHOT}:{}", kind.word())).map_or(all_out, is_false)
    };
    Some(Scheduled {
        dataset: entry.name.clone(),
        plan: match is_received(property) {
            true => Err("it was received".to_owned()),
            false => plan,
        },
        value: value_of_it,
        source: property.source.clone(),
        ruled_out: SnapshotKind::ALL.into_iter().filter(is_out).collect(),
        snapshots: Vec::new(),
    })
}

fn is_received(property: &api::Property) -> bool {
    property.source == Source::Received
}

fn taken_of(entry: &DatasetEntry) -> Taken {
    let number = |name: &str| value(entry, name).and_then(|text| text.parse::<u64>().ok());
    let made = entry.property(SNAPSHOT_KIND).filter(|property| property.source == Source::Local);
    let has_clones = value(entry, "clones").is_some_and(|clones| !clones.is_empty() && clones != "-");
    Taken {
        name: entry.name.clone(),
        creation: number("creation").unwrap_or(0),
        createtxg: entry.createtxg,
        made_as: made.and_then(|property| SnapshotKind::from_word(property.parsable.as_deref()?)),
        // Where it cannot be told, it stays.
        is_in_use: number("userrefs") != Some(0) || has_clones,
    }
}

/// A schedule as it is shown.
fn shown(of: &Scheduled) -> SnapshotSchedule {
    let keep = of.value.parse::<SnapshotPlan>().map(|plan| plan.keep).unwrap_or_default();
    let kinds = keep.into_iter().map(|(kind, keep)| {
        let is_of_kind = |taken: &&Taken| taken.made_as == Some(kind) && plan::has_name_of(taken, kind);
        let made: Vec<&Taken> = of.snapshots.iter().filter(is_of_kind).collect();
        ScheduledKind {
            kind,
            keep,
            there: u32::try_from(made.len()).unwrap_or(u32::MAX),
            newest: made.iter().map(|taken| taken.creation).max(),
            ruled_out: of.ruled_out.contains(&kind),
        }
    });
    SnapshotSchedule {
        dataset: of.dataset.clone(),
        schedule: of.value.clone(),
        source: of.source.clone(),
        idle: of.plan.as_ref().err().cloned(),
        kinds: kinds.collect(),
    }
}
