//! Counters after work that is known: each has the number of what was done.

use std::sync::Arc;

use device::block_on;
use engine::cache::ArcCache;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, Surroundings, Syncing};
use engine::stats::{Amplification, DMU_TX, DatasetStats, TxgState, ZFETCH, ZIL, ZilStats};
use engine::vdev::stats::{Queue, Transfer};
use engine::vdev::{Class, Vdev};
use engine::zpl::live::WriteOptions;
use engine::zvol::LiveZvol;
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;

use crate::files::FILE;
use crate::filesystem;
use crate::support::{Disks, committing, new_pool, surroundings};

const BLOCK: u64 = 16 << 10;
const SIZE: u64 = 8 << 20;

/// A pool with an empty volume, and a cache of its own.
async fn create(disks: &Disks, layout: Layout, count: usize, log: bool) -> (Arc<LivePool>, ObjsetId) {
    let mut tops = vec![disks.top(layout, Class::Normal, "d", count)];
    if log {
        tops.push(disks.top(Layout::Single, Class::Log, "log", 1));
    }
    let cache = Some(Arc::new(ArcCache::new(64 << 20)));
    let pool = LivePool::create(new_pool(tops, 12), Surroundings { cache, ..surroundings(1) }).await.unwrap();
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: SIZE, sparse: true },
        properties: vec![
            ("volblocksize".into(), BLOCK.to_string()),
            ("compression".into(), "lz4".into()),
            ("copies".into(), "2".into()),
        ],
    };
    let create = move |s: Syncing| async move { edit::create(&s, &new).await };
    let id = pool.change(create).await.unwrap();
    (pool, id)
}

fn stats(pool: &Arc<LivePool>, id: ObjsetId) -> Arc<DatasetStats> {
    let all = pool.view().dataset_stats().all();
    all.into_iter().find(|(other, _)| *other == id).map(|(_, stats)| stats).unwrap()
}

fn layers(pool: &Arc<LivePool>, id: ObjsetId) -> Amplification {
    stats(pool, id).amplification()
}

async fn close(pool: Arc<LivePool>, id: ObjsetId) {
    let dataset = pool.dataset(id).await.unwrap();
    committing(&pool, dataset.zil.close()).await.unwrap();
    drop(dataset);
    pool.close(PoolState::Exported).await.unwrap();
}

/// Half random, so that compression halves it.
fn half_random(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..BLOCK).map(|at| if at < BLOCK / 2 { next() } else { 0 }).collect()
}

async fn write(volume: &LiveZvol, blocks: std::ops::Range<u64>) {
    for block in blocks {
        volume.write_at(block * BLOCK, &half_random(block), false).await.unwrap();
    }
}

#[test]
fn the_bytes_of_a_volume_are_counted_on_each_layer() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let (pool, id) = create(&disks, Layout::Mirror, 2, false).await;
        let volume = pool.volume(id).await.unwrap();
        let assigned = DMU_TX.snapshot().dmu_tx_assigned;
        write(&volume, 0..64).await;
        assert!(DMU_TX.snapshot().dmu_tx_assigned >= assigned + 64);
        pool.sync().await.unwrap();
        let clients = stats(&pool, id).objset();
        assert_eq!((clients.writes, clients.nwritten, clients.reads), (64, 64 * BLOCK, 0));
        let now = layers(&pool, id);
        assert_eq!((now.client_written, now.logical), (64 * BLOCK, 64 * BLOCK));
        assert!(now.compressed > now.logical / 2 && now.compressed <= now.logical * 3 / 4, "{now:?}");
        // Two copies, each on both sides of the mirror.
        assert_eq!(now.allocated, 2 * now.compressed, "{now:?}");
        assert_eq!(now.devices, 2 * now.allocated, "{now:?}");
        assert!(now.metadata_allocated > 0 && now.metadata_devices == 2 * now.metadata_allocated, "{now:?}");

        // A small write makes a whole block dirty.
        volume.write_at(0, &[7; 512], false).await.unwrap();
        pool.sync().await.unwrap();
        let small = layers(&pool, id);
        assert_eq!(small.client_written - now.client_written, 512);
        assert_eq!(small.logical - now.logical, BLOCK);
        // The pool's own objects are counted apart.
        assert!(layers(&pool, ObjsetId(0)).metadata_allocated > 0);
        assert_eq!(layers(&pool, ObjsetId(0)).logical, 0);
        drop(volume);
        close(pool, id).await;
    });
}

