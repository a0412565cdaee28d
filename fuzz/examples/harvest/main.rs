//! Makes the corpus from the golden pools: `cargo run -p cenote-fuzz --example harvest`.
//!
//! Walks every object of every pool and keeps a few blocks, bonus areas and values of each kind, trimmed,
//! each content once. The corpus is checked in; this is run again when a target is added.

mod entries;
mod layouts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use device::block_on;
use engine::Bookmark;
use engine::Pool;
use engine::dmu::Objset;
use engine::dmu::zap::Zap;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, import};
use fuzz_targets::TARGETS;
use ondisk::blkptr::{Blkptr, CompressType};
use ondisk::dmu::DmuType;
use ondisk::nvlist::Nvlist;
use ondisk::vdev_config::VdevConfig;
use ondisk::{ObjectId, ObjsetId, label};
use testkit::GoldenPool;
use testkit::manifest::hex_sha256;

use entries::Acls;
use layouts::Layouts;

/// Files of one target.
const MAX_FILES: usize = 24;
/// Files of one target and kind from one pool.
const MAX_FROM_POOL: usize = 2;
/// Entries of a ZAP that are looked at.
const MAX_ENTRIES: usize = 64;
/// Bytes of one file.
const MAX_BYTES: usize = 16 << 10;
/// Bytes of all files of one target.
const MAX_TARGET_BYTES: usize = 48 << 10;

#[derive(Default)]
struct Corpus {
    files: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    from_pool: BTreeMap<(&'static str, u8), usize>,
}

impl Corpus {
    /// Keeps `bytes` for `target` unless there are enough of this kind.
    fn keep(&mut self, target: &'static str, kind: u8, bytes: &[u8]) {
        assert!(fuzz_targets::target(target).is_some(), "{target} is no target");
        let trimmed = &bytes[..bytes.len().min(MAX_BYTES)];
        let files = self.files.entry(target).or_default();
        let count = self.from_pool.entry((target, kind)).or_default();
        let held: usize = files.iter().map(Vec::len).sum();
        if *count < MAX_FROM_POOL
            && files.len() < MAX_FILES
            && held + trimmed.len() <= MAX_TARGET_BYTES
            && files.insert(trimmed.to_vec())
        {
            *count += 1;
        }
    }

    /// Keeps bytes after the numbers that the target takes from the front.
    fn keep_after(&mut self, target: &'static str, kind: u8, front: &[u8], bytes: &[u8]) {
        self.keep(target, kind, &[front, bytes].concat());
    }

