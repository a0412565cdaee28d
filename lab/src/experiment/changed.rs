//! Changes of an experiment since its runs were made.
//!
//! Runs of different experiments must not be mixed. So the results keep the experiment of their runs, and the
//! present file is compared with that. Keys that only decide how many runs there are, how long guests are
//! waited for and how runs are judged may change: rounds, precision, budget, bounds, claims, consent to
//! overwrite, the question; also the goal, unless a search follows it. A workload without counted runs may
//! change too.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

use super::{Experiment, Mode};
use crate::error::{Error, Result};

/// Keys that may change in an experiment.
const FREE: [&str; 13] = [
    "question",
    "max_rounds",
    "precision",
    "budget",
    "left_out_workloads",
    "left_out_rounds",
    "more_rounds",
    "within_seconds",
    "boot_seconds",
    "measured",
    "bound",
    "claim",
    "goal",
];
/// Keys that may change in a factor: what is said of its values, and what a quick form would have.
const FREE_OF_FACTOR: [&str; 3] = ["quick", "left_out", "risks"];

/// The differences that affect the measurement, each in a sentence. Of the workloads only those count that
/// are in `measured`.
pub(crate) fn changed(kept: &Experiment, now: &Experiment, measured: &BTreeSet<&str>) -> Result<Vec<String>> {
    let mut told = Vec::new();
    compare("", &deciding(kept, measured)?, &deciding(now, measured)?, &mut told);
    Ok(told)
}

/// The keys of an experiment that affect the measurement.
fn deciding(experiment: &Experiment, measured: &BTreeSet<&str>) -> Result<Table> {
    let mut table = Table::try_from(experiment).map_err(|error| Error::Experiment(error.to_string()))?;
    FREE.iter().for_each(|key| drop(table.remove(*key)));
    // What is random was drawn from the name, where there was no seed yet.
    if experiment.seed.is_some() {
        table.remove("name");
    }
    // The steps of an improvement have the numbers of their rounds.
    match experiment.mode {
        Mode::Improve => drop(table.insert("rounds".into(), count(experiment.searched_rounds()))),
        Mode::Each | Mode::Full | Mode::Search => drop(table.remove("rounds")),
    }
    if experiment.is_searched() {
        let metric = Value::String(experiment.goal.metric.name());
        let workload = Value::String(experiment.goal_workload().to_owned());
        let goal = [("metric".to_owned(), metric), ("workload".to_owned(), workload)];
        table.insert("goal".into(), Value::Table(goal.into_iter().collect()));
    }
    if let Some(target) = table.get_mut("target").and_then(Value::as_table_mut) {
        target.remove("overwrite");
    }
    // Their order is in the names of variants.
    let names = experiment.factors.iter().map(|factor| Value::String(factor.name.clone()));
    let names = Value::Array(names.collect());
    for factor in tables(&mut table, "factor") {
        FREE_OF_FACTOR.iter().for_each(|key| drop(factor.remove(*key)));
    }
    table.insert("factors".into(), names);
    tables(&mut table, "workload").for_each(|workload| drop(workload.remove("quick")));
    if let Some(workloads) = table.get_mut("workload").and_then(Value::as_array_mut) {
        workloads.retain(|workload| name_of(workload).is_some_and(|name| measured.contains(name)));
    }
    Ok(table)
}

fn count(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn tables<'a>(table: &'a mut Table, key: &str) -> impl Iterator<Item = &'a mut Table> {
    table.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_table_mut)
}

fn name_of(value: &Value) -> Option<&str> {
    value.as_table()?.get("name")?.as_str()
}

