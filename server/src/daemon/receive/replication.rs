//! What an incremental replication stream says of datasets besides their contents: names that changed on the
//! sender change here too, and by force what the sender no longer has goes.
//!
//! Datasets and snapshots are known by the guids of snapshots, whatever they are called. Names may have to
//! change several times, because others are in the way; each pass does what can be done.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_sendrecv.c` (`recv_incremental_replication`).

use engine::dsl::{Entry, Walk};
use ondisk::Guid;
use ondisk::send::{Package, PackagedDataset};

use super::super::datasets::{is_at_or_below, said};
use super::Receive;
use super::target::Destination;
use crate::api::{self, ApiError};

/// Passes over all datasets.
const PASSES: usize = 8;

/// A dataset here, with its snapshots.
#[derive(Debug, Clone)]
struct Local {
    name: String,
    snapshots: Vec<(String, Guid)>,
}

/// What is to be done so that it is as on the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Destroy(String),
    Rename { from: String, to: String },
}

impl Receive<'_> {
    /// Makes names here follow those of the sender.
    pub(super) async fn follow_sender(&mut self) -> Result<(), ApiError> {
        let Some(package) = self.package.clone() else { return Ok(()) };
        if package.from_snapshot.is_none() || package.not_recursive || self.request.dry_run {
            return Ok(());
        }
        let sent = format!("{}@{}", self.top, package.to_snapshot);
        let top = Destination::of(self.request, &sent, &self.top)?.dataset;
        let keeps_top = self.request.appends == api::Appends::Below;
        for _ in 0..PASSES {
            let local = self.local(&top).await?;
            let steps = steps(&package, &local, (&top, keeps_top), self.request.force);
            let mut has_changed = false;
            for step in steps {
                match self.take(&step).await {
                    Ok(()) => has_changed = true,
                    // Another one may have its name, which may change in this pass.
                    Err(error) if self.request.verbose => self.told(error.message),
                    Err(_) => {}
                }
                if matches!(step, Step::Rename { .. }) && has_changed {
                    // The names below are others now.
                    break;
                }
            }
            if !has_changed {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn take(&mut self, step: &Step) -> Result<(), ApiError> {
        match step {
            Step::Destroy(name) => {
                if self.request.verbose {
                    self.told(format!("attempting destroy {name}"));
                }
                let destroy = api::DestroyDataset { name: name.clone(), force: true, ..Default::default() };
                self.daemon.destroy_dataset(destroy).await.map(drop)
            }
            Step::Rename { from, to } => {
                if self.request.verbose {
                    self.told(format!("attempting rename {from} to {to}"));
                }
                let rename = api::RenameDataset { from: from.clone(), to: to.clone(), ..Default::default() };
                self.daemon.rename_dataset(rename).await.map(drop)
            }
        }
    }

    /// The datasets at and below `top`, parents first.
    async fn local(&self, top: &str) -> Result<Vec<Local>, ApiError> {
        let doing = "cannot receive";
        let dsl = self.pool.dsl().await.map_err(|error| said(doing, error))?;
        let walk = Walk { snapshots: true, ..Walk::HEADS };
        let all = dsl.list(None, walk).await.map_err(|error| said(doing, error))?;
        let mut found: Vec<Local> = Vec::new();
        for dataset in all.iter().filter_map(Entry::dataset) {
            if !is_at_or_below(&dataset.name, top) {
                continue;
            }
            match dataset.name.split_once('@') {
                None => found.push(Local { name: dataset.name.clone(), snapshots: Vec::new() }),
                Some((of, short)) => {
                    if let Some(head) = found.iter_mut().find(|local| local.name == of) {
                        head.snapshots.push((short.to_owned(), dataset.phys.guid));
                    }
                }
            }
        }
        Ok(found)
    }
}

/// What to do. Snapshots before their datasets, and what is below others before those.
fn steps(package: &Package, local: &[Local], (top, keeps_top): (&str, bool), force: bool) -> Vec<Step> {
    let (mut snapshots, mut renames, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for here in local {
        let on_sender = here.snapshots.iter().find_map(|(_, guid)| package.with_snapshot(*guid));
        let Some((sent, _)) = on_sender else {
            if force && here.name != top {
                gone.push(here.name.clone());
                gone.extend(here.snapshots.iter().map(|(short, _)| format!("{}@{short}", here.name)));
            }
            continue;
        };
        let mut has_base = false;
        for (short, guid) in &here.snapshots {
            let name = format!("{}@{short}", here.name);
            match package.with_snapshot(*guid) {
                None if force => snapshots.push(Step::Destroy(name)),
                None => {}
                Some((_, called)) => {
                    has_base |= Some(called) == package.from_snapshot.as_ref();
                    if called.as_bytes() != short.as_bytes() {
                        let to = format!("{}@{called}", here.name);
                        snapshots.push(Step::Rename { from: name, to });
                    }
                }
            }
        }
        if has_base && !(keeps_top && here.name == top) {
            renames.extend(renamed(package, local, here, sent));
        }
    }
    // What is below another one goes before it.
    let gone = gone.into_iter().rev().map(Step::Destroy);
    snapshots.into_iter().chain(gone).chain(renames).collect()
}

/// The other name of a dataset, where it has one on the sender.
fn renamed(package: &Package, local: &[Local], here: &Local, sent: &PackagedDataset) -> Option<Step> {
    let sent_name = sent.name.to_string();
    let (_, last) = sent_name.rsplit_once('/')?;
    let (parent, short) = here.name.rsplit_once('/')?;
    let of_parent = sent.parent_from_snapshot;
    let new_parent = local.iter().find(|one| one.snapshots.iter().any(|(_, guid)| *guid == of_parent));
    // The first dataset has no parent among those that were sent.
    let parent_there = match package.with_snapshot(of_parent) {
        Some(_) => new_parent?.name.as_str(),
        None => parent,
    };
    let to = format!("{parent_there}/{last}");
    ((parent_there, last) != (parent, short)).then(|| Step::Rename { from: here.name.clone(), to })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: &str, parent: u64, snapshots: &[(&str, u64)]) -> PackagedDataset {
        PackagedDataset {
            name: name.into(),
            parent_from_snapshot: Guid(parent),
            snapshots: snapshots.iter().map(|(name, guid)| ((*name).into(), Guid(*guid))).collect(),
            ..PackagedDataset::default()
        }
    }

    fn here(name: &str, snapshots: &[(&str, u64)]) -> Local {
        let snapshots = snapshots.iter().map(|(name, guid)| ((*name).to_owned(), Guid(*guid))).collect();
        Local { name: name.to_owned(), snapshots }
    }

    fn package(datasets: Vec<PackagedDataset>) -> Package {
        Package { from_snapshot: Some("a".into()), to_snapshot: "b".into(), datasets, ..Package::default() }
    }

    #[test]
    fn what_has_the_same_guids_gets_the_same_names() {
        let package = package(vec![
            sent("s/fs", 0, &[("a", 1), ("b", 2)]),
            sent("s/fs/new", 1, &[("a", 11), ("b", 12)]),
        ]);
        let local = [here("t/x", &[("was", 1), ("a", 5)]), here("t/x/old", &[("a", 11)])];
        let found = steps(&package, &local, ("t/x", true), false);
        let rename = |from: &str, to: &str| Step::Rename { from: from.into(), to: to.into() };
        assert_eq!(found, [rename("t/x@was", "t/x@a"), rename("t/x/old", "t/x/new")]);
    }

    #[test]
    fn what_the_sender_has_not_goes_by_force_only() {
        let package = package(vec![sent("s/fs", 0, &[("a", 1), ("b", 2)])]);
        let local = [here("t/x", &[("a", 1), ("mine", 7)]), here("t/x/k", &[("a", 8)]), here("t/x/k/l", &[])];
        assert_eq!(steps(&package, &local, ("t/x", true), false), []);
        let found = steps(&package, &local, ("t/x", true), true);
        let names = ["t/x@mine", "t/x/k/l", "t/x/k@a", "t/x/k"];
        let expected: Vec<Step> = names.iter().map(|name| Step::Destroy((*name).to_owned())).collect();
        assert_eq!(found, expected);
    }
}
