//! Rules about caches, by the reads of the pool: what a larger cache in memory, a cache device or a special
//! vdev would do.

use super::observations::Observations;
use super::{Advice, Weight};
use crate::models::{bytes, percent};

/// With fewer reads, their curve says little.
const FEW: f64 = 1000.0;
/// The share of reads from which on a change is worth a look.
const WORTH: f64 = 0.1;
/// The share of reads that twice the memory must answer more: memory is dear.
const WORTH_MEMORY: f64 = 0.05;

pub(super) fn larger_arc(seen: &Observations) -> Vec<Advice> {
    let Some(reads) = seen.reads.as_ref().filter(|reads| reads.samples >= FEW) else { return Vec::new() };
    if reads.twice - reads.now < WORTH_MEMORY {
        return Vec::new();
    }
    let twice = reads.arc.0.saturating_mul(2);
    vec![Advice {
        rule: "larger-arc",
        weight: Weight::Hint,
        about: seen.pool.clone(),
        change: format!("give the cache in memory {} (zfs_arc_max)", bytes(twice as f64)),
        evidence: format!(
            "of the reads since the pool was opened, {} answers {}, and twice as much {}",
            bytes(reads.arc.0 as f64),
            percent(reads.now),
            percent(reads.twice)
        ),
        gain: format!(
            "{} instead of {} of the reads go to devices",
            percent(1.0 - reads.twice),
            percent(1.0 - reads.now)
        ),
        cost: format!("{} of memory", bytes(reads.arc.0 as f64)),
        risk: "none: it shrinks when others need the memory".into(),
        proof: format!("{}what-if {}", seen.program, seen.pool),
    }]
}

/// Whether a device that holds data turns.
fn turns(seen: &Observations) -> bool {
    let holds_data = |top: &str| seen.tops.iter().any(|data| data.name == top);
    seen.leaves.iter().any(|leaf| leaf.medium.turns == Some(true) && holds_data(&leaf.top))
}

pub(super) fn cache_device(seen: &Observations) -> Vec<Advice> {
    let reads = seen.reads.as_ref().filter(|reads| reads.samples >= FEW && seen.cache_bytes == 0);
    let Some((reads, device)) = reads.and_then(|reads| Some((reads, reads.best()?))) else {
        return Vec::new();
    };
    if device.answered - reads.now < WORTH || !turns(seen) {
        return Vec::new();
    }
    vec![Advice {
        rule: "cache-device",
        weight: Weight::Hint,
        about: seen.pool.clone(),
        change: format!("add a cache device of {} (flash)", bytes(device.size.0 as f64)),
        evidence: format!(
            "of the reads since the pool was opened, the cache in memory answers {}; with that device it \
             would be {}. The other devices turn",
            percent(reads.now),
            percent(device.answered)
        ),
        gain: format!(
            "{} instead of {} of the reads wait for a disk",
            percent(1.0 - device.answered),
            percent(1.0 - reads.now)
        ),
        cost: format!("the device, and {} of memory for its headers", bytes(device.headers as f64)),
        risk: "none: it holds copies only".into(),
        proof: format!("{}lab model l2arc --from {}", seen.program, seen.pool),
    }]
}

pub(super) fn special_vdev(seen: &Observations) -> Vec<Advice> {
    let Some(reads) = seen.reads.as_ref().filter(|reads| reads.samples >= FEW) else { return Vec::new() };
    if reads.special < WORTH || seen.has_special || !turns(seen) {
        return Vec::new();
    }
    vec![Advice {
        rule: "special-vdev",
        weight: Weight::Hint,
        about: seen.pool.clone(),
        change: "add a special vdev (mirrored flash) for metadata".into(),
        evidence: format!(
            "{} of the reads since the pool was opened are of metadata that the cache in memory does not \
             answer. The other devices turn",
            percent(reads.special)
        ),
        gain: "these reads wait for flash instead of a disk; so do listings and scrubs".into(),
        cost: "the devices. Only new metadata go there".into(),
        risk: "the pool is lost with it, so it needs the redundancy of the pool".into(),
        proof: format!("{}what-if {}", seen.program, seen.pool),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::observations::{Leaf, Top};
    use super::*;
    use crate::layout::Vdev;
    use crate::medium::Medium;
    use crate::models::cache_reads::{CacheReads, Reads};
    use crate::size::Size;

    const GIB: u64 = 1 << 30;

    fn seen(answered: &dyn Fn(u64, u64) -> f64, metadata_misses: f64) -> Observations {
        let (arc, block, stored) = (Size(GIB), 64 << 10, 64 * GIB);
        let reads = Reads { pool: "tank", samples: 5000.0, arc, block, stored, metadata_misses, answered };
        let medium = Medium { turns: Some(true), ..Medium::default() };
        Observations {
            pool: "tank".into(),
            program: "cenote ".into(),
            reads: Some(CacheReads::of(&reads, None).unwrap()),
            tops: vec![Top { name: "/dev/sda".into(), vdev: Vdev::Disk, ashift: 12, device_bytes: 1 << 40 }],
            leaves: vec![Leaf { path: "/dev/sda".into(), top: "/dev/sda".into(), medium, ..Leaf::default() }],
            ..Observations::default()
        }
    }

    /// Reads that are spread evenly over 16 GiB.
    fn evenly(memory: u64, device: u64) -> f64 {
        ((memory + device) as f64 / (16 * GIB) as f64).min(1.0)
    }

    fn rules(seen: &Observations) -> Vec<&'static str> {
        [larger_arc, cache_device, special_vdev]
            .iter()
            .flat_map(|rule| rule(seen))
            .map(|it| it.rule)
            .collect()
    }

    #[test]
    fn caches_are_advised_where_the_reads_gain_by_them() {
        let wide = seen(&evenly, 0.2);
        assert_eq!(rules(&wide), ["larger-arc", "cache-device", "special-vdev"]);
        let device = cache_device(&wide).remove(0);
        assert!(device.change.contains("16.0 GiB"), "{device:?}");
        assert_eq!(device.proof, "cenote lab model l2arc --from tank");
        let flat = |_, _| 0.9;
        assert!(rules(&seen(&flat, 0.01)).is_empty(), "all is in memory already");
    }

    #[test]
    fn flash_pools_and_pools_that_have_such_devices_need_none() {
        let mut flash = seen(&evenly, 0.2);
        flash.leaves[0].medium.turns = Some(false);
        assert_eq!(rules(&flash), ["larger-arc"]);
        let has = Observations { has_special: true, cache_bytes: GIB, ..seen(&evenly, 0.2) };
        assert_eq!(rules(&has), ["larger-arc"]);
        let mut few = seen(&evenly, 0.2);
        few.reads.as_mut().unwrap().samples = 10.0;
        assert!(rules(&few).is_empty());
        let unknown = Observations { reads: None, ..seen(&evenly, 0.2) };
        assert!(rules(&unknown).is_empty());
    }
}
