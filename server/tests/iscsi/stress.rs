//! Bursts of random commands by several initiators, while their volumes and the pool change: each command is
//! answered in time.
//!
//! `CENOTE_STRESS_SECONDS` has it go on for longer than a moment; a failure says by which seed the initiator
//! that waits in vain chose its commands.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use device::block_on;
use server::api::{DestroyDataset, TakeSnapshots};

use crate::harness::{Answer, Initiator};
use crate::pool::{MIB, Running, VMS};

/// No command may take longer.
const PATIENCE: Duration = Duration::from_secs(30);
const VOLUME_BYTES: u64 = 16 * MIB;
const INITIATORS: u64 = 5;
/// Bytes that the answers of a burst may have, and its writes: both fit into sockets, so that an initiator
/// that sends before it reads is not stuck by its own doing.
const BURST_BYTES: u32 = 1 << 20;

/// Numbers by Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Commands that are under way: how many bytes each write has.
type Open = BTreeMap<u32, Vec<u8>>;

/// Takes one answer, and sends data that it asks for.
fn take(host: &mut Initiator, open: &mut Open) -> Result<(), String> {
    let Some(answer) = host.answer() else { return Err(format!("no answer to {:?}", open.keys())) };
    let tag = answer.word(16);
    match answer.header[0] & 0x3f {
        0x21 => drop(open.remove(&tag)),
        0x25 if answer.header[1] & 1 != 0 => drop(open.remove(&tag)),
        0x31 => send_data(host, &answer, open.get(&tag).map_or(&[], Vec::as_slice)),
        0x20 | 0x22 => drop(open.remove(&tag)),
        0x25 | 0x32 => {}
        other => return Err(format!("an answer of kind {other:#x}: {answer:?}")),
    }
    Ok(())
}

fn send_data(host: &mut Initiator, request: &Answer, data: &[u8]) {
    let (start, length) = (request.word(40) as usize, request.word(44) as usize);
    for (number, at) in (0..length).step_by(8 << 10).enumerate() {
        let piece = (length - at).min(8 << 10);
        let mut header = [0; 48];
        header[0] = 5;
        header[1] = if at + piece == length { 0x80 } else { 0 };
        header[16..24].copy_from_slice(&request.header[16..24]);
        header[36..40].copy_from_slice(&(number as u32).to_be_bytes());
        header[40..44].copy_from_slice(&((start + at) as u32).to_be_bytes());
        host.send(header, data.get(start + at..start + at + piece).unwrap_or_default());
    }
}

/// Sends some commands as fast as the window lets it, and takes all answers.
fn burst(host: &mut Initiator, random: &mut Random) -> Result<(), String> {
    let depth = 1 + random.below(48);
    let (mut open, mut reads, mut writes) = (Open::new(), 0, 0);
    host.is_slow = random.below(8) == 0;
    for _ in 0..depth {
        while !host.may_send() {
            take(host, &mut open)?;
        }
        host.lun = random.below(3) as u8;
        let blocks = 8 << random.below(7);
        let first = (random.below(VOLUME_BYTES / 512 - blocks) as u32).to_be_bytes();
        let [high, low] = (blocks as u16).to_be_bytes();
        let bytes = blocks as u32 * 512;
        let descriptor = |operation| [operation, 0, first[0], first[1], first[2], first[3], 0, high, low, 0];
        let kind = random.below(12);
        let (tag, data) = match kind {
            0..=4 if writes + bytes <= BURST_BYTES => {
                writes += bytes;
                let data = vec![kind as u8; bytes as usize];
                let stable = if random.below(4) == 0 { 8 } else { 0 };
                let mut descriptor = descriptor(0x2a);
                descriptor[1] = stable;
                let came = if random.below(2) == 0 { data.len().min(64 << 10) } else { 0 };
                let tag = host.begin(&descriptor, bytes, false, data.get(..came).unwrap_or_default());
                (tag, data)
            }
            5..=9 if reads + bytes <= BURST_BYTES => {
                reads += bytes;
                (host.begin(&descriptor(0x28), bytes, true, &[]), Vec::new())
            }
            10 => (host.begin(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, true, &[]), Vec::new()),
            _ => (host.begin(&[0, 0, 0, 0, 0, 0], 0, true, &[]), Vec::new()),
        };
        open.insert(tag, data);
        if random.below(4) == 0 {
            take(host, &mut open)?;
        }
    }
    while !open.is_empty() {
        take(host, &mut open)?;
    }
    Ok(())
}

/// Changes the pool and its volumes.
fn disturb(running: &Running, random: &mut Random, number: u64) {
    const VOLUMES: [&str; 2] = ["tank/a", "tank/b"];
    let volume = VOLUMES[random.below(2) as usize];
    match random.below(7) {
        0 => {
            let names = vec![format!("{volume}@s{number}")];
            let take = TakeSnapshots { names: names.clone(), ..TakeSnapshots::default() };
            block_on(running.daemon.take_snapshots(take)).unwrap();
            let destroy = DestroyDataset { name: names[0].clone(), ..DestroyDataset::default() };
            let _ = block_on(running.daemon.destroy_dataset(destroy));
        }
        1 => {
            // A unit comes and goes. It may have just been opened by a session.
            running.create_volume("tank/c", "iscsi(target=vms,lun=2)", VOLUME_BYTES);
            running.set("tank/c", server::block::shares::PROPERTY, "off");
            let destroy = DestroyDataset { name: "tank/c".into(), ..DestroyDataset::default() };
            while block_on(running.daemon.destroy_dataset(destroy.clone())).is_err() {
                thread::yield_now();
            }
        }
        2 => running.set(volume, "sync", ["standard", "always", "disabled"][random.below(3) as usize]),
        3 => running.set(volume, "compression", ["off", "gzip-9", "lz4"][random.below(3) as usize]),
        4 => running.set(volume, "logbias", ["latency", "throughput"][random.below(2) as usize]),
        5 => running.set(volume, "primarycache", ["all", "metadata", "none"][random.below(3) as usize]),
        _ => {
            for pool in running.daemon.open_pools() {
                let txgs = pool.live().unwrap().txgs();
                block_on(txgs.wait_synced(txgs.open_txg())).unwrap();
            }
        }
    }
}

#[test]
fn every_command_is_answered_whatever_happens_to_the_pool() {
    let seconds = std::env::var("CENOTE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(4));
    let place = tempfile::tempdir().unwrap();
    let running = Running::start(place.path());
    running.create(place.path(), VOLUME_BYTES);
    let (began, is_over, bursts) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let initiators: Vec<_> = (1..=INITIATORS)
            .map(|seed| {
                let (running, is_over, bursts) = (&running, &is_over, &bursts);
                scope.spawn(move || {
                    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
                    let mut host = Initiator::log_in(&running.served, VMS, &["ImmediateData=Yes"]);
                    host.set_patience(PATIENCE);
                    while !is_over.load(Ordering::Relaxed) {
                        if let Err(why) = burst(&mut host, &mut random) {
                            let all = server::api::GetCounters {
                                groups: vec!["clients".into()],
                                ..Default::default()
                            };
                            let clients = block_on(running.daemon.counters(all)).unwrap().clients;
                            panic!("initiator {seed}, burst {bursts:?}: {why}; {clients:#?}");
                        }
                        bursts.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let (mut random, mut number) = (Random(7), 0);
        while began.elapsed() < length && !initiators.iter().any(|initiator| initiator.is_finished()) {
            disturb(&running, &mut random, number);
            number += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{} bursts", bursts.into_inner());
}
