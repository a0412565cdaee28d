//! The command line: what can be asked, and who answers it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use server::block::{self, Limits};
use server::daemon::Daemon;
use server::iscsi::Secrets;
use server::listening::{HostPort, Listener};
use server::nbd::{self, Tls};

use crate::arcstat;
use crate::arcsummary;
use crate::attach::{self, AttachArguments, DetachArguments};
use crate::audit;
use crate::completion;
use crate::copy::{self, cat::CatArguments, extract::ExtractArguments, ls::LsArguments};
use crate::counters;
use crate::hooks::Hooks;
use crate::inject;
use crate::lab::Lab;
use crate::mount_helper;
use crate::output;
use crate::reshape;
use crate::scrub_schedule;
use crate::share;
use crate::top;
use crate::tunable::Tunables;
use crate::unmount_helper;
use crate::up::UpArguments;
use crate::what_if;
use crate::zdb;
use crate::zfs::Zfs;
use crate::zpool::Zpool;
use crate::zstream::Zstream;

/// Names that may stand in `argv[0]` (through a link to this program) instead of as its first argument.
const APPLETS: [&str; 12] = [
    "zpool",
    "zfs",
    "zdb",
    "zstream",
    "zinject",
    "arcstat",
    "zarcstat",
    "arc_summary",
    "zarcsummary",
    "mount.cenote",
    "mount.fuse.cenote",
    "umount.fuse.cenote",
];

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
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a pool until Ctrl-C: without arguments a new one to try things out, else one that exists
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
    /// Make a block device of the kernel for a volume, or list these devices
    Attach(AttachArguments),
    /// End the block device of a volume
    Detach(DetachArguments),
    /// Give a volume another volblocksize while clients use it
    Reshape(reshape::Arguments),
    /// Mount a filesystem with mountpoint=legacy; linked as /sbin/mount.cenote, mount(8) runs it
    #[command(name = "mount.cenote", alias = "mount.fuse.cenote")]
    MountHelper(mount_helper::Arguments),
    /// Unmount, and return when all data are on disk; linked as /sbin/umount.fuse.cenote, umount(8) runs it
    #[command(name = "umount.fuse.cenote")]
    UnmountHelper(unmount_helper::Arguments),
    /// Make devices, blocks and memory fail on demand, for tests of pools (linked as zinject too)
    #[command(alias = "zinject")]
    Inject(Box<inject::Arguments>),
    /// Look at send streams and resume tokens (linked as zstream too)
    #[command(subcommand)]
    Zstream(Zstream),
    /// Show counters of the ARC, datasets, intent logs, devices and transaction groups
    Counters(counters::Arguments),
    /// Show the ARC, line by line (linked as arcstat and zarcstat too)
    #[command(alias = "zarcstat")]
    Arcstat(arcstat::Arguments),
    /// Summarize the ARC, reading ahead, intent logs and devices (linked as arc_summary and zarcsummary too)
    #[command(aliases = ["arc_summary", "zarcsummary"])]
    Arcsummary(arcsummary::Arguments),
    /// Watch pools, datasets, clients and devices
    Top(top::Arguments),
    /// Run commands or call webhooks when something happens to a pool
    #[command(subcommand)]
    Hooks(Hooks),
    /// Show who asked the daemon for which change, and what became of it
    Audit(audit::Arguments),
    /// Have the daemon scrub pools by itself
    ScrubSchedule(scrub_schedule::Arguments),
    /// Say which protocols serve a volume, and to whom
    Share(share::Share),
    /// Show which protocols serve volumes, to whom, and where
    Shares(share::List),
    /// What an ARC of another size, or a cache device, would do for the reads that come
    WhatIf(what_if::Arguments),
    /// Show and set numbers of the daemon while it runs, under the names of OpenZFS's parameters
    #[command(subcommand, alias = "tunables")]
    Tunable(Tunables),
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
    /// Users of this group are operators: by the public socket they may do what keeps the machine running and
    /// destroys nothing (a name or a number; may be given several times)
    #[arg(long, value_name = "GROUP")]
    pub operator: Vec<String>,
    /// Only users of this group, operators, root and the daemon's user may see anything by the public socket
    /// (a name or a number; may be given several times; default: all users may)
    #[arg(long, value_name = "GROUP")]
    pub viewer: Vec<String>,
    /// File of the audit log: who asked for which change ('none' for no log; default: audit.log beside the
    /// cache file, and none where there is no such file)
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// How much memory it takes.
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Where a pool would wait for devices that fail writes, let it fail at once: clients that write get the
    /// error, and nothing more is written until the pool is exported by force and imported again
    #[arg(long)]
    pub give_up: bool,
    /// For the lab: read and write volumes on request over the API, overwriting their data
    #[arg(long, hide = true)]
    pub take_loads: bool,
    /// For OpenZFS's test suite: a folder with files that are named like parameters of OpenZFS's kernel
    /// module; those that hold scans and bound events of checksums are looked at
    #[arg(long, hide = true, value_name = "DIR")]
    pub parameters: Option<PathBuf>,
    /// How volumes are served over TCP (they are always on the socket nbd.sock beside the API's).
    #[command(flatten)]
    pub tcp: TcpArguments,
    /// Serve counters and properties for Prometheus at http://ADDRESS:PORT/metrics, to every client that can
    /// connect; an address such as 127.0.0.1 keeps it to this machine. Nothing can be changed there
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<HostPort>,
    /// Slow files in DIR/MODEL down to the speed of such a device (MODEL: hdd-7200, hdd-5400, sata-ssd,
    /// nvme, optane, usb-flash; hdd-7200+10% takes a tenth longer)
    #[arg(long, value_name = "DIR")]
    pub modelled: Option<PathBuf>,
    /// Slow clients of volumes down to the speed of such a link (1gbe, 10gbe)
    #[arg(long, value_name = "MODEL")]
    pub modelled_link: Option<String>,
}

