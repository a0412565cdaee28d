//! Hot spares: by hand and by themselves, and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use device::block_on;
use engine::inject::{ALWAYS, DeviceError, Fault, Operation};
use engine::pool::live::{Auxiliary, Layout, LivePool, NewLeaf, NewTop, TakeOffline};
use engine::vdev::topology::Purpose;
use engine::vdev::{Aux, Class, Kind, State, Status, Vdev};
use futures_util::future::join;
use ondisk::Guid;

use crate::attach::{
    MIB, copy, export, holds, label_of, lacks_nothing, leaf, pool_of, shape, top, until, write,
};
use crate::support::{Disks, open};

async fn with_spares(disks: &Disks, layout: Layout, count: usize) -> Arc<LivePool> {
    let pool = pool_of(vec![disks.top(layout, Class::Normal, "d", count)]).await;
    let small = Disks::new(64 * MIB);
    let spares = vec![small.leaf("small"), disks.leaf("s0"), disks.leaf("s1")];
    pool.add_auxiliary(Auxiliary::Spares, spares).await.unwrap();
    write(&pool, 0).await;
    pool
}

fn spare(pool: &LivePool, name: &str) -> (Guid, Status) {
    let mut spares = pool.pool().vdevs().spares.iter();
    let spare = spares.find(|spare| spare.name.ends_with(name)).unwrap();
    (spare.guid, spare.status())
}

const IN_USE: Status = Status::new(State::CantOpen, Aux::Spared);

#[test]
fn a_spare_kicks_in_and_goes_back_when_the_device_is_whole_again() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = with_spares(&disks, Layout::Mirror, 2).await;
        let failed = leaf(&pool, "d1").guid;
        pool.offline(failed, TakeOffline::Faulted).await.unwrap();
        let kicked_in = pool.kick_in_spare(failed).await.unwrap();
        let (s0, status) = spare(&pool, "s0");
        assert_eq!((kicked_in, status), (Some(s0), IN_USE), "the first that is large enough");
        assert_eq!(shape(top(&pool)), "mirror-0(d0 spare-1(d1 s0))");
        assert_eq!(pool.kick_in_spare(failed).await.unwrap(), None, "one is enough");
        write(&pool, 1).await;
        holds(&pool, 2).await;
        let error = pool.remove(s0).await.unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        assert!(pool.replace_with_spare(leaf(&pool, "d0").guid, s0).await.is_err());
        export(pool).await;
    });
    assert_eq!(block_on(label_of(&disks, "s0")).unwrap(), "mirror-0(d0 spare-1(d1 s0))");
    assert_eq!(block_on(label_of(&disks, "s1")).unwrap(), "Spare");
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        assert_eq!(spare(&pool, "s0").1, IN_USE);
        assert_eq!(shape(top(&pool)), "mirror-0(d0 spare-1(d1 s0))");
        let original = leaf(&pool, "d1").guid;
        // It was said to have failed by hand, and for good.
        assert_eq!(leaf(&pool, "d1").status(), Status::new(State::Faulted, Aux::External));
        pool.clear(Some(original)).await.unwrap();
        assert_eq!(leaf(&pool, "d1").status().state, State::Healthy);
        assert_eq!(shape(top(&pool)), "mirror-0(d0 spare-1(d1 s0))", "it lacks what it missed");
        write(&pool, 2).await;
        assert!(pool.detach(leaf(&pool, "d0").guid).await.is_err());
        copy(&pool, "d0", "d1").await;
        pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 d1)");
        assert_eq!(spare(&pool, "s0").1, Status::HEALTHY);
        holds(&pool, 3).await;
        assert_eq!(pool.kick_in_spare(leaf(&pool, "d1").guid).await.unwrap(), Some(spare(&pool, "s0").0));
        pool.detach(leaf(&pool, "s0").guid).await.unwrap();
        assert_eq!(spare(&pool, "s0").1, Status::HEALTHY);
        export(pool).await;
    });
    assert_eq!(block_on(label_of(&disks, "s0")).unwrap(), "Spare");
    disks.judge("tank");
}

#[test]
fn a_spare_stays_for_good_when_the_original_is_detached() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = with_spares(&disks, Layout::Mirror, 2).await;
        let (s0, _) = spare(&pool, "s0");
        pool.replace_with_spare(leaf(&pool, "d1").guid, s0).await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 spare-1(d1 s0))");
        copy(&pool, "d0", "s0").await;
        pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 spare-1(d1 s0))", "nothing says that it is to go");
        pool.detach(leaf(&pool, "d1").guid).await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 s0)");
        assert!(!leaf(&pool, "s0").config.is_spare);
        assert!(pool.pool().vdevs().spares.iter().all(|spare| spare.guid != s0));
        write(&pool, 1).await;
        export(pool).await;
        std::fs::remove_file(disks.file("d0")).unwrap();
        let pool = disks.import("tank", 2).await;
        holds(&pool, 2).await;
        export(pool).await;
    });
}

