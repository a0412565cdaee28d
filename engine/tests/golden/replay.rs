//! A pool that crashed under OpenZFS: imported for writing, its intent logs are applied, and it is what
//! OpenZFS makes of it.

use std::path::Path;
use std::sync::Arc;

use device::{Device, OpenOptions, block_on};
use engine::dsl::Dsl;
use engine::env::Seeded;
use engine::pool::discovery::{self, FoundPool};
use engine::pool::import::ImportOptions;
use engine::pool::live::{LivePool, Surroundings};
use engine::pool::replayed;
use engine::txg::Limits;
use engine::zvol::Zvol;
use ondisk::vdev_config::PoolState;
use testkit::manifest::hex_sha256;

use crate::support::EngineTree;

fn surroundings() -> Surroundings {
    Surroundings {
        env: Arc::new(Seeded::new(1)),
        cache: None,
        limits: Limits::default(),
        host: (0x1234_5678, "test".into()),
    }
}

/// The pool in a folder, with devices open for writing.
async fn found(folder: &Path) -> FoundPool {
    let mut found = discovery::scan(&[folder]).await.unwrap().into_iter().next().unwrap();
    for candidate in found.candidates.values_mut() {
        let device = OpenOptions::read_write().open(candidate.device.path()).unwrap();
        let device: Arc<dyn Device> = Arc::new(device);
        candidate.device = device;
    }
    found
}

#[test]
fn intent_logs_of_openzfs_are_applied() {
    let Some(golden) = testkit::golden::pool("zilreplay") else { return };
    let folder = tempfile::tempdir().unwrap();
    golden.private_copy(folder.path()).unwrap();
    let force = ImportOptions { force: true, ..Default::default() };
    // The second time there is nothing to apply any more.
    for _ in 0..2 {
        block_on(async {
            let pool = LivePool::import(&found(folder.path()).await, &force, surroundings()).await.unwrap();
            for name in golden.filesystems().unwrap() {
                let tree = EngineTree::open(&pool.view(), &name).unwrap();
                let mut differences = golden.manifest(&name).unwrap().differences(&tree);
                // Records of writes and of names tell no time: it is that of the replay.
                differences.retain(|difference| !difference.contains(": mtime_ns is "));
                assert!(differences.is_empty(), "{name}: {differences:?}");
            }
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            for name in golden.volumes().unwrap() {
                let volume = dsl.find(&name).await.unwrap();
                let volume = Zvol::open(&dsl.open_objset(&volume).await.unwrap()).await.unwrap();
                let mut content = vec![0; volume.size() as usize];
                volume.read_at(0, &mut content).await.unwrap();
                assert_eq!(hex_sha256(&content), golden.volume_sha256(&name).unwrap(), "{name}");
            }
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
}

#[test]
fn who_only_reads_sees_what_the_logs_hold_and_the_devices_stay_as_they_are() {
    let Some(golden) = testkit::golden::pool("zilreplay") else { return };
    block_on(async {
        let found = discovery::scan(&[&golden.dir]).await.unwrap().into_iter().next().unwrap();
        assert!(found.candidates.values().all(|candidate| candidate.device.is_read_only()));
        let options = ImportOptions::read_only();
        let opened = replayed::open(&found, &options, surroundings(), 1 << 30).await.unwrap();
        assert!(opened.not_shown.is_empty() && opened.why.is_none(), "{:?}", opened.why);
        for name in golden.filesystems().unwrap() {
            let tree = EngineTree::open(&opened.pool, &name).unwrap();
            let mut differences = golden.manifest(&name).unwrap().differences(&tree);
            differences.retain(|difference| !difference.contains(": mtime_ns is "));
            assert!(differences.is_empty(), "{name}: {differences:?}");
        }
        // With too little memory the committed state is shown, and that is said.
        let opened = replayed::open(&found, &options, surroundings(), 64 << 10).await.unwrap();
        assert!(!opened.not_shown.is_empty() && opened.why.is_some());
        assert_eq!(replayed::unreplayed(&opened.pool).await.unwrap(), opened.not_shown);
    });
}
