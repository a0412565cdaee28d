//! The pools that are judged: every layout, sector size, codec and block size, and all that files and
//! datasets can be.

use std::ffi::CString;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use device::{OpenOptions, block_on};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, TakeOffline};
use engine::vdev::Class;
use ondisk::vdev_config::PoolState;
use tempfile::TempDir;
use testkit::Rng;
use testkit::fsx::{self, Fsx};

use crate::hand::Hand;
use crate::history::History;
use crate::support::{Disks, POOL, committing, new_pool, surroundings};

/// Operations of a random history.
const HISTORY_STEPS: u64 = 150;
/// At which of them vdevs are added, and a disk goes and comes back.
const ADDED_AT: u64 = 50;
const OFFLINE_AT: u64 = 80;
const ONLINE_AT: u64 = 120;

/// A kind of pool.
pub struct Kind {
    pub name: &'static str,
    ashift: u8,
    disk_mib: u64,
    /// Top-level vdevs, with their numbers of disks.
    tops: &'static [(Layout, Class, usize)],
    fill: fn(&Hand, &str),
}

pub const KINDS: &[Kind] = &[
    Kind {
        name: "codecs",
        ashift: 9,
        disk_mib: 96,
        tops: &[(Layout::Single, Class::Normal, 1), (Layout::Single, Class::Normal, 1)],
        fill: fill_codecs,
    },
    Kind {
        name: "sums",
        ashift: 12,
        disk_mib: 96,
        tops: &[(Layout::Mirror, Class::Normal, 2)],
        fill: fill_sums,
    },
    Kind {
        name: "blocks",
        ashift: 12,
        disk_mib: 96,
        tops: &[(Layout::Raidz { nparity: 1 }, Class::Normal, 3)],
        fill: fill_blocks,
    },
    Kind {
        name: "volumes",
        ashift: 9,
        disk_mib: 96,
        tops: &[(Layout::Raidz { nparity: 2 }, Class::Normal, 4)],
        fill: fill_volumes,
    },
    Kind {
        name: "names",
        ashift: 13,
        disk_mib: 96,
        tops: &[(Layout::Raidz { nparity: 3 }, Class::Normal, 5)],
        fill: fill_names,
    },
    Kind {
        name: "classes",
        ashift: 12,
        disk_mib: 96,
        tops: &[
            (Layout::Mirror, Class::Normal, 2),
            (Layout::Mirror, Class::Special, 2),
            (Layout::Single, Class::Log, 1),
        ],
        fill: fill_classes,
    },
    Kind {
        name: "trees",
        ashift: 12,
        disk_mib: 128,
        tops: &[(Layout::Single, Class::Normal, 1)],
        fill: fill_trees,
    },
    Kind {
        name: "attributes",
        ashift: 9,
        disk_mib: 128,
        tops: &[(Layout::Single, Class::Normal, 1)],
        fill: fill_attributes,
    },
    Kind {
        name: "brim",
        ashift: 12,
        disk_mib: 64,
        tops: &[(Layout::Single, Class::Normal, 1)],
        fill: fill_to_the_brim,
    },
    Kind {
        name: "exercised",
        ashift: 12,
        disk_mib: 128,
        tops: &[(Layout::Draid { nparity: 1, ndata: 2, nspares: 1 }, Class::Normal, 5)],
        fill: fill_by_fsx,
    },
];

impl Kind {
    /// Makes the pool in a folder and fills it.
    pub fn make(&self, hand: &Hand, folder: &Path) {
        let disk = |number: usize| folder.join(format!("d{number:02}"));
        let mut number = 0;
        let mut tops = Vec::new();
        for (layout, class, count) in self.tops {
            let leaves =
                (number..number + count).map(|number| leaf(disk(number), self.disk_mib << 20)).collect();
            tops.push(NewTop { layout: *layout, class: *class, leaves });
            number += count;
        }
        let new = NewPool { name: self.name.into(), ..unmounted(tops, self.ashift) };
        block_on(async {
            let pool = LivePool::create(new, surroundings(seed_of(self.name))).await.expect("a pool");
            pool.close(PoolState::Exported).await.expect("an export");
        });
        hand.import(self.name, folder, "");
        (self.fill)(hand, self.name);
        hand.export(self.name);
    }
}

