//! Where a file has data and where it has holes (`SEEK_DATA`, `SEEK_HOLE`).
//!
//! # Pages that only the kernel has
//! A page that a program mapped and changed stays in the kernel until the kernel writes it back, so a hole
//! that is known here may have data there. A copy that skips such a hole would lose the data. So before the
//! answer is "hole" for a file that is open for reading and writing, the kernel has to write back its pages
//! of that hole, and the search is repeated. Pages outside holes are not written back.
//!
//! # Which thread waits
//! The kernel's pages arrive as requests to the same mount, so a thread that reads requests must not wait for
//! them. If no other thread can wait, the whole file up to its end is reported as data: that is never wrong
//! and only costs the reader some zeros. The same holds for kernels before Linux 6.16, which drop a page
//! before they have written it.

use std::ops::Range;
use std::sync::LazyLock;

use engine::Result;
use fuser::{Errno, FileHandle, INodeNo};

use super::files::{FixedFile, LiveFile, OpenFile, stale};
use super::filesystem::Mounted;
use super::served::Served;

/// Most times that the kernel is made to write back for one answer. Each time the file was changed meanwhile.
const MOST_ROUNDS: u32 = 16;

/// The target of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seek {
    node: INodeNo,
    handle: FileHandle,
    from: u64,
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Data,
    Hole,
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub enum SeekResult {
    /// The offset; `None` where there is none up to the end of the file.
    At(Option<u64>),
    /// This range is a hole, unless the kernel has changed pages of it.
    Perhaps(Range<u64>),
}

impl Seek {
    /// By the arguments of `lseek`.
    ///
    /// # Errors
    /// `ENXIO` before the start of the file, `EINVAL` for other kinds of seeks.
    pub fn new(node: INodeNo, handle: FileHandle, offset: i64, whence: i32) -> Result<Self, Errno> {
        let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let target = match whence {
            libc::SEEK_DATA => Target::Data,
            libc::SEEK_HOLE => Target::Hole,
            _ => return Err(Errno::EINVAL),
        };
        Ok(Self { node, handle, from, target })
    }

    /// The hole that the answer `found` would tell of, in a file of which `next_data` knows where data
    /// follow.
    fn hole_of(
        &self,
        found: Option<u64>,
        size: u64,
        next_data: impl FnOnce(u64) -> Result<Option<u64>>,
    ) -> Result<Range<u64>> {
        Ok(match (self.target, found) {
            (Target::Data, found) => self.from..found.unwrap_or(size),
            (Target::Hole, Some(start)) if start < size => start..next_data(start)?.unwrap_or(size),
            (Target::Hole, _) => size..size,
        })
    }

    /// The answer where all of a file of `size` bytes is called data.
    fn in_data(&self, size: u64) -> Option<u64> {
        let found = if self.target == Target::Data { self.from } else { size };
        (self.from < size).then_some(found)
    }

    /// Whether a hole is one that the kernel has nothing of, because it wrote back `settled`.
    fn is_settled(&self, hole: &Range<u64>, settled: &Range<u64>) -> bool {
        let end = if self.target == Target::Data { hole.end } else { hole.start + 1 };
        hole.is_empty() || (settled.start <= hole.start && end <= settled.end)
    }
}

impl Served {
    /// Looks for data or a hole, where the kernel wrote back what it had of the range `settled`.
    pub(super) fn look_for(&self, seek: &Seek, settled: &Range<u64>) -> Result<SeekResult> {
        let is_data = seek.target == Target::Data;
        let file = self.file(seek.node, seek.handle)?;
        let (zpl, object) = match &*file {
            OpenFile::Live(LiveFile { zpl, object, .. }) => (zpl, *object),
            OpenFile::Stale => return Err(stale()),
            OpenFile::Fixed(FixedFile { file, .. }) if seek.from >= file.node().size() => {
                return Ok(SeekResult::At(None));
            }
            OpenFile::Fixed(FixedFile { file, .. }) => {
                let found = match is_data {
                    true => device::block_on(file.node().next_data(seek.from)),
                    false => device::block_on(file.node().next_hole(seek.from)),
                };
                return found.map(SeekResult::At);
            }
        };
        let found = match is_data {
            true => device::block_on(zpl.seek_data(object, seek.from))?,
            false => device::block_on(zpl.seek_hole(object, seek.from))?,
        };
        if !self.is_perhaps_mapped(object) {
            return Ok(SeekResult::At(found));
        }
        let size = device::block_on(zpl.zpl().stat(object))?.size;
        let next_data = |from| device::block_on(zpl.seek_data(object, from));
        let hole = seek.hole_of(found, size, next_data)?;
        Ok(if seek.is_settled(&hole, settled) { SeekResult::At(found) } else { SeekResult::Perhaps(hole) })
    }

    /// The answer for who cannot wait for the kernel.
    pub(super) fn look_for_in_data(&self, seek: &Seek) -> Result<Option<u64>> {
        let (tree, object) = self.object(seek.node)?;
        let stat = device::block_on(async { self.trees.zpl(tree).await?.stat(object).await })?;
        Ok(seek.in_data(stat.size))
    }
}

