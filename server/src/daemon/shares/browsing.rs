//! Looking into filesystems and snapshots, whether they are mounted or shared or not.
//!
//! A filesystem is opened for this as it is for clients of a network ([`super`]), but not kept open, so that
//! it is closed to changes of the dataset in the same way, and kernels that have it mounted are told.
//!
//! Paths are looked up component by component below the root of the filesystem: `..` is refused, and a
//! symbolic link is not followed.

use std::path::PathBuf;
use std::sync::Arc;

use engine::dsl::Kind;
use engine::properties::{Environment, Prop, Style};
use ondisk::zpl::FileType;

use super::FileShare;
use super::files::OpenedShare;
use crate::api::{ApiError, FileEntry, FileKind, FileList, ListFiles};
use crate::daemon::{Daemon, OpenPool, dataset_error, not_of_this_type};
use crate::files::{Attributes, Files, FilesystemId, Named};
use crate::fuse::{MountOptions, SNAPSHOT_NAME, Snapdir, ZFS_NAME};

/// The most entries of a list.
const MAX_ENTRIES: usize = 1000;
/// The most components of a path.
const MAX_DEPTH: usize = 256;

/// A filesystem that is looked into.
pub(super) struct Browsed {
    pool: Arc<OpenPool>,
    share: Arc<FileShare>,
    /// The name of the snapshot that is meant.
    pub(super) snapshot: Option<String>,
}

/// A component of a path of a request.
pub(super) fn components(path: &str) -> Result<Vec<&[u8]>, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("'..' is not part of a path here".to_owned());
    }
    if parts.len() > MAX_DEPTH || path.contains('\0') {
        return Err("this is no path".to_owned());
    }
    if parts.first().is_some_and(|first| first.as_bytes() == ZFS_NAME) {
        return Err("'.zfs' is not part of a path here: name the snapshot".to_owned());
    }
    Ok(parts.into_iter().map(str::as_bytes).collect())
}

impl Daemon {
    /// The entries of a directory.
    ///
    /// # Errors
    /// There is no such filesystem or directory, or it cannot be read.
    pub async fn list_files(&self, request: ListFiles) -> Result<FileList, ApiError> {
        let doing = format!("cannot list '{}' of '{}'", request.path.escape_debug(), request.dataset);
        let browsed = self.browsed(&request.dataset).await?;
        let path = components(&request.path).map_err(|why| ApiError::invalid(format!("{doing}: {why}")))?;
        let cookie = match request.after.as_deref().map(str::parse::<u64>).transpose() {
            Ok(cookie) => cookie.unwrap_or(0),
            Err(_) => return Err(ApiError::invalid(format!("{doing}: 'after' is no place in a list"))),
        };
        let limit = if request.limit == 0 { MAX_ENTRIES } else { request.limit.min(MAX_ENTRIES) };
        let failed = |error| in_words(&doing, error);
        let files = browsed.open().map_err(failed)?;
        let dir = browsed.find(&files, &path).map_err(failed)?;
        if dir.kind != FileType::Directory {
            return Err(ApiError::invalid(format!("{doing}: it is no directory")));
        }
        let part = files.entries(dir.id, cookie, limit).map_err(failed)?;
        let next = part.entries.last().filter(|_| !part.is_end).map(|last| last.cookie.to_string());
        let shown = part.entries.iter().filter(|entry| !matches!(&*entry.name, b"." | b".."));
        let entries = shown.map(|entry| told(&entry.name, files.attributes_of(dir.id, entry)));
        Ok(FileList { entries: entries.collect(), next })
    }

