//! Volumes that compress, read and written over through an ARC that is too small for them.

use std::sync::Arc;

use device::block_on;
use engine::cache::ArcCache;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, Surroundings, Syncing};
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, full, new_pool, objset_of, surroundings};

const SIZE: u64 = 6 << 20;
const ARC: u64 = 4 << 20;
/// Reads and writes are of this size.
const PIECE: u64 = 4096;

/// Numbers in an order that looks random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Bytes that compress to half or, some of them, not at all.
    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let noise = if self.below(8) == 0 { 64 } else { 28 };
        (0..length).map(|at| if at % 64 < noise { self.below(256) as u8 } else { 7 }).collect()
    }
}

/// A volume beside what it must hold.
struct Beside {
    volume: Arc<LiveZvol>,
    model: Vec<u8>,
}

impl Beside {
    async fn create(
        pool: &Arc<LivePool>,
        name: &str,
        block: &str,
        compression: &str,
        at: &mut Numbers,
    ) -> Self {
        let new = NewDataset {
            name: full(name),
            contents: NewContents::Volume { size: SIZE, sparse: true },
            properties: [("volblocksize", block), ("compression", compression)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        };
        pool.change(move |s: Syncing| async move { edit::create(&s, &new).await }).await.unwrap();
        let volume = pool.volume(objset_of(pool, name).await.unwrap()).await.unwrap();
        let mut beside = Self { volume, model: vec![0; SIZE as usize] };
        for start in (0..SIZE).step_by(1 << 20) {
            beside.write(start, at.bytes(1 << 20)).await;
        }
        pool.sync().await.unwrap();
        beside
    }

    async fn write(&mut self, start: u64, bytes: Vec<u8>) {
        self.volume.write_at(start, &bytes, false).await.unwrap();
        self.model[start as usize..start as usize + bytes.len()].copy_from_slice(&bytes);
    }

    async fn read(&self, start: u64, length: u64) {
        let mut bytes = vec![0; length as usize];
        self.volume.read_at(start, &mut bytes).await.unwrap();
        assert!(bytes == self.model[start as usize..(start + length) as usize], "at {start}");
    }
}

#[test]
fn what_is_read_and_written_over_is_right_in_all_forms() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let cache = Arc::new(ArcCache::new(ARC));
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let around = Surroundings { cache: Some(Arc::clone(&cache)), ..surroundings(1) };
        let pool = LivePool::create(new_pool(vec![top], 12), around).await.unwrap();
        let mut random = Numbers(1);
        let mut all = Vec::new();
        for (name, block, compression) in [("a", "16K", "lz4"), ("b", "128K", "zstd"), ("c", "32K", "gzip")] {
            all.push(Beside::create(&pool, name, block, compression, &mut random).await);
        }
        let mut most_packed = 0;
        for round in 0..12 {
            for _ in 0..300 {
                let at = random.below(SIZE / PIECE) * PIECE;
                let of = &mut all[random.below(3) as usize];
                of.read(at, PIECE).await;
                // The same block is read again soon, and some of them are written over.
                if random.below(12) == 0 {
                    let bytes = random.bytes(PIECE);
                    of.write(at, bytes).await;
                }
                of.read(at, PIECE).await;
            }
            pool.sync().await.unwrap();
            let stats = cache.arcstats();
            assert!(stats.compressed_size + stats.overhead_size <= ARC, "{round}: {stats:?}");
            most_packed = most_packed.max(stats.uncompressed_size.saturating_sub(stats.compressed_size));
        }
        assert!(most_packed > ARC / 2, "{most_packed} bytes were saved");
        for _ in 0..2 {
            for of in &all {
                of.read(0, SIZE).await;
            }
        }
        drop(all);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
