//! What no setting can beat: the bandwidth of modelled devices and links, and what the experiment says of its own network.
//!
//! Of real devices nobody says what they could do; there the raw device is measured beside the variants instead.

use device::simulated::Model;

use super::Findings;
use crate::experiment::{Experiment, Metric, Workload};
use crate::models::speed::{self, Placed, Speed};
use crate::size::Size;

/// Something that all bytes must pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// What it is.
    pub name: String,
    /// Bytes a second that can be read, and written, through it.
    pub rates: [f64; 2],
}

/// The bounds of an experiment with its baseline's layout.
pub fn bounds(experiment: &Experiment) -> Vec<Bound> {
    let own = experiment.bounds.iter().filter_map(|bound| {
        let rate = bound.bytes_per_second()?;
        Some(Bound { name: bound.name.clone(), rates: [rate, rate] })
    });
    own.chain(of_models(experiment)).collect()
}

fn of_models(experiment: &Experiment) -> Vec<Bound> {
    let Some(pools) = experiment.target.pools() else { return Vec::new() };
    let link = pools.link.as_deref().and_then(Model::link).map(|link| Bound {
        name: format!("the link {}", link.name),
        rates: [link.read_bytes_per_second, link.write_bytes_per_second].map(|rate| rate as f64),
    });
    let first = |name: &str| {
        let factor = experiment.factors.iter().find(|factor| factor.name == name);
        factor.and_then(|factor| factor.values.first()).or_else(|| experiment.settings.get(name))
    };
    let layout = first("layout").unwrap_or(&pools.layout);
    let devices = first("devices").or(pools.devices.as_ref()).and_then(|model| {
        let (layout, device) = (layout.parse().ok()?, speed::device(model).ok()?);
        let speed = Speed::of(&layout, device, None, Size(1 << 20), Placed::default()).ok()?;
        let rates = [speed.read_limit, speed.write_limit];
        Some(Bound { name: format!("the devices, {layout} of {model}, in order"), rates })
    });
    link.into_iter().chain(devices).collect()
}

/// Whether a workload reads (0) or writes (1); one that does both is neither.
pub fn direction(workload: &Workload) -> Option<usize> {
    match workload.rw.as_str() {
        "read" | "randread" => Some(0),
        "write" | "randwrite" | "copy" => Some(1),
        _ => None,
    }
}

/// The most bytes a second that any variant read, and wrote.
pub fn reached(experiment: &Experiment, findings: &Findings) -> [f64; 2] {
    let mut most = [0.0_f64; 2];
    for it in findings.findings.iter().filter(|it| it.metric == Metric::Throughput) {
        let workload = experiment.workloads.iter().find(|workload| workload.name == it.workload);
        if let Some(way) = workload.and_then(direction) {
            most[way] = most[way].max(it.median.value);
        }
    }
    most
}

/// The lowest bound of the goal's workload and the share of it that `value` bytes a second are, in a sentence.
pub(super) fn nearest(experiment: &Experiment, value: f64) -> Option<String> {
    let goal = experiment.goal_workload();
    let way = direction(experiment.workloads.iter().find(|workload| workload.name == goal)?)?;
    let bounds = bounds(experiment);
    let lowest = bounds.iter().min_by(|a, b| a.rates[way].total_cmp(&b.rates[way]))?;
    Some(format!("That is {:.0} % of what {} can carry.", value / lowest.rates[way] * 100.0, lowest.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;

    #[test]
    fn a_link_bounds_what_disks_could_do() {
        let nas = recipes::find("nas-1gbe").unwrap().experiment();
        let bounds = bounds(&nas);
        assert_eq!(bounds.len(), 2);
        assert_eq!(bounds[0].rates, [117e6, 117e6]);
        assert_eq!(bounds[1].rates, [1e9, 1e9], "five of seven devices of 200 MB/s");
        let told = nearest(&nas, 58.5e6).unwrap();
        assert_eq!(told, "That is 50 % of what the link 1gbe can carry.");
        let mut real = recipes::find("volblocksize").unwrap().experiment();
        assert!(super::bounds(&real).is_empty() && nearest(&real, 1.0).is_none());
        for rate in ["10gbe", "1.25G"] {
            let network = crate::experiment::Bound { name: "the network".into(), rate: rate.into() };
            real.bounds = vec![network];
            real.check().unwrap();
            let told = nearest(&real, 0.5 * super::bounds(&real)[0].rates[0]).unwrap();
            assert_eq!(told, "That is 50 % of what the network can carry.");
        }
        real.bounds[0].rate = "fast".into();
        assert!(real.check().is_err());
    }
}
