//! Keeps the ARC at the size that the machine's memory allows ([`engine::cache::sizing`]), and the process at
//! the size that its ARC allows.
//!
//! The process keeps to one and a half times the largest size of the ARC, and [`BASE_BYTES`]. The half is for
//! what is not the ARC: requests and transfers under way, indexes, names, maps of free space, what allocators
//! keep. Where that takes more, the ARC is kept smaller by as much ([`Process::held_back`]), down to a
//! quarter. Requests of all clients of volumes share a quarter of its largest size, and take memory of that
//! before they take buffers ([`SharedMemory`]). Freed buffers are kept for the next ones up to one eighth of
//! its largest size ([`device::keep_unused`]), and fewer where the process takes more than it may.
//!
//! One thread looks each second, and more often while the process takes more than it may. Between two looks
//! a burst could take all that is left: so the thread is woken as well when the memory of buffers has grown
//! by a part of what is left ([`device::wait_for_growth`]). It ends with the daemon.
//!
//! | figure | where from |
//! |---|---|
//! | available memory | `MemAvailable` in `/proc/meminfo` |
//! | pressure | `some avg10` in `/proc/pressure/memory`, or in `memory.pressure` of the control group |
//! | the limit of the control group (version 2) | the least `memory.max`, `memory.high` of it and of the groups above it, with their `memory.current` and `inactive_file` |

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::cache::sizing::{Memory, Sizing};
use engine::stats::MemoryStats;
use engine::tunables;

use crate::block::{self, SharedMemory};
use crate::daemon::Daemon;
use crate::nbd;

/// How often it looks at the machine.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often it looks at the process while that takes more than it may.
const EXCESS_INTERVAL: Duration = Duration::from_millis(50);
/// The least time between two looks, however fast memory grows.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// It looks again when buffers have grown by this part of what is left,
const GROWTH_SHARE: u64 = 4;
/// or by this much.
const LEAST_GROWTH_BYTES: u64 = 4 << 20;
/// Without `zfs_arc_sys_free`, this share of the memory is left to others,
const RESERVE_SHARE: u64 = 64;
/// and at least this much.
const MIN_RESERVE_BYTES: u64 = 512 << 20;
/// Without `zfs_arc_min`, the ARC keeps this share of the memory,
const LEAST_SHARE: u64 = 32;
/// and at least this much.
const MIN_BYTES: u64 = tunables::LEAST_ARC_BYTES;
/// What the process may take besides one and a half times the ARC: the program, threads, a pool.
const BASE_BYTES: u64 = 96 << 20;
/// Of that, as much is left for what comes between two looks.
const SPARE_BYTES: u64 = 24 << 20;
/// The ARC keeps this share of its largest size, whatever the rest of the process takes.
const OWN_SHARE: u64 = 4;
/// Of freed buffers, this share of the largest size of the ARC is kept for the next ones,
const KEPT_SHARE: u64 = 8;
/// within these bounds.
const KEPT_BYTES: RangeInclusive<u64> = 8 << 20..=256 << 20;
/// Clients of volumes share this part of the largest size of the ARC for their requests,
const REQUESTS_SHARE: u64 = 4;
/// within these bounds: the largest request, and what many clients use.
const REQUESTS_BYTES: RangeInclusive<u64> = nbd::MAX_REQUEST_BYTES as u64..=block::MOST_SHARED_BYTES as u64;
/// Changes smaller than this part of the size are left, but for those that a user asked for.
const STEP_SHARE: u64 = 128;

