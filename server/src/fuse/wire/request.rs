//! Requests.
//!
//! Fixed part of each, and what follows it; `-` marks unused fields:
//!
//! | opcode | | fixed part: size of each field | rest |
//! |---|---|---|---|
//! | 1 | lookup | | name |
//! | 2 | forget | lookups 8 | |
//! | 3 | getattr | - 16 | |
//! | 4 | setattr | valid 4, - 12, size 8, - 8, seconds of atime, mtime, ctime 8 each, nanoseconds of these 4 each, mode 4, - 4, uid 4, gid 4, - 4 | |
//! | 5 | readlink | | |
//! | 6 | symlink | | name, target |
//! | 8 | mknod | mode 4, rdev 4, umask 4, - 4 | name |
//! | 9 | mkdir | mode 4, umask 4 | name |
//! | 10, 11 | unlink, rmdir | | name |
//! | 12 | rename | new directory 8 | name, new name |
//! | 13 | link | file 8 | name |
//! | 14, 27 | open, opendir | flags 4, - 4 | |
//! | 15, 28, 44 | read, readdir, readdirplus | handle 8, offset 8, size 4, - 20 | |
//! | 16 | write | handle 8, offset 8, size 4, write flags 4, - 16 | data |
//! | 17 | statfs | | |
//! | 18, 29 | release, releasedir | handle 8, - 16 | |
//! | 20, 30 | fsync, fsyncdir | - 16 | |
//! | 21 | setxattr | size 4, flags 4 | name, value |
//! | 22, 23 | getxattr, listxattr | size 4, - 4 | name of the first |
//! | 24 | removexattr | | name |
//! | 25 | flush | - 24 | |
//! | 35, 51 | create, tmpfile | flags 4, mode 4, umask 4, - 4 | name |
//! | 38 | destroy | | |
//! | 39 | ioctl | handle 8, flags 4, command 4, argument 8, size of data 4, of the answer's 4 | data |
//! | 42 | batch forget | count 4, - 4 | count times: node 8, lookups 8 |
//! | 43 | fallocate | - 8, offset 8, length 8, mode 4, - 4 | |
//! | 45 | rename2 | new directory 8, flags 4, - 4 | name, new name |
//! | 46 | lseek | handle 8, offset 8, whence 4, - 4 | |
//! | 52 | statx | - 24 | |
//! | 47 | copy_file_range | - 8, offset 8, node of the target 8, - 8, offset there 8, length 8, - 8 | |
//!
//! Names end with a zero byte. What is not in the table is answered with `ENOSYS`, which tells the kernel not
//! to ask again, `interrupt` (36) too: no request here takes so long that it had to be called off.

use engine::dmu::Payload;
use engine::zpl::Time;
use fuser::{FileHandle, INodeNo};

use super::REQUEST_HEADER_BYTES;

/// Bits of `valid`: what a `setattr` sets.
mod valid {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_PRIVILEGES: u32 = 1 << 11;
}

/// Requests above this size take longer than waking a thread.
pub const LONG_BYTES: usize = 64 << 10;
/// The bytes of a write before its data.
pub const WRITE_HEAD_BYTES: usize = REQUEST_HEADER_BYTES + 40;
/// The number of that operation.
const WRITE: u32 = 16;
/// A write that takes away set-user-id and set-group-id.
const WRITE_KILLS_PRIVILEGES: u32 = 1 << 2;
/// A write of a page that the kernel kept.
const WRITE_OF_PAGE: u32 = 1 << 0;
/// An ioctl whose argument the server would have to fetch itself.
const IOCTL_UNRESTRICTED: u32 = 1 << 1;

/// The process that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The process.
    pub pid: u32,
}

/// The header of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    opcode: u32,
    /// The number that the answer repeats.
    pub unique: u64,
    /// The node that it is about.
    pub node: INodeNo,
    /// The process that asks.
    pub by: Caller,
}

