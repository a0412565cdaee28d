//! The daemon's HTTP API: one typed request for each action.
//!
//! Every request is `POST /v1/NAME` with a JSON body, every answer is JSON: the action's reply with status
//! 200, or an [`ApiError`] with status 400 (the request makes no sense), 404 (the named thing does not
//! exist), 409 (busy), 422 (refused) or 500. The command line and other programs use the same requests.
//! All types are the API's own: what the engine knows becomes one of them at the edge (`edge`).
//!
//! All that is known of an action stands in its [`Declaration`]: who may ask for it, what it changes, in
//! which form it is answered, its line in the book. Which permissions do instead of a role stands beside it
//! ([`Delegated`]). A new one takes a request type here with its [`Action`]
//! implementation, a method of the daemon, and a line in `daemon::actions`.

mod activity;
mod attached;
mod audit;
mod browsing;
mod changes;
mod counters;
mod creating;
mod dashboard;
mod datasets;
mod declaration;
mod dedup_tables;
mod delegation;
mod devices;
mod diff;
mod disks;
pub(crate) mod edge;
mod equal_blocks;
mod events;
mod feed;
mod health;
mod hooks;
mod inject;
mod io;
mod keys;
mod lab;
mod loads;
mod mounts;
mod needs;
mod network_shares;
pub mod openapi;
mod pools;
mod receive;
mod reshapes;
mod scans;
mod schedules;
mod secret;
mod send;
mod serving;
mod snapshot_schedules;
mod standby;
mod status;
mod traces;
mod tunables;
mod userspace;
mod vdevs;
mod views;
mod what_if;

pub use activity::*;
pub use attached::*;
pub use audit::*;
pub use browsing::*;
pub use changes::*;
pub use counters::*;
pub use creating::*;
pub use dashboard::*;
pub use datasets::*;
pub use declaration::*;
pub use dedup_tables::*;
pub use delegation::*;
pub use devices::*;
pub use diff::*;
pub use disks::*;
pub use equal_blocks::*;
pub use events::*;
pub use feed::*;
pub use health::*;
pub use hooks::*;
pub use inject::*;
pub use io::*;
pub use keys::*;
pub use lab::*;
pub use loads::*;
pub use mounts::*;
pub use needs::{Delegated, Need, Needs};
pub use network_shares::*;
pub use pools::*;
pub use receive::*;
pub use reshapes::*;
pub use scans::*;
pub use schedules::*;
pub(crate) use secret::wipe;
pub use secret::{Secret, Wiped};
pub use send::*;
pub use serving::*;
pub use snapshot_schedules::*;
pub use standby::*;
pub use status::*;
pub use traces::*;
pub use tunables::*;
pub use userspace::*;
pub use vdevs::*;
pub use views::*;
pub use what_if::*;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A request that the daemon answers.
pub trait Action: Serialize + DeserializeOwned + JsonSchema + Send + Sized + 'static {
    /// All that is known of it besides its types.
    const DECLARED: Declaration;
    /// Last part of the request's path: `/v1/NAME`.
    const NAME: &'static str = Self::DECLARED.name;
    /// What permissions of `zfs allow` make of it.
    const DELEGATED: Delegated<Self>;
    /// The type of a successful answer.
    type Reply: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// The request as it is answered to any user: without what only some may see.
    ///
    /// # Errors
    /// It asks for nothing else.
    fn for_viewer(self) -> Result<Self, ApiError> {
        Ok(self)
    }

    /// The request as it is answered to an operator: without what only admins may do.
    ///
    /// # Errors
    /// It asks for nothing else.
    fn for_operator(self) -> Result<Self, ApiError> {
        Ok(self)
    }
}

/// Why the daemon refused or failed, as it travels.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The kind of error, for programs.
    pub kind: ErrorKind,
    /// For a person: what was being done, what is wrong, what to try.
    pub message: String,
}

/// Kinds of failure, by what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request itself makes no sense.
    Invalid,
    /// The named thing does not exist.
    NotFound,
    /// In use; close what uses it, or force.
    Busy,
    /// Well-formed, but refused: read-only, unsupported, wrong key.
    Refused,
    /// The pool or the system failed.
    Failed,
}

impl ErrorKind {
    /// All.
    pub const ALL: [Self; 5] = [Self::Invalid, Self::NotFound, Self::Busy, Self::Refused, Self::Failed];

    /// What it means, a clause for documents.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Invalid => "The request makes no sense",
            Self::NotFound => "The named thing does not exist",
            Self::Busy => "In use: close what uses it, or force",
            Self::Refused => "Well-formed, but refused: read-only, unsupported, wrong key",
            Self::Failed => "The pool or the system failed",
        }
    }

    /// The HTTP status that carries this kind.
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::NotFound => 404,
            Self::Busy => 409,
            Self::Refused => 422,
            Self::Failed => 500,
        }
    }
}

impl ApiError {
    /// A failure of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The request itself makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// In use.
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Busy, message)
    }

    /// Well-formed, but refused.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// The pool or the system failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }
}

impl From<engine::pool::import::ImportError> for ApiError {
    fn from(error: engine::pool::import::ImportError) -> Self {
        use engine::pool::import::ImportError as E;
        let kind = match &error {
            E::NotFound(_) => ErrorKind::NotFound,
            E::Ambiguous { .. } => ErrorKind::Invalid,
            E::InUse { .. } | E::Active { .. } => ErrorKind::Busy,
            E::NoHostId(_) => ErrorKind::Refused,
            E::Destroyed(_) | E::Version { .. } | E::UnsupportedFeatures { .. } | E::OnlyReadable { .. } => {
                ErrorKind::Refused
            }
            _ => ErrorKind::Failed,
        };
        Self { kind, message: error.to_string() }
    }
}

impl From<engine::Error> for ApiError {
    fn from(error: engine::Error) -> Self {
        use engine::Error as E;
        let kind = match &error {
            E::NotFound(_) => ErrorKind::NotFound,
            E::Invalid(_) | E::WrongType { .. } => ErrorKind::Invalid,
            E::Busy(_) => ErrorKind::Busy,
            E::Unsupported(_) | E::ReadOnly(_) | E::WrongKey { .. } | E::KeyNotLoaded { .. } => {
                ErrorKind::Refused
            }
            _ => ErrorKind::Failed,
        };
        Self { kind, message: error.to_string() }
    }
}
