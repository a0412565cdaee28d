//! The device as the pool has it: [`::device::Device`], whose operations are messages to a thread with a
//! [`Core`].
//!
//! The thread runs all tasks of one device. Messages and answers pass through channels that wake any
//! executor, so that what awaits them knows nothing of the thread's runtime. When the device is dropped, what
//! was flushed is in the store, and the thread ends.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::device::{
    Cause, Device, Identity, IgnorePoison, IoBuf, IoError, IoFuture, Operation, Overwriting, Ownership,
    SectorSizes, StoreUse, Traits,
};
use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::bucket::Bucket;
use crate::core::{Core, Counts, Options, Read};
use crate::error::Error;
use crate::format::SECTOR_BYTES;
use crate::lease::{Claim, Keeper};
use crate::opening;

/// How a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To read it as it is now; another host may write it.
    Read,
    /// To write it: it is taken over.
    Write,
    /// To write it again after this process did: it is taken over unless others wrote it since.
    Continue,
}

/// What the thread is asked for, with where the answer goes.
#[derive(Debug)]
enum Request {
    Read(Read),
    Write(u64, Bytes, oneshot::Sender<Result<(), Error>>),
    Discard(u64, u64, oneshot::Sender<Result<(), Error>>),
    Flush(oneshot::Sender<Result<(), Error>>),
    Counts(oneshot::Sender<Result<(Counts, u64, u64), Error>>),
}

/// A device in an object store.
pub struct ObjectDevice {
    name: PathBuf,
    size_bytes: u64,
    mode: Mode,
    identity: Option<Identity>,
    store_use: Arc<Mutex<StoreUse>>,
    /// For those who have clients of it ([`crate::lease`]).
    claim: Option<Arc<Claim>>,
    /// Dropped first, so that the thread ends.
    requests: Option<mpsc::UnboundedSender<Request>>,
    thread: Option<JoinHandle<()>>,
    /// Let go when all has ended.
    _lock: Option<OwnedFd>,
}

impl ObjectDevice {
    /// Opens the device in a bucket. Blocks until that is done.
    ///
    /// # Errors
    /// There is none, it is damaged, the store does not answer.
    pub fn open(bucket: Arc<dyn Bucket>, mode: Mode, options: Options) -> Result<Self, Error> {
        let name = PathBuf::from(bucket.address());
        let (requests, receiver) = mpsc::unbounded_channel();
        let (opened, is_opened) = std::sync::mpsc::channel();
        let store_use = Arc::new(Mutex::default());
        let published = Arc::clone(&store_use);
        let thread = thread::Builder::new().name("object-device".into()).spawn(move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
            LocalSet::new().block_on(&runtime, async {
                let (kept, interval) = (Arc::clone(&bucket), options.lease_interval);
                let core = match mode {
                    Mode::Read => opening::open_to_read(bucket, options).await,
                    Mode::Write => opening::open(bucket, options).await,
                    Mode::Continue => opening::open_again(bucket, options).await,
                };
                let core = match core {
                    Ok(core) => core,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let core = Rc::new(core);
                let lease = Keeper::begin(&core, kept, interval);
                let claim = lease.as_ref().map(|lease| Arc::clone(&lease.claim));
                if opened.send(Ok((core.size_bytes(), claim))).is_ok() {
                    serve(core, receiver, published).await;
                }
                if let Some(lease) = lease {
                    lease.end().await;
                }
            });
        });
        let thread = thread.map_err(|_| Error::Closed)?;
        let (size_bytes, claim) = is_opened.recv().map_err(|_| Error::Closed)??;
        let (requests, thread) = (Some(requests), Some(thread));
        Ok(Self { name, size_bytes, mode, identity: None, store_use, claim, requests, thread, _lock: None })
    }

    /// Says where it is, and which one. The lock is held until it is closed.
    pub(crate) fn at(self, name: PathBuf, number: u64, lock: Option<OwnedFd>) -> Self {
        let mut this = self;
        (this.name, this.identity, this._lock) = (name, Some(Identity::of_address(number)), lock);
        this
    }

    /// What was done since it was opened; bytes that are needed; bytes of all objects with data.
    ///
    /// # Errors
    /// The device has ended.
    pub async fn counts(&self) -> Result<(Counts, u64, u64), Error> {
        self.ask(Request::Counts).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Request,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(Error::Closed)?;
        requests.send(request(answer)).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }

    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<(), IoError> {
        let failed = |cause| IoError::new(&self.name, operation, offset, len, cause);
        if offset.checked_add(len).is_none_or(|end| end > self.size_bytes) {
            return Err(failed(Cause::OutOfRange { size_bytes: self.size_bytes }));
        }
        if operation == Operation::Read {
            return Ok(());
        }
        if self.mode == Mode::Read {
            return Err(failed(Cause::ReadOnly));
        }
        match offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES) {
            true => Ok(()),
            false => Err(failed(Cause::Unaligned { unit_bytes: SECTOR_BYTES as u32 })),
        }
    }

    fn failed(&self, operation: Operation, offset: u64, len: u64, error: Error) -> IoError {
        if matches!(error, Error::TakenOver) {
            // Before the caller is told.
            self.claim.iter().for_each(|claim| claim.take_over());
        }
        IoError::new(&self.name, operation, offset, len, error.cause())
    }
}

/// How old what is told of the use of the store may be.
const PUBLISHED_EVERY: Duration = Duration::from_millis(500);
/// Reads that are planned together at most.
const MOST_READS: usize = 256;

