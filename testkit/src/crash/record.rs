//! Devices of memory that log what is done to them, in one order for all.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use device::{Cause, Device, IgnorePoison, IoBuf, IoError, IoFuture, Operation, SectorSizes, SharedBuf};

use super::Disk;
use crate::Rng;

/// The smallest piece of a write that arrives whole or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;

/// One thing that happened. Its place in the log is its time.
#[derive(Clone, Debug, Hash)]
pub(super) enum Event {
    /// A write was given to a device.
    Write { device: usize, offset: u64, bytes: Arc<[u8]> },
    /// A range was given up.
    Discard { device: usize, offset: u64, length: u64 },
    /// The write or discard at this place of the log was answered.
    Done { begun: usize },
    /// The write at this place of the log was answered, and is durable.
    DoneDurably { begun: usize },
    /// A flush was answered that was given to the device when the log had this length.
    Flushed { device: usize, begun: usize },
}

struct State {
    log: Vec<Event>,
    disks: Vec<Disk>,
    rng: Rng,
    first: Vec<Disk>,
    dead: Vec<bool>,
}

/// The log of a set of devices.
#[derive(Clone)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({} events)", self.position())
    }
}

impl Recorder {
    /// An empty log. `seed` decides how late devices answer.
    pub fn new(seed: u64) -> Self {
        let state = State {
            log: Vec::new(),
            disks: Vec::new(),
            rng: Rng::new(seed),
            first: Vec::new(),
            dead: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// One more device, which begins with these contents. All must be there before the first write.
    pub fn device(&self, name: impl Into<PathBuf>, contents: Disk) -> Arc<RecordingDevice> {
        let size_bytes = contents.size_bytes();
        self.growing_device(name, contents, size_bytes)
    }

    /// As [`Recorder::device`]; only the first `size_bytes` of it are visible until a caller looks
    /// whether it has grown.
    pub fn growing_device(
        &self,
        name: impl Into<PathBuf>,
        contents: Disk,
        size_bytes: u64,
    ) -> Arc<RecordingDevice> {
        let mut state = self.state();
        let number = state.disks.len();
        let grows_to = contents.size_bytes();
        state.first.push(contents.clone());
        state.disks.push(contents);
        state.dead.push(false);
        let recorder = self.clone();
        Arc::new(RecordingDevice {
            name: name.into(),
            number,
            size_bytes: size_bytes.into(),
            grows_to,
            recorder,
        })
    }

    /// A number that tells this log from others: two runs that did the same in the same order have the same.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for event in &self.state().log {
            event.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// How much has happened: points lie between 0 and this.
    pub fn position(&self) -> usize {
        self.state().log.len()
    }

    /// A device dies: whatever is asked of it from now on fails, and what it has not answered yet too. What
    /// it holds stays as a power cut now could leave it.
    pub fn kill(&self, device: usize) {
        if let Some(dead) = self.state().dead.get_mut(device) {
            *dead = true;
        }
    }

    /// The contents as the devices show them now.
    pub fn disks(&self) -> Vec<Disk> {
        self.state().disks.clone()
    }

    /// The contents at the beginning, and the log up to now.
    pub(super) fn recorded(&self) -> (Vec<Disk>, Vec<Event>) {
        let state = self.state();
        (state.first.clone(), state.log.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Answers a little later: lets others go first, a number of times that the seed decides.
    async fn dawdle(&self) {
        let mut turns = self.state().rng.below(3);
        poll_fn(|context| {
            if turns == 0 {
                return Poll::Ready(());
            }
            turns -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A device whose writes are logged. What was written can be read at once; what survives a power cut says a
/// [`super::Player`].
pub struct RecordingDevice {
    name: PathBuf,
    number: usize,
    size_bytes: AtomicU64,
    grows_to: u64,
    recorder: Recorder,
}

impl std::fmt::Debug for RecordingDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RecordingDevice {
    fn error(&self, operation: Operation, offset: u64, length: u64, cause: Cause) -> IoError {
        IoError::new(&self.name, operation, offset, length, cause)
    }

    fn check(&self, operation: Operation, offset: u64, length: u64) -> Result<(), IoError> {
        let error = |cause| Err(self.error(operation, offset, length, cause));
        if self.recorder.state().dead[self.number] {
            return error(Cause::Missing);
        }
        let whole = offset.is_multiple_of(SECTOR_BYTES) && length.is_multiple_of(SECTOR_BYTES);
        let size_bytes = self.size_bytes();
        if offset.checked_add(length).is_none_or(|end| end > size_bytes) {
            return error(Cause::OutOfRange { size_bytes });
        }
        if operation != Operation::Read && !whole {
            return error(Cause::Unaligned { unit_bytes: SECTOR_BYTES as u32 });
        }
        Ok(())
    }

    /// Logs the begin of a change, makes it visible, and gives its place in the log.
    fn begin(&self, event: Event, change: impl FnOnce(&mut Disk)) -> usize {
        let mut state = self.recorder.state();
        change(&mut state.disks[self.number]);
        state.log.push(event);
        state.log.len() - 1
    }

    /// Logs the answer to what was begun, a little later. One that died meanwhile does not answer.
    async fn answer(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        event: Event,
    ) -> Result<(), IoError> {
        self.recorder.dawdle().await;
        let mut state = self.recorder.state();
        if state.dead[self.number] {
            return Err(self.error(operation, offset, length, Cause::Missing));
        }
        state.log.push(event);
        Ok(())
    }
}

impl Device for RecordingDevice {
    fn path(&self) -> &Path {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn update_size(&self) -> Result<u64, IoError> {
        self.size_bytes.store(self.grows_to, Ordering::Relaxed);
        Ok(self.grows_to)
    }

    fn sector_sizes(&self) -> SectorSizes {
        SectorSizes::BYTES_512
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(Operation::Read, offset, len as u64)?;
            let mut buffer = IoBuf::for_overwrite(len);
            self.recorder.state().disks[self.number].read(offset, &mut buffer);
            Ok(buffer)
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(Operation::Write, offset, data.len() as u64)?;
            let event = Event::Write { device: self.number, offset, bytes: Arc::from(&data[..]) };
            let begun = self.begin(event, |disk| disk.write(offset, &data));
            self.answer(Operation::Write, offset, data.len() as u64, Event::Done { begun }).await?;
            Ok(data)
        })
    }

    fn has_durable_writes(&self) -> bool {
        true
    }

    fn write_durably(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        let data = SharedBuf::join(parts);
        Box::pin(async move {
            self.check(Operation::Write, offset, data.len() as u64)?;
            let event = Event::Write { device: self.number, offset, bytes: Arc::from(&data[..]) };
            let begun = self.begin(event, |disk| disk.write(offset, &data));
            self.answer(Operation::Write, offset, data.len() as u64, Event::DoneDurably { begun }).await
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.check(Operation::Flush, 0, 0)?;
            let begun = self.recorder.position();
            self.answer(Operation::Flush, 0, 0, Event::Flushed { device: self.number, begun }).await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.check(Operation::Discard, offset, len)?;
            let event = Event::Discard { device: self.number, offset, length: len };
            let begun = self.begin(event, |disk| disk.clear(offset, len));
            self.answer(Operation::Discard, offset, len, Event::Done { begun }).await
        })
    }
}
