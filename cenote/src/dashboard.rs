//! `cenote dashboard`: a link to the page for browsers, its users and its tokens.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use serde_json::{Value, json};
use server::api::{
    CreateDashboardToken, DashboardLink, DashboardRole, DashboardUser, GetDashboardLink, ListDashboardUsers,
    Password, RemoveDashboardToken, RemoveDashboardUser, SetDashboardUser,
};

use crate::client;
use crate::output::{self, JsonOptions};
use crate::prompt;

/// Arguments of `cenote dashboard`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Dashboard>,
    #[command(flatten)]
    link: LinkArguments,
}

/// Arguments of `cenote dashboard` itself.
#[derive(Debug, clap::Args)]
pub struct LinkArguments {
    /// Open the link in a browser
    #[arg(long)]
    open: bool,
    /// Where the dashboard is to listen, if it does not yet (default: 127.0.0.1:7227)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    #[command(flatten)]
    json: JsonOptions,
}

/// The commands about those who may sign in.
#[derive(Debug, Subcommand)]
pub enum Dashboard {
    /// Users who sign in with a password
    #[command(subcommand)]
    User(User),
    /// Tokens for programs
    #[command(subcommand)]
    Token(Token),
}

/// The commands about users.
#[derive(Debug, Subcommand)]
pub enum User {
    /// Show the users
    List(ListArguments),
    /// Make a user, or change its role or password, which ends its sessions
    Set(SetArguments),
    /// Remove a user, with its sessions and tokens
    Remove(NameArguments),
}

/// The commands about tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Show the tokens
    List(ListArguments),
    /// Make a token, which is shown this once
    Create(CreateArguments),
    /// Remove a token
    Remove(NameArguments),
}

/// Arguments of the commands that list.
#[derive(Debug, clap::Args)]
pub struct ListArguments {
    #[command(flatten)]
    json: JsonOptions,
}

/// A name.
#[derive(Debug, clap::Args)]
pub struct NameArguments {
    /// Its name
    name: String,
}

/// Arguments of `cenote dashboard user set`.
#[derive(Debug, clap::Args)]
pub struct SetArguments {
    /// What the user may do; needed for a new user
    #[arg(long, value_enum)]
    role: Option<UserRole>,
    /// Ask for a new password (always so for a new user, and without --role); without a terminal it is the
    /// first line of the input
    #[arg(long)]
    password: bool,
    /// Its name
    name: String,
}

/// Arguments of `cenote dashboard token create`.
#[derive(Debug, clap::Args)]
pub struct CreateArguments {
    /// What the token is for; never more than its user may do
    #[arg(long, value_enum)]
    role: TokenRole,
    /// It ends after so many days (default: never)
    #[arg(long, value_name = "DAYS")]
    days: Option<u32>,
    /// Its name
    name: String,
    #[command(flatten)]
    json: JsonOptions,
}

/// A role of a user.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum UserRole {
    /// Sees what any user of the machine may see
    Viewer,
    /// Runs the machine from day to day, and destroys nothing
    Operator,
    /// May do all that root may
    Admin,
}

/// A role of a token.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TokenRole {
    /// Reads counters for Prometheus at /metrics
    Metrics,
    /// Sees what any user of the machine may see
    Viewer,
    /// Runs the machine from day to day, and destroys nothing
    Operator,
    /// May do all that root may
    Admin,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        match self.command {
            None => self.link.run(),
            Some(Dashboard::User(User::List(arguments))) => list_users(&arguments),
            Some(Dashboard::User(User::Set(arguments))) => set_user(arguments),
            Some(Dashboard::User(User::Remove(NameArguments { name }))) => {
                client::call(&RemoveDashboardUser { name })
            }
            Some(Dashboard::Token(Token::List(arguments))) => list_tokens(&arguments),
            Some(Dashboard::Token(Token::Create(arguments))) => create_token(arguments),
            Some(Dashboard::Token(Token::Remove(NameArguments { name }))) => {
                client::call(&RemoveDashboardToken { name })
            }
        }
    }
}

