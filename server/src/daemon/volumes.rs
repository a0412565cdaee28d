//! Volumes and their snapshots as exports, named like the datasets.
//!
//! Each connection has an export of its own, with its own handle on the volume: two readers do not disturb
//! each other's read-ahead, and closing a pool by force can take the volume from each connection. An
//! encrypted volume is listed once its key is loaded.
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

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use device::modelled::Link;
use device::{IgnorePoison, IoBuf};
use engine::Block;
use engine::dmu::{Objset, Payload, Sink};
use engine::dsl::{Dataset, Dsl, Kind, LiveDataset, Walk, with_room};
use engine::pool::live::LivePool;
use engine::store::suspend::FailMode;
use engine::zil::SyncMode;
use engine::zvol::{LiveReader, LiveZvol, Zvol};
use ondisk::Guid;
use tokio::time::{Instant, timeout_at};

use super::clients::{Client, Done};
use super::recording::Recorder;
use super::sharing;
use super::volume_freeze::Freezable;
use super::volume_list::Volume;
use super::{Daemon, OpenPool, VolumeList, lock};
use crate::api::TracedOperation;
use crate::block::{
    Asked, Caller, Changes, Copied, Durability, Export, ExportError, Exports, Extent, FailureKind, Listed,
    Protocol, Room, Stability, UnderWay, Unopened, shares,
};
use crate::nbd;

/// How long a client is kept waiting for a volume that may be there soon. Initiators of iSCSI give up a login
/// after 15 seconds, and one that has not chosen a volume is disconnected after 30.
const PATIENCE: Duration = Duration::from_secs(10);
/// Request size to tell clients where a volume's own block size is not one that the protocol allows.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// One connection's view of a volume.
#[derive(Debug)]
pub struct VolumeExport {
    /// The pool.
    home: Weak<OpenPool>,
    /// It changes when the volume of a snapshot gets another name.
    name: RwLock<Arc<str>>,
    /// The protocol of its client.
    pub(super) protocol: &'static str,
    pub(super) id: u64,
    guid: Guid,
    is_writable: bool,
    /// The modelled link between the client and this.
    link: Option<Arc<Link>>,
    /// Taken away when the pool is closed by force, and exchanged by a rollback.
    pub(super) access: Freezable<Access>,
    /// Told of each request.
    recorder: Arc<Recorder>,
    pub(super) done: Done,
    /// Its client: the initiator's name, or an address; nothing where it has neither.
    pub(super) client: Option<String>,
    pub(super) under_way: Arc<UnderWay>,
}

/// The number of the next connection.
static NEXT_CLIENT: AtomicU64 = AtomicU64::new(1);

/// How a connection gets at a volume.
#[derive(Debug)]
pub(super) enum Access {
    Reading(Arc<Zvol>),
    Writing(Box<LiveReader>, Arc<LiveDataset>),
}

impl VolumeExport {
    /// The name of the volume or snapshot.
    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read().ignore_poison())
    }

    /// It is called otherwise from now on.
    pub(super) fn rename(&self, name: &str) {
        *self.name.write().ignore_poison() = name.into();
    }

    async fn access(&self) -> Result<Arc<Access>, ExportError> {
        self.access.enter().await.ok_or_else(|| ExportError {
            kind: FailureKind::Gone,
            message: format!("the pool of '{}' was exported", self.name()),
        })
    }

    /// A request that is to be stable when it is answered is noted as if a flush came with it.
    fn note_stable(&self, stable: bool) {
        if stable {
            self.recorder.note(TracedOperation::Flush, 0, 0);
        }
    }

    /// The volume to change, and what has to be kept until that is done.
    async fn writing(&self) -> Result<(Arc<LiveZvol>, Arc<Access>), ExportError> {
        let access = self.access().await?;
        match &*access {
            Access::Writing(reader, dataset) if self.is_writable && !dataset.is_read_only() => {
                Ok((Arc::clone(reader.volume()), access))
            }
            _ => Err(ExportError {
                kind: FailureKind::ReadOnly,
                message: format!("'{}' is read-only", self.name()),
            }),
        }
    }

    /// Waits as long as a modelled link takes to bring the client its answer.
    async fn replied(&self, len: usize) {
        if let Some(link) = &self.link {
            link.fetch(len as u64).await;
        }
    }

    fn failed(&self, error: engine::Error) -> ExportError {
        let kind = match error {
            engine::Error::NoSpace(_) | engine::Error::Quota(_) => FailureKind::NoSpace,
            engine::Error::Invalid(_) => FailureKind::Invalid,
            engine::Error::ReadOnly(_) => FailureKind::ReadOnly,
            _ => FailureKind::Io,
        };
        tracing::warn!(volume = &*self.name(), %error, "a volume cannot serve a request");
        ExportError { kind, message: format!("{}: {error}", self.name()) }
    }
}

