//! Whether somebody else needs what is in a file or device that is to be written.
//!
//! Before anything of what somebody named is written, all of this is looked at, and all that was found is told:
//!
//! | found | of | may be written |
//! |---|---|---|
//! | it is mounted, swapped to, part of something else (md, dm, LVM, bcache), or the kernel says that it is in use | a device, its partitions | never |
//! | a pool that is imported has it, a process has it open for writing as a virtual machine does, or locked as one does that has a pool open, a loop device or swap lies on it | a device or file | never |
//! | the label of a pool, the signature of a filesystem or of something else, a table of partitions | a device, its partitions, a file | where the experiment says `overwrite` |
//! | bytes other than zero | a device, or a file that the lab did not make | where the experiment says `overwrite` |
//!
//! What may be written is claimed for as long as the experiment runs: a device exclusively, as a mount would, a file by its lock. What was claimed is noted in the directory of results (`claims.json`), so that
//! whoever goes on with the experiment is not asked again because of what the lab itself left there; it is, where something else was put there meanwhile.
//!
//! Files that the lab makes have the attribute `user.cenote.lab` since then, which says whether they were filled.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use codec::checksum::verify_label;
use device::contents::{SIGNATURE_BYTES, signature};
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

/// Where bytes are looked for that no signature tells of: so much at both ends, and at so many places between, so much each.
const END_BYTES: usize = 1 << 20;
const PLACES: u64 = 64;
const PLACE_BYTES: usize = 4096;

/// What was found of a file or device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Who uses it, each in words that follow on its name.
    pub uses: Vec<String>,
    /// What it holds.
    pub holds: Vec<String>,
}

impl Found {
    /// Why it may not be written; nothing where it may.
    pub fn fault(&self, path: &Path, may_overwrite: bool) -> Option<String> {
        let path = path.display();
        if !self.uses.is_empty() {
            return Some(format!(
                "target {path} {}: workloads would write to it, which is never done to what is in use",
                self.uses.join("; it ")
            ));
        }
        (!may_overwrite && !self.holds.is_empty()).then(|| {
            format!(
                "target {path} {}: workloads would overwrite it; where that is wanted, say so (--overwrite, or overwrite = true in [target])",
                self.holds.join("; it ")
            )
        })
    }
}

/// Where the kernel tells what is used, and by whom.
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