impl Daemon {
    /// Begins to keep the ARC at the size that memory allows.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_sizing(self: &Arc<Self>) -> std::io::Result<()> {
        let daemon = Arc::downgrade(self);
        let total = device::machine_memory_bytes();
        let group = Group::own();
        let run = move || {
            let mut sizing = Sizing::new(0, 0, 0);
            let mut looked = None::<Instant>;
            while let Some(daemon) = daemon.upgrade() {
                let process = Process::now();
                let last = *looked.filter(|at| at.elapsed() < INTERVAL).get_or_insert_with(|| {
                    daemon.size_arc(&mut sizing, total, group.as_ref(), process);
                    Instant::now()
                });
                looked = Some(last);
                let left = process.map_or(Left::default(), |process| daemon.keep_to_size(process));
                drop(daemon);
                let rest = INTERVAL.saturating_sub(last.elapsed());
                let longest = if left.is_excess { rest.min(EXCESS_INTERVAL) } else { rest };
                std::thread::sleep(longest.min(LEAST_INTERVAL));
                let growth = (left.bytes / GROWTH_SHARE).max(LEAST_GROWTH_BYTES);
                device::wait_for_growth(growth, longest.saturating_sub(LEAST_INTERVAL));
            }
        };
        std::thread::Builder::new().name("arc-size".into()).spawn(run).map(drop)
    }

    /// The most bytes that the ARC may have.
    pub(in crate::daemon) fn arc_max(&self) -> u64 {
        let given = tunables::ZFS_ARC_MAX.given().filter(|bytes| *bytes != 0);
        given.unwrap_or(self.arc_asked)
    }

    fn size_arc(&self, sizing: &mut Sizing, total: u64, group: Option<&Group>, process: Option<Process>) {
        let most = self.arc_max();
        self.requests.resize(requests_bytes(most));
        sizing.most = most - process.map_or(0, |process| process.held_back(self.arc_used(), most));
        (sizing.least, sizing.reserve) = (arc_min(total), reserve(total));
        let Some(memory) = memory(group) else { return };
        let size = self.cache.budget_bytes();
        let next = sizing.next(size, memory, Instant::now());
        let is_worth_it = next.abs_diff(size) >= size / STEP_SHARE || next == sizing.most;
        if next != size && is_worth_it {
            self.cache.resize(next);
            tracing::debug!(from = size, to = next, available = memory.available_bytes, "the ARC's size");
        }
    }
}

/// What the process may still take.
#[derive(Debug, Clone, Copy, Default)]
struct Left {
    /// It takes more than it may beside its ARC.
    is_excess: bool,
    bytes: u64,
}

impl Daemon {
    /// Gives memory back where the process takes more than it may: freed buffers first, then blocks of the
    /// ARC. Returns what is left.
    fn keep_to_size(&self, process: Process) -> Left {
        let most = self.arc_max();
        let excess = process.excess(self.arc_used(), most);
        let kept = device::buffer_memory().kept_bytes;
        device::keep_unused(kept_limit(most).saturating_sub(excess));
        let given_back = kept.saturating_sub(device::buffer_memory().kept_bytes);
        let size = self.cache.budget_bytes();
        let next = size.min(most - held_back(excess.saturating_sub(given_back), most));
        if size - next >= size / STEP_SHARE && next != size {
            self.cache.resize(next);
        }
        let own = process.resident.saturating_sub(process.shared);
        Left { is_excess: excess > 0, bytes: resident_limit(most).saturating_sub(own) }
    }

    /// Memory that the ARC's budget is for: blocks, dirty data, indexes of cache devices.
    fn arc_used(&self) -> u64 {
        let stats = self.cache.stats();
        stats.size_bytes.saturating_add(stats.lent_bytes).saturating_add(self.cache.index_bytes())
    }

    /// Where the memory of the process is.
    pub(in crate::daemon) fn memory_stats(&self) -> MemoryStats {
        let (process, buffers) = (Process::now().unwrap_or_default(), device::buffer_memory());
        let (cache, most) = (self.cache.stats(), self.arc_max());
        let in_buffers = buffers.used_bytes.saturating_add(buffers.kept_bytes);
        MemoryStats {
            resident: process.resident,
            resident_most: process.resident_most,
            resident_limit: resident_limit(most),
            program: process.resident.saturating_sub(process.anonymous).saturating_sub(process.shared),
            shared: process.shared,
            buffers: buffers.used_bytes,
            buffers_kept: buffers.kept_bytes,
            heap: process.anonymous.saturating_sub(in_buffers),
            arc_blocks: cache.size_bytes,
            dirty: cache.lent_bytes,
            requests: self.requests.used_bytes() as u64,
            requests_limit: self.requests.bytes() as u64,
            l2_index: self.cache.index_bytes(),
            held_back: process.held_back(self.arc_used(), most),
        }
    }
}

