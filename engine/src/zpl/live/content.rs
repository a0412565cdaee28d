//! The content of files.
//!
//! A file of one block has a block as large as it needs, in steps of 512 bytes, up to `recordsize`; the block
//! grows with the file. After the second block the size of blocks stays.
//!
//! A writer has an exclusive lock on its range, so that reads see all of a write or nothing of it. Concurrent
//! writers share the file's attributes, and change them at the end in a way whose result does not depend on
//! the order, or on which of two groups they are in. An operation that appends, makes the block grow or
//! changes the size has an exclusive lock on all of the content.

use std::ops::Range;

use ondisk::ObjectId;
use ondisk::accounting::Counted;
use ondisk::sa::Attr;
use ondisk::zpl::{FileType, ZnodeFlags};

use super::attributes::{SetAttributes, without_privileges};
use super::locks::CONTENT_END;
use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dmu::Payload;
use crate::error::{Error, Result};
use crate::range_locks::Access;
use crate::txg::Tx;
use crate::zpl::Time;

/// The most bytes that are written in one group.
const PIECE_BYTES: u64 = 1 << 20;
/// The same when little space is left.
const LEAST_PIECE_BYTES: u64 = 128 << 10;
const SECTOR: u64 = 512;
/// The attributes that a write changes. All files have them in the bonus area, because they are the first
/// ones.
const STAMPED: [Attr; 5] = [Attr::Size, Attr::Flags, Attr::Mode, Attr::Mtime, Attr::Ctime];

/// The options of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Writes at the end of the file, wherever that is when the write has its turn.
    pub append: bool,
    /// Clears set-user-id, and set-group-id of a file that its group may execute.
    pub kill_privileges: bool,
    /// In addition, clears set-group-id in any case: a write by a caller that is not in the group.
    pub kill_setgid: bool,
    /// Keeps the times: the written data were changed before the times were set.
    pub keeps_times: bool,
}

impl LiveZpl {
    /// Reads at `offset` until `into` is full or the file ends; returns how many bytes were read. Sees all of
    /// a write or nothing of it.
    pub async fn read(&self, file: ObjectId, offset: u64, into: &mut [u8]) -> Result<usize> {
        let range = offset..offset.saturating_add(into.len() as u64);
        let _locked = self.locks.content(file, range, Access::Shared).await;
        let read = self.zpl.node(file).await?.read_at(offset, into).await?;
        self.objset.stats().count_read(read as u64);
        Ok(read)
    }

    /// Writes into a regular file, and returns the offset.
    pub async fn write(
        &self,
        file: ObjectId,
        offset: u64,
        bytes: &[u8],
        options: &WriteOptions,
    ) -> Result<u64> {
        self.write_payload(file, offset, bytes.into(), options).await
    }

    /// The same for bytes that may be in blocks already.
    pub async fn write_payload(
        &self,
        file: ObjectId,
        offset: u64,
        payload: Payload<'_>,
        options: &WriteOptions,
    ) -> Result<u64> {
        self.objset.stats().count_write(payload.len() as u64);
        let written = self.write_range(file, offset, payload, options).await;
        self.settled(written).await
    }

    async fn write_range(
        &self,
        file: ObjectId,
        offset: u64,
        payload: Payload<'_>,
        options: &WriteOptions,
    ) -> Result<u64> {
        let mut range = self.range(file, offset, payload.len() as u64)?;
        let mut whole = options.append;
        loop {
            let locked = if whole { 0..CONTENT_END } else { range.clone() };
            let _locked = self.locks.content(file, locked, Access::Alone).await;
            let node = self.content(file).await?;
            if options.append {
                range = self.range(file, node.number(Attr::Size)?, payload.len() as u64)?;
            }
            if !whole && self.grown(&node, range.end).is_some() {
                whole = true;
                continue;
            }
            let (mut at, mut rest) = (range.start, payload);
            let mut most = PIECE_BYTES;
            while !rest.is_empty() {
                let here = most - at % most;
                let (piece, later) = rest.split_at((rest.len() as u64).min(here) as usize);
                match self.write_piece(file, at, piece, options).await {
                    // If blocks take many times their size, a group may have space for less.
                    Err(Error::NoSpace(_)) if most > node.object.block_size().max(LEAST_PIECE_BYTES) => {
                        most = node.object.block_size().max(LEAST_PIECE_BYTES);
                        continue;
                    }
                    written => written?,
                }
                at = at.saturating_add(piece.len() as u64);
                rest = later;
            }
            return Ok(range.start);
        }
    }

