//! `zpool attach`, `detach` and `replace`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use server::api::{AttachDevice, DetachDevice, GetStatus, PoolStatus, State, VdevNode};

use crate::output::usage;
use crate::{client, command_line, feed};

/// Arguments of `zpool attach`.
#[derive(Debug, clap::Args)]
pub struct AttachArguments {
    #[command(flatten)]
    common: Common,
    /// The pool, its device, and the new device
    #[arg(value_name = "POOL DEVICE NEW-DEVICE", num_args = 0..)]
    words: Vec<String>,
}

impl AttachArguments {
    /// Attaches the device.
    pub fn run(self) -> Result<()> {
        let [pool, device, new_device] = three(self.words)?;
        let new_device = new_device.ok_or_else(|| usage("missing <new_device> specification"))?;
        self.common.attach(pool, device, Some(new_device), false)
    }
}

/// Arguments of `zpool replace`.
#[derive(Debug, clap::Args)]
pub struct ReplaceArguments {
    #[command(flatten)]
    common: Common,
    /// The pool, its device, and the new device, if that is not in the place of the old one
    #[arg(value_name = "POOL DEVICE [NEW-DEVICE]", num_args = 0..)]
    words: Vec<String>,
}

impl ReplaceArguments {
    /// Replaces the device.
    pub fn run(self) -> Result<()> {
        let [pool, device, new_device] = three(self.words)?;
        self.common.attach(pool, device, new_device, true)
    }
}

/// What both have.
#[derive(Debug, clap::Args)]
struct Common {
    /// Use the new device even if it seems to be in use
    #[arg(short)]
    force: bool,
    /// A property of the new device: ashift
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// Copy in the order of the devices first, and verify afterwards (not there yet)
    #[arg(short)]
    sequential: bool,
    /// Return when the new device has everything
    #[arg(short)]
    wait: bool,
}

impl Common {
    fn attach(
        self,
        pool: Option<String>,
        device: Option<String>,
        new_device: Option<String>,
        replace: bool,
    ) -> Result<()> {
        let pool = pool.ok_or_else(|| usage("missing pool name argument"))?;
        let device = device.ok_or_else(|| usage("missing <device> specification"))?;
        if self.sequential {
            bail!(
                "sequential reconstruction (-s) is not there yet: leave it away, and the new device is \
                 resilvered, which verifies every block"
            );
        }
        let properties = command_line::properties(&self.properties)?;
        if let Some((name, _)) = properties.iter().find(|(name, _)| name != "ashift") {
            return Err(usage(format!("property '{name}' is not valid here: only ashift is")));
        }
        let request = AttachDevice {
            pool: pool.clone(),
            device,
            new_device: new_device.map(PathBuf::from),
            replace,
            force: self.force,
            properties,
            command: command_line::command(),
        };
        let new = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        match self.wait {
            true => feed::until(|| Ok(!lacks_something(&pool, new, replace)?)),
            false => Ok(()),
        }
    }
}

/// Whether a device still lacks something, or has not taken the place of the one that it replaces, or that
/// one is not free yet.
fn lacks_something(pool: &str, guid: u64, replace: bool) -> Result<bool> {
    let request = GetStatus { pools: vec![pool.to_owned()], ..GetStatus::default() };
    let status = client::call_running(&request)?.and_then(|listed| listed.entries.into_iter().next());
    let PoolStatus { health, .. } = status.ok_or_else(|| super::no_such_pool(pool))?;
    let is_new = |vdev: &&VdevNode| vdev.guid == guid && vdev.children.is_empty();
    let of_pool = |vdev: &&VdevNode| !matches!(vdev.class, server::api::VdevClass::Spare);
    let Some(new) = health.vdevs.walk().filter(of_pool).find(is_new) else { return Ok(false) };
    if new.state < State::Degraded {
        bail!("the new device is {} and gets nothing more", new.state);
    }
    let replaces =
        |vdev: &VdevNode| vdev.kind == "replacing" && vdev.children.iter().any(|child| child.guid == guid);
    let goes = health.gives_up_device || health.vdevs.walk().any(replaces);
    Ok(new.awaits_resilver || replace && goes)
}

/// Arguments of `zpool detach`.
#[derive(Debug, clap::Args)]
pub struct DetachArguments {
    /// The pool and its device
    #[arg(value_name = "POOL DEVICE", num_args = 0..)]
    words: Vec<String>,
}

impl DetachArguments {
    /// Detaches the device.
    pub fn run(self) -> Result<()> {
        let [pool, device, more] = three(self.words)?;
        let pool = pool.ok_or_else(|| usage("missing pool name argument"))?;
        let device = device.ok_or_else(|| usage("missing <device> specification"))?;
        if more.is_some() {
            return Err(usage("too many arguments"));
        }
        let request = DetachDevice { pool: pool.clone(), device, command: command_line::command() };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))
    }
}

/// At most three words.
fn three(words: Vec<String>) -> Result<[Option<String>; 3]> {
    let mut words = words.into_iter();
    let three = [words.next(), words.next(), words.next()];
    match words.next() {
        Some(_) => Err(usage("too many arguments")),
        None => Ok(three),
    }
}
