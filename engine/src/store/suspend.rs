//! Suspension: how a pool waits when its devices fail and no redundancy is left.
//!
//! # The idea
//! A write that failed on all devices is not given up. The writer waits here, and writes again when the pool
//! is *resumed* (`zpool clear`). So does a read that the sync of a group needs (`patience`). So an
//! unplugged cable loses no group: acknowledged data stay in memory and
//! in the intent logs until they are written. In the meantime no group is committed, and callers that wait
//! for a commit go on waiting. The property `failmode` decides about other callers: with `wait` they wait
//! too, as soon as there is no more room for dirty data; with `continue` new changes are refused at once;
//! with `panic` the process ends.
//!
//! Suspension is on while a thread commits groups ([`crate::pool::live::LivePool::start`]). Without such a
//! thread the caller that commits gets the error, because no other thread could resume the pool. Suspension
//! can also be turned off, for pools whose callers must not wait
//! ([`crate::pool::live::LivePool::never_wait`]), and it is turned off when the pool is given up or stops.
//!
//! # Leases
//! With multihost protection this host may write only while other hosts can see that it does
//! ([`crate::pool::live`]). Each heartbeat extends a lease, and every write checks the lease first. A lease
//! that ran out ends the writing for good, because another host may have taken the pool.
//!
//! # Devices that come back
//! When a device goes away, data that it received but had not made durable may be lost. Before the group is
//! committed, all data of the group are read back; then the pool goes on.
//!
//! # Failures that cannot be made good
//! Two failures cannot be made good, because it is not known which data were lost: a flush that failed on a
//! device that is there, and a group that cannot be read back. They stop the pool for good
//! ([`crate::txg::Txgs::stopped`]), until it is imported again.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | everything; for a few lines, never across an await | before those of [`crate::events`] |
//!
//! Source of the idea: OpenZFS 2.3 `zio.c` (`zio_suspend`, `zio_resume`), `zpoolprops.7` (`failmode`).

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

use device::IgnorePoison;
use futures_util::future::BoxFuture;

use super::Store;
use crate::error::{Error, Result};
use crate::events::Reporter;
use crate::events::feed::What;
use crate::txg::Txgs;
use crate::{patience, waits};

/// What the users of a pool experience when it cannot write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailMode {
    /// Callers wait.
    #[default]
    Wait,
    /// New changes are refused.
    Continue,
    /// The process ends.
    Panic,
}

impl FailMode {
    /// Its word in the property `failmode`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Continue => "continue",
            Self::Panic => "panic",
        }
    }

    /// The mode that a value of the property `failmode` means.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Wait, Self::Continue, Self::Panic].get(usize::try_from(number).ok()?).copied()
    }
}

/// Whether a pool is suspended, and which callers wait.
#[derive(Debug, Default)]
pub(crate) struct Suspension {
    state: Mutex<State>,
    /// Posts that the pool is suspended.
    reporter: Arc<Reporter>,
}

#[derive(Debug, Default)]
struct State {
    /// The groups, which refuse changes when asked to; absent while suspension is off.
    txgs: Option<Weak<Txgs>>,
    mode: FailMode,
    why: Option<Error>,
    /// Counts how many times the pool was resumed.
    resumed: u64,
    waiters: Vec<Waker>,
    /// With multihost protection: the time until which this host may write.
    lease: Option<Instant>,
    /// The reason why this host may never write again.
    lost: Option<Error>,
}

