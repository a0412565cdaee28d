//! Bringing back files and folders from a snapshot into its filesystem.
//!
//! # A file
//! is copied under a name of its own beside its place, made stable, and only then gets its name: a copy that
//! breaks off leaves the place as it was, and removes what it made. Each piece is a request by itself, so
//! that a large file holds up no unmounting.
//!
//! # A folder
//! is walked in the order in which the snapshot has its entries, which never changes. What is a folder on
//! both sides is filled, and nothing in it is removed. Whether a file that is there by now is replaced, left
//! alone or an error, the request says. One request does a bounded part ([`MAX_FILES`], [`MAX_BYTES`],
//! [`MAX_TIME`]); its reply has the place where the next one goes on, which is no secret and is not trusted:
//! the place in each folder on the way, with `n` where the folder was made for this. A folder gets its times
//! when it is full.
//!
//! A symbolic link is copied and never followed, on neither side: each step goes from a folder to an entry of
//! it, by number. Pipes, sockets and devices are counted and passed over.

use std::time::{Duration, Instant};

use engine::env::{Env, System};
use engine::zpl::live::{NewKind, NewNode, SetAttributes, WriteOptions};
use ondisk::zpl::FileType;

use super::browsing::{Browsed, components, descend, in_words};
use super::files::OpenedShare;
use crate::api::{ApiError, ErrorKind, RestoreFile, RestoredFile};
use crate::daemon::Daemon;
use crate::files::{Attributes, FileId, Files, Named};

/// Bytes of a piece of a file, and pieces of one request of the filesystem.
const PIECE_BYTES: usize = 1 << 20;
const PIECES: u64 = 32;
/// What one request restores of a folder, about: entries, bytes, time.
const MAX_FILES: u64 = 5000;
const MAX_BYTES: u64 = 2 << 30;
const MAX_TIME: Duration = Duration::from_secs(10);
/// Entries of a folder that are taken at a time.
const ENTRIES: usize = 256;
/// The deepest folder below the one that is restored.
const MAX_DEPTH: usize = 256;

/// What is done with what is there by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    Refuse,
    Overwrite,
    Keep,
}

