//! The users of a file or device, as the kernel lists them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::medium::{major, minor};

/// So many files and devices are asked after for one, where loop devices lie on each other.
const MOST_ASKED: usize = 64;

/// Where the kernel reports what is in use, and by what.
#[derive(Debug, Clone)]
pub(super) struct System {
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
pub(super) struct Number(pub(super) String);

impl Number {
    pub(super) fn of(device: u64) -> Self {
        Self(format!("{}:{}", major(device), minor(device)))
    }

    /// Of the block device at a path; nothing of anything else.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok().filter(|it| it.file_type().is_block_device())?;
        Some(Self::of(metadata.rdev()))
    }
}

/// Which file or device it is, whatever its names are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Thing {
    Device(Number),
    File {
        device: u64,
        inode: u64,
    },
    /// A device without a node, by the kernel's name.
    Gone(PathBuf),
}

impl Thing {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            return Self::Device(Number::of(metadata.rdev()));
        }
        Self::File { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(super) fn at(path: &Path) -> Self {
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
    pub(super) fn read(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The kernel's directory of a device.
    fn directory(&self, number: &Number) -> PathBuf {
        self.sys.join("dev/block").join(&number.0)
    }

    /// The identification of a disk, and the number of a partition on it.
    pub(super) fn own_identity(&self, number: &Number) -> Option<String> {
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
    pub(super) fn partitions(&self, disk: &Number) -> Vec<(String, Number)> {
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
    pub(super) fn all_foundations(&self, path: &Path) -> Vec<PathBuf> {
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
    pub(super) fn all_uses(&self, thing: &Thing, asked: &mut Vec<Thing>) -> Vec<String> {
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
    pub(super) fn writers(&self, path: &Path) -> Vec<String> {
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
    pub(super) fn has_imported(&self, pool: &str) -> bool {
        !pool.contains('/') && self.proc.join("spl/kstat/zfs").join(pool).join("state").exists()
    }

    pub(super) fn device(&self, name: &str) -> PathBuf {
        Path::new("/dev").join(name.replace('!', "/"))
    }
}

/// Whether a file was opened for writing, according to the kernel.
fn is_for_writing(told: &str) -> bool {
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// A device and its partitions, of which one is a pool's where a disk was given to it as a whole.
pub(crate) fn devices_of(path: &Path) -> Vec<PathBuf> {
    let system = System::default();
    let partitions = Number::at(path).map(|number| system.partitions(&number)).unwrap_or_default();
    let partitions = partitions.into_iter().map(|(name, _)| system.device(&name));
    std::iter::once(path.to_owned()).chain(partitions.filter(|path| path.exists())).collect()
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
}
