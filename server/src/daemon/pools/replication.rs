//! How much the vdevs of a pool can lose, and whether new ones can lose as much.
//!
//! Vdevs of different redundancy in one pool are rarely what a person wants, so they need force. Different
//! kinds of vdevs are fine as long as they survive the same number of failed devices: a raidz or draid vdev
//! with P parity columns goes with mirrors of P + 1 devices, and with any other raidz or draid vdev of that
//! parity. Log devices do not count. A pool whose own vdevs differ already is not compared with new ones.
//!
//! Source of the facts: OpenZFS 2.4 `zpool_vdev.c` (`get_replication`, `check_replication`).

use engine::pool::live::NewTop;
use engine::pool::status::{VdevClass, VdevNode};

use crate::api::{NewClass, NewLayout, NewVdev};

/// Devices whose sizes differ by no more than this count as equal.
const SIZE_FUZZ_BYTES: u64 = 16 << 20;

/// How one vdev holds its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::daemon) struct Replication {
    /// `file`, `disk`, `mirror`, `raidz`, `draid`.
    kind: &'static str,
    /// Parity columns of raidz and draid; 0 for others.
    parity: u64,
    children: u64,
}

/// A reason why two vdevs do not go together.
#[derive(Debug, PartialEq, Eq)]
enum Mismatch<'a> {
    /// They survive different numbers of failed devices.
    Redundancy(&'a Replication, &'a Replication),
    Kind,
    Parity,
    Width,
}

impl Replication {
    fn of_new(vdev: &NewVdev, top: &NewTop) -> Self {
        let plain = || if top.leaves.iter().any(|leaf| leaf.is_file) { "file" } else { "disk" };
        let (kind, parity) = match vdev.layout {
            NewLayout::Single => (plain(), 0),
            NewLayout::Mirror => ("mirror", 0),
            NewLayout::Raidz { nparity } => ("raidz", u64::from(nparity)),
            NewLayout::Draid { nparity, .. } => ("draid", u64::from(nparity)),
        };
        Self { kind, parity, children: top.leaves.len() as u64 }
    }

    fn of_existing(top: &VdevNode) -> Self {
        // `raidz2-0`, `draid2:4d:9c:1s-0`
        let parity_of = |kind: &str| {
            let rest = top.name.strip_prefix(kind).unwrap_or_default();
            rest.bytes().next().filter(u8::is_ascii_digit).map_or(1, |digit| u64::from(digit - b'0'))
        };
        let children = top.children.len().max(1) as u64;
        let (kind, parity) = match top.kind.as_str() {
            "mirror" => ("mirror", 0),
            "raidz" => ("raidz", parity_of("raidz")),
            "draid" => ("draid", parity_of("draid")),
            "file" => ("file", 0),
            _ => ("disk", 0),
        };
        Self { kind, parity, children }
    }

    fn has_parity(&self) -> bool {
        matches!(self.kind, "raidz" | "draid")
    }

    /// Failed devices that it survives.
    fn redundancy(&self) -> u64 {
        if self.has_parity() { self.parity } else { self.children.saturating_sub(1) }
    }

    fn mismatch<'a>(&'a self, other: &'a Self) -> Option<Mismatch<'a>> {
        let mirrored = |one: &Self, another: &Self| one.has_parity() && another.kind == "mirror";
        let comparable =
            mirrored(self, other) || mirrored(other, self) || (self.has_parity() && other.has_parity());
        if comparable {
            let (parity, other) = if self.has_parity() { (self, other) } else { (other, self) };
            if parity.redundancy() == other.redundancy() {
                return None;
            }
            return Some(match parity.kind == other.kind {
                true => Mismatch::Parity,
                false => Mismatch::Redundancy(parity, other),
            });
        }
        if self.kind != other.kind {
            return Some(Mismatch::Kind);
        }
        (self.children != other.children).then_some(Mismatch::Width)
    }

    /// The error of having both in one pool.
    fn both(&self, other: &Self) -> Option<String> {
        let (a, b) = (self, other);
        Some(match a.mismatch(b)? {
            Mismatch::Redundancy(parity, other) => format!(
                "{} and {} vdevs with different redundancy, {} are present",
                parity.kind,
                other.kind,
                failures(parity, other)
            ),
            Mismatch::Kind => format!("both {} and {} vdevs are present", a.kind, b.kind),
            Mismatch::Parity => {
                format!("both {} and {} device parity {} vdevs are present", a.parity, b.parity, b.kind)
            }
            Mismatch::Width => {
                format!("both {}-way and {}-way {} vdevs are present", a.children, b.children, b.kind)
            }
        })
    }

