//! Volumes as block devices, whatever protocol they are served through.
//!
//! # The idea
//! A protocol ([`crate::nbd`], [`crate::iscsi`], [`crate::vhost_user`]) knows [`Exports`], opens one by its
//! name, and asks it to read, write and so on. What an export is ([`crate::daemon`]), and what becomes of its
//! requests while a volume is renamed, rolled back or taken away, no protocol knows. The load generator and
//! the kernel's block devices stand on the same seam.
//!
//! | module | what it owns |
//! |---|---|
//! | `changes` | telling protocols that the exports may be others than before |
//! | `layers` | what is done around the requests of an export, one type for each concern |
//! | `limits` | the number of clients, and the memory that they may use together |
//! | `newcomers` | clients that have not chosen an export yet |
//! | `shares` | which protocols serve a volume, and to whom |
//! | `under_way` | requests that are not done yet, for a person who asks why a client waits |

mod changes;
mod gathered;
mod layers;
mod limits;
mod newcomers;
pub mod shares;
mod under_way;

use std::{future::Future, sync::Arc};

use device::IoBuf;
use engine::dmu::Sink;

pub use changes::{Announcer, Changes};
pub use gathered::Gathered;
pub use layers::{BlockOperation, BlockRequest, Layer, Layered};
pub use limits::{Limits, MOST_SHARED_BYTES, OWN_BYTES, SharedMemory};
pub(crate) use limits::{Loan, Resources, Seat};
pub(crate) use newcomers::{Newcomer, Newcomers, accepted};
pub use shares::{Caller, Percent, Protocol, SectorBytes, Share, Shares};
pub use under_way::{Asked, ListedRequest, Pending, SLOW, UnderWay};

/// The exports that a protocol serves, by name.
pub trait Exports: Send + Sync + 'static {
    /// The kind of export.
    type Export: Export;

    /// Those that the caller may have. An export may exist without being listed.
    fn listed(&self, caller: Caller<'_>) -> impl Future<Output = Vec<Listed>> + Send;

    /// The export of that name, if the caller may have it. May take as long as it takes: clients are told
    /// when it takes too long.
    fn open(
        &self,
        name: &str,
        caller: Caller<'_>,
    ) -> impl Future<Output = Result<Arc<Self::Export>, Unopened>> + Send;

    /// Waits, not for long, until all exports are there that are about to come. Whether they are.
    fn complete(&self) -> impl Future<Output = bool> + Send {
        async { true }
    }

    /// Those that would be listed and cannot be opened, for a reason that only a person can change, as an
    /// encryption key that is not loaded.
    fn unavailable(&self, caller: Caller<'_>) -> impl Future<Output = Vec<Listed>> + Send {
        let _ = caller;
        std::future::ready(Vec::new())
    }

    /// Tells when those that are listed may be others than before, or shared otherwise.
    fn changes(&self) -> Changes {
        Changes::none()
    }
}

/// An export that may be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The number that it keeps ([`Export::guid`]).
    pub guid: u64,
    /// How the protocol serves it.
    pub share: Share,
}

impl Listed {
    /// One that all may have.
    pub fn to_all(name: impl Into<String>) -> Self {
        Self { name: name.into(), guid: 0, share: Share::default() }
    }
}

/// The exports as one client sees them.
pub(crate) struct Visit<'a, X> {
    pub exports: &'a X,
    pub caller: Caller<'a>,
}

impl<X: Exports> Visit<'_, X> {
    pub async fn names(&self) -> Vec<String> {
        self.exports.listed(self.caller).await.into_iter().map(|listed| listed.name).collect()
    }

    pub async fn open(&self, name: &str) -> Result<Arc<X::Export>, Unopened> {
        self.exports.open(name, self.caller).await
    }
}

/// Why an export was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// There is none of that name.
    Unknown,
    /// It cannot be used at present, for a reason that the client is told.
    Unavailable(String),
}

