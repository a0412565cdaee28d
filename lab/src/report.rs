//! Findings for people and programs.
//!
//! Each form says the same. A [`document::Document`] has all of it as data: tables, sentences and plots, in the
//! order in which they are read.
//!
//! | form | from |
//! |---|---|
//! | `report.html` | the document, in the one page that shows all documents ([`page()`]) |
//! | `report.md`, and the terminal | the same tables and sentences, without plots |
//! | `report.json` | findings, experiment and machine; the document; and [`verdicts`](Verdict): what to set |
//! | `report.csv` | a line for each run |

mod choices;
pub mod document;
mod figures;
mod grid;
mod guests;
mod markdown;
mod page;
mod section;
mod shown;
mod subject;
mod verdicts;
mod workloads;

use std::path::PathBuf;

use serde::Serialize;

use section::Section;

use crate::analysis::{self, Findings};
use crate::counters::Layers;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Metric};
use crate::store::{Run, Stage, Store};

pub use crate::metric::written;

/// Writes the report in all its forms; where they are, the HTML first.
pub fn write(store: &Store) -> Result<Vec<PathBuf>> {
    let findings = analysis::findings(store);
    let json = json(store, &findings)?;
    Ok(vec![
        store.write("report.html", &page(&document_of(store, &findings))?)?,
        store.write("report.md", &markdown(store, &findings))?,
        store.write("report.csv", &csv(store, &findings))?,
        store.write("report.json", &json)?,
    ])
}

/// For programs: the findings, and beside them the experiment, the machine, the tables (`sections`), what is
/// to be heeded (`cautions`), how it was measured (`facts`), what to set (`verdicts`), and all that the page
/// shows (`document`).
pub fn json(store: &Store, findings: &Findings) -> Result<String> {
    let experiment = store.experiment();
    let cautions = experiment.workloads.iter();
    let whole = Whole {
        findings,
        experiment,
        environment: store.environment(),
        layer_names: Layers::NAMES,
        sections: choices::all(experiment, findings)
            .into_iter()
            .chain(choices::last(experiment, findings))
            .collect(),
        cautions: cautions
            .filter_map(|workload| {
                let text = choices::caution(experiment, findings, workload)?;
                Some(Caution { workload: &workload.name, text })
            })
            .collect(),
        facts: markdown::facts(store, findings),
        verdicts: verdicts::all(experiment, findings),
        document: document_of(store, findings),
    };
    serde_json::to_string_pretty(&whole)
        .map_err(|error| Error::Results { path: store.directory().to_owned(), what: error.to_string() })
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    findings: &'a Findings,
    experiment: &'a Experiment,
    environment: &'a Environment,
    /// The parts of `layers`.
    layer_names: [&'static str; Layers::NAMES.len()],
    sections: Vec<Section>,
    cautions: Vec<Caution<'a>>,
    facts: Vec<String>,
    verdicts: Vec<Verdict>,
    document: Document,
}

/// A warning against misreading a workload's figures.
#[derive(Serialize)]
struct Caution<'a> {
    workload: &'a str,
    text: String,
}

use document::Document;
pub use markdown::{brief, markdown};
pub use page::page;
pub use shown::document_of;
pub use verdicts::Verdict;

