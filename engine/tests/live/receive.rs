//! Streams that OpenZFS made are received into new pools: what the snapshots hold is what OpenZFS saw in
//! them, and `zdb` finds nothing wrong.

use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dsl::{Dsl, Walk, edit};
use engine::pool::live::{Layout, LivePool, NewPool};
use engine::receive::{ReceiveTarget, Receiver, Records, abort_receive};
use engine::send::{Flags, Order, Plan, Stream};
use engine::vdev::Class;
use engine::zpl::live::{XattrPlace, XattrSet};
use engine::zvol::Zvol;
use ondisk::ByteOrder;
use ondisk::dmu::DmuType;
use ondisk::send::{HeaderType, Item, Record, StreamReader, StreamWriter, Write, record_flag};
use ondisk::vdev_config::PoolState;
use testkit::GoldenPool;
use testkit::manifest::hex_sha256;

use crate::golden_support::{self, EngineTree};
use crate::support::{Disks, POOL, committing, new_pool, surroundings};

pub fn stream(pool: &GoldenPool, name: &str) -> Vec<u8> {
    std::fs::read(pool.expect("streams").join(name)).unwrap()
}

/// The records of a stream with their payloads.
pub fn records(mut bytes: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut reader = StreamReader::new();
    let mut all = Vec::new();
    while let Some(Item { record, payload }) = reader.next_in(&mut bytes).unwrap() {
        all.push((record, payload.to_vec()));
    }
    all
}

pub async fn pool_on(disks: &Disks) -> Arc<LivePool> {
    let top = disks.top(Layout::Single, Class::Normal, "d", 1);
    // Blocks of zeroes stay blocks.
    let root_properties = vec![("compression".to_owned(), "off".to_owned())];
    let new = NewPool { root_properties, ..new_pool(vec![top], 12) };
    LivePool::create(new, surroundings(7)).await.unwrap()
}

/// Receives all streams of `bytes` into `to` and what is below it, as `zfs receive -d` would name it.
pub async fn receive(
    pool: &Arc<LivePool>,
    mut bytes: &[u8],
    to: &str,
    settings: &ReceiveTarget,
) -> Result<Vec<String>, Error> {
    let mut records = Records::new(&mut bytes);
    let mut received = Vec::new();
    loop {
        let (begin, payload) = match records.next_record()? {
            Some((Record::Begin(begin), payload)) => (begin, payload.to_vec()),
            Some((Record::End(_), _)) => continue,
            Some(_) => panic!("a record out of place"),
            None => return Ok(received),
        };
        if begin.header == HeaderType::Compound {
            continue;
        }
        let full = String::from_utf8(begin.to_name.clone()).unwrap();
        let (of, snapshot) = full.split_once('@').unwrap();
        let below = of.splitn(3, '/').nth(2).map(|rest| format!("/{rest}")).unwrap_or_default();
        let target = ReceiveTarget {
            dataset: format!("{to}{below}"),
            snapshot: snapshot.to_owned(),
            ..settings.clone()
        };
        let order = records.order();
        let mut receiver = Receiver::begin(pool, (&begin, &payload, order), &target).await?;
        let done = match receiver.run(&mut records).await {
            Ok(()) => {
                close_log(pool, &receiver).await;
                receiver.end().await
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(name) => received.push(name),
            Err(error) => {
                receiver.abandon().await?;
                return Err(error);
            }
        }
    }
}

async fn close_log(pool: &Arc<LivePool>, receiver: &Receiver) {
    if !receiver.is_new() {
        pool.dataset(receiver.head()).await.unwrap().zil.close().await.unwrap();
    }
}

/// Receives, closes the pool, and has it judged. Gives what was received, and the pool for reading.
fn received(disks: &Disks, streams: &[(&[u8], &str)]) -> (Vec<String>, Arc<engine::Pool>) {
    let names = block_on(async {
        let pool = pool_on(disks).await;
        let mut names = Vec::new();
        for (bytes, to) in streams {
            let settings = ReceiveTarget { force: true, ..ReceiveTarget::default() };
            names.extend(committing(&pool, receive(&pool, bytes, to, &settings)).await.unwrap());
        }
        pool.close(PoolState::Exported).await.unwrap();
        names
    });
    disks.judge(POOL);
    (names, import(disks))
}

fn import(disks: &Disks) -> Arc<engine::Pool> {
    block_on(async {
        let found = disks.found(POOL).await;
        engine::pool::import::import(&found, &engine::pool::import::ImportOptions::read_only()).await.unwrap()
    })
}

fn assert_same(golden: &GoldenPool, pool: &Arc<engine::Pool>, snapshot: &str, name: &str) {
    let tree = EngineTree::open(pool, name).unwrap();
    let mut differences = golden.manifest(snapshot).unwrap().differences(&tree);
    // The root of a snapshot has the number of its object set behind `.zfs`.
    differences.retain(|line| !line.starts_with(".: ino is "));
    assert!(differences.is_empty(), "{name}: {differences:#?}");
}

#[test]
fn full_streams_become_the_snapshots_that_were_sent() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    for (name, snapshot) in [("full", "a"), ("full-Lec", "a"), ("full-Lp", "b")] {
        let disks = Disks::new(512 << 20);
        let bytes = stream(&golden, name);
        let (names, pool) = received(&disks, &[(&bytes, "tank/copy")]);
        assert_eq!(names, [format!("tank/copy@{snapshot}")], "{name}");
        assert_same(&golden, &pool, &format!("streams/fs@{snapshot}"), &format!("tank/copy@{snapshot}"));
        assert_same(&golden, &pool, &format!("streams/fs@{snapshot}"), "tank/copy");
    }
}