    /// The error of adding `new` to a pool that has this.
    fn with_new(&self, new: &Self) -> Option<String> {
        Some(match self.mismatch(new)? {
            Mismatch::Redundancy(parity, other) => format!(
                "pool and new vdev with different redundancy, {} and {} vdevs, {}",
                parity.kind,
                other.kind,
                failures(parity, other)
            ),
            Mismatch::Kind => format!("pool uses {} and new vdev is {}", self.kind, new.kind),
            Mismatch::Parity => {
                format!("pool uses {} device parity and new vdev uses {}", self.parity, new.parity)
            }
            Mismatch::Width => format!(
                "pool uses {}-way {} and new vdev uses {}-way {}",
                self.children, self.kind, new.children, new.kind
            ),
        })
    }
}

/// The failed devices that both survive, in OpenZFS's words.
fn failures(parity: &Replication, other: &Replication) -> String {
    match other.kind {
        "mirror" => format!("{} vs. {} ({}-way)", parity.parity, other.redundancy(), other.children),
        _ => format!("{} vs. {}", parity.parity, other.parity),
    }
}

/// The common kind of all vdevs of a pool that hold blocks; `None` where they differ, or there are none.
pub(in crate::daemon) fn of_pool(root: &VdevNode) -> Option<Replication> {
    let holds = |top: &&VdevNode| {
        let class = matches!(top.class, VdevClass::Normal | VdevClass::Special | VdevClass::Dedup);
        class && !matches!(top.kind.as_str(), "hole" | "indirect")
    };
    let mut last: Option<Replication> = None;
    for top in root.children.iter().filter(holds) {
        let this = Replication::of_existing(top);
        let alike = last.as_ref().is_none_or(|last| last.mismatch(&this).is_none());
        let leaves = top.children.iter().filter_map(|leaf| leaf.device_bytes);
        if !alike || are_of_different_sizes(leaves) {
            return None;
        }
        last = Some(this);
    }
    last
}

fn are_of_different_sizes(sizes: impl Iterator<Item = u64> + Clone) -> bool {
    let (smallest, largest) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    largest - smallest > SIZE_FUZZ_BYTES
}

/// Mismatches of new vdevs, among themselves and with the vdevs of the pool: the first such
/// thing.
pub(in crate::daemon) fn fault(
    vdevs: &[NewVdev],
    tops: &[NewTop],
    existing: Option<&Replication>,
) -> Option<String> {
    let mut last: Option<Replication> = None;
    for (vdev, top) in vdevs.iter().zip(tops).filter(|(vdev, _)| vdev.class != NewClass::Log) {
        let this = Replication::of_new(vdev, top);
        let files = top.leaves.iter().filter(|leaf| leaf.is_file).count();
        if files > 0 && files < top.leaves.len() {
            return Some(format!(
                "mismatched replication level: {} contains both files and devices",
                this.kind
            ));
        }
        if are_of_different_sizes(top.leaves.iter().map(|leaf| leaf.device.size_bytes())) {
            return Some(format!("{} contains devices of different sizes", this.kind));
        }
        if let Some(what) = last.as_ref().and_then(|last| last.both(&this)) {
            return Some(format!("mismatched replication level: {what}"));
        }
        last = Some(this);
    }
    let what = existing?.with_new(last.as_ref()?)?;
    Some(format!("mismatched replication level: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replication(kind: &'static str, parity: u64, children: u64) -> Replication {
        Replication { kind, parity, children }
    }

    #[test]
    fn vdevs_of_equal_redundancy_go_together() {
        let raidz = replication("raidz", 1, 3);
        for other in [
            replication("mirror", 0, 2),
            replication("raidz", 1, 5),
            replication("draid", 1, 7),
            replication("raidz", 1, 3),
        ] {
            assert_eq!((raidz.both(&other), other.with_new(&raidz)), (None, None), "{other:?}");
        }
    }

    #[test]
    fn vdevs_of_different_redundancy_are_told_apart() {
        let mirror = replication("mirror", 0, 2);
        let raidz2 = replication("raidz", 2, 4);
        for (pool, new, both, with_new) in [
            (
                &mirror,
                &raidz2,
                "raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present",
                "pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)",
            ),
            (
                &raidz2,
                &replication("draid", 1, 4),
                "raidz and draid vdevs with different redundancy, 2 vs. 1 are present",
                "pool and new vdev with different redundancy, raidz and draid vdevs, 2 vs. 1",
            ),
            (
                &raidz2,
                &replication("raidz", 1, 4),
                "both 2 and 1 device parity raidz vdevs are present",
                "pool uses 2 device parity and new vdev uses 1",
            ),
            (
                &mirror,
                &replication("mirror", 0, 3),
                "both 2-way and 3-way mirror vdevs are present",
                "pool uses 2-way mirror and new vdev uses 3-way mirror",
            ),
            (
                &mirror,
                &replication("disk", 0, 1),
                "both mirror and disk vdevs are present",
                "pool uses mirror and new vdev is disk",
            ),
        ] {
            assert_eq!(pool.both(new).as_deref(), Some(both));
            assert_eq!(pool.with_new(new).as_deref(), Some(with_new));
        }
    }
}
