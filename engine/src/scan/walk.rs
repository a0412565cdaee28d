//! Walking from the cursor on, dataset by dataset, and gathering the blocks of the scan.
//!
//! The blocks that lead on are read here without counting errors, one good copy of each. They are gathered
//! like all others, so that all that is stored of them is verified in its turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ondisk::ObjsetId;
use ondisk::blkptr::Blkptr;
use ondisk::zil::ZilHeader;

use super::cursor::{Cursor, Place};
use super::{Counters, Gathered, Guard, Purpose, ScanLimits, StaleTops, lineage};
use crate::dmu::Objset;
use crate::dsl::Dsl;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::traverse::{Births, Descend, End, Node, Order, ReadBlocks, Visitor, Walk};
use crate::zio::{How, decode};
use crate::{Block, Bookmark, zil};

/// Blocks after which the walk looks whether it is to go on.
const LOOK_INTERVAL: u32 = 64;

/// Why a batch ended without a result.
#[derive(Debug)]
pub(crate) enum Interrupted {
    /// Its view was taken back.
    Taken,
    /// It is not to go on.
    Stopped,
    /// An error that it cannot make up for.
    Failed(Error),
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// The blocks to be read.
    pub gathered: Gathered,
    /// What was met.
    pub counters: Counters,
    /// Blocks that could not be read, or make no sense.
    pub damaged: BTreeSet<Bookmark>,
    /// Nothing comes after these.
    pub is_all: bool,
}

/// What a walk needs.
pub(crate) struct Walking<'a> {
    pub store: &'a Arc<Store>,
    pub guard: Arc<dyn Guard>,
    pub purpose: Purpose,
    pub limits: ScanLimits,
    pub stale: &'a StaleTops,
    /// Whether to go on.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// Walks from `cursor` on, which moves, until the limits are reached or all is walked.
///
/// # Errors
/// The view was taken back, or the walk is not to go on: what `cursor` says then is nothing.
pub(crate) async fn walk(walking: &Walking<'_>, cursor: &mut Cursor) -> Result<Walked, Interrupted> {
    let mut walked = Walked::default();
    loop {
        match cursor.place() {
            Place::Mos => {
                let Some(view) = walking.guard.hold() else { return Err(Interrupted::Taken) };
                let root = *view.root_blkptr();
                drop(view);
                cursor.enter_mos(&walking.purpose);
                if !walk_objset(walking, cursor, 0, root, &mut walked).await? {
                    return Ok(walked);
                }
                let dsl = dsl(walking).await?;
                match dsl.origin_snapshot() {
                    Some(origin) => {
                        // It has no blocks.
                        let (_, links) = lineage::dataset(&dsl, origin.get()).await?;
                        cursor.leave_mos([]);
                        cursor.leave(origin.get(), &links, &walking.purpose);
                    }
                    None => cursor.leave_mos(lineage::firsts(&dsl).await?),
                }
            }
            Place::Dataset(object) => {
                let (root, links) = lineage::dataset(&dsl(walking).await?, object).await?;
                let has_blocks = !root.is_hole() && cursor.is_needed(&walking.purpose);
                if has_blocks && !walk_objset(walking, cursor, object, root, &mut walked).await? {
                    return Ok(walked);
                }
                if !root.is_hole() && !links.is_snapshot {
                    gather_log(walking, object, &root, &mut walked).await?;
                }
                cursor.leave(object, &links, &walking.purpose);
            }
            Place::Between => {
                let Some((object, after)) = cursor.take_next() else {
                    walked.is_all = true;
                    return Ok(walked);
                };
                let (_, links) = lineage::dataset(&dsl(walking).await?, object).await?;
                if links.is_loop(after) {
                    tracing::warn!(object, %after, "a snapshot is not newer than the one that it follows");
                    continue;
                }
                cursor.enter(object, after, &links, &walking.purpose);
            }
        }
        if !(walking.goes_on)() {
            return Err(Interrupted::Stopped);
        }
    }
}

/// The datasets of the view.
async fn dsl(walking: &Walking<'_>) -> Result<Dsl, Interrupted> {
    let view = walking.guard.hold().ok_or(Interrupted::Taken)?;
    Ok(Dsl::open(&view).await?)
}

