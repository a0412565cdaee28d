//! The result of `stat` for a file.

use ondisk::zpl::{Fuid, ZnodeFlags};

use super::Znode;
use crate::Result;
use crate::dmu::sa::Attr;

/// The number of bits of the minor number in a device number, in the kernel's own encoding.
const MINOR_BITS: u32 = 20;

/// A moment, in seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

impl Time {
    /// The stored form in attributes.
    pub(super) fn stored(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[8..].copy_from_slice(&u64::from(self.nanoseconds).to_le_bytes());
        bytes
    }

    /// Nanoseconds since 1970.
    pub fn as_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// The result of `stat`, as in the Linux port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Generation: distinguishes files that had the same inode number one after the other.
    pub generation: u64,
    /// File type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project, 0 when the file has none.
    pub project: u32,
    /// Number of links.
    pub nlink: u32,
    /// Size in bytes; of a directory, the number of entries.
    pub size: u64,
    /// Space allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of reads.
    pub block_size: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Last access.
    pub atime: Time,
    /// Last modification of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// Flags of ZFS, such as immutable and hidden.
    pub flags: ZnodeFlags,
    /// Object number of the file's directory; for an attribute's file, of the file to which it belongs.
    pub parent: u64,
}

impl Stat {
    pub(super) fn of(node: &Znode) -> Result<Self> {
        let attributes = &node.attributes;
        let time = |attr| -> Result<Time> {
            let [seconds, nanoseconds] = attributes.pair(attr)?;
            Ok(Time { seconds: seconds as i64, nanoseconds: (nanoseconds % 1_000_000_000) as u32 })
        };
        let flags = ZnodeFlags(attributes.required(Attr::Flags)?);
        let project = if !flags.contains(ZnodeFlags::PROJID) {
            0
        } else {
            attributes.number(Attr::ProjectId).unwrap_or(0)
        };
        let device = attributes.number(Attr::Rdev).unwrap_or(0) as u32;
        let dnode = node.object.dnode();
        Ok(Self {
            ino: node.zpl.ino(node.id()),
            generation: attributes.required(Attr::Gen)?,
            mode: node.mode(),
            // An owner may be a number within a Windows domain (FUID); the Linux port shows the number and
            // drops the domain.
            uid: Fuid(attributes.required(Attr::Uid)?).id(),
            gid: Fuid(attributes.required(Attr::Gid)?).id(),
            project: project as u32,
            nlink: attributes.required(Attr::Links)? as u32,
            size: node.size(),
            blocks: (dnode.used_bytes().saturating_add(256) / 512).saturating_add(dnode.slots()),
            block_size: u32::try_from(dnode.data_block_size()).unwrap_or(u32::MAX),
            device: (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1)),
            atime: time(Attr::Atime)?,
            mtime: time(Attr::Mtime)?,
            ctime: time(Attr::Ctime)?,
            crtime: time(Attr::Crtime)?,
            flags,
            parent: attributes.required(Attr::Parent)?,
        })
    }
}
