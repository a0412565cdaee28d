//! An experiment from a few words, given on a command line or as answers to questions.
//!
//! | what | words |
//! |---|---|
//! | target | what a kind is named by ([`crate::site::Words`]): `volume`, `/a/path`, `nbd://…` |
//! | workload | the name of a preset, or fio's `rw`, a size and a depth: `randwrite,4K,8` |
//! | metric | as in the TOML: `iops`, `latency_p99` … |
//! | value | with the metric's unit, where it has one: `20000`, `500M` or `500 MiB/s`, `5ms` |
//! | factor | `volblocksize=16K,64K` |
//! | bound | `the network=1gbe` |
//!
//! A draft is applied to an experiment, or to an empty one. Everything that it does not mention stays, except
//! settings that another target does not have.

use toml::{Table, Value};

use super::{Experiment, ExperimentTarget, Metric, Mode, SettingOwner, Settings, presets};
use crate::error::{Error, Result};
use crate::site::{DatasetKind, KINDS};
use crate::size::Size;

/// The given words; all are optional.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// The target.
    pub target: Option<String>,
    /// How much of it is used.
    pub size: Option<String>,
    /// The operation.
    pub workloads: Vec<String>,
    /// The goal.
    pub metric: Option<String>,
    /// The value of success: at least this much.
    pub at_least: Option<String>,
    /// The same: at most this much.
    pub at_most: Option<String>,
    /// The bound.
    pub bounds: Vec<String>,
    /// Which variants are run.
    pub mode: Option<String>,
    /// Settings that differ.
    pub factors: Vec<String>,
    /// Another layout of the pools.
    pub layout: Option<String>,
}

/// The default size of the target, in bytes.
const DEFAULT_SIZE: &str = "256M";
/// Which variants are run, as it is written.
const MODES: &str = "each, full, search or improve";
/// The name of a draft without a recipe.
const DEFAULT_NAME: &str = "mine";

fn wrong(what: impl Into<String>) -> Error {
    Error::Experiment(what.into())
}

/// The targets that words can name, as a list with `or` before the last.
pub fn targets() -> String {
    let mut all: Vec<&str> = KINDS.iter().filter_map(|kind| Some(kind.words?.about)).collect();
    let last = all.pop().unwrap_or_default();
    format!("{}, or {last}", all.join(", "))
}

/// A target's table.
pub fn target(text: &str) -> Result<Table> {
    let named = KINDS.iter().find_map(|kind| Some((kind.name, (kind.words?.fields)(text)?)));
    let (kind, fields) = named.ok_or_else(|| wrong(format!("target '{text}': write {}", targets())))?;
    let all = [("kind", kind)].into_iter().chain(fields);
    Ok(all.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// A workload's table.
pub fn workload(text: &str) -> Result<Table> {
    let mut table = Table::new();
    if presets::all().iter().any(|preset| preset.name == text) {
        table.insert("preset".into(), text.into());
        return Ok(table);
    }
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let (rw, bs, depth) = match words.as_slice() {
        [rw, bs] => (*rw, *bs, "1"),
        [rw, bs, depth] => (*rw, *bs, *depth),
        _ => {
            let names: Vec<String> = presets::all().into_iter().map(|preset| preset.name).collect();
            return Err(wrong(format!(
                "workload '{text}': write a preset ({}), or for example randwrite,4K,8: fio's rw, a size, a \
                 depth",
                names.join(", ")
            )));
        }
    };
    let of = |what: &str| wrong(format!("workload '{text}': {what}"));
    let size: Size = bs.parse().map_err(|error: String| of(&error))?;
    let depth: u32 = depth.parse().map_err(|_| of("the depth is not a number"))?;
    table.insert("name".into(), format!("{size} {rw}, depth {depth}").into());
    table.insert("rw".into(), rw.into());
    table.insert("bs".into(), size.to_string().into());
    table.insert("iodepth".into(), i64::from(depth).into());
    Ok(table)
}

/// A metric by its name in the TOML.
pub fn metric(text: &str) -> Result<Metric> {
    Value::from(text)
        .try_into()
        .map_err(|error: toml::de::Error| wrong(format!("metric: {}", error.message())))
}

/// A value of a metric, with the unit that it has.
pub fn value(metric: Metric, text: &str) -> Result<f64> {
    metric.value(text).map_err(wrong)
}

/// A bound's table.
pub fn bound(text: &str) -> Result<Table> {
    let (name, rate) = text.split_once('=').unwrap_or(("the network", text));
    let bound = super::Bound { name: name.trim().to_owned(), rate: rate.trim().to_owned() };
    if bound.bytes_per_second().is_none() {
        return Err(wrong(format!("bound '{text}': write for example 1gbe, or 'the network=117M'")));
    }
    let fields = [("name", bound.name), ("rate", bound.rate)];
    Ok(fields.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect())
}

/// The inner table of that name, made where there is none.
fn inner<'a>(table: &'a mut Table, name: &str) -> Result<&'a mut Table> {
    let inner = table.entry(name).or_insert_with(|| Table::new().into());
    inner.as_table_mut().ok_or_else(|| wrong(format!("{name} is no table")))
}

