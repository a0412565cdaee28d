//! A volume or snapshot that is open for one connection: what its requests read and change.
//!
//! Each request enters the volume and is inside until it is done, so that the volume can be exchanged under
//! its client ([`Freezable`]). What the engine says of a failure becomes what protocols tell.

use std::sync::{Arc, RwLock, Weak};

use device::{IgnorePoison, IoBuf};
use engine::Block;
use engine::dmu::{Payload, Sink};
use engine::dsl::{Dataset, LiveDataset, with_room};
use engine::pool::live::LivePool;
use engine::zil::SyncMode;
use engine::zvol::{LiveReader, LiveZvol, Zvol};
use ondisk::Guid;

use super::fence::Fence;
use super::freeze::Freezable;
use super::sharing;
use crate::block::{Copied, Durability, Export, ExportError, Extent, FailureKind, Room, Stability};
use crate::daemon::OpenPool;
use crate::nbd;

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Request size to tell clients where a volume's own block size is not one that the protocol allows.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// The size of a block that clients are told, of a volume with blocks of so many bytes.
pub(super) fn told_block_bytes(bytes: u64) -> u32 {
    let bytes = u32::try_from(bytes).ok();
    let is_allowed = |bytes: &u32| bytes.is_power_of_two() && (512..=nbd::MAX_REQUEST_BYTES).contains(bytes);
    bytes.filter(is_allowed).unwrap_or(DEFAULT_BLOCK_BYTES)
}

/// A volume or snapshot, for one connection.
#[derive(Debug)]
pub struct OpenVolume {
    /// The pool.
    home: Weak<OpenPool>,
    /// It changes when the volume of a snapshot gets another name.
    name: RwLock<Arc<str>>,
    guid: Guid,
    /// As it was when the client connected.
    is_writable: bool,
    /// Whether another host has the pool.
    fence: Arc<Fence>,
    /// Taken away when the pool is closed by force, and exchanged by a rollback.
    pub(in crate::daemon) access: Freezable<Access>,
}

/// How a connection gets at a volume.
#[derive(Debug)]
pub(in crate::daemon) enum Access {
    Reading(Arc<Zvol>),
    Writing(Box<LiveReader>, Arc<LiveDataset>),
}

/// Opens a volume that is written. Also whether it may be.
pub(in crate::daemon) async fn open_live(
    live: &Arc<LivePool>,
    dataset: &Dataset,
) -> engine::Result<(Access, bool)> {
    let open = live.dataset(dataset.objset_id()).await?;
    let reader = live.volume(dataset.objset_id()).await?.reader().await?;
    let is_writable = !open.is_read_only();
    Ok((Access::Writing(Box::new(reader), open), is_writable))
}

impl OpenVolume {
    pub(super) fn new(
        home: &Arc<OpenPool>,
        name: String,
        guid: Guid,
        access: Access,
        is_writable: bool,
    ) -> Self {
        let fence = Arc::clone(&home.fence);
        let (home, name) = (Arc::downgrade(home), RwLock::new(name.into()));
        Self { home, name, guid, is_writable, fence, access: Freezable::new(access) }
    }

    /// The name of the volume or snapshot.
    pub(in crate::daemon) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read().ignore_poison())
    }

    /// It is called otherwise from now on.
    pub(in crate::daemon) fn rename(&self, name: &str) {
        *self.name.write().ignore_poison() = name.into();
    }

    /// What is inside, which stays that as long as the request has it.
    async fn enter(&self) -> Result<Arc<Access>, ExportError> {
        self.fence.passed().await;
        self.access.enter().await.filter(|_| !self.fence.is_closed()).ok_or_else(|| self.gone())
    }

    fn gone(&self) -> ExportError {
        let message = format!("the pool of '{}' was exported", self.name());
        ExportError { kind: FailureKind::Gone, message }
    }

    /// The volume to change.
    fn writable<'a>(&self, access: &'a Access) -> Result<&'a Arc<LiveZvol>, ExportError> {
        match access {
            Access::Writing(reader, dataset) if self.is_writable && !dataset.is_read_only() => {
                Ok(reader.volume())
            }
            _ => Err(ExportError {
                kind: FailureKind::ReadOnly,
                message: format!("'{}' is read-only", self.name()),
            }),
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

impl Export for OpenVolume {
    fn is_elsewhere(&self) -> bool {
        self.fence.is_elsewhere()
    }

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

    fn name(&self) -> Option<String> {
        Some(OpenVolume::name(self).to_string())
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    async fn read(&self, offset: u64, mut into: &mut [u8]) -> Result<(), ExportError> {
        self.read_to(offset, into.len(), &mut into).await
    }

    async fn read_to(&self, offset: u64, len_bytes: usize, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let length = len_bytes as u64;
        let read = match &*self.enter().await? {
            Access::Reading(zvol) => zvol.read_to(offset, length, sink).await,
            Access::Writing(reader, _) => reader.read_to(offset, length, sink).await,
        };
        read.map_err(|error| self.failed(error))
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        let extent = match &*self.enter().await? {
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
        // Where it has the size and the place of a block of the volume, it becomes that block, unless that
        // would take more memory than a copy.
        let is_fitted = data.is_fitted();
        let block = Block::from(data);
        let access = self.enter().await?;
        let volume = self.writable(&access)?;
        let payload = match is_fitted {
            true => Payload::of_blocks(std::slice::from_ref(&block), length),
            false => Payload::from(&*block),
        };
        let written = with_room(volume.txgs(), || volume.write_payload(offset, payload, stable)).await;
        written.map_err(|error| self.failed(error))
    }

    async fn trim(&self, offset: u64, len_bytes: u64, stable: bool) -> Result<(), ExportError> {
        let access = self.enter().await?;
        let volume = self.writable(&access)?;
        volume.trim(offset, len_bytes, stable).await.map_err(|error| self.failed(error))
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len_bytes: u64,
        allocate: bool,
        stable: bool,
    ) -> Result<(), ExportError> {
        let access = self.enter().await?;
        let volume = self.writable(&access)?;
        let written =
            with_room(volume.txgs(), || volume.write_zeroes(offset, len_bytes, allocate, stable)).await;
        written.map_err(|error| self.failed(error))
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
        match &*self.enter().await? {
            Access::Reading(_) => Ok(()),
            Access::Writing(reader, _) => reader.volume().flush().await.map_err(|error| self.failed(error)),
        }
    }

    async fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Option<Copied>, ExportError> {
        let access = self.enter().await?;
        let volume = self.writable(&access)?;
        let from = source.enter().await?;
        let Access::Writing(reader, _) = &*from else { return Ok(None) };
        if !Arc::ptr_eq(volume.txgs(), reader.volume().txgs()) {
            return Ok(None);
        }
        let clone = || volume.clone_range_from(reader.volume(), source_offset, offset, len_bytes);
        let cloned_bytes = with_room(volume.txgs(), clone).await.map_err(|error| self.failed(error))?;
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
        Ok(Some(Copied { cloned_bytes }))
    }

    async fn kept(&self) -> Result<Option<String>, ExportError> {
        let Some(home) = self.home.upgrade() else { return Ok(None) };
        sharing::kept(&home, &self.name()).await.map_err(|error| self.failed(error))
    }

    async fn keep(&self, text: Option<String>) -> Result<(), ExportError> {
        let access = self.enter().await?;
        self.writable(&access)?;
        let home = self.home.upgrade().ok_or_else(|| self.gone())?;
        sharing::keep(home, self.name().to_string(), text).await.map_err(|error| self.failed(error))
    }
}