/// Does what is asked, each request as a task, until the device is dropped.
async fn serve(
    core: Rc<Core>,
    mut requests: mpsc::UnboundedReceiver<Request>,
    published: Arc<Mutex<StoreUse>>,
) {
    let counted = Rc::downgrade(&core);
    spawn_local(async move {
        while let Some(core) = counted.upgrade() {
            *published.lock().ignore_poison() = core.store_use();
            drop(core);
            tokio::time::sleep(PUBLISHED_EVERY).await;
        }
    });
    while let Some(request) = requests.recv().await {
        // Reads that came meanwhile are one plan.
        let (mut reads, mut others) = (Vec::new(), Vec::new());
        let mut next = Some(request);
        while let Some(request) = next {
            match request {
                Request::Read(read) => reads.push(read),
                other => others.push(other),
            }
            next = if reads.len() < MOST_READS { requests.try_recv().ok() } else { None };
        }
        if !reads.is_empty() {
            let core = Rc::clone(&core);
            spawn_local(async move { core.read_all(reads).await });
        }
        for request in others {
            let core = Rc::clone(&core);
            // Who asked may be gone: its answer is dropped.
            spawn_local(async move {
                match request {
                    Request::Read(read) => core.read_all(vec![read]).await,
                    Request::Write(offset, data, answer) => drop(answer.send(core.write(offset, data).await)),
                    Request::Discard(offset, length, answer) => {
                        drop(answer.send(core.discard(offset, length).await));
                    }
                    Request::Flush(answer) => drop(answer.send(core.flush().await)),
                    Request::Counts(answer) => {
                        let (live, total) = core.space();
                        drop(answer.send(Ok((core.counts(), live, total))));
                    }
                }
            });
        }
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked at worst, which it has told.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ObjectDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectDevice")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Device for ObjectDevice {
    fn path(&self) -> &Path {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_sizes(&self) -> SectorSizes {
        SectorSizes { logical_bytes: SECTOR_BYTES as u32, physical_bytes: SECTOR_BYTES as u32 }
    }

    fn is_read_only(&self) -> bool {
        self.mode == Mode::Read
    }

    fn store_use(&self) -> Option<StoreUse> {
        Some(*self.store_use.lock().ignore_poison())
    }

    fn identity(&self) -> Option<Identity> {
        self.identity
    }

    fn traits(&self) -> Traits {
        Traits { overwriting: Overwriting::Elsewhere, ownership: Ownership::Last }
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(Operation::Read, offset, len as u64)?;
            let read = self.ask(|answer| Request::Read(Read { offset, length: len, answer })).await;
            let bytes = read.map_err(|error| self.failed(Operation::Read, offset, len as u64, error))?;
            Ok(IoBuf::from(&bytes[..]))
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = data.len() as u64;
            self.check(Operation::Write, offset, len)?;
            let bytes = Bytes::copy_from_slice(&data);
            let written = self.ask(|answer| Request::Write(offset, bytes, answer)).await;
            written.map_err(|error| self.failed(Operation::Write, offset, len, error))?;
            Ok(data)
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            if self.mode == Mode::Read {
                return Ok(());
            }
            let flushed = self.ask(Request::Flush).await;
            flushed.map_err(|error| self.failed(Operation::Flush, 0, 0, error))
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.check(Operation::Discard, offset, len)?;
            let discarded = self.ask(|answer| Request::Discard(offset, len, answer)).await;
            discarded.map_err(|error| self.failed(Operation::Discard, offset, len, error))
        })
    }
}

#[cfg(test)]
mod tests {
    use ::device::block_on;

    use super::*;
    use crate::bucket::MemoryBucket;

    #[test]
    fn a_device_keeps_what_is_flushed_and_an_older_opening_is_told() {
        let bucket = Arc::new(MemoryBucket::default());
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(crate::create(&*bucket, 64 << 20, &Options::default())).unwrap();
        let open = |mode| ObjectDevice::open(bucket.clone(), mode, Options::default()).unwrap();
        let first = open(Mode::Write);
        block_on(first.write(8192, IoBuf::from(&[7; 8192][..]))).unwrap();
        block_on(first.flush()).unwrap();
        let reader = open(Mode::Read);
        assert_eq!(block_on(reader.read(8000, 400)).unwrap()[190..194], [0, 0, 7, 7]);
        let refused = block_on(reader.write(0, IoBuf::zeroed(4096))).unwrap_err();
        assert_eq!(refused.cause, Cause::ReadOnly);
        let second = open(Mode::Write);
        assert_eq!(block_on(second.read(8192, 1)).unwrap()[0], 7);
        block_on(first.write(0, IoBuf::zeroed(4096))).unwrap();
        assert_eq!(block_on(first.flush()).unwrap_err().cause, Cause::TakenOver);
        assert_eq!(block_on(first.read(0, 1)).unwrap_err().cause, Cause::TakenOver);
        block_on(second.discard(8192, 4096)).unwrap();
        block_on(second.flush()).unwrap();
        assert_eq!(block_on(second.read(8192 + 4095, 2)).unwrap()[..], [0, 7]);
        let beyond = block_on(second.read(64 << 20, 1)).unwrap_err();
        assert!(matches!(beyond.cause, Cause::OutOfRange { .. }), "{beyond}");
        assert!(matches!(
            block_on(second.write(512, IoBuf::zeroed(512))).unwrap_err().cause,
            Cause::Unaligned { .. }
        ));
        assert_eq!(block_on(second.counts()).unwrap().0.commits, 1);
    }
}
