//! What an experiment would do, as words and for programs: its variants and workloads, what becomes of what
//! it names, and what it takes.

use serde::Serialize;

use super::space;
use crate::experiment::Experiment;
use crate::plan::{Plan, Variant, VariantKind};
use crate::site::Named;
use crate::size::Size;

/// The plan, for programs.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Planned {
    /// The experiment's name.
    pub name: String,
    /// What it asks.
    pub question: String,
    /// All that is wrong with it, each a sentence. The rest is as far as it is known then.
    pub faults: Vec<String>,
    /// What else is to be known, each a sentence.
    pub remarks: Vec<String>,
    /// The variants that are compared, by their names.
    pub variants: Vec<String>,
    /// The workloads, by their names.
    pub workloads: Vec<String>,
    /// Rounds, at least.
    pub rounds: usize,
    /// Runs in these, and of a search.
    pub runs: usize,
    /// How long measuring takes, in seconds, without the filling.
    pub seconds: f64,
    /// Bytes that its pools and files take while it runs.
    pub space_bytes: u64,
    /// Bytes of the largest cache that a variant has, where the experiment says.
    pub memory_bytes: Option<u64>,
}

/// The plan with these faults, for programs.
pub fn planned(experiment: &Experiment, faults: Vec<String>, mut remarks: Vec<String>) -> Planned {
    let named = Planned {
        name: experiment.name.clone(),
        question: experiment.question.clone(),
        workloads: experiment.workloads.iter().map(|workload| workload.name.clone()).collect(),
        ..Planned::default()
    };
    // Of what contradicts itself, there is no plan.
    if !experiment.faults().is_empty() {
        return Planned { faults, remarks, ..named };
    }
    let plan = Plan::new(experiment, None, experiment.seed());
    remarks.extend(of_target(experiment));
    let left_out = plan.left_out(experiment);
    remarks.extend(left_out.map(|(variant, workloads)| left_out_words(experiment, variant, &workloads)));
    let (runs, seconds) = cost(experiment, &plan);
    let pools = plan.variants().iter().filter(|variant| variant.kind != VariantKind::Device);
    let caches = pools.map(|variant| variant.settings.get("arc_max")?.parse::<Size>().ok());
    let largest = caches.collect::<Option<Vec<Size>>>().and_then(|sizes| sizes.into_iter().max());
    Planned {
        faults,
        remarks,
        variants: plan.variants().iter().map(|variant| variant.name.clone()).collect(),
        rounds: experiment.least_rounds(),
        runs,
        seconds,
        space_bytes: space(experiment).map_or_else(|| of_files(experiment), |(together, _)| together.0),
        memory_bytes: largest.map(|size| size.0),
        ..named
    }
}

/// Runs at least, and about how long they take, in seconds.
fn cost(experiment: &Experiment, plan: &Plan) -> (usize, f64) {
    let runs = plan.round_length() * experiment.least_rounds() + experiment.search_runs();
    let seconds: f64 = experiment.workloads.iter().map(|it| it.seconds + it.ramp_seconds).sum();
    (runs, seconds / experiment.workloads.len().max(1) as f64 * runs as f64)
}

/// Bytes of files that are made because they are not there.
fn of_files(experiment: &Experiment) -> u64 {
    let paths = experiment.target.paths();
    let made = paths.iter().filter(|path| !path.exists() || path.is_dir()).count() as u64;
    made.saturating_mul(experiment.target.size().0)
}

/// What becomes of what the target names, a line each.
fn of_target(experiment: &Experiment) -> Vec<String> {
    let mut all = Vec::new();
    let size = experiment.target.size();
    let overwrites = experiment.design().overwrites();
    for path in experiment.target.paths() {
        let what = match (path.exists(), overwrites) {
            (false, true) => "made and filled, as it is not there, and written",
            (false, false) => "made and filled, as it is not there, and then only read",
            (true, _) if path.is_dir() => "files of the lab's own are made in it and written",
            (true, true) => "written",
            (true, false) => "only read",
        };
        all.push(format!("{} of {}: {what}", size, path.display()));
    }
    let what = if overwrites { "written" } else { "only read" };
    all.extend(experiment.target.uris().iter().map(|uri| format!("{size} of {uri}: {what}")));
    all.extend(experiment.target.elsewhere().map(|layer| format!("{size} of {}: {what}", layer.title())));
    if let Some(Named::Volume(volume)) = experiment.target.named().first() {
        all.push(format!("{size} of {volume}: {what}, and its properties are set back afterwards"));
    }
    for disk in experiment.target.disks() {
        all.push(format!("{}: a pool is made of it, which overwrites it", disk.display()));
    }
    all
}