/// A block device. Read-only, unless it says otherwise and has all methods. Any number of connections may
/// have it at once: what a reply to one of them says is done, all others see.
pub trait Export: Send + Sync + 'static {
    /// Its size at present.
    fn size_bytes(&self) -> u64;

    /// The size and alignment of requests that cost the least. A power of two.
    fn block_bytes(&self) -> u32;

    /// The room for what is written to it; nothing where that is not known.
    fn room(&self) -> Option<Room> {
        None
    }

    /// A number that it keeps, whatever its name is; 0 for one that has none.
    fn guid(&self) -> u64 {
        0
    }

    /// What it is called now; nothing for one that has no name.
    fn name(&self) -> Option<String> {
        None
    }

    /// Where requests of its client are listed that are not done yet; nothing where that is not done.
    fn under_way(&self) -> Option<&Arc<UnderWay>> {
        None
    }

    /// Whether it can be written.
    fn is_writable(&self) -> bool {
        false
    }

    /// Whether another host has it by now: the connection is to end without further answers, so that the
    /// client comes again and finds that host.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Fills `into` with what is at `offset`; the range lies within the size. Ready in the first poll when
    /// cached.
    fn read(&self, offset: u64, into: &mut [u8]) -> impl Future<Output = Result<(), ExportError>> + Send;

    /// Like [`Export::read`], into a sink, by one copy less where the export can.
    fn read_to(
        &self,
        offset: u64,
        len_bytes: usize,
        sink: &mut dyn Sink,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async move {
            let mut data = IoBuf::for_overwrite(len_bytes);
            self.read(offset, &mut data).await?;
            sink.put(&data);
            Ok(())
        }
    }

    /// The state of the bytes from `offset` on, which lies within the size. The extent may be shorter
    /// than the whole run of its kind, but not empty, and may reach past the end.
    fn extent(&self, offset: u64) -> impl Future<Output = Result<Extent, ExportError>> + Send;

    /// Writes. When `stable`, the bytes survive a crash once this is ready (FUA). Ready in the first poll
    /// when only buffered.
    fn write(
        &self,
        _offset: u64,
        _data: IoBuf,
        _stable: bool,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }

    /// Gives space back: what lies in the range reads as zeroes or as before.
    fn trim(
        &self,
        _offset: u64,
        _len_bytes: u64,
        _stable: bool,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }

    /// Makes a range read as zeroes, in less time than writing them takes unless `allocate`: then the range
    /// takes space afterwards as if they were written.
    fn write_zeroes(
        &self,
        _offset: u64,
        _len_bytes: u64,
        _allocate: bool,
        _stable: bool,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }

    /// How far what is written is from being stable; nothing where that is not known.
    fn durability(&self) -> Option<Durability> {
        None
    }

    /// Which writes are stable when they are replied to.
    fn stability(&self) -> Stability {
        Stability::default()
    }

    /// Makes everything stable whose write was replied to, on any connection.
    fn flush(&self) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Ok(()) }
    }

    /// Copies a range of another export, or of this one, to a range here; the ranges lie within the sizes and
    /// do not overlap. Blocks are shared where both are of one pool and that can be done. `None` where this
    /// does not copy, and the caller has to read and write.
    fn copy_from(
        &self,
        _source: &Self,
        _source_offset: u64,
        _offset: u64,
        _len_bytes: u64,
    ) -> impl Future<Output = Result<Option<Copied>, ExportError>> + Send {
        async { Ok(None) }
    }

    /// What a protocol keeps with the export ([`Export::keep`]).
    fn kept(&self) -> impl Future<Output = Result<Option<String>, ExportError>> + Send {
        async { Ok(None) }
    }

    /// Keeps a text with the export, in place of the one before, so that it outlives the daemon. It is stable
    /// when this is ready. At most [`MOST_KEPT_BYTES`].
    fn keep(&self, _text: Option<String>) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }
}

/// The room for what is written to an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that can still be written.
    pub left_bytes: u64,
    /// Bytes that could be, if nothing were.
    pub most_bytes: u64,
}

impl Room {
    /// Whether more than this share of it is taken.
    pub fn is_beyond(&self, threshold: Percent) -> bool {
        self.left_bytes < threshold.rest_of(self.most_bytes)
    }
}

/// The most bytes of a text that is kept with an export.
pub const MOST_KEPT_BYTES: usize = 8 << 10;

/// What became of the bytes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes in blocks that are shared now.
    pub cloned_bytes: u64,
}

/// What decides whether writes without a flush survive the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// A number of this opening of the pool, which no other opening has.
    pub opened: u64,
    /// The last transaction group that was committed when it was opened.
    pub opened_at: u64,
    /// The group that is open now: what was written until now is in it or in an earlier one.
    pub group: u64,
}

/// Which writes survive the end of the process once they are replied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stability {
    /// Those that ask for it, and those before a flush (`sync=standard`).
    #[default]
    WhenAsked,
    /// All of them (`sync=always`).
    Always,
    /// Those whose transaction group is committed, whatever is asked for (`sync=disabled`).
    ByGroup,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub len_bytes: u64,
    /// Never written: it takes no space and reads as zeros.
    pub is_hole: bool,
}

/// The kinds of failure that protocols tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A write to what is read-only.
    ReadOnly,
    /// The data could not be read or written.
    Io,
    /// The request makes no sense.
    Invalid,
    /// There is no room for it.
    NoSpace,
    /// The export is going away.
    Gone,
}

impl FailureKind {
    /// Linux's number for it.
    pub fn errno(self) -> i32 {
        match self {
            Self::ReadOnly => libc::EPERM,
            Self::Io => libc::EIO,
            Self::Invalid => libc::EINVAL,
            Self::NoSpace => libc::ENOSPC,
            Self::Gone => libc::ESHUTDOWN,
        }
    }
}

/// Why an export could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExportError {
    /// What protocols tell a client.
    pub kind: FailureKind,
    /// For a person. Clients see it where they take structured replies.
    pub message: String,
}

impl ExportError {
    fn read_only() -> Self {
        Self { kind: FailureKind::ReadOnly, message: "the export is read-only".into() }
    }
}
