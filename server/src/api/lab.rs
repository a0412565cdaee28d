//! Requests about experiments of the lab.
//!
//! The daemon runs its own program for them, as `cenote lab …`, in a folder for each experiment beside what
//! it keeps (`daemon::lab`). One experiment runs at a time. What an experiment found travels as a *document*:
//! the same that the page of a report shows, whose form is the lab's (`lab::report`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Bytes of an experiment's text that are taken.
pub const MOST_OF_EXPERIMENT: usize = 256 << 10;

/// Asks for the experiments that come with this program.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListLabRecipes {}

impl Action for ListLabRecipes {
    const DECLARED: Declaration = Declaration::reads(
        "lab-recipes",
        Part::Lab,
        Role::Operator,
        "Lists the experiments that come with this program",
    )
    .in_words("list recipes of the lab", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<LabRecipe>;
}

/// An experiment that comes with this program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabRecipe {
    /// Its name.
    pub name: String,
    /// What it is about, a phrase.
    pub about: String,
    /// What it asks.
    pub question: String,
    /// The kind of its target: `volume`, `filesystem`, …
    pub target: String,
    /// Its workloads.
    pub workloads: Vec<String>,
    /// What it varies: settings, each with its values.
    pub factors: Vec<(String, Vec<String>)>,
}

/// Asks for the workloads that experiments can start from.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListLabPresets {}

impl Action for ListLabPresets {
    const DECLARED: Declaration = Declaration::reads(
        "lab-presets",
        Part::Lab,
        Role::Operator,
        "Lists the workloads that experiments can start from",
    )
    .in_words("list workloads of the lab", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<LabPreset>;
}

/// A workload that experiments can start from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabPreset {
    /// Its name.
    pub name: String,
    /// What it is, a sentence.
    pub about: String,
}

/// Asks for an experiment's text, out of a recipe, of options, or of both: `cenote lab new`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DraftLab {
    /// The recipe to start from.
    pub recipe: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// The target, as `cenote lab new --target` takes it.
    pub target: Option<String>,
    /// Bytes of it that are used, such as `256M`.
    pub size: Option<String>,
    /// Workloads: presets, or fio's rw, a size and a depth, such as `randwrite,4K,8`.
    pub workloads: Vec<String>,
    /// The metric of the goal.
    pub goal: Option<String>,
    /// The value that is success, where more is better.
    pub at_least: Option<String>,
    /// The value that is success, where less is better.
    pub at_most: Option<String>,
    /// Rates that cannot be beaten, such as `10gbe`.
    pub bounds: Vec<String>,
    /// What is varied: names of settings, each with its values between commas.
    pub factors: Vec<(String, String)>,
    /// Which variants: `each`, `full`, `search` or `improve`.
    pub mode: Option<String>,
    /// Another layout of its pools.
    pub layout: Option<String>,
}

impl Action for DraftLab {
    const DECLARED: Declaration = Declaration::reads(
        "lab-draft",
        Part::Lab,
        Role::Admin,
        "Writes an experiment's text out of a recipe or of options",
    )
    .in_words("draft an experiment", "")
    .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = LabDraft;
}

/// An experiment's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabDraft {
    /// TOML, whose reference is `cenote lab format`.
    pub experiment: String,
    /// What was left out, and what would keep it from running here, each a sentence.
    pub remarks: Vec<String>,
}

/// Asks what an experiment would do here, and what is wrong with it. Nothing is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanLab {
    /// Its text.
    pub experiment: String,
    /// Whether its quick form is meant.
    pub quick: bool,
    /// The least number of rounds.
    pub rounds: Option<u32>,
}

impl Action for PlanLab {
    const DECLARED: Declaration = Declaration::reads(
        "lab-plan",
        Part::Lab,
        Role::Admin,
        "Says what an experiment would do, what it takes, and what is wrong with it",
    )
    .in_words("plan an experiment", "")
    .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = LabPlan;
}

/// What an experiment would do. Where it has faults, the rest is as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabPlan {
    /// What is wrong with it, each a sentence. It is not started with any.
    pub faults: Vec<String>,
    /// What else is to be known, each a sentence.
    pub remarks: Vec<String>,
    /// The variants that are compared.
    pub variants: Vec<String>,
    /// The workloads that each of them gets.
    pub workloads: Vec<String>,
    /// Runs, at least.
    pub runs: u64,
    /// How long these take about, in seconds.
    pub seconds: f64,
    /// Bytes that it takes on disk while it runs.
    pub space_bytes: u64,
    /// Bytes of memory that it takes, where that is known.
    pub memory_bytes: Option<u64>,
}

