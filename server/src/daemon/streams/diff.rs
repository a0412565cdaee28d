//! `zfs diff`: what happened to the files of a filesystem between two of its states.
//!
//! The comparison reads one committed state of the pool, which is lent to it as to programs that read the
//! devices ([`super::lent_views`]). The list may be long and its reader slow, so that it is sent in parts
//! while the comparison goes on; it ends early when the state is taken back.

use std::sync::Arc;

use engine::dsl::{Dsl, Entry, Kind};
use engine::pool::live::Lent;
use engine::properties::{Environment, Prop, Style};
use engine::zpl::diff::{Change, ChangeKind, Diff, Difference, PageLimits};

use crate::api::{Action, ApiError, CompareFiles, DiffPart, FileChange, FileChangeKind, FilePath};
use crate::caller::Caller;
use crate::daemon::{Daemon, OpenPool, dataset_error, not_of_this_type, refusals};

/// Bytes of paths after which a part is sent.
const PART_BYTES: usize = 64 << 10;
const NOT_EARLIER: &str = "Not an earlier snapshot from the same fs";

/// A comparison that is about to be sent.
#[derive(Debug)]
pub struct FileComparison {
    begun: Option<DiffPart>,
    diff: Diff,
    mountpoint: Vec<u8>,
    lent: Arc<Lent>,
}

/// Full names of what is compared.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    from: String,
    to: String,
}

impl Names {
    /// The filesystem that must exist in any case.
    fn filesystem(request: &CompareFiles) -> &str {
        let name = match (request.from.strip_prefix('@'), &request.to) {
            (Some(_), Some(to)) => to,
            _ => &request.from,
        };
        name.split('@').next().unwrap_or_default()
    }

    fn of(request: &CompareFiles) -> Result<Self, ApiError> {
        let from = &request.from;
        let Some(to) = &request.to else {
            let why = match from.split_once('@') {
                Some((filesystem, snapshot)) if !filesystem.is_empty() && !snapshot.is_empty() => {
                    return Ok(Self { from: from.clone(), to: filesystem.to_owned() });
                }
                Some(_) => "empty component or misplaced '@' or '#' delimiter in name",
                None => "missing '@' delimiter in snapshot name",
            };
            return Err(ApiError::invalid(format!("Badly formed snapshot name {from}: {why}")));
        };
        let split = |name: &str| match name.split_once('@') {
            Some((filesystem, snapshot)) => (filesystem.to_owned(), Some(snapshot.to_owned())),
            None => (name.to_owned(), None),
        };
        let ((of_from, from), (of_to, to)) = (split(from), split(to));
        let is_empty = |name: &Option<String>| name.as_ref().is_some_and(String::is_empty);
        let from = from.filter(|snapshot| !snapshot.is_empty());
        let (Some(from), false, false) = (from, is_empty(&to), of_from.is_empty() && of_to.is_empty()) else {
            let why = "Unable to determine which snapshots to compare: invalid name";
            return Err(ApiError::invalid(why));
        };
        let of = |mine: &str, other: &str| if mine.is_empty() { other.to_owned() } else { mine.to_owned() };
        let filesystem = of(&of_to, &of_from);
        Ok(Self {
            from: format!("{}@{from}", of(&of_from, &of_to)),
            to: to.map_or(filesystem.clone(), |to| format!("{filesystem}@{to}")),
        })
    }

    /// The filesystem whose mountpoint paths begin with.
    fn shown(&self) -> &str {
        self.to.split('@').next().unwrap_or_default()
    }
}