impl Export for VolumeExport {
    fn size_bytes(&self) -> u64 {
        let size = self.access.look(|access| match access {
            Access::Reading(zvol) => zvol.size(),
            Access::Writing(reader, _) => reader.volume().size(),
        });
        size.unwrap_or(0)
    }

    fn block_bytes(&self) -> u32 {
        let bytes = self.access.look(|access| match access {
            Access::Reading(zvol) => zvol.block_size(),
            Access::Writing(reader, _) => reader.volume().block_size(),
        });
        told_block_bytes(bytes.unwrap_or(0))
    }

    fn room(&self) -> Option<Room> {
        let room = |access: &Access| match access {
            Access::Reading(_) => None,
            Access::Writing(_, dataset) => {
                let (left_bytes, most_bytes) = dataset.room.left_of_most()?;
                Some(Room { left_bytes, most_bytes })
            }
        };
        self.access.look(room).flatten()
    }

    fn guid(&self) -> u64 {
        self.guid.0
    }

    fn under_way(&self) -> Option<&Arc<UnderWay>> {
        Some(&self.under_way)
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    async fn read(&self, offset: u64, mut into: &mut [u8]) -> Result<(), ExportError> {
        self.read_to(offset, into.len(), &mut into).await
    }

    async fn read_to(&self, offset: u64, len_bytes: usize, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let length = len_bytes as u64;
        self.recorder.note(TracedOperation::Read, offset, length);
        let read = pin!(async {
            let read = match &*self.access().await? {
                Access::Reading(zvol) => zvol.read_to(offset, length, sink).await,
                Access::Writing(reader, _) => reader.read_to(offset, length, sink).await,
            };
            read.map_err(|error| self.failed(error))?;
            self.done.read(len_bytes);
            self.replied(len_bytes).await;
            Ok(())
        });
        self.under_way.watch(Asked::of("read", offset, length), read).await
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        let extent = match &*self.access().await? {
            Access::Reading(zvol) => zvol
                .object()
                .span(offset)
                .await
                .map(|span| Extent { len_bytes: span.end.saturating_sub(offset), is_hole: span.is_hole }),
            Access::Writing(reader, _) => reader
                .extent(offset)
                .await
                .map(|extent| Extent { len_bytes: extent.length, is_hole: extent.is_hole }),
        };
        extent.map_err(|error| self.failed(error))
    }

    async fn write(&self, offset: u64, data: IoBuf, stable: bool) -> Result<(), ExportError> {
        let length = data.len();
        self.recorder.note(TracedOperation::Write, offset, length as u64);
        self.note_stable(stable);
        // Where it has the size and the place of a block of the volume, it becomes that block, unless that
        // would take more memory than a copy.
        let is_fitted = data.is_fitted();
        let block = Block::from(data);
        let write = pin!(async {
            let (volume, _inside) = self.writing().await?;
            if let Some(link) = &self.link {
                link.bring(length as u64).await;
            }
            let payload = match is_fitted {
                true => Payload::of_blocks(std::slice::from_ref(&block), length),
                false => Payload::from(&*block),
            };
            let written = with_room(volume.txgs(), || volume.write_payload(offset, payload, stable)).await;
            written.map_err(|error| self.failed(error))?;
            self.done.wrote(length);
            Ok(())
        });
        self.under_way.watch(Asked::of("write", offset, length as u64), write).await
    }

    async fn trim(&self, offset: u64, len_bytes: u64, stable: bool) -> Result<(), ExportError> {
        self.recorder.note(TracedOperation::Trim, offset, len_bytes);
        self.note_stable(stable);
        let trim = pin!(async {
            let (volume, _inside) = self.writing().await?;
            volume.trim(offset, len_bytes, stable).await.map_err(|error| self.failed(error))
        });
        self.under_way.watch(Asked::of("trim", offset, len_bytes), trim).await
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len_bytes: u64,
        allocate: bool,
        stable: bool,
    ) -> Result<(), ExportError> {
        self.recorder.note(TracedOperation::Trim, offset, len_bytes);
        self.note_stable(stable);
        let write = pin!(async {
            let (volume, _inside) = self.writing().await?;
            let written =
                with_room(volume.txgs(), || volume.write_zeroes(offset, len_bytes, allocate, stable)).await;
            written.map_err(|error| self.failed(error))
        });
        self.under_way.watch(Asked::of("write of zeroes", offset, len_bytes), write).await
    }

    fn durability(&self) -> Option<Durability> {
        let durability = |access: &Access| match access {
            Access::Reading(_) => None,
            Access::Writing(reader, _) => {
                let txgs = reader.volume().txgs();
                let opening = txgs.opening();
                Some(Durability {
                    opened: opening.number,
                    opened_at: opening.synced.get(),
                    group: txgs.open_txg().get(),
                })
            }
        };
        self.access.look(durability).flatten()
    }

    fn stability(&self) -> Stability {
        let stability = |access: &Access| match access {
            Access::Reading(_) => Stability::default(),
            Access::Writing(reader, _) => match reader.volume().zil().sync_mode() {
                SyncMode::Standard => Stability::WhenAsked,
                SyncMode::Always => Stability::Always,
                SyncMode::Disabled => Stability::ByGroup,
            },
        };
        self.access.look(stability).unwrap_or_default()
    }

    async fn flush(&self) -> Result<(), ExportError> {
        self.recorder.note(TracedOperation::Flush, 0, 0);
        let flush = pin!(async {
            if let Access::Writing(reader, _) = &*self.access().await? {
                reader.volume().flush().await.map_err(|error| self.failed(error))?;
            }
            self.replied(0).await;
            Ok(())
        });
        self.under_way.watch(Asked::of("flush", 0, 0), flush).await
    }

    async fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Option<Copied>, ExportError> {
        let copy = pin!(async {
            let (volume, _inside) = self.writing().await?;
            let from = source.access().await?;
            let Access::Writing(reader, _) = &*from else { return Ok(None) };
            if !Arc::ptr_eq(volume.txgs(), reader.volume().txgs()) {
                return Ok(None);
            }
            let clone = || volume.clone_range_from(reader.volume(), source_offset, offset, len_bytes);
            let cloned_bytes = with_room(volume.txgs(), clone).await.map_err(|error| self.failed(error))?;
            source.recorder.note(TracedOperation::Read, source_offset, len_bytes);
            self.recorder.note(TracedOperation::Write, offset, len_bytes);
            let mut piece = IoBuf::zeroed(0);
            let mut at = cloned_bytes;
            while at < len_bytes {
                let size = (len_bytes - at).min(COPY_BYTES) as usize;
                if piece.len() != size {
                    piece = IoBuf::for_overwrite(size);
                }
                let read = reader.read_at(source_offset + at, &mut piece).await;
                read.map_err(|error| source.failed(error))?;
                let written = with_room(volume.txgs(), || volume.write_at(offset + at, &piece, false)).await;
                written.map_err(|error| self.failed(error))?;
                at += size as u64;
            }
            self.done.wrote(len_bytes as usize);
            Ok(Some(Copied { cloned_bytes }))
        });
        self.under_way.watch(Asked::of("copy", offset, len_bytes), copy).await
    }

    async fn kept(&self) -> Result<Option<String>, ExportError> {
        let Some(home) = self.home.upgrade() else { return Ok(None) };
        sharing::kept(&home, &self.name()).await.map_err(|error| self.failed(error))
    }

    async fn keep(&self, text: Option<String>) -> Result<(), ExportError> {
        let _inside = self.writing().await?;
        let home = self.home.upgrade().ok_or_else(|| ExportError {
            kind: FailureKind::Gone,
            message: format!("the pool of '{}' was exported", self.name()),
        })?;
        sharing::keep(home, self.name().to_string(), text).await.map_err(|error| self.failed(error))
    }
}

/// The size of a block that clients are told, of a volume with blocks of so many bytes.
fn told_block_bytes(bytes: u64) -> u32 {
    let bytes = u32::try_from(bytes).ok();
    let is_allowed = |bytes: &u32| bytes.is_power_of_two() && (512..=nbd::MAX_REQUEST_BYTES).contains(bytes);
    bytes.filter(is_allowed).unwrap_or(DEFAULT_BLOCK_BYTES)
}

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// The volumes of all open pools, as a protocol serves them.
#[derive(Debug, Clone)]
pub struct Volumes {
    daemon: Arc<Daemon>,
    protocol: Protocol,
}

impl Exports for Volumes {
    type Export = VolumeExport;

