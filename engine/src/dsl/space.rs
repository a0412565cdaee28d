//! What a dataset may still write, and what it has written since a snapshot.
//!
//! A directory's `available` is its parent's, plus what is left of its own reservation, at most what is left
//! of its quota; the pool's root may use the pool's space less the slop. A head adds what is left of its
//! refreservation and is bounded by its refquota. What was *written* since an older snapshot is what is
//! referenced now and was not then, plus what was written and overwritten meanwhile: the deadlists between
//! the two tell.

use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::bookmark::{BookmarkPhys, BookmarkSpace};
use ondisk::{ObjectId, Txg};

use super::{Dataset, Dir, Dsl, deadlist, pool_space};
use crate::dsl::pool_space::PoolSpace;
use crate::error::{Error, Result};

/// More snapshots than a dataset can have in a chain that does not loop.
const MAX_CHAIN: usize = 1 << 24;

/// A time since which space was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since {
    txg: Txg,
    /// What was referenced then.
    referenced: BookmarkSpace,
    /// What a bookmark noted for the deadlist behind it, which a snapshot still has.
    freed_before_next: Option<BookmarkSpace>,
}

impl Since {
    /// Since a snapshot.
    pub(crate) fn snapshot(snapshot: &Dataset) -> Since {
        let phys = &snapshot.phys;
        let referenced = BookmarkSpace {
            referenced_bytes: phys.referenced_bytes,
            compressed_bytes: phys.compressed_bytes,
            uncompressed_bytes: phys.uncompressed_bytes,
        };
        Since { txg: phys.creation_txg, referenced, freed_before_next: None }
    }

    /// Since a bookmark, if it says what was referenced.
    pub(crate) fn bookmark(mark: &BookmarkPhys) -> Option<Since> {
        let (referenced, freed) = mark.written()?;
        Some(Since { txg: mark.creation_txg, referenced, freed_before_next: Some(freed) })
    }
}

impl Dsl {
    /// The pool's space. Computed when first asked for; nothing changes it afterwards.
    pub async fn pool_space(&self) -> Result<&PoolSpace> {
        if let Some(space) = self.space.get() {
            return Ok(space);
        }
        let space = PoolSpace::load(self).await?;
        Ok(self.space.get_or_init(|| space))
    }

    /// Bytes of the ARC that dedup tables and their logs take.
    pub async fn dedup_cached_bytes(&self) -> Result<u64> {
        pool_space::dedup_cached_bytes(self.mos()).await
    }

    /// Bytes that may still be written below a directory.
    pub(crate) async fn dir_available(&self, dir: &Arc<Dir>) -> Result<u64> {
        let pool = self.pool_space().await?.adjusted_bytes();
        let mut chain: Vec<&Dir> = Vec::new();
        let mut next = Some(dir);
        while let Some(dir) = next {
            chain.push(dir);
            next = dir.parent.as_ref();
        }
        let mut available = u64::MAX;
        for dir in chain.into_iter().rev() {
            let phys = &dir.phys;
            let used = phys.used_bytes;
            let mut quota = if phys.quota == 0 { u64::MAX } else { phys.quota };
            if dir.parent.is_none() {
                quota = quota.min(pool);
            }
            if available != u64::MAX {
                available = available.saturating_add(phys.reserved.saturating_sub(used));
            }
            available = available.min(quota.saturating_sub(used));
        }
        Ok(available)
    }

    /// Bytes that may still be written to a head, whose refquota and refreservation are given.
    pub(crate) async fn available(&self, head: &Dataset, refquota: u64, refreservation: u64) -> Result<u64> {
        let reserved = refreservation.saturating_sub(head.phys.unique_bytes);
        let available = self.dir_available(&head.dir).await?.saturating_add(reserved);
        match refquota {
            0 => Ok(available),
            quota => Ok(available.min(quota.saturating_sub(head.phys.referenced_bytes))),
        }
    }

    /// Bytes written to `dataset` since the snapshot before it; `None` when there is none.
    pub(crate) async fn written(&self, dataset: &Dataset) -> Result<Option<u64>> {
        if dataset.phys.prev_snap.is_none() {
            return Ok(None);
        }
        let previous = self.mos.dataset(dataset.phys.prev_snap, dataset.name.clone(), &dataset.dir).await?;
        let written = self.written_after(dataset, &Since::snapshot(&previous)).await?;
        Ok(Some(written.referenced_bytes))
    }

    /// Bytes written to `dataset` since `older`, which must be a snapshot of it, or of what it is a clone of.
    pub async fn written_since(&self, dataset: &Dataset, older: &Dataset) -> Result<u64> {
        if !self.is_earlier_snapshot(older, dataset).await? {
            return Err(Error::Invalid(format!(
                "{} is not an earlier snapshot of {}",
                older.name, dataset.name
            )));
        }
        let written = self.written_after(dataset, &Since::snapshot(older)).await?;
        Ok(written.referenced_bytes)
    }

    /// Space written to a snapshot since an earlier one, or since a bookmark that says what was referenced.
    pub(crate) async fn space_written(&self, dataset: &Dataset, since: &Since) -> Result<BookmarkSpace> {
        self.written_after(dataset, since).await
    }

