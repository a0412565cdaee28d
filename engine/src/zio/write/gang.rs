//! Gangs: blocks written in parts, because no free run is long enough.
//!
//! The address of the block leads to a *gang header* of 512 bytes, or more:
//!
//! | offset | size | name | meaning |
//! |---:|---:|---|---|
//! | 0 | 128 each | `zg_blkptr` | pointers to the members, in order; holes where there are fewer than fit (three into 512 bytes) |
//! | | | | zeroes |
//! | size - 40 | 40 | `zg_tail` | trailer (`codec::checksum::embedded`), sealed for the first address of the header and its birth |
//!
//! A member is as large a part of the remaining bytes as finds room (half of them, a quarter, and so on), in
//! whole units of allocation, and at least the remaining bytes divided by the remaining pointers. A member
//! that finds no room is a gang again. A member has as many copies as the block; a header has at least two
//! (one in pools of version 1), because without the header the members are lost. The size of each address of
//! the block includes its header and, for each member, the copy with the same number. The block's own
//! checksum covers the whole.
//!
//! # Larger headers
//! A header occupies the smallest allocation of its vdev, whatever its own size is. In pools in which the
//! feature `dynamic_gang_header` is active, headers have the full size of the smallest allocation among their
//! vdevs: 31 pointers in 4096 bytes. The feature becomes active in the group after one in which a gang found
//! no room for a part, and a larger header would have had a pointer for it. It never becomes inactive again.
//! Older headers stay as they are: readers try both sizes.
//!
//! A gang that is overwritten in its group keeps all its places ([`rewrite`]).
//!
//! A gang of an encrypted object set is made of the block as it was sealed. The digest of its first header is
//! folded to half of its size, as that of a block is whose pointer has a MAC in the other half.
//!
//! Source of the facts: OpenZFS 2.4 `zio.c` (`zio_write_gang_block`), `zio.h` (`gbh_nblkptrs`), `vdev.h`
//! (`vdev_gang_header_psize`).

use codec::checksum;
use device::{IoBuf, SharedBuf};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, Dva, GANG_HEADER_SIZE, gang_pointers};
use ondisk::dmu::DmuType;
use ondisk::{Asize, ByteOrder, Level, Lsize, Psize, Txg};

use super::features::GangHeaders;
use super::place::{Placement, Space};
use crate::alloc::{Denied, MetaslabId};
use crate::vdev::Class;
use crate::zio::GangTree;

/// The parameters that all parts of a gang share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gang<'a> {
    /// Index in the batch.
    pub owner: usize,
    pub class: Class,
    pub copies: usize,
    pub checksum: ChecksumType,
    pub salt: Option<&'a [u8; 32]>,
    /// Whether the block's pointer has a MAC in half of its checksum: its header, and that of no member, has
    /// half a digest too.
    pub with_mac: bool,
}

impl Gang<'_> {
    /// For a member that is a gang again.
    fn below(self) -> Self {
        Self { with_mac: false, ..self }
    }
}

/// The reason why a gang could not be made.
#[derive(Debug)]
pub(super) enum Refused {
    /// Not even the parts find room.
    NoSpace,
    /// A metaslab must be loaded first.
    NotLoaded(MetaslabId),
    /// A value does not fit its field.
    Impossible(String),
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NoSpace => Self::NoSpace,
            Denied::NotLoaded(id) => Self::NotLoaded(id),
        }
    }
}

/// Places `data` as a gang. Returns the addresses of its header.
pub(super) fn create<S: Space>(
    placement: &mut Placement<'_, S>,
    gang: Gang<'_>,
    data: SharedBuf,
) -> Result<Vec<Dva>, Refused> {
    let mut headers = placement.allocate(
        gang.class,
        GANG_HEADER_SIZE as u64,
        gang.copies.max(2).min(placement.max_copies),
    )?;
    for header in &mut headers {
        header.gang = true;
    }
    let mut members = Vec::new();
    let mut rest = data;
    for left in (1..=gang_pointers(placement.header_size(&headers)) as u64).rev() {
        if rest.is_empty() {
            break;
        }
        let least = placement.units.round_up(rest.len() as u64 / left).min(rest.len() as u64);
        let (size, found) = member_place(placement, gang, rest.len() as u64, least)?;
        let part = rest.slice(0..size as usize);
        rest = rest.slice(size as usize..rest.len());
        let dvas = match found {
            Some(dvas) => {
                placement.write(gang.owner, &dvas, part.clone());
                dvas
            }
            None => {
                let may_grow = placement.gang_headers == GangHeaders::SmallYet;
                placement.wants_larger_headers |=
                    may_grow && placement.largest_header(&headers) > GANG_HEADER_SIZE;
                // No allocation is smaller than this.
                if size <= placement.units.min_alloc {
                    return Err(Refused::NoSpace);
                }
                create(placement, gang.below(), part.clone())?
            }
        };
        for (header, member) in headers.iter_mut().zip(&dvas) {
            header.asize = Asize(header.asize.get().saturating_add(member.asize.get()));
        }
        members.push(member(gang, dvas, &part, placement.txg)?);
    }
    write_header(placement, gang, &headers, &members)?;
    Ok(headers)
}

