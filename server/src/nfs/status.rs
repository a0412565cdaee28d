//! What a client is told: the outcomes of NFS and of its protocol for mounting.
//!
//! Source of the facts: RFC 1813.

use engine::Error;

/// The outcome of a request that failed (`nfsstat3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Not the owner.
    pub const PERM: Self = Self(1);
    /// There is no such file.
    pub const NOENT: Self = Self(2);
    /// It could not be read or written.
    pub const IO: Self = Self(5);
    /// The user may not.
    pub const ACCES: Self = Self(13);
    /// It is there already.
    pub const EXIST: Self = Self(17);
    /// The two are of different filesystems.
    pub const XDEV: Self = Self(18);
    /// It is no directory.
    pub const NOTDIR: Self = Self(20);
    /// It is a directory.
    pub const ISDIR: Self = Self(21);
    /// The request makes no sense.
    pub const INVAL: Self = Self(22);
    /// Only reading is possible.
    pub const ROFS: Self = Self(30);
    /// A name that is too long.
    pub const NAMETOOLONG: Self = Self(63);
    /// A directory that is not empty.
    pub const NOTEMPTY: Self = Self(66);
    /// The file is gone.
    pub const STALE: Self = Self(70);
    /// A handle that is not ours.
    pub const BADHANDLE: Self = Self(10_001);
    /// The attributes are not what the client took them for.
    pub const NOT_SYNC: Self = Self(10_002);
    /// There is no such operation here.
    pub const NOTSUPP: Self = Self(10_004);
    /// There is no room for an answer.
    pub const TOOSMALL: Self = Self(10_005);
    /// Something failed here.
    pub const SERVERFAULT: Self = Self(10_006);
    /// A file of a type that cannot be created.
    pub const BADTYPE: Self = Self(10_007);
    /// The client is to try again later.
    pub const JUKEBOX: Self = Self(10_008);

    /// Whether it says something about the disks and not about the request.
    pub fn is_fault(self) -> bool {
        self == Self::IO || self == Self::SERVERFAULT
    }
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        match error {
            Error::NotFound(_) => Self::NOENT,
            Error::KeyNotLoaded { .. } => Self::ACCES,
            Error::Invalid(_) | Error::WrongType { .. } => Self::INVAL,
            Error::Unsupported(_) => Self::NOTSUPP,
            Error::ReadOnly(_) => Self::ROFS,
            Error::Exists(_) => Self::EXIST,
            Error::Busy(_) | Error::Suspended(_) => Self::JUKEBOX,
            Error::NoSpace(_) => Self(28),
            Error::Quota(_) => Self(69),
            Error::Panicked(_) => Self::SERVERFAULT,
            Error::Os { errno, .. } => Self::of_errno(*errno),
            _ => Self::IO,
        }
    }
}

impl Status {
    fn of_errno(errno: i32) -> Self {
        match errno {
            libc::EPERM => Self::PERM,
            libc::ENOENT => Self::NOENT,
            libc::ENXIO => Self(6),
            libc::EACCES => Self::ACCES,
            libc::EEXIST => Self::EXIST,
            libc::EXDEV => Self::XDEV,
            libc::ENODEV => Self(19),
            libc::ENOTDIR => Self::NOTDIR,
            libc::EISDIR => Self::ISDIR,
            libc::EINVAL | libc::EILSEQ => Self::INVAL,
            libc::EFBIG => Self(27),
            libc::ENOSPC => Self(28),
            libc::EROFS => Self::ROFS,
            libc::EMLINK => Self(31),
            libc::ENAMETOOLONG => Self::NAMETOOLONG,
            libc::ENOTEMPTY => Self::NOTEMPTY,
            libc::EDQUOT => Self(69),
            libc::ESTALE => Self::STALE,
            libc::ENOTSUP => Self::NOTSUPP,
            libc::EBUSY => Self::JUKEBOX,
            _ => Self::IO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_why() {
        let of = |error: Error| Status::from(&error).0;
        assert_eq!(of(Error::Quota("p".into())), 69);
        assert_eq!(of(Error::NoSpace("p".into())), 28);
        assert_eq!(of(Error::ReadOnly("p".into())), 30);
        assert_eq!(of(Error::Busy("p".into())), 10_008);
        assert_eq!(of(crate::files::stale()), 70);
        assert_eq!(of(Error::Os { what: String::new(), errno: libc::ENAMETOOLONG }), 63);
        assert_eq!(of(Error::Os { what: String::new(), errno: 12_345 }), 5);
    }
}
