//! Random operations on a filesystem, against a model of files in memory. After them the read side must see
//! the model, and every object must be reachable.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::block_on;
use ondisk::objset::ObjsetType;
use ondisk::sa::Attr;
use ondisk::zpl::FileType;
use ondisk::{ByteOrder, ObjectId, ObjsetId, Txg};
use proptest::prelude::*;

use super::nodes::Values;
use super::*;
use crate::alloc::Allocator;
use crate::dmu::forge::Forge;
use crate::env::{Env, Seeded};
use crate::txg::Limits;
use crate::zio::Writer;
use crate::zpl::CaseSensitivity;
use crate::zpl::create::{NewFilesystem, create_filesystem};

/// A file of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    kind: Kind,
    mode: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Regular(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, u64>),
    Symlink(Vec<u8>),
    Device(u64),
}

impl Kind {
    fn entries(&self) -> Option<&BTreeMap<Vec<u8>, u64>> {
        match self {
            Kind::Directory(entries) => Some(entries),
            _ => None,
        }
    }
}

struct Model {
    files: BTreeMap<u64, File>,
}

#[derive(Clone, Debug)]
enum Op {
    Create {
        dir: usize,
        name: u8,
        kind: u8,
        mode: u32,
    },
    Link {
        file: usize,
        dir: usize,
        name: u8,
    },
    Remove {
        dir: usize,
        name: u8,
    },
    Rename {
        dir: usize,
        name: u8,
        to_dir: usize,
        to: u8,
        mode: RenameMode,
    },
    Write {
        file: usize,
        offset: u64,
        length: usize,
        fill: u8,
    },
    Append {
        file: usize,
        length: usize,
        fill: u8,
    },
    Copy {
        from: usize,
        offset: u64,
        to: usize,
        to_offset: u64,
        length: u64,
    },
    Zero {
        file: usize,
        offset: u64,
        length: u64,
        keep_size: bool,
    },
    Truncate {
        file: usize,
        size: u64,
    },
    /// The same, with other attributes.
    Resize {
        file: usize,
        size: u64,
        mode: u32,
    },
    Punch {
        file: usize,
        offset: u64,
        length: u64,
    },
    Chmod {
        file: usize,
        mode: u32,
    },
    SetXattr {
        file: usize,
        name: u8,
        length: usize,
        place: XattrPlace,
    },
    RemoveXattr {
        file: usize,
        name: u8,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = prop_oneof![Just(XattrPlace::Attributes), Just(XattrPlace::Directory)];
    let mode = prop_oneof![
        3 => Just(RenameMode::Replace), 1 => Just(RenameMode::NoReplace), 1 => Just(RenameMode::Exchange)
    ];
    let size = prop_oneof![0u64..3000, 100_000u64..300_000];
    let op = prop_oneof![
        8 => (0usize..9, 0u8..6, 0u8..8, 0u32..0o10000)
            .prop_map(|(dir, name, kind, mode)| Op::Create { dir, name, kind, mode: mode & !0o2000 }),
        2 => (0usize..9, 0usize..9, 0u8..6).prop_map(|(file, dir, name)| Op::Link { file, dir, name }),
        3 => (0usize..9, 0u8..6).prop_map(|(dir, name)| Op::Remove { dir, name }),
        5 => (0usize..9, 0u8..6, 0usize..9, 0u8..6, mode)
            .prop_map(|(dir, name, to_dir, to, mode)| Op::Rename { dir, name, to_dir, to, mode }),
        6 => (0usize..9, size.clone(), 0usize..4000, 1u8..)
            .prop_map(|(file, offset, length, fill)| Op::Write { file, offset, length, fill }),
        3 => (0usize..9, 0usize..9000, 1u8..).prop_map(|(file, length, fill)| Op::Append { file, length, fill }),
        2 => (0usize..9, size.clone(), 0usize..9, size.clone(), 0u64..200_000)
            .prop_map(|(from, offset, to, to_offset, length)| Op::Copy { from, offset, to, to_offset, length }),
        2 => (0usize..9, size.clone(), 1u64..150_000, any::<bool>())
            .prop_map(|(file, offset, length, keep_size)| Op::Zero { file, offset, length, keep_size }),
        2 => (0usize..9, size.clone()).prop_map(|(file, size)| Op::Truncate { file, size }),
        1 => (0usize..9, size.clone(), 0u32..0o10000)
            .prop_map(|(file, size, mode)| Op::Resize { file, size, mode: mode & !0o2000 }),
        2 => (0usize..9, size.clone(), size).prop_map(|(file, offset, length)| Op::Punch { file, offset, length }),
        2 => (0usize..9, 0u32..0o10000).prop_map(|(file, mode)| Op::Chmod { file, mode: mode & !0o2000 }),
        4 => (0usize..9, 0u8..4, prop_oneof![0usize..300, 20_000usize..40_000], place)
            .prop_map(|(file, name, length, place)| Op::SetXattr { file, name, length, place }),
        2 => (0usize..9, 0u8..4).prop_map(|(file, name)| Op::RemoveXattr { file, name }),
    ];
    proptest::collection::vec(op, 1..80)
}

fn name(number: u8) -> Vec<u8> {
    format!("name{number}{}", "-".repeat(usize::from(number) * 12)).into_bytes()
}

fn xattr_name(number: u8) -> Vec<u8> {
    format!("user.{number}").into_bytes()
}

impl Model {
    fn pick(&self, index: usize) -> u64 {
        *self.files.keys().nth(index % self.files.len()).unwrap()
    }

