//! Receiving streams: records are put into a dataset that nothing else uses.
//!
//! # The idea
//! [`Records`] reads a stream record by record, verified, with one payload in memory at a time. A
//! [`Receiver`] begins with a task that makes the dataset which is filled ([`crate::dsl::edit::receive`]),
//! applies the records to its object set (`objects`), and ends with a task that puts the contents and the
//! snapshot in their place. Data are accepted like those of any user: room is asked for, and dirty data are
//! bounded. Blocks that come compressed are stored as they came, once it is sure that they decompress;
//! what comes embedded is stored as the dataset's properties say.
//!
//! Raw streams bring blocks encrypted, and nothing of them is decrypted here ([`crate::dmu`] has how object
//! sets are written so).
//!
//! # Invariants
//! - A record is checked before anything of it reaches an object: what is accepted into a group must be
//!   writable (`checks`).
//! - What is received belongs to the receiver alone until the end, and so do its groups: records are applied
//!   in the order of the stream.
//! - A receive that can be resumed notes the last record of each group with that group.
//!
//! Source of the facts: OpenZFS 2.3 `dmu_recv.c`.
//!
//! | module | what it owns |
//! |---|---|
//! | `records` | a stream from a source of bytes |
//! | `checks` | what records may say |
//! | `objects` | records that change objects |
//! | `raw` | records of raw streams: blocks as they are stored |
//! | `data` | the bytes of blocks as they are stored |

mod checks;
mod data;
mod objects;
mod raw;
mod records;

use std::sync::Arc;

use ondisk::nvlist::Nvlist;
use ondisk::send::{Begin, KeyData, ObjectRange, Record, begin_flag, begin_key, feature};
use ondisk::{ByteOrder, ObjsetId};

pub use crate::dsl::edit::receive::{
    RECEIVE_CHILD, ReceiveTarget, abort as abort_receive, check_stream, is_of_volume,
};
pub use records::Records;

use crate::dmu::{LiveObject, LiveObjset};
use crate::dsl::LiveDataset;
use crate::dsl::edit::receive::{self as edit, BegunReceive, ResumePoint};
use crate::error::{Error, Result};
use crate::pool::live::{LivePool, Syncing};

/// A stream that is being received.
#[derive(Debug)]
pub struct Receiver {
    pool: Arc<LivePool>,
    dataset: Arc<LiveDataset>,
    begin: Begin,
    target: ReceiveTarget,
    begun: BegunReceive,
    order: ByteOrder,
    /// Object and offset of the last record with data.
    last: (u64, u64),
    /// Bytes of the stream before the part that is received now.
    bytes_before: u64,
    /// Whether the pool may have blocks of each compression that a stream can have.
    keeps_compressed: bool,
    /// The object of the last record.
    current: Option<Arc<LiveObject>>,
    /// The block of dnodes that a raw stream is in.
    range: Option<ObjectRange>,
}

impl Receiver {
    /// Begins to receive the stream of `begin`, whose nvlist is `payload`, in the byte order of its sender.
    ///
    /// # Errors
    /// All that is refused before anything is changed: what the stream needs and the pool has not, a
    /// destination to which it does not fit, no room. [`Error::NotFound`] where the destination, or its
    /// parent, is missing.
    pub async fn begin(
        pool: &Arc<LivePool>,
        (begin, payload, order): (&Begin, &[u8], ByteOrder),
        target: &ReceiveTarget,
    ) -> Result<Self> {
        edit::check_stream(begin)?;
        let resumes_at = resume_place(begin, payload)?;
        let keys = key_data((begin, payload, order))?;
        let keys_of_task = keys.clone();
        let (begin_of_task, target_of_task) = (begin.clone(), target.clone());
        let (begun, keeps_compressed) = pool
            .change(move |s| async move {
                let s = s.asked_by(target_of_task.asker.clone());
                let begun = edit::begin(&s, (&begin_of_task, keys_of_task.as_ref()), &target_of_task).await?;
                Ok((begun, s.has_version(ondisk::pool_version::FEATURES)))
            })
            .await?;
        let opened = async {
            if let (Some(at), Some(point)) = (resumes_at, &begun.resumes)
                && at != (point.object, point.offset)
            {
                let (object, offset) = (point.object, point.offset);
                return Err(Error::Invalid(format!(
                    "invalid stream: it goes on at object {}, offset {}, and what was received in part at \
                     object {object}, offset {offset}",
                    at.0, at.1
                )));
            }
            let dataset = pool.dataset(begun.objset).await?;
            if let Some(keys) = &keys {
                dataset.objset.receive_raw(&keys.objset)?;
            }
            Ok(dataset)
        };
        let dataset = match opened.await {
            Ok(dataset) => dataset,
            Err(error) => {
                abandon(pool, begun.objset, true).await?;
                return Err(error);
            }
        };
        let point = begun.resumes.unwrap_or_default();
        Ok(Self {
            pool: Arc::clone(pool),
            dataset,
            begin: begin.clone(),
            target: target.clone(),
            bytes_before: point.bytes,
            // A resuming stream may begin with the whole block in which it broke off.
            last: (0, 0),
            begun,
            order,
            keeps_compressed,
            current: None,
            range: None,
        })
    }

