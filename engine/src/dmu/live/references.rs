//! Which stored blocks other blocks may become references to.
//!
//! A reference is counted when its group is written, long after the change was accepted. So a table that
//! counts it must still do so by then: before a block is referred to, it is *held*. A block that no table
//! would count rightly is refused, and its contents are copied. Only deduplicated blocks need that; the layer
//! of datasets says who knows about them ([`References`]).

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use ondisk::Txg;
use ondisk::blkptr::Blkptr;

use crate::error::Result;
use crate::txg::Tx;

/// Knows how deduplicated blocks are counted.
pub(crate) trait References: Send + Sync + Debug {
    /// Holds deduplicated blocks, so that each may be referred to.
    fn hold(&self, blocks: Vec<Blkptr>) -> BoxFuture<'_, Result<Box<dyn Hold>>>;
}

/// Blocks that are held while this lives.
pub(crate) trait Hold: Send + Sync + Debug {
    /// Whether this block must not be referred to.
    fn refuses(&self, bp: &Blkptr) -> bool;

    /// Goes on holding them until references of this group are counted.
    fn until_counted(&self, txg: Txg);
}

/// Blocks that may become references while this lives, but for those that it refuses.
#[derive(Debug, Default)]
pub(crate) struct Holding(Option<Box<dyn Hold>>);

impl Holding {
    /// Holds those of the blocks that are deduplicated.
    pub(super) async fn of(
        references: Option<&dyn References>,
        blocks: impl Iterator<Item = Blkptr>,
    ) -> Result<Self> {
        let deduplicated: Vec<Blkptr> = blocks.filter(Blkptr::is_dedup).collect();
        match references.filter(|_| !deduplicated.is_empty()) {
            Some(references) => Ok(Self(Some(references.hold(deduplicated).await?))),
            None => Ok(Self::default()),
        }
    }

    /// Whether this block must not be referred to.
    pub(crate) fn refuses(&self, bp: &Blkptr) -> bool {
        bp.is_dedup() && self.0.as_ref().is_some_and(|hold| hold.refuses(bp))
    }

    /// The references are part of the group of `tx`, which is still open.
    pub(crate) fn is_used_by(&self, tx: &Tx) {
        if let Some(hold) = &self.0 {
            hold.until_counted(tx.txg());
        }
    }
}