/// An answer as the kernel takes it.
pub fn told(found: Option<u64>) -> Result<u64, Errno> {
    found.filter(|found| *found <= i64::MAX as u64).ok_or(Errno::ENXIO)
}

impl Mounted {
    /// Looks for data or a hole, and has the kernel write back what it has where that seems to be a hole.
    /// Waits for requests of the mount, so not for a thread that reads them.
    pub fn look_for_with_pages(&self, seek: &Seek) -> Result<u64, Errno> {
        let mut settled = 0..0;
        for _ in 0..MOST_ROUNDS {
            let hole = {
                // The kernel's pages are requests too: nothing waits for them inside.
                let served = self.freezable.enter().ok_or(Errno::ENOTCONN)?;
                match served.look_for(seek, &settled) {
                    Ok(SeekResult::At(found)) => return told(found),
                    Ok(SeekResult::Perhaps(hole)) => hole,
                    Err(error) => return Err(served.failed(WHAT, seek.node, &error)),
                }
            };
            if !self.write_back_hole(seek.node, &hole) {
                break;
            }
            settled = hole;
        }
        self.look_for_in_data(seek)
    }

    /// The answer for who cannot wait for the kernel.
    pub fn look_for_in_data(&self, seek: &Seek) -> Result<u64, Errno> {
        let served = self.freezable.enter().ok_or(Errno::ENOTCONN)?;
        let found = served.look_for_in_data(seek);
        told(found.map_err(|error| served.failed(WHAT, seek.node, &error))?)
    }

    /// Has the kernel write back its pages of a range, and waits until it has. Whether that is certain.
    fn write_back_hole(&self, node: INodeNo, hole: &Range<u64>) -> bool {
        if !*WAITS_FOR_PAGES {
            return false;
        }
        let notifier = self.freezable.served().and_then(|served| served.notifier().cloned());
        let Some(notifier) = notifier else { return false };
        let (Ok(offset), Ok(length)) = (i64::try_from(hole.start), i64::try_from(hole.end - hole.start))
        else {
            return false;
        };
        match notifier.inval_inode(node, offset, length) {
            Ok(()) => true,
            // A file that the kernel does not know has no pages.
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

/// The operation, for the log.
pub const WHAT: &str = "look for data or holes in";

/// Whether the kernel keeps a page until it is written: since Linux 6.16.
static WAITS_FOR_PAGES: LazyLock<bool> = LazyLock::new(|| {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| is_at_least(&release, (6, 16)))
});

/// Whether a release of Linux is that version or a later one.
fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    (number(), number()) >= version
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seek(from: i64, whence: i32) -> Seek {
        Seek::new(INodeNo(7), FileHandle(1), from, whence).unwrap()
    }

    fn no_data(_: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    #[test]
    fn only_what_would_be_called_a_hole_is_written_back() {
        let data = seek(100, libc::SEEK_DATA);
        assert_eq!(data.hole_of(Some(4096), 9000, no_data).unwrap(), 100..4096);
        assert_eq!(data.hole_of(None, 9000, no_data).unwrap(), 100..9000);
        assert!(data.hole_of(Some(100), 9000, no_data).unwrap().is_empty());
        let hole = seek(100, libc::SEEK_HOLE);
        assert_eq!(hole.hole_of(Some(4096), 9000, |_| Ok(Some(8192))).unwrap(), 4096..8192);
        assert_eq!(hole.hole_of(Some(4096), 9000, no_data).unwrap(), 4096..9000);
        assert!(hole.hole_of(Some(9000), 9000, no_data).unwrap().is_empty(), "every file ends in one");
        assert!(hole.hole_of(None, 50, no_data).unwrap().is_empty());
    }

    #[test]
    fn a_hole_is_one_when_the_kernel_has_nothing_of_it() {
        let (data, hole) = (seek(100, libc::SEEK_DATA), seek(100, libc::SEEK_HOLE));
        assert!(data.is_settled(&(100..4096), &(100..8192)) && !data.is_settled(&(100..9000), &(100..8192)));
        // A hole that begins where the kernel has nothing begins there, however long it is.
        assert!(hole.is_settled(&(4096..9000), &(4096..8192)) && !hole.is_settled(&(4096..9000), &(0..4096)));
    }

    #[test]
    fn without_the_kernel_all_is_data_up_to_the_end() {
        let (data, hole) = (seek(100, libc::SEEK_DATA), seek(100, libc::SEEK_HOLE));
        assert_eq!((data.in_data(4096), hole.in_data(4096)), (Some(100), Some(4096)));
        assert_eq!((data.in_data(100), hole.in_data(100)), (None, None));
    }

    #[test]
    fn releases_of_the_kernel_are_compared_by_number() {
        assert!(is_at_least("6.16.0-1-amd64", (6, 16)) && is_at_least("7.0", (6, 16)));
        assert!(is_at_least("6.16-rc3", (6, 16)) && !is_at_least("6.8.12", (6, 16)));
        assert!(!is_at_least("5.19", (6, 16)) && !is_at_least("unknown", (6, 16)));
    }
}
