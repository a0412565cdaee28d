//! The report as Markdown; the terminal shows it as well.

use super::{choices, metrics, written};
use crate::analysis::{Findings, base_words};
use crate::experiment::Experiment;
use crate::plan::BASELINE;
use crate::store::Store;

/// The report.
pub fn markdown(store: &Store, findings: &Findings) -> String {
    let experiment = store.experiment();
    let mut text = format!("# {}\n\n{}\n\n", experiment.name, experiment.question);
    if let Some(modelled) = modelled(experiment) {
        text.push_str(&format!("**{modelled}**\n\n"));
    }
    text.push_str(&format!("**{}**\n", findings.verdict));
    for section in
        [choices::search(experiment, findings), choices::front(experiment, findings)].into_iter().flatten()
    {
        text.push_str(&format!("\n## {}\n\n{}\n", section.title, section.text));
        if !section.rows.is_empty() {
            text.push_str(&format!("\n{}", table(&section.rows)));
        }
    }
    for workload in &experiment.workloads {
        text.push_str(&format!("\n## {}\n\n", workload.name));
        let metrics: Vec<_> = metrics(store, findings)
            .into_iter()
            .filter(|metric| findings.find(BASELINE, &workload.name, *metric).is_some())
            .collect();
        let Some(first) = metrics.first() else {
            text.push_str("not run yet\n");
            continue;
        };
        let mut rows = vec![vec!["variant".to_owned()]];
        rows[0].extend(metrics.iter().map(|metric| metric.title().to_owned()));
        rows[0].extend([format!("{} to the baseline", first.title()), "verdict".to_owned()]);
        let names = findings.findings.iter().filter(|it| it.workload == workload.name && it.metric == *first);
        for finding in names {
            let name = match finding.variant.as_str() {
                BASELINE => format!("baseline ({})", base_words(experiment)),
                name => name.to_owned(),
            };
            let mut row = vec![name];
            for metric in &metrics {
                let value = findings.find(&finding.variant, &workload.name, *metric);
                row.push(value.map_or_else(|| "-".to_owned(), |it| written(*metric, it.median.value)));
            }
            match &finding.compared {
                Some(compared) => {
                    let ratio = compared.comparison.ratio;
                    row.push(format!("{:.2} ({:.2} to {:.2})", ratio.value, ratio.low, ratio.high));
                    row.push(compared.verdict.words().to_owned());
                }
                None => row.extend(["".to_owned(), "".to_owned()]),
            }
            rows.push(row);
        }
        text.push_str(&table(&rows));
        let floor = findings.findings.iter().filter(|it| it.workload == workload.name && it.metric == *first);
        if let Some(compared) = floor.filter_map(|it| it.compared).next() {
            text.push_str(&format!(
                "\nTwo equal variants differed by up to {:.1} % here; less than that is no difference.\n",
                compared.noise_floor * 100.0
            ));
        }
        if let Some(section) = choices::layers(findings, &workload.name) {
            text.push_str(&format!("\n{}\n\n{}", section.text, table(&section.rows)));
        }
    }
    text.push_str("\n## How it was measured\n\n");
    for line in facts(store, findings) {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

/// What nobody may take for real.
pub(super) fn modelled(experiment: &Experiment) -> Option<String> {
    let models = experiment.modelled()?;
    Some(format!("Modelled: {models}. No such hardware was there; figures are those of its model."))
}

/// What a reader needs to believe it, and to repeat it.
pub(super) fn facts(store: &Store, findings: &Findings) -> Vec<String> {
    let (experiment, machine) = (store.experiment(), store.environment());
    let fixed: Vec<String> =
        experiment.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut facts = vec![
        format!(
            "{} rounds, {} runs; each round has every variant and workload once, in random order. Figures are medians, intervals hold the truth in 95 of 100 cases, corrected for the number of comparisons.",
            findings.rounds, findings.runs
        ),
        format!(
            "{} cores of {}, {} GiB of memory, kernel {}{}; instructions: {}.",
            machine.cores,
            machine.cpu,
            machine.memory_bytes >> 30,
            machine.kernel,
            if machine.is_virtual { ", a virtual machine" } else { "" },
            machine.cpu_flags.join(" ")
        ),
        format!(
            "Held fixed: {}.",
            if fixed.is_empty() { "nothing but defaults".to_owned() } else { fixed.join(", ") }
        ),
    ];
    if let Some(run) = store.runs().iter().find(|run| run.variant == BASELINE) {
        facts.push(format!("One run: {}", run.command.join(" ")));
    }
    facts.push(format!(
        "Every run is a line of report.csv, and `cenote lab report DIR --run N` prints all that fio said of it; `cenote lab run experiment.toml -o DIR` repeats the experiment. Cenote {}.",
        machine.version
    ));
    facts
}

/// Rows under the first of them.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&format!("| {} |\n", rules.join(" | ")));
        }
    }
    text
}
