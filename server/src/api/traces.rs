//! Requests about what clients ask of volumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Asks for what clients asked of a volume since the last such request. The first begins the recording; it
/// ends by itself after ten seconds without a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TakeTrace {
    /// The volume.
    pub volume: String,
    /// Ends the recording.
    pub stop: bool,
}

impl Action for TakeTrace {
    const DECLARED: Declaration = Declaration::changes(
        "volume-trace",
        Part::Volumes,
        Role::Operator,
        Effects::SETTINGS,
        "What clients asked of a volume since the last such request",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Traced;
}

/// The requests of a volume's clients, in the order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traced {
    /// The requests.
    pub requests: Vec<TracedRequest>,
    /// Requests that came when there was no room left to note them.
    pub lost: u64,
}

/// One request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedRequest {
    /// Microseconds since the recording began.
    pub at_us: u64,
    /// The operation.
    pub operation: TracedOperation,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TracedOperation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are given up, or made zeroes.
    Trim,
    /// A flush.
    Flush,
}
