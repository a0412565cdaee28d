//! One queue of a device, on one shard.
//!
//! # The idea
//! A queue is served as a connection of NBD is: one task on one shard takes the requests that are there,
//! starts each of them, and polls it once on the spot. What is cached is answered by that first poll. What
//! has to wait for a disk stays with the queue as a future. Requests and answers pass through a ring of the
//! queue's own, whose eventfd wakes the task.
//!
//! # Invariants
//! - Each tag is with the kernel, or with us with one request, or gone. A request that came is answered once.
//! - All commands are given by the task's thread, as the kernel demands.
//! - A request holds memory for its data from when it came until it is answered: at most the queue's depth
//!   times the longest request.
//! - Once it *fails*, requests under way are dropped and answered with an error, as all that come later.
//! - It ends when all tags are gone, which is when the block device was stopped.

#![allow(unsafe_code, reason = "tokio watches a descriptor that the queue owns")]

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use device::IoBuf;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::kernel::{Character, Queue};
use super::layout::{COMMIT_AND_FETCH, FETCH, Operation, Request};
use crate::block::{Export, ExportError, FailureKind};

/// So often it goes round before other tasks of the shard have their turn.
const TURNS: usize = 64;

/// A request under way: its tag and its result.
type Executing = Pin<Box<dyn Future<Output = (u16, i32)> + Send>>;

/// A queue that is served.
pub struct Serving<E> {
    number: u16,
    export: Arc<E>,
    device: Arc<dyn Character>,
    queue: Box<dyn Queue>,
    signal: AsyncFd<OwnedFd>,
    /// By tag, whether its request is with us.
    ours: Vec<bool>,
    waiting: FuturesUnordered<Executing>,
    /// Tags that came back without a request.
    gone: usize,
    /// An empty vector kept for its memory.
    done: Vec<(u16, i32)>,
    /// Waits until it fails, or until no failure can be reported.
    fails: Option<oneshot::Receiver<()>>,
    has_failed: bool,
}

