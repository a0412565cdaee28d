//! What happened to files between two snapshots: random histories, compared with what reading both states as
//! a whole shows.

use std::sync::Arc;

use device::block_on;
use engine::dmu::Objset;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::env::{Env, Seeded};
use engine::pool::live::{Layout, LivePool};
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::{RenameMode, SetAttributes, WriteOptions, XattrPlace, XattrSet};
use ondisk::ObjectId;
use ondisk::vdev_config::PoolState;

use crate::diff_model::agree;
use crate::files::{self, DIRECTORY, FILE};
use crate::support::{Disks, committing, new_pool, objset_of, surroundings};

async fn open(pool: &Arc<LivePool>, name: &str) -> Arc<Objset> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    dsl.open_objset(&dsl.find(name).await.unwrap()).await.unwrap()
}

async fn snapshot(pool: &Arc<LivePool>, name: &str) {
    let new = vec![NewSnapshot { name: name.to_owned(), properties: Vec::new() }];
    pool.change(|s| async move { edit::snapshot(&s, &new).await }).await.unwrap();
}

async fn filesystem(pool: &Arc<LivePool>, name: &str, properties: &[(&str, &str)]) -> Arc<LiveZpl> {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let new = NewDataset { name: format!("tank/{name}"), contents: NewContents::Filesystem, properties };
    pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
    pool.filesystem(objset_of(pool, name).await.unwrap()).await.unwrap()
}

/// Changes of files, snapshots in between, files that are unlinked while they are open, and dnodes of several
/// sizes; then every pair of states is compared.
async fn history(pool: &Arc<LivePool>, zpl: &Arc<LiveZpl>, name: &str, seed: u64, slots: &[u8]) {
    let random = Seeded::new(seed);
    let mut states = Vec::new();
    let mut held = Vec::new();
    for round in 0..5usize {
        zpl.set_dnode_slots(slots[round % slots.len()]);
        for step in 0..40 {
            let place = if step % 3 == 0 { XattrPlace::Directory } else { XattrPlace::Attributes };
            files::change(zpl, &random, place).await;
        }
        let root = zpl.zpl().root();
        let open = format!("open-{round}");
        let file = zpl.create(root, open.as_bytes(), &FILE).await.unwrap();
        zpl.hold(file);
        held.push((open, file));
        if round > 1 {
            // One was there in the snapshot before, another one is new.
            for (open, file) in held.drain(round - 2..) {
                zpl.unlink(root, open.as_bytes()).await.unwrap();
                if random.random().is_multiple_of(2) {
                    zpl.close(file, 1).await.unwrap();
                }
            }
        }
        let state = format!("tank/{name}@{round}");
        snapshot(pool, &state).await;
        states.push(state);
    }
    files::change(zpl, &random, XattrPlace::Attributes).await;
    pool.sync().await.unwrap();
    states.push(format!("tank/{name}"));
    let mut lines = 0;
    for (index, before) in states.iter().enumerate() {
        for after in &states[index + 1..] {
            let what = format!("seed {seed}: {before} {after}");
            lines += agree(&open(pool, before).await, &open(pool, after).await, &what).await.len();
        }
    }
    assert!(lines > 100, "seed {seed}: {lines} lines show nothing");
}

