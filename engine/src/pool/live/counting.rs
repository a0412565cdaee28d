//! Filesystems that count more since the pool got features: files (`userobj_accounting`) and what projects
//! use (`project_quota`); and what users use, since it has version 15.
//!
//! What is open stands in line as soon as a file comes to it, or a project, after the features were enabled;
//! others when they are opened to be changed. Enabling features alone begins nothing.
//! One thread for each pool goes through them, one after the other: all files are written again for it, which
//! many at a time would only do to each other's disadvantage. It is there as long as somebody stands in line,
//! and lets go when the pool is closed. A filesystem that was closed before its turn, or during it, stands in
//! line again when it is opened.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Counting::line` | who waits, who is gone through, the thread; for a few lines, never across an await | taken alone |

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use ondisk::ObjsetId;
use ondisk::features::Feature;

use super::{LivePool, version};
use crate::dsl::edit;
use crate::error::Result;
use crate::zpl::LiveZpl;

/// How far the counting in a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountingStatus {
    /// The filesystem that is gone through.
    pub filesystem: ObjsetId,
    /// Objects of it, files for the most part, that were gone through.
    pub done_objects: u64,
    /// Of about so many.
    pub total_objects: u64,
    /// Filesystems that come after it.
    pub waiting: usize,
    /// When it was begun with this filesystem, in seconds since 1970.
    pub start_time: u64,
}

