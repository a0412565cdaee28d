//! Ranges of files: reserved, zeroed, punched, copied, rewritten; and the search for data and holes.
//!
//! ZFS writes a block to a new place each time, so space cannot be reserved for a file: a reservation only
//! checks whether there is space now.

use ondisk::ObjectId;
use ondisk::accounting::Counted;
use ondisk::sa::Attr;

use super::clone::Copy;
use super::{LiveZpl, WriteOptions};
use crate::error::{Error, Result};
use crate::range_locks::Access;

/// The number of bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// The number of bytes that are rewritten at a time.
const REWRITE_BYTES: u64 = 1 << 20;
/// The space that a reservation of 100 bytes asks for (`zfs_fallocate_reserve_percent`).
const RESERVE_PERCENT: u64 = 110;

/// The operation of `fallocate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Checks that there is space for the range.
    Reserve {
        /// The file does not become longer.
        keep_size: bool,
    },
    /// Makes the range read as zeroes.
    ZeroRange {
        /// The file does not become longer.
        keep_size: bool,
    },
    /// Makes the range a hole. The file does not become longer.
    Punch,
}

impl LiveZpl {
    /// Reserves, zeroes or punches a range of a regular file (`fallocate`).
    pub async fn allocate(&self, file: ObjectId, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let allocated = self.allocate_range(file, mode, offset, length).await;
        self.settled(allocated).await
    }

    async fn allocate_range(
        &self,
        file: ObjectId,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let range = self.range(file, offset, length)?;
        if length == 0 {
            return Err(self.refuse(format!("object {file}"), super::errno::EINVAL));
        }
        let keep_size = match mode {
            AllocateMode::Reserve { keep_size } => {
                let (_, free) = self.room_figures();
                if length.saturating_add(length / 100 * (RESERVE_PERCENT - 100)) > free {
                    return Err(Error::NoSpace(format!("object {file}: {length} bytes")));
                }
                keep_size
            }
            AllocateMode::ZeroRange { keep_size } => {
                self.punch_range(file, offset, length).await?;
                keep_size
            }
            AllocateMode::Punch => return self.punch_range(file, offset, length).await,
        };
        let _content = self.locks.whole(file).await;
        if !keep_size && range.end > self.content(file).await?.number(Attr::Size)? {
            self.truncate_locked(file, range.end).await?;
        }
        Ok(())
    }

    /// Makes a range of a regular file a hole. Its size stays.
    pub async fn punch(&self, file: ObjectId, offset: u64, length: u64) -> Result<()> {
        let punched = self.punch_range(file, offset, length).await;
        self.settled(punched).await
    }

    pub(super) async fn punch_range(&self, file: ObjectId, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        self.punch_parts(file, offset..end).await?;
        let _content = self.locks.content(file, offset..end, Access::Alone).await;
        let _locked = self.locks.lock(&[file]).await;
        let node = self.content(file).await?;
        node.require_resizable()?;
        let size = node.number(Attr::Size)?;
        if offset >= size || length == 0 {
            return Ok(());
        }
        node.object.prepare_punch(offset..end).await?;
        let tx = self.begin_cutting(&node, &[offset, end]).await?;
        self.log_punched(&tx, &node, offset, length.min(size - offset))?;
        node.object.punch(&tx, offset, if end >= size { u64::MAX } else { length }).await?;
        self.content_changed(&node, &tx, size).await
    }

    /// Copies a range of one file into another, up to the end of the first one, and returns the number of
    /// copied bytes. Ranges of one file must not overlap. Whole blocks are shared rather than copied, if the
    /// pool has the feature `block_cloning`.
    pub async fn copy_range(
        &self,
        from: ObjectId,
        from_offset: u64,
        to: ObjectId,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let source = self.content(from).await?;
        let length = length.min(source.number(Attr::Size)?.saturating_sub(from_offset));
        let (of, into) = (self.range(from, from_offset, length)?, self.range(to, to_offset, length)?);
        if from == to && of.start < into.end && into.start < of.end {
            return Err(self.refuse(format!("object {to}"), super::errno::EINVAL));
        }
        let cloned = self.clone_range(Copy { from, from_offset, to, to_offset, length }).await;
        let mut done = self.settled(cloned).await?;
        let mut buffer = vec![0; (length - done).min(COPY_BYTES) as usize];
        while done < length {
            let piece = buffer.get_mut(..(length - done).min(COPY_BYTES) as usize).unwrap_or_default();
            let read = self.read(from, from_offset + done, piece).await?;
            if read == 0 {
                break;
            }
            let piece = piece.get(..read).unwrap_or_default();
            self.write(to, to_offset + done, piece, &WriteOptions::default()).await?;
            done += read as u64;
        }
        Ok(done)
    }

    /// Rewrites the blocks of a range of a regular file, to other places and in the way in which new blocks
    /// are written now; `length` 0 means up to the end. Nothing else of the file changes. With
    /// `keeps_births`, for which the pool needs the feature `physical_rewrite`, the contents of the blocks do
    /// not count as changed since a snapshot; their space does.
    pub async fn rewrite(&self, file: ObjectId, offset: u64, length: u64, keeps_births: bool) -> Result<()> {
        let rewritten = async {
            let size = self.content(file).await?.number(Attr::Size)?;
            let end = if length == 0 { size } else { offset.saturating_add(length).min(size) };
            let mut at = offset;
            while at < end {
                at = self.rewrite_piece(file, at, end, keeps_births).await?;
            }
            Ok(())
        };
        let rewritten = rewritten.await;
        self.settled(rewritten).await
    }

    /// Rewrites as much as fits a group. Returns the offset at which to continue.
    async fn rewrite_piece(&self, file: ObjectId, offset: u64, end: u64, keeps_births: bool) -> Result<u64> {
        let node = self.content(file).await?;
        let data = node.znode.object.next_data(offset, end).await?;
        if data >= end {
            return Ok(end);
        }
        let block_size = node.object.block_size();
        let first = data / block_size;
        let most = end.div_ceil(block_size).min(first + (REWRITE_BYTES / block_size).max(1));
        // Blocks of a hole need no work.
        let hole = node.znode.object.next_hole(first * block_size, most.saturating_mul(block_size)).await?;
        let after = hole.div_ceil(block_size).clamp(first + 1, most);
        let range = first * block_size..after.saturating_mul(block_size);
        let _content = self.locks.content(file, range.clone(), Access::Alone).await;
        let _described = self.locks.describe(file, Access::Shared).await;
        let node = self.content(file).await?;
        if node.object.block_size() != block_size {
            return Ok(data);
        }
        self.require_quota(node.owners()?, &[Counted::Bytes]).await?;
        for id in first..after.min(node.object.end().div_ceil(block_size)) {
            node.object.warm(id).await?;
        }
        let tx = self.begin_writing(&node, range.clone(), node.number(Attr::Size)?).await?;
        for id in first..after {
            node.object.rewrite(&tx, id, keeps_births).await?;
        }
        Ok(range.end)
    }

    /// The first offset from `offset` on with data; `None` when there is none up to the end of the file.
    pub async fn seek_data(&self, file: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.content(file).await?.znode.next_data(offset).await
    }

    /// The first offset from `offset` on in a hole; every file ends in one. `None` beyond the end of the
    /// file.
    pub async fn seek_hole(&self, file: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.content(file).await?.znode.next_hole(offset).await
    }
}
