//! What a compound stream says of its datasets, before the first of its plain streams.
//!
//! The `BEGIN` of a compound stream has an XDR nvlist as its payload (none where a list of snapshots of one
//! dataset was sent without properties). Names of snapshots are the part behind the `@`.
//!
//! | name | type | meaning |
//! |---|---|---|
//! | `fromsnap` | string | snapshot that the streams are incremental from; only of an incremental one |
//! | `tosnap` | string | last snapshot |
//! | `not_recursive` | boolean | one dataset, without its children |
//! | `raw` | boolean | the streams are raw |
//! | `fss` | nvlist | a dataset for each name: the guid of its head as `0x` and hexadecimal digits |
//!
//! A dataset, parents before their children:
//!
//! | name | type | meaning |
//! |---|---|---|
//! | `name` | string | full name on the sender |
//! | `parentfromsnap` | u64 | guid of the parent's snapshot `fromsnap` (or `tosnap` where it has none), 0 |
//! | `origin` | u64 | guid of the origin's snapshot; only of a clone |
//! | `props` | nvlist | properties that are set here: strings and numbers |
//! | `is_encroot` | boolean | it is an encryption root |
//! | `snaps` | nvlist | snapshot to guid |
//! | `snapprops` | nvlist | snapshot to nvlist of its properties |
//! | `snapholds` | nvlist | snapshot to nvlist of tag and time; only where holds were asked for |
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_sendrecv.c`.

use super::WHAT;
use crate::nvlist::{ByteString, Encoding, NvValue, Nvlist};
use crate::{Error, Guid, Result};

/// Most datasets, and most snapshots of one, that a stream may list.
pub const MAX_ENTRIES: usize = 1 << 20;

/// The datasets of a compound stream.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Package {
    /// Snapshot that the streams are incremental from.
    pub from_snapshot: Option<ByteString>,
    /// Last snapshot.
    pub to_snapshot: ByteString,
    /// One dataset only, without its children.
    pub not_recursive: bool,
    /// The streams are raw.
    pub raw: bool,
    /// Parents before their children.
    pub datasets: Vec<PackagedDataset>,
}

/// One dataset of a compound stream.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct PackagedDataset {
    /// Guid of the head on the sender.
    pub guid: Guid,
    /// Full name on the sender.
    pub name: ByteString,
    /// Guid of the parent's snapshot with which it was sent, 0 for the first dataset.
    pub parent_from_snapshot: Guid,
    /// Guid of the origin of a clone.
    pub origin: Option<Guid>,
    /// Properties that are set, where they were asked for.
    pub properties: Option<Vec<PackagedProperty>>,
    /// It has a key of its own.
    pub is_encryption_root: bool,
    /// Snapshots with their guids.
    pub snapshots: Vec<(ByteString, Guid)>,
    /// Properties of snapshots.
    pub snapshot_properties: Vec<(ByteString, Vec<PackagedProperty>)>,
    /// Holds of snapshots, where they were asked for.
    pub holds: Option<Vec<(ByteString, Vec<Hold>)>>,
}

/// A property with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackagedProperty {
    /// Name.
    pub name: ByteString,
    /// Value.
    pub value: PackagedValue,
}

/// The value of a property in a stream: as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The variants are the two forms of values.
pub enum PackagedValue {
    Number(u64),
    Text(ByteString),
}

/// A hold of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Tag.
    pub tag: ByteString,
    /// When it was made, seconds since 1970.
    pub created: u64,
}

impl Package {
    /// Reads the payload of the `BEGIN` of a compound stream.
    ///
    /// # Errors
    /// It is not an nvlist, or what it must have is missing or of another type.
    pub fn parse(payload: &[u8]) -> Result<Package> {
        let list = Nvlist::parse(payload)?;
        let datasets = list.get_nvlist("fss")?;
        check_count(datasets)?;
        Ok(Package {
            from_snapshot: list.find_string("fromsnap").cloned(),
            to_snapshot: list.get_string("tosnap")?.clone(),
            not_recursive: list.flag("not_recursive"),
            raw: list.flag("raw"),
            datasets: datasets
                .iter()
                .map(|(guid, value)| PackagedDataset::parse(guid, nested(guid, value)?))
                .collect::<Result<_>>()?,
        })
    }

    /// The payload, byte for byte as OpenZFS makes it on a little-endian machine.
    ///
    /// # Errors
    /// It is larger than an nvlist can be.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut list = Nvlist::new();
        if let Some(from) = &self.from_snapshot {
            list.push("fromsnap", from.clone());
        }
        list.push("tosnap", self.to_snapshot.clone());
        for (name, is_set) in [("not_recursive", self.not_recursive), ("raw", self.raw)] {
            if is_set {
                list.push(name, NvValue::Boolean);
            }
        }
        let mut datasets = Nvlist::new();
        for dataset in &self.datasets {
            datasets.push(format!("{:#x}", dataset.guid.get()).as_str(), dataset.list());
        }
        list.push("fss", datasets);
        list.encode(Encoding::Xdr)
    }

    /// The dataset that has this snapshot.
    pub fn with_snapshot(&self, guid: Guid) -> Option<(&PackagedDataset, &ByteString)> {
        self.datasets.iter().find_map(|dataset| Some((dataset, dataset.snapshot_of(guid)?)))
    }
}

impl PackagedDataset {
    fn parse(guid: &ByteString, list: &Nvlist) -> Result<PackagedDataset> {
        let digits = guid.to_str().and_then(|text| text.strip_prefix("0x"));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| Error::invalid(WHAT, format!("the guid {guid:?} of a dataset")))?;
        let snapshots = list.get_nvlist("snaps")?;
        check_count(snapshots)?;
        let snapshots = snapshots.iter().map(|(name, value)| match value {
            NvValue::Uint64(guid) => Ok((name.clone(), Guid(*guid))),
            _ => Err(Error::invalid(WHAT, format!("the guid of snapshot {name:?}"))),
        });
        let snapshots = snapshots.collect::<Result<_>>()?;
        let of_snapshots = match list.find_nvlist("snapprops") {
            Some(list) => list
                .iter()
                .map(|(name, value)| Ok((name.clone(), properties(nested(name, value)?)?)))
                .collect::<Result<_>>()?,
            None => Vec::new(),
        };
        let holds = list.find_nvlist("snapholds").map(|list| {
            list.iter().map(|(name, value)| Ok((name.clone(), holds(nested(name, value)?)?))).collect()
        });
        Ok(PackagedDataset {
            guid: Guid(number),
            name: list.get_string("name")?.clone(),
            parent_from_snapshot: Guid(list.get_u64("parentfromsnap")?),
            origin: list.find_u64("origin").map(Guid),
            properties: list.find_nvlist("props").map(properties).transpose()?,
            is_encryption_root: list.flag("is_encroot"),
            snapshots,
            snapshot_properties: of_snapshots,
            holds: holds.transpose()?,
        })
    }

    fn list(&self) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("name", self.name.clone());
        list.push("parentfromsnap", self.parent_from_snapshot.get());
        if let Some(origin) = self.origin {
            list.push("origin", origin.get());
        }
        if let Some(properties) = &self.properties {
            list.push("props", property_list(properties));
        }
        if self.is_encryption_root {
            list.push("is_encroot", NvValue::Boolean);
        }
        list.push("snaps", list_of(&self.snapshots, |guid| guid.get().into()));
        let of_snapshots = list_of(&self.snapshot_properties, |properties| property_list(properties).into());
        list.push("snapprops", of_snapshots);
        if let Some(holds) = &self.holds {
            list.push("snapholds", list_of(holds, |holds| hold_list(holds).into()));
        }
        list
    }

    /// The name of the snapshot with this guid.
    pub fn snapshot_of(&self, guid: Guid) -> Option<&ByteString> {
        self.snapshots.iter().find(|(_, other)| *other == guid).map(|(name, _)| name)
    }

    /// The guid of a snapshot.
    pub fn guid_of(&self, snapshot: &[u8]) -> Option<Guid> {
        self.snapshots.iter().find(|(name, _)| name.as_bytes() == snapshot).map(|(_, guid)| *guid)
    }
}

fn check_count(list: &Nvlist) -> Result<()> {
    if list.len() > MAX_ENTRIES {
        return Err(Error::TooLarge { what: "list in a send stream", limit: MAX_ENTRIES as u64 });
    }
    Ok(())
}

fn nested<'a>(name: &ByteString, value: &'a NvValue) -> Result<&'a Nvlist> {
    match value {
        NvValue::Nvlist(list) => Ok(list),
        _ => Err(Error::invalid(WHAT, format!("{name:?} is not a list"))),
    }
}

fn list_of<T>(entries: &[(ByteString, T)], value: impl Fn(&T) -> NvValue) -> Nvlist {
    let mut list = Nvlist::new();
    for (name, entry) in entries {
        list.push(name.clone(), value(entry));
    }
    list
}

/// Properties of an nvlist. A list in the place of a value has it under `value`.
fn properties(list: &Nvlist) -> Result<Vec<PackagedProperty>> {
    let one = |(name, value): (&ByteString, &NvValue)| {
        let value = match value {
            NvValue::Nvlist(list) => list.get("value").unwrap_or(value),
            other => other,
        };
        let value = match value {
            NvValue::Uint64(number) => PackagedValue::Number(*number),
            NvValue::String(text) => PackagedValue::Text(text.clone()),
            _ => return Err(Error::invalid(WHAT, format!("the value of property {name:?}"))),
        };
        Ok(PackagedProperty { name: name.clone(), value })
    };
    list.iter().map(one).collect()
}

fn property_list(properties: &[PackagedProperty]) -> Nvlist {
    let mut list = Nvlist::new();
    for PackagedProperty { name, value } in properties {
        let value: NvValue = match value {
            PackagedValue::Number(number) => (*number).into(),
            PackagedValue::Text(text) => text.clone().into(),
        };
        list.push(name.clone(), value);
    }
    list
}

fn holds(list: &Nvlist) -> Result<Vec<Hold>> {
    let one = |(tag, value): (&ByteString, &NvValue)| match value {
        NvValue::Uint64(created) => Ok(Hold { tag: tag.clone(), created: *created }),
        _ => Err(Error::invalid(WHAT, format!("the time of hold {tag:?}"))),
    };
    list.iter().map(one).collect()
}

fn hold_list(holds: &[Hold]) -> Nvlist {
    let mut list = Nvlist::new();
    for hold in holds {
        list.push(hold.tag.clone(), hold.created);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Package {
        let name = ByteString::from;
        let value = PackagedProperty { name: name("user:a"), value: PackagedValue::Text(name("b")) };
        Package {
            from_snapshot: Some(name("a")),
            to_snapshot: name("b"),
            not_recursive: true,
            raw: true,
            datasets: vec![
                PackagedDataset {
                    guid: Guid(0xfeed),
                    name: name("pool/fs"),
                    snapshots: vec![(name("a"), Guid(1)), (name("b"), Guid(2))],
                    snapshot_properties: vec![(name("a"), vec![value.clone()])],
                    ..PackagedDataset::default()
                },
                PackagedDataset {
                    guid: Guid(u64::MAX),
                    name: name("pool/fs/clone"),
                    parent_from_snapshot: Guid(1),
                    origin: Some(Guid(1)),
                    properties: Some(vec![value]),
                    is_encryption_root: true,
                    holds: Some(vec![(name("b"), vec![Hold { tag: name("keep"), created: 7 }])]),
                    ..PackagedDataset::default()
                },
            ],
        }
    }

    #[test]
    fn a_package_round_trips() {
        let package = sample();
        assert_eq!(Package::parse(&package.encode().unwrap()).unwrap(), package);
        assert_eq!(package.with_snapshot(Guid(2)).unwrap().1.as_bytes(), b"b");
        assert_eq!(package.datasets[0].guid_of(b"a"), Some(Guid(1)));
    }

    #[test]
    fn a_list_with_other_types_is_refused() {
        let mut list = Nvlist::new();
        list.push("tosnap", "b");
        assert!(Package::parse(&list.encode(Encoding::Xdr).unwrap()).is_err());
        let mut fss = Nvlist::new();
        fss.push("0x12", 1u64);
        list.push("fss", fss);
        assert!(Package::parse(&list.encode(Encoding::Xdr).unwrap()).is_err());
    }
}
