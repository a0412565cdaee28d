//! `cenote remote`: the machines that `--remote` can name without a token and a fingerprint.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Subcommand;
use serde_json::{Value, json};
use server::api::{Hello, Secret};
use server::outgoing::{Address, Fingerprint, Presented};

use crate::output::{self, JsonOptions};
use crate::remotes::{self, Remote};
use crate::{client, prompt};

/// The longest answer to a question, in bytes.
const MAX_ANSWER_BYTES: usize = 64;

/// The commands about other machines.
#[derive(Debug, Subcommand)]
pub enum Remotes {
    /// Keep a machine under a name, with its token, and with its certificate if no authority vouches for it
    #[command(after_help = ABOUT)]
    Add(AddArguments),
    /// Show the machines that are kept
    List(ListArguments),
    /// Forget a machine, its token and its certificate
    Remove(NameArguments),
}

/// How to add one, for the help.
const ABOUT: &str = "\
The other machine's daemon serves its dashboard to the network ('cenote serve --dashboard 0.0.0.0:7227'),
and has a token for this machine ('cenote dashboard token create NAME --role admin'). The token is taken
from CENOTE_TOKEN, or asked for; never from the command line, which all users of a machine can see.

A certificate that no authority of this machine vouches for is trusted by its fingerprint, which
'cenote dashboard' prints on the other machine. One that changes later is refused.

Machines are kept in remotes.json below $XDG_CONFIG_HOME/cenote or ~/.config/cenote, for this user only.";

/// Arguments of `cenote remote add`.
#[derive(Debug, clap::Args)]
pub struct AddArguments {
    /// The name by which it is called here
    name: String,
    /// Where its dashboard listens (port 7227 if none is said)
    #[arg(value_name = "HOST[:PORT]")]
    place: String,
    /// Trust the certificate with this SHA-256 fingerprint, and no other
    #[arg(long, value_name = "SHA256")]
    fingerprint: Option<Fingerprint>,
}

/// Arguments of `cenote remote list`.
#[derive(Debug, clap::Args)]
pub struct ListArguments {
    #[command(flatten)]
    json: JsonOptions,
}

/// The name of a machine.
#[derive(Debug, clap::Args)]
pub struct NameArguments {
    /// The name of the machine
    #[arg(value_name = "REMOTE")]
    name: String,
}

impl Remotes {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Add(arguments) => add(arguments),
            Self::List(arguments) => list(&arguments),
            Self::Remove(NameArguments { name }) => match remotes::forget(&name)? {
                true => Ok(()),
                false => Err(anyhow!("there is no machine '{}'", name.escape_debug())),
            },
        }
        .map_err(output::report)
    }
}

fn add(arguments: AddArguments) -> Result<()> {
    let AddArguments { name, place, fingerprint } = arguments;
    remotes::check_name(&name)?;
    let address =
        remotes::address(&place).with_context(|| format!("cannot use '{}'", place.escape_debug()))?;
    let fingerprint = match address.scheme.is_secure() {
        true => certificate(&address, fingerprint)?,
        false => {
            ensure!(fingerprint.is_none(), "without TLS there is no certificate");
            None
        }
    };
    let token = token(&name)?;
    let remote = Remote { name, address, fingerprint, token: Some(token) };
    // A token that does not let in is not kept.
    let told = client::call_to(remote.clone(), &Hello {})?;
    remotes::keep(&remote)?;
    output::print(&format!("{} is kept; its daemon is of version {}\n", remote.label(), told.version))
}

/// The certificate that is to be trusted; none where authorities vouch for it.
fn certificate(address: &Address, given: Option<Fingerprint>) -> Result<Option<Fingerprint>> {
    let place = address.host_and_port();
    let Presented { fingerprint, fault } = client::certificate_of(address)?;
    match (given, fault) {
        (Some(given), _) if given == fingerprint => Ok(Some(given)),
        (Some(given), _) => Err(anyhow!(
            "{place} has another certificate than was given\n  given: {given}\n  shown: {fingerprint}"
        )),
        (None, None) => Ok(None),
        (None, Some(fault)) => {
            eprintln!(
                "no authority vouches for the certificate of {place} ({fault})\n  SHA-256: {fingerprint}\n\
                 'cenote dashboard' shows the fingerprint on that machine."
            );
            if !std::io::stdin().is_terminal() {
                bail!("if it is the right one, say so by --fingerprint {fingerprint}");
            }
            eprint!("Is it the same? Type 'yes' to trust it from now on: ");
            std::io::stderr().flush()?;
            let answer = prompt::read(MAX_ANSWER_BYTES, Some(b'\n'))?;
            ensure!(answer.trim_ascii() == b"yes", "it is not trusted; nothing was kept");
            Ok(Some(fingerprint))
        }
    }
}

fn token(name: &str) -> Result<Secret> {
    if let Some(token) = remotes::token_of_environment()? {
        return Ok(token);
    }
    let token = prompt::secret(&format!("Token for '{name}': "))?;
    remotes::check_token(&token)?;
    Ok(token)
}

fn list(arguments: &ListArguments) -> Result<()> {
    let kept = remotes::kept()?;
    if arguments.json.json {
        let told = |remote: &Remote| {
            json!({
                "name": remote.name,
                "address": remote.url(),
                "fingerprint": remote.fingerprint.map(|fingerprint| fingerprint.to_string()),
                "has_token": remote.token.is_some(),
            })
        };
        let all: Vec<Value> = kept.iter().map(told).collect();
        let mut document = output::document("cenote remote list");
        document.insert("remotes".into(), all.into());
        return output::print_json(&document);
    }
    if kept.is_empty() {
        return output::print("no other machines\n");
    }
    let line = |remote: &Remote| {
        let trusted =
            remote.fingerprint.map_or_else(|| "by an authority".to_owned(), |kept| kept.to_string());
        let trusted = if remote.address.scheme.is_secure() { trusted } else { "-".to_owned() };
        format!("{:<20}  {:<32}  {trusted}\n", remote.name, remote.url())
    };
    let lines: String = kept.iter().map(line).collect();
    output::print(&format!("{:<20}  {:<32}  {}\n{lines}", "NAME", "ADDRESS", "CERTIFICATE"))
}
