//! `zfs destroy`: filesystems, volumes, snapshots, bookmarks.

use anyhow::Result;
use engine::properties::format::nicebytes;
use server::api::DestroyDataset;

use super::change;
use crate::command_line;
use crate::output::{self, usage};

/// Arguments of `zfs destroy`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Also everything below
    #[arg(short)]
    recursive: bool,
    /// Also everything that depends on it, clones in other places too
    #[arg(short = 'R')]
    clones: bool,
    /// Unmount by force
    #[arg(short)]
    force: bool,
    /// Only print what would be destroyed
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print what is destroyed
    #[arg(short)]
    verbose: bool,
    /// Print for programs
    #[arg(short)]
    parsable: bool,
    /// Destroy snapshots that are held or cloned as soon as they are free
    #[arg(short)]
    defer: bool,
    /// A dataset; snapshots as FS@A,B or FS@A%B; a bookmark
    #[arg(value_name = "DATASET|SNAPSHOT[%SNAPSHOT][,…]|BOOKMARK")]
    names: Vec<String>,
}

impl Arguments {
    /// Destroys it.
    pub fn run(self) -> Result<()> {
        let name = match self.names.as_slice() {
            [] => return Err(usage("missing dataset argument")),
            [name] => name.clone(),
            _ => return Err(usage("too many arguments")),
        };
        let request = DestroyDataset {
            name: name.clone(),
            recursive: self.recursive,
            clones: self.clones,
            force: self.force,
            defer: self.defer,
            dry_run: self.dry_run,
            command: command_line::command(),
        };
        let destroyed = change(&request, || super::absent(&name))?;
        if !self.verbose && !self.parsable {
            return Ok(());
        }
        let will = if self.dry_run { "would" } else { "will" };
        let line = |name: &String| match self.parsable {
            true => format!("destroy\t{name}\n"),
            false => format!("{will} destroy {name}\n"),
        };
        let mut text: String = destroyed.names.iter().map(line).collect();
        if let Some(bytes) = destroyed.reclaimed_bytes {
            text.push_str(&match self.parsable {
                true => format!("reclaim\t{bytes}\n"),
                false => format!("{will} reclaim {}\n", nicebytes(bytes)),
            });
        }
        output::print(&text)
    }
}
