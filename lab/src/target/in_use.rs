//! Whether another program needs the contents of a file or device that is to be written.
//!
//! Before anything of a named file or device is written, the lab looks for all of this and reports everything
//! it found:
//!
//! | found | of | may be written |
//! |---|---|---|
//! | it is mounted, used for swap, part of something else (md, dm, LVM, bcache), or in use according to the kernel | a device, its partitions | never |
//! | an imported pool has it; a process has it open for writing, as a virtual machine does, or locked, as a process with an open pool does; a loop device or swap lies on it | a device or file, and what a loop device lies on | never |
//! | the label of a pool, the signature of a filesystem or of something else, a partition table | a device, its partitions, a file | if the experiment says `overwrite` |
//! | bytes other than zero | a device, or a file that the lab did not make | if the experiment says `overwrite` |
//!
//! Files and devices are identified by their numbers, so that another name is no other file: a hard link, a
//! bind mount, a link below `/dev`. The file or device below a loop device is checked itself, with all loop
//! devices on it.
//!
//! A file or device that may be written is claimed as long as the experiment runs: a device exclusively, as
//! by a mount, a file by its lock. Claims are noted in the directory of results (`claims.json`). So a
//! continued experiment needs no new consent because of data that the lab itself left there, but does if
//! something else was put there meanwhile. Consent is recorded when the experiment begins, for everything
//! named then ([`consent`]): it is for the contents at that time, not for another file or device that has the
//! name later. A device without identification (no `wwid`, no `serial`) can only be recognized until the
//! machine restarts: after that a continued experiment asks for consent again and says why.
//!
//! The contents of an export, and its other users, cannot be checked from here. So writing to an export
//! always needs consent ([`fault_of_export`]).
//!
//! Files that the lab makes carry the attribute `user.cenote.lab`, which says whether they were filled.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use codec::checksum::verify_label;
use device::signatures::{SIGNATURE_BYTES, signature};
use ondisk::Txg;
use ondisk::label::{LABELS, VDEV_PHYS, label_offset, parse_config};
use ondisk::vdev_config::{PoolConfig, PoolState};
use rustix::fs::{FlockOperation, OFlags, SeekFrom, XattrFlags, flock, getxattr, seek, setxattr};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::medium::{major, minor};

/// The attribute of files that the lab made.
const MADE: &str = "user.cenote.lab";
/// The file in the directory of results that says what was claimed.
const CLAIMS: &str = "claims.json";

/// Where bytes are looked for that no signature shows: so much at both ends, and at so many places
/// between, so much each.
const END_BYTES: usize = 1 << 20;
const PLACES: u64 = 64;
const PLACE_BYTES: usize = 4096;

/// So many files and devices are asked after for one, where loop devices lie on each other.
const MOST_ASKED: usize = 64;

/// The findings about a file or device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Its users, each in words that follow its name.
    pub uses: Vec<String>,
    /// Its contents.
    pub holds: Vec<String>,
}

impl Usage {
    /// Why it may not be written; nothing where it may.
    pub fn fault(&self, path: &Path, may_overwrite: bool) -> Option<String> {
        let path = path.display();
        if !self.uses.is_empty() {
            return Some(format!(
                "target {path} {}: workloads would write to it, and the lab never writes to a device or file \
                 that is in use",
                self.uses.join("; it ")
            ));
        }
        (!may_overwrite && !self.holds.is_empty()).then(|| {
            format!(
                "target {path} {}: workloads would overwrite it; if they may, say so (--overwrite, or \
                 overwrite = true in [target])",
                self.holds.join("; it ")
            )
        })
    }
}

/// Where the kernel reports what is in use, and by what.
#[derive(Debug, Clone)]
struct System {
    proc: PathBuf,
    sys: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

/// A block device as the kernel numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Number(String);

impl Number {
    fn of(device: u64) -> Self {
        Self(format!("{}:{}", major(device), minor(device)))
    }

    /// Of the block device at a path; nothing of anything else.
    fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok().filter(|it| it.file_type().is_block_device())?;
        Some(Self::of(metadata.rdev()))
    }
}

/// Which file or device it is, whatever its names are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Device(Number),
    File {
        device: u64,
        inode: u64,
    },
    /// A device without a node, by the kernel's name.
    Gone(PathBuf),
}

impl Thing {
    fn of(metadata: &fs::Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            return Self::Device(Number::of(metadata.rdev()));
        }
        Self::File { device: metadata.dev(), inode: metadata.ino() }
    }

    fn at(path: &Path) -> Self {
        fs::metadata(path).map_or_else(|_| Self::Gone(path.to_owned()), |metadata| Self::of(&metadata))
    }
}

/// A loop device and what it lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Loop {
    name: String,
    number: Number,
    backing: PathBuf,
}

