//! `FileDevice`: regular files and block devices.
//!
//! # The idea
//! Where the file system allows it, I/O is direct (`O_DIRECT`): the pool has its own cache, and a second copy
//! in the page cache would only cost memory and a copy. Direct I/O wants offsets and lengths in multiples of
//! a unit that the file system or the device states. Callers need not care: a read is widened to whole units
//! and the caller sees a window onto its middle. A write must already be made of whole sectors, because
//! widening it would mean reading first.
//!
//! Direct I/O is found out by trying: the flag, the stated alignment (`statx`), and one read. If any refuses,
//! the file is opened through the page cache instead, where nothing needs to be aligned.
//!
//! # Invariants
//! - The size is taken when the device is opened, and when [`Device::update_size`] is called. Ranges past it
//!   are refused before the kernel is asked.
//! - An operation is repeated until all of it is done; a read that meets the end of the file early is an
//!   error.
//! - The lock, if asked for, lives as long as the device.

#![allow(unsafe_code, reason = "an ioctl on block devices")]

use std::{
    fmt,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{self, FileType, FlockOperation, Mode, OFlags, StatxFlags},
    io::Errno,
};

use crate::{
    ALIGNMENT_BYTES, Cause, Device, IoBuf, IoError, IoFuture, Operation, SectorSizes, SharedBuf, check_range,
    operation::{Gather, Request, Transfer, perform},
};

/// Linux's request to read a partition table anew (`linux/fs.h`).
const BLKRRPART: libc::Ioctl = 0x125f;
/// How long a lock is tried for. A process that releases a device may hold it a moment longer, until reads
/// ahead have ended.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// A regular file or a block device.
pub struct FileDevice {
    path: PathBuf,
    file: Arc<OwnedFd>,
    is_locked: bool,
    size_bytes: AtomicU64,
    sector_sizes: SectorSizes,
    /// The multiple that direct I/O asks of offsets and lengths; 1 through the page cache.
    unit_bytes: u32,
    read_only: bool,
    identity: Identity,
}

/// Which file or block device something is, whatever its path: two openings of the same one have the same
/// identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The number of a block device; of a regular file that of the file system that it is in.
    device: u64,
    /// The number of a regular file.
    inode: Option<u64>,
}

/// The number of no file system: what is in it is known by its address.
const BY_ADDRESS: u64 = u64::MAX;

impl Identity {
    /// That of a device with an address: a number that no other one has.
    pub fn of_address(number: u64) -> Self {
        Self { device: BY_ADDRESS, inode: Some(number) }
    }

    /// What is at `path` now; `None` when nothing is there.
    pub fn at(path: &Path) -> Option<Self> {
        fs::stat(path).ok().map(|stat| Self::of(&stat))
    }

    fn of(stat: &fs::Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Self { device: stat.st_rdev, inode: None },
            _ => Self { device: stat.st_dev, inode: Some(stat.st_ino) },
        }
    }
}

/// Which other processes may use the device meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// Anyone: for looking at labels.
    #[default]
    None,
    /// Others who also only share it.
    Shared,
    /// No other process. A block device that is mounted or part of an array is refused too.
    Exclusive,
}

/// How to open a [`FileDevice`].
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    writable: bool,
    lock: Lock,
    /// The largest unit of direct I/O that the caller can do with.
    max_unit_bytes: u32,
    direct: bool,
    continues: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::read_only()
    }
}

impl OpenOptions {
    /// For reading, without a lock.
    pub fn read_only() -> Self {
        Self {
            writable: false,
            lock: Lock::None,
            max_unit_bytes: ALIGNMENT_BYTES as u32,
            direct: true,
            continues: false,
        }
    }

    /// For reading and writing, with an exclusive lock.
    pub fn read_write() -> Self {
        Self { writable: true, lock: Lock::Exclusive, ..Self::read_only() }
    }

    /// Sets the lock. It holds against other processes and against other opens in this one.
    pub fn lock(self, lock: Lock) -> Self {
        Self { lock, ..self }
    }