/// How much memory a daemon takes.
#[derive(Debug, Default, clap::Args)]
pub struct MemoryArguments {
    /// Memory for cached blocks of all pools and for data not on disk yet, at least 64M (default: a quarter
    /// of the machine's). The process takes at most half as much and 96 MiB on top, for requests under way,
    /// maps of free space, mounts, and memory that it keeps for reuse; 'cenote counters memory' shows all
    #[arg(long, value_name = "SIZE", value_parser = parse_arc_max)]
    pub arc_max: Option<u64>,
}

/// A size of the ARC.
fn parse_arc_max(text: &str) -> Result<u64, String> {
    let least = engine::tunables::LEAST_ARC_BYTES;
    match server::sizes::parse_size(text)? {
        bytes if bytes < least => {
            Err(format!("the ARC cannot be that small: it is at least {}M", least >> 20))
        }
        bytes => Ok(bytes),
    }
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
    /// Serve volumes over TCP too, to every client that can connect; may be given several times, and takes a
    /// host's name for its addresses. An address that is not there yet is waited for
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nbd_tcp: Vec<HostPort>,
    /// Only with TLS, as the server of this certificate (PEM, followed by certificates of its authorities)
    #[arg(long, value_name = "FILE", requires = "nbd_tcp", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Only to clients with a certificate that one of these authorities signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_ca: Option<PathBuf>,
    /// Serve volumes by iSCSI too, to every initiator that can connect and has a secret, if any is asked for;
    /// may be given several times (portals of one group), and takes names, as --nbd-tcp does
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub iscsi: Vec<HostPort>,
    /// Only to initiators that know a secret (CHAP): lines 'INITIATOR SECRET' or 'INITIATOR NAME SECRET', and
    /// 'target NAME SECRET' for those that ask the target for a proof too
    #[arg(long, value_name = "FILE", requires = "iscsi")]
    pub iscsi_secrets: Option<PathBuf>,
    /// Serve volumes to virtual machines on this machine too: each on a socket of its own in this folder,
    /// named like the volume (DIR/POOL/VOLUME.sock), as vhost-user-blk devices
    #[arg(long, value_name = "DIR")]
    pub vhost_user: Option<PathBuf>,
}