impl Daemon {
    /// Begins a comparison. What was written before is committed, so that it is compared too.
    ///
    /// # Errors
    /// Names that do not go together or do not exist, and states that cannot be read.
    pub async fn compare_files(&self, request: &CompareFiles) -> Result<FileComparison, ApiError> {
        let filesystem = Names::filesystem(request);
        if filesystem.is_empty() {
            Names::of(request)?;
        }
        let pool = self.pool_of(filesystem)?;
        let dsl = pool.dsl().await.map_err(|error| dataset_error("open", filesystem, error))?;
        open(&dsl, filesystem).await?;
        let names = Names::of(request)?;
        if names.from.split(['/', '@']).next() != Some(pool.name())
            || names.to.split(['/', '@']).next() != Some(pool.name())
        {
            return Err(ApiError::invalid(format!("{NOT_EARLIER}: invalid name")));
        }
        let shown = names.shown();
        open(&dsl, shown).await?;
        drop(dsl);
        if names.to == shown {
            commit(&pool, shown).await?;
        }
        let (view, lent) = pool.lend()?;
        let dsl = Dsl::open(&view).await.map_err(|error| dataset_error("open", shown, error))?;
        let (from, to) = (open(&dsl, &names.from).await?, open(&dsl, &names.to).await?);
        let failed = |error| dataset_error("compare the files of", shown, error);
        let (Some(before), Some(after)) = (from.dataset(), to.dataset()) else {
            return Err(not_of_this_type(&names.from));
        };
        if !dsl.is_earlier_snapshot(before, after).await.map_err(failed)? {
            return Err(ApiError::invalid(match before.phys.dir == after.phys.dir {
                true => format!("Unable to obtain diffs: \n   {NOT_EARLIER}"),
                false => format!("{NOT_EARLIER}: invalid name"),
            }));
        }
        let diff = async {
            let (before, after) = (dsl.open_objset(before).await?, dsl.open_objset(after).await?);
            Diff::open(&before, &after, PageLimits::default()).await
        };
        let diff = diff.await.map_err(|error| match error {
            engine::Error::KeyNotLoaded { .. } => {
                ApiError::refused("Key must be loaded to discover path names: permission denied")
            }
            other => failed(other),
        })?;
        let mountpoint = mountpoint(&pool, &dsl, shown).await.map_err(failed)?;
        let begun = Some(DiffPart::Begun { from: names.from, to: names.to });
        Ok(FileComparison { begun, diff, mountpoint, lent })
    }
}

/// Begins the comparison that a request asks for: [`crate::daemon::dispatch_for`] for the one action whose
/// answer comes in parts.
///
/// # Errors
/// As those of [`crate::daemon::dispatch_for`].
pub fn dispatch_comparison(
    daemon: &Daemon,
    caller: &Caller,
    body: &[u8],
) -> Result<FileComparison, ApiError> {
    daemon.prepare();
    device::block_on(async {
        let admitted = daemon.admit(caller, CompareFiles::NAME, body).await?;
        daemon.compare_files(&admitted.request()?).await
    })
}

/// A filesystem, or a snapshot of one.
async fn open(dsl: &Dsl, name: &str) -> Result<Entry, ApiError> {
    let entry = dsl.entry(name).await.map_err(|error| dataset_error("open", name, error))?;
    match entry.kind {
        Kind::Filesystem | Kind::Snapshot { of_volume: false } => Ok(entry),
        _ => Err(not_of_this_type(name)),
    }
}

/// Commits what was written to a filesystem.
async fn commit(pool: &OpenPool, filesystem: &str) -> Result<(), ApiError> {
    let Some(live) = pool.live() else { return Ok(()) };
    let doing = format!("cannot compare the files of '{filesystem}'");
    if pool.is_suspended() {
        return Err(refusals::suspended(&doing));
    }
    pool.write_back(|mounted| mounted == filesystem);
    let txgs = live.txgs();
    let committed = txgs.wait_synced(txgs.open_txg()).await;
    committed.map_err(|error| dataset_error("compare the files of", filesystem, error))
}

/// Where a filesystem is mounted, or would be; empty at the root and where that is nowhere.
async fn mountpoint(pool: &OpenPool, dsl: &Dsl, filesystem: &str) -> engine::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;

    let at = match pool.mountpoints().remove(filesystem) {
        Some(at) => at.into_os_string().into_vec(),
        None => {
            let properties = dsl.properties(&dsl.entry(filesystem).await?, &Environment::UNMOUNTED).await?;
            let property = properties.get(Prop::Mountpoint, Style::PARSABLE);
            property.map(|shown| shown.value.into_bytes()).unwrap_or_default()
        }
    };
    Ok(if at.len() > 1 && at.starts_with(b"/") { at } else { Vec::new() })
}

impl FileComparison {
    /// What keeps its state.
    pub fn lent(&self) -> &Arc<Lent> {
        &self.lent
    }