    /// Goes through the page cache even where direct I/O is possible.
    pub fn buffered(self) -> Self {
        Self { direct: false, ..self }
    }

    /// Goes through the page cache where direct I/O would ask for larger units than this: for a caller who
    /// writes such small sectors.
    pub fn unit_at_most(self, max_unit_bytes: u32) -> Self {
        Self { max_unit_bytes, ..self }
    }

    /// For a pool that is open, and had the device open before: it is not taken from another host that has
    /// opened it since.
    pub fn continuing(self) -> Self {
        Self { continues: true, ..self }
    }

    /// Whether it is opened to be written.
    pub fn is_for_writing(self) -> bool {
        self.writable
    }

    /// See [`OpenOptions::continuing`].
    pub fn is_continuing(self) -> bool {
        self.continues
    }

    /// Opens the file or block device at `path`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<FileDevice, IoError> {
        let path = path.as_ref();
        FileDevice::open_with(path, self).map_err(|cause| IoError::new(path, Operation::Open, 0, 0, cause))
    }
}

impl Drop for FileDevice {
    /// Lets the lock go. Closing the file would do that later: a child process that was just forked has it
    /// open until it becomes another program, and a thread of the kernel that worked for the ring may close
    /// it seconds after it was done.
    fn drop(&mut self) {
        if self.is_locked {
            // A lock that cannot be let go ends with the file.
            let _ = fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Locks, unless another process keeps the lock.
fn lock(file: &OwnedFd, operation: FlockOperation) -> Result<(), Cause> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOCK_PATIENCE / 50),
            Err(Errno::WOULDBLOCK) => return Err(Cause::InUse),
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl FileDevice {
    /// Opens `path` for reading, without a lock.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IoError> {
        OpenOptions::read_only().open(path)
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.unit_bytes > 1
    }

    fn open_with(path: &Path, options: OpenOptions) -> Result<Self, Cause> {
        let (file, unit_bytes) =
            match options.direct.then(|| open_direct(path, options)).transpose()?.flatten() {
                Some((file, unit_bytes)) if unit_bytes <= options.max_unit_bytes => (file, unit_bytes),
                _ => (open_file(path, options, OFlags::empty())?, 1),
            };
        match options.lock {
            Lock::None => {}
            Lock::Shared => lock(&file, FlockOperation::NonBlockingLockShared)?,
            Lock::Exclusive => lock(&file, FlockOperation::NonBlockingLockExclusive)?,
        }
        Ok(Self {
            is_locked: options.lock != Lock::None,
            path: path.to_owned(),
            // The same for regular files and for block devices, of which the kernel's `stat` says 0.
            size_bytes: fs::seek(&file, fs::SeekFrom::End(0))?.into(),
            sector_sizes: sector_sizes(&file)?,
            identity: Identity::of(&fs::fstat(&file)?),
            file: Arc::new(file),
            unit_bytes,
            read_only: !options.writable,
        })
    }

    fn check_write(&self, offset: u64, len: u64) -> Result<(), Cause> {
        if self.read_only {
            return Err(Cause::ReadOnly);
        }
        check_range(self.size_bytes(), offset, len)?;
        let unit = u64::from(self.unit_bytes);
        if offset.is_multiple_of(unit) && len.is_multiple_of(unit) {
            Ok(())
        } else {
            Err(Cause::Unaligned { unit_bytes: self.unit_bytes })
        }
    }

    /// Makes the kernel read the partition table of a whole disk anew.
    ///
    /// # Errors
    /// Something is not a disk with partitions, or uses one of them.
    pub fn reread_partitions(&self) -> Result<(), IoError> {
        // SAFETY: the request takes no argument and touches no memory of ours.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), BLKRRPART) };
        if result == 0 {
            return Ok(());
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Err(IoError::new(&self.path, Operation::Open, 0, 0, Cause::Os { errno }))
    }

    async fn read_exactly(&self, offset: u64, len: usize) -> Result<IoBuf, Cause> {
        check_range(self.size_bytes(), offset, len as u64)?;
        let unit = u64::from(self.unit_bytes);
        let lead = (offset % unit) as usize;
        let wanted = lead + len;
        let buf = IoBuf::for_overwrite(wanted.next_multiple_of(self.unit_bytes as usize));
        let mut transfer = Transfer { buf, done: 0, offset: offset - lead as u64 };
        while transfer.done < wanted {
            let (count, request) = perform(Arc::clone(&self.file), Request::Read(transfer)).await;
            let Request::Read(returned) = request else { unreachable!("a request comes back as it went") };
            transfer = returned;
            let reached = transfer.done + count?;
            // Direct I/O continues at whole units only. Less than one more unit is the end of the file.
            let continued = reached - reached % self.unit_bytes as usize;
            if reached < wanted && continued <= transfer.done {
                return Err(Cause::UnexpectedEnd { read_bytes: reached.saturating_sub(lead) as u64 });
            }
            transfer.done = if reached < wanted { continued } else { reached };
        }
        Ok(transfer.buf.narrow(lead..wanted))
    }

    async fn write_all(&self, offset: u64, data: IoBuf) -> Result<IoBuf, Cause> {
        self.check_write(offset, data.len() as u64)?;
        let buf = if data.is_aligned_to(self.unit_bytes as usize) { data } else { IoBuf::from(&*data) };
        let mut transfer = Transfer { buf, done: 0, offset };
        while transfer.done < transfer.buf.len() {
            let (count, request) = perform(Arc::clone(&self.file), Request::Write(transfer)).await;
            let Request::Write(returned) = request else { unreachable!("a request comes back as it went") };
            transfer = returned;
            let count = count?;
            if count == 0 {
                return Err(Cause::Os { errno: libc::EIO });
            }
            transfer.done += count;
        }
        Ok(transfer.buf)
    }

    async fn gather_all(&self, offset: u64, mut parts: Vec<SharedBuf>, durably: bool) -> Result<(), Cause> {
        self.check_write(offset, parts.iter().map(|part| part.len() as u64).sum())?;
        let unit_bytes = self.unit_bytes as usize;
        if !parts.iter().all(|part| part.is_made_of(unit_bytes)) {
            let whole = SharedBuf::join(parts);
            let whole = if whole.is_aligned_to(unit_bytes) { whole } else { IoBuf::from(&*whole) };
            parts = vec![whole.into()];
        }
        let mut gather = Gather::new(offset, parts, durably);
        while !gather.is_done() {
            let (count, request) = perform(Arc::clone(&self.file), Request::Gather(gather)).await;
            let Request::Gather(returned) = request else { unreachable!("a request comes back as it went") };
            gather = returned;
            match count? {
                0 => return Err(Cause::Os { errno: libc::EIO }),
                count => gather.advance(count),
            }
        }
        Ok(())
    }

    async fn flush_all(&self) -> Result<(), Cause> {
        if self.read_only {
            return Err(Cause::ReadOnly);
        }
        perform(Arc::clone(&self.file), Request::Sync).await.0?;
        Ok(())
    }

    async fn punch(&self, offset: u64, len: u64) -> Result<(), Cause> {
        self.check_write(offset, len)?;
        if len > 0 {
            perform(Arc::clone(&self.file), Request::Punch { offset, len }).await.0?;
        }
        Ok(())
    }
}

impl Device for FileDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn update_size(&self) -> Result<u64, IoError> {
        let size_bytes = fs::seek(&self.file, fs::SeekFrom::End(0))
            .map_err(|errno| IoError::new(&self.path, Operation::Open, 0, 0, errno.into()))?;
        Ok(self.size_bytes.fetch_max(size_bytes, Ordering::AcqRel).max(size_bytes))
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.sector_sizes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.identity)
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            self.read_exactly(offset, len)
                .await
                .map_err(|cause| IoError::new(&self.path, Operation::Read, offset, len as u64, cause))
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        let len = data.len() as u64;
        Box::pin(async move {
            self.write_all(offset, data)
                .await
                .map_err(|cause| IoError::new(&self.path, Operation::Write, offset, len, cause))
        })
    }

