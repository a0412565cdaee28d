//! Raw streams in both directions: the module receives ours without keys, opens what came with the user's
//! key, changes that key, and sends raw back; streams of its own datasets are received here. All of it full
//! and then incremental.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, KeyChange, NewContents, NewSnapshot};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::pool::live::LivePool;
use engine::receive::ReceiveTarget;
use engine::zpl::live::XattrPlace;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::content;
use super::encrypted::{create, load, write_file};
use super::scrub::import;
use super::streams::{SEE, bytes, empty, order, receive};

const DISK_BYTES: u64 = 256 << 20;
const STREAM_BYTES: u64 = 24 << 20;
const OURS: &str = "a passphrase of ours";
const THEIRS: &str = "a passphrase of theirs";

/// A file as large as a disk of the machine, with a stream at its beginning.
fn stream_disk(folder: &Path, name: &str, stream: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, stream).expect("a stream");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("a stream");
    file.set_len(STREAM_BYTES.max(stream.len() as u64).next_multiple_of(1 << 20)).expect("a disk");
    path
}

async fn key(pool: &Arc<LivePool>, passphrase: &str) -> UserKey {
    UserKey::new(KeyFormat::Passphrase, passphrase.as_bytes(), Some(100_000), &**pool.env()).expect("a key")
}

async fn snapshot(pool: &Arc<LivePool>, names: &[&str]) {
    let new = |name: &&str| NewSnapshot { name: (*name).into(), properties: Vec::new() };
    let new: Vec<_> = names.iter().map(new).collect();
    pool.change(move |s| async move { edit::snapshot(&s, &new).await }).await.expect("a snapshot");
    pool.sync().await.expect("a commit");
}

async fn change_files(pool: &Arc<LivePool>, name: &str, seed: u64) {
    let id = Dsl::open(&pool.view()).await.expect("datasets").find(name).await.expect(name).objset_id();
    let zpl = pool.filesystem(id).await.expect("a filesystem");
    let random = engine::env::Seeded::new(seed);
    for _ in 0..120 {
        super::log::files::change(&zpl, &random, XattrPlace::Attributes).await;
    }
}

async fn file(pool: &Arc<LivePool>, of: &str, name: &[u8], length: usize) -> Vec<u8> {
    let id = Dsl::open(&pool.view()).await.expect("datasets").find(of).await.expect(of).objset_id();
    let zpl = pool.filesystem(id).await.expect("a filesystem");
    let root = zpl.zpl().node(zpl.zpl().root()).await.expect("its root");
    let object = root.lookup(name).await.expect("its entries").expect("a file");
    let mut found = vec![0; length];
    assert_eq!(zpl.read(object, 0, &mut found).await.expect("its bytes"), length);
    found
}