/// A path as the kernel lists it, with its spaces in octal (`\040`).
fn listed(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

impl System {
    fn read(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The kernel's directory of a device.
    fn directory(&self, number: &Number) -> PathBuf {
        self.sys.join("dev/block").join(&number.0)
    }

    /// The identification of a disk, and the number of a partition on it.
    fn own_identity(&self, number: &Number) -> Option<String> {
        let mut directory = fs::canonicalize(self.directory(number)).ok()?;
        let partition = self.read(directory.join("partition"));
        let partition = partition.trim();
        if !partition.is_empty() {
            directory.pop();
        }
        let told = ["wwid", "device/wwid", "serial"].iter().map(|name| self.read(directory.join(name)));
        let told = told.map(|told| told.trim().to_owned()).find(|told| !told.is_empty())?;
        Some(if partition.is_empty() { told } else { format!("{told}, partition {partition},") })
    }

    /// The partitions of a disk, each with its name.
    fn partitions(&self, disk: &Number) -> Vec<(String, Number)> {
        let entries = fs::read_dir(self.directory(disk)).into_iter().flatten().flatten();
        let partitions = entries.filter(|entry| entry.path().join("partition").exists());
        let mut all: Vec<_> = partitions
            .map(|entry| {
                let number = self.read(entry.path().join("dev")).trim().to_owned();
                (entry.file_name().to_string_lossy().into_owned(), Number(number))
            })
            .collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// The users of a block device, as far as the kernel lists them.
    fn uses(&self, number: &Number) -> Vec<String> {
        let mut uses = Vec::new();
        let mounts = self.read(self.proc.join("self/mountinfo"));
        let is_here = |line: &&str| {
            // A filesystem of several devices has a number of its own.
            let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1));
            line.split(' ').nth(2) == Some(&number.0)
                || source.and_then(|source| Number::at(Path::new(source))).as_ref() == Some(number)
        };
        if let Some(at) = mounts.lines().find(is_here).and_then(|line| line.split(' ').nth(4)) {
            uses.push(format!("is mounted at {at}"));
        }
        uses.extend(self.is_swapped_to(&Thing::Device(number.clone())));
        let holders = fs::read_dir(self.directory(number).join("holders")).into_iter().flatten().flatten();
        for holder in holders {
            let name = holder.file_name().to_string_lossy().into_owned();
            let called = self.read(holder.path().join("dm/name"));
            let called = called.trim();
            let called = if called.is_empty() { String::new() } else { format!(" ({called})") };
            uses.push(format!("is part of {name}{called}"));
        }
        uses
    }

    fn is_swapped_to(&self, thing: &Thing) -> Option<String> {
        let swaps = self.read(self.proc.join("swaps"));
        let mut swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        swaps.any(|swap| Thing::at(&listed(swap)) == *thing).then(|| "is swapped to".to_owned())
    }

    /// All loop devices that lie on something.
    fn loops(&self) -> Vec<Loop> {
        let mut all: Vec<Loop> = Vec::new();
        for entry in fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten() {
            if let Some(backing) = self.backing(&entry.path()) {
                all.push(Loop {
                    name: entry.file_name().to_string_lossy().into_owned(),
                    number: Number(self.read(entry.path().join("dev")).trim().to_owned()),
                    backing,
                });
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The file or device below a loop device, by the kernel's directory of it.
    fn backing(&self, directory: &Path) -> Option<PathBuf> {
        let mut text = fs::read(directory.join("loop/backing_file")).ok()?;
        text.pop_if(|byte| *byte == b'\n');
        (!text.is_empty()).then(|| PathBuf::from(OsString::from_vec(text)))
    }

    /// What a device lies on that is no device of its own kind: what its loop device does, its disk where it
    /// is a partition, or those that it is made of (md, dm). With the loop devices on the way, which are
    /// known.
    fn foundations(&self, number: &Number, known: &mut Vec<Thing>) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let Ok(directory) = fs::canonicalize(self.directory(number)) else { return all };
        let mut left = vec![directory];
        let mut seen = Vec::new();
        while let Some(mut directory) = left.pop() {
            if directory.join("partition").exists() {
                directory.pop();
            }
            if seen.contains(&directory) || seen.len() >= MOST_ASKED {
                continue;
            }
            if let Some(backing) = self.backing(&directory) {
                known.push(Thing::Device(Number(self.read(directory.join("dev")).trim().to_owned())));
                all.push(backing);
            }
            let slaves = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
            left.extend(slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok()));
            seen.push(directory);
        }
        all
    }

    /// All that a device lies on in the end, and what those lie on.
    fn all_foundations(&self, path: &Path) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = Vec::new();
        let mut left: Vec<Number> = Number::at(path).into_iter().collect();
        while let Some(number) = left.pop() {
            for backing in self.foundations(&number, &mut Vec::new()) {
                if all.contains(&backing) || all.len() >= MOST_ASKED {
                    continue;
                }
                left.extend(Number::at(&backing));
                all.push(backing);
            }
        }
        all
    }

    /// The users of a file or device: by itself, by its partitions, by what it lies on, and by the loop
    /// devices that lie on it. Each of `asked` was asked after already.
    fn all_uses(&self, thing: &Thing, asked: &mut Vec<Thing>) -> Vec<String> {
        let mut uses = Vec::new();
        if asked.len() >= MOST_ASKED {
            uses.push("has so many loop devices that not all could be checked".to_owned());
            return uses;
        }
        asked.push(thing.clone());
        match thing {
            Thing::Device(number) => {
                uses.extend(self.uses(number));
                for backing in self.foundations(number, asked) {
                    let its = self.uses_below(&backing, asked);
                    uses.extend(
                        its.into_iter().map(|use_| format!("lies on {}, which {use_}", backing.display())),
                    );
                }
                for (name, partition) in self.partitions(number) {
                    let its = self.all_uses(&Thing::Device(partition), asked);
                    uses.extend(its.into_iter().map(|use_| format!("has {name}, which {use_}")));
                }
            }
            Thing::File { .. } | Thing::Gone(_) => uses.extend(self.is_swapped_to(thing)),
        }
        for Loop { name, number, backing } in self.loops() {
            let device = Thing::Device(number);
            if Thing::at(&backing) != *thing || asked.contains(&device) {
                continue;
            }
            let its = self.all_uses(&device, asked);
            if its.is_empty() {
                uses.push(format!("is what {name} lies on"));
            }
            uses.extend(its.into_iter().map(|use_| format!("is what {name} lies on, which {use_}")));
        }
        uses
    }

    /// The users of the file or device below a loop device, without that loop device.
    fn uses_below(&self, backing: &Path, asked: &mut Vec<Thing>) -> Vec<String> {
        let thing = Thing::at(backing);
        if asked.contains(&thing) {
            return Vec::new();
        }
        let mut uses = self.all_uses(&thing, asked);
        match thing {
            // It was removed, so that only loop devices lead to it.
            Thing::Gone(_) if backing.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") => {}
            Thing::Gone(_) => uses.push("cannot be looked at from here".to_owned()),
            _ => {
                uses.extend(self.writers(backing));
                // What it holds is the loop device's to tell; a pool that is imported may be around that.
                if self.held(backing, &mut uses).is_err() {
                    uses.push("cannot be looked at from here".to_owned());
                }
            }
        }
        uses
    }

    /// The other processes that have a file or device open for writing, as far as one may see that.
    fn writers(&self, path: &Path) -> Vec<String> {
        let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
        let Ok(metadata) = fs::metadata(&path) else { return Vec::new() };
        let thing = Thing::of(&metadata);
        let own = std::process::id().to_string();
        let mut all = Vec::new();
        for process in fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let number = process.file_name().to_string_lossy().into_owned();
            if !number.bytes().all(|byte| byte.is_ascii_digit()) || number == own {
                continue;
            }
            let process = process.path();
            let writes = |open: &fs::DirEntry| {
                let told = self.read(process.join("fdinfo").join(open.file_name()));
                if !is_for_writing(&told) {
                    return false;
                }
                let Ok(to) = fs::read_link(open.path()) else { return false };
                if to == path {
                    return true;
                }
                // What is behind it may not answer, and is followed only where it may be the same.
                let inode = told.lines().find_map(|line| line.strip_prefix("ino:"));
                let inode = inode.and_then(|inode| inode.trim().parse::<u64>().ok());
                let may_be = match &thing {
                    Thing::Device(_) => to.starts_with("/dev") || to.file_name() == path.file_name(),
                    _ => to.is_absolute() && inode.is_none_or(|inode| inode == metadata.ino()),
                };
                may_be && Thing::at(&open.path()) == thing
            };
            if fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|open| writes(&open)) {
                let name = self.read(process.join("comm"));
                all.push(format!("is open for writing in process {number} ({})", name.trim()));
            }
        }
        all
    }

    /// Whether OpenZFS in the kernel has a pool of that name imported.
    fn has_imported(&self, pool: &str) -> bool {
        !pool.contains('/') && self.proc.join("spl/kstat/zfs").join(pool).join("state").exists()
    }

    /// All that is found at a path that is to be written; nothing where nothing is there yet.
    fn look(&self, path: &Path) -> Result<Usage> {
        let mut found = Usage::default();
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(Error::file(path)(error)),
        };
        if metadata.is_dir() {
            return Ok(found);
        }
        let is_block = metadata.file_type().is_block_device();
        let thing = Thing::of(&metadata);
        found.uses = self.all_uses(&thing, &mut Vec::new());
        if let Thing::Device(number) = &thing {
            for (name, partition) in self.partitions(number) {
                let device = self.device(&name);
                if Number::at(&device).as_ref() == Some(&partition) {
                    let writers = self.writers(&device).into_iter();
                    found.uses.extend(writers.map(|use_| format!("has {name}, which {use_}")));
                    let held = self.held(&device, &mut found.uses)?;
                    found.holds.extend(held.into_iter().map(|what| format!("has {name}, which {what}")));
                }
            }
        }
        found.uses.extend(self.writers(path));
        let mut held = self.held(path, &mut found.uses)?;
        if held.is_empty() && found.holds.is_empty() && (is_block || !is_made(path)) {
            let holds_bytes = holds_bytes(path).map_err(Error::file(path))?;
            held.extend(holds_bytes.then(|| BYTES.to_owned()));
        }
        found.holds.splice(0..0, held);
        Ok(found)
    }

    fn device(&self, name: &str) -> PathBuf {
        Path::new("/dev").join(name.replace('!', "/"))
    }

    /// The contents of a device or file, by labels and signatures. An imported pool is a use.
    fn held(&self, path: &Path, uses: &mut Vec<String>) -> Result<Vec<String>> {
        let file = File::open(path).map_err(Error::file(path))?;
        let size = size(&file).map_err(Error::file(path))?;
        let mut held = Vec::new();
        if let Some((pool, state)) = label(&file, size) {
            match state {
                PoolState::Active if self.has_imported(&pool) => {
                    uses.push(format!("is part of the imported pool '{pool}'"));
                }
                PoolState::Active => {
                    held.push(format!("has the label of pool '{pool}', which was not exported"));
                }
                PoolState::Exported => held.push(format!("has the label of the exported pool '{pool}'")),
                PoolState::Destroyed => held.push(format!("has the label of the destroyed pool '{pool}'")),
                PoolState::Spare => held.push("has the label of a pool's spare".to_owned()),
                PoolState::L2cache => held.push("has the label of a pool's cache device".to_owned()),
            }
        }
        let mut start = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(SIGNATURE_BYTES)];
        let read = file.read_exact_at(&mut start, 0);
        read.map_err(Error::file(path))?;
        if let Some(found) = signature(&start) {
            held.push(match found.is_table {
                true => format!("has a table of partitions ({})", found.kind),
                false => format!("has the signature of {}", found.kind),
            });
        }
        Ok(held)
    }
}

