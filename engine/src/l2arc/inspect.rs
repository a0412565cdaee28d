//! What a cache device holds, as far as it says so itself: for people who look at a device.

use ::device::{Device, IoError};
use codec::checksum::{compute, verify_label};
use ondisk::ByteOrder;
use ondisk::blkptr::ChecksumType;
use ondisk::l2arc::{DeviceHeader, FLAG_FIRST_SWEEP, LOG_BLOCK_BYTES, LogPointer};

use super::rebuild::decoded;
use super::ring::{Ring, header_bytes, is_between};
use crate::vdev::LABEL_START_BYTES;
use crate::vdev::capacity::usable_bytes;

/// What was found on a cache device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The header.
    pub header: DeviceHeader,
    /// The log blocks, the newest first. The last one may be damaged.
    pub logs: Vec<InspectedLog>,
}

/// A log block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedLog {
    /// Where it is.
    pub pointer: LogPointer,
    /// The blocks that it describes; none where it is damaged.
    pub entries: Option<usize>,
}

/// Reads the header and the log blocks of a cache device with sectors of `1 << ashift` bytes. `None` where
/// there is no header, or not a whole one.
///
/// # Errors
/// The device cannot be read.
pub async fn inspect(device: &dyn Device, ashift: u32) -> Result<Option<Inspection>, IoError> {
    let sector = device.read(LABEL_START_BYTES, header_bytes(ashift)).await?;
    if verify_label(&sector, LABEL_START_BYTES).is_err() {
        return Ok(None);
    }
    let Ok((header, _)) = DeviceHeader::parse_sector(&sector) else { return Ok(None) };
    let mut logs = Vec::new();
    let ring = Ring::new(usable_bytes(device.size_bytes()), ashift, 0);
    let resumed = ring.and_then(|mut ring| ring.resume(&header, header.pool, header.vdev).then_some(ring));
    if let Some(ring) = resumed {
        let mut next = header.newest;
        let mut left = ((ring.end - ring.start) >> ashift) / (header.log_entries + 1) + 1;
        while left > 0 && !next[0].is_empty() && ring.has(&next[0]) {
            left -= 1;
            // One that is there has at most 64 KiB.
            let asize = next[0].asize().min(LOG_BLOCK_BYTES as u64) as usize;
            let bytes = device.read(next[0].address, asize).await?;
            let checksum = compute(ChecksumType::Fletcher4, &bytes, ByteOrder::Little, None).ok();
            let is_whole = checksum == Some(next[0].checksum);
            let block = decoded(&next[0], &bytes, ring.log_entries).filter(|_| is_whole);
            logs.push(InspectedLog {
                pointer: next[0],
                entries: block.as_ref().map(|block| block.entries.len()),
            });
            let Some(block) = block else { break };
            let (older, newer) = (next[1].payload_start, next[0].payload_start);
            if header.flags & FLAG_FIRST_SWEEP == 0 && is_between(older, newer, header.evict) {
                break;
            }
            next = [next[1], block.previous];
        }
    }
    Ok(Some(Inspection { header, logs }))
}
