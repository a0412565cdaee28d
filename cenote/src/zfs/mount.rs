//! `zfs mount`, `zfs unmount`.

use std::path::PathBuf;

use anyhow::Result;
use server::api::{ListMounts, Mount, MountsChanged, Unmount};

use super::keys;
use crate::command_line;
use crate::output::{self, JsonOptions, complain, usage};

/// Arguments of `zfs mount`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct MountArguments {
    #[command(flatten)]
    json: JsonOptions,
    /// All filesystems that are to be mounted
    #[arg(short)]
    all: bool,
    /// Mount over a directory that is not empty
    #[arg(short = 'O')]
    overlay: bool,
    /// The named filesystems with everything below them
    #[arg(short = 'R')]
    recursive: bool,
    /// Mount even if a feature forbids it (no effect here)
    #[arg(short, hide = true)]
    force: bool,
    /// Mount options; with 'ring' requests come through io_uring (Linux 6.14, after 'echo Y >
    /// /sys/module/fuse/parameters/enable_uring')
    #[arg(short = 'o', value_name = "OPTION,…", value_delimiter = ',')]
    options: Vec<String>,
    /// Load keys first, asking for those that are not in files or on servers
    #[arg(short)]
    load_keys: bool,
    /// Show progress (no effect here)
    #[arg(short, hide = true)]
    verbose: bool,
    /// Mount it here instead of at its mountpoint; needed for snapshots
    #[arg(long, value_name = "DIR", requires = "filesystem")]
    at: Option<PathBuf>,
    /// The filesystem or snapshot (with -R filesystems); without one, list mounted filesystems
    #[arg(value_name = "FILESYSTEM")]
    filesystem: Vec<String>,
}

impl MountArguments {
    /// Mounts or lists.
    pub fn run(self) -> Result<()> {
        match (self.filesystem.len(), self.all) {
            (1.., true) => Err(usage("too many arguments")),
            (0, _) if self.recursive => Err(usage("missing filesystem argument")),
            (2.., _) if !self.recursive => Err(usage("too many arguments")),
            (1.., _) if self.recursive && self.at.is_some() => {
                Err(usage("--at is for one filesystem: it cannot be used with -R"))
            }
            (1.., false) if self.json.json => Err(usage("too many arguments")),
            (0, false) if !self.options.is_empty() => {
                Err(usage("missing filesystem argument (specify -a for all)"))
            }
            (0, false) => list(self.json.json),
            (0, true) => self.mount(None),
            (1.., _) => {
                // One that cannot be mounted keeps no other from it.
                let done: Vec<Result<()>> =
                    self.filesystem.iter().map(|name| self.mount(Some(name))).collect();
                all_of(done)
            }
        }
    }

    fn mount(&self, filesystem: Option<&String>) -> Result<()> {
        let keys = match (filesystem, self.load_keys) {
            (Some(name), true) if self.recursive => keys::load_missing_keys(Some(name), false),
            (Some(name), true) => keys::load_key_of(name),
            (None, true) => keys::load_missing_keys(None, false),
            _ => Ok(()),
        };
        let at = match &self.at {
            Some(path) => Some(command_line::absolute(path)?),
            None => None,
        };
        let request = Mount {
            dataset: filesystem.cloned(),
            pool: None,
            at,
            options: self.options.clone(),
            overlay: self.overlay,
            // That of one filesystem is loaded by now, or cannot be.
            load_keys: self.load_keys && (filesystem.is_none() || self.recursive),
            legacy: false,
            recursive: self.recursive,
        };
        let changed = output::ask(&request, |request| MountsChanged {
            failed: output::none_of(&request.dataset, "dataset does not exist"),
            ..MountsChanged::default()
        })?;
        told(&changed).and(keys)
    }
}

/// Says all errors but the last one, which is the outcome.
fn all_of(done: Vec<Result<()>>) -> Result<()> {
    let mut failed: Vec<_> = done.into_iter().filter_map(Result::err).collect();
    let last = failed.pop();
    for error in failed.iter().filter(|error| !error.is::<output::Exit>()) {
        eprintln!("{}", output::in_words(error));
    }
    last.map_or(Ok(()), Err)
}

/// Mounts what is to be mounted of a pool.
pub fn mount_pool(pool: &str) -> Result<()> {
    let request = Mount { pool: Some(pool.to_owned()), ..Mount::default() };
    told(&output::ask(&request, |_| MountsChanged::default())?)
}

fn told(changed: &MountsChanged) -> Result<()> {
    for warning in &changed.warnings {
        eprintln!("{warning}");
    }
    complain(&changed.failed)
}

/// Prints what is mounted, snapshots aside.
fn list(as_json: bool) -> Result<()> {
    let mounts = output::ask(&ListMounts {}, |_| Vec::new())?;
    let filesystems = mounts.iter().filter(|mount| !mount.dataset.contains('@'));
    if as_json {
        let items = filesystems.map(|mount| {
            let mut item = serde_json::json!({ "filesystem": mount.dataset, "mountpoint": mount.mountpoint });
            if let Some(answered) = mount.answered_through_rings {
                item["answered_through_rings"] = answered.into();
            }
            (mount.dataset.clone(), item)
        });
        let mut document = output::document("zfs mount");
        document.insert("datasets".into(), serde_json::Value::Object(items.collect()));
        return output::print_json(&document);
    }
    let lines = filesystems.map(|mount| format!("{:<30}  {}\n", mount.dataset, mount.mountpoint.display()));
    output::print(&lines.collect::<String>())
}

/// Arguments of `zfs unmount`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct UnmountArguments {
    /// All mounted filesystems
    #[arg(short)]
    all: bool,
    /// Even if they are in use
    #[arg(short)]
    force: bool,
    /// Unload the keys of encryption roots that are unmounted
    #[arg(short)]
    unload_keys: bool,
    /// The filesystem or its mountpoint
    #[arg(value_name = "FILESYSTEM|MOUNTPOINT")]
    target: Option<String>,
}

impl UnmountArguments {
    /// Unmounts.
    pub fn run(self) -> Result<()> {
        match (self.all, &self.target) {
            (true, Some(_)) => return Err(usage("too many arguments")),
            (false, None) => return Err(usage("missing filesystem argument")),
            _ => {}
        }
        let request = Unmount { target: self.target, force: self.force, unload_keys: self.unload_keys };
        let changed = output::ask(&request, |request| MountsChanged {
            failed: output::none_of(&request.target, "dataset does not exist"),
            ..MountsChanged::default()
        })?;
        told(&changed)
    }
}
