//! Random operations on the volumes, filesystems and snapshots of a pool, and a model of what it then holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Error;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::LivePool;
use ondisk::features::Feature;
use ondisk::pool_version as version;
use testkit::Rng;
use testkit::tree::Tree;

use crate::data::{self, Data, Open};
use crate::ivs::Ivs;
use crate::support::{committing, full, make_change, objset_of};

/// Most datasets and snapshots of a pool.
const MOST: usize = 16;
const MIB: u64 = 1 << 20;
/// The dataset that is plain in an encrypted pool.
const PLAIN: u64 = 3;

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

/// The values that the pool's version and features allow.
fn allowed(pool: &LivePool, values: &[&'static str]) -> Vec<&'static str> {
    let needed = |value: &str| match value {
        "lz4" => Some(Feature::Lz4Compress),
        "sha512" => Some(Feature::Sha512),
        "skein" => Some(Feature::Skein),
        "edonr" => Some(Feature::Edonr),
        "blake3" => Some(Feature::Blake3),
        _ if value.starts_with("zstd") => Some(Feature::ZstdCompress),
        _ => None,
    };
    let since = |value: &str| match value {
        "zle" => version::ZLE,
        _ if value.starts_with("gzip") => version::GZIP,
        _ => version::OLDEST,
    };
    let is_allowed = |value: &&str| {
        pool.version() >= since(value)
            && needed(value).is_none_or(|feature| pool.feature_count(feature).is_some())
    };
    values.iter().copied().filter(is_allowed).collect()
}

/// A pool under test, and what it must hold.
pub struct History {
    pub pool: Arc<LivePool>,
    pub tree: Tree<Data>,
    pub open: BTreeMap<String, Open>,
    pub rng: Rng,
    /// How often there was no room.
    pub refused: usize,
    /// What was used to encrypt.
    pub ivs: Ivs,
}

/// Datasets with properties of all kinds. In an encrypted pool all but one inherit its key.
async fn create_datasets(pool: &Arc<LivePool>, rng: &mut Rng, seed: u64) -> Tree<Data> {
    let mut heads = Vec::new();
    let (compressions, checksums) = (allowed(pool, COMPRESSIONS), allowed(pool, CHECKSUMS));
    let is_encrypted = pool.feature_count(Feature::Encryption).is_some_and(|count| count > 0);
    let most = if pool.feature_count(Feature::LargeBlocks).is_some() { 7 } else { 6 };
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
                &sizes[..most],
                "recordsize",
            ),
        };
        let properties = [
            ("compression", compressions[turn % compressions.len()]),
            ("checksum", checksums[turn % checksums.len()]),
            ("copies", if rng.once_in(4) { "2" } else { "1" }),
            (size_property, rng.pick(sizes).copied().unwrap_or("16K")),
        ];
        let mut properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        if is_encrypted && number == PLAIN {
            properties.push(("encryption".to_owned(), "off".to_owned()));
        }
        properties.retain(|(name, _)| name != "copies" || pool.version() >= version::DITTO_BLOCKS);
        let new = NewDataset { name: full(&name), contents, properties };
        pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
        heads.push((name, data));
    }
    Tree::new(heads)
}

impl History {
    /// Datasets in a pool that has none.
    pub async fn begin(pool: Arc<LivePool>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tree = create_datasets(&pool, &mut rng, seed).await;
        Self { pool, tree, open: BTreeMap::new(), rng, refused: 0, ivs: Ivs::default() }
    }

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
    pub async fn step(&mut self, number: u64) {
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
        // A user of a dataset that is destroyed or rolled back must close it; names change too.
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
        let value = self.rng.pick(&allowed(&self.pool, values)).copied().unwrap_or("on");
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

    /// The pool holds what the model says.
    pub async fn check(&mut self) {
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
