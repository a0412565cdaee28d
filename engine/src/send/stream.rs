//! One stream, piece by piece.

use std::collections::VecDeque;
use std::sync::Arc;

use ondisk::{ByteOrder, Txg};

use super::begin::Opened;
use super::fetch::{Arrival, Fetching, Form};
use super::found::{Data, Found, Step};
use super::records::Records;
use super::{AHEAD_BYTES, Piece, Request};
use crate::Bookmark;
use crate::dsl::Dsl;
use crate::error::Result;
use crate::traverse::{Births, End, Order, ReadBlocks, Walk};

/// Bytes after which pieces are handed over, if no more are at hand.
const BATCH_BYTES: u64 = 256 << 10;
/// Most steps whose blocks are read ahead.
const AHEAD_STEPS: usize = 1024;

/// A step whose block is being read.
#[derive(Debug)]
enum Ahead {
    Step(Step),
    Data(Data, Form, Arrival),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    Inside,
    Over,
}

/// A stream that is being made.
#[derive(Debug)]
pub struct Stream {
    state: State,
    begin: Option<(ondisk::send::Begin, Vec<u8>)>,
    walk: Walk,
    has_walked: bool,
    found: Found,
    fetching: Arc<Fetching>,
    ahead: VecDeque<Ahead>,
    ahead_bytes: u64,
    records: Records,
}

impl Stream {
    /// Opens what is sent. Nothing of it is read yet.
    ///
    /// # Errors
    /// What is asked for cannot be sent: the key is not loaded, it is redacted, or damaged.
    pub async fn open(dsl: &Dsl, request: &Request) -> Result<Stream> {
        let opened = Opened::open(dsl, request).await?;
        let root = opened.objset.root();
        let order: ByteOrder = root.byte_order();
        let objset = request.dataset.object.0;
        let fetching = Arc::new(Fetching { pool: Arc::clone(dsl.pool()), objset, key: opened.key, order });
        let after = request.from.as_ref().map_or(Txg::NONE, |from| from.txg);
        let reader: Arc<dyn ReadBlocks> = Arc::<Fetching>::clone(&fetching);
        let births = Births::after(after);
        let mut walk = Walk::reading(reader, objset, *root, births, Order::ParentsFirst).with_gaps();
        if let Some((object, offset)) = request.resume {
            let dnode = opened.objset.dnode(object).await?;
            let blkid = offset / dnode.data_block_size();
            walk = walk.resume_at(Bookmark::data(objset, object.0, blkid));
        }
        let meta = &opened.objset.phys().meta_dnode;
        Ok(Stream {
            state: State::Begin,
            walk,
            has_walked: false,
            found: Found::new(meta, after, opened.is_encrypted),
            records: Records::new(&opened.begin, after, order, meta.max_block_id.0),
            begin: Some((opened.begin, opened.payload)),
            fetching,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
        })
    }

    /// The next pieces; nothing at the end.
    ///
    /// # Errors
    /// Something cannot be read. The stream is over then.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>> {
        if self.state == State::Over {
            return Ok(None);
        }
        let made = self.make().await;
        if made.is_err() {
            self.state = State::Over;
        }
        made?;
        Ok(Some(self.records.take()))
    }

    async fn make(&mut self) -> Result<()> {
        if self.state == State::Begin {
            if let Some((begin, payload)) = self.begin.take() {
                self.records.begin(begin, &payload)?;
            }
            self.state = State::Inside;
        }
        while self.records.made_bytes() < BATCH_BYTES {
            self.read_ahead().await?;
            match self.ahead.pop_front() {
                Some(step) => self.put(step).await?,
                None => {
                    self.records.end()?;
                    self.state = State::Over;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Walks on, and begins to read what comes.
    async fn read_ahead(&mut self) -> Result<()> {
        while self.ahead.len() < AHEAD_STEPS && self.ahead_bytes < AHEAD_BYTES {
            match self.found.steps.pop_front() {
                Some(Step::Data(data)) => self.begin_read(data),
                Some(step) => self.ahead.push_back(Ahead::Step(step)),
                None if self.has_walked => return Ok(()),
                None => {
                    self.has_walked = self.walk.run(&mut self.found).await? == End::Complete;
                    self.found.take_error()?;
                }
            }
        }
        Ok(())
    }

    fn begin_read(&mut self, data: Data) {
        let Some(form) = self.records.form(&data) else {
            self.ahead.push_back(Ahead::Step(Step::Data(data)));
            return;
        };
        let at = Bookmark { objset: self.fetching.objset, ..data.at };
        let arrival = self.fetching.begin(data.bp, at, form);
        self.ahead_bytes = self.ahead_bytes.saturating_add(data.bp.lsize().get());
        self.ahead.push_back(Ahead::Data(data, form, arrival));
    }

    async fn put(&mut self, step: Ahead) -> Result<()> {
        let records = &mut self.records;
        match step {
            Ahead::Data(data, form, arrival) => {
                let fetched = arrival.wait().await?;
                self.ahead_bytes = self.ahead_bytes.saturating_sub(data.bp.lsize().get());
                records.data(&data, form, &fetched)
            }
            Ahead::Step(Step::Data(data)) => records.embedded(&data),
            Ahead::Step(Step::ObjectRange { first, slots, bp }) => records.object_range(first, slots, &bp),
            Ahead::Step(Step::Object(object)) => records.object(&object),
            Ahead::Step(Step::FreeObjects { first, count }) => records.free_objects(first, count),
            Ahead::Step(Step::Free { object, offset, length }) => records.free(object, offset, length),
        }
    }
}