/// Whether a file was opened for writing, according to the kernel.
fn is_for_writing(told: &str) -> bool {
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// The words for contents of no known kind.
const BYTES: &str = "holds data of no known kind";

/// The end of a block device or file.
pub(crate) fn size(file: &File) -> io::Result<u64> {
    Ok(seek(file, SeekFrom::End(0))?)
}

/// The pool that a device's best label names, and its state.
fn label(file: &File, size: u64) -> Option<(String, PoolState)> {
    let labels = (0..LABELS).filter_map(|index| {
        let position = label_offset(size, index)?.get() + VDEV_PHYS.start;
        let mut area = vec![0; (VDEV_PHYS.end - VDEV_PHYS.start) as usize];
        file.read_exact_at(&mut area, position).ok()?;
        verify_label(&area, position).ok()?;
        PoolConfig::parse(parse_config(&area).ok()?).ok()
    });
    let label = labels.max_by_key(|label| label.txg)?;
    // It was to become part of a pool, and no group of that was committed.
    let is_of_none = label.state == PoolState::Active && label.txg.is_none_or(|txg| txg == Txg::NONE);
    let name = label.name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    (!is_of_none).then(|| (name.unwrap_or_default(), label.state))
}

/// Whether there are bytes other than zero, at both ends or at places between.
fn holds_bytes(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let size = size(&file)?;
    // A file of holes alone has nothing to be read.
    if file.metadata()?.is_file() && matches!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO)) {
        return Ok(false);
    }
    let end = (END_BYTES as u64).min(size);
    let step = (size / (PLACES + 1)).max(1);
    let places = (1..=PLACES).map(|at| (at * step, PLACE_BYTES as u64));
    for (at, bytes) in [(0, end), (size - end, end)].into_iter().chain(places) {
        let bytes = bytes.min(size.saturating_sub(at));
        let mut piece = vec![0; bytes as usize];
        file.read_exact_at(&mut piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The findings about a path that workloads would write to.
pub fn look(path: &Path) -> Result<Usage> {
    let mut found = System::default().look(path)?;
    // What cannot be taken exclusively is in use.
    if found.uses.is_empty()
        && let Err(Refused::InUse(by)) = take_all(path)
    {
        found.uses.push(by);
    }
    Ok(found)
}

/// Whether a file was made by the lab.
pub(super) fn is_made(path: &Path) -> bool {
    getxattr(path, MADE, &mut [0_u8; 16]).is_ok()
}

/// Whether a file was made by the lab and filled since.
pub(super) fn is_filled(path: &Path) -> bool {
    let mut value = [0_u8; 16];
    getxattr(path, MADE, &mut value).is_ok_and(|length| value.get(..length) == Some(b"filled"))
}

/// Notes that a file was made by the lab, and whether it is filled. Where a filesystem has no such
/// attributes, nothing is known later, and overwriting needs consent.
pub(super) fn mark(path: &Path, is_filled: bool) {
    let value: &[u8] = if is_filled { b"filled" } else { b"made" };
    let _ = setxattr(path, MADE, value, XattrFlags::empty());
}

/// A file or device that is held until this is dropped, so that no other process takes it meanwhile.
#[derive(Debug)]
pub(super) struct Claim {
    _held: Vec<File>,
}

/// Why something could not be taken.
#[derive(Debug)]
enum Refused {
    /// It is in use, in words that follow its name.
    InUse(String),
    Other(io::Error),
}

/// Takes what is at a path, and the locks of all that it lies on: who has a pool open on the file of a loop
/// device has locked that file. Nothing where nothing is there to be taken.
fn take_all(path: &Path) -> std::result::Result<Vec<File>, Refused> {
    let Some(file) = take(path)? else { return Ok(Vec::new()) };
    let mut held = vec![file];
    for below in System::default().all_foundations(path) {
        // A removed file has no lock that another process could ask for.
        let Ok(file) = File::open(&below) else { continue };
        match lock(&file) {
            Ok(()) => held.push(file),
            Err(Refused::InUse(by)) => {
                return Err(Refused::InUse(format!("lies on {}, which {by}", below.display())));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(held)
}

fn lock(file: &File) -> std::result::Result<(), Refused> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(Refused::InUse("is locked by a process, as by one that has a pool open on it".to_owned()))
        }
        Err(errno) => Err(Refused::Other(errno.into())),
    }
}

/// Takes a device exclusively, or a file's lock; a directory, or what is not there, needs neither.
fn take(path: &Path) -> std::result::Result<Option<File>, Refused> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(None),
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Refused::Other(error)),
    };
    let is_block = metadata.file_type().is_block_device();
    let mut options = File::options();
    options.read(true).write(true);
    if is_block {
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => Refused::InUse("is in use: the kernel refuses exclusive access".to_owned()),
        _ => Refused::Other(error),
    })?;
    lock(&file)?;
    Ok(Some(file))
}

