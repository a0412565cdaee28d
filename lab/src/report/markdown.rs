//! The report as Markdown; the terminal shows it as well, without the tables that it has no room for.

use super::section::{Section, plan_of};
use super::{choices, figures, metrics, subject};
use crate::analysis::{Findings, LeftOut, timeline};
use crate::environment::{Environment, RemoteMachine};
use crate::experiment::{CacheState, Experiment, Metric, Workload, ignored_options};
use crate::metric::written;
use crate::plan::{BASELINE, Plan};
use crate::preflight::left_out_words;
use crate::site::Cold;
use crate::size::Size;
use crate::stats;
use crate::store::{Prepared, Run, Stage, Store};
use crate::table;

/// A section below a heading of so many levels.
fn section(section: &Section, level: usize) -> String {
    let table = match section.rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", table::markdown(&section.rows)),
    };
    let text = match section.text.is_empty() {
        true => String::new(),
        false => format!("\n{}\n", section.text),
    };
    format!("\n{} {}\n{text}{table}", "#".repeat(level), section.title)
}

fn sections(all: &[Section]) -> String {
    all.iter().map(|it| section(it, 2)).collect()
}

/// The report: all that the page has but its plots.
pub fn markdown(store: &Store, findings: &Findings) -> String {
    told(store, findings, true)
}

/// The same for a terminal, without each metric's own table.
pub fn brief(store: &Store, findings: &Findings) -> String {
    told(store, findings, false)
}