/// What the random numbers of a pool begin with. Pools with the same numbers have the same GUID, and only one
/// of them can be open on a machine.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(1, |seed, byte| (seed << 5) ^ u64::from(byte))
}

/// A pool whose filesystems are mounted only where they are asked for, and whose snapshots of volumes can be
/// read.
fn unmounted(tops: Vec<NewTop>, ashift: u8) -> NewPool {
    let properties = [("mountpoint", "none"), ("snapdev", "visible")];
    let root_properties = properties.map(|(name, value)| (name.into(), value.into())).to_vec();
    NewPool { root_properties, ..new_pool(tops, ashift) }
}

/// What happens to a pool besides its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is without one of its disks for a while.
    DiskIsAway,
    /// It has a checkpoint.
    Checkpoint,
}

/// A pool after random operations on its volumes, filesystems and snapshots. Meanwhile it got more vdevs.
pub fn with_history(hand: &Hand, name: &str, seed: u64, event: Event) -> TempDir {
    let disks = Disks::new(128 << 20);
    let top = |layout, class, prefix, count| {
        let mut top = disks.top(layout, class, prefix, count);
        // They become disks of the machine, and the module refuses vdevs of the kind "file" that are block
        // devices.
        top.leaves.iter_mut().for_each(|leaf| leaf.is_file = false);
        top
    };
    block_on(async {
        let first = top(Layout::Mirror, Class::Normal, "d", 2);
        let pool = LivePool::create(unmounted(vec![first], 12), surroundings(seed)).await.expect("a pool");
        let mut history = History::begin(pool.clone(), seed).await;
        let leaf = pool.pool().vdevs().leaves().next().map(|leaf| leaf.guid).expect("a disk");
        for number in 1..=HISTORY_STEPS {
            match number {
                ADDED_AT => {
                    let more = vec![
                        top(Layout::Mirror, Class::Normal, "e", 2),
                        top(Layout::Single, Class::Log, "log", 1),
                    ];
                    pool.add(more, Some(12)).await.expect("more vdevs");
                }
                OFFLINE_AT if event == Event::DiskIsAway => {
                    pool.offline(leaf, TakeOffline::Persistently).await.expect("it is not needed")
                }
                ONLINE_AT if event == Event::DiskIsAway => drop(pool.online(leaf).await.expect("it is back")),
                _ => {}
            }
            history.step(number).await;
        }
        history.check().await;
        committing(&pool, pool.close(PoolState::Exported)).await.expect("an export");
    });
    hand.run(&format!("zpool import -N -d '{}' {POOL} {name}", disks.path().display()));
    if event == Event::Checkpoint {
        hand.run(&format!("zpool checkpoint {name}"));
    }
    println!("{name}: changed by us: {}", hand.change(name));
    hand.export(name);
    disks.folder
}

/// A new disk.
fn leaf(path: PathBuf, bytes: u64) -> NewLeaf {
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("a disk");
    let device = Arc::new(OpenOptions::read_write().open(&path).expect("a disk"));
    // It becomes a block device of the machine, and the module refuses vdevs of the kind "file" that are
    // block devices.
    NewLeaf { device, path, is_file: false, whole_disk: false }
}

/// Bytes that compress: words of a few letters.
fn text(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| b"etaoin s"[rng.index(8)]).collect()
}

/// Bytes that do not.
fn noise(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.next_u64() as u8).collect()
}