    fn dir(&self, index: usize) -> u64 {
        let dirs: Vec<u64> =
            self.files.iter().filter(|(_, file)| file.kind.entries().is_some()).map(|(id, _)| *id).collect();
        dirs[index % dirs.len()]
    }

    fn entries(&mut self, dir: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match &mut self.files.get_mut(&dir).unwrap().kind {
            Kind::Directory(entries) => entries,
            _ => panic!("no directory"),
        }
    }

    fn entry(&self, dir: u64, name: &[u8]) -> Option<u64> {
        self.files[&dir].kind.entries().unwrap().get(name).copied()
    }

    fn links(&self, id: u64) -> u64 {
        let all = self.files.values().filter_map(|file| file.kind.entries()).flat_map(BTreeMap::values);
        all.filter(|other| **other == id).count() as u64
    }

    fn is_dir(&self, id: u64) -> bool {
        self.files[&id].kind.entries().is_some()
    }

    fn is_below(&self, id: u64, top: u64) -> bool {
        id == top
            || self.files[&top]
                .kind
                .entries()
                .is_some_and(|entries| entries.values().any(|child| self.is_below(id, *child)))
    }

    fn forget_unlinked(&mut self, root: u64) {
        let gone: Vec<u64> =
            self.files.keys().copied().filter(|id| *id != root && self.links(*id) == 0).collect();
        gone.iter().for_each(|id| drop(self.files.remove(id)));
    }
}

fn objset(case: CaseSensitivity) -> Option<(Arc<Txgs>, Arc<LiveObjset>)> {
    objset_of(case, 5)
}

fn objset_of(case: CaseSensitivity, version: u64) -> Option<(Arc<Txgs>, Arc<LiveObjset>)> {
    let forge = Forge::new(ByteOrder::Little)?;
    let tx = Tx::syncing(Txg(5));
    let policy = crate::dmu::live::tests::policy();
    let objset = LiveObjset::create(&forge.pool, ObjsetId(70), ObjsetType::Zfs, policy, &tx);
    objset.count_also(true, true);
    let new = NewFilesystem {
        uid: 0,
        gid: 0,
        mode: 0o755,
        version,
        utf8_only: false,
        normalization: 0,
        case,
        now: Time::default(),
    };
    block_on(create_filesystem(&objset, &tx, &new)).unwrap();
    Some((Txgs::new(Txg(4), Limits::default()), objset))
}

fn zil(txgs: &Arc<Txgs>, objset: &Arc<LiveObjset>) -> Zil {
    let writer =
        Writer::new(Arc::clone(objset.pool().store()), Allocator::empty(objset.pool().store(), true));
    let env: Arc<dyn Env> = Arc::new(Seeded::new(1));
    Zil::open(objset, &writer, txgs, &env)
}

fn open(txgs: &Arc<Txgs>, objset: &Arc<LiveObjset>) -> Arc<LiveZpl> {
    block_on(LiveZpl::open(txgs, objset, &zil(txgs, objset), ZplOptions::default())).unwrap()
}

/// Applies the operation to both; they must agree whether it is possible.
async fn apply(zpl: &LiveZpl, model: &mut Model, op: Op) {
    let root = zpl.zpl().root().0;
    match op {
        Op::Create { dir, name: number, kind, mode } => {
            let (dir, name) = (model.dir(dir), name(number));
            let target = vec![b't'; usize::from(number) * 100 + 1];
            let (kind, new) = match kind {
                0..=2 => (Kind::Regular(Vec::new()), NewKind::Regular),
                3..=5 => (Kind::Directory(BTreeMap::new()), NewKind::Directory),
                6 => (Kind::Symlink(target.clone()), NewKind::Symlink(&target)),
                _ => (Kind::Device(0x123), NewKind::Special(FileType::CharDevice, 0x123)),
            };
            let new = NewNode { kind: new, mode, umask: 0, uid: 3, gid: 4 };
            let done = zpl.create(ObjectId(dir), &name, &new).await;
            assert_eq!(done.is_ok(), model.entry(dir, &name).is_none(), "{done:?}");
            if let Ok(id) = done {
                model.entries(dir).insert(name, id.0);
                model.files.insert(id.0, File { kind, mode, xattrs: BTreeMap::new() });
            }
        }
        Op::Link { file, dir, name: number } => {
            let (file, dir, name) = (model.pick(file), model.dir(dir), name(number));
            let may = !model.is_dir(file) && model.entry(dir, &name).is_none();
            let done = zpl.link(ObjectId(file), ObjectId(dir), &name).await;
            assert_eq!(done.is_ok(), may, "{done:?}");
            if may {
                model.entries(dir).insert(name, file);
            }
        }
        Op::Remove { dir, name: number } => {
            let (dir, name) = (model.dir(dir), name(number));
            let found = model.entry(dir, &name);
            let is_dir = found.is_some_and(|id| model.is_dir(id));
            let done = match is_dir {
                true => zpl.rmdir(ObjectId(dir), &name).await,
                false => zpl.unlink(ObjectId(dir), &name).await,
            };
            let empty = |id| model.files[&id].kind.entries().is_none_or(BTreeMap::is_empty);
            assert_eq!(done.is_ok(), found.is_some_and(empty), "{done:?}");
            if done.is_ok() {
                model.entries(dir).remove(&name);
            }
        }
        Op::Rename { dir, name: from, to_dir, to, mode } => {
            let (dir, to_dir) = (model.dir(dir), model.dir(to_dir));
            let (from, to) = (name(from), name(to));
            let done = zpl.rename(ObjectId(dir), &from, ObjectId(to_dir), &to, mode).await;
            let (file, other) = (model.entry(dir, &from), model.entry(to_dir, &to));
            let circle = |moved: u64, to: u64| model.is_dir(moved) && model.is_below(to, moved);
            let may = match (file, other, mode) {
                (None, _, _) | (_, None, RenameMode::Exchange) | (_, Some(_), RenameMode::NoReplace) => {
                    // It already has that name, and nothing is to be done.
                    file.is_some() && (dir, &from) == (to_dir, &to)
                }
                (Some(file), None, _) => !circle(file, to_dir),
                (Some(file), Some(other), RenameMode::Exchange) => {
                    !circle(file, to_dir) && !circle(other, dir)
                }
                (Some(file), Some(other), _) => {
                    let empty = model.files[&other].kind.entries().is_none_or(BTreeMap::is_empty);
                    let same_kind = model.is_dir(file) == model.is_dir(other);
                    file == other || (!circle(file, to_dir) && same_kind && empty)
                }
            };
            assert_eq!(done.is_ok(), may, "{done:?} {mode:?}");
            if let (true, Some(file)) = (may, file)
                && other != Some(file)
            {
                model.entries(dir).remove(&from);
                model.entries(to_dir).insert(to, file);
                if let (RenameMode::Exchange, Some(other)) = (mode, other) {
                    model.entries(dir).insert(from, other);
                }
            }
        }
        Op::Write { file, offset, length, fill } => {
            let file = model.pick(file);
            let bytes = vec![fill; length];
            let done = zpl.write(ObjectId(file), offset, &bytes, &WriteOptions::default()).await;
            if let Kind::Regular(content) = &mut model.files.get_mut(&file).unwrap().kind {
                done.unwrap();
                let end = offset as usize + length;
                if length > 0 {
                    content.resize(content.len().max(end), 0);
                    content[offset as usize..end].fill(fill);
                }
            } else {
                assert!(done.is_err() || length == 0);
            }
        }
        Op::Append { file, length, fill } => {
            let file = model.pick(file);
            let append = WriteOptions { append: true, ..WriteOptions::default() };
            let done = zpl.write(ObjectId(file), u64::MAX >> 2, &vec![fill; length], &append).await;
            if let Kind::Regular(content) = &mut model.files.get_mut(&file).unwrap().kind {
                assert_eq!(done.unwrap(), content.len() as u64);
                content.resize(content.len() + length, fill);
            } else {
                assert!(done.is_err());
            }
        }
        Op::Copy { from, offset, to, to_offset, length } => {
            let (from, to) = (model.pick(from), model.pick(to));
            let done = zpl.copy_range(ObjectId(from), offset, ObjectId(to), to_offset, length).await;
            let content = |id: u64| match &model.files[&id].kind {
                Kind::Regular(content) => Some(content.clone()),
                _ => None,
            };
            let (Some(source), Some(mut target)) = (content(from), content(to)) else {
                // An empty copy is never an error.
                assert!(done.is_err() || done.unwrap() == 0);
                return;
            };
            let length = length.min((source.len() as u64).saturating_sub(offset));
            let overlap = from == to && offset < to_offset + length && to_offset < offset + length;
            assert_eq!(done.is_err(), overlap && length > 0, "{done:?}");
            if length > 0 && !overlap {
                let (offset, to_offset, length) = (offset as usize, to_offset as usize, length as usize);
                target.resize(target.len().max(to_offset + length), 0);
                target[to_offset..to_offset + length].copy_from_slice(&source[offset..offset + length]);
                model.files.get_mut(&to).unwrap().kind = Kind::Regular(target);
            }
        }
        Op::Zero { file, offset, length, keep_size } => {
            let file = model.pick(file);
            let mode = AllocateMode::ZeroRange { keep_size };
            let done = zpl.allocate(ObjectId(file), mode, offset, length).await;
            if let Kind::Regular(content) = &mut model.files.get_mut(&file).unwrap().kind {
                done.unwrap();
                let end = (offset + length) as usize;
                if !keep_size {
                    content.resize(content.len().max(end), 0);
                }
                let end = content.len().min(end);
                content[(offset as usize).min(end)..end].fill(0);
            } else {
                assert!(done.is_err());
            }
        }
        Op::Resize { file, size, mode } => {
            let file = model.pick(file);
            let set = SetAttributes { size: Some(size), mode: Some(mode), ..SetAttributes::default() };
            let done = zpl.set_attributes(ObjectId(file), &set).await;
            let found = model.files.get_mut(&file).unwrap();
            if let Kind::Regular(content) = &mut found.kind {
                done.unwrap();
                content.resize(size as usize, 0);
                found.mode = mode;
            } else {
                assert!(done.is_err());
            }
        }
        Op::Truncate { file, size } => {
            let file = model.pick(file);
            let done = zpl.truncate(ObjectId(file), size).await;
            if let Kind::Regular(content) = &mut model.files.get_mut(&file).unwrap().kind {
                done.unwrap();
                content.resize(size as usize, 0);
            } else {
                assert!(done.is_err());
            }
        }
        Op::Punch { file, offset, length } => {
            let file = model.pick(file);
            let done = zpl.punch(ObjectId(file), offset, length).await;
            if let Kind::Regular(content) = &mut model.files.get_mut(&file).unwrap().kind {
                done.unwrap();
                let end = content.len().min((offset + length) as usize);
                content[(offset as usize).min(end)..end].fill(0);
            } else {
                assert!(done.is_err());
            }
        }
        Op::Chmod { file, mode } => {
            let file = model.pick(file);
            let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            zpl.set_attributes(ObjectId(file), &set).await.unwrap();
            model.files.get_mut(&file).unwrap().mode = mode;
        }
        Op::SetXattr { file, name, length, place } => {
            let (file, name) = (model.pick(file), xattr_name(name));
            let value = vec![length as u8; length];
            zpl.set_xattr(ObjectId(file), &name, &value, XattrSet::Any, place).await.unwrap();
            model.files.get_mut(&file).unwrap().xattrs.insert(name, value);
        }
        Op::RemoveXattr { file, name } => {
            let (file, name) = (model.pick(file), xattr_name(name));
            let done = zpl.remove_xattr(ObjectId(file), &name).await;
            let found = model.files.get_mut(&file).unwrap().xattrs.remove(&name);
            assert_eq!(done.is_ok(), found.is_some());
        }
    }
    model.forget_unlinked(root);
}

/// Checks that the filesystem equals the model, and has no unreachable object.
async fn compare(zpl: &LiveZpl, model: &Model) {
    let root = zpl.zpl().root();
    let mut files = BTreeSet::new();
    for (id, file) in &model.files {
        files.insert(*id);
        let node = zpl.zpl().node(ObjectId(*id)).await.unwrap();
        let stat = node.stat().unwrap();
        assert_eq!(stat.mode & 0o7777, file.mode, "of {id}");
        let mut links = model.links(*id);
        match &file.kind {
            Kind::Regular(content) => {
                assert_eq!(stat.size, content.len() as u64);
                let mut found = vec![0xee; content.len()];
                assert_eq!(node.read_at(0, &mut found).await.unwrap(), content.len());
                assert!(&found == content, "content of {id}");
            }
            Kind::Directory(entries) => {
                let listed = zpl.read_dir(ObjectId(*id), 2, 1000).await.unwrap();
                let listed: BTreeMap<_, _> =
                    listed.into_iter().map(|entry| (entry.name, entry.object.0)).collect();
                assert_eq!(&listed, entries, "of {id}");
                assert_eq!(stat.size, entries.len() as u64 + 2);
                links = 2 + entries.values().filter(|child| model.is_dir(**child)).count() as u64;
                for child in entries.values().filter(|child| model.is_dir(**child)) {
                    assert_eq!(zpl.zpl().stat(ObjectId(*child)).await.unwrap().parent, *id);
                }
            }
            Kind::Symlink(target) => assert_eq!(&node.read_link().await.unwrap(), target),
            Kind::Device(_) => assert_eq!(stat.device, (0, 0x123)),
        }
        assert_eq!(u64::from(stat.nlink), links, "links of {id}");
        let names: BTreeSet<_> = node.list_xattrs().await.unwrap().into_iter().collect();
        assert!(names.iter().eq(file.xattrs.keys()), "of {id}: {names:?}");
        for (name, value) in &file.xattrs {
            assert!(node.xattr(name).await.unwrap().as_ref() == Some(value), "of {id}");
        }
        if let Some(dir) = node.attributes.number(ondisk::sa::Attr::Xattr).filter(|id| *id != 0) {
            files.insert(dir);
            let inside = zpl.read_dir(ObjectId(dir), 2, 1000).await.unwrap();
            files.extend(inside.iter().map(|entry| entry.object.0));
        }
    }
    let mut from = ObjectId(1);
    while let Some(id) = zpl.objset().next_object(from).await.unwrap() {
        let object = zpl.objset().object(id).await.unwrap();
        let is_file = [ondisk::dmu::DmuType::SA, ondisk::dmu::DmuType::ZNODE];
        if is_file.contains(&object.dnode().bonus_type) {
            assert!(files.remove(&id.0), "object {id} is lost");
        }
        from = ObjectId(id.0 + 1);
    }
    assert!(files.is_empty() && model.files.contains_key(&root.0));
}

fn empty_model(zpl: &LiveZpl) -> Model {
    let root = File { kind: Kind::Directory(BTreeMap::new()), mode: 0o755, xattrs: BTreeMap::new() };
    Model { files: BTreeMap::from([(zpl.zpl().root().0, root)]) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn operations_do_what_the_model_says(ops in ops(), large_dnodes: bool, version in 1u64..=8) {
        let Some((txgs, objset)) = objset_of(CaseSensitivity::Sensitive, version.min(5)) else { return Ok(()) };
        let zpl = open(&txgs, &objset);
        zpl.set_dnode_slots(if large_dnodes { 2 } else { 1 });
        let mut model = empty_model(&zpl);
        block_on(async {
            for op in ops {
                apply(&zpl, &mut model, op).await;
            }
            compare(&zpl, &model).await;
        });
        drop(zpl);
        // A second handle sees the same, with tables read anew.
        let zpl = open(&txgs, &objset);
        block_on(compare(&zpl, &model));
    }
}

const FILE: NewNode<'_> = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 1, gid: 2 };

#[test]
fn an_open_file_lives_until_it_is_closed_or_the_filesystem_is_opened_again() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let [closed, crashed] = [b"closed", b"crash!"];
        let mut ids = Vec::new();
        for name in [closed, crashed] {
            let id = zpl.create(root, name, &FILE).await.unwrap();
            zpl.hold(id);
            zpl.unlink(root, name).await.unwrap();
            zpl.write(id, 0, b"still here", &WriteOptions::default()).await.unwrap();
            assert_eq!(zpl.zpl().stat(id).await.unwrap().nlink, 0);
            ids.push(id);
        }
        assert_eq!(zpl.unlinked().await.unwrap().len(), 2);
        zpl.close(ids[0], 1).await.unwrap();
        assert!(matches!(zpl.zpl().stat(ids[0]).await, Err(Error::NotFound(_))));
        assert_eq!(zpl.unlinked().await.unwrap(), [ids[1]]);
        let again = LiveZpl::open(&txgs, &objset, &zil(&txgs, &objset), ZplOptions::default()).await.unwrap();
        assert!(matches!(again.zpl().stat(ids[1]).await, Err(Error::NotFound(_))));
        assert!(again.unlinked().await.unwrap().is_empty());
    });
}

