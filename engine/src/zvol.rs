//! Volumes: one object whose content is a disk.
//!
//! Object 1 of a volume holds the disk's content in blocks of `volblocksize`; object 2 is a ZAP whose entry
//! `size` is the size of the disk in bytes. Ranges that were never written, or were discarded, are holes and
//! read as zeroes.
//!
//! A [`Zvol`] reads a volume, a clone or a snapshot alike, as of the moment at which its object set was
//! opened. Any number of reads may run at once; they share nothing but the ARC.
//!
//! A [`LiveZvol`] is a volume that is open for writing; all its users share it.
//!
//! Source: OpenZFS 2.3 `zvol_impl.h`, `zvol.c`.

pub mod create;
mod live;
#[cfg(test)]
mod tests;

pub use live::{LiveReader, LiveZvol};

use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::objset::ObjsetType;

use crate::dmu::{Object, Objset, Reader, Sink, zap};
use crate::stats::DatasetStats;
use crate::{Error, Result};

/// The object that holds the content.
pub(crate) const CONTENT: ObjectId = ObjectId(1);
/// The object with the size.
pub(crate) const PROPERTIES: ObjectId = ObjectId(2);

/// An open volume.
#[derive(Debug)]
pub struct Zvol {
    content: Reader,
    size: u64,
    stats: Arc<DatasetStats>,
}

/// A run of a volume that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes.
    pub length: u64,
    /// True when it was never written, or discarded: it reads as zeroes.
    pub is_hole: bool,
}

impl Zvol {
    /// Opens the volume of an object set.
    pub async fn open(objset: &Arc<Objset>) -> Result<Arc<Self>> {
        if objset.objset_type() != ObjsetType::Zvol {
            let detail = format!("is a {} object set, not a volume", objset.objset_type());
            return Err(Error::WrongType { what: format!("objset {}", objset.id()), detail });
        }
        let properties = objset.object(PROPERTIES).await?;
        let size = zap::lookup_u64(&properties, "size").await?;
        let size = size.ok_or_else(|| properties.corrupt("a volume without a size"))?;
        let stats = objset.pool().datasets.of(objset.id());
        Ok(Arc::new(Self { content: Reader::new(objset.object(CONTENT).await?), size, stats }))
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        self.object().objset()
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Size of a block in bytes.
    pub fn block_size(&self) -> u64 {
        self.object().block_size()
    }

    /// The object that holds the content.
    pub fn object(&self) -> &Object {
        self.content.object()
    }

    /// Fills `into` with the bytes from `offset` on. When they are cached and within one block, this finishes
    /// in the first poll and allocates nothing. Blocks are loaded ahead of sequential reads.
    pub async fn read_at(&self, offset: u64, mut into: &mut [u8]) -> Result<()> {
        self.read_to(offset, into.len() as u64, &mut into).await
    }

    /// Like [`Zvol::read_at`], into a sink.
    pub async fn read_to(&self, offset: u64, length: u64, sink: &mut dyn Sink) -> Result<()> {
        self.check(offset, length)?;
        self.stats.count_read(length);
        self.content.read_to(offset, length, sink).await
    }

    /// The runs of data and of holes in a range, in order and without gaps. Returns at most `limit` runs, and
    /// at least one, so that they may end before the range does.
    pub async fn extents(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Extent>> {
        self.check(offset, length)?;
        let end = offset + length;
        let mut at = offset;
        let mut extents = Vec::new();
        while at < end {
            let span = self.object().span(at).await?;
            let length = span.end.min(end) - at;
            if !add_extent(&mut extents, Extent { length, is_hole: span.is_hole }, limit) {
                break;
            }
            at += length;
        }
        Ok(extents)
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        check(self.size, offset, length)
    }
}

/// Appends a run, or extends the last extent if it is of the same kind. Returns false when there would be
/// more than `limit` extents (but one at least).
fn add_extent(extents: &mut Vec<Extent>, next: Extent, limit: usize) -> bool {
    let full = extents.len() >= limit.max(1);
    match extents.last_mut() {
        Some(last) if last.is_hole == next.is_hole => last.length += next.length,
        _ if full => return false,
        _ => extents.push(next),
    }
    true
}

/// Whether a range lies within a volume.
fn check(size: u64, offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Invalid(format!(
            "{length} bytes at offset {offset} reach beyond the end of the volume at {size}"
        ))),
    }
}