#[test]
fn the_spare_goes_back_when_the_original_was_replaced() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = with_spares(&disks, Layout::Mirror, 2).await;
        let (s1, _) = spare(&pool, "s1");
        pool.replace_with_spare(leaf(&pool, "d1").guid, s1).await.unwrap();
        copy(&pool, "d0", "s1").await;
        let purpose = engine::vdev::topology::Purpose::Replace;
        pool.attach(leaf(&pool, "d1").guid, disks.leaf("new"), purpose, None).await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 spare-1(replacing-0(d1 new) s1))");
        copy(&pool, "d0", "new").await;
        pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 new)");
        assert_eq!(spare(&pool, "s1").1, Status::HEALTHY);
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn a_spare_that_came_in_during_a_replacement_goes_back_after_it() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = with_spares(&disks, Layout::Mirror, 2).await;
        let (d1, (s1, _)) = (leaf(&pool, "d1").guid, spare(&pool, "s1"));
        pool.attach(d1, disks.leaf("new"), Purpose::Replace, None).await.unwrap();
        assert_eq!(pool.kick_in_spare(d1).await.unwrap(), None, "its successor is there");
        pool.replace_with_spare(d1, s1).await.unwrap();
        let nested = "mirror-0(d0 replacing-1(spare-0(d1 s1) new))";
        assert_eq!(shape(top(&pool)), nested);
        pool.offline(d1, TakeOffline::Faulted).await.unwrap();
        copy(&pool, "d0", "s1").await;
        pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&pool)), nested, "the new device lacks something");
        // Also when the pool is imported in that state.
        export(pool).await;
        let pool = disks.import("tank", 2).await;
        assert_eq!(shape(top(&pool)), nested);
        copy(&pool, "d0", "new").await;
        pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 new)");
        assert_eq!(spare(&pool, "s1").1, Status::HEALTHY);
        holds(&pool, 1).await;
        export(pool).await;
    });
    assert_eq!(block_on(label_of(&disks, "s1")).unwrap(), "Spare");
    disks.judge("tank");
}

type Taking<'a> = Pin<Box<dyn Future<Output = engine::Result<()>> + 'a>>;

/// How many there are of [`takers`].
const TAKERS: usize = 7;

/// What gives the device of `new` a place. All agree that it has none before any of them is in its group.
fn takers<'a>(pool: &'a Arc<LivePool>, new: &'a NewLeaf) -> [(&'static str, Taking<'a>); TAKERS] {
    let at = |name: &str| leaf(pool, name).guid;
    let attached = |at, purpose| -> Taking<'a> {
        Box::pin(async move { pool.attach(at, new.clone(), purpose, None).await.map(drop) })
    };
    let top = |class| NewTop { layout: Layout::Single, class, leaves: vec![new.clone()] };
    [
        ("replaces d0", attached(at("d0"), Purpose::Replace)),
        ("replaces d1", attached(at("d1"), Purpose::Replace)),
        ("is attached", attached(at("d0"), Purpose::Mirror)),
        ("is added for data", Box::pin(pool.add(vec![top(Class::Normal)], None))),
        ("is added for logs", Box::pin(pool.add(vec![top(Class::Log)], None))),
        ("is added as a spare", Box::pin(pool.add_auxiliary(Auxiliary::Spares, vec![new.clone()]))),
        ("is added as a cache", Box::pin(pool.add_auxiliary(Auxiliary::Cache, vec![new.clone()]))),
    ]
}

/// In how many places the pool has the device at a path.
fn places(pool: &LivePool, new: &NewLeaf) -> usize {
    let vdevs = pool.pool().vdevs();
    let is_it = |vdev: &&Vdev| match &vdev.kind {
        Kind::Leaf(slot) => slot.device().is_some_and(|device| device.identity() == new.device.identity()),
        _ => false,
    };
    vdevs.leaves().chain(vdevs.spares.iter()).chain(vdevs.l2cache.iter()).filter(is_it).count()
}

#[test]
fn of_two_that_take_a_device_at_once_one_gets_it() {
    for (one, other) in (0..TAKERS).flat_map(|one| (one..TAKERS).map(move |other| (one, other))) {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let pool = with_spares(&disks, Layout::Mirror, 2).await;
            let new = disks.leaf("new");
            let nth = |n| takers(&pool, &new).into_iter().nth(n).unwrap();
            let ((first, first_taking), (second, second_taking)) = (nth(one), nth(other));
            let (first_taken, second_taken) = join(first_taking, second_taking).await;
            let what = format!("it {first} and {second}: {first_taken:?}, {second_taken:?}");
            assert!(first_taken.is_ok() != second_taken.is_ok(), "{what}");
            let error = first_taken.and(second_taken).unwrap_err().to_string();
            assert!(error.contains("new is busy: it is "), "{what}");
            assert_eq!(places(&pool, &new), 1, "{what}");
            // And later.
            for (verb, taking) in takers(&pool, &new) {
                assert!(taking.await.is_err(), "it {verb} too, after: {what}");
            }
            assert_eq!(places(&pool, &new), 1, "{what}");
            write(&pool, 1).await;
            holds(&pool, 2).await;
            export(pool).await;
        });
    }
}

