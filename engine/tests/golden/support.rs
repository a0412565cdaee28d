//! Opening golden pools, and showing their filesystems to the judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use device::block_on;
use engine::Pool;
use engine::cache::ArcCache;
use engine::dmu::Objset;
use engine::dsl::Dsl;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, import};
use engine::zpl::{AclType, Znode, Zpl, ZplOptions};
use testkit::manifest::Stat;
use testkit::{GoldenPool, Tree};

/// Imports a golden pool for reading.
pub fn import_golden(golden: &GoldenPool) -> Result<Arc<Pool>> {
    import_with(golden, &ImportOptions::read_only())
}

/// The same with an ARC of so many bytes.
pub fn import_with_cache(golden: &GoldenPool, bytes: u64) -> Result<Arc<Pool>> {
    import_with(
        golden,
        &ImportOptions { cache: Some(Arc::new(ArcCache::new(bytes))), ..ImportOptions::read_only() },
    )
}

fn import_with(golden: &GoldenPool, options: &ImportOptions) -> Result<Arc<Pool>> {
    block_on(async {
        let found = discovery::scan(&[&golden.dir]).await?;
        let found = found.into_iter().next().context("no pool found")?;
        Ok(import(&found, options).await?)
    })
}

/// Opens the object set of a dataset by name.
pub fn objset(pool: &Arc<Pool>, name: &str) -> Result<Arc<Objset>> {
    block_on(async {
        let dsl = Dsl::open(pool).await?;
        let dataset = dsl.find(name).await?;
        Ok(dsl.open_objset(&dataset).await?)
    })
}

/// A filesystem as a tree of files.
pub struct EngineTree(pub Arc<Zpl>);

impl EngineTree {
    /// Opens the filesystem or snapshot `name`, showing POSIX ACLs.
    pub fn open(pool: &Arc<Pool>, name: &str) -> Result<Self> {
        let objset = objset(pool, name)?;
        let options =
            ZplOptions { snapshot: name.contains('@'), acl: AclType::Posix, ..ZplOptions::default() };
        Ok(Self(block_on(Zpl::open(&objset, options))?))
    }
}

impl Tree for EngineTree {
    type Node = Znode;

    fn root(&self) -> Result<Znode> {
        Ok(block_on(self.0.node(self.0.root()))?)
    }

    fn list(&self, dir: &Znode) -> Result<Vec<(Vec<u8>, Znode)>> {
        block_on(async {
            let mut found = Vec::new();
            let mut cursor = dir.read_dir(0).await?;
            while let Some(entry) = cursor.next().await? {
                let looked_up = dir.lookup(&entry.name).await?;
                anyhow::ensure!(
                    looked_up == Some(entry.object),
                    "lookup and walk disagree on {:?}",
                    entry.name
                );
                if entry.name != b"." && entry.name != b".." {
                    let node = self.0.node(entry.object).await?;
                    anyhow::ensure!(
                        entry.file_type.is_none_or(|kind| kind == node.file_type()),
                        "wrong type in directory"
                    );
                    found.push((entry.name, node));
                }
            }
            Ok(found)
        })
    }

    fn stat(&self, node: &Znode) -> Result<Stat> {
        let stat = node.stat()?;
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

    fn read_link(&self, node: &Znode) -> Result<Vec<u8>> {
        Ok(block_on(node.read_link())?)
    }

    fn read(&self, node: &Znode, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(block_on(node.read_at(offset, into))?)
    }

    fn xattrs(&self, node: &Znode) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        block_on(async {
            let mut found = BTreeMap::new();
            for name in node.list_xattrs().await? {
                let value = node.xattr(&name).await?.context("a listed attribute has no value")?;
                found.insert(name, value);
            }
            Ok(found)
        })
    }
}
