//! Where else filesystems are mounted: bound to other directories, and in other mount namespaces
//! (containers, services with a namespace of their own).
//!
//! # One look for many filesystems
//! To find all mounts, the table of each namespace must be read, and to find the namespaces, each process
//! asked for its own. That is done once for an operation on many mounts ([`Elsewhere::read`]), however many
//! they are, and each namespace is read once, by the first process that is in it.
//!
//! # Mounts that go along
//! A mount elsewhere can be a copy that follows ours: most services have a namespace whose mounts go when
//! ours do. A mount takes others away with it: those on the same directory, in mounts that follow the one
//! that it is in itself. So a mount elsewhere *stays* if it is on another directory, if what it is in follows
//! no other mount, or if what ours is in is shared with none. All others may go along. Whether such a mount
//! is still there afterwards is found out by its path, through the root directory of the process
//! ([`OtherMount::is_still_there`]), without the tables.
//!
//! Another program may mount or unmount meanwhile. The session of the kernel decides in the end: it lives as
//! long as the filesystem is mounted anywhere.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::mountpoint::{ANSWERS_WITHIN, Mountpoint, Row, Table, device_of_link, within};

/// The mounts in all namespaces that this process may look into, as they were at one moment.
#[derive(Debug)]
pub struct Elsewhere {
    own: Table,
    by_device: HashMap<libc::dev_t, Vec<OtherMount>>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherMount {
    device: libc::dev_t,
    /// As the process sees it, or this one.
    at: PathBuf,
    /// A process in the namespace that it is in, and its name; `None` for our own.
    process: Option<(u32, String)>,
    /// The directory that it is on; `None` where what that is in is not visible.
    on: Option<Directory>,
}

/// A directory on which something is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directory {
    /// Its filesystem, and its path in that.
    device: libc::dev_t,
    path: PathBuf,
    /// How the mount that it is in follows others, in the words of the kernel.
    groups: Vec<String>,
}

impl Directory {
    fn under(row: &Row, table: &Table) -> Option<Self> {
        let parent = table.parent_of(row)?;
        let (device, path) = (parent.device(), parent.directory_at(row.at())?);
        Some(Self { device, path, groups: parent.groups.clone() })
    }

    /// Whether what is mounted here may go when a mount goes from another directory.
    fn may_follow(&self, other: &Self) -> bool {
        let Some(shared) = other.groups.iter().find(|group| group.starts_with("shared:")) else {
            return false;
        };
        // Which groups lead the one that this follows is not known.
        let is_led = |group: &String| group == shared || group.starts_with("master:");
        (self.device, &self.path) == (other.device, &other.path) && self.groups.iter().any(is_led)
    }
}

impl Elsewhere {
    /// Reads all tables.
    ///
    /// # Errors
    /// Our own table cannot be read.
    pub fn read() -> std::io::Result<Self> {
        let mut all = Self::of(Table::read()?);
        let mut seen: HashSet<PathBuf> = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
        for process in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
            let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let process = process.path();
            let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
            if seen.contains(&namespace) {
                continue;
            }
            // One that ended meanwhile may have left others in its namespace.
            let Ok(table) = fs::read_to_string(process.join("mountinfo")) else { continue };
            seen.insert(namespace);
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            all.add(&Table::parse(&table), Some((number, name.trim_end().to_owned())));
        }
        Ok(all)
    }

    /// The mounts of our own namespace.
    fn of(own: Table) -> Self {
        let mut all = Self { own: Table::default(), by_device: HashMap::new() };
        all.add(&own, None);
        Self { own, ..all }
    }

    /// More, as a process sees them. Filesystems that no session serves are of no interest.
    fn add(&mut self, table: &Table, process: Option<(u32, String)>) {
        for row in table.rows().filter(|row| row.is_of_a_session()) {
            let (device, at, process) = (row.device(), row.at().to_owned(), process.clone());
            let place = OtherMount { device, at, process, on: Directory::under(row, table) };
            self.by_device.entry(device).or_default().push(place);
        }
    }

    /// Whether a filesystem is mounted anywhere.
    pub fn has(&self, device: libc::dev_t) -> bool {
        self.by_device.contains_key(&device)
    }

    /// Where a filesystem is mounted apart from its place.
    pub fn apart_from(&self, place: &Mountpoint) -> Vec<&OtherMount> {
        let mut places: Vec<_> = self.by_device.get(&place.device()).into_iter().flatten().collect();
        // Of several at its place, one is the mount itself.
        let is_it = |other: &&OtherMount| other.process.is_none() && other.at == place.path();
        if let Some(own) = places.iter().position(is_it) {
            places.remove(own);
        }
        places
    }

    /// A mount of a filesystem that stays when it is unmounted from its place.
    pub fn staying(&self, place: &Mountpoint) -> Option<&OtherMount> {
        let others = self.apart_from(place);
        let Some(row) = self.own.topmost(place) else {
            // It is only elsewhere.
            return others.first().copied();
        };
        let from = Directory::under(row, &self.own)?;
        let stays = |other: &&OtherMount| other.on.as_ref().is_some_and(|on| !on.may_follow(&from));
        others.into_iter().find(stays)
    }
}

