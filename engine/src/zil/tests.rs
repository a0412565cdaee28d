//! The log on a disk in memory: every write is kept with its order, so that any crash can be simulated.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use device::IoBuf;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, Dva};
use ondisk::dmu::DmuType;
use ondisk::zil::ChainSeed;
use ondisk::zil::record::WriteData;
use ondisk::{Level, Lsize, ObjectId, ObjsetId, Psize, Txg};

use super::backing::{Fetched, Written};
use super::*;
use crate::Block;
use crate::dmu::Early;
use crate::env::Seeded;
use crate::error::Error;
use crate::txg::Limits;

/// The state of the disk: data that survive a crash, and data that do not.
#[derive(Debug, Default)]
struct Disk {
    /// Written log blocks, by offset.
    written: BTreeMap<u64, Vec<u8>>,
    /// Log blocks that a flush made durable.
    durable: BTreeMap<u64, Vec<u8>>,
    /// Allocated log blocks, by offset, with the group of their allocation.
    allocated: BTreeMap<u64, Txg>,
    next: u64,
    full: bool,
    broken: bool,
    /// While set, writes wait.
    slow: bool,
    flushes: usize,
    /// Headers set, by group.
    headers: BTreeMap<Txg, ZilHeader>,
    content: Vec<u8>,
    /// Nothing can be read from this offset on.
    unreadable: Option<u64>,
    /// Where the object ends, if not with the content.
    size: Option<u64>,
    /// The object was freed.
    is_gone: bool,
    /// Bytes in a block, if blocks may be written early.
    block_size: Option<u64>,
    log_devices: bool,
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<Disk>>);

impl Fake {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.0)
    }

    /// The header in a committed group.
    fn header(&self, txg: Txg) -> ZilHeader {
        self.disk().headers.range(..=txg).next_back().map_or_else(ZilHeader::default, |(_, header)| *header)
    }
}

impl Fake {
    /// Space for a block.
    fn place(
        &self,
        txg: Txg,
        bytes: usize,
        checksum_type: ChecksumType,
        dmu_type: DmuType,
    ) -> Result<Blkptr> {
        let mut disk = self.disk();
        if disk.full {
            return Err(failed());
        }
        let offset = disk.next;
        disk.next += bytes as u64;
        disk.allocated.insert(offset, txg);
        let size = bytes as u64;
        let dva = Dva { vdev: 0.into(), offset: offset.into(), asize: size.into(), gang: false };
        let parts = BlkptrParts {
            dvas: vec![dva],
            lsize: Lsize(size),
            psize: Psize(size),
            compress: CompressType::Off,
            checksum_type,
            checksum: [0; 4],
            dmu_type,
            level: Level::DATA,
            dedup: false,
            byte_order: ByteOrder::Little,
            logical_birth: txg,
            physical_birth: txg,
            fill: 0,
            crypt: None,
        };
        Ok(parts.build().unwrap())
    }
}

impl Fake {
    fn readable(&self, bp: &Blkptr) -> Result<()> {
        match self.disk().unreadable {
            Some(from) if offset_of(bp) >= from => {
                Err(Error::Io { at: backing::log_bookmark(ObjsetId(54), bp), tried: Vec::new() })
            }
            _ => Ok(()),
        }
    }
}

fn failed() -> Error {
    Error::Busy("fails as the test wants".into())
}

fn offset_of(bp: &Blkptr) -> u64 {
    bp.dva(0).unwrap().offset.get()
}

impl Backing for Fake {
    fn objset(&self) -> ObjsetId {
        ObjsetId(54)
    }

    fn has_room(&self, _bytes: u64) -> bool {
        true
    }

