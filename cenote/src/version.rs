//! `zpool version`, `zfs version`: the program's version, and the daemon's where one runs.
//!
//! Scripts read the first three numbers, and decide by them what OpenZFS can do: so they are those of the
//! OpenZFS whose commands these are. What follows says which program it is.

use anyhow::Result;
use server::api::Hello;

use crate::{client, output};

/// The OpenZFS whose commands, options and outputs these are.
const OPENZFS: &str = "2.4.0";

/// Arguments of the `version` commands.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

/// A version as OpenZFS's commands print it.
fn line(part: &str, cenote: &str) -> String {
    format!("{part}-{OPENZFS}-cenote{cenote}")
}

impl Arguments {
    /// Prints the versions.
    pub fn run(&self, command: &str) -> Result<()> {
        let program = line("zfs", env!("CARGO_PKG_VERSION"));
        // The daemon has the kernel module's part here.
        let daemon = client::call_running(&Hello {})?.map(|info| line("zfs-kmod", &info.version));
        if !self.json {
            let daemon = daemon.map_or_else(String::new, |daemon| format!("{daemon}\n"));
            return output::print(&format!("{program}\n{daemon}"));
        }
        let mut document = output::document(command);
        document.insert("zfs_version".into(), serde_json::json!({ "userland": program, "kernel": daemon }));
        output::print_json(&document)
    }
}
