//! Where extracted files go: a directory that nothing extracted can lead out of.
//!
//! Every file is made relative to an open directory, by a single name, and never through a symbolic link: a
//! hostile pool can name its files as it likes and point its links where it likes, all of it stays below the
//! destination.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use engine::zpl::{Stat, Time};
use ondisk::zpl::FileType;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};

/// An open directory below the destination.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Why a name is not made.
fn checked(name: &[u8]) -> io::Result<&OsStr> {
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        let shown = name.escape_ascii();
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("'{shown}' cannot be the name of a file"),
        ));
    }
    Ok(OsStr::from_bytes(name))
}

impl Dir {
    /// Opens the destination, which the user named.
    pub fn open(path: &std::path::Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// A second handle.
    pub fn again(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Makes the directory `name`, which must not exist, open to its owner only until it is finished.
    pub fn make_dir(&self, name: &[u8]) -> io::Result<Self> {
        let name = checked(name)?;
        rustix::fs::mkdirat(&self.0, name, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Opens the directory `name`, making it where it does not exist.
    pub fn enter_or_make(&self, name: &[u8]) -> io::Result<Self> {
        match self.make_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(Self(rustix::fs::openat(&self.0, checked(name)?, flags, Mode::empty())?))
            }
            made => made,
        }
    }

    /// Makes the regular file `name`, which must not exist.
    pub fn make_file(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, checked(name)?, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes the symbolic link `name`.
    pub fn make_link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), &self.0, checked(name)?)?)
    }

    /// Makes the device, fifo or socket `name`.
    pub fn make_node(&self, name: &[u8], kind: FileType, (major, minor): (u32, u32)) -> io::Result<()> {
        use rustix::fs::FileType as F;
        let kind = match kind {
            FileType::CharDevice => F::CharacterDevice,
            FileType::BlockDevice => F::BlockDevice,
            FileType::Socket => F::Socket,
            _ => F::Fifo,
        };
        let device = rustix::fs::makedev(major, minor);
        Ok(rustix::fs::mknodat(&self.0, checked(name)?, kind, Mode::RUSR | Mode::WUSR, device)?)
    }

    /// Makes `name` another name of the file that lies at the path `earlier` below `root`, made here before.
    pub fn make_hard_link(&self, name: &[u8], root: &Dir, earlier: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &root.0,
            OsStr::from_bytes(earlier),
            &self.0,
            checked(name)?,
            AtFlags::empty(),
        )?)
    }

    /// Gives `name` its owner (if given), mode and times. In this order: a change of owner clears
    /// set-user-id bits.
    pub fn finish(&self, name: &[u8], stat: &Stat, kind: FileType, owner: bool) -> io::Result<()> {
        let name = checked(name)?;
        if owner {
            let (uid, gid) = (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid));
            rustix::fs::chownat(&self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if kind != FileType::Symlink {
            rustix::fs::chmodat(&self.0, name, Mode::from_raw_mode(stat.mode & 0o7777), AtFlags::empty())?;
        }
        let times = Timestamps { last_access: timespec(stat.atime), last_modification: timespec(stat.mtime) };
        Ok(rustix::fs::utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives the directory itself what [`Dir::finish`] gives a file in it.
    pub fn finish_self(&self, stat: &Stat, owner: bool) -> io::Result<()> {
        if owner {
            rustix::fs::fchown(&self.0, Some(Uid::from_raw(stat.uid)), Some(Gid::from_raw(stat.gid)))?;
        }
        rustix::fs::fchmod(&self.0, Mode::from_raw_mode(stat.mode & 0o7777))?;
        let times = Timestamps { last_access: timespec(stat.atime), last_modification: timespec(stat.mtime) };
        Ok(rustix::fs::futimens(&self.0, &times)?)
    }

    /// Sets an extended attribute of `name`, or of the directory itself.
    pub fn set_xattr(&self, name: Option<&[u8]>, attribute: &[u8], value: &[u8]) -> io::Result<()> {
        // There is no call for an attribute of a link by directory and name; the path through the open
        // directory is one.
        let mut path = format!("/proc/self/fd/{}", self.0.as_fd().as_raw_fd()).into_bytes();
        if let Some(name) = name {
            path.push(b'/');
            path.extend(checked(name)?.as_bytes());
        } else {
            path.extend(b"/.");
        }
        let (path, attribute) = (CString::new(path)?, CString::new(attribute)?);
        Ok(rustix::fs::lsetxattr(&path, &attribute, value, rustix::fs::XattrFlags::empty())?)
    }
}

fn timespec(time: Time) -> Timespec {
    if time.nanoseconds >= 1_000_000_000 {
        return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
    }
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}

/// Writes what is not zero: the rest stays a hole.
pub fn write_sparse(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    const UNIT: usize = 4096;
    let is_zero = |unit: &[u8]| unit.iter().all(|byte| *byte == 0);
    let mut start = 0;
    while start < bytes.len() {
        let run = |zero: bool| {
            bytes[start..]
                .chunks(UNIT)
                .take_while(|unit| is_zero(unit) == zero)
                .map(<[u8]>::len)
                .sum::<usize>()
        };
        start += run(true);
        if start < bytes.len() {
            let length =
                bytes[start..].chunks(UNIT).take_while(|unit| !is_zero(unit)).map(<[u8]>::len).sum::<usize>();
            file.write_all_at(&bytes[start..start + length], offset + start as u64)?;
            start += length;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        for name in [&b".."[..], b".", b"", b"a/b", b"/etc", b"a\0b"] {
            assert!(dir.make_file(name).is_err(), "{}", name.escape_ascii());
            assert!(dir.make_dir(name).is_err(), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = Dir::open(place.path()).unwrap();
        dir.make_link(b"way", outside.path().as_os_str().as_bytes()).unwrap();
        assert!(dir.enter_or_make(b"way").is_err());
        assert!(dir.make_file(b"way").is_err());
    }

    #[test]
    fn zeroes_become_holes_and_all_bytes_are_right() {
        let place = tempfile::tempdir().unwrap();
        let file = Dir::open(place.path()).unwrap().make_file(b"f").unwrap();
        let mut bytes = vec![0; 50_000];
        bytes[20_000] = 1;
        bytes[49_999] = 2;
        write_sparse(&file, 10_000, &bytes).unwrap();
        let mut read = Vec::new();
        File::open(place.path().join("f")).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(&read[10_000..], bytes);
    }
}