#[test]
fn raw_streams_go_both_ways() {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (tank, copy) = (folder.path().join("tank"), folder.path().join("copy"));
    for disk in [&tank, &copy] {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    }
    let data = content(1 << 20);
    block_on(async {
        // The module makes pools on disks with partitions, for which the machine has no nodes.
        let pool = empty("copy", &copy).await;
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let streams = block_on(async {
        let pool = empty("tank", &tank).await;
        let own = key(&pool, OURS).await;
        let properties = [("encryption", "aes-256-gcm"), ("keyformat", "passphrase"), ("xattr", "sa")];
        create(&pool, "tank/enc", NewContents::Filesystem, &properties, Some(own)).await;
        create(&pool, "tank/enc/child", NewContents::Filesystem, &[("encryption", "aes-128-ccm")], None)
            .await;
        let vol = NewContents::Volume { size: 4 << 20, sparse: true };
        create(&pool, "tank/enc/vol", vol, &[("volblocksize", "16K")], None).await;
        write_file(&pool, "tank/enc", b"data", &data, false).await;
        write_file(&pool, "tank/enc/child", b"data", &data[..300_000], false).await;
        change_files(&pool, "tank/enc", 1).await;
        let id = Dsl::open(&pool.view()).await.expect("datasets").find("tank/enc/vol").await.expect("vol");
        let volume = pool.volume(id.objset_id()).await.expect("a volume");
        volume.write_at(0, &data, false).await.expect("a write");
        drop(volume);
        snapshot(&pool, &["tank/enc@a", "tank/enc/child@a", "tank/enc/vol@a"]).await;
        change_files(&pool, "tank/enc", 2).await;
        write_file(&pool, "tank/enc", b"more", &data[..100_000], false).await;
        snapshot(&pool, &["tank/enc@b", "tank/enc/child@b", "tank/enc/vol@b"]).await;
        let view = pool.view();
        let mut streams = Vec::new();
        for (name, what) in [
            ("full", "-w tank/enc@a"),
            ("more", "-wi tank/enc@a tank/enc@b"),
            ("child", "-w tank/enc/child@b"),
            ("vol", "-w tank/enc/vol@b"),
        ] {
            streams.push(stream_disk(folder.path(), name, &bytes(&view, &order(what)).await.expect(what)));
        }
        drop(view);
        pool.close(PoolState::Exported).await.expect("an export");
        streams
    });
    let back = ["back", "theirs1", "theirs2"].map(|name| stream_disk(folder.path(), name, &[]));
    let mut disks = vec![tank.clone(), copy.clone()];
    disks.extend(streams.iter().chain(&back).cloned());
    let dev = |number: usize| format!("/dev/{}", Job::disk_name(number));
    let script = format!(
        "
        set -e
        {SEE}
        mkdir -p /m
        zpool import -d /dev -o readonly=on -N tank
        zpool import -d /dev -N copy
        zfs receive -u copy/enc < {full}
        zfs receive -u copy/enc < {more}
        zfs receive -u copy/enc/child < {child}
        zfs receive -u copy/enc/vol < {vol}
        zpool scrub -w copy
        zpool status -v copy
        zfs get -Ho value keylocation,keystatus,encryptionroot copy/enc
        echo '{OURS}' | zfs load-key copy/enc
        echo '{OURS}' | zfs load-key copy/enc/child
        echo '{OURS}' | zfs load-key copy/enc/vol
        echo '{OURS}' | zfs load-key tank/enc
        for name in enc@a enc@b enc/child@b; do
          echo '## '
          mount -t zfs -o ro tank/$name /m; see /m; umount /m
          mount -t zfs -o ro copy/$name /m; see /m; umount /m
        done
        echo '## '
        zpool export tank
        for i in $(seq 20); do [ -e /dev/zd0 ] && break; sleep 1; done
        sha256sum /dev/zd0
        zfs set mountpoint=/m copy/enc
        zfs mount copy/enc 2>/dev/null || true
        head -c 60000 /m/more > /m/kernel
        setfattr -n user.long -v $(head -c 2000 /dev/zero | tr '\\\\0' x) /m/kernel || true
        rm -f /m/more
        sync
        zfs userspace -Hpn copy/enc
        zfs unmount copy/enc
        (echo '{THEIRS}'; echo '{THEIRS}') | zfs change-key copy/enc
        zfs snapshot copy/enc@c
        zfs send -w -i @b copy/enc@c | dd of={back} bs=64k conv=notrunc 2>/dev/null
        echo '{THEIRS}' | zfs create -o encryption=aes-192-gcm -o keyformat=passphrase -o xattr=sa \
          -o mountpoint=/m -o recordsize=1M copy/theirs
        zfs unmount copy/theirs 2>/dev/null || true
        zfs mount copy/theirs
        head -c 900000 /dev/urandom > /m/random; cp /m/random /m/again
        mkdir /m/dir; for i in $(seq 100); do echo $i > /m/dir/$i; done
        zfs snapshot copy/theirs@1
        dd if=/dev/urandom of=/m/again bs=1000 count=100 conv=notrunc 2>/dev/null
        rm -r /m/dir; echo last > /m/last
        zfs snapshot copy/theirs@2
        echo '## '
        cd /m; sha256sum random again last; cd /
        zfs unmount copy/theirs
        zfs send -w copy/theirs@1 | dd of={one} bs=64k conv=notrunc 2>/dev/null
        (echo '{OURS}'; echo '{OURS}') | zfs change-key copy/theirs
        zfs send -w -i @1 copy/theirs@2 | dd of={two} bs=64k conv=notrunc 2>/dev/null
        zpool scrub -w copy
        zpool status -v copy
        zpool export copy
        ",
        full = dev(2),
        more = dev(3),
        child = dev(4),
        vol = dev(5),
        back = dev(6),
        one = dev(7),
        two = dev(8),
    );
    let mut job = Job::new(script, disks);
    job.limit = Duration::from_secs(900);
    let outcome = vm.run(&job).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    assert_eq!(said.matches("errors: No known data errors").count(), 2, "{said}");
    assert_eq!(said.matches("with 0 errors").count(), 2, "{said}");
    assert!(said.contains("prompt\nunavailable\ncopy/enc\n"), "{said}");
    let parts: Vec<Vec<&str>> = said.split("## \n").skip(1).map(|part| part.lines().collect()).collect();
    assert_eq!(parts.len(), 5, "{said}");
    for lines in &parts[..3] {
        assert_eq!(lines[..3], lines[3..6], "{said}");
    }
    let mut volume = data.clone();
    volume.resize(4 << 20, 0);
    assert!(said.contains(&hex_sha256(&volume)), "{said}");
    let sums: Vec<&str> = parts[4][..3].iter().filter_map(|line| line.split(' ').next()).collect();
    // What it sent, here.
    block_on(async {
        let pool = import(std::slice::from_ref(&tank), 3).await;
        let target = |dataset: &str, snapshot: &str| ReceiveTarget {
            dataset: dataset.into(),
            snapshot: snapshot.into(),
            ..ReceiveTarget::default()
        };
        let stream = |path: &PathBuf| std::fs::read(path).expect("a stream");
        receive(&pool, &stream(&back[0]), target("tank/enc", "c")).await;
        receive(&pool, &stream(&back[1]), target("tank/theirs", "1")).await;
        receive(&pool, &stream(&back[2]), target("tank/theirs", "2")).await;
        let dsl = Dsl::open(&pool.view()).await.expect("datasets");
        assert!(dsl.load_key("tank/enc", OURS.as_bytes(), false).await.is_err(), "the key of before");
        drop(dsl);
        load(&pool, "tank/enc", THEIRS).await;
        load(&pool, "tank/theirs", OURS).await;
        assert!(file(&pool, "tank/enc", b"kernel", 60_000).await == data[..60_000]);
        for (name, (length, sum)) in
            ["random", "again", "last"].into_iter().zip([900_000, 900_000, 5].into_iter().zip(&sums))
        {
            let found = file(&pool, "tank/theirs", name.as_bytes(), length).await;
            assert_eq!(hex_sha256(&found), **sum, "{name}");
        }
        write_file(&pool, "tank/theirs", b"ours", &data, false).await;
        let new = Arc::new(key(&pool, THEIRS).await);
        let to = KeyChange::New { key: new, location: None };
        pool.change(move |s| async move { edit::change_key(&s, "tank/theirs", &to, &[]).await })
            .await
            .expect("another key");
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let script = format!(
        "
        set -e
        mkdir -p /m
        zpool import -d /dev tank
        zpool scrub -w tank
        zpool status -v tank
        echo '{THEIRS}' | zfs load-key tank/theirs
        mount -t zfs -o zfsutil tank/theirs /m
        cd /m; sha256sum random again last ours; cd /
        umount /m
        echo '{THEIRS}' | zfs load-key tank/enc
        mount -t zfs -o zfsutil tank/enc /m
        sha256sum /m/kernel
        umount /m
        zfs unload-key -a
        zfs destroy -r tank/enc
        zpool sync tank
        zpool export tank
        "
    );
    let mut job = Job::new(script, vec![tank.clone()]);
    job.limit = Duration::from_secs(600);
    let outcome = vm.run(&job).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    for sum in sums.iter().copied().chain([&*hex_sha256(&data), &*hex_sha256(&data[..60_000])]) {
        assert!(said.contains(sum), "{said}");
    }
    assert!(said.contains("with 0 errors") && said.contains("errors: No known data errors"), "{said}");
    let _ = std::fs::remove_file(&copy);
    let complaint = testkit::oracle::complaint(folder.path(), "tank");
    assert!(complaint.is_none(), "{complaint:?}");
}
