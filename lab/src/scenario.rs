//! Scenarios: fixed stories with faults, each measured as it goes, and the report of one.
//!
//! A recipe compares settings by repeated runs of fio. A scenario plays a story once, with a pool of its own:
//! a disk dies, memory flips bits, disks are replaced. The program that has the engine plays it and hands its
//! [`Results`] over; this module knows which scenarios there are and writes their reports.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::report;
use crate::report::document::{self, Block, Class, Document};
use crate::{store, table};

pub use crate::models::bytes;
pub use crate::report::document::Unit;

/// A story by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The question that it answers.
    pub about: &'static str,
}

/// All of them.
pub const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "scrub-of-death",
        about: "scrubs with memory and controllers that flip bits: what they overwrite, what is lost, what \
            the next scrub mends",
    },
    Scenario {
        name: "resilver",
        about: "a dead disk replaced in a mirror, a raidz1 and a raidz2 of modelled disks, idle and under \
            load, against `model rebuild`",
    },
    Scenario {
        name: "grow",
        about: "all disks replaced by larger ones, mirrors against raidz: time, bytes moved, and when the \
            space appears",
    },
];

/// The scenario `name`.
pub fn find(name: &str) -> Option<Scenario> {
    SCENARIOS.into_iter().find(|scenario| scenario.name == name)
}

/// One bar of a plot.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    /// The text before it.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The text behind it.
    pub text: String,
    /// Whether it stands out as bad.
    pub is_bad: bool,
}

/// A plot of bars.
#[derive(Debug, Clone, Serialize)]
pub struct Plot {
    /// What its bars show.
    pub title: String,
    /// The unit of their values.
    pub unit: Unit,
    /// The bars, from above.
    pub bars: Vec<Bar>,
}

/// A part of a report: a table, sentences about it, plots.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// Its heading.
    pub title: String,
    /// The headings of the table's columns.
    pub head: Vec<&'static str>,
    /// The rows of the table.
    pub rows: Vec<Vec<String>>,
    /// What the rows mean.
    pub sentences: Vec<String>,
    /// The plots.
    pub plots: Vec<Plot>,
}

/// What came of a scenario.
#[derive(Debug, Clone)]
pub struct Results {
    /// The scenario.
    pub scenario: Scenario,
    /// Whether it was the quick form.
    pub is_quick: bool,
    /// What a reader must know first: that devices are modelled, for example.
    pub caution: Option<String>,
    /// The parts of the report.
    pub parts: Vec<Part>,
    /// How it was measured.
    pub facts: Vec<String>,
    /// All figures, for programs.
    pub figures: Value,
}

impl Results {
    /// For terminals.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.scenario.name, self.scenario.about);
        text.extend(self.caution.iter().map(|caution| format!("{caution}\n")));
        for part in &self.parts {
            text.push_str(&format!("\n{}\n\n{}", part.title, table::plain(&part.head, &part.rows)));
            if !part.sentences.is_empty() {
                text.push('\n');
            }
            text.extend(part.sentences.iter().map(|sentence| format!("- {sentence}\n")));
        }
        text
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n", self.scenario.name, self.scenario.about);
        text.extend(self.caution.iter().map(|caution| format!("\n**{caution}**\n")));
        for part in &self.parts {
            let rows: Vec<Vec<String>> = part.all_rows().collect();
            text.push_str(&format!("\n## {}\n\n{}\n", part.title, table::markdown(&rows)));
            text.extend(part.sentences.iter().map(|sentence| format!("- {sentence}\n")));
        }
        text.push_str("\n## How it was measured\n\n");
        text.extend(self.facts.iter().map(|fact| format!("- {fact}\n")));
        text
    }

    /// As what the page shows.
    pub fn document(&self) -> Document {
        let mut document = Document::new(self.scenario.name, self.scenario.about);
        document.notes.extend(self.caution.clone());
        document.blocks = self.parts.iter().flat_map(Part::blocks).collect();
        document.facts.clone_from(&self.facts);
        document
    }

    /// As a page that needs nothing else.
    ///
    /// # Errors
    /// This program has no page for documents.
    pub fn page(&self) -> Result<String> {
        report::page(&self.document())
    }

    /// For programs: everything.
    ///
    /// # Errors
    /// A figure cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        let whole = json!({
            "scenario": self.scenario.name,
            "about": self.scenario.about,
            "quick": self.is_quick,
            "caution": self.caution,
            "version": env!("CARGO_PKG_VERSION"),
            "figures": self.figures,
            "parts": self.parts,
            "facts": self.facts,
            "document": self.document(),
        });
        let text = serde_json::to_string_pretty(&whole);
        let text =
            text.map_err(|error| Error::Results { path: "report.json".into(), what: error.to_string() })?;
        Ok(text + "\n")
    }

    /// Writes all forms into a directory. Returns their paths, the page first.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let forms =
            [("report.html", self.page()?), ("report.md", self.markdown()), ("report.json", self.json()?)];
        let write = |(name, text): (&str, String)| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Error::file(&path))?;
            Ok(path)
        };
        forms.into_iter().map(write).collect()
    }
}

