//! Properties as a user names them on the command line, and the columns that they make.
//!
//! A property may be called by its name or by its column's heading in lower case; `space` stands for the
//! properties that say where a dataset's space went. How wide a column is and whether it grows follows
//! OpenZFS: numbers for people have five characters, words the width of the longest one that the property
//! knows, text grows. Source of the facts: OpenZFS 2.3 `zprop_common.c` (`zprop_width`), `libzfs_util.c`
//! (`zprop_get_list`).

use anyhow::Result;
use engine::pool::properties::table::{POOL_TABLE, VDEV_TABLE};
use engine::pool::properties::{PoolProp, VdevProp};
use engine::properties::table::TABLE;
use engine::properties::{Kind, Prop, is_user};
use ondisk::nearest::meant;
use server::api::{Property, Source};

use crate::output::{self, style, usage};
use crate::table::Column;

/// What `space` stands for.
const SPACE: [&str; 7] = [
    "name",
    "available",
    "used",
    "usedbysnapshots",
    "usedbydataset",
    "usedbyrefreservation",
    "usedbychildren",
];

/// A property that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its column, as wide as its heading and kind ask for.
    pub column: Column,
    /// Whether the column grows with values for people; with full numbers every column does.
    pub grows: bool,
    /// Whether it is a native property, not a user's or a feature.
    pub native: bool,
}

impl Wanted {
    fn native(name: &str, title: &str, kind: Kind, right: bool, grows: bool) -> Self {
        let width = match kind {
            Kind::Number(_) => title.len().max(5),
            Kind::Index(_, names) => names.iter().map(|(word, _)| word.len()).fold(title.len(), usize::max),
            Kind::Text(_) => title.len(),
        };
        let column = Column { title: title.to_owned(), width, right };
        Self { name: name.to_owned(), column, grows, native: true }
    }

    fn other(name: &str, right: bool) -> Self {
        let column = Column { title: name.to_uppercase(), width: name.len(), right };
        Self { name: name.to_owned(), column, grows: true, native: false }
    }

    /// A property of datasets.
    pub fn of_dataset(name: &str) -> Option<Self> {
        if let Some(prop) = Prop::from_name(name) {
            let desc = prop.desc();
            let long = matches!(
                prop,
                Prop::Guid
                    | Prop::Createtxg
                    | Prop::Objsetid
                    | Prop::Pbkdf2Iters
                    | Prop::Creation
                    | Prop::SnapshotsChanged
            );
            let grows = long || !matches!(desc.kind, Kind::Number(_));
            return Some(Self::native(desc.name, desc.column, desc.kind, desc.right_aligned(), grows));
        }
        if is_user(name) {
            return Some(Self::other(name, false));
        }
        (is_written_since(name) || is_quota(name)).then(|| Self::other(name, true))
    }

    /// A property of pools.
    pub fn of_pool(name: &str) -> Option<Self> {
        if let Some(prop) = PoolProp::from_name(name) {
            let desc = prop.desc();
            let long = matches!(prop, PoolProp::Guid | PoolProp::LoadGuid);
            let grows = long || !matches!(desc.kind, Kind::Number(_));
            let mut wanted = Self::native(desc.name, desc.column, desc.kind, desc.right_aligned(), grows);
            if prop == PoolProp::Health {
                wanted.column.width = 8;
            }
            return Some(wanted);
        }
        let known = is_user(name) || name.starts_with("feature@") || name.starts_with("unsupported@");
        known.then(|| Self::other(name, false))
    }

    /// A property of vdevs.
    pub fn of_vdev(name: &str) -> Option<Self> {
        if let Some(prop) = VdevProp::from_name(name) {
            let desc = prop.desc();
            let grows = prop == VdevProp::Guid || !matches!(desc.kind, Kind::Number(_));
            return Some(Self::native(desc.name, desc.column, desc.kind, desc.right_aligned(), grows));
        }
        is_user(name).then(|| Self::other(name, false))
    }

    /// Makes room for a value, where the column may grow.
    pub fn grow(&mut self, value: &str, literal: bool) {
        if self.grows || literal {
            self.column.grow(value);
        }
    }
}

/// `userused@…` and its like.
fn is_quota(name: &str) -> bool {
    ["user", "group", "project"].iter().any(|whose| {
        name.strip_prefix(whose).is_some_and(|rest| {
            ["used@", "quota@", "objused@", "objquota@"].iter().any(|what| rest.starts_with(what))
        })
    })
}