impl Suspension {
    /// Suspension of a pool that posts its events so.
    pub(crate) fn reported_by(reporter: &Arc<Reporter>) -> Self {
        Self { reporter: Arc::clone(reporter), ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// From now on, callers whose transfers fail wait.
    pub(crate) fn enable(&self, txgs: &Arc<Txgs>) {
        self.state().txgs = Some(Arc::downgrade(txgs));
    }

    /// From now on, callers whose transfers fail get the error, including those that wait already.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        state.txgs = None;
        state.wake();
    }

    /// The mode for the time when the pool cannot write.
    pub(crate) fn mode(&self) -> FailMode {
        self.state().mode
    }

    pub(crate) fn set_mode(&self, mode: FailMode) {
        self.reporter.set_failmode(mode.word());
        self.state().mode = mode;
    }

    /// The reason why the pool is suspended, if it is.
    pub(crate) fn why(&self) -> Option<Error> {
        let mut state = self.state();
        state.expire();
        state.lost.clone().or_else(|| state.why.clone())
    }

    /// Sets the time until which this host may write; `None` means for ever. A lease that ran out is not
    /// extended.
    pub(crate) fn lease(&self, until: Option<Instant>) {
        let mut state = self.state();
        state.expire();
        state.lease = until;
    }

    /// Every writer calls this before it writes.
    ///
    /// # Errors
    /// The pool may belong to another host by now.
    pub(crate) fn check(&self) -> Result<()> {
        let mut state = self.state();
        state.expire();
        state.lost.clone().map_or(Ok(()), Err)
    }

    /// For a caller whose transfer failed with this error: waits until another try makes sense, or returns
    /// the error.
    pub(crate) async fn wait(&self, error: Error) -> Result<()> {
        let since = {
            let mut state = self.state();
            state.expire();
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            let Some(txgs) = state.txgs.as_ref().and_then(Weak::upgrade) else { return Err(error) };
            if state.mode == FailMode::Panic {
                tracing::error!(%error, "the devices of a pool with failmode=panic fail");
                std::process::abort();
            }
            if state.why.is_none() {
                tracing::error!(%error, "the pool is suspended: devices fail; see zpool status, zpool clear");
                state.why = Some(error.clone());
                self.reporter.ereport("io_failure", None, None, None);
                self.reporter.tell(What::Suspended);
            }
            if state.mode == FailMode::Continue {
                txgs.refuse(Some(error.clone()));
            }
            state.resumed
        };
        poll_fn(|context| {
            let mut state = self.state();
            if state.txgs.is_none() {
                return Poll::Ready(Err(error.clone()));
            }
            if state.resumed != since {
                return Poll::Ready(Ok(()));
            }
            waits::note("the devices of a suspended pool");
            state.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Lets the waiting callers try again.
    pub(crate) fn resume(&self) {
        let mut state = self.state();
        if state.why.take().is_some() {
            self.reporter.tell(What::Resumed);
        }
        state.resumed += 1;
        if let Some(txgs) = state.txgs.as_ref().and_then(Weak::upgrade) {
            txgs.refuse(None);
        }
        state.wake();
    }
}

impl State {
    fn expire(&mut self) {
        if self.lost.is_none() && self.lease.is_some_and(|until| Instant::now() >= until) {
            let why =
                "multihost writes failed or were delayed; another system could import the pool undetected";
            tracing::error!(why, "the pool is suspended");
            self.lost = Some(Error::Suspended(format!("the pool is suspended because {why}")));
        }
    }

    fn wake(&mut self) {
        self.waiters.drain(..).for_each(Waker::wake);
    }
}

impl Store {
    /// For a caller whose read failed with this error: waits until another try makes sense, or returns the
    /// error, also where the read is not one that waits ([`patience`]).
    // In a box: reads are seldom repeated, and their futures are many.
    pub(crate) fn until_readable(&self, error: Error) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if !patience::is_waiting() || !error.may_pass() {
                return Err(error);
            }
            if self.vdevs.has_unseen_errors() {
                self.vdevs.diagnose().await;
            }
            self.suspension.wait(error).await
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use ondisk::Txg;

    use super::*;
    use crate::txg::Limits;

    #[test]
    fn who_cannot_write_waits_until_the_pool_is_resumed_or_given_up() {
        let suspension = Suspension::default();
        let error = || Error::Suspended("no device".into());
        assert!(suspension.wait(error()).now_or_never().is_some_and(|result| result.is_err()), "it is off");
        let txgs = Txgs::new(Txg(3), Limits::default());
        suspension.enable(&txgs);
        let mut first = Box::pin(suspension.wait(error()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(suspension.why().is_some());
        assert!(txgs.begin(1).now_or_never().is_some_and(|begun| begun.is_ok()), "others go on");
        suspension.resume();
        assert!(first.now_or_never().is_some_and(|result| result.is_ok()));
        assert!(suspension.why().is_none());

        suspension.set_mode(FailMode::Continue);
        let mut second = Box::pin(suspension.wait(error()));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(txgs.begin(1).now_or_never().is_some_and(|begun| begun.is_err()), "refused");
        suspension.resume();
        assert!(txgs.begin(1).now_or_never().is_some_and(|begun| begun.is_ok()));
        let mut third = Box::pin(suspension.wait(error()));
        assert!(second.now_or_never().is_some_and(|result| result.is_ok()));
        assert!(third.as_mut().now_or_never().is_none());
        suspension.give_up();
        assert!(third.now_or_never().is_some_and(|result| result.is_err()));
    }
}
