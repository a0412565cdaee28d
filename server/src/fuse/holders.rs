//! Processes that keep a mount busy: those with open or mapped files in it or a working directory there, and
//! filesystems that are mounted inside.
//!
//! Users that this process cannot see are not reported: other users' programs without root, loop devices,
//! NFS. No filesystem is asked: the kernel alone knows which filesystem a file belongs to.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;

use super::mountpoint::{Row, Table, device_of_link};

/// Most that are told by name.
const MOST_TOLD: usize = 8;

/// The processes that keep a mount busy; shown as lines after a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders {
    told: Vec<String>,
    others: usize,
}

impl Holders {
    /// Those of a filesystem that is mounted at a path.
    pub fn of(device: libc::dev_t, at: &Path) -> Self {
        let mut holders = Self::default();
        let inside = Table::read().map(|table| table.inside(at).map(Row::shown).collect::<Vec<_>>());
        inside.unwrap_or_default().into_iter().for_each(|mount| holders.add(format!("the mount of {mount}")));
        let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        for process in processes {
            let is_process = process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
            let is_it = |other| other == device;
            if let Some((_, how)) = is_process.then(|| how_it_holds(&process.path(), is_it)).flatten() {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let number = process.file_name();
                holders.add(format!("{} (process {}: {how})", name.trim_end(), number.to_string_lossy()));
            }
        }
        holders
    }

    /// Those of several filesystems, by the number of the filesystem, in one look: of each process the first
    /// that it uses. What is mounted inside them and this process itself do not count.
    pub fn of_any(devices: &HashSet<libc::dev_t>) -> HashMap<libc::dev_t, Self> {
        let mut all: HashMap<libc::dev_t, Self> = HashMap::new();
        let own = std::process::id().to_string();
        for process in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
            let number = process.file_name().to_string_lossy().into_owned();
            if number == own || number.parse::<u32>().is_err() {
                continue;
            }
            if let Some((device, how)) = how_it_holds(&process.path(), |device| devices.contains(&device)) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                all.entry(device).or_default().add(format!("{} (process {number}: {how})", name.trim_end()));
            }
        }
        all
    }

    fn add(&mut self, holder: String) {
        match self.told.len() < MOST_TOLD {
            true => self.told.push(holder),
            false => self.others += 1,
        }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.told.is_empty() {
            return Ok(());
        }
        write!(f, "\nin use by {}", self.told.join(", "))?;
        if self.others > 0 {
            write!(f, ", and {} more", self.others)?;
        }
        Ok(())
    }
}

/// Which of the filesystems that are meant a process uses, and how.
fn how_it_holds(process: &Path, is_meant: impl Fn(libc::dev_t) -> bool) -> Option<(libc::dev_t, String)> {
    let meant = |link: &Path| device_of_link(link).ok().filter(|device| is_meant(*device));
    for (link, how) in [("cwd", "its working directory"), ("root", "its root directory")] {
        if let Some(device) = meant(&process.join(link)) {
            return Some((device, how.into()));
        }
    }
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
    let mut open = open.filter_map(|open| Some((meant(&open.path())?, open.path())));
    if let Some((device, open)) = open.next() {
        let file = fs::read_link(open).unwrap_or_default();
        return Some((device, format!("{} is open", file.display())));
    }
    // A mapped file need not be open. The third column is where in it the mapping begins, the fourth its
    // filesystem.
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let number = |digits: &str| libc::c_uint::from_str_radix(digits, 16).ok();
    let of_line = |line: &str| {
        let (major, minor) = line.split_ascii_whitespace().nth(3)?.split_once(':')?;
        let device = libc::makedev(number(major)?, number(minor)?);
        is_meant(device).then_some(device)
    };
    let (device, mapped) = maps.lines().find_map(|line| Some((of_line(line)?, line)))?;
    let file = mapped.split_ascii_whitespace().skip(5).collect::<Vec<_>>().join(" ");
    Some((device, format!("{file} is mapped")))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_told_and_of_many_how_many_there_are() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap().join("file");
        let open = fs::File::create(&path).unwrap();
        let process = PathBuf::from(format!("/proc/{}", std::process::id()));
        let link = process.join("fd").join(std::os::fd::AsRawFd::as_raw_fd(&open).to_string());
        let device = device_of_link(&link).unwrap();
        let held = how_it_holds(&process, |other| other == device).map(|(device, _)| device);
        assert_eq!(held, Some(device));
        assert_eq!(how_it_holds(&process, |other| other == libc::makedev(4095, 77)), None);

        let mut holders = Holders::default();
        assert_eq!(holders.to_string(), "");
        (0..MOST_TOLD + 2).for_each(|number| holders.add(number.to_string()));
        assert_eq!(holders.to_string(), "\nin use by 0, 1, 2, 3, 4, 5, 6, 7, and 2 more");
    }
}