/// The properties in a comma-separated list; `None` for `all`.
fn parse<'a>(
    list: &str,
    one: impl Fn(&str) -> Option<Wanted>,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<Option<Vec<Wanted>>> {
    if list == "all" {
        return Ok(None);
    }
    if list.is_empty() {
        return Err(usage("bad property list: no properties specified"));
    }
    let mut wanted = Vec::new();
    for name in list.split(',') {
        let names = if name == "space" { &SPACE[..] } else { &[name][..] };
        for name in names {
            let unknown = || {
                let meant = meant(name, known.clone());
                usage(format!("bad property list: invalid property '{name}'{meant}"))
            };
            wanted.push(one(name).ok_or_else(unknown)?);
        }
    }
    Ok(Some(wanted))
}

/// The dataset properties in a comma-separated list; `None` for `all`.
pub fn of_datasets(list: &str) -> Result<Option<Vec<Wanted>>> {
    parse(list, Wanted::of_dataset, TABLE.iter().map(|desc| desc.name))
}

/// The pool properties in a comma-separated list; `None` for `all`.
pub fn of_pools(list: &str) -> Result<Option<Vec<Wanted>>> {
    parse(list, Wanted::of_pool, POOL_TABLE.iter().map(|desc| desc.name))
}

/// The vdev properties in a comma-separated list; `None` for `all`.
pub fn of_vdevs(list: &str) -> Result<Option<Vec<Wanted>>> {
    parse(list, Wanted::of_vdev, VDEV_TABLE.iter().map(|desc| desc.name))
}

/// The native dataset properties that `all` shows.
pub fn all_of_datasets() -> impl Iterator<Item = Wanted> {
    TABLE.iter().filter(|desc| desc.visible).filter_map(|desc| Wanted::of_dataset(desc.name))
}

/// The native pool properties that `all` shows.
pub fn all_of_pools() -> impl Iterator<Item = Wanted> {
    POOL_TABLE.iter().filter(|desc| desc.visible).filter_map(|desc| Wanted::of_pool(desc.name))
}

/// The native vdev properties that `all` shows.
pub fn all_of_vdevs() -> impl Iterator<Item = Wanted> {
    VDEV_TABLE.iter().filter(|desc| desc.visible).filter_map(|desc| Wanted::of_vdev(desc.name))
}

/// A dataset property's value as it is shown: dates on the user's clock.
pub fn shown(property: &Property, parsable: bool) -> Option<String> {
    let seconds = || property.parsable.as_ref().and_then(|text| text.parse().ok());
    match (parsable, property.name.as_str()) {
        (true, _) => property.parsable.clone(),
        (false, "creation") => Some(style(false).date(seconds()?)),
        (false, "snapshots_changed") => Some(output::style(false).date_with_seconds(seconds()?)),
        (false, _) => property.value.clone(),
    }
}

/// Whether it is what was written since a snapshot or bookmark.
fn is_written_since(name: &str) -> bool {
    name.starts_with("written@") || name.starts_with("written#")
}

/// Where a dataset property's value comes from. What is computed for an argument (`written@…`, `userused@…`)
/// counts as local.
pub fn source_of(property: &Property) -> Source {
    let computed = is_written_since(&property.name) || is_quota(&property.name);
    if computed && property.value.is_some() { Source::Local } else { property.source.clone() }
}

/// A source as JSON has it: its word and where it is inherited from.
pub fn source_json(source: &Source, received: Option<&str>) -> serde_json::Value {
    let (kind, data) = match source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", received.unwrap_or("-")),
    };
    serde_json::json!({ "type": kind, "data": data })
}

/// A property as JSON has it.
pub fn property_json(value: &str, source: &Source, numbers: output::Numbers) -> serde_json::Value {
    serde_json::json!({ "value": numbers.property(value), "source": source_json(source, None) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_five_characters_and_words_fit() {
        assert_eq!(Wanted::of_dataset("used").unwrap().column.width, 5);
        assert_eq!(Wanted::of_dataset("casesensitivity").unwrap().column.width, "insensitive".len());
        assert_eq!(Wanted::of_pool("health").unwrap().column.width, 8);
    }

    #[test]
    fn a_property_is_known_by_its_column_too() {
        assert_eq!(Wanted::of_dataset("refer").unwrap().name, "referenced");
        assert_eq!(Wanted::of_pool("cap").unwrap().name, "capacity");
        assert_eq!(Wanted::of_dataset("nonsense"), None);
    }

    #[test]
    fn space_stands_for_seven_properties() {
        assert_eq!(of_datasets("space").unwrap().unwrap().len(), 7);
        assert!(of_datasets("all").unwrap().is_none());
    }
}
