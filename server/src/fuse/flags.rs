//! The ioctls behind `lsattr`, `chattr`, project ids, and the attributes that DOS and SMB know.
//!
//! | ioctl | argument |
//! |---|---|
//! | `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS` | flags, 4 bytes |
//! | `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR` | `struct fsxattr`: flags, extent size, extents, project, copy-on-write extent size (4 bytes each), 8 unused |
//! | `FS_IOC_GETVERSION` | the file's generation, 4 bytes |
//! | `ZFS_IOC_GETDOSFLAGS`, `ZFS_IOC_SETDOSFLAGS` | flags as files keep them, 8 bytes |
//! | `ZFS_IOC_REWRITE` | offset, length, flags, 0: 8 bytes each |
//!
//! All in the order of the machine. The kernel checks who may change what, but for the last, which it does
//! not know: there it is checked here. It does not tell who has which capabilities. So for these a superuser
//! is whose user number is 0, and what takes `CAP_LINUX_IMMUTABLE` remains for `chattr`.
//!
//! Source: Linux `uapi/linux/fs.h`; `include/sys/fs/zfs.h` and behaviour of OpenZFS 2.3 (`zpl_file.c`).

use std::sync::Arc;

use engine::pool::live::LivePool;
use engine::zpl::Stat;
use engine::zpl::live::SetAttributes;
use engine::{Error, Result};
use fuser::INodeNo;
use ondisk::features::Feature;
use ondisk::zpl::ZnodeFlags;

use super::served::Served;
use super::wire::Caller;

/// The number of the ioctl that writes blocks of a file again (`zfs rewrite`): offset, length (0: up to the
/// end), flags and 0, in words of 8 bytes.
pub const ZFS_IOC_REWRITE: u32 = 0x4020_8303;
/// Its flag that lets blocks keep their logical births.
pub const REWRITE_KEEPS_BIRTHS: u64 = 1;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// Which file of several that had its number one after the other it is.
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const ZFS_IOC_GETDOSFLAGS: u32 = 0x8008_8301;
const ZFS_IOC_SETDOSFLAGS: u32 = 0x4008_8302;
const FSXATTR_BYTES: usize = 28;
/// Where in it the project is.
const PROJECT_AT: usize = 12;

/// A flag as `lsattr` shows it, as in `fsxattr`, and as a file stores it.
const FLAGS: [(u32, u32, ZnodeFlags); 4] = [
    (0x10, 0x08, ZnodeFlags::IMMUTABLE),
    (0x20, 0x10, ZnodeFlags::APPENDONLY),
    (0x40, 0x80, ZnodeFlags::NODUMP),
    (0x2000_0000, 0x200, ZnodeFlags::PROJINHERIT),
];

/// Flags that only `chattr` changes.
const GUARDED: u64 = ZnodeFlags::IMMUTABLE.0 | ZnodeFlags::APPENDONLY.0;
/// Flags of the DOS ioctls (`ZFS_DOS_FL_USER_VISIBLE`).
const DOS_FLAGS: u64 = GUARDED
    | ZnodeFlags::NOUNLINK.0
    | ZnodeFlags::ARCHIVE.0
    | ZnodeFlags::NODUMP.0
    | ZnodeFlags::SYSTEM.0
    | ZnodeFlags::HIDDEN.0
    | ZnodeFlags::READONLY.0
    | ZnodeFlags::REPARSE.0
    | ZnodeFlags::OFFLINE.0
    | ZnodeFlags::SPARSE.0;