/// Files whose blocks become as different as can be.
fn write_some(dir: &Path, seed: u64) {
    let rng = &mut Rng::new(seed);
    let write = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).expect(name);
    write("text", &text(rng, 300_000));
    write("noise", &noise(rng, 50_000));
    let mixed = [noise(rng, 20_000), vec![0; 150_000], text(rng, 30_000)].concat();
    write("mixed", &mixed);
    // Its block is in the block pointer.
    write("tiny", b"tiny tiny tiny tiny tiny tiny tiny tiny tiny tiny");
    write("zeros", &[0; 200_000]);
    write("empty", b"");
    let sparse = File::create(dir.join("sparse")).expect("a file");
    for at in [0, 1_000_000, 5_000_000] {
        sparse.write_all_at(&text(rng, 5000), at).expect("a write");
    }
    sparse.set_len(9_000_000).expect("a hole");
}

/// A filesystem with these properties and some files.
fn filled(hand: &Hand, name: &str, properties: &str) {
    hand.run(&format!("zfs create {properties} {name}"));
    hand.mounted(name, |dir| write_some(dir, name.len() as u64));
}

fn fill_codecs(hand: &Hand, pool: &str) {
    let algorithms = [
        "off",
        "lzjb",
        "zle",
        "gzip-1",
        "gzip-6",
        "gzip-9",
        "lz4",
        "zstd-1",
        "zstd-3",
        "zstd-19",
        "zstd-fast-1",
        "zstd-fast-1000",
    ];
    for (algorithm, recordsize) in algorithms.iter().zip(["128K", "4K", "32K"].iter().cycle()) {
        filled(
            hand,
            &format!("{pool}/{algorithm}"),
            &format!("-o compression={algorithm} -o recordsize={recordsize}"),
        );
    }
}

