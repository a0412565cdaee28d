//! Numbers and block pointers as `zdb` writes them.

use anyhow::Result;
use engine::properties::format::nicenum;
use ondisk::blkptr::Blkptr;

use super::{Arguments, Out};

/// How numbers are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// In full, for programs.
    pub parsable: bool,
}

impl Numbers {
    /// A number, scaled to at most five characters unless it is for a program.
    pub fn show(self, value: u64) -> String {
        if self.parsable { value.to_string() } else { nicenum(value) }
    }
}

/// A block pointer on one line: all that it says where many letters ask for blocks (`-bbbbbb`).
pub(super) fn pointer(bp: &Blkptr, arguments: &Arguments) -> String {
    if arguments.blocks >= 6 { bp.to_string() } else { compact(bp, arguments.datasets > 5) }
}

/// A block pointer on one short line: the first copy or all, sizes, fill, births and checksum.
fn compact(bp: &Blkptr, all_copies: bool) -> String {
    let birth = bp.logical_birth();
    if let Some(embedded) = bp.embedded() {
        let (kind, lsize, psize) = (embedded.kind as u8, embedded.lsize, embedded.psize);
        return format!("EMBEDDED et={kind} {lsize:x}L/{psize:x}P B={birth}");
    }
    if bp.is_hole() {
        return format!("HOLE {:x}L B={birth}", bp.lsize());
    }
    let mut line = String::new();
    for dva in bp.dvas().take(if all_copies { 3 } else { 1 }) {
        line += &format!("{}:{:x}:{:x} ", dva.vdev, dva.offset.get(), dva.asize.get());
    }
    let [a, b, c, d] = bp.checksum();
    line + &format!(
        "{:x}L/{:x}P F={} B={birth}/{} cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}",
        bp.lsize(),
        bp.psize(),
        bp.fill(),
        bp.physical_birth(),
    )
}

/// Bytes that are text with others as octal escapes.
pub(super) fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.iter().map(|byte| format!("\\{byte:03o}")).collect(),
    }
}

/// A histogram with a bar of stars for each count, from the first used bucket to the last; buckets are
/// numbered from `first`.
pub(super) fn write_histogram(counts: &[u64], first: usize, out: &mut Out<'_>) -> Result<()> {
    const WIDTH: u64 = 40;
    let used = |count: &u64| *count > 0;
    let (Some(low), Some(high)) = (counts.iter().position(used), counts.iter().rposition(used)) else {
        return Ok(());
    };
    let most = counts.iter().copied().max().unwrap_or(0).max(WIDTH);
    for (bucket, count) in counts.iter().enumerate().take(high + 1).skip(low) {
        // Rounded up, so that no count is without a star.
        let stars = (u128::from(*count) * u128::from(WIDTH)).div_ceil(u128::from(most)) as usize;
        writeln!(out, "\t\t\t{:>3}: {count:>6} {}", bucket + first, "*".repeat(stars))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_programs_are_not_scaled() {
        assert_eq!(Numbers { parsable: true }.show(1536), "1536");
        assert_eq!(Numbers { parsable: false }.show(1536), "1.50K");
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped_as_a_whole() {
        assert_eq!(printable(b"abc"), "abc");
        assert_eq!(printable(b"a\n"), "\\141\\012");
    }
}
