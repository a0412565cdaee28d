//! What the list of a compound stream says of datasets: snapshots, properties, holds.
//!
//! The rules by which properties are chosen are those of `zfs send`: what a user can set and what is set at
//! the dataset itself or was received, space limits also where no source is known, and with `-b` what was
//! received alone.

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::nvlist::ByteString;
use ondisk::send::package::{Hold, Package, PackagedDataset, PackagedProperty, PackagedValue};
use ondisk::{Guid, ObjectId, Txg};

use super::begin::HEAD;
use super::plan::{Order, Warning};
use crate::dsl::{Dataset, Dir, Dsl};
use crate::error::{Error, Result};
use crate::properties::set::Origin;
use crate::properties::table::Kind as ValueKind;
use crate::properties::{Environment, Prop, PropertySet, Value, is_user};

/// Which datasets are listed.
pub(super) struct Scope<'a> {
    /// Snapshots that the streams begin and end with, the part behind the `@`.
    pub from: Option<&'a str>,
    pub to: &'a str,
    /// With all children.
    pub is_recursive: bool,
    /// All snapshots up to the last one, not only that.
    pub has_all_snapshots: bool,
}

/// What the datasets below another one need of it.
#[derive(Debug, Clone, Copy, Default)]
struct Above {
    from_guid: Guid,
    to_txg: Txg,
}

/// The datasets, parents before their children, with what was left out.
pub(super) struct Gathered {
    pub package: Package,
    pub warnings: Vec<Warning>,
}

/// Gathers what the list says.
pub(super) struct Gatherer<'a> {
    pub dsl: &'a Dsl,
    pub order: &'a Order,
    pub scope: Scope<'a>,
    warnings: Vec<Warning>,
}

impl<'a> Gatherer<'a> {
    pub(super) fn new(dsl: &'a Dsl, order: &'a Order, scope: Scope<'a>) -> Self {
        Self { dsl, order, scope, warnings: Vec::new() }
    }

    /// Lists a dataset, and those below it where that is wanted.
    pub(super) async fn gather(mut self, start: &Arc<Dir>) -> Result<Gathered> {
        let mut datasets = Vec::new();
        let mut waiting = vec![(Arc::clone(start), Above::default())];
        let mut seen: HashMap<ObjectId, ()> = HashMap::new();
        while let Some((dir, above)) = waiting.pop() {
            if self.order.is_excluded(&dir.name) {
                continue;
            }
            if seen.insert(dir.object, ()).is_some() {
                return Err(Error::corrupt(&dir.name, "the same directory under two names"));
            }
            let Some((dataset, below)) = self.dataset(start, &dir, above).await? else { continue };
            datasets.push(dataset);
            if self.scope.is_recursive {
                let mut children = self.dsl.children_as_kept(&dir).await?;
                children.retain(|child| !child.is_internal() && !is_unfinished(&child.name));
                waiting.extend(children.into_iter().rev().map(|child| (child, below)));
            }
        }
        let package = Package {
            from_snapshot: self.scope.from.map(ByteString::from),
            to_snapshot: self.scope.to.into(),
            not_recursive: !self.scope.is_recursive,
            raw: self.order.flags.raw,
            datasets,
        };
        Ok(Gathered { package, warnings: self.warnings })
    }

