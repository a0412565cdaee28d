//! Requests that change datasets.
//!
//! Each is answered when what it did is committed. `command` is what goes into the pool's history: the
//! command line as typed, without what leads to the program. Where a request names several datasets, those of
//! one pool are changed together or not at all, as OpenZFS does it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Effects, Need, Part, Role, Secret, needs};

/// Creates a filesystem or a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CreateDataset {
    /// Its full name.
    pub name: String,
    /// Size in bytes of a volume; `None` for a filesystem.
    pub volume_bytes: Option<u64>,
    /// Reserve nothing for the volume.
    pub sparse: bool,
    /// Create missing parents.
    pub parents: bool,
    /// Properties as given by `-o name=value`.
    pub properties: Vec<(String, String)>,
    /// The key, where its properties make it an encryption root whose `keylocation` is `prompt`.
    pub key: Option<Secret>,
    /// Do not mount it.
    pub no_mount: bool,
    /// Only check.
    pub dry_run: bool,
    /// For the history.
    pub command: Option<String>,
}

/// The result of creating a dataset, or of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Created {
    /// Whether the dataset is new; false where it was there and `parents` allows that.
    pub created: bool,
    /// Those above it that are new too, the uppermost first.
    pub parents: Vec<String>,
    /// The properties that it is created with, those that follow from others among them.
    pub properties: Vec<(String, String)>,
    /// Warnings, each a sentence.
    pub warnings: Vec<String>,
    /// New filesystems that could not be mounted, each with the reason in a sentence.
    pub unmounted: Vec<String>,
}

impl Action for CreateDataset {
    const DECLARED: Declaration = Declaration::changes(
        "dataset-create",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Creates a filesystem or volume",
    )
    .in_words("create", "name");
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`create`, `mount` above; its properties", needs::for_create);
    type Reply = Created;
}

/// Destroys a filesystem or volume, snapshots, or a bookmark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DestroyDataset {
    /// Its full name. For snapshots `fs@a`, several as `fs@a,b`, ranges as `fs@a%b`, `fs@%b`, `fs@a%`.
    pub name: String,
    /// Also all below it; for snapshots, also those of the same names below.
    pub recursive: bool,
    /// Also all clones that depend on it, wherever they are.
    pub clones: bool,
    /// Also what is in use.
    pub force: bool,
    /// Snapshots that cannot be destroyed now go when their last hold or clone does.
    pub defer: bool,
    /// Only report.
    pub dry_run: bool,
    /// For the history.
    pub command: Option<String>,
}

/// The result of destroying datasets, or of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Destroyed {
    /// The destroyed datasets, in order.
    pub names: Vec<String>,
    /// Bytes that snapshots give back; `None` where no snapshots were named.
    pub reclaimed_bytes: Option<u64>,
}

impl Action for DestroyDataset {
    const DECLARED: Declaration = Declaration::changes(
        "dataset-destroy",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Destroys a filesystem, volume, snapshots or a bookmark",
    )
    .in_words("destroy", "name");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`destroy`, `mount`", |request| {
        // Only root unmounts.
        let request = Self { force: false, ..request };
        let needs = match request.name.contains('#') {
            true => vec![Need::on("destroy", needs::head_of(&request.name))],
            false => vec![Need::Destroy(request.clone())],
        };
        Ok((request, needs))
    });
    type Reply = Destroyed;
}