    /// Bytes written to `dataset` since a bookmark of the directory `dir`.
    pub async fn written_since_bookmark(
        &self,
        dataset: &Dataset,
        dir: &Dir,
        mark: &BookmarkPhys,
    ) -> Result<u64> {
        if !self.is_before(dataset, dir.object, mark.creation_txg).await? {
            return Err(Error::Invalid(format!("the bookmark is not of {}, or later", dataset.name)));
        }
        let Some(since) = Since::bookmark(mark) else {
            return Err(Error::Unsupported("the bookmark does not say what was referenced".to_owned()));
        };
        Ok(self.written_after(dataset, &since).await?.referenced_bytes)
    }

    /// Bytes that destroying all snapshots of one dataset from `first` to `last` gives back
    /// (`dsl_dataset_space_wouldfree`).
    pub async fn space_between(&self, first: &Dataset, last: &Dataset) -> Result<u64> {
        let mut freed = 0u64;
        let mut next = last.phys.next_snap;
        for _ in 0..MAX_CHAIN {
            if next == first.object || next.is_none() {
                return Ok(freed);
            }
            let phys = self.mos.dataset(next, last.name.clone(), &last.dir).await?.phys;
            let space = self.pool_space().await?;
            let dsize = |bp: &Blkptr| space.block_bytes(bp);
            let all = deadlist::total(&self.mos, phys.deadlist).await?;
            let older =
                deadlist::born_until(&self.mos, phys.deadlist, first.phys.prev_snap_txg, &dsize).await?;
            let of_range = all.referenced_bytes.saturating_sub(older.referenced_bytes);
            freed = freed.saturating_add(of_range);
            next = phys.prev_snap;
        }
        Err(Error::corrupt(&last.name, "its snapshots form a loop"))
    }

    async fn written_after(&self, dataset: &Dataset, since: &Since) -> Result<BookmarkSpace> {
        let mut overwritten = BookmarkSpace::default();
        let mut phys = dataset.phys;
        let mut steps = 0;
        while phys.prev_snap_txg > since.txg {
            let space = self.pool_space().await?;
            let dsize = |bp: &Blkptr| space.block_bytes(bp);
            let dead = deadlist::born_until(&self.mos, phys.deadlist, since.txg, &dsize).await?;
            deadlist::add(&mut overwritten, &dead);
            phys = self.mos.dataset(phys.prev_snap, dataset.name.clone(), &dataset.dir).await?.phys;
            steps += 1;
            if steps > MAX_CHAIN {
                return Err(Error::corrupt(&dataset.name, "its snapshots form a loop"));
            }
        }
        let dead = match since.freed_before_next {
            Some(freed) => freed,
            None => deadlist::total(&self.mos, phys.deadlist).await?,
        };
        deadlist::add(&mut overwritten, &dead);
        let (now, then) = (&dataset.phys, &since.referenced);
        let written = |now: u64, then: u64, overwritten: u64| {
            let written = i128::from(now) - i128::from(then) + i128::from(overwritten);
            u64::try_from(written).unwrap_or(0)
        };
        Ok(BookmarkSpace {
            referenced_bytes: written(
                now.referenced_bytes,
                then.referenced_bytes,
                overwritten.referenced_bytes,
            ),
            compressed_bytes: written(
                now.compressed_bytes,
                then.compressed_bytes,
                overwritten.compressed_bytes,
            ),
            uncompressed_bytes: written(
                now.uncompressed_bytes,
                then.uncompressed_bytes,
                overwritten.uncompressed_bytes,
            ),
        })
    }

    /// Whether `older` is an earlier snapshot of `dataset`, or of what that is a clone of.
    pub async fn is_earlier_snapshot(&self, older: &Dataset, dataset: &Dataset) -> Result<bool> {
        Ok(older.is_snapshot() && self.is_before(dataset, older.phys.dir, older.phys.creation_txg).await?)
    }

    /// Whether a bookmark of `txg` in the directory `dir` lies before `dataset`, directly or through its
    /// origins.
    pub(crate) async fn is_earlier_place(&self, dir: &Dir, txg: Txg, dataset: &Dataset) -> Result<bool> {
        self.is_before(dataset, dir.object, txg).await
    }

    /// Whether the snapshot of `txg` in the directory `dir` lies before `later`, directly or through its
    /// origins.
    async fn is_before(&self, later: &Dataset, dir: ObjectId, txg: Txg) -> Result<bool> {
        let mut later = later.clone();
        for _ in 0..MAX_CHAIN {
            if later.is_snapshot() && txg >= later.phys.creation_txg {
                return Ok(false);
            }
            if later.phys.dir == dir {
                return Ok(true);
            }
            let origin = self.mos.dir(later.phys.dir, String::new(), None).await?.phys.origin;
            if origin.is_none() {
                return Ok(false);
            }
            let origin = self.mos.dataset(origin, later.name.clone(), &later.dir).await?;
            if origin.phys.creation_txg == txg && origin.phys.dir == dir {
                return Ok(true);
            }
            later = origin;
        }
        Err(Error::corrupt(&later.name, "its origins form a loop"))
    }
}
