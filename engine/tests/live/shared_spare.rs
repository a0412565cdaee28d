//! Hot spares that two pools of a process have, and spares that are gone and back.

use std::sync::Arc;

use device::{Device, FileDevice, block_on};
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Auxiliary, Layout, LivePool, NewLeaf, NewPool, TakeOffline};
use engine::pool::status;
use engine::vdev::spares::shared;
use engine::vdev::{Aux, Class, State, Status};
use futures_util::future::join;
use ondisk::Guid;

use crate::attach::{MIB, export, label_of, leaf, shape, top};
use crate::support::{Disks, new_pool, surroundings};

const IN_USE: Status = Status::new(State::CantOpen, Aux::Spared);
const AWAY: Status = Status::new(State::CantOpen, Aux::OpenFailed);

async fn pool(disks: &Disks, (name, seed): (&str, u64), spares: Vec<NewLeaf>) -> Arc<LivePool> {
    let tops = vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)];
    let new = NewPool { name: name.into(), spares, ..new_pool(tops, 12) };
    LivePool::create(new, surroundings(seed)).await.unwrap()
}

/// Imports a pool as the daemon does, which may share what other pools have open.
async fn import(disks: &Disks, name: &str, seed: u64) -> Arc<LivePool> {
    let found = discovery::scan(&[disks.path()]).await.unwrap();
    let found = select(found, name).unwrap().for_writing().await.unwrap();
    let options = ImportOptions { force: true, ..Default::default() };
    LivePool::import(&found, &options, surroundings(seed)).await.unwrap()
}

/// The hot spare of an open pool, for another one.
fn again(spare: &NewLeaf) -> NewLeaf {
    let device = shared(&FileDevice::open(&spare.path).unwrap()).expect("pools share it");
    NewLeaf { device, ..spare.clone() }
}

fn spare(pool: &LivePool) -> (Guid, Status) {
    let spare = pool.pool().vdevs().spares.iter().next().unwrap();
    (spare.guid, spare.status())
}

/// The pool that is said to use the spare of this one.
fn user(pool: &LivePool) -> Option<String> {
    let root = status::vdevs(pool.pool());
    root.children.into_iter().find_map(|vdev| vdev.in_use_by)
}

/// Two pools, and a spare that both have. It lies beside the devices of the second.
async fn two(disks: &[Disks; 2]) -> ([Arc<LivePool>; 2], Guid) {
    let new = disks[1].leaf("s");
    let one = pool(&disks[0], ("one", 1), vec![new.clone()]).await;
    let two = pool(&disks[1], ("two", 2), vec![again(&new)]).await;
    let (guid, status) = spare(&one);
    assert_eq!((spare(&two), status), ((guid, Status::HEALTHY), Status::HEALTHY));
    ([one, two], guid)
}

fn disks() -> [Disks; 2] {
    [Disks::new(96 * MIB), Disks::new(96 * MIB)]
}

fn first(pool: &LivePool) -> Guid {
    leaf(pool, "d0").guid
}

