//! What is to be done so that a tree here is like the sender's: steps, from lists alone.
//!
//! # The idea
//! Datasets and snapshots are known by the guids of snapshots, whatever they are called. The *counterpart* of
//! a dataset of the sender is the dataset here whose newest common snapshot belongs to it: there its streams
//! go on. From that follow
//!
//! - *promotions*: the origin of a counterpart belongs to that same dataset on the sender, so the clone has
//!   taken it over there;
//! - *branches*: the sender has a new dataset that took over snapshots which are here already, by the
//!   promotion of a clone that never came here. It begins here as a clone of them that is promoted, so that
//!   they need not come again and the two stay related as on the sender;
//! - *names*, of snapshots and of datasets. What is in the way of a name is set aside under a name of its
//!   own, until it has its right name, or goes;
//! - *what the sender no longer has*: where none of the snapshots of a dataset is among the sender's, it is
//!   gone there. Nothing of that is destroyed before all streams have come ([`Sent::gone`]).
//!
//! Steps change each other, so that only the first possible one is taken before the list is made again.

use std::collections::HashMap;

use ondisk::Guid;
use ondisk::send::{Package, PackagedDataset};

/// What names of things begin with that were set aside, as with OpenZFS.
const ASIDE: &str = "recv-";

/// A dataset here, with its snapshots.
#[derive(Debug, Clone, Default)]
pub(in crate::daemon::streams::receive) struct Local {
    pub name: String,
    pub origin: Option<Guid>,
    /// The oldest first.
    pub snapshots: Vec<(String, Guid)>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// A clone takes over its origin.
    Promote(String),
    /// A dataset or snapshot gets its sender's name.
    Rename { from: String, to: String },
    /// A dataset or snapshot leaves its name to another one.
    SetAside { from: String, to: String },
    /// A new dataset begins as a clone of a snapshot, and takes that over.
    Branch { snapshot: String, to: String },
}

/// The sender's datasets.
pub(super) struct Sent<'a> {
    package: &'a Package,
    /// Which dataset a snapshot belongs to, and its name.
    owners: HashMap<Guid, (usize, String)>,
    /// Names that the datasets are to have here.
    wanted: Vec<Option<String>>,
    /// In this order they get their names: what is above others first.
    by_depth: Vec<usize>,
    top: &'a str,
    force: bool,
    aside: &'a str,
}

impl<'a> Sent<'a> {
    /// The datasets of a package. `wanted` gives the name here of one of them, `aside` tells what is set
    /// aside now from the work of others.
    pub(super) fn new(
        package: &'a Package,
        (top, force, aside): (&'a str, bool, &'a str),
        wanted: impl Fn(&PackagedDataset) -> Option<String>,
    ) -> Self {
        let mut owners = HashMap::new();
        for (at, dataset) in package.datasets.iter().enumerate() {
            for (name, guid) in &dataset.snapshots {
                owners.entry(*guid).or_insert_with(|| (at, name.to_string()));
            }
        }
        let wanted: Vec<_> = package.datasets.iter().map(wanted).collect();
        let mut by_depth: Vec<usize> = (0..wanted.len()).collect();
        let depth = |at: &usize| wanted.get(*at).and_then(|name| Some(name.as_ref()?.split('/').count()));
        by_depth.sort_by_key(depth);
        Self { package, owners, wanted, by_depth, top, force, aside }
    }

    fn owner(&self, guid: Guid) -> Option<usize> {
        self.owners.get(&guid).map(|(at, _)| *at)
    }

    fn wanted(&self, at: usize) -> Option<&str> {
        self.wanted.get(at)?.as_deref()
    }

    /// More steps than there can be.
    pub(super) fn bound(&self, local: &[Local]) -> usize {
        let all = |local: &Local| 1 + local.snapshots.len();
        16 + 4 * (local.iter().map(all).sum::<usize>() + self.package.datasets.len())
    }