    /// A range of a file, checked against the largest offset of files.
    pub(super) fn range(&self, file: ObjectId, offset: u64, length: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(length).filter(|end| *end <= CONTENT_END);
        Ok(offset..end.ok_or_else(|| self.refuse(format!("object {file}"), errno::EFBIG))?)
    }

    /// Writes as much as fits a group. The range is locked; all of the content, if the block has to grow.
    pub(super) async fn write_piece(
        &self,
        file: ObjectId,
        offset: u64,
        payload: Payload<'_>,
        options: &WriteOptions,
    ) -> Result<()> {
        let end = offset.saturating_add(payload.len() as u64);
        let mut access = Access::Shared;
        loop {
            let _locked = self.locks.describe(file, access).await;
            let node = self.content(file).await?;
            node.require_writable(offset)?;
            self.require_quota(node.owners()?, &[Counted::Bytes]).await?;
            let is_old = node.znode.attributes.is_old();
            if access == Access::Shared && !is_old && !self.registry()?.in_bonus(&node.object, &STAMPED)? {
                access = Access::Alone;
                continue;
            }
            node.object.prepare_write(offset..end).await?;
            let tx = self.begin_writing(&node, offset..end, end).await?;
            self.grow(&node, &tx, end).await?;
            node.object.write_payload(&tx, offset, payload).await?;
            let mut values = match options.keeps_times {
                true => changed(end, node.flags()?.0),
                false => stamped(end, node.flags()?.0, Time::now()),
            };
            let mode = without_privileges(node.znode.mode(), options.kill_setgid);
            if options.kill_privileges {
                values = values.number(Attr::Mode, mode.into());
            }
            if access == Access::Shared {
                let given = values.given().unwrap_or_default();
                match is_old {
                    true => self.merge_old(&node.object, &tx, &given, merge)?,
                    false => self.registry()?.merge(&node.object, &tx, &given, merge)?,
                };
            } else {
                values = values.number(Attr::Size, end.max(node.number(Attr::Size)?));
                self.update(&node.object, &tx, values).await?;
            }
            self.log_written(&tx, &node, offset, payload.len() as u64)?;
            if options.kill_privileges && mode != node.znode.mode() {
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                self.log_attributes(&tx, &node, &set)?;
            }
            return Ok(());
        }
    }

    /// Makes a regular file shorter, or longer with a hole.
    pub async fn truncate(&self, file: ObjectId, size: u64) -> Result<()> {
        let truncated = async {
            self.range(file, size, 0)?;
            self.punch_parts(file, size..u64::MAX).await?;
            let _content = self.locks.whole(file).await;
            self.truncate_locked(file, size).await
        };
        let truncated = truncated.await;
        self.settled(truncated).await
    }

    /// Must be called before a range of a regular file is made a hole, or cut off: all of it that would be
    /// too much for a group becomes a hole, part by part from the end. The caller makes all of the range a
    /// hole again, and logs that: what was written meanwhile was written before.
    pub(super) async fn punch_parts(&self, file: ObjectId, range: Range<u64>) -> Result<()> {
        let mut range = range;
        loop {
            let node = self.content(file).await?;
            if !node.object.has_parts() {
                return Ok(());
            }
            let (at, blocks) = node.object.last_part(&range).await?;
            self.txgs.wait_to_free(blocks).await?;
            if at <= range.start {
                return Ok(());
            }
            let _content = self.locks.content(file, at..range.end.min(CONTENT_END), Access::Alone).await;
            let _locked = self.locks.lock(&[file]).await;
            let node = self.content(file).await?;
            node.require_resizable()?;
            node.object.prepare_punch(at..range.end).await?;
            let tx = self.begin_cutting(&node, &[range.end]).await?;
            node.object.punch(&tx, at, range.end - at).await?;
            range.end = at;
        }
    }

