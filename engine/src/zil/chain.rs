//! The blocks of the log, and the contents of its header. Plain state; nothing here waits.
//!
//! | state | the header on disk | a commit |
//! |---|---|---|
//! | `Empty` | nothing | starts a chain |
//! | `Starting` | from its group on: the first block | waits for its group |
//! | `Running` | the first block still needed | writes |
//! | `Broken` | unchanged | waits for its group; when all records of the blocks are committed, the blocks are freed together |
//! | `Claimed` | the header found at import | waits for its group |
//! | `Ending` | nothing, from its group on | waits for its group |

use std::collections::{BTreeMap, VecDeque};

use ondisk::Txg;
use ondisk::blkptr::Blkptr;
use ondisk::zil::{FLAG_REPLAY_NEEDED, MIN_BLOCK_SIZE, ZilChain, ZilHeader};

use super::plan::most_block_bytes;

/// The number of recent batches that determine the size of the next block.
const MEMORY: usize = 4;

/// A block of the chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogBlock {
    pub bp: Blkptr,
    /// The group in which it was allocated.
    pub allocated: Txg,
    /// The newest group of its records.
    pub max_txg: Txg,
    /// Written and flushed.
    pub is_stable: bool,
}

impl LogBlock {
    /// A block that existed when the pool was imported.
    const FOUND: Self = Self { bp: Blkptr::HOLE, allocated: Txg::NONE, max_txg: Txg::NONE, is_stable: true };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    Starting(Txg),
    Running,
    Broken,
    Claimed(ZilHeader),
    Ending(Txg),
}

/// The blocks that a log gives up in a group.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// Its own blocks.
    pub blocks: Vec<Blkptr>,
    /// References to blocks that may have other references.
    pub clones: Vec<Blkptr>,
}

/// The chain of a dataset.
#[derive(Debug)]
pub(super) struct Chain {
    pub state: State,
    /// The last one ends the chain: it is allocated, but not written.
    blocks: VecDeque<LogBlock>,
    /// Blocks outside of the chain that its records refer to; they are freed with it.
    pub referred: Vec<Blkptr>,
    /// Stored blocks to which it is a reference until it ends.
    clones: Vec<Blkptr>,
    /// Sequence number of the last record.
    pub seq: u64,
    /// The group in which the batch in progress allocated its blocks.
    pub in_flight: Option<Txg>,
    /// The newest group of notes that were taken but not put into the log.
    pub unlogged: Txg,
    /// The last record that was applied in each group.
    replayed: BTreeMap<Txg, u64>,
    recent: VecDeque<usize>,
    synced: Txg,
    /// The header as last decided.
    decided: ZilHeader,
    /// The newest group in which a header was set so that the object set is written.
    dirtied: Txg,
}

impl Chain {
    /// The chain of a header in an object set that is opened while `open` is the open group.
    pub(super) fn found(header: &ZilHeader, open: Txg) -> Self {
        let mut blocks = VecDeque::new();
        let state = if header.is_empty() {
            State::Empty
        } else if header.claim_txg != Txg::NONE {
            if header.flags & FLAG_REPLAY_NEEDED == 0 {
                blocks.push_back(LogBlock { bp: header.log, ..LogBlock::FOUND });
            }
            State::Claimed(*header)
        } else {
            // One block to begin with. Its header is on disk at the latest when the group before the open one
            // is committed.
            let bp = header.log;
            let allocated = bp.logical_birth();
            blocks.push_back(LogBlock { bp, allocated, max_txg: Txg::NONE, is_stable: false });
            State::Starting(Txg(open.get().saturating_sub(1)))
        };
        Self {
            state,
            blocks,
            referred: Vec::new(),
            clones: Vec::new(),
            seq: 0,
            in_flight: None,
            unlogged: Txg::NONE,
            replayed: BTreeMap::new(),
            recent: VecDeque::new(),
            synced: Txg::NONE,
            decided: *header,
            dirtied: Txg::NONE,
        }
    }

    /// The header with which it was opened.
    pub(super) fn found_header(&self) -> ZilHeader {
        self.decided
    }

    pub(super) fn needs_replay(&self) -> bool {
        matches!(self.state, State::Claimed(header) if header.flags & FLAG_REPLAY_NEEDED != 0)
    }

    /// The block with which the next batch begins, if there is one that may be written.
    pub(super) fn end(&mut self, synced: Txg) -> Option<LogBlock> {
        if let State::Starting(txg) = self.state
            && synced >= txg
        {
            self.state = State::Running;
        }
        self.blocks.back().copied().filter(|_| self.state == State::Running)
    }

