//! Writes the data that workloads find.
//!
//! Volumes and files for workloads are written once before the measurement, in pieces of about two seconds,
//! so that progress can be shown and the user can stop it. A file, device or export that the user named is
//! filled too if workloads write to it and no other program uses it ([`super::in_use`]). If no workload
//! writes to it, nothing is written, fio is told not to, and the report says that it was read as it was
//! found. The target of a copy is filled by the same copy, so that the measured run only overwrites blocks.
//! All workloads share the contents of a named file, device or export.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::job::Stream;
use super::{Bench, make_file};
use crate::created_files::{self, Created};
use crate::error::Result;
use crate::experiment::{Work, Workload};
use crate::fio::{self, Endpoint};
use crate::progress::{Part, Progress};
use crate::size::Size;

/// How long a piece should take, and its bytes at least.
const PIECE_SECONDS: f64 = 2.0;
const LEAST_PIECE: u64 = 16 << 20;

/// How often files that are made are counted.
const COUNT_FILES: Duration = Duration::from_secs(2);

impl Bench<'_> {
    /// Writes all of a file or device once, so that no run finds it empty.
    pub(super) fn fill_first(
        &mut self,
        endpoint: &Endpoint,
        name: &str,
        progress: &dyn Progress,
    ) -> Result<()> {
        let has_content = |workload: &&Workload| matches!(workload.work(), Work::Transfers | Work::Replay);
        match self.experiment.workloads.iter().find(has_content) {
            Some(workload) => self.fill(endpoint, name, workload, progress),
            None => Ok(()),
        }
    }

    /// Writes once what a workload writes to or reads, with data as its own. Files are made by
    /// [`make_files`].
    pub(super) fn fill(
        &mut self,
        endpoint: &Endpoint,
        name: &str,
        like: &Workload,
        progress: &dyn Progress,
    ) -> Result<()> {
        let what = format!("filling {name}");
        let began = Instant::now();
        let bytes = match like.work() {
            Work::Create | Work::Open | Work::Stat | Work::Delete => return Ok(()),
            Work::Copy => {
                if let Endpoint::Directory(directory) = endpoint {
                    make_data(directory)?;
                }
                let Some(stream) = Stream::of(like, self.experiment.target.size()) else { return Ok(()) };
                stream.run(endpoint, &what, progress)?.figures.written_bytes
            }
            Work::Transfers | Work::Replay => self.fill_all(endpoint, &what, like, progress)?,
        };
        self.remarks.filled(bytes, began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Writes all of a volume or file with data as a workload's; how many bytes that are.
    pub(super) fn fill_all(
        &self,
        endpoint: &Endpoint,
        what: &str,
        like: &Workload,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let total = self.experiment.target.size();
        let workload = whole("write", like, total);
        if let Endpoint::Directory(directory) = endpoint {
            // fio would make it as long as the first piece.
            make_file(&make_data(directory)?, total.0)?;
        }
        let began = Instant::now();
        let (mut done, mut piece) = (0, LEAST_PIECE);
        while done < total.0 {
            progress.goes_on(Part { what, done: Size(done), total, elapsed: began.elapsed() });
            let left = total.0 - done;
            // What would be left is no piece of its own.
            let bytes = if left < piece + LEAST_PIECE { left } else { piece };
            let is_last = done + bytes == total.0;
            let piece_began = Instant::now();
            let arguments = fio::piece(&workload, endpoint, done, Size(bytes), is_last);
            let limit = self.guests.limit(0.0, bytes);
            fio::run_by(endpoint.by(), &arguments, limit, &mut || progress.stops())?;
            done += bytes;
            let rate = bytes as f64 / piece_began.elapsed().as_secs_f64().max(1e-3);
            piece = ((rate * PIECE_SECONDS) as u64).next_multiple_of(workload.bs.0).max(LEAST_PIECE);
        }
        progress.goes_on(Part { what, done: total, total, elapsed: began.elapsed() });
        Ok(total.0)
    }
}

/// Takes the file that transfers go to in a directory.
fn make_data(directory: &Path) -> Result<PathBuf> {
    let own = directory.join(fio::OWN_DIRECTORY);
    created_files::make(&own)?;
    created_files::take(&own, fio::DATA)
}

/// The files for a workload in the directory of the lab's files.
pub(super) fn made_by(workload: &Workload) -> Created {
    match workload.work() {
        Work::Transfers | Work::Replay | Work::Copy => Created::File(fio::DATA.to_owned()),
        Work::Create | Work::Open | Work::Stat | Work::Delete => Created::Files(fio::files_names(workload)),
    }
}

/// Makes what a workload on files needs: a directory to create them in, where none of them is, or the files.
/// `whole` has the directories where all were made.
pub(super) fn make_files(
    workload: &Workload,
    directory: &Path,
    whole: &mut BTreeSet<PathBuf>,
    progress: &dyn Progress,
) -> Result<()> {
    let own = directory.join(fio::OWN_DIRECTORY);
    created_files::make(&own)?;
    let files = fio::files_directory(workload, directory);
    match workload.work() {
        Work::Transfers | Work::Replay | Work::Copy => return created_files::take(&own, fio::DATA).map(drop),
        Work::Open | Work::Stat if whole.contains(&files) => return Ok(()),
        _ => {}
    }
    created_files::take_files(&own, &fio::files_names(workload))?;
    // Where some are there from before, they are no reason not to make all of them.
    let remove = || created_files::remove_files(&own, &fio::files_names(workload));
    remove()?;
    if workload.work() == Work::Create {
        return Ok(());
    }
    let total = Size(u64::from(workload.files) * workload.bs.0);
    let began = Instant::now();
    let mut counted = began;
    let made = fio::run_unless(&fio::make_files(workload, directory), &mut || {
        if counted.elapsed() >= COUNT_FILES {
            counted = Instant::now();
            let count = created_files::files(&own, &fio::files_names(workload)).len() as u64;
            let done = Size((count * workload.bs.0).min(total.0));
            progress.goes_on(Part { what: "making files", done, total, elapsed: began.elapsed() });
        }
        progress.stops()
    })
    .map(drop);
    match made {
        Ok(()) => drop(whole.insert(files)),
        Err(_) => remove()?,
    }
    made
}

/// The largest operations, up to 1 MiB, that end where an extent does.
fn operations_of(extent: Size) -> Size {
    Size(1 << extent.0.max(1).trailing_zeros().min(20))
}

/// A workload that goes over all of `extent`, with data as another's.
pub(super) fn whole(rw: &str, like: &Workload, extent: Size) -> Workload {
    Workload {
        rw: rw.to_owned(),
        bs: operations_of(extent),
        size: Some(extent),
        iodepth: 4,
        options: BTreeMap::new(),
        ..like.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_over_as_a_whole_is_so_to_its_end_and_not_further() {
        for (extent, operation) in [(3 << 19, 1 << 19), (64 << 20, 1 << 20), (12 << 10, 4 << 10)] {
            assert_eq!(operations_of(Size(extent)), Size(operation));
        }
    }
}