/// Starts an experiment. It goes on when the client goes away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StartLab {
    /// What it is called from now on: 1 to 64 of letters, digits, `.`, `_` and `-`, not beginning with a dot.
    pub name: String,
    /// Its text.
    pub experiment: String,
    /// Whether its quick form is run.
    pub quick: bool,
    /// The least number of rounds.
    pub rounds: Option<u32>,
}

impl Action for StartLab {
    const DECLARED: Declaration =
        Declaration::changes("lab-start", Part::Lab, Role::Admin, Effects::SETTINGS, "Starts an experiment")
            .in_words("start the experiment", "name")
            .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Asks for all experiments.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListLab {}

impl Action for ListLab {
    const DECLARED: Declaration =
        Declaration::reads("lab-list", Part::Lab, Role::Operator, "Lists experiments, and how they stand")
            .in_words("list experiments", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The newest first.
    type Reply = Vec<LabExperiment>;
}

/// How an experiment stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabExperiment {
    /// Its name.
    pub name: String,
    /// What it asks.
    pub question: String,
    /// How it stands.
    pub state: LabState,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// Whether it is its quick form.
    pub quick: bool,
    /// How far it is, or was when it ended.
    pub progress: Option<LabProgress>,
    /// Whether its question is answered, once it ended.
    pub is_answered: Option<bool>,
    /// The answer, a sentence or some.
    pub answer: Option<String>,
    /// Why it ended, where it failed or was interrupted.
    pub error: Option<String>,
    /// Bytes that its folder takes.
    pub space_bytes: u64,
    /// What was set according to it, and not set back since.
    pub applied: Vec<LabApplied>,
}

/// The states of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LabState {
    /// It runs.
    Running,
    /// All of it is done.
    Ended,
    /// It was stopped or interrupted, and can be resumed.
    Stopped,
    /// It failed; what was measured is kept, and it may be resumed.
    Failed,
}

/// How far an experiment is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabProgress {
    /// Runs that are done.
    pub runs: u64,
    /// Runs that there are at least.
    pub of_runs: u64,
    /// How long the rest takes about, in seconds, once that is known.
    pub seconds_left: Option<f64>,
    /// What goes on.
    pub now: String,
}

/// Properties that were set on a dataset because of what an experiment found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabApplied {
    /// The dataset.
    pub dataset: String,
    /// The variant whose properties these are.
    pub variant: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// The properties with their new values.
    pub changes: Vec<(String, String)>,
    /// What they were before; none where a property was not set on the dataset itself.
    pub was: Vec<(String, Option<String>)>,
}

/// Interrupts an experiment that runs: its pools are removed, and what was measured is kept. Answered when it
/// has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StopLab {
    /// Its name.
    pub name: String,
}