    fn allocate(&self, txg: Txg, bytes: usize) -> BoxFuture<'_, Result<Blkptr>> {
        std::future::ready(self.place(txg, bytes, ChecksumType::Zilog2, DmuType::INTENT_LOG)).boxed()
    }

    fn write<'a>(&'a self, bp: &'a Blkptr, bytes: IoBuf, durably: bool) -> BoxFuture<'a, Result<()>> {
        std::future::poll_fn(move |_| {
            let mut disk = self.disk();
            if disk.slow {
                return Poll::Pending;
            }
            if disk.broken {
                return Poll::Ready(Err(failed()));
            }
            disk.written.insert(offset_of(bp), bytes.to_vec());
            if durably {
                disk.flushes += 1;
                disk.durable.insert(offset_of(bp), bytes.to_vec());
            }
            Poll::Ready(Ok(()))
        })
        .boxed()
    }

    fn flush<'a>(&'a self, _: &'a [Blkptr]) -> BoxFuture<'a, Result<()>> {
        let mut disk = self.disk();
        disk.flushes += 1;
        disk.durable = disk.written.clone();
        std::future::ready(Ok(())).boxed()
    }

    fn free<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>> {
        let allocated = self.disk().allocated.remove(&offset_of(bp));
        assert!(allocated.is_some_and(|allocated| allocated <= txg), "freed twice, or before its time");
        std::future::ready(Ok(())).boxed()
    }

    fn claim<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>> {
        let taken = self.disk().allocated.insert(offset_of(bp), txg);
        std::future::ready(if taken.is_none() { Ok(()) } else { Err(failed()) }).boxed()
    }

    fn read<'a>(&'a self, bp: &'a Blkptr) -> BoxFuture<'a, Result<IoBuf>> {
        if let Err(error) = self.readable(bp) {
            return std::future::ready(Err(error)).boxed();
        }
        let found = self.disk().durable.get(&offset_of(bp)).cloned();
        let verified = found.filter(|bytes| {
            codec::checksum::verify_zilog(ChecksumType::Zilog2, bytes, &bp.checksum(), false).is_ok()
        });
        std::future::ready(verified.map(|bytes| IoBuf::from(&bytes[..])).ok_or_else(failed)).boxed()
    }

    fn read_data<'a>(&'a self, _: ObjectId, bp: &'a Blkptr) -> BoxFuture<'a, Result<Block>> {
        if let Err(error) = self.readable(bp) {
            return std::future::ready(Err(error)).boxed();
        }
        let found = self.disk().durable.get(&offset_of(bp)).cloned();
        std::future::ready(found.map(|bytes| Block::from(IoBuf::from(&bytes[..]))).ok_or_else(failed)).boxed()
    }

    fn may_keep_log(&self) -> bool {
        true
    }

    fn has_log_devices(&self) -> bool {
        self.disk().log_devices
    }

    fn early_block_size(&self, _: ObjectId) -> BoxFuture<'_, Result<Option<u64>>> {
        std::future::ready(Ok(self.disk().block_size)).boxed()
    }

    fn write_early(&self, txg: Txg, _: ObjectId, block: u64) -> BoxFuture<'_, Result<Option<Early>>> {
        std::future::poll_fn(move |context| {
            let Some(size) = self.disk().block_size else { return Poll::Ready(Ok(None)) };
            if self.disk().slow {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let bp = self.place(txg, size as usize, ChecksumType::Fletcher4, DmuType::ZVOL)?;
            let mut disk = self.disk();
            let bytes = disk.content[(block * size) as usize..][..size as usize].to_vec();
            let data_bytes = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
            disk.written.insert(offset_of(&bp), bytes);
            Poll::Ready(Ok(Some(Early { pointer: bp, data_bytes })))
        })
        .boxed()
    }

    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>> {
        let disk = self.disk();
        if disk.is_gone {
            return std::future::ready(Ok(Fetched::Gone)).boxed();
        }
        let content = disk.content.get(write.offset as usize..).unwrap_or_default();
        let left = into.len().min(content.len());
        into[..left].copy_from_slice(&content[..left]);
        std::future::ready(Ok(Fetched::Bytes(left))).boxed()
    }

    fn left(&self, write: Written) -> BoxFuture<'_, Result<Option<u64>>> {
        let disk = self.disk();
        let size = disk.size.unwrap_or(disk.content.len() as u64);
        let left = size.saturating_sub(write.offset);
        std::future::ready(Ok((!disk.is_gone).then_some(left))).boxed()
    }

    fn set_source(&self, _: Weak<dyn Source>) {}

    fn set_header(&self, tx: &Tx, header: &ZilHeader) {
        self.disk().headers.insert(tx.txg(), *header);
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A volume of 1 MiB with a log.
struct World {
    fake: Fake,
    txgs: Arc<Txgs>,
    env: Arc<dyn Env>,
    zil: Zil,
}

/// The result of a future that does not wait, although it may let others go first.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..16 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
    panic!("it waits")
}

