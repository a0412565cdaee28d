//! One pass: copying a snapshot of a volume, or what differs from the snapshot before.

use std::ops::Range;
use std::sync::Arc;

use ondisk::{Guid, ObjsetId};

use super::Reshape;
use crate::cache::Primary;
use crate::dmu::{Object, Objset, next_difference};
use crate::dsl::{Dsl, with_room};
use crate::error::{Error, Result};
use crate::pool::live::LivePool;
use crate::zvol::{LiveZvol, Zvol};

/// The most bytes that are read and written at once, unless a block has more.
const WINDOW_BYTES: u64 = 4 << 20;

/// A pass that is under way.
pub(in crate::pool::live) struct Pass {
    /// The snapshot of which the copy has everything.
    base: Option<Object>,
    from: Arc<Zvol>,
    to: Arc<LiveZvol>,
    /// What lies before is copied.
    pub at: u64,
    end: u64,
    /// Bytes of data that were copied.
    pub copied_bytes: u64,
    /// Bytes of data that the snapshot has.
    pub data_bytes: u64,
}

impl Pass {
    /// Opens the pass that the mark speaks of.
    pub async fn open(pool: &Arc<LivePool>, copy: ObjsetId, reshape: &Reshape) -> Result<Self> {
        let lost = || Error::NotFound(format!("the snapshot of {} that is copied", reshape.volume));
        let source = reshape.source.ok_or_else(lost)?;
        let copying = reshape.mark.copying.ok_or_else(lost)?;
        let (from, data_bytes) = snapshot(pool, source, copying).await?.ok_or_else(lost)?;
        let base = match reshape.mark.copied {
            Some(copied) => snapshot(pool, source, copied).await?.map(|(base, _)| base.object().clone()),
            None => None,
        };
        let to = pool.volume(copy).await?;
        if to.size() < from.size() {
            return Err(Error::Invalid(format!(
                "{} has {} bytes, more than its copy with {}: cancel, and begin again",
                reshape.volume,
                from.size(),
                to.size()
            )));
        }
        let end = from.size();
        let at = reshape.mark.offset.min(end);
        let data_bytes = data_bytes.min(end);
        let share = u128::from(data_bytes) * u128::from(at) / u128::from(end.max(1));
        let copied_bytes = u64::try_from(share).unwrap_or(0);
        Ok(Self { base, from, to, at, end, copied_bytes, data_bytes })
    }

    /// Whether all is copied.
    pub fn is_done(&self) -> bool {
        self.at >= self.end
    }

    /// Copies the next part. It ends soon.
    pub async fn advance(&mut self) -> Result<()> {
        let window = WINDOW_BYTES.max(self.to.block_size()).max(self.from.block_size());
        let Some(start) = self.next_start().await? else {
            self.at = self.end;
            return Ok(());
        };
        // Whole blocks of the copy are written at once.
        let most = (start - start % window).saturating_add(window).min(self.end);
        let span = self.from.object().span(start).await?;
        if span.is_hole && self.base.is_none() {
            let end = span.end.min(self.end);
            self.make_hole(start..end).await?;
            self.at = end;
            return Ok(());
        }
        let mut at = start;
        while at < most {
            let run = self.run(at, most).await?;
            match run.is_hole {
                true => self.make_hole(at..run.end).await?,
                false => self.copy(at..run.end).await?,
            }
            at = run.end;
            self.at = at;
            if let Some(base) = &self.base {
                let block = self.from.block_size();
                match next_difference(base, self.from.object(), at / block).await? {
                    Some(next) if next.saturating_mul(block) == at => {}
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Where there is something to do next.
    async fn next_start(&self) -> Result<Option<u64>> {
        let Some(base) = &self.base else { return Ok((self.at < self.end).then_some(self.at)) };
        let block = self.from.block_size();
        let next = next_difference(base, self.from.object(), self.at / block).await?;
        Ok(next.map(|next| next.saturating_mul(block).max(self.at)).filter(|start| *start < self.end))
    }

    /// The run of data or hole that begins at `at`: with a base only as far as each block of it differs.
    async fn run(&self, at: u64, most: u64) -> Result<Run> {
        let object = self.from.object();
        let first = object.span(at).await?;
        let block = self.from.block_size();
        let mut end = first.end.min(most);
        if let Some(base) = &self.base {
            end = end.min((at - at % block).saturating_add(block));
            while end < most && next_difference(base, object, end / block).await? == Some(end / block) {
                if object.span(end).await?.is_hole != first.is_hole {
                    break;
                }
                end = end.saturating_add(block).min(most);
            }
            return Ok(Run { end, is_hole: first.is_hole });
        }
        while end < most {
            let span = object.span(end).await?;
            if span.is_hole != first.is_hole {
                break;
            }
            end = span.end.min(most);
        }
        Ok(Run { end, is_hole: first.is_hole })
    }

    async fn copy(&mut self, range: Range<u64>) -> Result<()> {
        let length = range.end - range.start;
        let too_long = || Error::Invalid(format!("{length} bytes at once"));
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| too_long())?];
        self.from.read_at(range.start, &mut bytes).await?;
        let to = &self.to;
        with_room(to.txgs(), || to.copy_at(range.start, &bytes)).await?;
        self.copied_bytes = self.copied_bytes.saturating_add(length);
        Ok(())
    }

    /// Makes a range a hole, unless it is one.
    async fn make_hole(&self, range: Range<u64>) -> Result<()> {
        let length = range.end - range.start;
        let mut at = range.start;
        while at < range.end {
            let found = self.to.extents(at, range.end - at, 1).await?;
            let Some(extent) = found.first() else { break };
            if !extent.is_hole {
                return self.to.copy_hole(range.start, length).await;
            }
            at = at.saturating_add(extent.length.max(1));
        }
        Ok(())
    }
}

/// A run of a snapshot.
struct Run {
    end: u64,
    is_hole: bool,
}

/// A snapshot of a volume, and the bytes of data in it. `None` when there is no such snapshot any more.
async fn snapshot(pool: &Arc<LivePool>, volume: ObjsetId, guid: Guid) -> Result<Option<(Arc<Zvol>, u64)>> {
    let found = {
        let dsl = Dsl::open(&pool.view()).await?;
        let head = dsl.dataset_of_object(ondisk::ObjectId(volume.get())).await?;
        let snapshots = dsl.snapshots(&head).await?;
        snapshots.into_iter().find(|snapshot| snapshot.phys.guid == guid)
    };
    let Some(found) = found else { return Ok(None) };
    // It is held: its blocks stay as long as that.
    let view = pool.view_of_snapshots();
    let objset = Objset::open(&view, found.objset_id(), &found.phys.bp).await?;
    // What is read once must not displace what clients use.
    objset.primary().set(Primary::Metadata);
    objset.primary().set_secondary(Primary::None);
    Ok(Some((Zvol::open(&objset).await?, found.phys.uncompressed_bytes)))
}