#[test]
fn a_spare_of_two_pools_is_used_by_one_at_a_time() {
    let disks = disks();
    block_on(async {
        let ([one, two], guid) = two(&disks).await;
        assert_eq!(label_of(&disks[1], "s").await.unwrap(), "Spare");
        one.replace_with_spare(first(&one), guid).await.unwrap();
        assert_eq!((shape(top(&one)), spare(&one).1), ("mirror-0(spare-0(d0 s) d1)".into(), IN_USE));
        assert_eq!((spare(&two).1, user(&two), user(&one)), (IN_USE, Some("one".into()), None));
        let error = two.replace_with_spare(first(&two), guid).await.unwrap_err().to_string();
        assert!(error.ends_with("s is in use as a hot spare by pool 'one'"), "{error}");
        assert_eq!(two.kick_in_spare(first(&two)).await.unwrap(), None);
        assert!(one.shared_spare_in_use().is_some() && two.shared_spare_in_use().is_none());
        assert!(shared(&FileDevice::open(disks[1].file("s")).unwrap()).is_none());
        // The pool that uses it may close it and open it again.
        one.offline(guid, TakeOffline::Temporarily).await.unwrap();
        assert!(one.online(guid).await.unwrap().is_readable());
        // Looking changes nothing.
        for pool in [&one, &two] {
            pool.look_at_spares(true).await;
            assert_eq!(spare(pool).1, IN_USE);
        }
        one.detach(guid).await.unwrap();
        assert_eq!([spare(&one).1, spare(&two).1], [Status::HEALTHY; 2]);
        assert_eq!(label_of(&disks[1], "s").await.unwrap(), "Spare");
        assert_eq!(two.kick_in_spare(first(&two)).await.unwrap(), Some(guid));
        assert_eq!((spare(&one).1, user(&one)), (IN_USE, Some("two".into())));
        // A pool can do without it meanwhile.
        one.remove(guid).await.unwrap();
        two.detach(guid).await.unwrap();
        let path = disks[1].file("s");
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path).unwrap());
        let named = NewLeaf { device, path, is_file: true, whole_disk: false };
        one.add_auxiliary(Auxiliary::Spares, vec![again(&named)]).await.unwrap();
        assert_eq!(spare(&one), (guid, Status::HEALTHY));
        export(one).await;
        export(two).await;
    });
    disks[0].judge("one");
    disks[1].judge("two");
}

#[test]
fn of_two_pools_that_take_a_spare_at_once_one_gets_it() {
    let disks = disks();
    block_on(async {
        let ([one, two], guid) = two(&disks).await;
        for _ in 0..4 {
            let [a, b] = [first(&one), first(&two)];
            let (of_one, of_two) = join(one.kick_in_spare(a), two.replace_with_spare(b, guid)).await;
            let taken = [of_one.unwrap().is_some(), of_two.is_ok()];
            assert!(taken == [true, false] || taken == [false, true], "{taken:?}");
            assert_eq!([spare(&one).1, spare(&two).1], [IN_USE; 2]);
            assert_eq!([user(&one).is_some(), user(&two).is_some()], [taken[1], taken[0]]);
            let user = if taken[0] { &one } else { &two };
            user.detach(guid).await.unwrap();
            assert_eq!([spare(&one).1, spare(&two).1], [Status::HEALTHY; 2]);
        }
        export(one).await;
        export(two).await;
    });
}

#[test]
fn a_spare_of_two_pools_outlives_their_imports() {
    let disks = disks();
    block_on(async {
        let ([one, two], guid) = two(&disks).await;
        // The one that is imported shares what the other one has open, and can use it.
        export(two).await;
        let two = import(&disks[1], "two", 3).await;
        assert_eq!(spare(&two), (guid, Status::HEALTHY));
        two.replace_with_spare(first(&two), guid).await.unwrap();
        assert_eq!(spare(&one).1, IN_USE);
        // The label says that it is in use, also where its pool is not open.
        export(two).await;
        one.look_at_spares(true).await;
        assert_eq!(spare(&one).1, IN_USE);
        assert_eq!(one.kick_in_spare(first(&one)).await.unwrap(), None);
        let two = import(&disks[1], "two", 4).await;
        assert_eq!((shape(top(&two)), spare(&two).1), ("mirror-0(spare-0(d0 s) d1)".into(), IN_USE));
        // A pool that is imported while another one uses it.
        export(one).await;
        let one = import(&disks[0], "one", 5).await;
        assert_eq!((spare(&one).1, user(&one)), (IN_USE, Some("two".into())));
        two.detach(guid).await.unwrap();
        assert_eq!([spare(&one).1, spare(&two).1], [Status::HEALTHY; 2]);
        one.replace_with_spare(first(&one), guid).await.unwrap();
        export(one).await;
        export(two).await;
    });
    disks[1].judge("two");
}

