//! Reading all that a pool shows, as far as it can be read: datasets and their properties, files, volumes,
//! history, space.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use device::block_on;
use engine::dmu::Objset;
use engine::dsl::pool_space::PoolSpace;
use engine::dsl::{Dataset, Dir, Dsl, Walk, history};
use engine::pool::{errlog, status};
use engine::properties::{Environment, Style};
use engine::zpl::diff::{Diff, PageLimits};
use engine::zpl::{AclType, Znode, Zpl, ZplOptions};
use engine::zvol::Zvol;
use engine::{Error, Pool};
use ondisk::ObjectId;
use testkit::manifest::{Stat, hex_sha256};
use testkit::{GoldenPool, Tree};

/// Datasets, nodes of a filesystem, and bytes of a file that are looked at when a pool may say anything.
const MAX_DATASETS: usize = 60;
const MAX_NODES: usize = 400;
const MAX_DEPTH: usize = 40;
const MAX_READ: usize = 256 << 10;

/// A filesystem of which any part may be unreadable.
struct Damaged(Arc<Zpl>);

impl Tree for Damaged {
    /// A directory's entry may lead to nothing.
    type Node = Result<Znode, Error>;

    fn root(&self) -> Result<Self::Node> {
        Ok(block_on(self.0.node(self.0.root())))
    }

    fn list(&self, dir: &Self::Node) -> Result<Vec<(Vec<u8>, Self::Node)>> {
        let dir = dir.as_ref().map_err(Error::clone)?;
        block_on(async {
            let mut found = Vec::new();
            let mut cursor = dir.read_dir(0).await?;
            while let Some(entry) = cursor.next().await? {
                if entry.name != b"." && entry.name != b".." && found.len() < 10 * MAX_NODES {
                    found.push((entry.name, self.0.node(entry.object).await));
                }
            }
            Ok(found)
        })
    }

    fn stat(&self, node: &Self::Node) -> Result<Stat> {
        let stat = node.as_ref().map_err(Error::clone)?.stat()?;
        Ok(Stat {
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            nlink: stat.nlink.into(),
            size: stat.size,
            mtime_ns: stat.mtime.as_nanoseconds().try_into()?,
            ino: stat.ino,
            rdev: stat.device,
        })
    }

    fn read_link(&self, node: &Self::Node) -> Result<Vec<u8>> {
        Ok(block_on(node.as_ref().map_err(Error::clone)?.read_link())?)
    }

    fn read(&self, node: &Self::Node, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(block_on(node.as_ref().map_err(Error::clone)?.read_at(offset, into))?)
    }

    fn xattrs(&self, node: &Self::Node) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let node = node.as_ref().map_err(Error::clone)?;
        block_on(async {
            let mut found = BTreeMap::new();
            for name in node.list_xattrs().await?.into_iter().take(MAX_NODES) {
                let value = node.xattr(&name).await?.context("a listed attribute has no value")?;
                found.insert(name, value);
            }
            Ok(found)
        })
    }
}

/// Whatever a pool says, to the end. Errors are right answers here.
pub fn everything(pool: &Arc<Pool>) {
    let Ok(dsl) = block_on(Dsl::open(pool)) else { return };
    block_on(async {
        for record in history::read(&dsl).await.unwrap_or_default() {
            let _ = format!("{:?}", record.event());
        }
        let _ = errlog::read(&dsl).await;
        let _ = status::health(&dsl).await;
        let _ = status::vdevs_with_space(&dsl).await;
        let _ = PoolSpace::load(&dsl).await;
        for entry in dsl.list(None, Walk::ALL).await.unwrap_or_default().iter().take(MAX_DATASETS) {
            if let Ok(properties) = dsl.properties(entry, &Environment::UNMOUNTED).await {
                let _ = properties.all(Style::PARSABLE);
            }
        }
    });
    let mut datasets = Vec::new();
    collect(&dsl, dsl.root(), 0, &mut datasets);
    let mut before = None;
    for dataset in datasets {
        block_on(about(&dsl, &dataset));
        let Ok(objset) = block_on(dsl.open_objset(&dataset)) else { continue };
        if let Some(before) = before.replace(Arc::clone(&objset)) {
            block_on(differences(&before, &objset));
        }
        if let Ok(volume) = block_on(Zvol::open(&objset)) {
            let mut piece = vec![0; MAX_READ];
            for offset in [0, volume.size() / 2, volume.size().saturating_sub(piece.len() as u64)] {
                let _ = block_on(volume.read_at(offset, &mut piece));
            }
            let _ = block_on(volume.extents(0, volume.size(), 1000));
        }
        let options =
            ZplOptions { snapshot: dataset.is_snapshot(), acl: AclType::Posix, ..ZplOptions::default() };
        if let Ok(zpl) = block_on(Zpl::open(&objset, options)) {
            files(&Damaged(zpl));
        }
    }
}

