//! `cenote hooks`: commands, webhooks, messages and mail when something happens to a pool.
//!
//! A secret (the password of a relay, a token) is asked for without echo, or is the first line of standard
//! input; it never stands on the command line.

use anyhow::{Result, bail};
use clap::Subcommand;
use server::api::{AddHook, Hook, HookAction, ListHooks, Mail, Ntfy, Password, RemoveHook, TestHook};
use server::daemon::EVENT_SHORT_NAMES;

use crate::client;
use crate::output::{self, JsonOptions};
use crate::prompt;

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
    /// Send the event as JSON to this address (https:// or http://)
    #[arg(long, value_name = "URL", group = "action")]
    webhook: Option<String>,
    /// Mail it to this address; may be given several times
    #[arg(long, value_name = "ADDRESS", group = "action", requires_all = ["relay", "from"])]
    mail: Vec<String>,
    /// The server that takes the mail: smtp://[USER@]HOST[:PORT], which begins TLS where it can, or smtps://
    #[arg(long, value_name = "URL", requires = "mail")]
    relay: Option<String>,
    /// The sender of the mail
    #[arg(long, value_name = "ADDRESS", requires = "mail")]
    from: Option<String>,
    /// Send a message to this topic, as ntfy.sh takes them (https:// or http://)
    #[arg(long, value_name = "URL", group = "action")]
    ntfy: Option<String>,
    /// How urgent the message is, from 1 to 5 (default: by what happened)
    #[arg(long, value_name = "PRIORITY", requires = "ntfy")]
    priority: Option<u8>,
    /// Ask for a secret, which the daemon keeps and never tells: the password of the relay's user, or the
    /// token for a webhook or a topic. A hook that is added again without keeps it
    #[arg(long, conflicts_with = "command")]
    secret: bool,
    /// Drop the secret that the hook has
    #[arg(long, conflicts_with = "secret")]
    no_secret: bool,
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
         The daemon keeps hooks beside its cache file, and runs them as its user. A hook that fails\n\
         is told by an event (hook_failed), and in the daemon's log.",
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
    let AddArguments { events, name, limit: limit_s, secret, no_secret, .. } = &arguments;
    let secret = match (secret, no_secret) {
        (true, _) => Some(ask_secret(name)?),
        (false, true) => Some(Password::default()),
        (false, false) => None,
    };
    let events = events.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
    let (name, limit_s) = (name.clone(), *limit_s);
    let action = action_of(arguments);
    client::call(&AddHook { hook: Hook { name, events, action, limit_s, secret, has_secret: false } })
}

fn action_of(arguments: AddArguments) -> HookAction {
    let AddArguments { command, webhook, mail, relay, from, ntfy, priority, .. } = arguments;
    match (command, webhook, ntfy) {
        (Some(command), ..) => HookAction::Command(command),
        (None, Some(url), _) => HookAction::Webhook(url),
        (None, None, Some(url)) => HookAction::Ntfy(Ntfy { url, priority }),
        (None, None, None) => HookAction::Mail(Mail {
            relay: relay.unwrap_or_default(),
            from: from.unwrap_or_default(),
            to: mail,
        }),
    }
}

fn ask_secret(name: &str) -> Result<Password> {
    let secret = prompt::secret(&format!("Secret of the hook '{name}': "))?;
    match std::str::from_utf8(secret.bytes()) {
        Ok(text) => Ok(Password::from(text.to_owned())),
        Err(_) => bail!("the secret is no text in UTF-8"),
    }
}

fn test(arguments: TestArguments) -> Result<()> {
    let TestArguments { dry_run, name } = arguments;
    let tested = client::call(&TestHook { name, dry_run })?;
    let mut text = format!("{}\n", action_in_words(&tested.hook.action));
    if matches!(tested.hook.action, HookAction::Command(_)) {
        tested.environment.iter().for_each(|(name, value)| text.push_str(&format!("  {name}={value}\n")));
    }
    if let Some(message) = &tested.message {
        message.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text.push_str(&match &tested.outcome {
        Some(outcome) => format!("{outcome}\n"),
        None => "not run (--dry-run)\n".to_owned(),
    });
    output::print(&text)
}
