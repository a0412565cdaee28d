//! Quotas of users, groups and projects, and what `zdb` says of what they are counted from.

use device::block_on;
use engine::Error;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool};
use engine::properties::{Environment, Prop, UserProperty};
use engine::vdev::Class;
use engine::zpl::live::{NewKind, NewNode, SetAttributes, WriteOptions};
use ondisk::accounting::{AccountingObject, Counted};
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;
use ondisk::zpl::ZnodeFlags;

use crate::filesystem::open;
use crate::support::{Disks, new_pool, surroundings};

const EDQUOT: i32 = 122;

/// Bytes that cannot be compressed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    next.take(length).collect()
}

#[test]
fn quotas_are_reached_when_what_is_committed_says_so() {
    let disks = Disks::new(128 << 20);
    let file = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 1000, gid: 2000 };
    let over = |result: engine::Result<()>| {
        matches!(result, Err(Error::Os { errno: EDQUOT, .. })).then_some(()).ok_or(())
    };
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let zpl = open(&pool).await;
        let root = zpl.zpl().root();
        let set = async |name: &str, quota| {
            let (property, who) = UserProperty::parse(name).unwrap();
            zpl.set_quota(property, who.parse().unwrap(), quota).await.unwrap();
        };
        let used = async |name: &str| {
            pool.sync().await.unwrap();
            let (property, who) = UserProperty::parse(name).unwrap();
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let head = dsl.find("tank").await.unwrap();
            dsl.user_property(&head, property, who.parse().unwrap()).await.unwrap()
        };
        let write = async |name: &[u8], new: &NewNode<'_>| -> engine::Result<()> {
            let id = match zpl.lookup(root, name).await? {
                Some(id) => id,
                None => zpl.create(root, name, new).await?,
            };
            let noise = noise(200_000);
            let append = WriteOptions { append: true, ..WriteOptions::default() };
            zpl.write(id, 0, &noise, &append).await.map(drop)
        };
        set("userquota@1000", 300_000).await;
        set("groupquota@2001", 100_000).await;
        set("userobjquota@1003", 2).await;
        assert_eq!(used("userquota@1000").await, Some(300_000));
        write(b"one", &file).await.unwrap();
        assert!(used("userused@1000").await.unwrap() > 200_000);
        write(b"one", &file).await.unwrap();
        assert!(used("userused@1000").await.unwrap() > 400_000);
        over(write(b"one", &file).await).unwrap();
        over(write(b"two", &file).await).unwrap();
        // Another user's file of the same group goes on, until it is the group's that is used up.
        let others = NewNode { uid: 1001, gid: 2001, ..file };
        write(b"others", &others).await.unwrap();
        assert!(used("groupused@2001").await.unwrap() > 200_000);
        over(write(b"others", &others).await).unwrap();
        let give = SetAttributes { uid: Some(1000), ..SetAttributes::default() };
        let others = zpl.lookup(root, b"others").await.unwrap().unwrap();
        over(zpl.set_attributes(others, &give).await).unwrap();
        set("userquota@1000", 0).await;
        zpl.set_attributes(others, &give).await.unwrap();
        write(b"one", &file).await.unwrap();
        // Who has no quota has the default one; no user has two.
        let (user, bytes) = (AccountingObject::User, Counted::Bytes);
        zpl.set_default_quota(user, bytes, 100_000).await.unwrap();
        set("userquota@1000", 10_000_000).await;
        write(b"one", &file).await.unwrap();
        let stranger = NewNode { uid: 1007, gid: 2007, ..file };
        write(b"strange", &stranger).await.unwrap();
        pool.sync().await.unwrap();
        over(write(b"strange", &stranger).await).unwrap();
        write(b"one", &file).await.unwrap();
        zpl.set_default_quota(user, bytes, 0).await.unwrap();
        write(b"strange", &stranger).await.unwrap();
        zpl.set_default_quota(AccountingObject::Group, Counted::Objects, 77).await.unwrap();
        pool.sync().await.unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let entry = dsl.entry("tank").await.unwrap();
        let shown = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
        assert_eq!(shown.number(Prop::DefaultGroupObjQuota), Some(77));
        assert_eq!(shown.number(Prop::DefaultUserQuota), Some(0));
        drop((dsl, entry, shown));
        // Files are counted by themselves.
        let many = NewNode { uid: 1003, gid: 2003, ..file };
        zpl.create(root, b"first", &many).await.unwrap();
        zpl.create(root, b"second", &many).await.unwrap();
        assert_eq!(used("userobjused@1003").await, Some(2));
        over(zpl.create(root, b"third", &many).await.map(drop)).unwrap();
        // Projects.
        let dir = zpl.create(root, b"dir", &NewNode { kind: NewKind::Directory, ..file }).await.unwrap();
        let project = SetAttributes {
            project: Some(77),
            flags: Some(ZnodeFlags::PROJINHERIT),
            ..SetAttributes::default()
        };
        zpl.set_attributes(dir, &project).await.unwrap();
        zpl.create(dir, b"of the project", &file).await.unwrap();
        assert_eq!(used("projectobjused@77").await, Some(2));
        set("projectobjquota@77", 2).await;
        over(zpl.create(dir, b"one too many", &file).await.map(drop)).unwrap();
        set("projectobjquota@77", 3).await;
        zpl.create(dir, b"one more", &file).await.unwrap();
        assert_eq!(used("projectobjused@77").await, Some(3));
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn what_was_there_before_a_feature_is_counted_when_it_comes() {
    let disks = Disks::new(128 << 20);
    let file = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 1000, gid: 2000 };
    block_on(async {
        let mut new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let later = [Feature::UserobjAccounting, Feature::ProjectQuota];
        new.features.retain(|feature| !later.contains(feature));
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let all = async |name: &str| {
            pool.sync().await.unwrap();
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let (property, _) = UserProperty::parse(name).unwrap();
            dsl.user_properties(&dsl.find("tank").await.unwrap(), property).await.unwrap()
        };
        let id = Dsl::open(&pool.view()).await.unwrap().find("tank").await.unwrap().objset_id();
        let zpl = pool.filesystem(id).await.unwrap();
        let root = zpl.zpl().root();
        for index in 0..300u32 {
            let new = NewNode { uid: 1000 + index % 3, ..file };
            let file = zpl.create(root, format!("file{index}").as_bytes(), &new).await.unwrap();
            zpl.write(file, 0, &noise(1000), &WriteOptions::default()).await.unwrap();
        }
        // Others that are open come after it.
        let mut others = Vec::new();
        for name in ["tank/a", "tank/b"] {
            let contents = NewContents::Filesystem;
            let new = NewDataset { name: name.to_owned(), contents, properties: Vec::new() };
            let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
            let zpl = pool.filesystem(id).await.unwrap();
            for index in 0..50 {
                zpl.create(zpl.zpl().root(), format!("{index}").as_bytes(), &file).await.unwrap();
            }
            others.push((id, zpl));
        }
        let (quota, _) = UserProperty::parse("userobjquota@1000").unwrap();
        assert!(matches!(zpl.set_quota(quota, 1000, 7).await, Err(Error::Unsupported(_))));
        assert_eq!(all("userobjused@").await, [], "what is not counted is not told");
        pool.change(move |s| async move {
            for feature in later {
                s.enable_feature(feature).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        pool.sync().await.unwrap();
        assert_eq!(pool.quota_upgrade(), None, "nothing was used since");
        // A new file is a use. They are used in the order of their creation, because each may be in another
        // group.
        zpl.create(root, b"soon gone", &file).await.unwrap();
        zpl.unlink(root, b"soon gone").await.unwrap();
        for (_, zpl) in &others {
            zpl.create(zpl.zpl().root(), b"one more", &file).await.unwrap();
        }
        // Files change, come and go meanwhile.
        for index in 0..100u32 {
            let name = format!("file{index}");
            match index % 3 {
                0 => zpl.unlink(root, name.as_bytes()).await.unwrap(),
                1 => drop(zpl.create(root, format!("new{index}").as_bytes(), &file).await.unwrap()),
                _ => {
                    let file = zpl.lookup(root, name.as_bytes()).await.unwrap().unwrap();
                    zpl.write(file, 0, &noise(20_000), &WriteOptions::default()).await.unwrap();
                }
            }
            if index == 50 {
                pool.sync().await.unwrap();
            }
        }
        let mut told = 0;
        while !others.iter().all(|(_, zpl)| zpl.objset().counts_projects()) {
            if let Some(status) = pool.quota_upgrade() {
                // Only one is gone through at a time, in the order of their creation.
                let before = [(id, &zpl)].into_iter().chain(others.iter().map(|(id, zpl)| (*id, zpl)));
                let mut before = before.filter(|(id, _)| *id < status.filesystem);
                assert!(before.all(|(_, zpl)| zpl.objset().counts_projects()), "{status:?}");
                assert!(status.done_objects <= status.total_objects && status.waiting < 3, "{status:?}");
                told += 1;
            }
            pool.sync().await.unwrap();
        }
        assert!(told > 0 && zpl.objset().counts_projects());
        while pool.quota_upgrade().is_some() {
            pool.sync().await.unwrap();
        }
        drop(others);
        let objects = all("userobjused@").await;
        let of = |id| objects.iter().find(|(other, _)| *other == id).unwrap().1;
        assert_eq!((of(1000), of(1001), of(1002)), (100 - 34 + 33, 100, 100));
        let sum = |all: Vec<(u64, u64)>| all.iter().map(|(_, value)| value).sum::<u64>();
        let used = sum(all("userused@").await);
        assert!(used > 300_000);
        assert_eq!(all("projectused@").await, [(0, used)]);
        assert_eq!(all("projectobjused@").await, [(0, sum(objects))]);
        let project = SetAttributes { project: Some(7), ..SetAttributes::default() };
        let moved = zpl.lookup(root, b"file299").await.unwrap().unwrap();
        zpl.set_attributes(moved, &project).await.unwrap();
        let counted = all("projectused@").await;
        assert_eq!((counted.len(), sum(counted)), (2, sum(all("userused@").await)));
        zpl.set_quota(quota, 1000, 1).await.unwrap();
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