    fn write_gather(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        Box::pin(async move {
            self.gather_all(offset, parts, false)
                .await
                .map_err(|cause| IoError::new(&self.path, Operation::Write, offset, len, cause))
        })
    }

    /// The kernel reports only once that the page cache could not be written: that must be reported to
    /// who flushes.
    fn has_durable_writes(&self) -> bool {
        self.is_direct()
    }

    fn write_durably(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        Box::pin(async move {
            self.gather_all(offset, parts, true)
                .await
                .map_err(|cause| IoError::new(&self.path, Operation::Write, offset, len, cause))
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.flush_all().await.map_err(|cause| IoError::new(&self.path, Operation::Flush, 0, 0, cause))
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.punch(offset, len)
                .await
                .map_err(|cause| IoError::new(&self.path, Operation::Discard, offset, len, cause))
        })
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.path)
            .field("size_bytes", &self.size_bytes)
            .field("unit_bytes", &self.unit_bytes)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

fn open_file(path: &Path, options: OpenOptions, extra: OFlags) -> Result<OwnedFd, Cause> {
    // Opening some other kind of file can block (a pipe) or act (a tape drive): look before.
    let kind = FileType::from_raw_mode(fs::stat(path)?.st_mode);
    let mut flags = OFlags::CLOEXEC | extra;
    flags |= if options.writable { OFlags::RDWR } else { OFlags::RDONLY };
    match kind {
        FileType::RegularFile => {}
        FileType::BlockDevice if options.lock == Lock::Exclusive => flags |= OFlags::EXCL,
        FileType::BlockDevice => {}
        _ => return Err(Cause::NotADevice),
    }
    fs::open(path, flags, Mode::empty())
        .map_err(|errno| if errno == Errno::BUSY { Cause::InUse } else { errno.into() })
}

/// Opens for direct I/O, with the unit that it asks for; `None` where it is not possible.
fn open_direct(path: &Path, options: OpenOptions) -> Result<Option<(OwnedFd, u32)>, Cause> {
    let file = match open_file(path, options, OFlags::DIRECT) {
        Err(Cause::Os { errno: libc::EINVAL }) => return Ok(None),
        other => other?,
    };
    let Some(unit_bytes) = direct_unit(&file)? else { return Ok(None) };
    let mut probe = IoBuf::for_overwrite(ALIGNMENT_BYTES);
    match retry(|| rustix::io::pread(&file, &mut probe[..], 0)) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
        // A medium that cannot be read at its start is a matter for the reader.
        _ => Ok(Some((file, unit_bytes))),
    }
}

