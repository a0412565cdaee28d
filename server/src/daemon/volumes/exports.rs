//! Volumes and their snapshots as exports, named like the datasets.
//!
//! Each connection has an export of its own, with its own handle on the volume: two readers do not disturb
//! each other's read-ahead, and closing a pool by force can take the volume from each connection. An
//! encrypted volume is an export once its key is loaded; until then clients to which it would be served are
//! told that its key is missing, or that it is unavailable, as far as their protocol has words for that.
//!
//! In a pool that is open for writing, volumes can be written unless their property `readonly` is on. All
//! connections of a volume share one [`LiveZvol`], so that their changes are ordered, and all follow its
//! properties as soon as they are set: `sync` and `logbias`; `readonly` (changes of clients are refused; a
//! client that connected while it was on stays read-only); `volsize`. NBD reports a new size to a client only
//! when it asks, with `NBD_OPT_INFO` or by connecting again; until then the client has the old size, and
//! requests beyond a new end fail. Snapshots are read as everywhere.
//!
//! What becomes of clients while their volume is destroyed, renamed, rolled back or exchanged is in
//! [`super::held_clients`]. The unfinished copy of a volume that gets another block size is not served,
//! nor are the snapshots that it is copied from.
//!
//! A client that opens a volume of a suspended pool waits, for as long as a handshake may take, or gets an
//! error at once with `failmode=continue`.

use std::sync::Arc;
use std::time::Duration;

use device::IgnorePoison;
use device::modelled::Link;
use engine::dmu::Objset;
use engine::dsl::{Dataset, Dsl, Kind, Walk};
use engine::store::suspend::FailMode;
use engine::zvol::Zvol;
use tokio::time::{Instant, timeout_at};

use super::VolumeExport;
use super::clients::Client;
use super::connection::Connection;
use super::list::{Volume, VolumeList};
use super::open_volume::{Access, OpenVolume, open_live, told_block_bytes};
use crate::block::{Caller, Changes, Exports, Layered, Listed, Protocol, Unopened, shares};
use crate::daemon::{Daemon, OpenPool, lock};

/// How long a client is kept waiting for a volume that may be there soon. Initiators of iSCSI give up a login
/// after 15 seconds, and one that has not chosen a volume is disconnected after 30.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a volume whose key is not loaded is not served.
pub(super) const NO_KEY: &str = "its encryption key is not loaded; load it (zfs load-key)";

/// The volumes of all open pools, as a protocol serves them.
#[derive(Debug, Clone)]
pub struct Volumes {
    daemon: Arc<Daemon>,
    protocol: Protocol,
}

impl Exports for Volumes {
    type Export = VolumeExport;

    async fn listed(&self, caller: Caller<'_>) -> Vec<Listed> {
        let pools = self.daemon.open_pools();
        let lists = pools.iter().map(|pool| pool.volumes());
        lists.flat_map(|list| self.admitted(list.iter(), &caller)).collect()
    }

    async fn unavailable(&self, caller: Caller<'_>) -> Vec<Listed> {
        let pools = self.daemon.open_pools();
        let lists = pools.iter().map(|pool| pool.volumes());
        lists.flat_map(|list| self.admitted(list.locked(), &caller)).collect()
    }

    /// Waits for a volume that is being changed, and for one that may be of a pool that is being imported:
    /// most clients take a refusal as final.
    async fn open(&self, name: &str, caller: Caller<'_>) -> Result<Arc<VolumeExport>, Unopened> {
        let mut changes = self.changes();
        let until = Instant::now() + PATIENCE;
        loop {
            let is_complete = self.daemon.has_imported();
            let refused = match self.open_now(name, caller).await {
                Err(Refused::NotNow(why)) => Unopened::Unavailable(why),
                Err(Refused::Unopened(Unopened::Unknown)) if !is_complete => Unopened::Unavailable(format!(
                    "{name}: not found yet; pools are still being imported, try again"
                )),
                Err(Refused::Unopened(unopened)) => return Err(unopened),
                Ok(export) => return Ok(export),
            };
            if timeout_at(until, changes.next()).await.is_err() {
                return Err(refused);
            }
        }
    }

