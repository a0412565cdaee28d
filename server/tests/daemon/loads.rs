//! Load that the daemon puts on volumes by itself.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use device::block_on;
use server::api::{
    ApiError, ErrorKind, ExportPool, Load, Loaded, RunLoad, SetProperties, SizeShare, TakeTrace, Traced,
    TracedOperation,
};
use server::daemon::Daemon;
use server::http::{self, ApiSocket};
use tokio::sync::oneshot;

use crate::harness::Running;
use crate::nbd_client::Client;
use crate::volumes::{MEBIBYTE, new_volume};

const SECTOR: usize = 512;

fn start() -> Running {
    let running = Running::start_as(Daemon::default().taking_loads(true));
    new_volume(&running);
    running
}

/// Sequential writes of all of the volume.
fn writes() -> Load {
    Load {
        is_random: false,
        read_percent: 0,
        block_bytes: 64 << 10,
        read_sizes: Vec::new(),
        write_sizes: Vec::new(),
        extent_bytes: 8 * MEBIBYTE,
        offset_increment_bytes: 0,
        depth: 4,
        clients: 1,
        flush_every: 0,
        zipf: None,
        compressible_percent: 0,
        seconds: 0.2,
        ramp_seconds: 0.0,
        step_ms: 0,
        seed: 1,
    }
}

fn run(running: &Running, load: Load) -> Result<Loaded, ApiError> {
    block_on(running.daemon.run_load(RunLoad { volume: "tank/vol".into(), load }))
}

/// What was asked of the volume since the last look.
fn trace(running: &Running) -> Traced {
    running.daemon.take_trace(TakeTrace { volume: "tank/vol".into(), stop: false }).unwrap()
}

#[test]
fn what_is_said_to_be_written_is_there_and_nothing_else() {
    let running = start();
    let load = Load { extent_bytes: 5 * MEBIBYTE, compressible_percent: 50, ..writes() };
    let loaded = run(&running, load).unwrap();
    let blocks = loaded.writes.requests.min((5 * MEBIBYTE) >> 16);
    assert!(blocks > 0 && loaded.writes.bytes == loaded.writes.requests << 16, "{loaded:?}");
    let mut client = Client::connect(&running.place.path().join("nbd.sock"), "tank/vol");
    let mut sectors = BTreeSet::new();
    for offset in (0..8 * MEBIBYTE).step_by(1 << 20) {
        assert_eq!(client.read(offset, 1 << 20), 0);
        for (number, sector) in client.bytes.chunks(SECTOR).enumerate() {
            let zeroes = sector.iter().filter(|byte| **byte == 0).count();
            if offset + (number * SECTOR) as u64 >= blocks << 16 {
                assert_eq!(zeroes, SECTOR, "nothing was written there");
                continue;
            }
            assert!((SECTOR / 2..SECTOR / 2 + 16).contains(&zeroes), "{zeroes}");
            assert!(sectors.insert(sector.to_vec()), "no two are alike");
        }
    }
    assert_eq!(sectors.len() as u64, (blocks << 16) / SECTOR as u64);
}

#[test]
fn what_is_told_is_what_the_volume_was_asked_for() {
    let running = start();
    run(&running, writes()).unwrap();
    trace(&running);
    let load = Load {
        is_random: true,
        read_percent: 60,
        block_bytes: 4096,
        write_sizes: [4096, 8192].map(|bytes| SizeShare { bytes, percent: 50 }).to_vec(),
        extent_bytes: 2 * MEBIBYTE,
        offset_increment_bytes: 3 * MEBIBYTE,
        depth: 16,
        clients: 3,
        flush_every: 5,
        zipf: Some(1.1),
        ..writes()
    };
    let loaded = run(&running, load).unwrap();
    let traced = trace(&running);
    assert_eq!(traced.lost, 0);
    let of = |operation| {
        let its = traced.requests.iter().filter(|request| request.operation == operation);
        // Three clients, with a gap of a mebibyte between each two.
        its.clone().for_each(|it| {
            let (first, last) = (it.offset / MEBIBYTE, (it.offset + it.length.max(1) - 1) / MEBIBYTE);
            assert!(it.offset % 4096 == 0 && last < 8 && ![2, 5].contains(&first) && ![2, 5].contains(&last));
        });
        (its.clone().count() as u64, its.map(|request| request.length).sum::<u64>())
    };
    assert_eq!(of(TracedOperation::Read), (loaded.reads.requests, loaded.reads.bytes));
    assert_eq!(of(TracedOperation::Write), (loaded.writes.requests, loaded.writes.bytes));
    let (reads, writes) = (&loaded.reads, &loaded.writes);
    assert_eq!(reads.bytes, reads.requests * 4096);
    assert!((writes.requests * 5000..writes.requests * 7500).contains(&writes.bytes), "{loaded:?}");
    // Each client flushes at its end.
    assert_eq!(of(TracedOperation::Flush).0, loaded.flushes.requests + 3);
    let (writes, flushes) = (loaded.writes.requests, loaded.flushes.requests);
    assert!(flushes > 0 && (flushes * 5..flushes * 5 + 3 * 5 + 1).contains(&writes), "{loaded:?}");
    assert!(loaded.reads.requests > writes / 2 && loaded.reads.p50_ns > 0, "{loaded:?}");
    assert!(loaded.elapsed_ns >= 200_000_000, "{loaded:?}");
}

