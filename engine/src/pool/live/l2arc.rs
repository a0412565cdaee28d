//! Feeding the pool's cache devices ([`crate::l2arc`]).
//!
//! A pool with cache devices has a thread that feeds them. It holds the pool only while it works, and ends
//! when the pool is closed. The pool's lease and its suspension are respected: what is not ours is not
//! written.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::LivePool;
use super::parts::Part;
use crate::l2arc::Owner;

/// How long closing waits for a feed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time until the next look at a pool that is not fed.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread that feeds cache devices.
#[derive(Debug, Default)]
pub(super) struct Feeding {
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Part for Feeding {
    fn start(&self, pool: &Arc<LivePool>) {
        pool.start_l2arc();
    }

    fn stop(&self, pool: &LivePool) {
        pool.pool.l2arc().stop();
    }

    fn close<'a>(&'a self, pool: &'a LivePool, is_committed: bool) -> BoxFuture<'a, ()> {
        pool.end_l2arc(is_committed).boxed()
    }
}

impl LivePool {
    /// Takes up cache devices that came, drops those that are gone, and feeds the next one. Returns the time
    /// until the next feed. The pool's thread does that; without it, and in tests, others may.
    pub async fn feed_l2arc(&self) -> Duration {
        if self.suspended().is_some() {
            return PAUSE;
        }
        let pool = &self.pool;
        let pause = pool.l2arc().feed(pool.vdevs(), pool.cache(), &self.l2arc_owner()).await;
        if pool.vdevs().has_unseen_errors() && self.diagnose().await {
            pool.l2arc().forget_gone();
        }
        pause
    }

    /// Starts the thread that feeds cache devices, if there are any and it does not run.
    fn start_l2arc(self: &Arc<Self>) {
        let mut running = self.parts.l2arc.thread.lock().ignore_poison();
        if running.is_some() || self.pool.vdevs().l2cache.is_empty() || !self.has_thread() {
            return;
        }
        let (signal, pool) = (self.pool.l2arc().signal(), Arc::downgrade(self));
        let run = move || {
            let mut pause = Duration::ZERO;
            while signal.wait(pause) {
                let Some(pool) = pool.upgrade() else { return };
                pause = device::block_on(pool.feed_l2arc());
            }
        };
        let name = format!("l2arc {}", self.pool.name());
        let thread = std::thread::Builder::new().name(name).stack_size(device::STACK_BYTES).spawn(run);
        match thread {
            Ok(thread) => *running = Some(thread),
            Err(error) => tracing::warn!(%error, "cache devices are not fed: no thread can be started"),
        }
    }

    /// Devices came or went: the thread looks at them at once, and the blocks of those that are gone are
    /// forgotten.
    pub(super) fn look_at_l2cache(self: &Arc<Self>) {
        self.pool.l2arc().look();
        self.start_l2arc();
    }

    /// Ends the thread. With `commit`, the devices keep what it takes to find their blocks again.
    async fn end_l2arc(&self, commit: bool) {
        let l2arc = self.pool.l2arc();
        l2arc.stop();
        let thread = self.parts.l2arc.thread.lock().ignore_poison().take();
        let began = Instant::now();
        // A device that does not answer must not keep the pool open.
        while let Some(thread) = &thread
            && !thread.is_finished()
            && began.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let has_ended = thread.is_none_or(|thread| thread.is_finished());
        if commit && has_ended && l2arc.is_active() {
            l2arc.finish(self.pool.cache(), &self.l2arc_owner()).await;
        }
    }

    fn l2arc_owner(&self) -> Owner {
        Owner {
            guid: self.guid(),
            cache_id: self.pool.cache_id,
            committed: self.txgs.synced_txg().get(),
            now_secs: self.env.now().as_secs(),
        }
    }
}