fn is_waiting<F: Future + Unpin>(future: &mut F) -> bool {
    future.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending()
}

impl World {
    fn new(seed: u64) -> Self {
        let fake = Fake::default();
        fake.disk().content = vec![0; 1 << 20];
        Self::on(fake, Txg(10), seed)
    }

    fn on(fake: Fake, synced: Txg, seed: u64) -> Self {
        let txgs = Txgs::new(synced, Limits::default());
        let env: Arc<dyn Env> = Arc::new(Seeded::new(seed));
        let zil = Zil::over(Box::new(fake.clone()), &fake.header(synced), &txgs, &env);
        Self { fake, txgs, env, zil }
    }

    fn write(&self, offset: u64, byte: u8, length: usize) {
        let tx = now(self.txgs.begin(length as u64)).unwrap();
        self.fake.disk().content[offset as usize..][..length].fill(byte);
        self.zil.note_write(&tx, 1, offset, length as u64);
    }

    fn sync(&self) -> Txg {
        let txg = now(self.txgs.quiesce()).unwrap();
        now(self.zil.sync(&Tx::syncing(txg))).unwrap();
        self.txgs.committed(txg);
        self.zil.synced(txg);
        txg
    }

    /// A world with a chain that can be written to.
    fn started(seed: u64) -> Self {
        let world = Self::new(seed);
        world.write(0, 1, 512);
        let zil = world.zil.clone();
        let mut commit = Box::pin(zil.commit());
        assert!(is_waiting(&mut commit), "the first commit waits for its group");
        world.sync();
        now(commit).unwrap();
        drop(zil);
        world
    }

    /// The state after a crash: durable blocks, allocations of committed groups, and the last committed
    /// header; claimed by the first group.
    fn crash(self) -> World {
        self.crash_unless(None, Unreadable::Refused).unwrap()
    }

    /// The same, where nothing can be read from an offset on when the log is claimed.
    fn crash_unless(&self, unread: Option<u64>, unreadable: Unreadable) -> Result<World> {
        let synced = self.txgs.synced_txg();
        let fake = Fake::default();
        {
            let (mut new, old) = (fake.disk(), self.fake.disk());
            new.durable = old.durable.clone();
            new.written = old.durable.clone();
            new.allocated = old
                .allocated
                .iter()
                .filter(|(_, txg)| **txg <= synced)
                .map(|(at, txg)| (*at, *txg))
                .collect();
            new.next = old.next;
            new.content = vec![0; 1 << 20];
        }
        let header = self.fake.header(synced);
        let first = Txg(synced.get() + 1);
        fake.disk().unreadable = unread;
        let mut clones = Vec::new();
        let claimed = claim::claim_log(&fake, &header, first, &*self.env, &mut clones, unreadable);
        let header = now(claimed)?;
        fake.disk().unreadable = None;
        fake.disk().headers.insert(first, header);
        Ok(World::on(fake, first, self.env.random()))
    }

    /// Drives a future, committing groups while it waits.
    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(value) => return value,
                Poll::Pending => drop(self.sync()),
            }
        }
    }

    fn replayed(&self) -> Vec<(u64, u8, u64)> {
        let recorder = Recorder { txgs: Arc::clone(&self.txgs), seen: Mutex::default() };
        let zil = self.zil.clone();
        self.drive(zil.replay(&recorder)).unwrap();
        recorder.seen.into_inner().unwrap()
    }
}

