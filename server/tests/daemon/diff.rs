//! Comparisons of files, whose answers come in parts.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use device::block_on;
use server::api::{CompareFiles, DiffPart, ErrorKind, ExportPool, FileChange};

use crate::harness::{Running, golden, import_request};

fn request() -> CompareFiles {
    CompareFiles { from: "single/fs@one".into(), to: Some("@two".into()) }
}

/// A daemon with a pool that is not mounted.
fn start() -> Option<Running> {
    let golden = golden("single")?;
    let running = Running::start();
    let mut import = import_request("single", &golden.dir, &running.altroot());
    import.no_mount = true;
    block_on(running.daemon.import(import)).unwrap();
    Some(running)
}

/// What is sent until `most` parts came.
fn parts(running: &Running, most: usize) -> Vec<DiffPart> {
    let comparison = block_on(running.daemon.compare_files(&request())).unwrap();
    let mut parts = Vec::new();
    comparison.run(|part| {
        parts.push(part);
        parts.len() < most
    });
    parts
}

fn changes(parts: &[DiffPart]) -> Vec<FileChange> {
    let changes = parts.iter().filter_map(|part| match part {
        DiffPart::Changes(changes) => Some(changes.clone()),
        _ => None,
    });
    changes.flatten().collect()
}

#[test]
fn an_answer_is_whole_with_its_last_part() {
    let Some(running) = start() else { return };
    let all = parts(&running, usize::MAX);
    assert!(
        matches!(&all[0], DiffPart::Begun { from, to } if from == "single/fs@one" && to == "single/fs@two")
    );
    assert!(matches!(all.last(), Some(DiffPart::Complete)), "{all:?}");
    assert!(!changes(&all).is_empty());
    let cut = parts(&running, 1);
    assert_eq!(cut.len(), 1, "a client that went away is sent nothing more");
}

#[test]
fn a_comparison_ends_with_its_pool_and_they_are_bounded() {
    let Some(running) = start() else { return };
    let mut waiting = Vec::new();
    let refused = loop {
        match block_on(running.daemon.compare_files(&request())) {
            Ok(comparison) => waiting.push(comparison),
            Err(error) => break error,
        }
        assert!(waiting.len() < 1000, "nothing bounds them");
    };
    assert_eq!(refused.kind, ErrorKind::Busy);
    let all = ExportPool { all: true, ..ExportPool::default() };
    block_on(running.daemon.export(all)).unwrap();
    for comparison in waiting {
        block_on(comparison.lent().ended());
        let mut parts = Vec::new();
        comparison.run(|part| {
            parts.push(part);
            true
        });
        assert!(matches!(parts[..], [DiffPart::Begun { .. }]), "{parts:?}");
    }
}

/// The answer over the socket: the status, and the parts.
fn asked(socket: &std::path::Path, body: &str) -> (String, Vec<DiffPart>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = "POST /v1/diff HTTP/1.0\r\nHost: cenote\r\nContent-Length:";
    stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap_or_default().to_owned();
    (status, body.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[test]
fn parts_are_lines_of_an_answer_and_refusals_have_their_status() {
    let Some(running) = start() else { return };
    let api = running.serve_api();
    let (status, sent) = asked(&api.socket, r#"{"from": "single/fs@one", "to": "@two"}"#);
    assert!(status.ends_with("200 OK"), "{status}");
    assert_eq!(changes(&sent), changes(&parts(&running, usize::MAX)));
    assert!(matches!(sent.last(), Some(DiffPart::Complete)));
    let (status, sent) = asked(&api.socket, r#"{"from": "single/none@one"}"#);
    assert!(status.contains(" 404 ") && sent.is_empty(), "{status}");
    api.end();
}
