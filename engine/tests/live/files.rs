//! Random changes of files, and all that can be seen of a filesystem.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::env::{Env, Seeded};
use engine::zpl::live::{
    AllocateMode, NewKind, NewNode, RenameMode, SetAttributes, WriteOptions, XattrPlace, XattrSet,
};
use engine::zpl::{LiveZpl, Time, Zpl};
use ondisk::ObjectId;
use ondisk::zpl::{FileType, ZnodeFlags};

pub const FILE: NewNode<'_> = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
pub const DIRECTORY: NewNode<'_> =
    NewNode { kind: NewKind::Directory, mode: 0o755, umask: 0, uid: 7, gid: 8 };

/// What a replay must bring back of a file; times of changes are those of the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: ObjectId,
    pub generation: u64,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u32,
    pub size: u64,
    pub crtime: Time,
    pub device: (u32, u32),
    pub flags: u64,
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The contents of larger files are not looked at.
const MOST_BYTES: u64 = 1 << 30;

/// All files, by path; a file with several names is there several times.
pub async fn see(zpl: &Arc<Zpl>) -> BTreeMap<String, Seen> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(String::new(), zpl.root())];
    while let Some((path, id)) = waiting.pop() {
        let node = zpl.node(id).await.unwrap();
        let stat = node.stat().unwrap();
        let mut content = Vec::new();
        match node.file_type() {
            FileType::Directory => {
                let mut cursor = node.read_dir(2).await.unwrap();
                while let Some(entry) = cursor.next().await.unwrap() {
                    let name = String::from_utf8(entry.name).unwrap();
                    waiting.push((format!("{path}/{name}"), entry.object));
                }
            }
            FileType::Symlink => content = node.read_link().await.unwrap(),
            // Larger ones have holes that do not fit into memory.
            FileType::Regular if stat.size <= MOST_BYTES => {
                content.resize(stat.size as usize, 0);
                node.read_at(0, &mut content).await.unwrap();
            }
            _ => {}
        }
        let mut xattrs = BTreeMap::new();
        for name in node.list_xattrs().await.unwrap() {
            let value = node.xattr(&name).await.unwrap().unwrap();
            xattrs.insert(name, value);
        }
        let seen = Seen {
            id,
            generation: stat.generation,
            mode: stat.mode,
            owner: (stat.uid, stat.gid),
            links: stat.nlink,
            size: stat.size,
            crtime: stat.crtime,
            device: stat.device,
            flags: stat.flags.0,
            content,
            xattrs,
        };
        found.insert(path, seen);
    }
    found
}

/// Makes a file without a name, which gets one if there is to be one, and otherwise goes.
async fn nameless(zpl: &LiveZpl, dir: ObjectId, name: Option<&String>, bytes: &[u8]) -> engine::Result<()> {
    let file = zpl.create_nameless(dir, &FILE, true).await?;
    let mut done = zpl.write(file, 0, bytes, &WriteOptions::default()).await.map(drop);
    if let (Ok(()), Some(name)) = (&done, name) {
        done = zpl.link(file, dir, name.as_bytes()).await;
    }
    zpl.close(file, 1).await.and(done)
}

