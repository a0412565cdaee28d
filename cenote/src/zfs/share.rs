//! `zfs share`, `zfs unshare`.

use anyhow::Result;
use server::api::{ShareFilesystems, SharesChanged, UnshareFilesystems};

use super::keys;
use crate::output::{self, complain, usage};

/// The protocols that OpenZFS knows. The second one is not served.
const NFS: &str = "nfs";
const SMB: &str = "smb";

/// Arguments of `zfs share`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct ShareArguments {
    /// All filesystems whose properties say that they are shared; 'nfs' behind it means the same
    #[arg(short)]
    all: bool,
    /// Load keys first, asking for those that are not in files
    #[arg(short)]
    load_keys: bool,
    /// The filesystem
    #[arg(value_name = "FILESYSTEM")]
    target: Vec<String>,
}

impl ShareArguments {
    /// Shares.
    pub fn run(self) -> Result<()> {
        let dataset = one(self.all, self.target)?;
        let loaded = match (self.load_keys, &dataset) {
            (true, Some(name)) => keys::load_key_of(name),
            (true, None) => keys::load_missing_keys(None, false),
            (false, _) => Ok(()),
        };
        let request = ShareFilesystems { dataset };
        let changed = output::ask(&request, |request| SharesChanged {
            failed: output::none_of(&request.dataset, "dataset does not exist"),
            ..SharesChanged::default()
        })?;
        told(&changed).and(loaded)
    }
}

/// Arguments of `zfs unshare`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct UnshareArguments {
    /// All filesystems that are shared; 'nfs' behind it means the same
    #[arg(short)]
    all: bool,
    /// The filesystem or its mountpoint
    #[arg(value_name = "FILESYSTEM|MOUNTPOINT")]
    target: Vec<String>,
}

impl UnshareArguments {
    /// Ends the sharing.
    pub fn run(self) -> Result<()> {
        let request = UnshareFilesystems { target: one(self.all, self.target)? };
        let changed = output::ask(&request, |request| SharesChanged {
            failed: output::none_of(&request.target, "dataset does not exist"),
            ..SharesChanged::default()
        })?;
        told(&changed)
    }
}

/// The filesystem that is meant; none for all. A protocol may be named before it, or behind `-a`.
fn one(all: bool, mut words: Vec<String>) -> Result<Option<String>> {
    let names_protocol = words.first().is_some_and(|word| word == NFS || word == SMB);
    if names_protocol && (all || words.len() > 1) {
        let protocol = words.remove(0);
        if protocol == SMB {
            return Err(usage("SMB is not served: share the mountpoint by smb.conf"));
        }
    }
    match (all, words.len()) {
        (true, 0) => Ok(None),
        (false, 1) => Ok(words.pop()),
        (false, 0) => Err(usage("missing filesystem argument (specify -a for all)")),
        _ => Err(usage("too many arguments")),
    }
}

fn told(changed: &SharesChanged) -> Result<()> {
    for warning in &changed.warnings {
        eprintln!("{warning}");
    }
    complain(&changed.failed)
}