#[test]
fn what_a_kernel_knows_lives_until_it_forgets() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    let is_gone = async |file| matches!(zpl.zpl().stat(file).await, Err(Error::NotFound(_)));
    block_on(async {
        zpl.remember_unlinked();
        let dir = NewNode { kind: NewKind::Directory, ..FILE };
        let [file, opened, dir] = [(b"1", &FILE), (b"2", &FILE), (b"3", &dir)]
            .map(|(name, new)| block_on(zpl.create(root, name, new)).unwrap());
        zpl.hold(opened);
        zpl.unlink(root, b"1").await.unwrap();
        zpl.unlink(root, b"2").await.unwrap();
        zpl.rmdir(root, b"3").await.unwrap();
        for id in [file, opened, dir] {
            assert_eq!(zpl.zpl().stat(id).await.unwrap().nlink, 0);
            zpl.forget(id).await.unwrap();
        }
        assert!(is_gone(file).await && is_gone(dir).await && !is_gone(opened).await);
        zpl.forget(opened).await.unwrap();
        assert!(!is_gone(opened).await);
        zpl.close(opened, 1).await.unwrap();
        assert!(is_gone(opened).await);

        let left = zpl.create(root, b"left", &FILE).await.unwrap();
        zpl.unlink(root, b"left").await.unwrap();
        zpl.forget_all().await.unwrap();
        assert!(is_gone(left).await);
        assert!(zpl.unlinked().await.unwrap().is_empty());
        let at_once = zpl.create(root, b"at once", &FILE).await.unwrap();
        zpl.unlink(root, b"at once").await.unwrap();
        assert!(is_gone(at_once).await);
    });
}

