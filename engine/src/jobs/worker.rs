//! The threads that do jobs: one for each [`Work`], and one for each line.
//!
//! A thread keeps the pool only for a step. It leaves a job when another thread has taken it, when it is to
//! be worked on no more, or when its target went away; without any left it ends.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use super::{Host, Jobs, Step, Stop, Work};
use crate::error::{Error, Result};

/// The number of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerId(pub u64);

/// What a step may ask.
pub struct Turn<'a, H: Host> {
    jobs: &'a Jobs<H>,
    host: &'a Weak<H>,
    worker: WorkerId,
    keys: &'a BTreeSet<H::Key>,
}

impl<H: Host> Turn<'_, H> {
    /// The pool.
    ///
    /// # Errors
    /// It was dropped.
    pub fn host(&self) -> Result<Arc<H>> {
        self.host.upgrade().ok_or_else(|| Error::Busy("the pool is not open any more".into()))
    }

    /// What is left to do it for.
    pub fn keys(&self) -> &BTreeSet<H::Key> {
        self.keys
    }

    /// Whether to go on: not when the pool is being closed, or when the job was stopped.
    pub fn goes_on(&self) -> bool {
        self.jobs.goes_on(self.worker, self.keys.iter().copied())
    }
}

/// What a thread works on, until it ends in whatever way.
struct Worker<H: Host> {
    jobs: Arc<Jobs<H>>,
    host: Weak<H>,
    id: WorkerId,
    line: Option<&'static str>,
}

impl<H: Host> Drop for Worker<H> {
    fn drop(&mut self) {
        self.jobs.leave(self.id);
        if let Some(line) = self.line.filter(|_| std::thread::panicking()) {
            self.jobs.close_line(line);
        }
    }
}

/// Starts a thread that does `work`.
pub(super) fn start<H: Host>(host: &Arc<H>, id: WorkerId, work: Work<H>) -> Result<JoinHandle<()>> {
    let name = work.job.name();
    // Left by its destructor where the thread cannot be started.
    let worker = Worker::new(host, id, None);
    spawn(host, name, move || {
        if let Err(error) = device::block_on(worker.run(work)) {
            // The pool was closed or cannot be written; what is active goes on when it is opened again.
            tracing::info!(%error, work = name, "interrupted");
        }
    })
}

/// Starts the thread of a line.
pub(super) fn start_line<H: Host>(host: &Arc<H>, id: WorkerId, line: &'static str) -> Result<JoinHandle<()>> {
    let (jobs, weak) = (Arc::clone(host.jobs()), Arc::downgrade(host));
    spawn(host, line, move || {
        let worker = Worker { jobs, host: weak, id, line: Some(line) };
        while let Some((key, job)) = worker.jobs.next_in_line(line, id, worker.host.upgrade()) {
            let work = Work { keys: BTreeSet::from([key]), total: 0, job };
            if let Err(error) = device::block_on(worker.run(work)) {
                tracing::warn!(%error, "{line} of {key:?} is not complete");
            }
            worker.jobs.leave_line(line, &key);
            if let Some(host) = worker.host.upgrade() {
                host.told(&key, worker.jobs.state_of(&key));
            }
        }
    })
}

fn spawn<H: Host>(
    host: &Arc<H>,
    name: &'static str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(format!("{name} {}", host.name())).spawn(run);
    thread.map_err(|error| Error::os(format!("starting the thread for {name}"), &error))
}

impl<H: Host> Worker<H> {
    fn new(host: &Arc<H>, id: WorkerId, line: Option<&'static str>) -> Self {
        Self { jobs: Arc::clone(host.jobs()), host: Arc::downgrade(host), id, line }
    }

    /// Takes one step after the other.
    async fn run(&self, mut work: Work<H>) -> Result<()> {
        loop {
            let Some(host) = self.host.upgrade() else { return Ok(()) };
            let failed = self.jobs.left_of(&host, self.id, &mut work);
            if !failed.is_empty() {
                self.jobs.stop(&host, &failed, Stop::Cancel).await?;
            }
            drop(host);
            if work.keys.is_empty() || self.jobs.is_ending() {
                return Ok(());
            }
            let Self { jobs, host, id, .. } = self;
            let turn = Turn { jobs, host, worker: *id, keys: &work.keys };
            let step = work.job.step(&turn).await?;
            if let Some(host) = host.upgrade() {
                host.moved();
            }
            match step {
                Step::More { pause } => self.jobs.pause(pause),
                Step::Complete => break,
            }
        }
        match self.host.upgrade() {
            Some(host) if self.line.is_none() => {
                let complete = self.jobs.complete(&host, self.id, &work);
                host.keep(complete).await
            }
            _ => Ok(()),
        }
    }
}
