//! The feed of changes, as clients follow it: from a snapshot on, slowly, killed, resumed, many at once.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use device::block_on;
use serde_json::Value;
use server::api::{
    CreateDataset, DestroyDataset, ExportPool, RenameDataset, SetProperties, SyncPools, TakeSnapshots,
};

use crate::harness::Running;
use crate::volumes::{MEBIBYTE, new_volume};

/// How long a message may take that must come.
const LIMIT: Duration = Duration::from_secs(60);

/// A client, reading what the daemon sends.
pub struct Follower {
    stream: UnixStream,
    /// As it came.
    raw: Vec<u8>,
    /// Without the lengths of chunks.
    text: Vec<u8>,
    /// The id of the last message that had one.
    id: String,
}

/// A message: its name, and its data.
pub type Message = (String, Value);

/// Takes what comes before a mark, and the mark, out of what came.
fn take_until(bytes: &mut Vec<u8>, mark: &[u8]) -> Option<String> {
    let at = bytes.windows(mark.len()).position(|part| part == mark)?;
    let taken: Vec<u8> = bytes.drain(..at + mark.len()).take(at).collect();
    Some(String::from_utf8(taken).unwrap())
}

impl Follower {
    /// Begins, after the message with this id if one is given.
    pub fn begin(socket: &Path, after: Option<&str>) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let last = after.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let head = format!("GET /v1/events HTTP/1.1\r\nHost: cenote\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut follower = Self { stream, raw: Vec::new(), text: Vec::new(), id: String::new() };
        let head = loop {
            match take_until(&mut follower.raw, b"\r\n\r\n") {
                Some(head) => break head,
                None => assert!(follower.read(), "the daemon answers nothing"),
            }
        };
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        follower
    }

    /// Reads more. Whether there was any.
    fn read(&mut self) -> bool {
        let mut part = [0; 65_536];
        let length = self.stream.read(&mut part).unwrap();
        self.raw.extend_from_slice(&part[..length]);
        length > 0
    }

    /// What comes before the end of the next message. `None` at the end of all.
    fn next_text(&mut self) -> Option<String> {
        loop {
            if let Some(text) = take_until(&mut self.text, b"\n\n") {
                return Some(text);
            }
            let line = self.raw.windows(2).position(|part| part == b"\r\n");
            let length = line.map(|end| {
                let digits = std::str::from_utf8(&self.raw[..end]).unwrap();
                (end + 2, usize::from_str_radix(digits, 16).unwrap())
            });
            match length {
                Some((_, 0)) => return None,
                Some((begin, length)) if self.raw.len() >= begin + length + 2 => {
                    self.text.extend_from_slice(&self.raw[begin..begin + length]);
                    self.raw.drain(..begin + length + 2);
                }
                _ if !self.read() => return None,
                _ => {}
            }
        }
    }

    /// The next message. `None` at the end of all.
    pub fn next(&mut self) -> Option<Message> {
        loop {
            let text = self.next_text()?;
            let (mut name, mut data) = (None, Value::Null);
            for line in text.lines() {
                match line.split_once(": ") {
                    Some(("event", word)) => name = Some(word.to_owned()),
                    Some(("data", json)) => data = serde_json::from_str(json).unwrap(),
                    Some(("id", id)) => id.clone_into(&mut self.id),
                    _ => {}
                }
            }
            if let Some(name) = name {
                return Some((name, data));
            }
        }
    }

    /// The next message that is no event and has no figures.
    fn next_change(&mut self) -> Message {
        loop {
            let message = self.next().expect("the feed ended");
            if !matches!(message.0.as_str(), "event" | "figures") {
                return message;
            }
        }
    }

    /// The next change of a kind.
    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let (name, data) = self.next_change();
            if name == "change" && data["kind"] == kind {
                return data;
            }
        }
    }
}

fn create(running: &Running, name: &str) {
    let request = CreateDataset { name: name.into(), no_mount: true, ..CreateDataset::default() };
    block_on(running.daemon.create_dataset(request)).unwrap();
}

fn rename(running: &Running, from: &str, to: &str) {
    let request =
        RenameDataset { from: from.into(), to: to.into(), no_remount: true, ..RenameDataset::default() };
    block_on(running.daemon.rename_dataset(request)).unwrap();
}

fn snapshot(running: &Running, name: &str) {
    let request = TakeSnapshots { names: vec![name.into()], ..TakeSnapshots::default() };
    block_on(running.daemon.take_snapshots(request)).unwrap();
}

