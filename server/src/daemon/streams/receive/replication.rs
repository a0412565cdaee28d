//! What an incremental replication stream says of datasets besides their contents: what became of them on
//! the sender becomes of them here too, and by force what the sender no longer has goes.
//!
//! # The idea
//! Before the streams, clones are promoted and names changed as on the sender ([`steps`]). What must wait for
//! a parent that is still to come is done before the next stream. What is in the way is set aside, not
//! destroyed. When all streams have come, what the sender no longer has is destroyed; when they have not,
//! what was set aside gets its name back. So a stream that breaks off costs no data.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_sendrecv.c` (`recv_incremental_replication`).

mod steps;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::dsl::{Dir, Entry, Walk, edit};
use ondisk::send::Package;
use ondisk::{Guid, ObjectId};

use super::Receive;
use super::target::Destination;
use crate::api::{self, ApiError};
use crate::daemon::names::is_at_or_below;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks::{self, New};

pub(super) use steps::nearest;
use steps::{Local, Sent, Step, renamed};

const DOING: &str = "cannot receive";

/// What following the sender has done, and what is left of it.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Whether nothing is left to do before the next stream.
    is_settled: bool,
    /// What was set aside: its name, and its name now.
    aside: Vec<(String, String)>,
}

impl Receive<'_> {
    /// The package of an incremental replication stream, and where its first dataset goes.
    fn followed(&self) -> Result<Option<(Package, String)>, ApiError> {
        let Some(package) = &self.package else { return Ok(None) };
        if package.from_snapshot.is_none() || package.not_recursive || self.request.dry_run {
            return Ok(None);
        }
        let top = self.destination(&self.top, &package.to_snapshot.to_string())?.dataset;
        Ok(Some((package.clone(), top)))
    }

    fn destination(&self, dataset: &str, snapshot: &str) -> Result<Destination, ApiError> {
        Destination::of(self.request, &format!("{dataset}@{snapshot}"), &self.top)
    }

    fn sent<'a>(&self, package: &'a Package, top: &'a str, aside: &'a str) -> Sent<'a> {
        Sent::new(package, (top, self.request.force, aside), |dataset| {
            let (name, to) = (dataset.name.to_str()?, package.to_snapshot.to_str()?);
            self.destination(name, to).ok().map(|to| to.dataset)
        })
    }

    /// Makes clones and names here follow those of the sender, as far as that can be done now. Before the
    /// first stream, and before each further one as long as something is left to do.
    pub(super) async fn follow_sender(&mut self) -> Result<(), ApiError> {
        if self.following.is_settled {
            return Ok(());
        }
        let Some((package, top)) = self.followed()? else {
            self.following.is_settled = true;
            return Ok(());
        };
        let aside = format!("{}", std::process::id());
        let sent = self.sent(&package, &top, &aside);
        let mut local = self.local(&top).await?;
        let mut failed: HashSet<Step> = HashSet::new();
        for _ in 0..sent.bound(&local) {
            let steps = sent.steps(&local);
            let Some(step) = steps.into_iter().find(|step| !failed.contains(step)) else { break };
            match self.take(&step).await {
                Ok(()) => match &step {
                    Step::Promote(_) | Step::Branch { .. } => local = self.local(&top).await?,
                    Step::Rename { from, to } => renamed(&mut local, from, to),
                    Step::SetAside { from, to } => {
                        self.following.aside.push((from.clone(), to.clone()));
                        renamed(&mut local, from, to);
                    }
                },
                // The streams will tell whether that matters.
                Err(error) => {
                    if self.request.verbose {
                        self.told(error.message);
                    }
                    failed.insert(step);
                }
            }
        }
        self.following.is_settled = sent.is_settled(&local);
        Ok(())
    }

    /// Snapshots that are here already get the properties that they have on the sender.
    pub(super) async fn follow_snapshot_properties(&mut self) -> Result<(), ApiError> {
        let Some((package, top)) = self.followed()? else { return Ok(()) };
        let local = self.local(&top).await?;
        let sent = self.sent(&package, &top, "");
        let all = sent.snapshot_properties(&local).into_iter();
        let all: Vec<_> = all.map(|(name, properties)| (name, properties.to_vec())).collect();
        if all.is_empty() {
            return Ok(());
        }
        let pool = Arc::clone(&self.pool);
        let _changing = pool.change().await?;
        let done = sync_tasks::change(pool.writable(DOING)?, None, move |s| async move {
            let mut left_out = Vec::new();
            for (name, properties) in all {
                if edit::snapshot_differs(&s, &name, &properties).await? {
                    left_out.extend(edit::receive_properties(&s, &name, &properties).await?);
                }
            }
            Ok(left_out)
        });
        done.await.map_err(|error| said(DOING, error))?.into_iter().for_each(|text| self.warn(text));
        Ok(())
    }

    async fn take(&mut self, step: &Step) -> Result<(), ApiError> {
        match step {
            Step::Promote(clone) => {
                self.attempt(format!("promoting {clone}"));
                self.daemon.promote(api::Promote { dataset: clone.clone(), command: None }).await
            }
            Step::Rename { from, to } | Step::SetAside { from, to } => {
                self.attempt(format!("attempting rename {from} to {to}"));
                self.rename(from, to).await
            }
            Step::Branch { snapshot, to } => {
                self.attempt(format!("attempting clone {snapshot} to {to}, and promoting it"));
                self.branch(snapshot, to).await
            }
        }
    }

    fn attempt(&mut self, text: String) {
        if self.request.verbose {
            self.told(text);
        }
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), ApiError> {
        let (from, to, force) = (from.to_owned(), to.to_owned(), self.request.force);
        let rename = api::RenameDataset { from, to, force, ..Default::default() };
        self.daemon.rename_dataset(rename).await.map(drop)
    }

    async fn branch(&mut self, snapshot: &str, to: &str) -> Result<(), ApiError> {
        let pool = Arc::clone(&self.pool);
        let (from, new) = (snapshot.to_owned(), New::filesystem(to));
        {
            let _changing = pool.change().await?;
            let done = sync_tasks::change(pool.writable(DOING)?, None, move |s| async move {
                sync_tasks::clone(&s, &from, &new).await
            });
            done.await.map_err(|error| said(&format!("cannot create '{to}'"), error))?;
        }
        let promoted = self.daemon.promote(api::Promote { dataset: to.to_owned(), command: None }).await;
        match &promoted {
            Ok(()) => self.new.push(to.to_owned()),
            Err(_) => self.destroy(to).await?,
        }
        promoted
    }

    async fn destroy(&self, name: &str) -> Result<(), ApiError> {
        let request = api::DestroyDataset { name: name.to_owned(), force: true, ..Default::default() };
        let mut destroyed = self.daemon.destroy_dataset(request.clone()).await;
        if destroyed.is_err() && name.contains('@') {
            // A snapshot that is held goes when it is released.
            destroyed = self.daemon.destroy_dataset(api::DestroyDataset { defer: true, ..request }).await;
        }
        destroyed.map(drop)
    }

    /// All streams have come: what is left of names is done, and by force what the sender no longer has goes.
    pub(super) async fn conclude(&mut self) -> Result<(), ApiError> {
        let Some((package, top)) = self.followed()? else { return Ok(()) };
        self.follow_sender().await?;
        if !self.request.force {
            return Ok(());
        }
        let local = self.local(&top).await?;
        let mut failed = Vec::new();
        for name in self.sent(&package, &top, "").gone(&local) {
            self.attempt(format!("attempting destroy {name}"));
            failed.extend(self.destroy(&name).await.err().map(|error| error.message));
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(ApiError::failed(format!(
                "{DOING}: all streams were received, but not all that the sender no longer has could be \
                 destroyed:\n{}",
                failed.join("\n")
            ))),
        }
    }

    /// Not all streams have come: what was set aside gets its name back, where nothing else has it.
    pub(super) async fn put_back_aside(&mut self) {
        for (was, is) in std::mem::take(&mut self.following.aside).into_iter().rev() {
            let there = async {
                let dsl = self.pool.dsl().await?;
                Ok::<_, engine::Error>(crate::daemon::datasets::entry(&dsl, &is).await?.is_some())
            };
            if !matches!(there.await, Ok(true)) {
                continue;
            }
            if let Err(error) = self.rename(&is, &was).await {
                self.warn(format!("what was '{was}' is called '{is}' now: {}", error.message));
            }
        }
    }

    /// The datasets at and below `top`, parents first.
    pub(super) async fn local(&self, top: &str) -> Result<Vec<Local>, ApiError> {
        let failed = |error| said(DOING, error);
        let dsl = self.pool.dsl().await.map_err(failed)?;
        if crate::daemon::datasets::entry(&dsl, top).await.map_err(failed)?.is_none() {
            return Ok(Vec::new());
        }
        let walk = Walk { snapshots: true, ..Walk::HEADS };
        let all = dsl.list(Some(top), walk).await.map_err(failed)?;
        let mut found: Vec<(Local, Arc<Dir>)> = Vec::new();
        let mut guids: HashMap<ObjectId, Guid> = HashMap::new();
        for dataset in all.iter().filter_map(Entry::dataset) {
            debug_assert!(is_at_or_below(&dataset.name, top));
            match dataset.name.split_once('@') {
                None => {
                    let local = Local { name: dataset.name.clone(), ..Local::default() };
                    found.push((local, Arc::clone(&dataset.dir)));
                }
                Some((of, short)) => {
                    guids.insert(dataset.object, dataset.phys.guid);
                    if let Some((head, _)) = found.last_mut().filter(|(local, _)| local.name == of) {
                        head.snapshots.push((short.to_owned(), dataset.phys.guid));
                    }
                }
            }
        }
        let mut local = Vec::new();
        for (mut one, dir) in found {
            one.origin = match guids.get(&dir.phys.origin) {
                Some(guid) => Some(*guid),
                None => dsl.origin_guid(&dir).await.map_err(failed)?,
            };
            local.push(one);
        }
        local.sort_by(|a, b| a.name.split('/').cmp(b.name.split('/')));
        Ok(local)
    }
}
