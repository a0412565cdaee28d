//! From the engine's attributes to FUSE's, and from its errors to error numbers.

use engine::zpl::Stat;
use fuser::{Errno, INodeNo};
use ondisk::zpl::FileType;

use super::wire::Attributes;

/// The type bits of a mode. A type that Linux does not know is shown as a regular file, as OpenZFS's Linux
/// port does.
pub fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Fifo => libc::S_IFIFO,
        FileType::Socket => libc::S_IFSOCK,
        _ => libc::S_IFREG,
    }
}

/// The attributes of `stat`, for the node `number`.
pub fn attributes(number: INodeNo, stat: &Stat) -> Attributes {
    let (major, minor) = stat.device;
    Attributes {
        number,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        btime: stat.crtime,
        mode: type_bits(FileType::from_mode(stat.mode)) | stat.mode & 0o7777,
        links: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        // Linux's `new_encode_dev`: 12 bits of major between 8 and 12 bits of minor.
        rdev: (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12),
        block_size: stat.block_size,
    }
}

/// A directory that exists only here, with the times of `like`.
pub fn synthetic_directory(number: INodeNo, links: u32, like: &Stat, mode: u32) -> Attributes {
    Attributes {
        size: u64::from(links),
        atime: like.mtime,
        mtime: like.mtime,
        ctime: like.mtime,
        btime: like.crtime,
        links,
        block_size: 512,
        ..Attributes::unknown(number, libc::S_IFDIR | mode)
    }
}

/// A device number as files keep it, from Linux's `new_encode_dev`.
pub fn device_number(encoded: u32) -> u64 {
    let (major, minor) = ((encoded >> 8) & 0xfff, (encoded & 0xff) | ((encoded >> 12) & 0xf_ff00));
    u64::from(major) << 20 | u64::from(minor)
}

/// The error number for a program.
pub fn errno(error: &engine::Error) -> Errno {
    use engine::Error as E;
    match error {
        E::NotFound(_) => Errno::ENOENT,
        E::KeyNotLoaded { .. } => Errno::EACCES,
        E::Invalid(_) | E::WrongType { .. } => Errno::EINVAL,
        E::Unsupported(_) => Errno::ENOTSUP,
        E::ReadOnly(_) => Errno::EROFS,
        E::Exists(_) => Errno::EEXIST,
        E::Busy(_) => Errno::EBUSY,
        E::NoSpace(_) => Errno::ENOSPC,
        E::Quota(_) => Errno::EDQUOT,
        E::Os { errno, .. } => Errno::from_i32(*errno),
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back_as_they_were_given() {
        // Major 0xabc, minor 0xdef12.
        let encoded = 0x12 | 0xabc << 8 | 0xdef00 << 12;
        assert_eq!(device_number(encoded), 0xabc << 20 | 0xdef12);
    }
}
