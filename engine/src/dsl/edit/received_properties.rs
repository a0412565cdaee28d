//! Properties that came with a stream: the source *received*.
//!
//! They are stored beside the local values and count where there is none and where the user did not say that
//! the property is inherited. A property that cannot be received here is left out, with the reason: the data
//! are worth more than it.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_ioctl.c` (`zfs_ioc_recv_impl`), `dsl_prop.c`.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::ObjectId;
use ondisk::dsl_dir::prop_suffix::RECEIVED;
use ondisk::pool_version as version;
use ondisk::send::{PackagedProperty, PackagedValue};
use ondisk::zap::ZapValue;

use super::properties::{self, Assignment, Setting};
use super::{FoundHead, crypto, events, find_head, find_snapshot, objects, policy};
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::table::{Kind, Types};
use crate::properties::{Prop, Value};

/// Says in the ZAP of properties that some were received.
const HAS_RECEIVED: &str = "$hasrecvd";

/// Gives a filesystem, volume or snapshot the properties of a stream. Those that it received before and that
/// are not among them go. Gives what was left out, and why.
pub async fn receive_properties(
    s: &SyncTask,
    name: &str,
    received: &[PackagedProperty],
) -> Result<Vec<String>> {
    if !s.has_version(version::RECVD_PROPS) {
        return Ok(vec![format!("cannot receive properties of {name}: pool must be upgraded")]);
    }
    if name.contains('@') {
        return of_snapshot(s, name, received).await;
    }
    let head = find_head(s, name).await?;
    s.require_for_change(Spare::Reserved, received.len() as u64 + 1)?;
    let zap = objects::dir(s, head.phys.dir).await?.props_zap;
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    objects::set(s, zap, &objects::name(HAS_RECEIVED), &objects::one(s.version())).await?;
    for property in received {
        let property_name = property.name.to_string();
        let assignment = match plan(s, &head, property).await {
            Ok(Some(assignment)) => assignment,
            Ok(None) => continue,
            Err(error) => {
                left_out.push(format!("cannot receive {property_name} property on {name}: {error}"));
                continue;
            }
        };
        set_received(s, &head, zap, &assignment).await?;
        kept.push(assignment.name);
    }
    for (stored, _) in objects::mos(s).entries(zap).await? {
        let Some(old) = stored.strip_suffix(RECEIVED) else { continue };
        if !kept.iter().any(|name| name == old) {
            forget_received(s, &head, zap, old).await?;
        }
    }
    let below = super::objsets_below(s, name).await?;
    policy::refresh(s, &below).await?;
    Ok(left_out)
}

/// Whether a snapshot has other received properties than a stream brings.
pub async fn snapshot_differs(s: &SyncTask, name: &str, received: &[PackagedProperty]) -> Result<bool> {
    let props = find_snapshot(s, name).await?.phys.props;
    let mut count = 0;
    if !props.is_none() {
        for (stored, value) in objects::mos(s).entries(props).await? {
            let Some(name) = stored.strip_suffix(RECEIVED) else { continue };
            count += 1;
            let value = crate::dsl::properties::to_value(&value);
            let is_same = |property: &PackagedProperty| {
                property.name.as_bytes() == name.as_bytes()
                    && match (&property.value, &value) {
                        (PackagedValue::Text(text), Value::Text(other)) => {
                            text.as_bytes() == other.as_bytes()
                        }
                        (PackagedValue::Number(number), Value::Number(other)) => number == other,
                        _ => false,
                    }
            };
            if !received.iter().any(is_same) {
                return Ok(true);
            }
        }
    }
    Ok(count != received.len())
}

/// All that is stored of the properties of a filesystem or volume: what was set there, received, and
/// inherited on purpose.
#[derive(Debug, Clone, Default)]
pub struct StoredProperties(BTreeMap<String, ZapValue>);

/// What changed in the stored properties of a filesystem or volume: each name with what was stored before and
/// what is now.
#[derive(Debug, Clone, Default)]
pub struct PropertyChanges(Vec<(String, Option<ZapValue>, Option<ZapValue>)>);

