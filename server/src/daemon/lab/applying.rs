//! Properties that an experiment found to be better, set on a dataset, and what was before set again.
//!
//! Properties are set and inherited by the same methods as for `property-set` and `property-inherit`, so that
//! the pool's history has them; the block size of a volume changes by copying it, as there. What was before
//! is on the disk before anything is changed. A property that has been changed since is left as it is when
//! the rest is set back.
//!
//! | what fails | what is kept |
//! |---|---|
//! | writing down what was before | nothing was changed |
//! | setting, with nothing changed | nothing |
//! | setting, with something changed; the daemon dies | what was before: reverting sets it back |
//! | setting back | what was before: reverting can be tried again |

use engine::properties::Prop;

use super::folder::{Applied, Before, Changed, Folder, was};
use super::{check_name, failed, now};
use crate::api::{
    self, ApiError, DatasetEntry, DatasetKind, LabChanged, LabReverted, LabVerdict, PropertiesSet, Property,
    ReshapeAction, ReshapeState, Source,
};
use crate::daemon::Daemon;
use crate::sizes::parse_size;

/// The property of which a change copies the volume.
const VOLBLOCKSIZE: &str = "volblocksize";
/// By what a dataset is known, whatever its name.
const GUID: &str = "guid";
/// The most properties that are set at a time.
const MOST_CHANGES: usize = 64;

/// A command that does the same, for a person.
fn shown(words: &[&str]) -> String {
    let quoted = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    format!("cenote {quoted}")
}