fn fill_sums(hand: &Hand, pool: &str) {
    let algorithms = ["on", "off", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3"];
    for (algorithm, copies) in algorithms.iter().zip([1, 2, 3].iter().cycle()) {
        filled(hand, &format!("{pool}/{algorithm}"), &format!("-o checksum={algorithm} -o copies={copies}"));
    }
}

fn fill_blocks(hand: &Hand, pool: &str) {
    for size in ["512", "1K", "8K", "64K", "128K", "512K", "1M", "4M"] {
        filled(hand, &format!("{pool}/records-{size}"), &format!("-o recordsize={size}"));
    }
    for size in ["legacy", "auto", "1k", "2k", "4k", "8k", "16k"] {
        let name = format!("{pool}/dnodes-{size}");
        hand.run(&format!("zfs create -o dnodesize={size} -o xattr=sa {name}"));
        hand.mounted(&name, |dir| {
            for number in 0..40 {
                let path = dir.join(format!("file{number}"));
                fs::write(&path, [7; 100]).expect("a file");
                set_xattr(&path, "user.some", &[1; 200]);
            }
            for number in (0..40).step_by(3) {
                fs::remove_file(dir.join(format!("file{number}"))).expect("no file");
            }
        });
    }
}

fn fill_volumes(hand: &Hand, pool: &str) {
    let rng = &mut Rng::new(1);
    for size in ["512", "4K", "8K", "16K", "64K", "128K"] {
        let name = format!("{pool}/v{size}");
        hand.run(&format!("zfs create -s -V 4M -o volblocksize={size} {name}"));
        let bytes = [text(rng, 700_000), vec![0; 300_000], noise(rng, 48_576)].concat();
        hand.fill_volume(&name, &bytes);
    }
    hand.run(&format!("zfs create -V 8M -o compression=off -o checksum=sha256 -o copies=2 {pool}/thick"));
    hand.fill_volume(&format!("{pool}/thick"), &noise(rng, 2 << 20));
    hand.run(&format!("zfs create -s -V 4M {pool}/victim && zfs snapshot {pool}/victim@gone"));
    hand.run(&format!("zfs snapshot -r {pool}@kept"));
    hand.run(&format!("zfs clone {pool}/v8K@kept {pool}/clone"));
    for name in ["v8K", "clone"] {
        hand.fill_volume(&format!("{pool}/{name}"), &text(rng, 500_000));
    }
    hand.run(&format!("zfs set volsize=6M {pool}/v16K"));
}

fn fill_names(hand: &Hand, pool: &str) {
    hand.run(&format!("zfs create {pool}/plain"));
    hand.mounted(&format!("{pool}/plain"), |dir| {
        let put = |name: &str| fs::write(dir.join(name), name).expect(name);
        put(&"n".repeat(255));
        put("with spaces, *, \"quotes\" and \\");
        put("ümlaut");
        fs::create_dir(dir.join("many")).expect("a directory");
        for number in 0..600 {
            File::create(dir.join(format!("many/a name of some length, so that it takes room, {number}")))
                .expect("a file");
        }
        fs::create_dir_all(dir.join("a/b/c/d/e/f/g/h")).expect("directories");
        fs::hard_link(dir.join("ümlaut"), dir.join("a/b/link")).expect("a link");
        fs::hard_link(dir.join("ümlaut"), dir.join("a/link")).expect("a link");
        symlink("a/b/link", dir.join("soft")).expect("a link");
        symlink("long/".repeat(300), dir.join("long soft")).expect("a link");
        for (name, kind, device) in [
            ("fifo", libc::S_IFIFO, 0),
            ("char", libc::S_IFCHR, libc::makedev(1, 3)),
            ("block", libc::S_IFBLK, libc::makedev(259, 70_000)),
            ("socket", libc::S_IFSOCK, 0),
        ] {
            let path = c_path(&dir.join(name));
            // SAFETY: the path ends in a nul.
            assert_eq!(unsafe { libc::mknod(path.as_ptr(), kind | 0o640, device) }, 0, "{name}");
        }
        fs::set_permissions(dir.join("ümlaut"), Permissions::from_mode(0o6751)).expect("a mode");
        fs::set_permissions(dir.join("a"), Permissions::from_mode(0o1777)).expect("a mode");
        chown(dir.join("a/b"), Some(4_000_000_000), Some(77)).expect("an owner");
        let times =
            FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789));
        File::open(dir.join("ümlaut")).and_then(|file| file.set_times(times)).expect("times");
    });
    hand.run(&format!("zfs create -o longname=on {pool}/long"));
    hand.mounted(&format!("{pool}/long"), |dir| {
        let put = |name: &str| fs::write(dir.join(name), name).expect(name);
        put(&"l".repeat(256));
        put(&"longest".repeat(200)[..1023]);
    });
    hand.run(&format!("zfs create -o normalization=formD -o casesensitivity=insensitive {pool}/loose"));
    hand.mounted(&format!("{pool}/loose"), |dir| {
        fs::write(dir.join("Käse"), "cheese").expect("a file");
        assert_eq!(fs::read(dir.join("KÄSE")).expect("the same"), b"cheese");
    });
}

fn fill_classes(hand: &Hand, pool: &str) {
    filled(hand, &format!("{pool}/small"), "-o special_small_blocks=16K -o recordsize=16K");
    filled(hand, &format!("{pool}/large"), "-o special_small_blocks=4K");
    filled(hand, &format!("{pool}/latency"), "-o sync=always");
    filled(hand, &format!("{pool}/throughput"), "-o sync=always -o logbias=throughput");
    hand.run(&format!("zfs create -s -V 4M -o sync=always {pool}/volume"));
    hand.fill_volume(&format!("{pool}/volume"), &noise(&mut Rng::new(3), 1 << 20));
}

