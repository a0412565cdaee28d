//! Answers.
//!
//! | answer | fields: size |
//! |---|---|
//! | attributes | number 8, size 8, blocks 8, seconds of atime, mtime, ctime 8 each, nanoseconds of these 4 each, mode 4, links 4, uid 4, gid 4, rdev 4, size of blocks 4, 0 4: 88 in all |
//! | to getattr, setattr | how long attributes last: seconds 8, nanoseconds 4; 0 4; attributes |
//! | to statx | how long attributes last: seconds 8, nanoseconds 4; 0 20; what follows that is known 4, size of blocks 4, 0 8, links 4, uid 4, gid 4, mode 2, 0 2, number 8, size 8, blocks 8, 0 8, atime, btime, ctime, mtime: seconds 8, nanoseconds 4, 0 4 each; major and minor of the device 4 each, 0 120: 288 in all |
//! | entry: to lookup, mknod and the like | node 8, generation 8, seconds that the name lasts 8, that attributes last 8, nanoseconds of the two 4 each, attributes: 128 in all |
//! | opened: to open, opendir | handle 8, flags 4, 0 4 |
//! | to create | entry, opened |
//! | to write, copy_file_range, and to getxattr, listxattr without room | bytes 4, 0 4 |
//! | to statfs | blocks 8, free 8, available 8, files 8, free files 8, size of blocks 4, of names 4, of fragments 4, 0 28 |
//! | to ioctl | result 4, 0 4, 1 4, pieces of data 4, data |
//! | to lseek | offset 8 |
//! | entry of a directory | number 8, cookie behind it 8, length of the name 4, type 4, name, zeros up to a multiple of 8 |
//! | the same with attributes | entry of 128, then the above |
//!
//! A name that does not exist is an entry of node 0.

use std::time::Duration;

use engine::zpl::Time;
use fuser::{Errno, FileHandle, INodeNo};

use super::ANSWER_HEADER_BYTES;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 128;
/// Bytes of a directory's entry without its name.
const DIRENT_BYTES: usize = 24;

/// The header of an answer: an error, or how many bytes follow.
pub fn answer_header(unique: u64, answer: Result<usize, Errno>) -> [u8; ANSWER_HEADER_BYTES] {
    let (length, error) = match answer {
        Ok(length) => (length, 0),
        Err(errno) => (0, -errno.code()),
    };
    let mut bytes = [0; ANSWER_HEADER_BYTES];
    // No room has 4 GiB.
    bytes[..4].copy_from_slice(&((ANSWER_HEADER_BYTES + length) as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&error.to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// A file's attributes for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The number by which the kernel knows it, or that programs see.
    pub number: INodeNo,
    /// Bytes.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Creation; only `statx` tells it.
    pub btime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device, as Linux encodes its numbers.
    pub rdev: u32,
    /// Preferred size of reads, in bytes.
    pub block_size: u32,
}

impl Attributes {
    /// Of `number` only the type is known.
    pub fn unknown(number: INodeNo, mode: u32) -> Self {
        let time = Time::default();
        Self {
            number,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            mode,
            links: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 0,
        }
    }
}

/// The object of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameAnswer<'a> {
    /// Attributes, with the number of the node.
    pub attributes: &'a Attributes,
    /// Tells files apart that have a number one after the other.
    pub generation: u64,
    /// How long the name lasts.
    pub name_lasts: Duration,
    /// How long the attributes last.
    pub lasts: Duration,
}

/// Figures of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Size, in blocks.
    pub blocks: u64,
    /// Its free blocks, for all users.
    pub free: u64,
    /// Files there can be.
    pub files: u64,
    /// Files there can be more.
    pub free_files: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of the longest name.
    pub longest_name: u32,
}

/// Room for the body of an answer: as much as the kernel left, at least for all that is no data.
#[derive(Debug)]
pub struct Room<'a> {
    bytes: &'a mut [u8],
    used: usize,
    is_full: bool,
}

