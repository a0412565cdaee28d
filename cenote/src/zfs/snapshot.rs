//! `zfs snapshot`, `rollback`, `hold`, `release`, `bookmark`.

use anyhow::Result;
use server::api::{CreateBookmark, HoldSnapshots, Rollback, TakeSnapshots};

use super::change;
use crate::command_line;
use crate::output::usage;

/// Arguments of `zfs snapshot`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Also of everything below, in the same moment
    #[arg(short)]
    recursive: bool,
    /// A property of the snapshots (may be repeated)
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// The new snapshots
    #[arg(value_name = "FILESYSTEM@SNAPSHOT|VOLUME@SNAPSHOT")]
    names: Vec<String>,
}

impl Arguments {
    /// Takes them.
    pub fn run(self) -> Result<()> {
        let Some(first) = self.names.first().cloned() else { return Err(usage("missing snapshot argument")) };
        let request = TakeSnapshots {
            names: self.names,
            recursive: self.recursive,
            properties: command_line::properties(&self.properties)?,
            command: command_line::command(),
        };
        let of = first.split('@').next().unwrap_or_default();
        change(&request, || super::absent(of)).map(|_| ())
    }
}

/// Arguments of `zfs rollback`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct RollbackArguments {
    /// Destroy later snapshots and bookmarks
    #[arg(short = 'r')]
    destroy_later: bool,
    /// Destroy their clones too
    #[arg(short = 'R')]
    destroy_clones: bool,
    /// With -R: unmount clones by force
    #[arg(short)]
    force: bool,
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: Option<String>,
}

impl RollbackArguments {
    /// Goes back to it.
    pub fn run(self) -> Result<()> {
        let snapshot = self.snapshot.ok_or_else(|| usage("missing dataset argument"))?;
        let request = Rollback {
            snapshot: snapshot.clone(),
            destroy_later: self.destroy_later,
            destroy_clones: self.destroy_clones,
            force: self.force,
            command: command_line::command(),
        };
        let done = change(&request, || super::absent(&snapshot))?;
        done.warnings.iter().for_each(|warning| eprintln!("{warning}"));
        Ok(())
    }
}

/// Arguments of `zfs hold` and `zfs release`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct HoldArguments {
    /// Also snapshots of the same name of all descendants
    #[arg(short)]
    recursive: bool,
    /// The hold's name
    #[arg(value_name = "TAG")]
    tag: Option<String>,
    /// The snapshots
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<String>,
}

impl HoldArguments {
    /// Holds or releases them.
    pub fn run(self, release: bool) -> Result<()> {
        let (Some(tag), Some(first)) = (self.tag, self.snapshots.first().cloned()) else {
            return Err(usage("missing argument"));
        };
        if !release && tag.starts_with('.') {
            anyhow::bail!("'{tag}': tag may not start with '.'");
        }
        let request = HoldSnapshots {
            tag,
            snapshots: self.snapshots,
            recursive: self.recursive,
            release,
            command: command_line::command(),
        };
        change(&request, || super::absent(&first))
    }
}

/// Arguments of `zfs bookmark`.
#[derive(Debug, clap::Args)]
pub struct BookmarkArguments {
    /// The snapshot, or the bookmark to copy
    #[arg(value_name = "SNAPSHOT|BOOKMARK")]
    source: Option<String>,
    /// The new bookmark; '#NAME' for one of the same dataset
    #[arg(value_name = "NEWBOOKMARK")]
    bookmark: Option<String>,
}

impl BookmarkArguments {
    /// Makes it.
    pub fn run(self) -> Result<()> {
        let source = self.source.ok_or_else(|| usage("missing source argument"))?;
        let bookmark = self.bookmark.ok_or_else(|| usage("missing bookmark argument"))?;
        let complete = |name: String, other: &str| match name.starts_with(['@', '#']) {
            true => format!("{}{name}", other.split(['@', '#']).next().unwrap_or_default()),
            false => name,
        };
        if !source.contains(['@', '#']) {
            return Err(usage(format!("invalid source name '{source}': must contain a '@' or '#'")));
        }
        if !bookmark.contains('#') {
            return Err(usage(format!("invalid bookmark name '{bookmark}': must contain a '#'")));
        }
        let source_full = complete(source, &bookmark);
        let bookmark = complete(bookmark, &source_full);
        let request =
            CreateBookmark { source: source_full.clone(), bookmark, command: command_line::command() };
        change(&request, || super::absent(&source_full))
    }
}
