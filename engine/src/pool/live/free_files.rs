//! Freeing large files without a name, part by part ([`crate::zpl::live`], `nameless`).
//!
//! An open filesystem is put in line when a group is written while it has such files: their names went with
//! that group at the latest. One step is one part; it waits for the group that has room for that. Nothing is
//! kept in the pool but the unlinked set of the filesystem: what is left when the filesystem is closed is
//! freed when it is opened again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use ondisk::ObjsetId;

use super::parts::{Doing, Part};
use super::{JobKey, LivePool, Syncing};
use crate::error::Result;
use crate::jobs::{Job, Step, Turn, Unit};
use crate::zpl::LiveZpl;

/// The line in which filesystems stand.
const LINE: &str = "free-files";

/// Frees large files without a name.
#[derive(Debug, Default)]
pub(super) struct FreedFiles;

impl Part for FreedFiles {
    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        s.pool.free_large_files();
        ready(Ok(())).boxed()
    }
}

impl LivePool {
    /// Puts open filesystems in line that have large files without a name.
    fn free_large_files(self: &Arc<Self>) {
        let found: Vec<_> = {
            let datasets = self.datasets();
            let writable = datasets.iter().filter(|(_, dataset)| !dataset.is_read_only());
            let open = writable.filter_map(|(id, dataset)| Some((*id, dataset.open_filesystem()?)));
            open.filter(|(_, zpl)| zpl.has_large_nameless()).collect()
        };
        for (filesystem, _) in found {
            let key = JobKey::FreeFiles(filesystem);
            if self.jobs.is_worked_on(&key) {
                continue;
            }
            let job = (Unit::Objects, Box::new(Freeing { filesystem, blocks: 0 }) as Box<dyn Job<Self>>);
            if let Err(error) = self.jobs.line_up(self, LINE, key, job) {
                tracing::warn!(pool = self.pool.name(), %error, "large files without a name stay for now");
            }
        }
    }

    fn filesystem_with_large_files(&self, id: ObjsetId) -> Option<Arc<LiveZpl>> {
        let dataset = self.datasets().get(&id).cloned()?;
        dataset.open_filesystem().filter(|zpl| zpl.has_large_nameless())
    }
}

/// Frees the files of one filesystem.
#[derive(Debug)]
struct Freeing {
    filesystem: ObjsetId,
    /// Blocks that were freed.
    blocks: u64,
}

impl Job<LivePool> for Freeing {
    fn name(&self) -> &'static str {
        LINE
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        async move {
            let zpl = turn.host()?.filesystem_with_large_files(self.filesystem);
            let Some(zpl) = zpl else { return Ok(Step::Complete) };
            let Some(blocks) = zpl.free_part().await? else { return Ok(Step::Complete) };
            self.blocks += blocks;
            let pool = turn.host()?;
            pool.jobs.advance(&pool, &JobKey::FreeFiles(self.filesystem), self.blocks, 0);
            Ok(Step::More { pause: Duration::ZERO })
        }
        .boxed_local()
    }
}
