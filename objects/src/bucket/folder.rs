//! Objects as files of a folder: for trying, for tests, and for filesystems that many hosts share.
//!
//! An object is written beside its place, made durable, and moved there at once: by a hard link where it must
//! not be there yet, else by renaming. Nothing of a key leads out of the folder.
//!
//! The folder is held open. So when it is moved, or another filesystem is mounted on it, it is still the same
//! one: objects are never made beside those that belong to them.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ::device::in_words;
use bytes::Bytes;

use super::{Bucket, BucketError, BucketFuture, Listed};

/// What names of files begin with that are not whole yet.
const UNFINISHED: &str = ".unfinished-";

/// A folder with objects.
#[derive(Debug)]
pub struct FolderBucket {
    /// Through the system's link to what is held open.
    folder: PathBuf,
    held: File,
    address: String,
    /// Distinguishes unfinished files of one process.
    count: AtomicU64,
}

impl FolderBucket {
    /// That of this folder, which is made where it is not there.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let folder = folder.canonicalize()?;
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
        let address = format!("file://{}", folder.display());
        let held = File::open(&folder)?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        Ok(Self { folder, held, address, count: AtomicU64::new(0) })
    }

    fn path(&self, key: &str) -> Result<PathBuf, BucketError> {
        let is_word = |word: &str| !word.is_empty() && !word.starts_with('.');
        match key.split('/').all(is_word) {
            true => Ok(self.folder.join(key)),
            false => Err(BucketError::Refused(format!("'{key}' is no key"))),
        }
    }

    fn store(&self, key: &str, body: &[u8], is_new: bool) -> Result<(), BucketError> {
        let path = self.path(key)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Err(BucketError::Refused(format!("'{key}' is no key")));
        };
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let unfinished = parent.join(format!("{UNFINISHED}{}-{count}-{name}", std::process::id()));
        let written = (|| {
            if !parent.exists() {
                // Keys have one folder at most, whose own name is to last too.
                match fs::create_dir(parent) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                    _ => self.held.sync_all()?,
                }
            }
            // One of an earlier process with this number is not in use.
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
            file.write_all(body)?;
            file.sync_all()?;
            match is_new {
                true => fs::hard_link(&unfinished, &path)?,
                false => fs::rename(&unfinished, &path)?,
            }
            File::open(parent)?.sync_all()
        })();
        if is_new || written.is_err() {
            // One that stays is in no listing.
            let _ = fs::remove_file(&unfinished);
        }
        written.map_err(failed)
    }
}

fn failed(error: std::io::Error) -> BucketError {
    match error.kind() {
        ErrorKind::NotFound => BucketError::Missing,
        ErrorKind::AlreadyExists => BucketError::Exists,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => BucketError::Refused(in_words(&error)),
        _ => BucketError::Unsure(in_words(&error)),
    }
}

impl Bucket for FolderBucket {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let stored = self.store(key, &body, true);
        Box::pin(async { stored })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let stored = self.store(key, &body, false);
        Box::pin(async { stored })
    }

    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
        let path = self.path(key);
        Box::pin(async move {
            let file = File::open(path?).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            if range.start > range.end || range.end > length {
                return Err(BucketError::Unsure(format!("the object ends at {length}")));
            }
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).map_err(failed)?;
            Ok(bytes.into())
        })
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        let path = self.path(key);
        Box::pin(async move {
            let file = File::open(path?).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            if length > limit {
                return Err(BucketError::TooLong);
            }
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, 0).map_err(failed)?;
            Ok(bytes.into())
        })
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        let path = self.path(key);
        Box::pin(async move {
            match fs::remove_file(path?) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            }
        })
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        Box::pin(async move {
            let mut all = Vec::new();
            let mut folders = vec![(self.folder.clone(), String::new())];
            while let Some((folder, of)) = folders.pop() {
                for entry in fs::read_dir(folder).map_err(failed)? {
                    let entry = entry.map_err(failed)?;
                    let Ok(name) = entry.file_name().into_string() else { continue };
                    let (key, kind) = (format!("{of}{name}"), entry.file_type().map_err(failed)?);
                    if name.starts_with('.') {
                        continue;
                    }
                    if kind.is_dir() {
                        folders.push((entry.path(), format!("{key}/")));
                    } else if key.starts_with(&prefix) && key > after {
                        let size_bytes = entry.metadata().map_err(failed)?.len();
                        all.push(Listed { key, size_bytes });
                    }
                }
            }
            all.sort_by(|one, other| one.key.cmp(&other.key));
            all.truncate(limit);
            Ok(all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block<T>(future: impl Future<Output = T>) -> T {
        ::device::block_on(future)
    }

    #[test]
    fn a_folder_keeps_objects_and_makes_each_once() {
        let place = tempfile::tempdir().unwrap();
        let bucket = FolderBucket::new(place.path()).unwrap();
        block(bucket.create("a/1", Bytes::from("one"))).unwrap();
        assert_eq!(block(bucket.create("a/1", Bytes::from("two"))), Err(BucketError::Exists));
        assert_eq!(block(bucket.get_all("a/1", 3)).unwrap(), "one");
        assert_eq!(block(bucket.get_all("a/1", 2)), Err(BucketError::TooLong));
        block(bucket.put("a/1", Bytes::from("three"))).unwrap();
        assert_eq!(block(bucket.get("a/1", 1..3)).unwrap(), "hr");
        assert!(matches!(block(bucket.get("a/1", 1..9)), Err(BucketError::Unsure(_))));
        block(bucket.create("latest", Bytes::new())).unwrap();
        block(bucket.create("a/2", Bytes::new())).unwrap();
        let keys = |listed: Vec<Listed>| listed.into_iter().map(|one| one.key).collect::<Vec<_>>();
        assert_eq!(keys(block(bucket.list("", "", 9)).unwrap()), ["a/1", "a/2", "latest"]);
        assert_eq!(keys(block(bucket.list("a/", "a/1", 9)).unwrap()), ["a/2"]);
        assert_eq!(keys(block(bucket.list("", "", 1)).unwrap()), ["a/1"]);
        block(bucket.delete("a/1")).unwrap();
        block(bucket.delete("a/1")).unwrap();
        assert_eq!(block(bucket.get_all("a/1", 9)), Err(BucketError::Missing));
        for key in ["../x", "a/../../x", "/etc/passwd", "", "a//b", ".hidden"] {
            assert!(matches!(block(bucket.put(key, Bytes::new())), Err(BucketError::Refused(_))), "{key}");
        }
        let unfinished = fs::read_dir(place.path().join("a")).unwrap().count();
        assert_eq!(unfinished, 1, "only a/2");
    }
}