/// Space for the next member of a gang of which `rest` bytes are left: as many of them as find room, but at
/// least `least`. Returns the size of the member, or nothing when there is no room.
fn member_place<S: Space>(
    placement: &mut Placement<'_, S>,
    gang: Gang<'_>,
    rest: u64,
    least: u64,
) -> Result<(u64, Option<Vec<Dva>>), Refused> {
    let mut size = rest;
    loop {
        match placement.allocate(gang.class, size, gang.copies) {
            Ok(dvas) => return Ok((size, Some(dvas))),
            Err(Denied::NoSpace) if size <= least => return Ok((least, None)),
            Err(Denied::NoSpace) => size = placement.units.round_up(size / 2).max(least),
            Err(denied) => return Err(denied.into()),
        }
    }
}

/// Writes `data`, which has the same length as before, into the places of a gang of the same group.
pub(super) fn rewrite<S: Space>(
    placement: &mut Placement<'_, S>,
    gang: Gang<'_>,
    headers: &[Dva],
    tree: &GangTree,
    data: SharedBuf,
) -> Result<(), Refused> {
    let mut members = Vec::with_capacity(tree.members.len());
    let mut rest = data;
    for (old, below) in &tree.members {
        let size = old.psize().get() as usize;
        if size > rest.len() {
            return Err(Refused::Impossible("the members of a gang are longer than the block".into()));
        }
        let part = rest.slice(0..size);
        rest = rest.slice(size..rest.len());
        let dvas: Vec<Dva> = old.dvas().collect();
        match below {
            Some(below) => rewrite(placement, gang.below(), &dvas, below, part.clone())?,
            None => placement.write(gang.owner, &dvas, part.clone()),
        }
        members.push(member(gang, dvas, &part, placement.txg)?);
    }
    match rest.len() {
        0 => write_header(placement, gang, headers, &members),
        _ => Err(Refused::Impossible("the members of a gang are shorter than the block".into())),
    }
}

fn member(gang: Gang<'_>, dvas: Vec<Dva>, part: &[u8], txg: Txg) -> Result<Blkptr, Refused> {
    let digest = checksum::compute(gang.checksum, part, ByteOrder::Little, gang.salt);
    let parts = BlkptrParts {
        dvas,
        lsize: Lsize(part.len() as u64),
        psize: Psize(part.len() as u64),
        compress: CompressType::Off,
        checksum_type: gang.checksum,
        checksum: digest.map_err(|error| Refused::Impossible(error.to_string()))?,
        dmu_type: DmuType::NONE,
        level: Level::DATA,
        dedup: false,
        byte_order: ByteOrder::Little,
        logical_birth: txg,
        physical_birth: txg,
        fill: 0,
        crypt: None,
    };
    parts.build().map_err(|error| Refused::Impossible(error.to_string()))
}

fn write_header<S: Space>(
    placement: &mut Placement<'_, S>,
    gang: Gang<'_>,
    headers: &[Dva],
    members: &[Blkptr],
) -> Result<(), Refused> {
    let mut bytes = vec![0; placement.header_size(headers)];
    if members.len() > gang_pointers(bytes.len()) {
        return Err(Refused::Impossible("a gang has more members than its header has room for".into()));
    }
    for (place, member) in bytes.as_chunks_mut::<{ Blkptr::SIZE }>().0.iter_mut().zip(members) {
        *place = member.encode(ByteOrder::Little);
    }
    let first = headers.first().ok_or_else(|| Refused::Impossible("a gang without a header".into()))?;
    let (vdev, offset) = (first.vdev.get().into(), first.offset.get());
    checksum::seal_gang(&mut bytes, vdev, offset, placement.txg.get(), gang.with_mac, ByteOrder::Little)
        .map_err(|error| Refused::Impossible(error.to_string()))?;
    placement.write(gang.owner, headers, IoBuf::from(&bytes[..]).into());
    Ok(())
}