/// Reports the differences between two tables at `place`, which ends as what stands before a key does.
fn compare(place: &str, kept: &Table, now: &Table, told: &mut Vec<String>) {
    let keys: BTreeSet<&String> = kept.keys().chain(now.keys()).collect();
    for key in keys {
        match (kept.get(key), now.get(key)) {
            (kept, now) if kept == now => {}
            (Some(Value::Table(kept)), Some(Value::Table(now))) => {
                compare(&format!("{place}{key}: "), kept, now, told);
            }
            (Some(Value::Table(kept)), None) => {
                compare(&format!("{place}{key}: "), kept, &Table::new(), told)
            }
            (None, Some(Value::Table(now))) => compare(&format!("{place}{key}: "), &Table::new(), now, told),
            (Some(Value::Array(kept)), Some(Value::Array(now))) if is_named(kept) && is_named(now) => {
                named(place, key, kept, now, told);
            }
            // Continuing it needs the whole path.
            (Some(Value::String(kept)), Some(Value::String(now)))
                if place.starts_with("target") && is_end_of(now, kept) => {}
            (kept, Some(now)) => {
                let are = if now.is_array() { "are" } else { "is" };
                let kept = kept.map_or_else(|| "without it".into(), |kept| format!("with {}", words(kept)));
                told.push(format!(
                    "{place}{key} {are} {} in experiment.toml, and its runs were made {kept}",
                    words(now)
                ));
            }
            (Some(kept), None) => told.push(format!(
                "{place}{key} is not in experiment.toml, and its runs were made with {}",
                words(kept)
            )),
            (None, None) => {}
        }
    }
}

/// The same of tables that have names. Which factors there are is compared beside.
fn named(place: &str, key: &str, kept: &[Value], now: &[Value], told: &mut Vec<String>) {
    let find = |all: &[Value], name| all.iter().find(|it| name_of(it) == Some(name)).cloned();
    let names: BTreeSet<&str> = kept.iter().chain(now).filter_map(name_of).collect();
    for name in names {
        match (find(kept, name), find(now, name)) {
            (Some(Value::Table(kept)), Some(Value::Table(now))) => {
                compare(&format!("{place}{key} '{name}': "), &kept, &now, told);
            }
            _ if key == "factor" => {}
            (Some(_), _) => told
                .push(format!("{place}{key} '{name}' is not in experiment.toml, and there are runs of it")),
            (None, _) => told.push(format!(
                "{place}{key} '{name}' is in experiment.toml, and its runs were made without it"
            )),
        }
    }
}

fn is_named(all: &[Value]) -> bool {
    all.iter().all(|it| name_of(it).is_some())
}

