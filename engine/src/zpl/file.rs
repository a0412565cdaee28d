//! [`Znode`]: an open file of any type. [`File`]: a file that is read in order.

use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::{Stat, Zpl};
use crate::dmu::sa::{Attr, Attributes};
use crate::dmu::{Object, Reader, Span};
use crate::stats::DatasetStats;
use crate::{Error, Result};

/// The longest target of a symbolic link (`MAXPATHLEN`).
const MAX_TARGET: usize = 4096;

/// An open file, directory, link or device.
#[derive(Clone, Debug)]
pub struct Znode {
    pub(super) zpl: Arc<Zpl>,
    pub(super) object: Object,
    pub(super) attributes: Arc<Attributes>,
    mode: u32,
    size: u64,
}

impl Znode {
    pub(super) async fn open(zpl: &Arc<Zpl>, id: ObjectId) -> Result<Self> {
        let object = zpl.objset.object(id).await?;
        let attributes = Arc::new(zpl.attributes.of(&object).await?);
        let mode = attributes.required(Attr::Mode)?;
        let mode = u32::try_from(mode).map_err(|_| object.corrupt(format!("mode is {mode:#o}")))?;
        let size = attributes.required(Attr::Size)?;
        Ok(Self { zpl: Arc::clone(zpl), object, attributes, mode, size })
    }

    /// Object number.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// The object that holds the content.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// File type and permission bits.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Size in bytes; of a directory, the number of entries.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The type of the file.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode)
    }

    /// The result of `stat`.
    pub fn stat(&self) -> Result<Stat> {
        Stat::of(self)
    }

    /// Reads at `offset` until `into` is full or the file ends; returns how many bytes were read.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let length = self.readable(offset, into.len())?;
        self.object.read_at(offset, &mut into[..length]).await?;
        Ok(length)
    }

    /// The part of a read that lies within the file.
    fn readable(&self, offset: u64, length: usize) -> Result<usize> {
        if self.file_type() == FileType::Directory {
            return Err(self.wrong_type("is a directory"));
        }
        let left = self.size.saturating_sub(offset);
        Ok(usize::try_from(left).map_or(length, |left| left.min(length)))
    }

    /// A handle that reads ahead.
    pub fn open_file(&self) -> File {
        let objset = self.object.objset();
        let stats = objset.pool().datasets.of(objset.id());
        File { reader: Reader::new(self.object.clone()), node: self.clone(), stats }
    }

    /// The first offset from `offset` on with data; `None` when the rest of the file is a hole.
    pub async fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let found = self.object.next_data(offset, self.size).await?;
        Ok((found < self.size).then_some(found))
    }

    /// The first offset from `offset` on in a hole; every file ends in one. `None` beyond the end of the
    /// file.
    pub async fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        if offset >= self.size {
            return Ok(None);
        }
        self.object.next_hole(offset, self.size).await.map(Some)
    }

    /// The run of data or hole at `offset`, cut at the end of the file.
    pub async fn span(&self, offset: u64) -> Result<Span> {
        let span = self.object.span(offset).await?;
        Ok(Span { end: span.end.min(self.size), ..span })
    }

    /// The target of a symbolic link.
    pub async fn read_link(&self) -> Result<Vec<u8>> {
        if self.file_type() != FileType::Symlink {
            return Err(self.wrong_type("is no symbolic link"));
        }
        if let Some(target) = self.attributes.bytes(Attr::Symlink) {
            return Ok(target.to_vec());
        }
        let length = usize::try_from(self.size).ok().filter(|length| *length <= MAX_TARGET);
        let length =
            length.ok_or_else(|| self.object.corrupt(format!("symbolic link of {} bytes", self.size)))?;
        // Before system attributes, a short target was in the bonus area after the znode, a long one in the
        // first block.
        if let Some(target) = self.attributes.after_znode().and_then(|rest| rest.get(..length)) {
            return Ok(target.to_vec());
        }
        self.object.read_all(self.size, MAX_TARGET).await
    }

    pub(super) fn wrong_type(&self, detail: &str) -> Error {
        let what = format!("objset {}, object {}", self.zpl.objset.id(), self.id());
        Error::WrongType { what, detail: detail.to_owned() }
    }
}

/// An open file that is mostly read in order.
#[derive(Debug)]
pub struct File {
    node: Znode,
    reader: Reader,
    stats: Arc<DatasetStats>,
}

impl File {
    /// The file.
    pub fn node(&self) -> &Znode {
        &self.node
    }

    /// Reads at `offset` until `into` is full or the file ends; returns how many bytes were read. Blocks are
    /// loaded ahead of sequential reads.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let length = self.node.readable(offset, into.len())?;
        self.stats.count_read(length as u64);
        self.reader.read_at(offset, &mut into[..length]).await?;
        Ok(length)
    }
}