impl StoredProperties {
    /// Those of a filesystem or volume now.
    pub async fn of(s: &SyncTask, name: &str) -> Result<Self> {
        let head = find_head(s, name).await?;
        let zap = objects::dir(s, head.phys.dir).await?.props_zap;
        Ok(Self(objects::mos(s).entries(zap).await?.into_iter().collect()))
    }

    /// What changed until `after`.
    pub fn changes(&self, after: &Self) -> PropertyChanges {
        let names: BTreeSet<&String> = self.0.keys().chain(after.0.keys()).collect();
        let changed = names.into_iter().filter(|name| *name != HAS_RECEIVED).filter_map(|name| {
            let (before, after) = (self.0.get(name).cloned(), after.0.get(name).cloned());
            (before != after).then(|| (name.clone(), before, after))
        });
        PropertyChanges(changed.collect())
    }
}

/// Takes changes of properties back. What was changed again meanwhile stays.
pub async fn take_back(s: &SyncTask, name: &str, changes: &PropertyChanges) -> Result<()> {
    let head = find_head(s, name).await?;
    let zap = objects::dir(s, head.phys.dir).await?.props_zap;
    s.require_for_change(Spare::Reserved, changes.0.len() as u64 + 1)?;
    for (stored, before, after) in &changes.0 {
        if objects::mos(s).value(zap, stored).await? != *after {
            continue;
        }
        let native = Prop::from_stored_name(stored.split('$').next().unwrap_or_default());
        let space = native.map(|prop| Assignment::of(prop, Value::Number(0)).setting);
        let space = match space {
            Some(Setting::Space(prop)) => Some((prop, properties::number(s, head.phys.dir, prop).await?)),
            _ => None,
        };
        match before {
            Some(value) => objects::set(s, zap, &objects::name(stored), value).await?,
            None => drop(objects::remove(s, zap, &objects::name(stored)).await?),
        }
        if let Some((prop, old)) = space {
            let new = properties::number(s, head.phys.dir, prop).await?;
            properties::apply_space(s, head.object, prop, old, new).await?;
        }
        events::note(s, "set", name, head.object, &format!("{stored} as before")).await?;
        events::set(s, name, head.phys.guid, stored.split('$').next().unwrap_or_default());
    }
    let below = super::objsets_below(s, name).await?;
    policy::refresh(s, &below).await
}

/// Whether a property means something for a filesystem, or a volume.
pub fn applies(property: &str, is_volume: bool) -> bool {
    let types = if is_volume { Types::VOLUME } else { Types::FILESYSTEM };
    Prop::from_name(property).is_none_or(|prop| prop.desc().valid_for(types, false))
}

/// Whether a filesystem or volume was given a value of its own of this property.
pub async fn has_local_property(s: &SyncTask, name: &str, property: &str) -> Result<bool> {
    let head = find_head(s, name).await?;
    let zap = objects::dir(s, head.phys.dir).await?.props_zap;
    let key = Prop::from_name(property).map_or(property, |prop| prop.desc().name);
    Ok(objects::mos(s).entries(zap).await?.iter().any(|(stored, _)| stored == key))
}

/// What a property of a stream is for this dataset; `None` where its contents say it.
async fn plan(s: &SyncTask, head: &FoundHead, property: &PackagedProperty) -> Result<Option<Assignment>> {
    let Some(name) = property.name.to_str() else {
        return Err(Error::Invalid("its name is no text".to_owned()));
    };
    let Some(prop) = Prop::from_stored_name(name) else {
        let PackagedValue::Text(text) = &property.value else {
            return Err(Error::Invalid("invalid property".to_owned()));
        };
        let text = text.to_string();
        properties::check_user_only(s, &[(name.to_owned(), text.clone())])?;
        let value = Value::Text(text);
        return Ok(Some(Assignment { name: name.to_owned(), value, setting: Setting::Stored }));
    };
    let desc = prop.desc();
    let value = match (&property.value, &desc.kind) {
        (PackagedValue::Number(number), Kind::Number(_) | Kind::Index(..)) => Value::Number(*number),
        (PackagedValue::Text(text), Kind::Text(_)) => Value::Text(text.to_string()),
        _ => return Err(Error::Invalid("its value is of another kind".to_owned())),
    };
    let assignment = Assignment::of(prop, value);
    if matches!(assignment.setting, Setting::Contents(_)) || desc.set_once() {
        return Ok(None);
    }
    if desc.readonly() {
        return Err(Error::Invalid("it is readonly".to_owned()));
    }
    if !desc.valid_for(properties::types_of(s, head).await?, false) {
        return Err(Error::Invalid("it does not apply to datasets of this type".to_owned()));
    }
    if desc.knows_index(assignment.number()) == Some(false) {
        return Err(Error::Invalid(format!("it has the unknown value {}", assignment.number())));
    }
    properties::check_value(s.version(), |feature| s.feature_enabled(feature), &assignment)?;
    crypto::check_set(s, head, &assignment).await?;
    if let Setting::Space(prop) = assignment.setting {
        let old = properties::number(s, head.phys.dir, prop).await?;
        properties::check_space(s, head, prop, old, assignment.number()).await?;
    }
    Ok(Some(assignment))
}

