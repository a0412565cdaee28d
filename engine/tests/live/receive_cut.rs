//! Power cuts while streams are received: after the import a dataset is as before, as it was sent, or
//! received in part; then a resuming stream completes it. Streams that end at each place do the same.

use std::sync::Arc;

use codec::compress::decompress;
use device::{Device, MemoryDevice, block_on};
use engine::dsl::Dsl;
use engine::pool::discovery::{Candidate, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop};
use engine::properties::{Environment, Prop, Style};
use engine::receive::ReceiveTarget;
use engine::vdev::Class;
use ondisk::blkptr::CompressType;
use ondisk::nvlist::{Encoding, Nvlist};
use ondisk::send::{Record, StreamWriter, begin_key, feature};
use ondisk::vdev_config::PoolState;
use ondisk::{ByteOrder, ObjectId};
use testkit::crash::{Disk, Player, Recorder};
use testkit::{GoldenPool, Rng};

use crate::golden_support::EngineTree;
use crate::receive::{names, pool_on, receive, records, stream};
use crate::support::{Disks, POOL, committing, new_pool, surroundings};

const DISK_BYTES: u64 = 128 << 20;
/// Moments of the power cut that are looked at.
const POINTS: usize = 24;

fn resumable() -> ReceiveTarget {
    ReceiveTarget { resumable: true, ..ReceiveTarget::default() }
}

/// Where an interrupted receive goes on, as its token says: object and offset.
async fn resume_point(pool: &Arc<LivePool>, name: &str) -> Option<(u64, u64)> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let entry = dsl.entry(name).await.unwrap();
    let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
    let token = properties.get(Prop::ReceiveResumeToken, Style::PARSABLE)?.value;
    let parts: Vec<&str> = token.split('-').collect();
    let [_, _, length, hex] = parts[..] else { return None };
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let packed: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    let mut list = vec![0; usize::from_str_radix(length, 16).unwrap()];
    decompress(CompressType::Gzip6, &packed, &mut list).unwrap();
    let list = Nvlist::parse(&list).unwrap();
    Some((list.get_u64("object").unwrap(), list.get_u64("offset").unwrap()))
}

/// The stream that a sender makes who goes on from there.
fn resuming(full: &[u8], (object, offset): (u64, u64)) -> Vec<u8> {
    let mut writer = StreamWriter::new(ByteOrder::Little);
    let mut bytes = Vec::new();
    for (record, payload) in records(full) {
        let (record, payload) = match record {
            Record::Begin(mut begin) => {
                let mut list = Nvlist::new();
                list.push(begin_key::RESUME_OBJECT, object);
                list.push(begin_key::RESUME_OFFSET, offset);
                let payload = list.encode(Encoding::Xdr).unwrap();
                begin.features |= feature::RESUMING;
                begin.payload_bytes = payload.len() as u32;
                (Record::Begin(begin), payload)
            }
            record => (record, payload),
        };
        let is_before = |id: ObjectId, at: u64| (id.get(), at) < (object, offset);
        let is_sent = match &record {
            Record::Object(one) => one.object.get() >= object,
            Record::FreeObjects(free) => free.first.get() > object,
            Record::Write(write) => !is_before(write.object, write.offset.get()),
            Record::WriteEmbedded(write) => !is_before(write.range.object, write.range.offset.get()),
            Record::Free(range) => !is_before(range.object, range.offset.get()),
            Record::Spill(spill) => spill.object.get() >= object,
            _ => true,
        };
        if is_sent {
            bytes.extend(writer.put(&record, &payload).unwrap());
            bytes.extend(payload);
        }
    }
    bytes
}

async fn has(pool: &Arc<LivePool>, golden: &GoldenPool, snapshot: &str) {
    let tree = EngineTree::open(&pool.view(), &format!("tank/copy@{snapshot}")).unwrap();
    let mut differences = golden.manifest(&format!("streams/fs@{snapshot}")).unwrap().differences(&tree);
    differences.retain(|line| !line.starts_with(".: ino is "));
    assert!(differences.is_empty(), "{snapshot}: {differences:#?}");
}