#[test]
fn reads_are_counted_in_the_dataset_and_by_kind_and_list_in_the_arc() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let (pool, id) = create(&disks, Layout::Single, 1, false).await;
        let volume = pool.volume(id).await.unwrap();
        write(&volume, 0..64).await;
        drop(volume);
        close(pool, id).await;

        let found = disks.found("tank").await;
        let cache = Arc::new(ArcCache::new(64 << 20));
        let around = Surroundings { cache: Some(Arc::clone(&cache)), ..surroundings(2) };
        let pool = LivePool::import(&found, &Default::default(), around).await.unwrap();
        let volume = pool.volume(id).await.unwrap();
        let before = cache.arcstats();
        let mut bytes = vec![0; BLOCK as usize];
        let order = [50, 3, 61, 17, 40];
        for _ in 0..2 {
            for block in order {
                volume.read_at(block * BLOCK, &mut bytes).await.unwrap();
                assert_eq!(bytes, half_random(block));
            }
        }
        let now = cache.arcstats();
        assert_eq!(now.demand_data_misses - before.demand_data_misses, 5);
        assert_eq!(now.demand_data_hits - before.demand_data_hits, 5);
        assert!(now.demand_metadata_misses > before.demand_metadata_misses, "a pointer block is metadata");
        assert_eq!(
            now.mru_hits + now.mfu_hits + now.uncached_hits,
            now.hits - now.prefetch_data_hits - now.prefetch_metadata_hits
        );
        assert_eq!(
            now.hits,
            now.demand_data_hits
                + now.demand_metadata_hits
                + now.prefetch_data_hits
                + now.prefetch_metadata_hits
        );
        // They are kept in both forms as long as there is room.
        assert!(now.mru_data + now.mfu_data <= 5 * BLOCK * 3 / 4, "{now:?}");
        assert_eq!(now.data_size, now.mru_data + now.mfu_data + 5 * BLOCK);
        assert_eq!(now.size, now.data_size + now.metadata_size + now.hdr_size);
        assert_eq!((now.c, now.c_max), (64 << 20, 64 << 20), "without a daemon there are no other limits");

        let clients = stats(&pool, id).objset();
        assert_eq!((clients.reads, clients.nread, clients.writes), (10, 10 * BLOCK, 0));
        let loaded = layers(&pool, id);
        assert!(loaded.loads >= 5 && loaded.loaded_logical >= 5 * BLOCK, "{loaded:?}");
        assert!(loaded.loaded < loaded.loaded_logical, "{loaded:?}");

        // A reader that goes on in order: streams, and blocks ahead.
        let reading = ZFETCH.snapshot();
        let reader = volume.reader().await.unwrap();
        for block in 0..32 {
            reader.read_at(block * BLOCK, &mut bytes).await.unwrap();
        }
        let ahead = ZFETCH.snapshot();
        assert!(ahead.hits >= reading.hits + 30 && ahead.misses > reading.misses, "{ahead:?}");
        assert!(ahead.io_issued > reading.io_issued);
        assert!(cache.arcstats().predictive_prefetch > 0);
        // Each fourth block.
        let reader = volume.reader().await.unwrap();
        for block in (0..32).step_by(4) {
            reader.read_at(block * BLOCK, &mut bytes).await.unwrap();
        }
        assert!(ZFETCH.snapshot().stride >= ahead.stride + 6);
        drop((reader, volume));
        close(pool, id).await;
    });
}

#[test]
fn stable_writes_are_counted_by_log_and_by_where_it_is() {
    for log in [false, true] {
        let disks = Disks::new(256 << 20);
        block_on(async {
            let (pool, id) = create(&disks, Layout::Single, 1, log).await;
            let volume = pool.volume(id).await.unwrap();
            let whole = ZIL.snapshot();
            // The first one waits for the group that begins the log.
            committing(&pool, volume.write_at(0, &[1; 4096], true)).await.unwrap();
            let before: ZilStats = stats(&pool, id).zil().snapshot();
            assert_eq!((before.zil_commit_count, before.zil_commit_stall_count), (1, 1));
            for n in 1..=10 {
                volume.write_at(n * 4096, &[n as u8; 4096], true).await.unwrap();
            }
            let now = stats(&pool, id).zil().snapshot();
            assert_eq!((now.zil_commit_count, now.zil_commit_writer_count), (11, 11));
            assert_eq!((now.zil_itx_needcopy_count, now.zil_itx_needcopy_bytes), (10, 40_960));
            let (here, there) = match log {
                true => (now.zil_itx_metaslab_slog_count, now.zil_itx_metaslab_normal_count),
                false => (now.zil_itx_metaslab_normal_count, now.zil_itx_metaslab_slog_count),
            };
            assert_eq!((here, there), (10, 0));
            let written = now.zil_itx_metaslab_slog_write + now.zil_itx_metaslab_normal_write;
            let alloc = now.zil_itx_metaslab_slog_alloc + now.zil_itx_metaslab_normal_alloc;
            let used = now.zil_itx_metaslab_slog_bytes + now.zil_itx_metaslab_normal_bytes;
            assert!(used >= 40_960 && used <= written && written <= alloc, "{now:?}");
            assert_eq!(layers(&pool, id).log_allocated, alloc);
            assert!(ZIL.snapshot().zil_commit_count >= whole.zil_commit_count + 11);
            drop(volume);
            close(pool, id).await;
        });
    }
}

