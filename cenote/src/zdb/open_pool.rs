//! A pool that the daemon has open, wherever its devices are.
//!
//! The daemon reports the devices and the uberblock of the last commit, and keeps that state readable until
//! the connection ends ([`server::api::HoldView`]). So the output shows one whole state of the pool, although
//! the pool is written meanwhile.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use ondisk::uberblock::Uberblock;
use server::api::{ApiError, ErrorKind, HeldView, HoldView};

use crate::client::{self, Lasting};

/// A state of a pool that the daemon keeps.
#[derive(Debug)]
pub(super) struct OpenPool {
    view: Lasting<HeldView>,
    /// The uberblock of the state.
    pub uberblock: Uberblock,
}

impl OpenPool {
    /// Asks the daemon for a pool by name. `None` where no daemon has it open.
    pub fn ask(pool: &str) -> Result<Option<Self>> {
        let view = match client::call_lasting(&HoldView { pool: pool.to_owned() }) {
            Ok(None) => return Ok(None),
            Ok(Some(view)) => view,
            Err(error) => {
                let refusal = error.downcast_ref::<ApiError>();
                return match refusal.is_some_and(|refusal| refusal.kind == ErrorKind::NotFound) {
                    true => Ok(None),
                    false => Err(error),
                };
            }
        };
        let uberblock = Uberblock::parse(&view.told.uberblock);
        let uberblock = uberblock.context("the daemon's answer is of another version than this command")?;
        Ok(Some(Self { view, uberblock }))
    }

    /// Its name now, which its devices need not have.
    pub fn name(&self) -> &str {
        &self.view.told.name
    }

    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.view.told.guid
    }

    /// Where its devices are. One that went away is as if it were missing.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.view.told.devices.iter().filter(|path| path.exists()).cloned().collect()
    }

    /// Explains an error that was met while reading: the state may be gone.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.view.has_ended() {
            true => anyhow!(
                "pool '{}' was closed while it was being read, or its free space became scarce: {error:#}",
                self.name()
            ),
            false => error,
        }
    }
}
