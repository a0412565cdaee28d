//! Findings as people and programs read them.

mod charts;
mod choices;
mod grid;
mod html;
mod markdown;
mod plot;

use std::path::PathBuf;

use crate::analysis::{self, Findings};
use crate::error::{Error, Result};
use crate::experiment::Metric;
use crate::store::{Stage, Store};

/// Writes the report in all its forms; where they are, the HTML first.
pub fn write(store: &Store) -> Result<Vec<PathBuf>> {
    let findings = analysis::findings(store);
    let json = serde_json::to_string_pretty(&findings)
        .map_err(|error| Error::Results { path: store.directory().to_owned(), what: error.to_string() })?;
    Ok(vec![
        store.write("report.html", &html::page(store, &findings))?,
        store.write("report.md", &markdown(store, &findings))?,
        store.write("report.csv", &csv(store))?,
        store.write("report.json", &json)?,
    ])
}

pub(crate) use html::STYLE;
pub use markdown::markdown;
pub(crate) use plot::{Bar, bars, escaped};

/// Every run, a line each, with its number.
pub fn csv(store: &Store) -> String {
    let mut text = String::from("run,stage,round,variant,workload,began");
    for metric in Metric::ALL {
        text.push_str(&format!(",{}", metric.title().replace(' ', "_")));
    }
    text.push('\n');
    for (number, run) in store.runs().iter().enumerate() {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        text.push_str(&format!(
            "{},{},{},{},{},{}",
            number + 1,
            if run.stage == Stage::Search { "search" } else { "rounds" },
            run.round,
            quoted(&run.variant),
            quoted(&run.workload),
            run.began
        ));
        for metric in Metric::ALL {
            text.push(',');
            if let Some(value) = run.metric(metric) {
                text.push_str(&value.to_string());
            }
        }
        text.push('\n');
    }
    text
}

/// A figure in the unit that people read it in.
pub fn written(metric: Metric, value: f64) -> String {
    let digits = |value: f64| match value.abs() {
        100.0.. => 0,
        10.0..100.0 => 1,
        _ => 2,
    };
    let scaled = |value: f64, unit: &str| format!("{value:.*} {unit}", digits(value));
    match metric {
        Metric::Iops if value >= 10_000.0 => format!("{:.1}k", value / 1000.0),
        Metric::Iops => format!("{value:.0}"),
        Metric::Throughput => scaled(value / 1048576.0, "MiB/s"),
        Metric::Latency | Metric::LatencyP50 | Metric::LatencyP99 | Metric::LatencyP999 => {
            if value >= 1e6 {
                scaled(value / 1e6, "ms")
            } else {
                scaled(value / 1e3, "us")
            }
        }
        Metric::Memory => scaled(value / 1048576.0, "MiB"),
        Metric::Cpu => scaled(value, "s/GB"),
        Metric::Amplification | Metric::ReadAmplification | Metric::Space => format!("{value:.2}"),
    }
}

/// Which metrics of a workload have values that tell something, the goal's first.
fn metrics(store: &Store, findings: &Findings) -> Vec<Metric> {
    let goal = store.experiment().goal.metric;
    let also = &store.experiment().goal.also;
    let has = |metric: Metric| findings.findings.iter().any(|finding| finding.metric == metric);
    let others = Metric::ALL.into_iter().filter(|metric| *metric != goal);
    let others = others.filter(|metric| metric.is_common() || also.contains(metric));
    std::iter::once(goal).chain(others).filter(|metric| has(*metric)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units_and_few_digits() {
        for (metric, value, text) in [
            (Metric::Iops, 12345.0, "12.3k"),
            (Metric::Iops, 345.4, "345"),
            (Metric::Throughput, 1048576.0 * 1.5, "1.50 MiB/s"),
            (Metric::Latency, 41_740.0, "41.7 us"),
            (Metric::LatencyP99, 217_056_000.0, "217 ms"),
            (Metric::Space, 0.5, "0.50"),
        ] {
            assert_eq!(written(metric, value), text);
        }
    }
}