impl LinkArguments {
    fn run(self) -> Result<()> {
        let link = client::call(&GetDashboardLink { listen: self.listen })?;
        if self.open {
            open(&link.url)?;
        }
        if self.json.json {
            let mut document = output::document("cenote dashboard");
            document.insert("url".into(), link.url.into());
            document.insert("expires_in".into(), link.expires_in.into());
            document.insert("certificate_fingerprint".into(), link.certificate_fingerprint.into());
            document.insert("addresses".into(), link.addresses.into());
            return output::print_json(&document);
        }
        let by_ssh = std::env::var_os("SSH_CONNECTION").is_some();
        output::print(&in_words(&link, by_ssh))
    }
}

/// A link for a person, who may have come to this machine by ssh.
fn in_words(link: &DashboardLink, by_ssh: bool) -> String {
    let mut text =
        format!("This link signs in once, within {} minutes:\n\n    {}\n\n", link.expires_in / 60, link.url);
    if let Some(fingerprint) = &link.certificate_fingerprint {
        text += &format!("SHA-256 fingerprint of its certificate:\n\n    {fingerprint}\n\n");
    }
    let is_local = |address: &String| {
        address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
    };
    match link.addresses.first() {
        Some(first) if by_ssh && link.addresses.iter().all(is_local) => {
            let port = first.rsplit(':').next().unwrap_or_default();
            text += &format!(
                "Only this machine reaches it. From yours: ssh -L {port}:{first} HOST, then open the link.\n"
            );
        }
        _ => {}
    }
    text
}

/// Opens a link in a browser. Other users could read the arguments of a program, so that the link travels in
/// a file that only this user can read.
fn open(url: &str) -> Result<()> {
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_dir() => folder,
        _ => std::env::temp_dir(),
    };
    let path = folder.join(format!("cenote-dashboard-{}.html", std::process::id()));
    let written = || -> std::io::Result<()> {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let page = format!(
            "<!doctype html><meta charset=utf-8><title>Cenote</title>\n\
             <meta http-equiv=refresh content=\"0;url={url}\">\n<a href=\"{url}\">Cenote</a>\n"
        );
        file.write_all(page.as_bytes())
    };
    written().with_context(|| format!("cannot write {}", path.display()))?;
    run_browser(&path).context("no browser was opened; open the link that 'cenote dashboard' prints")
}

fn run_browser(path: &Path) -> Result<()> {
    let mut command = Command::new("xdg-open");
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().context("cannot run xdg-open")?;
    ensure!(status.success(), "xdg-open failed ({status})");
    Ok(())
}

fn list_users(arguments: &ListArguments) -> Result<()> {
    let users = client::call(&ListDashboardUsers {})?;
    if arguments.json.json {
        let mut document = output::document("cenote dashboard user list");
        document.insert("users".into(), serde_json::to_value(&users)?);
        return output::print_json(&document);
    }
    if users.is_empty() {
        return output::print("no users; 'cenote dashboard' prints a link that signs in once\n");
    }
    let line = |user: &DashboardUser| {
        let by = if user.has_password { "password" } else { "link" };
        let (sessions, tokens) = (user.sessions, user.tokens.len());
        format!("{:<24}  {:<8}  {by:<8}  {sessions:>8}  {tokens:>6}\n", user.name, user.role.name())
    };
    let lines: String = users.iter().map(line).collect();
    let head =
        format!("{:<24}  {:<8}  {:<8}  {:>8}  {:>6}\n", "NAME", "ROLE", "SIGNS IN", "SESSIONS", "TOKENS");
    output::print(&format!("{head}{lines}"))
}