/// The question of an experiment, in a sentence.
fn question(experiment: &Experiment) -> String {
    let (title, workload) = (experiment.goal.metric.title(), experiment.goal_workload());
    let names: Vec<&str> = experiment.factors.iter().map(|factor| factor.name.as_str()).collect();
    match names.as_slice() {
        [] => format!("What {title} does \"{workload}\" have?"),
        names => format!("Which {} has the best {title} with \"{workload}\"?", names.join(", ")),
    }
}

impl Draft {
    /// An experiment of nothing but what was said.
    pub fn experiment(&self) -> Result<(Experiment, Settings)> {
        if self.workloads.is_empty() {
            return Err(wrong("no workload: name one with --workload PRESET, or randwrite,4K,8"));
        }
        let mut table = Table::new();
        table.insert("name".into(), DEFAULT_NAME.into());
        let target = target(self.target.as_deref().unwrap_or("volume"))?;
        table.insert("target".into(), target.into());
        inner(&mut table, "target")?.insert("size".into(), DEFAULT_SIZE.into());
        self.over(table)
    }

    /// The experiment with what was said, and the settings that its new target does not have.
    pub fn changed(&self, experiment: &Experiment) -> Result<(Experiment, Settings)> {
        let text = experiment.to_toml()?;
        self.over(text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?)
    }

