//! `cenote lab new`: an experiment's file, out of a recipe, of options, or of answers to questions.

use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use lab::Experiment;
use lab::experiment::draft::{self, Draft};
use lab::experiment::presets;

use super::known_properties::OwnProperties;
use super::output_file;
use crate::output::print;

/// The new experiment.
#[derive(Debug, Args)]
pub struct NewArguments {
    /// The recipe to start from. With neither a recipe nor a workload, questions are asked
    recipe: Option<String>,
    /// Its name
    #[arg(long)]
    name: Option<String>,
    /// Target: volume, filesystem, guest, a path that begins with / or ./, an NBD or iSCSI URI,
    /// host:POOL/DATASET, existing:POOL/VOLUME. Workloads that write overwrite the data behind a URI, and
    /// with `lab run --overwrite` those of a path
    #[arg(short, long)]
    target: Option<String>,
    /// Bytes of it that are used: 256M
    #[arg(long)]
    size: Option<String>,
    /// Workload: a preset (`cenote lab presets`), or fio's rw, a size and a depth, for example randwrite,4K,8
    #[arg(short, long = "workload", value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Metric of the goal: iops, throughput, latency, latency_p99, space, cpu, memory …
    #[arg(short, long, value_name = "METRIC")]
    goal: Option<String>,
    /// Value that is success, with the metric's unit: 20000, '500 MiB/s', 5ms
    #[arg(long, value_name = "VALUE")]
    at_least: Option<String>,
    /// The same for metrics where less is better
    #[arg(long, value_name = "VALUE")]
    at_most: Option<String>,
    /// Bound that cannot be beaten: 1gbe, 10gbe, 'the network=117M'
    #[arg(long = "bound", value_name = "NAME=RATE")]
    bounds: Vec<String>,
    /// Factors, instead of the recipe's: sync=standard,always; through=nbd,process measures volumes with and
    /// without their export
    #[arg(short, long = "factor", value_name = "NAME=VALUE,…")]
    factors: Vec<String>,
    /// Which variants: each (one change at a time), full (all combinations), search, improve
    #[arg(short, long)]
    mode: Option<String>,
    /// Another layout of its pools: 'mirror 2 + mirror 2'
    #[arg(short, long)]
    layout: Option<String>,
    /// File to write, which must not exist; by default the experiment is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

impl NewArguments {
    /// Writes it.
    pub fn run(self) -> Result<()> {
        let mut draft = Draft {
            name: self.name,
            target: self.target,
            size: self.size,
            workloads: self.workloads,
            metric: self.goal,
            at_least: self.at_least,
            at_most: self.at_most,
            bounds: self.bounds,
            mode: self.mode,
            factors: self.factors,
            layout: self.layout,
        };
        let output = self.output.as_deref();
        // Before anything is asked.
        output.map_or(Ok(()), |path| output_file::require(path, self.force))?;
        let write = |text: &str| match output {
            Some(path) => output_file::write(path, text.as_bytes(), self.force),
            None => print(text),
        };
        let Some(name) = self.recipe else {
            if draft.workloads.is_empty() {
                ask(&mut draft, &mut std::io::stdin().lock())?;
            }
            let (experiment, _) = draft.experiment()?;
            require(&experiment)?;
            return write(&experiment.to_toml()?);
        };
        let recipe = super::recipe(&name)?;
        if draft == Draft::default() {
            return write(recipe.text());
        }
        let (experiment, left_out) = draft.changed(&recipe.experiment())?;
        for (name, value) in left_out {
            eprintln!("left out, because this target does not have it: {name}={value}");
        }
        require(&experiment)?;
        write(&experiment.to_toml()?)
    }
}

/// Refuses an experiment that is wrong wherever it runs, and reports what would keep it from running here and
/// now.
fn require(experiment: &Experiment) -> Result<()> {
    super::refuse(&lab::preflight::faults(experiment, &OwnProperties))?;
    let directory = super::default_directory(experiment);
    for fault in lab::preflight::faults_here(experiment, &directory, false) {
        eprintln!("it would be refused as it is: {fault}");
    }
    Ok(())
}

/// A workload that what is said before any is looked at with.
const ANY_WORKLOAD: &str = "randrw,4K";

/// What is wrong with a draft as far as it is said, wherever it runs, each by itself.
fn faults(draft: &Draft) -> Vec<String> {
    let mut draft = draft.clone();
    if draft.workloads.is_empty() {
        draft.workloads.push(ANY_WORKLOAD.to_owned());
    }
    match draft.experiment() {
        Ok((experiment, _)) => lab::preflight::faults(&experiment, &OwnProperties),
        // Several are lines below one that counts them.
        Err(error) => {
            let told = match error {
                lab::Error::Experiment(what) => what,
                error => error.to_string(),
            };
            let lines: Vec<&str> = told.lines().map(str::trim).collect();
            let each =
                if lines.len() > 1 && told.contains("things are wrong") { &lines[1..] } else { &lines[..] };
            each.iter().map(|line| (*line).to_owned()).collect()
        }
    }
}

/// Says what is wrong with an answer, which `say` adds to what was said before: so it is asked for again, and
/// no other answer is lost.
fn wrong_with(draft: &Draft, say: impl FnOnce(&mut Draft)) -> lab::Result<()> {
    let before = faults(draft);
    let mut said = draft.clone();
    say(&mut said);
    let new: Vec<String> = faults(&said).into_iter().filter(|fault| !before.contains(fault)).collect();
    if new.is_empty() { Ok(()) } else { Err(lab::Error::Experiment(new.join("; "))) }
}

/// Asks for everything that options left out. An empty line takes the value in brackets. What is said already
/// must be right: no answer would mend it.
fn ask(draft: &mut Draft, answers: &mut impl BufRead) -> Result<()> {
    super::refuse(&faults(draft))?;
    let names: Vec<String> = presets::all().into_iter().map(|preset| preset.name).collect();
    if draft.target.is_none() {
        let question = format!("Which target? {} [volume]", draft::targets());
        let check = |text: &str| {
            draft::target(text)?;
            wrong_with(draft, |said| said.target = Some(text.to_owned()))
        };
        draft.target = answered(answers, &question, check)?;
    }
    if draft.size.is_none() {
        let check = |text: &str| {
            text.parse::<lab::size::Size>().map_err(lab::Error::Experiment)?;
            wrong_with(draft, |said| said.size = Some(text.to_owned()))
        };
        draft.size = answered(answers, "How many bytes of it? [256M]", check)?;
    }
    eprintln!("What is done? {},", names.join(", "));
    while draft.workloads.is_empty() {
        let question = "or fio's rw, a size and a depth, as randwrite,4K,8";
        let check = |text: &str| {
            draft::workload(text)?;
            wrong_with(draft, |said| said.workloads.push(text.to_owned()))
        };
        let workload = answered(answers, question, check)?;
        draft.workloads.extend(workload);
    }
    if draft.metric.is_none() {
        let question = "Which metric counts? iops, throughput, latency, latency_p99, space, cpu, memory \
            [iops]";
        let check = |text: &str| {
            draft::metric(text)?;
            wrong_with(draft, |said| said.metric = Some(text.to_owned()))
        };
        draft.metric = answered(answers, question, check)?;
    }
    if draft.at_least.is_none() && draft.at_most.is_none() {
        let metric = draft::metric(draft.metric.as_deref().unwrap_or("iops"))?;
        let more = metric.more_is_better();
        let word = if more { "least" } else { "most" };
        let question = format!("Which value is success: at {word}? 20000, 500M, 5ms [nothing]");
        let say =
            |said: &mut Draft, value| *(if more { &mut said.at_least } else { &mut said.at_most }) = value;
        let check = |text: &str| {
            draft::value(metric, text)?;
            wrong_with(draft, |said| say(said, Some(text.to_owned())))
        };
        let value = answered(answers, &question, check)?;
        say(draft, value);
    }
    if draft.factors.is_empty() {
        let mut question = "Which setting is varied? volblocksize=16K,64K, sync=standard,always … [nothing]";
        loop {
            let check = |text: &str| match text.split_once('=') {
                Some((_, values)) if values.contains(',') => {
                    wrong_with(draft, |said| said.factors.push(text.to_owned()))
                }
                _ => Err(lab::Error::Experiment("write a name, '=', and at least two values".into())),
            };
            let Some(factor) = answered(answers, question, check)? else { break };
            draft.factors.push(factor);
            question = "Another? [no]";
        }
    }
    if draft.bounds.is_empty() {
        let question = "Which bound cannot be beaten, for example the network's line rate? 1gbe, 10gbe, 117M \
            [none]";
        let check = |text: &str| {
            draft::bound(text)?;
            wrong_with(draft, |said| said.bounds.push(text.to_owned()))
        };
        let bound = answered(answers, question, check)?;
        draft.bounds.extend(bound);
    }
    Ok(())
}

/// The answer to a question, asked until it is one; nothing for an empty line.
fn answered(
    answers: &mut impl BufRead,
    question: &str,
    check: impl Fn(&str) -> lab::Result<()>,
) -> Result<Option<String>> {
    loop {
        eprint!("{question}: ");
        let mut line = String::new();
        if answers.read_line(&mut line).context("cannot read the answer")? == 0 {
            eprintln!();
            bail!("the answers ended; options can say the same: cenote lab new --help");
        }
        let answer = line.trim();
        if answer.is_empty() {
            return Ok(None);
        }
        match check(answer) {
            Ok(()) => return Ok(Some(answer.to_owned())),
            Err(error) => eprintln!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_asked_for_until_they_are_right() {
        let mut draft = Draft::default();
        let mut answers = &b"disk\nvolume\n\n\nwebb\nrandwrite,4K,8\nlatency_p99\n5\n5ms\nsync\nsync=standard,always\n\n1gbe\n"[..];
        ask(&mut draft, &mut answers).unwrap();
        let experiment = draft.experiment().unwrap().0;
        assert_eq!(experiment.goal.at_most, Some(5e6));
        assert_eq!((experiment.factors.len(), experiment.bounds.len()), (1, 1));
        assert_eq!(experiment.workloads[0].name, "4K randwrite, depth 8");
        assert!(ask(&mut Draft::default(), &mut &b"volume\n"[..]).is_err(), "they ended");
    }

    #[test]
    fn what_does_not_go_with_the_answers_before_is_asked_for_again_at_its_question() {
        let mut draft = Draft::default();
        // Too small; files on a volume; a size that no volume has, a property of filesystems, one that is
        // there already.
        let mut answers = &b"volume\n1K\n64M\ncreate,4K\nrandwrite,4K\n\n\nvolblocksize=17K,16K\nrecordsize=4K,8K\nvolblocksize=8K,16K\nvolblocksize=4K,8K\nsync=standard,always\n\n\n"[..];
        ask(&mut draft, &mut answers).unwrap();
        assert!(answers.is_empty());
        assert!(faults(&draft).is_empty());
        assert_eq!(draft.factors, ["volblocksize=8K,16K", "sync=standard,always"]);
        assert_eq!(
            (draft.size.as_deref(), draft.workloads.as_slice()),
            (Some("64M"), &["randwrite,4K".to_owned()][..])
        );
        let told =
            wrong_with(&draft, |said| said.factors.push("missing=0,1".into())).unwrap_err().to_string();
        assert!(told.starts_with("experiment: missing=1: layout '1'"), "{told}");
        // What was said with options is told before anything is asked.
        let mut wrong = Draft { factors: vec!["volblocksize=17K,16K".into()], ..Draft::default() };
        let error = ask(&mut wrong, &mut &b""[..]).unwrap_err().to_string();
        assert!(error.contains("volblocksize=17K"), "{error}");
    }
}
