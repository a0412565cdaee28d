//! What the unit is: the standard data and the pages of vital product data.
//!
//! Source of the facts: SPC-4, sections 6.6 and 7.8; SBC-3, section 6.6.

use super::command::{MOST_COMPARED, MOST_SAME_BYTES};
use super::provisioning::Provisioning;
use super::{MOST_BYTES, Sense, copy};

/// What is told of a unit.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// The number that it keeps, whatever its name is.
    pub guid: u64,
    /// The name of its target.
    pub target: String,
    /// The group of the portal.
    pub port: u16,
    /// Bytes of a block as initiators count.
    pub block_bytes: u32,
}

impl Identity {
    /// The unit's name of 8 bytes (NAA, locally assigned).
    pub fn naa(&self) -> [u8; 8] {
        (self.guid >> 4 | 3 << 60).to_be_bytes()
    }

    /// Blocks, as initiators count, in one of the volume, which has so many bytes.
    pub fn best_blocks(&self, volume_block_bytes: u32) -> u32 {
        (volume_block_bytes / self.block_bytes).max(1)
    }
}

const VENDOR: &[u8; 8] = b"CENOTE  ";
const PRODUCT: &[u8; 16] = b"VOLUME          ";
const REVISION: &[u8; 4] = b"0001";

/// The standard data.
pub(super) fn standard() -> Vec<u8> {
    // A disk, SPC-4, of the usual form; it has port groups (implicitly changed), copies for initiators, and
    // queues commands.
    let mut data = vec![0, 0, 6, 0x12, 91, 0x18, 0, 2];
    data.extend(VENDOR);
    data.extend(PRODUCT);
    data.extend(REVISION);
    data.resize(58, 0);
    // SAM-5, SPC-4, SBC-3, iSCSI.
    for version in [0x00a0u16, 0x0460, 0x04c0, 0x0960] {
        data.extend(version.to_be_bytes());
    }
    data.resize(96, 0);
    data
}

/// The standard data of a unit that does not exist.
pub(super) fn missing() -> Vec<u8> {
    let mut data = standard();
    if let Some(first) = data.first_mut() {
        *first = 0x7f;
    }
    data
}

/// A page of vital product data, of a unit whose volume has blocks of so many bytes.
///
/// # Errors
/// There is no such page.
pub(super) fn page(number: u8, identity: &Identity, volume_block_bytes: u32) -> Result<Vec<u8>, Sense> {
    let body = match number {
        0x00 => vec![0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2],
        0x80 => format!("{:016x}", identity.guid).into_bytes(),
        0x83 => designators(identity),
        // No protection; simple queueing, heads of queue and ordered commands; no write is kept in memory
        // that does not outlast a loss of power after a flush.
        0x86 => {
            let mut body = vec![0; 60];
            body.splice(0..4, [0, 0x07, 0x01, 0]);
            body
        }
        0x8f => copy::page(),
        0xb0 => limits(identity, volume_block_bytes),
        // It does not turn.
        0xb1 => {
            let mut body = vec![0; 60];
            body.splice(0..2, 1u16.to_be_bytes());
            body
        }
        // Sets in which room is counted. Unmapped by UNMAP and both forms of WRITE SAME; what is unmapped
        // reads as zeroes; thin.
        0xb2 => vec![Provisioning::exponent(identity.block_bytes), 0xe4, 2, 0],
        _ => return Err(Sense::INVALID_FIELD),
    };
    let mut page = vec![0, number];
    page.extend((body.len() as u16).to_be_bytes());
    page.extend(body);
    Ok(page)
}

/// The unit's name, that of its vendor, and those of its port.
fn designators(identity: &Identity) -> Vec<u8> {
    let mut body = Vec::new();
    let mut add = |codes: [u8; 2], bytes: &[u8]| {
        body.extend([codes[0], codes[1], 0, bytes.len() as u8]);
        body.extend(bytes);
    };
    add([1, 3], &identity.naa());
    add([2, 1], format!("CENOTE  {:016x}", identity.guid).as_bytes());
    // Of the port: its relative number and its group, over iSCSI.
    add([0x51, 0x94], &[0, 0, 0, 1]);
    let [high, low] = identity.port.to_be_bytes();
    add([0x51, 0x95], &[0, 0, high, low]);
    let mut name = format!("{},t,0x{:04x}", identity.target, identity.port).into_bytes();
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    add([0x53, 0x98], &name);
    body
}

fn limits(identity: &Identity, volume_block_bytes: u32) -> Vec<u8> {
    let (best, each) = (identity.best_blocks(volume_block_bytes), u64::from(identity.block_bytes));
    let most = (MOST_BYTES / each) as u32;
    let most_same = MOST_SAME_BYTES / each;
    // WRITE SAME of no blocks goes to the end.
    let mut body = vec![0, MOST_COMPARED as u8];
    body.extend((best.min(u32::from(u16::MAX)) as u16).to_be_bytes());
    body.extend(most.to_be_bytes());
    body.extend(best.max((1 << 20) / identity.block_bytes).to_be_bytes());
    body.extend(0u32.to_be_bytes());
    // Blocks and ranges of an UNMAP; its granularity, which begins at block 0.
    body.extend(MOST_UNMAPPED.to_be_bytes());
    body.extend(MOST_RANGES.to_be_bytes());
    body.extend(best.to_be_bytes());
    body.extend((1u32 << 31).to_be_bytes());
    body.extend(most_same.to_be_bytes());
    body.resize(60, 0);
    body
}

/// Blocks of one UNMAP.
pub(super) const MOST_UNMAPPED: u32 = 1 << 20;
/// Ranges of one UNMAP.
pub(super) const MOST_RANGES: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_that_is_listed_is_there_and_as_long_as_it_says() {
        let target = "iqn.2026-11.org.cenote:tank:disk".to_owned();
        let identity = Identity { guid: 0x1234_5678_9abc_def0, target, port: 1, block_bytes: 512 };
        let page = |number| page(number, &identity, 16384);
        let list = page(0).expect("the list");
        for number in &list[4..] {
            let page = page(*number).expect("listed");
            assert_eq!((page[1], usize::from(page[3]) + 4), (*number, page.len()));
        }
        assert_eq!(page(0xb3), Err(Sense::INVALID_FIELD));
        let limits = page(0xb0).expect("limits");
        assert_eq!((limits.len(), &limits[6..8]), (64, &[0, 32][..]));
        assert_eq!(standard().len(), usize::from(standard()[4]) + 5);
        assert_eq!(&page(0x83).expect("names")[8..16], &[0x31, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
    }
}
