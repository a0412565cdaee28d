//! Golden pools mounted through FUSE, compared with what OpenZFS showed of them.
//!
//! Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use device::block_on;
use engine::dataset::dsl::Dsl;
use engine::dataset::properties::Environment;
use engine::dataset::zpl::{Zpl, ZplOptions};
use engine::pool::import::{ImportOptions, import};
use engine::pool::{discovery, errlog};
use ondisk::ObjectId;
use ondisk::zpl::FileType;
use server::fuse::{self, FuseMount, MountError, MountOptions, Source};
use testkit::GoldenPool;
use testkit::manifest::HostTree;

fn golden(name: &str) -> Option<GoldenPool> {
    if testkit::skipped("fuse", name) { None } else { testkit::golden::pool(name) }
}

/// The datasets of a golden pool, opened read-only, its keys loaded.
fn open(golden: &GoldenPool) -> Arc<Dsl> {
    block_on(async {
        let found = discovery::scan(&[&golden.dir]).await.unwrap();
        let pool = import(&found[0], &ImportOptions::read_only()).await.unwrap();
        let dsl = Dsl::open(&pool).await.unwrap();
        for root in dsl.encryption_roots(None).await.unwrap() {
            let material = match format!("{:?}", root.format).to_lowercase().as_str() {
                "passphrase" => "pass",
                "raw" => "rawkey",
                _ => "hex",
            };
            let material = std::fs::read(golden.expect(material)).unwrap();
            let material = material.strip_suffix(b"\n").unwrap_or(&material);
            dsl.load_key(&root.dir.name, material, false).await.unwrap();
        }
        Arc::new(dsl)
    })
}

fn mount(dsl: &Arc<Dsl>, name: &str, at: &Path) -> FuseMount {
    let (dataset, options) = block_on(async {
        let entry = dsl.entry(name).await.unwrap();
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
        (entry.dataset().unwrap().clone(), MountOptions::from_properties(&properties))
    });
    fuse::mount(Source::Committed(Arc::clone(dsl), dataset), at, &options).unwrap()
}

/// Every filesystem of the pool, and every snapshot below `.zfs/snapshot`, is what the manifests say.
fn check(name: &str) {
    let Some(golden) = golden(name) else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let recorded = golden.filesystems().unwrap();
    assert!(!recorded.is_empty(), "{name} has no manifests");
    for filesystem in recorded.iter().filter(|name| !name.contains('@')) {
        let mount = mount(&dsl, filesystem, place.path());
        golden.manifest(filesystem).unwrap().assert_same(filesystem, &HostTree::new(place.path()));
        let below = format!("{filesystem}@");
        for snapshot in recorded.iter().filter(|name| name.starts_with(&below)) {
            let path = place.path().join(".zfs/snapshot").join(&snapshot[below.len()..]);
            golden.manifest(snapshot).unwrap().assert_same(snapshot, &HostTree::new(path));
        }
        mount.unmount(false).map_err(|failed| failed.1).unwrap();
    }
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

pools! {
    single volumes triple rz1 rz2 rz3 rz1s9 dr2 codecs dedupold dedupfast crypt classes removed expanded bclone
    checkpoint legacy28 features0 degraded corrupt streams
}

#[test]
fn a_mount_in_use_is_busy_until_forced() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let held = mount(&dsl, "single/fs", place.path());
    let open_file = File::open(place.path()).unwrap();
    let (held, error) = *held.unmount(false).unwrap_err();
    assert!(matches!(error, MountError::Busy { .. }), "{error}");
    assert!(held.is_alive());
    held.unmount(true).map_err(|failed| failed.1).unwrap();
    assert!(!place.path().join("a").exists());
    drop(open_file);
}

/// A block that is damaged on the only device: its file says so, at that place, and no other file is touched.
#[test]
fn a_damaged_block_is_an_error_in_its_file_and_in_the_log() {
    let Some(golden) = golden("single") else { return };
    let copies = tempfile::tempdir().unwrap();
    let disk = golden.private_copy(copies.path()).unwrap().remove(0);
    let dsl = open(&GoldenPool { name: golden.name.clone(), dir: copies.path().to_owned() });

    // Some file of several blocks, and where its second block lies.
    let (dataset, zpl) = block_on(async {
        let dataset = dsl.find("single/r4k").await.unwrap();
        let objset = dsl.open_objset(&dataset).await.unwrap();
        (dataset, Zpl::open(&objset, ZplOptions::default()).await.unwrap())
    });
    let (object, pointer) = block_on(async {
        let mut id = ObjectId(2);
        loop {
            id = zpl
                .objset()
                .next_object(ObjectId(id.0 + 1))
                .await
                .unwrap()
                .expect("a file of several blocks");
            if let Ok(node) = zpl.node(id).await
                && node.file_type() == FileType::Regular
                && let Some(pointer) = node.object().blkptr(0, 1).await.unwrap()
                && !pointer.is_embedded()
            {
                break (id, pointer);
            }
        }
    });
    let path = String::from_utf8(block_on(zpl.path_of(object)).unwrap().unwrap()).unwrap();
    let dva = pointer.dva(0).unwrap();
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0xa5; 512], dva.offset.get() + (4 << 20)).unwrap();

    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, &dataset.name, place.path());
    let file = File::open(place.path().join(&path[1..])).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).unwrap();
    assert_eq!(file.read_exact_at(&mut block, 4096).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(golden.manifest(&dataset.name).unwrap().differences(&HostTree::new(place.path())).len() == 1);

    let damaged = block_on(errlog::read(&dsl)).unwrap();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert_eq!((damaged[0].objset.0, damaged[0].object, damaged[0].block.0), (dataset.object.0, object, 1));
}

#[test]
fn nothing_can_be_written() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, "single/fs", place.path());
    for result in [
        std::fs::write(place.path().join("new"), b"x"),
        std::fs::remove_file(place.path().join("empty")),
        std::fs::create_dir(place.path().join("dir")),
        std::fs::rename(place.path().join("empty"), place.path().join("full")),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
}

#[test]
fn the_snapshot_directory_is_hidden_but_there() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, "single/fs", place.path());
    let names = |path: &Path| -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert!(!names(place.path()).contains(&".zfs".to_owned()));
    assert_eq!(names(&place.path().join(".zfs")), ["snapshot"]);
    assert_eq!(names(&place.path().join(".zfs/snapshot")), ["one", "two"]);
    assert!(!place.path().join(".zfs/snapshot/three").exists());
}

#[test]
fn holes_are_told_from_data() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, "single/fs", place.path());
    let huge = File::open(place.path().join("huge")).unwrap();
    // SAFETY: the descriptor is open.
    let data = unsafe { libc::lseek(huge.as_raw_fd(), 0, libc::SEEK_DATA) };
    // SAFETY: as above.
    let hole = unsafe { libc::lseek(huge.as_raw_fd(), 0, libc::SEEK_HOLE) };
    assert!(data >= 0 && hole >= 0 && data != hole, "data at {data}, hole at {hole}");
}