    /// Which dataset here each dataset of the sender is.
    fn counterparts(&self, local: &[Local]) -> Vec<Option<usize>> {
        let mut best: Vec<Option<(usize, bool)>> = vec![None; self.package.datasets.len()];
        let mut found = vec![None; self.package.datasets.len()];
        for (here, one) in local.iter().enumerate() {
            let newest = one.snapshots.iter().rev().find_map(|(_, guid)| Some((self.owner(*guid)?, *guid)));
            let Some((at, newest)) = newest else { continue };
            // Of several, the one that goes on furthest.
            let sent = self.package.datasets.get(at);
            let place = sent.and_then(|sent| sent.snapshots.iter().position(|(_, guid)| *guid == newest));
            let rank = (place.unwrap_or(0), self.wanted(at) == Some(one.name.as_str()));
            if let (Some(best), Some(found)) = (best.get_mut(at), found.get_mut(at))
                && best.is_none_or(|best| rank > best)
            {
                (*best, *found) = (Some(rank), Some(here));
            }
        }
        found
    }

    /// Whether the sender has any snapshot of a dataset.
    fn knows(&self, local: &Local) -> bool {
        local.snapshots.iter().any(|(_, guid)| self.owners.contains_key(guid))
    }

    /// What to do, in the order of importance.
    pub(super) fn steps(&self, local: &[Local]) -> Vec<Step> {
        let counterparts = self.counterparts(local);
        let mut steps = self.promotions(local, &counterparts);
        if steps.is_empty() {
            steps = self.snapshot_names(local, &counterparts);
            steps.extend(self.names(local, &counterparts));
        }
        steps
    }

    /// Where a snapshot is: in which dataset, and after how many others.
    fn place(local: &[Local], guid: Guid) -> Option<(usize, usize)> {
        local
            .iter()
            .enumerate()
            .find_map(|(here, one)| Some((here, one.snapshots.iter().position(|(_, other)| *other == guid)?)))
    }

    fn promotions(&self, local: &[Local], counterparts: &[Option<usize>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, sent) in self.package.datasets.iter().enumerate() {
            let here = counterparts.get(at).copied().flatten().and_then(|here| local.get(here));
            let Some((here, origin)) = here.and_then(|here| Some((here, here.origin?))) else { continue };
            if sent.origin == Some(origin) {
                continue;
            }
            let Some((owner, place)) = Self::place(local, origin) else { continue };
            let Some(of) = local.get(owner) else { continue };
            // These are taken over.
            let shared = of.snapshots.get(..=place).unwrap_or_default();
            let owners: Vec<usize> = shared.iter().filter_map(|(_, guid)| self.owner(*guid)).collect();
            let is_promoted = match owners.is_empty() {
                false => owners.contains(&at),
                // The sender destroyed them, and what they were taken from.
                true => sent.origin == of.origin && !counterparts.contains(&Some(owner)),
            };
            if is_promoted {
                steps.push(Step::Promote(here.name.clone()));
            }
        }
        steps
    }

    fn set_aside(&self, name: &str, local: &[Local]) -> Step {
        let is_taken = |to: &str| match to.split_once('@') {
            Some((of, short)) => {
                let of = local.iter().find(|one| one.name == of);
                of.is_some_and(|of| of.snapshots.iter().any(|(other, _)| other == short))
            }
            None => local.iter().any(|one| one.name == to),
        };
        let base = match name.split_once('@') {
            Some((of, _)) => format!("{of}@"),
            None => format!("{}/", self.top),
        };
        let mut names = (1..=u64::MAX).map(|number| format!("{base}{ASIDE}{}-{number}", self.aside));
        let to = names.find(|to| !is_taken(to)).unwrap_or_default();
        Step::SetAside { from: name.to_owned(), to }
    }

