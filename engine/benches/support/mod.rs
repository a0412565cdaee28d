//! A pool with a volume, for benches.

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::live::{
    Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, Syncing, default_features,
};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Writes under way while a volume is filled.
const FILL_DEPTH: usize = 32;

/// A leaf of a pool.
pub fn leaf(device: Arc<dyn Device>, name: &str) -> NewLeaf {
    NewLeaf { device, path: PathBuf::from(name), is_file: true, whole_disk: false }
}

/// A pool on one device.
pub fn pool(device: Arc<dyn Device>, cache: Arc<ArcCache>) -> Arc<LivePool> {
    let top =
        NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf(device, "/bench/disk")] };
    let new = NewPool {
        name: "bench".into(),
        tops: vec![top],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    };
    let limits = Limits::beside(&cache);
    let surroundings =
        Surroundings { env: Arc::new(System), limits, cache: Some(cache), host: (1, "bench".into()) };
    let pool = block_on(LivePool::create(new, surroundings)).expect("a pool");
    pool.start().expect("a thread");
    pool
}

/// A volume of so many blocks, each with what `content` makes of its number. All of it is committed, and
/// nothing of it is in memory.
pub fn volume(
    pool: &Arc<LivePool>,
    blocks: u64,
    block_bytes: u64,
    compression: &str,
    content: impl Fn(u64) -> Vec<u8>,
) -> Arc<LiveZvol> {
    let new = NewDataset {
        name: "bench/vol".into(),
        contents: NewContents::Volume { size: blocks * block_bytes, sparse: true },
        properties: vec![
            ("volblocksize".into(), block_bytes.to_string()),
            ("compression".into(), compression.into()),
        ],
    };
    let id =
        block_on(pool.change(move |s: Syncing| async move { create(&s, &new).await })).expect("a volume");
    let volume = block_on(pool.volume(id)).expect("opens");
    block_on(async {
        let mut flying = FuturesUnordered::new();
        for block in 0..blocks {
            let (volume, bytes) = (&volume, content(block));
            flying.push(async move { volume.write_at(block * block_bytes, &bytes, false).await });
            if flying.len() >= FILL_DEPTH {
                flying.next().await.transpose().expect("a write");
            }
        }
        while let Some(written) = flying.next().await {
            written.expect("a write");
        }
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
    });
    pool.flush_cache();
    volume
}
