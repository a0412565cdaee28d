//! Reading the blocks of the error log again.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::Bookmark;
use crate::error::Result;
use crate::jobs::{Job, Step, Turn};
use crate::pool::errlog::DamagedBlock;
use crate::pool::live::repair::State;
use crate::pool::live::scan::HELD;
use crate::pool::live::{JobKey, LivePool};
use crate::tunables;
use crate::vdev::write::Missed;
use crate::zio::Healing;

/// Looks at the blocks of the error log.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// Those that are left, the last first.
    left: Option<Vec<DamagedBlock>>,
    examined: u64,
}

impl Job<LivePool> for Looking {
    fn name(&self) -> &'static str {
        "error-scrub"
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        self.next(turn).boxed_local()
    }
}

impl Looking {
    async fn next(&mut self, turn: &Turn<'_, LivePool>) -> Result<Step> {
        let pool = turn.host()?;
        if tunables::ZFS_SCAN_SUSPEND_PROGRESS.is_on() {
            return Ok(Step::More { pause: HELD });
        }
        let mut left = match self.left.take() {
            Some(left) => left,
            None => {
                // Of those that were looked at before a pause or an import, the damaged ones are still there.
                let known = pool.scan().error_scrub;
                self.examined = known.examined;
                let looked_at = usize::try_from(known.errors).unwrap_or(usize::MAX);
                pool.known_errors().await?.into_iter().skip(looked_at).rev().collect()
            }
        };
        let view = pool.view();
        let mut state = State::of(&view);
        let rest = left.len().saturating_sub(tunables::ZFS_SCRUB_ERROR_BLOCKS_PER_TXG.size());
        let (mut examined, mut errors) = (0, 0);
        for block in left.split_off(rest).into_iter().rev().take_while(|_| turn.goes_on()) {
            let DamagedBlock { objset, object, level, block } = block;
            let at = Bookmark { objset: objset.get(), object: object.get(), level, blkid: block.get() };
            examined += 1;
            // What is not there any more is right.
            match state.pointer(&at).await {
                Ok(Some(bp)) if !bp.is_hole() && !bp.is_embedded() => {
                    let txg = pool.txgs().open_txg();
                    view.heal(&bp, &at, Healing { txg, counted: &[], missed: Missed::Written }).await;
                    match view.read_raw(&bp, &at).await {
                        Ok(_) => view.damage.mended(&at, bp.physical_birth()),
                        Err(_) => errors += 1,
                    }
                }
                Ok(_) | Err(crate::Error::NotFound(_)) => {}
                // What leads to it is damaged.
                Err(_) => {
                    view.damage.note(&at, ondisk::Txg::NONE);
                    errors += 1;
                }
            }
        }
        drop(state);
        drop(view);
        if !turn.goes_on() {
            return Ok(Step::More { pause: Duration::ZERO });
        }
        self.examined += examined;
        let (is_all, total) = (left.is_empty(), self.examined + left.len() as u64);
        self.left = Some(left);
        pool.jobs.advance(&pool, &JobKey::ErrorScrub, self.examined, total);
        let advance =
            pool.change(move |s| async move { s.advance_error_scrub(examined, errors, is_all).await });
        let goes_on = advance.await?;
        if is_all && goes_on {
            pool.sysevent("errorscrub_finish", None);
        }
        match is_all || !goes_on {
            true => Ok(Step::Complete),
            false => Ok(Step::More { pause: Duration::ZERO }),
        }
    }
}
