//! Devices of pools: `zpool clear`, `offline`, `online`, `remove`, `reopen`.

use anyhow::Result;
use server::api::{ClearErrors, Listed, OfflineDevices, OnlineDevices, RemoveDevices, ReopenPools, State};

use crate::output::{self, complain, usage};
use crate::{client, command_line};

/// Arguments of `zpool clear`.
#[derive(Debug, clap::Args)]
pub struct ClearArguments {
    /// The pool, and optionally one of its devices
    #[arg(value_name = "POOL [DEVICE]", num_args = 0..)]
    words: Vec<String>,
}

impl ClearArguments {
    /// Forgets the errors.
    pub fn run(self) -> Result<()> {
        let mut words = self.words.into_iter();
        let pool = words.next().ok_or_else(|| usage("missing pool name"))?;
        let device = words.next();
        if words.next().is_some() {
            return Err(usage("too many arguments"));
        }
        let request = ClearErrors { pool: pool.clone(), device, command: command_line::command() };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))
    }
}

/// Arguments of `zpool offline`.
#[derive(Debug, clap::Args)]
pub struct OfflineArguments {
    /// Mark the devices as failed
    #[arg(short)]
    fault: bool,
    /// Only until the pool is imported again
    #[arg(short)]
    temporary: bool,
    /// The pool and its devices
    #[arg(value_name = "POOL DEVICE…", num_args = 0..)]
    words: Vec<String>,
}

impl OfflineArguments {
    /// Takes the devices offline.
    pub fn run(self) -> Result<()> {
        let (pool, devices) = pool_and_devices(self.words)?;
        let request = OfflineDevices {
            pool: pool.clone(),
            devices,
            temporary: self.temporary,
            fault: self.fault,
            command: command_line::command(),
        };
        let done = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        complain(&done.failed)
    }
}

/// Arguments of `zpool online`.
#[derive(Debug, clap::Args)]
pub struct OnlineArguments {
    /// Use all of the space of devices that have grown, as far as the smallest of their vdev has it. The
    /// partition of a whole disk must be made larger first
    #[arg(short)]
    expand: bool,
    /// The pool and its devices
    #[arg(value_name = "POOL DEVICE…", num_args = 0..)]
    words: Vec<String>,
}

impl OnlineArguments {
    /// Takes the devices back.
    pub fn run(self) -> Result<()> {
        let (pool, devices) = pool_and_devices(self.words)?;
        let request = OnlineDevices {
            pool: pool.clone(),
            devices,
            expand: self.expand,
            command: command_line::command(),
        };
        let done = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        let mut text = String::new();
        for onlined in &done.entries {
            let device = &onlined.device;
            let advice = match onlined.state {
                State::Healthy => continue,
                State::Faulted => {
                    text.push_str(&format!(
                        "warning: device '{device}' onlined, but remains in faulted state\n"
                    ));
                    "use 'zpool clear' to restore a faulted device\n"
                }
                state => {
                    text.push_str(&format!(
                        "warning: device '{device}' onlined, but remains in {} state\n",
                        state.to_string().to_lowercase()
                    ));
                    "use 'zpool replace' to replace devices that are no longer present\n"
                }
            };
            text.push_str(advice);
        }
        output::print(&text)?;
        complain(&done.failed)
    }
}

/// Arguments of `zpool remove`.
#[derive(Debug, clap::Args)]
pub struct RemoveArguments {
    /// The pool and its devices
    #[arg(value_name = "POOL DEVICE…", num_args = 0..)]
    words: Vec<String>,
}

impl RemoveArguments {
    /// Removes the devices.
    pub fn run(self) -> Result<()> {
        let (pool, devices) = pool_and_devices(self.words)?;
        let request = RemoveDevices { pool: pool.clone(), devices, command: command_line::command() };
        let done = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        complain(&done.failed)
    }
}

/// Arguments of `zpool reopen`.
#[derive(Debug, clap::Args)]
pub struct ReopenArguments {
    /// Do not restart a scrub, which never happens here
    #[arg(short = 'n', hide = true)]
    no_restart: bool,
    /// The pools; all if none is named
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl ReopenArguments {
    /// Looks for the devices.
    pub fn run(self) -> Result<()> {
        let reopened = output::ask(&ReopenPools { pools: self.pools }, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        complain(&reopened.failed)
    }
}

fn pool_and_devices(words: Vec<String>) -> Result<(String, Vec<String>)> {
    let mut words = words.into_iter();
    let pool = words.next().ok_or_else(|| usage("missing pool name"))?;
    let devices: Vec<String> = words.collect();
    if devices.is_empty() {
        return Err(usage("missing device name"));
    }
    Ok((pool, devices))
}