struct Recorder {
    txgs: Arc<Txgs>,
    seen: Mutex<Vec<(u64, u8, u64)>>,
}

impl Replay for Recorder {
    async fn apply(&self, record: &Record<'_>, applied: &Applied) -> Result<()> {
        let tx = self.txgs.begin(0).await?;
        if let Record::Write { offset, length, data: WriteData::Inline(data), .. } = record {
            let byte = data.first().copied().unwrap_or_default();
            assert!(data.iter().take(*length as usize).all(|other| *other == byte));
            lock(&self.seen).push((*offset, byte, *length));
        }
        applied.with(&tx);
        Ok(())
    }
}

#[test]
fn what_was_committed_is_replayed_and_what_was_not_is_not() {
    let world = World::started(1);
    world.write(4096, 2, 4096);
    now(world.zil.commit()).unwrap();
    world.write(8192, 3, 100_000);
    world.write(0, 4, 8);
    now(world.zil.commit()).unwrap();
    world.write(0, 5, 512);
    let after = world.crash();
    assert!(after.zil.needs_replay());
    let seen = after.replayed();
    assert_eq!((seen[0], *seen.last().unwrap()), ((4096, 2, 4096), (0, 4, 8)));
    assert_eq!(
        seen.iter().filter(|(_, byte, _)| *byte == 3).map(|(.., length)| length).sum::<u64>(),
        100_000
    );
    assert!(after.fake.disk().allocated.is_empty(), "the log is destroyed");
    assert!(after.fake.header(after.txgs.synced_txg()).is_empty());
}

#[test]
fn one_flush_serves_all_who_wait() {
    let world = World::started(2);
    let before = world.fake.disk().flushes;
    world.fake.disk().slow = true;
    world.write(0, 1, 512);
    let zils = vec![world.zil.clone(); 9];
    let mut first = Box::pin(zils[0].commit());
    assert!(is_waiting(&mut first));
    let mut commits: Vec<_> = zils[1..]
        .iter()
        .map(|zil| {
            world.write(0, 2, 512);
            let mut commit = Box::pin(zil.commit());
            assert!(is_waiting(&mut commit));
            commit
        })
        .collect();
    world.fake.disk().slow = false;
    now(first).unwrap();
    for commit in &mut commits {
        now(commit).unwrap();
    }
    assert_eq!(world.fake.disk().flushes, before + 2);
}

#[test]
fn a_batch_lets_those_of_the_last_one_join() {
    let world = World::started(2);
    let before = world.fake.disk().flushes;
    let zils = vec![world.zil.clone(); 5];
    let commit = |number: usize| {
        world.write(0, number as u8, 512);
        Box::pin(zils[number].commit())
    };
    world.fake.disk().slow = true;
    let mut commits: Vec<_> = (0..4).map(commit).collect();
    assert!(commits.iter_mut().all(is_waiting));
    world.fake.disk().slow = false;
    now(commits.remove(0)).unwrap();
    // A caller that is back sooner than the first one does not begin without it.
    assert!(commits.iter_mut().all(is_waiting));
    commits.push(commit(4));
    for commit in &mut commits {
        now(commit).unwrap();
    }
    assert_eq!(world.fake.disk().flushes, before + 2);
}

#[test]
fn a_commit_that_its_asker_gave_up_is_finished_by_the_next() {
    let world = World::started(3);
    world.fake.disk().slow = true;
    world.write(0, 1, 512);
    assert!(is_waiting(&mut Box::pin(world.zil.commit())));
    world.fake.disk().slow = false;
    world.write(512, 2, 512);
    now(world.zil.commit()).unwrap();
    assert_eq!(world.crash().replayed(), [(0, 1, 512), (512, 2, 512)]);
}

