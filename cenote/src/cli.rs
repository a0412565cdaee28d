//! The command line: what can be asked, and who answers it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::api;
use crate::arcstat;
use crate::arcsummary;
use crate::attach::{self, AttachArguments, DetachArguments};
use crate::audit;
use crate::completion;
use crate::copy::{self, cat::CatArguments, extract::ExtractArguments, ls::LsArguments};
use crate::counters;
use crate::dashboard;
use crate::dedup_files;
use crate::doctor;
use crate::export_image;
use crate::hooks::Hooks;
use crate::inject;
use crate::lab::Lab;
use crate::man;
use crate::mount_helper;
use crate::nfs;
use crate::object_check;
use crate::output;
use crate::remote::Remotes;
use crate::remotes;
use crate::replicate;
use crate::reshape;
use crate::scrub_schedule;
use crate::serving::ServeArguments;
use crate::share;
use crate::snapshot_schedule;
use crate::standby;
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
const APPLETS: [&str; 15] = [
    "zpool",
    "zfs",
    "zdb",
    "zstream",
    "zinject",
    "arcstat",
    "zarcstat",
    "arc_summary",
    "zarcsummary",
    "mount.zfs",
    "mount.cenote",
    "mount.fuse.zfs",
    "mount.fuse.cenote",
    "umount.fuse.zfs",
    "umount.fuse.cenote",
];

/// Environment and memory, for the help. The README says the same.
const ENVIRONMENT: &str = "\
Environment:
  CENOTE_SOCKET  Socket of the daemon that commands ask, and where 'cenote serve' listens
                 (default: /run/cenote/cenote.sock for root, else in $XDG_RUNTIME_DIR/cenote)
  CENOTE_REMOTE  Another machine that commands manage, as --remote names it
  CENOTE_TOKEN   The token for that machine, else the one that 'cenote remote add' keeps
  CENOTE_LOG     Level of the log on standard error: error, warn (default), info, debug

