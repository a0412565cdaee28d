//! The jobs of a pool.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use device::IgnorePoison;

use super::status::Pace;
use super::worker::{self, WorkerId};
use super::{Host, Job, JobState, JobStatus, Stop, Target, Unit, Work};
use crate::error::Result;

/// The jobs of a pool: one owner of how they stand and of their threads.
pub struct Jobs<H: Host> {
    state: Mutex<State<H>>,
    /// The pool is being closed.
    ending: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) struct State<H: Host> {
    entries: BTreeMap<H::Key, Entry>,
    /// Each as long as it has a thread.
    lines: BTreeMap<&'static str, Line<H>>,
    next_worker: u64,
    is_ending: bool,
    /// Who waits until jobs stand otherwise.
    waiters: Vec<Waker>,
}

/// Jobs that come when the one that is worked on is done, in the order in which they came.
type Line<H> = VecDeque<(<H as Host>::Key, Box<dyn Job<H>>)>;

/// One job.
#[derive(Debug)]
struct Entry {
    status: JobStatus,
    /// Which thread works on it.
    worker: Option<WorkerId>,
    is_of_line: bool,
    pace: Pace,
}

impl Entry {
    fn new(status: JobStatus) -> Self {
        Self { status, worker: None, is_of_line: false, pace: Pace::default() }
    }

    fn is_active(&self) -> bool {
        self.status.state == JobState::Active
    }
}

impl<H: Host> Default for Jobs<H> {
    fn default() -> Self {
        let state = State {
            entries: BTreeMap::new(),
            lines: BTreeMap::new(),
            next_worker: 0,
            is_ending: false,
            waiters: Vec::new(),
        };
        Self { state: Mutex::new(state), ending: Condvar::new(), threads: Mutex::default() }
    }
}

impl<H: Host> std::fmt::Debug for Jobs<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("entries", &self.state().entries).finish_non_exhaustive()
    }
}

impl<H: Host> Jobs<H> {
    pub(super) fn state(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().ignore_poison()
    }

    /// Takes up jobs as they stood when the pool was closed. Nothing goes on before [`Jobs::resume`].
    pub(crate) fn take_up(&self, found: impl IntoIterator<Item = (H::Key, JobStatus)>) {
        let found = found.into_iter().map(|(key, status)| (key, Entry::new(status)));
        self.state().entries.extend(found);
    }

    /// How all jobs stand at this time since 1970.
    pub fn statuses(&self, now: Duration) -> BTreeMap<H::Key, JobStatus> {
        let status = |entry: &Entry| JobStatus {
            rate: entry.worker.and_then(|_| entry.pace.rate(now, entry.status.done)),
            ..entry.status
        };
        self.state().entries.iter().map(|(key, entry)| (*key, status(entry))).collect()
    }

    /// How a job stands, without its rate.
    pub fn status(&self, key: &H::Key) -> Option<JobStatus> {
        self.state().entries.get(key).map(|entry| entry.status)
    }

    /// The state of a job.
    pub fn state_of(&self, key: &H::Key) -> Option<JobState> {
        self.status(key).map(|status| status.state)
    }