#[test]
fn a_group_waits_for_the_batch_that_allocated_in_it() {
    let world = World::started(4);
    world.fake.disk().slow = true;
    world.write(0, 1, 512);
    let mut commit = Box::pin(world.zil.commit());
    assert!(is_waiting(&mut commit));
    let txg = now(world.txgs.quiesce()).unwrap();
    let tx = Tx::syncing(txg);
    let mut sync = Box::pin(world.zil.sync(&tx));
    assert!(is_waiting(&mut sync));
    world.fake.disk().slow = false;
    now(sync).unwrap();
    now(commit).unwrap();
}

const LARGE: u64 = 64 << 10;

/// The data blocks and the bytes of log blocks that `act` writes.
fn written_by(world: &World, act: impl FnOnce()) -> (usize, usize) {
    let before = world.fake.disk().written.clone();
    act();
    let disk = world.fake.disk();
    let new = disk.written.iter().filter(|(at, _)| !before.contains_key(at));
    let (data, log): (Vec<_>, Vec<_>) = new.partition(|(_, bytes)| bytes.len() as u64 == LARGE);
    (data.len(), log.iter().map(|(_, bytes)| bytes.len()).sum())
}

#[test]
fn large_writes_are_logged_by_pointer_and_replayed() {
    let world = World::started(20);
    world.fake.disk().block_size = Some(LARGE);
    let (blocks, log) = written_by(&world, || {
        world.write(LARGE, 2, 2 * LARGE as usize);
        world.write(0, 3, 4096);
        // Less than half of its first block is written.
        world.write(5 * LARGE - 4096, 4, 4096 + LARGE as usize);
        now(world.zil.commit()).unwrap();
    });
    assert!(blocks == 3 && log < 20_000, "{blocks} blocks and {log} bytes");
    let after = world.crash();
    let expected = [
        (LARGE, 2, LARGE),
        (2 * LARGE, 2, LARGE),
        (0, 3, 4096),
        (5 * LARGE - 4096, 4, 4096),
        (5 * LARGE, 4, LARGE),
    ];
    assert_eq!(after.replayed(), expected);
    assert!(after.fake.disk().allocated.is_empty(), "the blocks of records that were replayed are free");
}

#[test]
fn what_is_logged_by_pointer_follows_from_bias_and_devices() {
    let world = World::started(21);
    world.fake.disk().block_size = Some(LARGE);
    let large = || {
        written_by(&world, || {
            world.write(LARGE, 2, LARGE as usize);
            now(world.zil.commit()).unwrap();
        })
    };
    let small = || {
        written_by(&world, || {
            world.write(0, 2, 512);
            now(world.zil.commit()).unwrap();
        })
    };
    assert_eq!((large().0, small().0), (1, 0));
    world.fake.disk().log_devices = true;
    assert_eq!((large().0, small().0), (0, 0));
    world.zil.set_for_throughput(true);
    assert_eq!((large().0, small().0), (1, 1));
    world.fake.disk().block_size = None;
    assert_eq!((large().0, small().0), (0, 0));
}

/// Its changes may be missing from the block, and a replay would put the block over them.
#[test]
fn nothing_is_logged_by_pointer_while_the_group_before_is_held() {
    let world = World::started(24);
    world.fake.disk().block_size = Some(LARGE);
    let held = now(world.txgs.begin(0)).unwrap();
    let mut quiesce = Box::pin(world.txgs.quiesce());
    assert!(is_waiting(&mut quiesce));
    let write = |byte| {
        written_by(&world, || {
            world.write(LARGE, byte, LARGE as usize);
            now(world.zil.commit()).unwrap();
        })
    };
    assert_eq!(write(2).0, 0);
    drop(held);
    now(quiesce).unwrap();
    assert_eq!(write(3).0, 1);
}