#[test]
fn a_volume_is_received_with_its_bytes() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let bytes = stream(&golden, "vol");
    let (_, pool) = received(&disks, &[(&bytes, "tank/vol")]);
    assert_eq!(volume_sum(&pool), golden.volume_sha256("streams/v").unwrap());
}

/// The checksum of the bytes of the volume.
fn volume_sum(pool: &Arc<engine::Pool>) -> String {
    let objset = golden_support::objset(pool, "tank/vol@x").unwrap();
    let bytes = block_on(async {
        let volume = Zvol::open(&objset).await.unwrap();
        let mut bytes = vec![0; volume.size() as usize];
        volume.read_at(0, &mut bytes).await.unwrap();
        bytes
    });
    hex_sha256(&bytes)
}

#[test]
fn incremental_streams_go_on_from_what_was_received() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    for name in ["inc", "inc-I", "inc-bm"] {
        let disks = Disks::new(512 << 20);
        let (full, more) = (stream(&golden, "full"), stream(&golden, name));
        let (names, pool) = received(&disks, &[(&full, "tank/copy"), (&more, "tank/copy")]);
        for snapshot in names {
            let of = snapshot.split('@').nth(1).unwrap();
            assert_same(&golden, &pool, &format!("streams/fs@{of}"), &snapshot);
        }
    }
}

#[test]
fn a_compound_stream_is_received_with_its_children() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let bytes = stream(&golden, "repl");
    let (names, pool) = received(&disks, &[(&bytes, "tank/copy")]);
    assert_eq!(names, ["tank/copy@a", "tank/copy@b", "tank/copy@c", "tank/copy/kid@c"]);
    for snapshot in names {
        let of = snapshot.strip_prefix("tank/copy").unwrap();
        assert_same(&golden, &pool, &format!("streams/fs{of}"), &snapshot);
    }
}

/// All names of the pool, and what `%recv` there is.
pub async fn names(pool: &Arc<LivePool>) -> Vec<String> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let walk = Walk { snapshots: true, hidden: true, ..Walk::HEADS };
    let all = dsl.list(None, walk).await.unwrap();
    all.iter().map(|entry| entry.name().to_owned()).filter(|name| !name.contains('$')).collect()
}