impl Daemon {
    /// Copies a file or a folder from a snapshot into its filesystem, or a part of a folder.
    ///
    /// # Errors
    /// There is no such file, something is in its place, or it cannot be written.
    pub async fn restore_file(&self, request: RestoreFile) -> Result<RestoredFile, ApiError> {
        let doing = format!("cannot restore '{}' from '{}'", request.path.escape_debug(), request.snapshot);
        let invalid = |why: String| ApiError::invalid(format!("{doing}: {why}"));
        let there = match (request.overwrite, request.keep) {
            (true, true) => return Err(invalid("what is there is either overwritten or kept".into())),
            (true, false) => There::Overwrite,
            (false, true) => There::Keep,
            (false, false) => There::Refuse,
        };
        let browsed = self.browsed(&request.snapshot).await?;
        if browsed.snapshot.is_none() {
            return Err(invalid("it is no snapshot".into()));
        }
        let to = request.to.as_deref().unwrap_or(&request.path);
        let from_path = components(&request.path).map_err(invalid)?;
        let to_path = components(to).map_err(invalid)?;
        let Some((name, to_dir)) = to_path.split_last() else {
            return Err(invalid("the root of a filesystem is no place for a file".into()));
        };
        let failed = |error| in_words(&doing, error);
        let (from, dir, before) = {
            let files = browsed.open().map_err(failed)?;
            if !files.is_writable() {
                return Err(ApiError::refused(format!("{doing}: the filesystem is read-only")));
            }
            let from = browsed.find(&files, &from_path).map_err(failed)?;
            if !matches!(from.kind, FileType::Regular | FileType::Symlink | FileType::Directory) {
                let why = "only files, symbolic links and folders are restored; copy others from \
                           '.zfs/snapshot' of the mounted filesystem";
                return Err(ApiError::refused(format!("{doing}: {why}")));
            }
            let root = files.root().map_err(failed)?;
            let dir = descend(&files, root, to_dir).map_err(|error| match error {
                engine::Error::NotFound(_) => ApiError::not_found(format!(
                    "{doing}: the directory of '{}' is not there any more; name another place",
                    to.escape_debug()
                )),
                other => in_words(&doing, other),
            })?;
            (from, dir.id, files.lookup(Named { dir: dir.id, name }).map_err(failed)?)
        };
        let in_its_place = |why: &str| ApiError::refused(format!("{doing}: '{}': {why}", to.escape_debug()));
        let path = to_path.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join("/");
        let mut done = RestoredFile { path, ..RestoredFile::default() };
        if from.kind == FileType::Directory {
            if before.is_some_and(|before| before.kind != FileType::Directory) {
                return Err(in_its_place("there is a file in its place; name another place"));
            }
            if before.is_some() && there == There::Refuse && request.after.is_none() {
                let why = "there is a folder in its place; name another place, or say whether files in it \
                           are overwritten or kept";
                return Err(in_its_place(why));
            }
            let budget = Budget { files: MAX_FILES, bytes: MAX_BYTES, until: Instant::now() + MAX_TIME };
            let mut folder =
                Folder { browsed: &browsed, there, done, budget, at: Vec::new(), levels: Vec::new() };
            let restored = match &request.after {
                Some(after) => folder.take_up(from, before, after),
                None => folder.begin(from, dir, name, before),
            };
            return match restored.and_then(|()| folder.run()) {
                Ok(()) => Ok(folder.done),
                Err(fault) => Err(folder.explain(&doing, fault)),
            };
        }
        if request.after.is_some() {
            return Err(invalid("'after' is for folders".into()));
        }
        match before {
            Some(before) if before.kind == FileType::Directory => {
                return Err(in_its_place("there is a folder in its place; name another place"));
            }
            Some(_) if there == There::Keep => {
                done.kept = 1;
                return Ok(done);
            }
            Some(_) if there == There::Refuse => {
                return Err(in_its_place(
                    "there is something in its place; name another place, or overwrite",
                ));
            }
            _ => {}
        }
        let copy = Copy::new(&browsed, from, dir, name, there == There::Overwrite);
        copy.run().map_err(failed)?;
        Ok(RestoredFile { size: from.size, files: 1, ..done })
    }
}

/// Why a folder is not restored, or not wholly.
#[derive(Debug)]
enum Fault {
    Failed(engine::Error),
    /// Something is in the way.
    InTheWay(&'static str),
    /// The place where to go on makes no sense.
    NoPlace,
}

impl From<engine::Error> for Fault {
    fn from(error: engine::Error) -> Self {
        Self::Failed(error)
    }
}

/// What is left of what one request may do.
#[derive(Debug)]
struct Budget {
    files: u64,
    bytes: u64,
    until: Instant,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.files == 0 || self.bytes == 0 || Instant::now() >= self.until
    }

    fn spend(&mut self, bytes: u64) {
        self.files = self.files.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A folder on the way to the entry that is copied.
#[derive(Debug)]
struct Level {
    from: Attributes,
    to: FileId,
    /// Whether it was made for this.
    is_new: bool,
    /// Where its list goes on: behind the entry that is copied now, and at it.
    next: u64,
    current: u64,
    name: Vec<u8>,
}

/// A folder that is restored.
struct Folder<'a> {
    browsed: &'a Browsed,
    there: There,
    done: RestoredFile,
    budget: Budget,
    /// The name of what is copied now, for errors.
    at: Vec<u8>,
    levels: Vec<Level>,
}

impl Folder<'_> {
    /// Begins with the folder itself.
    fn begin(
        &mut self,
        from: Attributes,
        dir: FileId,
        name: &[u8],
        there: Option<Attributes>,
    ) -> Result<(), Fault> {
        let files = self.browsed.open()?;
        self.enter(&files, from, Named { dir, name }, there)
    }

