//! `zfs upgrade`: which filesystems are of older versions, and taking them to newer ones.
//!
//! Source of the texts: OpenZFS 2.3 `zfs_main.c` (`zfs_do_upgrade`).

use anyhow::Result;
use ondisk::pool_version;
use server::api::{DatasetEntry, DatasetKind, Listed, PropertiesSet, SetProperties, UpgradePools};

use super::select::{Selection, name_of};
use crate::command_line;
use crate::output::{self, Exit, FAILED, complain, usage};

/// The newest version.
const NEWEST: u64 = 5;
/// What each version brought.
const VERSIONS: [&str; NEWEST as usize] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

/// Arguments of `zfs upgrade`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_version_flag = true)]
pub struct Arguments {
    /// Also everything below
    #[arg(short)]
    recursive: bool,
    /// Only show the versions
    #[arg(short = 'v')]
    versions: bool,
    /// The version to upgrade to, not the newest
    #[arg(short = 'V', value_name = "VERSION")]
    wanted: Option<String>,
    /// All filesystems of all pools
    #[arg(short)]
    all: bool,
    /// Filesystems, or paths in them; without any, list filesystems of older versions
    #[arg(value_name = "FILESYSTEM")]
    filesystems: Vec<String>,
}

impl Arguments {
    /// Lists or upgrades.
    pub fn run(self) -> Result<()> {
        let version = self.wanted.as_deref().map(parse_version).transpose()?;
        let upgrades = self.all || !self.filesystems.is_empty();
        let has_options = self.recursive || version.is_some();
        let is_odd = match self.versions {
            true => upgrades || has_options,
            false => has_options && !upgrades,
        };
        if is_odd {
            return Err(usage("these options cannot be combined"));
        }
        if self.all && !self.filesystems.is_empty() {
            return Err(usage("-a option should not be used along with a filesystem name"));
        }
        match (self.versions, upgrades) {
            (true, _) => output::print(&versions()),
            (_, true) => self.upgrade(version.unwrap_or(NEWEST)),
            _ => list(),
        }
    }

    fn upgrade(&self, version: u64) -> Result<()> {
        let names = self.filesystems.iter().map(|name| name_of(name)).collect::<Result<Vec<_>>>()?;
        let found = Selection::of(self.recursive).fetch(
            &names,
            vec!["version".to_owned()],
            &[DatasetKind::Filesystem],
        )?;
        let (mut upgraded, mut same, mut failed) = (0u64, 0u64, found.failed);
        let mut text = String::new();
        let mut refused = false;
        let needed = pool_version::for_filesystem(version);
        let pools = UpgradePools { pools: Vec::new(), dry_run: true, version: None, command: None };
        let none = |_: &UpgradePools| Listed { entries: Vec::new(), failed: Vec::new() };
        let pools = output::ask(&pools, none)?.entries;
        let is_too_old = |name: &str| {
            let of = name.split('/').next().unwrap_or(name);
            pools.iter().any(|pool| pool.pool == of && pool.version < needed)
        };
        for (name, now) in found.entries.iter().filter_map(version_of) {
            if is_too_old(name) {
                text.push_str(&format!(
                    "{name}: can not be upgraded; the pool version needs to first be upgraded\n\
                     to version {needed}\n\n"
                ));
                refused = true;
            } else if now > version {
                text.push_str(&format!("{name}: can not be downgraded; it is already at version {now}\n"));
                refused = true;
            } else if now == version {
                same += 1;
            } else {
                let set = set_version(name, version)?;
                if set.failed.is_empty() {
                    upgraded += 1;
                }
                failed.extend(set.failed);
            }
        }
        text.push_str(&format!("{upgraded} filesystems upgraded\n"));
        if same > 0 {
            text.push_str(&format!("{same} filesystems already at this version\n"));
        }
        output::print(&text)?;
        complain(&failed)?;
        if refused { Err(Exit(FAILED).into()) } else { Ok(()) }
    }
}

fn set_version(name: &str, version: u64) -> Result<PropertiesSet> {
    let request = SetProperties {
        datasets: vec![name.to_owned()],
        properties: vec![("version".to_owned(), version.to_string())],
        no_mount: true,
        command: command_line::command(),
    };
    output::ask(&request, |request| PropertiesSet {
        failed: output::none_of(&request.datasets, "dataset does not exist"),
        warnings: Vec::new(),
    })
}

fn parse_version(typed: &str) -> Result<u64> {
    let version = match typed {
        "current" => Some(NEWEST),
        number => number.parse().ok().filter(|version| (1..=NEWEST).contains(version)),
    };
    version.ok_or_else(|| usage(format!("invalid version {typed}")))
}

fn version_of(entry: &DatasetEntry) -> Option<(&str, u64)> {
    let value = entry.property("version")?.parsable.as_ref()?;
    Some((&entry.name, value.parse().ok()?))
}

fn versions() -> String {
    let mut text = "The following filesystem versions are supported:\n\nVER  DESCRIPTION\n".to_owned();
    text.push_str("---  --------------------------------------------------------\n");
    for (version, brought) in (1..).zip(VERSIONS) {
        text.push_str(&format!(" {version}   {brought}\n"));
    }
    text + "\nFor more information on a particular version, including supported releases,\n\
            see the ZFS Administration Guide.\n\n"
}

/// Filesystems of older versions, of all pools. What is newer than is known cannot be opened, and has no
/// version to list.
fn list() -> Result<()> {
    let found = Selection::default().fetch(&[], vec!["version".to_owned()], &[DatasetKind::Filesystem])?;
    let mut text = format!("This system is currently running ZFS filesystem version {NEWEST}.\n\n");
    let older: Vec<_> =
        found.entries.iter().filter_map(version_of).filter(|(_, version)| *version < NEWEST).collect();
    if older.is_empty() {
        text.push_str("All filesystems are formatted with the current version.\n");
    } else {
        text.push_str(
            "The following filesystems are out of date, and can be upgraded.  After being\n\
             upgraded, these filesystems (and any 'zfs send' streams generated from\n\
             subsequent snapshots) will no longer be accessible by older software versions.\n\n\n\
             VER  FILESYSTEM\n---  ------------\n",
        );
        older.iter().for_each(|(name, version)| text.push_str(&format!("{version:2}   {name}\n")));
    }
    output::print(&text)?;
    complain(&found.failed)
}
