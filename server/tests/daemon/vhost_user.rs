//! Disks of virtual machines, while what is below them changes.

use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use device::block_on;
use server::api::{
    ClearErrors, ClearInjections, DestroyDataset, DeviceError, ErrorKind, ExportPool, InjectFault,
    InjectTarget, InjectedOperation, RenameDataset, Rollback, SetProperties, TakeSnapshots,
};
use server::daemon::{Daemon, Endpoints};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use crate::harness::Running;
use crate::volumes::{MEBIBYTE, new_volume};

#[path = "../vhost_user/driver.rs"]
mod driver;

use driver::{FAILED, FLUSH, Machine, OK, Options, READ, UNANSWERED, WRITE, channel};

const LIMIT: Duration = Duration::from_secs(60);

/// A daemon that serves `tank/vol` to machines.
fn start() -> Running {
    let running = Running::start_with(Daemon::default(), |place| Endpoints {
        vhost_user: Some(place.join("vhost")),
        ..Endpoints::default()
    });
    new_volume(&running);
    running
}

fn socket(running: &Running, volume: &str) -> PathBuf {
    server::vhost_user::socket_of(&running.place.path().join("vhost"), volume).unwrap()
}

fn connect(running: &Running, volume: &str) -> Machine {
    Machine::connect(&socket(running, volume), Options::default())
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn write(machine: &mut Machine, offset: u64, byte: u8) -> u8 {
    machine.set_data(0, 0, &[byte; 4096]);
    machine.ask(0, (WRITE, offset / 512), &[4096])
}

fn read(machine: &mut Machine, offset: u64) -> (u8, u8) {
    (machine.ask(0, (READ, offset / 512), &[4096]), machine.data(0, 0, 4096)[4095])
}

#[test]
fn a_new_size_is_told_and_its_room_can_be_used() {
    let running = start();
    let mut machine = connect(&running, "tank/vol");
    let (mut ours, theirs) = channel();
    machine.frontend.set_backend_request_fd(&theirs).unwrap();
    for (size, at, status) in [("16M", 12, OK), ("4M", 12, FAILED), ("16M", 12, OK)] {
        let set = SetProperties {
            datasets: vec!["tank/vol".into()],
            properties: vec![("volsize".into(), size.into())],
            ..SetProperties::default()
        };
        assert!(block_on(running.daemon.set_properties(set)).unwrap().failed.is_empty());
        let mut told = [0; 12];
        ours.read_exact(&mut told).unwrap();
        assert_eq!(told[..4], 2u32.to_ne_bytes(), "the configuration is another one");
        let sectors = u64::from_le_bytes(machine.config()[..8].try_into().unwrap());
        assert_eq!(sectors * 512, size.trim_end_matches('M').parse::<u64>().unwrap() * MEBIBYTE);
        assert_eq!(write(&mut machine, at * MEBIBYTE, 7), status, "{size}");
        assert_eq!(write(&mut machine, MEBIBYTE, 8), OK);
    }
    assert_eq!(read(&mut machine, 12 * MEBIBYTE), (OK, 7));
}

#[test]
fn a_volume_with_a_machine_is_neither_renamed_nor_destroyed_nor_exported() {
    let running = start();
    let daemon = &running.daemon;
    let mut machine = connect(&running, "tank/vol");
    assert_eq!(write(&mut machine, 0, 1), OK);
    let rename =
        |from: &str, to: &str| RenameDataset { from: from.into(), to: to.into(), ..RenameDataset::default() };
    let destroy = |name: &str| DestroyDataset { name: name.into(), ..DestroyDataset::default() };
    let export = |force| ExportPool { pools: vec!["tank".into()], force, ..ExportPool::default() };
    let refusals = [
        block_on(daemon.rename_dataset(rename("tank/vol", "tank/other"))).map(drop).unwrap_err(),
        block_on(daemon.destroy_dataset(destroy("tank/vol"))).map(drop).unwrap_err(),
        block_on(daemon.export(export(false))).map(drop).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.kind, ErrorKind::Busy, "{refusal}");
    }
    assert_eq!(read(&mut machine, 0), (OK, 1));
    // Without the machine it has another name, and its socket follows.
    drop(machine);
    block_on(daemon.rename_dataset(rename("tank/vol", "tank/other"))).unwrap();
    let mut machine = connect(&running, "tank/other");
    until("the old socket goes", || !socket(&running, "tank/vol").exists());
    assert_eq!(read(&mut machine, 0), (OK, 1));
    // By force the pool goes all the same, and so does the session.
    block_on(daemon.export(export(true))).unwrap();
    assert!(machine.is_ended());
    until("the socket goes", || !socket(&running, "tank/other").exists());
}