#[test]
fn files_of_many_directories_lose_their_names_at_once() {
    const DIRECTORIES: usize = 4;
    const FILES: usize = 300;
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    zpl.remember_unlinked();
    let root = zpl.zpl().root();
    let dir = NewNode { kind: NewKind::Directory, ..FILE };
    let on_each_thread = |work: &(dyn Fn(&[u8]) + Sync)| {
        std::thread::scope(|scope| {
            for number in 0..DIRECTORIES {
                scope.spawn(move || work(format!("dir{number}").as_bytes()));
            }
        });
    };
    let files = Mutex::new(BTreeMap::<Vec<u8>, BTreeSet<ObjectId>>::new());
    let names: Vec<_> = (0..FILES).map(|number| format!("file{number}").into_bytes()).collect();
    on_each_thread(&|name| {
        block_on(async {
            let dir = zpl.create(root, name, &dir).await.unwrap();
            let mut made = BTreeSet::new();
            for name in &names {
                made.insert(zpl.create(dir, name, &FILE).await.unwrap());
            }
            for name in &names {
                zpl.unlink(dir, name).await.unwrap();
            }
            files.lock().unwrap().insert(name.to_vec(), made);
        });
    });
    let files = files.into_inner().unwrap();
    let unlinked = block_on(zpl.unlinked()).unwrap();
    let lost = files.values().flatten().filter(|file| !unlinked.contains(file)).count();
    assert_eq!((lost, unlinked.len()), (0, DIRECTORIES * FILES));
    on_each_thread(&|name| {
        for file in &files[name] {
            block_on(zpl.forget(*file)).unwrap();
        }
    });
    assert_eq!(block_on(zpl.unlinked()).unwrap(), []);
}

