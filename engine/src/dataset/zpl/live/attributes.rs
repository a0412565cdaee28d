//! Mode, owner, times and flags.

use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zpl::ZnodeFlags;

use super::LiveZpl;
use super::nodes::Values;
use crate::dataset::zpl::{Time, trivial};
use crate::error::Result;

/// Permission bits of a mode; the others are the file's type.
const PERMISSIONS: u32 = 0o7777;
/// Flags that say what the ACL is like.
const ACL_FLAGS: u64 = ZnodeFlags::ACL_TRIVIAL.0
    | ZnodeFlags::INHERIT_ACE.0
    | ZnodeFlags::ACL_OBJ_ACE.0
    | ZnodeFlags::ACL_PROTECTED.0
    | ZnodeFlags::ACL_DEFAULTED.0
    | ZnodeFlags::ACL_AUTO_INHERIT.0
    | ZnodeFlags::NO_EXECS_DENIED.0;
/// Flags that somebody may set: DOS attributes, immutable and the like.
const SETTABLE: u64 = ZnodeFlags::READONLY.0
    | ZnodeFlags::HIDDEN.0
    | ZnodeFlags::SYSTEM.0
    | ZnodeFlags::ARCHIVE.0
    | ZnodeFlags::IMMUTABLE.0
    | ZnodeFlags::NOUNLINK.0
    | ZnodeFlags::APPENDONLY.0
    | ZnodeFlags::NODUMP.0
    | ZnodeFlags::OPAQUE.0
    | ZnodeFlags::REPARSE.0
    | ZnodeFlags::OFFLINE.0
    | ZnodeFlags::SPARSE.0;

/// Attributes that are to be changed; the others stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttributes {
    /// Permission bits. The ACL becomes the trivial one.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last modification of the content.
    pub mtime: Option<Time>,
    /// Flags of ZFS: those that can be set at all become what is given.
    pub flags: Option<ZnodeFlags>,
}

impl LiveZpl {
    /// Changes attributes of a file.
    pub async fn set_attributes(&self, file: ObjectId, set: &SetAttributes) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        let mut values = Values::default();
        let old = node.flags()?.0;
        let mut flags = old;
        if let Some(given) = set.flags {
            flags = flags & !SETTABLE | given.0 & SETTABLE;
        }
        if let Some(mode) = set.mode {
            let mode = node.znode.mode() & !PERMISSIONS | mode & PERMISSIONS;
            let (count, aces) = trivial::stored(mode, node.is_directory())?;
            flags = flags & !ACL_FLAGS | trivial::flags(mode, node.is_directory());
            values = values
                .number(Attr::Mode, mode.into())
                .number(Attr::DaclCount, count)
                .bytes(Attr::DaclAces, aces);
        }
        for (attr, id) in [(Attr::Uid, set.uid), (Attr::Gid, set.gid)] {
            if let Some(id) = id {
                values = values.number(attr, id.into());
            }
        }
        for (attr, time) in [(Attr::Atime, set.atime), (Attr::Mtime, set.mtime)] {
            if let Some(time) = time {
                values = values.time(attr, time);
            }
        }
        if flags != old {
            values = values.number(Attr::Flags, flags);
        }
        let tx = self.begin_freeing().await?;
        self.update(&node.object, &tx, values.time(Attr::Ctime, Time::now())).await
    }

    /// Notes that a file was read: its access time becomes `now`, and nothing else.
    pub async fn accessed(&self, file: ObjectId, now: Time) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        let tx = self.begin_freeing().await?;
        self.update(&node.object, &tx, Values::default().time(Attr::Atime, now)).await
    }
}