/// Random histories in filesystems whose dnodes are small, large, and of both sizes, and from before system
/// attributes, at two sector sizes.
#[test]
fn random_histories_are_told_as_reading_both_states_shows() {
    // From 16 on: attributes of files that lost the newest of their links.
    for (ashift, seeds) in [(9, [1, 2, 16, 19]), (12, [3, 4, 34, 43])] {
        let disks = Disks::new(192 << 20);
        block_on(async {
            let top = disks.top(Layout::Single, Class::Normal, "d", 1);
            let pool = LivePool::create(new_pool(vec![top], ashift), surroundings(1)).await.unwrap();
            committing(&pool, async {
                for seed in seeds {
                    for (name, version, slots) in [
                        ("small", "5", &[1u8][..]),
                        ("large", "5", &[4]),
                        ("both", "5", &[4, 1, 2, 1]),
                        ("old", "4", &[1]),
                    ] {
                        let name = format!("{name}{seed}");
                        let zpl = filesystem(&pool, &name, &[("version", version)]).await;
                        history(&pool, &zpl, &name, seed, slots).await;
                    }
                }
            })
            .await;
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
    }
}

/// A directory that grows from a micro ZAP into a fat one, names that have to be escaped, and more files than
/// a block of dnodes has; then a clone of the snapshot.
#[test]
fn many_files_of_large_directories_and_their_clones() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        committing(&pool, async {
            let zpl = filesystem(&pool, "fs", &[("normalization", "formD")]).await;
            let root = zpl.zpl().root();
            let dir = zpl.create(root, b"dir", &DIRECTORY).await.unwrap();
            let mut made = Vec::new();
            for number in 0..900 {
                let name = format!("a {number} {}", "ü".repeat(number % 30));
                made.push((zpl.create(dir, name.as_bytes(), &FILE).await.unwrap(), name));
            }
            snapshot(&pool, "tank/fs@a").await;
            for (number, (file, name)) in made.iter().enumerate() {
                match number % 9 {
                    0 => zpl.unlink(dir, name.as_bytes()).await.unwrap(),
                    1 => zpl.link(*file, root, name.as_bytes()).await.unwrap(),
                    2 => {
                        let to = format!("b\\{name}");
                        let mode = RenameMode::Replace;
                        zpl.rename(dir, name.as_bytes(), root, to.as_bytes(), mode).await.unwrap();
                    }
                    3 => _ = zpl.write(*file, 0, b"data", &WriteOptions::default()).await.unwrap(),
                    _ => {}
                }
            }
            zpl.rename(root, b"dir", root, b"other", RenameMode::Replace).await.unwrap();
            snapshot(&pool, "tank/fs@b").await;
            pool.change(|s| async move { edit::clone(&s, "tank/fs@b", "tank/clone", &[]).await })
                .await
                .unwrap();
            let clone = pool.filesystem(objset_of(&pool, "clone").await.unwrap()).await.unwrap();
            clone.create(root, b"of the clone", &FILE).await.unwrap();
            pool.sync().await.unwrap();
            let [a, b] = [open(&pool, "tank/fs@a").await, open(&pool, "tank/fs@b").await];
            let lines = agree(&a, &b, "fs").await;
            assert!(lines.iter().any(|line| line.contains("\tR\t/\t/m/dir\t/m/other")), "the directory");
            let escaped = |line: &&String| line.contains("/m/b\\0134a\\0040");
            assert_eq!(lines.iter().filter(escaped).count(), 100);
            assert_eq!(lines.iter().filter(|line| line.ends_with("\t(+1)")).count(), 100);
            assert_eq!(lines.iter().filter(|line| line.contains("\t-\tF\t/m/dir/a\\0040")).count(), 100);
            let of_clone = open(&pool, "tank/clone").await;
            let lines = agree(&b, &of_clone, "clone").await;
            let shown: Vec<&str> =
                lines.iter().filter_map(|line| line.split_once('\t')).map(|l| l.1).collect();
            assert_eq!(shown, ["M\t/\t/m/", "+\tF\t/m/of\\0040the\\0040clone"]);
            agree(&a, &of_clone, "clone since the first snapshot").await;
        })
        .await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}

/// The paths of a hard-linked file are those of its newest name; without that, it has those that it had.
#[test]
fn hard_links_that_go_leave_a_file_without_a_path() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        committing(&pool, async {
            let zpl = filesystem(&pool, "fs", &[]).await;
            let root = zpl.zpl().root();
            let dir = zpl.create(root, b"dir", &DIRECTORY).await.unwrap();
            let file = zpl.create(root, b"first", &FILE).await.unwrap();
            let changed = async |file: ObjectId| {
                let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
                zpl.set_attributes(file, &set).await.unwrap();
            };
            snapshot(&pool, "tank/fs@0").await;
            zpl.link(file, dir, b"second").await.unwrap();
            snapshot(&pool, "tank/fs@1").await;
            zpl.unlink(dir, b"second").await.unwrap();
            snapshot(&pool, "tank/fs@2").await;
            changed(file).await;
            snapshot(&pool, "tank/fs@3").await;
            zpl.link(file, root, b"third").await.unwrap();
            zpl.set_xattr(file, b"user.a", b"value", XattrSet::Any, XattrPlace::Directory).await.unwrap();
            snapshot(&pool, "tank/fs@4").await;
            let lines = async |from: usize, to: usize| {
                let (from, to) = (format!("tank/fs@{from}"), format!("tank/fs@{to}"));
                let lines = agree(&open(&pool, &from).await, &open(&pool, &to).await, &from).await;
                let without_time = lines.iter().filter_map(|line| line.split_once('\t'));
                without_time.map(|(_, rest)| rest.replace('\t', " ")).collect::<Vec<_>>()
            };
            assert_eq!(lines(0, 1).await, ["M / /m/dir", "M F /m/first (+1)"]);
            assert_eq!(lines(1, 2).await, ["M / /m/dir", "M F /m/dir/second (-1)"]);
            assert_eq!(lines(0, 2).await, ["M / /m/dir", "M F /m/first"], "it is where it was");
            assert_eq!(lines(0, 3).await, ["M / /m/dir", "M F /m/first"]);
            assert_eq!(lines(2, 3).await, Vec::<String>::new(), "no known name on either side");
            let attributes = ["+ / /m/third/<xattrdir>", "+ F /m/third/<xattrdir>/user.a"];
            let linked = ["M / /m/", "M F /m/third (+1)"];
            assert_eq!(lines(3, 4).await, [linked, attributes].concat());
        })
        .await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}

/// Attributes of a file that lost the newest of its links are found where the file is found, also when the
/// file itself is looked at with other objects.
#[test]
fn attributes_are_found_where_their_file_is() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        committing(&pool, async {
            let zpl = filesystem(&pool, "fs", &[]).await;
            let root = zpl.zpl().root();
            let dir = zpl.create(root, b"dir", &DIRECTORY).await.unwrap();
            let file = zpl.create(root, b"first", &FILE).await.unwrap();
            snapshot(&pool, "tank/fs@0").await;
            zpl.link(file, dir, b"second").await.unwrap();
            zpl.unlink(dir, b"second").await.unwrap();
            zpl.set_xattr(file, b"user.a", b"value", XattrSet::Any, XattrPlace::Directory).await.unwrap();
            snapshot(&pool, "tank/fs@1").await;
            let [before, after] = [open(&pool, "tank/fs@0").await, open(&pool, "tank/fs@1").await];
            let lines = agree(&before, &after, "attributes").await;
            let without_time = lines.iter().filter_map(|line| line.split_once('\t'));
            let shown: Vec<String> = without_time.map(|(_, rest)| rest.replace('\t', " ")).collect();
            let attributes = ["+ / /m/first/<xattrdir>", "+ F /m/first/<xattrdir>/user.a"];
            assert_eq!(shown, [["M / /m/dir", "M F /m/first"], attributes].concat());
        })
        .await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}