    async fn complete(&self) -> bool {
        let mut importing = self.daemon.importing.subscribe();
        let complete = importing.wait_for(|imports| *imports == 0);
        timeout_at(Instant::now() + PATIENCE, complete).await.is_ok()
    }

    fn changes(&self) -> Changes {
        self.daemon.volume_changes.listen()
    }
}

impl Volumes {
    /// Those that this protocol serves.
    pub(in crate::daemon) fn of(daemon: Arc<Daemon>, protocol: Protocol) -> Self {
        Self { daemon, protocol }
    }

    /// Those of a list that a client may have.
    fn admitted<'a>(&self, volumes: impl Iterator<Item = &'a Volume>, caller: &Caller<'_>) -> Vec<Listed> {
        let admitted = volumes.filter_map(|volume| {
            let share = volume.share(self.protocol).filter(|share| share.admits(caller))?;
            Some(Listed { name: volume.name.clone(), guid: volume.guid.0, share })
        });
        admitted.collect()
    }

    async fn open_now(&self, name: &str, caller: Caller<'_>) -> Result<Arc<VolumeExport>, Refused> {
        let pool = self.daemon.pool_of(name).map_err(|_| Unopened::Unknown)?;
        // What is not listed, as a volume whose key is not loaded, cannot be opened either.
        if let Some(volume) = pool.volumes().get(name)
            && !volume.share(self.protocol).is_some_and(|share| share.admits(&caller))
        {
            return Err(Unopened::Unknown.into());
        }
        if let Some((why, FailMode::Continue)) = pool.live().and_then(|live| live.suspended()) {
            let why = format!("pool '{}' is suspended: {why}", pool.name());
            return Err(Unopened::Unavailable(why).into());
        }
        let client = caller.name.map(str::to_owned).or_else(|| caller.address.map(|from| from.to_string()));
        let client = Client { protocol: self.protocol.name(), name: client };
        let error = match pool.connect(name, client, self.daemon.link.clone()).await {
            Ok(export) => return Ok(export),
            Err(error) => error,
        };
        tracing::debug!(name, %error, "an export cannot be opened");
        Err(match error {
            engine::Error::Busy(_) => Refused::NotNow(error.to_string()),
            engine::Error::Io { .. } | engine::Error::Checksum { .. } | engine::Error::Suspended(_) => {
                Unopened::Unavailable(format!("{name}: {error}")).into()
            }
            engine::Error::KeyNotLoaded { .. } if self.would_admit(&pool, name, &caller) => {
                Unopened::Unavailable(format!("{name}: {NO_KEY}")).into()
            }
            _ => Unopened::Unknown.into(),
        })
    }

    /// Whether a volume that is not listed, because its key is not loaded, is served to this client
    /// otherwise.
    fn would_admit(&self, pool: &OpenPool, name: &str, caller: &Caller<'_>) -> bool {
        let list = pool.volumes();
        let volume = list.locked().find(|volume| volume.name == name);
        volume.and_then(|volume| volume.share(self.protocol)).is_some_and(|share| share.admits(caller))
    }
}

/// Why a volume was not opened.
enum Refused {
    /// It is being changed, and may be opened soon.
    NotNow(String),
    Unopened(Unopened),
}

impl From<Unopened> for Refused {
    fn from(unopened: Unopened) -> Self {
        Self::Unopened(unopened)
    }
}

impl OpenPool {
    /// The volumes that can be read.
    pub fn volumes(&self) -> Arc<VolumeList> {
        Arc::clone(&self.volumes.read().ignore_poison())
    }

    /// Looks for the volumes that can be read, each followed by its snapshots. Keeps those that were found
    /// before an error.
    pub(in crate::daemon) async fn find_volumes(&self) -> engine::Result<()> {
        let begun = self.begin_volumes();
        let (mut volumes, mut locked) = (Vec::new(), Vec::new());
        let result = self.add_volumes(&mut volumes, &mut locked).await;
        *self.volumes.write().ignore_poison() = Arc::new(VolumeList::new(volumes, locked));
        self.volume_changes.announce();
        self.end_volumes(begun, result.is_err());
        result
    }

