//! Shards: one thread per core, each with its own reactor and its own io_uring.
//!
//! # The idea
//! Handing a request to another thread costs more than answering it from the cache. So a connection lives on
//! one thread, which parses, looks up and answers, and the disks answer to that same thread. Each shard is a
//! tokio `current_thread` runtime with the thread's ring embedded: before the thread sleeps it submits
//! waiting operations and takes finished ones, in one system call; while it sleeps, the ring's eventfd wakes
//! it as any socket does.
//!
//! There are as many shards as cores, but they are not tied to them. Clients run on the same machine more
//! often than not, and the scheduler places a shard well beside the client that wakes it. A shard that is
//! tied to a core that a client keeps busy has to wait (4 KiB NBD reads at depth 1 were three times slower;
//! see `benches/nbd.rs`).
//!
//! If io_uring is not available, the shard reads its disks synchronously, and everything else is the same.

#![allow(unsafe_code, reason = "tokio watches a descriptor that the ring owns")]

use std::{
    future::Future,
    io,
    num::NonZero,
    pin::pin,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use device::RingDriver;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The threads that serve.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Shard>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Shard {
    handle: Handle,
    /// Dropped to stop the shard.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Shards {
    /// Starts one shard for each core that this process may use.
    ///
    /// # Errors
    /// When a thread, a reactor or a ring cannot be made.
    pub fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        let shards = (0..count).map(Shard::start).collect::<io::Result<Vec<Shard>>>()?;
        Ok(Self { shards, next: AtomicUsize::new(0) })
    }

    /// Runs `future` on the next shard in turn. It is dropped when the shards stop.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(shard) = self.shards.get(turn % self.shards.len().max(1)) {
            shard.handle.spawn(future);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shards.len()
    }
}

impl Drop for Shards {
    /// Stops all shards, dropping what runs on them, and waits until they have ended.
    fn drop(&mut self) {
        for shard in &mut self.shards {
            drop(shard.stop.take());
        }
        for shard in &mut self.shards {
            if let Some(thread) = shard.thread.take()
                // The last owner may live on a shard; that one ends by itself.
                && thread.thread().id() != thread::current().id()
                && thread.join().is_err()
            {
                tracing::error!("a shard ended with a panic");
            }
        }
    }
}

impl Shard {
    fn start(number: usize) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (ready_sender, ready) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("shard-{number}")).stack_size(device::STACK_BYTES);
        let thread = thread.spawn(move || {
            match build() {
                Ok((runtime, driver)) => {
                    // The other side waits for it.
                    let _ = ready_sender.send(Ok(runtime.handle().clone()));
                    runtime.block_on(run(driver, stopped));
                }
                Err(error) => {
                    let _ = ready_sender.send(Err(error));
                }
            }
        })?;
        let handle = ready.recv().map_err(|_| io::Error::other("a shard did not start"))??;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }
}

/// A runtime for the API, whose requests each run on a thread with an ample stack ([`device::STACK_BYTES`]).
///
/// # Errors
/// When the reactor cannot be made.
pub fn for_requests() -> io::Result<tokio::runtime::Runtime> {
    Builder::new_current_thread().enable_all().thread_stack_size(device::STACK_BYTES).build()
}

fn build() -> io::Result<(tokio::runtime::Runtime, Option<RingDriver>)> {
    let park = || {
        device::submit_and_reap();
    };
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(park).build()?;
    Ok((runtime, RingDriver::attach()?))
}

/// Lets the shard run until it is stopped.
async fn run(driver: Option<RingDriver>, stopped: oneshot::Receiver<()>) {
    let Some(driver) = driver else {
        // Either way the sender is gone.
        let _ = stopped.await;
        return;
    };
    futures_util::future::select(pin!(pump(driver)), stopped).await;
}

/// Completes what the ring has done whenever its eventfd says so.
async fn pump(driver: RingDriver) {
    // SAFETY: the driver owns its eventfd, always names the same one, and closes it when it is dropped.
    let signal = match unsafe { AsyncFd::register_with_interest(driver, Interest::READABLE) } {
        Ok(signal) => signal,
        Err(error) => {
            // Without it completions are still taken before each sleep, but nothing would end the sleep.
            tracing::error!(%error, "the ring cannot be watched; this shard reads synchronously");
            return std::future::pending().await;
        }
    };
    loop {
        match signal.readable().await {
            // Edge-triggered: each completion is a new edge, also when the counter is never read.
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => return,
        }
        device::submit_and_reap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses 4 KiB of stack a level, and a few times that where nothing is optimized.
    fn descend(levels: usize) -> usize {
        let room = std::hint::black_box([0u8; 4096]);
        if levels == 0 { 0 } else { descend(levels - 1) + 1 + usize::from(room[levels % 4096]) }
    }

    #[test]
    fn requests_and_shards_have_an_ample_stack() {
        let levels = device::STACK_BYTES / (24 << 10);
        let runtime = for_requests().unwrap();
        let reached = runtime.block_on(async { tokio::task::spawn_blocking(move || descend(levels)).await });
        assert_eq!(reached.unwrap(), levels);
        let (sender, receiver) = mpsc::channel();
        let shards = Shards::start().unwrap();
        shards.spawn(async move { sender.send(descend(levels)).unwrap() });
        assert_eq!(receiver.recv().unwrap(), levels);
    }

    #[test]
    fn a_connection_that_panics_leaves_its_shard_to_others() {
        let shards = Shards::start().unwrap();
        for _ in 0..shards.count() {
            shards.spawn(async { panic!("on purpose") });
        }
        let (sender, receiver) = mpsc::channel();
        for _ in 0..shards.count() {
            let sender = sender.clone();
            shards.spawn(async move { sender.send(()).unwrap() });
        }
        drop(sender);
        assert_eq!(receiver.iter().count(), shards.count());
    }
}
