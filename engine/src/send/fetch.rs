//! Data for a stream, read ahead of it.
//!
//! Blocks are read by background threads, decoded there as the stream wants them, and their part of the
//! stream's checksum is computed there: what is left for the thread that makes the records is to wait for
//! each in turn. Blocks are read past the ARC, as a stream needs each once.
//!
//! A block that is as it lies on disk and has a fletcher4 checksum needs no further one: it is the same sum.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use codec::checksum::fletcher4;
use codec::crypt::{DatasetKey, decrypt_block};
use device::IgnorePoison;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use ondisk::ByteOrder;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::byteswap::{Turned, to_little};

use crate::error::{Error, Result};
use crate::traverse::ReadBlocks;
use crate::zio::{decode, decode_embedded};
use crate::{Block, Bookmark, Pool, background};

/// How blocks of one stream are read.
#[derive(Debug)]
pub(super) struct Fetching {
    /// The state that is read. While a read is under way, its space is not reused.
    pub pool: Arc<Pool>,
    /// The number of the object set in the MOS.
    pub objset: u64,
    /// Of a dataset that is encrypted, unless the stream is raw.
    pub key: Option<Arc<DatasetKey>>,
    /// Byte order of the stream.
    pub order: ByteOrder,
}

/// In which form a block goes into a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Decrypted and decompressed, in pieces of at most so many bytes.
    Plain { piece_bytes: usize },
    /// Decrypted, but compressed as it is on disk.
    Compressed,
    /// As it is on disk.
    Raw,
}

/// A block for a stream.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub block: Block,
    /// The fletcher4 checksum of each piece.
    pub sums: Vec<[u64; 4]>,
    pub piece_bytes: usize,
}

impl Fetched {
    /// The ranges of its pieces, with their checksums.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Range<usize>, [u64; 4])> + '_ {
        let length = self.block.len();
        let ranges = (0..length).step_by(self.piece_bytes.max(1));
        ranges
            .zip(&self.sums)
            .map(move |(start, sums)| (start..start.saturating_add(self.piece_bytes).min(length), *sums))
    }
}

/// A block that comes.
#[derive(Debug)]
pub(super) struct Arrival(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    outcome: Mutex<Option<Result<Fetched>>>,
    waker: AtomicWaker,
}

/// Puts the outcome there, also when the read itself fails.
struct Delivery(Arc<Slot>, Bookmark);

impl Delivery {
    fn deliver(&self, outcome: Result<Fetched>) {
        self.0.outcome.lock().ignore_poison().get_or_insert(outcome);
        self.0.waker.wake();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.deliver(Err(Error::Invalid(format!("{}: its read was lost", self.1))));
    }
}

impl Arrival {
    /// Waits until it is there.
    pub(super) async fn wait(self) -> Result<Fetched> {
        poll_fn(|context| {
            self.0.waker.register(context.waker());
            match self.0.outcome.lock().ignore_poison().take() {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl Fetching {
    /// Begins to read a block.
    pub(super) fn begin(self: &Arc<Self>, bp: Blkptr, at: Bookmark, form: Form) -> Arrival {
        let slot = Arc::<Slot>::default();
        let delivery = Delivery(Arc::clone(&slot), at);
        let fetching = Arc::clone(self);
        background::spawn(async move {
            let fetched = fetching.fetch(&bp, &at, form).await;
            delivery.deliver(fetched);
        });
        Arrival(slot)
    }

    async fn fetch(&self, bp: &Blkptr, at: &Bookmark, form: Form) -> Result<Fetched> {
        let (block, is_stored) = match form {
            Form::Plain { .. } => (self.plain(bp, at).await?, false),
            Form::Raw => (Block::from(self.pool.read_raw(bp, at).await?), true),
            Form::Compressed => {
                let mut bytes = self.pool.read_raw(bp, at).await?;
                if let Some(key) = &self.key {
                    decrypt_block(key, bp, &mut bytes).map_err(|error| refused(error, at))?;
                }
                (Block::from(bytes), true)
            }
        };
        let piece_bytes = match form {
            Form::Plain { piece_bytes } => piece_bytes.max(1),
            Form::Compressed | Form::Raw => block.len().max(1),
        };
        let is_stored = is_stored || bp.compress() == CompressType::Off && !bp.is_embedded();
        let is_sum = is_stored
            && piece_bytes >= block.len()
            && bp.checksum_type() == ChecksumType::Fletcher4
            && !bp.uses_crypt()
            && !bp.is_gang()
            && bp.byte_order() == self.order
            && block.len() as u64 == bp.psize().get();
        let sums = match is_sum {
            true => vec![bp.checksum()],
            false => block.chunks(piece_bytes).map(|piece| fletcher4(piece, self.order)).collect(),
        };
        Ok(Fetched { block, sums, piece_bytes })
    }

    /// The block as its readers see it, in the order of the stream.
    async fn plain(&self, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        let block = match bp.embedded() {
            Some(embedded) => decode_embedded(&embedded, at)?,
            None => decode(bp, at, self.pool.read_raw(bp, at).await?, self.key.as_deref())?,
        };
        if bp.byte_order() == self.order {
            return Ok(block);
        }
        let turned = match self.order {
            ByteOrder::Little => to_little(&block, bp.dmu_type(), bp.level().get()),
            ByteOrder::Big => Ok(Turned::Not),
        };
        match turned.map_err(|error| Error::corrupt(at.to_string(), error))? {
            Turned::Same => Ok(block),
            Turned::Bytes(bytes) => Ok(Block::from(device::IoBuf::from(bytes.as_slice()))),
            Turned::Not => Err(other_order(at)),
        }
    }
}

/// The error of a block that cannot be converted to the order of the stream.
pub(super) fn other_order(at: &Bookmark) -> Error {
    Error::Unsupported(format!("{at}: was written in another byte order than the dataset's own block"))
}

fn refused(error: codec::crypt::Error, at: &Bookmark) -> Error {
    match error {
        codec::crypt::Error::Authentication => Error::Authentication { at: *at },
        other => Error::corrupt(at.to_string(), other),
    }
}

impl ReadBlocks for Fetching {
    /// With the key, so that the bonus areas of dnodes are in the clear.
    fn read<'a>(&'a self, bp: &'a Blkptr, at: &'a Bookmark) -> BoxFuture<'a, Result<Block>> {
        Box::pin(async move { decode(bp, at, self.pool.read_raw(bp, at).await?, self.key.as_deref()) })
    }
}