impl Action for StopLab {
    const DECLARED: Declaration = Declaration::changes(
        "lab-stop",
        Part::Lab,
        Role::Admin,
        Effects::SETTINGS,
        "Interrupts an experiment; what was measured is kept",
    )
    .in_words("stop the experiment", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Goes on with an experiment that was interrupted, or adds rounds to one that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResumeLab {
    /// Its name.
    pub name: String,
    /// So many rounds more than it has.
    pub more_rounds: Option<u32>,
}

impl Action for ResumeLab {
    const DECLARED: Declaration = Declaration::changes(
        "lab-resume",
        Part::Lab,
        Role::Admin,
        Effects::SETTINGS,
        "Goes on with an experiment, or adds rounds to it",
    )
    .in_words("resume the experiment", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Removes an experiment with all that it found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemoveLab {
    /// Its name.
    pub name: String,
    /// Also where properties are set according to it: what they were before is forgotten then.
    pub force: bool,
}

impl Action for RemoveLab {
    const DECLARED: Declaration = Declaration::changes(
        "lab-remove",
        Part::Lab,
        Role::Admin,
        Effects::SETTINGS,
        "Removes an experiment with all that it found",
    )
    .in_words("remove the experiment", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Asks for what an experiment found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReportLab {
    /// Its name.
    pub name: String,
}

impl Action for ReportLab {
    const DECLARED: Declaration =
        Declaration::reads("lab-report", Part::Lab, Role::Operator, "What an experiment found")
            .in_words("report on the experiment", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = LabReport;
}

/// What an experiment found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabReport {
    /// What the page of a report shows.
    pub document: serde_json::Value,
    /// The experiment's text.
    pub experiment: String,
    /// Variants that are better than the baseline, the best first.
    pub verdicts: Vec<LabVerdict>,
}

/// A variant that is better than the baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabVerdict {
    /// Its name.
    pub variant: String,
    /// What is said of it.
    pub text: String,
    /// The properties that would be set, with their values.
    pub changes: Vec<(String, String)>,
    /// Why it cannot be had by setting properties of a dataset.
    pub why_not: Option<String>,
}

/// Asks for a comparison of what experiments found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompareLab {
    /// Their names, at least two.
    pub names: Vec<String>,
}

impl Action for CompareLab {
    const DECLARED: Declaration =
        Declaration::reads("lab-compare", Part::Lab, Role::Operator, "Compares what experiments found")
            .in_words("compare the experiments", "names");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = LabComparison;
}

/// What a comparison of experiments found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabComparison {
    /// What the page of a comparison shows.
    pub document: serde_json::Value,
}

/// Gives a dataset the properties of a variant that an experiment found to be better. What was before is
/// kept with the experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApplyLab {
    /// The experiment.
    pub name: String,
    /// The variant.
    pub variant: String,
    /// The dataset.
    pub dataset: String,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl Action for ApplyLab {
    const DECLARED: Declaration = Declaration::changes(
        "lab-apply",
        Part::Lab,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Gives a dataset the properties of a variant that an experiment found to be better",
    )
    .in_words("apply an experiment to", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = LabChanged;
}

/// What was set, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabChanged {
    /// Commands that do the same.
    pub commands: Vec<String>,
    /// What the properties were before; none where a property was not set on the dataset itself.
    pub was: Vec<(String, Option<String>)>,
    /// What goes on, and what else is to be known, each a sentence.
    pub remarks: Vec<String>,
}

/// Gives a dataset back what it had before an experiment was applied to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RevertLab {
    /// The experiment.
    pub name: String,
    /// The dataset.
    pub dataset: String,
}

impl Action for RevertLab {
    const DECLARED: Declaration = Declaration::changes(
        "lab-revert",
        Part::Lab,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Gives a dataset back what it had before an experiment was applied to it",
    )
    .in_words("revert an experiment on", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = LabReverted;
}

/// What was set back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabReverted {
    /// Commands that do the same.
    pub commands: Vec<String>,
    /// What was left as it is, and why; what goes on; each a sentence.
    pub remarks: Vec<String>,
}

/// Asks what could be changed about open pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdviseLab {
    /// The pools; all that are open where none is named.
    pub pools: Vec<String>,
}

impl Action for AdviseLab {
    const DECLARED: Declaration = Declaration::reads(
        "lab-advise",
        Part::Lab,
        Role::Operator,
        "Lists changes for open pools, with evidence, gain, cost and risk",
    )
    .in_words("advise on", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<LabAdvice>;
}

/// A change that may be worth it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabAdvice {
    /// The pool.
    pub pool: String,
    /// What to change.
    pub title: String,
    /// What was seen.
    pub evidence: String,
    /// What it gains.
    pub gain: String,
    /// What it costs.
    pub cost: String,
    /// What may go wrong.
    pub risk: String,
    /// The command that does it.
    pub command: Option<String>,
    /// The command that would prove it.
    pub prove: Option<String>,
}

/// Asks the lab's models for layouts of so many disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListLabLayouts {
    /// The number of disks, spares among them.
    pub disks: u32,
    /// The size of the smallest of them.
    pub disk_bytes: u64,
    /// Whether they rotate.
    pub rotational: bool,
    /// How many of them are kept as spares.
    pub spares: u32,
}

impl Action for ListLabLayouts {
    const DECLARED: Declaration = Declaration::reads(
        "lab-layouts",
        Part::Lab,
        Role::Operator,
        "Predicts space, safety and speed of layouts for so many disks",
    )
    .in_words("predict layouts", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<LabLayout>;
}

/// A layout of a pool, as the lab's models see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabLayout {
    /// Its vdevs, each with the number of its disks: `mirror 2 + mirror 2`.
    pub layout: String,
    /// Disks that are kept as spares beside it; those of draid are in it.
    pub spares: u32,
    /// Bytes of data that fit.
    pub usable_bytes: u64,
    /// How many disks may fail at once, whichever these are.
    pub survives: u32,
    /// The chance that data are lost within a year.
    pub chance_of_loss_per_year: Option<f64>,
    /// How long the rebuild of a failed disk takes at best, in seconds; none where nothing can be rebuilt.
    pub rebuild_seconds: Option<f64>,
    /// How long it takes at worst: where small blocks are scattered all over the disks.
    pub rebuild_seconds_at_worst: Option<f64>,
    /// Small random reads in a second.
    pub read_iops: f64,
    /// Small random writes in a second.
    pub write_iops: f64,
    /// Bytes read in a second, one after the other.
    pub read_bytes_per_second: f64,
    /// Bytes written in a second, one after the other.
    pub write_bytes_per_second: f64,
    /// What else is to be known, each a sentence.
    pub remarks: Vec<String>,
}
