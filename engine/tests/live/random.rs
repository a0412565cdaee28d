//! Random operations on volumes and filesystems, compared with a model, in pools of every layout, with every
//! compression and checksum, plain or encrypted; judged by `zdb`.
//!
//! A failure names its seed; `CENOTE_RANDOM_SEED` runs that one, `CENOTE_RANDOM_STEPS` makes all longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, KeyChange};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::env::Env;
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewPool, NewTop, Surroundings};
use engine::pool::verify::{Depth, Progress, VerifyOptions, verify};
use engine::vdev::Class;
use ondisk::vdev_config::PoolState;

use crate::data;
use crate::dedup::deduplicating;
use crate::history::History;
use crate::ivs::Ivs;
use crate::support::{Disks, POOL, committing, full, new_pool, surroundings};

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

/// The key of an encrypted pool, and the one that it gets.
pub const KEYS: [&str; 2] = [
    "0f1e2d3c4b5a69788796a5b4c3d2e1f00123456789abcdeffedcba9876543210",
    "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00",
];

pub fn user_key(hex: &str, env: &dyn Env) -> Arc<UserKey> {
    Arc::new(UserKey::new(KeyFormat::Hex, hex.as_bytes(), None, env).unwrap())
}

fn counting(ivs: &Ivs, seed: u64) -> Surroundings {
    Surroundings { env: ivs.env(seed), ..surroundings(seed) }
}

async fn is_encrypted(pool: &Arc<LivePool>) -> bool {
    Dsl::open(&pool.view()).await.unwrap().encryption_root_of(POOL).await.is_ok()
}

/// Every block of every encrypted dataset, snapshots and logs too, is what its key made.
async fn authenticate(pool: &Arc<LivePool>) {
    pool.sync().await.unwrap();
    let view = pool.view();
    let options = VerifyOptions { threads: 1, depth: Depth::Everything, check_space: false };
    let verified = std::thread::spawn(move || verify(&view, options, &Progress::default()).unwrap());
    let report = verified.join().unwrap();
    assert_eq!((report.unreadable_blocks, report.damaged_blocks), (0, 0), "{:?}", report.errors.first());
    assert!(report.authenticated_blocks > 0 && report.notes.is_empty(), "{:?}", report.notes);
}

/// The pool is exported, judged, and imported again. An encrypted one gets another key meanwhile.
pub async fn reborn(mut run: History, disks: &Disks, seed: u64) -> History {
    run.check().await;
    let History { pool, tree, rng, refused, ivs, .. } = run;
    let [old, new] = KEYS.map(str::as_bytes);
    let is_encrypted = is_encrypted(&pool).await;
    if is_encrypted {
        let change = KeyChange::New { key: user_key(KEYS[1], &**pool.env()), location: None };
        let change = pool.change(|s| async move { edit::change_key(&s, POOL, &change, &[]).await });
        committing(&pool, change).await.unwrap();
    }
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let mut secret = Vec::new();
    for name in tree.heads() {
        secret.extend(dsl.encryption_root_of(&full(name)).await.is_ok().then_some(name));
    }
    drop(dsl);
    committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    drop(pool);
    disks.judge(POOL);
    if is_encrypted {
        assert!((1..tree.heads().len()).contains(&secret.len()), "some are encrypted, some are not");
        for name in secret {
            let dir = disks.path().to_str().unwrap();
            let told = testkit::oracle::zdb(&["-e", "-p", dir, "-K", KEYS[1], "-dddd", &full(name)]);
            assert!(told.is_none_or(|text| text.contains("Object  lvl") && !text.contains("rror")), "{name}");
        }
    }
    let found = disks.found(POOL).await;
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    let pool = LivePool::import(&found, &options, counting(&ivs, seed)).await.unwrap();
    if is_encrypted {
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        dsl.load_key(POOL, old, true).await.unwrap_err();
        dsl.load_key(POOL, new, false).await.unwrap();
        committing(&pool, pool.replay_unlocked()).await.unwrap();
        authenticate(&pool).await;
    }
    println!("{} blocks were encrypted, and {} equal ones again", ivs.count().unwrap(), ivs.again());
    History { pool, tree, open: BTreeMap::new(), rng, refused, ivs }
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
        let (new, ivs) = (new(disks), Ivs::default());
        let surroundings = counting(&ivs, seed);
        let key = new.root_properties.iter().any(|(name, _)| name == "encryption");
        let key = key.then(|| user_key(KEYS[0], &*surroundings.env));
        let pool = LivePool::create_with_key(new, key, surroundings).await.unwrap();
        let mut run = History { ivs, ..History::begin(pool, seed).await };
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

/// A pool whose root filesystem is encrypted with a suite.
pub fn encrypted(mut new: NewPool, suite: &str, more: &[(&str, &str)]) -> NewPool {
    for (name, value) in [("encryption", suite), ("keyformat", "hex")].iter().chain(more) {
        new.root_properties.push(((*name).to_owned(), (*value).to_owned()));
    }
    new
}

macro_rules! encrypted_pools {
    ($($test:ident: $tops:ident, ashift $ashift:literal, $mib:literal MiB, fill $fill:literal, $suite:literal,
       $more:expr;)*) => {
        $(
            #[test]
            fn $test() {
                run_on(stringify!($test), &Disks::new($mib * MIB), $fill, |disks| {
                    encrypted(new_pool($tops(disks), $ashift), $suite, &$more)
                });
            }
        )*
    };
}

encrypted_pools! {
    random_encrypted_single_9: single, ashift 9, 128 MiB, fill false, "aes-256-gcm", [];
    random_encrypted_stripe_12: stripe, ashift 12, 64 MiB, fill false, "aes-128-gcm", [("copies", "2")];
    random_encrypted_mirror_13: mirror, ashift 13, 128 MiB, fill false, "aes-192-ccm", [];
    random_encrypted_raidz1_12: raidz1, ashift 12, 96 MiB, fill false, "aes-256-ccm", [];
    random_encrypted_raidz2_9: raidz2, ashift 9, 64 MiB, fill false, "aes-192-gcm", [];
    random_encrypted_draid_12: draid, ashift 12, 128 MiB, fill false, "aes-128-ccm", [];
    random_encrypted_classes_12: classes, ashift 12, 128 MiB, fill false, "on",
        [("special_small_blocks", "16K")];
    random_encrypted_full_raidz1_9: raidz1, ashift 9, 64 MiB, fill true, "aes-256-gcm", [];
}

/// Encrypted and deduplicated, all but the plain datasets in it.
fn run_encrypted_dedup(name: &str, (dedup, is_fast): (&str, bool), fill: bool, suite: &str) {
    run_on(name, &Disks::new(128 * MIB), fill, |disks| {
        encrypted(deduplicating(mirror(disks), dedup, is_fast), suite, &[])
    });
}

#[test]
fn random_encrypted_dedup_12() {
    run_encrypted_dedup("random_encrypted_dedup_12", ("on", true), false, "aes-256-gcm");
}

#[test]
fn random_encrypted_dedup_verified_12() {
    run_encrypted_dedup("random_encrypted_dedup_verified_12", ("skein,verify", true), false, "aes-128-ccm");
}

#[test]
fn random_encrypted_dedup_traditional_12() {
    run_encrypted_dedup("random_encrypted_dedup_traditional_12", ("sha512", false), false, "aes-192-gcm");
}
