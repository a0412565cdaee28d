//! `cenote hooks`: commands and webhooks that run when something happens to a pool.

use anyhow::Result;
use clap::Subcommand;
use server::api::{AddHook, Hook, HookAction, ListHooks, RemoveHook, TestHook};
use server::daemon::EVENT_SHORT_NAMES;

use crate::client;
use crate::output::{self, JsonOptions};

/// The commands about hooks.
#[derive(Debug, Subcommand)]
pub enum Hooks {
    /// Show the hooks
    List(ListArguments),
    /// Add a hook, or replace the one of that name
    #[command(after_help = about())]
    Add(AddArguments),
    /// Remove a hook
    Remove(NameArguments),
    /// Run a hook with an event that is made up
    Test(TestArguments),
}

/// Arguments of `cenote hooks list`.
#[derive(Debug, clap::Args)]
pub struct ListArguments {
    #[command(flatten)]
    json: JsonOptions,
}

/// Arguments of `cenote hooks add`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("action").required(true)))]
pub struct AddArguments {
    /// Which events: a short name, a class such as sysevent.fs.zfs.scrub_finish, or a part of one such as
    /// 'scrub_*'
    #[arg(short = 'e', long = "event", value_name = "EVENT", required = true)]
    events: Vec<String>,
    /// Run this command with /bin/sh; the event is in its environment (ZEVENT_CLASS, ZEVENT_POOL, ...)
    #[arg(long, value_name = "COMMAND", group = "action")]
    command: Option<String>,
    /// Send the event as JSON to this address (http://)
    #[arg(long, value_name = "URL", group = "action")]
    webhook: Option<String>,
    /// End it after so many seconds (default: 30)
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// The name of the hook
    name: String,
}

/// The name of a hook.
#[derive(Debug, clap::Args)]
pub struct NameArguments {
    /// The name of the hook
    name: String,
}

/// Arguments of `cenote hooks test`.
#[derive(Debug, clap::Args)]
pub struct TestArguments {
    /// Only show what would be run
    #[arg(long)]
    dry_run: bool,
    /// The name of the hook
    name: String,
}

/// The short names, for the help.
fn about() -> String {
    let width = EVENT_SHORT_NAMES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = EVENT_SHORT_NAMES.iter().map(|(name, what)| format!("\n  {name:<width$}  {what}"));
    format!(
        "Short names of events:{}\n\n\
         The daemon keeps hooks beside its cache file, and runs them as its user.",
        lines.collect::<String>()
    )
}

impl Hooks {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        match self {
            Self::List(arguments) => list(&arguments),
            Self::Add(arguments) => add(arguments),
            Self::Remove(NameArguments { name }) => client::call(&RemoveHook { name }),
            Self::Test(arguments) => test(arguments),
        }
    }
}

fn action_in_words(action: &HookAction) -> String {
    match action {
        HookAction::Command(command) => format!("command: {command}"),
        HookAction::Webhook(url) => format!("webhook: {url}"),
        HookAction::Mail(mail) => format!("mail: {} by {}", mail.to.join(", "), mail.relay),
        HookAction::Ntfy(ntfy) => format!("ntfy: {}", ntfy.url),
    }
}

fn list(arguments: &ListArguments) -> Result<()> {
    let hooks = client::call(&ListHooks {})?;
    if arguments.json.json {
        let mut document = output::document("cenote hooks list");
        document.insert("hooks".into(), serde_json::to_value(&hooks)?);
        return output::print_json(&document);
    }
    if hooks.is_empty() {
        return output::print("no hooks\n");
    }
    let line = |hook: &Hook| {
        format!("{:<20}  {:<30}  {}\n", hook.name, hook.events.join(","), action_in_words(&hook.action))
    };
    let lines: String = hooks.iter().map(line).collect();
    output::print(&format!("{:<20}  {:<30}  {}\n{lines}", "NAME", "EVENTS", "ACTION"))
}

fn add(arguments: AddArguments) -> Result<()> {
    let AddArguments { events, command, webhook, limit: limit_s, name } = arguments;
    let action = match (command, webhook) {
        (Some(command), _) => HookAction::Command(command),
        (None, url) => HookAction::Webhook(url.unwrap_or_default()),
    };
    let events = events.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
    client::call(&AddHook { hook: Hook { name, events, action, limit_s, secret: None, has_secret: false } })
}

fn test(arguments: TestArguments) -> Result<()> {
    let TestArguments { dry_run, name } = arguments;
    let tested = client::call(&TestHook { name, dry_run })?;
    let mut text = format!("{}\n", action_in_words(&tested.hook.action));
    if matches!(tested.hook.action, HookAction::Command(_)) {
        tested.environment.iter().for_each(|(name, value)| text.push_str(&format!("  {name}={value}\n")));
    }
    text.push_str(&match &tested.outcome {
        Some(outcome) => format!("{outcome}\n"),
        None => "not run (--dry-run)\n".to_owned(),
    });
    output::print(&text)
}
