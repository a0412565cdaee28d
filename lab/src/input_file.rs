//! Files that the user names to be read: an experiment, a trace.
//!
//! Only regular files are read, up to a size: a device or a pipe may have no end, or never begin.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::size::Size;

/// Bytes that an experiment's file may have.
pub const MOST_OF_EXPERIMENT: Size = Size(16 << 20);

/// The text of a regular file of at most so many bytes.
pub fn read(path: &Path, most: Size) -> Result<String> {
    // Opening a pipe would wait for who writes to it.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        let what = "it is not a regular file: copy its contents into one";
        return Err(Error::new(ErrorKind::InvalidInput, what));
    }
    let mut text = String::new();
    // It may grow meanwhile.
    file.take(most.0.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > most.0 {
        let what = format!("it is larger than {most}, the limit");
        return Err(Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_no_more_than_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, pipe) = (directory.path().join("file"), directory.path().join("pipe"));
        std::fs::write(&file, "text").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(read(&file, Size(4)).unwrap(), "text");
        assert!(read(&file, Size(3)).unwrap_err().to_string().contains("larger than 3"));
        for wrong in [pipe.as_path(), Path::new("/dev/zero"), directory.path()] {
            let error = read(wrong, Size(1 << 20)).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{}: {error}", wrong.display());
        }
    }
}
