//! What short processes of the lab answer: recipes, drafts, plans, reports, comparisons, advice, layouts.
//!
//! Their answers are JSON of the lab's own types, of which the fields that are needed are read here. What is
//! missing in them is left out of replies; what is no JSON is an error with the program's own words.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::folder::{self, Folder};
use super::programs::{MOST_BYTES, Said};
use super::{check_text, failed};
use crate::api::{
    self, ApiError, LabAdvice, LabComparison, LabDraft, LabLayout, LabPlan, LabPreset, LabRecipe, LabReport,
    LabVerdict,
};
use crate::daemon::Daemon;

/// How long an answer may take that is only looked up or computed.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// The same where fio, servers or all runs of experiments are asked.
const LONG_LIMIT: Duration = Duration::from_secs(300);
/// The most experiments that are compared, or pools that are advised on.
const MOST_NAMED: usize = 100;

/// An experiment in a recipe.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Recipe {
    name: String,
    about: String,
    scenario: bool,
    experiment: RecipeExperiment,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecipeExperiment {
    question: String,
    target: RecipeTarget,
    workload: Vec<Named>,
    factor: Vec<RecipeFactor>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecipeTarget {
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecipeFactor {
    name: String,
    values: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Advised {
    pool: String,
    advice: Vec<Advice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Advice {
    about: String,
    change: String,
    evidence: String,
    gain: String,
    cost: String,
    risk: String,
    proof: String,
}

/// What a model answers.
#[derive(Debug, Deserialize)]
struct Modelled<T> {
    result: T,
}

#[derive(Debug, Deserialize)]
struct Layouts {
    choices: Vec<Choice>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    layout: String,
    spares: u32,
    usable_bytes: f64,
    survives: u32,
    lost_in_a_year: f64,
    rebuild_seconds: Option<f64>,
    rebuild_seconds_at_worst: Option<f64>,
    read_iops: f64,
    write_iops: f64,
    read_bytes_per_second: f64,
    write_bytes_per_second: f64,
    remarks: Vec<String>,
}

/// The parts of a report that are needed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    document: Value,
    pub verdicts: Vec<LabVerdict>,
}

/// A text of an experiment in a file, as long as it is looked at.
struct Planned(PathBuf);

impl Planned {
    fn write(directory: &Path, text: &str) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = Self(directory.join(format!(".planned-{}-{number}.toml", std::process::id())));
        fs::write(&file.0, text)?;
        Ok(file)
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        // What cannot be removed is one small file.
        let _ = fs::remove_file(&self.0);
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What a program answered, as one of the types above; what it said instead, where it failed.
fn answer<T: DeserializeOwned>(said: &Said) -> Result<T, ApiError> {
    if !said.is_done {
        return Err(ApiError::refused(said.words()));
    }
    parsed(&said.output)
}

fn parsed<T: DeserializeOwned>(output: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(output)
        .map_err(|error| ApiError::failed(format!("what the lab answers makes no sense: {error}")))
}

fn refuse_many(names: &[String]) -> Result<(), ApiError> {
    match names.len() > MOST_NAMED {
        true => Err(ApiError::invalid(format!("{} names are too many: {MOST_NAMED} are taken", names.len()))),
        false => Ok(()),
    }
}

impl Daemon {
    /// Has the lab answer, where it needs no directory.
    fn lab_answers<T: DeserializeOwned>(&self, arguments: &[String], limit: Duration) -> Result<T, ApiError> {
        answer(&self.ask_program(arguments, Path::new("/"), limit)?)
    }

    /// The experiments that come with this program.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn lab_recipes(&self, _: api::ListLabRecipes) -> Result<Vec<LabRecipe>, ApiError> {
        let all: Vec<Recipe> = self.lab_answers(&words(&["lab", "recipes", "--json"]), LOOK_LIMIT)?;
        // Scenarios are played, and have no text.
        let recipes = all.into_iter().filter(|recipe| !recipe.scenario);
        Ok(recipes
            .map(|Recipe { name, about, experiment, .. }| LabRecipe {
                name,
                about,
                question: experiment.question,
                target: experiment.target.kind,
                workloads: experiment.workload.into_iter().map(|it| it.name).collect(),
                factors: experiment.factor.into_iter().map(|it| (it.name, it.values)).collect(),
            })
            .collect())
    }

    /// The workloads that experiments can start from.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn lab_presets(&self, _: api::ListLabPresets) -> Result<Vec<LabPreset>, ApiError> {
        self.lab_answers(&words(&["lab", "presets", "--json"]), LOOK_LIMIT)
    }

    /// An experiment's text, out of a recipe, of options, or of both.
    ///
    /// # Errors
    /// What was asked for makes no experiment.
    pub fn lab_draft(&self, request: &api::DraftLab) -> Result<LabDraft, ApiError> {
        if request.recipe.is_none() && request.workloads.is_empty() {
            return Err(ApiError::invalid("name a recipe, or at least one workload"));
        }
        let mut arguments = words(&["lab", "new"]);
        let mut say = |option: &str, value: &str| arguments.push(format!("--{option}={value}"));
        for (option, value) in [
            ("name", &request.name),
            ("target", &request.target),
            ("size", &request.size),
            ("goal", &request.goal),
            ("at-least", &request.at_least),
            ("at-most", &request.at_most),
            ("mode", &request.mode),
            ("layout", &request.layout),
        ] {
            if let Some(value) = value {
                say(option, value);
            }
        }
        request.workloads.iter().for_each(|workload| say("workload", workload));
        request.bounds.iter().for_each(|bound| say("bound", bound));
        request.factors.iter().for_each(|(name, values)| say("factor", &format!("{name}={values}")));
        if let Some(recipe) = &request.recipe {
            arguments.extend(["--".to_owned(), recipe.clone()]);
        }
        // No file of this name is there, so that only recipes are found.
        let said = self.ask_program(&arguments, Path::new("/"), LONG_LIMIT)?;
        if !said.is_done {
            return Err(ApiError::invalid(said.words()));
        }
        let experiment = String::from_utf8(said.output);
        let experiment = experiment.map_err(|_| ApiError::failed("the lab wrote a text that is none"))?;
        Ok(LabDraft { experiment, remarks: said.words.lines().map(str::to_owned).collect() })
    }

    /// What an experiment would do here, and what is wrong with it.
    ///
    /// # Errors
    /// The text is empty or too long; the program cannot be run. Faults are none.
    pub fn lab_plan(&self, request: &api::PlanLab) -> Result<LabPlan, ApiError> {
        check_text(&request.experiment)?;
        Ok(self.plan_of(request)?.plan)
    }

    /// The same, with what it asks.
    pub(super) fn plan_of(&self, request: &api::PlanLab) -> Result<PlanOf, ApiError> {
        let directory = self.made_lab_directory()?;
        let cannot = |error: io::Error| {
            ApiError::failed(format!("cannot write into {}: {error}", directory.display()))
        };
        let file = Planned::write(&directory, &request.experiment).map_err(cannot)?;
        let mut arguments = words(&["lab", "run", "--dry-run", "--json", "--no-overwrite"]);
        arguments.extend(request.quick.then(|| "--quick".to_owned()));
        arguments.extend(request.rounds.map(|rounds| format!("--rounds={rounds}")));
        // Where it would be, as far as room goes.
        arguments.push(format!("--output={}", directory.join(".planned").display()));
        arguments.push(file.0.display().to_string());
        let said = self.ask_program(&arguments, Path::new("/"), LONG_LIMIT)?;
        // One with faults ends with an error, and says them all the same.
        let mut planned: PlanOf = parsed(&said.output)
            .map_err(|error| if said.is_done { error } else { ApiError::refused(said.words()) })?;
        let own = file.0.display().to_string();
        for fault in &mut planned.plan.faults {
            *fault = fault.replace(&own, "the text");
        }
        Ok(planned)
    }

    /// What an experiment found.
    ///
    /// # Errors
    /// There is none of this name; it runs, and has found nothing before; no run has ended.
    pub fn lab_report(&self, request: &api::ReportLab) -> Result<LabReport, ApiError> {
        let folder = self.experiment(&request.name)?;
        let Report { document, verdicts } = self.report_of(&folder)?;
        let text = folder::read(&folder.asked(), MOST_BYTES)
            .map_err(|error| failed("read", folder.name(), &error))?;
        Ok(LabReport { document, verdicts, experiment: String::from_utf8_lossy(&text).into_owned() })
    }

    /// The report of an experiment, which is made where there is none of all that was measured.
    pub(super) fn report_of(&self, folder: &Folder) -> Result<Report, ApiError> {
        let written = |file: &Path| fs::metadata(file).and_then(|found| found.modified()).ok();
        let (report, results) = (written(&folder.report()), written(&folder.path().join("results.redb")));
        let is_running = folder.process().is_some();
        if report.is_some() && (is_running || report >= results) {
            let read = folder::read(&folder.report(), MOST_BYTES);
            let read = read.map_err(|error| failed("read the report of", folder.name(), &error))?;
            // One of another version of this program may lack what is needed.
            if let Ok(report) = parsed::<Report>(&read)
                && (is_running || !report.document.is_null())
            {
                return Ok(report);
            }
        }
        if is_running {
            return Err(ApiError::busy(format!(
                "the experiment '{}' runs: it has a report when it has ended, or was stopped",
                folder.name()
            )));
        }
        let mut arguments = words(&["lab", "report", "--json", "--"]);
        arguments.push(folder.path().display().to_string());
        self.lab_answers(&arguments, LONG_LIMIT)
    }

    /// A comparison of what experiments found.
    ///
    /// # Errors
    /// There are fewer than two, or not all of them; one runs.
    pub fn lab_compare(&self, request: &api::CompareLab) -> Result<LabComparison, ApiError> {
        if request.names.len() < 2 {
            return Err(ApiError::invalid("name at least two experiments that are compared"));
        }
        refuse_many(&request.names)?;
        let mut arguments = words(&["lab", "compare", "--json", "--"]);
        for name in &request.names {
            let folder = self.experiment(name)?;
            if folder.process().is_some() {
                return Err(ApiError::busy(format!(
                    "the experiment '{name}' runs: wait for its end, or stop it"
                )));
            }
            arguments.push(name.clone());
        }
        // Each is named as it is called here.
        let said = self.ask_program(&arguments, &self.lab_directory(), LONG_LIMIT)?;
        let report: Report = answer(&said)?;
        Ok(LabComparison { document: report.document })
    }

    /// What could be changed about open pools.
    ///
    /// # Errors
    /// One of them is not open.
    pub fn lab_advise(&self, request: &api::AdviseLab) -> Result<Vec<LabAdvice>, ApiError> {
        refuse_many(&request.pools)?;
        for name in &request.pools {
            self.pool(name)?;
        }
        let mut arguments = words(&["lab", "advise", "--json", "--"]);
        arguments.extend(request.pools.iter().cloned());
        let all: Vec<Advised> = self.lab_answers(&arguments, LOOK_LIMIT)?;
        let of_pool = |Advised { pool, advice }: Advised| {
            advice.into_iter().map(move |advice| {
                let said = |text: String| Some(text).filter(|text| !text.is_empty());
                LabAdvice {
                    pool: pool.clone(),
                    title: format!("{}: {}", advice.about, advice.change),
                    evidence: advice.evidence,
                    gain: advice.gain,
                    cost: advice.cost,
                    risk: advice.risk,
                    // The lab says in words what to change, and has a command that proves it.
                    command: None,
                    prove: said(advice.proof),
                }
            })
        };
        Ok(all.into_iter().flat_map(of_pool).collect())
    }

    /// Layouts for so many disks.
    ///
    /// # Errors
    /// Numbers of which the models say nothing.
    pub fn lab_layouts(&self, request: &api::ListLabLayouts) -> Result<Vec<LabLayout>, ApiError> {
        let api::ListLabLayouts { disks, disk_bytes, rotational, spares } = *request;
        let mut arguments = words(&["lab", "model", "layouts", "--json"]);
        arguments.extend((!rotational).then(|| "--ssd".to_owned()));
        arguments.push(format!("--size={disk_bytes}"));
        arguments.push(format!("--spares={spares}"));
        arguments.push(disks.to_string());
        let said = self.ask_program(&arguments, Path::new("/"), LOOK_LIMIT)?;
        if !said.is_done {
            return Err(ApiError::invalid(said.words()));
        }
        let all: Vec<Modelled<Layouts>> = parsed(&said.output)?;
        let choices = all.into_iter().flat_map(|modelled| modelled.result.choices);
        Ok(choices
            .map(|choice| LabLayout {
                layout: choice.layout,
                spares: choice.spares,
                usable_bytes: choice.usable_bytes.max(0.0) as u64,
                survives: choice.survives,
                chance_of_loss_per_year: Some(choice.lost_in_a_year),
                rebuild_seconds: choice.rebuild_seconds,
                rebuild_seconds_at_worst: choice.rebuild_seconds_at_worst,
                read_iops: choice.read_iops,
                write_iops: choice.write_iops,
                read_bytes_per_second: choice.read_bytes_per_second,
                write_bytes_per_second: choice.write_bytes_per_second,
                remarks: choice.remarks,
            })
            .collect())
    }
}

/// A plan, with what the experiment asks.
#[derive(Debug, Deserialize)]
pub(super) struct PlanOf {
    #[serde(default)]
    pub question: String,
    #[serde(flatten)]
    pub plan: LabPlan,
}

#[cfg(test)]
mod tests {
    use super::super::check_name;
    use super::*;

    #[test]
    fn what_the_lab_answers_is_read_as_far_as_it_is_needed() {
        let said = |is_done, output: &str, words: &str| Said {
            is_done,
            output: output.as_bytes().to_vec(),
            words: words.to_owned(),
        };
        let plan: PlanOf =
            answer(&said(true, r#"{"question": "Why?", "runs": 4, "rounds": 2}"#, "")).unwrap();
        assert_eq!((plan.question.as_str(), plan.plan.runs), ("Why?", 4));
        let report: Report = answer(&said(
            true,
            r#"{"verdict": "x", "document": {"title": "t"}, "verdicts": [{"variant": "a", "text": "b",
                "changes": [["recordsize", "16K"]], "why_not": null}]}"#,
            "",
        ))
        .unwrap();
        assert_eq!(report.verdicts[0].changes, [("recordsize".to_owned(), "16K".to_owned())]);
        let refused = answer::<Report>(&said(false, "", "cenote: no run has ended yet\n")).unwrap_err();
        assert_eq!(refused.message, "no run has ended yet");
        assert!(answer::<Report>(&said(true, "nonsense", "")).is_err());
        let all: Vec<Recipe> = answer(&said(
            true,
            r#"[{"name": "a", "experiment": {"target": {"kind": "volume"}, "workload": [{"name": "w"}]}},
                {"name": "s", "scenario": true}]"#,
            "",
        ))
        .unwrap();
        assert!(all[0].experiment.target.kind == "volume" && all[1].scenario);
    }

    #[test]
    fn names_of_experiments_lead_nowhere() {
        let long = "x".repeat(65);
        for wrong in ["", ".", "..", "../x", "a/b", ".hidden", "a b", "ä", "a\0", "-\n", long.as_str()] {
            assert!(check_name(wrong).is_err(), "{wrong:?}");
        }
        for right in ["a", "2", "a..b", "lab-sync_2.1", "-", &long[..64]] {
            assert!(check_name(right).is_ok(), "{right:?}");
        }
        assert!(check_text("").is_err() && check_text(&"x".repeat(10 << 20)).is_err());
    }
}