#[test]
fn a_client_begins_with_the_state_and_gets_each_change_after_it_once() {
    let running = Running::start();
    new_volume(&running);
    let api = running.serve_api();
    let mut follower = Follower::begin(&api.socket, None);
    let (name, state) = follower.next_change();
    assert_eq!(name, "snapshot");
    let pool = &state["pools"][0];
    assert_eq!((&pool["pool"], &pool["state"]), (&"tank".into(), &"ONLINE".into()), "{state}");
    let datasets: Vec<(&str, Option<u64>)> = pool["datasets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dataset| (dataset["name"].as_str().unwrap(), dataset["volume_bytes"].as_u64()))
        .collect();
    assert_eq!(datasets, [("tank", None), ("tank/vol", Some(8 * MEBIBYTE))]);

    create(&running, "tank/a");
    let created = follower.next_of("created");
    assert_eq!((&created["name"], &created["pool"]), (&"tank/a".into(), &"tank".into()), "{created}");
    assert!(created["txg"].as_u64().unwrap() > pool["txg"].as_u64().unwrap());
    let after_created = follower.id.clone();
    rename(&running, "tank/a", "tank/b");
    snapshot(&running, "tank/b@one");
    let set = SetProperties {
        datasets: vec!["tank/vol".into()],
        properties: vec![("volsize".into(), "16M".into())],
        ..SetProperties::default()
    };
    assert!(block_on(running.daemon.set_properties(set)).unwrap().failed.is_empty());
    let destroy = DestroyDataset { name: "tank/b@one".into(), ..DestroyDataset::default() };
    block_on(running.daemon.destroy_dataset(destroy)).unwrap();
    let expect_rest = |follower: &mut Follower| {
        let renamed = follower.next_of("renamed");
        assert_eq!((&renamed["from"], &renamed["to"]), (&"tank/a".into(), &"tank/b".into()));
        assert_eq!(renamed["guid"], created["guid"]);
        let taken = follower.next_of("created");
        assert_eq!(taken["name"], "tank/b@one");
        assert_eq!(follower.next_of("resized")["bytes"], 16 * MEBIBYTE);
        let gone = follower.next_of("destroyed");
        assert_eq!((&gone["name"], &gone["guid"]), (&"tank/b@one".into(), &taken["guid"]));
    };
    expect_rest(&mut follower);
    // One that comes back gets what came after, and nothing before.
    expect_rest(&mut Follower::begin(&api.socket, Some(&after_created)));
    // An id of another daemon, and one that makes no sense, is told so.
    for id in ["0-1", "nonsense", ""] {
        let mut follower = Follower::begin(&api.socket, Some(id));
        let (name, data) = follower.next_change();
        assert_eq!((name.as_str(), &data["why"]), ("missed", &"restarted".into()), "{id}");
        assert_eq!(follower.next_change().0, "snapshot");
    }
    let (epoch, _) = after_created.split_once('-').unwrap();
    let mut ahead = Follower::begin(&api.socket, Some(&format!("{epoch}-99999999")));
    assert_eq!(ahead.next_change().1["why"], "too-old");

    let all = ExportPool { all: true, ..ExportPool::default() };
    block_on(running.daemon.export(all)).unwrap();
    follower.next_of("closed");
    api.end();
    let last = std::iter::from_fn(|| follower.next()).last().unwrap();
    assert_eq!(last.0, "end");
}

#[test]
fn figures_come_when_something_was_written_and_name_what_was() {
    let running = Running::start();
    new_volume(&running);
    let api = running.serve_api();
    let mut follower = Follower::begin(&api.socket, None);
    assert_eq!(follower.next_change().0, "snapshot");
    let socket = running.place.path().join("nbd.sock");
    let mut client = crate::nbd_client::Client::connect(&socket, "tank/vol");
    let began = Instant::now();
    loop {
        assert_eq!(client.write(0, &vec![began.elapsed().subsec_nanos() as u8; 65_536], 0), 0);
        block_on(running.daemon.sync_pools(SyncPools::default())).unwrap();
        let (name, data) = follower.next().unwrap();
        let is_told = name == "figures"
            && data[0]["datasets"].as_array().unwrap().iter().any(|dataset| {
                dataset["name"] == "tank/vol" && dataset["referenced_bytes"].as_u64().unwrap() > 0
            });
        if is_told {
            assert!(
                data[0]["allocated_bytes"].as_u64().unwrap() > 0
                    && data[0]["free_bytes"].as_u64().unwrap() > 0
            );
            break;
        }
        assert!(began.elapsed() < LIMIT, "no figures of the volume come");
    }
    drop(client);
    drop(follower);
    api.end();
}

#[test]
fn many_clients_at_once_get_all_and_those_that_are_killed_leave_nothing() {
    const CLIENTS: usize = 200;
    let running = Running::start();
    new_volume(&running);
    let api = running.serve_api();
    // The daemon's ends of connections have the name of the socket.
    let connections = || {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().filter(|line| line.ends_with(api.socket.to_str().unwrap())).count()
    };
    let before = connections();
    let mut followers: Vec<Follower> = (0..CLIENTS).map(|_| Follower::begin(&api.socket, None)).collect();
    for follower in &mut followers {
        assert_eq!(follower.next_change().0, "snapshot");
    }
    create(&running, "tank/a");
    for follower in &mut followers {
        assert_eq!(follower.next_of("created")["name"], "tank/a");
    }
    assert_eq!(connections(), before + CLIENTS);
    drop(followers);
    // Nothing changes, and so nothing is sent: that they are gone is seen by itself.
    let began = Instant::now();
    while connections() > before {
        assert!(began.elapsed() < LIMIT, "connections of clients that are gone are kept");
        thread::yield_now();
    }
    api.end();
}

/// How often a client saw each rename, and whether it was told that it missed some.
#[derive(Debug, Default)]
struct Account {
    seen: BTreeMap<String, usize>,
    missed: bool,
}

impl Account {
    fn note(&mut self, (name, data): &Message) {
        match name.as_str() {
            "missed" => self.missed = true,
            "change" if data["kind"] == "renamed" => {
                *self.seen.entry(data["to"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Each once, or told.
    fn check(&self, who: &str, renames: usize) {
        assert!(self.seen.values().all(|count| *count == 1), "{who}: {:?}", self.seen);
        assert!(self.missed || self.seen.len() == renames, "{who}: {} of {renames}", self.seen.len());
    }
}

/// Reads until the dataset has its last name, going away and coming back after every `patience` messages.
fn follow_to_the_end(socket: &Path, last: &str, patience: usize) -> Account {
    let mut account = Account::default();
    let mut follower = Follower::begin(socket, None);
    let mut count = 0;
    loop {
        let message = follower.next().expect("the feed ended");
        account.note(&message);
        let (name, data) = &message;
        let is_in = |name: &Value| name == last;
        let is_last = match name.as_str() {
            "change" => is_in(&data["to"]),
            "snapshot" => {
                data["pools"][0]["datasets"].as_array().unwrap().iter().any(|one| is_in(&one["name"]))
            }
            _ => false,
        };
        if is_last {
            return account;
        }
        count += 1;
        // The snapshot behind it has the id to come back with.
        if count % patience == 0 && name != "missed" {
            let id = follower.id.clone();
            drop(follower);
            follower = Follower::begin(socket, Some(&id));
        }
    }
}

#[test]
fn clients_that_leave_before_their_snapshot_give_their_places_back() {
    let running = Running::start();
    new_volume(&running);
    let api = running.serve_api();
    for _ in 0..3000 {
        // It comes back with an id that no daemon gave, is told so, and goes.
        let mut follower = Follower::begin(&api.socket, Some("0-1"));
        assert_eq!(follower.next().unwrap().0, "missed");
    }
    api.end();
}

#[test]
fn clients_that_are_slow_killed_or_come_back_miss_nothing_or_are_told() {
    const RENAMES: usize = 60;
    /// Properties that are set between two renames: enough that the ring does not keep all.
    const PROPERTIES: usize = 60;
    let running = Running::start();
    new_volume(&running);
    let api = running.serve_api();
    create(&running, "tank/n0");
    let last = format!("tank/n{RENAMES}");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (socket, last) = (&api.socket, &last);
        let steady = scope.spawn(|| follow_to_the_end(socket, last, usize::MAX));
        let resuming: Vec<_> = [1, 7, 50]
            .into_iter()
            .map(|patience| scope.spawn(move || follow_to_the_end(socket, last, patience)))
            .collect();
        // One that does not read until all is over.
        let mut slow = Follower::begin(socket, None);
        // Some that are killed in the middle, again and again.
        let killed = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut follower = Follower::begin(socket, None);
                for _ in 0..5 {
                    follower.next().unwrap();
                }
            }
        });
        for number in 0..RENAMES {
            let (from, to) = (format!("tank/n{number}"), format!("tank/n{}", number + 1));
            let properties =
                (0..PROPERTIES).map(|property| (format!("test:p{property}"), format!("{number}"))).collect();
            let set = SetProperties { datasets: vec![from.clone()], properties, ..SetProperties::default() };
            assert!(block_on(running.daemon.set_properties(set)).unwrap().failed.is_empty());
            rename(&running, &from, &to);
        }
        is_over.store(true, Ordering::Relaxed);
        // So that the one that is killed gets its messages.
        for number in 0.. {
            if killed.is_finished() {
                break;
            }
            snapshot(&running, &format!("{last}@{number}"));
        }
        let account = steady.join().unwrap();
        account.check("steady", RENAMES);
        for resumed in resuming {
            resumed.join().unwrap().check("resuming", RENAMES);
        }
        killed.join().unwrap();
        let mut account = Account::default();
        loop {
            let message = slow.next().unwrap();
            account.note(&message);
            let is_last = message.0 == "change" && message.1["to"] == last.as_str();
            if is_last || message.0 == "snapshot" && account.missed {
                break;
            }
        }
        assert!(account.missed, "more changed than is kept, and the slow client was told nothing");
        account.check("slow", RENAMES);
    });
    api.end();
}