/// A claim: the identity of the file or device, and its contents then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claimed {
    path: PathBuf,
    identity: String,
    held: Vec<String>,
    /// Whether a pool of the lab's is on it, so that it has labels, and as a disk a table of partitions.
    #[serde(default)]
    has_pool: bool,
    /// Whether there was only consent as yet, and nothing was written.
    #[serde(default)]
    is_untaken: bool,
}

impl Claimed {
    /// Whether what was found is from then, or what the lab left there.
    fn explains(&self, what: &String) -> bool {
        let of_pool = what.contains("has the label of") || what.contains("table of partitions");
        let of_lab = what == BYTES || (self.has_pool && of_pool);
        self.held.contains(what) || (of_lab && !self.is_untaken)
    }

    /// Whether it may be of the device at a path that is `identity` since the machine started anew, which
    /// that is unknown.
    fn is_from_before(&self, path: &Path, identity: &str) -> bool {
        let is_of_a_start = |identity: &str| identity.starts_with(DEVICE) && identity.contains(SINCE);
        self.path == path
            && self.identity != identity
            && is_of_a_start(&self.identity)
            && is_of_a_start(identity)
    }
}

/// What the identity of a device begins with, and what stands before the start of the machine that it is of
/// where the device does not say which it is.
const DEVICE: &str = "device ";
const SINCE: &str = " since ";

