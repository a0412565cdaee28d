//! `zpool create` and `zpool add`: pools out of devices.

use std::path::PathBuf;

use anyhow::{Context, Result};
use server::api::{AddVdevs, CreatePool, NewDevices, NewLayout};

use super::vdev_spec;
use super::vdevs::Naming;
use crate::output::{self, usage};
use crate::zfs::AskedKey;
use crate::{client, command_line};

/// Arguments of `zpool create`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct CreateArguments {
    /// Use devices even if they seem to be in use, or vdevs differ in kind
    #[arg(short)]
    force: bool,
    /// Only show the layout
    #[arg(short = 'n')]
    dry_run: bool,
    /// Enable no features but those named with -o feature@…=enabled
    #[arg(short = 'd')]
    no_features: bool,
    /// A pool property (may be repeated)
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// A property of the root filesystem (may be repeated)
    #[arg(short = 'O', value_name = "PROPERTY=VALUE")]
    root_properties: Vec<String>,
    /// Where the root filesystem is mounted (default: /POOL), or legacy, or none
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    mountpoint: Option<String>,
    /// Place all mountpoints under this directory
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<PathBuf>,
    /// Another name while the pool is open this time
    #[arg(short = 't', value_name = "NAME")]
    temporary_name: Option<String>,
    /// Mount nothing
    #[arg(short = 'N')]
    no_mount: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Its devices: files and disks by path, after mirror, raidz1-3, draid, log, cache, special, dedup, spare
    #[arg(value_name = "VDEV")]
    vdevs: Vec<String>,
}

impl CreateArguments {
    /// Creates the pool.
    pub fn run(self) -> Result<()> {
        let name = self.pool.ok_or_else(|| usage("missing pool name argument"))?;
        if self.vdevs.is_empty() {
            return Err(usage("missing vdev specification"));
        }
        let devices = vdev_spec::parse(&self.vdevs)?;
        vdev_spec::check_names(&self.vdevs)?;
        let mut root_properties = command_line::properties(&self.root_properties)?;
        if let Some(mountpoint) = &self.mountpoint {
            root_properties.retain(|(name, _)| name != "mountpoint");
            root_properties.push(("mountpoint".to_owned(), mountpoint.clone()));
        }
        let mut properties = command_line::properties(&self.properties)?;
        if self.altroot.is_some() && !properties.iter().any(|(name, _)| name == "cachefile") {
            properties.push(("cachefile".to_owned(), "none".to_owned()));
        }
        let asked = AskedKey::of(&root_properties);
        let mut request = CreatePool {
            name: name.clone(),
            temporary_name: self.temporary_name,
            devices,
            force: self.force,
            dry_run: self.dry_run,
            no_features: self.no_features,
            properties,
            root_properties,
            key: None,
            altroot: self.altroot,
            no_mount: self.no_mount,
            command: command_line::command(),
        };
        if asked.is_asked_for() && !self.dry_run {
            // What can be refused without the key is refused before it is asked for.
            client::call(&CreatePool { dry_run: true, ..request.clone() })?;
            request.key = Some(asked.ask().with_context(|| format!("cannot create '{name}'"))?);
        }
        let opened = client::call(&request)?;
        if self.dry_run {
            let layout = vdev_spec::render(&name, None, &request.devices);
            return output::print(&format!("would create '{name}' with the following layout:\n\n{layout}"));
        }
        for warning in &opened.warnings {
            eprintln!("{warning}");
        }
        note_unused(&request.devices);
        Ok(())
    }
}

/// Arguments of `zpool add`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct AddArguments {
    /// Everything that the three --allow options allow
    #[arg(short)]
    force: bool,
    /// Only show the layout
    #[arg(short = 'n')]
    dry_run: bool,
    /// Use devices even if they seem to be in use
    #[arg(long)]
    allow_in_use: bool,
    /// Add the new vdevs even if their redundancy differs
    #[arg(long)]
    allow_replication_mismatch: bool,
    /// Add the new vdevs even if their sector sizes differ
    #[arg(long)]
    allow_ashift_mismatch: bool,
    #[command(flatten)]
    naming: Naming,
    /// A property of the new vdevs: ashift
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// The new devices, as for zpool create
    #[arg(value_name = "VDEV")]
    vdevs: Vec<String>,
}

impl AddArguments {
    /// Adds them.
    pub fn run(self) -> Result<()> {
        let pool = self.pool.ok_or_else(|| usage("missing pool name argument"))?;
        if self.vdevs.is_empty() {
            return Err(usage("missing vdev specification"));
        }
        let allows = self.allow_in_use || self.allow_replication_mismatch || self.allow_ashift_mismatch;
        if self.force && allows {
            return Err(usage(
                "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', \
                 or '--allow-in-use'",
            ));
        }
        let devices = vdev_spec::parse(&self.vdevs)?;
        vdev_spec::check_names(&self.vdevs)?;
        let request = AddVdevs {
            pool: pool.clone(),
            devices,
            force: self.force,
            allow_in_use: self.allow_in_use,
            allow_replication_mismatch: self.allow_replication_mismatch,
            allow_ashift_mismatch: self.allow_ashift_mismatch,
            dry_run: self.dry_run,
            properties: command_line::properties(&self.properties)?,
            command: command_line::command(),
        };
        let Some(root) = client::call_running(&request)? else { return Err(super::no_such_pool(&pool)) };
        if self.dry_run {
            let layout = vdev_spec::render(&pool, Some((&root, self.naming)), &request.devices);
            output::print(&format!("would update '{pool}' to the following configuration:\n\n{layout}"))?;
        } else {
            note_unused(&request.devices);
        }
        Ok(())
    }
}

/// Says of new devices that nothing is done with them yet.
fn note_unused(devices: &NewDevices) {
    if devices.vdevs.iter().any(|vdev| matches!(vdev.layout, NewLayout::Draid { nspares: 1.., .. })) {
        eprintln!("note: distributed spares are part of the pool, but this version does not use them yet");
    }
}