fn told(store: &Store, findings: &Findings, is_whole: bool) -> String {
    let experiment = store.experiment();
    let mut text = format!("# {}\n\n", experiment.name);
    if !experiment.question.is_empty() {
        text.push_str(&format!("{}\n\n", experiment.question));
    }
    if let Some(modelled) = modelled(experiment) {
        text.push_str(&format!("**{modelled}**\n\n"));
    }
    let left_out = findings.left_out.iter().map(LeftOut::sentence);
    for told in findings.unfinished.iter().chain(&findings.few).cloned().chain(left_out) {
        text.push_str(&format!("**{told}**\n\n"));
    }
    if let Some((first, more)) = findings.sentences.split_first() {
        text.push_str(&format!("**{first}**\n"));
        let more: String = more.iter().map(|sentence| format!("- {sentence}\n")).collect();
        if !more.is_empty() {
            text.push_str(&format!("\n{more}"));
        }
    }
    text.push_str(&sections(&choices::all(experiment, findings)));
    for workload in &experiment.workloads {
        text.push_str(&of_workload(store, findings, workload, is_whole));
    }
    text.push_str(&sections(&choices::last(experiment, findings)));
    text.push_str("\n## How it was measured\n\n");
    for line in facts(store, findings) {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

fn of_workload(store: &Store, findings: &Findings, workload: &Workload, is_whole: bool) -> String {
    let experiment = store.experiment();
    let mut text = format!("\n## {}\n\n", workload.name);
    let Some(overview) = figures::overview(store, findings, workload) else {
        text.push_str("not run yet\n");
        return text;
    };
    text.push_str(&table::markdown(&overview.rows));
    let seen = timeline::told(&findings.within, workload);
    let caution = choices::caution(experiment, findings, workload).map(|it| format!("**{it}**"));
    let noise = Some(overview.text).filter(|text| !text.is_empty());
    for told in noise.into_iter().chain(caution).chain(seen) {
        text.push_str(&format!("\n{told}\n"));
    }
    if is_whole {
        for metric in metrics(store, findings) {
            let of = figures::of(findings, workload, metric);
            if !of.is_empty() {
                text.push_str(&section(&figures::of_metric(experiment, metric, &of), 3));
            }
        }
    }
    let percentiles = figures::percentiles(experiment, findings, workload).filter(|_| is_whole);
    let more = [
        percentiles,
        choices::directions(experiment, findings, &workload.name),
        choices::layers(experiment, findings, &workload.name),
    ];
    text.extend(more.into_iter().flatten().map(|it| section(&it, 3)));
    text
}

/// What readers must not take for real.
pub(super) fn modelled(experiment: &Experiment) -> Option<String> {
    let models = experiment.modelled().map(|models| {
        format!("Modelled: {models}. There was no such hardware; the figures are those of its model.")
    });
    let shared = experiment.shares_a_medium().then(|| {
        "The pools' devices are files on one medium: several of them together, and a log on one, are no \
         faster than one, unlike disks of their own. Findings about layouts and logs show what the pool does \
         with them, and not what more disks give (`devices = \"hdd-7200\"` models such)."
            .to_owned()
    });
    let both: Vec<String> = models.into_iter().chain(shared).collect();
    (!both.is_empty()).then(|| both.join(" "))
}

/// A note about turns of a round.
fn turns(experiment: &Experiment) -> Option<String> {
    let plan = Plan::new(experiment, None, 0);
    (plan.turns() > 1).then(|| format!("{} {}", plan.turns(), experiment.target.facts().turns.done))
}

/// How much is worked on, beside what can be cached.
fn working_set(experiment: &Experiment, arc_max_bytes: Option<u64>) -> String {
    let sizes = experiment.workloads.iter().map(|workload| workload.extent(experiment.target.size()));
    let (least, most) = (sizes.clone().min().unwrap_or_default(), sizes.max().unwrap_or_default());
    let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let values = |name: &str| -> Vec<String> {
        let factor = experiment.factors.iter().find(|factor| factor.name == name);
        let of_factor = factor.into_iter().flat_map(|factor| factor.values.iter().cloned());
        of_factor.chain(experiment.settings.get(name).cloned()).collect()
    };
    let caches = values("arc_max");
    let cache = match (experiment.target.pools(), caches.as_slice()) {
        (None, _) => arc_max_bytes
            .map_or_else(String::new, |most| format!("; the host's ARC may take {}", Size(most >> 20 << 20))),
        (Some(_), []) => "; the pool's cache has its default size".to_owned(),
        (Some(_), sizes) => format!("; the pool's cache may take {}", sizes.join(" or ")),
    };
    format!("Workloads work on {range}{cache}.")
}

/// An explanation of figures, intervals and verdicts.
const INTERVALS: &str = "Figures are medians over rounds. Each interval by itself contains the true value in \
    95 of 100 cases, if rounds differ by chance alone (Student's t of the logarithms); intervals are not \
    corrected for their number. Verdicts and p are: all comparisons by the goal's metric, from which the \
    answer comes, are corrected as one family, and all by the other metrics as another, so that one may be \
    undecided whose interval does not hold 1. No difference means that one of a tenth or more would have \
    shown itself (two one-sided tests, corrected likewise); what is neither is undecided.";

/// What the latencies are of loads that read and write, or flush.
fn latencies(experiment: &Experiment, findings: &Findings) -> Option<String> {
    let is_flush =
        |name: &String| ["fsync", "fdatasync", "fio.fsync", "fio.fdatasync"].contains(&name.as_str());
    let flushes = experiment.workloads.iter().any(|workload| workload.options.keys().any(is_flush))
        || experiment.settings.keys().any(is_flush)
        || experiment.factors.iter().any(|factor| is_flush(&factor.name));
    let both = (!findings.directions.is_empty())
        .then_some("Latencies of a workload that reads and writes are of all its operations together.");
    let of_flushes = flushes.then_some(
        "The latency of a flushed write is that of the write and the flush; flushes are spread over the \
         writes, at most one for each, and reads have none.",
    );
    let told: Vec<&str> = both.into_iter().chain(of_flushes).collect();
    (!told.is_empty()).then(|| told.join(" "))
}

/// Which figures are left out, because the counters that they would be made of have more than the runs.
fn counted_beside(experiment: &Experiment) -> Option<String> {
    experiment.target.pools()?;
    let of = |workload: &Workload| Some(format!("\"{}\" ({})", workload.name, workload.counted_beside()?));
    let of: Vec<String> = experiment.workloads.iter().filter_map(of).collect();
    (!of.is_empty()).then(|| {
        format!(
            "Neither amplification nor CPU is reported for {}: the pool's counters include more than the \
             measured load, as given with each.",
            of.join(", ")
        )
    })
}

/// The machines of remote layers, and what they lack.
fn guests(host: &Environment) -> Vec<String> {
    let of = |(name, guest): (&String, &RemoteMachine)| {
        let cores = if guest.cores == 0 { String::new() } else { format!("{} of ", cores(guest.cores)) };
        let is_told = |text: &str| {
            if text.is_empty() { "an unnamed system".to_owned() } else { text.to_owned() }
        };
        let fact = format!(
            "Layer '{name}' was measured by {} where '{}' runs it: {cores}{}, {:.1} GiB of memory, kernel \
             {}{}; instructions: {}.",
            guest.fio,
            guest.by.join(" "),
            is_told(&guest.cpu),
            guest.memory_bytes as f64 / (1_u64 << 30) as f64,
            guest.kernel,
            if guest.is_virtual { ", a virtual machine" } else { "" },
            if guest.cpu_flags.is_empty() {
                "none that storage uses".to_owned()
            } else {
                guest.cpu_flags.join(" ")
            }
        );
        let lacks = guest.lacks(host);
        let caution = (!lacks.is_empty()).then(|| {
            let aes = match lacks.contains(&"aes") {
                true => " Without aes, encryption there costs many times the CPU.",
                false => "",
            };
            format!(
                "Caution: layer '{name}' has not all instructions of this machine: {} are missing \
                 there.{aes} A guest of this host gets them with its processor's model (`-cpu host`, `cpu: \
                 host`).",
                lacks.join(" ")
            )
        });
        std::iter::once(fact).chain(caution).collect::<Vec<_>>()
    };
    host.guests.iter().flat_map(of).collect()
}

fn cores(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

/// How much the machine had to do already when runs began.
fn load(runs: &[Run]) -> Option<String> {
    let of_minute = |run: &Run| run.busy.as_ref()?.load.split(' ').next()?.parse::<f64>().ok();
    let loads: Vec<f64> = runs.iter().filter_map(of_minute).collect();
    let (least, most) = (loads.iter().copied().reduce(f64::min)?, loads.iter().copied().reduce(f64::max)?);
    Some(format!(
        "The machine's load in the minute before a run, which includes earlier runs: {:.2} in the \
         median, {least:.2} to {most:.2}.",
        stats::median(&loads)?
    ))
}

/// Facts that a reader needs to check the results and to repeat them.
pub(super) fn facts(store: &Store, findings: &Findings) -> Vec<String> {
    let (experiment, machine) = (store.experiment(), store.environment());
    let fixed: Vec<String> =
        experiment.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut facts = vec![
        format!(
            "{} rounds, {} runs; each round has every variant and workload once, in random order.",
            findings.rounds, findings.runs
        ),
        INTERVALS.to_owned(),
        format!(
            "{} of {}, {} GiB of memory, kernel {}{}{}; instructions: {}.",
            cores(machine.cores),
            machine.cpu,
            machine.memory_bytes >> 30,
            machine.kernel,
            if machine.is_virtual { ", a virtual machine" } else { "" },
            machine.governor.as_ref().map_or_else(String::new, |it| format!(", governor {it}")),
            machine.cpu_flags.join(" ")
        ),
        working_set(experiment, machine.arc_max_bytes),
        format!(
            "Held fixed: {}.",
            if fixed.is_empty() { "nothing but defaults".to_owned() } else { fixed.join(", ") }
        ),
    ];
    facts.extend(load(store.runs()));
    facts.extend(guests(machine));
    if !machine.openzfs.is_empty() {
        facts.push(format!("OpenZFS on this host: {}.", machine.openzfs.join(", ")));
    }
    facts.extend(turns(experiment));
    facts.extend(subject::facts(store, findings));
    let of_target = experiment.target.facts();
    facts.extend(of_target.caveat.map(str::to_owned));
    let is_cold = |workload: &Workload| workload.cache == CacheState::Cold;
    if let Cold::Kept(why) = of_target.cold
        && experiment.workloads.iter().any(is_cold)
    {
        facts.push(why.to_owned());
    }
    let left_out = experiment.left_out();
    if !left_out.is_empty() {
        facts.push(format!("This is the experiment's quick form, which leaves out {}.", left_out.join(", ")));
    }
    let plan = plan_of(experiment, findings);
    let left_out = plan.left_out(experiment);
    facts.extend(left_out.map(|(variant, workloads)| left_out_words(experiment, variant, &workloads)));
    facts.extend(latencies(experiment, findings));
    facts.extend(ignored_options::told(experiment));
    facts.extend(counted_beside(experiment));
    let noted = store.runs().iter().filter(|run| run.stage != Stage::LeftOut);
    let mut notes: Vec<&String> = noted.flat_map(|run| &run.notes).collect();
    notes.sort_unstable();
    notes.dedup();
    facts.extend(notes.into_iter().cloned());
    let torn = store.runs().iter().filter(|run| run.stage == Stage::Torn).count();
    if torn > 0 {
        facts.push(format!(
            "{torn} runs belong to rounds that were interrupted, or that replayed a trace fewer times than \
             others: these rounds were done again as a whole, and their first runs are not counted."
        ));
    }
    let is_named = !experiment.target.named().is_empty();
    if is_named
        && !experiment.design().overwrites()
        && store.runs().iter().all(|run| run.prepared.is_none_or(|it| it.count == 0))
    {
        facts.push(
            "No workload writes, so the target was not filled and was read as it was found. Reads of parts \
             that were never written may not reach its device."
                .to_owned(),
        );
    }
    let columns = metrics(store, findings)
        .into_iter()
        .filter_map(|metric| metric.meaning().map(|meaning| format!("{} is {meaning}", metric.title())));
    let columns: Vec<String> = columns.collect();
    if !columns.is_empty() {
        facts.push(format!("What the figures are: {}.", columns.join("; ")));
    }
    let prepared: Vec<Prepared> = store.runs().iter().filter_map(|run| run.prepared).collect();
    let count: usize = prepared.iter().map(|it| it.count).sum();
    if count > 0 {
        let bytes: u64 = prepared.iter().map(|it| it.bytes).sum();
        let seconds: f64 = prepared.iter().map(|it| it.seconds).sum();
        let (what, gib) = (
            if count == 1 { "volume or file was" } else { "volumes and files were" },
            bytes as f64 / (1_u64 << 30) as f64,
        );
        facts.push(format!(
            "Before they were measured, {count} {what} filled with {gib:.2} GiB in {seconds:.1} s, {}.",
            written(Metric::Throughput, bytes as f64 / seconds.max(1e-9))
        ));
    }
    let rewritten: usize = prepared.iter().map(|it| it.rewritten).sum();
    if rewritten > 0 {
        let seconds: f64 = prepared.iter().map(|it| it.rewrite_seconds).sum();
        facts.push(format!(
            "For another block size the volume was rewritten, with all its data, before a run: {rewritten} \
             times, in {seconds:.1} s together.",
        ));
    }
    let mut ran = store.runs().iter().filter(|run| run.stage != Stage::LeftOut);
    if let Some(run) = ran.find(|run| run.variant == BASELINE) {
        facts.push(format!("One run: {}", run.command.join(" ")));
    }
    facts.push(format!(
        "Every run is a line of report.csv; a table above has the numbers of the runs behind the figures; \
         `cenote lab report DIR --run N` prints all that is kept of run N. `cenote lab run experiment.toml \
         -o DIR` repeats the experiment. Cenote {}.",
        machine.version
    ));
    facts
}