#[test]
fn loads_are_refused_where_they_make_no_sense_or_nobody_allowed_them() {
    let running = start();
    let kind = |volume: &str, load: Load| {
        let error = block_on(running.daemon.run_load(RunLoad { volume: volume.into(), load })).unwrap_err();
        (error.kind, error.message)
    };
    for (volume, load, expected) in [
        ("tank/none", writes(), ErrorKind::NotFound),
        ("none/vol", writes(), ErrorKind::NotFound),
        ("tank/vol", Load { extent_bytes: 8 * MEBIBYTE + 512, ..writes() }, ErrorKind::Invalid),
        ("tank/vol", Load { depth: 100_000, ..writes() }, ErrorKind::Invalid),
    ] {
        let (kind, message) = kind(volume, load);
        assert_eq!(kind, expected, "{message}");
    }
    let properties = vec![("readonly".to_owned(), "on".to_owned())];
    let set = SetProperties { datasets: vec!["tank/vol".into()], properties, ..SetProperties::default() };
    block_on(running.daemon.set_properties(set)).unwrap();
    let (kind, message) = kind("tank/vol", Load { clients: 4, seconds: 3600.0, ..writes() });
    assert!(kind == ErrorKind::Failed && message.contains("read-only"), "{message}");
    drop(running);

    let other = Running::start();
    new_volume(&other);
    let error = run(&other, writes()).unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("--take-loads"), "{error}");
}

/// The API of a daemon, on a socket.
fn serve_api(running: &Running) -> (oneshot::Sender<()>, thread::JoinHandle<()>, std::path::PathBuf) {
    let path = running.place.path().join("api.sock");
    let (daemon, at) = (Arc::clone(&running.daemon), path.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = ApiSocket::bind(&at).await.unwrap();
            ready.send(()).unwrap();
            let stopped = async move { drop(stopped.await) };
            http::serve(socket, daemon, stopped).await.unwrap();
        });
    });
    is_ready.recv().unwrap();
    (stop, thread, path)
}

fn ask(socket: &std::path::Path, load: Load) -> UnixStream {
    let body = serde_json::to_string(&RunLoad { volume: "tank/vol".into(), load }).unwrap();
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!(
        "POST /v1/volume-load HTTP/1.1\r\nHost: cenote\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
    stream
}

#[test]
fn a_load_ends_with_whoever_asked_for_it() {
    let running = start();
    let (stop, thread, socket) = serve_api(&running);
    let mut answer = String::new();
    ask(&socket, writes()).read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert!(serde_json::from_str::<Loaded>(body).unwrap().writes.requests > 0, "{answer}");

    let export = || {
        block_on(running.daemon.export(ExportPool { pools: vec!["tank".into()], ..ExportPool::default() }))
    };
    trace(&running);
    let stream = ask(&socket, Load { is_random: true, clients: 4, seconds: 3600.0, ..writes() });
    while trace(&running).requests.is_empty() {
        thread::yield_now();
    }
    assert_eq!(export().unwrap_err().kind, ErrorKind::Busy, "it has a client");
    drop(stream);
    // An attempt waits for clients that are leaving.
    let ended = (0..60).any(|_| export().is_ok());
    assert!(ended, "the load goes on");
    drop(stop);
    thread.join().unwrap();
}
