//! Keeps the ARC at the size that the machine's memory allows ([`engine::cache::sizing`]).
//!
//! One thread looks each second. It ends with the daemon.
//!
//! | figure | where from |
//! |---|---|
//! | available memory | `MemAvailable` in `/proc/meminfo` |
//! | pressure | `some avg10` in `/proc/pressure/memory`, or in `memory.pressure` of the control group |
//! | the limit of the control group (version 2) | the least `memory.max`, `memory.high` of it and of the groups above it, with their `memory.current` and `inactive_file` |

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::cache::sizing::{Memory, Sizing};
use engine::tunables;

use super::Daemon;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Without `zfs_arc_sys_free`, this share of the memory is left to others,
const RESERVE_SHARE: u64 = 64;
/// and at least this much.
const MIN_RESERVE_BYTES: u64 = 512 << 20;
/// Without `zfs_arc_min`, the ARC keeps this share of the memory,
const LEAST_SHARE: u64 = 32;
/// and at least this much.
const MIN_BYTES: u64 = 64 << 20;
/// Changes smaller than this part of the size are left, but for those that a user asked for.
const STEP_SHARE: u64 = 128;

impl Daemon {
    /// Begins to keep the ARC at the size that memory allows.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_sizing(self: &Arc<Self>) -> std::io::Result<()> {
        let daemon = Arc::downgrade(self);
        let total = super::machine_memory_bytes();
        let group = Group::own();
        let run = move || {
            let mut sizing = Sizing::new(0, 0, 0);
            while let Some(daemon) = daemon.upgrade() {
                daemon.size_arc(&mut sizing, total, group.as_ref());
                drop(daemon);
                std::thread::sleep(INTERVAL);
            }
        };
        std::thread::Builder::new().name("arc-size".into()).spawn(run).map(drop)
    }

    /// The most bytes that the ARC may have.
    pub(super) fn arc_max(&self) -> u64 {
        let given = tunables::ZFS_ARC_MAX.given().filter(|bytes| *bytes != 0);
        given.map_or(self.arc_asked, |most| most.max(MIN_BYTES))
    }

    fn size_arc(&self, sizing: &mut Sizing, total: u64, group: Option<&Group>) {
        sizing.most = self.arc_max();
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

fn given(tunable: &tunables::Tunable) -> Option<u64> {
    tunable.given().filter(|bytes| *bytes != 0)
}

/// The least bytes that the ARC keeps, of a machine with so much memory.
pub(super) fn arc_min(total: u64) -> u64 {
    given(&tunables::ZFS_ARC_MIN).unwrap_or((total / LEAST_SHARE).max(MIN_BYTES))
}

/// The bytes that are left to others.
pub(super) fn reserve(total: u64) -> u64 {
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
            daemon.size_arc(&mut sizing, GIB, None);
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