impl<'a> Room<'a> {
    /// Room in `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, used: 0, is_full: false }
    }

    /// How many bytes were written, unless there was too little room.
    pub fn end(self) -> Result<usize, Errno> {
        if self.is_full { Err(Errno::ERANGE) } else { Ok(self.used) }
    }

    /// Bytes as they are.
    pub fn data(mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.put(bytes);
        self.end()
    }

    /// The answer to getattr and setattr.
    pub fn attributes(mut self, attributes: &Attributes, lasts: Duration) -> Result<usize, Errno> {
        self.put_u64(lasts.as_secs());
        self.put_u32s([lasts.subsec_nanos(), 0]);
        self.put_attributes(attributes);
        self.end()
    }

    /// The answer to statx, which tells all that there is, whatever was asked for.
    pub fn statx(mut self, attributes: &Attributes, lasts: Duration) -> Result<usize, Errno> {
        let Attributes { number, size, blocks, atime, mtime, ctime, btime, .. } = attributes;
        let Attributes { mode, links, uid, gid, rdev, block_size, .. } = *attributes;
        self.put_u64(lasts.as_secs());
        self.put_u32s([lasts.subsec_nanos(), 0, 0, 0, 0, 0]);
        self.put_u32s([libc::STATX_BASIC_STATS | libc::STATX_BTIME, block_size, 0, 0, links, uid, gid]);
        // The mode has two bytes, and two zeros follow it.
        self.put(&(mode as u16).to_ne_bytes());
        self.put(&[0; 2]);
        for number in [number.0, *size, *blocks, 0] {
            self.put_u64(number);
        }
        for time in [atime, btime, ctime, mtime] {
            self.put(&time.seconds.to_ne_bytes());
            self.put_u32s([time.nanoseconds, 0]);
        }
        self.put_u32s([(rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00)]);
        self.put(&[0; 120]);
        self.end()
    }

    /// The object of a name.
    pub fn entry(mut self, entry: &NameAnswer<'_>) -> Result<usize, Errno> {
        self.put_entry(entry);
        self.end()
    }

    /// Something was opened.
    pub fn opened(mut self, handle: FileHandle, flags: u32) -> Result<usize, Errno> {
        self.put_opened(handle, flags);
        self.end()
    }

    /// Something was made and opened.
    pub fn created(mut self, entry: &NameAnswer<'_>, handle: FileHandle, flags: u32) -> Result<usize, Errno> {
        self.put_entry(entry);
        self.put_opened(handle, flags);
        self.end()
    }

    /// How many bytes were written, or would be needed.
    pub fn count(mut self, bytes: u32) -> Result<usize, Errno> {
        self.put_u32s([bytes, 0]);
        self.end()
    }

    /// Where data or a hole are.
    pub fn offset(mut self, offset: u64) -> Result<usize, Errno> {
        self.put_u64(offset);
        self.end()
    }

    /// The answer to statfs.
    pub fn figures(mut self, figures: &Figures) -> Result<usize, Errno> {
        for number in [figures.blocks, figures.free, figures.free, figures.files, figures.free_files] {
            self.put_u64(number);
        }
        self.put_u32s([figures.block_size, figures.longest_name, figures.block_size]);
        self.put(&[0; 28]);
        self.end()
    }

    /// The answer to an ioctl.
    pub fn ioctl(mut self, data: &[u8]) -> Result<usize, Errno> {
        self.put_u32s([0, 0, 1, u32::from(!data.is_empty())]);
        self.put(data);
        self.end()
    }

    /// An entry of a directory; whether there was room for it.
    pub fn push_name(&mut self, number: u64, cookie: u64, mode: u32, name: &[u8]) -> bool {
        let fits = self.has(DIRENT_BYTES + name.len().next_multiple_of(8));
        if fits {
            self.put_name(number, cookie, mode, name);
        }
        fits
    }

    /// The same with attributes. Where none are known, the entry's node has the number 0, and programs see
    /// `number`.
    pub fn push_entry(&mut self, entry: &NameAnswer<'_>, number: u64, cookie: u64, name: &[u8]) -> bool {
        let fits = self.has(ENTRY_BYTES + DIRENT_BYTES + name.len().next_multiple_of(8));
        if fits {
            self.put_entry(entry);
            let number = if entry.attributes.number.0 == 0 { number } else { entry.attributes.number.0 };
            self.put_name(number, cookie, entry.attributes.mode, name);
        }
        fits
    }

    /// For how many entries of a directory with attributes there is room at most.
    pub fn entries(&self) -> usize {
        self.bytes.len() / (ENTRY_BYTES + DIRENT_BYTES + 8)
    }

    fn has(&self, bytes: usize) -> bool {
        self.bytes.len() - self.used >= bytes
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.used..self.used + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            None => self.is_full = true,
        }
    }

    fn put_u64(&mut self, number: u64) {
        self.put(&number.to_ne_bytes());
    }

    fn put_u32s<const N: usize>(&mut self, numbers: [u32; N]) {
        for number in numbers {
            self.put(&number.to_ne_bytes());
        }
    }

    fn put_name(&mut self, number: u64, cookie: u64, mode: u32, name: &[u8]) {
        self.put_u64(number);
        self.put_u64(cookie);
        // No name is longer than a thousand bytes.
        self.put_u32s([name.len() as u32, (mode & libc::S_IFMT) >> 12]);
        self.put(name);
        self.put(&[0; 7][..name.len().next_multiple_of(8) - name.len()]);
    }

    fn put_opened(&mut self, handle: FileHandle, flags: u32) {
        self.put_u64(handle.0);
        self.put_u32s([flags, 0]);
    }

    fn put_entry(&mut self, entry: &NameAnswer<'_>) {
        self.put_u64(entry.attributes.number.0);
        self.put_u64(entry.generation);
        self.put_u64(entry.name_lasts.as_secs());
        self.put_u64(entry.lasts.as_secs());
        self.put_u32s([entry.name_lasts.subsec_nanos(), entry.lasts.subsec_nanos()]);
        self.put_attributes(entry.attributes);
    }

    fn put_attributes(&mut self, attributes: &Attributes) {
        let Attributes { number, size, blocks, atime, mtime, ctime, .. } = attributes;
        for number in [number.0, *size, *blocks] {
            self.put_u64(number);
        }
        for time in [atime, mtime, ctime] {
            self.put(&time.seconds.to_ne_bytes());
        }
        self.put_u32s([atime.nanoseconds, mtime.nanoseconds, ctime.nanoseconds]);
        let Attributes { mode, links, uid, gid, rdev, block_size, .. } = *attributes;
        self.put_u32s([mode, links, uid, gid, rdev, block_size, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that are written into a buffer of 512 bytes.
    fn written(write: impl FnOnce(Room<'_>) -> Result<usize, Errno>) -> Vec<u8> {
        let mut bytes = [0xaa; 512];
        let used = write(Room::new(&mut bytes)).unwrap();
        assert!(bytes[used..].iter().all(|byte| *byte == 0xaa));
        bytes[..used].to_vec()
    }

    fn attributes() -> Attributes {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        Attributes {
            number: INodeNo(1),
            size: 2,
            blocks: 3,
            atime: time(-4, 7),
            mtime: time(5, 8),
            ctime: time(6, 9),
            btime: time(30, 31),
            mode: 0o100_644,
            links: 11,
            uid: 12,
            gid: 13,
            rdev: 14,
            block_size: 15,
        }
    }

    fn attribute_bytes() -> Vec<u8> {
        let wide = [1, 2, 3, -4i64, 5, 6].into_iter().flat_map(i64::to_ne_bytes);
        let narrow = [7u32, 8, 9, 0o100_644, 11, 12, 13, 14, 15, 0].into_iter().flat_map(u32::to_ne_bytes);
        wide.chain(narrow).collect()
    }

    fn entry(attributes: &Attributes) -> NameAnswer<'_> {
        NameAnswer {
            attributes,
            generation: 21,
            name_lasts: Duration::new(22, 24),
            lasts: Duration::new(23, 25),
        }
    }

    fn entry_bytes() -> Vec<u8> {
        let wide = [1u64, 21, 22, 23].into_iter().flat_map(u64::to_ne_bytes);
        wide.chain([24u32, 25].into_iter().flat_map(u32::to_ne_bytes)).chain(attribute_bytes()).collect()
    }

    #[test]
    fn headers_say_the_length_or_the_error() {
        let bytes = |length: u32, error: i32| {
            [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &77u64.to_ne_bytes()].concat()
        };
        assert_eq!(answer_header(77, Ok(3)).to_vec(), bytes(19, 0));
        assert_eq!(answer_header(77, Err(Errno::ENOENT)).to_vec(), bytes(16, -2));
    }

    #[test]
    fn attributes_and_entries_are_laid_out_as_the_kernel_reads_them() {
        let attributes = attributes();
        let lasts = [&1u64.to_ne_bytes()[..], &2u32.to_ne_bytes(), &0u32.to_ne_bytes()].concat();
        assert_eq!(
            written(|room| room.attributes(&attributes, Duration::new(1, 2))),
            [lasts, attribute_bytes()].concat()
        );
        assert_eq!(written(|room| room.entry(&entry(&attributes))), entry_bytes());
        let narrow =
            |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>();
        let wide =
            |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>();
        let expected = [
            wide(&[1]),
            narrow(&[2, 0, 0, 0, 0, 0, 0xfff, 15, 0, 0, 11, 12, 13]),
            [0o100_644u16, 0].into_iter().flat_map(u16::to_ne_bytes).collect(),
            wide(&[1, 2, 3, 0]),
            wide(&[(-4i64).cast_unsigned(), 7, 30, 31, 6, 9, 5, 8]),
            narrow(&[0, 14]),
            vec![0; 120],
        ];
        assert_eq!(written(|room| room.statx(&attributes, Duration::new(1, 2))), expected.concat());
        assert_eq!(expected.concat().len(), 288);
        assert_eq!(entry_bytes().len(), ENTRY_BYTES);
        let opened = [&31u64.to_ne_bytes()[..], &10u32.to_ne_bytes(), &[0; 4]].concat();
        assert_eq!(
            written(|room| room.created(&entry(&attributes), FileHandle(31), 10)),
            [entry_bytes(), opened].concat()
        );
    }

    #[test]
    fn directories_are_told_entry_by_entry_until_the_room_is_full() {
        let attributes = attributes();
        let name = |name: &[u8], padded: usize| {
            let mut bytes = [1u64.to_ne_bytes(), 4u64.to_ne_bytes()].concat();
            bytes.extend((name.len() as u32).to_ne_bytes());
            bytes.extend(8u32.to_ne_bytes());
            bytes.extend(name);
            bytes.resize(DIRENT_BYTES + padded, 0);
            bytes
        };
        let mut bytes = [0xaa; 32 + 40 + 31];
        let mut room = Room::new(&mut bytes);
        assert!(room.push_name(1, 4, 0o100_000, b"12345678"));
        assert!(room.push_name(1, 4, 0o100_644, b"123456789"));
        assert!(!room.push_name(1, 4, 0o100_644, b"a"));
        assert_eq!(room.end(), Ok(72));
        assert_eq!(bytes[..72], [name(b"12345678", 8), name(b"123456789", 16)].concat());
        let mut bytes = [0xaa; 160];
        let mut room = Room::new(&mut bytes);
        assert!(room.push_entry(&entry(&attributes), 9, 4, b"a"));
        assert!(!room.push_entry(&entry(&attributes), 9, 4, b"a"));
        assert_eq!(room.end(), Ok(160));
        assert_eq!(bytes[..], [entry_bytes(), name(b"a", 8)].concat());
    }

    #[test]
    fn figures_ioctls_and_numbers_have_their_sizes() {
        let figures = Figures { blocks: 1, free: 2, files: 4, free_files: 5, block_size: 6, longest_name: 7 };
        let wide = [1u64, 2, 2, 4, 5].into_iter().flat_map(u64::to_ne_bytes);
        let narrow = [6u32, 7, 6, 0, 0, 0, 0, 0, 0, 0].into_iter().flat_map(u32::to_ne_bytes);
        assert_eq!(written(|room| room.figures(&figures)), wide.chain(narrow).collect::<Vec<_>>());
        let head = |pieces: u32| [0, 0, 1, pieces].into_iter().flat_map(u32::to_ne_bytes);
        assert_eq!(written(|room| room.ioctl(b"")), head(0).collect::<Vec<_>>());
        assert_eq!(written(|room| room.ioctl(b"1234")), head(1).chain(*b"1234").collect::<Vec<_>>());
        assert_eq!(written(|room| room.count(9)), [9u32, 0].map(u32::to_ne_bytes).concat());
        assert_eq!(written(|room| room.offset(9)), 9u64.to_ne_bytes());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut bytes = [0; 10];
        assert_eq!(Room::new(&mut bytes).data(&[1; 10]), Ok(10));
        assert_eq!(Room::new(&mut bytes).data(&[1; 11]).map_err(Errno::code), Err(libc::ERANGE));
    }
}