/// What lies behind it would appear when the file grows.
#[test]
fn a_record_by_pointer_covers_all_data_of_its_block() {
    let world = World::started(25);
    world.fake.disk().block_size = Some(LARGE);
    world.zil.set_for_throughput(true);
    world.write(LARGE, 2, 5000);
    // A later write, which is not noted yet.
    world.fake.disk().content[LARGE as usize + 5000..][..4000].fill(2);
    now(world.zil.commit()).unwrap();
    // The file ends before it.
    world.write(2 * LARGE, 4, 5000);
    {
        let content = &mut world.fake.disk().content;
        content.truncate(2 * LARGE as usize + 5000);
        content.extend([0; 3000]);
        content.extend([5; 1000]);
        content.resize(3 * LARGE as usize, 0);
    }
    world.fake.disk().size = Some(2 * LARGE + 5000);
    now(world.zil.commit()).unwrap();
    assert_eq!(world.crash().replayed(), [(LARGE, 2, 9000), (2 * LARGE, 4, 5000)]);
}

#[test]
fn a_group_waits_for_the_blocks_that_are_written_early() {
    let world = World::started(22);
    world.fake.disk().block_size = Some(LARGE);
    world.fake.disk().slow = true;
    world.write(LARGE, 1, LARGE as usize);
    let mut commit = Box::pin(world.zil.commit());
    assert!(is_waiting(&mut commit));
    // The caller may go away: the group continues all the same.
    drop(commit);
    let tx = Tx::syncing(now(world.txgs.quiesce()).unwrap());
    let mut sync = Box::pin(world.zil.sync(&tx));
    assert!(is_waiting(&mut sync));
    world.fake.disk().slow = false;
    now(sync).unwrap();
}

#[test]
fn blocks_of_committed_groups_are_freed_but_for_the_last() {
    let world = World::started(5);
    for round in 0..20 {
        world.write(0, round, 512);
        now(world.zil.commit()).unwrap();
    }
    assert!(world.fake.disk().allocated.len() > 20);
    world.sync();
    world.sync();
    assert_eq!(world.fake.disk().allocated.len(), 1);
    let after = world.crash();
    assert!(!after.zil.needs_replay());
    after.write(0, 7, 512);
    now(after.zil.commit()).unwrap();
    assert_eq!(after.crash().replayed(), [(0, 7, 512)]);
}

#[test]
fn records_of_committed_groups_are_not_replayed() {
    let world = World::started(6);
    world.write(0, 1, 512);
    now(world.zil.commit()).unwrap();
    let held = now(world.txgs.begin(0)).unwrap();
    world.zil.note_write(&held, 1, 4096, 512);
    drop(held);
    world.sync();
    world.write(512, 2, 512);
    now(world.zil.commit()).unwrap();
    assert_eq!(world.crash().replayed(), [(512, 2, 512)]);
}

#[test]
fn without_space_a_commit_waits_for_its_group_and_the_log_recovers() {
    let world = World::started(7);
    world.fake.disk().full = true;
    world.write(0, 1, 512);
    let zil = world.zil.clone();
    let mut commit = Box::pin(zil.commit());
    assert!(is_waiting(&mut commit));
    // Later commits must not report it as stable either.
    let mut second = Box::pin(zil.commit());
    assert!(is_waiting(&mut second));
    world.fake.disk().full = false;
    world.sync();
    now(commit).unwrap();
    now(second).unwrap();
    assert!(world.fake.disk().allocated.is_empty(), "the chain is given up");
    world.write(0, 2, 512);
    let mut commit = Box::pin(zil.commit());
    assert!(is_waiting(&mut commit));
    world.sync();
    now(commit).unwrap();
    world.write(0, 3, 512);
    now(zil.commit()).unwrap();
    assert_eq!(world.crash().replayed(), [(0, 3, 512)]);
}

#[test]
fn a_device_that_fails_breaks_the_chain_but_no_promise() {
    let world = World::started(8);
    world.write(0, 1, 512);
    now(world.zil.commit()).unwrap();
    world.fake.disk().broken = true;
    world.write(512, 2, 512);
    let zil = world.zil.clone();
    let mut commit = Box::pin(zil.commit());
    assert!(is_waiting(&mut commit));
    drop(commit);
    drop(zil);
    assert_eq!(world.crash().replayed(), [(0, 1, 512)]);
}

