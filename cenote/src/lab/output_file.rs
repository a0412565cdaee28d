//! Files that the user names for the lab to write: a file that the lab did not make is never overwritten.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The mark near the beginning of a page of the lab.
const PAGE: &str = lab::compare::PAGE_MARK;
/// Where that is looked for.
const BEGINNING_BYTES: u64 = 4096;

/// An error if a file that the lab did not make is at `path`.
pub fn require(path: &Path, force: bool) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if metadata.is_dir() {
        bail!("{} is a directory: name a file in it", path.display());
    }
    if force {
        return Ok(());
    }
    bail!("{} exists and is kept: name another file, or overwrite it with --force", path.display())
}

/// Whether it is a page that the lab wrote, which another such page may be written over.
pub fn is_page(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BEGINNING_BYTES).read_to_end(&mut beginning));
    read.is_ok() && String::from_utf8_lossy(&beginning).contains(PAGE)
}

/// Makes the file, or one in the place of what may be written over.
pub fn open(path: &Path, force: bool) -> Result<File> {
    require(path, force)?;
    let file = match force {
        true => File::create(path),
        false => File::create_new(path),
    };
    file.with_context(|| format!("cannot make {}", path.display()))
}

/// Writes all of it.
pub fn write(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    open(path, force)?.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_lab_wrote_or_is_given_up_is_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.html");
        write(&path, format!("<html>{PAGE}").as_bytes(), false).unwrap();
        assert!(is_page(&path));
        write(&path, b"theirs", is_page(&path)).unwrap();
        assert!(!is_page(&path));
        let error = write(&path, b"x", false).unwrap_err().to_string();
        assert!(error.contains("--force") && fs::read(&path).unwrap() == b"theirs", "{error}");
        write(&path, b"x", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        assert!(write(directory.path(), b"x", true).is_err());
    }
}
