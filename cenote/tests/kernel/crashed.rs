//! Pools that the module made and left without an export: we apply their intent logs, see what was promised,
//! and change them; then it judges them.

use crate::hand::Hand;
use crate::judge::{Pool, differences, files_of, judge, new_disks, work};
use crate::machine;

/// The kernel's side.
const CRASH: &str = include_str!("scripts/crash.sh");
/// OpenZFS reserves many times what is written, and commits a group early when the pool might be too small
/// for that; then nothing would be in the logs alone.
const DISK_BYTES: u64 = 640 << 20;

/// How each pool is made: its name, an option, its layout, and its number of disks.
const POOLS: [(&str, &str, &str, usize); 2] =
    [("shorn", "ashift=12", "mirror", 2), ("felled", "ashift=9", "raidz1", 3)];

/// What a log brings back of what was seen: all but times of changes, and who takes how much room.
fn promised(seen: &str, pool: &str) -> String {
    let starts = [format!("{pool}/fs: "), format!("{pool}/dir: "), format!("volume {pool}/volume: ")];
    let is_promised = |line: &&str| {
        starts.iter().any(|start| line.starts_with(start))
            && !line.contains(": times ")
            && !line.contains(": blocks ")
    };
    seen.lines().filter(is_promised).map(|line| format!("{line}\n")).collect()
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn pools_that_the_kernel_made_and_lost_are_ours_and_its_own_again() {
    let Some(vm) = machine() else { return };
    let hand = Hand::new();
    let folders: Vec<_> = POOLS.iter().map(|_| tempfile::tempdir().expect("a folder")).collect();
    let mut groups = Vec::new();
    for (folder, (.., count)) in folders.iter().zip(POOLS) {
        new_disks(folder.path(), count, DISK_BYTES);
        groups.push(files_of(folder.path()));
    }
    let told = work(&vm, &groups, |number, disks| {
        let (name, option, layout, _) = POOLS[number];
        format!("{CRASH}\ncrash {name} {option} {layout} {disks}")
    });
    let mut pools = Vec::new();
    for (folder, (name, ..)) in folders.into_iter().zip(POOLS) {
        let seen = told.seen.get(name).expect("what the module saw");
        let theirs = promised(seen, name);
        assert!(theirs.contains("theirs/text"), "{seen}");
        let ours = |options: &str| {
            hand.import(name, folder.path(), options);
            promised(&hand.observe_contents(name), name)
        };
        let committed = ours("-f -o readonly=on");
        assert!(differences(&committed, &theirs).is_some(), "{name}: something is in the logs alone");
        hand.export(name);
        if let Some(differences) = differences(&ours("-f"), &theirs) {
            panic!("{name}: {differences}");
        }
        println!("{name}: changed by us: {}", hand.change(name));
        hand.export(name);
        pools.push(Pool::new(&hand, name, folder));
    }
    judge(&vm, &hand, &pools);
}