/// Renames a filesystem, volume, or snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RenameDataset {
    /// Its full name.
    pub from: String,
    /// Its new full name; for a snapshot `fs@new` or `@new`.
    pub to: String,
    /// Create the filesystems above the new name that do not exist.
    pub parents: bool,
    /// The snapshots of this name of all descendants.
    pub recursive: bool,
    /// Leave it mounted where it is.
    pub no_remount: bool,
    /// Unmount by force.
    pub force: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for RenameDataset {
    const DECLARED: Declaration = Declaration::changes(
        "dataset-rename",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Renames a filesystem, volume or snapshot",
    )
    .in_words("rename", "from");
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`rename`, `mount`; `create`, `mount` above the new name", |request| {
            let of = needs::head_of(&request.from);
            let is_snapshot = of != request.from;
            let mut needs = vec![Need::on("rename", &request.from), Need::on("mount", &request.from)];
            match is_snapshot {
                true => needs.extend([Need::on("create", of), Need::on("mount", of)]),
                false => needs.extend(needs::to_create(&request.to)),
            }
            if request.recursive {
                needs.extend([
                    Need::below("rename", of),
                    Need::below("mount", of),
                    Need::below("create", of),
                ]);
            }
            if !is_snapshot && !request.no_remount {
                needs.push(Need::Unmounted(request.from.clone()));
            }
            Ok((Self { force: false, ..request }, needs))
        });
    type Reply = Warnings;
}

/// Warnings of a change that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Warnings {
    /// Each a sentence.
    pub warnings: Vec<String>,
}

/// Takes snapshots in one pool, all in the same moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TakeSnapshots {
    /// Their full names.
    pub names: Vec<String>,
    /// Also of everything below.
    pub recursive: bool,
    /// Their properties, as given by `-o name=value`.
    pub properties: Vec<(String, String)>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for TakeSnapshots {
    const DECLARED: Declaration = Declaration::changes(
        "snapshot-create",
        Part::Datasets,
        Role::Operator,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Takes snapshots in one pool, in the same moment",
    )
    .in_words("create snapshot", "names");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`snapshot`", |request| {
        needs::require_no_own(&request.properties)?;
        let need = if request.recursive { Need::below } else { Need::on };
        let needs = request.names.iter().map(|name| need("snapshot", needs::head_of(name))).collect();
        Ok((request, needs))
    });
    /// The snapshots that were taken.
    type Reply = Vec<String>;

    fn for_operator(self) -> Result<Self, ApiError> {
        needs::require_no_own(&self.properties).map(|()| self)
    }
}

/// Takes a filesystem or volume back to a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rollback {
    /// The snapshot.
    pub snapshot: String,
    /// Destroy later snapshots and bookmarks.
    pub destroy_later: bool,
    /// Destroy their clones too.
    pub destroy_clones: bool,
    /// Unmount clones by force.
    pub force: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for Rollback {
    const DECLARED: Declaration = Declaration::changes(
        "dataset-rollback",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Goes back to a snapshot",
    )
    .in_words("rollback to", "snapshot");
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`rollback`; `destroy`, `mount` on later snapshots", |request| {
            let request = Self { force: false, ..request };
            let needs =
                vec![Need::on("rollback", needs::head_of(&request.snapshot)), Need::Later(request.clone())];
            Ok((request, needs))
        });
    type Reply = Warnings;
}

/// Makes a filesystem or volume out of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CloneSnapshot {
    /// The snapshot.
    pub snapshot: String,
    /// The clone's full name.
    pub target: String,
    /// Create missing parents.
    pub parents: bool,
    /// Do not mount it.
    pub no_mount: bool,
    /// Its properties, as given by `-o name=value`.
    pub properties: Vec<(String, String)>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for CloneSnapshot {
    const DECLARED: Declaration = Declaration::changes(
        "dataset-clone",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Makes a filesystem or volume out of a snapshot",
    )
    .in_words("create", "target");
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`clone`; `create`, `mount` above; its properties", |request| {
            let mut needs = vec![Need::on("clone", &request.snapshot)];
            needs.extend(needs::to_create(&request.target));
            needs.extend(needs::for_new(&request.target, &request.properties)?);
            Ok((Self { no_mount: true, ..request }, needs))
        });
    type Reply = Created;
}

/// Makes a clone the origin of what it was cloned from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Promote {
    /// The clone.
    pub dataset: String,
    /// For the history.
    pub command: Option<String>,
}