/// The unit of direct I/O that the kernel states, or a page, which all known ones divide; `None` if it states
/// that it has none.
fn direct_unit(file: &OwnedFd) -> Result<Option<u32>, Cause> {
    let unit_bytes = match fs::statx(file, c"", fs::AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN) => {
            // Buffers are aligned to what may be transferred of them.
            if stat.stx_dio_mem_align > stat.stx_dio_offset_align {
                return Ok(None);
            }
            stat.stx_dio_offset_align
        }
        _ => ALIGNMENT_BYTES as u32,
    };
    Ok((unit_bytes > 1 && unit_bytes as usize <= ALIGNMENT_BYTES && unit_bytes.is_power_of_two())
        .then_some(unit_bytes))
}

fn sector_sizes(file: &OwnedFd) -> Result<SectorSizes, Cause> {
    let stat = fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        return Ok(SectorSizes {
            logical_bytes: fs::ioctl_blksszget(file.as_fd())?,
            physical_bytes: fs::ioctl_blkpbszget(file.as_fd())?,
        });
    }
    // What `stat` says of a file is what is good for programs that copy it, up to mebibytes.
    Ok(SectorSizes::BYTES_512)
}

fn retry<T>(mut operation: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match operation() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;
    use std::io::Write;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file.as_file().sync_all().unwrap();
        file
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index / 7) as u8 ^ (index >> 8) as u8).collect()
    }

    #[test]
    fn any_range_of_a_file_of_any_length_reads_as_written() {
        let bytes = pattern(3 * 4096 + 1000);
        let file = file_of(&bytes);
        for device in
            [FileDevice::open(&file).unwrap(), OpenOptions::read_only().buffered().open(&file).unwrap()]
        {
            assert_eq!(device.size_bytes(), bytes.len() as u64);
            for (offset, len) in
                [(0, bytes.len()), (0, 0), (1, 1), (511, 2), (4095, 4098), (12288, 1000), (13287, 1)]
            {
                let read = block_on(device.read(offset as u64, len)).unwrap();
                assert_eq!(*read, bytes[offset..offset + len], "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn ranges_past_the_end_are_refused() {
        let file = file_of(&pattern(5000));
        let device = FileDevice::open(&file).unwrap();
        for (offset, len) in [(5000, 1), (0, 5001), (u64::MAX, 2), (1, usize::MAX)] {
            let error = block_on(device.read(offset, len)).unwrap_err();
            assert_eq!(error.cause, Cause::OutOfRange { size_bytes: 5000 });
        }
    }

    #[test]
    fn a_file_that_shrank_is_an_error_and_not_zeros() {
        let file = file_of(&pattern(8192));
        let device = FileDevice::open(&file).unwrap();
        file.as_file().set_len(5000).unwrap();
        assert_eq!(block_on(device.read(0, 5000)).unwrap().len(), 5000);
        let error = block_on(device.read(4096, 4096)).unwrap_err();
        assert!(matches!(error.cause, Cause::UnexpectedEnd { .. }), "{error}");
    }

    #[test]
    fn whole_sectors_are_written_from_any_window() {
        let file = file_of(&[0; 16384]);
        let device = OpenOptions::read_write().open(&file).unwrap();
        let data = IoBuf::from(&pattern(4096 + 10)[..]).narrow(10..4106);
        let data = block_on(device.write(8192, data)).unwrap();
        assert_eq!(*data, pattern(4106)[10..]);
        block_on(device.flush()).unwrap();
        assert_eq!(*block_on(device.read(8192, 4096)).unwrap(), *data);
        assert_eq!(*block_on(device.read(4096, 4096)).unwrap(), [0; 4096]);
        if device.is_direct() {
            let error = block_on(device.write(1, IoBuf::zeroed(4096))).unwrap_err();
            assert!(matches!(error.cause, Cause::Unaligned { .. }));
        }
        match block_on(device.discard(8192, 4096)) {
            Ok(()) => assert_eq!(*block_on(device.read(8192, 4096)).unwrap(), [0; 4096]),
            Err(error) => assert_eq!(error.errno(), libc::EOPNOTSUPP),
        }
    }

    #[test]
    fn parts_are_written_side_by_side() {
        let file = file_of(&[0; 1 << 20]);
        let bytes = pattern(1200 * 512);
        let whole = SharedBuf::from(IoBuf::from(&bytes[..]));
        for options in [OpenOptions::read_write(), OpenOptions::read_write().buffered()] {
            let device = options.open(&file).unwrap();
            // More than one system call takes; and cut where direct I/O has no memory that suits it.
            let aligned = (0..1200).map(|sector| whole.slice(sector * 512..sector * 512 + 512)).collect();
            let crooked = vec![whole.slice(0..100), whole.slice(100..4096)];
            block_on(device.write_gather(4096, aligned)).unwrap();
            assert_eq!(*block_on(device.read(4096, bytes.len())).unwrap(), bytes[..]);
            block_on(device.write_gather(8192, crooked)).unwrap();
            assert_eq!(*block_on(device.read(8192, 4096)).unwrap(), bytes[..4096]);
            let crooked = vec![whole.slice(4096..5000), whole.slice(5000..8192)];
            block_on(device.write_durably(8192, crooked)).unwrap();
            assert_eq!(*block_on(device.read(8192, 4096)).unwrap(), bytes[4096..8192]);
            let past_end = vec![whole.slice(0..4096), whole.slice(0..4096)];
            let error = block_on(device.write_gather((1 << 20) - 4096, past_end)).unwrap_err();
            assert_eq!(error.cause, Cause::OutOfRange { size_bytes: 1 << 20 });
            block_on(device.discard(0, 1 << 20)).unwrap();
        }
    }

    #[test]
    fn a_device_opened_for_reading_refuses_writes() {
        let file = file_of(&[0; 4096]);
        let device = FileDevice::open(&file).unwrap();
        assert_eq!(block_on(device.write(0, IoBuf::zeroed(4096))).unwrap_err().cause, Cause::ReadOnly);
        assert_eq!(block_on(device.flush()).unwrap_err().cause, Cause::ReadOnly);
        assert_eq!(block_on(device.discard(0, 4096)).unwrap_err().cause, Cause::ReadOnly);
    }

    #[test]
    fn a_file_is_the_same_by_all_its_names() {
        let file = file_of(&[0; 4096]);
        let folder = tempfile::tempdir().unwrap();
        let (link, other) = (folder.path().join("link"), folder.path().join("other"));
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        std::fs::hard_link(file.path(), &other)
            .or_else(|_| std::os::unix::fs::symlink(&link, &other))
            .unwrap();
        let identity = FileDevice::open(&file).unwrap().identity();
        for path in [file.path(), &link, &other] {
            assert_eq!(
                (Identity::at(path), FileDevice::open(path).unwrap().identity()),
                (identity, identity)
            );
        }
        std::fs::write(folder.path().join("new"), [0; 4096]).unwrap();
        assert_ne!(Identity::at(&folder.path().join("new")), identity);
        assert_eq!(Identity::at(&folder.path().join("none")), None);
    }

    #[test]
    fn an_exclusive_lock_keeps_others_out_until_it_is_dropped() {
        let file = file_of(&[0; 4096]);
        let held = OpenOptions::read_write().open(&file).unwrap();
        let refused = OpenOptions::read_only().lock(Lock::Shared).open(&file).unwrap_err();
        assert_eq!(refused.cause, Cause::InUse);
        FileDevice::open(&file).unwrap();
        drop(held);
        let _first = OpenOptions::read_only().lock(Lock::Shared).open(&file).unwrap();
        let _second = OpenOptions::read_only().lock(Lock::Shared).open(&file).unwrap();
    }

    #[test]
    fn a_file_that_grew_is_larger_once_it_is_looked_at() {
        let file = file_of(&[0; 8192]);
        let device = OpenOptions::read_write().open(&file).unwrap();
        file.as_file().set_len(16384).unwrap();
        assert!(block_on(device.write(8192, IoBuf::zeroed(4096))).is_err());
        assert_eq!(
            (device.size_bytes(), device.update_size().unwrap(), device.size_bytes()),
            (8192, 16384, 16384)
        );
        block_on(device.write(8192, IoBuf::zeroed(4096))).unwrap();
        file.as_file().set_len(4096).unwrap();
        assert_eq!(device.update_size().unwrap(), 16384);
    }

    #[test]
    fn sectors_smaller_than_the_unit_of_direct_io_go_through_the_page_cache() {
        let file = file_of(&[0; 8192]);
        let device = OpenOptions::read_write().unit_at_most(1).open(&file).unwrap();
        assert!(!device.is_direct());
        block_on(device.write(5, IoBuf::from(&[3; 7][..]))).unwrap();
        assert_eq!(*block_on(device.read(4, 9)).unwrap(), [0, 3, 3, 3, 3, 3, 3, 3, 0]);
    }

    #[test]
    fn a_file_has_no_partitions() {
        let device = OpenOptions::read_write().open(file_of(&[0; 8192])).unwrap();
        assert_eq!(device.reread_partitions().unwrap_err().errno(), libc::ENOTTY);
    }

    #[test]
    fn other_kinds_of_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(FileDevice::open(directory.path()).unwrap_err().cause, Cause::NotADevice);
        assert_eq!(FileDevice::open("/dev/null").unwrap_err().cause, Cause::NotADevice);
        let missing = FileDevice::open(directory.path().join("none")).unwrap_err();
        assert_eq!(missing.cause, Cause::Os { errno: libc::ENOENT });
    }
}
