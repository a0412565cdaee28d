//! Clients that mean harm, and a good one beside them that must not notice.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::Served;
use crate::client::{BADHANDLE, Client, MOUNT, NFS, STALE, User, Xdr};

/// For root, from any port.
const ALL: &str = "rw,no_root_squash,insecure";

/// Whether the other side ends the connection.
fn is_ended(socket: &mut TcpStream) -> bool {
    let mut byte = [0];
    matches!(socket.read(&mut byte), Ok(0) | Err(_))
}

#[test]
fn lengths_that_lie_end_the_connection_and_take_no_memory() {
    let served = Served::start();
    let (mut good, root) = served.root("fs", ALL);
    for head in [0xffff_ffffu32, 0x7fff_ffff, 0x8020_0000, 0x0011_0001] {
        let mut client = served.connect(User::root());
        client.socket.write_all(&head.to_be_bytes()).unwrap();
        assert!(is_ended(&mut client.socket), "{head:#x}");
    }
    // Many empty fragments, none of which is the last.
    let mut client = served.connect(User::root());
    let _ = client.socket.write_all(&[0; 4 * 10_000]);
    assert!(is_ended(&mut client.socket));
    // A long record that is only begun, of many clients: the good one goes on.
    let slow: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = served.connect(User::root());
            client.socket.write_all(&0x8010_0000u32.to_be_bytes()).unwrap();
            client
        })
        .collect();
    good.stat(&root).unwrap();
    drop(slow);
    good.stat(&root).unwrap();
}

#[test]
fn records_that_are_cut_or_make_no_sense_are_refused() {
    let served = Served::start();
    let (mut good, root) = served.root("fs", ALL);
    let file = good.create(&root, "file", 0o600).unwrap();
    let write = Xdr::default().opaque(&file).long(0).number(4).number(0).opaque(b"data");
    let calls = [
        (1, Xdr::default().opaque(&file)),
        (3, Xdr::default().opaque(&root).opaque(b"file")),
        (6, Xdr::default().opaque(&file).long(0).number(10)),
        (7, write),
        (8, Xdr::default().opaque(&root).opaque(b"new").number(0).attributes(Some(0o600), None)),
        (17, Xdr::default().opaque(&root).long(0).long(0).number(1000).number(1000)),
    ];
    for (procedure, arguments) in calls {
        for length in (0..arguments.0.len()).step_by(4) {
            let cut = Xdr(arguments.0[..length].to_vec());
            let (outcome, _) = good.call_as(NFS, 3, procedure, &cut);
            assert_eq!(outcome, 4, "procedure {procedure} cut at {length}");
        }
    }
    // Lengths of opaques beyond the record.
    let (outcome, _) = good.call_as(NFS, 3, 1, &Xdr::default().number(u32::MAX));
    assert_eq!(outcome, 4);
    let lie = Xdr::default().opaque(&file).long(0).number(1 << 30).number(0).number(1 << 30);
    assert_eq!(good.call_as(NFS, 3, 7, &lie).0, 4);
    // Other programs, versions, procedures, credentials.
    assert_eq!(good.call_as(100_000, 2, 0, &Xdr::default()).0, 1);
    let (outcome, mut versions) = good.call_as(NFS, 4, 0, &Xdr::default());
    assert_eq!((outcome, versions.number(), versions.number()), (2, 3, 3));
    assert_eq!(good.call_as(MOUNT, 1, 0, &Xdr::default()).0, 2);
    assert_eq!(good.call_as(NFS, 3, 22, &Xdr::default()).0, 3);
    assert_eq!(good.call_as(NFS, 3, u32::MAX, &Xdr::default()).0, 3);
    assert_eq!(good.call_as(MOUNT, 3, 9, &Xdr::default()).0, 3);
    let many = User { uid: 1, gid: 1, groups: (0..17).collect() };
    let mut bad = served.connect(many);
    assert_eq!(bad.call_as(NFS, 3, 1, &Xdr::default().opaque(&root)).0, u32::MAX);
    // What is no call at all.
    for record in [&b""[..], b"abc", &[0; 8], &[0, 0, 0, 1, 0, 0, 0, 1]] {
        let mut client = served.connect(User::root());
        client.send(record);
        let _ = client.socket.shutdown(Shutdown::Write);
        // A cut call has an answer that refuses it, other bytes have none.
        while client.receive().is_some() {}
    }
    good.stat(&root).unwrap();
}