/// What NBD clients may take, for the help.
pub fn nbd_limits() -> String {
    let limits = Limits::default();
    let mib = |bytes: usize| bytes >> 20;
    format!(
        "NBD clients, on each socket: {} at once (one more gets an error that says so); requests of up to {} \
         MiB; memory for requests under way: {} MiB for each client, and a quarter of --arc-max, at most {} \
         MiB, that the clients of all sockets share. A client that holds shared memory and takes no replies \
         for {} s while others wait for it is disconnected, and so is a client that has not chosen a volume \
         after {} s.",
        limits.clients,
        mib(nbd::MAX_REQUEST_BYTES as usize),
        mib(block::OWN_BYTES),
        mib(block::MOST_SHARED_BYTES),
        limits.stall.as_secs(),
        limits.handshake.as_secs()
    )
}

impl TcpArguments {
    /// Listens for NBD, where that is asked for, once what TLS needs is there.
    pub async fn listen(&self) -> Option<Listener<Option<Tls>>> {
        if self.nbd_tcp.is_empty() {
            return None;
        }
        let files = self.tls_certificate.clone().zip(self.tls_key.clone());
        let authorities = self.tls_ca.clone();
        let load = move || {
            let Some((certificate, key)) = &files else { return Ok(None) };
            let loaded = Tls::load(certificate, key, authorities.as_deref());
            loaded.map(Some).map_err(|error| format!("cannot serve with TLS: {error}"))
        };
        Some(Listener::bind("NBD over TCP", self.nbd_tcp.clone(), load).await)
    }

    /// The folder of sockets for virtual machines, as an absolute path.
    pub fn vhost_user_folder(&self) -> Result<Option<PathBuf>> {
        let absolute = |folder: &PathBuf| std::path::absolute(folder);
        let folder = self.vhost_user.as_ref().map(absolute).transpose();
        folder.context("cannot find the folder of sockets for virtual machines")
    }