#[test]
fn a_file_that_is_made_without_a_name_goes_or_gets_one() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    let is_gone = async |file| matches!(zpl.zpl().stat(file).await, Err(Error::NotFound(_)));
    block_on(async {
        zpl.remember_unlinked();
        let before = zpl.zpl().stat(root).await.unwrap();
        let [goes, kept, exclusive, crashed] = [true, true, false, true]
            .map(|linkable| block_on(zpl.create_nameless(root, &FILE, linkable)).unwrap());
        for file in [goes, kept] {
            zpl.write(file, 0, b"content", &WriteOptions::default()).await.unwrap();
            assert_eq!(zpl.zpl().stat(file).await.unwrap().nlink, 0);
        }
        assert_eq!(zpl.zpl().stat(root).await.unwrap(), before);
        assert_eq!(zpl.unlinked().await.unwrap().len(), 4);

        zpl.link(kept, root, b"kept").await.unwrap();
        assert_eq!(zpl.zpl().stat(kept).await.unwrap().nlink, 1);
        assert!(matches!(zpl.link(exclusive, root, b"exclusive").await, Err(Error::NotFound(_))));
        for file in [goes, kept, exclusive] {
            zpl.forget(file).await.unwrap();
            assert!(!is_gone(file).await);
            zpl.close(file, 1).await.unwrap();
        }
        assert!(is_gone(goes).await && is_gone(exclusive).await);
        assert_eq!(zpl.lookup(root, b"kept").await.unwrap(), Some(kept));
        assert_eq!(zpl.unlinked().await.unwrap(), [crashed]);

        // A file that lost its name again must not get another.
        zpl.hold(kept);
        zpl.unlink(root, b"kept").await.unwrap();
        assert!(matches!(zpl.link(kept, root, b"again").await, Err(Error::NotFound(_))));
        zpl.forget(kept).await.unwrap();
        zpl.close(kept, 1).await.unwrap();
        assert!(is_gone(kept).await);

        // No file is open after a crash; and a file that is in the set by mistake stays.
        let named = zpl.create(root, b"named", &FILE).await.unwrap();
        let tx = zpl.begin_freeing().await.unwrap();
        objset.put_in_set(&tx, zpl.unlinked_set, named.0);
        drop(tx);
        let again = LiveZpl::open(&txgs, &objset, &zil(&txgs, &objset), ZplOptions::default()).await.unwrap();
        assert!(matches!(again.zpl().stat(crashed).await, Err(Error::NotFound(_))));
        assert_eq!(again.lookup(root, b"named").await.unwrap(), Some(named));
        assert_eq!(again.zpl().stat(named).await.unwrap().nlink, 1);
        assert!(again.unlinked().await.unwrap().is_empty());

        // A list that cannot be read does not prevent using the files.
        let tx = zpl.begin_freeing().await.unwrap();
        let set = objset.object(zpl.unlinked_set).await.unwrap();
        set.write_at(&tx, 0, &[0x5a; 512]).await.unwrap();
        drop(tx);
        assert!(again.unlinked().await.is_err());
        let again = LiveZpl::open(&txgs, &objset, &zil(&txgs, &objset), ZplOptions::default()).await.unwrap();
        again.unlink(root, b"named").await.unwrap();
        assert_eq!(again.lookup(root, b"kept by nobody").await.unwrap(), None);
        zpl.create(root, b"later", &FILE).await.unwrap();
    });
}

