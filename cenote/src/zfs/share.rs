//! `zfs share`, `zfs unshare`.

use anyhow::Result;
use server::api::{ShareFilesystems, ShareProtocol, SharesChanged, UnshareFilesystems};

use super::keys;
use crate::output::{self, complain, usage};

/// The protocols.
const NFS: &str = "nfs";
const SMB: &str = "smb";

/// Arguments of `zfs share`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct ShareArguments {
    /// All filesystems whose properties say that they are shared; with 'nfs' or 'smb' behind it, by that
    /// protocol
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
        let (protocol, dataset) = one(self.all, self.target)?;
        let loaded = match (self.load_keys, &dataset) {
            (true, Some(name)) => keys::load_key_of(name),
            (true, None) => keys::load_missing_keys(None, false),
            (false, _) => Ok(()),
        };
        let request = ShareFilesystems { dataset, protocol };
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
    /// All filesystems that are shared; with 'nfs' or 'smb' behind it, by that protocol
    #[arg(short)]
    all: bool,
    /// The filesystem or its mountpoint
    #[arg(value_name = "FILESYSTEM|MOUNTPOINT")]
    target: Vec<String>,
}

impl UnshareArguments {
    /// Ends the sharing.
    pub fn run(self) -> Result<()> {
        let (protocol, target) = one(self.all, self.target)?;
        let request = UnshareFilesystems { target, protocol };
        let changed = output::ask(&request, |request| SharesChanged {
            failed: output::none_of(&request.target, "dataset does not exist"),
            ..SharesChanged::default()
        })?;
        told(&changed)
    }
}

/// The protocol and the filesystem that are meant; none for all. A protocol may be named before the
/// filesystem, or behind `-a`.
fn one(all: bool, mut words: Vec<String>) -> Result<(Option<ShareProtocol>, Option<String>)> {
    let named = match words.first().map(String::as_str) {
        Some(NFS) => Some(ShareProtocol::Nfs),
        Some(SMB) => Some(ShareProtocol::Smb),
        _ => None,
    };
    let protocol = named.filter(|_| all || words.len() > 1);
    if protocol.is_some() {
        words.remove(0);
    }
    match (all, words.len()) {
        (true, 0) => Ok((protocol, None)),
        (false, 1) => Ok((protocol, words.pop())),
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
