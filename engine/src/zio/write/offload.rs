//! Work for all cores: the compute threads get a batch as a whole, and the caller awaits its result.
//!
//! The hand-over costs some microseconds, so it is used only for batches. Meanwhile the waiting thread drives
//! its ring.
//!
//! Batches whose callers wait for stable storage have threads of their own. On the threads of the groups they
//! would queue behind whole batches of groups; with their own threads, the kernel shares the processors
//! between both.

use std::future::poll_fn;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Poll, Waker};

use device::IgnorePoison;

struct Slot<T> {
    result: Option<T>,
    /// The worker has ended, with or without a result.
    done: bool,
    waker: Option<Waker>,
}

/// The number of threads for stable writes: enough that one large block does not delay all others.
const STABLE_THREADS: usize = 2;

/// `None` if the threads could not be started.
static STABLE: LazyLock<Option<rayon::ThreadPool>> = LazyLock::new(|| {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(STABLE_THREADS);
    let built = threads.thread_name(|number| format!("stable-{number}")).build();
    built.inspect_err(|error| tracing::warn!(%error, "no threads for what is to be stable")).ok()
});

/// Runs `work` on the compute threads. `None` when it panicked.
pub(super) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    run(work, None).await
}

/// Runs `work` on the threads for stable writes. `None` when it panicked.
pub(super) async fn promptly<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    run(work, STABLE.as_ref()).await
}

async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    threads: Option<&rayon::ThreadPool>,
) -> Option<T> {
    let slot = Arc::new(Mutex::new(Slot { result: None, done: false, waker: None }));
    let worker = Done(Arc::clone(&slot));
    let work = move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        worker.0.lock().ignore_poison().result = result.ok();
        drop(worker);
    };
    match threads {
        Some(threads) => threads.spawn(work),
        None => rayon::spawn(work),
    }
    poll_fn(|context| {
        let mut slot = slot.lock().ignore_poison();
        if slot.done {
            return Poll::Ready(slot.result.take());
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await
}

/// Wakes the waiting caller, however the work ended.
struct Done<T>(Arc<Mutex<Slot<T>>>);

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock().ignore_poison();
            slot.done = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::block_on;

    #[test]
    fn results_come_back_and_panics_are_told() {
        assert_eq!(block_on(offload(|| 7)), Some(7));
        assert_eq!(block_on(offload(|| -> u32 { panic!("on purpose") })), None);
    }
}
