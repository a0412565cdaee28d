//! Leaf devices: files and block devices through io_uring, memory, simulated faults.
//!
//! # The idea
//! A [`Device`] is a flat range of bytes with `read`, `write`, `flush` and `discard`, each a boxed `Send`
//! future. The crate knows no runtime: a future hands its work to the *calling thread's* ring when that
//! thread drives one, and does the work at once with `pread`/`pwrite` when it does not. So a future never
//! waits for a party that may not exist.
//!
//! | module | what it owns |
//! |---|---|
//! | `buf` | [`IoBuf`]: owned, pooled memory, page-aligned unless it is small; [`copy`] |
//! | `shared` | [`SharedBuf`]: a window onto a buffer that several writes use |
//! | [`signatures`] | what lies on a device, by its signature |
//! | `error` | [`IoError`]: which device, operation, range and reason |
//! | `file` | [`FileDevice`]: regular files and block devices |
//! | `memory` | [`MemoryDevice`]: plain memory |
//! | [`modelled`] | files that are opened as if they lay on another medium; links |
//! | [`simulated`] | any device with scripted faults and the timing of a modelled medium |
//! | `operation` | one request to the kernel, and who keeps its memory |
//! | `ring` | one io_uring per thread |
//! | `poison` | [`IgnorePoison`]: locks that a panic left poisoned |
//! | `executor` | [`block_on`] and [`RingDriver`]: who drives a thread's ring; [`Duty`]: what it must not keep others waiting for |
//!
//! # What it promises
//! - A read returns exactly the bytes asked for, or an error: short reads are continued, ranges past the end
//!   refused.
//! - No memory is freed while the kernel may still write to it, also when futures are dropped midway.
//! - No verification: checksums are the business of the layer above.

pub mod address;
mod buf;
mod error;
mod executor;
mod file;
mod memory;
pub mod modelled;
mod operation;
mod poison;
mod ring;
mod shared;
pub mod signatures;
pub mod simulated;

use std::{fmt::Debug, future::Future, path::Path, pin::Pin};

pub use buf::{
    ALIGNMENT_BYTES, BufferMemory, IoBuf, buffer_memory, copy, give_back_unused, keep_unused,
    machine_memory_bytes, wait_for_growth,
};
pub use error::{Cause, IoError, Operation, in_words};
pub use executor::{Duty, RingDriver, block_on, hand_duty_over, set_duty};
pub use file::{FileDevice, Identity, Lock, OpenOptions};
pub use memory::MemoryDevice;
pub use poison::IgnorePoison;
pub use ring::{release_ring, submit_and_reap};
pub use shared::SharedBuf;

/// Stack, in bytes, of threads that serve requests. No recursion depends on what users or disks can
/// make deep; this is room for recursion of bounded depth (vdev trees, block trees, gangs). It
/// takes memory only as it is used.
pub const STACK_BYTES: usize = 16 << 20;

/// The result of a device operation, to be awaited.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, IoError>> + Send + 'a>>;

/// The sector sizes that a device states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorSizes {
    /// The unit of addressing: offsets and lengths of writes are multiples of it.
    pub logical_bytes: u32,
    /// The unit that the medium writes in one piece; smaller writes cost a read first.
    pub physical_bytes: u32,
}

impl SectorSizes {
    /// 512 bytes both ways: what memory and simulated devices state by default.
    pub const BYTES_512: Self = Self { logical_bytes: 512, physical_bytes: 512 };
}

/// How a device behaves, where it is asked and not guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// What overwriting a part of it costs.
    pub overwriting: Overwriting,
    /// How other hosts are kept from writing it.
    pub ownership: Ownership,
}

impl Traits {
    /// Those of a disk or file of this machine.
    pub const LOCAL: Self = Self { overwriting: Overwriting::InPlace, ownership: Ownership::Lock };
}

/// What overwriting costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwriting {
    /// As much as writing for the first time.
    InPlace,
    /// What was there is kept until it is cleared away, and so is what was freed and not discarded: all that
    /// becomes free is to be discarded.
    Elsewhere,
}