    /// The filesystem of a name, or of the snapshot of a name.
    pub(super) async fn browsed(&self, name: &str) -> Result<Browsed, ApiError> {
        let (head, snapshot) = match name.split_once('@') {
            Some((head, snapshot)) => (head, Some(snapshot.to_owned())),
            None => (name, None),
        };
        let pool = self.pool_of(head)?;
        if pool.is_suspended() {
            return Err(ApiError::busy(format!("cannot open '{name}': pool '{}' is suspended", pool.name())));
        }
        let open = |error| dataset_error("open", head, error);
        let dsl = pool.dsl().await.map_err(open)?;
        let entry = dsl.entry(head).await.map_err(open)?;
        let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else {
            return Err(not_of_this_type(head));
        };
        if dataset.is_inconsistent() {
            let why = "a stream is being received into it, or was in part";
            return Err(ApiError::busy(format!("cannot open '{name}': {why}")));
        }
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.map_err(open)?;
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        if word(Prop::Keystatus) == "unavailable" {
            return Err(ApiError::refused(format!("cannot open '{name}': its key is not loaded")));
        }
        // Snapshots are found by `.zfs`, and are not listed with the root.
        let options = MountOptions { snapdir: Snapdir::Hidden, ..MountOptions::from_properties(&properties) };
        let share = Arc::new(FileShare {
            id: FilesystemId { pool: pool.guid().get(), dataset: dataset.phys.guid.get() },
            name: dataset.name.clone(),
            dataset: dataset.object,
            path: PathBuf::new(),
            rules: Err("it is looked into".to_owned()),
            options,
        });
        drop(dsl);
        Ok(Browsed { pool, share, snapshot })
    }
}

impl Browsed {
    pub(super) fn open(&self) -> engine::Result<OpenedShare> {
        OpenedShare::open_alone(Arc::clone(&self.pool), &self.share)
    }

    /// The file of a path, in the snapshot if one is meant.
    pub(super) fn find(&self, files: &OpenedShare, path: &[&[u8]]) -> engine::Result<Attributes> {
        let mut top = files.root()?;
        if let Some(snapshot) = &self.snapshot {
            top = descend(files, top, &[ZFS_NAME, SNAPSHOT_NAME, snapshot.as_bytes()])?;
        }
        descend(files, top, path)
    }
}

/// The file of a path below a directory.
pub(super) fn descend(files: &OpenedShare, from: Attributes, path: &[&[u8]]) -> engine::Result<Attributes> {
    path.iter().try_fold(from, |at, name| {
        let missing = || engine::Error::NotFound(String::from_utf8_lossy(name).into_owned());
        if at.kind != FileType::Directory {
            return Err(missing());
        }
        files.lookup(Named { dir: at.id, name })?.ok_or_else(missing)
    })
}

fn told(name: &[u8], attributes: Option<Attributes>) -> FileEntry {
    let (name, is_exact) = match std::str::from_utf8(name) {
        Ok(name) => (name.to_owned(), true),
        Err(_) => (String::from_utf8_lossy(name).into_owned(), false),
    };
    let kind = attributes.map_or(FileKind::Unknown, |found| match found.kind {
        FileType::Directory => FileKind::Directory,
        FileType::Regular => FileKind::File,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    });
    FileEntry {
        name,
        is_exact,
        kind,
        size: attributes.map_or(0, |found| found.size),
        modified: attributes.map_or(0, |found| found.mtime.seconds),
        mode: attributes.map_or(0, |found| found.mode),
        uid: attributes.map_or(0, |found| found.uid),
        gid: attributes.map_or(0, |found| found.gid),
    }
}

/// An error in the words of a request.
pub(super) fn in_words(doing: &str, error: engine::Error) -> ApiError {
    match error {
        engine::Error::NotFound(name) => {
            ApiError::not_found(format!("{doing}: there is no '{}'", name.escape_debug()))
        }
        engine::Error::Os { errno: libc::EEXIST, .. } => {
            ApiError::refused(format!("{doing}: there is something in its place by now"))
        }
        other => {
            let ApiError { kind, message } = other.into();
            ApiError { kind, message: format!("{doing}: {message}") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_nowhere_but_down() {
        let parts = |path| components(path).map(|parts| parts.len());
        assert_eq!(parts(""), Ok(0));
        assert_eq!(parts("/a//b/./c/"), Ok(3));
        assert_eq!(parts("a/.zfs"), Ok(2));
        for wrong in ["..", "a/../b", "/..", ".zfs/snapshot", "a\0b", &"a/".repeat(300)] {
            assert!(components(wrong).is_err(), "{wrong}");
        }
    }
}