fn fill_trees(hand: &Hand, pool: &str) {
    let write = |name: &str, file: &str, length: usize| {
        hand.mounted(&format!("{pool}/{name}"), |dir| {
            fs::write(dir.join(file), noise(&mut Rng::new(length as u64), length)).expect(file);
        });
    };
    let run = |lines: &str| hand.run(&lines.replace('%', pool));
    run("zfs create %/a; zfs create %/a/below; zfs create -o quota=60M -o reservation=10M -o \
         refreservation=5M %/b");
    filled(hand, &format!("{pool}/victim"), "");
    run("zfs snapshot %/victim@gone; zfs create %/victims; zfs create %/victims/below");
    for (turn, file) in ["one", "two", "three", "four"].iter().enumerate() {
        write("a", file, 100_000 + turn * 30_000);
        write("a/below", "same", 50_000 + turn);
        run(&format!("zfs snapshot -r -o org:turn={turn} %/a@{file}"));
    }
    run("zfs bookmark %/a@one %/a#one; zfs hold keep %/a@two; zfs hold -r again %/a@three");
    run("zfs clone %/a@two %/clone; zfs clone %/a/below@one %/promoted");
    write("clone", "cloned", 80_000);
    write("promoted", "promoted", 90_000);
    run("zfs promote %/promoted; zfs snapshot %/clone@mine; zfs clone %/clone@mine %/second");
    run("zfs destroy %/a@one; zfs destroy -r %/victims; zfs rename %/second %/b/moved; zfs rename %/a@four \
         %/a@last");
    write("a", "one", 3000);
    run("zfs rollback %/a@last; zfs set compression=off org:mine=words %/a; zfs destroy -d %/a@two || true");
    // Something to be freed at the next import.
    filled(hand, &format!("{pool}/freed"), "-o compression=off -o recordsize=4K");
    run("zfs snapshot %/freed@one; zfs destroy -r %/freed");
}

fn fill_attributes(hand: &Hand, pool: &str) {
    for (place, acls) in [("sa", "posix"), ("dir", "posix"), ("sa", "off")] {
        let name = format!("{pool}/{place}-{acls}");
        hand.run(&format!("zfs create -o xattr={place} -o acltype={acls} -o dnodesize=auto {name}"));
        hand.mounted(&name, |dir| {
            for (number, length) in [0, 10, 500, 3000, 30_000, 60_000].into_iter().enumerate() {
                let path = dir.join(format!("file{number}"));
                fs::write(&path, "content").expect("a file");
                set_xattr(&path, "user.value", &vec![number as u8; length]);
                set_xattr(&path, "trusted.other", b"value");
                set_xattr(&path, "security.third", b"value");
            }
            fs::create_dir(dir.join("dir")).expect("a directory");
            set_xattr(&dir.join("dir"), "user.of a directory", &[9; 1000]);
            if acls == "posix" {
                set_xattr(
                    &dir.join("file1"),
                    "system.posix_acl_access",
                    &acl(&[(1, 6, 0), (2, 5, 1000), (4, 4, 0), (8, 6, 2000), (16, 6, 0), (32, 0, 0)]),
                );
                set_xattr(
                    &dir.join("dir"),
                    "system.posix_acl_default",
                    &acl(&[(1, 7, 0), (2, 7, 1001), (4, 5, 0), (16, 7, 0), (32, 1, 0)]),
                );
                fs::write(dir.join("dir/inherits"), "an ACL").expect("a file");
                fs::create_dir(dir.join("dir/too")).expect("a directory");
            }
        });
    }
    let quotas = "userquota@1000=1M userobjquota@1000=100 groupquota@2000=20M groupobjquota@2000=50 \
        projectquota@7=3M projectobjquota@7=30";
    hand.run(&format!("zfs create {pool}/owned; zfs set {quotas} {pool}/owned"));
    hand.mounted(&format!("{pool}/owned"), |dir| {
        let rng = &mut Rng::new(5);
        for number in 0..24_u32 {
            let path = dir.join(format!("file{number}"));
            fs::write(&path, noise(rng, 1000 * number as usize)).expect("a file");
            chown(&path, Some(1000 + number % 4), Some(2000 + number % 3)).expect("an owner");
        }
        fs::create_dir(dir.join("project")).expect("a directory");
        hand.run(&format!("zfs project -s -p 7 '{}'", dir.join("project").display()));
        fs::write(dir.join("project/inherits"), noise(rng, 70_000)).expect("a file");
        fs::create_dir(dir.join("project/below")).expect("a directory");
        fs::write(dir.join("project/below/too"), noise(rng, 9000)).expect("a file");
        hand.run(&format!("zfs project -p 9 '{}'", dir.join("file5").display()));
    });
    hand.run(&format!(
        "zfs create -o recordsize=16K {pool}/cloned; zfs create -o recordsize=16K {pool}/other"
    ));
    hand.mounted(&format!("{pool}/cloned"), |dir| {
        let bytes = noise(&mut Rng::new(6), 400_000);
        fs::write(dir.join("original"), &bytes).expect("a file");
        // What was not committed yet cannot be cloned.
        File::open(dir.join("original")).and_then(|file| file.sync_all()).expect("stable");
        hand.run(&format!("zfs snapshot {pool}/cloned@committed"));
        for name in ["copy", "copy of the copy", "gone"] {
            fs::copy(dir.join("original"), dir.join(name)).expect("a copy");
        }
        fs::remove_file(dir.join("gone")).expect("no file");
        let copy = File::options().write(true).open(dir.join("copy")).expect("a file");
        copy.write_all_at(b"changed", 100_000).expect("a write");
        hand.mounted(&format!("{pool}/other"), |other| {
            fs::copy(dir.join("original"), other.join("from another filesystem")).expect("a copy");
        });
    });
    hand.run(&format!("zfs snapshot {pool}/cloned@copied"));
    let cloned = hand.run(&format!("zpool get -Hpo value bcloneused {pool}"));
    assert_ne!(cloned.trim(), "0", "copies share blocks");
}

