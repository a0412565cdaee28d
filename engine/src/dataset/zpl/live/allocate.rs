//! Ranges of files: reserved, zeroed, punched, copied; where data and holes are.
//!
//! ZFS writes a block elsewhere each time, so that space cannot be reserved for a file: a reservation only looks whether there is room now.

use ondisk::ObjectId;
use ondisk::sa::Attr;

use super::clone::Copy;
use super::{LiveZpl, WriteOptions};
use crate::dataset::range_locks::Access;
use crate::error::{Error, Result};

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// Room that a reservation of 100 bytes asks for (`zfs_fallocate_reserve_percent`).
const RESERVE_PERCENT: u64 = 110;

/// What `fallocate` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// There is to be room for the range.
    Reserve {
        /// The file does not become longer.
        keep_size: bool,
    },
    /// The range is to read as zeroes.
    ZeroRange {
        /// The file does not become longer.
        keep_size: bool,
    },
    /// The range is to be a hole. The file does not become longer.
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
        let _content = self.locks.content(file, offset..end, Access::Alone).await;
        let _locked = self.locks.lock(&[file]).await;
        let node = self.content(file).await?;
        node.require_resizable()?;
        let size = node.number(Attr::Size)?;
        if offset >= size || length == 0 {
            return Ok(());
        }
        self.warm(&node, offset).await?;
        self.warm(&node, end).await?;
        let tx = self.begin_cutting(&node, &[offset, end]).await?;
        self.log_punched(&tx, &node, offset, length.min(size - offset))?;
        node.object.punch(&tx, offset, if end >= size { u64::MAX } else { length }).await?;
        self.content_changed(&node, &tx, size).await
    }

    /// Copies a range of one file into another, up to the end of the first one, and tells how much that was. Ranges of one file must not overlap.
    /// Whole blocks are shared rather than copied, where the pool has the feature `block_cloning`.
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

    /// The first offset from `offset` on where data is; `None` when there is none up to the end of the file.
    pub async fn seek_data(&self, file: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.content(file).await?.znode.next_data(offset).await
    }

    /// The first offset from `offset` on where a hole is; every file ends in one. `None` beyond the end of the file.
    pub async fn seek_hole(&self, file: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.content(file).await?.znode.next_hole(offset).await
    }
}
