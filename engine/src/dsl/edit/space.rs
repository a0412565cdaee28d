//! What directories count, and how a change climbs the tree.
//!
//! A directory counts what its head, its snapshots and its children use, and what is reserved and not used
//! yet. What a change adds to a directory reaches its parent through the directory's reservation: as long as
//! it uses less than is reserved, its parent counts the whole reservation anyway, and only *what kind* of
//! space it is changes there ([`charge`]). Because what is passed on is the difference of
//! `max(used, reserved)` before and after, one change of a sum does the same as many of its parts.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dir.c`.

use ondisk::ObjectId;
use ondisk::blkptr::Blkptr;
use ondisk::dsl_dir::{DslDirPhys, UsedBreakdown};

use super::objects;
use crate::dmu::Space;
use crate::dsl::SyncTask;
use crate::error::{Error, Result};
use crate::properties::format::nicebytes;

/// The deepest that directories can nest.
const MAX_DEPTH: usize = 128;

/// What kind of space a directory counts (`dd_used_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Used {
    Head,
    Snap,
    Child,
    ChildReserved,
    RefReserved,
}

impl Used {
    fn of(self, breakdown: &mut UsedBreakdown) -> &mut u64 {
        match self {
            Used::Head => &mut breakdown.head,
            Used::Snap => &mut breakdown.snap,
            Used::Child => &mut breakdown.child,
            Used::ChildReserved => &mut breakdown.child_reserved,
            Used::RefReserved => &mut breakdown.refreserved,
        }
    }
}

/// A change of space, in the three ways in which it is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub used: i64,
    pub compressed: i64,
    pub uncompressed: i64,
}

impl Change {
    /// Only what is allocated changes.
    pub fn used(used: i64) -> Change {
        Change { used, ..Change::default() }
    }

    /// So much more.
    pub fn more(space: Space) -> Change {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Change {
            used: signed(space.used),
            compressed: signed(space.compressed),
            uncompressed: signed(space.uncompressed),
        }
    }

    /// So much less.
    pub fn less(space: Space) -> Change {
        let more = Self::more(space);
        Change { used: -more.used, compressed: -more.compressed, uncompressed: -more.uncompressed }
    }

    pub fn plus(self, other: Change) -> Change {
        Change {
            used: self.used + other.used,
            compressed: self.compressed + other.compressed,
            uncompressed: self.uncompressed + other.uncompressed,
        }
    }
}

/// The sum of a count and a change. A count that was wrong before (old versions miscounted) must not become
/// astronomic.
pub(super) fn moved(count: u64, change: i64) -> u64 {
    count.saturating_add_signed(change)
}

/// Adds two spaces.
pub(super) fn sum(a: Space, b: Space) -> Space {
    Space {
        used: a.used.saturating_add(b.used),
        compressed: a.compressed.saturating_add(b.compressed),
        uncompressed: a.uncompressed.saturating_add(b.uncompressed),
    }
}

/// Takes one space off another.
pub(super) fn difference(a: Space, b: Space) -> Space {
    Space {
        used: a.used.saturating_sub(b.used),
        compressed: a.compressed.saturating_sub(b.compressed),
        uncompressed: a.uncompressed.saturating_sub(b.uncompressed),
    }
}

/// What a block counts for. Metadata count with their compressed size as uncompressed (`BP_GET_UCSIZE`).
pub(super) fn weigh(s: &SyncTask, bp: &Blkptr) -> Space {
    let compressed = bp.psize().get();
    let uncompressed = if bp.is_metadata() { compressed } else { bp.lsize().get() };
    Space { used: s.writer().dsize(bp), compressed, uncompressed }
}

/// Whether a pointer counts at all.
pub(super) fn counts(bp: &Blkptr) -> bool {
    !bp.is_hole() && !bp.is_redacted()
}

/// Changes one directory: `change` altogether, of which `tonew` is of kind `new` and the rest is taken from
/// (or given to) kind `old`. Gives what the parent must count.
fn charge(phys: &mut DslDirPhys, change: Change, tonew: i64, old: Used, new: Used) -> i64 {
    let before = phys.used_bytes;
    phys.used_bytes = moved(before, change.used);
    phys.compressed_bytes = moved(phys.compressed_bytes, change.compressed);
    phys.uncompressed_bytes = moved(phys.uncompressed_bytes, change.uncompressed);
    if phys.used_breakdown().is_some() {
        let breakdown = &mut phys.raw_used_breakdown;
        let from = old.of(breakdown);
        *from = moved(*from, change.used - tonew);
        let to = new.of(breakdown);
        *to = moved(*to, tonew);
    }
    let accounted = |used: u64| used.max(phys.reserved);
    accounted(phys.used_bytes).wrapping_sub(accounted(before)) as i64
}