    fn write(&self, folder: &Path) -> Result<()> {
        for (target, files) in &self.files {
            let folder = folder.join(target);
            fs::create_dir_all(&folder)?;
            for file in files {
                fs::write(folder.join(&hex_sha256(file)[..16]), file)?;
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut corpus = Corpus::default();
    for key in ["obj-1f4", "0", "obj-100000000", "ffffffffffffffff"] {
        corpus.keep("accounting", 0, key.as_bytes());
    }
    for name in [
        "0:1f:-1:2a",
        "10:0:3:ffff:20",
        "ul$1000",
        "Ul$3e8",
        "c-@set",
        "3a-tag:one",
        "pool/fs@snap",
        "pool/fs#mark",
    ] {
        corpus.keep("names", 0, name.as_bytes());
        corpus.from_pool.clear();
    }
    entries::domains(&mut corpus);
    for name in testkit::golden::names()? {
        corpus.from_pool.clear();
        let golden = GoldenPool::open(&name)?;
        let mut layouts = Layouts::default();
        let harvested = labels(&golden, &mut layouts, &mut corpus)
            .and_then(|()| streams(&golden, &mut corpus))
            .and_then(|()| block_on(pool(&golden, &mut layouts, &mut corpus)));
        layouts.keep(&mut corpus);
        match harvested {
            Ok(()) => println!("{name}"),
            Err(error) => println!("{name}: {error:#}"),
        }
    }
    corpus.write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))?;
    for (target, _) in TARGETS {
        println!("{target}: {} files", corpus.files.get(target).map_or(0, BTreeSet::len));
    }
    Ok(())
}

fn labels(golden: &GoldenPool, layouts: &mut Layouts, corpus: &mut Corpus) -> Result<()> {
    for disk in golden.disks().iter().take(1) {
        let bytes = fs::read(disk)?;
        let area = |range: std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
        let phys = area(label::VDEV_PHYS);
        if let Ok((config, _, used)) = Nvlist::parse_packed(phys) {
            corpus.keep("nvlist", 0, &phys[..used]);
            corpus.keep("label", 0, &phys[..used.next_multiple_of(8)]);
            if let Ok(tree) = config.get_nvlist("vdev_tree") {
                corpus.keep("vdev_config", 0, &tree.encode(ondisk::nvlist::Encoding::Xdr)?);
                VdevConfig::parse(tree).into_iter().for_each(|top| layouts.take_vdev(top));
            }
            corpus.keep("vdev_config", 1, &phys[..used]);
        }
        corpus.keep("label", 1, &area(label::BOOT_ENV)[..512]);
        let ring = area(label::UBERBLOCK_RING);
        for slot in ring.chunks(1024).filter(|slot| slot[..8] != [0; 8]) {
            corpus.keep("uberblock", 0, &slot[..320]);
            corpus.keep("checksum", 0, &slot[..320]);
            let mut front = [0; 32];
            front[8..16].copy_from_slice(&(label::UBERBLOCK_RING.start).to_le_bytes());
            corpus.keep_after("embedded_checksum", 0, &front, slot);
        }
    }
    Ok(())
}

fn streams(golden: &GoldenPool, corpus: &mut Corpus) -> Result<()> {
    let Ok(folder) = fs::read_dir(golden.expect("streams")) else { return Ok(()) };
    let mut paths: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.into_iter().filter(|path| path.is_file()) {
        let bytes = fs::read(&path)?;
        let magic = ondisk::send::MAGIC;
        if bytes.get(8..16).is_some_and(|word| word == magic.to_le_bytes() || word == magic.to_be_bytes()) {
            corpus.keep("send_stream", 0, &bytes[..bytes.len().min(6 << 10)]);
            // Raw streams begin with what is said of their keys.
            let length = bytes.get(4..8).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
            let said = bytes.get(ondisk::send::RECORD_SIZE..).unwrap_or_default();
            if let Some(said) = said.get(..length as usize).filter(|said| !said.is_empty()) {
                corpus.keep("key_data", 0, said);
            }
            for (kind, record) in (0u8..).zip(bytes.chunks(ondisk::send::RECORD_SIZE).take(2)) {
                corpus.keep("send_record", kind, record);
            }
        }
    }
    Ok(())
}

async fn pool(golden: &GoldenPool, layouts: &mut Layouts, corpus: &mut Corpus) -> Result<()> {
    let found = discovery::scan(&[&golden.dir]).await?;
    let found = found.into_iter().next().context("no pool")?;
    let pool = import(&found, &ImportOptions::read_only()).await?;
    let mos = Objset::open(&pool, ObjsetId(0), pool.root_blkptr()).await?;
    let roots = objset(&pool, &mos, layouts, corpus).await?;
    for (id, root) in roots {
        // A dataset whose key is not loaded shows what is in the clear.
        if let Ok(opened) = Objset::open_without_key(&pool, ObjsetId(id), &root).await {
            let _ = objset(&pool, &opened, layouts, corpus).await;
        }
    }
    Ok(())
}

/// Looks at all objects. Gives the roots of the datasets.
async fn objset(
    pool: &Arc<Pool>,
    objset: &Arc<Objset>,
    layouts: &mut Layouts,
    corpus: &mut Corpus,
) -> Result<Vec<(u64, Blkptr)>> {
    let mut roots = Vec::new();
    let acls = Acls::of(objset).await;
    layouts.take_block(objset.root());
    let at = Bookmark::objset_root(objset.id().get());
    let root = pool.read_block_without_key(objset.root(), &at).await?;
    let order = objset.root().byte_order();
    corpus.keep("objset", objset.objset_type() as u8, &root);
    corpus.keep("blkptr", 0, &objset.root().encode(order));
    let header = ondisk::zil::ZilHeader::parse(&objset.phys().zil_header, order)?;
    if !header.is_empty()
        && let Ok(raw) = pool.read_block_without_key(&header.log, &at).await
    {
        corpus.keep_after("zil_block", 0, &header.log.encode(order), &raw[..raw.len().min(8 << 10)]);
        if let Ok(block) = ondisk::zil::LogBlock::parse(&header.log, &raw) {
            for record in block.records().flatten() {
                corpus.keep(
                    "zil_record",
                    record.header.kind_number() as u8,
                    &record.bytes[..record.bytes.len().min(1024)],
                );
            }
        }
        let mut front = vec![8; 10];
        front.extend_from_slice(&header.log.encode(order));
        corpus.keep_after("crypt", 1, &front, &raw);
    }
    if let Ok(Some(block)) = objset.meta_dnode().block(0).await {
        let mut front = vec![8; 9];
        front.push(0);
        front.extend_from_slice(&objset.root().encode(order));
        corpus.keep_after("crypt", 0, &front, &block.block[..4096.min(block.block.len())]);
    }
    let mut next = objset.next_object(ObjectId(1)).await?;
    while let Some(id) = next {
        next = objset.next_object(ObjectId(id.get() + 1)).await?;
        let Ok(object) = objset.object(id).await else { continue };
        let dnode = object.dnode();
        if let Ok(bytes) = dnode.encode() {
            corpus.keep("dnode", dnode.dmu_type.raw(), &bytes);
        }
        let (bonus, _) = object.bonus();
        match dnode.bonus_type {
            DmuType::DSL_DIR => corpus.keep("dsl", 0, bonus),
            DmuType::DSL_DATASET => {
                corpus.keep("dsl", 1, bonus);
                if let Ok(phys) = ondisk::dsl_dataset::DslDatasetPhys::parse(bonus, object.bonus().1)
                    && !phys.bp.is_hole()
                {
                    roots.push((id.get(), phys.bp));
                }
            }
            DmuType::BPOBJ_HDR => corpus.keep("bpobj", 0, bonus),
            DmuType::DEADLIST_HDR => corpus.keep("deadlist", 0, bonus),
            DmuType::SPACE_MAP_HEADER => corpus.keep("space_map", 0, bonus),
            DmuType::SA => {
                corpus.keep_after("sa", 0, &[0], bonus);
                acls.keep(&object, corpus).await;
            }
            DmuType::ZNODE => {
                corpus.keep_after("sa", 1, &[0], bonus);
                corpus.keep("acl", 0, &bonus[bonus.len().saturating_sub(88)..]);
            }
            DmuType::SPA_HISTORY_OFFSETS => corpus.keep("history", 0, bonus),
            _ if bonus.is_empty() => {}
            _ => corpus.keep("indirect", dnode.bonus_type.raw(), bonus),
        }
        for index in 0..2 {
            let Ok(Some(block)) = object.block(index).await else { continue };
            let bytes: &[u8] = &block.block;
            let kind = dnode.dmu_type;
            match kind {
                _ if kind.byteswap() == ondisk::dmu::Byteswap::Zap => {
                    zap(&object, index, bytes, corpus).await
                }
                DmuType::BPOBJ => corpus.keep("bpobj", 1, &bytes[..bytes.len().min(2048)]),
                DmuType::SPACE_MAP => corpus.keep("space_map", 1, &bytes[..bytes.len().min(2048)]),
                DmuType::OBJECT_ARRAY => corpus.keep("metaslab", 0, &bytes[..bytes.len().min(512)]),
                DmuType::SPA_HISTORY => corpus.keep("history", 1, bytes),
                DmuType::PACKED_NVLIST => corpus.keep("nvlist", 1, bytes),
                DmuType::FUID => corpus.keep("fuid", 0, bytes),
                DmuType::ACL => corpus.keep("acl", 1, &bytes[..bytes.len().min(512)]),
                DmuType::PLAIN_FILE_CONTENTS => {
                    layouts.keep_row(bytes, corpus);
                    packed(bytes, corpus);
                }
                _ => {
                    // Types that describe only their byte order are shared by several structures.
                    for target in ["brt", "ddt_log", "indirect", "redaction", "log_space_map"] {
                        corpus.keep(target, kind.raw(), &bytes[..bytes.len().min(1024)]);
                    }
                }
            }
        }
        if dnode.levels > 1
            && let Ok(Some(bp)) = object.blkptr(0, 0).await
        {
            layouts.take_block(&bp);
            corpus.keep("blkptr", 1 + bp.compress().raw(), &bp.encode(bp.byte_order()));
        }
    }
    Ok(roots)
}

async fn zap(object: &engine::dmu::Object, index: u64, bytes: &[u8], corpus: &mut Corpus) {
    let target = match (index, bytes.get(..8)) {
        (0, Some([3, 0, 0, 0, 0, 0, 0, 0x80] | [0x80, 0, 0, 0, 0, 0, 0, 3])) => "zap_micro",
        (0, _) => "zap_header",
        _ => "zap_leaf",
    };
    corpus.keep(target, object.dnode().dmu_type.raw(), &bytes[..bytes.len().min(8 << 10)]);
    if target == "zap_leaf" {
        // Only a whole block can be changed.
        corpus.keep("zap_edit", object.dnode().dmu_type.raw(), bytes);
    }
    let Ok(zap) = Zap::open(object).await else { return };
    let mut cursor = zap.cursor(0);
    for _ in 0..MAX_ENTRIES {
        let Ok(Some(entry)) = cursor.next().await else { break };
        entries::entry(object.dnode().dmu_type, &entry, corpus);
    }
    for entry in zap.entries(MAX_ENTRIES).await.unwrap_or_default() {
        let (Some(name), kind) = (entry.key.name(), object.dnode().dmu_type) else { continue };
        corpus.keep("names", kind.raw(), name);
        let target = match name.len() {
            _ if name.starts_with(b"DSL_CRYPTO") => "crypto_key",
            0..=16 if name.iter().all(u8::is_ascii_hexdigit) => "deadlist",
            _ => continue,
        };
        corpus.keep(target, 1, name);
    }
}

/// The start of a file, and what the compressors make of it.
fn packed(bytes: &[u8], corpus: &mut Corpus) {
    let plain = &bytes[..bytes.len().min(4096) & !511];
    if plain.is_empty() {
        return;
    }
    corpus.keep("checksum", 1, &plain[..512]);
    for (number, kind) in (0u8..).zip(CompressType::ALL) {
        let mut packed = vec![0; plain.len()];
        corpus.keep_after("compress", number, &[number, 3], plain);
        if let Some(length) = codec::compress::compress(*kind, 3, plain, &mut packed) {
            let sectors = 16 + (plain.len() >> 9) as u8;
            corpus.keep_after("decompress", number, &[number, sectors.max(16) - 16], &packed[..length]);
        }
    }
}
