//! A call: who it is from, what it may, and how its answer is put together.
//!
//! All procedures answer alike: a status, and if that is not 0 so many fields that say "nothing" for
//! attributes that are not told. So a procedure writes what comes after a status of 0, and gives another
//! status where it fails.

use std::net::SocketAddr;
use std::sync::Arc;

use engine::Error;
use engine::zpl::Time;
use ondisk::zpl::FileType;

use super::clients::Clients;
use super::handle::{self, Handle};
use super::permission::{EXECUTE, WRITE, allows, allows_content};
use super::repeated::Repeated;
use super::rpc::{Call, Credentials};
use super::rules::{Grant, Rules};
use super::status::Status;
use super::xdr::{Garbage, Reader, Writer};
use crate::files::{Attributes, FileId, Files, FilesystemId, Named, Share, Shares};

/// The longest name in a request that is looked at.
const MOST_NAME_BYTES: usize = 4096;

/// What all connections share.
#[derive(Debug)]
pub struct Server<S> {
    /// The shares.
    pub shares: S,
    /// The clients so far.
    pub clients: Arc<Clients>,
    /// Answers to requests that may come again.
    pub repeated: Repeated,
}

/// A call, and the server that does it.
pub struct Context<'a, S> {
    /// The server.
    pub server: &'a Server<S>,
    /// Where the call comes from.
    pub peer: SocketAddr,
    /// The call.
    pub call: &'a Call,
}

/// A share as one call has it.
pub struct Opened<F> {
    /// Its files.
    pub files: F,
    /// What the client may.
    pub grant: Grant,
    /// The user.
    pub by: Credentials,
    /// Its number.
    pub id: FilesystemId,
    name: String,
}

impl<S: Shares> Context<'_, S>
where
    S::Share: Share<Rules = Rules>,
{
    /// The share behind a handle, and the number of the file.
    pub fn open(&self, handle: Option<Handle>) -> Result<(Opened<S::Files>, FileId), Status> {
        let handle = handle.ok_or(Status::BADHANDLE)?;
        let shares = &self.server.shares;
        let share = shares.find(handle.filesystem).ok_or_else(|| match shares.is_complete() {
            true => Status::STALE,
            false => Status::JUKEBOX,
        })?;
        Ok((self.open_share(&share)?, handle.file))
    }

    /// Opens a share for the client.
    pub fn open_share(&self, share: &Arc<S::Share>) -> Result<Opened<S::Files>, Status> {
        let (address, port) = (self.peer.ip(), self.peer.port());
        let grant = share.rules().and_then(|rules| rules.grant(address, port)).ok_or(Status::ACCES)?;
        let name = share.name().to_owned();
        let files = self.server.shares.open(share).map_err(|error| {
            tracing::debug!(%error, name, "a share is not opened");
            Status::from(&error)
        })?;
        let by = grant.user(self.call.by.as_ref());
        Ok(Opened { files, grant, by, id: share.id(), name })
    }
}

impl<F: Files> Opened<F> {
    /// What the client is told of an error; one that says something about the disks is logged.
    pub fn told(&self, what: &str, file: FileId, error: &Error) -> Status {
        let status = Status::from(error);
        if status.is_fault() {
            tracing::error!("cannot {what} object {} of '{}': {error}", file.object, self.name);
        }
        status
    }

    /// The attributes of a file.
    pub fn stat(&self, file: FileId) -> Result<Attributes, Status> {
        self.files.stat(file).map_err(|error| self.told("read the attributes of", file, &error))
    }

    /// The attributes of a directory.
    pub fn directory(&self, file: FileId) -> Result<Attributes, Status> {
        let found = self.stat(file)?;
        if found.kind == FileType::Directory { Ok(found) } else { Err(Status::NOTDIR) }
    }

    /// The file of a name.
    pub fn lookup(&self, at: Named<'_>) -> Result<Option<Attributes>, Status> {
        self.files.lookup(at).map_err(|error| self.told("look up a name in", at.dir, &error))
    }

    fn acl(&self, file: &Attributes) -> Result<Option<Vec<u8>>, Status> {
        if self.by.is_root() || self.by.uid == file.uid {
            return Ok(None);
        }
        self.files.acl(file.id).map_err(|error| self.told("read the ACL of", file.id, &error))
    }

    /// Whether the user may do all that is wanted.
    pub fn may(&self, file: &Attributes, wanted: u32) -> Result<bool, Status> {
        Ok(allows(file, self.acl(file)?.as_deref(), &self.by, wanted))
    }

    /// Refuses what the user may not.
    pub fn require(&self, file: &Attributes, wanted: u32) -> Result<(), Status> {
        if self.may(file, wanted)? { Ok(()) } else { Err(Status::ACCES) }
    }