/// A directory uses more (or less) of one kind (`dsl_dir_diduse_space`).
pub(super) async fn did_use(s: &SyncTask, dir: ObjectId, kind: Used, change: Change) -> Result<()> {
    did_use_and_transfer(s, dir, change, change.used, kind, kind).await
}

/// A directory uses more, of which `tonew` is of kind `new` (`dsl_dir_diduse_transfer_space`). Climbs to the
/// root.
pub(super) async fn did_use_and_transfer(
    s: &SyncTask,
    dir: ObjectId,
    change: Change,
    tonew: i64,
    old: Used,
    new: Used,
) -> Result<()> {
    if change == Change::default() && tonew == 0 {
        return Ok(());
    }
    let (mut at, mut change, mut tonew, mut old, mut new) = (dir, change, tonew, old, new);
    for _ in 0..MAX_DEPTH {
        let (accounted, parent) =
            objects::change_dir(s, at, |phys| (charge(phys, change, tonew, old, new), phys.parent)).await?;
        if parent.is_none() {
            return Ok(());
        }
        (tonew, change.used) = (change.used, accounted);
        (at, old, new) = (parent, Used::ChildReserved, Used::Child);
    }
    Err(objects::corrupt(dir, "does not lead to the root"))
}

/// Space of one kind becomes space of another (`dsl_dir_transfer_space`).
pub(super) async fn transfer(s: &SyncTask, dir: ObjectId, change: i64, old: Used, new: Used) -> Result<()> {
    if change == 0 {
        return Ok(());
    }
    objects::change_dir(s, dir, |phys| {
        if phys.used_breakdown().is_some() {
            let breakdown = &mut phys.raw_used_breakdown;
            let from = old.of(breakdown);
            *from = moved(*from, -change);
            let to = new.of(breakdown);
            *to = moved(*to, change);
        }
    })
    .await
}

/// Another reservation of a directory (`dsl_dir_set_reservation_sync_impl`).
pub(super) async fn set_reservation(s: &SyncTask, dir: ObjectId, reserved: u64) -> Result<()> {
    let (delta, parent) = objects::change_dir(s, dir, |phys| {
        let used = phys.used_bytes;
        let delta = used.max(reserved).wrapping_sub(used.max(phys.reserved)) as i64;
        phys.reserved = reserved;
        (delta, phys.parent)
    })
    .await?;
    match parent.is_none() {
        true => Ok(()),
        false => did_use(s, parent, Used::ChildReserved, Change::used(delta)).await,
    }
}

/// A directory and those above it, itself first.
pub(super) async fn chain(s: &SyncTask, dir: ObjectId) -> Result<Vec<(ObjectId, DslDirPhys)>> {
    let mut chain = Vec::new();
    let mut at = dir;
    while !at.is_none() {
        if chain.len() >= MAX_DEPTH {
            return Err(objects::corrupt(dir, "does not lead to the root"));
        }
        let phys = objects::dir(s, at).await?;
        chain.push((at, phys));
        at = phys.parent;
    }
    Ok(chain)
}

/// What of a part of the tree is given back before something is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Returned {
    /// Where it is given back.
    pub dir: ObjectId,
    /// How much.
    pub bytes: u64,
}

/// Bytes that may still be written below a directory (`dsl_dir_space_available`).
pub(super) async fn available(s: &SyncTask, dir: ObjectId, returned: Option<Returned>) -> Result<u64> {
    let chain = chain(s, dir).await?;
    let pool = pool_bytes(s);
    Ok(available_in(chain.iter().rev(), pool, returned))
}

fn available_in<'a>(
    from_root: impl Iterator<Item = &'a (ObjectId, DslDirPhys)>,
    pool: u64,
    returned: Option<Returned>,
) -> u64 {
    let mut available = u64::MAX;
    for (id, phys) in from_root {
        let mut used = phys.used_bytes;
        let mut quota = if phys.quota == 0 { u64::MAX } else { phys.quota };
        if phys.parent.is_none() {
            quota = quota.min(pool);
        }
        if available != u64::MAX {
            available = available.saturating_add(phys.reserved.saturating_sub(used));
        }
        if let Some(returned) = returned.filter(|returned| returned.dir == *id) {
            used = used.saturating_sub(returned.bytes);
            available = available.saturating_add(returned.bytes);
        }
        available = available.min(quota.saturating_sub(used));
    }
    available
}

/// What all datasets together may occupy: the usable space of the normal class, less what only the checkpoint
/// refers to.
pub(super) fn pool_bytes(s: &SyncTask) -> u64 {
    let allocator = s.allocator();
    // Datasets count cloned blocks each on their own.
    allocator
        .usable_bytes()
        .saturating_sub(allocator.kept_bytes())
        .saturating_add(s.dsl_pool().tables().saved_bytes())
}