impl System {
    fn read(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The kernel's directory of a device.
    fn directory(&self, number: &Number) -> PathBuf {
        self.sys.join("dev/block").join(&number.0)
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

    /// Who uses a block device, as far as the kernel lists that.
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
        let swaps = self.read(self.proc.join("swaps"));
        let mut swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        if swaps.any(|swap| Number::at(Path::new(swap)).as_ref() == Some(number)) {
            uses.push("is swapped to".to_owned());
        }
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

    /// Who uses a file: swap, or a loop device that lies on it.
    fn uses_of_file(&self, path: &Path) -> Vec<String> {
        let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
        let mut uses = Vec::new();
        let swaps = self.read(self.proc.join("swaps"));
        let mut swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        if swaps.any(|swap| Path::new(swap) == path) {
            uses.push("is swapped to".to_owned());
        }
        for entry in fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten() {
            let backing = self.read(entry.path().join("loop/backing_file"));
            if !backing.is_empty() && Path::new(backing.trim_end_matches('\n')) == path {
                uses.push(format!("is what {} lies on", entry.file_name().to_string_lossy()));
            }
        }
        uses
    }

    /// The other processes that have a file or device open for writing, as far as one may see that.
    fn writers(&self, path: &Path) -> Vec<String> {
        let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
        let own = std::process::id().to_string();
        let mut all = Vec::new();
        for process in fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let number = process.file_name().to_string_lossy().into_owned();
            if !number.bytes().all(|byte| byte.is_ascii_digit()) || number == own {
                continue;
            }
            let process = process.path();
            let writes = |open: &fs::DirEntry| {
                // Where it leads is read and not followed: what is behind it may not answer.
                fs::read_link(open.path()).is_ok_and(|to| to == path)
                    && is_for_writing(&self.read(process.join("fdinfo").join(open.file_name())))
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
    fn look(&self, path: &Path) -> Result<Found> {
        let mut found = Found::default();
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(Error::file(path)(error)),
        };
        if metadata.is_dir() {
            return Ok(found);
        }
        let is_block = metadata.file_type().is_block_device();
        if is_block {
            let number = Number::of(metadata.rdev());
            found.uses = self.uses(&number);
            for (name, partition) in self.partitions(&number) {
                let its = self.uses(&partition).into_iter().map(|use_| format!("has {name}, which {use_}"));
                found.uses.extend(its);
                let device = self.device(&name);
                if Number::at(&device).as_ref() == Some(&partition) {
                    let held = self.held(&device, &mut found.uses)?;
                    found.holds.extend(held.into_iter().map(|what| format!("has {name}, which {what}")));
                }
            }
        } else {
            found.uses = self.uses_of_file(path);
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

    /// What a device or file says that it holds. A pool that is imported is a use.
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

/// Whether a file was opened for writing, by what the kernel tells of that.
fn is_for_writing(told: &str) -> bool {
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// What is said of bytes of no known kind.
const BYTES: &str = "holds data of no known kind";

/// Where somebody's block device or file ends.
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

/// What was found at a path that workloads would write to.
pub fn look(path: &Path) -> Result<Found> {
    let mut found = System::default().look(path)?;
    // What cannot be taken for oneself is in use, whoever by.
    if found.uses.is_empty()
        && let Err(error) = take(path)
    {
        found.uses.extend(in_use(&error));
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

/// Notes that a file was made by the lab, and whether it is filled. Where a filesystem has no such attributes, nothing is known later, and whoever overwrites it is asked.
pub(super) fn mark(path: &Path, is_filled: bool) {
    let value: &[u8] = if is_filled { b"filled" } else { b"made" };
    let _ = setxattr(path, MADE, value, XattrFlags::empty());
}

/// A file or device that is held until this is dropped, so that nobody else takes it meanwhile.
#[derive(Debug)]
pub(super) struct Claim {
    _held: Option<File>,
}

/// Why something could not be taken.
enum Refused {
    InUse(bool),
    Other(io::Error),
}

fn in_use(refused: &Refused) -> Option<String> {
    match refused {
        Refused::InUse(true) => Some("is in use: the kernel gives it to nobody else".to_owned()),
        Refused::InUse(false) => {
            Some("is locked by a process, as by one that has a pool open on it".to_owned())
        }
        Refused::Other(_) => None,
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
        Some(Errno::BUSY) => Refused::InUse(true),
        _ => Refused::Other(error),
    })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Err(Refused::InUse(false)),
        Err(errno) => Err(Refused::Other(errno.into())),
    }
}

/// What was claimed: which file or device that was, and what it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claimed {
    path: PathBuf,
    identity: String,
    held: Vec<String>,
    /// Whether a pool of the lab's is on it, so that it has labels, and as a disk a table of partitions.
    #[serde(default)]
    has_pool: bool,
}

impl Claimed {
    /// Whether what was found is from then, or what the lab left there.
    fn explains(&self, what: &String) -> bool {
        let of_pool = what.contains("has the label of") || what.contains("table of partitions");
        what == BYTES || self.held.contains(what) || (self.has_pool && of_pool)
    }
}

/// Which file or device is at a path: another device may have its name after the next start of the machine.
fn identity(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::file(path))?;
    if metadata.file_type().is_block_device() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        return Ok(format!("device {} since {}", Number::of(metadata.rdev()).0, boot.trim()));
    }
    Ok(format!("file {} of {}", metadata.ino(), metadata.dev()))
}

/// Claims what is at a path, to write to it, unless somebody else needs it. What was claimed before for the experiment in `directory` may hold what it held then, and data.
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
    let held = match take(path) {
        Ok(held) => held,
        Err(Refused::Other(error)) => return Err(Error::file(path)(error)),
        Err(refused) => {
            if found.uses.is_empty() {
                found.uses.extend(in_use(&refused));
            }
            None
        }
    };
    if held.is_none() && found.uses.is_empty() {
        return Ok(Claim { _held: None });
    }
    let identity = identity(path)?;
    let mut all = claims(directory)?;
    let known = all.iter().find(|it| it.path == path && it.identity == identity);
    let before = found.holds.clone();
    if let Some(known) = known {
        found.holds.retain(|what| !known.explains(what));
    }
    if let Some(what) = found.fault(path, may_overwrite) {
        return Err(Error::Experiment(what));
    }
    if known.is_none() {
        all.retain(|it| it.path != path);
        all.push(Claimed { path: path.to_owned(), identity, held: before, has_pool });
        let file = directory.join(CLAIMS);
        let text = serde_json::to_vec_pretty(&all);
        let text = text.map_err(|error| Error::Results { path: file.clone(), what: error.to_string() })?;
        fs::write(&file, text).map_err(Error::file(&file))?;
    }
    Ok(Claim { _held: held })
}

/// The faults of what is at a path that workloads would write to: what it was asked about before for the experiment in `directory` is no more.
pub fn fault(path: &Path, may_overwrite: bool, directory: Option<&Path>) -> Result<Option<String>> {
    let mut found = look(path)?;
    if let Some(directory) = directory
        && let Ok(identity) = identity(path)
        && let Some(known) = claims(directory)?.iter().find(|it| it.path == path && it.identity == identity)
    {
        found.holds.retain(|what| !known.explains(what));
    }
    Ok(found.fault(path, may_overwrite))
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
        // A virtual machine has its disk open for writing, who only reads harms nobody.
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