/// The plan in words.
pub fn told(experiment: &Experiment) -> String {
    let plan = Plan::new(experiment, None, experiment.seed());
    let rounds = experiment.least_rounds();
    let (runs, seconds) = cost(experiment, &plan);
    let mut text = format!("{}: {}\n", experiment.name, experiment.question);
    for line in of_target(experiment) {
        text.push_str(&format!("{line}\n"));
    }
    if plan.turns() > 1 {
        text.push_str(&format!("{} {}\n", plan.turns(), experiment.target.facts().turns.planned));
    }
    text.push_str(&format!("{}:\n", counted(plan.variants().len(), "variant")));
    for variant in plan.variants() {
        let settings: Vec<String> =
            variant.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text.push_str(&format!("  {}: {}\n", variant.name, settings.join(" ")));
    }
    for (variant, workloads) in plan.left_out(experiment) {
        text.push_str(&format!("{}\n", left_out_words(experiment, variant, &workloads)));
    }
    text.push_str(&format!("{}:\n", counted(experiment.workloads.len(), "workload")));
    for workload in &experiment.workloads {
        let (rw, bs, depth, seconds) = (&workload.rw, workload.bs, workload.iodepth, workload.seconds);
        let most = if workload.trace.is_some() { ", or as long as its trace is" } else { "" };
        // fio prefers several sizes to one.
        let sizes =
            workload.options.get("bssplit").map_or_else(|| bs.to_string(), |many| format!("bssplit={many}"));
        let jobs = workload.options.get("numjobs").filter(|jobs| *jobs != "1");
        let jobs = jobs.map_or_else(String::new, |jobs| format!(" in each of {jobs} jobs"));
        let rest =
            workload.options.iter().filter(|(name, _)| !["bssplit", "numjobs"].contains(&name.as_str()));
        let rest: String = rest.map(|(name, value)| format!(", {name}={value}")).collect();
        text.push_str(&format!(
            "  {}: {rw} {sizes}, depth {depth}{jobs}{rest}, {seconds} s{most}\n",
            workload.name
        ));
    }
    let most = if experiment.workloads.iter().any(|it| it.trace.is_some()) { "at most" } else { "about" };
    text.push_str(&format!(
        "{runs} runs in {rounds} rounds{}: {most} {seconds:.0} s of measuring, and the filling\n",
        experiment.max_rounds.map_or_else(String::new, |most| format!(" at least, {most} at most")),
    ));
    text
}

/// So many of something.
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Which of its workloads a variant is not run with, and why.
pub fn left_out_words(experiment: &Experiment, variant: &Variant, workloads: &[&str]) -> String {
    let with = match workloads.len() == experiment.workloads.len() {
        true => String::new(),
        false => format!(" with {}", workloads.join(", ")),
    };
    if let Some(why) = experiment.target.fault_of_settings(&variant.settings) {
        return format!("Left out: {}{with}: {why}.", variant.name);
    }
    format!("Left out: {}{with}, as its layout does not survive so many missing devices.", variant.name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn experiment(workload: &str) -> Experiment {
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[workload]]\nname = \
             \"w\"\n{workload}\n"
        );
        Experiment::read(&text).unwrap()
    }

    #[test]
    fn options_of_workloads_are_told() {
        let of = |options: &str| {
            told(&experiment(&format!("rw = \"randrw\"\niodepth = 8\noptions = {{ {options} }}")))
        };
        let text = of("numjobs = \"2\", rate = \"1m\", thinktime = \"5\"");
        assert!(text.contains("randrw 4K, depth 8 in each of 2 jobs, rate=1m, thinktime=5, "), "{text}");
        let text = of("bssplit = \"8k/50:64k/50\"");
        assert!(text.contains("randrw bssplit=8k/50:64k/50, depth 8, "), "{text}");
    }

    #[test]
    fn what_is_made_is_not_told_as_only_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("theirs"), "x").unwrap();
        fs::create_dir(at("directory")).unwrap();
        for (name, rw, what) in [
            ("theirs", "read", "theirs: only read\n"),
            ("theirs", "write", "theirs: written\n"),
            ("new", "read", "new: made and filled, as it is not there, and then only read\n"),
            ("new", "write", "new: made and filled, as it is not there, and written\n"),
            ("directory", "read", "directory: files of the lab's own are made in it and written\n"),
        ] {
            let text = format!(
                "name = \"x\"\n[target]\nkind = \"path\"\npath = \"{}\"\nsize = \"1M\"\n[[workload]]\nname = \
                 \"w\"\nrw = \"{rw}\"\n",
                at(name).display()
            );
            let told = told(&Experiment::parse(&text).unwrap());
            assert!(told.contains(what), "{told}");
        }
    }

    #[test]
    fn programs_get_the_plan_of_what_has_one() {
        let text = "name = \"x\"\nquestion = \"Why?\"\nrounds = 3\n[target]\nkind = \"volume\"\nsize = \
                    \"64M\"\n[settings]\narc_max = \"128M\"\n[[factor]]\nname = \"sync\"\nvalues = \
                    [\"standard\", \"always\"]\n[[workload]]\nname = \"w\"\nrw = \"randwrite\"\nseconds = \
                    5\n";
        let told = planned(&Experiment::read(text).unwrap(), Vec::new(), vec!["a".into()]);
        assert_eq!((told.question.as_str(), told.rounds), ("Why?", 3));
        assert_eq!(told.runs, 3 * told.variants.len(), "{told:?}");
        assert!(told.variants.iter().any(|name| name == "sync=always"), "{told:?}");
        assert!((told.seconds - 5.0 * told.runs as f64).abs() < 1e-6, "{told:?}");
        assert!(told.space_bytes >= told.variants.len() as u64 * (64 << 20), "{told:?}");
        assert_eq!((told.memory_bytes, told.remarks.len()), (Some(128 << 20), 1));
        let wrong = text.replace("\"64M\"", "\"1K\"");
        let wrong = Experiment::read(&wrong).unwrap();
        let told = planned(&wrong, wrong.faults(), Vec::new());
        assert!(!told.faults.is_empty() && told.runs == 0 && told.workloads == ["w"], "{told:?}");
    }
}
