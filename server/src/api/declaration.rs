//! What is said of each action, once: dispatch, both sockets and the book follow it.
//!
//! | said of an action | who follows it |
//! |---|---|
//! | name and form, path of a `GET` | the router of the socket |
//! | role | the socket for any user, and who else may ask |
//! | effects | the daemon, which brings in line what depends on them after the action |
//! | words | refusals; the audit log, for what a request is about |
//! | secrets | the audit log, which leaves out the texts of errors |
//! | whether it is for this machine only | the dashboard, by which it is refused |
//! | part, summary | the table of actions in the book |

/// Who may ask for an action. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Any user of the machine: what OpenZFS lets everyone see.
    Viewer,
    /// Who runs the machine from day to day: snapshots, scrubs, devices that come and go, mounts, and all
    /// that can be listed. Destroys nothing, and sees no user's data.
    Operator,
    /// Root, and the user who runs the daemon.
    Admin,
}

impl Role {
    /// Who has it, in a word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// What may be different after an action, even after one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects(u8);

impl Effects {
    /// Nothing: the action only reads.
    pub const NONE: Self = Self(0);
    /// Datasets, their properties, snapshots or keys.
    pub const DATASETS: Self = Self(1);
    /// Which volumes there are, or what is in one or known of one.
    pub const VOLUMES: Self = Self(2);
    /// The vdevs of a pool, their labels, or its scan.
    pub const VDEVS: Self = Self(4);
    /// Which filesystems are mounted, and so which files there are.
    pub const MOUNTS: Self = Self(8);
    /// What the daemon itself is told to do: tunables, hooks, schedules, injected faults.
    pub const SETTINGS: Self = Self(16);
    /// Which pools are open, and with them all that is in them: opening and closing bring that in line.
    pub const POOLS: Self = Self(32);

    /// All, with their names.
    const NAMED: [(Self, &'static str); 6] = [
        (Self::DATASETS, "datasets"),
        (Self::VOLUMES, "volumes"),
        (Self::VDEVS, "vdevs"),
        (Self::MOUNTS, "mounts"),
        (Self::SETTINGS, "settings"),
        (Self::POOLS, "pools"),
    ];

    /// The names of those that are among them.
    pub fn names(self) -> Vec<&'static str> {
        Self::NAMED.iter().filter(|(effect, _)| self.has(*effect)).map(|(_, name)| *name).collect()
    }

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is among them.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How an action is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By one JSON document.
    Once,
    /// The same, by a thread that serves volumes. It ends when its client goes away.
    OnceByServer,
    /// By a line of JSON, and the connection stays open as long as the client wants what it holds.
    HeldOpen,
    /// By a line of JSON for each part.
    Parts,
    /// By a stream in frames.
    FramesOut,
    /// By server-sent events, until the client goes away.
    ServerSentEvents,
    /// The request is a line of JSON with a stream behind it, the answer a line of JSON for each part.
    StreamIn,
}

impl Form {
    /// Its name, for documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once | Self::OnceByServer => "once",
            Self::HeldOpen => "held-open",
            Self::Parts => "lines",
            Self::FramesOut => "frames",
            Self::ServerSentEvents => "server-sent-events",
            Self::StreamIn => "stream-in",
        }
    }
}

/// The part of the book in which an action stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The daemon itself.
    Daemon,
    /// Pools as a whole.
    Pools,
    /// The devices of pools.
    Devices,
    /// Events, hooks, tunables and faults on demand.
    Events,
    /// Datasets.
    Datasets,
    /// Keys and mounts.
    Mounts,
    /// Volumes and how they are served.
    Volumes,
    /// Experiments.
    Lab,
}

impl Part {
    /// All, in their order.
    pub const ALL: [Self; 8] = [
        Self::Daemon,
        Self::Pools,
        Self::Devices,
        Self::Events,
        Self::Datasets,
        Self::Mounts,
        Self::Volumes,
        Self::Lab,
    ];

    /// Its heading.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Daemon => "The daemon",
            Self::Pools => "Pools",
            Self::Devices => "Devices",
            Self::Events => "Events, hooks and faults on demand",
            Self::Datasets => "Datasets",
            Self::Mounts => "Keys and mounts",
            Self::Volumes => "Volumes",
            Self::Lab => "The lab",
        }
    }
}

/// What is known of an action besides its types.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The last part of the path of a request: `/v1/NAME`.
    pub name: &'static str,
    /// Where it stands in the book.
    pub part: Part,
    /// Who may ask for it.
    pub role: Role,
    /// What may be different afterwards.
    pub effects: Effects,
    /// How it is answered.
    pub form: Form,
    /// The last part of the path of a `GET` that asks for it too, with the fields of its request as
    /// parameters, if any. Only what changes nothing has one.
    pub got_at: Option<&'static str>,
    /// What it does, a clause for the book.
    pub summary: &'static str,
    /// Its operation in OpenZFS's words.
    pub words: Option<Words>,
    /// Whether its errors may repeat something that must not be written down, such as a key.
    pub has_secrets: bool,
    /// Whether only processes of this machine may ask for it, by its sockets.
    pub is_local: bool,
}

/// An operation, as OpenZFS's refusals name it: "cannot WHAT 'OBJECT': permission denied".
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// What was attempted.
    pub what: &'static str,
    /// The field of the request that names the object, or the objects; empty where there is none.
    pub field: &'static str,
}

impl Declaration {
    /// An action that changes nothing.
    pub const fn reads(name: &'static str, part: Part, role: Role, summary: &'static str) -> Self {
        Self {
            name,
            part,
            role,
            effects: Effects::NONE,
            form: Form::Once,
            got_at: None,
            summary,
            words: None,
            has_secrets: false,
            is_local: false,
        }
    }

    /// An action that changes something.
    pub const fn changes(
        name: &'static str,
        part: Part,
        role: Role,
        effects: Effects,
        summary: &'static str,
    ) -> Self {
        Self { effects, ..Self::reads(name, part, role, summary) }
    }

    /// The same, with its operation in OpenZFS's words.
    pub const fn in_words(self, what: &'static str, field: &'static str) -> Self {
        Self { words: Some(Words { what, field }), ..self }
    }

    /// The same, with something in its requests that must not be written down.
    pub const fn with_secrets(self) -> Self {
        Self { has_secrets: true, ..self }
    }

    /// The same, which only processes of this machine may ask for.
    pub const fn on_this_machine(self) -> Self {
        Self { is_local: true, ..self }
    }

    /// The same, which can be asked for by `GET /v1/PATH` too.
    pub const fn got_at(self, path: &'static str) -> Self {
        Self { got_at: Some(path), ..self }
    }

    /// The same, answered in another form than [`Form::Once`].
    pub const fn answered(self, form: Form) -> Self {
        Self { form, ..self }
    }
}
