//! Counters: kstats of OpenZFS, and those of Cenote.
//!
//! The groups and their fields are [`engine::stats::GROUPS`], and the transaction groups of each pool.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Action, ApiError, Declaration, Delegated, Part, Role};

/// Asks for counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetCounters {
    /// Groups, by name: `arcstats`, `zfetchstats`, `zil`, `dmu_tx`, `objset`, `amplification`, `vdev`,
    /// `txgs`, `clients`, `tunables`; empty for all. `objset-0x36` is the group `objset` of one dataset.
    pub groups: Vec<String>,
    /// Pools whose datasets, vdevs and transaction groups are reported; empty for all.
    pub pools: Vec<String>,
}

impl Action for GetCounters {
    const DECLARED: Declaration = Declaration::reads(
        "counters",
        Part::Pools,
        Role::Viewer,
        "Counters under OpenZFS's names, transaction groups and clients ([Counters](counters.md))",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Counters;
}

/// Counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The groups.
    pub groups: Vec<CounterGroup>,
    /// Transaction groups of pools that are open for writing.
    #[serde(default)]
    pub txgs: Vec<PoolTxgs>,
    /// Clients of volumes, and mounts.
    #[serde(default)]
    pub clients: Vec<Client>,
    /// Pools that are not open.
    #[serde(default)]
    pub failed: Vec<Failed>,
}

/// What could not be reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failed {
    /// Why.
    pub message: String,
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self { message: error.message }
    }
}

/// One group of counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterGroup {
    /// Its name, as in [`GetCounters::groups`].
    pub name: String,
    /// The pool that it is about; absent for the whole process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The dataset, with its number. Without a name it is what belongs to the pool itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<CountedDataset>,
    /// The vdev.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vdev: Option<CountedVdev>,
    /// The numbers.
    pub counters: Numbers,
}

/// A dataset with counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedDataset {
    /// Its name; absent for the pool's own objects.
    pub name: Option<String>,
    /// Number of its object set: `0x36` in `objset-0x36`.
    pub objset: u64,
}

/// A vdev with counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedVdev {
    /// Its name: `mirror-0`, or the path of a device.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// Whether it is a device, and not a vdev of several.
    pub is_leaf: bool,
}

/// Named numbers, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<(String, u64)>);

impl Numbers {
    /// The number called `name`; 0 if there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(known, _)| known == name).map_or(0, |(_, number)| *number)
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, number) in &self.0 {
            map.serialize_entry(name, number)?;
        }
        map.end()
    }
}

impl JsonSchema for Numbers {
    fn schema_name() -> Cow<'static, str> {
        "Numbers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, u64>::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl<'de> Visitor<'de> for Named {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("named numbers")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Numbers, M::Error> {
                let mut numbers = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    numbers.push(entry);
                }
                Ok(Numbers(numbers))
            }
        }

        deserializer.deserialize_map(Named)
    }
}

/// A client of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// `nbd` (a connection, also one of the kernel), `mount`.
    pub kind: String,
    /// A number that no other client of this kind has while the daemon runs.
    pub id: u64,
    /// The pool.
    pub pool: String,
    /// The volume or filesystem.
    pub dataset: String,
    /// The initiator's name, or the address that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Where it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mountpoint: Option<std::path::PathBuf>,
    /// What it did: `reads`, `nread`, `writes`, `nwritten`. Of a mount, what its filesystem did.
    pub counters: Numbers,
    /// Its requests that are under way for more than 10 s, the oldest first. None of a mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingRequest>,
}

/// A request of a volume's client that takes long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WaitingRequest {
    /// The protocol of the client.
    pub protocol: String,
    /// The initiator's name, or the address that it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What is asked for, as `write`.
    pub what: String,
    /// The first byte.
    pub offset: u64,
    /// The bytes.
    pub length: u64,
    /// How long it is under way.
    pub seconds: u64,
    /// What it waits for, as `the intent log`.
    pub waits_for: String,
}

impl fmt::Display for WaitingRequest {
    /// A phrase for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, client, what, offset, length, seconds, waits_for } = self;
        let client = client.as_ref().map_or(String::new(), |name| format!(" {name}"));
        let bytes = if *length > 0 { format!(" of {length} bytes at {offset}") } else { String::new() };
        write!(f, "{protocol}{client}: {what}{bytes}, under way for {seconds} s, waits for {waits_for}")
    }
}

/// The last transaction groups of a pool, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolTxgs {
    /// The pool.
    pub pool: String,
    /// The groups.
    pub txgs: Vec<TxgTimes>,
}

/// One transaction group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TxgTimes {
    /// Its number.
    pub txg: u64,
    /// When it was opened, in nanoseconds since 1970.
    pub birth_ns: u64,
    /// `O` (open), `Q` (quiescing), `W` (waiting for its sync), `S` (syncing), `C` (committed).
    pub state: String,
    /// Dirty bytes when it was closed.
    pub ndirty: u64,
    /// Bytes that the pool read while it was written.
    pub nread: u64,
    /// Bytes that the pool wrote meanwhile.
    pub nwritten: u64,
    /// Reads meanwhile.
    pub reads: u64,
    /// Writes meanwhile.
    pub writes: u64,
    /// How long it was open, in nanoseconds.
    pub otime_ns: u64,
    /// How long it quiesced.
    pub qtime_ns: u64,
    /// How long it waited for its sync.
    pub wtime_ns: u64,
    /// How long its sync took.
    pub stime_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel_as_an_object_and_keep_their_order() {
        let numbers = Numbers(vec![("misses".into(), 7), ("hits".into(), u64::MAX)]);
        let text = serde_json::to_string(&numbers).unwrap();
        assert_eq!(text, format!(r#"{{"misses":7,"hits":{}}}"#, u64::MAX));
        assert_eq!(serde_json::from_str::<Numbers>(&text).unwrap(), numbers);
        assert_eq!((numbers.get("misses"), numbers.get("none")), (7, 0));
    }
}
