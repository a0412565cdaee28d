//! The running daemon, whose pools hold data, as a server of the lab.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::counters::Counters;
use lab::fio::Endpoint;
use lab::programs::Programs;
use lab::size::Size;
use lab::subprocess::output;
use server::api::{ListReshapes, ListVolumes, ReshapeAction, ReshapeState, ReshapeVolume, Reshaping};

use crate::client;

/// How often a volume that is rewritten is asked after.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The daemon that has the user's pools open.
pub struct Running {
    program: PathBuf,
}

impl Running {
    /// That of this user.
    pub fn find() -> Result<Self> {
        Ok(Self { program: std::env::current_exe().context("cannot find out where this program is")? })
    }
}

fn failed(command: &str) -> impl Fn(anyhow::Error) -> lab::Error {
    move |error| lab::Error::Failed { command: command.to_owned(), output: format!("{error:#}") }
}

/// Asks for, or does, something about the block size of a volume; what it takes, where that was asked.
fn act(
    volume: &str,
    action: ReshapeAction,
    block: Size,
    dry_run: bool,
) -> Result<Option<server::api::ReshapePlan>> {
    let request = ReshapeVolume {
        volume: volume.to_owned(),
        action,
        volblocksize: block.0,
        dry_run,
        command: crate::command_line::command(),
    };
    client::call_running(&request)?.context("no daemon runs, so no pool is open")
}

/// How the last change of a volume's block size stands.
fn reshaping(volume: &str) -> Result<Option<Reshaping>> {
    let listed = client::call_running(&ListReshapes { volumes: vec![volume.to_owned()] })?;
    Ok(listed.context("no daemon runs, so no pool is open")?.into_iter().next())
}

impl Programs for Running {
    fn zpool(&self, arguments: &[String]) -> lab::Result<String> {
        output(Command::new(&self.program).arg("zpool").args(arguments))
    }

    fn zfs(&self, arguments: &[String]) -> lab::Result<String> {
        output(Command::new(&self.program).arg("zfs").args(arguments))
    }

    fn volume(&self, name: &str) -> lab::Result<Endpoint> {
        let command = format!("serving {name}");
        let listed = client::call_running(&ListVolumes {}).map_err(failed(&command))?.unwrap_or_default();
        let uri = listed.into_iter().find(|volume| volume.name == name).and_then(|volume| volume.uri);
        let output = "the daemon does not serve it over NBD".to_owned();
        uri.map(Endpoint::Nbd).ok_or(lab::Error::Failed { command, output })
    }

    fn counters(&self, _: &str) -> lab::Result<Option<Counters>> {
        Ok(None)
    }

    fn reshape_fault(&self, volume: &str, block: Size) -> lab::Result<Option<String>> {
        match act(volume, ReshapeAction::Start, block, true) {
            Ok(Some(plan)) if plan.needed_bytes > plan.available_bytes => Ok(Some(format!(
                "the copy would take about {}, and {} are free in the pool",
                Size(plan.needed_bytes >> 20 << 20),
                Size(plan.available_bytes >> 20 << 20)
            ))),
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(format!("{error:#}"))),
        }
    }

    fn reshape(
        &self,
        volume: &str,
        block: Size,
        goes_on: &mut dyn FnMut(Size, Size),
        stops: &dyn Fn() -> bool,
    ) -> lab::Result<()> {
        let command = format!("cenote reshape {volume} --volblocksize {block}");
        let failed = failed(&command);
        act(volume, ReshapeAction::Start, block, false).map_err(&failed)?;
        loop {
            let found = reshaping(volume).map_err(&failed)?;
            let ended = |output: String| Err(lab::Error::Failed { command: command.clone(), output });
            let Some(found) = found else { return ended("the daemon has lost it".to_owned()) };
            goes_on(Size(found.done_bytes), Size(found.total_bytes));
            match found.state {
                ReshapeState::Complete => return Ok(()),
                ReshapeState::Canceled => return ended("it was canceled".to_owned()),
                ReshapeState::Paused => {
                    let why = found.error.unwrap_or_else(|| "it was paused".to_owned());
                    self.cancel_reshape(volume)?;
                    return ended(why);
                }
                // It may be complete just now: then that is seen next.
                ReshapeState::Active if stops() && self.cancel_reshape(volume).is_ok() => {
                    return Err(lab::Error::Stopped);
                }
                ReshapeState::Active => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    fn cancel_reshape(&self, volume: &str) -> lab::Result<()> {
        let command = format!("cenote reshape {volume} --cancel");
        let is_unfinished = |it: Reshaping| matches!(it.state, ReshapeState::Active | ReshapeState::Paused);
        let cancel = || match reshaping(volume)?.is_some_and(is_unfinished) {
            true => act(volume, ReshapeAction::Cancel, Size(0), false).map(drop),
            false => Ok(()),
        };
        cancel().map_err(failed(&command))
    }
}