#[test]
fn transaction_groups_are_remembered_with_what_they_wrote() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let (pool, id) = create(&disks, Layout::Single, 1, false).await;
        let volume = pool.volume(id).await.unwrap();
        write(&volume, 0..64).await;
        let txg = pool.sync().await.unwrap();
        let groups = pool.txgs().history().snapshot();
        let group = groups.iter().find(|group| group.txg == txg).unwrap();
        assert_eq!(group.state, TxgState::Committed);
        assert!(group.ndirty >= 64 * BLOCK, "{group:?}");
        assert!(group.io.nwritten > 64 * BLOCK && group.io.writes > 0, "{group:?}");
        assert!(group.sync.as_nanos() > 0 && group.birth_ns > 1 << 60);
        let last = groups.last().unwrap();
        assert_eq!((last.txg.get(), last.state.letter()), (txg.get() + 1, 'O'));
        drop(volume);
        close(pool, id).await;
    });
}

#[test]
fn histograms_of_a_vdev_add_up_to_its_operations() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let (pool, id) = create(&disks, Layout::Mirror, 2, false).await;
        let volume = pool.volume(id).await.unwrap();
        write(&volume, 0..64).await;
        committing(&pool, volume.write_at(0, &[1; 4096], true)).await.unwrap();
        volume.write_at(8192, &[1; 4096], true).await.unwrap();
        pool.sync().await.unwrap();
        let view = pool.view();
        for vdev in view.vdevs().tops.iter().flat_map(Vdev::walk) {
            for transfer in [Transfer::Read, Transfer::Write, Transfer::Flush] {
                let counted = vdev.stats.snapshot(transfer);
                let histograms = [&counted.latency[..], &counted.total, &counted.sizes];
                let sums: [u64; 3] = histograms.map(|all| all.iter().sum());
                assert_eq!(sums, [counted.operations; 3], "{} {transfer:?}", vdev.name);
            }
            let counters = vdev.counters();
            let written = vdev.stats.snapshot(Transfer::Write);
            assert_eq!((counters.writes, counters.nwritten), (written.operations, written.bytes));
        }
        for leaf in view.vdevs().tops.iter().flat_map(Vdev::walk).filter(|vdev| vdev.children.is_empty()) {
            let queued = leaf.stats.queued(Queue::AsyncWrite);
            assert!(queued.waited.iter().sum::<u64>() > 0, "writes of groups have their queue");
            assert!(queued.joined.iter().sum::<u64>() > 0, "neighbours are written together");
            assert!(leaf.stats.queued(Queue::SyncWrite).waited.iter().sum::<u64>() > 0);
        }
        drop((view, volume));
        close(pool, id).await;
    });
}

#[test]
fn files_count_reads_writes_and_unlinks() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let zpl = filesystem::open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        zpl.write(file, 0, &[3; 10_000], &WriteOptions::default()).await.unwrap();
        let mut bytes = vec![0; 20_000];
        assert_eq!(zpl.read(file, 4_000, &mut bytes).await.unwrap(), 6_000);
        zpl.unlink(zpl.zpl().root(), b"file").await.unwrap();
        let id = Dsl::open(&pool.view()).await.unwrap().find("tank").await.unwrap().objset_id();
        let clients = stats(&pool, id).objset();
        assert_eq!((clients.writes, clients.nwritten), (1, 10_000));
        assert_eq!((clients.reads, clients.nread), (1, 6_000));
        assert_eq!((clients.nunlinks, clients.nunlinked), (1, 1));
        drop(zpl);
        close(pool, id).await;
    });
}
