//! Blocks of one's own files, as a filesystem or volume would have them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Files that are looked at.
const MOST_FILES: usize = 10_000_000;
/// Unit of the sizes of blocks.
const SECTOR_BYTES: usize = 512;

/// The regular files at `paths` and in the directories below them, with their sizes. Links are not followed, and what cannot be listed is left out.
pub fn files(paths: &[PathBuf]) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = Vec::new();
    for path in paths {
        // What was named must be there, may be a link, and is no device or pipe, which may have no end.
        let path = fs::canonicalize(path).map_err(Error::file(path))?;
        let kind = fs::metadata(&path).map_err(Error::file(&path))?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            let what =
                "it is neither a file nor a directory: copy what is to be looked at into a file".into();
            return Err(Error::Results { path, what });
        }
        left.push(path);
    }
    while let Some(path) = left.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_file() {
            found.push((path, metadata.len()));
        } else if metadata.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        if found.len() > MOST_FILES {
            return Err(Error::Experiment(format!("more than {MOST_FILES} files")));
        }
    }
    found.sort();
    Ok(found)
}

/// The same, where there are bytes in them: figures of nothing mean nothing.
pub fn data(paths: &[PathBuf]) -> Result<Vec<(PathBuf, u64)>> {
    let files = files(paths)?;
    match files.iter().any(|(_, size)| *size > 0) {
        true => Ok(files),
        false => Err(Error::Experiment("there are no data in these files".into())),
    }
}

/// One block of a file of `size` bytes: a small file has one as large as itself, in whole sectors, a large one has blocks of `block` bytes. Past the end are zeros.
pub fn block(file: &File, size: u64, block: usize, index: u64) -> std::io::Result<Vec<u8>> {
    let small = usize::try_from(size).ok().filter(|size| *size <= block);
    let mut bytes = vec![0; small.map_or(block, |size| size.next_multiple_of(SECTOR_BYTES).min(block))];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], index * block as u64 + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Each block of a file of `size` bytes.
pub fn blocks(path: &Path, size: u64, block: usize, mut each: impl FnMut(&[u8])) -> Result<()> {
    let file = File::open(path).map_err(Error::file(path))?;
    for index in 0..size.div_ceil(block as u64) {
        each(&self::block(&file, size, block, index).map_err(Error::file(path))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_have_a_block_of_their_size_and_large_ones_whole_blocks() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        for (name, size) in [("empty", 0), ("d/small", 700), ("d/whole", 8192), ("large", 10_000)] {
            fs::write(directory.path().join(name), vec![7; size]).unwrap();
        }
        std::os::unix::fs::symlink("large", directory.path().join("link")).unwrap();
        let files = files(&[directory.path().to_owned()]).unwrap();
        assert_eq!(files.len(), 4);
        let sizes: Vec<Vec<usize>> = files
            .iter()
            .map(|(path, size)| {
                let mut sizes = Vec::new();
                blocks(path, *size, 4096, |block| sizes.push(block.len())).unwrap();
                sizes
            })
            .collect();
        assert_eq!(sizes, [vec![1024], vec![4096; 2], vec![], vec![4096; 3]]);
        let mut last = Vec::new();
        blocks(&directory.path().join("large"), 10_000, 4096, |block| last = block.to_vec()).unwrap();
        assert_eq!((last[10_000 - 8192 - 1], last[10_000 - 8192]), (7, 0));
        assert!(super::files(&["/no/such/file".into()]).is_err());
        assert!(super::files(&["/dev/zero".into()]).unwrap_err().to_string().contains("neither"));
        let at = |name: &str| vec![directory.path().join(name)];
        assert_eq!(super::data(&at("link")).unwrap().len(), 1, "a link that was named is followed");
        assert!(super::data(&at("empty")).unwrap_err().to_string().contains("no data"));
    }
}