#[test]
fn names_that_differ_by_case_only_are_one_where_the_filesystem_says_so() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Insensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let id = zpl.create(root, b"Name", &FILE).await.unwrap();
        assert!(matches!(zpl.create(root, b"nAME", &FILE).await, Err(Error::Exists(_))));
        assert_eq!(zpl.lookup(root, b"NAME").await.unwrap(), Some(id));
        zpl.rename(root, b"name", root, b"NAME", RenameMode::Replace).await.unwrap();
        let listed = zpl.read_dir(root, 2, 10).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name, b"NAME");
        zpl.unlink(root, b"name").await.unwrap();
        assert!(zpl.read_dir(root, 2, 10).await.unwrap().is_empty());
    });
}

#[test]
fn the_block_of_a_file_grows_until_it_is_a_record() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    zpl.set_record_size(16 << 10);
    let root = zpl.zpl().root();
    block_on(async {
        let id = zpl.create(root, b"file", &FILE).await.unwrap();
        let object = objset.object(id).await.unwrap();
        for (end, block) in [(100u64, 512), (600, 1024), (5000, 5120), (20_000, 16 << 10), (90_000, 16 << 10)]
        {
            zpl.write(id, end - 50, &[7; 50], &WriteOptions::default()).await.unwrap();
            assert_eq!((object.block_size(), zpl.zpl().stat(id).await.unwrap().size), (block, end));
        }
    });
}

