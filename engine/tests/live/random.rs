//! Random operations on volumes and filesystems, compared with a model, in pools of every layout, with every compression and checksum; judged by `zdb`.
//!
//! A failure names its seed; `CENOTE_RANDOM_SEED` runs that one, `CENOTE_RANDOM_STEPS` makes all longer.

pub mod data;

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dataset::dsl::Dsl;
use engine::dataset::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, NewTop};
use engine::vdev::Class;
use ondisk::vdev_config::PoolState;
use testkit::Rng;
use testkit::tree::Tree;

use crate::support::{Disks, committing, full, make_change, new_pool, objset_of, surroundings};
use data::{Data, Open};

/// Operations on each pool.
const STEPS: u64 = 200;
/// Most datasets and snapshots of a pool.
const MOST: usize = 16;
const MIB: u64 = 1 << 20;

const COMPRESSIONS: &[&str] = &[
    "on",
    "off",
    "lzjb",
    "zle",
    "lz4",
    "gzip-1",
    "gzip-6",
    "gzip-9",
    "zstd-1",
    "zstd-3",
    "zstd-19",
    "zstd-fast-1",
    "zstd-fast-100",
];
const CHECKSUMS: &[&str] =
    &["on", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3", "off"];

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

/// A pool under test, and what it must hold.
struct Run {
    pool: Arc<LivePool>,
    tree: Tree<Data>,
    open: BTreeMap<String, Open>,
    rng: Rng,
    /// How often there was no room.
    refused: usize,
}

/// Datasets with properties of all kinds.
async fn create_datasets(pool: &Arc<LivePool>, rng: &mut Rng, seed: u64) -> Tree<Data> {
    let mut heads = Vec::new();
    for number in 0..5u64 {
        let turn = (seed * 5 + number) as usize;
        let sizes = ["512", "4K", "8K", "16K", "64K", "128K", "1M"];
        let (name, data, contents, sizes, size_property) = match number {
            0 | 1 => {
                let size = (1 + number) * MIB;
                let contents = NewContents::Volume { size, sparse: true };
                (
                    format!("v{number}"),
                    Data::Volume(vec![0; size as usize]),
                    contents,
                    &sizes[1..6],
                    "volblocksize",
                )
            }
            _ => (
                format!("f{number}"),
                Data::Files(BTreeMap::new()),
                NewContents::Filesystem,
                &sizes[..],
                "recordsize",
            ),
        };
        let properties = [
            ("compression", COMPRESSIONS[turn % COMPRESSIONS.len()]),
            ("checksum", CHECKSUMS[turn % CHECKSUMS.len()]),
            ("copies", if rng.once_in(4) { "2" } else { "1" }),
            (size_property, rng.pick(sizes).copied().unwrap_or("16K")),
        ];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let new = NewDataset { name: full(&name), contents, properties };
        pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
        heads.push((name, data));
    }
    Tree::new(heads)
}

impl Run {
    /// Opens a dataset for writing, if it is not.
    async fn open(&mut self, name: &str) -> Open {
        if let Some(open) = self.open.get(name) {
            return open.clone();
        }
        let dataset = self.pool.dataset(objset_of(&self.pool, name).await.unwrap()).await.unwrap();
        let open = Open::new(&self.pool, &dataset).await.unwrap();
        self.open.insert(name.to_owned(), open.clone());
        open
    }

    /// One operation. One for which there is no room changes nothing.
    async fn step(&mut self, number: u64) {
        let what = match self.rng.below(20) {
            0 => self.pool.sync().await.map(drop),
            1 => return self.set_property().await,
            2..=5 => self.change_tree(number).await,
            _ => self.change_data().await,
        };
        match what {
            Ok(()) => {}
            Err(Error::NoSpace(_)) => {
                self.refused += 1;
                for _ in 0..3 {
                    self.pool.sync().await.unwrap();
                }
            }
            Err(error) => panic!("step {number}: {error}"),
        }
    }

    async fn change_tree(&mut self, number: u64) -> engine::Result<()> {
        let Some(change) = self.tree.choose(&mut self.rng, number, MOST, |_| true) else { return Ok(()) };
        // Whoever has a dataset open that goes, or goes back, must let it go; names change too.
        self.open.clear();
        committing(&self.pool, make_change(&self.pool, &change)).await.inspect_err(|error| {
            assert!(matches!(error, Error::NoSpace(_)), "{change:?}: {error}");
        })?;
        self.tree.apply(&change);
        Ok(())
    }

    async fn change_data(&mut self) -> engine::Result<()> {
        let heads: Vec<String> = self.tree.heads().into_iter().map(str::to_owned).collect();
        let Some(name) = self.rng.pick(&heads).cloned() else { return Ok(()) };
        let open = self.open(&name).await;
        let Some(data) = self.tree.contents_mut(&name) else { return Ok(()) };
        committing(&self.pool, data.change(&open, &mut self.rng)).await
    }

    /// From now on a dataset is written another way.
    async fn set_property(&mut self) {
        let heads: Vec<String> = self.tree.heads().into_iter().map(str::to_owned).collect();
        let Some(name) = self.rng.pick(&heads).map(|name| full(name)) else { return };
        let (property, values) = match self.rng.below(2) {
            0 => ("compression", COMPRESSIONS),
            _ => ("checksum", CHECKSUMS),
        };
        let value = self.rng.pick(values).copied().unwrap_or("on");
        let set = vec![(property.to_owned(), value.to_owned())];
        self.open.clear();
        let set = self.pool.change(|s| async move {
            let changed = edit::set_properties(&s, &name, &set).await?;
            for id in changed.policies {
                if let Some(open) = s.open_dataset(id) {
                    open.objset.set_policy(edit::policy(&s, id).await?);
                }
            }
            Ok(())
        });
        set.await.unwrap();
    }

    /// The pool is exported, judged, and imported again.
    async fn reborn(mut self, disks: &Disks, seed: u64) -> Self {
        self.check().await;
        let Self { pool, tree, rng, refused, .. } = self;
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
        drop(pool);
        disks.judge("tank");
        Self { pool: disks.import("tank", seed).await, tree, open: BTreeMap::new(), rng, refused }
    }

    /// The pool holds what the model says.
    async fn check(&mut self) {
        self.open.clear();
        self.pool.sync().await.unwrap();
        let dsl = Dsl::open(&self.pool.view()).await.unwrap();
        let mut found = Vec::new();
        for dir in dsl.dirs(dsl.root()).await.unwrap() {
            let head = dsl.head(&dir).await.unwrap();
            found.extend(dsl.snapshots(&head).await.unwrap().into_iter().map(|snapshot| snapshot.name));
            found.push(dir.name.clone());
        }
        let prefix = full("");
        found.retain(|name| name.starts_with(&prefix) && !name.contains('$') && *name != full(data::FULL));
        found.sort();
        let names: Vec<String> = self.tree.names().into_iter().map(full).collect();
        assert_eq!(found, names);
        for name in self.tree.names() {
            let dataset = dsl.find(&full(name)).await.unwrap();
            let objset = dsl.open_objset(&dataset).await.unwrap();
            let expected = self.tree.contents(name).expect("it is one of its names");
            expected.check(name, &objset).await;
        }
    }
}

/// Random operations through two lives of a pool. The pool is full first, if `fill`.
fn run(name: &str, tops: Tops, ashift: u8, disk_bytes: u64, fill: bool) {
    let given = |name: &str| std::env::var(name).ok()?.parse().ok();
    let of_name = name.bytes().fold(7u64, |sum, byte| sum * 31 % 10_007 + u64::from(byte));
    let seed = given("CENOTE_RANDOM_SEED").unwrap_or(of_name);
    let steps = given("CENOTE_RANDOM_STEPS").unwrap_or(STEPS);
    println!("{name}: CENOTE_RANDOM_SEED={seed}");
    let disks = Disks::new(disk_bytes);
    block_on(async {
        let pool = LivePool::create(new_pool(tops(&disks), ashift), surroundings(seed)).await.unwrap();
        let mut rng = Rng::new(seed);
        let tree = create_datasets(&pool, &mut rng, seed).await;
        let mut run = Run { pool, tree, open: BTreeMap::new(), rng, refused: 0 };
        if fill {
            data::fill_up(&run.pool).await;
        }
        for number in 1..=steps {
            run.step(number).await;
            if number == steps / 2 {
                run = run.reborn(&disks, seed + 1).await;
            }
        }
        assert_eq!(run.refused > 0, fill, "{} refused", run.refused);
        let mut run = run.reborn(&disks, seed + 2).await;
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
