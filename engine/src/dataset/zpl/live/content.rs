//! The content of files.
//!
//! A file of one block has a block as large as it needs, in steps of 512 bytes, up to `recordsize`; the block grows with the file. From the
//! second block on the size of blocks stays.

use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zpl::{FileType, ZnodeFlags};
use std::sync::atomic::Ordering;

use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dataset::zpl::Time;
use crate::error::Result;
use crate::txg::Tx;

/// Bytes that are written in one group at most.
const PIECE_BYTES: u64 = 1 << 20;
/// Largest file.
const MAX_BYTES: u64 = i64::MAX as u64;
const SECTOR: u64 = 512;

impl LiveZpl {
    /// Writes into a regular file.
    pub async fn write(&self, file: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let here = PIECE_BYTES - at % PIECE_BYTES;
            let (piece, later) = rest.split_at((rest.len() as u64).min(here) as usize);
            self.write_piece(file, at, piece).await?;
            at = at.saturating_add(piece.len() as u64);
            rest = later;
        }
        Ok(())
    }

    async fn write_piece(&self, file: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        let node = self.content(file).await?;
        let length = bytes.len() as u64;
        let end = offset.checked_add(length).filter(|end| *end <= MAX_BYTES);
        let end = end.ok_or_else(|| self.refuse(format!("object {file}"), errno::EFBIG))?;
        // Blocks of which only a part is written are brought into the cache before the group is held.
        let block_size = node.object.block_size();
        for edge in [offset, end] {
            if edge % block_size != 0 {
                node.object.block(edge / block_size).await?;
            }
        }
        let tx = self.begin(length).await?;
        let size = node.number(Attr::Size)?;
        self.grow(&node, &tx, end.max(size)).await?;
        node.object.write_at(&tx, offset, bytes).await?;
        self.content_changed(&node, &tx, end.max(size)).await
    }

    /// Makes a regular file shorter, or longer by a hole.
    pub async fn truncate(&self, file: ObjectId, size: u64) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.content(file).await?;
        if size > MAX_BYTES {
            return Err(self.refuse(format!("object {file}"), errno::EFBIG));
        }
        let old = node.number(Attr::Size)?;
        let tx = self.begin_freeing().await?;
        if size < old {
            node.object.punch(&tx, size, u64::MAX).await?;
        } else {
            self.grow(&node, &tx, size).await?;
        }
        self.content_changed(&node, &tx, size).await
    }

    /// Makes a range of a regular file a hole. Its size stays.
    pub async fn punch(&self, file: ObjectId, offset: u64, length: u64) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.content(file).await?;
        let size = node.number(Attr::Size)?;
        if offset >= size {
            return Ok(());
        }
        let tx = self.begin_freeing().await?;
        let length = if offset.saturating_add(length) >= size { u64::MAX } else { length };
        node.object.punch(&tx, offset, length).await?;
        self.content_changed(&node, &tx, size).await
    }

    /// A regular file.
    async fn content(&self, file: ObjectId) -> Result<Node> {
        let node = self.node(file).await?;
        match node.znode.file_type() {
            FileType::Regular => Ok(node),
            FileType::Directory => Err(self.refuse(format!("object {file}"), errno::EISDIR)),
            _ => Err(self.refuse(format!("object {file}"), errno::EINVAL)),
        }
    }

    /// Makes the only block of a file that ends at `end` large enough.
    pub(super) async fn grow(&self, node: &Node, tx: &Tx, end: u64) -> Result<()> {
        let record = u64::from(self.record_size.load(Ordering::Acquire));
        let block_size = node.object.block_size();
        let single = node.object.end() <= block_size;
        if end > block_size && single && (block_size < record || !block_size.is_power_of_two()) {
            let wanted = end.min(record.max(block_size.next_power_of_two())).next_multiple_of(SECTOR);
            node.object.set_block_size(tx, wanted as u32).await?;
        }
        Ok(())
    }

    pub(super) async fn content_changed(&self, node: &Node, tx: &Tx, size: u64) -> Result<()> {
        let now = Time::now();
        let flags = node.flags()?.0 | ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0;
        let values = Values::default()
            .number(Attr::Size, size)
            .number(Attr::Flags, flags)
            .time(Attr::Mtime, now)
            .time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await
    }
}