/// Why what was found at a path may not be written, of which nothing is left that is known of it. `all` was
/// claimed before.
fn fault_of(
    found: &Usage,
    path: &Path,
    identity: &str,
    all: &[Claimed],
    may_overwrite: bool,
) -> Option<String> {
    let mut fault = found.fault(path, may_overwrite)?;
    if found.uses.is_empty() && all.iter().any(|it| it.is_from_before(path, identity)) {
        fault.push_str(
            ". This experiment had consent before the machine was restarted, but the device has no wwid or \
             serial number by which it could be recognized",
        );
    }
    Some(fault)
}

/// Which file or device is at a path: another device may have its name after the next start of the machine,
/// unless it says which it is by itself.
fn identity(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::file(path))?;
    if metadata.file_type().is_block_device() {
        let number = Number::of(metadata.rdev());
        if let Some(own) = System::default().own_identity(&number) {
            let size = File::open(path).and_then(|file| size(&file)).map_err(Error::file(path))?;
            return Ok(format!("{DEVICE}{own} of {size} bytes"));
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        return Ok(format!("{DEVICE}{}{SINCE}{}", Number::of(metadata.rdev()).0, boot.trim()));
    }
    Ok(format!("file {} of {}", metadata.ino(), metadata.dev()))
}

/// Claims a file or device for writing, unless another program needs it. What was claimed before for the
/// experiment in `directory` may hold what it held then, and data.
pub(super) fn claim(path: &Path, may_overwrite: bool, directory: &Path) -> Result<Claim> {
    claim_as(path, may_overwrite, directory, false)
}

/// The same for a pool to be made on it, which then holds it itself.
pub(super) fn claim_for_pool(path: &Path, may_overwrite: bool, directory: &Path) -> Result<()> {
    claim_as(path, may_overwrite, directory, true).map(drop)
}

/// A device and its partitions, of which one is a pool's where a disk was given to it as a whole.
pub(super) fn devices_of(path: &Path) -> Vec<PathBuf> {
    let system = System::default();
    let partitions = Number::at(path).map(|number| system.partitions(&number)).unwrap_or_default();
    let partitions = partitions.into_iter().map(|(name, _)| system.device(&name));
    std::iter::once(path.to_owned()).chain(partitions.filter(|path| path.exists())).collect()
}

fn claim_as(path: &Path, may_overwrite: bool, directory: &Path, has_pool: bool) -> Result<Claim> {
    let mut found = System::default().look(path)?;
    let held = match take_all(path) {
        Ok(held) => held,
        Err(Refused::Other(error)) => return Err(Error::file(path)(error)),
        Err(Refused::InUse(by)) => {
            if found.uses.is_empty() {
                found.uses.push(by);
            }
            Vec::new()
        }
    };
    if held.is_empty() && found.uses.is_empty() {
        return Ok(Claim { _held: held });
    }
    let identity = identity(path)?;
    let mut all = claims(directory)?;
    let known = all.iter().find(|it| it.path == path && it.identity == identity);
    let before = found.holds.clone();
    if let Some(known) = known {
        found.holds.retain(|what| !known.explains(what));
    }
    if let Some(what) = fault_of(&found, path, &identity, &all, may_overwrite) {
        return Err(Error::Experiment(what));
    }
    if known.is_none_or(|known| known.is_untaken) {
        let claimed = Claimed { path: path.to_owned(), identity, held: before, has_pool, is_untaken: false };
        note(&mut all, claimed);
        keep(directory, &all)?;
    }
    Ok(Claim { _held: held })
}

/// Adds to what is known, in the place of what is known of the same path.
fn note(all: &mut Vec<Claimed>, claimed: Claimed) {
    all.retain(|it| it.path != claimed.path);
    all.push(claimed);
}

fn keep(directory: &Path, all: &[Claimed]) -> Result<()> {
    let file = directory.join(CLAIMS);
    let text = serde_json::to_vec_pretty(all);
    let text = text.map_err(|error| Error::Results { path: file.clone(), what: error.to_string() })?;
    // Who is killed meanwhile loses no consent that there was.
    let beside = file.with_extension("new");
    fs::write(&beside, text).map_err(Error::file(&beside))?;
    fs::rename(&beside, &file).map_err(Error::file(&file))
}

/// Notes, for the experiment in `directory`, that what these files and devices hold now may be overwritten,
/// and what is behind these URIs. What holds nothing needs no consent, and has none for what is put there
/// later.
pub fn consent(paths: &[&Path], uris: &[&str], directory: &Path) -> Result<()> {
    let mut all = claims(directory)?;
    for path in paths {
        let held = System::default().look(path)?.holds;
        if held.is_empty() {
            continue;
        }
        let identity = identity(path)?;
        // What was taken before may hold what it holds now as well.
        let known = all.iter().find(|it| it.path == **path && it.identity == identity);
        let (has_pool, is_untaken) = known.map_or((false, true), |it| (it.has_pool, it.is_untaken));
        note(&mut all, Claimed { path: path.to_path_buf(), identity, held, has_pool, is_untaken });
    }
    for uri in uris {
        let (path, identity) = (PathBuf::from(uri), EXPORT.to_owned());
        note(&mut all, Claimed { path, identity, held: Vec::new(), has_pool: false, is_untaken: false });
    }
    keep(directory, &all)
}

/// What stands for which file or device it is, of an export: another under the same URI is not distinguished
/// from it.
const EXPORT: &str = "export";

