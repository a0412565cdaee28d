//! A device for which there are handlers.

use std::path::Path;
use std::sync::{Arc, Mutex};

use ::device::simulated::{Clock, RealClock};
use ::device::{
    Cause, Device, Identity, IgnorePoison, IoBuf, IoError, IoFuture, SectorSizes, SharedBuf, Traits,
};
use ondisk::Guid;

use super::{DeviceError, Fault, Injections, LabelPart, Operation, flip_bit};

/// Bytes of a label, and of its parts.
const LABEL_BYTES: u64 = 256 << 10;
const PAD_BYTES: u64 = 8 << 10;
const NVLIST_END: u64 = 128 << 10;
/// Bytes at the front of a device in which there are labels and the boot area, and at its end.
const FRONT_BYTES: u64 = 4 << 20;
const END_BYTES: u64 = 2 * LABEL_BYTES;
/// Linux's error numbers.
const EIO: i32 = 5;
const ENXIO: i32 = 6;

/// When each lane of a delay is free again, in nanoseconds of the clock.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Vec<u64>>);

impl Lanes {
    pub(super) fn new(count: usize) -> Self {
        Self(Mutex::new(vec![0; count.max(1)]))
    }

    /// Takes the lane that is free first. Returns when the transfer ends.
    fn take(&self, now_ns: u64, latency_ns: u64) -> u64 {
        let mut lanes = self.0.lock().ignore_poison();
        match lanes.iter_mut().min() {
            Some(free) => {
                *free = (*free).max(now_ns) + latency_ns;
                *free
            }
            None => now_ns + latency_ns,
        }
    }
}

/// A device whose transfers the handlers of its leaf spoil.
#[derive(Debug)]
pub(crate) struct InjectedDevice {
    inner: Arc<dyn Device>,
    leaf: Guid,
    table: Arc<Injections>,
}

/// What becomes of a transfer.
enum Fate {
    Fails(Cause),
    Flips,
    IsSkipped,
}

impl InjectedDevice {
    /// The device of a leaf.
    pub(super) fn new(inner: Arc<dyn Device>, leaf: Guid, table: &Arc<Injections>) -> Self {
        Self { inner, leaf, table: Arc::clone(table) }
    }

    /// Waits as long as delays say, and decides what becomes of a transfer.
    async fn fate(&self, operation: Operation, offset: u64, len: u64) -> Option<Fate> {
        let mut until_ns = 0;
        let mut fate = None;
        for handler in self.table.list() {
            if handler.fault.leaf() != Some(self.leaf) {
                continue;
            }
            match &handler.fault {
                Fault::Gone { .. } if handler.acts() => fate = Some(Fate::Fails(Cause::Missing)),
                Fault::Delay { latency, operation: meant, .. }
                    if self.is_meant(*meant, None, operation, offset, len) && handler.acts() =>
                {
                    let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                    until_ns = until_ns.max(handler.lanes.take(RealClock.now_ns(), latency_ns));
                }
                Fault::Device { error, operation: meant, label, .. }
                    if fate.is_none()
                        && self.is_meant(*meant, *label, operation, offset, len)
                        && handler.acts() =>
                {
                    fate = match error {
                        DeviceError::Io => Some(Fate::Fails(Cause::Os { errno: EIO })),
                        DeviceError::Nxio => Some(Fate::Fails(Cause::Os { errno: ENXIO })),
                        DeviceError::Corrupt => Some(Fate::Flips),
                        DeviceError::Checksum => (operation == Operation::Read).then_some(Fate::Flips),
                        DeviceError::Noop => Some(Fate::IsSkipped),
                    };
                }
                _ => {}
            }
        }
        if until_ns > 0 {
            RealClock.sleep_until(until_ns).await;
        }
        fate
    }

    /// Whether a transfer is one of those that a handler means.
    fn is_meant(
        &self,
        meant: Operation,
        label: Option<LabelPart>,
        operation: Operation,
        offset: u64,
        len: u64,
    ) -> bool {
        let has_place = !matches!(operation, Operation::Flush);
        // Nothing else is done to the blank part of the first label.
        let is_probe = has_place && label.is_none() && offset + len <= PAD_BYTES;
        if is_probe {
            return meant == Operation::Probe;
        }
        let is_operation = meant == Operation::All || meant == operation;
        let size = self.inner.size_bytes();
        let is_label = has_place && (offset < FRONT_BYTES || offset >= size.saturating_sub(END_BYTES));
        match label {
            None => is_operation && !is_label,
            Some(part) => is_operation && is_label && touches(part, size, offset, len),
        }
    }

