//! What no setting can beat: the bandwidth of modelled devices and links, and what the experiment says of its own network.
//!
//! Of real devices nobody says what they could do; there the raw device is measured beside the variants instead.

use device::simulated::Model;

use super::Findings;
use crate::experiment::{Experiment, Metric, PROCESS, Settings, THROUGH, Workload};
use crate::models::speed::{self, Placed, Speed, Stable};
use crate::plan::{Plan, Variant, VariantKind};
use crate::report::written;
use crate::size::Size;

/// Something that all bytes must pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// What it is.
    pub name: String,
    /// Bytes a second that can be read, and written, through it.
    pub rates: [f64; 2],
    /// Whether it is that of a variant's devices in their layout.
    pub is_of_layout: bool,
}

/// The bounds of a variant with these settings.
pub fn of(experiment: &Experiment, settings: &Settings) -> Vec<Bound> {
    let own = experiment.bounds.iter().filter_map(|bound| {
        let rate = bound.bytes_per_second()?;
        Some(Bound { name: bound.name.clone(), rates: [rate, rate], is_of_layout: false })
    });
    own.chain(of_models(experiment, settings)).collect()
}

/// The bounds of each variant that has a pool, or whatever else is compared.
fn of_each(experiment: &Experiment, plan: &Plan) -> Vec<Vec<Bound>> {
    let is_limited = |it: &&Variant| it.kind != VariantKind::Device;
    plan.variants().iter().filter(is_limited).map(|variant| of(experiment, &variant.settings)).collect()
}

/// The bounds of all variants, each once.
pub fn all(experiment: &Experiment, plan: &Plan) -> Vec<Bound> {
    let mut all: Vec<Bound> = Vec::new();
    for bound in of_each(experiment, plan).into_iter().flatten() {
        if !all.contains(&bound) {
            all.push(bound);
        }
    }
    all
}

/// What no variant can pass in a direction: the bounds that all of them have, and of layouts the highest.
pub fn of_none(experiment: &Experiment, plan: &Plan, way: usize) -> Vec<Bound> {
    let each = of_each(experiment, plan);
    let all = all(experiment, plan);
    let of_all = all.iter().filter(|it| !it.is_of_layout && each.iter().all(|of| of.contains(it)));
    let of_layouts = all.iter().filter(|it| it.is_of_layout);
    let highest = of_layouts.max_by(|one, other| one.rates[way].total_cmp(&other.rates[way]));
    of_all.chain(highest).cloned().collect()
}

fn of_models(experiment: &Experiment, settings: &Settings) -> Vec<Bound> {
    let Some(pools) = experiment.target.pools() else { return Vec::new() };
    // What the process that has the pool open does itself passes no link.
    let is_linked = settings.get(THROUGH).is_none_or(|way| way != PROCESS);
    let link = pools.link.as_deref().filter(|_| is_linked).and_then(Model::link).map(|link| Bound {
        name: format!("the link {}", link.name),
        rates: [link.read_bytes_per_second, link.write_bytes_per_second].map(|rate| rate as f64),
        is_of_layout: false,
    });
    let layout = settings.get("layout").unwrap_or(&pools.layout);
    let devices = settings.get("devices").or(pools.devices.as_ref()).and_then(|model| {
        let (layout, device) = (layout.parse().ok()?, speed::device(model).ok()?);
        let speed =
            Speed::of(&layout, device, &Stable::default(), Size(1 << 20), &[Placed::default()]).ok()?;
        let rates = [speed.read_limit, speed.write_limit];
        let name = format!("the devices, {layout} of {model}, in order");
        Some(Bound { name, rates, is_of_layout: true })
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

/// The lowest bound of the goal's workload with a variant's settings, and the share of it that `value` bytes a second are, in a sentence.
pub(super) fn nearest(experiment: &Experiment, settings: &Settings, value: f64) -> Option<String> {
    let goal = experiment.goal_workload();
    let way = direction(experiment.workloads.iter().find(|workload| workload.name == goal)?)?;
    let bounds = of(experiment, settings);
    let lowest = bounds.iter().min_by(|a, b| a.rates[way].total_cmp(&b.rates[way]))?;
    if value > lowest.rates[way] {
        let came = ["came from a cache", "stayed in memory while it was measured"][way];
        return Some(format!(
            "That is more than {} can carry ({}): some of it {came}, or was compressed, and says nothing of them.",
            lowest.name,
            written(Metric::Throughput, lowest.rates[way])
        ));
    }
    Some(format!("That is {:.0} % of what {} can carry.", value / lowest.rates[way] * 100.0, lowest.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, recipes};

    #[test]
    fn a_link_bounds_what_disks_could_do() {
        let nas = recipes::find("nas-1gbe").unwrap().experiment();
        let base = plan::baseline(&nas);
        let bounds = of(&nas, &base);
        assert_eq!(bounds.len(), 2);
        assert_eq!(bounds[0].rates, [117e6, 117e6]);
        assert_eq!(bounds[1].rates, [1e9, 1e9], "five of seven devices of 200 MB/s");
        let told = nearest(&nas, &base, 58.5e6).unwrap();
        assert_eq!(told, "That is 50 % of what the link 1gbe can carry.");
        let told = nearest(&nas, &base, 234e6).unwrap();
        assert!(told.starts_with("That is more than the link 1gbe can carry (112 MiB/s)"), "{told}");
        let mut in_process = base.clone();
        in_process.insert(THROUGH.into(), PROCESS.into());
        assert_eq!(of(&nas, &in_process), bounds[1..], "no link is on its way");
        let mut real = recipes::find("volblocksize").unwrap().experiment();
        let base = plan::baseline(&real);
        assert!(of(&real, &base).is_empty() && nearest(&real, &base, 1.0).is_none());
        for rate in ["10gbe", "1.25G"] {
            let network = crate::experiment::Bound { name: "the network".into(), rate: rate.into() };
            real.bounds = vec![network];
            real.check().unwrap();
            let told = nearest(&real, &base, 0.5 * of(&real, &base)[0].rates[0]).unwrap();
            assert_eq!(told, "That is 50 % of what the network can carry.");
        }
        real.bounds[0].rate = "fast".into();
        assert!(real.check().is_err());
    }

    #[test]
    fn each_layout_has_its_own_bound() {
        let experiment = Experiment::parse(
            "name = \"x\"\n[goal]\nmetric = \"throughput\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\ndevices = \"hdd-7200\"\n\
             [[factor]]\nname = \"layout\"\nvalues = [\"mirror 2\", \"4\"]\n[[workload]]\nname = \"w\"\nrw = \"write\"\nbs = \"1M\"\n",
        )
        .unwrap();
        let plan = Plan::new(&experiment, None, 1);
        let [mirror, stripe] = &all(&experiment, &plan)[..] else { panic!("one each") };
        assert!(stripe.rates[1] > 3.0 * mirror.rates[1], "{mirror:?} {stripe:?}");
        assert_eq!(of_none(&experiment, &plan, 1), std::slice::from_ref(stripe));
        // What four disks do is no share of what two of them, as a mirror, could.
        let four = plan.variants().iter().find(|it| it.name == "layout=4").unwrap();
        let told = nearest(&experiment, &four.settings, stripe.rates[1]).unwrap();
        assert!(told.starts_with("That is 100 % of what the devices, 4 of hdd-7200"), "{told}");
    }
}