    fn over(&self, mut table: Table) -> Result<(Experiment, Settings)> {
        let mut left_out = Settings::new();
        if let Some(name) = &self.name {
            table.insert("name".into(), name.as_str().into());
        }
        if let Some(text) = &self.target {
            let mut new = target(text)?;
            let size = inner(&mut table, "target")?.get("size").cloned();
            new.insert("size".into(), size.unwrap_or_else(|| DEFAULT_SIZE.into()));
            table.insert("target".into(), new.clone().into());
            let new: ExperimentTarget =
                new.try_into().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
            let settings = inner(&mut table, "settings")?;
            // Blocks of the same size, by the name that they have there.
            let kinds = [DatasetKind::Volume, DatasetKind::Filesystem];
            if let Some(kind) = new.facts().dataset {
                for (other, _) in kinds.into_iter().filter(|other| *other != kind).map(DatasetKind::block) {
                    if let Some(block) = settings.remove(other) {
                        settings.entry(kind.block().0).or_insert(block);
                    }
                }
            }
            let names: Vec<String> =
                settings.keys().filter(|name| !new.has(SettingOwner::of(name))).cloned().collect();
            for name in names {
                let value = settings.remove(&name);
                let value = value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
                left_out.insert(name, value);
            }
        }
        if let Some(size) = &self.size {
            inner(&mut table, "target")?.insert("size".into(), size.as_str().into());
        }
        if !self.workloads.is_empty() {
            let all = self.workloads.iter().map(|text| Ok(workload(text)?.into()));
            table.insert("workload".into(), Value::Array(all.collect::<Result<_>>()?));
            inner(&mut table, "goal")?.remove("workload");
        }
        if let Some(text) = &self.metric {
            metric(text)?;
            let goal = inner(&mut table, "goal")?;
            goal.insert("metric".into(), text.as_str().into());
            // A value of another metric is none of this.
            goal.remove("at_least");
            goal.remove("at_most");
        }
        let counts = inner(&mut table, "goal")?.get("metric").and_then(Value::as_str).map(str::to_owned);
        let counts = counts.map_or(Ok(Metric::default()), |text| metric(&text))?;
        for (name, text) in [("at_least", &self.at_least), ("at_most", &self.at_most)] {
            if let Some(text) = text {
                value(counts, text)?;
                inner(&mut table, "goal")?.insert(name.into(), text.as_str().into());
            }
        }
        if !self.bounds.is_empty() {
            let all = self.bounds.iter().map(|text| Ok(bound(text)?.into()));
            table.insert("bound".into(), Value::Array(all.collect::<Result<_>>()?));
        }
        if let Some(mode) = &self.mode {
            let is_mode = Value::from(mode.as_str()).try_into::<Mode>().is_ok();
            is_mode.then_some(()).ok_or_else(|| wrong(format!("mode '{mode}': write {MODES}")))?;
            table.insert("mode".into(), mode.as_str().into());
        }
        let text = table.to_string();
        let mut experiment = Experiment::read(&text)?;
        left_out.extend(experiment.leave_out_ways());
        left_out.extend(experiment.leave_out_metrics());
        experiment.vary(&self.factors, self.layout.as_deref())?;
        if experiment.question.is_empty() || !self.workloads.is_empty() || !self.factors.is_empty() {
            experiment.question = question(&experiment);
        }
        Ok((experiment, left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;

    fn said(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_few_words_are_an_experiment() {
        let draft = Draft {
            target: said("filesystem"),
            workloads: vec!["randwrite,4K,8".into(), "web".into()],
            metric: said("latency_p99"),
            at_most: said("5ms"),
            bounds: vec!["1gbe".into()],
            mode: said("full"),
            factors: vec!["recordsize=16K,128K".into(), "sync=standard,always".into()],
            layout: said("mirror 2"),
            ..Draft::default()
        };
        let (experiment, left_out) = draft.experiment().unwrap();
        assert!(left_out.is_empty());
        let names: Vec<&str> = experiment.workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["4K randwrite, depth 8", "web 95/5"]);
        let question =
            "Which recordsize, sync has the best 99th percentile latency with \"4K randwrite, depth 8\"?";
        assert_eq!(experiment.question, question);
        assert_eq!((experiment.goal.metric, experiment.goal.at_most), (Metric::LatencyP99, Some(5e6)));
        assert_eq!((experiment.mode, experiment.factors.len()), (Mode::Full, 2));
        assert_eq!(experiment.target.pools().unwrap().layout, "mirror 2");
        assert_eq!(experiment.bounds[0].name, "the network");
        assert!(Draft::default().experiment().is_err(), "nothing is done");
    }

    #[test]
    fn a_recipe_can_be_about_something_else() {
        let recipe = recipes::find("volblocksize").unwrap().experiment();
        let draft = Draft { target: said("host:tank/lab"), size: said("64M"), ..Draft::default() };
        let (experiment, left_out) = draft.changed(&recipe).unwrap();
        assert_eq!(left_out.keys().collect::<Vec<_>>(), ["arc_max"]);
        assert_eq!(experiment.target.below(), Some("tank/lab"));
        assert_eq!((experiment.target.size(), &experiment.workloads), (Size(64 << 20), &recipe.workloads));
        let matrix = recipes::find("matrix").unwrap().experiment();
        let (experiment, left_out) = Draft { target: said("./disk"), ..draft }.changed(&matrix).unwrap();
        assert!(experiment.factors.is_empty() && left_out.contains_key("through"), "{left_out:?}");
        let cold = recipes::find("cold-warm").unwrap().experiment();
        let draft = Draft { target: said("volume"), ..Draft::default() };
        let (experiment, left_out) = draft.changed(&cold).unwrap();
        assert_eq!((experiment.settings["volblocksize"].as_str(), left_out.len()), ("16K", 0));
        let same = Draft::default().changed(&recipe).unwrap().0;
        assert_eq!(same, recipe);
    }

    #[test]
    fn what_is_not_understood_is_answered_with_an_example() {
        let of = |draft: Draft| draft.experiment().unwrap_err().to_string();
        let workloads = vec!["randread,4K".to_owned()];
        let draft = Draft { workloads, ..Draft::default() };
        for (draft, told) in [
            (Draft { target: said("disk"), ..draft.clone() }, "iSCSI URI"),
            (Draft { workloads: vec!["webb".into()], ..draft.clone() }, "database-8k"),
            (Draft { workloads: vec!["randread,4K,many".into()], ..draft.clone() }, "depth"),
            (Draft { metric: said("speed"), ..draft.clone() }, "throughput"),
            (Draft { metric: said("latency"), at_most: said("5"), ..draft.clone() }, "5ms"),
            (Draft { bounds: vec!["fast".into()], ..draft.clone() }, "1gbe"),
            (Draft { mode: said("all"), ..draft.clone() }, "mode 'all': write each, full"),
            (Draft { factors: vec!["sync".into()], ..draft.clone() }, "sync=standard"),
        ] {
            let error = of(draft);
            assert!(error.contains(told), "{told}: {error}");
        }
    }
}