    /// Compares and sends the parts, until `send` says that there is no receiver any more. Blocks the thread.
    pub fn run(mut self, mut send: impl FnMut(DiffPart) -> bool) {
        let mut next = self.begun.take().is_none_or(&mut send);
        while next && !self.lent.has_ended() {
            next = match device::block_on(self.diff.advance()) {
                Ok(true) => self.send_page(&mut send),
                Ok(false) => {
                    send(DiffPart::Complete);
                    false
                }
                Err(error) => {
                    let ApiError { kind, message } = error.into();
                    let failed = ApiError { kind, message: format!("zfs diff failed: {message}") };
                    send(DiffPart::Failed(failed));
                    false
                }
            };
        }
    }

    /// The end of the answer when the state was taken back.
    pub fn taken_back() -> DiffPart {
        let why = "the pool is closed, or needs the space that the comparison keeps";
        DiffPart::Failed(ApiError::failed(format!("zfs diff failed: {why}")))
    }

    fn send_page(&mut self, send: &mut impl FnMut(DiffPart) -> bool) -> bool {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while let Some(difference) = self.diff.take() {
            match difference {
                Difference::Change(change) => {
                    let change = self.told(change);
                    bytes += change.path.0.len() + change.new_path.as_ref().map_or(0, |path| path.0.len());
                    changes.push(change);
                }
                Difference::Unreadable(object, error) => {
                    let why = format!("Unable to determine path or stats for object {object}: {error}");
                    if !send(DiffPart::Changes(std::mem::take(&mut changes)))
                        || !send(DiffPart::Unreadable(why))
                    {
                        return false;
                    }
                }
            }
            if bytes >= PART_BYTES {
                bytes = 0;
                if !send(DiffPart::Changes(std::mem::take(&mut changes))) {
                    return false;
                }
            }
        }
        changes.is_empty() || send(DiffPart::Changes(changes))
    }

    fn told(&self, change: Change) -> FileChange {
        let path = |path: Vec<u8>| FilePath([&self.mountpoint[..], &path].concat());
        let (kind, at, new_path, links) = match change.kind {
            ChangeKind::Added(at) => (FileChangeKind::Added, at, None, 0),
            ChangeKind::Removed(at) => (FileChangeKind::Removed, at, None, 0),
            ChangeKind::Modified(at) => (FileChangeKind::Modified, at, None, 0),
            ChangeKind::Linked(at, links) => (FileChangeKind::Modified, at, None, links),
            ChangeKind::Renamed { from, to } => (FileChangeKind::Renamed, from, Some(to), 0),
        };
        FileChange {
            kind,
            path: path(at),
            new_path: new_path.map(path),
            links,
            mode: change.mode,
            ctime: change.ctime.seconds,
            ctime_nanoseconds: change.ctime.nanoseconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(from: &str, to: Option<&str>) -> Result<(String, String), String> {
        let request = CompareFiles { from: from.into(), to: to.map(str::to_owned) };
        Names::of(&request).map(|names| (names.from, names.to)).map_err(|error| error.message)
    }

    #[test]
    fn a_filesystem_may_be_left_out_of_one_name() {
        let compared = |from: &str, to: &str| Ok((from.to_owned(), to.to_owned()));
        assert_eq!(names("t/f@a", None), compared("t/f@a", "t/f"));
        for (from, to) in [("t/f@a", "t/f@b"), ("t/f@a", "@b"), ("@a", "t/f@b")] {
            assert_eq!(names(from, Some(to)), compared("t/f@a", "t/f@b"));
        }
        for (from, to) in [("t/f@a", "t/f"), ("@a", "t/f")] {
            assert_eq!(names(from, Some(to)), compared("t/f@a", "t/f"));
        }
        assert_eq!(names("t/f@a", Some("t/clone@b")), compared("t/f@a", "t/clone@b"));
    }

    #[test]
    fn names_that_say_too_little_are_refused_in_openzfs_words() {
        let why = "Badly formed snapshot name t/f: missing '@' delimiter in snapshot name";
        assert_eq!(names("t/f", None).unwrap_err(), why);
        assert!(names("t/f@", None).unwrap_err().starts_with("Badly formed snapshot name t/f@: empty"));
        for (from, to) in [("t/f", "t/f@a"), ("t/f@", "t/f@a"), ("t/f@a", "t/f@"), ("@a", "@b"), ("@a", "@")]
        {
            let why = "Unable to determine which snapshots to compare: invalid name";
            assert_eq!(names(from, Some(to)).unwrap_err(), why, "{from} {to}");
        }
    }
}
