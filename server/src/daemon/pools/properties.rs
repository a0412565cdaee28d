//! Which values properties of pools may have, in OpenZFS's words, and which features follow from them.
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_pool.c` (`zpool_valid_proplist`, `zpool_load_compat`),
//! `zpool-features.7`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use engine::pool::live::default_features;
use engine::pool::properties::PoolProp;
use engine::pool::properties::table::POOL_TABLE;
use engine::properties::typed::parse_number;
use engine::properties::{Attr, Kind, index};
use ondisk::features::Feature;
use ondisk::nearest::meant;
use ondisk::pool_version as version;

use super::{compatibility, import_cached};

/// Sector sizes as powers of two.
const ASHIFT: std::ops::RangeInclusive<u64> = 9..=16;
/// Longest comment.
const MAX_COMMENT_BYTES: usize = 32;
/// Where lists of features lie that belong to versions of systems.
const COMPATIBILITY_DIRECTORIES: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];
/// Largest of those.
const MAX_COMPATIBILITY_BYTES: u64 = 16 << 10;

/// When a property is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum When {
    /// With the pool.
    Create,
    /// When the pool is imported.
    Import,
    /// Later.
    Set,
}

/// Why a new pool cannot have a property, or such a value of it; nothing where it can.
pub fn fault_of_new(name: &str, value: &str) -> Option<String> {
    fault(name, value, When::Create)
}

/// Why a property cannot have a value, with the property that may have been meant.
pub(in crate::daemon) fn refusal(name: &str, value: &str, when: When) -> Option<String> {
    let native = POOL_TABLE.iter().filter(|desc| desc.visible).map(|desc| desc.name.to_owned());
    let features = Feature::ALL.iter().map(|feature| format!("feature@{}", feature.name()));
    let names: Vec<String> = native.chain(features).collect();
    let is_known = names.iter().any(|known| known == name) || engine::properties::is_user(name);
    let meant = if is_known { String::new() } else { meant(name, names.iter().map(String::as_str)) };
    fault(name, value, when).map(|fault| fault + &meant)
}

/// Why a property cannot have a value.
fn fault(name: &str, value: &str, when: When) -> Option<String> {
    if let Some(feature) = name.strip_prefix("feature@") {
        return match (Feature::from_name(feature), value, when) {
            (None, ..) => Some(format!("invalid feature '{feature}'")),
            (_, "enabled", _) | (_, "disabled", When::Create) => None,
            (_, _, When::Create) => {
                Some(format!("property '{name}' can only be set to 'enabled' or 'disabled'"))
            }
            _ => Some(format!("property '{name}' can only be set to 'enabled'")),
        };
    }
    if engine::properties::is_user(name) {
        return (value.len() >= 8192).then(|| format!("property value too long for '{name}'"));
    }
    let Some(prop) = PoolProp::from_stored_name(name) else {
        return Some(format!("invalid property '{name}'"));
    };
    let desc = prop.desc();
    let settable = match desc.attr {
        Attr::Readonly => false,
        Attr::Onetime | Attr::OnetimeDefault => when == When::Create,
        _ => true,
    };
    if !settable {
        return Some(format!("'{name}' is readonly"));
    }
    if let Kind::Index(_, names) = desc.kind
        && index::number(names, value).is_none()
    {
        return Some(format!("'{name}' must be one of '{}'", index::choices(names)));
    }
    match prop {
        PoolProp::Ashift => match value.parse::<u64>() {
            Ok(0) => None,
            Ok(ashift) if ASHIFT.contains(&ashift) => None,
            Ok(ashift) => Some(format!(
                "property '{name}' number {ashift} is invalid, only values between {} and {} are allowed",
                ASHIFT.start(),
                ASHIFT.end()
            )),
            Err(_) => Some(format!("bad numeric value '{value}'")),
        },
        PoolProp::Readonly if when != When::Import => {
            Some(format!("property '{name}' can only be set at import time"))
        }
        PoolProp::Altroot if when == When::Set => {
            Some(format!("property '{name}' can only be set during pool creation or import"))
        }
        PoolProp::Altroot if !Path::new(value).is_absolute() => Some(format!("bad alternate root '{value}'")),
        PoolProp::Version => match value.parse::<u64>() {
            Ok(number) if (1..=version::LAST_NUMBERED).contains(&number) => None,
            Ok(version::FEATURES) if when == When::Create => None,
            Ok(version::FEATURES) => {
                Some(format!("property '{name}': 'zpool upgrade' takes a pool to feature flags"))
            }
            Ok(number) => Some(format!("property '{name}' number {number} is invalid.")),
            Err(_) => Some(format!("bad numeric value '{value}'")),
        },
        PoolProp::Comment => comment_fault(value),
        PoolProp::Compatibility => features_of(value).err(),
        PoolProp::Cachefile => import_cached::fault(value),
        PoolProp::Bootfs if when == When::Create => {
            Some(format!("property '{name}' cannot be set at creation time"))
        }
        PoolProp::DedupTableQuota if matches!(value, "auto" | "none") => None,
        _ => match desc.kind {
            Kind::Number(_) if parse_number(value).is_none() => {
                Some(format!("property '{name}': a number is needed"))
            }
            _ => None,
        },
    }
}

fn comment_fault(value: &str) -> Option<String> {
    if value.chars().any(|character| character.is_control() || !character.is_ascii()) {
        return Some("comment may only have printable characters".to_owned());
    }
    (value.len() > MAX_COMMENT_BYTES)
        .then(|| format!("comment must not exceed {MAX_COMMENT_BYTES} characters"))
}

/// The version of a new pool: that of features, unless another is given.
pub(in crate::daemon) fn version_of_new(properties: &[(String, String)]) -> Result<u64, String> {
    let given = properties.iter().rev().find(|(name, _)| name == "version");
    let Some((_, value)) = given else { return Ok(version::FEATURES) };
    if properties.iter().any(|(name, _)| name.starts_with("feature@")) {
        return Err("'feature@' and 'version' properties cannot be specified together".to_owned());
    }
    value.parse().map_err(|_| format!("bad numeric value '{value}'"))
}

/// The features that a value of `compatibility` allows; `None` for all.
pub(in crate::daemon) fn features_of(value: &str) -> Result<Option<BTreeSet<Feature>>, String> {
    match value {
        "" | "off" => return Ok(None),
        "legacy" => return Ok(Some(BTreeSet::new())),
        _ => {}
    }
    let mut allowed: Option<BTreeSet<Feature>> = None;
    for file in value.split(',') {
        let text = compatibility_text(file)?;
        let mut of_file = BTreeSet::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            for word in line.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
                let feature = Feature::from_name(word);
                of_file.insert(
                    feature.ok_or_else(|| format!("compatibility file {file}: unknown feature '{word}'"))?,
                );
            }
        }
        allowed = Some(match allowed {
            Some(before) => before.intersection(&of_file).copied().collect(),
            None => of_file,
        });
    }
    Ok(allowed)
}

/// The contents of a compatibility file, or those it would have if OpenZFS were installed.
fn compatibility_text(file: &str) -> Result<String, String> {
    let Some(path) = compatibility_file(file) else {
        let built_in = compatibility::built_in(file).map(|features| features.join(" "));
        return built_in.ok_or_else(|| format!("compatibility file not found: {file}"));
    };
    let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if length > MAX_COMPATIBILITY_BYTES {
        return Err(format!("compatibility file too large: {file}"));
    }
    std::fs::read_to_string(&path).map_err(|error| format!("compatibility file {file}: {error}"))
}

fn compatibility_file(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(name.into()).filter(|path: &PathBuf| path.is_file());
    }
    let plain = !name.is_empty() && !name.contains('/');
    let mut places = COMPATIBILITY_DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    places.find(|path| plain && path.is_file())
}

/// The features of a new pool: the usual ones, or none, or all that `compatibility` names a set of, with
/// those that are named.
pub(in crate::daemon) fn features_of_new(
    none: bool,
    properties: &[(String, String)],
) -> Result<Vec<Feature>, String> {
    let compatibility = properties.iter().rev().find(|(name, _)| name == "compatibility");
    let allowed = features_of(compatibility.map_or("off", |(_, value)| value))?;
    let mut features = match allowed {
        _ if none => BTreeSet::new(),
        Some(allowed) => allowed,
        None => default_features().into_iter().collect(),
    };
    for (name, value) in properties {
        let Some(feature) = name.strip_prefix("feature@").and_then(Feature::from_name) else { continue };
        match value.as_str() {
            "enabled" => enable(feature, &mut features),
            _ => {
                features.remove(&feature);
            }
        }
    }
    // What depends on a feature that was left out goes too.
    loop {
        let lacking =
            |feature: &Feature| feature.info().depends.iter().any(|needed| !features.contains(needed));
        let Some(orphan) = features.iter().copied().find(|feature| lacking(feature)) else { break };
        features.remove(&orphan);
    }
    Ok(features.into_iter().collect())
}

fn enable(feature: Feature, into: &mut BTreeSet<Feature>) {
    for needed in feature.info().depends {
        enable(*needed, into);
    }
    into.insert(feature);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_refused_in_words() {
        for (name, value, when, expected) in [
            ("ashift", "12", When::Create, None),
            (
                "ashift",
                "20",
                When::Create,
                Some("property 'ashift' number 20 is invalid, only values between 9 and 16 are allowed"),
            ),
            ("autotrim", "on", When::Set, None),
            ("autoreplace", "off", When::Set, None),
            ("autoreplace", "on", When::Create, None),
            ("autotrim", "maybe", When::Set, Some("'autotrim' must be one of 'off | on'")),
            ("size", "1", When::Set, Some("'size' is readonly")),
            ("nonsense", "1", When::Set, Some("invalid property 'nonsense'")),
            (
                "altroot",
                "/m",
                When::Set,
                Some("property 'altroot' can only be set during pool creation or import"),
            ),
            (
                "feature@lz4_compress",
                "disabled",
                When::Set,
                Some("property 'feature@lz4_compress' can only be set to 'enabled'"),
            ),
            ("org:mine", "x", When::Set, None),
        ] {
            assert_eq!(fault(name, value, when).as_deref(), expected, "{name}={value}");
        }
    }
}