/// Fills the pool until nothing more is taken, and makes a little room again.
fn fill_to_the_brim(hand: &Hand, pool: &str) {
    hand.run(&format!("zfs create -o compression=off {pool}/fs; zfs create -s -V 4M {pool}/volume"));
    hand.fill_volume(&format!("{pool}/volume"), &noise(&mut Rng::new(8), 300_000));
    hand.mounted(&format!("{pool}/fs"), |dir| {
        let rng = &mut Rng::new(9);
        fs::write(dir.join("a first one to remove"), noise(rng, 900_000)).expect("a file");
        let pieces = [1 << 20, 64 << 10, 4 << 10];
        // A full pool has no room for new files either.
        let files = pieces.map(|piece| File::create(dir.join(format!("pieces of {piece}"))).expect("a file"));
        for (piece, mut file) in pieces.into_iter().zip(files) {
            let refused = loop {
                let bytes = noise(rng, piece);
                // Room is taken for good only when it is written.
                if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_all()) {
                    break error;
                }
            };
            assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
        }
    });
}

fn fill_by_fsx(hand: &Hand, pool: &str) {
    for (seed, direct, properties) in [
        (11, false, "-o recordsize=16K"),
        (12, true, "-o compression=zstd"),
        (13, true, "-o recordsize=4K -o compression=off"),
    ] {
        let name = format!("{pool}/fs{seed}");
        hand.run(&format!("zfs create {properties} {name}"));
        hand.mounted(&name, |dir| {
            fsx::run(&dir.join("file"), Fsx { seed, steps: 250, max_bytes: 300 << 10, direct });
            hand.run(&format!("zfs snapshot {name}@half"));
            fsx::run(&dir.join("another"), Fsx { seed: seed + 10, steps: 150, max_bytes: 300 << 10, direct });
        });
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no nul")
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    let (path, name) = (c_path(path), CString::new(name).expect("no nul"));
    // SAFETY: both strings end in a nul, and the value is as long as is said.
    let code =
        unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    assert_eq!(code, 0, "{path:?} {name:?}: {}", std::io::Error::last_os_error());
}

/// A POSIX ACL as the kernel takes it: entries of tag, permissions, and user or group.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        // Only named users (2) and groups (8) have one.
        let id = if matches!(tag, 2 | 8) { *id } else { u32::MAX };
        bytes.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    bytes
}