impl Header {
    /// The header at the beginning of `bytes`, if they have one.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes.get(..REQUEST_HEADER_BYTES)?);
        fields.skip(4)?;
        Some(Self {
            opcode: fields.u32()?,
            unique: fields.u64()?,
            node: INodeNo(fields.u64()?),
            by: Caller { uid: fields.u32()?, gid: fields.u32()?, pid: fields.u32()? },
        })
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The number that the answer repeats.
    pub unique: u64,
    /// The node that it is about.
    pub node: INodeNo,
    /// The process that asks.
    pub by: Caller,
    /// The operation.
    pub operation: Operation<'a>,
}

/// A time to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The time when it is set.
    Now,
    /// This one.
    At(Time),
}

/// The changes of `setattr`.
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
    /// Last modification.
    pub mtime: Option<When>,
    /// Last change.
    pub ctime: Option<Time>,
    /// Set-user-id and set-group-id are to go.
    pub kill_privileges: bool,
}

/// The nodes of a batch of lookups that are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten<'a>(&'a [[u8; 16]]);

impl Forgotten<'_> {
    /// Them.
    pub fn nodes(&self) -> impl Iterator<Item = INodeNo> {
        self.0.iter().filter_map(|one| Fields(one).u64()).map(INodeNo)
    }
}