    fn snapshot_names(&self, local: &[Local], counterparts: &[Option<usize>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, here) in local.iter().enumerate() {
            let full = |short: &str| format!("{}@{short}", here.name);
            let occupant = |name: &str| here.snapshots.iter().find(|(short, _)| short == name);
            for (short, guid) in &here.snapshots {
                let Some((_, called)) = self.owners.get(guid).filter(|(_, called)| called != short) else {
                    continue;
                };
                match occupant(called) {
                    None => steps.push(Step::Rename { from: full(short), to: full(called) }),
                    Some((_, other))
                        if self.owners.get(other).map_or(self.force, |(_, its)| its != called) =>
                    {
                        steps.push(self.set_aside(&full(called), local));
                    }
                    Some(_) => {}
                }
            }
            // Snapshots to come.
            let sent = counterparts.iter().position(|found| *found == Some(index));
            let sent = sent.and_then(|at| self.package.datasets.get(at)).filter(|_| self.force);
            for (called, guid) in sent.iter().flat_map(|sent| &sent.snapshots) {
                let called = called.to_string();
                if here.snapshots.iter().any(|(_, other)| other == guid) {
                    continue;
                }
                if occupant(&called).is_some_and(|(_, other)| !self.owners.contains_key(other)) {
                    steps.push(self.set_aside(&full(&called), local));
                }
            }
        }
        steps
    }

