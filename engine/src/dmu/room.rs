//! Asking for room before data are accepted.
//!
//! What changes objects says first what the change makes dirty ([`Dirtied`]), while it holds the group that
//! the change will be in. Volumes and filesystems ask through [`Room`]; how much room there is, the dataset
//! layer knows ([`crate::dsl::DatasetRoom`]).

use std::fmt;
use std::sync::Arc;

use ondisk::{ObjsetId, Txg};

use super::Dirtied;
use crate::error::{Error, Result};
use crate::txg::{Tx, Txgs};

/// Whether there is room for more data of one dataset.
pub trait Room: Send + Sync + fmt::Debug {
    /// Takes what a change makes dirty in the group `txg`, which is held, or fails where there is no room for
    /// it.
    fn require(&self, txg: Txg, dirtied: &Dirtied) -> Result<()>;

    /// The same for changes that give space back: there is some room for that when there is none for others.
    /// Where nothing is under way that could make more room, it fails only for data.
    fn require_to_free(&self, _txg: Txg, _dirtied: &Dirtied) -> Result<()> {
        Ok(())
    }

    /// Bytes that the dataset refers to, and bytes that it may still allocate. Nothing, when that is not
    /// known.
    fn figures(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Holds the open group for a change that gives space back, and takes `dirtied` of what is kept for such.
/// While that is used up, it waits for the groups under way; then it goes on without.
pub(crate) async fn begin_freeing(
    (txgs, dataset): (&Arc<Txgs>, ObjsetId),
    room: Option<Arc<dyn Room>>,
    dirty_bytes: u64,
    dirtied: impl Fn(Txg) -> Dirtied,
) -> Result<Tx> {
    if let Some(room) = room {
        let dirtied = |txg| (dirtied(txg), dirty_bytes);
        match txgs.begin_dirtying(dataset, dirtied, |txg, all| room.require_to_free(txg, &all)).await {
            Err(Error::NoSpace(_)) => {}
            begun => return begun,
        }
    }
    txgs.begin_of(dataset, dirty_bytes).await
}
