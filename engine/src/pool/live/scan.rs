//! A scrub that OpenZFS began and did not end.
//!
//! Its state stands in the pool directory: what it looks for, how far it is, and a queue of datasets that
//! come next. OpenZFS keeps all that right while datasets come, go and change places. Cenote does not;
//! instead the scrub is put back to its beginning when the pool is taken over: no position, an empty queue,
//! and as its last group the one that does so. That says nothing of any dataset, so that it stays true
//! whatever is done to them, and OpenZFS begins the scrub anew when it opens the pool again.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_scan.c` (`dsl_scan_setup_sync`, `dsl_scan_init`).

use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::pool_directory::{DIRECTORY_OBJECT, SCAN};

use super::Syncing;
use crate::dmu::zap::{self, edit};
use crate::dsl::history;
use crate::error::Result;
use crate::pool::status::{Progress, ScanKind, scan_of};

/// Words of the state.
const WORDS: usize = 24;
/// Where among them stand the function, the state, the queue,
const FUNCTION: usize = 0;
const STATE: usize = 1;
const QUEUE: usize = 2;
/// the first and the last group whose blocks are looked at,
const MIN_TXG: usize = 3;
const MAX_TXG: usize = 4;
/// when it began, how much there is to look at,
const START_TIME: usize = 7;
const TO_EXAMINE: usize = 9;
/// which dedup tables are, and flags.
const DDT_CLASS_MAX: usize = 14;
const FLAGS: usize = 23;
/// The mark that there is no time to look at a dataset now: it belongs to a position.
const VISIT_AGAIN: u64 = 1;

/// Puts a scrub that is under way back to its beginning, as part of the group that takes the pool over.
pub(super) async fn begin_anew(s: &Syncing) -> Result<()> {
    let directory = s.mos().object(DIRECTORY_OBJECT).await?;
    let Some(zap::Value::U64(words)) = edit::lookup(&directory, &zap::Key::Name(SCAN.into())).await? else {
        return Ok(());
    };
    let scrub = scan_of(&words).filter(|scan| scan.kind == ScanKind::Scrub);
    if scrub.is_none_or(|scan| scan.state != Progress::Running) {
        return Ok(());
    }
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    if word(QUEUE) != 0 {
        s.mos().free(&s.tx, ObjectId(word(QUEUE))).await?;
    }
    let queue = s.create_zap(DmuType::SCAN_QUEUE).await?;
    let mut anew = vec![0; WORDS];
    for index in [FUNCTION, STATE, MIN_TXG, TO_EXAMINE, DDT_CLASS_MAX] {
        anew[index] = word(index);
    }
    anew[QUEUE] = queue.id().get();
    anew[MAX_TXG] = s.txg().get();
    anew[START_TIME] = s.now();
    anew[FLAGS] = word(FLAGS) & !VISIT_AGAIN;
    let text = format!("func={} mintxg={} maxtxg={}", word(FUNCTION), word(MIN_TXG), s.txg());
    edit::set(&directory, &s.tx, &zap::Key::Name(SCAN.into()), &zap::Value::U64(anew)).await?;
    let host = s.pool.config().host.1.clone();
    let event = history::event("scan setup", &text, None, s.txg().get(), s.now(), &host);
    s.append_history(&event).await
}