/// What the process keeps to, beside an ARC of at most `arc_max` bytes.
fn resident_limit(arc_max: u64) -> u64 {
    arc_max.saturating_add(arc_max / 2).saturating_add(BASE_BYTES)
}

/// The most bytes of freed buffers that are kept, beside an ARC of at most `arc_max` bytes.
fn kept_limit(arc_max: u64) -> u64 {
    (arc_max / KEPT_SHARE).clamp(*KEPT_BYTES.start(), *KEPT_BYTES.end())
}

/// How much smaller than `arc_max` the ARC has to be when the process takes so many bytes too much. The ARC
/// keeps its share.
fn held_back(excess: u64, arc_max: u64) -> u64 {
    excess.min(arc_max - arc_max / OWN_SHARE)
}

/// Memory for the requests of clients of volumes, beside an ARC of at most `arc_max` bytes.
pub(in crate::daemon) fn for_requests(arc_max: u64) -> SharedMemory {
    SharedMemory::new(requests_bytes(arc_max))
}

fn requests_bytes(arc_max: u64) -> usize {
    let bytes = (arc_max / REQUESTS_SHARE).clamp(*REQUESTS_BYTES.start(), *REQUESTS_BYTES.end());
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The memory of this process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Process {
    resident: u64,
    resident_most: u64,
    /// Of no file.
    anonymous: u64,
    /// Of others, such as guests.
    shared: u64,
}

impl Process {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/status").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = |name| Some(field(text, name)?.saturating_mul(1 << 10));
        let [resident, resident_most] = [bytes("VmRSS:")?, bytes("VmHWM:")?];
        // Systems before Linux 4.5 do not tell the two apart.
        let anonymous = bytes("RssAnon:").unwrap_or(resident);
        Some(Self { resident, resident_most, anonymous, shared: bytes("RssShmem:").unwrap_or(0) })
    }

    /// How much too much the process takes beside an ARC that may have `most` bytes and uses `used` now.
    fn excess(&self, used: u64, most: u64) -> u64 {
        let others = self.resident.saturating_sub(self.shared).saturating_sub(used);
        others.saturating_sub(most / 2).saturating_sub(BASE_BYTES - SPARE_BYTES)
    }

    /// How much smaller than `most` the ARC has to be, so that the process keeps to its size.
    fn held_back(&self, used: u64, most: u64) -> u64 {
        held_back(self.excess(used, most), most)
    }
}

fn given(tunable: &tunables::Tunable) -> Option<u64> {
    tunable.given().filter(|bytes| *bytes != 0)
}

/// The least bytes that the ARC keeps, of a machine with so much memory.
pub(in crate::daemon) fn arc_min(total: u64) -> u64 {
    given(&tunables::ZFS_ARC_MIN).unwrap_or((total / LEAST_SHARE).max(MIN_BYTES))
}

/// The bytes that are left to others.
pub(in crate::daemon) fn reserve(total: u64) -> u64 {
    given(&tunables::ZFS_ARC_SYS_FREE).unwrap_or((total / RESERVE_SHARE).max(MIN_RESERVE_BYTES))
}

/// The memory that is left to this process.
fn memory(group: Option<&Group>) -> Option<Memory> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let machine = field(&text, "MemAvailable:")?.saturating_mul(1 << 10);
    let in_group = group.and_then(Group::left);
    let pressure = group.and_then(Group::pressure).or_else(|| pressure(Path::new("/proc/pressure/memory")));
    Some(Memory {
        available_bytes: in_group.map_or(machine, |left| left.min(machine)),
        pressure_percent: pressure.unwrap_or(0.0),
    })
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The share of the last ten seconds in which some task waited.
fn pressure(file: &Path) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// The control group of this process, and those above it, the innermost first.
#[derive(Debug)]
struct Group(Vec<PathBuf>);

