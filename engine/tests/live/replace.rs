//! Devices that are replaced while a pool is written.

use device::block_on;
use engine::pool::live::{Layout, TakeOffline, properties};
use engine::vdev::topology::Purpose;
use engine::vdev::{Class, State};
use ondisk::Txg;

use crate::attach::{
    MIB, commit, copy, export, holds, label_of, lacks_nothing, leaf, pool_of, shape, top, until, write,
};
use crate::support::{Disks, committing};

const LAYOUTS: [(Layout, usize); 5] = [
    (Layout::Single, 1),
    (Layout::Mirror, 2),
    (Layout::Raidz { nparity: 1 }, 3),
    (Layout::Raidz { nparity: 2 }, 5),
    (Layout::Draid { nparity: 1, ndata: 2, nspares: 0 }, 4),
];

#[test]
fn a_device_of_any_layout_is_replaced_by_another_one() {
    for (layout, count) in LAYOUTS {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let pool = pool_of(vec![disks.top(layout, Class::Normal, "d", count)]).await;
            write(&pool, 0).await;
            let before = shape(top(&pool));
            let old = leaf(&pool, "d0").guid;
            pool.attach(old, disks.leaf("new"), Purpose::Replace, None).await.unwrap();
            let during = before.replace("d0", "replacing-0(d0 new)");
            assert_eq!(shape(top(&pool)), during);
            write(&pool, 1).await;
            holds(&pool, 2).await;
            // Not before it has everything.
            pool.detach_resilvered().await.unwrap();
            assert_eq!(shape(top(&pool)), during);
            // One may think better of it.
            pool.detach(leaf(&pool, "new").guid).await.unwrap();
            assert_eq!(shape(top(&pool)), before);
            pool.attach(leaf(&pool, "d0").guid, disks.leaf("new"), Purpose::Replace, None).await.unwrap();
            write(&pool, 2).await;
            copy(&pool, "d0", "new").await;
            pool.detach_resilvered().await.unwrap();
            assert_eq!(shape(top(&pool)), before.replace("d0", "new"));
            write(&pool, 3).await;
            holds(&pool, 4).await;
            export(pool).await;
        });
        assert_eq!(block_on(label_of(&disks, "d0")).unwrap(), "left the pool", "{layout:?}");
        disks.judge("tank");
        block_on(async {
            let pool = disks.import("tank", 2).await;
            holds(&pool, 4).await;
            // Nothing else is needed: not the old one, and not what redundancy can do without.
            if count > 1 {
                let other = leaf(&pool, "d1").guid;
                pool.offline(other, TakeOffline::Temporarily).await.unwrap();
                holds(&pool, 4).await;
            }
            export(pool).await;
        });
    }
}

#[test]
fn a_device_that_is_gone_is_replaced_by_one_in_the_same_place() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)]).await;
        write(&pool, 0).await;
        let old = leaf(&pool, "d0").guid;
        pool.offline(old, TakeOffline::Persistently).await.unwrap();
        write(&pool, 1).await;
        std::fs::remove_file(disks.file("d0")).unwrap();
        let new = pool.attach(old, disks.leaf("d0"), Purpose::Replace, None).await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(replacing-0(old d0) d1)");
        let name = &pool.pool().vdevs().find(old).unwrap().name;
        assert!(name.ends_with("/d0/old"), "{name}");
        assert_eq!(pool.pool().vdevs().find(new).unwrap().status().state, State::Healthy);
        copy(&pool, "d1", "d0").await;
        pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 d1)");
        assert_eq!(top(&pool).status().state, State::Healthy);
        export(pool).await;
    });
    disks.judge("tank");
    block_on(async {
        std::fs::remove_file(disks.file("d1")).unwrap();
        let pool = disks.import("tank", 2).await;
        holds(&pool, 2).await;
        export(pool).await;
    });
}

#[test]
fn a_vdev_grows_when_all_its_devices_were_replaced_by_larger_ones() {
    let (disks, larger) = (Disks::new(96 * MIB), Disks::new(192 * MIB));
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 3)]).await;
        write(&pool, 0).await;
        let before = top(&pool).asize();
        for index in 0..3 {
            if index == 2 {
                pool.change(|s| async move { properties::set(&s, "autoexpand", "on").await }).await.unwrap();
            }
            assert_eq!((top(&pool).asize(), top(&pool).expandable_bytes()), (before, 0));
            let (old, new) = (format!("d{index}"), format!("n{index}"));
            pool.attach(leaf(&pool, &old).guid, larger.leaf(&new), Purpose::Replace, None).await.unwrap();
            copy(&pool, &old, &new).await;
            pool.detach_resilvered().await.unwrap();
            commit(&pool).await;
        }
        assert_eq!(shape(top(&pool)), "raidz1-0(n0 n1 n2)");
        commit(&pool).await;
        assert_eq!(top(&pool).asize(), before + 3 * 96 * MIB);
        for at in 1..40 {
            write(&pool, at).await;
        }
        holds(&pool, 40).await;
        export(pool).await;
    });
    larger.judge("tank");
}

