//! States of open pools that programs read from the devices themselves.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use device::block_on;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, import, select};
use engine::pool::verify::{Progress, VerifyOptions, verify};
use ondisk::uberblock::Uberblock;
use server::api::{ErrorKind, ExportPool, HeldView, HoldView, SyncPools};

use crate::harness::Running;
use crate::nbd_client::Client;
use crate::volumes::{MEBIBYTE, new_volume};

/// How long a connection that was closed may take to be noticed.
const LIMIT: Duration = Duration::from_secs(60);

fn ask(pool: &str) -> HoldView {
    HoldView { pool: pool.into() }
}

/// Overwrites the volume of 8 MiB and commits that, so many times.
fn overwrite(running: &Running, rounds: u8) {
    let mut client = Client::connect(&running.place.path().join("nbd.sock"), "tank/vol");
    for round in 1..=rounds {
        let byte = |at: u64| (at as u8).wrapping_mul(37) ^ (at >> 8) as u8 ^ round;
        let bytes: Vec<u8> = (0..MEBIBYTE).map(byte).collect();
        for at in 0..8 {
            assert_eq!(client.write(at * MEBIBYTE, &bytes, 0), 0);
        }
        block_on(running.daemon.sync_pools(SyncPools::default())).unwrap();
    }
}

/// Whether every block of a state that was told of can be read from the devices, and the space maps fit.
fn is_whole(told: &HeldView) -> bool {
    let state = block_on(async {
        let found = select(discovery::scan(&told.devices).await.unwrap(), &told.guid.to_string()).unwrap();
        let at = Some(Uberblock::parse(&told.uberblock).unwrap());
        import(&found, &ImportOptions { at, ..ImportOptions::read_only() }).await
    });
    let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
    state.is_ok_and(|pool| verify(&pool, options, &Progress::default()).is_ok_and(|report| report.is_clean()))
}

#[test]
fn a_state_that_is_held_stays_readable_while_the_pool_is_written() {
    let running = Running::start();
    new_volume(&running);
    overwrite(&running, 1);
    let (told, lent) = running.daemon.hold_view(&ask("tank")).unwrap();
    assert_eq!((told.name.as_str(), told.devices.clone()), ("tank", vec![running.place.path().join("disk")]));
    // Half of what is free may wait for it.
    overwrite(&running, 5);
    assert!(is_whole(&told));
    // More than the pool has room for beside it: a program that takes its time does not fill the pool.
    overwrite(&running, 16);
    block_on(lent.ended());
    assert!(!is_whole(&told), "nothing was used again: this test shows nothing");
}

#[test]
fn views_end_with_their_pool_and_are_bounded() {
    let running = Running::start();
    new_volume(&running);
    assert_eq!(running.daemon.hold_view(&ask("none")).unwrap_err().kind, ErrorKind::NotFound);
    let mut held = Vec::new();
    let refused = loop {
        match running.daemon.hold_view(&ask("tank")) {
            Ok((_, lent)) => held.push(lent),
            Err(error) => break error,
        }
        assert!(held.len() < 1000, "nothing bounds them");
    };
    assert_eq!(refused.kind, ErrorKind::Busy);
    held.pop();
    held.push(running.daemon.hold_view(&ask("tank")).unwrap().1);
    let all = ExportPool { all: true, ..ExportPool::default() };
    block_on(running.daemon.export(all)).unwrap();
    held.into_iter().for_each(|lent| block_on(lent.ended()));
}

/// A connection that holds a view, and its answer as far as it came.
fn hold_over(socket: &PathBuf) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let body = r#"{"pool": "tank"}"#;
    let head =
        format!("POST /v1/pool-view HTTP/1.1\r\nHost: cenote\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    while !answer.contains("}\n") && !answer.contains("\"message\"") {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).unwrap();
        assert_ne!(read, 0, "{answer}");
        answer += std::str::from_utf8(&part[..read]).unwrap();
    }
    (stream, answer)
}

#[test]
fn a_client_that_goes_away_holds_nothing_and_the_end_waits_for_none() {
    let running = Running::start();
    new_volume(&running);
    let api = running.serve_api();
    let mut held = Vec::new();
    loop {
        let (stream, answer) = hold_over(&api.socket);
        if answer.starts_with("HTTP/1.1 409") {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        held.push(stream);
    }
    drop(held);
    let began = Instant::now();
    let kept = loop {
        let (stream, answer) = hold_over(&api.socket);
        if answer.starts_with("HTTP/1.1 200") {
            break stream;
        }
        assert!(began.elapsed() < LIMIT, "{answer}");
    };
    // The end does not wait for who still holds one.
    api.end();
    drop(kept);
}
