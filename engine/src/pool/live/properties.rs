//! Setting properties of a pool that is written.
//!
//! Most are numbers (or words for numbers) in a ZAP that the pool directory names once one was set. `comment`
//! and `compatibility` stand in the configuration, so that they can be read before the pool is open;
//! `feature@…` enables features; user properties are text.
//!
//! Source of the facts: OpenZFS 2.3 `spa.c` (`spa_prop_validate`, `spa_sync_props`).

use std::sync::Arc;

use ondisk::Guid;
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::nearest::meant;
use ondisk::nvlist::ByteString;
use ondisk::pool_directory as directory;

use super::attach::note;
use super::thresholds::is_threshold;
use super::{Syncing, set_version, version};
use crate::dmu::{LiveObject, zap};
use crate::dsl::{self, Dsl, Spare};
use crate::error::{Error, Result};
use crate::events::feed::What;
use crate::pool::properties::table::VDEV_TABLE;
use crate::pool::properties::{PoolProp, VdevProp};
use crate::properties::typed::parse_number;
use crate::properties::{Attr, Kind, index, is_user};
use crate::store::suspend::FailMode;

/// Blocks that a property takes.
const BLOCKS: u64 = 6;
/// Longest comment.
const MAX_COMMENT_BYTES: usize = 31;
/// Longest value of a user property.
const MAX_USER_VALUE_BYTES: usize = 8191;
/// Sector sizes that can be asked for; 0 leaves it to the devices.
const ASHIFT: std::ops::RangeInclusive<u64> = 9..=16;

/// Sets one property, as typed, and notes that in the history. The value is checked before anything is changed.
pub async fn set(s: &Syncing, name: &str, value: &str) -> Result<()> {
    set_quietly(s, name, value).await?;
    s.announce(What::PoolSet { property: name.to_owned() });
    note(s, "set", &format!("{name}={value}")).await
}

async fn set_quietly(s: &Syncing, name: &str, value: &str) -> Result<()> {
    s.require_for_change(Spare::Extra, BLOCKS)?;
    if let Some(feature) = name.strip_prefix("feature@") {
        return set_feature(s, feature, value).await;
    }
    if is_user(name) {
        return set_user(s, name, value).await;
    }
    let invalid = |why: &str| Error::Invalid(format!("property '{name}': {why}"));
    let prop = PoolProp::from_name(name).ok_or_else(|| invalid("invalid property"))?;
    let desc = prop.desc();
    if desc.attr == Attr::Readonly {
        return Err(invalid("this property cannot be set"));
    }
    let number = match prop {
        PoolProp::Comment => {
            let printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
            if value.len() > MAX_COMMENT_BYTES || !printable {
                return Err(invalid("a comment is up to 31 printable ASCII characters"));
            }
            s.pool.config().comment = (!value.is_empty()).then(|| ByteString::new(value.as_bytes()));
            s.pool.config_changed();
            return Ok(());
        }
        PoolProp::Compatibility => {
            let known = matches!(value, "off" | "legacy" | "");
            if !known && value.contains('\0') {
                return Err(invalid("not a list of files"));
            }
            let stored = !matches!(value, "off" | "");
            s.pool.config().compatibility = stored.then(|| ByteString::new(value.as_bytes()));
            s.pool.config_changed();
            return Ok(());
        }
        PoolProp::Bootfs if !s.has_version(version::BOOTFS) => {
            let why = "pool must be upgraded to support 'bootfs' property";
            return Err(Error::Unsupported(why.to_owned()));
        }
        PoolProp::Bootfs => match value {
            "" | "-" => 0,
            dataset => {
                let entry = Dsl::open_in(s.mos().view()).await?.entry(dataset).await?;
                match (entry.kind, entry.dataset()) {
                    (dsl::Kind::Filesystem | dsl::Kind::Snapshot { of_volume: false }, Some(found)) => {
                        found.object.get()
                    }
                    _ => {
                        return Err(invalid(&format!("'{dataset}' is no filesystem, nor a snapshot of one")));
                    }
                }
            }
        },
        PoolProp::Multihost if value == "on" && s.pool.config().host.0 == 0 => {
            return Err(invalid("requires a non-zero system hostid"));
        }
        PoolProp::Version => {
            let version = parse_number(value).ok_or_else(|| invalid("a number is needed"))?;
            return set_version(s, version).await;
        }
        PoolProp::Cachefile | PoolProp::Altroot | PoolProp::Readonly | PoolProp::Tname => {
            return Err(invalid("it can only be given when the pool is created or imported"));
        }
        PoolProp::DedupTableQuota if value == "auto" => u64::MAX,
        PoolProp::DedupTableQuota if value == "none" => 0,
        _ => match desc.kind {
            Kind::Index(_, names) => index::number(names, value)
                .ok_or_else(|| invalid(&format!("'{name}' must be one of '{}'", index::choices(names))))?,
            Kind::Number(_) => parse_number(value).ok_or_else(|| invalid("a number is needed"))?,
            Kind::Text(_) => return Err(invalid("this property cannot be set")),
        },
    };
    if prop == PoolProp::Ashift && number != 0 && !ASHIFT.contains(&number) {
        return Err(invalid("it must be between 9 and 16"));
    }
    if prop == PoolProp::Failmode {
        s.pool.pool().suspension.set_mode(FailMode::from_number(number).unwrap_or_default());
    }
    for part in s.pool.parts.all().filter(|part| part.property() == Some(prop)) {
        part.turn(&s.pool, number == 1);
    }
    let zap = properties_zap(s).await?;
    let key = zap::Key::Name(desc.name.into());
    if prop == PoolProp::Bootfs && number == 0 {
        return zap::edit::remove(&zap, &s.tx, &key).await.map(|_| ());
    }
    zap::edit::set(&zap, &s.tx, &key, &zap::Value::U64(vec![number])).await
}

