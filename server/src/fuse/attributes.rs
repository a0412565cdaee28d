//! From the engine's attributes to FUSE's, and from its errors to error numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::dataset::zpl::{Stat, Time};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use ondisk::zpl::FileType as ZplType;

/// FUSE's file type of a mode. A mode of no known type is shown as a regular file, as OpenZFS's Linux port does.
pub fn file_type(kind: ZplType) -> FileType {
    match kind {
        ZplType::Directory => FileType::Directory,
        ZplType::Symlink => FileType::Symlink,
        ZplType::CharDevice => FileType::CharDevice,
        ZplType::BlockDevice => FileType::BlockDevice,
        ZplType::Fifo => FileType::NamedPipe,
        ZplType::Socket => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// The attributes of `stat`, for the node `number`.
pub fn attributes(number: INodeNo, stat: &Stat) -> FileAttr {
    let (major, minor) = stat.device;
    FileAttr {
        ino: number,
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.atime),
        mtime: system_time(stat.mtime),
        ctime: system_time(stat.ctime),
        crtime: system_time(stat.crtime),
        kind: file_type(ZplType::from_mode(stat.mode)),
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        // Linux's `new_encode_dev`: 12 bits of major between 8 and 12 bits of minor.
        rdev: (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12),
        blksize: stat.block_size,
        flags: 0,
    }
}

/// A directory that exists only here, with the times of `like`.
pub fn synthetic_directory(number: INodeNo, links: u32, like: &Stat) -> FileAttr {
    let mtime = system_time(like.mtime);
    FileAttr {
        ino: number,
        size: u64::from(links),
        blocks: 0,
        atime: mtime,
        mtime,
        ctime: mtime,
        crtime: mtime,
        kind: FileType::Directory,
        perm: 0o555,
        nlink: links,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}

/// A name that does not exist, to be remembered by the kernel.
pub fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Time) -> SystemTime {
    let whole = if time.seconds >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(time.seconds.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(time.seconds.unsigned_abs()))
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// A time that a program gives. The nanoseconds of the kernel count forwards, before 1970 too; there the library takes them for nanoseconds backwards, and this takes that back.
pub fn time(at: SystemTime) -> Time {
    let (seconds, part) = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => (0i64.checked_add_unsigned(since.as_secs()).unwrap_or(i64::MAX), since),
        Err(before) => {
            let before = before.duration();
            (0i64.checked_sub_unsigned(before.as_secs()).unwrap_or(i64::MIN), before)
        }
    };
    Time { seconds, nanoseconds: part.subsec_nanos() }
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
    fn times_before_1970_and_beyond_reason_do_not_panic() {
        let before = system_time(Time { seconds: -2, nanoseconds: 500_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1500));
        for seconds in [i64::MIN, i64::MAX] {
            system_time(Time { seconds, nanoseconds: 999_999_999 });
        }
    }

    #[test]
    fn times_and_device_numbers_come_back_as_they_were_given() {
        let ends = [(i64::MIN, 0), (i64::MIN + 1, 999_999_999), (i64::MAX, 999_999_999)];
        let usual = [(0, 0), (1_700_000_000, 5), (-1, 0), (-1, 999_999_999), (-2, 1)];
        for (seconds, nanoseconds) in usual.into_iter().chain(ends) {
            // As the library tells what the kernel asks for.
            let told = match u64::try_from(seconds) {
                Ok(seconds) => UNIX_EPOCH + Duration::new(seconds, nanoseconds),
                Err(_) => UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanoseconds),
            };
            assert_eq!(time(told), Time { seconds, nanoseconds });
        }
        // Major 0xabc, minor 0xdef12.
        let encoded = 0x12 | 0xabc << 8 | 0xdef00 << 12;
        assert_eq!(device_number(encoded), 0xabc << 20 | 0xdef12);
    }
}
