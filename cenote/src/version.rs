//! `zpool version`, `zfs version`: the program's version, and the daemon's where one runs.

use anyhow::Result;
use server::api::Hello;

use crate::{client, output};

/// Arguments of the `version` commands.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

impl Arguments {
    /// Prints the versions.
    pub fn run(&self, command: &str) -> Result<()> {
        let program = concat!("cenote-", env!("CARGO_PKG_VERSION"));
        let daemon = client::call_running(&Hello {})?.map(|info| format!("cenote-daemon-{}", info.version));
        if !self.json {
            let daemon = daemon.map_or_else(String::new, |daemon| format!("{daemon}\n"));
            return output::print(&format!("{program}\n{daemon}"));
        }
        // The keys are OpenZFS's; the daemon has the kernel module's part here.
        let mut document = output::document(command);
        document.insert("zfs_version".into(), serde_json::json!({ "userland": program, "kernel": daemon }));
        output::print_json(&document)
    }
}