#[test]
fn a_stream_that_breaks_off_leaves_the_pool_as_it_was() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let (full, more) = (stream(&golden, "full"), stream(&golden, "inc"));
    block_on(async {
        let pool = pool_on(&disks).await;
        let settings = ReceiveTarget::default();
        let cut = committing(&pool, receive(&pool, &full[..full.len() / 2], "tank/copy", &settings)).await;
        assert!(cut.unwrap_err().to_string().starts_with("incomplete stream"));
        assert_eq!(names(&pool).await, ["tank"]);
        committing(&pool, receive(&pool, &full, "tank/copy", &settings)).await.unwrap();
        let mut damaged = more.clone();
        damaged[more.len() / 2] ^= 1;
        let cut = committing(&pool, receive(&pool, &damaged, "tank/copy", &settings)).await;
        assert!(cut.unwrap_err().to_string().contains("invalid stream (checksum mismatch) at byte"));
        assert_eq!(names(&pool).await, ["tank", "tank/copy", "tank/copy@a"]);
        committing(&pool, receive(&pool, &more, "tank/copy", &settings)).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
    assert_same(&golden, &import(&disks), "streams/fs@b", "tank/copy@b");
}

#[test]
fn what_does_not_fit_the_destination_is_refused_before_anything_changes() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let (full, more) = (stream(&golden, "full"), stream(&golden, "inc"));
    block_on(async {
        let pool = pool_on(&disks).await;
        let refused = async |bytes: &[u8], to: &str, force: bool| {
            let settings = ReceiveTarget { force, ..ReceiveTarget::default() };
            let before = names(&pool).await;
            let error = committing(&pool, receive(&pool, bytes, to, &settings)).await.unwrap_err();
            assert_eq!(names(&pool).await, before, "{error}");
            error.to_string()
        };
        assert!(refused(&more, "tank/copy", false).await.contains("does not exist"));
        assert!(refused(&full, "tank/no/copy", false).await.contains("does not exist"));
        assert!(refused(&full, "tank", false).await.contains("already exists"));
        let settings = ReceiveTarget::default();
        committing(&pool, receive(&pool, &full, "tank/copy", &settings)).await.unwrap();
        assert!(refused(&full, "tank/copy", false).await.contains("already exists"));
        assert!(refused(&full, "tank/copy", true).await.contains("destination has snapshots"));
        committing(&pool, receive(&pool, &more, "tank/copy", &settings)).await.unwrap();
        assert!(refused(&more, "tank/copy", false).await.contains("already exists"));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
}

#[test]
fn a_receive_that_breaks_off_is_resumed_where_it_was() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let full = stream(&golden, "full");
    block_on(async {
        let pool = pool_on(&disks).await;
        let settings = ReceiveTarget { resumable: true, ..ReceiveTarget::default() };
        let part = &full[..full.len() / 2];
        committing(&pool, receive(&pool, part, "tank/copy", &settings)).await.unwrap_err();
        assert_eq!(names(&pool).await, ["tank", "tank/copy"]);
        let again = committing(&pool, receive(&pool, &full, "tank/copy", &settings)).await;
        assert!(again.unwrap_err().to_string().contains("partially-complete state"));
        let name = "tank/copy".to_owned();
        let abort = pool.change(|s| async move { abort_receive(&s, &name).await });
        committing(&pool, abort).await.unwrap();
        assert_eq!(names(&pool).await, ["tank"]);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
}

#[test]
fn what_was_changed_since_is_given_up_by_force_only() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let (full, more) = (stream(&golden, "full"), stream(&golden, "inc"));
    block_on(async {
        let pool = pool_on(&disks).await;
        let settings = ReceiveTarget::default();
        committing(&pool, receive(&pool, &full, "tank/copy", &settings)).await.unwrap();
        let id = Dsl::open(&pool.view()).await.unwrap().find("tank/copy").await.unwrap().objset_id();
        committing(&pool, async {
            let zpl = pool.filesystem(id).await.unwrap();
            let root = zpl.zpl().root();
            let file = zpl.create(root, b"mine", &crate::files::FILE).await.unwrap();
            zpl.write(file, 0, b"mine", &Default::default()).await.unwrap();
        })
        .await;
        let new = vec![edit::NewSnapshot { name: "tank/copy@mine".into(), properties: Vec::new() }];
        committing(&pool, pool.change(|s| async move { edit::snapshot(&s, &new).await })).await.unwrap();
        let refused = committing(&pool, receive(&pool, &more, "tank/copy", &settings)).await.unwrap_err();
        assert!(refused.to_string().contains("has been modified"), "{refused}");
        let settings = ReceiveTarget { force: true, ..ReceiveTarget::default() };
        committing(&pool, receive(&pool, &more, "tank/copy", &settings)).await.unwrap();
        assert_eq!(names(&pool).await, ["tank", "tank/copy", "tank/copy@a", "tank/copy@b"]);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
    assert_same(&golden, &import(&disks), "streams/fs@b", "tank/copy");
}

/// The records of what is sent of a received snapshot, without what is about its name and place.
fn told(bytes: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut all = records(bytes);
    for (record, _) in &mut all {
        match record {
            Record::Begin(begin) => begin.to_name.clear(),
            Record::End(end) => end.checksum = [0; 4],
            Record::Write(write) => {
                (write.checksum, write.flags, write.key) = (0, 0, Default::default());
            }
            _ => {}
        }
    }
    all
}

/// The first stream of an order.
async fn sent(pool: &Arc<engine::Pool>, order: &Order) -> Vec<u8> {
    let dsl = Dsl::open(pool).await.unwrap();
    let plan = Plan::make(&dsl, order).await.unwrap();
    let mut bytes = Vec::new();
    let mut sent = Stream::open(&dsl, &plan.streams[0].request).await.unwrap();
    while let Some(pieces) = sent.next().await.unwrap() {
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
    }
    bytes
}

/// Without the spill blocks that a receiver has already, as a sender may leave them out.
fn without_unmodified(bytes: &[u8]) -> Vec<u8> {
    let is_unmodified = |record: &Record| match record {
        Record::Spill(spill) => spill.flags & record_flag::SPILL_UNMODIFIED != 0,
        _ => false,
    };
    let all = records(bytes);
    let (dropped, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|(record, _)| is_unmodified(record));
    assert!(!dropped.is_empty());
    let mut writer = StreamWriter::new(ByteOrder::Little);
    let put = |(record, payload): (Record, Vec<u8>)| {
        [writer.put(&record, &payload).unwrap().to_vec(), payload].concat()
    };
    kept.into_iter().flat_map(put).collect()
}

#[test]
fn a_file_whose_blocks_get_another_size_keeps_its_attributes() {
    let disks = Disks::new(512 << 20);
    block_on(async {
        let pool = pool_on(&disks).await;
        let id = Dsl::open(&pool.view()).await.unwrap().find(POOL).await.unwrap().objset_id();
        let snapshot = async |name: &str| {
            let new = vec![edit::NewSnapshot { name: format!("tank@{name}"), properties: Vec::new() }];
            committing(&pool, pool.change(|s| async move { edit::snapshot(&s, &new).await })).await.unwrap();
        };
        let zpl = committing(&pool, pool.filesystem(id)).await.unwrap();
        let file = committing(&pool, async {
            let file = zpl.create(zpl.zpl().root(), b"file", &crate::files::FILE).await.unwrap();
            zpl.write(file, 0, &[1; 16 << 10], &Default::default()).await.unwrap();
            for number in 0..20 {
                let name = format!("user.{number}");
                let at = XattrPlace::Attributes;
                zpl.set_xattr(file, name.as_bytes(), &[b'v'; 60], XattrSet::Any, at).await.unwrap();
            }
            file
        })
        .await;
        snapshot("1").await;
        committing(&pool, zpl.write(file, 0, &[2; 32 << 10], &Default::default())).await.unwrap();
        snapshot("2").await;
        let view = pool.view();
        let full = sent(&view, &Order { to: "tank@1".into(), ..Order::default() }).await;
        let order = Order { to: "tank@2".into(), from: Some("tank@1".into()), ..Order::default() };
        let more = sent(&view, &order).await;
        drop(view);
        let settings = ReceiveTarget::default();
        for (name, more) in [("whole", more.clone()), ("without", without_unmodified(&more))] {
            let to = format!("tank/{name}");
            committing(&pool, receive(&pool, &full, &to, &settings)).await.unwrap();
            committing(&pool, receive(&pool, &more, &to, &settings)).await.unwrap();
            let view = pool.view();
            let objset = golden_support::objset(&view, &format!("{to}@2")).unwrap();
            let zpl = engine::zpl::Zpl::open(&objset, Default::default()).await.unwrap();
            let node = zpl.node(file).await.unwrap();
            assert_eq!(node.stat().unwrap().size, 32 << 10, "{name}");
            assert_eq!(node.list_xattrs().await.unwrap().len(), 20, "{name}");
            assert_eq!(node.xattr(b"user.7").await.unwrap().unwrap(), [b'v'; 60], "{name}");
        }
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
}

#[test]
fn what_was_received_is_sent_again_as_it_came() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let (full, volume) = (stream(&golden, "full-Lp"), stream(&golden, "vol"));
    let (_, pool) = received(&disks, &[(&full[..], "tank/copy"), (&volume, "tank/vol")]);
    for (name, to, came) in [("full-Lp", "tank/copy@b", &full), ("vol", "tank/vol@x", &volume)] {
        let flags = Flags { large_blocks: name == "full-Lp", ..Flags::default() };
        let order = Order { to: to.to_owned(), flags, ..Order::default() };
        let sent = block_on(sent(&pool, &order));
        let (sent, mut came) = (told(&sent), told(came));
        // Without the list that goes before it, and the end behind it.
        let is_plain = |(record, _): &(Record, Vec<u8>)| match record {
            Record::Begin(begin) => begin.header == HeaderType::Plain,
            _ => false,
        };
        came.drain(..came.iter().position(is_plain).unwrap());
        came.truncate(sent.len());
        let part = sent.iter().zip(&came).position(|(sent, came)| sent != came);
        let differing = part.map(|at| (&sent[at].0, &came[at].0));
        assert!(sent == came, "{name}: {part:?} {differing:#?}, {} and {}", sent.len(), came.len());
    }
}

/// The blocks of a stream that came compressed, with their places in it.
fn compressed(records: &[(Record, Vec<u8>)]) -> Vec<(usize, &Write, &[u8])> {
    let mut found = Vec::new();
    for (at, (record, payload)) in records.iter().enumerate() {
        if let Record::Write(write) = record
            && write.compress != 0
        {
            found.push((at, write, &payload[..]));
        }
    }
    found
}

#[test]
fn blocks_that_came_compressed_are_stored_as_they_came() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let came = stream(&golden, "full-Lec");
    let (_, pool) = received(&disks, &[(&came, "tank/copy")]);
    let flags = Flags { large_blocks: true, compressed: true, ..Flags::default() };
    let order = Order { to: "tank/copy@a".to_owned(), flags, ..Order::default() };
    let sent = records(&block_on(sent(&pool, &order)));
    let (sent, came) = (compressed(&sent), records(&came));
    let mut came = compressed(&came);
    // Those that take less room than their bytes.
    came.retain(|(_, write, payload)| (payload.len() as u64).next_multiple_of(4096) < write.logical_bytes);
    assert!(came.len() > 5, "{} blocks show nothing", came.len());
    for (_, write, payload) in came {
        let is_it = |(_, other, _): &&(usize, &Write, &[u8])| {
            (other.object, other.offset) == (write.object, write.offset)
        };
        let (_, other, stored) = sent.iter().find(is_it).expect("a compressed block");
        assert_eq!((other.compress, other.logical_bytes), (write.compress, write.logical_bytes));
        let (stored, rest) = stored.split_at(payload.len());
        assert!(stored == payload && rest.iter().all(|byte| *byte == 0), "{write:?}");
    }
}

#[test]
fn blocks_that_do_not_decompress_are_refused() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let came = records(&stream(&golden, "full-Lec"));
    let damaged = compressed(&came);
    let (first, last) = (damaged[0].0, damaged[damaged.len() - 1].0);
    block_on(async {
        let pool = pool_on(&disks).await;
        for at in [first, last] {
            let mut writer = StreamWriter::new(ByteOrder::Little);
            let mut bytes = Vec::new();
            for (index, (record, payload)) in came.iter().enumerate() {
                let mut payload = payload.clone();
                if index == at {
                    payload.fill(0xff);
                }
                bytes.extend(writer.put(record, &payload).unwrap());
                bytes.extend(payload);
            }
            let settings = ReceiveTarget::default();
            let refused = committing(&pool, receive(&pool, &bytes, "tank/copy", &settings)).await;
            let refused = refused.unwrap_err();
            assert!(refused.to_string().contains("a block does not decompress"), "{refused}");
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
}

/// The words of a small ZAP in the other byte order.
fn turned_zap(block: &mut [u8]) {
    let (header, entries) = block.split_at_mut(64);
    header.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    for entry in entries.chunks_exact_mut(64) {
        entry[..8].reverse();
        entry[8..12].reverse();
    }
}

#[test]
fn a_volume_of_a_big_endian_machine_is_turned() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let mut writer = StreamWriter::new(ByteOrder::Big);
    let mut bytes = Vec::new();
    for (record, mut payload) in records(&stream(&golden, "vol")) {
        if matches!(&record, Record::Write(write) if write.dmu_type == u32::from(DmuType::ZVOL_PROP.raw())) {
            turned_zap(&mut payload);
        }
        bytes.extend(writer.put(&record, &payload).unwrap());
        bytes.extend(payload);
    }
    let (_, pool) = received(&disks, &[(&bytes, "tank/vol")]);
    assert_eq!(volume_sum(&pool), golden.volume_sha256("streams/v").unwrap());
}

#[test]
fn a_stream_without_room_is_refused_and_leaves_nothing() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let full = stream(&golden, "full");
    block_on(async {
        let pool = pool_on(&disks).await;
        let new = edit::NewDataset {
            name: "tank/small".into(),
            contents: edit::NewContents::Filesystem,
            properties: vec![("quota".into(), "2M".into())],
        };
        committing(&pool, pool.change(|s| async move { edit::create(&s, &new).await })).await.unwrap();
        let settings = ReceiveTarget { resumable: true, ..ReceiveTarget::default() };
        let error = committing(&pool, receive(&pool, &full, "tank/small/copy", &settings)).await.unwrap_err();
        assert!(matches!(error, Error::Quota(_) | Error::NoSpace(_)), "{error}");
        let name = "tank/small/copy".to_owned();
        let abort = pool.change(|s| async move { abort_receive(&s, &name).await });
        committing(&pool, abort).await.unwrap();
        assert_eq!(names(&pool).await, ["tank", "tank/small"]);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
}

#[test]
fn streams_of_openzfs_2_4_are_received() {
    let Some(golden) = testkit::golden::pool("clones24") else { return };
    let disks = Disks::new(512 << 20);
    let (full, more) = (stream(&golden, "full"), stream(&golden, "inc-after-rewrite"));
    let (_, pool) = received(&disks, &[(&full, "tank/copy"), (&more, "tank/copy")]);
    for snapshot in ["a", "b"] {
        assert_same(&golden, &pool, &format!("clones24/fs@{snapshot}"), &format!("tank/copy@{snapshot}"));
    }
}

#[test]
fn a_full_stream_takes_the_place_of_a_dataset_by_force() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let (full, volume) = (stream(&golden, "full"), stream(&golden, "vol"));
    block_on(async {
        let pool = pool_on(&disks).await;
        let force = ReceiveTarget { force: true, ..ReceiveTarget::default() };
        for (name, contents) in [
            ("tank/fs", edit::NewContents::Filesystem),
            ("tank/vol", edit::NewContents::Volume { size: 4 << 20, sparse: true }),
        ] {
            let new = edit::NewDataset { name: name.into(), contents, properties: Vec::new() };
            committing(&pool, pool.change(|s| async move { edit::create(&s, &new).await })).await.unwrap();
        }
        let other = committing(&pool, receive(&pool, &volume, "tank/fs", &force)).await.unwrap_err();
        assert!(other.to_string().contains("another type"), "{other}");
        // The root too, below which there are others.
        for (bytes, name) in [(&full, "tank"), (&full, "tank/fs"), (&volume, "tank/vol")] {
            committing(&pool, receive(&pool, bytes, name, &force)).await.unwrap();
        }
        assert_eq!(names(&pool).await, ["tank", "tank@a", "tank/fs", "tank/fs@a", "tank/vol", "tank/vol@x"]);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
    let pool = import(&disks);
    assert_same(&golden, &pool, "streams/fs@a", "tank@a");
    assert_same(&golden, &pool, "streams/fs@a", "tank/fs");
    assert_eq!(volume_sum(&pool), golden.volume_sha256("streams/v").unwrap());
}

#[test]
fn later_snapshots_without_changes_stay() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let disks = Disks::new(512 << 20);
    let (full, more) = (stream(&golden, "full"), stream(&golden, "inc"));
    block_on(async {
        let pool = pool_on(&disks).await;
        let settings = ReceiveTarget::default();
        committing(&pool, receive(&pool, &full, "tank/copy", &settings)).await.unwrap();
        let new = vec![edit::NewSnapshot { name: "tank/copy@later".into(), properties: Vec::new() }];
        committing(&pool, pool.change(|s| async move { edit::snapshot(&s, &new).await })).await.unwrap();
        committing(&pool, receive(&pool, &more, "tank/copy", &settings)).await.unwrap();
        let all = ["tank", "tank/copy", "tank/copy@a", "tank/copy@later", "tank/copy@b"];
        assert_eq!(names(&pool).await, all);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge(POOL);
    assert_same(&golden, &import(&disks), "streams/fs@b", "tank/copy@b");
}