#[test]
fn much_at_once_is_left_to_the_group() {
    let world = World::started(9);
    world.fake.disk().content = vec![0; 16 << 20];
    world.write(0, 1, 16 << 20);
    let zil = world.zil.clone();
    let mut commit = Box::pin(zil.commit());
    assert!(is_waiting(&mut commit));
    world.sync();
    now(commit).unwrap();
}

#[test]
fn closing_gives_everything_back() {
    let world = World::started(10);
    world.write(0, 1, 512);
    now(world.zil.commit()).unwrap();
    world.write(0, 2, 512);
    let zil = world.zil.clone();
    let mut close = Box::pin(zil.close());
    assert!(is_waiting(&mut close));
    world.sync();
    now(close).unwrap();
    assert!(world.fake.disk().allocated.is_empty());
    assert!(world.fake.header(world.txgs.synced_txg()).is_empty());
}

#[test]
fn a_crash_during_replay_replays_again_from_where_it_was() {
    let world = World::started(11);
    for round in 1..4 {
        world.write(0, round, 512);
        now(world.zil.commit()).unwrap();
    }
    let after = world.crash();
    // One group has the first record only.
    struct First<'a>(&'a World, Mutex<usize>);
    impl Replay for First<'_> {
        async fn apply(&self, _: &Record<'_>, applied: &Applied) -> Result<()> {
            let tx = self.0.txgs.begin(0).await?;
            let mut count = lock(&self.1);
            *count += 1;
            if *count == 2 {
                return Err(failed());
            }
            applied.with(&tx);
            Ok(())
        }
    }
    assert!(now(after.zil.replay(&First(&after, Mutex::default()))).is_err());
    after.sync();
    assert!(after.zil.needs_replay(), "the log stays");
    let header = after.fake.header(after.txgs.synced_txg());
    let again = World::on(after.fake.clone(), after.txgs.synced_txg(), 1);
    assert_eq!(header.replay_seq, 1);
    assert_eq!(again.replayed(), [(0, 2, 512), (0, 3, 512)]);
}

/// What comes after a block that a device cannot read now may have been promised.
#[test]
fn a_log_is_not_claimed_in_part_because_a_device_fails() {
    let world = World::started(26);
    world.fake.disk().block_size = Some(LARGE);
    for round in 1..4 {
        world.write(0, round, 512);
        now(world.zil.commit()).unwrap();
    }
    // By pointer: its block comes before the one that ends the log.
    world.write(LARGE, 4, LARGE as usize);
    now(world.zil.commit()).unwrap();
    let all = [(0, 1, 512), (0, 2, 512), (0, 3, 512), (LARGE, 4, LARGE)];
    let offsets: Vec<u64> = world.fake.disk().durable.keys().copied().collect();
    for offset in offsets {
        let refused = world.crash_unless(Some(offset), Unreadable::Refused);
        assert!(matches!(refused, Err(Error::UnreadableLog { .. })), "offset {offset}");
        let given_up = world.crash_unless(Some(offset), Unreadable::GivenUp).unwrap();
        let replayed = given_up.replayed();
        assert!(replayed.len() < all.len() && all.starts_with(&replayed), "offset {offset}: {replayed:?}");
    }
    assert_eq!(world.crash_unless(None, Unreadable::Refused).unwrap().replayed(), all);
}

#[test]
fn a_claimed_log_that_lost_a_block_is_not_replayed_in_part() {
    let world = World::started(12);
    for round in 1..4 {
        world.write(0, round, 512);
        now(world.zil.commit()).unwrap();
    }
    let after = world.crash();
    let second = *after.fake.disk().durable.keys().nth(1).unwrap();
    after.fake.disk().durable.remove(&second);
    let recorder = Recorder { txgs: Arc::clone(&after.txgs), seen: Mutex::default() };
    assert!(now(after.zil.replay(&recorder)).is_err());
    assert!(after.zil.needs_replay());
}