/// Sets a property of a vdev, as typed: `comment`, how many errors are too many, or one of the user's own. An
/// empty value removes it. The others that OpenZFS lets users set change what it does, and nothing here looks
/// at them.
pub async fn set_of_vdev(s: &Syncing, vdev: Guid, name: &str, value: &str) -> Result<()> {
    let prop = VdevProp::from_name(name);
    match prop.map(|prop| (prop, prop.desc().attr)) {
        Some((VdevProp::Comment, _)) => {}
        Some((prop, _)) if is_threshold(prop) => return set_threshold(s, vdev, name, value).await,
        None if is_user(name) => {}
        None => {
            let meant = meant(name, VDEV_TABLE.iter().filter(|desc| desc.visible).map(|desc| desc.name));
            return Err(Error::Invalid(format!("invalid property '{name}'{meant}")));
        }
        Some((_, Attr::Readonly)) => return Err(Error::Invalid(format!("'{name}' is readonly"))),
        Some(_) => {
            let why = "this version does not act on it, so it cannot be set here yet";
            return Err(Error::Unsupported(format!("property '{name}': {why}")));
        }
    }
    if value.len() > MAX_USER_VALUE_BYTES {
        let why = format!("the value of '{name}' is longer than {MAX_USER_VALUE_BYTES} bytes");
        return Err(Error::Invalid(why));
    }
    set_text(s, &zap_of_vdev(s, vdev, name).await?, name, value).await
}

/// Sets how many errors are too many; `none` for OpenZFS's usual numbers.
async fn set_threshold(s: &Syncing, vdev: Guid, name: &str, value: &str) -> Result<()> {
    let number = match value {
        "" | "none" => None,
        _ => Some(
            parse_number(value)
                .ok_or_else(|| Error::Invalid(format!("property '{name}': a number is needed, or 'none'")))?,
        ),
    };
    let zap = zap_of_vdev(s, vdev, name).await?;
    let key = zap::Key::Name(name.into());
    match number {
        Some(number) => zap::edit::set(&zap, &s.tx, &key, &zap::Value::U64(vec![number])).await?,
        None => drop(zap::edit::remove(&zap, &s.tx, &key).await?),
    }
    s.pool.apply_thresholds().await
}

/// The ZAP with the properties of a vdev.
async fn zap_of_vdev(s: &Syncing, vdev: Guid, name: &str) -> Result<Arc<LiveObject>> {
    let zap = {
        let mut config = s.pool.config();
        match vdev == config.root.guid {
            true => config.root.root_zap,
            false => config.find_mut(vdev).and_then(|config| config.top_zap.or(config.leaf_zap)),
        }
    };
    let zap = zap.ok_or_else(|| {
        let why = "the pool has no place for it: the root vdev's needs the feature 'vdev_zaps_v2'";
        Error::Unsupported(format!("property '{name}': {why}"))
    })?;
    s.mos().object(zap).await
}

async fn set_feature(s: &Syncing, name: &str, value: &str) -> Result<()> {
    let feature = Feature::from_name(name)
        .ok_or_else(|| Error::Invalid(format!("invalid property 'feature@{name}': no such feature")))?;
    match value {
        "enabled" => {
            set_version(s, version::FEATURES).await?;
            s.enable_feature(feature).await
        }
        "disabled" if !s.feature_enabled(feature) => Ok(()),
        "disabled" => Err(Error::Invalid(format!("feature@{name} is enabled; it cannot be disabled"))),
        _ => Err(Error::Invalid(format!(
            "property 'feature@{name}' can only be set to 'enabled' or 'disabled'"
        ))),
    }
}

async fn set_user(s: &Syncing, name: &str, value: &str) -> Result<()> {
    if value.len() > MAX_USER_VALUE_BYTES {
        return Err(Error::Invalid(format!(
            "the value of '{name}' is longer than {MAX_USER_VALUE_BYTES} bytes"
        )));
    }
    set_text(s, &properties_zap(s).await?, name, value).await
}

/// Sets a text in a ZAP of properties; an empty one is removed.
async fn set_text(s: &Syncing, zap: &Arc<LiveObject>, name: &str, value: &str) -> Result<()> {
    let key = zap::Key::Name(name.into());
    if value.is_empty() {
        return zap::edit::remove(zap, &s.tx, &key).await.map(|_| ());
    }
    let text = value.bytes().chain([0]).collect();
    zap::edit::set(zap, &s.tx, &key, &zap::Value::U8(text)).await
}

/// The ZAP of properties, created when the first one is set.
async fn properties_zap(s: &Syncing) -> Result<Arc<LiveObject>> {
    match s.directory_u64(directory::PROPS).await? {
        Some(_) => s.directory_object(directory::PROPS).await,
        None => {
            let zap = s.create_zap(DmuType::POOL_PROPS).await?;
            s.set_in_directory(directory::PROPS, zap::Value::U64(vec![zap.id().get()])).await?;
            Ok(zap)
        }
    }
}
