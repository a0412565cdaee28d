//! Golden pools through an ARC that is too small for them, so that it keeps their blocks compressed: of all
//! algorithms, embedded, in gangs, deduplicated.

use std::sync::Arc;

use device::block_on;
use engine::zvol::Zvol;
use testkit::manifest::hex_sha256;

use crate::support::{EngineTree, import_with_cache, objset};

fn check(name: &str) {
    let Some(golden) = testkit::golden::pool(name) else { return };
    let pool = import_with_cache(&golden, 1 << 20).unwrap();
    let mut is_compressed = false;
    for _ in 0..2 {
        for dataset in golden.filesystems().unwrap() {
            let tree = EngineTree::open(&pool, &dataset).unwrap();
            golden.manifest(&dataset).unwrap().assert_same(&dataset, &tree);
            let stats = pool.cache().arcstats();
            is_compressed |= stats.compressed_size < stats.uncompressed_size && stats.deleted > 0;
        }
        for dataset in golden.volumes().unwrap() {
            let volume: Arc<Zvol> = block_on(Zvol::open(&objset(&pool, &dataset).unwrap())).unwrap();
            let mut bytes = vec![0; volume.size() as usize];
            // Each block is read in pieces.
            for (index, piece) in bytes.chunks_mut(3000).enumerate() {
                block_on(volume.read_at(index as u64 * 3000, piece)).unwrap();
            }
            assert_eq!(hex_sha256(&bytes), golden.volume_sha256(&dataset).unwrap(), "{dataset}");
        }
    }
    assert!(is_compressed, "the ARC was short of memory, and kept compressed blocks");
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

pools! { codecs dedupfast gang24 volumes }
