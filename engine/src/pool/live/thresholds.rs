//! Properties of vdevs that say how many errors are too many: `io_n`, `io_t`, `checksum_n`, `checksum_t`,
//! `slow_io_n` and `slow_io_t`.
//!
//! A leaf has the value that was set for it, else that of the nearest vdev above it, else that of the root
//! vdev. Slow transfers count only where both of their properties are set.
//!
//! Source of the facts: OpenZFS 2.4 `vdev.c` (`vdev_prop_get_inherited`), `zfs_fm.c`, `zfs_diagnosis.c`.

use std::time::Duration;

use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, ObjectId};

use super::LivePool;
use crate::dsl::{Mos, ValueExt};
use crate::error::Result;
use crate::pool::properties::VdevProp;
use crate::vdev::{Threshold, Thresholds};

/// The properties.
const PROPS: [VdevProp; 6] = [
    VdevProp::IoN,
    VdevProp::IoT,
    VdevProp::ChecksumN,
    VdevProp::ChecksumT,
    VdevProp::SlowIoN,
    VdevProp::SlowIoT,
];

/// The values of a vdev, as far as they are set for it or above it.
type Values = [Option<u64>; PROPS.len()];

/// Whether a property of vdevs is one of these.
pub(super) fn is_threshold(prop: VdevProp) -> bool {
    PROPS.contains(&prop)
}

impl LivePool {
    /// Has the leaves judged as the properties say.
    pub(super) async fn apply_thresholds(&self) -> Result<()> {
        let root = self.config().root.clone();
        let mos = Mos::of(self.mos().view());
        let mut found = Vec::new();
        let above = set_in(&mos, root.root_zap, Values::default()).await?;
        collect(&mos, &root, above, &mut found).await?;
        for (leaf, [io_n, io_t, checksum_n, checksum_t, slow_n, slow_t]) in found {
            let threshold = |count: Option<u64>, seconds: Option<u64>, usual: Threshold| Threshold {
                count: count.unwrap_or(usual.count),
                window: seconds.map_or(usual.window, Duration::from_secs),
            };
            let usual = Thresholds::default();
            let slow = slow_n.zip(slow_t);
            let thresholds = Thresholds {
                transfers: threshold(io_n, io_t, usual.transfers),
                checksums: threshold(checksum_n, checksum_t, usual.checksums),
                slow: slow.map(|(count, seconds)| Threshold { count, window: Duration::from_secs(seconds) }),
            };
            if let Some(vdev) = self.pool.vdevs().find(leaf) {
                vdev.errors.set_thresholds(thresholds);
            }
        }
        Ok(())
    }
}

/// The values of the leaves below a vdev.
async fn collect(mos: &Mos, vdev: &VdevConfig, above: Values, found: &mut Vec<(Guid, Values)>) -> Result<()> {
    for child in &vdev.children {
        let values = set_in(mos, child.top_zap, above).await?;
        let values = set_in(mos, child.leaf_zap, values).await?;
        if child.children.is_empty() {
            found.push((child.guid, values));
        } else {
            // Trees of vdevs are few levels deep: their parser bounds it.
            Box::pin(collect(mos, child, values, found)).await?;
        }
    }
    Ok(())
}

/// The values of a ZAP, and those from above for what is not set there.
async fn set_in(mos: &Mos, zap: Option<ObjectId>, above: Values) -> Result<Values> {
    let mut values = above;
    let Some(zap) = zap.filter(|zap| !zap.is_none()) else { return Ok(values) };
    for (name, value) in mos.entries(zap).await? {
        let index = PROPS.iter().position(|prop| prop.desc().name == name);
        if let (Some(value), Some(index)) = (value.first().filter(|value| *value != u64::MAX), index) {
            values[index] = Some(value);
        }
    }
    Ok(values)
}