impl Action for Promote {
    const DECLARED: Declaration = Declaration::changes(
        "dataset-promote",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Makes a clone the origin of its origin",
    )
    .in_words("promote", "dataset");
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`promote`, `mount`; `promote` on the origin", |request| {
            let needs = vec![
                Need::on("promote", &request.dataset),
                Need::on("mount", &request.dataset),
                Need::Origin("promote".to_owned(), request.dataset.clone()),
            ];
            Ok((request, needs))
        });
    type Reply = ();
}

/// Holds snapshots: they cannot be destroyed until they are released.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HoldSnapshots {
    /// The hold's name.
    pub tag: String,
    /// The snapshots.
    pub snapshots: Vec<String>,
    /// Also those of the same name of all descendants.
    pub recursive: bool,
    /// Take the hold away instead.
    pub release: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for HoldSnapshots {
    const DECLARED: Declaration = Declaration::changes(
        "snapshot-hold",
        Part::Datasets,
        Role::Operator,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Holds snapshots, or releases them",
    )
    .in_words("hold or release snapshot", "snapshots");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`hold`, or `release`", |request| {
        let permission = if request.release { "release" } else { "hold" };
        let need = if request.recursive { Need::below } else { Need::on };
        let needs = request.snapshots.iter().map(|name| need(permission, needs::head_of(name))).collect();
        Ok((request, needs))
    });
    type Reply = ();
}

/// Bookmarks a snapshot, or copies a bookmark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CreateBookmark {
    /// The snapshot, or the bookmark to copy.
    pub source: String,
    /// The new bookmark's full name, `fs#mark`.
    pub bookmark: String,
    /// For the history.
    pub command: Option<String>,
}

impl Action for CreateBookmark {
    const DECLARED: Declaration = Declaration::changes(
        "bookmark-create",
        Part::Datasets,
        Role::Operator,
        Effects::DATASETS,
        "Bookmarks a snapshot, or copies a bookmark",
    )
    .in_words("create bookmark", "bookmark");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`bookmark`", |request| {
        let needs = vec![Need::on("bookmark", needs::head_of(&request.bookmark))];
        Ok((request, needs))
    });
    type Reply = ();
}

/// Sets properties of datasets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SetProperties {
    /// The datasets.
    pub datasets: Vec<String>,
    /// The properties, as typed.
    pub properties: Vec<(String, String)>,
    /// Do not mount or unmount what a new mountpoint says.
    pub no_mount: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for SetProperties {
    const DECLARED: Declaration = Declaration::changes(
        "property-set",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES).and(Effects::MOUNTS),
        "Sets properties",
    )
    .in_words("set property for", "datasets");
    const DELEGATED: Delegated<Self> = Delegated::Needs("those of the properties' names", |request| {
        let mut needs = Vec::new();
        for (property, _) in &request.properties {
            needs.extend(needs::for_property(property, &request.datasets, false, !request.no_mount)?);
        }
        // Only root mounts.
        Ok((Self { no_mount: true, ..request }, needs))
    });
    type Reply = PropertiesSet;
}

/// Takes a property away from datasets, so that they have their parents' or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InheritProperty {
    /// The property.
    pub property: String,
    /// The datasets.
    pub datasets: Vec<String>,
    /// Also of everything below.
    pub recursive: bool,
    /// Go back to the received value, if there is one.
    pub received: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for InheritProperty {
    const DECLARED: Declaration = Declaration::changes(
        "property-inherit",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES).and(Effects::MOUNTS),
        "Takes a property away",
    )
    .in_words("inherit property for", "datasets");
    const DELEGATED: Delegated<Self> = Delegated::Needs("that of the property's name", |request| {
        let needs = needs::for_property(&request.property, &request.datasets, request.recursive, true)?;
        Ok((request, needs))
    });
    type Reply = PropertiesSet;
}

/// The result of setting properties.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PropertiesSet {
    /// Datasets whose properties could not be set, or that have them and could not be mounted as these say,
    /// and why.
    pub failed: Vec<ApiError>,
    /// Warnings, each a sentence.
    pub warnings: Vec<String>,
}