#[test]
fn log_devices_are_mirrored_and_replaced() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let tops = vec![
            disks.top(Layout::Single, Class::Normal, "d", 1),
            disks.top(Layout::Single, Class::Log, "log", 1),
        ];
        let pool = pool_of(tops).await;
        let log = pool.pool().vdevs().top(1).unwrap().guid;
        pool.attach(log, disks.leaf("log1"), Purpose::Mirror, None).await.unwrap();
        let log = pool.pool().vdevs().top(1).unwrap();
        assert_eq!((shape(log), log.class()), ("mirror-1(log0 log1)".into(), Class::Log));
        let volume = crate::attach::volume(&pool).await;
        committing(&pool, volume.write_at(0, &[1; 65536], true)).await.unwrap();
        copy(&pool, "log0", "log1").await;
        pool.detach(leaf(&pool, "log0").guid).await.unwrap();
        let log = pool.pool().vdevs().top(1).unwrap();
        assert_eq!((shape(log), log.class()), ("log1".into(), Class::Log));
        pool.attach(log.guid, disks.leaf("log2"), Purpose::Replace, None).await.unwrap();
        leaf(&pool, "log2").missing_txgs.forget(Txg(0), Txg(u64::MAX));
        commit(&pool).await;
        pool.detach_resilvered().await.unwrap();
        committing(&pool, volume.write_at(65536, &[1; 65536], true)).await.unwrap();
        assert_eq!(shape(pool.pool().vdevs().top(1).unwrap()), "log2");
        drop(volume);
        pool.start().unwrap();
        pool.remove(pool.pool().vdevs().top(1).unwrap().guid).await.unwrap();
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn the_old_device_goes_by_itself_when_the_new_one_is_resilvered() {
    for (layout, count) in LAYOUTS {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let pool = pool_of(vec![disks.top(layout, Class::Normal, "d", count)]).await;
            for at in 0..4 {
                write(&pool, at).await;
            }
            let before = shape(top(&pool));
            pool.start().unwrap();
            pool.attach(leaf(&pool, "d0").guid, disks.leaf("new"), Purpose::Replace, None).await.unwrap();
            let after = before.replace("d0", "new");
            until(&pool, |pool| shape(top(pool)) == after).await;
            assert!(lacks_nothing(&pool));
            if count > 1 {
                // A device that is away is replaced too.
                let old = leaf(&pool, "d1").guid;
                pool.offline(old, TakeOffline::Faulted).await.unwrap();
                pool.attach(old, disks.leaf("new1"), Purpose::Replace, None).await.unwrap();
                let after = after.replace("d1 ", "new1 ").replace("d1)", "new1)");
                until(&pool, |pool| shape(top(pool)) == after).await;
                assert_eq!(top(&pool).status().state, State::Healthy);
            }
            holds(&pool, 4).await;
            export(pool).await;
        });
        disks.judge("tank");
        block_on(async {
            let pool = disks.import("tank", 2).await;
            for leaf in pool.pool().vdevs().leaves().map(|leaf| leaf.guid).collect::<Vec<_>>() {
                if count > 1 {
                    pool.offline(leaf, TakeOffline::Temporarily).await.unwrap();
                    holds(&pool, 4).await;
                    pool.online(leaf).await.unwrap();
                    pool.pool().vdevs().find(leaf).unwrap().missing_txgs.forget(Txg(0), Txg(u64::MAX));
                }
            }
            export(pool).await;
        });
    }
}

#[test]
fn devices_that_are_being_replaced_are_no_redundancy_for_others_that_fail() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let layout = Layout::Raidz { nparity: 2 };
        let pool = pool_of(vec![disks.top(layout, Class::Normal, "d", 5)]).await;
        write(&pool, 0).await;
        pool.attach(leaf(&pool, "d4").guid, disks.leaf("new"), Purpose::Replace, None).await.unwrap();
        pool.offline(leaf(&pool, "new").guid, TakeOffline::Temporarily).await.unwrap();
        for name in ["d0", "d1"] {
            pool.offline(leaf(&pool, name).guid, TakeOffline::FaultedTemporarily).await.unwrap();
        }
        let state = |name| leaf(&pool, name).status().state;
        assert_eq!([state("d0"), state("d1")], [State::Faulted, State::Degraded]);
        holds(&pool, 1).await;
        // A person may take away what redundancy allows.
        pool.offline(leaf(&pool, "d1").guid, TakeOffline::Temporarily).await.unwrap();
        holds(&pool, 1).await;
        export(pool).await;
    });
}