    /// Goes into a folder, which is made where it is not there.
    fn enter(
        &mut self,
        files: &OpenedShare,
        from: Attributes,
        place: Named<'_>,
        there: Option<Attributes>,
    ) -> Result<(), Fault> {
        if self.levels.len() >= MAX_DEPTH {
            return Err(Fault::InTheWay("it is too deep"));
        }
        let (to, is_new) = match there {
            Some(there) => (there.id, false),
            None => {
                let (mode, uid, gid) = (from.mode, from.uid, from.gid);
                let new = NewNode { kind: NewKind::Directory, mode, umask: 0, uid, gid };
                let made = files.create(place, &new)?.id;
                self.done.folders += 1;
                // The folder above may pass on other things.
                files.copy_xattrs(from.id, made)?;
                let set = SetAttributes {
                    mode: Some(mode),
                    uid: Some(uid),
                    gid: Some(gid),
                    ..SetAttributes::default()
                };
                files.set(made, &set)?;
                (made, true)
            }
        };
        self.levels.push(Level { from, to, is_new, next: 0, current: 0, name: place.name.to_vec() });
        Ok(())
    }

    /// Goes on where an earlier request ended.
    fn take_up(&mut self, from: Attributes, there: Option<Attributes>, after: &str) -> Result<(), Fault> {
        let files = self.browsed.open()?;
        let Some(mut to) = there else { return Err(Fault::InTheWay("the folder is not there any more")) };
        let mut from = from;
        let mut name = Vec::new();
        let mut parts = after.split('.').peekable();
        while let Some(part) = parts.next() {
            let is_new = part.starts_with('n');
            let place = part.trim_start_matches('n').parse().map_err(|_| Fault::NoPlace)?;
            if self.levels.len() >= MAX_DEPTH {
                return Err(Fault::NoPlace);
            }
            let mut level = Level { from, to: to.id, is_new, next: place, current: place, name };
            name = Vec::new();
            if parts.peek().is_some() {
                let entries = files.entries(from.id, place, 3)?.entries;
                let entry = entries.iter().find(|entry| !is_dot(&entry.name)).ok_or(Fault::NoPlace)?;
                level.next = entry.cookie;
                name.clone_from(&entry.name.to_vec());
                self.at.clone_from(&name);
                let inner = files.lookup(Named { dir: from.id, name: &name })?;
                from = inner.filter(|inner| inner.kind == FileType::Directory).ok_or(Fault::NoPlace)?;
                let inner = files.lookup(Named { dir: to.id, name: &name })?;
                to = inner
                    .filter(|inner| inner.kind == FileType::Directory)
                    .ok_or(Fault::InTheWay("the folder is not there any more"))?;
            }
            self.levels.push(level);
        }
        Ok(())
    }

    /// Where the next request goes on.
    fn place(&self) -> String {
        let last = self.levels.len().saturating_sub(1);
        let part = |(depth, level): (usize, &Level)| {
            let new = if level.is_new { "n" } else { "" };
            format!("{new}{}", if depth == last { level.next } else { level.current })
        };
        self.levels.iter().enumerate().map(part).collect::<Vec<_>>().join(".")
    }

    /// Restores entries until all is done, or the budget is spent.
    fn run(&mut self) -> Result<(), Fault> {
        while !self.levels.is_empty() {
            // A request of the filesystem by itself, so that it holds up no unmounting.
            let files = self.browsed.open()?;
            self.some(&files)?;
            if self.budget.is_spent() && !self.levels.is_empty() {
                self.done.next = Some(self.place());
                return self.make_stable(&files);
            }
        }
        Ok(())
    }

    /// Makes stable what got its name.
    fn make_stable(&self, files: &OpenedShare) -> Result<(), Fault> {
        match self.levels.last() {
            Some(level) => Ok(files.make_stable(level.to)?),
            None => Ok(()),
        }
    }

