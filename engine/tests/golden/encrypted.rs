//! Encrypted filesystems and volumes are refused without their keys and right with them.

use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::zpl::{Zpl, ZplOptions};
use engine::zvol::Zvol;
use engine::{Error, Pool};
use testkit::GoldenPool;
use testkit::manifest::hex_sha256;

use crate::support::{EngineTree, import_golden, import_with_cache, objset};

#[test]
fn encrypted_datasets_need_their_keys_and_are_right_with_them() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let pool = import_golden(&golden).unwrap();
    load_keys(&golden, &pool);
    check(&golden, &pool);
}

#[test]
fn encrypted_blocks_are_right_from_a_small_arc_that_keeps_them_compressed() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let pool = import_with_cache(&golden, 256 << 10).unwrap();
    load_keys(&golden, &pool);
    for _ in 0..2 {
        check(&golden, &pool);
    }
    let stats = pool.cache().arcstats();
    assert!(stats.compressed_size < stats.uncompressed_size && stats.deleted > 0, "{stats:?}");
}

pub fn load_keys(golden: &GoldenPool, pool: &Arc<Pool>) {
    for name in ["crypt/gcm", "crypt/ccm", "crypt/gcm/child", "crypt/gcm@s"] {
        let error = block_on(Zpl::open(&objset(pool, name).unwrap(), ZplOptions::default())).unwrap_err();
        assert!(matches!(error, Error::KeyNotLoaded { .. }), "{name}: {error}");
    }

    let dsl = block_on(Dsl::open(pool)).unwrap();
    for (root, file) in [("crypt/gcm", "pass"), ("crypt/ccm", "rawkey"), ("crypt/vol", "hex")] {
        let key = std::fs::read(golden.expect(file)).unwrap();
        let key = if file == "rawkey" { &key[..] } else { key.trim_ascii_end() };
        let wrong = [&key[1..], b"0"].concat();
        assert!(block_on(dsl.load_key(root, &wrong, false)).is_err(), "{root}: a wrong key was taken");
        block_on(dsl.load_key(root, key, false)).unwrap();
    }
}

/// Compares all with what was recorded.
fn check(golden: &GoldenPool, pool: &Arc<Pool>) {
    for name in golden.filesystems().unwrap() {
        let tree = EngineTree::open(pool, &name).unwrap();
        golden.manifest(&name).unwrap().assert_same(&name, &tree);
    }
    for name in golden.volumes().unwrap() {
        let volume = block_on(Zvol::open(&objset(pool, &name).unwrap())).unwrap();
        let mut bytes = vec![0; volume.size() as usize];
        block_on(volume.read_at(0, &mut bytes)).unwrap();
        assert_eq!(hex_sha256(&bytes), golden.volume_sha256(&name).unwrap(), "{name}");
    }
}
