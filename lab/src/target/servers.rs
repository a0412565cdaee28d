//! The processes that serve pools: each is started when a variant needs its settings, and ends with the last
//! of them.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::programs::Programs;
use crate::setting::Settings;

/// Starts the process that serves pools, with its settings.
pub type Launch<'a> = Box<dyn Fn(&Settings) -> Result<Box<dyn Programs>> + 'a>;

/// The processes that run, by the settings that they were started with.
pub(super) struct Servers<'a> {
    launch: Option<Launch<'a>>,
    running: BTreeMap<Settings, Box<dyn Programs>>,
}

fn no_pools() -> Error {
    Error::Experiment("this target has no pools".into())
}

impl<'a> Servers<'a> {
    /// None as yet; what is without pools launches none.
    pub(super) fn new(launch: Option<Launch<'a>>) -> Self {
        Self { launch, running: BTreeMap::new() }
    }

    /// The programs of a server that was started.
    pub(super) fn programs(&self, server: &Settings) -> Result<&dyn Programs> {
        self.running.get(server).map(Box::as_ref).ok_or_else(no_pools)
    }

    /// Starts a server, unless it runs.
    pub(super) fn start(&mut self, server: &Settings) -> Result<()> {
        if self.running.contains_key(server) {
            return Ok(());
        }
        let launch = self.launch.as_ref().ok_or_else(no_pools)?;
        self.running.insert(server.clone(), launch(server)?);
        Ok(())
    }

    /// Ends a server.
    pub(super) fn end(&mut self, server: &Settings) {
        self.running.remove(server);
    }

    /// Ends all of them.
    pub(super) fn end_all(&mut self) {
        self.running.clear();
    }
}
