//! `zfs rename`, `zfs promote`.

use anyhow::Result;
use server::api::{Promote, RenameDataset};

use super::change;
use crate::command_line;
use crate::output::usage;

/// Arguments of `zfs rename`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Create missing parents of the new name
    #[arg(short)]
    parents: bool,
    /// The snapshots of this name of all descendants
    #[arg(short)]
    recursive: bool,
    /// Leave mounts where they are
    #[arg(short = 'u')]
    no_remount: bool,
    /// Unmount by force
    #[arg(short)]
    force: bool,
    /// The name
    #[arg(value_name = "DATASET")]
    from: Option<String>,
    /// The new name
    #[arg(value_name = "NEWDATASET")]
    to: Option<String>,
}

impl Arguments {
    /// Renames it.
    pub fn run(self) -> Result<()> {
        let from = self.from.ok_or_else(|| usage("missing source dataset argument"))?;
        let to = self.to.ok_or_else(|| usage("missing target dataset argument"))?;
        if self.recursive && self.parents {
            return Err(usage("-p and -r options are mutually exclusive"));
        }
        if self.no_remount && self.parents {
            return Err(usage("-u and -p options are mutually exclusive"));
        }
        if self.recursive && !from.contains('@') {
            return Err(usage("source dataset for recursive rename must be a snapshot"));
        }
        let request = RenameDataset {
            from: from.clone(),
            to,
            parents: self.parents,
            recursive: self.recursive,
            no_remount: self.no_remount,
            force: self.force,
            command: command_line::command(),
        };
        let done = change(&request, || super::absent(&from))?;
        done.warnings.iter().for_each(|warning| eprintln!("{warning}"));
        Ok(())
    }
}

/// Arguments of `zfs promote`.
#[derive(Debug, clap::Args)]
pub struct PromoteArguments {
    /// The clone
    #[arg(value_name = "CLONE")]
    names: Vec<String>,
}

impl PromoteArguments {
    /// Promotes it.
    pub fn run(self) -> Result<()> {
        let dataset = match self.names.as_slice() {
            [] => return Err(usage("missing clone filesystem argument")),
            [name] => name.clone(),
            _ => return Err(usage("too many arguments")),
        };
        change(&Promote { dataset: dataset.clone(), command: command_line::command() }, || {
            super::absent(&dataset)
        })
    }
}