    /// Whether there was no such dataset.
    pub fn is_new(&self) -> bool {
        self.begun.is_new()
    }

    /// The dataset that gets the contents.
    pub fn head(&self) -> ObjsetId {
        self.begun.head
    }

    /// Applies the records of the stream, up to its end.
    ///
    /// # Errors
    /// The stream is damaged, ends early, or does not fit what was received before; there is no room. The
    /// message says at which byte of the stream. The caller abandons the receive then.
    pub async fn run(&mut self, records: &mut Records<'_>) -> Result<()> {
        loop {
            let started = records.position();
            let Some((record, payload)) = records.next_record()? else {
                return Err(Error::Invalid(format!("incomplete stream: it ends at byte {started}")));
            };
            if let Record::End(_) = record {
                return Ok(());
            }
            let read = started + ondisk::send::RECORD_SIZE as u64 + payload.len() as u64;
            let bytes = self.bytes_before.saturating_add(read);
            self.apply(&record, payload, bytes).await.map_err(|error| match error {
                Error::Invalid(text) => Error::Invalid(format!("invalid stream at byte {started}: {text}")),
                Error::Unsupported(text) => {
                    Error::Unsupported(format!("{text} (byte {started} of the stream)"))
                }
                error => error,
            })?;
        }
    }

    /// The stream has ended: puts its contents and the snapshot in their place. The destination's intent log
    /// must be given back, and users that have it open must close it. Gives the full name of the snapshot.
    ///
    /// # Errors
    /// The destination was changed meanwhile. Nothing is changed then, and the caller abandons the receive.
    pub async fn end(&mut self) -> Result<String> {
        self.current = None;
        self.finish_raw().await?;
        let (begin, target, begun) = (self.begin.clone(), self.target.clone(), self.begun.clone());
        let end = move |s: Syncing| async move {
            let s = s.asked_by(target.asker.clone());
            edit::end(&s, &begin, &target, &begun).await
        };
        self.pool.change(end).await
    }

    /// Ends the receive before its stream. Where it may be resumed, what was received stays.
    ///
    /// # Errors
    /// What was begun cannot be destroyed; the next import tries again.
    pub async fn abandon(self) -> Result<()> {
        let (pool, objset, keeps) = (Arc::clone(&self.pool), self.begun.objset, self.target.resumable);
        let keeps = keeps || self.begun.resumes.is_some();
        drop(self);
        abandon(&pool, objset, keeps).await
    }

    fn objset(&self) -> &Arc<LiveObjset> {
        &self.dataset.objset
    }

    /// A stream whose records say which objects have spill blocks.
    fn tells_spill(&self) -> bool {
        self.begin.flags & begin_flag::SPILL_BLOCK != 0
    }

    /// A stream that is not incremental.
    fn is_full(&self) -> bool {
        self.begin.from_guid.get() == 0
    }
}

async fn abandon(pool: &Arc<LivePool>, objset: ObjsetId, keeps: bool) -> Result<()> {
    pool.change(move |s| async move { edit::abandon(&s, objset, keeps).await }).await
}

/// The keys of a raw stream.
fn key_data((begin, payload, order): (&Begin, &[u8], ByteOrder)) -> Result<Option<Arc<KeyData>>> {
    if begin.features & feature::RAW == 0 {
        return Ok(None);
    }
    if order == ByteOrder::Big {
        return Err(Error::Unsupported(
            "raw streams of big-endian machines cannot be received by this version".to_owned(),
        ));
    }
    let keys =
        Nvlist::parse(payload).and_then(|list| KeyData::parse(list.get_nvlist(begin_key::CRYPT_KEYDATA)?));
    keys.map(|keys| Some(Arc::new(keys)))
        .map_err(|error| Error::Invalid(format!("invalid stream: its keys: {error}")))
}

/// Where a stream goes on that resumes another one.
fn resume_place(begin: &Begin, payload: &[u8]) -> Result<Option<(u64, u64)>> {
    if begin.features & feature::RESUMING == 0 {
        return Ok(None);
    }
    let place = Nvlist::parse(payload).and_then(|list| {
        Ok((list.get_u64(begin_key::RESUME_OBJECT)?, list.get_u64(begin_key::RESUME_OFFSET)?))
    });
    place.map(Some).map_err(|error| Error::Invalid(format!("invalid stream: where it goes on: {error}")))
}
