//! The pool checkpoint: a state of the whole pool to which one can go back.
//!
//! While there is a checkpoint,
//!
//! - the pool directory has an entry [`ZPOOL_CHECKPOINT`](crate::pool_directory::ZPOOL_CHECKPOINT), an array
//!   of u64: the uberblock of the checkpoint, with `ub_checkpoint_txg` equal to its own txg. A pool that is
//!   opened in this state is the checkpoint, once that uberblock's root block pointer is used in the place of
//!   the current one;
//! - the current uberblock's `ub_checkpoint_txg` is the same txg, and the configuration has it too;
//! - blocks that the checkpoint has and the pool has no more stay allocated in their metaslabs' space maps,
//!   and are listed as frees in a space map of each top-level vdev
//!   ([`POOL_CHECKPOINT_SM`](crate::pool_directory::top_zap::POOL_CHECKPOINT_SM)).
//!
//! When it is being discarded the entry is gone already, but the feature `zpool_checkpoint` stays active
//! until those space maps are empty.
//!
//! Source of the facts: OpenZFS 2.3 `spa_checkpoint.c`, `spa.c`.

use crate::uberblock::Uberblock;
use crate::{ByteOrder, Error, Result, Txg};

/// The uberblock of the checkpoint, from the integers of the entry.
pub fn uberblock(words: &[u64]) -> Result<Uberblock> {
    let order = ByteOrder::HOST;
    let bytes: Vec<u8> = words.iter().flat_map(|&word| order.u64_bytes(word)).collect();
    let found = Uberblock::parse(&bytes)?;
    if found.txg == Txg::NONE || found.checkpoint_txg != found.txg {
        let (txg, checkpoint) = (found.txg, found.checkpoint_txg);
        return Err(Error::invalid(
            "checkpoint",
            format!("uberblock of txg {txg} for checkpoint {checkpoint}"),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blkptr::Blkptr;

    proptest::proptest! {
        #[test]
        fn the_entry_round_trips(txg in 1u64.., guid_sum: u64, timestamp: u64, version: u64) {
            let uberblock = Uberblock {
                order: ByteOrder::HOST,
                version,
                txg: Txg(txg),
                guid_sum,
                timestamp,
                root_bp: Blkptr::HOLE,
                software_version: 5000,
                mmp: None,
                checkpoint_txg: Txg(txg),
                raidz_reflow_info: 0,
            };
            let bytes = uberblock.encode();
            let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| ByteOrder::HOST.u64(word)).collect();
            proptest::prop_assert_eq!(super::uberblock(&words).unwrap(), uberblock);
        }
    }

    #[test]
    fn the_entry_is_an_uberblock_that_names_itself() {
        let mut expected = Uberblock {
            order: ByteOrder::HOST,
            version: 5000,
            txg: Txg(9),
            guid_sum: 1,
            timestamp: 2,
            root_bp: Blkptr::HOLE,
            software_version: 5000,
            mmp: None,
            checkpoint_txg: Txg(9),
            raidz_reflow_info: 0,
        };
        let words = |uberblock: &Uberblock| -> Vec<u64> {
            uberblock.encode().as_chunks::<8>().0.iter().map(|&word| ByteOrder::HOST.u64(word)).collect()
        };
        assert_eq!(super::uberblock(&words(&expected)).unwrap(), expected);
        expected.checkpoint_txg = Txg::NONE;
        assert!(super::uberblock(&words(&expected)).is_err());
        assert!(super::uberblock(&[]).is_err());
    }
}
