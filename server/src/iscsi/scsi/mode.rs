//! Mode pages: what a unit says of how it works. None of it can be changed.
//!
//! Source of the facts: SPC-4, section 7.5; SBC-3, section 6.5.

use super::Sense;
use super::command::Shape;
use super::provisioning::Provisioning;

const READ_WRITE_RECOVERY: [u8; 12] = [0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Writes are kept in memory until a flush.
const CACHING: [u8; 20] = [0x08, 0x12, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Commands may be done in another order than they came; those that another session ends are answered.
const CONTROL: [u8; 12] = [0x0a, 0x0a, 0, 0x10, 0, 0x40, 0, 0, 0, 0, 0, 0];
const INFORMATIONAL_EXCEPTIONS: [u8; 12] = [0x1c, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const PAGES: [&[u8]; 4] = [&READ_WRITE_RECOVERY, &CACHING, &CONTROL, &INFORMATIONAL_EXCEPTIONS];
/// In the first byte: the second one is the number of a subpage.
const HAS_SUBPAGE: u8 = 0x40;

/// All pages of a unit.
fn pages(provisioning: Option<Provisioning>) -> impl Iterator<Item = Vec<u8>> {
    let threshold = provisioning.map(|provisioning| provisioning.mode_page().to_vec());
    PAGES.iter().map(|page| page.to_vec()).chain(threshold)
}

/// The numbers of a page and its subpage.
fn numbers(page: &[u8]) -> Option<(u8, u8)> {
    let first = page.first()?;
    let subpage = if first & HAS_SUBPAGE == 0 { 0 } else { *page.get(1)? };
    Some((first & 0x3f, subpage))
}

/// Whether a page, or all, and a subpage, or all, are this one.
fn is_meant((page, subpage): (u8, u8), of: &[u8]) -> bool {
    numbers(of).is_some_and(|of| (page == 0x3f || page == of.0) && (subpage == 0xff || subpage == of.1))
}

/// What MODE SENSE asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub is_long: bool,
    pub page: u8,
    pub subpage: u8,
    /// 0: as they are, 1: what can be changed, 2: defaults, 3: saved.
    pub control: u8,
    pub without_blocks: bool,
}

/// The pages that are asked for.
///
/// # Errors
/// There is no such page.
pub(super) fn sense(
    asked: Asked,
    shape: Shape,
    provisioning: Option<Provisioning>,
) -> Result<Vec<u8>, Sense> {
    if asked.control == 3 {
        return Err(Sense::SAVING_NOT_SUPPORTED);
    }
    let mut found = Vec::new();
    for mut page in pages(provisioning).filter(|page| is_meant((asked.page, asked.subpage), page)) {
        if asked.control == 1 {
            let header = if page.first().is_some_and(|first| first & HAS_SUBPAGE != 0) { 4 } else { 2 };
            page.iter_mut().skip(header).for_each(|byte| *byte = 0);
        }
        found.extend(page);
    }
    if found.is_empty() {
        return Err(Sense::INVALID_FIELD);
    }
    let blocks = match asked.without_blocks {
        true => Vec::new(),
        false => {
            let count = u32::try_from(shape.capacity).unwrap_or(u32::MAX).to_be_bytes();
            [count, shape.block_bytes.to_be_bytes()].concat()
        }
    };
    // FUA is taken; the unit may be write-protected.
    let specific = if shape.is_writable { 0x10 } else { 0x90 };
    let mut data = match asked.is_long {
        true => {
            let [high, low] = ((6 + blocks.len() + found.len()) as u16).to_be_bytes();
            vec![high, low, 0, specific, 0, 0, 0, blocks.len() as u8]
        }
        false => vec![(3 + blocks.len() + found.len()) as u8, 0, specific, blocks.len() as u8],
    };
    data.extend(blocks);
    data.extend(found);
    Ok(data)
}

/// Takes pages that say what is so anyway.
///
/// # Errors
/// Something is to be changed, or it is no list of pages.
pub(super) fn select(is_long: bool, data: &[u8], provisioning: Option<Provisioning>) -> Result<(), Sense> {
    if data.is_empty() {
        return Ok(());
    }
    let header = if is_long { 8 } else { 4 };
    let blocks = data.get(header - 1).copied().map(usize::from).ok_or(Sense::PARAMETER_LENGTH)?;
    let mut rest = data.get(header + blocks..).ok_or(Sense::PARAMETER_LENGTH)?;
    while !rest.is_empty() {
        let named = numbers(rest).ok_or(Sense::PARAMETER_LENGTH)?;
        let known = pages(provisioning).find(|page| numbers(page) == Some(named));
        let known = known.ok_or(Sense::INVALID_PARAMETER)?;
        let (page, after) = rest.split_at_checked(known.len()).ok_or(Sense::PARAMETER_LENGTH)?;
        if page.get(1..) != known.get(1..) {
            return Err(Sense::INVALID_PARAMETER);
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Percent, Room};

    const SHAPE: Shape = Shape { capacity: 1000, block_bytes: 512, is_writable: true };

    fn thin() -> Option<Provisioning> {
        let room = Room { left_bytes: 1 << 30, most_bytes: 1 << 40 };
        Some(Provisioning::new(room, Percent::OF_ROOM))
    }

    #[test]
    fn each_subpage_is_found_where_it_is_asked_for() {
        let found = |page, subpage, control, provisioning| {
            let asked = Asked { is_long: true, page, subpage, control, without_blocks: true };
            sense(asked, SHAPE, provisioning).map(|data| data[8..].to_vec())
        };
        let threshold = thin().expect("thin").mode_page().to_vec();
        assert_eq!(found(0x1c, 2, 0, thin()).as_ref(), Ok(&threshold));
        assert_eq!(found(0x1c, 0, 0, thin()), Ok(INFORMATIONAL_EXCEPTIONS.to_vec()));
        assert_eq!(found(0x1c, 0xff, 0, thin()), Ok([&INFORMATIONAL_EXCEPTIONS[..], &threshold].concat()));
        assert_eq!(found(0x1c, 2, 1, thin()).map(|page| page[..4].to_vec()), Ok(vec![0x5c, 2, 0, 20]));
        assert_eq!(found(0x1c, 2, 0, None), Err(Sense::INVALID_FIELD));
        assert_eq!(found(0x08, 1, 0, thin()), Err(Sense::INVALID_FIELD));
    }

    #[test]
    fn what_is_sensed_can_be_selected() {
        for is_long in [false, true] {
            let asked = Asked { is_long, page: 0x3f, subpage: 0xff, control: 0, without_blocks: false };
            let data = sense(asked, SHAPE, thin()).expect("all pages");
            let select = |is_long, data: &[u8]| select(is_long, data, thin());
            let length = if is_long { usize::from(data[1]) + 2 } else { usize::from(data[0]) + 1 };
            assert_eq!(length, data.len());
            assert_eq!(select(is_long, &data), Ok(()));
            let mut other = data.clone();
            if let Some(last) = other.last_mut() {
                *last ^= 1;
            }
            assert_eq!(select(is_long, &other), Err(Sense::INVALID_PARAMETER));
            assert_eq!(select(is_long, &data[..data.len() - 1]), Err(Sense::PARAMETER_LENGTH));
        }
    }
}