impl Group {
    fn own() -> Option<Self> {
        Self::of(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
    }

    fn of(root: &Path, text: &str) -> Option<Self> {
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let own = root.join(path);
        let groups = own.ancestors().take_while(|path| path.starts_with(root)).map(Path::to_owned);
        Some(Self(groups.filter(|path| path.join("memory.current").exists()).collect()))
    }

    /// Bytes that the process may still take before the first of its groups is at its limit.
    fn left(&self) -> Option<u64> {
        self.0.iter().filter_map(|group| left_in(group)).min()
    }

    fn pressure(&self) -> Option<f64> {
        pressure(&self.0.first()?.join("memory.pressure"))
    }
}

fn left_in(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    // "max" is no number: there is no limit.
    let limit = |name| read(name).and_then(|text| text.trim().parse::<u64>().ok());
    let limit = [limit("memory.max"), limit("memory.high")].into_iter().flatten().min()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    // The kernel takes these back before it refuses memory.
    let reclaimable = read("memory.stat").and_then(|text| field(&text, "inactive_file")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arc_follows_its_tunables_while_it_is_in_use() {
        const GIB: u64 = 1 << 30;
        let daemon = Daemon::with_cache(256 << 20);
        let mut sizing = Sizing::new(256 << 20, 0, 0);
        let mut size_after = |tunable: &tunables::Tunable, value| {
            tunable.set(value).unwrap();
            daemon.size_arc(&mut sizing, GIB, None, None);
            tunable.reset();
            daemon.cache.budget_bytes()
        };
        assert_eq!(size_after(&tunables::ZFS_ARC_MAX, 100 << 20), 100 << 20);
        // It grows to what was asked for at the start.
        assert_eq!(size_after(&tunables::ZFS_ARC_MAX, 0), 256 << 20);
        // No machine has so much left for others: the ARC keeps its least size.
        assert_eq!(size_after(&tunables::ZFS_ARC_SYS_FREE, 1 << 60), 64 << 20);
        tunables::ZFS_ARC_SYS_FREE.set(1 << 60).unwrap();
        assert_eq!(size_after(&tunables::ZFS_ARC_MIN, 96 << 20), 96 << 20);
        tunables::ZFS_ARC_SYS_FREE.reset();
    }

    #[test]
    fn the_arc_gives_way_to_what_else_the_process_takes_beyond_half_of_it() {
        const MIB: u64 = 1 << 20;
        let text = "VmHWM:\t  700000 kB\nVmRSS:\t  614400 kB\nRssAnon:\t  512000 kB\nRssShmem:\t 0 kB\n";
        let process = Process::parse(text).unwrap();
        assert_eq!((process.resident, process.anonymous), (600 * MIB, 500 * MIB));
        assert_eq!(process.held_back(400 * MIB, 256 * MIB), 0, "200 MiB of others may be taken");
        assert_eq!(process.held_back(300 * MIB, 256 * MIB), 100 * MIB);
        assert_eq!(process.held_back(0, 256 * MIB), 192 * MIB, "a quarter is left to it");
        let with_guest = Process { resident: 1600 * MIB, shared: 1000 * MIB, ..process };
        assert_eq!(with_guest.held_back(400 * MIB, 256 * MIB), 0, "the memory of a guest is not ours");
        assert_eq!(Process::parse("VmRSS: 1 kB\n"), None);
    }

    #[test]
    fn the_least_of_the_limits_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&inner).unwrap();
        for (group, name, text) in [
            (&outer, "memory.max", "1000\n"),
            (&outer, "memory.high", "max\n"),
            (&outer, "memory.current", "900\n"),
            (&outer, "memory.stat", "anon 5\ninactive_file 100\n"),
            (&inner, "memory.max", "max\n"),
            (&inner, "memory.current", "100\n"),
            (&inner, "memory.pressure", "some avg10=12.50 avg60=0.00 total=1\nfull avg10=0.00\n"),
        ] {
            fs::write(group.join(name), text).unwrap();
        }
        let group = Group::of(root.path(), "1:name=systemd:/x\n0::/a/b\n").unwrap();
        assert_eq!((group.left(), group.pressure()), (Some(200), Some(12.5)));
        fs::write(inner.join("memory.high"), "150\n").unwrap();
        assert_eq!(group.left(), Some(50));
        assert!(Group::of(root.path(), "1:memory:/x\n").is_none());
    }
}
