//! Clients of volumes that are about to go, or to be something else.
//!
//! A volume that is destroyed or renamed must have no client, and gets none until that is done
//! ([`OpenPool::close_to_clients`]). A volume that is exchanged for another one keeps its clients: their
//! requests wait until it is done ([`OpenPool::hold_clients`]).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::dsl::Dataset;
use engine::pool::live::LivePool;

use super::clients::Connected;
use super::list::Volume;
use super::open_volume::open_live;
use crate::daemon::names::is_at_or_below;
use crate::daemon::{OpenPool, VolumeExport, lock};

/// How long a connection may take to notice that its client is gone.
const SETTLE_LIMIT: Duration = Duration::from_millis(500);
/// How often that is looked at.
const SETTLE_STEP: Duration = Duration::from_millis(5);
/// Volumes that are about to go, or to be something else.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Leaving {
    names: Vec<String>,
    /// How often some began to.
    changes: u64,
}

impl Leaving {
    /// Refuses clients of a volume that is leaving. How often some left so far.
    pub(in crate::daemon) fn admits(&self, name: &str) -> engine::Result<u64> {
        match self.names.iter().any(|leaving| leaving == name) {
            true => Err(engine::Error::Busy(format!("{name}: dataset is busy"))),
            false => Ok(self.changes),
        }
    }
}

/// Volumes that no client can open until this is dropped.
#[derive(Debug)]
#[must_use]
pub(in crate::daemon) struct Closed<'a> {
    pool: &'a OpenPool,
    names: Vec<String>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let mut leaving = lock(&self.pool.leaving);
        for name in &self.names {
            // Changes of a pool come one after the other; each name is there once.
            leaving.names.retain(|other| other != name);
        }
        drop(leaving);
        // Clients that were refused may come now.
        self.pool.volume_changes.announce();
    }
}

/// Clients of a volume whose requests wait.
#[derive(Debug)]
#[must_use]
pub(in crate::daemon) struct HeldClients<'a> {
    _closed: Closed<'a>,
    connected: Vec<Arc<VolumeExport>>,
    /// What they had is not the volume any more.
    is_replaced: bool,
}

impl HeldClients<'_> {
    /// From here on clients must not go on with what they had, whatever happens.
    pub fn replaced(&mut self) {
        self.is_replaced = true;
    }

    /// Goes on with what the volume is now. What cannot be opened answers nothing any more.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn go_on_with(self, live: &Arc<LivePool>, dataset: &Dataset) -> engine::Result<()> {
        for connection in &self.connected {
            match open_live(live, dataset).await {
                Ok((access, _)) => connection.inner.access.thaw_with(access),
                Err(error) => {
                    self.connected.iter().for_each(|connection| connection.inner.access.remove());
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Drop for HeldClients<'_> {
    fn drop(&mut self) {
        // Those that were exchanged are open.
        for connection in &self.connected {
            match self.is_replaced {
                true => connection.inner.access.remove_frozen(),
                false => connection.inner.access.thaw(),
            }
        }
    }
}

/// These volumes have clients.
#[derive(Debug)]
pub(in crate::daemon) struct InUse(pub Vec<Connected>);

impl OpenPool {
    /// Lets no client come to the volumes that are meant, as long as what is returned is kept. Fails where
    /// one of them has a client.
    pub(in crate::daemon) fn close_to_clients(
        &self,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Closed<'_>, InUse> {
        let closed = self.close_to_others(&is_meant);
        let mut connected = self.connected_settled();
        connected.retain(|client| is_meant(&client.volume));
        if connected.is_empty() { Ok(closed) } else { Err(InUse(connected)) }
    }

    /// Lets no more clients come to the volumes that are meant, as long as what is returned is kept.
    fn close_to_others(&self, is_meant: impl Fn(&str) -> bool) -> Closed<'_> {
        let volumes = self.volumes();
        let names = volumes.iter().map(Volume::name).filter(|name| is_meant(name));
        let names: Vec<String> = names.map(str::to_owned).collect();
        let closed = Closed { pool: self, names };
        let mut leaving = lock(&self.leaving);
        leaving.changes += 1;
        leaving.names.extend(closed.names.iter().cloned());
        drop(leaving);
        closed
    }

    /// Has all requests of a volume's clients wait, as long as what is returned is kept. Neither the volume
    /// nor its snapshots get other clients meanwhile. Blocks the thread.
    ///
    /// # Errors
    /// Requests are under way that do not end within `limit`.
    pub(in crate::daemon) fn hold_clients(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<HeldClients<'_>, InUse> {
        let closed = self.close_to_others(|other| is_at_or_below(other, name));
        let connected: Vec<_> = {
            let connections = lock(&self.connections);
            let connected = connections.iter().flatten().filter_map(Weak::upgrade);
            connected.filter(|connection| *connection.inner.name() == *name).collect()
        };
        let held = HeldClients { _closed: closed, connected, is_replaced: false };
        match held.connected.iter().all(|connection| connection.inner.access.freeze(limit)) {
            true => Ok(held),
            false => Err(InUse(held.connected.iter().map(|export| Connected::of(export)).collect())),
        }
    }

    /// Waits a moment for clients that have gone away, as long as their connections still know nothing of it.
    /// Those that are there all the same.
    ///
    /// Blocks the thread, which is the request's own.
    pub(in crate::daemon) fn connected_settled(&self) -> Vec<Connected> {
        let began = Instant::now();
        loop {
            let connected = self.connected();
            if connected.is_empty() || began.elapsed() > SETTLE_LIMIT {
                return connected;
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }

    /// The clients of its volumes.
    pub(in crate::daemon) fn connected(&self) -> Vec<Connected> {
        let connections = lock(&self.connections);
        let connected = connections.iter().flatten().filter_map(Weak::upgrade);
        connected.map(|connection| Connected::of(&connection)).collect()
    }

    /// The snapshots of a volume have the name of another one, for their clients too.
    pub(in crate::daemon) fn rename_snapshot_clients(&self, from: &str, to: &str) {
        for connection in lock(&self.connections).iter().flatten().filter_map(Weak::upgrade) {
            let volume = &connection.inner;
            let name = volume.name();
            if let Some(short) = name.strip_prefix(from).and_then(|rest| rest.strip_prefix('@')) {
                volume.rename(&format!("{to}@{short}"));
            }
        }
    }
}
