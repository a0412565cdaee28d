//! Files that are written again as they are: where their blocks are, how old these are to whom, and what is
//! counted and freed.

use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, NewSnapshot};
use engine::dsl::{Dsl, Entry};
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, import};
use engine::pool::live::{Layout, LivePool, default_features};
use engine::pool::verify::{Progress, VerifyOptions, verify};
use engine::properties::{Environment, Prop};
use engine::vdev::Class;
use engine::zpl::live::WriteOptions;
use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;
use ondisk::{ObjectId, Txg};

use crate::files::FILE;
use crate::filesystem::open;
use crate::support::{Disks, committing, new_pool, surroundings};

const RECORD: usize = 128 << 10;
const RECORDS: usize = 9;

fn noise(records: usize) -> Vec<u8> {
    let mut rng = testkit::Rng::new(5);
    (0..records * RECORD / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// A number that a dataset has.
async fn number(pool: &Arc<LivePool>, name: &str, prop: Prop) -> u64 {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let entry: Entry = dsl.entry(name).await.unwrap();
    dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap().number(prop).unwrap()
}

/// Pointers to the blocks of a file, as of the last commit.
async fn pointers(pool: &Arc<LivePool>, name: &str, file: ObjectId) -> Vec<Blkptr> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let dataset = dsl.find(name).await.unwrap();
    let object = dsl.open_objset(&dataset).await.unwrap().object(file).await.unwrap();
    let mut found = Vec::new();
    for id in 0..RECORDS as u64 {
        found.push(object.blkptr(0, id).await.unwrap().unwrap_or(Blkptr::HOLE));
    }
    found
}

#[test]
fn a_rewritten_block_is_elsewhere_and_as_old_as_before() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let mut new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        new.features = Feature::ALL.to_vec();
        assert!(default_features().len() < new.features.len());
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let zpl = open(&pool).await;
        zpl.set_record_size(RECORD as u32);
        let root = zpl.zpl().root();
        let data = noise(RECORDS);
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        zpl.write(file, 0, &data, &WriteOptions::default()).await.unwrap();
        zpl.punch(file, 2 * RECORD as u64, RECORD as u64).await.unwrap();
        pool.sync().await.unwrap();
        let first = pointers(&pool, "tank", file).await;
        let snapshot = |name: &'static str| async {
            let new = vec![NewSnapshot { name: name.into(), properties: Vec::new() }];
            committing(&pool, pool.change(|s| async move { edit::snapshot(&s, &new).await })).await.unwrap();
        };
        snapshot("tank@one").await;
        let before = zpl.zpl().node(file).await.unwrap().stat().unwrap();
        assert_eq!(pool.feature_count(Feature::PhysicalRewrite), Some(0));

        // All but the last block; what is written meanwhile is new.
        zpl.rewrite(file, 0, (RECORDS as u64 - 1) * RECORD as u64, true).await.unwrap();
        zpl.write(file, 5, b"new", &WriteOptions { keeps_times: true, ..Default::default() }).await.unwrap();
        pool.sync().await.unwrap();
        let second = pointers(&pool, "tank", file).await;
        let now = second.iter().map(Blkptr::physical_birth).max().unwrap();
        for (id, (old, new)) in first.iter().zip(&second).enumerate() {
            let births = (new.logical_birth(), new.physical_birth(), new.birth(), new.is_rewritten());
            let expected = match id {
                0 => (now, now, now, false),
                2 => (new.logical_birth(), new.logical_birth(), new.logical_birth(), false),
                8 => (old.logical_birth(), old.logical_birth(), old.logical_birth(), false),
                _ => (old.logical_birth(), now, now, true),
            };
            assert_eq!(births, expected, "block {id}");
            assert_eq!(old.dva(0) == new.dva(0), matches!(id, 2 | 8), "block {id}");
        }
        assert!(now > Txg(0) && pool.feature_count(Feature::PhysicalRewrite) == Some(1));
        let after = zpl.zpl().node(file).await.unwrap().stat().unwrap();
        assert_eq!((after.mtime, after.size), (before.mtime, before.size));
        let mut found = vec![0; data.len()];
        zpl.read(file, 0, &mut found).await.unwrap();
        let mut expected = data.clone();
        expected[5..8].copy_from_slice(b"new");
        expected[2 * RECORD..3 * RECORD].fill(0);
        assert!(found == expected);
        // The snapshot alone has what was there before.
        let seven = 7 * RECORD as u64;
        assert!((seven..seven + RECORD as u64).contains(&number(&pool, "tank@one", Prop::Used).await));
        assert!(number(&pool, "tank", Prop::Written).await >= seven);

        // Again, and without keeping births; the block that no snapshot has is freed at once.
        snapshot("tank@two").await;
        zpl.rewrite(file, 0, 0, true).await.unwrap();
        pool.sync().await.unwrap();
        zpl.rewrite(file, 0, 0, false).await.unwrap();
        pool.sync().await.unwrap();
        let third = pointers(&pool, "tank", file).await;
        assert!(third.iter().all(|bp| !bp.is_rewritten()));
        assert!(third.iter().filter(|bp| !bp.is_hole()).all(|bp| bp.logical_birth() > now));
        // A snapshot of rewritten blocks uses the feature too; without any of them nothing does.
        assert_eq!(pool.feature_count(Feature::PhysicalRewrite), Some(2));
        let gone = vec!["tank@one".to_owned(), "tank@two".to_owned()];
        let destroy = pool.change(|s| async move { edit::destroy_snapshots(&s, &gone, false).await });
        committing(&pool, destroy).await.unwrap();
        pool.sync().await.unwrap();
        assert_eq!(pool.feature_count(Feature::PhysicalRewrite), Some(1));
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
    if testkit::oracle::zdb_is_of_2_4() {
        disks.judge("tank");
    }
    let pool = block_on(async {
        let found = discovery::scan(&[disks.path()]).await.unwrap().pop().unwrap();
        import(&found, &ImportOptions::read_only()).await.unwrap()
    });
    let report = verify(&pool, VerifyOptions::default(), &Progress::default()).unwrap();
    assert!(report.is_clean(), "{:?} {:?}", report.errors.first(), report.space);
}
