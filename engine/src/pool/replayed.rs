//! A crashed pool as it is once its intent logs are replayed, for those who only read it.
//!
//! # The idea
//! What was acknowledged as stable shortly before a crash is in the intent logs, and the committed state does
//! not have it. Importing for writing replays them. Those who may not write get the same from a pool that is
//! imported for writing over overlays: devices that keep what is written in memory. The devices themselves
//! are only read.
//!
//! Where that cannot be done (features in use that are not written here, logs that cannot be read, more
//! writes than memory that may be used), the committed state is opened, and the caller learns which datasets
//! have records that it does not show.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::{Cause, Device, IgnorePoison, IoBuf, IoError, IoFuture, Operation, SectorSizes};
use ondisk::ObjsetId;
use ondisk::Reader;
use ondisk::zil::ZilHeader;

use super::discovery::FoundPool;
use super::import::{ImportError, ImportOptions, import};
use super::live::{LivePool, Surroundings};
use crate::Pool;
use crate::dmu::Objset;
use crate::dsl::Dsl;
use crate::error::{Error, Result};
use crate::zil;

/// What one write keeps at least: a page.
const PAGE_BYTES: u64 = 4096;

/// A pool for reading, and what it does not show.
#[derive(Debug)]
pub struct Opened {
    /// The pool.
    pub pool: Arc<Pool>,
    /// Datasets whose logs hold records that the pool does not show; empty when all are replayed.
    pub not_shown: Vec<String>,
    /// Why they could not be replayed.
    pub why: Option<String>,
}

/// Opens a pool for reading, its logs replayed in memory, of which `memory_bytes` are used at most. As
/// `options` say otherwise; those that choose an older state are not for this.
pub async fn open(
    found: &FoundPool,
    options: &ImportOptions,
    surroundings: Surroundings,
    memory_bytes: u64,
) -> Result<Opened, ImportError> {
    let pool = import(found, &ImportOptions { readonly: true, ..options.clone() }).await?;
    // A log that cannot be looked at is in a dataset that reports so itself.
    let not_shown = unreplayed(&pool).await.unwrap_or_default();
    if not_shown.is_empty() {
        return Ok(Opened { pool, not_shown, why: None });
    }
    let left = Arc::new(AtomicU64::new(memory_bytes));
    let mut over = found.clone();
    for candidate in over.candidates.values_mut() {
        candidate.device = Arc::new(Overlay::new(&candidate.device, &left));
    }
    let options = ImportOptions { readonly: false, ..options.clone() };
    let replayed = async {
        let live = LivePool::import(&over, &options, surroundings).await?;
        let view = live.view();
        let left = unreplayed(&view).await.unwrap_or_default();
        Ok::<_, ImportError>((view, left))
    };
    Ok(match replayed.await {
        Ok((pool, not_shown)) => Opened { pool, not_shown, why: None },
        Err(error) => Opened { pool, not_shown, why: Some(error.to_string()) },
    })
}

/// The names of datasets whose intent logs hold records that no committed group has.
pub async fn unreplayed(pool: &Arc<Pool>) -> Result<Vec<String>> {
    let dsl = Dsl::open(pool).await?;
    let mut names = Vec::new();
    let mut dirs = vec![Arc::clone(dsl.root())];
    while let Some(dir) = dirs.pop() {
        if !dir.phys.head_dataset.is_none() {
            let head = dsl.head(&dir).await?;
            let id = ObjsetId(dir.phys.head_dataset.get());
            if !head.phys.bp.is_hole()
                && !head.is_inconsistent()
                && zil::has_records(pool, id, &log_header(pool, id, &head.phys.bp).await?).await
            {
                names.push(head.name.clone());
            }
        }
        dirs.extend(dsl.children(&dir).await?);
    }
    names.sort_unstable();
    Ok(names)
}

/// The header of the intent log of an object set, as the pool has it, without opening the dataset.
pub async fn log_header(pool: &Arc<Pool>, id: ObjsetId, root: &ondisk::blkptr::Blkptr) -> Result<ZilHeader> {
    let objset = Objset::open_without_key(pool, id, root).await?;
    let mut reader = Reader::new("intent log header", &objset.phys().zil_header, objset.phys().order);
    ZilHeader::read(&mut reader).map_err(Error::format(format!("objset {id}")))
}

/// A device whose writes are kept in memory.
#[derive(Debug)]
struct Overlay {
    below: Arc<dyn Device>,
    path: PathBuf,
    pages: Mutex<HashMap<u64, Box<[u8]>>>,
    /// Memory that all devices of the pool may still take.
    left: Arc<AtomicU64>,
}

impl Overlay {
    fn new(below: &Arc<dyn Device>, left: &Arc<AtomicU64>) -> Self {
        // No path, so that nothing opens what is below for writing.
        let path = PathBuf::from(format!("<copy of {}>", below.path().display()));
        Self { below: Arc::clone(below), path, pages: Mutex::default(), left: Arc::clone(left) }
    }

    /// Copies what was written of a range over what is below.
    fn cover(&self, offset: u64, bytes: &mut [u8]) {
        let pages = self.pages.lock().ignore_poison();
        for_pages(offset, bytes.len(), |page, within, range| {
            if let Some(kept) = pages.get(&page) {
                bytes[range.clone()].copy_from_slice(&kept[within..within + range.len()]);
            }
        });
    }

    fn failed(&self, offset: u64, length: u64, cause: Cause) -> IoError {
        IoError::new(&self.path, Operation::Write, offset, length, cause)
    }
}

/// Calls `each` for each page that a range touches: its number, where in it the range begins, and which bytes
/// of the range those are.
fn for_pages(offset: u64, length: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES) as usize;
        let here = (PAGE_BYTES as usize - within).min(length - done);
        each(at / PAGE_BYTES, within, done..done + here);
        done += here;
    }
}

impl Device for Overlay {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.below.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let mut bytes = self.below.read(offset, len).await?;
            self.cover(offset, &mut bytes);
            Ok(bytes)
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let length = data.len() as u64;
            let size_bytes = self.size_bytes();
            if offset.checked_add(length).is_none_or(|end| end > size_bytes) {
                return Err(self.failed(offset, length, Cause::OutOfRange { size_bytes }));
            }
            // The pages at both ends, of which only a part is written.
            let first = offset - offset % PAGE_BYTES;
            let end = (offset + length).next_multiple_of(PAGE_BYTES).min(size_bytes);
            let mut whole = self.read(first, (end - first) as usize).await?;
            let mut pages = self.pages.lock().ignore_poison();
            let (mut new, from) = (0, (offset - first) as usize);
            for_pages(first, whole.len(), |page, _, _| new += u64::from(!pages.contains_key(&page)));
            let spend = |left: u64| left.checked_sub(new * PAGE_BYTES);
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err() {
                // ENOSPC: the memory for this is used up.
                return Err(self.failed(offset, length, Cause::Os { errno: 28 }));
            }
            // Another write may have changed the ends meanwhile.
            for_pages(first, whole.len(), |page, within, range| {
                if let Some(kept) = pages.get(&page) {
                    whole[range.clone()].copy_from_slice(&kept[within..within + range.len()]);
                }
            });
            whole[from..from + data.len()].copy_from_slice(&data);
            for_pages(first, whole.len(), |page, _, range| {
                let mut kept = vec![0; PAGE_BYTES as usize].into_boxed_slice();
                kept[..range.len()].copy_from_slice(&whole[range]);
                pages.insert(page, kept);
            });
            Ok(data)
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: u64, _: u64) -> IoFuture<'_, ()> {
        // What is discarded may read as before.
        Box::pin(async { Ok(()) })
    }
}