fn set_user(arguments: SetArguments) -> Result<()> {
    let SetArguments { role, password, name } = arguments;
    let is_new = {
        let users = client::call(&ListDashboardUsers {})?;
        !users.iter().any(|user| user.has_password && user.name == name)
    };
    ensure!(!is_new || role.is_some(), "there is no user '{name}': a new one needs --role");
    let password = match password || is_new || role.is_none() {
        true => Some(ask_password(&name)?),
        false => None,
    };
    let role = role.map(|role| match role {
        UserRole::Viewer => DashboardRole::Viewer,
        UserRole::Operator => DashboardRole::Operator,
        UserRole::Admin => DashboardRole::Admin,
    });
    client::call(&SetDashboardUser { name, role, password })
}

/// Asks for a new password: twice on a terminal.
fn ask_password(name: &str) -> Result<Password> {
    let first = prompt::secret(&format!("Enter a new password for '{name}': "))?;
    if std::io::stdin().is_terminal() {
        let second = prompt::secret("Re-enter the password: ")?;
        ensure!(first == second, "the passwords differ");
    }
    match std::str::from_utf8(first.bytes()) {
        Ok(text) => Ok(Password::from(text.to_owned())),
        Err(_) => bail!("the password is no text in UTF-8"),
    }
}

fn list_tokens(arguments: &ListArguments) -> Result<()> {
    let users = client::call(&ListDashboardUsers {})?;
    let tokens = users.iter().flat_map(|user| user.tokens.iter().map(move |token| (user, token)));
    if arguments.json.json {
        let tokens = tokens.map(|(user, token)| {
            let mut told = json!(token);
            told["user"] = json!(user.name);
            told
        });
        let tokens: Vec<Value> = tokens.collect();
        let mut document = output::document("cenote dashboard token list");
        document.insert("tokens".into(), tokens.into());
        return output::print_json(&document);
    }
    let date = |seconds: Option<u64>| seconds.map_or_else(|| "-".to_owned(), output::history_date);
    let lines: Vec<String> = tokens
        .map(|(user, token)| {
            format!(
                "{:<24}  {:<8}  {:<16}  {:<20}  {}\n",
                token.name,
                token.role.name(),
                user.name,
                date(token.ends),
                date(token.last_used)
            )
        })
        .collect();
    if lines.is_empty() {
        return output::print("no tokens\n");
    }
    let head = format!("{:<24}  {:<8}  {:<16}  {:<20}  {}\n", "NAME", "ROLE", "USER", "ENDS", "LAST USED");
    output::print(&format!("{head}{}", lines.concat()))
}

fn create_token(arguments: CreateArguments) -> Result<()> {
    let role = match arguments.role {
        TokenRole::Metrics => DashboardRole::Metrics,
        TokenRole::Viewer => DashboardRole::Viewer,
        TokenRole::Operator => DashboardRole::Operator,
        TokenRole::Admin => DashboardRole::Admin,
    };
    let made = client::call(&CreateDashboardToken { name: arguments.name, role, days: arguments.days })?;
    if arguments.json.json {
        let mut document = output::document("cenote dashboard token create");
        document.insert("token".into(), made.token.into());
        document.insert("ends".into(), made.ends.into());
        return output::print_json(&document);
    }
    output::print(&format!("{}\n", made.token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_came_by_ssh_is_told_of_a_tunnel() {
        let link = |addresses: &[&str], fingerprint: Option<&str>| DashboardLink {
            url: "http://127.0.0.1:7227/#sign-in=x".into(),
            expires_in: 300,
            certificate_fingerprint: fingerprint.map(str::to_owned),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        };
        let text = in_words(&link(&["127.0.0.1:7227"], None), true);
        assert!(text.contains("within 5 minutes") && text.contains("ssh -L 7227:127.0.0.1:7227 "), "{text}");
        assert!(!in_words(&link(&["127.0.0.1:7227"], None), false).contains("ssh"));
        let text = in_words(&link(&["0.0.0.0:7227"], Some("AB:CD")), true);
        assert!(text.contains("AB:CD") && !text.contains("ssh"), "{text}");
    }
}