fn is_end_of(now: &str, kept: &str) -> bool {
    let (now, kept) = (Path::new(now), Path::new(kept));
    now.is_relative() && kept.is_absolute() && kept.ends_with(now)
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".into(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\nseed = 5\n[target]\nkind = \"path\"\npath = \"/a/b\"\nsize = \"64M\"\n\
                        [[factor]]\nname = \"iodepth\"\nvalues = [\"1\", \"2\"]\n\
                        [[factor]]\nname = \"fio.thinktime\"\nvalues = [\"0\", \"9\"]\n\
                        [[workload]]\nname = \"w\"\nrw = \"randread\"\nbs = \"8K\"\n\
                        [[workload]]\nname = \"v\"\nrw = \"randread\"\n";

    fn told(kept: &str, now: &str) -> String {
        let [kept, now] = [kept, now].map(|text| Experiment::read(text).unwrap());
        changed(&kept, &now, &BTreeSet::from(["w"])).unwrap().join("; ")
    }

    #[test]
    fn what_decides_what_was_measured_is_told_by_name() {
        for (from, to, expected) in [
            (
                "bs = \"8K\"",
                "bs = \"1M\"",
                "workload 'w': bs is 1M in experiment.toml, and its runs were made with 8K",
            ),
            (
                "bs = \"8K\"",
                "size = \"1M\"\nbs = \"8K\"",
                "workload 'w': size is 1M in experiment.toml, and its runs were made without it",
            ),
            (
                "size = \"64M\"",
                "size = \"32M\"",
                "target: size is 32M in experiment.toml, and its runs were made with 64M",
            ),
            (
                "\"/a/b\"",
                "\"/a/c\"",
                "target: path is /a/c in experiment.toml, and its runs were made with /a/b",
            ),
            (
                "[\"1\", \"2\"]",
                "[\"1\", \"4\"]",
                "factor 'iodepth': values are 1, 4 in experiment.toml, and its runs were made with 1, 2",
            ),
            (
                "\"iodepth\"",
                "\"fio.rate\"",
                "factors are fio.rate, fio.thinktime in experiment.toml, and its runs were made with \
                 iodepth, fio.thinktime",
            ),
            ("seed = 5", "seed = 6", "seed is 6 in experiment.toml, and its runs were made with 5"),
            (
                "seed = 5",
                "seed = 5\nmode = \"full\"",
                "mode is full in experiment.toml, and its runs were made with each",
            ),
            (
                "[target]",
                "[settings]\nsync_job = \"1\"\n[target]",
                "settings: sync_job is 1 in experiment.toml, and its runs were made without it",
            ),
            ("\"w\"", "\"u\"", "workload 'w' is not in experiment.toml, and there are runs of it"),
        ] {
            let told = told(TEXT, &TEXT.replacen(from, to, 1));
            assert!(told.contains(expected), "{to}: {told}");
        }
        let unseeded = TEXT.replace("seed = 5\n", "");
        assert!(told(&unseeded, &unseeded.replace("\"x\"", "\"y\"")).contains("name is y"));
    }

    #[test]
    fn what_only_says_how_many_runs_there_are_and_how_they_are_judged_may_change() {
        for (from, to) in [
            (
                "\"x\"",
                "\"y\"\nquestion = \"Why?\"\nrounds = 9\nmax_rounds = 12\nprecision = 0.5\nmore_rounds = \
                 11\nwithin_seconds = 9\nleft_out_rounds = 2",
            ),
            ("[target]", "[goal]\nmetric = \"latency\"\nworkload = \"v\"\nat_most = \"5ms\"\n[target]"),
            ("[target]", "[[bound]]\nname = \"b\"\nrate = \"1gbe\"\n[target]"),
            ("[[workload]]\n", "[[workload]]\nquick = false\n"),
            ("size = \"64M\"", "size = \"64M\"\noverwrite = true"),
            ("\"/a/b\"", "\"b\""),
            ("[\"1\", \"2\"]", "[\"1\", \"2\"]\nquick = [\"1\", \"2\"]"),
            // Nothing of it was measured.
            ("name = \"v\"\nrw = \"randread\"", "name = \"v\"\nrw = \"read\""),
        ] {
            assert_eq!(told(TEXT, &TEXT.replacen(from, to, 1)), "", "{to}");
        }
    }

    #[test]
    fn a_search_follows_its_goal_and_an_improvement_its_rounds() {
        for (mode, rounds) in [("search", ""), ("improve", "rounds is 9 in experiment.toml")] {
            let text = TEXT.replace("seed = 5", &format!("seed = 5\nmode = \"{mode}\""));
            let of = |to: &str| told(&text, &text.replace("[target]", &format!("{to}\n[target]")));
            let goal = "[goal]\nmetric = \"latency\"\nworkload = \"v\"";
            assert!(of(goal).contains("goal: metric is latency"), "{}", of(goal));
            assert!(of(goal).contains("goal: workload is v"), "{}", of(goal));
            assert_eq!(of("[goal]\nalso = [\"latency\"]\nworkload = \"w\""), "");
            let nine = text.replace("seed = 5", "seed = 5\nrounds = 9");
            assert!(
                told(&text, &nine).starts_with(rounds) && told(&text, &nine).is_empty() == rounds.is_empty()
            );
            assert_eq!(told(&text, &nine.replace("rounds = 9", "rounds = 3\nleft_out_rounds = 2")), "");
        }
    }
}
