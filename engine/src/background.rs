//! Work in the background that no caller waits for yet: reading ahead, and walks that need more than one
//! core.
//!
//! # Why it exists
//! A load of the ARC is shared: a reader that needs a block in the course of loading waits for that load. So
//! a load must always be driven. If a file handle kept the future and polled it only when its client reads
//! again, all other readers of the block would wait for that client. Work that starts ahead of its need is
//! therefore given to threads that do nothing else.
//!
//! # The idea
//! There are a few threads (one for each core, at most `MAX_THREADS`). Each runs inside `device::block_on`
//! with its own ring, and polls a set of tasks. A task stays on its thread, because its transfers belong to
//! that thread's ring. Tasks are given to the threads in turn. The threads are started when first needed and
//! end with the process.
//!
//! # Invariants
//! - The lock of a queue is held to push or take tasks, never while one is polled.
//! - A task that panics ends alone: the panic is reported, its thread continues.
//! - Callers bound the number of their tasks; the queues themselves have no limit.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

use device::IgnorePoison;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt, StreamExt};

/// The most threads, however many cores there are: beyond this, devices and not cores are the limit.
const MAX_THREADS: usize = 8;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gives `task` to a background thread.
///
/// If no thread can be started, the task is dropped: its data are read when they are needed.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    static WORKERS: OnceLock<Vec<Arc<Worker>>> = OnceLock::new();
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let workers = WORKERS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores.min(MAX_THREADS)).filter_map(Worker::start).collect()
    });
    if let Some(worker) = workers.get(TURN.fetch_add(1, Ordering::Relaxed) % workers.len().max(1)) {
        worker.give(Box::pin(task));
    }
}

/// One thread and the tasks that it has not started.
#[derive(Default)]
struct Worker {
    waiting: Mutex<Vec<Task>>,
    waker: AtomicWaker,
}

impl Worker {
    fn start(number: usize) -> Option<Arc<Self>> {
        let worker = Arc::new(Self::default());
        let of_thread = Arc::clone(&worker);
        let started = std::thread::Builder::new()
            .name(format!("background-{number}"))
            .stack_size(device::STACK_BYTES)
            .spawn(move || device::block_on(of_thread.run()));
        match started {
            Ok(_) => Some(worker),
            Err(error) => {
                tracing::warn!(%error, "cannot start a background thread; nothing is read ahead on it");
                None
            }
        }
    }

    fn give(&self, task: Task) {
        self.queue().push(task);
        self.waker.wake();
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Vec<Task>> {
        self.waiting.lock().ignore_poison()
    }

    /// Starts waiting tasks and polls those that can continue, for ever.
    async fn run(&self) {
        let mut tasks = FuturesUnordered::new();
        poll_fn::<(), _>(|context| {
            // Registered first, so that a task given after the queue was looked at wakes this thread again.
            self.waker.register(context.waker());
            let given = std::mem::take(&mut *self.queue());
            tasks.extend(given.into_iter().map(|task| AssertUnwindSafe(task).catch_unwind()));
            while let Poll::Ready(Some(ended)) = tasks.poll_next_unpin(context) {
                if ended.is_err() {
                    tracing::error!("a background task panicked");
                }
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn tasks_run_and_may_wait_for_each_other() {
        let (send, receive) = mpsc::channel();
        for number in 0..100 {
            let send = send.clone();
            spawn(async move {
                // Waits once, like a transfer.
                let mut first = true;
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
                let _ = send.send(number);
            });
        }
        let mut seen: Vec<i32> = (0..100).map(|_| receive.recv_timeout(PATIENCE).unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_task_that_panics_ends_alone() {
        for _ in 0..2 * MAX_THREADS {
            spawn(async { panic!("on purpose") });
        }
        let (send, receive) = mpsc::channel();
        for _ in 0..2 * MAX_THREADS {
            let send = send.clone();
            spawn(async move { send.send(()).unwrap_or_default() });
        }
        for _ in 0..2 * MAX_THREADS {
            receive.recv_timeout(PATIENCE).unwrap();
        }
    }
}
