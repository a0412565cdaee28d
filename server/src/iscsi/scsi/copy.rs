//! EXTENDED COPY: what is to be copied, within this daemon.
//!
//! An initiator says which units it means by their names (NAA) and which blocks go where. Hosts of virtual
//! machines copy and move disks by it, so that no byte goes over the network; blocks of the same pool are
//! shared instead of copied ([`crate::block::Export::copy_from`]).
//!
//! | bytes of the list | what |
//! |---|---|
//! | 0 | a number by which the outcome is asked for |
//! | 1 | bits 4, 3: both are set where there is no such number |
//! | 2, 3 | bytes of descriptors of units, each 32 |
//! | 8 to 11 | bytes of descriptors of segments |
//! | 12 to 15 | bytes of data within the list, of which there are none |
//! | 16 on | units, then segments |
//!
//! | bytes of a unit | what |
//! |---|---|
//! | 0 | 0xe4: named by a designator as page 0x83 has them |
//! | 1 | bits 4 to 0: 0, a disk |
//! | 4, 5, 7 | code set, designator type, length of the designator |
//! | 8 on | the designator |
//! | 29 to 31 | bytes of a block |
//!
//! | bytes of a segment | what |
//! |---|---|
//! | 0 | 2: from blocks to blocks |
//! | 2, 3 | bytes that follow: 24 |
//! | 4 to 7 | the units' numbers in the list: source, destination |
//! | 10, 11 | blocks |
//! | 12 to 19, 20 to 27 | first block of the source, of the destination |
//!
//! Source of the facts: SPC-4, sections 6.4, 6.18 and 7.8.17 (the first form of the command, LID1).

use super::Sense;
use super::command::MOST_COPY_LIST_BYTES;

/// The most units that a list names.
const MOST_UNITS: usize = 16;
/// The most segments of a list.
const MOST_SEGMENTS: usize = 256;
/// Bytes of a segment at most: what its number of blocks can say, of the largest blocks.
const MOST_SEGMENT_BYTES: u32 = 0xffff * 4096;
const UNIT_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
const NAMED_UNIT: u8 = 0xe4;
const BLOCKS_TO_BLOCKS: u8 = 2;

/// A run of blocks that is to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The units' names.
    pub source: [u8; 8],
    pub destination: [u8; 8],
    pub first_of_source: u64,
    pub first_of_destination: u64,
    pub count: u64,
}

/// A unit that a list names.
#[derive(Debug, Clone, Copy)]
struct Named {
    name: [u8; 8],
}

/// The number of a list by which its outcome may be asked for.
pub(super) fn list_number(list: &[u8]) -> Option<u8> {
    list.first_chunk::<2>().filter(|[_, usage]| usage & 0x18 != 0x18).map(|[number, _]| *number)
}

/// What RECEIVE COPY RESULTS tells of a copy of so many segments that is done.
pub(super) fn status(segments: u16) -> Vec<u8> {
    let [high, low] = segments.to_be_bytes();
    // Without errors; the bytes that were moved are not counted.
    vec![0, 0, 0, 8, 1, high, low, 0, 0, 0, 0, 0]
}

/// Reads a list.
///
/// # Errors
/// It makes no sense, or asks for another kind of copy.
pub(super) fn parse(list: &[u8]) -> Result<Vec<Segment>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let header = list.first_chunk::<16>().ok_or(Sense::PARAMETER_LENGTH)?;
    let unit_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let segment_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if header[12..16] != [0; 4] {
        // It needs a longer list than there may be.
        return Err(Sense::INLINE_DATA_LENGTH);
    }
    if unit_bytes / UNIT_BYTES > MOST_UNITS {
        return Err(Sense::TOO_MANY_UNITS);
    }
    if segment_bytes / SEGMENT_BYTES > MOST_SEGMENTS {
        return Err(Sense::TOO_MANY_SEGMENTS);
    }
    let rest = list.get(16..).unwrap_or_default();
    let (units, rest) = rest.split_at_checked(unit_bytes).ok_or(Sense::PARAMETER_LENGTH)?;
    let segments = rest.get(..segment_bytes).ok_or(Sense::PARAMETER_LENGTH)?;
    if !unit_bytes.is_multiple_of(UNIT_BYTES) {
        return Err(Sense::INVALID_PARAMETER);
    }
    let units: Vec<Named> = units.chunks_exact(UNIT_BYTES).map(unit).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    let mut rest = segments;
    while let Some(kind) = rest.first() {
        if *kind != BLOCKS_TO_BLOCKS {
            return Err(Sense::UNKNOWN_SEGMENT);
        }
        let (bytes, after) = rest.split_first_chunk::<SEGMENT_BYTES>().ok_or(Sense::PARAMETER_LENGTH)?;
        found.push(segment(bytes, &units)?);
        rest = after;
    }
    Ok(found)
}

fn unit(bytes: &[u8]) -> Result<Named, Sense> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    if byte(0) != NAMED_UNIT {
        return Err(Sense::UNKNOWN_UNIT_DESCRIPTOR);
    }
    // Only disks. The other bits mean nothing with a designator.
    if byte(1) & 0x1f != 0 {
        return Err(Sense::INVALID_PARAMETER);
    }
    // A binary NAA of 8 bytes is all that page 0x83 has.
    if (byte(4) & 0xf, byte(5) & 0x3f, byte(7)) != (1, 3, 8) {
        return Err(Sense::UNREACHABLE_UNIT);
    }
    let name = bytes.get(8..).and_then(|rest| rest.first_chunk()).copied().ok_or(Sense::PARAMETER_LENGTH)?;
    Ok(Named { name })
}

