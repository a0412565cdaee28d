//! What counts, and by which figure.
//!
//! Its values are written as [`Metric`] has them. Reports show the goal in words beside the figure, so that a
//! reader notices a misunderstood value.

use device::simulated::Model;
use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::site::ExperimentTarget;
use crate::size::Size;
use crate::workload::Workload;

/// The goal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Goal {
    /// The metric by which variants are judged.
    pub metric: Metric,
    /// With which workload; the first where left out.
    pub workload: Option<String>,
    /// Other metrics that count, where no variant is the best in all: see [`crate::analysis::pareto`].
    pub also: Vec<Metric>,
    /// A value that must be reached, in the metric's own unit.
    pub at_least: Option<f64>,
    /// A value that must not be exceeded.
    pub at_most: Option<f64>,
}

/// A goal as written in a file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    metric: Metric,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<Metric>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<Value>,
}

/// A value as written in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "it must be a number, or text with a unit, such as \"5ms\"")]
enum Value {
    Number(f64),
    Words(String),
}

impl TryFrom<Written> for Goal {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let metric = written.metric;
        let of = |name: &str, value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Number(number)) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            Some(Value::Number(number)) => Err(format!("{name}: {number} is not above zero")),
            Some(Value::Words(words)) => {
                metric.value(&words).map(Some).map_err(|what| format!("{name}: {what}"))
            }
        };
        let (at_least, at_most) = (of("at_least", written.at_least)?, of("at_most", written.at_most)?);
        Ok(Self { metric, workload: written.workload, also: written.also, at_least, at_most })
    }
}

impl From<Goal> for Written {
    fn from(goal: Goal) -> Self {
        let metric = goal.metric;
        let of = |value: Option<f64>| {
            value.map(|value| metric.exact(value).map_or(Value::Number(value), Value::Words))
        };
        let (at_least, at_most) = (of(goal.at_least), of(goal.at_most));
        Self { metric, workload: goal.workload, also: goal.also, at_least, at_most }
    }
}

impl Goal {
    /// Its faults for a target with such a workload.
    pub(super) fn faults(&self, target: &ExperimentTarget, workload: Option<&Workload>) -> Vec<String> {
        let mut faults = Vec::new();
        let title = self.metric.title();
        let more = self.metric.more_is_better();
        let (wrong, right) = if more { (self.at_most, "at_least") } else { (self.at_least, "at_most") };
        if wrong.is_some() {
            let (word, better) = if more { ("at_most", "more") } else { ("at_least", "less") };
            faults.push(format!(
                "goal: {word} makes no sense for {title}, where {better} is better: write {right}"
            ));
        }
        if let (Some(least), Some(most)) = (self.at_least, self.at_most)
            && least > most
        {
            faults
                .push(format!("goal: at_least is more than at_most, so no value of {title} satisfies both"));
        }
        let metrics = [("metric", self.metric)].into_iter().chain(self.also.iter().map(|it| ("also", *it)));
        for (key, metric) in metrics {
            let why = target.has_no(metric).or(workload.and_then(|workload| workload.has_no(metric)));
            faults
                .extend(why.map(|why| format!("goal: {key}: {} cannot be measured: {why}", metric.title())));
        }
        faults
    }
}

/// A bound that all bytes must pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Its kind.
    pub name: String,
    /// Its capacity: the name of a link, or bytes a second.
    pub rate: String,
}

impl Bound {
    /// Its capacity in bytes a second.
    pub fn bytes_per_second(&self) -> Option<f64> {
        match Model::link(&self.rate) {
            Some(link) => Some(link.read_bytes_per_second as f64),
            None => self.rate.parse::<Size>().ok().map(|size| size.0 as f64).filter(|rate| *rate > 0.0),
        }
    }
}

/// Bytes a second of a device, in the mean of several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// That are read.
    pub read: f64,
    /// That are written.
    pub write: f64,
    /// That are read and written together, as many of each.
    pub mixed: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_written_as_it_is_read() {
        let read = |text: &str| toml::from_str::<Goal>(text);
        for (text, value) in [
            ("metric = \"latency_p99\"\nat_most = \"5ms\"", 5e6),
            ("metric = \"latency_p99\"\nat_most = 5000000", 5e6),
            ("metric = \"latency\"\nat_most = \"123.5us\"", 123_500.0),
            ("metric = \"throughput\"\nat_most = \"500 MiB/s\"", 524_288_000.0),
            ("metric = \"throughput\"\nat_most = 1234567.0", 1_234_567.0),
            ("at_most = 20000.5", 20000.5),
        ] {
            let goal = read(text).unwrap();
            assert_eq!(goal.at_most, Some(value), "{text}");
            assert_eq!(read(&toml::to_string(&goal).unwrap()).unwrap(), goal, "{text}");
        }
        let written = toml::to_string(&read("metric = \"latency\"\nat_most = 5000000").unwrap()).unwrap();
        assert!(written.contains("at_most = \"5ms\""), "{written}");
        for wrong in
            ["at_most = -1", "at_most = \"5ms\"", "metric = \"latency\"\nat_most = \"5\"", "best = 1"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
