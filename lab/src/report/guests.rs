//! Sections about guests: scores, what the settings of a guest give, what each layer costs, and what cache
//! modes promise.
//!
//! The scores weigh reads of 4K and reads in order alike, and writes likewise: each figure counts as its
//! ratio to the baseline's, and a score is the mean of these. So a score of 1 is the baseline's.

use super::grid::apart;
use super::section::{Section, plan_of};
use crate::analysis::{Findings, Verdict};
use crate::experiment::{Experiment, SettingOwner, Workload};
use crate::metric::written;
use crate::plan::{self, BASELINE, DEVICE, VariantKind};
use crate::stats;

/// Cache modes of QEMU: the mode, whether reads and writes go through the host's page cache, when a write is
/// said to be done, and the loss when the host fails.
const MODES: [[&str; 5]; 4] = [
    [
        "none",
        "no",
        "when the image's filesystem or the export has it",
        "what the guest did not flush, as with a disk that has a cache of its own",
        "none, with guests that flush",
    ],
    [
        "writethrough",
        "yes",
        "when it is stable: each write is flushed",
        "nothing",
        "none; each write waits for the slowest part of all",
    ],
    [
        "writeback",
        "yes",
        "when it is in the host's memory",
        "what the guest did not flush, which may be much: all that the page cache has not written yet",
        "none, with guests that flush; others (old kernels, barrier=0) lose data, and in no order",
    ],
    [
        "directsync",
        "no",
        "when it is stable: each write is flushed",
        "nothing",
        "none; each write waits for the slowest part of all, and no read is cached on the host",
    ],
];

/// What people ask of a setting, and the value that is asked about.
const QUESTIONS: [(&str, &str, &str); 17] = [
    ("cache", "writethrough", "Is writethrough the trap that it is said to be?"),
    ("cache", "writeback", "What does writeback gain over no cache?"),
    ("cache", "directsync", "What does directsync cost?"),
    ("bus", "ide", "What does virtio gain over ide?"),
    ("bus", "ahci", "What does virtio gain over ahci?"),
    ("bus", "virtio-scsi", "What does virtio-blk gain over virtio-scsi?"),
    ("disk", "qcow2", "What does qcow2 cost, with all clusters there from the beginning?"),
    ("disk", "qcow2-sparse", "What does qcow2 cost, with clusters made as they are written?"),
    ("disk", "qcow2-on-ext4", "What does qcow2 cost on ext4, with that on a volume?"),
    ("iothread", "on", "What does an iothread give?"),
    ("encryption", "aes-256-gcm", "What does encryption by the pool cost?"),
    ("encryption", "aes-128-gcm", "What does encryption by the pool cost, with a key of 128 bits?"),
    ("encryption", "aes-256-ccm", "What does encryption by the pool cost in CCM mode, as of old pools?"),
    ("device_luks", "on", "What does LUKS below the pool cost?"),
    ("luks", "on", "What does LUKS cost in the guest?"),
    ("luks", "without-aes", "What does LUKS cost without AES instructions?"),
    ("lvm", "on", "What does LVM cost?"),
];

/// All sections about guests, where there are some.
pub(super) fn sections(experiment: &Experiment, findings: &Findings) -> Vec<Section> {
    if !experiment.target.has(SettingOwner::Guest) {
        return Vec::new();
    }
    let all = [answers(experiment, findings), layers(experiment, findings), scores(experiment, findings)];
    all.into_iter().flatten().chain(modes(experiment)).collect()
}

/// How a variant's figure with a workload is to the baseline's: the ratio, the words, the verdict.
fn to_baseline(
    experiment: &Experiment,
    findings: &Findings,
    variant: &str,
    workload: &Workload,
) -> Option<(f64, String, Option<Verdict>)> {
    let metric = experiment.goal.metric;
    let own = findings.find(variant, &workload.name, metric)?;
    match own.compared {
        Some(compared) => {
            let ratio = compared.comparison.ratio;
            let mark = match compared.verdict {
                Verdict::NoDifference => " =",
                Verdict::Undecided => " ?",
                Verdict::Better | Verdict::Worse => "",
            };
            Some((ratio.value, format!("{}{mark}", ratio.ratio_words()), Some(compared.verdict)))
        }
        None => {
            let base = findings.find(BASELINE, &workload.name, metric)?.median.value;
            let ratio = own.median.value / base;
            Some((ratio, format!("{} ?", stats::times(ratio)), None))
        }
    }
}

