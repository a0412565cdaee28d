//! Mode pages: what a unit says of how it works. None of it can be changed.
//!
//! Source of the facts: SPC-4, section 7.5; SBC-3, section 6.5.

use super::Sense;
use super::command::Shape;

const READ_WRITE_RECOVERY: [u8; 12] = [0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Writes are kept in memory until a flush.
const CACHING: [u8; 20] = [0x08, 0x12, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Commands may be done in another order than they came.
const CONTROL: [u8; 12] = [0x0a, 0x0a, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
const INFORMATIONAL_EXCEPTIONS: [u8; 12] = [0x1c, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const PAGES: [&[u8]; 4] = [&READ_WRITE_RECOVERY, &CACHING, &CONTROL, &INFORMATIONAL_EXCEPTIONS];

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
pub(super) fn sense(asked: Asked, shape: Shape) -> Result<Vec<u8>, Sense> {
    if asked.control == 3 {
        return Err(Sense::SAVING_NOT_SUPPORTED);
    }
    if asked.subpage != 0 && asked.subpage != 0xff {
        return Err(Sense::INVALID_FIELD);
    }
    let mut pages = Vec::new();
    for page in PAGES.iter().filter(|page| asked.page == 0x3f || page.first() == Some(&asked.page)) {
        match asked.control {
            1 => {
                pages.extend(page.get(..2).unwrap_or_default());
                pages.resize(pages.len() + page.len() - 2, 0);
            }
            _ => pages.extend_from_slice(page),
        }
    }
    if pages.is_empty() {
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
            let [high, low] = ((6 + blocks.len() + pages.len()) as u16).to_be_bytes();
            vec![high, low, 0, specific, 0, 0, 0, blocks.len() as u8]
        }
        false => vec![(3 + blocks.len() + pages.len()) as u8, 0, specific, blocks.len() as u8],
    };
    data.extend(blocks);
    data.extend(pages);
    Ok(data)
}

/// Takes pages that say what is so anyway.
///
/// # Errors
/// Something is to be changed, or it is no list of pages.
pub(super) fn select(is_long: bool, data: &[u8]) -> Result<(), Sense> {
    if data.is_empty() {
        return Ok(());
    }
    let header = if is_long { 8 } else { 4 };
    let blocks = data.get(header - 1).copied().map(usize::from).ok_or(Sense::PARAMETER_LENGTH)?;
    let mut rest = data.get(header + blocks..).ok_or(Sense::PARAMETER_LENGTH)?;
    while let Some((first, _)) = rest.split_first() {
        let known = PAGES.iter().find(|page| page.first() == Some(&(first & 0x3f)));
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

    #[test]
    fn what_is_sensed_can_be_selected() {
        for is_long in [false, true] {
            let asked = Asked { is_long, page: 0x3f, subpage: 0, control: 0, without_blocks: false };
            let shape = Shape { capacity: 1000, block_bytes: 512, is_writable: true };
            let data = sense(asked, shape).expect("all pages");
            let length = if is_long { usize::from(data[1]) + 2 } else { usize::from(data[0]) + 1 };
            assert_eq!(length, data.len());
            assert_eq!(select(is_long, &data), Ok(()));
            let mut other = data.clone();
            if let Some(last) = other.last_mut() {
                *last = 1;
            }
            assert_eq!(select(is_long, &other), Err(Sense::INVALID_PARAMETER));
            assert_eq!(select(is_long, &data[..data.len() - 1]), Err(Sense::PARAMETER_LENGTH));
        }
    }
}