/// Walks an object set from the cursor on. False when it stopped before the end.
async fn walk_objset(
    walking: &Walking<'_>,
    cursor: &mut Cursor,
    objset: u64,
    root: Blkptr,
    walked: &mut Walked,
) -> Result<bool, Interrupted> {
    let reader = Arc::new(Reader { store: Arc::clone(walking.store), guard: Arc::clone(&walking.guard) });
    let births = Births::after(cursor.cur_min);
    let mut walk = Walk::reading(reader, objset, root, births, Order::ParentsFirst).resume_at(cursor.at);
    let mut visit = Visit { walking, cur_max: cursor.cur_max, walked, until_look: 0, is_interrupted: false };
    match walk.run(&mut visit).await {
        Ok(End::Complete) => Ok(true),
        Ok(End::Stopped(_)) if visit.is_interrupted => Err(Interrupted::Stopped),
        Ok(End::Stopped(at)) => {
            cursor.at = at;
            Ok(false)
        }
        Err(error) => match walking.guard.hold() {
            Some(_) => Err(Interrupted::Failed(error)),
            None => Err(Interrupted::Taken),
        },
    }
}

/// Gathers the log of a dataset, as a whole. Its blocks count however old they are, because no snapshot has
/// them.
async fn gather_log(
    walking: &Walking<'_>,
    objset: u64,
    root: &Blkptr,
    walked: &mut Walked,
) -> Result<(), Interrupted> {
    let Some(view) = walking.guard.hold() else { return Err(Interrupted::Taken) };
    let objset = ObjsetId(objset);
    // Where the root is damaged the walk found that.
    let Ok(opened) = Objset::open_without_key(&view, objset, root).await else { return Ok(()) };
    let Ok(header) = ZilHeader::parse(&opened.phys().zil_header, opened.phys().order) else { return Ok(()) };
    for (bp, at) in zil::waiting_blocks(walking.store, objset, &header).await {
        meet(walking, walked, &bp, &at);
    }
    Ok(())
}

/// Counts a block, and gathers it if the scan is to read it.
fn meet(walking: &Walking<'_>, walked: &mut Walked, bp: &Blkptr, at: &Bookmark) {
    let (birth, purpose, bytes) = (bp.physical_birth(), &walking.purpose, bp.asize().get());
    let counters = &mut walked.counters;
    if birth <= purpose.after || birth > purpose.until {
        counters.skipped += bytes;
        return;
    }
    counters.examined += bytes;
    if purpose.is_resilver && !walking.stale.lack(walking.store.vdevs(), bp) {
        counters.skipped += bytes;
    } else {
        walked.gathered.push(bp, at, !purpose.is_resilver);
    }
}

struct Visit<'a, 'w> {
    walking: &'a Walking<'w>,
    cur_max: ondisk::Txg,
    walked: &'a mut Walked,
    until_look: u32,
    is_interrupted: bool,
}

impl Visitor for Visit<'_, '_> {
    fn stops(&mut self, _: &Bookmark) -> bool {
        if self.until_look == 0 {
            self.until_look = LOOK_INTERVAL;
            self.is_interrupted = !(self.walking.goes_on)();
        }
        self.until_look -= 1;
        self.is_interrupted || self.walked.gathered.is_full(&self.walking.limits)
    }

    fn block(&mut self, node: &Node) -> Descend {
        let bp = &node.bp;
        // What is newer is met again in a later dataset.
        if !bp.is_embedded() && bp.physical_birth() <= self.cur_max {
            meet(self.walking, self.walked, bp, &node.at);
        }
        Descend::Into
    }

    fn damaged(&mut self, at: Bookmark, error: Error) -> Result<()> {
        // Otherwise the place may hold another block.
        let Some(view) = self.walking.guard.hold() else { return Err(error) };
        // What could not be read was noted when it was read.
        if !matches!(error, Error::Io { .. } | Error::Checksum { .. }) {
            view.damage.note(&at, ondisk::Txg::NONE);
        }
        if self.walked.damaged.insert(at) {
            self.walked.counters.errors += 1;
            tracing::warn!(pool = view.name(), %at, %error, "a scan found a block that cannot be followed");
        }
        Ok(())
    }
}

/// Reads without counting errors, unless the block is certain to be there.
struct Reader {
    store: Arc<Store>,
    guard: Arc<dyn Guard>,
}

impl ReadBlocks for Reader {
    fn read<'a>(&'a self, bp: &'a Blkptr, at: &'a Bookmark) -> BoxFuture<'a, Result<Block>> {
        Box::pin(async move {
            let how = How { speculative: true, ..How::default() };
            if let Ok(bytes) = self.store.read_copies(bp, &how).await {
                return decode(bp, at, bytes, None);
            }
            let _held = self.guard.hold().ok_or_else(|| Error::Busy("the view was taken back".into()))?;
            decode(bp, at, self.store.read_raw(bp, at).await?, None)
        })
    }
}