/// Whether `bytes` may move from below `from` to below `to` (`dsl_dir_transfer_possible`, without the
/// counts).
pub(super) async fn check_transfer(s: &SyncTask, from: ObjectId, to: ObjectId, bytes: u64) -> Result<()> {
    let (from_chain, to_chain) = (chain(s, from).await?, chain(s, to).await?);
    let ancestor = from_chain.iter().position(|(id, _)| to_chain.iter().any(|(other, _)| other == id));
    let ancestor = ancestor.ok_or_else(|| objects::corrupt(from, "has no root in common"))?;
    let mut delta = -i64::try_from(bytes).unwrap_or(i64::MAX);
    for (_, phys) in from_chain.iter().take(ancestor) {
        let accounted = |used: u64| used.max(phys.reserved);
        delta = accounted(moved(phys.used_bytes, delta)).wrapping_sub(accounted(phys.used_bytes)) as i64;
    }
    let dir = from_chain.get(ancestor).map_or(from, |(id, _)| *id);
    let returned = Returned { dir, bytes: delta.unsigned_abs() };
    match available_in(to_chain.iter().rev(), pool_bytes(s), Some(returned)) >= bytes {
        true => Ok(()),
        false => Err(out_of_space("there is not enough space at the new place")),
    }
}

/// The error for a request for more than there is.
/// The refusal of what needs more than there is, with both figures.
pub(super) fn short_of(what: &str, wanted: u64, room: u64) -> Error {
    let (wanted, room) = (nicebytes(wanted), nicebytes(room));
    out_of_space(format!("{what} {wanted} does not fit, {room} is available"))
}

pub(super) fn out_of_space(detail: impl Into<String>) -> Error {
    Error::NoSpace(detail.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::dsl_dir::FLAG_USED_BREAKDOWN;
    use proptest::prelude::*;

    fn dir(used: u64, reserved: u64) -> DslDirPhys {
        let raw_used_breakdown = UsedBreakdown { head: used, ..UsedBreakdown::default() };
        DslDirPhys {
            used_bytes: used,
            reserved,
            flags: FLAG_USED_BREAKDOWN,
            raw_used_breakdown,
            ..DslDirPhys::default()
        }
    }

    fn total(breakdown: UsedBreakdown) -> u64 {
        breakdown.head + breakdown.snap + breakdown.child + breakdown.child_reserved + breakdown.refreserved
    }

    #[test]
    fn within_a_reservation_the_parent_counts_nothing_more() {
        let mut phys = dir(10, 100);
        assert_eq!(charge(&mut phys, Change::used(50), 50, Used::Head, Used::Head), 0);
        assert_eq!(charge(&mut phys, Change::used(60), 60, Used::Head, Used::Head), 20);
        assert_eq!(charge(&mut phys, Change::used(-120), -120, Used::Head, Used::Head), -20);
        assert_eq!(phys.used_bytes, 0);
    }

    #[test]
    fn a_refreservation_is_used_up_by_the_head() {
        let mut phys = dir(0, 0);
        charge(&mut phys, Change::used(100), 100, Used::RefReserved, Used::RefReserved);
        charge(&mut phys, Change::used(0), 30, Used::RefReserved, Used::Head);
        assert_eq!((phys.raw_used_breakdown.refreserved, phys.raw_used_breakdown.head), (70, 30));
        assert_eq!(phys.used_bytes, 100);
    }

    proptest! {
        #[test]
        fn one_sum_does_what_its_parts_do(parts: Vec<u16>, reserved in 0u64..200_000) {
            let (mut whole, mut piecewise) = (dir(5, reserved), dir(5, reserved));
            let all: i64 = parts.iter().map(|part| i64::from(*part)).sum();
            let at_once = charge(&mut whole, Change::used(all), all, Used::Head, Used::Head);
            let mut together = 0;
            for part in parts {
                let part = i64::from(part);
                together += charge(&mut piecewise, Change::used(part), part, Used::Head, Used::Head);
            }
            prop_assert_eq!(at_once, together);
            prop_assert_eq!(whole, piecewise);
            prop_assert_eq!(total(whole.raw_used_breakdown), whole.used_bytes);
        }
    }

    #[test]
    fn available_is_bounded_by_every_quota_on_the_way_and_helped_by_reservations() {
        let root = (ObjectId(1), dir(500, 0));
        let mut below = (ObjectId(2), DslDirPhys { parent: ObjectId(1), quota: 300, ..dir(100, 0) });
        assert_eq!(available_in([root, below].iter(), 1000, None), 200);
        assert_eq!(available_in([root, below].iter(), 550, None), 50);
        below.1.reserved = 250;
        assert_eq!(available_in([root, below].iter(), 550, None), 200);
        let returned = Returned { dir: ObjectId(1), bytes: 30 };
        below.1.reserved = 0;
        assert_eq!(available_in([root, below].iter(), 550, Some(returned)), 80);
    }
}