    /// Listens for iSCSI, where that is asked for, once the secrets are there.
    pub async fn listen_iscsi(&self) -> Option<Listener<Option<Secrets>>> {
        if self.iscsi.is_empty() {
            return None;
        }
        let file = self.iscsi_secrets.clone();
        let load = move || {
            let Some(file) = &file else { return Ok(None) };
            let named =
                |error: &dyn std::fmt::Display| format!("cannot use secrets of {}: {error}", file.display());
            let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
            Secrets::parse(&text).map(Some).map_err(|error| named(&error))
        };
        Some(Listener::bind("iSCSI", self.iscsi.clone(), load).await)
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
            Self::Reshape(arguments) => arguments.run(),
            Self::MountHelper(arguments) => arguments.run(),
            Self::UnmountHelper(arguments) => arguments.run(),
            Self::Inject(arguments) => arguments.run(),
            Self::Zstream(command) => command.run(),
            Self::Counters(arguments) => arguments.run(),
            Self::Arcstat(arguments) => arguments.run(),
            Self::Arcsummary(arguments) => arguments.run(),
            Self::Top(arguments) => arguments.run(),
            Self::Hooks(command) => command.run(),
            Self::Audit(arguments) => arguments.run(),
            Self::Tunable(command) => command.run(),
            Self::WhatIf(arguments) => arguments.run(),
            Self::ScrubSchedule(arguments) => arguments.run(),
            Self::Share(arguments) => arguments.run(),
            Self::Shares(arguments) => arguments.run(),
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
    // OpenZFS's commands have the versions of both their parts here.
    let is_ours = ["zpool", "zfs"].iter().any(|name| arguments.get(1).is_some_and(|word| word == name));
    if let Some(word) = arguments.get_mut(2).filter(|word| is_ours && (*word == "--version" || *word == "-V"))
    {
        *word = "version".into();
    }
    arguments
}

/// The arguments of OpenZFS's commands where `POSIXLY_CORRECT` is set: what follows the first operand is an
/// operand too, as C's `getopt` has it then.
pub fn in_posix_order(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let root = Cli::command();
    let mut command = &root;
    let mut at = 1;
    while let Some(below) =
        arguments.get(at).and_then(|word| word.to_str()).and_then(|word| command.find_subcommand(word))
    {
        command = below;
        at += 1;
    }
    let is_ours =
        ["zpool", "zfs", "zdb"].iter().any(|name| arguments.get(1).is_some_and(|word| word == name));
    while let Some(word) = arguments.get(at).filter(|_| is_ours) {
        match option(command, word) {
            Some(words) => at += words,
            None if word == "--" => break,
            None => {
                arguments.insert(at, "--".into());
                break;
            }
        }
    }
    arguments
}

/// How many arguments an option is, with its value; `None` for an operand.
fn option(command: &clap::Command, word: &OsStr) -> Option<usize> {
    let text = word.to_str()?;
    let words = |argument: Option<&clap::Arg>, has_value: bool| {
        let needs = argument.is_some_and(|argument| {
            let optional = argument.get_num_args().is_some_and(|values| values.min_values() == 0);
            argument.get_action().takes_values() && !optional
        });
        if needs && !has_value { 2 } else { 1 }
    };
    let find = |is_meant: &dyn Fn(&clap::Arg) -> bool| command.get_arguments().find(|given| is_meant(given));
    if let Some(long) = text.strip_prefix("--").filter(|long| !long.is_empty()) {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let has_name = |given: &clap::Arg| {
            given.get_long() == Some(name)
                || given.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        };
        return Some(words(find(&has_name), value.is_some()));
    }
    let letters =
        text.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'))?;
    for (place, letter) in letters.char_indices() {
        let has_letter = |given: &clap::Arg| {
            given.get_short() == Some(letter)
                || given.get_all_short_aliases().is_some_and(|aliases| aliases.contains(&letter))
        };
        let given = find(&has_letter);
        if given.is_some_and(|given| given.get_action().takes_values()) {
            return Some(words(given, place + letter.len_utf8() < letters.len()));
        }
    }
    Some(1)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_link_named_zpool_is_the_zpool_command() {
        let given = ["/usr/local/bin/zpool", "list"].map(OsString::from);
        assert_eq!(arguments(given), ["cenote", "zpool", "list"].map(OsString::from));
        let given = ["./cenote", "zpool", "list"].map(OsString::from);
        assert_eq!(arguments(given), ["cenote", "zpool", "list"].map(OsString::from));
        let given = ["/sbin/zfs", "--version"].map(OsString::from);
        assert_eq!(arguments(given), ["cenote", "zfs", "version"].map(OsString::from));
    }

    #[test]
    fn options_end_at_the_first_operand_where_posix_is_asked_for() {
        for (given, expected) in [
            ("zfs get all -r tank", "zfs get -- all -r tank"),
            ("zfs get -r -o name,value all -H tank", "zfs get -r -o name,value -- all -H tank"),
            ("zfs get -Hovalue all", "zfs get -Hovalue -- all"),
            ("zfs get -Ho value all tank", "zfs get -Ho value -- all tank"),
            ("zfs get --json all -r", "zfs get --json -- all -r"),
            ("zfs get -- all -r", "zfs get -- all -r"),
            ("zpool list", "zpool list"),
            ("zdb -U file tank -d", "zdb -U file -- tank -d"),
            ("ls file -l", "ls file -l"),
        ] {
            let words = |line: &str| {
                let words = ["cenote"].into_iter().chain(line.split(' '));
                words.map(OsString::from).collect::<Vec<_>>()
            };
            assert_eq!(in_posix_order(words(given)), words(expected), "{given}");
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