    /// Refuses the content of a file that is no regular one, or that the user may not have.
    pub fn require_content(&self, file: &Attributes, wanted: u32) -> Result<(), Status> {
        match file.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::ISDIR),
            _ => return Err(Status::INVAL),
        }
        let is_allowed = allows_content(file, self.acl(file)?.as_deref(), &self.by, wanted);
        if is_allowed { Ok(()) } else { Err(Status::ACCES) }
    }

    /// Refuses changes where there may be none.
    pub fn require_changeable(&self, file: FileId) -> Result<(), Status> {
        let may_be = !self.grant.is_read_only && self.files.is_writable() && file.snapshot == 0;
        if may_be { Ok(()) } else { Err(Status::ROFS) }
    }

    /// A directory whose entries the user may change.
    pub fn changeable_directory(&self, dir: FileId) -> Result<Attributes, Status> {
        let found = self.directory(dir)?;
        self.require_changeable(dir)?;
        self.require(&found, WRITE | EXECUTE)?;
        Ok(found)
    }

    /// Ends a change of names or attributes.
    pub fn settle(&self, file: FileId) -> Result<(), Status> {
        if !self.grant.is_sync {
            return Ok(());
        }
        self.files.make_stable(file).map_err(|error| self.told("make stable", file, &error))
    }

    /// Writes attributes.
    pub fn write_attributes(&self, writer: &mut Writer, file: &Attributes) {
        let kind = match file.kind {
            FileType::Directory => 2,
            FileType::BlockDevice => 3,
            FileType::CharDevice => 4,
            FileType::Symlink => 5,
            FileType::Socket => 6,
            FileType::Fifo => 7,
            _ => 1,
        };
        for field in [kind, file.mode, file.links, file.uid, file.gid] {
            writer.number(field);
        }
        writer.long(file.size);
        writer.long(file.used_bytes);
        writer.number(file.device.0);
        writer.number(file.device.1);
        writer.long(self.id.pool.rotate_left(32) ^ self.id.dataset);
        writer.long(file.number);
        for time in [file.atime, file.mtime, file.ctime] {
            writer.number(time.seconds.clamp(0, i64::from(u32::MAX)) as u32);
            writer.number(time.nanoseconds);
        }
    }

    /// Writes attributes after an operation, if they can be had.
    pub fn write_after(&self, writer: &mut Writer, file: FileId) {
        let found = self.files.stat(file).ok();
        writer.flag(found.is_some());
        if let Some(found) = found {
            self.write_attributes(writer, &found);
        }
    }

    /// Writes attributes before and after a change. Those before are not told: another client may have
    /// changed the file between.
    pub fn write_change(&self, writer: &mut Writer, file: FileId) {
        writer.flag(false);
        self.write_after(writer, file);
    }

    /// Writes the handle of a file.
    pub fn write_handle(&self, writer: &mut Writer, file: FileId) {
        handle::write(writer, Handle { filesystem: self.id, file });
    }
}

/// A directory by its handle, and a name in it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The handle.
    pub dir: Option<Handle>,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> Place<'a> {
    /// Reads both.
    pub fn read(arguments: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self { dir: handle::read(arguments)?, name: arguments.opaque(MOST_NAME_BYTES)? })
    }

    /// The name, if it can be one of an entry.
    pub fn checked(&self) -> Result<&'a [u8], Status> {
        match self.name {
            b"" => Err(Status::INVAL),
            name if name.contains(&0) || name.contains(&b'/') => Err(Status::INVAL),
            name => Ok(name),
        }
    }

    /// The name, if it can be one that is created or removed. `dots` is said of `.` and `..`.
    pub fn own(&self, dots: Status) -> Result<&'a [u8], Status> {
        match self.checked()? {
            b"." | b".." => Err(dots),
            name => Ok(name),
        }
    }
}

/// A time that is to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The present one.
    Now,
    /// This one.
    At(Time),
}

/// Attributes that are to be set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<When>,
    /// Last change.
    pub mtime: Option<When>,
}

impl Wanted {
    /// Reads them.
    pub fn read(arguments: &mut Reader<'_>) -> Result<Self, Garbage> {
        let number = |arguments: &mut Reader<'_>| match arguments.flag()? {
            true => arguments.number().map(Some),
            false => Ok(None),
        };
        let when = |arguments: &mut Reader<'_>| match arguments.number()? {
            0 => Ok(None),
            1 => Ok(Some(When::Now)),
            2 => time(arguments).map(|time| Some(When::At(time))),
            _ => Err(Garbage),
        };
        Ok(Self {
            mode: number(arguments)?.map(|mode| mode & 0o7777),
            uid: number(arguments)?,
            gid: number(arguments)?,
            size: if arguments.flag()? { Some(arguments.long()?) } else { None },
            atime: when(arguments)?,
            mtime: when(arguments)?,
        })
    }
}

/// Reads a time.
pub fn time(arguments: &mut Reader<'_>) -> Result<Time, Garbage> {
    let (seconds, nanoseconds) = (i64::from(arguments.number()?), arguments.number()?);
    if nanoseconds < 1_000_000_000 { Ok(Time { seconds, nanoseconds }) } else { Err(Garbage) }
}
