//! Space of pools that OpenZFS made: loaded, changed and written to a meta object set in memory, and loaded again.

use std::sync::Arc;

use device::block_on;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::features::Feature;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};
use ondisk::space_map::{HISTOGRAM_BUCKETS, SpaceMapPhys};
use ondisk::{ObjsetId, Txg};

use super::allocator::{Allocator, State};
use super::group::Use;
use super::load::load;
use crate::Pool;
use crate::dataset::dsl::Dsl;
use crate::dmu::{LiveObjset, Objset, Policy, zap};
use crate::error::Error;
use crate::pool::discovery;
use crate::pool::import::{ImportOptions, import};
use crate::pool::space::PoolSpace;
use crate::txg::Tx;
use crate::vdev::Class;

fn open(name: &str) -> Option<Arc<Pool>> {
    let golden = testkit::golden::pool(name)?;
    Some(block_on(async {
        let found = discovery::scan(&[&golden.dir]).await.unwrap().remove(0);
        import(&found, &ImportOptions::read_only()).await.unwrap()
    }))
}

fn live_mos(pool: &Arc<Pool>) -> Arc<LiveObjset> {
    let policy = Policy {
        checksum: ChecksumType::Fletcher4,
        compress: CompressType::Lz4,
        zstd_level: 0,
        copies: 3,
        redundant_metadata: 0,
        special_small_blocks: 0,
    };
    block_on(LiveObjset::open(pool, ObjsetId::MOS, pool.root_blkptr(), policy)).unwrap()
}

/// Size and allocated bytes of each vdev.
fn vdevs(state: &State) -> Vec<(u64, u64, u64)> {
    let groups = state.groups.iter().flatten();
    groups
        .map(|group| {
            let totals = group.totals(Use::Class).plus(group.totals(Use::EmbeddedLog));
            (group.vdev.into(), totals.size, totals.allocated)
        })
        .collect()
}

#[test]
fn golden_pools_have_the_space_that_their_headers_say() {
    for name in testkit::golden::names().unwrap() {
        let Some(pool) = open(&name) else { return };
        let space = block_on(async { PoolSpace::load(&Dsl::open(&pool).await.unwrap()).await.unwrap() });
        let mos = block_on(Objset::open(&pool, ObjsetId::MOS, pool.root_blkptr())).unwrap();
        match block_on(load(&pool, &mos)) {
            Ok(state) => {
                let expected: Vec<_> =
                    space.vdevs.iter().map(|vdev| (vdev.id, vdev.size_bytes, vdev.allocated_bytes)).collect();
                assert_eq!(vdevs(&state), expected, "{name}");
                let allocator = Allocator::of(&pool, state);
                let saved = space.dedup.saved_bytes() + space.clones.saved_bytes;
                let put_off = space.checkpoint_bytes + space.deferred_frees_bytes;
                assert_eq!(allocator.usable_bytes() + saved, space.adjusted_bytes() + put_off, "{name}");
            }
            Err(Error::Unsupported(_)) => {
                assert!(["checkpoint", "removed"].contains(&name.as_str()), "{name}")
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// The header of every space map, and the runs that it should count.
fn check_headers(mos: &Arc<LiveObjset>, state: &mut State) {
    for group in state.groups.iter_mut().flatten() {
        for place in 0..group.metaslabs().len() {
            let slab = group.metaslab_mut(place).unwrap();
            let Some(id) = slab.on_disk.object else { continue };
            let object = block_on(mos.object(id)).unwrap();
            let phys = SpaceMapPhys::parse(&object.bonus(), ondisk::ByteOrder::Little).unwrap();
            assert_eq!(phys.allocated_bytes, slab.allocated_bytes() as i64);
            let taken = slab.take(Txg(1), false, 4096);
            if let (Some(written), Some(free)) = (phys.histogram, taken.histogram) {
                let units = |histogram: &[u64; HISTOGRAM_BUCKETS]| histogram.iter().sum::<u64>() > 0;
                assert_eq!(units(&written), units(&free));
            }
        }
    }
}

/// The ZAP of log space maps.
async fn logs(mos: &Arc<LiveObjset>) -> Option<u64> {
    let root = mos.view().object(DIRECTORY_OBJECT).await.unwrap();
    zap::lookup_u64(&root, pool_directory::LOG_SPACEMAP_ZAP).await.unwrap()
}

#[test]
fn what_a_sync_writes_is_what_is_loaded_next() {
    let mut with_logs = 0;
    for name in ["features0", "single", "rz1", "dr2", "classes", "triple", "legacy28", "rz1s9"] {
        let Some(pool) = open(name) else { return };
        block_on(async {
            let mos = live_mos(&pool);
            let had_logs = logs(&mos).await.is_some();
            let allocator = Allocator::load(&pool, &mos).await.unwrap();
            let committed = pool.uberblock().txg.get();
            let mut blocks = Vec::new();
            let mut changes = Vec::new();
            for txg in committed + 1..committed + 6 {
                let tx = Tx::syncing(Txg(txg));
                for pass in 0..3u64 {
                    for number in 0..40u64 {
                        let class = [Class::Normal, Class::Special, Class::Log][number as usize % 3];
                        let psize = 512 * (1 + (number * 7 + pass + txg) % 256);
                        let dvas =
                            allocator.allocate(class, psize, 1 + number as usize % 3, Txg(txg)).unwrap();
                        blocks.extend(dvas);
                    }
                    for _ in 0..30 {
                        let dva = blocks.swap_remove((txg as usize * 31 + pass as usize) % blocks.len());
                        allocator.free(&dva, Txg(txg)).unwrap();
                        assert!(allocator.free(&dva, Txg(txg)).is_err());
                    }
                    assert!(allocator.sync(&mos, &tx).await.unwrap());
                }
                assert!(!allocator.sync(&mos, &tx).await.unwrap());
                let mut again = load(&pool, &mos.view()).await.unwrap();
                allocator.sync_done(Txg(txg), Txg(txg));
                assert_eq!(vdevs(&again), vdevs(&allocator.state()), "{name}");
                check_headers(&mos, &mut again);
                changes.extend(allocator.take_feature_changes());
            }
            assert_eq!(logs(&mos).await, None, "{name}");
            let ended = changes.iter().any(|(feature, _)| *feature == Feature::LogSpacemap);
            assert_eq!(ended, had_logs, "{name}: {changes:?}");
            with_logs += usize::from(had_logs);
        });
    }
    assert!(with_logs > 0);
}
