//! What there is to complete: pools, datasets and devices that the daemon knows, properties and their values.

use engine::pool::properties::table::POOL_TABLE;
use engine::properties::table::TABLE;
use engine::properties::{Attr, Kind};
use ondisk::features::Feature;
use server::api::{Action, DatasetKind, ListDatasets, ListPools, ListVdevs, VdevEntry};

use crate::{client, remotes};

/// Words that begin a group of devices.
const VDEV_WORDS: [&str; 10] =
    ["mirror", "raidz1", "raidz2", "raidz3", "draid", "log", "special", "dedup", "cache", "spare"];

/// What a daemon that runs answers; nothing where none does, or it refuses.
fn ask<A: Action>(action: &A) -> Option<A::Reply> {
    client::be_quiet();
    client::call_running(action).ok().flatten()
}

/// The machines that are kept.
pub fn remotes() -> Vec<String> {
    remotes::kept().map_or_else(|_| Vec::new(), |kept| kept.into_iter().map(|remote| remote.name).collect())
}

/// The open pools.
pub fn pools() -> Vec<String> {
    let listed = ask(&ListPools::default());
    listed.map_or_else(Vec::new, |listed| listed.entries.into_iter().map(|pool| pool.name).collect())
}

/// The vdevs of a pool that hold blocks.
pub fn devices(pool: &str) -> Vec<String> {
    let listed = ask(&ListVdevs { pool: pool.to_owned(), ..ListVdevs::default() });
    let name = |entry: VdevEntry| (entry.vdev.kind != "root").then_some(entry.vdev.name);
    listed.map_or_else(Vec::new, |listed| listed.entries.into_iter().filter_map(name).collect())
}

/// Filesystems and volumes, as far down as was typed and one level more.
pub fn datasets(word: &str) -> Vec<String> {
    let above = word.rsplit_once('/').map(|(above, _)| above.to_owned());
    list(above, vec![DatasetKind::Filesystem, DatasetKind::Volume])
}

/// Sizes of a block that a volume can get, as they are usually written.
pub fn block_sizes() -> Vec<String> {
    let sizes = ["4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M", "4M", "8M", "16M"];
    sizes.map(str::to_owned).to_vec()
}

/// The snapshots of the dataset that was typed; in front of the `@`, the datasets that may have some.
pub fn snapshots(word: &str) -> Vec<String> {
    match word.split_once('@') {
        Some((dataset, _)) => list(Some(dataset.to_owned()), vec![DatasetKind::Snapshot]),
        None => datasets(word).into_iter().map(|dataset| format!("{dataset}@")).collect(),
    }
}

fn list(above: Option<String>, kinds: Vec<DatasetKind>) -> Vec<String> {
    let names = above.into_iter().collect();
    let listed = ask(&ListDatasets { names, depth: Some(1), kinds, ..ListDatasets::default() });
    listed.map_or_else(Vec::new, |listed| listed.entries.into_iter().map(|entry| entry.name).collect())
}

/// Names of properties, of pools or of datasets.
pub fn properties(of_pools: bool) -> Vec<String> {
    match of_pools {
        true => {
            let native = POOL_TABLE.iter().filter(|desc| desc.visible).map(|desc| desc.name.to_owned());
            native.chain(Feature::ALL.iter().map(|feature| format!("feature@{}", feature.name()))).collect()
        }
        false => TABLE.iter().filter(|desc| desc.visible).map(|desc| desc.name.to_owned()).collect(),
    }
}

/// `property=` for those that can be set, or `property=value` where one was typed that has words for values.
pub fn assignments(of_pools: bool, word: &str) -> Vec<String> {
    let Some((name, _)) = word.split_once('=') else {
        return settable(of_pools).map(|(name, _)| format!("{name}=")).collect();
    };
    let values = settable(of_pools).filter(|(property, _)| property == name).flat_map(|(_, values)| values);
    values.map(|value| format!("{name}={value}")).collect()
}

/// Properties that can be set, each with the words that it can have.
fn settable(of_pools: bool) -> Box<dyn Iterator<Item = (String, Vec<&'static str>)>> {
    let words = |kind: &Kind| match kind {
        Kind::Index(_, names) => names.iter().map(|(word, _)| *word).collect(),
        _ => Vec::new(),
    };
    match of_pools {
        true => {
            let native = POOL_TABLE.iter().filter(|desc| desc.attr != Attr::Readonly && desc.visible);
            let native = native.map(move |desc| (desc.name.to_owned(), words(&desc.kind)));
            let features =
                Feature::ALL.iter().map(|feature| (format!("feature@{}", feature.name()), vec!["enabled"]));
            Box::new(native.chain(features))
        }
        false => {
            let native = TABLE.iter().filter(|desc| desc.attr != Attr::Readonly && desc.visible);
            Box::new(native.map(move |desc| (desc.name.to_owned(), words(&desc.kind))))
        }
    }
}

/// Words that begin a group of new devices.
pub fn vdev_words() -> Vec<String> {
    VDEV_WORDS.map(str::to_owned).to_vec()
}