/// The counting in a pool.
#[derive(Debug, Default)]
pub(super) struct Counting {
    line: Mutex<Line>,
    /// Of what is gone through.
    done_objects: AtomicU64,
    /// The pool is being closed.
    is_ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Line {
    /// Each once, in the order in which they came.
    waiting: VecDeque<ObjsetId>,
    /// Whose turn it is.
    taken: Option<ObjsetId>,
    current: Option<Current>,
    thread: Option<JoinHandle<()>>,
}

/// What is gone through.
#[derive(Debug, Clone, Copy)]
struct Current {
    filesystem: ObjsetId,
    total_objects: u64,
    start_time: u64,
}

impl Counting {
    /// One more object was gone through. Whether to go on.
    fn goes_on(&self) -> bool {
        self.done_objects.fetch_add(1, Ordering::Relaxed);
        !self.is_ending()
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a filesystem in line, unless it stands there. `start` gives the thread that goes through the
    /// line, where there is none.
    fn enter(&self, filesystem: ObjsetId, start: impl FnOnce() -> std::io::Result<JoinHandle<()>>) {
        let mut line = self.line();
        if self.is_ending() || line.waiting.contains(&filesystem) {
            return;
        }
        line.waiting.push_back(filesystem);
        if line.thread.is_none() {
            match start() {
                Ok(thread) => line.thread = Some(thread),
                Err(error) => {
                    tracing::warn!(%error, "objset {filesystem}: what is used is not counted completely");
                    line.waiting.clear();
                }
            }
        }
    }

    /// Whose turn it is. `None` ends the thread, of which nothing is known from then on.
    fn next(&self) -> Option<ObjsetId> {
        let mut line = self.line();
        line.current = None;
        let next = line.waiting.pop_front().filter(|_| !self.is_ending());
        line.taken = next;
        if next.is_none() {
            line.waiting.clear();
            line.thread = None;
        }
        next
    }

    fn begin(&self, current: Current) {
        self.done_objects.store(0, Ordering::Relaxed);
        self.line().current = Some(current);
    }

    fn status(&self) -> Option<CountingStatus> {
        let line = self.line();
        let Current { filesystem, total_objects, start_time } = line.current?;
        // Files that came meanwhile are gone through too.
        let done_objects = self.done_objects.load(Ordering::Relaxed).min(total_objects);
        Some(CountingStatus {
            filesystem,
            done_objects,
            total_objects,
            waiting: line.waiting.len(),
            start_time,
        })
    }

    /// Breaks off and waits for the thread. Somebody must commit groups meanwhile.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        let thread = self.line().thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl LivePool {
    /// How far it is with counting what filesystems did not count before the pool got features; `None` when
    /// there is nothing to do.
    pub fn counting(&self) -> Option<CountingStatus> {
        self.counting.status()
    }

    /// Tells open filesystems what enabled features ask for.
    pub(super) fn tell_what_counts(&self) {
        let projects = self.features.count(Feature::ProjectQuota).is_some();
        let files = self.features.count(Feature::UserobjAccounting).is_some();
        for dataset in self.datasets().values() {
            dataset.objset.set_can_count_projects(projects);
            let lacks_counts =
                self.version() >= version::USERSPACE && dataset.objset.has_to_count(files, projects);
            dataset.objset.set_lacks_counts(lacks_counts);
        }
    }

    /// Has open filesystems that were used count what enabled features ask for, those first that were created
    /// first.
    pub(super) fn count_what_is_used(self: &Arc<Self>) {
        let taken = self.counting.line().taken;
        let mut used: Vec<_> = {
            let datasets = self.datasets();
            let used = datasets.iter().filter(|(_, dataset)| dataset.objset.take_use());
            // What is gone through notices what comes meanwhile.
            let used = used.filter(|(id, dataset)| !dataset.is_read_only() && taken != Some(**id));
            used.filter_map(|(id, dataset)| Some((*id, dataset.open_filesystem()?))).collect()
        };
        used.sort_unstable_by_key(|(id, _)| *id);
        used.iter().for_each(|(id, zpl)| self.complete_counts(*id, zpl));
    }

    /// Has a filesystem count all that enabled features ask for, and returns when it does or that failed.
    ///
    /// # Errors
    /// It cannot be opened, or the pool commits nothing any more.
    pub async fn count_all(self: &Arc<Self>, id: ObjsetId) -> Result<()> {
        let zpl = self.filesystem(id).await?;
        self.complete_counts(id, &zpl);
        while self.has_to_count(&zpl) && self.counting.line().thread.is_some() {
            self.change(|_| async { Ok(()) }).await?;
        }
        Ok(())
    }

    /// Puts a filesystem in line that does not count all that it should.
    pub(super) fn complete_counts(self: &Arc<Self>, id: ObjsetId, zpl: &Arc<LiveZpl>) {
        if !self.has_to_count(zpl) {
            return;
        }
        let (pool, counting) = (Arc::downgrade(self), Arc::clone(&self.counting));
        self.counting.enter(id, || {
            let count = move || {
                while let Some(id) = counting.next() {
                    if let Err(error) = device::block_on(count_one(&pool, &counting, id)) {
                        tracing::warn!("objset {id}: what is used is not counted completely: {error}");
                    }
                }
            };
            std::thread::Builder::new().name(format!("count {}", self.pool.name())).spawn(count)
        });
    }

    fn has_to_count(&self, zpl: &LiveZpl) -> bool {
        let (objects, projects) = self.counts();
        self.version() >= version::USERSPACE && zpl.objset().has_to_count(objects, projects)
    }

    /// Whether filesystems are to count files, and by projects.
    fn counts(&self) -> (bool, bool) {
        let is_enabled = |feature| self.features.count(feature).is_some();
        (is_enabled(Feature::UserobjAccounting), is_enabled(Feature::ProjectQuota))
    }
}

/// Goes through one filesystem, if it is open and does not count everything. Neither it nor the pool is kept
/// for that.
async fn count_one(pool: &Weak<LivePool>, counting: &Counting, id: ObjsetId) -> Result<()> {
    let Some(live) = pool.upgrade() else { return Ok(()) };
    let dataset = live.datasets().get(&id).cloned();
    let Some(zpl) = dataset.and_then(|dataset| dataset.open_filesystem()) else { return Ok(()) };
    if !live.has_to_count(&zpl) {
        return Ok(());
    }
    counting.begin(Current {
        filesystem: id,
        total_objects: zpl.objset().used_objects(),
        start_time: live.env.now().as_secs(),
    });
    let (objects, projects) = live.counts();
    zpl.objset().begin_counting(objects, projects);
    let (zpl, open) = (Arc::downgrade(&zpl), zpl);
    drop(open);
    live.change(move |s| async move { edit::count_files(&s, id).await }).await?;
    drop(live);
    if LiveZpl::count_all(&zpl, &|| counting.goes_on()).await?
        && let Some(live) = pool.upgrade()
    {
        // Only what is committed is known to be complete.
        live.change(|_| async { Ok(()) }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_in_line_comes_once_and_in_order() {
        let counting = Counting::default();
        let id = |number| ObjsetId(number);
        let thread = || std::thread::Builder::new().spawn(|| {});
        let none = || -> std::io::Result<JoinHandle<()>> { unreachable!("one thread is enough") };
        counting.enter(id(7), thread);
        counting.enter(id(5), none);
        counting.enter(id(7), none);
        assert_eq!((counting.next(), counting.status()), (Some(id(7)), None));
        counting.begin(Current { filesystem: id(7), total_objects: 2, start_time: 3 });
        assert!((0..3).all(|_| counting.goes_on()));
        // It may not notice any more what it is to count now.
        counting.enter(id(7), none);
        let status = counting.status().unwrap();
        assert_eq!((status.filesystem, status.waiting), (id(7), 2));
        assert_eq!((status.done_objects, status.total_objects), (2, 2));
        assert_eq!((counting.next(), counting.next(), counting.next()), (Some(id(5)), Some(id(7)), None));
        // That was the end of the thread.
        counting.enter(id(5), thread);
        counting.end();
        assert_eq!((counting.goes_on(), counting.next(), counting.status()), (false, None, None));
        counting.enter(id(5), none);
        assert_eq!(counting.next(), None);
    }
}