    /// One dataset, unless it is left out.
    async fn dataset(
        &mut self,
        start: &Arc<Dir>,
        dir: &Arc<Dir>,
        above: Above,
    ) -> Result<Option<(PackagedDataset, Above)>> {
        let head = self.dsl.head(dir).await?;
        let is_head = self.scope.to == &HEAD[1..];
        let to = match is_head {
            true => Some(head.clone()),
            false => self.dsl.snapshot(&head, self.scope.to).await?,
        };
        let to_txg = to.as_ref().map_or(above.to_txg, |to| to.phys.creation_txg);
        let Some(to) = to else {
            return self.without_snapshot(start, &head, above).map(|()| None);
        };
        let from = match self.scope.from {
            Some(from) => self.dsl.snapshot(&head, from).await?,
            None => None,
        };
        let set = self.set_of(&dir.name).await?;
        let mut dataset = PackagedDataset {
            guid: head.phys.guid,
            name: dir.name.as_str().into(),
            parent_from_snapshot: above.from_guid,
            origin: self.dsl.origin_guid(dir).await?,
            properties: None,
            is_encryption_root: false,
            snapshots: Vec::new(),
            snapshot_properties: Vec::new(),
            holds: None,
        };
        let order = self.order;
        if order.properties || order.backup || self.scope.is_recursive {
            dataset.properties = Some(chosen(&set, order.backup, false));
        }
        if let Some(root) = self.dsl.encryption_root(dir).await? {
            dataset.is_encryption_root = root.object == dir.object;
            self.check_encrypted(start, dir)?;
        }
        if order.holds {
            dataset.holds = Some(Vec::new());
        }
        if is_head {
            // The stream has the head under the name of a snapshot, and its guid.
            dataset.snapshots.push((self.scope.to.into(), head.phys.guid));
            return Ok(Some((dataset, Above { from_guid: head.phys.guid, to_txg })));
        }
        let snapshots = self.snapshots(&head, from.as_ref(), &to).await?;
        let from_guid = self.list_snapshots(&mut dataset, &snapshots, to_txg).await?;
        Ok(Some((dataset, Above { from_guid, to_txg })))
    }

    /// A dataset that does not have the last snapshot.
    fn without_snapshot(&mut self, start: &Arc<Dir>, head: &Dataset, above: Above) -> Result<()> {
        let (name, to) = (&head.name, self.scope.to);
        if above.to_txg != Txg::NONE && head.phys.creation_txg > above.to_txg {
            let why = format!("skipping dataset {name}: snapshot {to} does not exist");
            self.warnings.push(Warning::Verbose(why));
        } else if self.order.skip_missing {
            self.warnings.push(Warning::Always(format!(
                "WARNING: skipping dataset {name} and its children: snapshot {to} does not exist"
            )));
        } else {
            let recursively = if self.scope.is_recursive { " recursively" } else { "" };
            let start = &start.name;
            return Err(Error::Invalid(format!(
                "cannot send {start}@{to}{recursively}: snapshot {name}@{to} does not exist"
            )));
        }
        Ok(())
    }

    /// Encrypted datasets have properties that a receiver cannot set without the key.
    fn check_encrypted(&mut self, start: &Arc<Dir>, dir: &Dir) -> Result<()> {
        let order = self.order;
        match (order.flags.raw, order.no_preserve_encryption) {
            (true, _) => Ok(()),
            (false, true) => {
                let name = &dir.name;
                self.warnings.push(Warning::Always(format!(
                    "WARNING: no-preserve-encryption flag set, sending dataset {name} without encryption"
                )));
                Ok(())
            }
            (false, false) => Err(Error::Invalid(format!(
                "cannot send {}@{}: encrypted dataset {} may not be sent with properties without the raw \
                 flag or no-preserve-encryption flag",
                start.name, self.scope.to, dir.name
            ))),
        }
    }

    /// The snapshots that are looked at, oldest first.
    async fn snapshots(&self, head: &Dataset, from: Option<&Dataset>, to: &Dataset) -> Result<Vec<Dataset>> {
        if !self.scope.has_all_snapshots {
            return Ok(vec![to.clone()]);
        }
        let mut snapshots = self.dsl.snapshots(head).await?;
        if !self.order.replicate {
            let first = from.map_or(Txg::NONE, |from| from.phys.creation_txg);
            snapshots.retain(|snapshot| (first..=to.phys.creation_txg).contains(&snapshot.phys.creation_txg));
        }
        Ok(snapshots)
    }

