//! Requests about events.

use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

pub use engine::events::{Event, Value as EventValue};

/// Asks for the events after one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GetEvents {
    /// The number of the last event that is known; 0 for all events.
    pub after: u64,
    /// How long to wait for one, in milliseconds, at most two seconds.
    pub wait_ms: u64,
    /// Only events of this pool.
    pub pool: Option<String>,
}

impl Action for GetEvents {
    const DECLARED: Declaration = Declaration::reads(
        "events",
        Part::Events,
        Role::Operator,
        "The events after one; waits for the next one if asked to",
    )
    .in_words("show events", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = EventList;
}

/// Events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventList {
    /// Those that are there, the oldest first.
    pub events: Vec<Event>,
    /// How many were dropped before they could be read.
    pub dropped: u64,
    /// The number of the last event of all.
    pub last_eid: u64,
}

/// Forgets all events.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClearEvents {}

impl Action for ClearEvents {
    const DECLARED: Declaration = Declaration::changes(
        "events-clear",
        Part::Events,
        Role::Admin,
        Effects::SETTINGS,
        "Forgets all events",
    )
    .in_words("clear events", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// How many there were.
    type Reply = u64;
}
