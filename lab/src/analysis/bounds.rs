//! Bounds that no setting can beat: the bandwidth of modelled devices and links, the user's disks as measured
//! before pools were made of them, and the network as stated in the experiment.
//!
//! If pools are on files of the lab, the raw device is measured as a variant instead.
//!
//! # Mixes
//! If a share `s` of the bytes is read, devices are busy `s / read + (1 - s) / write` seconds a byte when
//! reads and writes take turns. If a mix of half was measured, the gain of both at once over that counts as
//! well, the less the nearer a mix is to one direction. A link carries both directions at once: the fuller
//! one is the bound.

use device::simulated::Model;

use super::Findings;
use crate::experiment::{Experiment, Metric, PROCESS, Settings, THROUGH, Workload};
use crate::metric::written;
use crate::models::speed::{self, Placed, Speed, Stable};
use crate::plan::{Plan, Variant, VariantKind};
use crate::size::Size;

/// Something that all bytes must pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// Its kind.
    pub name: String,
    /// Bytes a second that can be read, and written, through it.
    pub rates: [f64; 2],
    /// Whether it is that of a variant's devices in their layout.
    pub is_of_layout: bool,
    /// How many times as much devices do of reads and writes at once, as many of each, as of one after the
    /// other.
    gain: f64,
}

impl Bound {
    /// Bytes a second in all through it, of which such a share is read.
    pub fn at(&self, reads: f64) -> f64 {
        let [read, write] = self.rates;
        let each = [(reads, read), (1.0 - reads, write)].into_iter().filter(|(share, _)| *share > 0.0);
        if !self.is_of_layout {
            return each.map(|(share, rate)| rate / share).fold(f64::INFINITY, f64::min);
        }
        let gain = 1.0 + (self.gain - 1.0) * (1.0 - (2.0 * reads - 1.0).abs());
        gain / each.map(|(share, rate)| share / rate).sum::<f64>()
    }
}