#[test]
fn a_hot_spare_comes_into_use_in_one_place() {
    for remove in [false, true] {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let pool = with_spares(&disks, Layout::Raidz { nparity: 2 }, 4).await;
            let (s0, _) = spare(&pool, "s0");
            let [d0, d1] = ["d0", "d1"].map(|name| leaf(&pool, name).guid);
            let other: Taking<'_> = match remove {
                true => Box::pin(pool.remove(s0)),
                false => Box::pin(pool.replace_with_spare(d1, s0)),
            };
            let (first, second) = join(pool.replace_with_spare(d0, s0), other).await;
            assert!(first.is_ok() && second.is_err(), "{first:?}, {second:?}");
            assert_eq!(shape(top(&pool)), "raidz2-0(spare-0(d0 s0) d1 d2 d3)");
            assert_eq!(spare(&pool, "s0").1, IN_USE);
            write(&pool, 1).await;
            holds(&pool, 2).await;
            export(pool).await;
        });
        disks.judge("tank");
    }
}

#[test]
fn a_device_of_the_pool_that_is_not_open_is_taken_by_nothing_else() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = with_spares(&disks, Layout::Raidz { nparity: 2 }, 4).await;
        pool.offline(leaf(&pool, "d1").guid, TakeOffline::Temporarily).await.unwrap();
        let path = disks.file("d1");
        let new = NewLeaf { device: open(&path), path, is_file: true, whole_disk: false };
        let replaced = pool.attach(leaf(&pool, "d0").guid, new.clone(), Purpose::Replace, None).await;
        assert!(replaced.unwrap_err().to_string().contains("d1 of pool 'tank'"));
        assert!(pool.add_auxiliary(Auxiliary::Spares, vec![new]).await.is_err());
        // It was not touched.
        assert!(pool.online(leaf(&pool, "d1").guid).await.unwrap().is_readable());
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn a_spare_comes_and_goes_by_itself() {
    for (layout, count) in [(Layout::Mirror, 2), (Layout::Raidz { nparity: 1 }, 3)] {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let pool = with_spares(&disks, layout, count).await;
            let before = shape(top(&pool));
            pool.start().unwrap();
            let failed = leaf(&pool, "d1").guid;
            pool.offline(failed, TakeOffline::Faulted).await.unwrap();
            assert!(pool.kick_in_spare(failed).await.unwrap().is_some());
            until(&pool, |pool| leaf(pool, "s0").missing_txgs.is_empty()).await;
            // The pool survives another device now.
            let first = leaf(&pool, "d0").guid;
            pool.offline(first, TakeOffline::Temporarily).await.unwrap();
            holds(&pool, 1).await;
            pool.online(first).await.unwrap();
            until(&pool, |pool| leaf(pool, "d0").missing_txgs.is_empty()).await;
            pool.clear(Some(failed)).await.unwrap();
            until(&pool, |pool| shape(top(pool)) == before && spare(pool, "s0").1 == Status::HEALTHY).await;
            assert!(lacks_nothing(&pool));
            holds(&pool, 1).await;
            export(pool).await;
        });
        assert_eq!(block_on(label_of(&disks, "s0")).unwrap(), "Spare");
        disks.judge("tank");
    }
}

#[test]
fn what_fails_does_not_keep_another_from_being_added() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = with_spares(&disks, Layout::Mirror, 2).await;
        pool.add_auxiliary(Auxiliary::Cache, vec![disks.leaf("c0")]).await.unwrap();
        let cache = pool.pool().vdevs().l2cache.iter().next().unwrap().guid;
        for leaf in [spare(&pool, "s0").0, cache] {
            let fault = Fault::Device {
                leaf: leaf.get(),
                error: DeviceError::Io,
                operation: Operation::All,
                label: None,
            };
            pool.inject(fault, ALWAYS).unwrap();
        }
        pool.add_auxiliary(Auxiliary::Spares, vec![disks.leaf("s2")]).await.unwrap();
        pool.add_auxiliary(Auxiliary::Cache, vec![disks.leaf("c1")]).await.unwrap();
        assert_eq!(spare(&pool, "s2").1, Status::HEALTHY);
        export(pool).await;
    });
    for name in ["s2", "c1"] {
        assert!(block_on(label_of(&disks, name)).is_some(), "{name} has its label");
    }
    disks.judge("tank");
}
