//! Requests about datasets: listing, properties, holds.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::edge::Edge;
use super::{Action, ApiError, Declaration, Delegated, Listed, Part, Role};

/// The source of a value, as in the SOURCE column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// `-`: computed.
    None,
    /// `default`.
    Default,
    /// `local`.
    Local,
    /// `inherited from …`.
    Inherited(String),
    /// `received`.
    Received,
    /// `temporary`: a mount option overrides the property.
    Temporary,
}

impl Edge<Source> for engine::properties::Source {
    fn edge(self) -> Source {
        match self {
            Self::None => Source::None,
            Self::Default => Source::Default,
            Self::Local => Source::Local,
            Self::Inherited(from) => Source::Inherited(from),
            Self::Received => Source::Received,
            Self::Temporary => Source::Temporary,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Default => f.write_str("default"),
            Self::Local => f.write_str("local"),
            Self::Inherited(from) => write!(f, "inherited from {from}"),
            Self::Received => f.write_str("received"),
            Self::Temporary => f.write_str("temporary"),
        }
    }
}

/// The kind of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DatasetKind {
    /// A filesystem.
    Filesystem,
    /// A volume.
    Volume,
    /// A snapshot of either.
    Snapshot,
    /// A bookmark.
    Bookmark,
}

impl DatasetKind {
    /// The word in the TYPE column.
    pub fn word(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Bookmark => "bookmark",
        }
    }
}

/// Lists datasets with properties: `zfs list` and `zfs get`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListDatasets {
    /// Filesystems, volumes, snapshots, bookmarks to begin at; empty for the root dataset of every pool.
    /// Several that contain each other list nothing twice.
    pub names: Vec<String>,
    /// How many levels to go below each; 0 lists only the named ones, `None` everything below. Children,
    /// snapshots and bookmarks are one level below their dataset.
    pub depth: Option<usize>,
    /// Kinds to list; empty for all. With a depth of 0, a named dataset of another kind becomes an entry of
    /// [`DatasetPage::failed`].
    pub kinds: Vec<DatasetKind>,
    /// A named dataset of another kind is passed over instead: its depth was given (`-d 0`).
    pub pass_over: bool,
    /// Properties to report, in this order: native ones by name or column, user properties,
    /// `written@SNAPSHOT`, `written#BOOKMARK`; `all` stands for everything that `zfs get all` shows.
    pub properties: Vec<String>,
    /// The `next` of the page before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most entries of a page; all without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The datasets that were made last come first, whatever their names are.
    pub newest_first: bool,
}

/// Datasets, all or a page of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DatasetPage {
    /// The entries, in the order of OpenZFS's listings, or the newest first.
    pub entries: Vec<DatasetEntry>,
    /// Why others are absent.
    pub failed: Vec<ApiError>,
    /// Where the next page begins; none at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One dataset.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DatasetEntry {
    /// Full name.
    pub name: String,
    /// Its kind.
    pub kind: DatasetKind,
    /// The transaction group in which it was made.
    pub createtxg: u64,
    /// Its properties. Of those asked for by name there is one entry each, in that order; `all` gives those
    /// that it has.
    pub properties: Vec<Property>,
}

impl DatasetEntry {
    /// The property called `name`.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }
}

/// A property of a dataset or a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// For people (dates in UTC: who shows them to people formats `parsable` instead). `None` where this
    /// thing has no such property or value, which listings show as `-`.
    pub value: Option<String>,
    /// For programs: numbers in full.
    pub parsable: Option<String>,
    /// Where the value comes from.
    pub source: Source,
    /// The value that was received with a send stream, for people.
    pub received: Option<String>,
    /// The same for programs.
    pub received_parsable: Option<String>,
}

impl Action for ListDatasets {
    const DECLARED: Declaration = Declaration::reads(
        "dataset-list",
        Part::Datasets,
        Role::Viewer,
        "Lists datasets with properties, all or a page of them: `zfs list` and `zfs get`",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = DatasetPage;

    /// Not the space of users.
    fn for_viewer(self) -> Result<Self, ApiError> {
        match self.properties.iter().find(|name| is_of_users(name)) {
            Some(name) => Err(ApiError::refused(format!("cannot get property '{name}': permission denied"))),
            None => Ok(self),
        }
    }
}

/// Properties that tell what users have in a filesystem.
const OF_USERS: [&str; 4] = ["user", "group", "project", "id"];

/// `userused@…`, `groupobjquota@…` and their kin.
fn is_of_users(property: &str) -> bool {
    let Some((name, _)) = property.split_once('@') else { return false };
    OF_USERS.iter().any(|of| name.starts_with(of)) && (name.ends_with("used") || name.ends_with("quota"))
}

/// Lists the holds on snapshots.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListHolds {
    /// The snapshots.
    pub snapshots: Vec<String>,
    /// Also snapshots of the same name of all descendants.
    pub recursive: bool,
}

/// A hold on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// The snapshot.
    pub snapshot: String,
    /// Tag.
    pub tag: String,
    /// When, in seconds since 1970.
    pub time: u64,
}

impl Action for ListHolds {
    const DECLARED: Declaration =
        Declaration::reads("hold-list", Part::Datasets, Role::Viewer, "Lists holds");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<Hold>;
}