/// Does something to some file. What cannot be done is refused, and that is all right. With extended
/// attributes in directories it is always something that the log has a record for.
pub async fn change(zpl: &LiveZpl, random: &Seeded, xattrs: XattrPlace) {
    let pick = |below: u64| random.random() % below;
    let root = zpl.zpl().root();
    // Directories and other files, with their names.
    let (mut dirs, mut files) = (vec![root], Vec::new());
    let mut next = 0;
    while let Some(dir) = dirs.get(next).copied() {
        for entry in zpl.read_dir(dir, 2, 1000).await.unwrap() {
            match entry.file_type {
                Some(FileType::Directory) => dirs.push(entry.object),
                _ => files.push(entry.object),
            }
        }
        next += 1;
    }
    let dir = dirs[pick(dirs.len() as u64) as usize];
    let to_dir = dirs[pick(dirs.len() as u64) as usize];
    let file = files.get(pick(files.len().max(1) as u64) as usize).copied().unwrap_or(root);
    let name = format!("name{}", pick(6));
    let to = format!("name{}", pick(6));
    let offset = if pick(3) == 0 { pick(400_000) } else { pick(5000) };
    let length = 1 + if pick(5) == 0 { pick(250_000) } else { pick(6000) };
    let bytes = vec![1 + pick(255) as u8; length as usize];
    let done = match pick(26) {
        0..=2 => zpl.create(dir, name.as_bytes(), &FILE).await.map(drop),
        3 => zpl.create(dir, name.as_bytes(), &DIRECTORY).await.map(drop),
        4 => {
            let kind = match pick(4) {
                0 => NewKind::Symlink(b"to somewhere else"),
                1 => NewKind::Special(FileType::Fifo, 0),
                _ => NewKind::Special(FileType::CharDevice, 0x123),
            };
            zpl.create(dir, name.as_bytes(), &NewNode { kind, ..FILE }).await.map(drop)
        }
        5 => zpl.unlink(dir, name.as_bytes()).await,
        6 => zpl.rmdir(dir, name.as_bytes()).await,
        7 => zpl.link(file, dir, name.as_bytes()).await,
        8 | 9 => {
            let mode = match pick(5) {
                0 => RenameMode::Exchange,
                1 => RenameMode::Whiteout { uid: 3, gid: 4 },
                2 => RenameMode::NoReplace,
                _ => RenameMode::Replace,
            };
            zpl.rename(dir, name.as_bytes(), to_dir, to.as_bytes(), mode).await
        }
        10..=14 => {
            let options = WriteOptions {
                append: pick(3) == 0,
                kill_privileges: pick(2) == 0,
                ..WriteOptions::default()
            };
            zpl.write(file, offset, &bytes, &options).await.map(drop)
        }
        15 => zpl.truncate(file, offset).await,
        16 => {
            let mode = match pick(2) {
                0 => AllocateMode::Punch,
                _ => AllocateMode::ZeroRange { keep_size: pick(2) == 0 },
            };
            zpl.allocate(file, mode, offset, length).await
        }
        17 | 18 => {
            let flags = ZnodeFlags([0, ZnodeFlags::HIDDEN.0, ZnodeFlags::ARCHIVE.0][pick(3) as usize]);
            let set = SetAttributes {
                mode: (pick(2) == 0).then(|| pick(0o10000) as u32),
                uid: (pick(3) == 0).then(|| pick(100) as u32),
                gid: (pick(3) == 0).then(|| pick(100) as u32),
                size: (pick(3) == 0).then_some(offset),
                mtime: Some(Time { seconds: 5, nanoseconds: 6 }),
                flags: (pick(3) == 0).then_some(flags),
                ..SetAttributes::default()
            };
            zpl.set_attributes(file, &set).await
        }
        19 | 20 => {
            let value = &bytes[..bytes.len().min(30_000)];
            zpl.set_xattr(file, format!("user.{to}").as_bytes(), value, XattrSet::Any, xattrs).await
        }
        21 if xattrs == XattrPlace::Attributes => {
            nameless(zpl, dir, (pick(3) > 0).then_some(&name), &bytes).await
        }
        22..=24 => {
            let other = files.get(pick(files.len().max(1) as u64) as usize).copied().unwrap_or(root);
            let begin = |at: u64| at * (128 << 10);
            let (from, to) = (begin(pick(3) / 2), begin(pick(3) / 2));
            let length = if pick(2) == 0 { u64::MAX >> 2 } else { length };
            match file == other {
                true => Ok(()),
                false => zpl.copy_range(file, from, other, to, length).await.map(drop),
            }
        }
        _ => zpl.remove_xattr(file, format!("user.{to}").as_bytes()).await,
    };
    let refused = matches!(
        done,
        Ok(()) | Err(engine::Error::NotFound(_) | engine::Error::Exists(_) | engine::Error::Os { .. })
    );
    assert!(refused, "{done:?}");
}