    /// The same for a file with all of its content locked.
    pub(super) async fn truncate_locked(&self, file: ObjectId, size: u64) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.content(file).await?;
        node.require_resizable()?;
        node.object.prepare_punch(size..u64::MAX).await?;
        self.range(file, size, 0)?;
        let tx = self.begin_resizing(&node, size).await?;
        let set = SetAttributes { size: Some(size), mtime: Some(Time::now()), ..SetAttributes::default() };
        self.log_attributes(&tx, &node, &set)?;
        self.resize(&node, &tx, size).await?;
        self.content_changed(&node, &tx, size).await
    }

    /// Changes the size of the content; the caller changes the attribute.
    pub(super) async fn resize(&self, node: &Node, tx: &Tx, size: u64) -> Result<()> {
        if size < node.number(Attr::Size)? {
            node.object.punch(tx, size, u64::MAX).await
        } else {
            self.grow(node, tx, size).await
        }
    }

    /// A regular file.
    pub(super) async fn content(&self, file: ObjectId) -> Result<Node> {
        let node = self.node(file).await?;
        self.require_content(&node)?;
        Ok(node)
    }

    pub(super) fn require_content(&self, node: &Node) -> Result<()> {
        match node.znode.file_type() {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(self.refuse(format!("object {}", node.id()), errno::EISDIR)),
            _ => Err(self.refuse(format!("object {}", node.id()), errno::EINVAL)),
        }
    }

    /// The size that the only block of a file needs when the file ends at `end`, if it differs from the
    /// present one.
    pub(super) fn grown(&self, node: &Node, end: u64) -> Option<u32> {
        let record = u64::from(self.record_size());
        let block_size = node.object.block_size();
        let single = node.object.end() <= block_size;
        let wanted = end.min(record.max(block_size.next_power_of_two())).next_multiple_of(SECTOR);
        let may_grow = end > block_size && single && (block_size < record || !block_size.is_power_of_two());
        // At most 16 MiB.
        let wanted = node.object.fitting_block_size(wanted as u32);
        may_grow.then_some(wanted).filter(|wanted| u64::from(*wanted) != block_size)
    }

    /// Makes the only block of a file that ends at `end` large enough. If it has to grow, the caller has
    /// locked all of the content.
    pub(super) async fn grow(&self, node: &Node, tx: &Tx, end: u64) -> Result<()> {
        match self.grown(node, end) {
            Some(wanted) => node.object.set_block_size(tx, wanted).await,
            None => Ok(()),
        }
    }

    /// Updates the attributes of a file whose content was changed and whose exclusive lock is held.
    pub(super) async fn content_changed(&self, node: &Node, tx: &Tx, size: u64) -> Result<()> {
        self.update(&node.object, tx, stamped(size, node.flags()?.0, Time::now())).await
    }
}

fn changed(size: u64, flags: u64) -> Values {
    Values::default()
        .number(Attr::Size, size)
        .number(Attr::Flags, flags | ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0)
}

pub(super) fn stamped(size: u64, flags: u64, now: Time) -> Values {
    changed(size, flags).time(Attr::Mtime, now).time(Attr::Ctime, now)
}

/// Merges the attributes of a file after two concurrent writes: the later end, all flags, and no privilege
/// that one of them cleared.
pub(super) fn merge(attr: Attr, old: &mut [u8], new: &[u8]) {
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let merged = match attr {
        Attr::Flags => word(old) | word(new),
        Attr::Mode => word(old) & word(new),
        Attr::Size => word(old).max(word(new)),
        _ => return old.copy_from_slice(new),
    };
    old.copy_from_slice(&merged.to_le_bytes());
}