impl Part {
    fn all_rows(&self) -> impl Iterator<Item = Vec<String>> {
        let head = self.head.iter().map(|it| (*it).to_owned()).collect();
        std::iter::once(head).chain(self.rows.iter().cloned())
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::heading(2, &self.title), Block::table(self.all_rows().collect())];
        if !self.sentences.is_empty() {
            blocks.push(Block::list(self.sentences.clone()));
        }
        for plot in &self.plots {
            blocks.push(Block::heading(3, &plot.title));
            blocks.push(plot.block());
        }
        blocks
    }
}

impl Plot {
    fn block(&self) -> Block {
        let bar = |bar: &Bar| {
            let value = document::finite(bar.value);
            let class = if bar.is_bad { Class::Worse } else { Class::Same };
            let (label, text) = (bar.label.clone(), bar.text.clone());
            document::Bar { label, text, value, low: value, high: value, class }
        };
        Block::Bars { unit: self.unit, bars: self.bars.iter().map(bar).collect(), lines: Vec::new() }
    }
}

/// Makes a directory for results, which must be empty or not exist yet.
///
/// # Errors
/// It holds something, or cannot be made.
pub fn make_directory(directory: &Path) -> Result<()> {
    store::require_free(directory)?;
    fs::create_dir_all(directory).map_err(Error::file(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_its_table_and_sentences_in_every_form() {
        let bar = |value, is_bad| Bar { label: "bad<label".into(), value, text: "x".into(), is_bad };
        let part = Part {
            title: "mirror of 2".into(),
            head: vec!["fault", "lost"],
            rows: vec![vec!["bad memory".into(), "0".into()]],
            sentences: vec!["Nothing is lost.".into()],
            plots: vec![Plot {
                title: "lost".into(),
                unit: Unit::Count,
                bars: vec![bar(1.0, true), bar(2.0, false)],
            }],
        };
        let results = Results {
            scenario: SCENARIOS[0],
            is_quick: true,
            caution: Some("modelled".into()),
            parts: vec![part],
            facts: vec!["once".into()],
            figures: json!([1]),
        };
        for form in [results.text(), results.markdown(), results.page().unwrap(), results.json().unwrap()] {
            for word in ["scrub-of-death", "bad memory", "Nothing is lost.", "modelled"] {
                assert!(form.contains(word), "{word}: {form}");
            }
        }
        let document = results.document();
        assert!(document.texts().contains("\nbad<label\n") && document.facts == ["once"], "{document:?}");
        let Some(Block::Bars { bars, unit: Unit::Count, .. }) = document.blocks.last() else {
            panic!("{document:?}")
        };
        assert_eq!(bars.iter().map(|bar| bar.class).collect::<Vec<_>>(), [Class::Worse, Class::Same]);
        assert!(!results.page().unwrap().contains("bad<label"), "it is written otherwise in a script");
        let json: Value = serde_json::from_str(&results.json().unwrap()).unwrap();
        assert_eq!(json["document"], serde_json::to_value(&document).unwrap());
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(results.write(directory.path()).unwrap().len(), 3);
        assert!(make_directory(directory.path()).is_err(), "it is not empty");
        make_directory(&directory.path().join("new")).unwrap();
    }

    #[test]
    fn a_scenario_has_no_name_of_a_recipe() {
        assert!(SCENARIOS.iter().all(|scenario| crate::recipes::find(scenario.name).is_none()));
        assert_eq!(find("grow"), Some(SCENARIOS[2]));
        assert_eq!(find("volblocksize"), None);
    }
}