/// The same, for the history.
fn for_history(words: &[&str]) -> Option<String> {
    Some(words.join(" "))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:=,@%+-".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// What was asked for is done, or the first error.
fn done(set: PropertiesSet, remarks: &mut Vec<String>) -> Result<(), ApiError> {
    remarks.extend(set.warnings);
    set.failed.into_iter().next().map_or(Ok(()), Err)
}

/// What a property is now.
fn before(property: &str, now: &Property) -> Before {
    match (&now.source, &now.parsable) {
        // A volume has one of its own, always.
        (Source::Local, Some(value)) => Before::Set(value.clone()),
        (_, Some(value)) if property == VOLBLOCKSIZE => Before::Set(value.clone()),
        (Source::Received, _) => Before::Received,
        _ => Before::Inherited,
    }
}

/// The properties of a verdict on this dataset, with what they are now.
fn changes(verdict: &LabVerdict, dataset: &DatasetEntry) -> Result<Vec<Changed>, ApiError> {
    let refused = |why: String| ApiError::refused(format!("cannot apply '{}': {why}", verdict.variant));
    if let Some(why) = &verdict.why_not {
        return Err(refused(why.clone()));
    }
    if verdict.changes.is_empty() {
        return Err(refused("it changes no property".to_owned()));
    }
    if verdict.changes.len() > MOST_CHANGES {
        return Err(refused(format!("{} properties are too many", verdict.changes.len())));
    }
    if !matches!(dataset.kind, DatasetKind::Filesystem | DatasetKind::Volume) {
        return Err(refused(format!("'{}' is a {}", dataset.name, dataset.kind.word())));
    }
    let each = verdict.changes.iter().map(|(property, to)| {
        let known = Prop::from_name(property);
        let now = dataset.property(property).filter(|now| known.is_some() && now.value.is_some());
        let now = now.ok_or_else(|| {
            refused(format!("'{property}' is no property of the {} '{}'", dataset.kind.word(), dataset.name))
        })?;
        Ok(Changed {
            property: property.clone(),
            to: to.clone(),
            before: before(property, now),
            told: match before(property, now) {
                Before::Set(_) => now.value.clone(),
                Before::Received | Before::Inherited => None,
            },
            is: None,
        })
    });
    let all: Vec<Changed> = each.collect::<Result<_, ApiError>>()?;
    // The block size that it has is none that it could get.
    let is_same = |it: &Changed| match &it.before {
        Before::Set(now) => it.property == VOLBLOCKSIZE && parse_size(&it.to).ok() == now.parse().ok(),
        _ => false,
    };
    Ok(all.into_iter().filter(|it| !is_same(it)).collect())
}

/// What sets properties back: those to inherit, with whether they were received, and those to set.
#[derive(Debug, Default, PartialEq, Eq)]
struct Back {
    inherit: Vec<(String, bool)>,
    set: Vec<(String, String)>,
    remarks: Vec<String>,
}

/// What sets back what was applied, of what is still as it was set.
fn back(applied: &Applied, dataset: &DatasetEntry) -> Back {
    let mut back = Back::default();
    for changed in &applied.changed {
        let property = &changed.property;
        let now = dataset.property(property);
        let now_is = now.and_then(|now| now.parsable.clone());
        let is_own = now.is_some_and(|now| now.source == Source::Local) || property == VOLBLOCKSIZE;
        // Before it was read back, it may not have been set at all.
        let is_ours = is_own && changed.is.as_ref().is_none_or(|is| Some(is) == now_is.as_ref());
        match &changed.before {
            Before::Set(value) if now_is.as_ref() == Some(value) && is_own => {}
            _ if !is_ours && changed.is.is_some() => back.remarks.push(format!(
                "{property} is left as it is, {}: it was changed since",
                now_is.as_deref().unwrap_or("-")
            )),
            Before::Set(value) => back.set.push((property.clone(), value.clone())),
            // It was not set, or is not any more.
            _ if !is_own => {}
            Before::Received => back.inherit.push((property.clone(), true)),
            Before::Inherited => back.inherit.push((property.clone(), false)),
        }
    }
    back
}

impl Daemon {
    /// A dataset with these properties and its guid.
    async fn dataset_of_experiment(
        &self,
        name: &str,
        properties: impl Iterator<Item = &str>,
    ) -> Result<DatasetEntry, ApiError> {
        let list = api::ListDatasets {
            names: vec![name.to_owned()],
            depth: Some(0),
            properties: [GUID].into_iter().chain(properties).map(str::to_owned).collect(),
            ..api::ListDatasets::default()
        };
        let listed = self.list_datasets(list).await?;
        if let Some(error) = listed.failed.into_iter().next() {
            return Err(error);
        }
        let entry = listed.entries.into_iter().next();
        entry.ok_or_else(|| ApiError::not_found(format!("cannot open '{name}': dataset does not exist")))
    }

    /// Gives a dataset the properties of a variant that an experiment found to be better.
    ///
    /// # Errors
    /// The experiment found no such variant, or one that is no properties of such a dataset; another one is
    /// applied to it; the properties cannot be set.
    pub async fn lab_apply(&self, request: api::ApplyLab) -> Result<LabChanged, ApiError> {
        let api::ApplyLab { name, variant, dataset, dry_run } = request;
        check_name(&name)?;
        let _turn = self.lab.turn.lock().await;
        let folder = self.experiment(&name)?;
        let verdicts = self.report_of(&folder)?.verdicts;
        let verdict = verdicts.into_iter().find(|verdict| verdict.variant == variant).ok_or_else(|| {
            ApiError::not_found(format!("the experiment '{name}' found no '{variant}' that is better"))
        })?;
        let names = verdict.changes.iter().take(MOST_CHANGES).map(|(property, _)| property.as_str());
        // What is no property at all is told below.
        let names = names.filter(|name| Prop::from_name(name).is_some());
        let entry = self.dataset_of_experiment(&dataset, names).await?;
        let changed = changes(&verdict, &entry)?;
        let read = folder.applied().map_err(|error| failed("read what was applied of", &name, &error));
        let mut all = read?;
        if let Some(applied) = all.iter().find(|applied| applied.dataset == dataset) {
            return Err(ApiError::refused(format!(
                "'{}' of the experiment '{name}' is applied to '{dataset}' already: revert that first",
                applied.variant
            )));
        }
        let mut remarks = Vec::new();
        if changed.is_empty() {
            remarks.push(format!("'{dataset}' has that already"));
            return Ok(LabChanged { remarks, ..LabChanged::default() });
        }
        let given: Vec<String> = changed.iter().map(|it| format!("{}={}", it.property, it.to)).collect();
        let words: Vec<&str> = ["zfs", "set"]
            .into_iter()
            .chain(given.iter().map(String::as_str))
            .chain([dataset.as_str()])
            .collect();
        let reply = LabChanged { commands: vec![shown(&words)], was: was(&changed), remarks };
        // What is refused of the copy is before anything is set.
        let copied = self.plan_copy(&dataset, &changed).await?;
        if dry_run {
            return Ok(LabChanged { remarks: copied, ..reply });
        }
        let guid = entry.property(GUID).and_then(|guid| guid.parsable.clone()).unwrap_or_default();
        all.push(Applied { dataset: dataset.clone(), guid, variant, at: now(), changed });
        let cannot = |error| failed("write down what was before in the folder of", &name, &error);
        folder.write_applied(&all).map_err(cannot)?;
        let set = self
            .set_properties(api::SetProperties {
                datasets: vec![dataset.clone()],
                properties: verdict.changes.iter().filter(|it| is_among(it, &all)).cloned().collect(),
                no_mount: false,
                command: for_history(&words),
            })
            .await?;
        let mut remarks = Vec::new();
        let done = done(set, &mut remarks);
        self.note_applied(&folder, all, done.is_ok()).await;
        done.map(|()| LabChanged { remarks, ..reply })
    }

    /// What copying a volume for another block size takes, where that is among the changes.
    async fn plan_copy(&self, dataset: &str, changed: &[Changed]) -> Result<Vec<String>, ApiError> {
        let Some(block) = changed.iter().find(|it| it.property == VOLBLOCKSIZE) else {
            return Ok(Vec::new());
        };
        let volblocksize = parse_size(&block.to).map_err(|fault| {
            ApiError::invalid(format!("cannot set property for '{dataset}': {VOLBLOCKSIZE}: {fault}"))
        })?;
        let planned = self
            .reshape_volume(api::ReshapeVolume {
                volume: dataset.to_owned(),
                action: ReshapeAction::Start,
                volblocksize,
                dry_run: true,
                command: None,
            })
            .await?;
        let Some(plan) = planned else { return Ok(Vec::new()) };
        let time = plan.time.map_or_else(String::new, |time| format!(" and at least {} s", time.seconds));
        let mut remarks = vec![format!(
            "'{dataset}' is copied for its new block size while it is in use: that takes {} MiB of the \
             pool{time}, \
             and the old volume is kept as '{}'",
            plan.needed_bytes >> 20,
            plan.kept
        )];
        if plan.needed_bytes > plan.available_bytes {
            remarks.push(format!("The pool has only {} MiB for it.", plan.available_bytes >> 20));
        }
        Ok(remarks)
    }

    /// Notes how the properties of what was applied last are read back. Where nothing of it came about, it is
    /// forgotten. Without that, reverting sets back what was written down before.
    async fn note_applied(&self, folder: &Folder, mut all: Vec<Applied>, is_done: bool) {
        let Some(last) = all.last_mut() else { return };
        let names: Vec<String> = last.changed.iter().map(|it| it.property.clone()).collect();
        let entry = self.dataset_of_experiment(&last.dataset, names.iter().map(String::as_str)).await;
        let Ok(entry) = entry else { return };
        let mut is_changed = is_done;
        for changed in &mut last.changed {
            let Some(now) = entry.property(&changed.property) else { continue };
            is_changed |= before(&changed.property, now) != changed.before;
            // A volume has its new block size when it is copied.
            if changed.property != VOLBLOCKSIZE && now.source == Source::Local {
                changed.is.clone_from(&now.parsable);
            }
        }
        if !is_changed {
            all.pop();
        }
        if let Err(error) = folder.write_applied(&all) {
            tracing::warn!(%error, experiment = folder.name(), "what was applied is not noted as read back");
        }
    }

    /// Gives a dataset back what it had before an experiment was applied to it.
    ///
    /// # Errors
    /// None is applied to it; it is another dataset by now; the properties cannot be set.
    pub async fn lab_revert(&self, request: api::RevertLab) -> Result<LabReverted, ApiError> {
        let api::RevertLab { name, dataset } = request;
        check_name(&name)?;
        let _turn = self.lab.turn.lock().await;
        let folder = self.experiment(&name)?;
        let read = folder.applied().map_err(|error| failed("read what was applied of", &name, &error));
        let mut all = read?;
        let at = all.iter().position(|applied| applied.dataset == dataset).ok_or_else(|| {
            ApiError::not_found(format!("nothing of the experiment '{name}' is applied to '{dataset}'"))
        })?;
        let applied = all.remove(at);
        let names = applied.changed.iter().map(|it| it.property.as_str());
        let entry = self.dataset_of_experiment(&dataset, names).await?;
        // A volume that was copied for another block size is another dataset, by intention.
        let is_copied = applied.changed.iter().any(|it| it.property == VOLBLOCKSIZE);
        let guid = entry.property(GUID).and_then(|guid| guid.parsable.clone());
        if !is_copied && guid.as_deref() != Some(&applied.guid) {
            return Err(ApiError::refused(format!(
                "'{dataset}' is another dataset by now than the one that the experiment '{name}' was applied \
                 to"
            )));
        }
        let mut reply = LabReverted::default();
        if is_copied {
            self.cancel_copy(&dataset, &mut reply).await?;
        }
        let back = back(&applied, &entry);
        reply.remarks.extend(back.remarks);
        for (property, received) in back.inherit {
            let mut words = vec!["zfs", "inherit"];
            words.extend(received.then_some("-S"));
            words.extend([property.as_str(), dataset.as_str()]);
            reply.commands.push(shown(&words));
            let inherit = api::InheritProperty {
                command: for_history(&words),
                datasets: vec![dataset.clone()],
                property: property.clone(),
                recursive: false,
                received,
            };
            done(self.inherit_property(inherit).await?, &mut reply.remarks)?;
        }
        if !back.set.is_empty() {
            let given: Vec<String> = back.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let words = ["zfs", "set"].into_iter().chain(given.iter().map(String::as_str));
            let words: Vec<&str> = words.chain([dataset.as_str()]).collect();
            reply.commands.push(shown(&words));
            let set = api::SetProperties {
                datasets: vec![dataset.clone()],
                properties: back.set,
                no_mount: false,
                command: for_history(&words),
            };
            done(self.set_properties(set).await?, &mut reply.remarks)?;
        }
        let written = folder.write_applied(&all);
        written.map_err(|error| failed("write down that it was reverted in the folder of", &name, &error))?;
        Ok(reply)
    }

    /// Gives up the copy of a volume that is under way.
    async fn cancel_copy(&self, volume: &str, reply: &mut LabReverted) -> Result<(), ApiError> {
        let listed = self.list_reshapes(&api::ListReshapes { volumes: vec![volume.to_owned()] })?;
        let is_under_way = |state| matches!(state, ReshapeState::Active | ReshapeState::Paused);
        if !listed.iter().any(|it| it.volume == volume && is_under_way(it.state)) {
            return Ok(());
        }
        let words = ["reshape", volume, "--cancel"];
        reply.commands.push(shown(&words));
        let cancel = api::ReshapeVolume {
            volume: volume.to_owned(),
            action: ReshapeAction::Cancel,
            command: for_history(&words),
            ..api::ReshapeVolume::default()
        };
        self.reshape_volume(cancel).await.map(drop)
    }
}

/// Whether a change is among those that were written down last.
fn is_among((property, _): &(String, String), all: &[Applied]) -> bool {
    all.last().is_some_and(|last| last.changed.iter().any(|it| it.property == *property))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(name: &str, parsable: &str, source: Source) -> Property {
        Property {
            name: name.into(),
            value: Some(parsable.into()),
            parsable: Some(parsable.into()),
            source,
            received: None,
            received_parsable: None,
        }
    }

    fn dataset(kind: DatasetKind, properties: Vec<Property>) -> DatasetEntry {
        DatasetEntry { name: "tank/a".into(), kind, createtxg: 1, properties }
    }

    fn verdict(changes: &[(&str, &str)]) -> LabVerdict {
        let changes = changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LabVerdict { variant: "v".into(), changes: changes.collect(), ..LabVerdict::default() }
    }

    #[test]
    fn what_was_is_told_apart_by_where_it_came_from() {
        let entry = dataset(
            DatasetKind::Filesystem,
            vec![
                property("recordsize", "131072", Source::Default),
                property("compression", "lz4", Source::Local),
                property("atime", "on", Source::Received),
            ],
        );
        let all =
            changes(&verdict(&[("recordsize", "16K"), ("compression", "zstd"), ("atime", "off")]), &entry)
                .unwrap();
        let befores: Vec<&Before> = all.iter().map(|it| &it.before).collect();
        assert_eq!(befores, [&Before::Inherited, &Before::Set("lz4".into()), &Before::Received]);
        assert_eq!(was(&all)[1], ("compression".to_owned(), Some("lz4".to_owned())));
        assert_eq!(was(&all)[0].1, None);
    }

    #[test]
    fn what_cannot_be_set_on_the_dataset_is_refused_before_anything_is_done() {
        let volume = dataset(DatasetKind::Volume, vec![property(VOLBLOCKSIZE, "16384", Source::Default)]);
        let refused =
            |verdict: &LabVerdict, entry: &DatasetEntry| changes(verdict, entry).unwrap_err().message;
        assert!(refused(&verdict(&[("recordsize", "16K")]), &volume).contains("no property of the volume"));
        assert!(refused(&verdict(&[("log", "file")]), &volume).contains("'log' is no property"));
        assert!(refused(&verdict(&[]), &volume).contains("no property"));
        let why = LabVerdict { why_not: Some("add a log device".into()), ..verdict(&[("sync", "always")]) };
        assert!(refused(&why, &volume).contains("add a log device"));
        let snapshot = dataset(DatasetKind::Snapshot, Vec::new());
        assert!(refused(&verdict(&[("sync", "always")]), &snapshot).contains("is a snapshot"));
        // It has that block size already, or gets it from its own.
        assert!(changes(&verdict(&[(VOLBLOCKSIZE, "16K")]), &volume).unwrap().is_empty());
        let copied = changes(&verdict(&[(VOLBLOCKSIZE, "64K")]), &volume).unwrap();
        assert_eq!(copied[0].before, Before::Set("16384".into()));
    }

    #[test]
    fn only_what_is_still_as_it_was_set_is_set_back() {
        let changed = |property: &str, before: Before, is: Option<&str>| Changed {
            property: property.into(),
            to: "x".into(),
            before,
            told: None,
            is: is.map(str::to_owned),
        };
        let applied = |changed: Vec<Changed>| Applied {
            dataset: "tank/a".into(),
            guid: "1".into(),
            variant: "v".into(),
            at: 0,
            changed,
        };
        let entry = dataset(
            DatasetKind::Filesystem,
            vec![
                property("recordsize", "16384", Source::Local),
                property("compression", "zstd", Source::Local),
                property("atime", "off", Source::Local),
                property("sync", "always", Source::Local),
                property("logbias", "latency", Source::Default),
            ],
        );
        let found = back(
            &applied(vec![
                changed("recordsize", Before::Inherited, Some("16384")),
                changed("compression", Before::Set("lz4".into()), Some("zstd")),
                changed("atime", Before::Received, None),
                changed("sync", Before::Inherited, Some("disabled")),
                changed("logbias", Before::Inherited, None),
            ]),
            &entry,
        );
        assert_eq!(found.inherit, [("recordsize".to_owned(), false), ("atime".to_owned(), true)]);
        assert_eq!(found.set, [("compression".to_owned(), "lz4".to_owned())]);
        assert!(found.remarks.len() == 1 && found.remarks[0].starts_with("sync is left"), "{found:?}");
        // The copy for another block size was given up, or has come about.
        let of_block = |now: &str| {
            let volume = dataset(DatasetKind::Volume, vec![property(VOLBLOCKSIZE, now, Source::Default)]);
            back(&applied(vec![changed(VOLBLOCKSIZE, Before::Set("16384".into()), None)]), &volume).set
        };
        assert!(of_block("16384").is_empty());
        assert_eq!(of_block("65536"), [(VOLBLOCKSIZE.to_owned(), "16384".to_owned())]);
    }

    #[test]
    fn commands_are_words_for_a_shell() {
        assert_eq!(shown(&["zfs", "set", "a=b", "tank/x y"]), "cenote zfs set a=b 'tank/x y'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