#[test]
fn a_stream_that_ends_anywhere_is_resumed() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let full = stream(&golden, "full");
    for part in [1, 2, 5, 8] {
        let disks = Disks::new(512 << 20);
        block_on(async {
            let pool = pool_on(&disks).await;
            let cut = &full[..full.len() / 9 * part];
            committing(&pool, receive(&pool, cut, "tank/copy", &resumable())).await.unwrap_err();
            let point = resume_point(&pool, "tank/copy").await.unwrap();
            // One that goes on elsewhere is refused, and what is there stays.
            let other = resuming(&full, (point.0 + 1, 0));
            committing(&pool, receive(&pool, &other, "tank/copy", &resumable())).await.unwrap_err();
            assert_eq!(resume_point(&pool, "tank/copy").await, Some(point));
            let rest = resuming(&full, point);
            assert!(rest.len() < full.len() || part == 1, "{} of {}", rest.len(), full.len());
            committing(&pool, receive(&pool, &rest, "tank/copy", &resumable())).await.unwrap();
            assert_eq!(resume_point(&pool, "tank/copy").await, None);
            pool.close(PoolState::Exported).await.unwrap();
            has(&pool, &golden, "a").await;
        });
        disks.judge(POOL);
    }
}

pub(crate) async fn import(disks: &[Disk], seed: u64) -> Arc<LivePool> {
    let mut candidates = Vec::new();
    for disk in disks {
        let mut bytes = vec![0; DISK_BYTES as usize];
        disk.read(0, &mut bytes);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("/dev/d0".to_owned(), bytes));
        candidates.extend(Candidate::examine(device).await);
    }
    let mut found = group(candidates);
    found.retain(|pool| pool.name == POOL);
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    LivePool::import(&found.pop().unwrap(), &options, surroundings(seed)).await.unwrap()
}

/// A pool whose writes are recorded.
pub(crate) async fn recorded(recorder: &Recorder) -> Arc<LivePool> {
    let device = recorder.device("/dev/d0", Disk::new(DISK_BYTES));
    let leaf = NewLeaf { device, path: "/dev/d0".into(), is_file: true, whole_disk: false };
    let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] };
    LivePool::create(new_pool(vec![top], 12), surroundings(7)).await.unwrap()
}

#[test]
fn after_a_power_cut_it_is_before_after_or_resumable() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let (full, more) = (stream(&golden, "full"), stream(&golden, "inc"));
    let recorder = Recorder::new(11);
    let begin = block_on(async {
        let pool = recorded(&recorder).await;
        let begin = recorder.position();
        committing(&pool, receive(&pool, &full, "tank/copy", &resumable())).await.unwrap();
        committing(&pool, receive(&pool, &more, "tank/copy", &ReceiveTarget::default())).await.unwrap();
        begin
    });
    let mut player = Player::new(&recorder);
    let events = player.end() - begin;
    let mut rng = Rng::new(5);
    let (mut before, mut resumed, mut received) = (0, 0, 0);
    for number in 0..=POINTS {
        player.advance(begin + events * number / POINTS);
        let disks = player.disks_after_power_cut(&mut rng);
        block_on(async {
            let pool = import(&disks, number as u64).await;
            let there = names(&pool).await;
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            match there[..] {
                ["tank"] => before += 1,
                ["tank", "tank/copy"] => {
                    let rest = resuming(&full, resume_point(&pool, "tank/copy").await.unwrap());
                    committing(&pool, receive(&pool, &rest, "tank/copy", &resumable())).await.unwrap();
                    has(&pool, &golden, "a").await;
                    resumed += 1;
                }
                ["tank", "tank/copy", "tank/copy@a"] => {
                    has(&pool, &golden, "a").await;
                    let settings = ReceiveTarget::default();
                    committing(&pool, receive(&pool, &more, "tank/copy", &settings)).await.unwrap();
                    has(&pool, &golden, "b").await;
                    received += 1;
                }
                ["tank", "tank/copy", "tank/copy@a", "tank/copy@b"] => {
                    has(&pool, &golden, "b").await;
                    received += 1;
                }
                _ => panic!("point {number}: {there:?}"),
            }
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
    assert!(resumed > 3 && received > 3, "{before} before, {resumed} resumed, {received} received");
}