/// The questions that the variants answer, and the answers.
fn answers(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let base = experiment.design().baseline();
    let plan = plan_of(experiment, findings);
    let mut rows = Vec::new();
    for variant in plan.variants().iter().filter(|it| it.kind == VariantKind::Change) {
        let changed: Vec<_> =
            variant.settings.iter().filter(|(name, value)| base.get(*name) != Some(*value)).collect();
        let [(name, value)] = changed[..] else { continue };
        let asked = QUESTIONS.iter().find(|(of, which, _)| of == name && which == value);
        // A question about qcow2 is one about raw files.
        let is_apt = *name != "disk" || base.get("disk").is_some_and(|disk| disk == "raw");
        let Some((.., question)) = asked.filter(|_| is_apt) else { continue };
        let of: Vec<_> = experiment
            .workloads
            .iter()
            .filter_map(|it| Some((it, to_baseline(experiment, findings, &variant.name, it)?)))
            .collect();
        let with = |verdict: Verdict| {
            let its = of.iter().filter(|(_, (_, _, own))| *own == Some(verdict));
            its.map(|(workload, (ratio, ..))| format!("{} ({} times)", workload.name, stats::times(*ratio)))
                .collect::<Vec<_>>()
        };
        let said = [
            (Verdict::Worse, "certainly worse"),
            (Verdict::Better, "certainly better"),
            (Verdict::NoDifference, "no difference"),
        ];
        let said: Vec<String> = said
            .into_iter()
            .filter(|(verdict, _)| !with(*verdict).is_empty())
            .map(|(verdict, words)| format!("{words}: {}", with(verdict).join(", ")))
            .collect();
        let least = of
            .iter()
            .map(|(workload, (ratio, ..))| (ratio, workload))
            .min_by(|one, other| one.0.total_cmp(other.0));
        let open = least.map_or_else(String::new, |(ratio, workload)| {
            format!(
                "not decided in so few rounds; by the medians least with {} ({} times)",
                workload.name,
                stats::times(*ratio)
            )
        });
        let writes_half = of.iter().any(|(workload, (ratio, _, verdict))| {
            workload.writes() && *ratio < 0.5 && *verdict == Some(Verdict::Worse)
        });
        let is_trap = question.contains("trap").then(|| match writes_half {
            true => "Yes: writes have certainly less than half of the figure. ".to_owned(),
            false => "Not shown here. ".to_owned(),
        });
        let said = if said.is_empty() { open } else { said.join("; ") };
        rows.push(vec![(*question).to_owned(), variant.name.clone(), is_trap.unwrap_or_default() + &said]);
    }
    let head = ["question", "variant", "its figures beside the baseline's"].map(str::to_owned).to_vec();
    let text = format!("By {}, of this machine.", experiment.goal.metric.title());
    let is_none = rows.is_empty();
    let rows = std::iter::once(head).chain(rows).collect();
    (!is_none).then(|| Section::new("Questions about guests", text, rows))
}

/// What each layer does to the one below it.
fn layers(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let metric = experiment.goal.metric;
    let pairs = plan::layers_of_guests(experiment);
    let row = |[upper, lower]: &[String; 2]| {
        let cells: Vec<String> = experiment
            .workloads
            .iter()
            .map(|workload| {
                let apart = apart(findings, upper, lower, &workload.name).map(|(_, words)| words);
                apart.unwrap_or_else(|| "-".to_owned())
            })
            .collect();
        let own = findings.find(upper, experiment.goal_workload(), metric)?.median.value;
        Some(
            [vec![plan::layer_words(experiment, upper), lower.clone(), written(metric, own)], cells].concat(),
        )
    };
    let rows: Vec<Vec<String>> = pairs.iter().filter_map(row).collect();
    let head = ["layer", "lies on", "figure"].into_iter().map(str::to_owned);
    let head = head.chain(experiment.workloads.iter().map(|workload| workload.name.clone())).collect();
    let text = format!(
        "How many times the layer's {} the one below has, with each workload: a high number is a costly \
         layer. Figures are of \"{}\". {DEVICE} and the volume in the process are measured on the host; the \
         gap between that and a guest is what export, virtual disk and the guest's kernel cost together. \
         \"=\" is no difference of a tenth or more, \"?\" could not be decided.",
        metric.title(),
        experiment.goal_workload()
    );
    // Cache modes and buses have one layer, which says nothing about layers.
    let is_stack = rows.len() > 2 && experiment.factors.is_empty();
    let rows = std::iter::once(head).chain(rows).collect();
    is_stack.then(|| Section::new("What each layer costs", text, rows))
}

/// The scores of each variant, the best mean first.
fn scores(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let plan = plan_of(experiment, findings);
    let changes = plan.variants().iter().filter(|it| it.kind == VariantKind::Change);
    let score = |variant: &str, writes: bool| {
        let of = experiment.workloads.iter().filter(|workload| workload.writes() == writes);
        let all: Option<Vec<f64>> =
            of.map(|workload| Some(to_baseline(experiment, findings, variant, workload)?.0)).collect();
        let all = all.filter(|all| !all.is_empty())?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    };
    let mut rows: Vec<(f64, Vec<String>)> = changes
        .filter_map(|variant| {
            let (read, write) = (score(&variant.name, false)?, score(&variant.name, true)?);
            let mean = f64::midpoint(read, write);
            let words = [read, write, mean].map(|score| format!("{score:.2}"));
            Some((mean, std::iter::once(variant.name.clone()).chain(words).collect()))
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    rows.push((1.0, [BASELINE, "1.00", "1.00", "1.00"].map(str::to_owned).to_vec()));
    rows.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let head = ["variant", "read", "write", "mean"].map(str::to_owned).to_vec();
    let text = "Weighted scores: each figure as its ratio to the baseline's, the mean of all workloads that \
                read, of all that write, and of both. 4K and in order count alike. The order is not proven: \
                the tables of the workloads say what is certain."
        .to_owned();
    let rows = std::iter::once(head).chain(rows.into_iter().map(|(_, row)| row)).collect();
    Some(Section::new("Scores of a guest's disk", text, rows))
}

/// What each cache mode promises, where they are compared.
fn modes(experiment: &Experiment) -> Option<Section> {
    experiment.factors.iter().find(|factor| factor.name == "cache")?;
    let head =
        ["cache", "through the host's page cache", "a write is done", "lost when the host fails", "risk"];
    let rows = std::iter::once(head).chain(MODES).map(|row| row.map(str::to_owned).to_vec()).collect();
    let text = "What each of QEMU's cache modes promises to a guest, from QEMU's manual. A volume over \
                vhost-user has none of them: the guest's flushes and writes go to Cenote as they are."
        .to_owned();
    Some(Section::new("What the cache modes risk", text, rows))
}