    fn names(&self, local: &[Local], counterparts: &[Option<usize>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for at in self.by_depth.iter().copied() {
            let (Some(sent), Some(wanted)) = (self.package.datasets.get(at), self.wanted(at)) else {
                continue;
            };
            let here = counterparts.get(at).copied().flatten().and_then(|here| local.get(here));
            let there = local.iter().enumerate().find(|(_, one)| one.name == wanted);
            let moves = here.filter(|here| here.name != wanted && self.may_move(sent, here));
            match there {
                Some((_, occupant)) if here.is_some_and(|here| here.name == occupant.name) => {}
                // The other one needs the place, or the stream that will come.
                Some((index, occupant)) if moves.is_some() || here.is_none() => {
                    let other = counterparts.iter().position(|found| *found == Some(index));
                    let other = other.and_then(|other| self.package.datasets.get(other));
                    let has_other_place = other.is_some_and(|other| self.may_move(other, occupant));
                    let goes = self.force && !self.knows(occupant);
                    if occupant.name != self.top && (has_other_place || goes) {
                        steps.push(self.set_aside(&occupant.name, local));
                    }
                }
                Some(_) => {}
                None if !has_parent(local, wanted) => {}
                None => match moves {
                    Some(here) => {
                        let (from, to) = (here.name.clone(), wanted.to_owned());
                        steps.push(Step::Rename { from, to });
                    }
                    None if here.is_none() => steps.extend(self.branch(at, local, counterparts)),
                    None => {}
                },
            }
        }
        steps
    }

    /// Whether a dataset can get another name: streams go on there.
    fn may_move(&self, sent: &PackagedDataset, here: &Local) -> bool {
        let from = self.package.from_snapshot.as_ref().and_then(|from| sent.guid_of(from.as_bytes()));
        let has = |guid: Guid| here.snapshots.iter().any(|(_, other)| *other == guid);
        here.name != self.top && from.is_none_or(has)
    }

    /// A new dataset whose first snapshots are here, in the dataset that is its clone on the sender.
    fn branch(&self, at: usize, local: &[Local], counterparts: &[Option<usize>]) -> Option<Step> {
        let (sent, wanted) = (self.package.datasets.get(at)?, self.wanted(at)?);
        let (_, first) = sent.snapshots.first()?;
        self.package.datasets.iter().enumerate().find_map(|(other, clone)| {
            let origin = clone.origin.filter(|origin| self.owner(*origin) == Some(at))?;
            let here = counterparts.get(other).copied().flatten()?;
            let of = local.get(here)?;
            let place = of.snapshots.iter().position(|(_, guid)| *guid == origin)?;
            let shared = of.snapshots.get(..=place)?;
            let is_its_own = |guid: Guid| self.owner(guid).is_none_or(|owner| owner == at);
            let has_first = shared.iter().any(|(_, guid)| guid == first);
            let fits =
                sent.origin == of.origin && has_first && shared.iter().all(|(_, guid)| is_its_own(*guid));
            let (short, _) = of.snapshots.get(place).filter(|_| fits)?;
            Some(Step::Branch { snapshot: format!("{}@{short}", of.name), to: wanted.to_owned() })
        })
    }

    /// Whether all have their places that can have them before further streams come.
    pub(super) fn is_settled(&self, local: &[Local]) -> bool {
        let counterparts = self.counterparts(local);
        self.package.datasets.iter().enumerate().all(|(at, sent)| {
            let here = counterparts.get(at).copied().flatten().and_then(|here| local.get(here));
            let wanted = self.wanted(at);
            let has_clone = |clone: &PackagedDataset| {
                clone.origin.and_then(|origin| self.owner(origin)).is_some_and(|owner| owner == at)
            };
            match here {
                Some(here) => wanted == Some(here.name.as_str()) || !self.may_move(sent, here),
                None => {
                    !local.iter().any(|one| Some(one.name.as_str()) == wanted)
                        && !self.package.datasets.iter().any(has_clone)
                }
            }
        })
    }

    /// What the sender no longer has, in the order in which it can be destroyed.
    pub(super) fn gone(&self, local: &[Local]) -> Vec<String> {
        let mut gone = Vec::new();
        // What is below another one goes before it.
        for here in local.iter().rev() {
            let full = |(short, _): &(String, Guid)| format!("{}@{short}", here.name);
            let is_known = self.knows(here) || here.name == self.top;
            let unknown = here.snapshots.iter().filter(|(_, guid)| !self.owners.contains_key(guid));
            gone.extend(unknown.map(full));
            gone.extend((!is_known).then(|| here.name.clone()));
        }
        gone
    }

    /// Snapshots here that the sender said something of, under their names here, with the properties.
    pub(super) fn snapshot_properties(
        &self,
        local: &[Local],
    ) -> Vec<(String, &'a [ondisk::send::PackagedProperty])> {
        let mut found = Vec::new();
        for here in local {
            for (short, guid) in &here.snapshots {
                let Some((at, called)) = self.owners.get(guid) else { continue };
                let Some(sent) = self.package.datasets.get(*at) else { continue };
                let of =
                    sent.snapshot_properties.iter().find(|(name, _)| name.as_bytes() == called.as_bytes());
                if let Some((_, properties)) = of {
                    found.push((format!("{}@{short}", here.name), properties.as_slice()));
                }
            }
        }
        found
    }
}

fn has_parent(local: &[Local], name: &str) -> bool {
    let parent = name.rsplit_once('/').map(|(parent, _)| parent);
    parent.is_some_and(|parent| local.iter().any(|one| one.name == parent))
}

/// What is here after a step that only changes names.
pub(super) fn renamed(local: &mut [Local], from: &str, to: &str) {
    match (from.split_once('@'), to.split_once('@')) {
        (Some((of, old)), Some((_, new))) => {
            let of = local.iter_mut().find(|one| one.name == of);
            let snapshot = of.and_then(|of| of.snapshots.iter_mut().find(|(short, _)| short == old));
            if let Some((short, _)) = snapshot {
                *short = new.to_owned();
            }
        }
        _ => {
            for one in local.iter_mut() {
                let rest =
                    one.name.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'));
                if let Some(rest) = rest {
                    one.name = format!("{to}{rest}");
                }
            }
            // Those below others come after them.
            local.sort_by(|a, b| a.name.split('/').cmp(b.name.split('/')));
        }
    }
}

/// The nearest name: the one that has most of its components in common with `near`, the first one of several.
pub(in super::super) fn nearest<'n>(names: impl Iterator<Item = &'n str>, near: &str) -> Option<&'n str> {
    let common = |name: &str| {
        let components = name.split(['/', '@']).zip(near.split('/'));
        components.take_while(|(one, other)| one == other).count()
    };
    let mut best: Option<(usize, &str)> = None;
    for name in names {
        let count = common(name);
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, name));
        }
    }
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
