//! The files of the page, the API, and the feed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::json;
use server::api::{DashboardRole, RemoveDashboardUser};

use crate::harness::{Browser, LIMIT, Served};

#[test]
fn files_are_sent_compressed_and_once() {
    let served = Served::start();
    let browser = Browser::new(served.address);
    for (path, media) in [
        ("/", "text/html; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/app.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let plain = browser.get(path);
        assert_eq!((plain.status, plain.header("content-type")), (200, Some(media)), "{path}");
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(plain.header("cache-control"), Some("no-cache"));
        let etag = plain.header("etag").unwrap();
        let known = browser.send("GET", path, &[("If-None-Match", etag)], b"");
        assert_eq!((known.status, known.body.len()), (304, 0), "{path}");
        let changed = browser.send("GET", path, &[("If-None-Match", "\"old\"")], b"");
        assert_eq!(changed.status, 200);
        let gzip = browser.send("GET", path, &[("Accept-Encoding", "gzip, br")], b"");
        assert_eq!(gzip.header("content-encoding"), Some("gzip"), "{path}");
        let mut room = vec![0; plain.body.len()];
        let length = libdeflater::Decompressor::new().gzip_decompress(&gzip.body, &mut room).unwrap();
        assert_eq!(room[..length], plain.body[..]);
        let head = browser.send("HEAD", path, &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0));
    }
}

#[test]
fn actions_are_answered_as_on_the_socket() {
    let served = Served::start();
    let admin = served.admin();
    let hello = admin.act("hello", &json!({}));
    assert_eq!((hello.status, &hello.json()["pid"]), (200, &std::process::id().into()));
    let missing = admin.act("pool-export", &json!({ "pools": ["none"] }));
    assert_eq!((missing.status, missing.json()["kind"].as_str()), (404, Some("not-found")));
    assert_eq!(admin.act("no-such-action", &json!({})).status, 404);
    assert_eq!(admin.send("POST", "/v1/hello", &[], b"{").status, 400);
    assert_eq!(admin.get("/v1/hello").status, 404);
    let lines = served.audit();
    let export = lines.iter().find(|line| line.action == "pool-export").unwrap();
    assert_eq!((export.role.as_deref(), export.from.as_deref()), (Some("admin"), Some("127.0.0.1")));
}

#[test]
fn the_disks_of_the_machine_are_listed() {
    let served = Served::start();
    let operator = served.browser_of("olga", DashboardRole::Operator);
    let listed = operator.act("disk-list", &json!({ "smart": true }));
    assert_eq!(listed.status, 200, "{listed:?}");
    for disk in listed.json().as_array().unwrap() {
        assert!(
            disk["size"].as_u64().unwrap() > 0 && disk["path"].as_str().unwrap().starts_with("/dev/"),
            "{disk}"
        );
    }
    let viewer = served.browser_of("vic", DashboardRole::Viewer);
    assert_eq!(viewer.act("disk-list", &json!({})).status, 422);
}

/// A follower of the feed, by a request in full.
fn follow(browser: &Browser, request: &[u8]) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(browser.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request).unwrap();
    BufReader::new(stream)
}

/// Reads to a line with this in it.
fn until(feed: &mut BufReader<TcpStream>, text: &str) -> String {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(feed.read_line(&mut line).unwrap() > 0, "the feed ended before '{text}'");
    }
    line
}

#[test]
fn the_feed_is_followed_and_ends_with_the_session() {
    let served = Served::start();
    let browser = served.browser_of("ann", DashboardRole::Viewer);
    let json = [("Content-Type", "application/json")];
    let mut feed = follow(&browser, &browser.request("POST", "/v1/follow", &json, b"{}"));
    until(&mut feed, "text/event-stream");
    until(&mut feed, "event: snapshot");
    let id = until(&mut feed, "id: ").trim().trim_start_matches("id: ").to_owned();
    // One that comes back gets no snapshot.
    let with = [("Content-Type", "application/json"), ("Last-Event-ID", id.as_str())];
    let mut again = follow(&browser, &browser.request("POST", "/v1/follow", &with, b"{}"));
    assert_eq!(until(&mut again, "id: ").trim(), format!("id: {id}"));
    let mut by_get = follow(&browser, &browser.request("GET", "/v1/events", &[], b""));
    until(&mut by_get, "event: snapshot");
    served.as_root(&RemoveDashboardUser { name: "ann".into() }).unwrap();
    for feed in [&mut feed, &mut again, &mut by_get] {
        let mut rest = Vec::new();
        // It ends, whether in order or not.
        let _ = feed.read_to_end(&mut rest);
    }
    assert_eq!(browser.get("/session").status, 401);
}

#[test]
fn a_session_follows_only_so_much_at_once() {
    let served = Served::start();
    let browser = served.admin();
    let mut all = Vec::new();
    let refused = loop {
        let mut feed = follow(&browser, &browser.request("POST", "/v1/follow", &[], b"{}"));
        let mut line = String::new();
        feed.read_line(&mut line).unwrap();
        if !line.contains("200") {
            break line;
        }
        all.push(feed);
        assert!(all.len() < 100);
    };
    assert!(refused.contains("409"), "{refused}");
    assert!(all.len() >= 8, "{}", all.len());
}