    fn error(&self, operation: ::device::Operation, offset: u64, len: u64, cause: Cause) -> IoError {
        IoError { path: self.inner.path().to_owned(), operation, offset, len, cause }
    }
}

/// Whether a range has bytes of a part of a label.
fn touches(part: LabelPart, size: u64, offset: u64, len: u64) -> bool {
    let (start, end) = match part {
        LabelPart::Pad1 => (0, PAD_BYTES),
        LabelPart::Pad2 => (PAD_BYTES, 2 * PAD_BYTES),
        LabelPart::Nvlist => (2 * PAD_BYTES, NVLIST_END),
        LabelPart::Uber => (NVLIST_END, LABEL_BYTES),
    };
    // Labels at the end begin at a multiple of their size.
    let end_of_labels = size - size % LABEL_BYTES;
    let labels =
        [0, LABEL_BYTES, end_of_labels.saturating_sub(END_BYTES), end_of_labels.saturating_sub(LABEL_BYTES)];
    labels.into_iter().any(|label| offset < label + end && offset + len > label + start)
}

/// The same bytes with a flipped bit.
fn flipped(parts: Vec<SharedBuf>) -> Vec<SharedBuf> {
    let mut joined = SharedBuf::join(parts);
    flip_bit(&mut joined);
    vec![joined.into()]
}

fn length(parts: &[SharedBuf]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

impl Device for InjectedDevice {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn update_size(&self) -> Result<u64, IoError> {
        self.inner.update_size()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.inner.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn identity(&self) -> Option<Identity> {
        self.inner.identity()
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn modelled(&self) -> Option<String> {
        self.inner.modelled()
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let bytes = len as u64;
            match self.fate(Operation::Read, offset, bytes).await {
                None => self.inner.read(offset, len).await,
                Some(Fate::Fails(cause)) => Err(self.error(::device::Operation::Read, offset, bytes, cause)),
                Some(Fate::IsSkipped) => Ok(IoBuf::zeroed(len)),
                Some(Fate::Flips) => {
                    let mut read = self.inner.read(offset, len).await?;
                    flip_bit(&mut read);
                    Ok(read)
                }
            }
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let bytes = data.len() as u64;
            match self.fate(Operation::Write, offset, bytes).await {
                None => self.inner.write(offset, data).await,
                Some(Fate::Fails(cause)) => Err(self.error(::device::Operation::Write, offset, bytes, cause)),
                Some(Fate::IsSkipped) => Ok(data),
                Some(Fate::Flips) => {
                    let mut wrong = IoBuf::for_overwrite(data.len());
                    ::device::copy(&mut wrong, &data);
                    flip_bit(&mut wrong);
                    self.inner.write(offset, wrong).await?;
                    Ok(data)
                }
            }
        })
    }

    fn write_gather(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let bytes = length(&parts);
            match self.fate(Operation::Write, offset, bytes).await {
                None => self.inner.write_gather(offset, parts).await,
                Some(Fate::Fails(cause)) => Err(self.error(::device::Operation::Write, offset, bytes, cause)),
                Some(Fate::IsSkipped) => Ok(()),
                Some(Fate::Flips) => self.inner.write_gather(offset, flipped(parts)).await,
            }
        })
    }

    fn has_durable_writes(&self) -> bool {
        self.inner.has_durable_writes()
    }

    fn write_durably(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let bytes = length(&parts);
            match self.fate(Operation::Write, offset, bytes).await {
                None => self.inner.write_durably(offset, parts).await,
                Some(Fate::Fails(cause)) => Err(self.error(::device::Operation::Write, offset, bytes, cause)),
                Some(Fate::IsSkipped) => Ok(()),
                Some(Fate::Flips) => self.inner.write_durably(offset, flipped(parts)).await,
            }
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            match self.fate(Operation::Flush, 0, 0).await {
                Some(Fate::Fails(cause)) => Err(self.error(::device::Operation::Flush, 0, 0, cause)),
                Some(Fate::IsSkipped) => Ok(()),
                Some(Fate::Flips) | None => self.inner.flush().await,
            }
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            match self.fate(Operation::Trim, offset, len).await {
                Some(Fate::Fails(cause)) => Err(self.error(::device::Operation::Discard, offset, len, cause)),
                Some(Fate::IsSkipped) => Ok(()),
                Some(Fate::Flips) | None => self.inner.discard(offset, len).await,
            }
        })
    }
}