/// Random writes, commits, group syncs and crashes at any point: everything committed is there, in order, and
/// allocations always add up.
#[test]
fn random_histories_keep_every_promise() {
    for seed in 0..300 {
        let random = Seeded::new(seed);
        let mut world = World::new(seed);
        let mut committed: Vec<u8> = vec![0; 1 << 20];
        let mut stable: Vec<u8> = vec![0; 1 << 20];
        let pick = |below: u64| random.random() % below;
        for _ in 0..60 {
            match pick(10) {
                0..5 => {
                    let length = if pick(4) == 0 { 1 + pick(200_000) } else { 1 + pick(9000) };
                    let offset = pick((1 << 20) - length);
                    world.write(offset, pick(255) as u8 + 1, length as usize);
                }
                5..8 => {
                    let zil = world.zil.clone();
                    let mut commit = Box::pin(zil.commit());
                    if is_waiting(&mut commit) {
                        world.sync();
                        committed = world.fake.disk().content.clone();
                        now(commit).unwrap();
                    }
                    stable = world.fake.disk().content.clone();
                }
                8 => {
                    world.sync();
                    committed = world.fake.disk().content.clone();
                    stable = committed.clone();
                }
                _ => {
                    let after = world.crash();
                    let mut content = committed.clone();
                    let recorder = Applier { txgs: Arc::clone(&after.txgs), content: Mutex::new(content) };
                    if after.zil.needs_replay() {
                        let zil = after.zil.clone();
                        after.drive(zil.replay(&recorder)).unwrap();
                    }
                    content = recorder.content.into_inner().unwrap();
                    assert!(content == stable, "seed {seed}");
                    after.fake.disk().content.clone_from(&content);
                    committed = content;
                    assert!(after.fake.disk().allocated.len() <= 1, "seed {seed}: leaked");
                    world = after;
                }
            }
        }
    }
}

struct Applier {
    txgs: Arc<Txgs>,
    content: Mutex<Vec<u8>>,
}

impl Replay for Applier {
    async fn apply(&self, record: &Record<'_>, applied: &Applied) -> Result<()> {
        let tx = self.txgs.begin(0).await?;
        if let Record::Write { offset, data: WriteData::Inline(data), .. } = record {
            lock(&self.content)[*offset as usize..][..data.len()].copy_from_slice(data);
        }
        applied.with(&tx);
        Ok(())
    }
}

#[test]
fn seeds_count_up_along_the_chain() {
    let world = World::started(13);
    world.write(0, 1, 300_000);
    now(world.zil.commit()).unwrap();
    let header = world.fake.header(world.txgs.synced_txg());
    let mut walk = claim::Walk::new(&header);
    let mut seqs = Vec::new();
    while let Some(bp) = walk.block() {
        seqs.push(ChainSeed::of(&bp).seq);
        let Ok(bytes) = now(world.fake.read(&bp)) else { break };
        walk.follow(&bp, &bytes).unwrap();
    }
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
}

#[test]
fn what_was_cut_off_is_not_logged_and_waits_only_for_what_is_noted_elsewhere() {
    let world = World::started(1);
    world.write(8192, 7, 4096);
    world.fake.disk().content.truncate(8192 + 1000);
    now(world.zil.commit_object(1)).unwrap();
    world.write(4096, 8, 4096);
    now(world.zil.commit_object(1)).unwrap();
    world.write(0, 9, 4096);
    world.fake.disk().is_gone = true;
    let zil = world.zil.clone();
    let mut commit = Box::pin(zil.commit());
    assert!(is_waiting(&mut commit), "what freed the object is not in the log");
    let seen = world.crash().replayed();
    assert_eq!(seen, [(8192, 7, 1000), (4096, 8, 4096), (0, 0, 0)]);
}
