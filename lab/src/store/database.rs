//! Opening `results.redb`, and the errors of a damaged one.
//!
//! redb trusts a file that was shut down in order, and panics over one that was changed since by other means.
//! So every opening makes it check the whole file; and a panic all the same becomes an error here, without
//! printing its words.
//!
//! Reading needs no permission to write: [`look`] opens the file read-only, and redb's repairs of it stay in
//! memory ([`Beside`]). A running experiment holds its lock, so that reading is refused meanwhile; readers do
//! not disturb each other.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once};

use device::IgnorePoison;
use redb::backends::FileBackend;
use redb::{BackendError, Builder, Database, StorageBackend};

use crate::error::{Error, Result};

/// Bytes that are kept together where they differ from the file.
const PAGE_BYTES: u64 = 4096;
/// redb's memory for it: a check goes over all of it once.
const CACHE_BYTES: usize = 64 << 20;

/// The error about the database at `path`, with advice.
pub(super) fn failed(path: &Path, error: redb::Error) -> Error {
    match error {
        redb::Error::DatabaseAlreadyOpen => Error::Results {
            path: path.to_owned(),
            what: "another 'cenote lab' works on these results; wait until it is done, or end it".into(),
        },
        // It ends too early, or has something else where it should begin.
        redb::Error::Io(error)
            if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) =>
        {
            Error::File { path: path.to_owned(), error }
        }
        redb::Error::Io(_) => damaged(path, "it is truncated or overwritten"),
        error => damaged(path, error),
    }
}

/// The advice for a damaged one.
pub(super) fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    let directory = path.parent().unwrap_or(path).display();
    Error::Results {
        path: path.to_owned(),
        what: format!(
            "it is damaged: {what}; replace it by a copy, or run the experiment again: cenote lab run \
             {directory}/experiment.toml -o DIR (cenote lab clean {directory} removes what a killed lab left)"
        ),
    }
}

/// Opens the file at `path` to go on with it, and checks it; it is made where there is none.
pub(super) fn hold(path: &Path) -> Result<Database> {
    quietly(path, || Ok(checking().create(path)?))
}

/// Looks at the file at `path`, which is not written, with `see`.
pub(super) fn look<T>(
    path: &Path,
    see: impl FnOnce(&Database) -> std::result::Result<T, redb::Error>,
) -> Result<T> {
    let file = File::open(path).map_err(Error::file(path))?;
    quietly(path, || see(&checking().create_with_backend(Beside::of(file)?)?))
}

fn checking() -> Builder {
    let mut builder = Database::builder();
    builder.set_check_integrity_on_open(true).set_cache_size(CACHE_BYTES);
    builder
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does something with the database at `path`; a panic over what is in it is an error, and not printed.
pub(super) fn quietly<T>(
    path: &Path,
    work: impl FnOnce() -> std::result::Result<T, redb::Error>,
) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(before);
    match done {
        Ok(done) => done.map_err(|error| failed(path, error)),
        Err(_) => Err(damaged(path, "its contents contradict each other")),
    }
}

/// Locks the database at `path` against running the experiment, without looking at what is in
/// it. It is an empty one where there was none.
pub(super) fn lock(path: &Path) -> Result<impl Sized + use<>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(Error::file(path))?;
    let lock = FileBackend::new(file).map_err(|error| failed(path, error.into()))?;
    match lock.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
        Ok(true) => Ok(lock),
        Ok(false) => Err(failed(path, redb::Error::DatabaseAlreadyOpen)),
        Err(BackendError::Io(error)) => Err(Error::file(path)(error)),
        Err(error) => Err(Error::file(path)(io::Error::other(error.to_string()))),
    }
}

/// A file that is only read, and what was written since, which is in memory: what redb puts in order of a
/// database when it opens one, at most as much as it has.
#[derive(Debug)]
struct Beside {
    file: FileBackend,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    /// How much of the file still counts: less than it has where it was cut.
    of_file: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Beside {
    fn of(file: File) -> std::result::Result<Self, redb::Error> {
        let file = FileBackend::new(file)?;
        let len = file.len()?;
        Ok(Self { file, written: Mutex::new(Written { len, of_file: len, pages: BTreeMap::new() }) })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().ignore_poison()
    }

    /// Bytes of the file, and zeros where it has none.
    fn of_file(&self, of_file: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = of_file.saturating_sub(offset).min(out.len() as u64) as usize;
        out[there..].fill(0);
        if there > 0 { self.file.read(offset, &mut out[..there]) } else { Ok(()) }
    }
}

/// The pages that `len` bytes from `offset` on are in: of each its number, where in it they begin, where in
/// them it begins, and how many there are.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let within = ((offset + at as u64) % PAGE_BYTES) as usize;
        let count = (PAGE_BYTES as usize - within).min(len - at);
        let piece = ((offset + at as u64) / PAGE_BYTES, within, at, count);
        at += count;
        (count > 0).then_some(piece)
    })
}

impl StorageBackend for Beside {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > written.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.of_file(written.of_file, offset, out)?;
        for (number, within, at, count) in pages(offset, out.len()) {
            if let Some(page) = written.pages.get(&number) {
                out[at..at + count].copy_from_slice(&page[within..within + count]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written();
        if len < written.len {
            written.of_file = written.of_file.min(len);
            written.pages.split_off(&len.div_ceil(PAGE_BYTES));
            if let Some(last) = written.pages.get_mut(&(len / PAGE_BYTES)) {
                last[(len % PAGE_BYTES) as usize..].fill(0);
            }
        }
        written.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        for (number, within, at, count) in pages(offset, data.len()) {
            if !written.pages.contains_key(&number) {
                let mut page = vec![0; PAGE_BYTES as usize].into_boxed_slice();
                self.of_file(written.of_file, number * PAGE_BYTES, &mut page)?;
                written.pages.insert(number, page);
            }
            if let Some(page) = written.pages.get_mut(&number) {
                page[within..within + count].copy_from_slice(&data[at..at + count]);
            }
        }
        written.len = written.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    // No other process may write, others may read, and the file is open for reading only.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
