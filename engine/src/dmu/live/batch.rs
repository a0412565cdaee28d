//! Blocks of many objects in batches.
//!
//! The sync of an object set consists of many small tasks: each waits until its blocks are written and then
//! knows the contents of the indirect block above them. Alone, each task would wait for a device on its own.
//! So the tasks put their blocks into one queue. When no task can continue, the queue is written in batches
//! of a few MiB, several at a time: while the devices work on one, the next is compressed.
//!
//! When encoding takes long, batches are smaller, so that writers that wait for fewer dirty bytes continue
//! little by little ([`crate::txg`]). The speed is measured here, and reported to them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use device::IgnorePoison;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use ondisk::blkptr::Blkptr;
use ondisk::{ObjsetId, Txg};

use crate::error::{Error, Result};
use crate::txg::Txgs;
use crate::zio::{Meter, Seal, WriteRequest, Writer};

/// The largest batch, unless a single task's blocks are more.
const BATCH_BYTES: usize = 8 << 20;
/// The least limit of a batch, however slow the encoding: blocks for several processors.
const LEAST_BATCH_BYTES: usize = 1 << 20;
/// A batch that is slow to encode has no more bytes than are encoded in this fraction of a second.
const BATCHES_PER_SECOND: u64 = 8;
/// While other batches are in progress, a batch has at least this size.
const WORTH_BYTES: usize = 2 << 20;
/// The most batches in progress.
const MAX_BATCHES: usize = 3;

/// Writes the blocks of tasks.
pub(super) struct Batcher<'a> {
    writer: &'a Writer,
    objset: ObjsetId,
    txg: Txg,
    /// Gets the number of written bytes of data, and the pace.
    txgs: Option<Arc<Txgs>>,
    lists_births: bool,
    /// How blocks are protected, in an encrypted object set.
    seal: Option<Seal>,
    meter: Meter,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
}

/// The blocks of one task.
struct Item {
    requests: Vec<WriteRequest>,
    bytes: usize,
    answer: Arc<Answer>,
}

#[derive(Default)]
struct Answer(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    result: Option<Result<Vec<Blkptr>>>,
    waker: Option<Waker>,
}

impl Answer {
    fn give(&self, result: Result<Vec<Blkptr>>) {
        let mut pending = lock(&self.0);
        pending.result = Some(result);
        if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl<'a> Batcher<'a> {
    /// With `lists_births`, accounts contain not only the space of new blocks but also the blocks.
    pub(super) fn new(
        writer: &'a Writer,
        (objset, txg): (ObjsetId, Txg),
        txgs: Option<Arc<Txgs>>,
        lists_births: bool,
        seal: Option<Seal>,
    ) -> Self {
        let (meter, queue) = (Meter::default(), Mutex::default());
        Self { writer, objset, txg, txgs, lists_births, seal, meter, queue }
    }

    /// How blocks are protected, in an encrypted object set.
    pub(super) fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// The limit of a batch.
    pub(super) fn batch_bytes(&self) -> usize {
        let pace = self.meter.pace().or_else(|| self.txgs.as_ref().and_then(|txgs| txgs.pace(self.objset)));
        let bytes = pace.and_then(|pace| usize::try_from(pace / BATCHES_PER_SECOND).ok());
        bytes.unwrap_or(BATCH_BYTES).clamp(LEAST_BATCH_BYTES, BATCH_BYTES)
    }

    pub(super) fn lists_births(&self) -> bool {
        self.lists_births
    }

    pub(super) fn writer(&self) -> &Writer {
        self.writer
    }

    pub(super) fn txg(&self) -> Txg {
        self.txg
    }

    /// Writes blocks. A task of [`Batcher::drive`] awaits it.
    pub(super) async fn write(&self, requests: Vec<WriteRequest>) -> Result<Vec<Blkptr>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let answer = Arc::new(Answer::default());
        {
            let bytes = requests.iter().map(|request| request.data.len()).sum();
            let mut queue = lock(&self.queue);
            queue.bytes += bytes;
            queue.items.push_back(Item { requests, bytes, answer: Arc::clone(&answer) });
        }
        poll_fn(|context| {
            let mut pending = lock(&answer.0);
            match pending.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    pending.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Runs tasks to their end, and writes their blocks. Returns results in the order in which the tasks end.
    pub(super) async fn drive<T>(&self, tasks: impl Stream<Item = Result<T>>) -> Result<Vec<T>> {
        let mut tasks = pin!(tasks);
        let mut writes = FuturesUnordered::new();
        let mut ended = Vec::new();
        poll_fn(|context| {
            loop {
                loop {
                    match tasks.as_mut().poll_next(context) {
                        Poll::Ready(Some(Ok(value))) => ended.push(value),
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                        Poll::Ready(None) => return Poll::Ready(Ok(())),
                        Poll::Pending => break,
                    }
                }
                let mut moved = false;
                while let Poll::Ready(Some(())) = writes.poll_next_unpin(context) {
                    moved = true;
                }
                while let Some(batch) = self.next_batch(writes.len()) {
                    writes.push(self.write_batch(batch));
                    moved = true;
                }
                if !moved {
                    return Poll::Pending;
                }
            }
        })
        .await?;
        Ok(ended)
    }

    /// Runs one task to its end.
    pub(super) async fn drive_one<T>(&self, task: impl Future<Output = Result<T>>) -> Result<T> {
        let mut all = self.drive(futures_util::stream::once(task)).await?;
        all.pop().ok_or_else(|| Error::Invalid("a task ended without a result".into()))
    }

    fn next_batch(&self, under_way: usize) -> Option<Vec<Item>> {
        let most = self.batch_bytes();
        let mut queue = lock(&self.queue);
        if under_way >= MAX_BATCHES || (under_way > 0 && queue.bytes < WORTH_BYTES.min(most)) {
            return None;
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(item) = queue.items.pop_front_if(|item| bytes == 0 || bytes + item.bytes <= most) {
            bytes += item.bytes;
            batch.push(item);
        }
        queue.bytes -= bytes;
        (!batch.is_empty()).then_some(batch)
    }

    async fn write_batch(&self, batch: Vec<Item>) {
        let mut requests = Vec::with_capacity(batch.iter().map(|item| item.requests.len()).sum());
        let mut answers = Vec::with_capacity(batch.len());
        for item in batch {
            answers.push((item.requests.len(), item.answer));
            requests.extend(item.requests);
        }
        let is_data = |request: &&WriteRequest| request.at.level == 0 && request.at.object != 0;
        let data: usize = requests.iter().filter(is_data).map(|request| request.data.len()).sum();
        match self.writer.write_metered(self.txg, requests, &self.meter).await {
            Ok(pointers) => {
                if let Some(txgs) = &self.txgs {
                    if let Some(pace) = self.meter.pace() {
                        txgs.set_pace(self.objset, Some(pace));
                    }
                    txgs.written(self.objset, data as u64);
                }
                let mut pointers = pointers.into_iter();
                for (count, answer) in answers {
                    answer.give(Ok(pointers.by_ref().take(count).collect()));
                }
            }
            Err(error) => {
                for (_, answer) in answers {
                    answer.give(Err(error.clone()));
                }
            }
        }
    }
}