    /// Fills in what is said of snapshots. Gives the guid of the one that the children are sent after.
    async fn list_snapshots(
        &mut self,
        dataset: &mut PackagedDataset,
        snapshots: &[Dataset],
        to_txg: Txg,
    ) -> Result<Guid> {
        let mut from_guid = Guid(0);
        let (mut has_begun, mut has_ended) =
            (self.scope.from.is_some() && !self.scope.has_all_snapshots, false);
        for snapshot in snapshots {
            let name = snapshot.name.rsplit('@').next().unwrap_or_default();
            let (is_from, is_to) = (self.scope.from == Some(name), self.scope.to == name);
            if snapshot.phys.creation_txg > to_txg {
                self.warnings.push(Warning::Verbose(format!(
                    "skipping snapshot {} because it was created after the destination snapshot ({})",
                    snapshot.name, self.scope.to
                )));
                continue;
            }
            let guid = snapshot.phys.guid;
            dataset.snapshots.push((name.into(), guid));
            if is_from || from_guid == Guid(0) && is_to {
                from_guid = guid;
            }
            if !self.scope.is_recursive {
                has_begun |= self.order.all_between && self.scope.from.is_none();
                if !has_begun && is_from {
                    has_begun = true;
                    continue;
                }
                let is_to_of_full = is_to && self.scope.from.is_none();
                if (has_ended || !has_begun) && !is_to_of_full {
                    continue;
                }
                has_ended |= is_to;
            }
            let set = self.set_of(&snapshot.name).await?;
            dataset.snapshot_properties.push((name.into(), chosen(&set, self.order.backup, true)));
            if let Some(all) = &mut dataset.holds {
                let holds = self.dsl.holds(snapshot).await?.into_iter();
                let holds = holds.map(|hold| Hold { tag: hold.tag.as_str().into(), created: hold.time });
                all.push((name.into(), holds.collect()));
            }
        }
        Ok(from_guid)
    }

    async fn set_of(&self, name: &str) -> Result<PropertySet> {
        let entry = self.dsl.entry(name).await?;
        self.dsl.properties(&entry, &Environment::UNMOUNTED).await
    }
}

fn is_unfinished(name: &str) -> bool {
    name.rsplit('/').next().unwrap_or_default().contains('%')
}

/// The properties that a stream has, in the order in which they are kept.
fn chosen(set: &PropertySet, received_only: bool, is_snapshot: bool) -> Vec<PackagedProperty> {
    let all: Vec<(&str, &Value, Option<&Origin>)> = match received_only {
        true => set.all_received().map(|(name, value)| (name, value, None)).collect(),
        false => set.all_kept().map(|(name, value, origin)| (name, value, Some(origin))).collect(),
    };
    let is_limit = |prop: Option<Prop>| {
        matches!(prop, Some(Prop::Quota | Prop::Reservation | Prop::Refquota | Prop::Refreservation))
    };
    let mut chosen = Vec::new();
    for (name, value, origin) in all {
        let prop = Prop::from_stored_name(name);
        let is_settable = is_user(name) || prop.is_some_and(|prop| !prop.desc().readonly());
        if !is_settable || is_limit(prop) && is_snapshot {
            continue;
        }
        let is_own = match origin {
            None | Some(Origin::Received) => true,
            Some(Origin::Dataset(owner)) => *owner == set.name,
            Some(Origin::Computed) => is_limit(prop),
            Some(Origin::Default) => false,
        };
        if !is_own {
            continue;
        }
        let is_text =
            is_user(name) || prop.is_some_and(|prop| matches!(prop.desc().kind, ValueKind::Text(_)));
        let value = match value {
            Value::Text(text) if is_text => PackagedValue::Text(text.as_str().into()),
            Value::Number(number) if !is_text => PackagedValue::Number(*number),
            // A value of another type than the property's says nothing.
            Value::Text(_) | Value::Number(_) => continue,
        };
        chosen.push(PackagedProperty { name: name.into(), value });
    }
    chosen
}
