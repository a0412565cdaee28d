//! Processes that keep a mount busy: those with open or mapped files in it or a working directory there, and
//! filesystems that are mounted inside.
//!
//! Users that this process cannot see are not reported: other users' programs without root, loop devices,
//! NFS. No filesystem is asked: the kernel alone knows which filesystem a file belongs to.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

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
            if let Some(how) = is_process.then(|| how_it_holds(&process.path(), device)).flatten() {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let number = process.file_name();
                holders.add(format!("{} (process {}: {how})", name.trim_end(), number.to_string_lossy()));
            }
        }
        holders
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

/// How a process uses a filesystem, if it does.
fn how_it_holds(process: &Path, device: libc::dev_t) -> Option<String> {
    let is_there = |link: &PathBuf| device_of_link(link).is_ok_and(|at| at == device);
    if is_there(&process.join("cwd")) {
        return Some("its working directory".into());
    }
    if is_there(&process.join("root")) {
        return Some("its root directory".into());
    }
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
    if let Some(open) = open.map(|open| open.path()).find(is_there) {
        let file = fs::read_link(open).unwrap_or_default();
        return Some(format!("{} is open", file.display()));
    }
    // A mapped file need not be open. The third column is where in it the mapping begins, the fourth its
    // filesystem.
    let (major, minor) = (libc::major(device), libc::minor(device));
    let shown = format!("{major:02x}:{minor:02x}");
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let mapped = maps.lines().find(|line| line.split_ascii_whitespace().nth(3) == Some(&shown))?;
    let file = mapped.split_ascii_whitespace().skip(5).collect::<Vec<_>>().join(" ");
    Some(format!("{file} is mapped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_told_and_of_many_how_many_there_are() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap().join("file");
        let open = fs::File::create(&path).unwrap();
        let process = PathBuf::from(format!("/proc/{}", std::process::id()));
        let link = process.join("fd").join(std::os::fd::AsRawFd::as_raw_fd(&open).to_string());
        let device = device_of_link(&link).unwrap();
        assert!(how_it_holds(&process, device).is_some());
        assert_eq!(how_it_holds(&process, libc::makedev(4095, 77)), None);

        let mut holders = Holders::default();
        assert_eq!(holders.to_string(), "");
        (0..MOST_TOLD + 2).for_each(|number| holders.add(number.to_string()));
        assert_eq!(holders.to_string(), "\nin use by 0, 1, 2, 3, 4, 5, 6, 7, and 2 more");
    }
}
