//! Requests about tunables.

use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

pub use engine::tunables::{Effect, Unit};

/// Asks for tunables and their values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
            unit: tunable.unit(),
            effect: tunable.effect(),
            text: tunable.text().split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

/// Sets tunables, all or none of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