/// Why workloads may not write to what is behind a URI; nothing where they may.
pub fn fault_of_export(uri: &str, may_overwrite: bool, directory: Option<&Path>) -> Result<Option<String>> {
    let is_known = match directory {
        Some(directory) => {
            claims(directory)?.iter().any(|it| it.path == Path::new(uri) && it.identity == EXPORT)
        }
        None => false,
    };
    Ok((!may_overwrite && !is_known).then(|| {
        format!(
            "target {uri}: workloads would overwrite what it holds; if they may, say so (--overwrite, or \
             overwrite = true in [target])"
        )
    }))
}

/// The faults of what is at a path that workloads would write to: what it was asked about before for the
/// experiment in `directory` is no more.
pub fn fault(path: &Path, may_overwrite: bool, directory: Option<&Path>) -> Result<Option<String>> {
    let mut found = look(path)?;
    let Some((directory, identity)) = directory.zip(identity(path).ok()) else {
        return Ok(found.fault(path, may_overwrite));
    };
    let all = claims(directory)?;
    if let Some(known) = all.iter().find(|it| it.path == path && it.identity == identity) {
        found.holds.retain(|what| !known.explains(what));
    }
    Ok(fault_of(&found, path, &identity, &all, may_overwrite))
}

fn claims(directory: &Path) -> Result<Vec<Claimed>> {
    let file = directory.join(CLAIMS);
    match fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| Error::Results { path: file, what: error.to_string() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::file(&file)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that has a disk 8:16 with two partitions.
    fn system(root: &Path, mountinfo: &str) -> System {
        let disk = root.join("sys/dev/block/8:16");
        for (name, number) in [("sdb1", "8:17"), ("sdb2", "8:18")] {
            let partition = disk.join(name);
            fs::create_dir_all(&partition).unwrap();
            fs::write(partition.join("partition"), "1\n").unwrap();
            fs::write(partition.join("dev"), format!("{number}\n")).unwrap();
        }
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mountinfo"), mountinfo).unwrap();
        System { proc: root.join("proc"), sys: root.join("sys") }
    }

    #[test]
    fn who_uses_a_device_is_told() {
        let root = tempfile::tempdir().unwrap();
        let system = system(root.path(), "36 35 8:17 / /data rw,noatime - ext4 /dev/sdb1 rw\n");
        let number = |text: &str| Number(text.to_owned());
        assert_eq!(system.uses(&number("8:17")), ["is mounted at /data"]);
        assert!(system.uses(&number("8:16")).is_empty());
        let partitions = system.partitions(&number("8:16"));
        assert_eq!(partitions[0], ("sdb1".to_owned(), number("8:17")));
        let holder = root.path().join("sys/dev/block/8:18/holders/dm-3/dm");
        fs::create_dir_all(&holder).unwrap();
        fs::write(holder.join("name"), "vg-home\n").unwrap();
        assert_eq!(system.uses(&number("8:18")), ["is part of dm-3 (vg-home)"]);
        fs::create_dir_all(root.path().join("proc/spl/kstat/zfs/tank")).unwrap();
        fs::write(root.path().join("proc/spl/kstat/zfs/tank/state"), "ONLINE").unwrap();
        assert!(system.has_imported("tank") && !system.has_imported("tan"));
        // A device that is mounted here, by the number that the kernel has for it.
        let here = fs::metadata("/").unwrap().dev();
        if major(here) > 0 {
            assert!(System::default().uses(&Number::of(here)).iter().any(|it| it.contains("is mounted at")));
        }
    }

    #[test]
    fn files_that_something_lies_on_are_in_use() {
        let root = tempfile::tempdir().unwrap();
        let system = system(root.path(), "");
        let at = root.path().canonicalize().unwrap();
        let (image, swap) = (at.join("image"), at.join("swap"));
        fs::write(&image, "").unwrap();
        fs::write(&swap, "").unwrap();
        fs::create_dir_all(at.join("sys/block/loop7/loop")).unwrap();
        fs::write(at.join("sys/block/loop7/loop/backing_file"), format!("{}\n", image.display())).unwrap();
        fs::write(at.join("proc/swaps"), format!("Filename Type\n{} file 1 0 -2\n", swap.display())).unwrap();
        assert_eq!(system.look(&image).unwrap().uses, ["is what loop7 lies on"]);
        assert_eq!(system.look(&swap).unwrap().uses, ["is swapped to"]);
        // A virtual machine has its disk open for writing; a reader does no harm.
        let disk = at.join("disk");
        fs::write(&disk, "").unwrap();
        for (process, flags) in [("77", "0100002"), ("78", "0100000")] {
            let process = at.join("proc").join(process);
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::create_dir_all(process.join("fdinfo")).unwrap();
            std::os::unix::fs::symlink(&disk, process.join("fd/3")).unwrap();
            fs::write(process.join("fdinfo/3"), format!("pos:\t0\nflags:\t{flags}\n")).unwrap();
            fs::write(process.join("comm"), "qemu\n").unwrap();
        }
        assert_eq!(system.look(&disk).unwrap().uses, ["is open for writing in process 77 (qemu)"]);
    }

    #[test]
    fn another_name_makes_no_other_file() {
        let root = tempfile::tempdir().unwrap();
        let system = system(root.path(), "36 35 7:7 / /data rw - ext4 /dev/loop7 rw\n");
        let at = root.path().canonicalize().unwrap();
        let (image, link) = (at.join("image"), at.join("link"));
        fs::write(&image, "").unwrap();
        fs::hard_link(&image, &link).unwrap();
        fs::create_dir_all(at.join("sys/block/loop7/loop")).unwrap();
        fs::write(at.join("sys/block/loop7/dev"), "7:7\n").unwrap();
        fs::write(at.join("sys/block/loop7/loop/backing_file"), format!("{}\n", image.display())).unwrap();
        assert_eq!(system.look(&link).unwrap().uses, ["is what loop7 lies on, which is mounted at /data"]);
        fs::write(at.join("swap file"), "").unwrap();
        fs::hard_link(at.join("swap file"), at.join("swap")).unwrap();
        let swaps = format!("Filename Type\n{}/swap\\040file file 1 0 -2\n", at.display());
        fs::write(at.join("proc/swaps"), swaps).unwrap();
        assert_eq!(system.look(&at.join("swap")).unwrap().uses, ["is swapped to"]);
        for (number, has_inode) in [(77, true), (78, false)] {
            let disk = at.join(format!("disk {number}"));
            fs::write(&disk, "").unwrap();
            fs::hard_link(&disk, disk.with_extension("other")).unwrap();
            let process = at.join("proc").join(number.to_string());
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::create_dir_all(process.join("fdinfo")).unwrap();
            std::os::unix::fs::symlink(disk.with_extension("other"), process.join("fd/3")).unwrap();
            let inode = fs::metadata(&disk).unwrap().ino();
            let inode = if has_inode { format!("ino:\t{inode}\n") } else { String::new() };
            fs::write(process.join("fdinfo/3"), format!("flags:\t0100002\n{inode}")).unwrap();
            assert_eq!(system.look(&disk).unwrap().uses.len(), 1, "{number}");
        }
    }

    #[test]
    fn what_a_loop_device_lies_on_is_asked_for_it_and_its_partitions() {
        let root = tempfile::tempdir().unwrap();
        let system = system(root.path(), "36 35 7:9 / /data rw - ext4 /dev/loop9 rw\n");
        let at = root.path().canonicalize().unwrap();
        let image = at.join("image");
        fs::write(&image, "").unwrap();
        fs::create_dir_all(at.join("sys/dev/block")).unwrap();
        for (name, number) in [("loop8", "7:8"), ("loop9", "7:9")] {
            let device = at.join("sys/block").join(name);
            fs::create_dir_all(device.join("loop")).unwrap();
            fs::write(device.join("dev"), format!("{number}\n")).unwrap();
            fs::write(device.join("loop/backing_file"), format!("{}\n", image.display())).unwrap();
            std::os::unix::fs::symlink(&device, at.join("sys/dev/block").join(number)).unwrap();
        }
        let partition = at.join("sys/block/loop8/loop8p1");
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("partition"), "1\n").unwrap();
        fs::write(partition.join("dev"), "259:1\n").unwrap();
        std::os::unix::fs::symlink(&partition, at.join("sys/dev/block/259:1")).unwrap();
        // A mapping of its partition.
        let mapping = at.join("sys/block/dm-0");
        fs::create_dir_all(mapping.join("slaves")).unwrap();
        std::os::unix::fs::symlink(&partition, mapping.join("slaves/loop8p1")).unwrap();
        std::os::unix::fs::symlink(&mapping, at.join("sys/dev/block/253:0")).unwrap();
        for number in ["7:8", "259:1", "253:0"] {
            let uses = system.all_uses(&Thing::Device(Number(number.to_owned())), &mut Vec::new());
            let expected = format!(
                "lies on {}, which is what loop9 lies on, which is mounted at /data",
                image.display()
            );
            assert!(uses.iter().any(|use_| use_.ends_with(&expected)), "{number}: {uses:?}");
        }
        fs::write(at.join("proc/self/mountinfo"), "").unwrap();
        fs::remove_dir_all(at.join("sys/block/loop9")).unwrap();
        let uses = || system.all_uses(&Thing::Device(Number("7:8".to_owned())), &mut Vec::new());
        assert!(uses().is_empty(), "{:?}", uses());
        let away = at.join("sys/block/loop8/loop/backing_file");
        fs::write(&away, "/nowhere/of/theirs (deleted)\n").unwrap();
        assert!(uses().is_empty());
        fs::write(&away, "/nowhere/of/theirs\n").unwrap();
        assert!(uses()[0].contains("cannot be looked at"), "{:?}", uses());
    }

    /// A loop device, detached when this is dropped.
    struct Attached(PathBuf);

    impl Attached {
        fn to(image: &Path) -> std::result::Result<Self, String> {
            let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(image).output();
            let made = made.map_err(|error| error.to_string())?;
            if !made.status.success() {
                return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
            }
            Ok(Self(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim())))
        }
    }

    impl Drop for Attached {
        fn drop(&mut self) {
            let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    #[test]
    fn a_loop_device_is_as_much_in_use_as_its_file() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("image");
        File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let device = match Attached::to(&image) {
            Ok(device) => device,
            Err(why) => {
                println!("skipped: no loop device: {why}");
                return;
            }
        };
        let claim = || claim(&device.0, true, root.path());
        let held = claim().unwrap();
        // Its file is taken with it, as by a pool that is opened.
        assert!(matches!(take(&image), Err(Refused::InUse(_))));
        drop(held);
        let theirs = take(&image).unwrap();
        let error = claim().unwrap_err().to_string();
        assert!(error.contains("lies on") && error.contains("locked by a process"), "{error}");
        assert_eq!(look(&device.0).unwrap().uses.len(), 1);
        drop(theirs);
        let link = root.path().join("link");
        fs::hard_link(&image, &link).unwrap();
        let name = device.0.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(look(&link).unwrap().uses, [format!("is what {name} lies on")]);
        let other = Attached::to(&link).unwrap();
        let error = claim().unwrap_err().to_string();
        let name = other.0.file_name().unwrap().to_string_lossy().into_owned();
        assert!(error.contains(&format!("is what {name} lies on")), "{error}");
        drop(other);
        claim().unwrap();
    }

    #[test]
    fn what_a_file_holds_is_told_and_needs_consent() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let with = |name: &str, offset: u64, bytes: &[u8]| {
            let file = File::create(at(name)).unwrap();
            file.set_len(8 << 20).unwrap();
            file.write_all_at(bytes, offset).unwrap();
        };
        with("xfs", 0, b"XFSB");
        with("disk", 510, &[0x55, 0xaa]);
        with("end", (8 << 20) - 4096, b"x");
        with("empty", 0, b"");
        let claim = |name: &str, may| super::claim(&at(name), may, root.path());
        for (name, told) in
            [("xfs", "signature of xfs"), ("disk", "table of partitions (dos)"), ("end", "holds data")]
        {
            let error = claim(name, false).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("--overwrite"), "{error}");
        }
        claim("empty", false).unwrap();
        claim("nothing", false).unwrap();
        claim("xfs", true).unwrap();
        // Gone on with it is not asked of again, but of something else that was put there.
        with("xfs", 0, b"XFSB");
        claim("xfs", false).unwrap();
        with("xfs", 0, b"hsqs");
        assert!(claim("xfs", false).unwrap_err().to_string().contains("squashfs"));
        // What the lab made it may write, unless it became something.
        with("end", (8 << 20) - 4096, b"x");
        mark(&at("end"), true);
        if is_filled(&at("end")) {
            super::claim(&at("end"), false, &at("")).unwrap();
            File::options().write(true).open(at("end")).unwrap().write_all_at(b"XFSB", 0).unwrap();
            assert!(fault(&at("end"), false, None).unwrap().unwrap().contains("signature of xfs"));
        }
    }

    #[test]
    fn consent_is_for_what_was_there_then_and_for_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["theirs", "other", "replaced"] {
            fs::write(at(name), b"hsqs").unwrap();
        }
        fs::write(at("empty"), "").unwrap();
        let paths = ["theirs", "other", "replaced", "empty"].map(at);
        let paths = paths.each_ref().map(PathBuf::as_path);
        consent(&paths, &["nbd://h/v"], root.path()).unwrap();
        let fault = |name: &str| super::fault(&at(name), false, Some(root.path())).unwrap();
        let claim = |name: &str| super::claim(&at(name), false, root.path());
        assert_eq!(fault("theirs"), None);
        drop(claim("theirs").unwrap());
        // What is there after that may be the lab's.
        fs::write(at("theirs"), b"what a workload wrote").unwrap();
        assert_eq!(fault("theirs"), None);
        // Of what was not written yet it is not.
        fs::write(at("other"), b"something else").unwrap();
        assert!(fault("other").unwrap().contains("holds data") && claim("other").is_err());
        fs::write(at("new"), b"hsqs").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        assert!(fault("replaced").unwrap().contains("squashfs"));
        fs::write(at("empty"), b"not empty any more").unwrap();
        assert!(fault("empty").is_some());
        let of_export = |uri: &str, may| fault_of_export(uri, may, Some(root.path())).unwrap();
        assert_eq!((of_export("nbd://h/v", false), of_export("nbd://h/w", true)), (None, None));
        assert!(of_export("nbd://h/w", false).unwrap().contains("--overwrite"));
        assert!(fault_of_export("nbd://h/v", false, None).unwrap().is_some());
    }

    #[test]
    fn a_disk_is_known_by_what_it_says_of_itself() {
        let root = tempfile::tempdir().unwrap();
        let system = system(root.path(), "");
        let disk = root.path().join("sys/dev/block/8:16");
        let of = |number: &str| system.own_identity(&Number(number.to_owned()));
        assert_eq!(of("8:16"), None);
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("device/wwid"), "naa.5000c500\n").unwrap();
        std::os::unix::fs::symlink(disk.join("sdb1"), root.path().join("sys/dev/block/8:17")).unwrap();
        assert_eq!(of("8:16").unwrap(), "naa.5000c500");
        assert_eq!(of("8:17").unwrap(), "naa.5000c500, partition 1,");
    }

    #[test]
    fn who_is_asked_again_because_the_machine_was_started_anew_is_told_so() {
        let path = Path::new("/dev/sdx");
        let claimed = |identity: &str| Claimed {
            path: path.to_owned(),
            identity: identity.to_owned(),
            held: vec![BYTES.to_owned()],
            has_pool: false,
            is_untaken: false,
        };
        let holds = Usage { holds: vec![BYTES.to_owned()], ..Usage::default() };
        let now = "device 8:16 since now";
        let told = |before: &str| fault_of(&holds, path, now, &[claimed(before)], false).unwrap();
        assert!(told("device 8:32 since before").contains("no wwid or serial number"));
        for other in ["file 7 of 8", "device naa.5000c500 of 512 bytes"] {
            assert!(!told(other).contains("started anew"), "{other}");
        }
        let known = [claimed("device 8:32 since before")];
        assert_eq!(fault_of(&holds, path, now, &known, true), None);
        let own = fault_of(&holds, path, "device naa.5000c500 of 512 bytes", &known, false).unwrap();
        assert!(!own.contains("started anew"), "{own}");
        let in_use = Usage { uses: vec!["is mounted at /".to_owned()], ..holds.clone() };
        assert!(!fault_of(&in_use, path, now, &known, false).unwrap().contains("started anew"));
    }

    #[test]
    fn what_is_locked_is_never_written_and_what_is_claimed_is_locked() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let held = claim(&path, false, root.path()).unwrap();
        let error = claim(&path, true, root.path()).unwrap_err().to_string();
        assert!(error.contains("locked by a process") && error.contains("never"), "{error}");
        assert!(look(&path).unwrap().uses.len() == 1);
        drop(held);
        claim(&path, false, root.path()).unwrap();
    }
}
