//! `umount.fuse.zfs`: what `umount` of the system starts for a mount of ours when a link of that name in
//! `/sbin` leads to this program. It unmounts, and returns when what was written is on disk. For what an
//! older daemon mounted before it handed over the link is `umount.fuse.cenote`.
//!
//! The kernel tells the daemon of an unmount only afterwards, so that without this a crash in the next
//! moments loses what was written last.

#![allow(unsafe_code, reason = "`umount2`")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use server::api::{ListMounts, Listed, SyncPools};

use crate::output;

/// Exit code of an unmount that failed.
const UNMOUNT_FAILED: u8 = 32;

/// Arguments of `umount.fuse.zfs`, as `umount` gives them.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Although it does not answer
    #[arg(short)]
    force: bool,
    /// Out of the tree now, and for good when no program uses it any more
    #[arg(short)]
    lazy: bool,
    /// Say more, of which there is nothing to say
    #[arg(short, hide = true)]
    verbose: bool,
    /// Do not write `/etc/mtab` (it is never written)
    #[arg(short, hide = true)]
    no_mtab: bool,
    /// Make it read-only where it cannot be unmounted
    #[arg(short, hide = true)]
    read_only: bool,
    /// The mount namespace
    #[arg(short = 'N', value_name = "NAMESPACE", hide = true)]
    namespace: Option<String>,
    /// The type
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    kind: Option<String>,
}

impl Arguments {
    fn unmount(&self) -> Result<()> {
        let directory = &self.directory;
        let failed = || format!("{}: umount failed", directory.display());
        // A daemon that does not answer keeps nothing mounted.
        let mounts = output::ask(&ListMounts {}, |_| Vec::new()).unwrap_or_default();
        let mounted = mounts.iter().find(|mount| mount.mountpoint == *directory);
        let pool = mounted.and_then(|mount| mount.dataset.split(['/', '@']).next()).map(str::to_owned);
        let path = CString::new(directory.as_os_str().as_bytes()).with_context(failed)?;
        let force = if self.force { libc::MNT_FORCE } else { 0 };
        let lazy = if self.lazy { libc::MNT_DETACH } else { 0 };
        // SAFETY: the path is a terminated string that lives through the call.
        if unsafe { libc::umount2(path.as_ptr(), force | lazy) } != 0 {
            return Err(io::Error::last_os_error()).with_context(failed);
        }
        // A bind mount may be of any pool.
        let sync = SyncPools { pools: pool.into_iter().collect() };
        let synced = output::ask(&sync, |_| Listed { entries: Vec::new(), failed: Vec::new() })?;
        synced.failed.iter().for_each(|error| {
            eprintln!("{} was unmounted; its last changes are not on disk yet: {error}", directory.display());
        });
        Ok(())
    }

    /// Unmounts, with the exit codes that `umount` knows.
    pub fn run(self) -> Result<()> {
        self.unmount().map_err(|error| {
            let _ = output::report(error);
            output::Exit(UNMOUNT_FAILED).into()
        })
    }
}
