//! What a dataset holds, and random changes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Error;
use engine::Result;
use engine::dmu::Objset;
use engine::dsl::LiveDataset;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::LivePool;
use engine::zpl::live::{RenameMode, WriteOptions, XattrPlace, XattrSet};
use engine::zpl::{LiveZpl, Zpl, ZplOptions};
use engine::zvol::{LiveZvol, Zvol};
use ondisk::objset::ObjsetType;
use testkit::Rng;

use crate::files::{FILE, see};
use crate::support::{committing, full};

/// Files are no longer than this: what is refused for want of room is refused as a whole.
const FILE_BYTES: u64 = 1 << 20;
const FILES: u64 = 30;
/// The volume that makes a pool full.
pub const FULL: &str = "full";

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a volume, filesystem or snapshot holds.
#[derive(Clone, Debug)]
pub enum Data {
    Volume(Vec<u8>),
    /// Files of the root directory.
    Files(BTreeMap<String, File>),
}

/// A dataset that is open for writing.
#[derive(Clone)]
pub enum Open {
    Volume(Arc<LiveZvol>),
    Files(Arc<LiveZpl>),
}

impl Open {
    pub async fn new(pool: &Arc<LivePool>, dataset: &LiveDataset) -> Result<Self> {
        if dataset.objset.kind() == ObjsetType::Zvol {
            let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await?;
            volume.set_room(dataset.room.clone());
            return Ok(Self::Volume(volume));
        }
        let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await?;
        zpl.set_room(dataset.room.clone());
        Ok(Self::Files(zpl))
    }
}

/// Bytes that compress well, badly or not at all.
fn bytes(rng: &mut Rng, length: u64) -> Vec<u8> {
    let kind = rng.below(4);
    let mut all = Vec::with_capacity(length as usize + 8);
    while (all.len() as u64) < length {
        let word = match kind {
            0 => 0x2020_6f6e_6574_6543,
            1 => rng.next_u64() & 0x00ff_0000_00ff_0000,
            2 if all.len() % 4096 < 2048 => 0,
            _ => rng.next_u64(),
        };
        all.extend(u64::to_le_bytes(word));
    }
    all.truncate(length as usize);
    all
}

impl Data {
    /// One random change of the open dataset and of the model alike. One that fails changes neither.
    pub async fn change(&mut self, open: &Open, rng: &mut Rng) -> Result<()> {
        match (self, open) {
            (Self::Volume(model), Open::Volume(volume)) => change_volume(model, volume, rng).await,
            (Self::Files(model), Open::Files(zpl)) => change_files(model, zpl, rng).await,
            _ => panic!("a volume became a filesystem, or the other way round"),
        }
    }

    /// The object set holds the same.
    pub async fn check(&self, name: &str, objset: &Arc<Objset>) {
        match self {
            Self::Volume(model) => {
                let volume = Zvol::open(objset).await.unwrap();
                let mut found = vec![0; volume.size() as usize];
                volume.read_at(0, &mut found).await.unwrap();
                assert!(found == *model, "{name} differs");
            }
            Self::Files(model) => {
                let mut found = BTreeMap::new();
                for (path, seen) in see(&Zpl::open(objset, ZplOptions::default()).await.unwrap()).await {
                    if !path.is_empty() {
                        let file = File { content: seen.content, xattrs: seen.xattrs };
                        found.insert(path.trim_start_matches('/').to_owned(), file);
                    }
                }
                let names = |files: &BTreeMap<String, File>| files.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&found), names(model), "{name}");
                for (path, file) in model {
                    assert!(found.get(path) == Some(file), "{name}: {path} differs");
                }
            }
        }
    }
}

async fn change_volume(model: &mut [u8], volume: &LiveZvol, rng: &mut Rng) -> Result<()> {
    let size = model.len() as u64;
    let most = if rng.once_in(4) { 400_000 } else { 30_000 };
    let length = 512 * (1 + rng.below(most / 512));
    let offset = 512 * rng.below((size - length) / 512 + 1);
    let range = offset as usize..(offset + length) as usize;
    let stable = rng.once_in(4);
    match rng.below(8) {
        0 => {
            volume.write_zeroes(offset, length, rng.once_in(2), stable).await?;
            model[range].fill(0);
        }
        1 => {
            let block = volume.block_size();
            volume.trim(offset, length, stable).await?;
            let (first, end) = (offset.next_multiple_of(block), offset + length);
            let end = if end == size { end } else { end / block * block };
            if first < end {
                model[first as usize..end as usize].fill(0);
            }
        }
        2 => volume.flush().await?,
        _ => {
            let data = bytes(rng, length);
            volume.write_at(offset, &data, stable).await?;
            model[range].copy_from_slice(&data);
        }
    }
    Ok(())
}

