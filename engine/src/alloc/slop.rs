//! The space that a pool reserves so that deleting always works (`spa_get_slop_space`).

const SLOP_SHIFT: u32 = 5;
const MIN_SLOP_BYTES: u64 = 128 << 20;
const MAX_SLOP_BYTES: u64 = 128 << 30;

/// The bytes that are reserved of `space` bytes of the normal class, when `embedded_log` further bytes are
/// set apart for the log; all deflated.
pub(crate) fn slop_bytes(space: u64, embedded_log: u64) -> u64 {
    let mut slop = (space >> SLOP_SHIFT).min(MAX_SLOP_BYTES);
    slop -= embedded_log.min(slop >> 1);
    slop.max((space >> 1).min(MIN_SLOP_BYTES))
}
