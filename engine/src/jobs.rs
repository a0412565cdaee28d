//! Long work on a pool: what goes on for hours beside everything else, and outlives the process.
//!
//! # The idea
//! A *job* is one kind of work on one target: initializing a device, trimming one, counting the files of a
//! filesystem, a scrub. Its *key* says which. What all jobs have in common is here, and only what a job does
//! in one step is its own ([`Job::step`]):
//!
//! - how each stands, how far it is, how fast, and how long it will take ([`JobStatus`]);
//! - what users ask for: start, suspend, cancel, go on ([`Jobs::start`], [`Jobs::stop`], [`Jobs::forget`]);
//! - threads: jobs that are done together share one ([`Work`]), and jobs that stand in line run one after the
//!   other on one (`Jobs::line_up`);
//! - waiting until jobs stand otherwise ([`Jobs::wait_while`]);
//! - devices that go away and come back ([`Target`], [`Jobs::resume`]);
//! - the end of all, when the pool is closed ([`Jobs::end`]).
//!
//! # What is kept in the pool
//! A job keeps how far it is in the pool, in its own form, in the same group in which it did it: so the pool
//! never says more than what was done. This module has what the pool says when it is opened
//! (`Jobs::take_up`), asks the host to write down each change of a state ([`Host::keep`], where its entry
//! in the pool's history belongs too), and otherwise leaves it to the steps. Closing changes no state: what
//! is active goes on when the pool is opened again, here or by OpenZFS.
//!
//! # Steps
//! A step takes a bounded time, or asks [`Turn::goes_on`] now and then and ends soon when it says no. Between
//! two steps a job can be suspended, cancelled, taken over by another thread, or ended; so the answer to a
//! user never waits for more than a step. The pool is kept only for a step.
//!
//! # States
//! ```text
//!             start            steps           last step
//!   (none) ----------> Active ---------+------------------> Complete
//!                       ^  |           |
//!                 start |  | suspend   | cancel, device failed
//!                       |  v           v
//!                    Suspended ---> Canceled
//! ```
//! `Canceled` and `Complete` begin anew with a start. A job of a line has no lasting state: it is forgotten
//! when it ends.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Jobs::state` | how all stand, which thread works on which, lines; for a few lines, never across an await | before locks of vdevs ([`Host::target`]), otherwise alone |
//! | `Jobs::threads` | threads, until they are waited for; never across an await | taken alone |
//!
//! | module | what it owns |
//! |---|---|
//! | `status` | how a job stands |
//! | `owner` | the jobs of a pool |
//! | `worker` | the threads |

mod owner;
mod status;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use crate::error::Result;

pub use owner::Jobs;
pub use status::{JobState, JobStatus, Unit};
pub use worker::Turn;

/// What has jobs: a pool that is written.
pub trait Host: Send + Sync + Sized + 'static {
    /// Says which job: what it does, and to what.
    type Key: Copy + Ord + Debug + Send + Sync + 'static;

    /// Its jobs.
    fn jobs(&self) -> &Arc<Jobs<Self>>;

    /// Its name, for threads and logs.
    fn name(&self) -> &str;

    /// Time since 1970.
    fn now(&self) -> Duration;

    /// Whether what a job works on is there.
    fn target(&self, key: &Self::Key) -> Target;

    /// Writes down how these jobs stand when that is written, and that they came to stand so.
    fn keep(self: &Arc<Self>, keys: Vec<Self::Key>) -> impl Future<Output = Result<()>>;

    /// A job stands otherwise than before; `None` when it was forgotten.
    fn told(&self, _: &Self::Key, _: Option<JobState>) {}

    /// A job is farther than before.
    fn moved(&self) {}

    /// How jobs that are active, and whose targets are there, are to be done.
    fn work(self: &Arc<Self>, keys: &[(Self::Key, JobStatus)]) -> Vec<Work<Self>>;
}

/// Whether what a job works on is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// It is.
    Here,
    /// It may come back. The job stays active, and goes on then.
    Away,
    /// It failed. The job is given up.
    Failed,
}

/// Work for one thread: jobs that are equally far and done together.
pub struct Work<H: Host> {
    /// Which.
    pub keys: BTreeSet<H::Key>,
    /// How much there is to do, in the unit of their progress.
    pub total: u64,
    /// What does it.
    pub job: Box<dyn Job<H>>,
}

/// What does the work.
pub trait Job<H: Host>: Send {
    /// What is done, in one word, for threads and logs.
    fn name(&self) -> &'static str;

    /// Does the next part, for the keys that are left of it.
    ///
    /// # Errors
    /// The job does not go on now. What is active stays so; a job of a line is forgotten.
    fn step<'a>(&'a mut self, turn: &'a Turn<'a, H>) -> LocalBoxFuture<'a, Result<Step>>;
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do, after a pause.
    More {
        /// So long.
        pause: Duration,
    },
    /// That was the last.
    Complete,
}

/// What becomes of jobs that are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// They wait to be started again.
    Suspend,
    /// They are given up.
    Cancel,
}
