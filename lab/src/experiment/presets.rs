//! Workloads that come with the program, as data: `presets.toml`.
//!
//! A preset is one or more workloads. `preset = "web"` in a `[[workload]]` stands for them; other keys of
//! that table (`seconds`, `iodepth`, `cache` …) override theirs, and its `name` becomes a prefix of theirs.
//! Results keep the expanded workloads, so that they keep their meaning when a preset changes.

use toml::{Table, Value};

use crate::error::{Error, Result};
use ondisk::nearest::meant;

const TEXT: &str = include_str!("../../presets.toml");

/// A preset as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// Its meaning.
    pub about: String,
}

fn table() -> Table {
    TEXT.parse().expect("the presets are TOML, their test says so")
}

/// All of them.
pub fn all() -> Vec<Preset> {
    let about = |value: &Value| value.get("about").and_then(Value::as_str).unwrap_or_default().to_owned();
    table().iter().map(|(name, value)| Preset { name: name.clone(), about: about(value) }).collect()
}

/// The experiment with its presets written out; `None` where it has none.
pub(super) fn expanded(mut experiment: Table) -> Result<Option<Table>> {
    let Some(Value::Array(workloads)) = experiment.get_mut("workload") else { return Ok(None) };
    if !workloads.iter().any(|workload| workload.get("preset").is_some()) {
        return Ok(None);
    }
    let presets = table();
    let mut written = Vec::new();
    for workload in std::mem::take(workloads) {
        match workload {
            Value::Table(mut over) if over.contains_key("preset") => {
                let preset = over.remove("preset").unwrap_or(Value::Boolean(false));
                written.extend(expand(&presets, preset.as_str().unwrap_or_default(), over)?);
            }
            other => written.push(other),
        }
    }
    *workloads = written;
    Ok(Some(experiment))
}

/// The workloads of a preset, changed by `over`.
fn expand(presets: &Table, name: &str, mut over: Table) -> Result<Vec<Value>> {
    let Some(Value::Array(workloads)) = presets.get(name).and_then(|preset| preset.get("workload")) else {
        let names: Vec<&str> = presets.keys().map(String::as_str).collect();
        let meant = meant(name, names.iter().copied());
        let what = format!("there is no preset '{name}'{meant}; there are {}", names.join(", "));
        return Err(Error::Experiment(what));
    };
    let prefix = over.remove("name").and_then(|name| Some(name.as_str()?.to_owned()));
    let mut all = Vec::new();
    for workload in workloads {
        let Value::Table(mut workload) = workload.clone() else { continue };
        if let Some(prefix) = &prefix {
            let own = workload.get("name").and_then(Value::as_str).unwrap_or_default();
            workload.insert("name".into(), Value::String(format!("{prefix}: {own}")));
        }
        let mut over = over.clone();
        if let (Some(Value::Table(options)), Some(Value::Table(more))) =
            (workload.get_mut("options"), over.get("options"))
        {
            options.extend(more.clone());
            over.remove("options");
        }
        workload.extend(over);
        all.push(Value::Table(workload));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::size::Size;

    fn experiment(workloads: &str) -> Result<Experiment> {
        Experiment::parse(&format!(
            "name = \"x\"\n[target]\nkind = \"filesystem\"\nsize = \"1G\"\n{workloads}"
        ))
    }

    #[test]
    fn every_preset_is_one_or_more_workloads() {
        for preset in all() {
            let text = format!("[[workload]]\npreset = \"{}\"\n", preset.name);
            let experiment = experiment(&text).unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            assert!(!preset.about.is_empty() && !experiment.workloads.is_empty(), "{}", preset.name);
        }
        assert!(all().len() >= 10);
    }

    #[test]
    fn what_is_said_beside_a_preset_takes_the_place_of_its_own() {
        let text = "[[workload]]\npreset = \"bonnie\"\nname = \"cold\"\nseconds = 2\nsize = \"64M\"\noptions \
            = { thinktime = \"1\" }\n\
                    [[workload]]\nname = \"own\"\nrw = \"read\"\n";
        let experiment = experiment(text).unwrap();
        let names: Vec<&str> = experiment.workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(
            names,
            ["cold: bonnie write", "cold: bonnie rewrite", "cold: bonnie read", "cold: bonnie seeks", "own"]
        );
        let write = &experiment.workloads[0];
        assert_eq!((write.seconds, write.size), (2.0, Some(Size(64 << 20))));
        assert_eq!((write.options["thinktime"].as_str(), write.options["direct"].as_str()), ("1", "0"));
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap()).unwrap(), experiment);
    }

    #[test]
    fn an_unknown_preset_is_answered_with_those_there_are() {
        let error = experiment("[[workload]]\npreset = \"webb\"\n").unwrap_err().to_string();
        assert!(error.contains("webb") && error.contains("database-8k"), "{error}");
    }
}