fn collect(dsl: &Dsl, dir: &Arc<Dir>, depth: usize, found: &mut Vec<Dataset>) {
    if depth > MAX_DEPTH || found.len() > MAX_DATASETS {
        return;
    }
    if let Ok(head) = block_on(dsl.head(dir)) {
        found.extend(block_on(dsl.snapshots(&head)).unwrap_or_default());
        found.push(head);
    }
    for child in block_on(dsl.all_children(dir)).unwrap_or_default() {
        collect(dsl, &child, depth + 1, found);
    }
}

async fn about(dsl: &Dsl, dataset: &Dataset) {
    let _ = dsl.bookmarks(dataset).await;
    let _ = dsl.holds(dataset).await;
    let _ = dsl.clones(dataset).await;
    let _ = dsl.origin(&dataset.dir).await;
    let _ = dsl.name_of_object(dataset.object).await;
    let _ = dsl.encryption_root(&dataset.dir).await;
    let _ = dsl.lookup(&dataset.name).await;
}

/// What happened to files between two states, of one filesystem or not.
async fn differences(before: &Arc<Objset>, after: &Arc<Objset>) {
    let limits = PageLimits { objects: MAX_NODES, places: MAX_NODES };
    let Ok(mut diff) = Diff::open(before, after, limits).await else { return };
    for _ in 0..3 {
        if !diff.advance().await.unwrap_or(false) {
            break;
        }
        while diff.take().is_some() {}
    }
}

fn files(tree: &Damaged) {
    let Ok(root) = tree.root() else { return };
    let mut stack = vec![(root, 0)];
    let mut left = MAX_NODES;
    let mut piece = vec![0; MAX_READ];
    while let (Some((node, depth)), 1..) = (stack.pop(), left) {
        left -= 1;
        let Ok(znode) = &node else { continue };
        let _ = (tree.xattrs(&node), tree.read_link(&node), block_on(znode.acl()), znode.parent());
        let _ = block_on(tree.0.path_of(znode.id()));
        if let Ok(stat) = tree.stat(&node) {
            for offset in [0, stat.size / 2, stat.size.saturating_sub(piece.len() as u64)] {
                let _ = tree.read(&node, offset, &mut piece);
            }
            let _ = (block_on(znode.next_data(0)), block_on(znode.next_hole(0)));
        }
        if depth < MAX_DEPTH {
            let below = tree.list(&node).unwrap_or_default();
            stack.extend(below.into_iter().take(MAX_NODES).map(|(_, child)| (child, depth + 1)));
        }
    }
    let _ = block_on(tree.0.unlinked());
    let _ = block_on(tree.0.path_of(ObjectId(u64::MAX)));
}

/// Opens the encrypted datasets, as far as they can be.
fn load_keys(golden: &GoldenPool, dsl: &Dsl) {
    for (root, file) in [("gcm", "pass"), ("ccm", "rawkey"), ("vol", "hex")] {
        let Ok(key) = std::fs::read(golden.expect(file)) else { continue };
        let key = if file == "rawkey" { &key[..] } else { key.trim_ascii_end() };
        let _ = block_on(dsl.load_key(&format!("{}/{root}", golden.name), key, false));
    }
}

/// What a pool says that is neither an error nor what was recorded of it.
pub fn lies(golden: &GoldenPool, pool: &Arc<Pool>) -> Result<Vec<String>> {
    let mut lies = Vec::new();
    let Ok(dsl) = block_on(Dsl::open(pool)) else { return Ok(lies) };
    load_keys(golden, &dsl);
    for name in golden.filesystems()? {
        match block_on(dsl.find(&name)) {
            Err(Error::NotFound(why)) => lies.push(format!("{name}: {why} is missing")),
            Err(_) => {}
            Ok(dataset) => {
                let Ok(objset) = block_on(dsl.open_objset(&dataset)) else { continue };
                let options = ZplOptions {
                    snapshot: dataset.is_snapshot(),
                    acl: AclType::Posix,
                    ..ZplOptions::default()
                };
                let Ok(zpl) = block_on(Zpl::open(&objset, options)) else { continue };
                let found = golden.manifest(&name)?.lies(&Damaged(zpl));
                lies.extend(found.into_iter().map(|lie| format!("{name}: {lie}")));
            }
        }
    }
    for name in golden.volumes()? {
        let Ok(dataset) = block_on(dsl.find(&name)) else { continue };
        let Ok(objset) = block_on(dsl.open_objset(&dataset)) else { continue };
        let Ok(volume) = block_on(Zvol::open(&objset)) else { continue };
        let Ok(size) = usize::try_from(volume.size()) else { continue };
        let mut bytes = vec![0; size.min(128 << 20)];
        if block_on(volume.read_at(0, &mut bytes)).is_ok()
            && hex_sha256(&bytes) != golden.volume_sha256(&name)?
        {
            lies.push(format!("{name}: other bytes"));
        }
    }
    Ok(lies)
}