/// How other hosts are kept from writing a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// By a lock of this machine, or not at all.
    Lock,
    /// The host that opened it last has it; the one before is told at its next flush. It goes on by itself
    /// after an outage, with all that was written to it. So a pool that is open must not open it anew, unless
    /// [`OpenOptions::continuing`].
    Last,
}

/// What a device asked of the object store that it lies in, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Requests that wrote an object.
    pub puts: u64,
    /// Bytes of those.
    pub put_bytes: u64,
    /// Requests that read.
    pub gets: u64,
    /// Bytes of those.
    pub got_bytes: u64,
    /// Objects that were deleted.
    pub deletes: u64,
    /// Bytes that were written to the device.
    pub written_bytes: u64,
    /// Bytes that were written again, so that objects could be deleted.
    pub moved_bytes: u64,
    /// Bytes of the device that are needed.
    pub needed_bytes: u64,
    /// Bytes of all objects with data.
    pub kept_bytes: u64,
}

impl StoreUse {
    /// What the requests cost at the published prices of S3 (us-east-1, standard), in millionths of a dollar:
    /// $0.005 for 1,000 `PUT`, $0.0004 for 1,000 `GET`, nothing for `DELETE`.
    pub fn micro_dollars(&self) -> u64 {
        self.puts.saturating_mul(5).saturating_add(self.gets.saturating_mul(2) / 5)
    }
}

/// A leaf device: a flat range of bytes that can be read and written.
///
/// Operations are independent of each other: concurrent ones may complete in any order, and only `flush`
/// makes completed writes durable, unless they were given to `write_durably`. Dropping a future abandons the
/// result; a write that was begun may or may not reach the medium.
pub trait Device: Send + Sync + Debug {
    /// Where the device is, for messages: a path, or a description in angle brackets for devices without one.
    fn path(&self) -> &Path;

    /// The number of bytes that can be addressed.
    fn size_bytes(&self) -> u64;

    /// Takes notice of a device that has grown. Until then [`Device::size_bytes`] stays what it was when the
    /// device was opened. One that shrank keeps its size, and fails where it has none.
    fn update_size(&self) -> Result<u64, IoError> {
        Ok(self.size_bytes())
    }

    /// The device's sector sizes.
    fn sector_sizes(&self) -> SectorSizes;

    /// Whether writes, flushes and discards are refused.
    fn is_read_only(&self) -> bool;

    /// Which file or block device it is, whatever its path; `None` for what is neither.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// How it behaves.
    fn traits(&self) -> Traits {
        Traits::LOCAL
    }

    /// What it asked of the object store that it lies in; none of a device that lies in no such store. It may
    /// be a second old.
    fn store_use(&self) -> Option<StoreUse> {
        None
    }

    /// The name of the medium that it only plays, where its timing is modelled.
    fn modelled(&self) -> Option<String> {
        None
    }

    /// Reads exactly `len` bytes at `offset`; no alignment is asked of the caller.
    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf>;

    /// Writes all of `data` at `offset` and gives the buffer back. Offset and length must be multiples of the
    /// logical sector.
    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf>;

    /// Writes `parts` one after the other from `offset` on, as one transfer. Offset and lengths must be
    /// multiples of the logical sector.
    fn write_gather(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        Box::pin(async move { self.write(offset, SharedBuf::join(parts)).await.map(drop) })
    }

    /// Whether [`Device::write_durably`] is more than a write and a flush: it fails alone, and takes less
    /// time.
    fn has_durable_writes(&self) -> bool {
        false
    }

    /// As [`Device::write_gather`]; these bytes are durable when it is done. Of other writes it says nothing.
    fn write_durably(&self, offset: u64, parts: Vec<SharedBuf>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.write_gather(offset, parts).await?;
            self.flush().await
        })
    }

    /// Makes all writes that completed before this call durable.
    fn flush(&self) -> IoFuture<'_, ()>;

    /// Tells the device that a range is no longer needed. It reads as zeros or as before until it is written
    /// again.
    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()>;
}

/// Whether a range lies within a device. Every device asks this first.
fn check_range(size_bytes: u64, offset: u64, len: u64) -> Result<(), Cause> {
    match offset.checked_add(len) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(Cause::OutOfRange { size_bytes }),
    }
}