    /// A new chain whose first block was allocated in `txg`.
    pub(super) fn start(&mut self, bp: Blkptr, txg: Txg) {
        self.blocks = [LogBlock { bp, allocated: txg, max_txg: Txg::NONE, is_stable: false }].into();
        self.state = State::Starting(txg);
    }

    /// Notes that the last block is being written with records of up to `max_txg`, and that the next one was
    /// allocated in `txg`.
    pub(super) fn extend(&mut self, max_txg: Txg, next: Blkptr, txg: Txg) {
        if let Some(end) = self.blocks.back_mut() {
            end.max_txg = max_txg;
        }
        self.blocks.push_back(LogBlock { bp: next, allocated: txg, max_txg: Txg::NONE, is_stable: false });
    }

    /// Notes that all blocks but the last are stable.
    pub(super) fn stabilize(&mut self) {
        let unstable = self.blocks.iter_mut().rev().skip(1).take_while(|block| !block.is_stable);
        unstable.for_each(|block| block.is_stable = true);
    }

    /// Notes that the chain cannot be continued.
    pub(super) fn fail(&mut self) {
        if matches!(self.state, State::Running | State::Starting(_)) {
            self.state = State::Broken;
        }
    }

    /// Adds blocks found on disk, which are freed with the chain.
    pub(super) fn adopt(&mut self, blocks: Vec<Blkptr>, referred: Vec<Blkptr>, clones: Vec<Blkptr>) {
        self.blocks = blocks.into_iter().map(|bp| LogBlock { bp, ..LogBlock::FOUND }).collect();
        self.referred = referred;
        self.clones = clones;
    }

    /// Notes that a record was applied in the group `txg`.
    pub(super) fn applied(&mut self, txg: Txg, seq: u64) {
        self.replayed.insert(txg, seq);
    }

    /// The present header, for a change of the open group `txg`. [`Chain::sync`] decides which header goes to
    /// disk.
    pub(super) fn dirty(&mut self, txg: Txg) -> ZilHeader {
        self.dirtied = self.dirtied.max(txg);
        self.header()
    }

    fn header(&self) -> ZilHeader {
        match self.state {
            State::Claimed(header) => header,
            State::Empty => ZilHeader::default(),
            _ => {
                let log = self.blocks.front().map_or(Blkptr::HOLE, |block| block.bp);
                ZilHeader { log, ..ZilHeader::default() }
            }
        }
    }

    /// The effect of the group `txg`, which is being synced, on the log: the header to write, if it differs,
    /// and the blocks to give up.
    pub(super) fn sync(&mut self, txg: Txg) -> (Option<ZilHeader>, GivenUp) {
        let mut freed = GivenUp::default();
        if self.synced == txg {
            return (None, freed);
        }
        self.synced = txg;
        if let State::Claimed(header) = &mut self.state {
            let later = self.replayed.split_off(&Txg(txg.get() + 1));
            if let Some((_, seq)) = self.replayed.pop_last() {
                header.replay_seq = header.replay_seq.max(seq);
            }
            self.replayed = later;
        }
        if matches!(self.state, State::Running | State::Broken) {
            while self.blocks.len() > 1
                && let Some(first) = self.blocks.front()
                && first.is_stable
                && first.allocated <= txg
                && first.max_txg <= txg
            {
                freed.blocks.push(first.bp);
                self.blocks.pop_front();
            }
        }
        let is_over = match self.state {
            State::Ending(end) => end <= txg,
            State::Broken => self.blocks.iter().all(|block| block.allocated <= txg && block.max_txg <= txg),
            _ => false,
        };
        if is_over {
            freed.blocks.extend(self.blocks.drain(..).map(|block| block.bp));
            freed.blocks.append(&mut self.referred);
            freed.clones.append(&mut self.clones);
            self.replayed.clear();
            self.state = State::Empty;
        }
        let header = self.header_in(txg);
        let is_to_be_written = header != self.decided || self.dirtied >= txg;
        self.decided = header;
        (Some(header).filter(|_| is_to_be_written), freed)
    }

    fn header_in(&self, txg: Txg) -> ZilHeader {
        match self.state {
            // The block belongs to a later group, in which the header will be written.
            State::Starting(start) if start > txg => ZilHeader::default(),
            _ => self.header(),
        }
    }

    /// Remembers the size of a batch, and returns the size of the block that will wait for the next batch.
    pub(super) fn predict(&mut self, batch_bytes: usize) -> usize {
        if self.recent.len() == MEMORY {
            self.recent.pop_front();
        }
        self.recent.push_back(batch_bytes);
        let most = self.recent.iter().copied().max().unwrap_or_default();
        most.saturating_add(ZilChain::SIZE).min(most_block_bytes()).next_multiple_of(MIN_BLOCK_SIZE)
    }
}
