//! `zfs create` and `zfs clone`: new filesystems and volumes.

use anyhow::{Context, Result};
use server::api::{ApiError, CloneSnapshot, CreateDataset, Created};
use server::sizes::parse_size;

use super::change;
use super::keys::AskedKey;
use crate::command_line;
use crate::output::{self, usage};

/// Arguments of `zfs create`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_version_flag = true)]
pub struct Arguments {
    /// Create missing parents
    #[arg(short)]
    parents: bool,
    /// Do not mount it
    #[arg(short = 'u')]
    no_mount: bool,
    /// Only check
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print what is created
    #[arg(short)]
    verbose: bool,
    /// Print for programs
    #[arg(short = 'P')]
    parsable: bool,
    /// Reserve nothing for the volume
    #[arg(short)]
    sparse: bool,
    /// Create a volume of this size
    #[arg(short = 'V', value_name = "SIZE")]
    volume: Option<String>,
    /// Block size of the volume
    #[arg(short = 'b', value_name = "BLOCKSIZE")]
    block_size: Option<String>,
    /// A property (may be repeated)
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// The filesystem or volume
    #[arg(value_name = "FILESYSTEM|VOLUME")]
    names: Vec<String>,
}

impl Arguments {
    /// Creates it.
    pub fn run(self) -> Result<()> {
        let volume_bytes = match &self.volume {
            Some(text) => {
                Some(parse_size(text).map_err(|why| usage(format!("bad volume size '{text}': {why}")))?)
            }
            None if self.sparse || self.block_size.is_some() => {
                return Err(usage("'-s' and '-b' can only be used when creating a volume"));
            }
            None => None,
        };
        let name = match self.names.as_slice() {
            [] => {
                return Err(usage(format!(
                    "missing {} argument",
                    if volume_bytes.is_some() { "volume" } else { "filesystem" }
                )));
            }
            [name] => name.clone(),
            _ => return Err(usage("too many arguments")),
        };
        if self.no_mount && volume_bytes.is_some() {
            return Err(usage("'-u' can only be used when creating a filesystem"));
        }
        let mut properties = command_line::properties(&self.properties)?;
        if let Some(text) = &self.block_size {
            let bytes =
                parse_size(text).map_err(|why| usage(format!("bad volume block size '{text}': {why}")))?;
            properties.push(("volblocksize".to_owned(), bytes.to_string()));
        }
        let asked = AskedKey::of(&properties);
        let mut request = CreateDataset {
            name: name.clone(),
            volume_bytes,
            sparse: self.sparse,
            parents: self.parents,
            properties,
            key: None,
            no_mount: self.no_mount,
            dry_run: self.dry_run,
            command: command_line::command(),
        };
        let absent = || format!("cannot create '{name}': no such pool '{}'", super::pool_of(&name));
        if asked.is_asked_for() && !self.dry_run {
            // What can be refused without the key is refused before it is asked for.
            change(&CreateDataset { dry_run: true, ..request.clone() }, absent).map_err(as_of_create)?;
            request.key = Some(asked.ask().with_context(|| format!("cannot create '{name}'"))?);
        }
        let created = change(&request, absent)?;
        if self.verbose || self.parsable {
            output::print(&self.text(&name, &created))?;
        }
        tell(&created);
        Ok(())
    }

    fn text(&self, name: &str, created: &Created) -> String {
        let would = if self.dry_run { "would create" } else { "create" };
        let mut text = String::new();
        if !created.created {
            return text;
        }
        if self.parents {
            text.push_str(&match self.parsable {
                true => format!("create_ancestors\t{name}\n"),
                false => format!("{would} ancestors of {name}\n"),
            });
        }
        text.push_str(&if self.parsable { format!("create\t{name}\n") } else { format!("{would} {name}\n") });
        for (property, value) in &created.properties {
            text.push_str(&match self.parsable {
                true => format!("property\t{property}\t{value}\n"),
                false => format!("\t{property}={value}\n"),
            });
        }
        text
    }
}

/// Says what went wrong. What was created and could not be mounted is no failure, as in OpenZFS since 2.4.
fn tell(created: &Created) {
    created.warnings.iter().chain(&created.unmounted).for_each(|warning| eprintln!("{warning}"));
}

/// Arguments of `zfs clone`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct CloneArguments {
    /// Create missing parents
    #[arg(short)]
    parents: bool,
    /// Do not mount it
    #[arg(short = 'u')]
    no_mount: bool,
    /// A property of the clone (may be repeated)
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// The new filesystem or volume
    #[arg(value_name = "FILESYSTEM|VOLUME")]
    target: Option<String>,
    #[arg(hide = true)]
    more: Vec<String>,
}

impl CloneArguments {
    /// Clones it.
    pub fn run(self) -> Result<()> {
        let snapshot = self.snapshot.ok_or_else(|| usage("missing source dataset argument"))?;
        let target = self.target.ok_or_else(|| usage("missing target dataset argument"))?;
        if !self.more.is_empty() {
            return Err(usage("too many arguments"));
        }
        let request = CloneSnapshot {
            snapshot: snapshot.clone(),
            target,
            parents: self.parents,
            no_mount: self.no_mount,
            properties: command_line::properties(&self.properties)?,
            command: command_line::command(),
        };
        let created = change(&request, || super::absent(&snapshot))?;
        tell(&created);
        Ok(())
    }
}

/// What a check refuses, in the words of the command that it was made for.
fn as_of_create(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<ApiError>() {
        Ok(error) => {
            let message = error.message.replacen("cannot verify", "cannot create", 1);
            ApiError { message, ..error }.into()
        }
        Err(error) => error,
    }
}
