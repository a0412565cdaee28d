//! Requests about events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::edge::{Edge, mirrored};
use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// A value of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EventValue {
    /// A number without sign.
    Number(u64),
    /// A number with sign.
    Signed(i64),
    /// Text.
    Text(String),
    /// Numbers.
    Numbers(Vec<u64>),
    /// Texts.
    Texts(Vec<String>),
    /// Named values.
    Nested(Vec<(String, EventValue)>),
}

impl Edge<EventValue> for engine::events::Value {
    fn edge(self) -> EventValue {
        match self {
            Self::Number(number) => EventValue::Number(number),
            Self::Signed(number) => EventValue::Signed(number),
            Self::Text(text) => EventValue::Text(text),
            Self::Numbers(numbers) => EventValue::Numbers(numbers),
            Self::Texts(texts) => EventValue::Texts(texts),
            Self::Nested(fields) => EventValue::Nested(fields.edge()),
        }
    }
}

impl Edge<(String, EventValue)> for (String, engine::events::Value) {
    fn edge(self) -> (String, EventValue) {
        (self.0, self.1.edge())
    }
}

mirrored! {
    /// Something that happened.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Event of engine::events::Event {
        /// Its number.
        pub eid: u64,
        /// When it happened: seconds since 1970, and nanoseconds.
        pub time: (u64, u32),
        /// Its class, such as `ereport.fs.zfs.checksum`.
        pub class: String,
        /// All else, in order, under OpenZFS's names.
        pub fields: Vec<(String, EventValue)>,
    }
}

impl Event {
    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<&EventValue> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The number under a name.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(EventValue::Number(number)) => Some(*number),
            Some(EventValue::Signed(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The text under a name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(EventValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The pool that it is about.
    pub fn pool(&self) -> Option<&str> {
        self.text("pool")
    }

    /// Its class without family: `checksum`, `statechange`, `pool_import`.
    pub fn subclass(&self) -> &str {
        self.class.split_once(".fs.zfs.").map_or(self.class.as_str(), |(_, name)| name)
    }
}

/// Asks for the events after one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetEvents {
    /// The number of the last event that is known; 0 for all events.
    pub after: u64,
    /// Only events of this pool.
    pub pool: Option<String>,
}

impl Action for GetEvents {
    const DECLARED: Declaration = Declaration::reads(
        "events",
        Part::Events,
        Role::Operator,
        "The events after one; those that come later are in the feed of changes (`follow`)",
    )
    .in_words("show events", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = EventList;
}

/// Events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    /// Those that are there, the oldest first.
    pub events: Vec<Event>,
    /// How many were dropped before they could be read.
    pub dropped: u64,
    /// The number of the last event of all.
    pub last_eid: u64,
}

/// Forgets all events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
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
