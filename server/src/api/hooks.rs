//! Requests about hooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// What runs on which events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// Events: classes with `*` for anything, parts of classes, or short names.
    pub events: Vec<String>,
    /// What is done.
    pub action: HookAction,
    /// How long it may take, in seconds.
    #[serde(default)]
    pub limit_s: Option<u64>,
}

/// What a hook does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HookAction {
    /// A command for `/bin/sh`.
    Command(String),
    /// An address (`http://`) to which the event is sent as JSON.
    Webhook(String),
}

/// Asks for the hooks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListHooks {}

impl Action for ListHooks {
    const DECLARED: Declaration =
        Declaration::reads("hook-list", Part::Events, Role::Admin, "Lists hooks").in_words("show hooks", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<Hook>;
}

/// Adds a hook, or replaces the one of that name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AddHook {
    /// The hook.
    pub hook: Hook,
}

impl Action for AddHook {
    const DECLARED: Declaration = Declaration::changes(
        "hook-add",
        Part::Events,
        Role::Admin,
        Effects::SETTINGS,
        "Adds or replaces a hook",
    )
    .in_words("add a hook", "")
    .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Removes a hook.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct RemoveHook {
    /// Its name.
    pub name: String,
}

impl Action for RemoveHook {
    const DECLARED: Declaration =
        Declaration::changes("hook-remove", Part::Events, Role::Admin, Effects::SETTINGS, "Removes a hook")
            .in_words("remove the hook", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Runs a hook with an event that is made up.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct TestHook {
    /// Its name.
    pub name: String,
    /// Only say what would be run.
    pub dry_run: bool,
}

impl Action for TestHook {
    const DECLARED: Declaration = Declaration::changes(
        "hook-test",
        Part::Events,
        Role::Admin,
        Effects::SETTINGS,
        "Runs a hook with an event that is made up",
    )
    .in_words("test the hook", "name")
    .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = HookTested;
}

/// What a test of a hook did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookTested {
    /// The hook.
    pub hook: Hook,
    /// The environment of a command.
    pub environment: Vec<(String, String)>,
    /// How it ended; `None` if it was not run.
    pub outcome: Option<String>,
}
