//! Every golden pool imports, and its MOS reads right to the last block.

use std::sync::Arc;

use device::block_on;
use engine::dmu::Objset;
use engine::pool::discovery::scan;
use engine::pool::import::{ImportOptions, import, select};
use engine::{Error, Pool};
use ondisk::{ObjectId, ObjsetId};

fn open(name: &str) -> Option<Arc<Pool>> {
    let golden = testkit::golden::pool(name)?;
    let pools = block_on(scan(&[&golden.dir])).expect("the directory can be listed");
    let found = select(pools, name).expect("the pool is found by its name");
    Some(block_on(import(&found, &ImportOptions::read_only())).unwrap_or_else(|error| panic!("{error}")))
}

/// Reads all blocks of all objects of the MOS; returns how many.
fn read_mos(pool: &Arc<Pool>) -> Result<u64, Error> {
    block_on(async {
        let mos = Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?;
        let (mut blocks, mut next) = (0, ObjectId(1));
        while let Some(id) = mos.next_object(next).await? {
            let object = mos.object(id).await?;
            for block in 0..=object.dnode().max_block_id.get() {
                blocks += u64::from(object.block(block).await?.is_some());
            }
            next = ObjectId(id.get() + 1);
        }
        Ok(blocks)
    })
}

#[test]
fn every_golden_pool_imports() {
    for name in testkit::golden::names().expect("the golden pools can be listed") {
        let Some(pool) = open(&name) else { return };
        assert_eq!(pool.name(), name);
        let blocks = read_mos(&pool).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(blocks > 20, "{name}: only {blocks} blocks in the MOS");
    }
}