    /// Restores some entries of the folder at hand.
    fn some(&mut self, files: &OpenedShare) -> Result<(), Fault> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let (from, to, place) = (level.from, level.to, level.next);
        let part = files.entries(from.id, place, ENTRIES)?;
        for entry in &part.entries {
            if is_dot(&entry.name) {
                self.moved_to(entry.cookie);
                continue;
            }
            self.at = entry.name.to_vec();
            let found = files.lookup(Named { dir: from.id, name: &entry.name })?;
            let found =
                found.ok_or_else(|| engine::Error::NotFound(String::from_utf8_lossy(&entry.name).into()))?;
            if let Some(level) = self.levels.last_mut() {
                level.current = level.next;
            }
            let place = Named { dir: to, name: &entry.name };
            let there = files.lookup(place)?;
            self.moved_to(entry.cookie);
            if found.kind == FileType::Directory {
                match there {
                    Some(there) if there.kind != FileType::Directory => self.keep_or_refuse()?,
                    there => return self.enter(files, found, place, there),
                }
            } else {
                self.file(files, found, place, there)?;
            }
            if self.budget.is_spent() {
                return Ok(());
            }
        }
        if part.is_end {
            self.leave(files)?;
        }
        Ok(())
    }

    fn moved_to(&mut self, cookie: u64) {
        if let Some(level) = self.levels.last_mut() {
            level.next = cookie;
        }
    }

    /// What is a folder on one side only is never replaced.
    fn keep_or_refuse(&mut self) -> Result<(), Fault> {
        match self.there {
            There::Keep => {
                self.done.kept += 1;
                Ok(())
            }
            _ => Err(Fault::InTheWay("it is a folder on one side only")),
        }
    }

    fn file(
        &mut self,
        files: &OpenedShare,
        from: Attributes,
        place: Named<'_>,
        there: Option<Attributes>,
    ) -> Result<(), Fault> {
        if !matches!(from.kind, FileType::Regular | FileType::Symlink) {
            self.done.passed_over += 1;
            return Ok(());
        }
        match (there, self.there) {
            (Some(there), _) if there.kind == FileType::Directory => return self.keep_or_refuse(),
            (Some(_), There::Keep) => {
                self.done.kept += 1;
                self.budget.spend(0);
                return Ok(());
            }
            (Some(_), There::Refuse) => {
                return Err(Fault::InTheWay("there is something in its place by now"));
            }
            _ => {}
        }
        let copy = Copy::new(self.browsed, from, place.dir, place.name, self.there == There::Overwrite);
        match from.kind == FileType::Regular && from.size > PIECE_BYTES as u64 {
            true => copy.run()?,
            false => copy.run_with(files)?,
        }
        self.done.files += 1;
        self.done.size += from.size;
        self.budget.spend(from.size);
        Ok(())
    }

    /// The folder at hand is full.
    fn leave(&mut self, files: &OpenedShare) -> Result<(), Fault> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        self.at.clone_from(&level.name);
        if level.is_new {
            let set = SetAttributes {
                atime: Some(level.from.atime),
                mtime: Some(level.from.mtime),
                ..SetAttributes::default()
            };
            files.set(level.to, &set)?;
        }
        if self.levels.is_empty() {
            files.make_stable(level.to)?;
        }
        Ok(())
    }

    /// An error in the words of a request, with what was done.
    fn explain(&self, doing: &str, fault: Fault) -> ApiError {
        let error = match fault {
            Fault::NoPlace => {
                return ApiError::invalid(format!("{doing}: 'after' is no place in it"));
            }
            Fault::InTheWay(why) => ApiError::refused(format!("{doing}: {why}")),
            Fault::Failed(error) => in_words(doing, error),
        };
        let path: Vec<_> =
            self.levels.iter().skip(1).map(|level| String::from_utf8_lossy(&level.name)).collect();
        let path = [path.join("/"), String::from_utf8_lossy(&self.at).into_owned()].join("/");
        let path = path.trim_matches('/').escape_debug().to_string();
        let RestoredFile { files, folders, .. } = &self.done;
        let kind = if error.kind == ErrorKind::NotFound { ErrorKind::Refused } else { error.kind };
        ApiError::new(
            kind,
            format!(
                "{} (at '{path}'; {files} files and {folders} folders of this request are there; asked again \
                 with what is there kept, the rest is restored)",
                error.message
            ),
        )
    }
}

/// The entries of a folder for itself and for the one above.
fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// A file that is copied.
struct Copy<'a> {
    browsed: &'a Browsed,
    from: Attributes,
    dir: FileId,
    name: &'a [u8],
    /// Its name until it is whole.
    made: Vec<u8>,
    overwrite: bool,
}

