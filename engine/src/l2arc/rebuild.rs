//! Finding again what a cache device holds: from its header and its log blocks to the index.
//!
//! The chain of log blocks is followed from the newest to the oldest, as long as each one is whole and was
//! not given up. A device can say anything: addresses outside of its ring, chains that lead back, blocks of
//! the future. The number of log blocks is bounded by the size of the ring, each entry must lie within it,
//! and a block is only ever returned to a reader when its checksum is right.
//!
//! The header says where the next feed writes, even when the rebuild is turned off (`l2arc_rebuild_enabled`)
//! or ends early. A header that is not this device's, or that leads to no whole log block, is replaced by a
//! new one: the device is empty then.
//!
//! Source of the facts: OpenZFS 2.4 `arc.c` (`l2arc_rebuild_dev`, `l2arc_rebuild`, `l2arc_log_blk_read`,
//! `l2arc_log_blk_restore`, `l2arc_hdr_restore`).

use codec::checksum::compute;
use codec::compress::decompress;
use ondisk::ByteOrder;
use ondisk::blkptr::{ChecksumType, CompressType, Dva, MAX_BLOCK_SIZE};
use ondisk::l2arc::{
    DeviceHeader, EntryProperties, LOG_BLOCK_BYTES, LogBlock, LogEntry, LogPointer, TRIM_COMPLETE,
};

use super::device::CacheDevice;
use super::feed::{Fed, Feeder};
use super::index::{BlockKey, Cached};
use super::ring::{Ring, is_between};
use super::{L2arc, Owner};
use crate::cache::ArcCache;
use crate::tunables;
use crate::vdev::VdevTree;
use crate::vdev::capacity::usable_bytes;

/// How a rebuild ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// Everything that is there was found.
    Complete,
    /// A log block could not be read, or is not whole.
    Early,
    /// Memory is short, or the pool is being closed.
    Interrupted,
}

impl L2arc {
    /// Takes up the devices of the tree that are not in use yet, and drops those that are gone.
    pub(super) async fn take_up(
        &self,
        feeder: &mut Feeder,
        vdevs: &VdevTree,
        cache: &ArcCache,
        owner: &Owner,
        may_write: bool,
    ) {
        self.forget_gone();
        feeder.fed.retain(|fed| fed.device.is_usable());
        self.give_up_absent(|device| vdevs.l2cache.iter().all(|vdev| vdev.guid != device.guid));
        for vdev in vdevs.l2cache.iter() {
            if self.is_stopped() || feeder.fed.iter().any(|fed| fed.device.guid == vdev.guid) {
                continue;
            }
            let Some(device) = self.join(|number| CacheDevice::of(vdev, number)) else { continue };
            let usable = device.device().map_or(0, |device| usable_bytes(device.size_bytes()));
            let min_bytes = tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE.get();
            let Some(ring) = Ring::new(usable, device.ashift, min_bytes) else {
                self.leave(&device);
                continue;
            };
            self.give_up_absent(|absent| absent.guid == device.guid);
            device.show_size(ring.end - ring.start);
            let mut fed = Fed { device, ring };
            self.begin(&mut fed, cache, owner, may_write).await;
            feeder.fed.push(fed);
        }
        if may_write {
            self.is_fed.store(!feeder.fed.is_empty(), std::sync::atomic::Ordering::Release);
        }
    }

    /// Goes on with what a device holds, or begins with an empty one.
    async fn begin(&self, fed: &mut Fed, cache: &ArcCache, owner: &Owner, may_write: bool) {
        let empty = fed.ring.clone();
        if let Some(header) = self.header_of(fed, owner).await {
            if tunables::L2ARC_REBUILD_ENABLED.get() == 0 {
                self.keep_chain(fed, &header);
                return;
            }
            let ended = self.rebuild(fed, &header, cache, owner).await;
            self.note_logs(fed);
            let blocks = fed.ring.logs.len();
            tracing::info!(device = fed.device.name, log_blocks = blocks, ?ended, "L2ARC rebuild");
            match ended {
                Ended::Complete if blocks > 0 => {
                    self.both(&fed.device, |stats| stats.l2_rebuild_success.add(1));
                    return;
                }
                Ended::Interrupted if blocks == 0 => return self.keep_chain(fed, &header),
                Ended::Early | Ended::Interrupted => return,
                Ended::Complete => fed.ring = empty,
            }
        }
        if may_write {
            if tunables::L2ARC_TRIM_AHEAD.get() > 0 {
                self.trim_all(fed, owner).await;
            }
            self.write_header(fed, owner).await;
        }
    }

    /// Later log blocks lead to the newest ones, although these were not read.
    fn keep_chain(&self, fed: &mut Fed, header: &DeviceHeader) {
        let newest: Vec<_> = header.newest.iter().take_while(|log| fed.ring.has(log)).copied().collect();
        for log in newest {
            fed.ring.log_bytes += log.asize();
            fed.ring.logs.push_back(log);
        }
        self.note_logs(fed);
    }