async fn change_files(model: &mut BTreeMap<String, File>, zpl: &Arc<LiveZpl>, rng: &mut Rng) -> Result<()> {
    let root = zpl.zpl().root();
    let name = format!("file-{}", rng.below(FILES));
    let Some(file) = model.get_mut(&name) else {
        zpl.create(root, name.as_bytes(), &FILE).await?;
        model.insert(name, File::default());
        return Ok(());
    };
    let id = zpl.lookup(root, name.as_bytes()).await?.expect("the model has it");
    match rng.below(11) {
        10 => {
            let from = format!("file-{}", rng.below(FILES));
            let Some(source) = model.get(&from).filter(|_| from != name).cloned() else { return Ok(()) };
            let from = zpl.lookup(root, from.as_bytes()).await?.expect("the model has it");
            // Whole blocks are shared where both files have such.
            let offset = [0, 4096, 128 << 10][rng.index(3)];
            let length = (source.content.len() as u64).min(FILE_BYTES - offset);
            let copied = zpl.copy_range(from, 0, id, offset, length).await;
            let Some(file) = model.get_mut(&name) else { return Ok(()) };
            if copied.is_err() {
                // Some of it may be there.
                let size = zpl.zpl().node(id).await?.stat()?.size;
                file.content = vec![0; size as usize];
                zpl.read(id, 0, &mut file.content).await?;
            } else if length > 0 {
                let end = (offset + length) as usize;
                file.content.resize(file.content.len().max(end), 0);
                file.content[offset as usize..end].copy_from_slice(&source.content[..length as usize]);
            }
            copied?;
        }
        0 => {
            zpl.unlink(root, name.as_bytes()).await?;
            model.remove(&name);
        }
        1 => {
            let to = format!("file-{}", rng.below(FILES));
            zpl.rename(root, name.as_bytes(), root, to.as_bytes(), RenameMode::Replace).await?;
            if let Some(file) = model.remove(&name) {
                model.insert(to, file);
            }
        }
        2 => {
            let size = rng.below(FILE_BYTES);
            zpl.truncate(id, size).await?;
            file.content.resize(size as usize, 0);
        }
        3 => {
            let size = file.content.len() as u64;
            let (offset, length) = (rng.below(size + 1), 1 + rng.below(200_000));
            zpl.punch(id, offset, length).await?;
            let end = size.min(offset + length);
            file.content[offset as usize..end.max(offset) as usize].fill(0);
        }
        4 => {
            let name = format!("user.{}", rng.below(5)).into_bytes();
            let length = [10, 300, 5000, 60_000][rng.index(4)];
            let value = bytes(rng, length);
            let place = if rng.once_in(2) { XattrPlace::Attributes } else { XattrPlace::Directory };
            zpl.set_xattr(id, &name, &value, XattrSet::Any, place).await?;
            file.xattrs.insert(name, value);
        }
        _ => {
            let length = 1 + if rng.once_in(3) { rng.below(300_000) } else { rng.below(9000) };
            let offset = rng.below(FILE_BYTES - length);
            let data = bytes(rng, length);
            zpl.write(id, offset, &data, &WriteOptions::default()).await?;
            let end = (offset + length) as usize;
            if file.content.len() < end {
                file.content.resize(end, 0);
            }
            file.content[offset as usize..end].copy_from_slice(&data);
        }
    }
    Ok(())
}

/// Fills the pool with a volume of its own, until there is no more room.
pub async fn fill_up(pool: &Arc<LivePool>) {
    let contents = NewContents::Volume { size: 1 << 30, sparse: true };
    let new = NewDataset { name: full(FULL), contents, properties: Vec::new() };
    let id = pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
    let dataset = pool.dataset(id).await.unwrap();
    let Open::Volume(volume) = Open::new(pool, &dataset).await.unwrap() else { panic!("a volume") };
    let mut rng = Rng::new(1);
    let mut refused = 0;
    let mut at = 0;
    while refused < 3 {
        let noise: Vec<u8> = (0..1 << 15).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        match committing(pool, volume.write_at(at, &noise, false)).await {
            Ok(()) => (at, refused) = (at + noise.len() as u64, 0),
            Err(Error::NoSpace(_)) => {
                refused += 1;
                pool.sync().await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}
