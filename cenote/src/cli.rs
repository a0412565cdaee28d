//! The command line: what can be asked, and who answers it.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use server::daemon::{Daemon, TcpEndpoint};
use server::nbd::{self, Limits, Tls};
use tokio::net::TcpListener;

use crate::attach::{self, AttachArguments, DetachArguments};
use crate::completion;
use crate::copy::{self, cat::CatArguments, extract::ExtractArguments, ls::LsArguments};
use crate::lab::Lab;
use crate::mount_helper;
use crate::output;
use crate::unmount_helper;
use crate::up::UpArguments;
use crate::zdb;
use crate::zfs::Zfs;
use crate::zpool::Zpool;

/// Names that may stand in `argv[0]` (through a link to this program) instead of as its first argument.
const APPLETS: [&str; 6] = ["zpool", "zfs", "zdb", "mount.cenote", "mount.fuse.cenote", "umount.fuse.cenote"];

/// Environment and memory, for the help. The README says the same.
const ENVIRONMENT: &str = "\
Environment:
  CENOTE_SOCKET  Socket of the daemon that commands ask, and where 'cenote serve' listens
                 (default: /run/cenote/cenote.sock for root, else in $XDG_RUNTIME_DIR/cenote)
  CENOTE_LOG     Level of the log on standard error: error, warn (default), info, debug

Commands start a daemon with default settings when none runs. --arc-max SIZE of 'cenote serve' and
'cenote up' bounds the memory for cached blocks and for data not on disk yet (default: a quarter of
the machine's). 'cenote completion bash|zsh|fish' prints the completion script of a shell, which
completes zpool, zfs and zdb too.";

/// OpenZFS pools in userspace: create, change, mount and serve them, without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, propagate_version = true, after_help = ENVIRONMENT)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring a pool up until Ctrl-C: without arguments one of its own to try things out, else one that exists
    Up(UpArguments),
    /// Run the daemon in the foreground (other commands start it when they need it)
    Serve(ServeArguments),
    /// Create, import, export, change and inspect pools
    #[command(subcommand)]
    Zpool(Zpool),
    /// Create, change, list, mount and unlock datasets
    #[command(subcommand)]
    Zfs(Zfs),
    /// List files of an exported pool (no root, no daemon)
    Ls(LsArguments),
    /// Print a file or volume of an exported pool
    Cat(CatArguments),
    /// Copy files, filesystems or volumes out of an exported pool
    Extract(ExtractArguments),
    /// Look at what is stored, from labels to blocks, and verify it (no root, no daemon)
    #[command(disable_help_flag = true)]
    Zdb(Box<zdb::Arguments>),
    /// Make a block device of the kernel for a volume, or list those that there are
    Attach(AttachArguments),
    /// End the block device of a volume
    Detach(DetachArguments),
    /// Mount a filesystem with mountpoint=legacy; linked as /sbin/mount.cenote, mount(8) runs it
    #[command(name = "mount.cenote", alias = "mount.fuse.cenote")]
    MountHelper(mount_helper::Arguments),
    /// Unmount, and return when all is on disk; linked as /sbin/umount.fuse.cenote, umount(8) runs it
    #[command(name = "umount.fuse.cenote")]
    UnmountHelper(unmount_helper::Arguments),
    /// Find out by experiments which settings help, and prove it
    #[command(subcommand)]
    Lab(Lab),
    /// Print the completion script of a shell, to be sourced: it completes zpool, zfs and zdb too
    Completion(completion::ScriptArguments),
    /// What the completion scripts ask
    #[command(hide = true)]
    Complete(completion::Arguments),
}

/// Arguments of `cenote serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = nbd_limits())]
pub struct ServeArguments {
    /// Unix socket of the API (default: by user, or $CENOTE_SOCKET)
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// File with the pools that are imported at the start: those that were open when the daemon ended ('none'
    /// for no file; default: $CENOTE_CACHEFILE, else /var/lib/cenote/zpool.cache for root and
    /// $XDG_STATE_HOME/cenote/zpool.cache for others, but no file for a daemon on another socket than the
    /// default one)
    #[arg(long, value_name = "FILE")]
    pub cachefile: Option<PathBuf>,
    /// How much memory it takes.
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Where a pool would wait for devices that take no writes, let it fail at once: clients that write get
    /// the error, and nothing more is written until the pool is exported by force and imported again
    #[arg(long)]
    pub give_up: bool,
    /// For the lab: read and write volumes for whoever asks over the API, overwriting what is in them
    #[arg(long, hide = true)]
    pub take_loads: bool,
    /// How volumes are served over TCP (they are always on the socket nbd.sock beside the API's).
    #[command(flatten)]
    pub tcp: TcpArguments,
    /// Slow files in DIR/MODEL down to what such a device would take (MODEL: hdd-7200, hdd-5400, sata-ssd,
    /// nvme, optane, usb-flash; hdd-7200+10% takes a tenth longer)
    #[arg(long, value_name = "DIR")]
    pub modelled: Option<PathBuf>,
    /// Slow clients of volumes down to what such a link would take (1gbe, 10gbe)
    #[arg(long, value_name = "MODEL")]
    pub modelled_link: Option<String>,
}

