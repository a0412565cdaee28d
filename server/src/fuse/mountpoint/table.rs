//! The kernel's table of mounts, as `/proc/PID/mountinfo` has it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{MountOptions, Mountpoint, unescaped};

/// The kernel's table of mounts.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
    /// Which rows are of a filesystem.
    of_device: HashMap<libc::dev_t, Vec<usize>>,
    /// Which row is of a mount, by the kernel's number for it.
    of_mount: HashMap<u64, usize>,
}

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The kernel's number for the mount that it is in.
    parent: u64,
    device: libc::dev_t,
    /// It is of a FUSE session.
    is_of_a_session: bool,
    /// The directory of the filesystem that is mounted: `/` for all of it.
    root: PathBuf,
    at: PathBuf,
    forbids: Forbidden,
    /// The options of the mount, not those of the filesystem.
    pub options: String,
    /// Which mounts it follows, and which follow it.
    pub groups: Vec<String>,
    /// Its name.
    pub name: OsString,
}

/// What the kernel forbids in a mount: the system's `mount -o remount` changes it without the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forbidden {
    /// Changes.
    pub write: bool,
    /// Running programs.
    pub exec: bool,
    /// Set-user-id bits that count.
    pub setuid: bool,
    /// Device nodes that work.
    pub devices: bool,
}

impl Forbidden {
    /// By the options of the mount, and those of the filesystem.
    fn parse(mount: &str, filesystem: &str) -> Self {
        let has = |word: &str| mount.split(',').any(|other| other == word);
        Self {
            write: has("ro") || filesystem.split(',').any(|word| word == "ro"),
            exec: has("noexec"),
            setuid: has("nosuid"),
            devices: has("nodev"),
        }
    }

    /// Options that hold then.
    pub fn applied_to(self, options: &MountOptions) -> MountOptions {
        MountOptions {
            writable: options.writable && !self.write,
            exec: options.exec && !self.exec,
            setuid: options.setuid && !self.setuid,
            devices: options.devices && !self.devices,
            ..options.clone()
        }
    }
}

impl Row {
    /// The number of its filesystem.
    pub fn device(&self) -> libc::dev_t {
        self.device
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether it is of the whole filesystem, and not of a directory in it.
    fn is_whole(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The directory of its filesystem that a path below it is.
    pub fn directory_at(&self, path: &Path) -> Option<PathBuf> {
        Some(self.root.join(path.strip_prefix(&self.at).ok()?))
    }

    /// Whether its filesystem is of a FUSE session.
    pub fn is_of_a_session(&self) -> bool {
        self.is_of_a_session
    }

    /// For messages.
    pub fn shown(&self) -> String {
        format!("'{}' at {}", self.name.display(), self.at.display())
    }
}

impl Table {
    /// The mounts that this process sees.
    ///
    /// # Errors
    /// The error of the system.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
    }

    /// The table in the words of the kernel.
    pub fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let mut words = line.split(' ');
            let (mount, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (major, minor) = words.next()?.split_once(':')?;
            let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
            let root = PathBuf::from(OsString::from_vec(unescaped(words.next()?)));
            let at = PathBuf::from(OsString::from_vec(unescaped(words.next()?)));
            let options = words.next().unwrap_or_default().to_owned();
            let groups = words.by_ref().take_while(|word| *word != "-").map(str::to_owned).collect();
            let is_of_a_session = words.next().is_some_and(|kind| kind.starts_with("fuse"));
            let name = OsString::from_vec(unescaped(words.next().unwrap_or_default()));
            let forbids = Forbidden::parse(&options, words.next().unwrap_or_default());
            Some((mount, Row { parent, device, is_of_a_session, root, at, forbids, options, groups, name }))
        };
        let mut table = Self::default();
        for (mount, row) in text.lines().filter_map(row) {
            let number = table.rows.len();
            table.of_device.entry(row.device).or_default().push(number);
            table.of_mount.insert(mount, number);
            table.rows.push(row);
        }
        table
    }

    /// All mounts.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// The mounts of a filesystem.
    fn rows_of(&self, device: libc::dev_t) -> impl DoubleEndedIterator<Item = &Row> {
        let numbers = self.of_device.get(&device).into_iter().flatten();
        numbers.filter_map(|number| self.rows.get(*number))
    }

    /// The mount that another one is in, if it is visible.
    pub fn parent_of(&self, row: &Row) -> Option<&Row> {
        self.rows.get(*self.of_mount.get(&row.parent)?)
    }

    /// Whether a filesystem is mounted at its place, whatever lies over it.
    pub fn has(&self, place: &Mountpoint) -> bool {
        self.rows_of(place.device).any(|row| row.at == place.at)
    }

    /// Numbers of the filesystems that are mounted, and where.
    pub fn all(&self) -> impl Iterator<Item = (libc::dev_t, &Path)> {
        self.rows().map(|row| (row.device, row.at.as_path()))
    }

    /// The mounts below a directory.
    pub fn inside(&self, at: &Path) -> impl Iterator<Item = &Row> {
        self.rows().filter(move |row| row.at != at && row.at.starts_with(at))
    }

    /// The kernel's restrictions for a filesystem at its mountpoint.
    pub fn forbidden(&self, place: &Mountpoint) -> Option<Forbidden> {
        Some(self.rows_of(place.device).find(|row| row.at == place.at)?.forbids)
    }

    /// The mount of a whole filesystem that is at its place, the last one where there are several.
    pub fn topmost(&self, place: &Mountpoint) -> Option<&Row> {
        self.rows_of(place.device).rfind(|row| row.at == place.at && row.is_whole())
    }

    /// Where all of a filesystem is mounted.
    pub(super) fn whole(&self, device: libc::dev_t) -> Option<PathBuf> {
        self.rows_of(device).find(|row| row.is_whole()).map(|row| row.at.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn the_table_of_mounts_is_understood() {
        let table = "36 35 0:52 / /mnt/with\\040blank rw,nosuid,noatime shared:1 - fuse.zfs tank/fs \
            ro,user_id=0\n\
                     37 35 0:53 /dir /bound rw - fuse.zfs tank/other rw\n\
                     38 37 0:54 / /bound/in rw - fuse.zfs tank/in rw\n\
                     nonsense\n";
        let table = Table::parse(table);
        let bound = &table.rows[1];
        assert_eq!((bound.name.as_bytes(), bound.groups.len()), (&b"tank/other"[..], 0));
        assert_eq!(
            (&table.rows[0].options[..], &table.rows[0].groups[..]),
            ("rw,nosuid,noatime", &["shared:1".to_owned()][..])
        );
        let at = PathBuf::from("/mnt/with blank");
        let place = Mountpoint::at(at.clone(), libc::makedev(0, 52));
        let forbids = table.forbidden(&place).unwrap();
        assert_eq!(forbids, Forbidden { write: true, setuid: true, ..Forbidden::default() });
        assert!(table.has(&place));
        assert_eq!((table.parent_of(bound), table.parent_of(&table.rows[2])), (None, Some(bound)));
        assert_eq!(table.topmost(&place).unwrap().name, "tank/fs");
        assert!(!table.has(&Mountpoint { at: "/bound".into(), ..place }));
        assert_eq!(table.whole(libc::makedev(0, 52)), Some(at));
        assert_eq!(table.whole(libc::makedev(0, 53)), None, "only a directory of it");
    }
}