#[test]
fn a_spare_that_stays_for_good_is_no_spare_of_the_other_pool_meanwhile() {
    let disks = disks();
    block_on(async {
        let ([one, two], guid) = two(&disks).await;
        one.replace_with_spare(first(&one), guid).await.unwrap();
        leaf(&one, "s").missing_txgs.forget(ondisk::Txg(0), ondisk::Txg(u64::MAX));
        one.detach(first(&one)).await.unwrap();
        two.look_at_spares(true).await;
        assert_eq!((spare(&two).1, user(&two)), (IN_USE, Some("one".into())));
        assert!(two.replace_with_spare(first(&two), guid).await.is_err());
        export(one).await;
        export(two).await;
    });
}

#[test]
fn a_spare_that_is_gone_is_not_available_until_it_is_back() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let one = pool(&disks, ("one", 1), vec![disks.leaf("s")]).await;
        let (guid, status) = spare(&one);
        assert_eq!(status, Status::HEALTHY);
        std::fs::rename(disks.file("s"), disks.file("elsewhere")).unwrap();
        one.look_at_spares(false).await;
        assert_eq!(spare(&one).1, AWAY);
        assert_eq!(one.kick_in_spare(first(&one)).await.unwrap(), None);
        assert!(one.replace_with_spare(first(&one), guid).await.is_err());
        std::fs::rename(disks.file("elsewhere"), disks.file("s")).unwrap();
        one.look_at_spares(false).await;
        assert_eq!(spare(&one).1, Status::HEALTHY);
        // Another file in its place is another device.
        std::fs::remove_file(disks.file("s")).unwrap();
        drop(disks.leaf("s"));
        one.look_at_spares(false).await;
        assert!(!spare(&one).1.is_readable());
        one.look_at_spares(false).await;
        assert_eq!(spare(&one).1, Status::new(State::CantOpen, Aux::CorruptData));
        export(one).await;
    });
    disks.judge("one");
}

/// A file that is gone leaves its number to the next one.
#[test]
fn what_has_the_number_of_a_spare_that_is_gone_is_another_device() {
    let disks = disks();
    block_on(async {
        let old = disks[0].leaf("old");
        let one = pool(&disks[0], ("one", 1), vec![old.clone()]).await;
        let (guid, _) = spare(&one);
        std::fs::rename(disks[0].file("old"), disks[1].file("new")).unwrap();
        drop(old);
        one.look_at_spares(true).await;
        assert_eq!(spare(&one).1, AWAY);
        std::fs::write(disks[1].file("new"), []).unwrap();
        let two = pool(&disks[1], ("two", 2), Vec::new()).await;
        two.add_auxiliary(Auxiliary::Spares, vec![disks[1].leaf("new")]).await.unwrap();
        assert_eq!(label_of(&disks[1], "new").await.unwrap(), "Spare");
        assert_ne!(spare(&two).0, guid);
        export(one).await;
        export(two).await;
    });
}

#[test]
fn a_spare_that_was_gone_in_use_is_available_when_it_is_back() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let one = pool(&disks, ("one", 1), vec![disks.leaf("s")]).await;
        let (guid, _) = spare(&one);
        one.replace_with_spare(first(&one), guid).await.unwrap();
        std::fs::rename(disks.file("s"), disks.file("elsewhere")).unwrap();
        one.offline(guid, TakeOffline::Temporarily).await.unwrap();
        one.detach(guid).await.unwrap();
        assert_eq!(spare(&one).1, AWAY);
        assert_eq!(label_of(&disks, "elsewhere").await.unwrap(), "mirror-0(spare-0(d0 s) d1)");
        std::fs::rename(disks.file("elsewhere"), disks.file("s")).unwrap();
        one.look_at_spares(false).await;
        assert_eq!(spare(&one).1, Status::HEALTHY);
        assert_eq!(label_of(&disks, "s").await.unwrap(), "Spare");
        export(one).await;
    });
    disks.judge("one");
}