/// The bounds of a variant with these settings.
pub fn of(experiment: &Experiment, settings: &Settings) -> Vec<Bound> {
    let own = experiment.bounds.iter().filter_map(|bound| {
        let rate = bound.bytes_per_second()?;
        Some(Bound { name: bound.name.clone(), rates: [rate, rate], is_of_layout: false, gain: 1.0 })
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

/// What no variant can pass where such a share of all bytes is read: the bounds that all of them have, and of
/// layouts the highest.
pub fn of_none(experiment: &Experiment, plan: &Plan, reads: f64) -> Vec<Bound> {
    let each = of_each(experiment, plan);
    let all = all(experiment, plan);
    let of_all = all.iter().filter(|it| !it.is_of_layout && each.iter().all(|of| of.contains(it)));
    let of_layouts = all.iter().filter(|it| it.is_of_layout);
    let highest = of_layouts.max_by(|one, other| one.at(reads).total_cmp(&other.at(reads)));
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
        gain: 1.0,
    });
    let layout = settings.get("layout").unwrap_or(&pools.layout);
    let modelled = settings.get("devices").or(pools.devices.as_ref());
    let modelled = modelled.and_then(|model| Some((speed::device(model).ok()?, model.clone(), 1.0)));
    let measured = experiment.measured.map(|rates| {
        let device = Model {
            name: "measured",
            lanes: 1,
            read_latency_ns: 0,
            write_latency_ns: 0,
            flush_ns: 0,
            read_bytes_per_second: rates.read as u64,
            write_bytes_per_second: rates.write as u64,
            arm: None,
            slower_percent: 0,
        };
        let in_turns = 2.0 / (1.0 / rates.read + 1.0 / rates.write);
        (
            device,
            "these disks as each was measured without a pool".to_owned(),
            (rates.mixed / in_turns).max(1.0),
        )
    });
    let devices = modelled.or(measured).and_then(|(device, model, gain)| {
        let layout = layout.parse().ok()?;
        let speed =
            Speed::of(&layout, device, &Stable::default(), Size(1 << 20), &[Placed::default()]).ok()?;
        let rates = [speed.read_limit, speed.write_limit];
        let name = format!("the devices, {layout} of {model}, in order");
        Some(Bound { name, rates, is_of_layout: true, gain })
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

/// The share of a workload's bytes that is read, if it is known.
pub fn share_of_reads(workload: &Workload) -> Option<f64> {
    match (direction(workload), workload.rw.split(':').next()) {
        (Some(way), _) => Some(1.0 - way as f64),
        (None, Some("rw" | "readwrite" | "randrw")) => {
            let percent = workload.options.get("rwmixread").map_or(Some(50.0), |it| it.parse().ok())?;
            (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
        }
        _ => None,
    }
}

/// The most bytes a second that any variant had with workloads of which such a share is read; 0 where there
/// are none.
pub fn reached(experiment: &Experiment, findings: &Findings, reads: f64) -> f64 {
    let is_one = |name: &str| {
        let workload = experiment.workloads.iter().find(|workload| workload.name == name);
        workload.and_then(share_of_reads) == Some(reads)
    };
    let of = findings.findings.iter().filter(|it| it.metric == Metric::Throughput && is_one(&it.workload));
    of.map(|it| it.median.value).fold(0.0, f64::max)
}

/// The lowest bound of the goal's workload with a variant's settings, and the share of it that `value` bytes
/// a second are, in a sentence.
pub(super) fn nearest(experiment: &Experiment, settings: &Settings, value: f64) -> Option<String> {
    let goal = experiment.goal_workload();
    let workload = experiment.workloads.iter().find(|workload| workload.name == goal)?;
    let reads = share_of_reads(&workload.with(settings).ok()?)?;
    let bounds = of(experiment, settings);
    let lowest = bounds.iter().min_by(|a, b| a.at(reads).total_cmp(&b.at(reads)))?;
    if value > lowest.at(reads) {
        let came = match reads {
            1.0 => "came from a cache",
            0.0 => "stayed in memory while it was measured",
            _ => "came from a cache, or stayed in memory while it was measured",
        };
        return Some(format!(
            "That is more than {} can transfer ({}): some of it {came}, or was compressed, and shows nothing \
             about them.",
            lowest.name,
            written(Metric::Throughput, lowest.at(reads))
        ));
    }
    Some(format!("That is {:.0} % of what {} can transfer.", value / lowest.at(reads) * 100.0, lowest.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Rates;
    use crate::recipes;

    #[test]
    fn a_link_bounds_what_disks_could_do() {
        let nas = recipes::find("nas-1gbe").unwrap().experiment();
        let base = nas.design().baseline();
        let bounds = of(&nas, &base);
        assert_eq!(bounds.len(), 2);
        assert_eq!(bounds[0].rates, [117e6, 117e6]);
        assert_eq!(bounds[1].rates, [1e9, 1e9], "five of seven devices of 200 MB/s");
        let told = nearest(&nas, &base, 58.5e6).unwrap();
        assert_eq!(told, "That is 50 % of what the link 1gbe can transfer.");
        let told = nearest(&nas, &base, 234e6).unwrap();
        assert!(told.starts_with("That is more than the link 1gbe can transfer (112 MiB/s)"), "{told}");
        let mut in_process = base.clone();
        in_process.insert(THROUGH.into(), PROCESS.into());
        assert_eq!(of(&nas, &in_process), bounds[1..], "no link is on its way");
        let mut real = recipes::find("volblocksize").unwrap().experiment();
        let base = real.design().baseline();
        assert!(of(&real, &base).is_empty() && nearest(&real, &base, 1.0).is_none());
        for rate in ["10gbe", "1.25G"] {
            let network = crate::experiment::Bound { name: "the network".into(), rate: rate.into() };
            real.bounds = vec![network];
            real.check().unwrap();
            let told = nearest(&real, &base, 0.5 * of(&real, &base)[0].rates[0]).unwrap();
            assert_eq!(told, "That is 50 % of what the network can transfer.");
        }
        real.bounds[0].rate = "fast".into();
        assert!(real.check().is_err());
    }

    #[test]
    fn mixes_have_a_limit_and_measured_disks_are_one() {
        let text = |rw: &str| {
            format!(
                "name = \"x\"\n[goal]\nmetric = \"throughput\"\n[target]\nkind = \"volume\"\nsize = \
                 \"64M\"\nlayout = \"mirror 2\"\ndisks = [\"/a\", \"/b\"]\n\
             [[workload]]\nname = \"w\"\n{rw}\n"
            )
        };
        let mut experiment =
            Experiment::parse(&text("rw = \"randrw\"\noptions = { rwmixread = \"75\" }")).unwrap();
        assert_eq!(share_of_reads(&experiment.workloads[0]), Some(0.75));
        let base = experiment.design().baseline();
        assert!(nearest(&experiment, &base, 1.0).is_none(), "nothing was measured");
        experiment.measured = Some(Rates { read: 1e8, write: 1e8, mixed: 1e8 });
        experiment.check().unwrap();
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap()).unwrap(), experiment);
        let [bound] = &of(&experiment, &base)[..] else { panic!("one") };
        assert_eq!((bound.at(1.0), bound.at(0.0)), (2e8, 1e8));
        assert!((bound.at(0.75) - 1.6e8).abs() < 1.0, "{}", bound.at(0.75));
        let told = nearest(&experiment, &base, 0.8e8).unwrap();
        assert_eq!(
            told,
            "That is 50 % of what the devices, mirror 2 of these disks as each was measured without a pool, \
             in order can transfer."
        );
        // Devices that do both at once: half as much again of a mix of half, and a quarter with three of four
        // bytes read.
        experiment.measured = Some(Rates { read: 1e8, write: 1e8, mixed: 1.5e8 });
        let [bound] = &of(&experiment, &base)[..] else { panic!("one") };
        assert!((bound.at(0.75) - 2e8).abs() < 1.0 && bound.at(1.0) == 2e8);
        let link = Bound { name: "l".into(), rates: [1e8, 1e8], is_of_layout: false, gain: 1.0 };
        assert_eq!(
            [link.at(0.5), link.at(1.0), link.at(0.75)].map(|rate| rate.round()),
            [2e8, 1e8, 133_333_333.0]
        );
        assert_eq!(share_of_reads(&Experiment::parse(&text("rw = \"rw\"")).unwrap().workloads[0]), Some(0.5));
    }

    #[test]
    fn each_layout_has_its_own_bound() {
        let experiment = Experiment::parse(
            "name = \"x\"\n[goal]\nmetric = \"throughput\"\n[target]\nkind = \"volume\"\nsize = \
             \"64M\"\ndevices = \"hdd-7200\"\n\
             [[factor]]\nname = \"layout\"\nvalues = [\"mirror 2\", \"4\"]\n[[workload]]\nname = \"w\"\nrw = \
             \"write\"\nbs = \"1M\"\n",
        )
        .unwrap();
        let plan = Plan::new(&experiment, None, 1);
        let [mirror, stripe] = &all(&experiment, &plan)[..] else { panic!("one each") };
        assert!(stripe.rates[1] > 3.0 * mirror.rates[1], "{mirror:?} {stripe:?}");
        assert_eq!(of_none(&experiment, &plan, 0.0), std::slice::from_ref(stripe));
        // What four disks do is no share of what two of them, as a mirror, could.
        let four = plan.variants().iter().find(|it| it.name == "layout=4").unwrap();
        let told = nearest(&experiment, &four.settings, stripe.rates[1]).unwrap();
        assert!(told.starts_with("That is 100 % of what the devices, 4 of hdd-7200"), "{told}");
    }
}
