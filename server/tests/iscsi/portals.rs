//! Where initiators are sent, and what they are told while the daemon is not complete.

use std::thread;

use server::block::Limits;

use crate::harness::{Disks, Initiator, Served};
use crate::pool::{MIB, Running};

#[test]
fn an_initiator_is_sent_to_the_address_that_it_came_to() {
    let served = Served::start_at("[::]:0", Disks::default().with_one(), None, Limits::default());
    let mut one = Initiator::connect(&served);
    one.login(1, 3, &["InitiatorName=iqn.test:one", "SessionType=Discovery"]).expect("an answer");
    let address = format!("TargetAddress={},1", served.address);
    assert_eq!(one.targets(), ["TargetName=iqn.2026-11.org.cenote:tank:one".to_owned(), address]);
}

/// The class and the detail of how a login to a volume's target ended.
fn log_in(served: &Served, volume: &str) -> (u8, u8) {
    let target = format!("TargetName=iqn.2026-11.org.cenote:{}", volume.replace('/', ":"));
    let answer = Initiator::connect(served).login(1, 3, &["InitiatorName=iqn.test:one", &target]);
    let header = answer.expect("an answer").header;
    (header[36], header[37])
}

#[test]
fn a_target_of_a_pool_that_is_being_imported_is_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let running = Running::start(place.path());
    let importing = running.daemon.expect_imports();
    thread::scope(|scope| {
        let early = scope.spawn(|| log_in(&running.served, "tank/late"));
        let looking = scope.spawn(|| {
            let mut one = Initiator::connect(&running.served);
            one.login(1, 3, &["InitiatorName=iqn.test:two", "SessionType=Discovery"]).expect("an answer");
            one.targets().len()
        });
        running.create(place.path(), 8 * MIB);
        running.create_volume("tank/late", "on", MIB);
        drop(importing);
        assert_eq!(early.join().unwrap(), (0, 0));
        assert_eq!(looking.join().unwrap(), 4, "two targets and their addresses");
    });
    assert_eq!(log_in(&running.served, "tank/none"), (2, 3), "nothing is awaited any more");
}