    /// The header of a device, if it is this pool's and its log blocks can be read; the ring goes on there.
    async fn header_of(&self, fed: &mut Fed, owner: &Owner) -> Option<DeviceHeader> {
        let header = match fed.device.read_header().await {
            Ok(Some(header)) => header,
            Ok(None) | Err(_) => {
                self.both(&fed.device, |stats| stats.l2_rebuild_dh_errors.add(1));
                return None;
            }
        };
        let empty = fed.ring.clone();
        let is_trimmed = header.trim_state == TRIM_COMPLETE || tunables::L2ARC_TRIM_AHEAD.get() == 0;
        if fed.ring.resume(&header, owner.guid, fed.device.guid) && is_trimmed {
            if fed.ring.log_entries > 0 {
                return Some(header);
            }
            fed.ring = empty;
            return None;
        }
        fed.ring = empty;
        self.both(&fed.device, |stats| stats.l2_rebuild_unsupported.add(1));
        None
    }

    /// Follows the chain of log blocks.
    async fn rebuild(&self, fed: &mut Fed, header: &DeviceHeader, cache: &ArcCache, owner: &Owner) -> Ended {
        let mut next = header.newest;
        // Each log block, and each block that it describes, takes a sector at least.
        let ring = &fed.ring;
        let mut left = ((ring.end - ring.start) >> fed.device.ashift) / (ring.log_entries as u64 + 1) + 1;
        while left > 0 && !next[0].is_empty() && fed.ring.has(&next[0]) {
            left -= 1;
            let Some(block) = self.log_block(fed, &next[0]).await else { return Ended::Early };
            self.account(cache);
            if self.is_short_of_memory(cache) {
                self.both(&fed.device, |stats| stats.l2_rebuild_lowmem.add(1));
                return Ended::Interrupted;
            }
            if self.is_stopped() || !fed.device.is_usable() {
                return Ended::Interrupted;
            }
            self.restore(fed, &next[0], &block, owner);
            fed.ring.log_bytes += next[0].asize();
            fed.ring.logs.push_back(next[0]);
            let (older, newer) = (next[1].payload_start, next[0].payload_start);
            if !fed.ring.first_sweep && is_between(older, newer, fed.ring.evict) {
                break;
            }
            next = [next[1], block.previous];
        }
        Ended::Complete
    }

    async fn log_block(&self, fed: &Fed, log: &LogPointer) -> Option<LogBlock> {
        // A log block that counts has at most 64 KiB.
        let asize = usize::try_from(log.asize()).ok()?;
        let Ok(bytes) = fed.device.read(log.address, asize).await else {
            self.both(&fed.device, |stats| stats.l2_rebuild_io_errors.add(1));
            return None;
        };
        let checksum = compute(ChecksumType::Fletcher4, &bytes, ByteOrder::Little, None).ok()?;
        let block = match checksum == log.checksum {
            true => decoded(log, &bytes, fed.ring.log_entries),
            false => None,
        };
        if block.is_none() {
            self.both(&fed.device, |stats| stats.l2_rebuild_cksum_lb_errors.add(1));
        }
        block
    }

    /// Adds the blocks that a log block describes to the index, the newest first.
    fn restore(&self, fed: &Fed, log: &LogPointer, block: &LogBlock, owner: &Owner) {
        let mut payload = 0;
        for entry in block.entries.iter().rev() {
            let Some((key, cached)) = known(fed, entry, owner) else { continue };
            let asize = fed.device.asize(cached.psize);
            payload += asize;
            let is_new = self.index.add_oldest(&key, &cached);
            if is_new {
                self.note_added(&fed.device, &cached);
            }
            self.both(&fed.device, |stats| {
                stats.l2_rebuild_bufs.add(1);
                stats.l2_rebuild_bufs_precached.add((!is_new).into());
                stats.l2_rebuild_size.add(cached.lsize);
                stats.l2_rebuild_asize.add(asize);
            });
        }
        self.both(&fed.device, |stats| {
            stats.l2_rebuild_log_blks.add(1);
            stats.l2_log_blk_avg_asize.average(log.asize());
            stats.l2_data_to_meta_ratio.average(payload / log.asize().max(1));
        });
    }
}

pub(super) fn decoded(log: &LogPointer, bytes: &[u8], entries: usize) -> Option<LogBlock> {
    match log.compress().ok()? {
        CompressType::Off => LogBlock::parse(bytes, entries).ok(),
        CompressType::Lz4 => {
            let mut plain = vec![0; LOG_BLOCK_BYTES];
            decompress(CompressType::Lz4, bytes, &mut plain).ok()?;
            LogBlock::parse(&plain, entries).ok()
        }
        _ => None,
    }
}

/// The block of an entry, if it can be one of this pool's on this device.
fn known(fed: &Fed, entry: &LogEntry, owner: &Owner) -> Option<(BlockKey, Cached)> {
    let properties = EntryProperties::from_word(entry.prop).ok()?;
    let dva = Dva::from_words(entry.dva).ok().flatten()?;
    let (psize, lsize) = (properties.psize.get(), properties.lsize.get());
    let end = entry.address.checked_add(fed.device.asize(psize))?;
    let is_possible = entry.birth.get() > 0
        && entry.birth.get() <= owner.committed
        && psize <= MAX_BLOCK_SIZE
        && lsize <= MAX_BLOCK_SIZE
        && entry.address >= fed.ring.start
        && end <= fed.ring.end
        && entry.address.is_multiple_of(1 << fed.device.ashift);
    is_possible.then(|| {
        let cached = Cached {
            device: fed.device.number,
            address: entry.address,
            psize,
            lsize,
            is_metadata: properties.is_metadata,
            frequent: properties.frequent,
        };
        (BlockKey::at(&dva, entry.birth.get()), cached)
    })
}
