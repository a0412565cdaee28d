//! `zfs diff` of the module and of the engine: the same text for a filesystem with a random history, but for
//! files that lost the newest of their hard links. For these a model says what each of the two prints.

use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::dmu::Objset;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewSnapshot};
use engine::env::Seeded;
use engine::pool::live::{Layout, LivePool};
use engine::zpl::diff::PageLimits;
use engine::zpl::live::XattrPlace;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};

use super::diff_model::{State, expected, found};
use super::log::files;
use super::scrub::import;
use super::{DISK_BYTES, content, create};

/// Snapshots of the history.
pub const STATES: usize = 5;

async fn open(pool: &Arc<LivePool>, name: &str) -> Arc<Objset> {
    let dsl = Dsl::open(&pool.view()).await.expect("datasets");
    dsl.open_objset(&dsl.find(name).await.expect(name)).await.expect(name)
}

/// Changes files and takes snapshots of them.
pub async fn history(pool: &Arc<LivePool>, slots: &[u8]) {
    let id = Dsl::open(&pool.view()).await.unwrap().find("tank/fs").await.unwrap().objset_id();
    let zpl = pool.filesystem(id).await.expect("a filesystem");
    let random = Seeded::new(77);
    let root = zpl.zpl().root();
    for state in 0..STATES {
        zpl.set_dnode_slots(slots[state % slots.len()]);
        for step in 0..60 {
            let place = if step % 3 == 0 { XattrPlace::Directory } else { XattrPlace::Attributes };
            files::change(&zpl, &random, place).await;
        }
        let name = format!("ünlinked \\ {state}");
        let file = zpl.create(root, name.as_bytes(), &files::FILE).await.expect("a file");
        if state > 0 {
            // Unlinked files that are open, of this state and of the one before.
            zpl.hold(file);
            zpl.unlink(root, name.as_bytes()).await.expect("gone");
            let old = format!("ünlinked \\ {}", state - 1);
            if let Some(old_file) = zpl.lookup(root, old.as_bytes()).await.expect("a look-up") {
                zpl.hold(old_file);
                zpl.unlink(root, old.as_bytes()).await.expect("gone");
            }
        }
        let new = vec![NewSnapshot { name: format!("tank/fs@{state}"), properties: Vec::new() }];
        pool.change(|s| async move { edit::snapshot(&s, &new).await }).await.expect("a snapshot");
    }
}

/// What the module does to the files then, with a snapshot in between. After an import it gives free numbers
/// to new files.
const OF_THE_MODULE: &str = "
    cd /tank/fs
    mkdir made made/inner
    for i in $(seq 80); do echo $i > made/file$i; done
    mkfifo made/fifo; mknod made/device c 1 3; ln -s target made/link
    ln made/file1 made/inner/first; ln made/file2 second; ln made/file3 made/third
    zfs snapshot tank/fs@m1
    cd /; zpool export tank; zpool import -d /dev tank; zfs set dnodesize=DNODESIZE tank/fs; cd /tank/fs
    rm made/inner/first made/file2 made/third
    for i in $(seq 10 3 60); do rm made/file$i; done
    for i in $(seq 11 3 60); do mv made/file$i made/inner/moved$i; done
    for i in $(seq 61 80); do rm made/file$i; done
    zpool sync tank
    chmod 600 made/file6; echo more >> made/file9; truncate -s 1M made/file12
    ln made/file4 made/fourth; mv made renamed; rm renamed/fifo; mkdir renamed/fifo
    for i in $(seq 20); do echo $i > renamed/inner/again$i; done
    cd /
    zfs snapshot tank/fs@m2
";

/// The lines for pairs of snapshots that the module should print, by the model that the engine agrees with.
async fn ours(pool: &Arc<LivePool>, pairs: &[(String, String)]) -> Vec<Vec<String>> {
    const AT: &str = "/tank/fs";
    let mut ours = Vec::new();
    for pair in pairs {
        let (from, to) = (open(pool, &pair.0).await, open(pool, &pair.1).await);
        let found = found(&from, &to, PageLimits::default(), AT).await;
        let (from, to) = (State::of(&from).await, State::of(&to).await);
        assert_eq!(found, expected(&from, &to, AT, true), "{pair:?}");
        ours.push(expected(&from, &to, AT, false));
    }
    ours
}

/// Compares the lines of both programs for every pair of snapshots. Tells how many the engine has that the
/// module does not: the module does not see files whose numbers lie inside larger dnodes now. It complains of
/// the opposite.
fn compare(vm: &KernelVm, slots: &[u8], dnodesize: &str) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = vec![folder.path().join("d0")];
    std::fs::File::create(&disks[0]).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    create(Layout::Single, &disks, &content(1 << 20));
    block_on(async {
        let pool = import(&disks, 2).await;
        history(&pool, slots).await;
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let names: Vec<String> =
        (0..STATES).map(|state| state.to_string()).chain(["m1".into(), "m2".into()]).collect();
    let of = |name: &String| format!("tank/fs@{name}");
    let after = |index: usize| names[index + 1..].iter().map(of);
    let pairs: Vec<(String, String)> = (0..names.len())
        .flat_map(|index| after(index).map(move |to| (index, to)))
        .map(|(index, to)| (of(&names[index]), to))
        .collect();
    let diffs = pairs.iter().map(|(from, to)| format!("echo '## '\nzfs diff -FHt {from} {to} 2>/dev/null\n"));
    let diffs: String = diffs.collect();
    let of_the_module = OF_THE_MODULE.replace("DNODESIZE", dnodesize);
    let script = format!("set -e\nzpool import -d /dev tank\n{of_the_module}\n{diffs}zpool export tank\n");
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    assert_eq!(outcome.code, Some(0), "{}", outcome.output);
    let ours = block_on(async {
        let pool = import(&disks, 3).await;
        let ours = ours(&pool, &pairs).await;
        pool.close(PoolState::Exported).await.expect("an export");
        ours
    });
    let mut theirs = outcome.output.split("## \n").skip(1);
    let (mut lines, mut more) = (0, 0);
    for (pair, ours) in pairs.iter().zip(ours) {
        let mut theirs: Vec<&str> = theirs.next().expect("an answer").lines().collect();
        // Attributes of a file that was removed while it is open.
        let is_attribute = |line: &str| line.split('\t').nth(1) == Some("-") && line.contains("/<xattrdir>");
        theirs.retain(|line| !is_attribute(line) || ours.iter().any(|ours| ours == line));
        let is_same = |line: &String| {
            let is_removal = line.split('\t').nth(1) == Some("-");
            !is_removal || theirs.contains(&line.as_str())
        };
        let (same, hidden): (Vec<String>, Vec<String>) = ours.into_iter().partition(is_same);
        assert_eq!(same, theirs, "{pair:?}, without {hidden:?}");
        lines += same.len();
        more += hidden.len();
    }
    assert!(lines > 1000, "{lines} lines show nothing");
    more
}

#[test]
fn the_kernel_tells_the_same_changes_of_files_with_small_dnodes() {
    let Some(vm) = KernelVm::find() else { return };
    assert_eq!(compare(&vm, &[1], "legacy"), 0);
}

#[test]
fn the_kernel_tells_the_same_changes_of_files_with_large_dnodes_but_removals_that_it_does_not_see() {
    let Some(vm) = KernelVm::find() else { return };
    assert!(compare(&vm, &[1, 4, 2], "2k") > 0);
}