impl OtherMount {
    /// Whether the filesystem is still mounted there. True where that cannot be found out.
    pub fn is_still_there(&self) -> bool {
        let path = match &self.process {
            Some((number, _)) => {
                let inside = self.at.strip_prefix("/").unwrap_or(&self.at);
                Path::new("/proc").join(number.to_string()).join("root").join(inside)
            }
            None => self.at.clone(),
        };
        // Other filesystems on the way may hang.
        let is_there = move || device_of_link(&path);
        match within(ANSWERS_WITHIN, is_there) {
            Some(Ok(device)) => device == self.device,
            Some(Err(error)) => error.kind() != std::io::ErrorKind::NotFound,
            None => true,
        }
    }
}

impl fmt::Display for OtherMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.display();
        match &self.process {
            Some((number, name)) => write!(
                f,
                "process {number} ({name}) has it mounted at {at} in a mount namespace of its own (a \
                 container); end it, or 'nsenter -t {number} -m umount {at}'"
            ),
            None => write!(f, "it is mounted at {at} too (a bind mount); 'umount {at}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "20 1 8:1 / / rw shared:1 - ext4 disk rw\n\
                       36 20 0:52 / /m rw shared:9 - fuse.zfs tank rw\n\
                       37 36 0:53 / /m/fs rw shared:10 - fuse.zfs tank/fs rw\n";

    fn staying(own: &str, other: &str, at: &str, minor: u32) -> Option<String> {
        let mut all = Elsewhere::of(Table::parse(own));
        all.add(&Table::parse(other), Some((7, "sleep".into())));
        let place = Mountpoint::at(at.into(), libc::makedev(0, minor));
        all.staying(&place).map(|place| place.at.display().to_string())
    }

    #[test]
    fn copies_that_follow_no_mount_of_ours_stay_and_those_that_may_do_not_count() {
        let other = |groups: &str| {
            format!(
                "120 100 8:1 / / rw {groups} - ext4 disk rw\n\
                 136 120 0:52 / /m rw {groups} - fuse.zfs tank rw\n\
                 137 136 0:53 / /m/fs rw - fuse.zfs tank/fs rw\n"
            )
        };
        let stays = Some("/m".to_owned());
        assert_eq!(staying(OWN, &other("unbindable"), "/m", 52), stays, "a private copy");
        assert_eq!(staying(OWN, &other("shared:5"), "/m", 52), stays, "another group");
        assert_eq!(staying(OWN, &other("shared:1"), "/m", 52), None);
        assert_eq!(staying(OWN, &other("master:1"), "/m", 52), None);
        assert_eq!(staying(OWN, &other("shared:5 master:3"), "/m", 52), None, "it may follow over others");
        assert_eq!(staying(OWN, &other("master:9"), "/m/fs", 53), None);
        assert_eq!(staying(OWN, &other("shared:4"), "/m/fs", 53), Some("/m/fs".to_owned()));
        let private = OWN.replace("shared:1 ", "");
        assert_eq!(staying(&private, &other("master:1"), "/m", 52), stays, "ours leads none");
    }

    #[test]
    fn bind_mounts_stay_and_so_does_all_of_what_is_not_at_its_place() {
        let bound = format!("{OWN}38 20 0:52 / /bound rw shared:9 - fuse.zfs tank rw\n");
        assert_eq!(staying(&bound, "", "/m", 52), Some("/bound".to_owned()));
        assert_eq!(staying(&bound, "", "/m/fs", 53), None);
        // The whole tree, bound to another place: what is mounted in it goes along, but not its top.
        let tree = format!("{bound}39 38 0:53 / /bound/fs rw shared:10 - fuse.zfs tank/fs rw\n");
        assert_eq!(staying(&tree, "", "/m/fs", 53), None);
        let gone = OWN.replace("/m ", "/elsewhere ").replace("/m/", "/elsewhere/");
        assert_eq!(staying(&gone, "", "/m", 52), Some("/elsewhere".to_owned()));
        assert_eq!(staying("", "", "/m", 52), None);
    }
}