/// An operation on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the system calls")]
pub enum Operation<'a> {
    /// The object of a name.
    Lookup { name: &'a [u8] },
    /// The kernel does not know it any more. No answer is expected.
    Forget,
    /// The same of many.
    ForgetMany(Forgotten<'a>),
    /// Its attributes.
    GetAttributes,
    /// The same, and when it was created.
    StatX,
    /// To change them.
    SetAttributes(Wanted),
    /// Where a link leads.
    ReadLink,
    /// To make a link in it.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// To make a file of the type in the mode.
    MakeNode { name: &'a [u8], mode: u32, umask: u32, rdev: u32 },
    /// To make a directory.
    MakeDirectory { name: &'a [u8], mode: u32, umask: u32 },
    /// To remove a name.
    Unlink { name: &'a [u8] },
    /// To remove an empty directory.
    RemoveDirectory { name: &'a [u8] },
    /// To move an entry, by the flags of `renameat2`.
    Rename { name: &'a [u8], to: INodeNo, new_name: &'a [u8], flags: u32 },
    /// To give a file one more name in it.
    Link { file: INodeNo, name: &'a [u8] },
    /// To open it.
    Open { flags: i32 },
    /// Bytes of it.
    Read { handle: FileHandle, offset: u64, size: u32 },
    /// To change bytes of it; `from_page`: a page was mapped and changed, which the kernel writes back.
    Write { offset: u64, payload: Payload<'a>, kill_privileges: bool, from_page: bool },
    /// The figures of the filesystem.
    StatFs,
    /// To close a file or directory.
    Release { handle: FileHandle },
    /// To make it stable.
    Sync,
    /// To set an extended attribute.
    SetXattr { name: &'a [u8], value: &'a [u8], flags: i32 },
    /// The value of one, if it fits.
    GetXattr { name: &'a [u8], room: u32 },
    /// The names of all, if they fit.
    ListXattr { room: u32 },
    /// To remove one.
    RemoveXattr { name: &'a [u8] },
    /// Said when a descriptor is closed.
    Flush,
    /// To open it as a directory.
    OpenDirectory { flags: i32 },
    /// Its entries behind a cookie.
    ReadDirectory { handle: FileHandle, cookie: u64, room: u32 },
    /// The same with attributes.
    ReadDirectoryPlus { handle: FileHandle, cookie: u64, room: u32 },
    /// To make a file and open it.
    Create { name: &'a [u8], mode: u32, umask: u32, flags: i32 },
    /// To make a file without a name in a directory's filesystem and open it.
    CreateNameless { mode: u32, umask: u32, flags: i32 },
    /// An ioctl.
    Ioctl { command: u32, argument: &'a [u8] },
    /// `fallocate`.
    Allocate { offset: u64, length: u64, mode: i32 },
    /// `lseek` for data or holes.
    Seek { handle: FileHandle, offset: i64, whence: i32 },
    /// `copy_file_range`.
    CopyRange { offset: u64, to: INodeNo, to_offset: u64, length: u64 },
    /// The last request of all.
    Destroy,
    /// An unknown request.
    Unknown,
    /// A malformed request.
    Malformed,
}

impl<'a> Request<'a> {
    /// The request in `bytes`; `None` where there is not even a header.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::parse(bytes)?;
        let body = bytes.get(REQUEST_HEADER_BYTES..)?;
        let operation = match body.split_at_checked(fixed_bytes(header.opcode)) {
            Some((fixed, rest)) => Operation::parse(header.opcode, fixed, rest),
            None => None,
        };
        Some(Self::new(header, operation))
    }

    /// The request whose parts come one by one: a header, a fixed part with room behind it, and the rest;
    /// `None` where the header is cut short.
    pub fn of_parts(header: &[u8], fixed: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let header = Header::parse(header)?;
        Some(Self::new(header, Operation::parse(header.opcode, fixed, rest)))
    }

    /// Whether a request that begins with `head` is a write.
    pub fn is_write(head: &[u8]) -> bool {
        Header::parse(head).is_some_and(|header| header.opcode == WRITE)
    }

    /// The write that begins with `head`, and whose data come by themselves; `None` where there is no header.
    pub fn of_write(head: &'a [u8; WRITE_HEAD_BYTES], data: Payload<'a>) -> Option<Self> {
        let header = Header::parse(head)?;
        let fixed = head.get(REQUEST_HEADER_BYTES..)?;
        Some(Self::new(header, Operation::parse_write(Fields(fixed), data)))
    }

    fn new(header: Header, operation: Option<Operation<'a>>) -> Self {
        let Header { unique, node, by, .. } = header;
        Self { unique, node, by, operation: operation.unwrap_or(Operation::Malformed) }
    }
}

/// Bytes of the fixed part.
fn fixed_bytes(opcode: u32) -> usize {
    match opcode {
        2 | 9 | 12 | 13 | 14 | 21 | 22 | 23 | 27 | 42 => 8,
        3 | 8 | 20 | 30 | 35 | 45 | 51 => 16,
        18 | 25 | 29 | 46 | 52 => 24,
        39 | 43 => 32,
        15 | 16 | 28 | 44 => 40,
        47 => 56,
        4 => 88,
        _ => 0,
    }
}

impl<'a> Operation<'a> {
    fn parse(opcode: u32, fixed: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(fixed.get(..fixed_bytes(opcode))?);
        let mut rest = Rest(rest);
        Some(match opcode {
            1 => Self::Lookup { name: rest.name()? },
            2 => Self::Forget,
            3 => Self::GetAttributes,
            52 => Self::StatX,
            4 => Self::SetAttributes(fields.wanted()?),
            5 => Self::ReadLink,
            6 => Self::Symlink { name: rest.name()?, target: rest.name()? },
            8 => {
                let (mode, rdev, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
                Self::MakeNode { name: rest.name()?, mode, umask, rdev }
            }
            9 => Self::MakeDirectory { mode: fields.u32()?, umask: fields.u32()?, name: rest.name()? },
            10 => Self::Unlink { name: rest.name()? },
            11 => Self::RemoveDirectory { name: rest.name()? },
            12 | 45 => Self::Rename {
                to: INodeNo(fields.u64()?),
                flags: if opcode == 45 { fields.u32()? } else { 0 },
                name: rest.name()?,
                new_name: rest.name()?,
            },
            13 => Self::Link { file: INodeNo(fields.u64()?), name: rest.name()? },
            14 => Self::Open { flags: fields.i32()? },
            15 => Self::Read { handle: fields.handle()?, offset: fields.offset()?, size: fields.u32()? },
            WRITE => Self::parse_write(fields, rest.0.into())?,
            17 => Self::StatFs,
            18 | 29 => Self::Release { handle: fields.handle()? },
            20 | 30 => Self::Sync,
            21 => {
                let (size, flags) = (fields.u32()?, fields.i32()?);
                Self::SetXattr { name: rest.name()?, value: rest.bytes(size)?, flags }
            }
            22 => Self::GetXattr { room: fields.u32()?, name: rest.name()? },
            23 => Self::ListXattr { room: fields.u32()? },
            24 => Self::RemoveXattr { name: rest.name()? },
            25 => Self::Flush,
            27 => Self::OpenDirectory { flags: fields.i32()? },
            28 | 44 => {
                let (handle, cookie, room) = (fields.handle()?, fields.u64()?, fields.u32()?);
                match opcode {
                    28 => Self::ReadDirectory { handle, cookie, room },
                    _ => Self::ReadDirectoryPlus { handle, cookie, room },
                }
            }
            35 => {
                let (flags, mode, umask) = (fields.i32()?, fields.u32()?, fields.u32()?);
                Self::Create { name: rest.name()?, mode, umask, flags }
            }
            // The name that follows is no name.
            51 => {
                let (flags, mode, umask) = (fields.i32()?, fields.u32()?, fields.u32()?);
                Self::CreateNameless { mode, umask, flags }
            }
            38 => Self::Destroy,
            39 => {
                fields.skip(8)?;
                let (flags, command) = (fields.u32()?, fields.u32()?);
                fields.skip(8)?;
                let argument = rest.bytes(fields.u32()?)?;
                match flags & IOCTL_UNRESTRICTED {
                    0 => Self::Ioctl { command, argument },
                    _ => Self::Unknown,
                }
            }
            42 => {
                let count = usize::try_from(fields.u32()?).ok()?;
                Self::ForgetMany(Forgotten(rest.0.as_chunks().0.get(..count)?))
            }
            43 => {
                fields.skip(8)?;
                Self::Allocate { offset: fields.u64()?, length: fields.u64()?, mode: fields.i32()? }
            }
            46 => Self::Seek { handle: fields.handle()?, offset: fields.i64()?, whence: fields.i32()? },
            47 => {
                fields.skip(8)?;
                let (offset, to) = (fields.offset()?, INodeNo(fields.u64()?));
                fields.skip(8)?;
                Self::CopyRange { offset, to, to_offset: fields.offset()?, length: fields.u64()? }
            }
            _ => Self::Unknown,
        })
    }

    fn parse_write(mut fields: Fields<'_>, rest: Payload<'a>) -> Option<Self> {
        fields.skip(8)?;
        let (offset, size, flags) = (fields.offset()?, fields.u32()?, fields.u32()?);
        let size = usize::try_from(size).ok()?;
        let (payload, _) = rest.split_at(size);
        let kill_privileges = flags & WRITE_KILLS_PRIVILEGES != 0;
        let from_page = flags & WRITE_OF_PAGE != 0;
        let is_whole = payload.len() == size;
        is_whole.then_some(Self::Write { offset, payload, kill_privileges, from_page })
    }

    /// Whether there may be much to compute for it: more than to have another thread look for the next
    /// request.
    pub fn is_long(&self) -> bool {
        match self {
            Self::Read { size, .. } => *size as usize >= LONG_BYTES,
            Self::Write { payload, .. } => payload.len() >= LONG_BYTES,
            Self::CopyRange { .. } | Self::Allocate { .. } => true,
            _ => false,
        }
    }

    /// Whether the kernel may ask for it without saying who does.
    pub fn may_be_nobodys(&self) -> bool {
        matches!(
            self,
            Self::Forget
                | Self::ForgetMany(_)
                | Self::Read { .. }
                | Self::Write { .. }
                | Self::ReadDirectory { .. }
                | Self::ReadDirectoryPlus { .. }
                | Self::Release { .. }
                | Self::Sync
                | Self::Destroy
                | Self::Unknown
                | Self::Malformed
        )
    }
}

/// Numbers of a fixed part, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_ne_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_ne_bytes)
    }

    fn handle(&mut self) -> Option<FileHandle> {
        self.u64().map(FileHandle)
    }

    /// A place in a file, which is never negative.
    fn offset(&mut self) -> Option<u64> {
        self.i64().and_then(|offset| u64::try_from(offset).ok())
    }

    fn wanted(&mut self) -> Option<Wanted> {
        let given = self.u32()?;
        self.skip(12)?;
        let size = self.u64()?;
        self.skip(8)?;
        let seconds = [self.i64()?, self.i64()?, self.i64()?];
        let nanoseconds = [self.u32()?, self.u32()?, self.u32()?];
        let mode = self.u32()?;
        self.skip(4)?;
        let (uid, gid) = (self.u32()?, self.u32()?);
        let is = |bit: u32| given & bit != 0;
        let time = |place: usize| Time { seconds: seconds[place], nanoseconds: nanoseconds[place] };
        let when = |now: u32, place: usize| if is(now) { When::Now } else { When::At(time(place)) };
        Some(Wanted {
            mode: is(valid::MODE).then_some(mode),
            uid: is(valid::UID).then_some(uid),
            gid: is(valid::GID).then_some(gid),
            size: is(valid::SIZE).then_some(size),
            atime: is(valid::ATIME).then(|| when(valid::ATIME_NOW, 0)),
            mtime: is(valid::MTIME).then(|| when(valid::MTIME_NOW, 1)),
            ctime: is(valid::CTIME).then(|| time(2)),
            kill_privileges: is(valid::KILL_PRIVILEGES),
        })
    }
}

/// Names and data behind a fixed part.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Up to a zero byte, which must be there.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    fn bytes(&self, count: u32) -> Option<&'a [u8]> {
        self.0.get(..usize::try_from(count).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of process 7, user 1000, group 100, about node 42.
    fn request(opcode: u32, fixed: &[&[u8]], rest: &[u8]) -> Vec<u8> {
        let body = [&fixed.concat(), rest].concat();
        let length = (REQUEST_HEADER_BYTES + body.len()) as u32;
        let mut bytes = Vec::new();
        bytes.extend(length.to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(0x1122_3344u64.to_ne_bytes());
        bytes.extend(42u64.to_ne_bytes());
        for number in [1000u32, 100, 7, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(body);
        bytes
    }

    /// The operation.
    fn asked(bytes: &[u8]) -> Operation<'_> {
        let whole = Request::parse(bytes).unwrap();
        assert_eq!((whole.unique, whole.node), (0x1122_3344, INodeNo(42)));
        assert_eq!(whole.by, Caller { uid: 1000, gid: 100, pid: 7 });
        whole.operation
    }

    fn u32s(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn u64s(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn names_are_taken_up_to_their_end() {
        assert_eq!(asked(&request(1, &[], b"file\0")), Operation::Lookup { name: b"file" });
        assert_eq!(
            asked(&request(6, &[], b"link\0../there\0")),
            Operation::Symlink { name: b"link", target: b"../there" }
        );
        assert_eq!(
            asked(&request(45, &[&u64s(&[5]), &u32s(&[2, 0])], b"a\0bc\0")),
            Operation::Rename { name: b"a", to: INodeNo(5), new_name: b"bc", flags: 2 }
        );
        assert_eq!(
            asked(&request(12, &[&u64s(&[5])], b"a\0bc\0")),
            Operation::Rename { name: b"a", to: INodeNo(5), new_name: b"bc", flags: 0 }
        );
        assert_eq!(
            asked(&request(8, &[&u32s(&[0o10644, 3, 0o22, 0])], b"pipe\0")),
            Operation::MakeNode { name: b"pipe", mode: 0o10644, umask: 0o22, rdev: 3 }
        );
        assert_eq!(
            asked(&request(35, &[&u32s(&[0o301, 0o644, 0o22, 0])], b"new\0")),
            Operation::Create { name: b"new", mode: 0o644, umask: 0o22, flags: 0o301 }
        );
        assert_eq!(asked(&request(1, &[], b"file")), Operation::Malformed);
    }

    #[test]
    fn data_are_as_long_as_the_request_says() {
        let fixed = [u64s(&[9, 4096]), u32s(&[3, 4]), u64s(&[0]), u32s(&[0, 0])].concat();
        assert_eq!(
            asked(&request(16, &[&fixed], b"abc")),
            Operation::Write {
                offset: 4096,
                payload: (&b"abc"[..]).into(),
                kill_privileges: true,
                from_page: false
            }
        );
        assert_eq!(asked(&request(16, &[&fixed], b"ab")), Operation::Malformed);
        assert_eq!(
            asked(&request(21, &[&u32s(&[2, 1])], b"user.x\0v\0")),
            Operation::SetXattr { name: b"user.x", value: b"v\0", flags: 1 }
        );
        assert_eq!(asked(&request(21, &[&u32s(&[3, 1])], b"user.x\0v\0")), Operation::Malformed);
        let fixed = [u64s(&[1]), u32s(&[0, 0x8008_6601]), u64s(&[0]), u32s(&[0, 8])].concat();
        assert_eq!(
            asked(&request(39, &[&fixed], &[])),
            Operation::Ioctl { command: 0x8008_6601, argument: &[] }
        );
        let fixed = [u64s(&[9, 1 << 63]), u32s(&[1, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
        assert_eq!(asked(&request(15, &[&fixed], &[])), Operation::Malformed, "before the file");
    }

    #[test]
    fn attributes_are_set_as_far_as_they_are_named() {
        let seconds = [-1i64, 5, 6].map(|seconds| seconds as u64);
        let tail = u32s(&[7, 8, 9, 0o4755, 0, 1, 2, 0]);
        let fixed =
            |given: u32| [u32s(&[given, 0]), u64s(&[0, 77, 0]), u64s(&seconds), tail.clone()].concat();
        let all = 0b1101_0011_1111 & !(1 << 8);
        assert_eq!(
            asked(&request(4, &[&fixed(all)], &[])),
            Operation::SetAttributes(Wanted {
                mode: Some(0o4755),
                uid: Some(1),
                gid: Some(2),
                size: Some(77),
                atime: Some(When::At(Time { seconds: -1, nanoseconds: 7 })),
                mtime: Some(When::At(Time { seconds: 5, nanoseconds: 8 })),
                ctime: Some(Time { seconds: 6, nanoseconds: 9 }),
                kill_privileges: true,
            })
        );
        let now = Wanted { atime: Some(When::Now), mtime: Some(When::Now), ..Wanted::default() };
        assert_eq!(asked(&request(4, &[&fixed(0b1_1011_0000)], &[])), Operation::SetAttributes(now));
        assert_eq!(asked(&request(4, &[&fixed(0)], &[])), Operation::SetAttributes(Wanted::default()));
    }

    #[test]
    fn a_batch_is_no_longer_than_it_is() {
        let two = u64s(&[3, 1, 4, 1]);
        let bytes = request(42, &[&u32s(&[2, 0])], &two);
        let Operation::ForgetMany(forgotten) = asked(&bytes) else { panic!("no batch") };
        assert_eq!(forgotten.nodes().collect::<Vec<_>>(), [INodeNo(3), INodeNo(4)]);
        for count in [3, u32::MAX] {
            assert_eq!(asked(&request(42, &[&u32s(&[count, 0])], &two)), Operation::Malformed);
        }
    }

    #[test]
    fn no_bytes_are_too_few_or_too_strange() {
        assert_eq!(Request::parse(&[0; REQUEST_HEADER_BYTES - 1]), None);
        for opcode in (0..64).chain([4096, u32::MAX]) {
            for length in 0..128 {
                for byte in [0, 1, 0xff] {
                    let bytes = request(opcode, &[], &vec![byte; length]);
                    let operation = Request::parse(&bytes).unwrap().operation;
                    if length < fixed_bytes(opcode) {
                        assert_eq!(operation, Operation::Malformed);
                    }
                }
            }
        }
        for opcode in [0, 7, 19, 26, 31, 33, 34, 36, 37, 40, 41, 48, 4096] {
            assert_eq!(asked(&request(opcode, &[], &[])), Operation::Unknown);
        }
    }
}