/// How much memory a daemon takes.
#[derive(Debug, Default, clap::Args)]
pub struct MemoryArguments {
    /// Memory for cached blocks of all pools and for data not on disk yet (default: a quarter of the
    /// machine's). Requests under way, maps of free space, one to two mebibytes for each mount, and memory
    /// that the process keeps for reuse come on top
    #[arg(long, value_name = "SIZE", value_parser = server::sizes::parse_size)]
    pub arc_max: Option<u64>,
}

impl MemoryArguments {
    /// A daemon that takes so much.
    pub fn daemon(&self) -> Daemon {
        self.arc_max.map_or_else(Daemon::default, Daemon::with_cache)
    }
}

/// How volumes are served over TCP.
#[derive(Debug, Default, clap::Args)]
pub struct TcpArguments {
    /// Serve volumes over TCP too, to every client that can connect
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nbd_tcp: Option<SocketAddr>,
    /// Only with TLS, as the server of this certificate (PEM, those of its authorities after it)
    #[arg(long, value_name = "FILE", requires = "nbd_tcp", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Only to clients with a certificate that one of these authorities signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_ca: Option<PathBuf>,
}

/// What NBD clients may take, for the help.
pub fn nbd_limits() -> String {
    let limits = Limits::default();
    let mib = |bytes: usize| bytes >> 20;
    format!(
        "NBD clients, on each socket: {} at once (one more gets an error that says so); requests of up to {} \
         MiB; memory for requests under way: {} MiB for each client, and {} MiB that all share. A client \
         that holds shared memory and takes no replies for {} s while others wait for it is disconnected, \
         and so is a client that has not chosen a volume after {} s.",
        limits.clients,
        mib(nbd::MAX_REQUEST_BYTES as usize),
        mib(nbd::OWN_BYTES),
        mib(limits.shared_bytes),
        limits.stall.as_secs(),
        limits.handshake.as_secs()
    )
}

impl TcpArguments {
    /// Listens, where that is asked for.
    pub async fn listen(&self) -> Result<Option<TcpEndpoint>> {
        let Some(address) = self.nbd_tcp else { return Ok(None) };
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let loaded = Tls::load(certificate, key, self.tls_ca.as_deref());
                Some(loaded.context("cannot serve with TLS")?)
            }
            _ => None,
        };
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        Ok(Some(TcpEndpoint { listener, tls }))
    }
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Up(arguments) => crate::up::run(&arguments),
            Self::Serve(arguments) => crate::serve::run(&arguments),
            Self::Zpool(command) => command.run(),
            Self::Zfs(command) => command.run(),
            Self::Ls(arguments) => copy::ls::run(&arguments),
            Self::Cat(arguments) => copy::cat::run(&arguments),
            Self::Extract(arguments) => copy::extract::run(&arguments),
            Self::Zdb(arguments) => zdb::run(&arguments),
            Self::Attach(arguments) => attach::attach(&arguments),
            Self::Detach(arguments) => attach::detach(&arguments),
            Self::MountHelper(arguments) => arguments.run(),
            Self::UnmountHelper(arguments) => arguments.run(),
            Self::Lab(command) => command.run(),
            Self::Completion(arguments) => output::print(arguments.script()),
            Self::Complete(arguments) => output::print(&arguments.candidates()),
        }
    }
}

/// The command that a program's name stands for, where it is a link to this program.
pub fn applet(program: &OsStr) -> Option<&str> {
    Path::new(program).file_name().and_then(OsStr::to_str).filter(|name| APPLETS.contains(name))
}

/// The arguments to parse: those given, with the applet that `argv[0]` names put in front.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.into_iter();
    let program = given.next().unwrap_or_default();
    let applet = applet(&program);
    let mut arguments = vec![OsString::from("cenote")];
    arguments.extend(applet.map(OsString::from));
    arguments.extend(given);
    arguments
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_link_named_zpool_is_the_zpool_command() {
        let given = ["/usr/local/bin/zpool", "list"].map(OsString::from);
        assert_eq!(arguments(given), ["cenote", "zpool", "list"].map(OsString::from));
        let given = ["./cenote", "zpool", "list"].map(OsString::from);
        assert_eq!(arguments(given), ["cenote", "zpool", "list"].map(OsString::from));
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