    async fn listed(&self, caller: Caller<'_>) -> Vec<Listed> {
        let mut admitted = Vec::new();
        for pool in self.daemon.open_pools() {
            admitted.extend(pool.volumes().iter().filter_map(|volume| {
                let share = volume.share(self.protocol).filter(|share| share.admits(&caller))?;
                Some(Listed { name: volume.name.clone(), guid: volume.guid.0, share })
            }));
        }
        admitted
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
    pub(super) fn of(daemon: Arc<Daemon>, protocol: Protocol) -> Self {
        Self { daemon, protocol }
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
        pool.connect(name, client, self.daemon.link.clone()).await.map_err(|error| {
            tracing::debug!(name, %error, "an export cannot be opened");
            match error {
                engine::Error::Busy(_) => Refused::NotNow(error.to_string()),
                engine::Error::Io { .. } | engine::Error::Checksum { .. } | engine::Error::Suspended(_) => {
                    Unopened::Unavailable(format!("{name}: {error}")).into()
                }
                _ => Unopened::Unknown.into(),
            }
        })
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
    pub(super) async fn find_volumes(&self) -> engine::Result<()> {
        self.begin_volumes();
        let mut volumes = Vec::new();
        let result = self.add_volumes(&mut volumes).await;
        *self.volumes.write().ignore_poison() = Arc::new(volumes.into());
        self.volume_changes.announce();
        if result.is_err() {
            self.volumes_failed();
        }
        result
    }

    async fn add_volumes(&self, into: &mut Vec<Volume>) -> engine::Result<()> {
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
                    Err(engine::Error::KeyNotLoaded { .. }) => {}
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

    pub(super) async fn connect(
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
                let access = Freezable::new(access);
                let (id, done) = (NEXT_CLIENT.fetch_add(1, Ordering::Relaxed), Done::default());
                let export = VolumeExport {
                    home: Arc::downgrade(self),
                    name: RwLock::new(name.into()),
                    protocol: client.protocol,
                    id,
                    guid,
                    is_writable,
                    link,
                    access,
                    recorder,
                    done,
                    client: client.name,
                    under_way: Arc::default(),
                };
                let export = Arc::new(export);
                connections.push(Arc::downgrade(&export));
                Ok(export)
            }
            None => Err(engine::Error::NotFound(name)),
        }
    }
}

/// Opens a volume that is written. Also whether it may be.
pub(super) async fn open_live(live: &Arc<LivePool>, dataset: &Dataset) -> engine::Result<(Access, bool)> {
    let open = live.dataset(dataset.objset_id()).await?;
    let reader = live.volume(dataset.objset_id()).await?.reader().await?;
    let is_writable = !open.is_read_only();
    Ok((Access::Writing(Box::new(reader), open), is_writable))
}
