//! Copies volumes that get another block size ([`crate::pool::live::ReshapeStatus`]): one thread for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::ObjsetId;

use super::{Pass, Reshape, Swapped};
use crate::dsl::edit::reshape as edit;
use crate::error::{Error, Result};
use crate::jobs::{Job, JobState, Step, Stop, Turn};
use crate::pool::live::{JobKey, LivePool, Syncing};

/// A step ends after so long.
const STEP: Duration = Duration::from_millis(250);
/// How far a pass is, is written down this often.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before something is tried again that cannot be done now.
const RETRY: Duration = Duration::from_millis(200);
/// The pause after clients could not be held.
const NOT_HELD: Duration = Duration::from_secs(2);
/// What clients wrote since a pass that is this old is copied before they are held.
const STALE: Duration = Duration::from_secs(5);
/// So often that is not held to be a failure.
const RETRIES: u32 = 100;
/// So often something may come between when clients are held.
const EXCHANGES: u32 = 10;
/// Clients are held when a pass took no longer than this: about so long they wait.
const SHORT_PASS: Duration = Duration::from_secs(1);
/// After so many passes it may take longer: clients write almost as fast as is copied.
const MANY_PASSES: u32 = 8;
/// But no longer than this. Copying goes on until a pass is short enough.
const LONGEST_PASS: Duration = Duration::from_secs(10);

/// What the pool has of a copy's progress becomes what it is now.
pub(super) async fn keep(s: &Syncing, copy: ObjsetId) -> Result<()> {
    let Ok(reshape) = s.pool.parts.reshape.get(copy) else { return Ok(()) };
    let is_paused = match s.pool.jobs.state_of(&JobKey::Reshape(copy)) {
        Some(JobState::Active) => false,
        Some(JobState::Suspended) => true,
        _ => return Ok(()),
    };
    if reshape.swapped.is_some() || reshape.is_canceled {
        return Ok(());
    }
    s.pool.parts.reshape.update(copy, |reshape| reshape.mark.is_paused = is_paused);
    edit::note(s, copy, s.pool.parts.reshape.get(copy)?.mark).await
}

/// Copies one volume.
pub(super) struct Copying {
    copy: ObjsetId,
    pass: Option<Pass>,
    /// When this pass began here.
    began: Instant,
    noted: Instant,
    retries: u32,
    failed_exchanges: u32,
    /// The copy was as good as complete then: clients are to be held.
    ready: Option<Instant>,
}

impl Copying {
    pub fn new(copy: ObjsetId) -> Self {
        let now = Instant::now();
        Self { copy, pass: None, began: now, noted: now, retries: 0, failed_exchanges: 0, ready: None }
    }
}

impl Job<LivePool> for Copying {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        self.next(turn).boxed_local()
    }
}

impl Copying {
    /// A step. What fails pauses the copy, with the reason for its user.
    async fn next(&mut self, turn: &Turn<'_, LivePool>) -> Result<Step> {
        let pool = turn.host()?;
        if pool.suspended().is_some() {
            return Ok(Step::More { pause: RETRY });
        }
        let error = match self.act(&pool, turn).await {
            Ok(step) => {
                self.retries = 0;
                return Ok(step);
            }
            Err(error) => error,
        };
        self.pass = None;
        if !turn.goes_on() {
            return Ok(Step::More { pause: Duration::ZERO });
        }
        self.failed_exchanges += u32::from(self.ready.is_some());
        let may_pass = self.retries < RETRIES && self.failed_exchanges < EXCHANGES;
        if pool.suspended().is_some() || matches!(error, Error::Busy(_)) && may_pass {
            self.retries += 1;
            self.ready = None;
            return Ok(Step::More { pause: RETRY });
        }
        tracing::warn!(pool = pool.pool().name(), %error, "the copy of a volume does not go on");
        pool.parts.reshape.update(self.copy, |reshape| {
            reshape.error = Some(error.to_string());
            reshape.cancels = false;
        });
        pool.jobs.stop(&pool, &[JobKey::Reshape(self.copy)], Stop::Suspend).await?;
        Ok(Step::More { pause: Duration::ZERO })
    }

    async fn act(&mut self, pool: &Arc<LivePool>, turn: &Turn<'_, LivePool>) -> Result<Step> {
        let reshape = pool.parts.reshape.get(self.copy)?;
        if reshape.swapped.is_some() || reshape.is_canceled {
            return Ok(Step::Complete);
        }
        if reshape.cancels {
            self.pass = None;
            self.cancel(pool, &reshape).await?;
            return Ok(Step::Complete);
        }
        match self.ready {
            Some(ready) if ready.elapsed() <= STALE => return self.exchange(pool, &reshape).await,
            _ => self.ready = None,
        }
        match &mut self.pass {
            None => self.open(pool, &reshape).await?,
            Some(pass) => {
                let began = Instant::now();
                while !pass.is_done() && began.elapsed() < STEP && turn.goes_on() {
                    pass.advance().await?;
                }
                self.report(pool);
            }
        }
        match &self.pass {
            Some(pass) if pass.is_done() => self.finish_pass(pool).await?,
            Some(pass) if self.noted.elapsed() >= NOTE_INTERVAL => {
                let (copy, at) = (self.copy, pass.at);
                pool.change(move |s| async move {
                    s.pool.parts.reshape.update(copy, |reshape| reshape.mark.offset = at);
                    edit::note(&s, copy, s.pool.parts.reshape.get(copy)?.mark).await
                })
                .await?;
                self.noted = Instant::now();
            }
            _ => {}
        }
        Ok(Step::More { pause: Duration::ZERO })
    }