#[test]
fn what_is_appended_stands_at_the_end_and_takes_privileges_away() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let id = zpl.create(root, b"file", &NewNode { mode: 0o6775, ..FILE }).await.unwrap();
        let append = WriteOptions { append: true, ..WriteOptions::default() };
        assert_eq!(zpl.write(id, 999, b"one", &append).await.unwrap(), 0);
        assert_eq!(zpl.zpl().stat(id).await.unwrap().mode & 0o7777, 0o6775);
        let append = WriteOptions { append: true, kill_privileges: true, ..WriteOptions::default() };
        assert_eq!(zpl.write(id, 0, b"two", &append).await.unwrap(), 3);
        let mut content = [0; 9];
        assert_eq!(zpl.read(id, 1, &mut content).await.unwrap(), 5);
        assert_eq!(&content[..5], b"netwo");
        assert_eq!(zpl.zpl().stat(id).await.unwrap().mode & 0o7777, 0o775);
    });
}

/// Two writers of parts of one block in two groups; the first to begin is the last to end.
#[test]
fn a_write_of_a_group_that_is_being_closed_changes_the_size_in_the_next_one_too() {
    let Some((_, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let txgs = Txgs::new(Txg(4), Limits::default());
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let id = zpl.create(root, b"file", &FILE).await.unwrap();
        zpl.truncate(id, 5000).await.unwrap();
        zpl.write(id, 0, &[1; 512], &WriteOptions::default()).await.unwrap();
        let object = objset.object(id).await.unwrap();
        let (older, newer) = (Tx::syncing(txgs.open_txg()), Tx::syncing(Txg(txgs.open_txg().get() + 1)));
        let wrote = async |tx: &Tx, end: u64| {
            let values = Values::default().number(Attr::Size, end).number(Attr::Flags, end);
            zpl.registry().unwrap().merge(&object, tx, &values.given().unwrap(), content::merge).unwrap();
        };
        wrote(&newer, 6000).await;
        wrote(&older, 7000).await;
        wrote(&older, 6500).await;
        let stat = zpl.zpl().stat(id).await.unwrap();
        assert_eq!((stat.size, stat.flags.0 & 7000, stat.flags.0 & 6000), (7000, 7000, 6000));
    });
}

