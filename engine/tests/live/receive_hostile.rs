//! Streams that lie: records with other fields and payloads than they had, under right checksums. Whatever
//! they say, they are received or refused, the pool goes on, and `zdb` finds nothing wrong.

use device::block_on;
use engine::receive::ReceiveTarget;
use ondisk::ByteOrder;
use ondisk::send::{Record, StreamWriter};
use ondisk::vdev_config::PoolState;
use testkit::Rng;

use crate::receive::{pool_on, receive, records, stream};
use crate::support::{Disks, POOL, committing};

/// Bytes of a record that its kind uses, behind its type and the length of its payload.
const FIELDS: std::ops::Range<usize> = 8..120;

/// Another record of the same kind.
fn changed(record: &Record, rng: &mut Rng) -> Option<Record> {
    let mut bytes = record.encode(ByteOrder::Little);
    for _ in 0..1 + rng.index(3) {
        let at = FIELDS.start + rng.index(FIELDS.len());
        bytes[at] = match rng.index(4) {
            0 => 0,
            1 => 0xff,
            2 => bytes[at] ^ (1 << rng.index(8)),
            _ => rng.next_u64() as u8,
        };
    }
    Record::parse(&bytes, ByteOrder::Little).ok()
}

/// A stream with lies. Memory bounds it.
fn lying(truth: &[(Record, Vec<u8>)], rng: &mut Rng) -> Vec<u8> {
    let mut writer = StreamWriter::new(ByteOrder::Little);
    let mut bytes = Vec::new();
    let (often, keeps_begin) = (20 + rng.below(200), !rng.once_in(8));
    let last = truth.len() - 1;
    for (index, (record, payload)) in truth.iter().enumerate() {
        if index != 0 && index != last && rng.once_in(often) {
            match rng.index(3) {
                // Left out.
                0 => continue,
                // Twice, or out of its place.
                1 => {
                    let (record, payload) = &truth[1 + rng.index(last - 1)];
                    bytes.extend(writer.put(record, payload).unwrap());
                    bytes.extend(payload);
                }
                _ => {}
            }
        }
        let is_kept = (index == 0 && keeps_begin) || index == last || !rng.once_in(often);
        let record = if is_kept { record.clone() } else { changed(record, rng).unwrap_or(record.clone()) };
        let mut payload = payload.clone();
        if payload.len() as u64 != record.payload_bytes() {
            payload.resize(record.payload_bytes().min(16 << 20) as usize, 7);
        }
        if !is_kept && !payload.is_empty() && rng.once_in(2) {
            let at = rng.index(payload.len());
            payload[at] = rng.next_u64() as u8;
        }
        let Ok(put) = writer.put(&record, &payload) else { return bytes };
        bytes.extend(put);
        bytes.extend(payload);
    }
    bytes
}

#[test]
fn streams_that_lie_harm_nothing() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let full = records(&stream(&golden, "full-Lec"));
    let (base, more) = (stream(&golden, "full"), records(&stream(&golden, "inc")));
    let disks = Disks::new(512 << 20);
    let (mut received, mut refused) = (0, 0);
    block_on(async {
        let pool = pool_on(&disks).await;
        committing(&pool, receive(&pool, &base, "tank/base", &ReceiveTarget::default())).await.unwrap();
        for seed in 1..=60 {
            let mut rng = Rng::new(seed);
            let (truth, name) = match rng.index(2) {
                0 => (&full, format!("tank/new{seed}")),
                _ => (&more, "tank/base".to_owned()),
            };
            let bytes = lying(truth, &mut rng);
            let settings = ReceiveTarget { force: true, ..ReceiveTarget::default() };
            let done = committing(&pool, receive(&pool, &bytes, &name, &settings)).await;
            match done {
                Ok(_) => received += 1,
                Err(_) => refused += 1,
            }
            assert!(pool.txgs().stopped().is_none(), "seed {seed}: {:?}", pool.txgs().stopped());
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
    assert!(received > 0 && refused > 0, "{received} were received, {refused} refused");
    disks.judge(POOL);
}
