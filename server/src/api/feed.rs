//! The feed of changes: what the daemon tells of all that happens, as server-sent events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, DatasetKind, Declaration, Delegated, Event, Form, Part, Role};

/// Follows the feed of changes. `GET /v1/events` is the same, with these as its parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FollowChanges {
    /// Goes on after the message with this id. Without it, the answer begins with a snapshot of the state.
    pub from: Option<String>,
    /// Leaves out the events that `zpool events` shows.
    pub without_events: bool,
    /// Leaves out snapshots, for clients that only wait for something, and look by themselves.
    pub without_snapshot: bool,
}

/// The header with the id of the last message that a client got, in the place of `from`. Browsers send it by
/// themselves.
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

impl Action for FollowChanges {
    const DECLARED: Declaration = Declaration::reads(
        "follow",
        Part::Events,
        Role::Viewer,
        "Follows all that changes, until the client goes away: a snapshot, changes, events, figures",
    )
    .answered(Form::ServerSentEvents)
    .got_at("events");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = FeedMessage;

    /// Events name damaged files and commands of users.
    fn for_viewer(self) -> Result<Self, ApiError> {
        Ok(Self { without_events: true, ..self })
    }
}

/// A message of the feed. The variant is the name of the server-sent event, its contents the JSON of the
/// data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FeedMessage {
    /// The state to begin with. Changes that are told later came after it.
    Snapshot(Snapshot),
    /// Something became different.
    Change(Change),
    /// An event, as `zpool events` shows it.
    Event(Event),
    /// Figures of pools, of which only the newest count. They have no id.
    Figures(Vec<Figures>),
    /// Changes were missed. A snapshot follows.
    Missed(Missed),
    /// Nothing more comes: the daemon ends.
    End(FeedEnd),
}

/// The state of a daemon, as a client of the feed needs it to begin with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Snapshot {
    /// The open pools, by name.
    pub pools: Vec<PoolSnapshot>,
}

/// A pool in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoolSnapshot {
    /// Name.
    pub pool: String,
    /// Guid.
    pub pool_guid: u64,
    /// The group that it is of. Changes of later groups are told.
    pub txg: u64,
    /// The state of its vdevs, in OpenZFS's words.
    pub state: String,
    /// Nothing is written, because devices fail.
    pub suspended: bool,
    /// It is open for reading only.
    pub read_only: bool,
    /// Its filesystems and volumes, in the order of `zfs list`.
    pub datasets: Vec<DatasetSnapshot>,
    /// Jobs that are under way.
    pub jobs: Vec<JobFigures>,
    /// Why its datasets are not here, where they cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A filesystem or volume in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetSnapshot {
    /// Full name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// A filesystem or a volume.
    pub kind: DatasetKind,
    /// The size of a volume in bytes, of one that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_bytes: Option<u64>,
}

/// Something that became different.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The pool's name.
    pub pool: String,
    /// The pool's guid.
    pub pool_guid: u64,
    /// The group that it was committed with; 0 for what belongs to no group.
    pub txg: u64,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What became different. Names and guids are those of that moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum What {
    /// The pool is open from now on.
    Opened {},
    /// The pool is not open any more.
    Closed {},
    /// A filesystem, volume, snapshot or bookmark is new.
    Created {
        /// Its name.
        name: String,
        /// Its guid; of a bookmark that of its snapshot.
        guid: u64,
        /// The size of a volume in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume_bytes: Option<u64>,
    },
    /// The same is there no more.
    Destroyed {
        /// The name that it had.
        name: String,
        /// Its guid.
        guid: u64,
    },
    /// A filesystem or volume, with all below it, or a snapshot has another name.
    Renamed {
        /// The name that it had.
        from: String,
        /// The name that it has.
        to: String,
        /// Its guid.
        guid: u64,
    },
    /// A clone changed places with its origin.
    Promoted {
        /// Its name.
        name: String,
        /// Its guid.
        guid: u64,
    },
    /// A dataset has other contents, from a snapshot or a stream.
    Replaced {
        /// Its name.
        name: String,
        /// Its guid.
        guid: u64,
    },
    /// A volume has another size.
    Resized {
        /// Its name.
        name: String,
        /// In bytes.
        bytes: u64,
    },
    /// A property of a dataset or snapshot was set or inherited.
    Set {
        /// The dataset.
        name: String,
        /// Its guid.
        guid: u64,
        /// The property.
        property: String,
    },
    /// A property of the pool was set.
    PoolSet {
        /// The property.
        property: String,
    },
    /// The pool has other vdevs, at other places, or other features.
    Configured {},
    /// A device is in another state.
    VdevState {
        /// The vdev.
        guid: u64,
        /// The path of its device.
        path: Option<String>,
        /// Its state, in OpenZFS's words.
        state: String,
    },
    /// A job began, was stopped, or ended.
    Job {
        /// Which: `initialize`, `trim`, `scan`, `error_scrub`, `reshape` and others.
        job: String,
        /// The guid of the vdev, or the object of the dataset, that it works on; 0 for the pool.
        target: u64,
        /// `active`, `suspended`, `canceled`, `complete`, or `over` for one of which nothing is kept.
        state: String,
    },
    /// Devices fail, and writers wait.
    Suspended {},
    /// They go on.
    Resumed {},
    /// The log of damaged blocks changed.
    Errors {},
    /// What is served of a dataset is something else.
    Served {
        /// The dataset.
        name: String,
        /// `mounted`, `unmounted`, `key-loaded`, `key-unloaded`, `attached` or `detached`.
        how: String,
    },
}

/// Figures of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Figures {
    /// The pool's name.
    pub pool: String,
    /// The pool's guid.
    pub pool_guid: u64,
    /// The last committed group.
    pub txg: u64,
    /// Allocated space in bytes.
    pub allocated_bytes: u64,
    /// Free space in bytes.
    pub free_bytes: u64,
    /// What destroyed datasets still have, in bytes.
    pub freeing_bytes: u64,
    /// Datasets that were written lately.
    pub datasets: Vec<DatasetFigures>,
    /// Jobs that are under way.
    pub jobs: Vec<JobFigures>,
}

/// The space of a dataset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DatasetFigures {
    /// Full name.
    pub name: String,
    /// What it takes with all below it, in bytes.
    pub used_bytes: u64,
    /// What it refers to, in bytes.
    pub referenced_bytes: u64,
}

/// How far a job is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobFigures {
    /// Which, as in [`What::Job`].
    pub job: String,
    /// The guid of the vdev, or the object of the dataset; 0 for the pool.
    pub target: u64,
    /// `active` or `suspended`.
    pub state: String,
    /// What is done, in bytes or objects.
    pub done: u64,
    /// Of so much; 0 as long as that is not known.
    pub total: u64,
}

/// Why changes were missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Missed {
    /// `restarted` for an id of another daemon, `too-old` for one that is not kept any more, or since which
    /// more changed than is kept.
    pub why: String,
}

/// Why nothing more comes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeedEnd {
    /// For a person.
    pub message: String,
}
