//! Filling a filter with the keys of all ZAPs, part by part, beside the groups. [`super::filter`] says why
//! that may take place in several states of the pool.

use std::sync::Arc;

use super::Ddt;
use super::stored::{Place, mos_to_walk};
use crate::Pool;
use crate::error::Result;

/// Keys that are met in one part.
const KEYS: usize = 16 << 10;

/// A walk that fills a filter.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    place: Place,
    /// Keys that were met.
    pub keys: u64,
}

impl Ddt {
    /// A walk for a filter that has begun, if none is under way.
    pub(crate) fn fill(&self) -> Option<Fill> {
        self.filters().take_to_fill().then(Fill::default)
    }

    /// Goes on with a walk, in the state that was committed last. False when it is over. On an error too: no
    /// filter is made any more.
    pub(crate) async fn fill_some(&self, fill: &mut Fill, view: &Arc<Pool>) -> Result<bool> {
        let filled = self.fill_part(fill, view).await;
        match &filled {
            Ok(true) => {}
            Ok(false) => self.filters().complete(),
            Err(_) => self.filters().fail(),
        }
        filled
    }

    async fn fill_part(&self, fill: &mut Fill, view: &Arc<Pool>) -> Result<bool> {
        let Some(zap) = fill.place.zap(&mos_to_walk(view).await?).await? else { return Ok(false) };
        let (entries, place) = zap.entries(KEYS).await?;
        let mut filters = self.filters();
        entries.iter().for_each(|(key, _)| filters.meet(zap.checksum, key));
        (fill.place, fill.keys) = (place, fill.keys + entries.len() as u64);
        Ok(true)
    }
}