#[test]
fn ranges_are_reserved_zeroed_punched_and_copied() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    zpl.set_record_size(4096);
    let root = zpl.zpl().root();
    block_on(async {
        let [one, two] = [b"one", b"two"];
        let one = zpl.create(root, one, &FILE).await.unwrap();
        let two = zpl.create(root, two, &FILE).await.unwrap();
        let content: Vec<u8> = (0..30_000u32).map(|at| (at % 251) as u8 + 1).collect();
        zpl.write(one, 0, &content, &WriteOptions::default()).await.unwrap();
        zpl.allocate(one, AllocateMode::Punch, 4000, 9000).await.unwrap();
        assert_eq!(zpl.seek_hole(one, 0).await.unwrap(), Some(4096));
        assert_eq!(zpl.seek_data(one, 4096).await.unwrap(), Some(12288));
        zpl.allocate(one, AllocateMode::ZeroRange { keep_size: true }, 20_000, 20_000).await.unwrap();
        assert_eq!(zpl.zpl().stat(one).await.unwrap().size, 30_000);
        zpl.allocate(one, AllocateMode::ZeroRange { keep_size: false }, 29_000, 5000).await.unwrap();
        assert_eq!(zpl.zpl().stat(one).await.unwrap().size, 34_000);
        // There is no source of space.
        let reserve = AllocateMode::Reserve { keep_size: false };
        assert!(matches!(zpl.allocate(one, reserve, 0, 1 << 20).await, Err(Error::NoSpace(_))));
        let mut want = content;
        want[4000..13_000].fill(0);
        want[20_000..].fill(0);
        want.resize(34_000, 0);
        assert_eq!(zpl.copy_range(one, 3000, two, 100, 1 << 30).await.unwrap(), 31_000);
        let mut got = vec![1; 40_000];
        assert_eq!(zpl.read(two, 0, &mut got).await.unwrap(), 31_100);
        assert!(got[..100].iter().all(|byte| *byte == 0) && got[100..31_100] == want[3000..]);
        assert!(zpl.copy_range(one, 0, one, 10, 20).await.is_err());
    });
}

#[test]
fn access_times_follow_the_properties() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    let at = |seconds| Time { seconds, nanoseconds: 0 };
    block_on(async {
        let id = zpl.create(root, b"file", &FILE).await.unwrap();
        let read = async |seconds| {
            zpl.accessed(id, at(seconds)).await.unwrap();
            zpl.zpl().stat(id).await.unwrap().atime.seconds
        };
        let set = SetAttributes {
            atime: Some(at(100)),
            mtime: Some(at(99)),
            ctime: Some(at(98)),
            ..Default::default()
        };
        zpl.set_attributes(id, &set).await.unwrap();
        assert_eq!(read(200).await, 100, "it was read after it was changed, not a day ago");
        assert_eq!(read(100 + 24 * 3600).await, 100 + 24 * 3600);
        zpl.set_atime(AtimeMode::Off);
        assert_eq!(read(1 << 40).await, 100 + 24 * 3600);
        zpl.set_atime(AtimeMode::On);
        assert_eq!(read(100 + 25 * 3600).await, 100 + 25 * 3600);
        zpl.set_atime(AtimeMode::Relative);
        zpl.set_attributes(id, &SetAttributes { mtime: Some(at(1 << 35)), ..set }).await.unwrap();
        assert_eq!(read(150).await, 150);
    });
}

#[test]
fn the_size_changes_with_other_attributes_at_once() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let id = zpl.create(root, b"file", &NewNode { mode: 0o6755, ..FILE }).await.unwrap();
        zpl.write(id, 0, &[3; 1000], &WriteOptions::default()).await.unwrap();
        let born = Time { seconds: 5, nanoseconds: 6 };
        let set = SetAttributes {
            size: Some(700),
            uid: Some(9),
            btime: Some(born),
            project: Some(12),
            kill_privileges: true,
            ..SetAttributes::default()
        };
        zpl.set_attributes(id, &set).await.unwrap();
        let stat = zpl.zpl().stat(id).await.unwrap();
        assert_eq!((stat.size, stat.uid, stat.crtime, stat.project), (700, 9, born, 12));
        assert_eq!(stat.mode & 0o7777, 0o755);
        let mut tail = [1; 400];
        zpl.truncate(id, 1000).await.unwrap();
        assert_eq!(zpl.read(id, 600, &mut tail).await.unwrap(), 400);
        assert!(tail[..100].iter().all(|byte| *byte == 3) && tail[100..].iter().all(|byte| *byte == 0));
        assert!(zpl.set_attributes(root, &set).await.is_err());
    });
}

#[test]
fn children_of_a_set_group_id_directory_have_its_group() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let set = SetAttributes { mode: Some(0o2755), gid: Some(77), ..SetAttributes::default() };
        zpl.set_attributes(root, &set).await.unwrap();
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        let dir = NewNode { kind: NewKind::Directory, ..FILE };
        let dir = zpl.create(root, b"dir", &dir).await.unwrap();
        let (file, dir) = (zpl.zpl().stat(file).await.unwrap(), zpl.zpl().stat(dir).await.unwrap());
        assert_eq!((file.gid, file.mode & 0o7777), (77, 0o644));
        assert_eq!((dir.gid, dir.mode & 0o7777), (77, 0o2644));
    });
}