/// Every run, a line each, with its number, and what of the experiment is modelled and what is missing.
pub fn csv(store: &Store, findings: &Findings) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let modelled = store.experiment().modelled().map_or_else(String::new, |models| quoted(&models));
    let unfinished = findings.unfinished.as_deref().map_or_else(String::new, quoted);
    let mut text = String::from("run,stage,round,variant,workload,began,modelled,unfinished");
    for metric in Metric::ALL {
        text.push_str(&format!(",{}", metric.title().replace(' ', "_")));
    }
    for layer in Layers::NAMES {
        text.push_str(&format!(",written_{}_bytes", layer.replace(' ', "_")));
    }
    text.push_str(",read_to_write_bytes\n");
    for (number, run) in store.runs().iter().enumerate() {
        text.push_str(&format!(
            "{},{},{},{},{},{},{modelled},{unfinished}",
            number + 1,
            match run.stage {
                Stage::Search => "search",
                Stage::Rounds => "rounds",
                Stage::Torn => "interrupted",
                Stage::LeftOut => "left out",
            },
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
        let layers = run.served.and_then(|served| served.layers);
        let layers = layers.map_or([None; Layers::NAMES.len()], |layers| layers.bytes());
        for bytes in layers.into_iter().chain([run.read_to_write()]) {
            let bytes = bytes.map_or_else(String::new, |bytes| bytes.to_string());
            text.push_str(&format!(",{bytes}"));
        }
        text.push('\n');
    }
    text
}

/// All that is kept of a run, by its number: what was done, its figures, what the process that serves
/// counted, what became of each byte, what happened within it; and the whole output of fio, or of the program
/// that did the work instead.
pub fn of_run(store: &Store, number: usize) -> Result<String> {
    let said = store.fio_json(number)?;
    let failed = |what: String| Error::Results {
        path: store.directory().to_owned(),
        what: format!("run {number}: {what}"),
    };
    let run = number.checked_sub(1).and_then(|at| store.runs().get(at));
    let run = run.ok_or_else(|| failed("it is not among the runs".into()))?;
    let all = OfRun {
        number,
        modelled: store.experiment().modelled(),
        run,
        fio: serde_json::from_str(&said).unwrap_or(serde_json::Value::String(said)),
    };
    serde_json::to_string_pretty(&all)
        .map(|text| format!("{text}\n"))
        .map_err(|error| failed(error.to_string()))
}

#[derive(Serialize)]
struct OfRun<'a> {
    number: usize,
    modelled: Option<String>,
    run: &'a Run,
    fio: serde_json::Value,
}