fn segment(bytes: &[u8; SEGMENT_BYTES], units: &[Named]) -> Result<Segment, Sense> {
    let number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at + length).unwrap_or_default();
        bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if number(2, 2) != SEGMENT_BYTES as u64 - 4 {
        return Err(Sense::INVALID_PARAMETER);
    }
    let unit = |at: usize| {
        let unit = usize::try_from(number(at, 2)).ok().and_then(|index| units.get(index));
        unit.map(|unit| unit.name).ok_or(Sense::UNREACHABLE_UNIT)
    };
    Ok(Segment {
        source: unit(4)?,
        destination: unit(6)?,
        count: number(10, 2),
        first_of_source: number(12, 8),
        first_of_destination: number(20, 8),
    })
}

/// What RECEIVE COPY OPERATING PARAMETERS tells.
pub(super) fn parameters() -> Vec<u8> {
    // Numbers of lists may be left out.
    let mut data = vec![0, 0, 0, 0, 1, 0, 0, 0];
    data.extend((MOST_UNITS as u16).to_be_bytes());
    data.extend((MOST_SEGMENTS as u16).to_be_bytes());
    data.extend((MOST_COPY_LIST_BYTES as u32 - 16).to_be_bytes());
    data.extend(MOST_SEGMENT_BYTES.to_be_bytes());
    // No data in the list, none held, no streams.
    data.extend([0; 12]);
    data.extend([0, 0]);
    data.extend(MOST_AT_ONCE.to_be_bytes());
    // Granularities: of segments 512 bytes.
    data.extend([MOST_AT_ONCE as u8, 9, 0, 0, 0, 0, 0]);
    data.extend([2, BLOCKS_TO_BLOCKS, NAMED_UNIT]);
    let length = data.len() as u32 - 4;
    data.splice(0..4, length.to_be_bytes());
    data
}

/// Copies at once.
const MOST_AT_ONCE: u16 = 64;

/// The page of vital product data on copies, without its head.
pub(super) fn page() -> Vec<u8> {
    let mut page = Vec::new();
    let mut add = |kind: u16, body: &[u8]| {
        page.extend(kind.to_be_bytes());
        page.extend((body.len().next_multiple_of(4) as u16).to_be_bytes());
        page.extend_from_slice(body);
        page.resize(page.len().next_multiple_of(4), 0);
    };
    // The commands and their actions.
    add(1, &[7, 0x83, 1, 0, 0x84, 2, 0, 3]);
    let mut limits = vec![0; 4];
    limits.extend((MOST_UNITS as u16).to_be_bytes());
    limits.extend((MOST_SEGMENTS as u16).to_be_bytes());
    limits.extend((MOST_COPY_LIST_BYTES as u32 - 16).to_be_bytes());
    limits.resize(28, 0);
    add(4, &limits);
    add(8, &[2, BLOCKS_TO_BLOCKS, NAMED_UNIT]);
    let mut general = Vec::new();
    general.extend(u32::from(MOST_AT_ONCE).to_be_bytes());
    general.extend(u32::from(MOST_AT_ONCE).to_be_bytes());
    general.extend(MOST_SEGMENT_BYTES.to_be_bytes());
    general.push(9);
    general.resize(32, 0);
    add(0x8001, &general);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(units: &[[u8; 8]], segments: &[(u16, u16, u16, u64, u64)]) -> Vec<u8> {
        let mut list = vec![0; 16];
        list[2..4].copy_from_slice(&((units.len() * 32) as u16).to_be_bytes());
        list[8..12].copy_from_slice(&((segments.len() * 28) as u32).to_be_bytes());
        for name in units {
            let mut unit = [0; 32];
            unit[..8].copy_from_slice(&[0xe4, 0, 0, 0, 1, 3, 0, 8]);
            unit[8..16].copy_from_slice(name);
            list.extend(unit);
        }
        for (source, destination, count, from, to) in segments {
            list.extend([2, 0, 0, 24]);
            list.extend(source.to_be_bytes());
            list.extend(destination.to_be_bytes());
            list.extend([0, 0]);
            list.extend(count.to_be_bytes());
            list.extend(from.to_be_bytes());
            list.extend(to.to_be_bytes());
        }
        list
    }

    #[test]
    fn segments_name_their_units() {
        let (one, other) = ([1; 8], [2; 8]);
        let expected = Segment {
            source: other,
            destination: one,
            first_of_source: 7,
            first_of_destination: 1 << 40,
            count: 300,
        };
        assert_eq!(parse(&list(&[one, other], &[(1, 0, 300, 7, 1 << 40)])), Ok(vec![expected]));
        assert_eq!(parse(&[]), Ok(vec![]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = list(&[[1; 8]], &[(0, 0, 1, 0, 8)]);
        for (at, value, expected) in [
            (15, 1, Sense::INLINE_DATA_LENGTH),
            (2, 3, Sense::TOO_MANY_UNITS),
            (9, 3, Sense::TOO_MANY_SEGMENTS),
            (11, 29, Sense::PARAMETER_LENGTH),
            (3, 33, Sense::PARAMETER_LENGTH),
            (16, 0xe0, Sense::UNKNOWN_UNIT_DESCRIPTOR),
            (17, 1, Sense::INVALID_PARAMETER),
            (21, 1, Sense::UNREACHABLE_UNIT),
            (48, 0, Sense::UNKNOWN_SEGMENT),
            (51, 23, Sense::INVALID_PARAMETER),
            (53, 1, Sense::UNREACHABLE_UNIT),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), Err(expected), "byte {at}");
        }
        for length in 1..good.len() {
            assert!(parse(&good[..length]).is_err(), "{length} bytes");
        }
    }
}