async fn set_received(s: &SyncTask, head: &FoundHead, zap: ObjectId, assignment: &Assignment) -> Result<()> {
    let dir = head.phys.dir;
    let space = match assignment.setting {
        Setting::Space(prop) => Some((prop, properties::number(s, dir, prop).await?)),
        _ => None,
    };
    let prop = Prop::from_stored_name(&assignment.name);
    if matches!(prop, Some(Prop::FilesystemLimit | Prop::SnapshotLimit)) {
        properties::keep_counts(s, dir).await?;
    }
    let key = objects::name(&format!("{}{RECEIVED}", assignment.name));
    objects::set(s, zap, &key, &properties::stored(&assignment.value)).await?;
    if let Some((prop, old)) = space {
        let new = properties::number(s, dir, prop).await?;
        properties::apply_space(s, head.object, prop, old, new).await?;
    }
    let text = match &assignment.value {
        Value::Number(number) => format!("{}={number}", assignment.name),
        Value::Text(text) => format!("{}={text}", assignment.name),
    };
    events::set(s, &head.name, head.phys.guid, &assignment.name);
    events::note(s, "set", &head.name, head.object, &text).await
}

/// A property that was received before is not any more.
async fn forget_received(s: &SyncTask, head: &FoundHead, zap: ObjectId, name: &str) -> Result<()> {
    let assignment = Prop::from_stored_name(name).map(|prop| Assignment::of(prop, Value::Number(0)));
    let space = match assignment.map(|assignment| assignment.setting) {
        Some(Setting::Space(prop)) => Some((prop, properties::number(s, head.phys.dir, prop).await?)),
        _ => None,
    };
    objects::remove(s, zap, &objects::name(&format!("{name}{RECEIVED}"))).await?;
    if let Some((prop, old)) = space {
        let new = properties::number(s, head.phys.dir, prop).await?;
        properties::apply_space(s, head.object, prop, old, new).await?;
    }
    events::set(s, &head.name, head.phys.guid, name);
    Ok(())
}

/// User properties of a snapshot. Those that it received before and that are not among them go.
async fn of_snapshot(s: &SyncTask, name: &str, received: &[PackagedProperty]) -> Result<Vec<String>> {
    let snapshot = find_snapshot(s, name).await?;
    s.require_for_change(Spare::Reserved, received.len() as u64 + 1)?;
    let (mut left_out, mut kept) = (Vec::new(), Vec::new());
    for property in received {
        let PackagedValue::Text(text) = &property.value else { continue };
        let one = (property.name.to_string(), text.to_string());
        match properties::check_user_only(s, std::slice::from_ref(&one)) {
            Ok(()) => kept.push(one),
            Err(error) => left_out.push(format!("cannot receive {} property on {name}: {error}", one.0)),
        }
    }
    if !snapshot.phys.props.is_none() {
        for (stored, _) in objects::mos(s).entries(snapshot.phys.props).await? {
            let Some(old) = stored.strip_suffix(RECEIVED) else { continue };
            if !kept.iter().any(|(name, _)| name == old) {
                objects::remove(s, snapshot.phys.props, &objects::name(&stored)).await?;
            }
        }
    }
    properties::store_snapshot(s, snapshot.object, &kept, RECEIVED).await?;
    kept.iter().for_each(|(property, _)| events::set(s, name, snapshot.phys.guid, property));
    Ok(left_out)
}