Commands start a daemon with default settings when none runs. --arc-max SIZE of 'cenote serve' and
'cenote up' bounds the memory for cached blocks and for data not on disk yet (default: a quarter of
the machine's). 'cenote completion bash|zsh|fish' prints the completion script of a shell, which
completes zpool, zfs and zdb too.

With --remote, commands ask the daemon of another machine, over TLS and with a token ('cenote remote
add --help'). Paths of devices, files and mountpoints are that machine's then, and are given from / on.
Only 'zfs send', 'zfs receive' and keys that are typed read and write here. Nothing is started or done on
this machine instead: what needs the machine itself (up, serve, attach, zdb, ls, lab …) is refused.";

/// OpenZFS pools in userspace: create, change, mount and serve them, without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, propagate_version = true, after_help = ENVIRONMENT)]
pub struct Cli {
    /// Manage another machine: a name of 'cenote remote add', or HOST[:PORT]
    #[arg(long, value_name = "REMOTE")]
    pub remote: Option<String>,
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
    Serve(Box<ServeArguments>),
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
    /// Check a device in an object store: what is left over, missing or damaged
    ObjectCheck(object_check::Arguments),
    /// Write devices in object stores out as plain files, which OpenZFS opens
    ExportImage(export_image::Arguments),
    /// Make a block device of the kernel for a volume, or list these devices
    Attach(AttachArguments),
    /// End the block device of a volume
    Detach(DetachArguments),
    /// Give a volume another volblocksize while clients use it
    Reshape(reshape::Arguments),
    /// Find equal blocks of files and volumes, and let them share their space
    DedupFiles(dedup_files::Arguments),
    /// Mount a filesystem with mountpoint=legacy; linked as /sbin/mount.zfs, mount(8) runs it
    #[command(name = "mount.zfs", aliases = ["mount.cenote", "mount.fuse.zfs", "mount.fuse.cenote"])]
    MountHelper(mount_helper::Arguments),
    /// Unmount, and return when all data are on disk; linked as /sbin/umount.fuse.zfs, umount(8) runs it
    #[command(name = "umount.fuse.zfs", alias = "umount.fuse.cenote")]
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
    /// Run commands, call webhooks, send messages and mail when something happens to a pool
    #[command(subcommand)]
    Hooks(Hooks),
    /// Show who asked the daemon for which change, and what became of it
    Audit(audit::Arguments),
    /// Have the daemon scrub pools by itself
    ScrubSchedule(scrub_schedule::Arguments),
    /// Have the daemon take and destroy snapshots by itself: so many hourly, daily, weekly …
    SnapshotSchedule(snapshot_schedule::Arguments),
    /// Bring snapshots to another pool, here or on another machine: only what changed since the last time
    Replicate(Box<replicate::Arguments>),
    /// Say what this machine lacks, what that costs, and what to do (no root, no daemon)
    Doctor(doctor::Arguments),
    /// Say which protocols serve a volume, and to whom
    Share(share::Share),
    /// Show which protocols serve volumes, to whom, and where
    Shares(share::List),
    /// Show what is shared by NFS, with whom and where, and the clients
    Nfs(nfs::Arguments),
    /// What an ARC of another size, or a cache device, would do for the reads that come
    WhatIf(what_if::Arguments),
    /// Show and set numbers of the daemon while it runs, under the names of OpenZFS's parameters
    #[command(subcommand, alias = "tunables")]
    Tunable(Tunables),
    /// Manage this machine in a browser: print a link that signs in once
    Dashboard(dashboard::Arguments),
    /// Show pools that this host takes over from another one, and take them over
    Standby(standby::Arguments),
    /// Keep names, certificates and tokens of other machines, which --remote manages
    #[command(subcommand)]
    Remote(Remotes),
    /// Find out by experiments which settings help, and prove it
    #[command(subcommand)]
    Lab(Lab),
    /// List the actions of the daemon's API, or print its OpenAPI document
    Api(api::Arguments),
    /// Print the completion script of a shell, to be sourced: it completes zpool, zfs and zdb too
    Completion(completion::ScriptArguments),
    /// Write the manual pages into man7 and man8 below a directory
    #[command(hide = true)]
    Man(man::Arguments),
    /// What the completion scripts ask
    #[command(hide = true)]
    Complete(completion::Arguments),
}

impl Command {
    /// Why it cannot be done on another machine from here, if it cannot.
    fn needs_the_machine(&self) -> Option<&'static str> {
        Some(match self {
            Self::Up(_) | Self::Serve(_) => "it runs a daemon where it is started",
            Self::Ls(_) | Self::Cat(_) | Self::Extract(_) | Self::Zdb(_) => "it reads devices itself",
            Self::ObjectCheck(_) | Self::ExportImage(_) => "it reads the object store itself",
            Self::Attach(_) | Self::Detach(_) => "it makes devices of the kernel",
            Self::MountHelper(_) | Self::UnmountHelper(_) => "mount(8) and umount(8) are about this machine",
            Self::DedupFiles(_) => "it reads files by their paths",
            Self::Replicate(_) => "it runs 'zfs' of both machines",
            Self::Doctor(_) => "it looks at the machine itself",
            Self::Lab(_) => "it measures the machine itself",
            _ => return None,
        })
    }

    /// Does it, on the machine that is meant.
    ///
    /// # Errors
    /// What it says; it cannot be done on another machine.
    pub fn run_where_meant(self) -> Result<()> {
        if let Some(why) = self.needs_the_machine() {
            remotes::only_here(why)?;
        }
        self.run()
    }

    /// Does it.
    fn run(self) -> Result<()> {
        match self {
            Self::Up(arguments) => crate::up::run(&arguments),
            Self::Serve(arguments) => crate::serve::run(&arguments),
            Self::Zpool(command) => command.run(),
            Self::Zfs(command) => command.run(),
            Self::Ls(arguments) => copy::ls::run(&arguments),
            Self::Cat(arguments) => copy::cat::run(&arguments),
            Self::Extract(arguments) => copy::extract::run(&arguments),
            Self::Zdb(arguments) => zdb::run(&arguments),
            Self::ObjectCheck(arguments) => arguments.run(),
            Self::ExportImage(arguments) => arguments.run(),
            Self::Attach(arguments) => attach::attach(&arguments),
            Self::Detach(arguments) => attach::detach(&arguments),
            Self::Reshape(arguments) => arguments.run(),
            Self::DedupFiles(arguments) => arguments.run(),
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
            Self::SnapshotSchedule(arguments) => arguments.run(),
            Self::Replicate(arguments) => arguments.run(),
            Self::Doctor(arguments) => arguments.run(),
            Self::Share(arguments) => arguments.run(),
            Self::Shares(arguments) => arguments.run(),
            Self::Nfs(arguments) => arguments.run(),
            Self::Dashboard(arguments) => arguments.run(),
            Self::Standby(arguments) => arguments.run(),
            Self::Remote(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::Api(arguments) => arguments.run(),
            Self::Completion(arguments) => output::print(arguments.script()),
            Self::Man(arguments) => arguments.run(Cli::command()),
            Self::Complete(arguments) => output::print(&arguments.candidates(Cli::command(), applet)),
        }
    }
}

/// How the command that was typed is used.
pub fn usage_of(arguments: &[OsString]) -> String {
    let mut command = Cli::command();
    command.build();
    for word in arguments.iter().skip(1) {
        match command.find_subcommand(word).cloned() {
            Some(found) => command = found,
            None => break,
        }
    }
    let usage = command.render_usage().to_string();
    format!("{}\nFor more information, try '--help'.", usage.replacen("Usage: cenote ", "usage: ", 1))
}

/// The command that a program's name stands for, where it is a link to this program.
pub fn applet(program: &OsStr) -> Option<&str> {
    Path::new(program).file_name().and_then(OsStr::to_str).filter(|name| APPLETS.contains(name))
}

/// Takes `--remote NAME` from in front of the command. The rest is as it would be without.
pub fn take_remote(arguments: &mut Vec<OsString>) -> Option<String> {
    let first = arguments.get(1)?.to_str()?;
    let (name, words) = match first.strip_prefix("--remote=") {
        Some(name) => (name.to_owned(), 1),
        None if first == "--remote" => (arguments.get(2)?.to_str()?.to_owned(), 2),
        None => return None,
    };
    if name.is_empty() {
        return None;
    }
    arguments.drain(1..=words);
    Some(name)
}

/// The arguments to parse: those given, with the applet that `argv[0]` names put in front.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given: Vec<OsString> = given.into_iter().collect();
    let program = given.first().cloned().unwrap_or_default();
    let applet = applet(&program);
    let mut arguments = vec![OsString::from("cenote")];
    // `zfs --remote NAME list` is `cenote --remote NAME zfs list`.
    if let Some(name) = applet.and_then(|_| take_remote(&mut given)) {
        arguments.extend([OsString::from("--remote"), OsString::from(name)]);
    }
    arguments.extend(applet.map(OsString::from));
    arguments.extend(given.into_iter().skip(1));
    arguments
}

/// The arguments with what OpenZFS's commands call otherwise.
pub fn with_ours(mut arguments: Vec<OsString>) -> Vec<OsString> {
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
        let given = ["/sbin/mount.zfs", "tank/fs", "/mnt", "-o", "rw"].map(OsString::from);
        let is_helper = |cli: Cli| matches!(cli.command, Command::MountHelper(_));
        assert!(is_helper(Cli::try_parse_from(arguments(given)).unwrap()));
        let given = ["/sbin/zfs", "--version"].map(OsString::from);
        assert_eq!(with_ours(arguments(given)), ["cenote", "zfs", "version"].map(OsString::from));
    }

    #[test]
    fn another_machine_is_named_in_front_of_the_command() {
        for (given, name, rest) in [
            ("cenote --remote nas zfs list", Some("nas"), "cenote zfs list"),
            ("cenote --remote=nas:1 zpool list", Some("nas:1"), "cenote zpool list"),
            ("/sbin/zfs --remote nas list", Some("nas"), "cenote zfs list"),
            ("/sbin/zpool --remote=nas status -v", Some("nas"), "cenote zpool status -v"),
            ("cenote zfs list", None, "cenote zfs list"),
            ("cenote --remote", None, "cenote --remote"),
            ("cenote --remote= zfs list", None, "cenote --remote= zfs list"),
        ] {
            let mut found = arguments(given.split(' ').map(OsString::from));
            assert_eq!(take_remote(&mut found).as_deref(), name, "{given}");
            assert_eq!(found, rest.split(' ').map(OsString::from).collect::<Vec<_>>(), "{given}");
        }
    }

    #[test]
    fn what_needs_the_machine_itself_says_so() {
        let why = |line: &str| {
            let words = ["cenote"].into_iter().chain(line.split(' '));
            Cli::try_parse_from(words).unwrap().command.needs_the_machine()
        };
        for line in ["serve", "up", "ls x", "cat x", "zdb tank", "attach tank/v", "doctor", "lab recipes"] {
            assert!(why(line).is_some(), "{line}");
        }
        for line in ["zfs list", "zpool status", "zfs send tank@a", "zpool events -f", "top", "remote list"] {
            assert_eq!(why(line), None, "{line}");
        }
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
