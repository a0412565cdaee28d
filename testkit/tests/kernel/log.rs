//! OpenZFS's kernel module applies an intent log of ours: the pool crashed, and is what it was promised to
//! be.

use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::env::Seeded;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop};
use engine::vdev::Class;
use engine::zpl::live::XattrPlace;
use engine::zpl::{LiveZpl, Zpl, ZplOptions};
use ondisk::zpl::ZnodeFlags;
use testkit::kernel::{Job, KernelVm};

#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/files.rs"]
pub mod files;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/support.rs"]
mod support;

use files::{DIRECTORY, FILE, Seen, change, see};
use support::{POOL, committing, new_pool, surroundings};

/// What is compared: flags that say when something was changed are the kernel's own.
fn comparable(seen: Seen) -> Seen {
    Seen { flags: seen.flags & ZnodeFlags::HIDDEN.0, ..seen }
}

#[test]
fn the_kernel_applies_our_intent_log() {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d0");
    std::fs::File::create(&path).and_then(|file| file.set_len(256 << 20)).expect("a disk");
    let crashed: PathBuf = folder.path().join("crashed");
    let expected = block_on(async {
        let device = Arc::new(device::OpenOptions::read_write().open(&path).expect("a disk"));
        let leaf = NewLeaf { device, path: path.clone(), is_file: false, whole_disk: false };
        let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.expect("a pool");
        let head = Dsl::open(&pool.view()).await.expect("datasets").find(POOL).await.expect("the root");
        let dataset = pool.dataset(head.objset_id()).await.expect("open");
        let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await;
        let zpl = zpl.expect("a filesystem");
        let random = Seeded::new(5);
        // Some of it is committed, more is in the log alone.
        for _ in 0..40 {
            change(&zpl, &random, XattrPlace::Directory).await;
        }
        let source = zpl.create(zpl.zpl().root(), b"source", &FILE).await.expect("a file");
        let bytes: Vec<u8> = (0..700_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        zpl.write(source, 0, &bytes, &Default::default()).await.expect("a write");
        committing(&pool, zpl.sync_all()).await.expect("a log");
        pool.sync().await.expect("a commit");
        let before = pool.txgs().synced_txg();
        zpl.create(zpl.zpl().root(), b"dir", &DIRECTORY).await.expect("a directory");
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.expect("a file");
        zpl.write(file, 100_000, &[7; 300_000], &Default::default()).await.expect("a write");
        // Its blocks are shared, and the log has the pointers.
        let clone = zpl.create(zpl.zpl().root(), b"clone", &FILE).await.expect("a file");
        zpl.copy_range(source, 0, clone, 0, bytes.len() as u64).await.expect("a clone");
        for round in 0..150 {
            change(&zpl, &random, XattrPlace::Directory).await;
            if round % 10 == 0 {
                zpl.sync_all().await.expect("stable");
            }
        }
        zpl.sync_all().await.expect("stable");
        assert_eq!(pool.txgs().synced_txg(), before, "the log has it alone");
        std::fs::copy(&path, &crashed).expect("a copy");
        see(zpl.zpl()).await
    });
    std::fs::remove_file(&path).expect("gone");
    let script = "
        set -e
        zpool import -f -d /dev tank
        zfs mount tank 2>/dev/null || true
        zfs mount
        dmesg | grep -i 'replay' || true
        ls -la /tank | head -40
        zpool scrub -w tank
        zpool status -v tank
        zpool export tank
    ";
    let outcome = vm.run(&Job::new(script, vec![crashed])).expect("the machine runs");
    let output = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{output}");
    assert!(
        output.contains("No known data errors") && !output.contains("replay transaction error"),
        "{output}"
    );
    let found = block_on(async {
        let found = discovery::scan(&[folder.path()]).await.expect("a scan");
        let found = select(found, POOL).expect("the pool");
        let options = ImportOptions::read_only();
        let pool = engine::pool::import::import(&found, &options).await.expect("an import");
        let dsl = Dsl::open(&pool).await.expect("datasets");
        let head = dsl.find(POOL).await.expect("the root");
        let objset = dsl.open_objset(&head).await.expect("its objects");
        see(&Zpl::open(&objset, ZplOptions::default()).await.expect("a filesystem")).await
    });
    let shown =
        |seen: &Seen| Seen { content: Vec::new(), xattrs: Default::default(), ..comparable(seen.clone()) };
    for (path, seen) in &expected {
        assert_eq!(found.get(path).map(shown), Some(shown(seen)), "{path}\n{output}");
        let found = &found[path];
        assert!(found.content == seen.content && found.xattrs == seen.xattrs, "{path}\n{output}");
    }
    assert_eq!(found.len(), expected.len(), "{:?}\n{output}", found.keys());
}