#[test]
fn a_volume_that_is_destroyed_has_no_socket() {
    let running = start();
    drop(connect(&running, "tank/vol"));
    let destroy = DestroyDataset { name: "tank/vol".into(), ..DestroyDataset::default() };
    block_on(running.daemon.destroy_dataset(destroy)).unwrap();
    until("the socket goes", || !socket(&running, "tank/vol").exists());
}

#[test]
fn a_machine_goes_on_with_what_a_rollback_brought_back() {
    let running = start();
    let mut machine = connect(&running, "tank/vol");
    assert_eq!(write(&mut machine, 0, 1), OK);
    let snapshot = TakeSnapshots { names: vec!["tank/vol@one".into()], ..TakeSnapshots::default() };
    block_on(running.daemon.take_snapshots(snapshot)).unwrap();
    for round in 2..5 {
        assert_eq!(write(&mut machine, 0, round), OK);
        let back = Rollback { snapshot: "tank/vol@one".into(), ..Rollback::default() };
        block_on(running.daemon.rollback(back)).unwrap();
        assert_eq!(read(&mut machine, 0), (OK, 1));
    }
    assert_eq!((write(&mut machine, 0, 9), machine.ask(0, (FLUSH, 0), &[])), (OK, OK));
    assert_eq!(read(&mut machine, 0), (OK, 9));
}

#[test]
fn requests_wait_for_a_suspended_pool_and_their_ring_can_be_stopped_meanwhile() {
    let running = start();
    let daemon = &running.daemon;
    let mut machine = connect(&running, "tank/vol");
    assert_eq!((write(&mut machine, 0, 1), machine.ask(0, (FLUSH, 0), &[])), (OK, OK));
    let device = running.place.path().join("disk").display().to_string();
    for operation in [InjectedOperation::All, InjectedOperation::Probe] {
        let fault = InjectFault {
            pool: "tank".into(),
            target: Some(InjectTarget::Device {
                device: device.clone(),
                error: DeviceError::Nxio,
                operation,
                label: None,
            }),
            ..InjectFault::default()
        };
        block_on(daemon.inject_fault(fault)).unwrap();
    }
    assert_eq!(write(&mut machine, 0, 2), OK, "it is only buffered");
    let before = machine.available(0);
    let head = machine.prepare(0, 0, (FLUSH, 0), &[]);
    machine.offer(0, head);
    machine.force_kick(0);
    let pool = daemon.open_pools().remove(0);
    until("the pool is suspended", || pool.is_suspended());
    // The machine stops the ring and is answered, with the request still to come.
    let base = machine.frontend.get_vring_base(0).unwrap();
    assert_eq!((base as u16, machine.status(0, 0)), (before.wrapping_add(1), UNANSWERED));
    machine.start(0, base as u16);
    assert_eq!(machine.status(0, 0), UNANSWERED);
    // The device is back.
    daemon.clear_injections(ClearInjections { id: None }).unwrap();
    block_on(daemon.clear_errors(ClearErrors { pool: "tank".into(), ..ClearErrors::default() })).unwrap();
    assert_eq!(machine.wait(0, LIMIT).iter().map(|(head, _)| *head).collect::<Vec<_>>(), [u32::from(head)]);
    assert_eq!(machine.status(0, 0), OK);
    assert_eq!(read(&mut machine, 0), (OK, 2));
}
