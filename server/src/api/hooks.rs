//! Requests about hooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Password, Role};

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
    /// What lets it in: the password of the relay, the token of `ntfy` or of a webhook (`authorization:
    /// Bearer`). A hook that is added again for the same server keeps it where none is given, and drops it
    /// for an empty one. Never listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Password>,
    /// Whether it has one. No matter when it is added.
    #[serde(default)]
    pub has_secret: bool,
}

/// What a hook does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HookAction {
    /// A command for `/bin/sh`.
    Command(String),
    /// An address (`https://` or `http://`) to which the event is sent as JSON.
    Webhook(String),
    /// A mail.
    Mail(Mail),
    /// A message to an address as those of ntfy.sh.
    Ntfy(Ntfy),
}

/// A mail about an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mail {
    /// The server that takes it: `smtp://[USER@]HOST[:PORT]`, or `smtps://…` for TLS from the beginning.
    pub relay: String,
    /// The address of its sender.
    pub from: String,
    /// The addresses of those who get it.
    pub to: Vec<String>,
}

/// A short message about an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ntfy {
    /// The address of the topic, `https://` or `http://`.
    pub url: String,
    /// How urgent it is, from 1 to 5; by what the event is without.
    #[serde(default)]
    pub priority: Option<u8>,
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
    /// What is sent otherwise, as a text.
    #[serde(default)]
    pub message: Option<String>,
    /// How it ended; `None` if it was not run.
    pub outcome: Option<String>,
}