    /// Waits as long as there is a job of which `is_waited_for` says so. When the pool is being closed, that
    /// is the end of waiting too.
    pub async fn wait_while(&self, is_waited_for: impl Fn(&H::Key, JobState) -> bool) {
        poll_fn(|context| {
            let mut state = self.state();
            let mut entries = state.entries.iter();
            let is_found = entries.any(|(key, entry)| is_waited_for(key, entry.status.state));
            if state.is_ending || !is_found {
                return Poll::Ready(());
            }
            state.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether a thread works on a job.
    pub(crate) fn is_worked_on(&self, key: &H::Key) -> bool {
        self.state().entries.get(key).is_some_and(|entry| entry.worker.is_some())
    }

    /// A job is so far, of so much; gives how it stands then. For its own steps.
    pub fn advance(&self, host: &H, key: &H::Key, done: u64, total: u64) -> Option<JobStatus> {
        let now = host.now();
        let mut state = self.state();
        let entry = state.entries.get_mut(key)?;
        (entry.status.done, entry.status.total) = (done, total);
        entry.pace.mark(now, done);
        let status = entry.status;
        drop(state);
        host.moved();
        Some(status)
    }

    /// Starts jobs, or goes on with those that were suspended. `rate_limit` bounds what is done in a second;
    /// with 0 a job that goes on keeps its own bound, and others have none.
    ///
    /// # Errors
    /// That they were started cannot be written down, or there is no thread for them.
    pub async fn start(&self, host: &Arc<H>, keys: &[H::Key], (unit, rate_limit): (Unit, u64)) -> Result<()> {
        {
            let now = host.now().as_secs();
            let mut state = self.state();
            for key in keys {
                let begun = JobStatus::begun(unit, now, rate_limit);
                let entry = state.entries.entry(*key).or_insert_with(|| Entry::new(begun));
                let before = entry.status;
                entry.pace = Pace::default();
                // A thread that is at its end says no more that this is complete.
                entry.worker = None;
                entry.status = match before.state {
                    JobState::Suspended => JobStatus {
                        done: before.done,
                        time: before.time,
                        rate_limit: if rate_limit == 0 { before.rate_limit } else { rate_limit },
                        ..begun
                    },
                    _ => begun,
                };
            }
        }
        keys.iter().for_each(|key| host.told(key, Some(JobState::Active)));
        host.keep(keys.to_vec()).await?;
        self.begin(host, keys)
    }

    /// Suspends or cancels jobs. Gives how many there were of which that can be said.
    ///
    /// # Errors
    /// It cannot be written down.
    pub async fn stop(&self, host: &Arc<H>, keys: &[H::Key], how: Stop) -> Result<usize> {
        let stopped = self.stop_here(host, keys, how);
        let count = stopped.len();
        host.keep(stopped).await?;
        Ok(count)
    }

    /// As [`Jobs::stop`], of jobs that the pool stores in its own way: the change that stores that they stand
    /// still says so here. A job that is started after that change goes on.
    pub(crate) fn stop_here(&self, host: &H, keys: &[H::Key], how: Stop) -> Vec<H::Key> {
        let now = host.now().as_secs();
        let mut state = self.state();
        let mut stop = |key: &&H::Key| {
            let status = state.entries.get_mut(*key).map(|entry| &mut entry.status);
            match (how, status) {
                (Stop::Suspend, Some(status)) if status.state == JobState::Active => {
                    status.state = JobState::Suspended;
                    true
                }
                (Stop::Cancel, Some(status))
                    if matches!(status.state, JobState::Active | JobState::Suspended) =>
                {
                    (status.state, status.time) = (JobState::Canceled, now);
                    true
                }
                _ => false,
            }
        };
        let stopped: Vec<H::Key> = keys.iter().filter(|key| stop(key)).copied().collect();
        state.wake();
        drop(state);
        let new = match how {
            Stop::Suspend => JobState::Suspended,
            Stop::Cancel => JobState::Canceled,
        };
        stopped.iter().for_each(|key| host.told(key, Some(new)));
        stopped
    }

    /// Forgets a job that is not active. What the pool has of it is the caller's to remove.
    pub fn forget(&self, key: &H::Key) {
        let mut state = self.state();
        if state.entries.get(key).is_some_and(|entry| !entry.is_active()) {
            state.entries.remove(key);
            state.wake();
        }
    }

    /// Goes on with all that is active and not worked on, and whose targets are there: after the pool was
    /// opened, or a device came back.
    pub fn resume(&self, host: &Arc<H>) {
        let idle: Vec<H::Key> = {
            let state = self.state();
            let idle = state
                .entries
                .iter()
                .filter(|(_, entry)| entry.is_active() && entry.worker.is_none() && !entry.is_of_line);
            idle.map(|(key, _)| *key).filter(|key| host.target(key) == Target::Here).collect()
        };
        if let Err(error) = self.begin(host, &idle) {
            tracing::warn!(pool = host.name(), %error, "what was under way does not go on");
        }
    }

    /// Gives up jobs whose target failed.
    ///
    /// # Errors
    /// It cannot be written down.
    pub async fn give_up(&self, host: &Arc<H>, of_target: impl Fn(&H::Key) -> bool) -> Result<()> {
        let active: Vec<H::Key> = {
            let state = self.state();
            let active = state.entries.iter().filter(|(key, entry)| entry.is_active() && of_target(key));
            active.map(|(key, _)| *key).collect()
        };
        match active.is_empty() {
            true => Ok(()),
            false => self.stop(host, &active, Stop::Cancel).await.map(drop),
        }
    }

    /// Starts threads for active jobs. A thread that works on one of them leaves it to the new one.
    fn begin(&self, host: &Arc<H>, keys: &[H::Key]) -> Result<()> {
        let with_status: Vec<(H::Key, JobStatus)> = {
            let state = self.state();
            let status = |key: &H::Key| state.entries.get(key).map(|entry| (*key, entry.status));
            keys.iter().filter_map(status).collect()
        };
        for work in host.work(&with_status) {
            let Some(worker) = self.assign(&work) else { return Ok(()) };
            let thread = worker::start(host, worker, work)?;
            self.add_thread(thread);
        }
        Ok(())
    }

    /// A number for the thread that does this work from now on. `None` when the pool is being closed.
    fn assign(&self, work: &Work<H>) -> Option<WorkerId> {
        let mut state = self.state();
        if state.is_ending {
            return None;
        }
        let worker = state.new_worker();
        for key in &work.keys {
            if let Some(entry) = state.entries.get_mut(key) {
                entry.worker = Some(worker);
                entry.status.total = work.total;
            }
        }
        Some(worker)
    }

    fn add_thread(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads.lock().ignore_poison();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Puts a job in line, unless it stands there. The jobs of a line run one after the other on one thread,
    /// which is there as long as any of them waits. One that is worked on may come again: it may not notice
    /// any more what it is to do now.
    ///
    /// # Errors
    /// There is no thread for the line.
    pub(crate) fn line_up(
        &self,
        host: &Arc<H>,
        line: &'static str,
        key: H::Key,
        (unit, job): (Unit, Box<dyn Job<H>>),
    ) -> Result<()> {
        let mut state = self.state();
        if state.is_ending {
            return Ok(());
        }
        let status = JobStatus::begun(unit, host.now().as_secs(), 0);
        let entry = Entry { is_of_line: true, ..Entry::new(status) };
        let has_thread = state.lines.contains_key(line);
        let waiting = state.lines.entry(line).or_default();
        if waiting.iter().any(|(other, _)| *other == key) {
            return Ok(());
        }
        waiting.push_back((key, job));
        state.entries.entry(key).or_insert(entry);
        if has_thread {
            drop(state);
            host.told(&key, Some(JobState::Active));
            return Ok(());
        }
        let worker = state.new_worker();
        match worker::start_line(host, worker, line) {
            Ok(thread) => {
                drop(state);
                self.add_thread(thread);
                host.told(&key, Some(JobState::Active));
                Ok(())
            }
            Err(error) => {
                state.close_line(line);
                Err(error)
            }
        }
    }

    /// How many jobs of a line wait for the one that is worked on.
    pub fn waiting(&self, line: &str) -> usize {
        self.state().lines.get(line).map_or(0, VecDeque::len)
    }

    /// Whose turn it is in a line. `None` ends its thread, of which nothing is known from then on: none
    /// waits, or the pool is being closed or is gone.
    pub(super) fn next_in_line(
        &self,
        line: &'static str,
        worker: WorkerId,
        host: Option<Arc<H>>,
    ) -> Option<(H::Key, Box<dyn Job<H>>)> {
        let now = host.as_ref().map(|host| host.now().as_secs());
        let mut state = self.state();
        let goes_on = !state.is_ending && now.is_some();
        let next = state.lines.get_mut(line).and_then(VecDeque::pop_front).filter(|_| goes_on);
        match &next {
            Some((key, _)) => {
                if let Some(entry) = state.entries.get_mut(key) {
                    entry.worker = Some(worker);
                    entry.status.time = now.unwrap_or_default();
                }
            }
            None => state.close_line(line),
        }
        next
    }

    /// A job of a line is over. It stays only if it stands in line again.
    pub(super) fn leave_line(&self, line: &'static str, key: &H::Key) {
        let mut state = self.state();
        let comes_again =
            state.lines.get(line).is_some_and(|waiting| waiting.iter().any(|(other, _)| other == key));
        match state.entries.get_mut(key) {
            Some(entry) if comes_again => {
                let status = JobStatus::begun(entry.status.unit, entry.status.time, 0);
                *entry = Entry { is_of_line: true, ..Entry::new(status) };
            }
            _ => drop(state.entries.remove(key)),
        }
        state.wake();
    }

    /// The jobs of a thread that it still works on: they are its own, active, and their targets are there.
    /// It leaves the others. Gives those whose targets failed, too.
    pub(super) fn left_of(&self, host: &H, worker: WorkerId, work: &mut Work<H>) -> Vec<H::Key> {
        // Under this lock, so that who brings a device back finds that no thread works on it, or is seen
        // here.
        let mut state = self.state();
        let mut failed = Vec::new();
        work.keys.retain(|key| {
            let Some(entry) = state.entries.get_mut(key).filter(|entry| entry.worker == Some(worker)) else {
                return false;
            };
            let target = host.target(key);
            if entry.is_active() && target == Target::Here {
                return true;
            }
            entry.worker = None;
            if target == Target::Failed {
                failed.push(*key);
            }
            false
        });
        failed
    }

    /// Ends what is left of a thread's work as complete. Gives what is so now.
    pub(super) fn complete(&self, host: &H, worker: WorkerId, work: &Work<H>) -> Vec<H::Key> {
        let now = host.now().as_secs();
        let mut state = self.state();
        let mut complete = |key: &&H::Key| match state.entries.get_mut(*key) {
            Some(entry) if entry.is_active() && entry.worker == Some(worker) => {
                let status = &mut entry.status;
                (status.state, status.time, status.done) = (JobState::Complete, now, status.total);
                true
            }
            _ => false,
        };
        let complete: Vec<H::Key> = work.keys.iter().filter(|key| complete(key)).copied().collect();
        state.wake();
        drop(state);
        complete.iter().for_each(|key| host.told(key, Some(JobState::Complete)));
        complete
    }

    /// Whether a thread is to go on with any of these.
    pub(super) fn goes_on(&self, worker: WorkerId, keys: impl IntoIterator<Item = H::Key>) -> bool {
        let state = self.state();
        let is_left = |key: H::Key| {
            let entry = state.entries.get(&key);
            entry.is_some_and(|entry| entry.is_active() && entry.worker == Some(worker))
        };
        !state.is_ending && keys.into_iter().any(is_left)
    }

    /// A thread ends: it works on nothing any more.
    pub(super) fn leave(&self, worker: WorkerId) {
        for entry in self.state().entries.values_mut().filter(|entry| entry.worker == Some(worker)) {
            entry.worker = None;
        }
    }

    /// The thread of a line ends, however that comes.
    pub(super) fn close_line(&self, line: &'static str) {
        self.state().close_line(line);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    /// Pauses, unless the pool is being closed.
    pub(super) fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            drop(self.ending.wait_timeout_while(self.state(), pause, |state| !state.is_ending));
        }
    }

    /// Ends all threads and waits for them. Groups must be committed meanwhile.
    pub fn end(&self) {
        {
            let mut state = self.state();
            state.is_ending = true;
            state.wake();
        }
        self.ending.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().ignore_poison());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl<H: Host> State<H> {
    fn new_worker(&mut self) -> WorkerId {
        self.next_worker += 1;
        WorkerId(self.next_worker)
    }

    /// Nothing of a line is known any more.
    fn close_line(&mut self, line: &'static str) {
        for (key, _) in self.lines.remove(line).into_iter().flatten() {
            self.entries.remove(&key);
        }
        self.wake();
    }

    /// Has those who wait look again.
    fn wake(&mut self) {
        self.waiters.drain(..).for_each(Waker::wake);
    }
}