impl<E: Export> Serving<E> {
    /// Gives the kernel all tags. To be called on the shard.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(
        device: Arc<dyn Character>,
        export: Arc<E>,
        (number, depth): (u16, u16),
        fails: oneshot::Receiver<()>,
    ) -> io::Result<Self> {
        let mut queue = Arc::clone(&device).queue(number, depth)?;
        // SAFETY: it owns the descriptor, always names the same one, and closes it when it is dropped.
        let signal = unsafe { AsyncFd::register_with_interest(queue.signal()?, Interest::READABLE) }?;
        for tag in 0..depth {
            queue.push(FETCH, tag, 0)?;
        }
        let mut done = Vec::new();
        queue.turn(&mut done)?;
        // No request can come before all queues have begun.
        if let Some((_, code)) = done.pop() {
            return Err(io::Error::from_raw_os_error(code.saturating_neg()));
        }
        Ok(Self {
            number,
            export,
            device,
            queue,
            signal,
            ours: vec![false; depth.into()],
            waiting: FuturesUnordered::new(),
            gone: 0,
            done,
            fails: Some(fails),
            has_failed: false,
        })
    }

    /// Serves until the block device was stopped.
    ///
    /// # Errors
    /// The kernel takes no more commands.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURNS {
            let mut moved = false;
            if let Some(fails) = &mut self.fails
                && let Poll::Ready(told) = Pin::new(fails).poll(context)
            {
                self.fails = None;
                if told.is_ok() {
                    self.fail()?;
                    moved = true;
                }
            }
            while let Poll::Ready(Some((tag, result))) = self.waiting.poll_next_unpin(context) {
                self.answer(tag, result)?;
                moved = true;
            }
            let mut done = std::mem::take(&mut self.done);
            self.queue.turn(&mut done)?;
            for (tag, code) in done.drain(..) {
                self.came(tag, code, context)?;
                moved = true;
            }
            self.done = done;
            if self.gone >= self.ours.len() && self.waiting.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if moved {
                continue;
            }
            if !self.waiting.is_empty() {
                // A busy shard seldom sleeps, and only then submits by itself.
                device::submit_and_reap();
            }
            match self.signal.poll_read_ready(context)? {
                // Edge-triggered: the counter need not be read. What came before it was cleared is looked for
                // again.
                Poll::Ready(mut guard) => guard.clear_ready(),
                Poll::Pending => return Poll::Pending,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// A tag came back from the kernel.
    fn came(&mut self, tag: u16, code: i32, context: &mut Context<'_>) -> io::Result<()> {
        let Some(is_ours) = self.ours.get_mut(usize::from(tag)) else {
            return Err(io::Error::other("the kernel sent a request that does not exist"));
        };
        if code != 0 {
            if code != -libc::ENODEV {
                let error = io::Error::from_raw_os_error(code.saturating_neg());
                tracing::error!(%error, queue = self.number, tag, "a queue of a block device is cut short");
            }
            self.gone += 1;
            return Ok(());
        }
        *is_ours = true;
        if self.has_failed {
            return self.answer(tag, -libc::EIO);
        }
        let Some(request) = Request::parse(&self.queue.request(tag)) else {
            return self.answer(tag, -libc::EOPNOTSUPP);
        };
        let (export, device) = (Arc::clone(&self.export), Arc::clone(&self.device));
        let number = self.number;
        let execute = async move { execute(&*export, &*device, (number, tag), request).await };
        let mut execute: Executing = Box::pin(AssertUnwindSafe(execute).catch_unwind().map(move |result| {
            // A panic ends its request alone.
            (tag, result.unwrap_or(-libc::EIO))
        }));
        match execute.as_mut().poll(context) {
            Poll::Ready((tag, result)) => self.answer(tag, result),
            Poll::Pending => {
                self.waiting.push(execute);
                Ok(())
            }
        }
    }

    fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.ours[usize::from(tag)] = false;
        self.queue.push(COMMIT_AND_FETCH, tag, result)
    }

    /// Answers all that is under way with an error, and whatever comes later.
    fn fail(&mut self) -> io::Result<()> {
        self.has_failed = true;
        self.waiting = FuturesUnordered::new();
        for tag in 0..self.ours.len() {
            if self.ours[tag] {
                // There are as many as the depth, which is such a number.
                self.answer(tag as u16, -libc::EIO)?;
            }
        }
        Ok(())
    }
}

/// Does what a request asks for. Its result is how many bytes there were, 0 where there are none, or a
/// negative error.
async fn execute<E: Export>(
    export: &E,
    device: &dyn Character,
    (queue, tag): (u16, u16),
    request: Request,
) -> i32 {
    let Request { operation, stable, offset, len_bytes } = request;
    let data_bytes = match operation {
        Operation::Read | Operation::Write => len_bytes,
        _ => 0,
    };
    let (Ok(data_bytes), Ok(all)) = (usize::try_from(data_bytes), i32::try_from(data_bytes)) else {
        return -libc::EINVAL;
    };
    // The kernel knows of a smaller size only later.
    if offset + len_bytes > export.size_bytes() {
        return if operation == Operation::Read { -libc::EIO } else { -libc::ENOSPC };
    }
    let done = match operation {
        Operation::Read => {
            let mut data = IoBuf::for_overwrite(data_bytes);
            match export.read(offset, &mut data).await {
                Ok(()) => device.give_data(queue, tag, &data).map_err(copying),
                Err(error) => Err(error),
            }
        }
        Operation::Write => {
            let mut data = IoBuf::for_overwrite(data_bytes);
            match device.take_data(queue, tag, &mut data) {
                Ok(()) => export.write(offset, data, stable).await,
                Err(error) => Err(copying(error)),
            }
        }
        Operation::Flush => export.flush().await,
        Operation::Discard => export.trim(offset, len_bytes, stable).await,
        Operation::WriteZeroes { allocate } => export.write_zeroes(offset, len_bytes, allocate, stable).await,
    };
    match done {
        Ok(()) => all,
        // NBD has Linux's numbers for its errors.
        Err(error) => -error.kind.errno(),
    }
}

fn copying(error: io::Error) -> ExportError {
    tracing::error!(%error, "the data of a request cannot be copied");
    ExportError { kind: FailureKind::Io, message: error.to_string() }
}
