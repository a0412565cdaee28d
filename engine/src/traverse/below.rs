//! From a block to what it points to: plain functions on bytes.

use ondisk::blkptr::Blkptr;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};
use ondisk::objset::Objset as ObjsetPhys;

use super::{Leads, Node};
use crate::Bookmark;
use crate::error::{Error, Result};

/// What a block leads to.
pub(super) enum Below<'a> {
    /// A pointer, which may be a hole.
    Pointer(Blkptr, Bookmark),
    /// An object, its number, and the bytes of its slots; those of an object set's own have none.
    Object(u64, Dnode, &'a [u8]),
    /// A slot of a dnode that is in no object.
    FreeSlot(u64),
    /// Something that makes no sense. What comes after it may.
    Damage(Bookmark, Error),
}

/// Gives all that `block`, the contents of `node`, leads to, in order.
///
/// # Errors
/// The block as a whole makes no sense.
pub(super) fn each<T>(node: &Node<T>, block: &[u8], mut found: impl FnMut(Below<'_>)) -> Result<()> {
    match node.leads() {
        Leads::Nowhere => {}
        Leads::ToPointers => pointers(node, block, &mut found),
        Leads::ToDnodes => dnodes(node, block, &mut found),
        Leads::ToObjects => objects(node, block, &mut found)?,
    }
    Ok(())
}

fn pointers<T>(node: &Node<T>, block: &[u8], found: &mut impl FnMut(Below<'_>)) {
    let order = node.bp.byte_order();
    let per_block = (block.len() / Blkptr::SIZE) as u64;
    for (index, bytes) in (0u64..).zip(block.chunks_exact(Blkptr::SIZE)) {
        let blkid = node.at.blkid.wrapping_mul(per_block).wrapping_add(index);
        let at = Bookmark { level: node.at.level - 1, blkid, ..node.at };
        found(match Blkptr::parse(bytes, order) {
            Ok(bp) => checked(bp, at),
            Err(error) => Below::Damage(at, Error::corrupt(at.to_string(), error)),
        });
    }
}

/// A pointer, if it is of the level of its place.
fn checked(bp: Blkptr, at: Bookmark) -> Below<'static> {
    if !bp.is_hole() && !bp.is_redacted() && i64::from(bp.level().get()) != at.level.max(0) {
        let detail = format!("the pointer says level {}", bp.level());
        return Below::Damage(at, Error::corrupt(at.to_string(), detail));
    }
    Below::Pointer(bp, at)
}

fn dnodes<T>(node: &Node<T>, block: &[u8], found: &mut impl FnMut(Below<'_>)) {
    let per_block = (block.len() / DNODE_MIN_SIZE) as u64;
    let mut slot = 0;
    while let Some(bytes) = block.get(slot * DNODE_MIN_SIZE..).filter(|bytes| !bytes.is_empty()) {
        let object = node.at.blkid.wrapping_mul(per_block).wrapping_add(slot as u64);
        match Dnode::parse(bytes, node.bp.byte_order()) {
            Ok(Some(dnode)) => {
                slot += usize::try_from(dnode.slots()).unwrap_or(usize::MAX).max(1);
                let size =
                    usize::try_from(dnode.slots()).unwrap_or(usize::MAX).saturating_mul(DNODE_MIN_SIZE);
                found(Below::Object(object, dnode, bytes.get(..size).unwrap_or_default()));
            }
            Ok(None) => {
                slot += 1;
                found(Below::FreeSlot(object));
            }
            Err(error) => {
                slot += 1;
                let at = Bookmark { object, level: 0, blkid: 0, ..node.at };
                let error = Error::corrupt(format!("objset {}, dnode {object}", at.objset), error);
                found(Below::Damage(at, error));
            }
        }
    }
}

/// The objects that count space have the numbers -3 (projects), -2 (groups) and -1 (users).
fn objects<T>(node: &Node<T>, block: &[u8], found: &mut impl FnMut(Below<'_>)) -> Result<()> {
    let phys = ObjsetPhys::parse(block, node.bp.byte_order());
    let phys = phys.map_err(Error::format(format!("objset {}", node.at.objset)))?;
    found(Below::Object(0, phys.meta_dnode, &[]));
    let accounting = [phys.project_used_dnode, phys.group_used_dnode, phys.user_used_dnode];
    for (number, dnode) in (u64::MAX - 2..=u64::MAX).zip(accounting) {
        if let Some(dnode) = dnode {
            found(Below::Object(number, dnode, &[]));
        }
    }
    Ok(())
}

/// Gives the pointers of an object, in order.
pub(super) fn each_of_object(objset: u64, object: u64, dnode: &Dnode, mut found: impl FnMut(Below<'_>)) {
    let level = i64::from(dnode.levels.max(1)) - 1;
    for (blkid, bp) in (0u64..).zip(&dnode.blkptrs) {
        found(checked(*bp, Bookmark { objset, object, level, blkid }));
    }
    if let Some(spill) = dnode.spill {
        found(checked(spill, Bookmark::spill(objset, object)));
    }
}
