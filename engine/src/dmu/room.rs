//! Asking for space before data are accepted.
//!
//! Code that changes objects first declares the blocks that the change makes dirty ([`Dirtied`]), while it
//! holds the group of the change. Volumes and filesystems ask through [`Room`]; the dataset layer knows how
//! much space there is ([`crate::dsl::DatasetRoom`]).

use std::fmt;
use std::sync::Arc;

use ondisk::{ObjsetId, Txg};

use super::Dirtied;
use crate::error::{Error, Result};
use crate::txg::{Tx, Txgs};

/// Whether there is room for more data of one dataset.
pub trait Room: Send + Sync + fmt::Debug {
    /// Reserves space for the blocks that a change makes dirty in the group `txg`, which is held, or fails if
    /// there is no space.
    fn require(&self, txg: Txg, dirtied: &Dirtied) -> Result<()>;

    /// The same for changes that free space: some space is reserved for these when there is none for others.
    /// If no group in progress could free more space, it fails only for data.
    fn require_to_free(&self, _txg: Txg, _dirtied: &Dirtied) -> Result<()> {
        Ok(())
    }

    /// The bytes that the dataset refers to, and the bytes that it may still allocate. Zeroes, when they are
    /// not known.
    fn figures(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Holds the open group for a change that frees space, and reserves `dirtied` of the space kept for such
/// changes. While that is used up, it waits for the groups in progress; then it continues without.
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