    /// Opens the pass that is to be done, after its snapshot was taken.
    async fn open(&mut self, pool: &Arc<LivePool>, reshape: &Reshape) -> Result<()> {
        if reshape.mark.copying.is_none() {
            begin_pass(pool, self.copy).await?;
        }
        let opened = Pass::open(pool, self.copy, &pool.parts.reshape.get(self.copy)?).await;
        self.pass = match opened {
            // A user destroyed the snapshot. Another one is taken, which is compared with what is copied.
            Err(Error::NotFound(_)) if reshape.source.is_some() => {
                pool.parts.reshape.update(self.copy, |reshape| reshape.mark.copying = None);
                return Err(Error::Busy("the snapshot that is copied is gone".to_owned()));
            }
            opened => Some(opened?),
        };
        (self.began, self.noted) = (Instant::now(), Instant::now());
        self.report(pool);
        Ok(())
    }

    /// Says how far it is.
    fn report(&self, pool: &Arc<LivePool>) {
        let Some(pass) = &self.pass else { return };
        let is_first = pool.parts.reshape.get(self.copy).is_ok_and(|reshape| reshape.mark.copied.is_none());
        // Later passes copy again what is counted already.
        let done = if is_first { pass.copied_bytes.min(pass.data_bytes) } else { pass.data_bytes };
        pool.jobs.advance(pool, &JobKey::Reshape(self.copy), done, pass.data_bytes);
    }

    async fn finish_pass(&mut self, pool: &Arc<LivePool>) -> Result<()> {
        let copy = self.copy;
        pool.change(move |s| async move { finish(&s, copy).await }).await?;
        let took = self.began.elapsed();
        self.pass = None;
        let mut pass = 0;
        pool.parts.reshape.update(copy, |reshape| {
            reshape.last_pass = Some(took);
            pass = reshape.mark.pass;
        });
        let is_short = took <= SHORT_PASS || pass >= MANY_PASSES && took <= LONGEST_PASS;
        self.ready = is_short.then(Instant::now);
        tracing::debug!(%copy, pass, ?took, "a pass over a volume is complete");
        Ok(())
    }

    /// Has clients wait, copies what came since the last pass, and exchanges the names.
    async fn exchange(&mut self, pool: &Arc<LivePool>, reshape: &Reshape) -> Result<Step> {
        let again = |pause| Ok(Step::More { pause });
        let Some(users) = pool.parts.reshape.users() else { return again(RETRY) };
        let last = last_pass(pool, self.copy).boxed_local();
        let Some(Swapped { volume, kept }) = users.exchange(&reshape.volume, last).await? else {
            return again(NOT_HELD);
        };
        tracing::info!(pool = pool.pool().name(), volume, kept, "a volume has another volblocksize");
        Ok(Step::Complete)
    }

    async fn cancel(&self, pool: &Arc<LivePool>, reshape: &Reshape) -> Result<()> {
        let (source, copy) = (reshape.source, self.copy);
        // OpenZFS may have written one.
        pool.dataset(copy).await?.zil.close().await?;
        pool.change(move |s| async move {
            edit::cancel(&s, source, copy).await?;
            s.pool.parts.reshape.update(copy, |reshape| reshape.is_canceled = true);
            Ok(())
        })
        .await
    }
}

/// What remains to be done while no client writes. Leaves both volumes committed.
async fn last_pass(pool: &Arc<LivePool>, copy: ObjsetId) -> Result<Swapped> {
    let lost = || Error::NotFound(format!("the volume that {copy} is a copy of"));
    let source = pool.parts.reshape.get(copy)?.source.ok_or_else(lost)?;
    // The log is of the volume, and would stay behind with it.
    pool.dataset(source).await?.zil.close().await?;
    if pool.parts.reshape.get(copy)?.mark.copying.is_none() {
        begin_pass(pool, copy).await?;
    }
    let mut pass = Pass::open(pool, copy, &pool.parts.reshape.get(copy)?).await?;
    while !pass.is_done() {
        pass.advance().await?;
    }
    drop(pass);
    pool.change(move |s| async move {
        finish(&s, copy).await?;
        let mark = s.pool.parts.reshape.get(copy)?.mark;
        let swapped = edit::swap(&s, source, copy, mark).await?;
        s.pool.parts.reshape.update(copy, |reshape| reshape.swapped = Some(swapped.clone()));
        Ok(swapped)
    })
    .await
}

async fn begin_pass(pool: &Arc<LivePool>, copy: ObjsetId) -> Result<()> {
    pool.change(move |s| async move {
        let Reshape { source, mark, copy: name, .. } = s.pool.parts.reshape.get(copy)?;
        let source = source.ok_or_else(|| Error::NotFound(format!("the volume that {name} is a copy of")))?;
        let mark = edit::begin_pass(&s, source, copy, mark).await?;
        s.pool.parts.reshape.update(copy, |reshape| reshape.mark = mark);
        Ok(())
    })
    .await
}

async fn finish(s: &Syncing, copy: ObjsetId) -> Result<()> {
    let Reshape { source, mark, copy: name, .. } = s.pool.parts.reshape.get(copy)?;
    let source = source.ok_or_else(|| Error::NotFound(format!("the volume that {name} is a copy of")))?;
    let mark = edit::finish_pass(s, source, copy, mark).await?;
    s.pool.parts.reshape.update(copy, |reshape| reshape.mark = mark);
    Ok(())
}
