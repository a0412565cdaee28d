//! Where volumes are served, as a user is told.

use std::fs::File;
use std::net::TcpListener;

use crate::session::Session;

/// A pool with a volume `p/v`.
fn create(session: &Session) {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "create", "-O", "mountpoint=none", "p", disk.to_str().unwrap()]);
    session.print(&["zfs", "create", "-s", "-V", "8M", "p/v"]);
}

#[test]
fn a_listener_that_must_wait_for_its_address_costs_no_pool_and_says_what_it_waits_for() {
    // Nothing has the address; the port is another program's; a name and a file are not there.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let session = Session::start_serving(&[
        "--iscsi",
        "203.0.113.5:3260",
        "--iscsi",
        "127.0.0.1:0",
        "--nbd-tcp",
        &port,
        "--metrics",
        "203.0.113.5:9134",
        "--tls-certificate",
        "/nonexistent/certificate",
        "--tls-key",
        "/nonexistent/key",
    ]);
    create(&session);
    let shares = session.print(&["shares"]);
    let of = |protocol: &str| shares.lines().find(|line| line.contains(protocol)).unwrap().to_owned();
    assert!(of("iscsi").contains("not listening: 203.0.113.5:3260"), "{shares}");
    assert!(of("iscsi").contains("iscsi://127.0.0.1:"), "the other portal is served: {shares}");
    assert!(of("nbd").contains("/nonexistent/"), "nothing without TLS: {shares}");
    let json: serde_json::Value = serde_json::from_str(&session.print(&["shares", "--json"])).unwrap();
    let through = &json["volumes"][0]["through"];
    let iscsi = through.as_array().unwrap().iter().find(|one| one["protocol"] == "iscsi").unwrap();
    assert_eq!(iscsi["uris"].as_array().unwrap().len(), 1, "{json}");
    assert!(iscsi["not_listening"][0].as_str().unwrap().starts_with("203.0.113.5:3260: "), "{json}");
    session.stop();
}

#[test]
fn a_share_that_no_client_could_have_is_refused() {
    let session = Session::start();
    create(&session);
    for (option, value, told) in [
        ("--target", "a b", "'a b' is no name of a target"),
        ("--target", "", "'' is no name of a target"),
        ("--initiator", "", "'' is no name of an initiator"),
        ("--initiator", "iqn.a,iqn.b", "'iqn.a,iqn.b' is no name of an initiator"),
        ("--address", "a)", "'a)' is no address or network"),
    ] {
        let ended = session.run(&["share", "p/v", "iscsi", option, value]);
        assert!(ended.code != 0 && ended.err.contains(told), "{option} '{value}': {ended:?}");
    }
    assert!(session.print(&["shares", "p/v"]).contains("nbd"), "it is shared as before");
    session.stop();
}
