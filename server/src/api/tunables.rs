//! Requests about tunables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::edge::{Edge, mirrored};
use super::{Action, Declaration, Delegated, Effects, Part, Role};

mirrored! {
    /// What the number of a tunable counts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Unit of engine::tunables::Unit {
        /// 0 for off, other values for on.
        Switch,
        /// Things.
        Count,
        /// Bytes.
        Bytes,
        /// Bytes in a second.
        BytesPerSecond,
        /// Hundredths.
        Percent,
        /// Seconds.
        Seconds,
        /// Thousandths of a second.
        Milliseconds,
        /// Transaction groups.
        Groups,
    }
}

mirrored! {
    /// When a new value counts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Effect of engine::tunables::Effect {
        /// At once.
        AtOnce,
        /// For what begins after it was set, such as the next scrub or the next volume that is opened.
        ForNew,
        /// For pools that are imported or created after it was set.
        AtImport,
    }
}

/// Asks for tunables and their values.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListTunables {
    /// Their names; empty for all.
    pub names: Vec<String>,
}

impl Action for ListTunables {
    const DECLARED: Declaration =
        Declaration::reads("tunable-list", Part::Events, Role::Operator, "Lists tunables with their values")
            .in_words("show tunables", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<TunableValue>;
}

/// A tunable and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunableValue {
    /// Its name, OpenZFS's where it has one.
    pub name: String,
    /// The value that counts now.
    pub value: u64,
    /// The value while none is set.
    pub default: u64,
    /// Whether one is set.
    pub is_set: bool,
    /// The least value.
    pub least: u64,
    /// The largest value.
    pub most: u64,
    /// What the number counts.
    pub unit: Unit,
    /// When a new value counts.
    pub effect: Effect,
    /// What it does.
    pub text: String,
}

impl From<&engine::tunables::Tunable> for TunableValue {
    fn from(tunable: &engine::tunables::Tunable) -> Self {
        let (least, most) = tunable.range();
        Self {
            name: tunable.name().to_owned(),
            value: tunable.get(),
            default: tunable.default_value(),
            is_set: tunable.given().is_some(),
            least,
            most,
            unit: tunable.unit().edge(),
            effect: tunable.effect().edge(),
            text: tunable.text().split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

/// Sets tunables, all or none of them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SetTunables {
    /// Names and values as they are typed; no value for the default.
    pub settings: Vec<(String, Option<String>)>,
    /// Also for the next start of the daemon.
    #[serde(default)]
    pub save: bool,
}

impl Action for SetTunables {
    const DECLARED: Declaration = Declaration::changes(
        "tunable-set",
        Part::Events,
        Role::Admin,
        Effects::SETTINGS,
        "Sets tunables, all or none of them",
    )
    .in_words("set tunables", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The tunables as they are now.
    type Reply = Vec<TunableValue>;
}