    async fn add_volumes(&self, into: &mut Vec<Volume>, locked: &mut Vec<Volume>) -> engine::Result<()> {
        let mut first_error = None;
        let dsl = self.dsl().await?;
        for entry in dsl.list(None, Walk::HEADS).await? {
            let (Kind::Volume, Some(head)) = (entry.kind, entry.dataset()) else { continue };
            if head.is_inconsistent() || dsl.is_unfinished_copy(head).await? {
                continue;
            }
            let snapshots = dsl.snapshots(head).await?;
            let is_shown = |one: &&Dataset| !one.name.contains('%') && !one.is_taken_for_copy();
            let shown = snapshots.iter().filter(is_shown);
            for dataset in std::iter::once(head).chain(shown) {
                match self.open_volume(&dsl, dataset).await {
                    Ok((volume, _)) => into.push(volume),
                    Err(engine::Error::KeyNotLoaded { .. }) => match locked_volume(&dsl, dataset).await {
                        Ok(volume) => locked.push(volume),
                        Err(error) => {
                            first_error.get_or_insert(error);
                        }
                    },
                    Err(error) => {
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn open_volume(&self, dsl: &Dsl, dataset: &Dataset) -> engine::Result<(Volume, Arc<Zvol>)> {
        let zvol = Zvol::open(&dsl.open_objset(dataset).await?).await?;
        let volume = Volume {
            name: dataset.name.clone(),
            guid: dsl.identity(dataset).await?,
            size_bytes: zvol.size(),
            block_bytes: told_block_bytes(zvol.block_size()),
            shares: dsl.user_text(dataset, shares::PROPERTY).await?.unwrap_or_default().parse(),
        };
        Ok((volume, zvol))
    }

    pub(in crate::daemon) async fn connect(
        self: &Arc<Self>,
        name: &str,
        client: Client,
        link: Option<Arc<Link>>,
    ) -> engine::Result<Arc<VolumeExport>> {
        loop {
            let before = lock(&self.leaving).admits(name)?;
            let export = self.open_export(name, client.clone(), link.clone()).await?;
            // A request that takes the volume away looks for clients after it said so: either it has seen
            // this one, or this one sees that.
            if lock(&self.leaving).admits(name)? == before {
                return Ok(export);
            }
        }
    }

    async fn open_export(
        self: &Arc<Self>,
        name: &str,
        client: Client,
        link: Option<Arc<Link>>,
    ) -> engine::Result<Arc<VolumeExport>> {
        let dsl = self.dsl().await?;
        let dataset = dsl.find(name).await?;
        if dataset.is_taken_for_copy() || dsl.is_unfinished_copy(&dataset).await? {
            return Err(engine::Error::NotFound(format!("{name}: belongs to the copy of a volume")));
        }
        let (Volume { name, guid, .. }, zvol) = self.open_volume(&dsl, &dataset).await?;
        let (access, is_writable) = match self.live() {
            None => (Access::Reading(zvol), false),
            Some(live) if dataset.is_snapshot() => {
                // What the snapshot refers to stays as long as it does: no group need be kept for it.
                let view = live.view_of_snapshots();
                let objset = Objset::open(&view, dataset.objset_id(), &dataset.phys.bp).await?;
                (Access::Reading(Zvol::open(&objset).await?), false)
            }
            Some(live) => open_live(live, &dataset).await?,
        };
        drop((dsl, dataset));
        let recorder = self.recorder(&name);
        match lock(&self.connections).as_mut() {
            Some(connections) => {
                connections.retain(|other| other.strong_count() > 0);
                let volume = OpenVolume::new(self, name, guid, access, is_writable);
                let export = Layered { layer: Connection::new(client, recorder, link), inner: volume };
                let export = Arc::new(export);
                connections.push(Arc::downgrade(&export));
                Ok(export)
            }
            None => Err(engine::Error::NotFound(name)),
        }
    }
}

/// What can be said of a volume whose key is not loaded.
async fn locked_volume(dsl: &Dsl, dataset: &Dataset) -> engine::Result<Volume> {
    Ok(Volume {
        name: dataset.name.clone(),
        guid: dsl.identity(dataset).await?,
        size_bytes: 0,
        block_bytes: 0,
        shares: dsl.user_text(dataset, shares::PROPERTY).await?.unwrap_or_default().parse(),
    })
}
