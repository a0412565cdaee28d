//! Blocks of one's own files, as a filesystem or volume would have them.
//!
//! Holes are no blocks: nothing is stored of them, whatever compression there is. A block of which a part is
//! a hole has zeros there.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Files that are looked at.
const MOST_FILES: usize = 10_000_000;
/// Unit of the sizes of blocks.
const SECTOR_BYTES: usize = 512;

/// The regular files at `paths` and in the directories below them, with their sizes. Links are not followed,
/// what cannot be listed is left out, and a file with several names, which has its data once, is there once.
pub fn files(paths: &[PathBuf]) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = Vec::new();
    for path in paths {
        // What was named must be there, may be a link, and is no device or pipe, which may have no end.
        let path = fs::canonicalize(path).map_err(Error::file(path))?;
        let kind = fs::metadata(&path).map_err(Error::file(&path))?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            let what = "it is neither a file nor a directory: copy its contents into a file".into();
            return Err(Error::Results { path, what });
        }
        left.push(path);
    }
    while let Some(path) = left.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_file() {
            let inode = (metadata.nlink() > 1).then(|| (metadata.dev(), metadata.ino()));
            found.push((path, metadata.len(), inode));
        } else if metadata.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        if found.len() > MOST_FILES {
            return Err(Error::Experiment(format!("more than {MOST_FILES} files")));
        }
    }
    found.sort();
    // A directory may have been named twice, or one within another.
    found.dedup();
    let mut inodes = HashSet::new();
    found.retain(|(.., inode)| inode.is_none_or(|inode| inodes.insert(inode)));
    Ok(found.into_iter().map(|(path, size, _)| (path, size)).collect())
}

/// The same, where there are bytes in them: figures of nothing mean nothing.
pub fn data(paths: &[PathBuf]) -> Result<Vec<(PathBuf, u64)>> {
    let files = files(paths)?;
    match files.iter().any(|(_, size)| *size > 0) {
        true => Ok(files),
        false => Err(no_data()),
    }
}

/// The fault of files that are empty, or holes.
pub fn no_data() -> Error {
    Error::Experiment("there are no data in these files".into())
}

/// The blocks of a file of `size` bytes that are not wholly in a hole, in ranges one after the other. Where
/// the filesystem does not report holes there are none.
pub fn ranges(
    file: &File,
    size: u64,
    block: usize,
    mut each: impl FnMut(Range<u64>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (mut at, mut told) = (0, 0);
    while at < size {
        let (begin, end) = match seek(file, SeekFrom::Data(at)) {
            Ok(begin) => (begin, seek(file, SeekFrom::Hole(begin)).unwrap_or(size)),
            Err(Errno::NXIO) => break,
            Err(_) => (at, size),
        };
        if begin >= size {
            break;
        }
        // What is a hole may change meanwhile.
        let end = end.max(begin + 1).min(size);
        let blocks = (begin / block as u64).max(told)..end.div_ceil(block as u64);
        if !blocks.is_empty() {
            told = blocks.end;
            each(blocks)?;
        }
        at = end;
    }
    Ok(())
}

/// One block of a file of `size` bytes: a small file has one as large as itself, in whole sectors, a large
/// one has blocks of `block` bytes. Past the end are zeros.
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

/// Each block of a file of `size` bytes that is not a hole.
pub fn blocks(path: &Path, size: u64, block: usize, mut each: impl FnMut(&[u8])) -> Result<()> {
    let file = File::open(path).map_err(Error::file(path))?;
    let told = ranges(&file, size, block, |mut range| {
        range.try_for_each(|index| {
            each(&self::block(&file, size, block, index)?);
            Ok(())
        })
    });
    told.map_err(Error::file(path))
}

/// A file of a GiB with data in these places, and holes elsewhere, where the filesystem of temporary files
/// has holes.
#[cfg(test)]
pub fn sparse(path: &Path, data: &[(u64, &[u8])]) -> bool {
    let file = File::create(path).unwrap();
    file.set_len(1 << 30).unwrap();
    for (offset, bytes) in data {
        file.write_all_at(bytes, *offset).unwrap();
    }
    let has_holes = seek(&file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < 1 << 30);
    if !has_holes {
        println!("skipped: there are no holes in {}", path.display());
    }
    has_holes
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
        // Neither a second name nor a place that is named twice makes data of the same file duplicates.
        fs::hard_link(directory.path().join("large"), directory.path().join("large, again")).unwrap();
        let files = files(&[directory.path().to_owned(), directory.path().join("d")]).unwrap();
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

    #[test]
    fn holes_are_no_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        // Within a block, across two, and before the end; the filesystem's own blocks are no larger than
        // these.
        let places = [(5 << 20, &[1_u8; 100][..]), ((9 << 20) - 50, &[1; 100]), ((1 << 30) - 1, &[1])];
        if !sparse(&path, &places) {
            return;
        }
        let file = File::open(&path).unwrap();
        let mut found = Vec::new();
        let collect = |range: Range<u64>| {
            found.extend(range);
            Ok(())
        };
        ranges(&file, 1 << 30, 1 << 20, collect).unwrap();
        assert_eq!(found, [5, 8, 9, 1023]);
        assert!(
            !sparse(&path, &[]) || {
                let mut count = 0;
                blocks(&path, 1 << 30, 4096, |_| count += 1).unwrap();
                count == 0
            }
        );
    }
}