impl Served {
    /// Answers an ioctl of `by`.
    pub(super) fn ioctl(
        &self,
        number: INodeNo,
        command: u32,
        argument: &[u8],
        by: Caller,
    ) -> Result<Vec<u8>> {
        let word = |at: usize| {
            let bytes = argument.get(at..).and_then(|rest| rest.first_chunk::<4>());
            bytes
                .map(|bytes| u32::from_ne_bytes(*bytes))
                .ok_or_else(|| Error::Invalid("ioctl cut short".into()))
        };
        match command {
            FS_IOC_GETFLAGS => {
                let stat = self.znode(number)?.1.stat()?;
                Ok(shown(&stat, |(lsattr, _, _)| lsattr).to_ne_bytes().to_vec())
            }
            FS_IOC_GETVERSION => {
                let generation = self.znode(number)?.1.stat()?.generation;
                // As many bits as the kernel keeps.
                Ok((generation as u32).to_ne_bytes().to_vec())
            }
            FS_IOC_FSGETXATTR => {
                let stat = self.znode(number)?.1.stat()?;
                let mut reply = vec![0; FSXATTR_BYTES];
                reply[..4].copy_from_slice(&shown(&stat, |(_, xflag, _)| xflag).to_ne_bytes());
                reply[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&stat.project.to_ne_bytes());
                Ok(reply)
            }
            FS_IOC_SETFLAGS => self.set_flags(number, word(0)?, |(lsattr, _, _)| lsattr, None),
            FS_IOC_FSSETXATTR => {
                self.set_flags(number, word(0)?, |(_, xflag, _)| xflag, Some(word(PROJECT_AT)?))
            }
            ZFS_IOC_GETDOSFLAGS => {
                let stat = self.znode(number)?.1.stat()?;
                Ok((stat.flags.0 & DOS_FLAGS).to_ne_bytes().to_vec())
            }
            ZFS_IOC_SETDOSFLAGS => {
                let given = argument.first_chunk().ok_or_else(|| Error::Invalid("ioctl cut short".into()))?;
                self.set_dos_flags(number, u64::from_ne_bytes(*given), by)
            }
            ZFS_IOC_REWRITE => self.rewrite(number, argument, by),
            _ => Err(Error::Os { what: format!("ioctl {command:#x}"), errno: libc::ENOTTY }),
        }
    }

    /// The kernel does not tell what the file was opened for; so only who could open it for writing whatever
    /// its mode may do this.
    fn rewrite(&self, number: INodeNo, argument: &[u8], by: Caller) -> Result<Vec<u8>> {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(argument.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let [offset, length, flags, zero] = words;
        let refuse = |errno| Err(Error::Os { what: format!("rewriting with flags {flags:#x}"), errno });
        if argument.len() != 32 || flags & !REWRITE_KEEPS_BIRTHS != 0 || zero != 0 {
            return refuse(libc::EINVAL);
        }
        let keeps_births = flags & REWRITE_KEEPS_BIRTHS != 0;
        let has_feature = |pool: &Arc<LivePool>| pool.feature_count(Feature::PhysicalRewrite).is_some();
        if keeps_births && !self.trees.pool().is_some_and(has_feature) {
            return refuse(libc::ENOTSUP);
        }
        let (zpl, object) = self.changeable(number)?;
        if by.uid != 0 && by.uid != self.znode(number)?.1.stat()?.uid {
            return refuse(libc::EACCES);
        }
        self.with_room(|| zpl.rewrite(object, offset, length, keeps_births))?;
        Ok(Vec::new())
    }

    fn set_dos_flags(&self, number: INodeNo, given: u64, by: Caller) -> Result<Vec<u8>> {
        let (zpl, object) = self.changeable(number)?;
        if given & !DOS_FLAGS != 0 {
            return Err(Error::Unsupported(format!("file flags {given:#x}")));
        }
        let stat = self.znode(number)?.1.stat()?;
        let refuse = |errno| Err(Error::Os { what: format!("file flags {given:#x}"), errno });
        if (given ^ stat.flags.0) & GUARDED != 0 {
            return refuse(libc::EPERM);
        }
        if by.uid != 0 && by.uid != stat.uid {
            return refuse(libc::EACCES);
        }
        let flags = Some(ZnodeFlags(stat.flags.0 & !DOS_FLAGS | given));
        device::block_on(zpl.set_attributes(object, &SetAttributes { flags, ..SetAttributes::default() }))?;
        Ok(Vec::new())
    }

    fn set_flags(
        &self,
        number: INodeNo,
        given: u32,
        which: fn((u32, u32, ZnodeFlags)) -> u32,
        project: Option<u32>,
    ) -> Result<Vec<u8>> {
        let (zpl, object) = self.changeable(number)?;
        if given & !FLAGS.into_iter().map(which).fold(0, |all, bit| all | bit) != 0 {
            return Err(Error::Unsupported(format!("file flags {given:#x}")));
        }
        let stat = self.znode(number)?.1.stat()?;
        let mut flags = stat.flags.0;
        for flag in FLAGS {
            let is_set = given & which(flag) != 0;
            flags = if is_set { flags | flag.2.0 } else { flags & !flag.2.0 };
        }
        let set = SetAttributes {
            flags: Some(ZnodeFlags(flags)),
            project: project.filter(|project| *project != stat.project).map(u64::from),
            ..SetAttributes::default()
        };
        device::block_on(zpl.set_attributes(object, &set))?;
        Ok(Vec::new())
    }
}

fn shown(stat: &Stat, which: fn((u32, u32, ZnodeFlags)) -> u32) -> u32 {
    let has = FLAGS.into_iter().filter(|(_, _, flag)| stat.flags.contains(*flag));
    has.map(which).fold(0, |all, bit| all | bit)
}
