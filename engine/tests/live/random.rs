//! Random operations on volumes and filesystems, compared with a model, in pools of every layout, with every
//! compression and checksum; judged by `zdb`.
//!
//! A failure names its seed; `CENOTE_RANDOM_SEED` runs that one, `CENOTE_RANDOM_STEPS` makes all longer.

use std::collections::BTreeMap;

use device::block_on;
use engine::pool::live::{Layout, LivePool, NewPool, NewTop};
use engine::vdev::Class;
use ondisk::vdev_config::PoolState;

use crate::data;
use crate::history::History;
use crate::support::{Disks, POOL, committing, new_pool, surroundings};

/// Operations on each pool.
const STEPS: u64 = 200;
const MIB: u64 = 1 << 20;

type Tops = fn(&Disks) -> Vec<NewTop>;

fn single(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Single, Class::Normal, "d", 1)]
}

fn stripe(disks: &Disks) -> Vec<NewTop> {
    (0..3).map(|number| disks.top(Layout::Single, Class::Normal, &format!("d{number}-"), 1)).collect()
}

fn mirror(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)]
}

fn raidz1(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 3)]
}

fn raidz2(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Raidz { nparity: 2 }, Class::Normal, "d", 5)]
}

fn raidz3(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Raidz { nparity: 3 }, Class::Normal, "d", 6)]
}

fn draid(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Draid { nparity: 2, ndata: 3, nspares: 1 }, Class::Normal, "d", 7)]
}

fn classes(disks: &Disks) -> Vec<NewTop> {
    vec![
        disks.top(Layout::Mirror, Class::Normal, "d", 2),
        disks.top(Layout::Single, Class::Special, "special", 1),
        disks.top(Layout::Single, Class::Log, "log", 1),
    ]
}

/// The pool is exported, judged, and imported again.
pub async fn reborn(mut run: History, disks: &Disks, seed: u64) -> History {
    run.check().await;
    let History { pool, tree, rng, refused, .. } = run;
    committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    drop(pool);
    disks.judge(POOL);
    History { pool: disks.import(POOL, seed).await, tree, open: BTreeMap::new(), rng, refused }
}

/// Random operations through two lives of a pool. The pool is full first, if `fill`.
fn run(name: &str, tops: Tops, ashift: u8, disk_bytes: u64, fill: bool) {
    run_on(name, &Disks::new(disk_bytes), fill, |disks| new_pool(tops(disks), ashift));
}

/// The same of a pool of any form.
pub fn run_on(name: &str, disks: &Disks, fill: bool, new: impl FnOnce(&Disks) -> NewPool) {
    let given = |name: &str| std::env::var(name).ok()?.parse().ok();
    let of_name = name.bytes().fold(7u64, |sum, byte| sum * 31 % 10_007 + u64::from(byte));
    let seed = given("CENOTE_RANDOM_SEED").unwrap_or(of_name);
    let steps = given("CENOTE_RANDOM_STEPS").unwrap_or(STEPS);
    println!("{name}: CENOTE_RANDOM_SEED={seed}");
    block_on(async {
        let pool = LivePool::create(new(disks), surroundings(seed)).await.unwrap();
        let mut run = History::begin(pool, seed).await;
        if fill {
            data::fill_up(&run.pool).await;
        }
        for number in 1..=steps {
            run.step(number).await;
            if number == steps / 2 {
                run = reborn(run, disks, seed + 1).await;
            }
        }
        assert_eq!(run.refused > 0, fill, "{} refused", run.refused);
        let mut run = reborn(run, disks, seed + 2).await;
        run.check().await;
    });
}

macro_rules! pools {
    ($($test:ident: $tops:ident, ashift $ashift:literal, $mib:literal MiB, fill $fill:literal;)*) => {
        $(
            #[test]
            fn $test() {
                run(stringify!($test), $tops, $ashift, $mib * MIB, $fill);
            }
        )*
    };
}

pools! {
    random_single_9: single, ashift 9, 128 MiB, fill false;
    random_stripe_12: stripe, ashift 12, 64 MiB, fill false;
    random_mirror_13: mirror, ashift 13, 128 MiB, fill false;
    random_raidz1_12: raidz1, ashift 12, 96 MiB, fill false;
    random_raidz2_9: raidz2, ashift 9, 64 MiB, fill false;
    random_raidz3_13: raidz3, ashift 13, 96 MiB, fill false;
    random_draid_12: draid, ashift 12, 128 MiB, fill false;
    random_classes_12: classes, ashift 12, 128 MiB, fill false;
    random_full_mirror_12: mirror, ashift 12, 64 MiB, fill true;
    random_full_raidz1_9: raidz1, ashift 9, 64 MiB, fill true;
}