#[test]
fn handles_that_were_made_up_lead_nowhere() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    let file = client.create(&root, "file", 0o600).unwrap();
    for wrong in [&b""[..], b"CNF1", &[0; 44], &[7; 64], &file[..40]] {
        assert_eq!(client.stat(wrong), Err(BADHANDLE), "{wrong:?}");
    }
    assert_eq!(client.call_as(NFS, 3, 1, &Xdr::default().opaque(&[1; 65])).0, 4);
    let with = |at: usize, value: u64| {
        let mut handle = file.clone();
        handle[at..at + 8].copy_from_slice(&value.to_be_bytes());
        handle
    };
    for (at, values) in
        [(4, &[0, 1, u64::MAX][..]), (12, &[0, 1, u64::MAX]), (20, &[1, u64::MAX]), (36, &[0, 9])]
    {
        for value in values {
            assert_eq!(client.stat(&with(at, *value)), Err(STALE), "{value} at {at}");
        }
    }
    // Objects that are no files: the master node, attributes, nothing, and numbers that there cannot be.
    for object in (0..200).chain([1 << 20, 1 << 47, 1 << 48, u64::MAX]) {
        let handle = with(28, object);
        for generation in [0, 1, u64::MAX] {
            let mut handle = handle.clone();
            handle[36..].copy_from_slice(&u64::to_be_bytes(generation));
            let told = client.stat(&handle);
            assert!(matches!(told, Err(STALE | 5)), "object {object}: {told:?}");
            assert!(client.write(&handle, 0, b"x", 0).is_err());
            assert!(client.list(&handle, 1000).is_err());
        }
    }
    assert_eq!(client.stat(&file).unwrap().size, 0);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    let long = "a".repeat(256);
    for name in ["", ".", "..", "a/b", "a\0b", &long, &"b".repeat(4000)] {
        client.create(&root, name, 0o600).expect_err(name);
        client.make_directory(&root, name, 0o700).expect_err(name);
        client.remove(&root, name).expect_err(name);
        client.remove_directory(&root, name).expect_err(name);
        client.rename((&root, name), (&root, "x")).expect_err(name);
        client.symlink(&root, name, "x").expect_err(name);
    }
    assert_eq!(client.create(&root, &long, 0o600), Err(63));
    assert_eq!(client.symlink(&root, "empty", ""), Err(22));
    assert_eq!(client.symlink(&root, "long", &"x".repeat(5000)), Err(63));
    assert_eq!(client.list(&root, 4096).unwrap().len(), 2);
    let arguments = Xdr::default().opaque(&root).long(0).long(0).number(10);
    assert_eq!(client.call(16, &arguments).err(), Some(10_005), "no room for an entry");
    assert!(client.read(&root, 0, 10).is_err());
}

#[test]
fn too_many_connections_and_clients_that_take_no_answers_are_bounded() {
    let served = Served::start();
    let (mut good, root) = served.root("fs", ALL);
    let file = good.create(&root, "file", 0o600).unwrap();
    good.write(&file, 0, &vec![5; 1 << 20], 0).unwrap();
    // One that asks and does not listen.
    let mut deaf = served.connect(User::root());
    let mut record = deaf.head(1, NFS, 3, 6);
    record.0.extend_from_slice(&Xdr::default().opaque(&file).long(0).number(1 << 20).0);
    let mut bytes = (record.0.len() as u32 | 1 << 31).to_be_bytes().to_vec();
    bytes.extend_from_slice(&record.0);
    deaf.socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..200 {
        if deaf.socket.write_all(&bytes).is_err() {
            break;
        }
    }
    good.stat(&root).unwrap();
    let many: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(served.address).ok()).collect();
    good.stat(&root).unwrap();
    drop(many);
    // There is room again, soon.
    let began = Instant::now();
    loop {
        let mut late = served.connect(User::root());
        let record = late.head(9, NFS, 3, 0);
        let head = (record.0.len() as u32 | 1 << 31).to_be_bytes();
        let sent = late.socket.write_all(&head).and_then(|()| late.socket.write_all(&record.0));
        if sent.is_ok() && late.receive().is_some() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no room for a connection");
        std::thread::sleep(Duration::from_millis(20));
    }
}
