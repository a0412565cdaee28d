//! Directories: looking up a name, and walking over all names.
//!
//! The walk's cookies are those of the Linux port: 0 is before `.`, 1 before `..`, 2 before the first entry
//! of the ZAP; any other is a position of the ZAP's own walk. A walk can be continued after the directory was
//! closed and opened again.

use ondisk::ObjectId;
use ondisk::zpl::{Dirent, FileType};

use super::{CaseSensitivity, Znode};
use crate::Result;
use crate::dmu::sa::Attr;
use crate::dmu::zap::{self, Key, Match, Value, Zap};

/// Cookies up to this one mean the beginning of the ZAP.
const FIRST_ZAP_COOKIE: u64 = 4;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its object number.
    pub object: ObjectId,
    /// Its inode number, as in `readdir`.
    pub ino: u64,
    /// Its type; `None` if the filesystem is too old to keep types in directories.
    pub file_type: Option<FileType>,
    /// The position at which the walk continues after this entry.
    pub cookie: u64,
}

impl Znode {
    /// The object with the name `name` in this directory; the filesystem's properties decide which names are
    /// equal.
    pub async fn lookup(&self, name: &[u8]) -> Result<Option<ObjectId>> {
        match name {
            b"." => return Ok(Some(self.id())),
            b".." => return self.parent().map(Some),
            _ => {}
        }
        let zap = self.zap().await?;
        let entry = match (self.zpl.rules.is_exact(), self.zpl.case) {
            (true, _) => zap.lookup(name).await?,
            (false, CaseSensitivity::Mixed) => {
                zap.lookup_normalized(name, Match::NormalizedCase).await?.map(|found| found.value)
            }
            (false, _) => zap.lookup_normalized(name, Match::Normalized).await?.map(|found| found.value),
        };
        entry.map(|value| self.dirent(&value).map(|dirent| dirent.object)).transpose()
    }

    /// The parent directory.
    pub fn parent(&self) -> Result<ObjectId> {
        self.attributes.required(Attr::Parent).map(ObjectId)
    }

    /// A walk over the directory that begins at `cookie`; 0 is the beginning.
    pub async fn read_dir(&self, cookie: u64) -> Result<DirCursor> {
        let zap = self.zap().await?;
        let zap_cookie = if cookie < FIRST_ZAP_COOKIE { 0 } else { cookie };
        Ok(DirCursor { entries: zap.cursor(zap_cookie), node: self.clone(), cookie })
    }

    async fn zap(&self) -> Result<Zap> {
        if self.file_type() != FileType::Directory {
            return Err(self.wrong_type("is no directory"));
        }
        Zap::open(&self.object).await
    }

    fn dirent(&self, value: &Value) -> Result<Dirent> {
        match value {
            Value::U64(numbers) if !numbers.is_empty() => Ok(Dirent::from_raw(numbers[0])),
            _ => Err(self.object.corrupt("a directory entry that is not a number")),
        }
    }
}

/// A walk over a directory.
#[derive(Debug)]
pub struct DirCursor {
    node: Znode,
    entries: zap::Cursor,
    cookie: u64,
}

impl DirCursor {
    /// The next entry, `.` and `..` first.
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        let special = match self.cookie {
            0 => Some((".", self.node.id())),
            1 => Some(("..", self.node.parent()?)),
            _ => None,
        };
        if let Some((name, object)) = special {
            self.cookie += 1;
            return Ok(Some(DirEntry {
                name: name.into(),
                object,
                ino: self.node.zpl.ino(object),
                file_type: Some(FileType::Directory),
                cookie: self.cookie,
            }));
        }
        let Some(entry) = self.entries.next().await? else {
            return Ok(None);
        };
        let Key::Name(name) = entry.key else {
            return Err(self.node.object.corrupt("a directory entry without a name"));
        };
        let dirent = self.node.dirent(&entry.value)?;
        self.cookie = entry.cookie;
        Ok(Some(DirEntry {
            name,
            object: dirent.object,
            ino: dirent.object.0,
            file_type: dirent.file_type,
            cookie: entry.cookie,
        }))
    }
}
