//! Directories that the lab made, and may remove with all that is in them.
//!
//! The lab works in directories that people name: the results lie beside what else there is, and a target's directory is full of somebody's files. So each directory of its own has a file
//! [`MARK`] in it since it was made, and only one that has it is ever removed. A directory of that name that is there already, with something in it and without the mark, is somebody else's: it is refused
//! before anything is written, and left alone at the end. What is mounted in a directory of the lab's own was mounted by somebody: then nothing of it is removed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use crate::error::{Error, Result};

/// The file that says whose a directory is.
pub(super) const MARK: &str = ".cenote-lab";

/// Makes a directory of the lab's own, or takes one that it made before.
pub(super) fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(Error::file(directory))?;
    if is_own(directory) {
        return Ok(());
    }
    let is_link = fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_symlink());
    let is_empty = fs::read_dir(directory).map_err(Error::file(directory))?.next().is_none();
    if is_link || !is_empty || is_mounted(directory).map_err(Error::file(directory))? {
        let what = "it is there already, and the lab did not make it: what the lab makes it removes too, so move this away or choose another directory";
        return Err(Error::Results { path: directory.to_owned(), what: what.to_owned() });
    }
    let mark = directory.join(MARK);
    let told = "cenote lab made this directory, and removes it with all that is in it.\n";
    fs::write(&mark, told).map_err(Error::file(&mark))
}

/// Whether the lab made it.
pub(super) fn is_own(directory: &Path) -> bool {
    let is_kind =
        |path: &Path, is: fn(&fs::Metadata) -> bool| fs::symlink_metadata(path).is_ok_and(|it| is(&it));
    is_kind(directory, fs::Metadata::is_dir) && is_kind(&directory.join(MARK), fs::Metadata::is_file)
}

/// Removes it with all that is in it, if the lab made it. Nothing of it, where something is mounted in it.
pub(super) fn remove(directory: &Path) -> Result<()> {
    if !is_own(directory) {
        return Ok(());
    }
    require_no_mounts(directory)?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(directory)(error)),
        _ => Ok(()),
    }
}

fn require_no_mounts(directory: &Path) -> Result<()> {
    if is_mounted(directory).map_err(Error::file(directory))? {
        let what = "something is mounted there, so that nothing was removed: unmount it".to_owned();
        return Err(Error::Results { path: directory.to_owned(), what });
    }
    for entry in fs::read_dir(directory).map_err(Error::file(directory))? {
        let entry = entry.map_err(Error::file(directory))?;
        // Links are not followed, neither here nor by who removes.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            require_no_mounts(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a filesystem, or a part of one, is mounted at this directory.
pub(super) fn is_mounted(directory: &Path) -> io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, directory, flags, StatxFlags::BASIC_STATS)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_lab_made_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let (own, other) = (root.path().join("a/own"), root.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("theirs"), "x").unwrap();
        assert!(make(&other).unwrap_err().to_string().contains("did not make it"));
        remove(&other).unwrap();
        assert!(other.join("theirs").exists() && !is_own(&other));
        make(&own).unwrap();
        make(&own).unwrap();
        std::os::unix::fs::symlink(&other, own.join("link")).unwrap();
        fs::create_dir(own.join("below")).unwrap();
        remove(&own).unwrap();
        remove(&own).unwrap();
        assert!(!own.exists() && other.join("theirs").exists());
        // A link to somebody's directory is nobody's own, marked or not.
        let link = root.path().join("link");
        fs::write(other.join(MARK), "").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(make(&link).is_err());
        remove(&link).unwrap();
        assert!(other.join("theirs").exists());
    }

    #[test]
    fn mount_points_are_known() {
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(!is_mounted(tempfile::tempdir().unwrap().path()).unwrap());
        assert!(require_no_mounts(Path::new("/proc")).unwrap_err().to_string().contains("unmount it"));
    }
}