impl<'a> Copy<'a> {
    fn new(browsed: &'a Browsed, from: Attributes, dir: FileId, name: &'a [u8], overwrite: bool) -> Self {
        let made = format!(".cenote-restore-{:016x}", System.random()).into_bytes();
        Self { browsed, from, dir, name, made, overwrite }
    }

    /// Copies it piece by piece.
    fn run(&self) -> engine::Result<()> {
        let copied = self.copy();
        if copied.is_err() {
            // What was made in part only takes space; it may not be there.
            let _ = self.browsed.open().and_then(|files| files.unlink(self.made_at()));
        }
        copied
    }

    /// Copies it at once: it has one piece at most.
    fn run_with(&self, files: &OpenedShare) -> engine::Result<()> {
        let copied = self.create(files).and_then(|made| {
            if self.from.kind == FileType::Regular {
                self.pieces(files, made, 0)?;
            }
            self.name(files, made)
        });
        if copied.is_err() {
            // As above.
            let _ = files.unlink(self.made_at());
        }
        copied
    }

    fn made_at(&self) -> Named<'_> {
        Named { dir: self.dir, name: &self.made }
    }

    fn copy(&self) -> engine::Result<()> {
        let made = self.create(&self.browsed.open()?)?;
        if self.from.kind == FileType::Regular {
            let mut offset = 0;
            while offset < self.from.size {
                offset = self.pieces(&self.browsed.open()?, made, offset)?;
            }
        }
        let files = self.browsed.open()?;
        self.name(&files, made)?;
        files.make_stable(made)
    }

    /// Gives it what it has beside its content, and its name when all is stable.
    fn name(&self, files: &OpenedShare, made: FileId) -> engine::Result<()> {
        let at = Named { dir: self.dir, name: self.name };
        if self.from.kind == FileType::Regular {
            let size = Some(self.from.size);
            files.set(made, &SetAttributes { size, ..SetAttributes::default() })?;
            files.copy_xattrs(self.from.id, made)?;
        }
        let set = SetAttributes {
            mode: (self.from.kind == FileType::Regular).then_some(self.from.mode),
            atime: Some(self.from.atime),
            mtime: Some(self.from.mtime),
            ..SetAttributes::default()
        };
        files.set(made, &set)?;
        files.make_stable(made)?;
        match self.overwrite {
            true => files.rename(self.made_at(), at),
            false => {
                // Two files of a name are never there, whatever else is done meanwhile.
                files.link(made, at)?;
                files.unlink(self.made_at())
            }
        }
    }

    /// Makes the file, without its content.
    fn create(&self, files: &OpenedShare) -> engine::Result<FileId> {
        let target = match self.from.kind {
            FileType::Symlink => files.read_link(self.from.id)?,
            _ => Vec::new(),
        };
        let kind = match self.from.kind {
            FileType::Symlink => NewKind::Symlink(&target),
            _ => NewKind::Regular,
        };
        // Closed to others until it is whole.
        let new = NewNode { kind, mode: 0o600, umask: 0, uid: self.from.uid, gid: self.from.gid };
        let made = files.create(self.made_at(), &new)?.id;
        // The directory may pass on a group of its own.
        let owner =
            SetAttributes { uid: Some(self.from.uid), gid: Some(self.from.gid), ..SetAttributes::default() };
        files.set(made, &owner)?;
        Ok(made)
    }

    /// Copies some pieces; where the next ones begin. What is zero is left out.
    fn pieces(&self, files: &OpenedShare, made: FileId, from: u64) -> engine::Result<u64> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset = from;
        for _ in 0..PIECES {
            let length = files.read(self.from.id, offset, &mut piece)?;
            if length == 0 {
                return Ok(self.from.size.max(offset));
            }
            if piece[..length].iter().any(|byte| *byte != 0) {
                files.write(made, offset, &piece[..length], &WriteOptions::default())?;
            }
            offset += length as u64;
        }
        Ok(offset)
    }
}