/// Which metrics of a workload have useful values, the goal's first.
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
    use crate::counters::Counters;
    use crate::experiment::Experiment;
    use crate::fio::Figures;
    use crate::machine::Busy;

    /// Two rounds of an experiment on a target.
    fn store(target: &str) -> Store {
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n{target}\n[[factor]]\nname = \
             \"f\"\nvalues = [\"0\", \"1\"]\n\
             [[workload]]\nname = \"w\"\nrw = \"read\"\n"
        );
        let run = |round: usize, variant: &str| Run {
            round,
            command: vec!["fio".into()],
            figures: Figures { iops: 100.0 + round as f64, ..Figures::default() },
            ..Run::of(Stage::Rounds, variant, "w")
        };
        let mut store = Store::in_memory(Experiment::parse(&text).unwrap());
        for (round, variant) in [(0, "baseline"), (0, "f=1"), (1, "baseline"), (1, "f=1")] {
            store.add(&run(round, variant), "{\"jobs\": [1]}").unwrap();
        }
        store
    }

    #[test]
    fn what_is_modelled_is_labelled_so_in_every_form() {
        for (target, models) in [("devices = \"hdd-7200\"", Some("hdd-7200")), ("", None)] {
            let store = store(target);
            let findings = analysis::findings(&store);
            assert_eq!(findings.modelled.as_deref(), models);
            let json: serde_json::Value =
                serde_json::from_str(&super::json(&store, &findings).unwrap()).unwrap();
            assert_eq!(json["modelled"].as_str(), models);
            let csv = csv(&store, &findings);
            let (head, run) = csv.split_once('\n').unwrap();
            let column = head.split(',').position(|title| title == "modelled").unwrap();
            let of_run = run.split(',').nth(column).unwrap().trim_matches('"');
            assert_eq!(of_run, models.unwrap_or_default());
            let shown: serde_json::Value = serde_json::from_str(&super::of_run(&store, 1).unwrap()).unwrap();
            assert_eq!(shown["modelled"].as_str(), models);
            for text in [markdown(&store, &findings), document_of(&store, &findings).texts()] {
                assert_eq!(text.contains("Modelled: hdd-7200."), models.is_some(), "{text}");
            }
        }
    }

    #[test]
    fn every_form_tells_how_busy_the_machine_was() {
        let mut store = store("");
        assert!(!markdown(&store, &analysis::findings(&store)).contains("load in the minute"));
        for (round, load) in [(2, "0.50 9 9"), (3, "2.50 9 9"), (4, "0.70 9 9")] {
            let busy = Some(Busy { load: load.into(), ..Busy::default() });
            let run = Run { round, busy, ..store.runs()[0].clone() };
            store.add(&run, "{}").unwrap();
        }
        let findings = analysis::findings(&store);
        let governor = store.environment().governor.clone();
        for text in [markdown(&store, &findings), document_of(&store, &findings).texts()] {
            assert!(text.contains("0.70 in the median, 0.50 to 2.50."), "{text}");
            assert_eq!(text.contains(", governor "), governor.is_some(), "{text}");
        }
    }

    #[test]
    fn programs_are_told_what_the_page_says() {
        let store = store("");
        let findings = analysis::findings(&store);
        let text = super::json(&store, &findings).unwrap();
        let told: Findings = serde_json::from_str(&text).unwrap();
        assert_eq!((told.verdict, told.findings.len()), (findings.verdict.clone(), findings.findings.len()));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["experiment"]["name"].as_str(), Some(store.experiment().name.as_str()));
        assert!(json["environment"].is_object());
        let page = document_of(&store, &findings).texts();
        let facts: Vec<&str> =
            json["facts"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        assert!(facts.iter().all(|fact| page.contains(fact)) && facts.len() > 3, "{facts:?}");
        let titles: Vec<&str> =
            json["sections"].as_array().unwrap().iter().filter_map(|it| it["title"].as_str()).collect();
        assert!(titles.contains(&"The runs behind the figures"), "{titles:?}");
        let shown = serde_json::to_string(&document_of(&store, &findings)).unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(json["document"], shown);
        assert_eq!(
            (shown["title"].as_str(), json["verdicts"].as_array().map(Vec::len)),
            (Some("x"), Some(0))
        );
        assert!(titles.iter().all(|title| page.contains(title)), "{titles:?}");
    }

    #[test]
    fn a_table_for_programs_has_where_written_bytes_of_each_run_went() {
        let mut store = store("");
        let layers = Layers {
            logical: 11,
            compressed: 12,
            allocated: 13,
            mirrored: Some(26),
            metadata: 14,
            log: 15,
            device: 60,
        };
        let served = Some(Counters { layers: Some(layers), read_bytes: 17, ..Counters::default() });
        let figures = Figures { written_bytes: 10, ..Figures::default() };
        let run = Run { served, figures, ..store.runs()[0].clone() };
        store.add(&run, "{}").unwrap();
        let csv = csv(&store, &analysis::findings(&store));
        let last = csv.lines().last().unwrap();
        let head = csv.lines().next().unwrap();
        assert!(head.contains(",written_allocated_bytes,written_mirrored_bytes,"), "{head}");
        assert!(head.ends_with(",written_devices_bytes,read_to_write_bytes"), "{head}");
        assert!(last.ends_with(",11,12,13,26,14,15,60,17"), "{last}");
        // What was read for a client that reads is not told apart.
        assert!(csv.lines().nth(1).unwrap().ends_with(",,,,,,,,"), "{csv}");
        let only = Store::of_runs(store.experiment().clone(), vec![run]);
        let findings = analysis::findings(&only);
        assert_eq!(findings.layers[0].layers[3], Some(2.6));
        for form in [markdown(&only, &findings), document_of(&only, &findings).texts()] {
            assert!(form.contains("on all mirrors") && form.contains("2.60"), "{form}");
        }
        let json: serde_json::Value = serde_json::from_str(&super::json(&only, &findings).unwrap()).unwrap();
        assert_eq!(
            (json["layer_names"][3].as_str(), json["layers"][0]["layers"][3].as_f64()),
            (Some("mirrored"), Some(2.6))
        );
    }

    #[test]
    fn programs_are_told_which_workload_a_caution_is_of() {
        let store = store("");
        let layers = Layers { logical: 1, device: 2, ..Layers::default() };
        let served = Some(Counters { layers: Some(layers), ..Counters::default() });
        let figures = Figures { written_bytes: 10, iops: 1.0, ..Figures::default() };
        let run = Run { served, figures, ..store.runs()[0].clone() };
        let store = Store::of_runs(store.experiment().clone(), vec![run]);
        let json = super::json(&store, &analysis::findings(&store)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let cautions = json["cautions"].as_array().unwrap();
        assert!(cautions.len() == 1 && cautions[0]["workload"] == "w", "{cautions:?}");
        assert!(cautions[0]["text"].as_str().unwrap().starts_with("Only 10 %"), "{cautions:?}");
    }

    #[test]
    fn what_is_missing_stands_on_top_of_every_form() {
        let mut store = store("");
        let of = |store: &Store| {
            let findings = analysis::findings(store);
            let forms = [
                markdown(store, &findings),
                document_of(store, &findings).texts(),
                csv(store, &findings),
                super::json(store, &findings).unwrap(),
            ];
            (findings.unfinished, forms)
        };
        // No round of the four runs has all five that were planned.
        let (unfinished, forms) = of(&store);
        let unfinished = unfinished.unwrap();
        assert!(
            unfinished.starts_with("Unfinished: 0 of 5 rounds are complete, 4 of 20 runs"),
            "{unfinished}"
        );
        let top = |form: &str, told: &str| {
            form.find(told).is_some_and(|at| at < form.find("No other choice").unwrap_or(0))
        };
        assert!(top(&forms[0], &unfinished) && top(&forms[1], &unfinished), "{forms:?}");
        assert!(forms[..2].iter().all(|form| !form.contains("keep that")), "{forms:?}");
        assert!(forms[2..].iter().all(|form| form.contains("Unfinished: 0 of 5 rounds")), "{forms:?}");
        let plan = crate::found::plan(&store);
        let first = store.runs()[0].clone();
        for round in 0..5 {
            for step in plan.round(round) {
                let variant = plan.variants()[step.variant].name.clone();
                if !store.has(round, &variant, "w") {
                    store.add(&Run { round, variant, ..first.clone() }, "{}").unwrap();
                }
            }
        }
        let (unfinished, forms) = of(&store);
        assert_eq!(unfinished, None);
        assert!(forms[0].contains("f=0: keep that."), "{}", forms[0]);
        assert!(forms.iter().all(|form| !form.contains("Unfinished")));
    }

    #[test]
    fn two_rounds_of_two_are_finished_and_tell_little() {
        let mut store = store("");
        let first = store.runs()[0].clone();
        let two = Experiment { rounds: 2, ..store.experiment().clone() };
        let plan = crate::found::plan(&store);
        let mut runs = Vec::new();
        for round in 0..2 {
            for step in plan.round(round) {
                let variant = plan.variants()[step.variant].name.clone();
                runs.push(Run { round, variant, ..first.clone() });
            }
        }
        store = Store::of_runs(two.clone(), runs.clone());
        let findings = analysis::findings(&store);
        assert_eq!((findings.rounds, &findings.unfinished), (2, &None));
        assert!(findings.few.as_ref().is_some_and(|few| few.starts_with("Two rounds only")));
        for form in [markdown(&store, &findings), document_of(&store, &findings).texts()] {
            assert!(form.contains("Two rounds only") && !form.contains("keep that"), "{form}");
        }
        // If the user asked for more since, it is not finished.
        let more = Store::of_runs(Experiment { more_rounds: Some(3), ..two }, runs);
        assert!(analysis::findings(&more).unfinished.is_some_and(|told| told.contains("2 of 3 rounds")));
    }

    #[test]
    fn a_run_is_shown_with_all_that_is_kept_of_it() {
        let store = store("");
        let shown: serde_json::Value = serde_json::from_str(&of_run(&store, 4).unwrap()).unwrap();
        assert_eq!(
            (shown["run"]["variant"].as_str(), shown["run"]["figures"]["iops"].as_f64()),
            (Some("f=1"), Some(101.0))
        );
        assert_eq!((shown["number"].as_u64(), shown["fio"]["jobs"][0].as_u64()), (Some(4), Some(1)));
        assert!(of_run(&store, 0).is_err() && of_run(&store, 5).is_err());
        // Each figure on the page has the numbers of its runs.
        let shown = document_of(&store, &analysis::findings(&store)).texts();
        assert!(shown.contains("\nruns\n") && shown.contains("\n2 4\n"), "{shown}");
    }

    #[test]
    fn figures_have_units_and_few_digits() {
        for (metric, value, text) in [
            (Metric::Iops, 12345.0, "12.3k"),
            (Metric::Iops, 345.4, "345"),
            (Metric::Throughput, 1048576.0 * 1.5, "1.50 MiB/s"),
            (Metric::Latency, 41_740.0, "41.7 us"),
            (Metric::LatencyP99, 217_056_000.0, "217 ms"),
            (Metric::LatencyP99, 2_420_000_000.0, "2.42 s"),
            (Metric::Space, 0.5, "0.50"),
        ] {
            assert_eq!(written(metric, value), text);
        }
    }
}
