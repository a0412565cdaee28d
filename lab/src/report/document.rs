//! A report as data: what the page shows, the dashboard shows, and programs read.
//!
//! # The idea
//! A [`Document`] has everything that a reader sees, in the order in which it is read, and nothing of how it
//! looks. There is one page for all reports, which the dashboard's sources make; [`super::page`] puts a
//! document into it. The dashboard shows the same document with the same components.
//!
//! | part | what it is |
//! |---|---|
//! | `title`, `question` | what was asked |
//! | `notes` | what a reader must know first: modelled, unfinished, few rounds, left out |
//! | `answer` | the answer, its first sentence the most important, and whether it is one |
//! | `blocks` | headings, sentences, tables and plots |
//! | `facts` | how it was measured |
//!
//! # Rules
//! - Texts are plain. What stands between two backticks is code; of an odd number of backticks none is. A
//!   page must show everything else as it is: names come from users.
//! - Numbers are finite (`finite`), because JSON knows no others, and in the unit that the block names:
//!   seconds, not nanoseconds. They are for drawing. What is read are the texts beside them, with units and
//!   few digits, as all other forms of the report have them.
//! - Readers who do not see a plot need its figures. Bars and percentiles have them as texts; of courses and
//!   dots the page lists them.
//!
//! The names of fields and kinds are the format; a change of their meaning is another [`VERSION`].

use serde::{Deserialize, Serialize};

use crate::metric::{Metric, written};
use crate::stats::Estimate;
use crate::table;

/// The program that makes documents.
pub const GENERATOR: &str = "cenote lab";
/// The version of the format.
pub const VERSION: u32 = 1;

/// A report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`GENERATOR`].
    pub generator: String,
    /// [`VERSION`].
    pub version: u32,
    /// Its title.
    pub title: String,
    /// The question that it answers; may be empty.
    pub question: String,
    /// What a reader must know first.
    pub notes: Vec<String>,
    /// The answer, where there is one or the reason why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// What it is made of.
    pub blocks: Vec<Block>,
    /// How it was measured.
    pub facts: Vec<String>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Sentence by sentence, the most important first.
    pub sentences: Vec<String>,
    /// Whether the first sentence is an answer, and not that it is open.
    pub is_answered: bool,
}

/// A part of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Block {
    /// A heading.
    Heading {
        /// 2 or 3.
        level: u8,
        /// Its text.
        text: String,
        /// What stands behind it in a smaller font.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        small: Option<String>,
    },
    /// A paragraph.
    Prose {
        /// Its text.
        text: String,
        /// Whether a reader must not miss it.
        #[serde(default, skip_serializing_if = "is_false")]
        strong: bool,
    },
    /// A list.
    List {
        /// Its items.
        items: Vec<String>,
        /// Whether they have numbers, from 1 on.
        #[serde(default, skip_serializing_if = "is_false")]
        ordered: bool,
    },
    /// A table.
    Table {
        /// Its rows; the first is the head.
        rows: Vec<Vec<String>>,
        /// Of each column, whether it has words rather than figures; the first always has.
        words: Vec<bool>,
        /// How good each cell is, as a logarithm (0 says nothing), without the head and the first column;
        /// empty where that is not shown.
        shades: Vec<Vec<f64>>,
    },
    /// Bars with intervals.
    Bars {
        /// The unit of their values.
        unit: Unit,
        /// The bars, from above.
        bars: Vec<Bar>,
        /// Values that no bar is expected to pass.
        lines: Vec<Line>,
    },
    /// Percentiles on a logarithmic axis that all share.
    Percentiles {
        /// The unit of their values.
        unit: Unit,
        /// A row for each variant.
        rows: Vec<Percentiles>,
    },
    /// Lines over time, from zero on.
    Courses {
        /// The unit of the values.
        unit: Unit,
        /// What goes up.
        title: String,
        /// What goes across: since when seconds are counted.
        across: String,
        /// The lines.
        courses: Vec<Course>,
    },
    /// Dots between two axes, from zero on.
    Dots {
        /// What goes across.
        x: Axis,
        /// What goes up.
        y: Axis,
        /// The dots.
        dots: Vec<Dot>,
    },
}

/// The unit of values, which says how marks of an axis are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// So many in a second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// Seconds for each gigabyte.
    SecondsPerGigabyte,
    /// A share of one.
    Share,
    /// So many times as much.
    Ratio,
}

/// A bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The text before it.
    pub label: String,
    /// The text behind it.
    pub text: String,
    /// How long it is.
    pub value: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end; may be far beyond all bars.
    pub high: f64,
    /// Its meaning.
    pub class: Class,
}

/// What a bar means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// All others are compared with it.
    Baseline,
    /// It is what cannot be beaten.
    Limit,
    /// It is certainly better than the baseline.
    Better,
    /// It is certainly worse.
    Worse,
    /// It is neither.
    Same,
}

/// A value across bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its text.
    pub label: String,
    /// Where it stands.
    pub value: f64,
}

/// The percentiles of a variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The variant.
    pub label: String,
    /// The text behind them.
    pub text: String,
    /// The percentiles, the smallest first; all above zero.
    pub values: Vec<f64>,
}

/// A line over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// The variant.
    pub label: String,
    /// Seconds, and the value.
    pub points: Vec<(f64, f64)>,
    /// Between which values most are, at each of the points; empty where that is not shown.
    pub band: Vec<(f64, f64)>,
}

/// An axis from zero on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What is on it.
    pub title: String,
    /// Its unit.
    pub unit: Unit,
}

/// A dot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dot {
    /// Its name.
    pub label: String,
    /// How far to the right.
    pub x: f64,
    /// How far up.
    pub y: f64,
    /// Whether it is marked.
    pub marked: bool,
}

impl Document {
    /// A document without blocks.
    pub fn new(title: impl Into<String>, question: impl Into<String>) -> Self {
        Self {
            generator: GENERATOR.to_owned(),
            version: VERSION,
            title: title.into(),
            question: question.into(),
            notes: Vec::new(),
            answer: None,
            blocks: Vec::new(),
            facts: Vec::new(),
        }
    }
}

impl Block {
    /// A heading.
    pub fn heading(level: u8, text: impl Into<String>) -> Self {
        Self::Heading { level, text: text.into(), small: None }
    }

    /// A heading with a word behind it.
    pub fn heading_with(level: u8, text: impl Into<String>, small: impl Into<String>) -> Self {
        Self::Heading { level, text: text.into(), small: Some(small.into()) }
    }

    /// A paragraph.
    pub fn prose(text: impl Into<String>) -> Self {
        Self::Prose { text: text.into(), strong: false }
    }

    /// Items without numbers.
    pub fn list(items: Vec<String>) -> Self {
        Self::List { items, ordered: false }
    }

    /// Rows under the first of them.
    pub fn table(rows: Vec<Vec<String>>) -> Self {
        Self::shaded(rows, Vec::new())
    }

    /// The same with how good each cell is.
    pub fn shaded(rows: Vec<Vec<String>>, shades: Vec<Vec<f64>>) -> Self {
        let shades = shades.into_iter().map(|row| row.into_iter().map(finite).collect()).collect();
        Self::Table { words: table::are_words(&rows), rows, shades }
    }
}

impl Bar {
    /// The bar of a figure.
    pub(crate) fn of(label: &str, metric: Metric, it: &Estimate, class: Class) -> Self {
        let [value, low, high] = [it.value, it.low, it.high].map(|value| in_unit(metric, value));
        Self { label: label.to_owned(), text: written(metric, it.value), value, low, high, class }
    }
}

impl Unit {
    /// The unit of a metric's values.
    pub(crate) fn of(metric: Metric) -> Self {
        match metric {
            Metric::Iops => Self::PerSecond,
            Metric::Throughput => Self::BytesPerSecond,
            Metric::Latency | Metric::LatencyP50 | Metric::LatencyP99 | Metric::LatencyP999 => Self::Seconds,
            Metric::Cpu => Self::SecondsPerGigabyte,
            Metric::Memory => Self::Bytes,
            Metric::Amplification | Metric::ReadAmplification | Metric::Space => Self::Ratio,
        }
    }
}

/// A value of a metric in its [`Unit`].
pub(crate) fn in_unit(metric: Metric, value: f64) -> f64 {
    // Times are in nanoseconds.
    finite(if Unit::of(metric) == Unit::Seconds { value / 1e9 } else { value })
}

/// A number as JSON can hold it: what is no number is 0, and what is infinite the largest there is.
pub(crate) fn finite(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(f64::MIN, f64::MAX) }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_false(it: &bool) -> bool {
    !it
}

#[cfg(test)]
impl Document {
    /// All texts, in the order in which they are read, a line each.
    pub(crate) fn texts(&self) -> String {
        let mut all: Vec<&str> = vec![&self.title, &self.question];
        all.extend(self.notes.iter().map(String::as_str));
        all.extend(self.answer.iter().flat_map(|answer| &answer.sentences).map(String::as_str));
        for block in &self.blocks {
            match block {
                Block::Heading { text, small, .. } => {
                    all.push(text);
                    all.extend(small.as_deref());
                }
                Block::Prose { text, .. } => all.push(text),
                Block::List { items, .. } => all.extend(items.iter().map(String::as_str)),
                Block::Table { rows, .. } => all.extend(rows.iter().flatten().map(String::as_str)),
                Block::Bars { bars, lines, .. } => {
                    all.extend(bars.iter().flat_map(|bar| [bar.label.as_str(), &bar.text]));
                    all.extend(lines.iter().map(|line| line.label.as_str()));
                }
                Block::Percentiles { rows, .. } => {
                    all.extend(rows.iter().flat_map(|row| [row.label.as_str(), &row.text]));
                }
                Block::Courses { title, across, courses, .. } => {
                    all.extend([title.as_str(), across]);
                    all.extend(courses.iter().map(|course| course.label.as_str()));
                }
                Block::Dots { x, y, dots } => {
                    all.extend([x.title.as_str(), &y.title]);
                    all.extend(dots.iter().map(|dot| dot.label.as_str()));
                }
            }
        }
        all.extend(self.facts.iter().map(String::as_str));
        all.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_as_the_page_reads_them() {
        let mut document = Document::new("t", "q");
        document.answer = Some(Answer { sentences: vec!["yes".into()], is_answered: true });
        document.blocks = vec![
            Block::heading(2, "h"),
            Block::heading_with(3, "h", "s"),
            Block::prose("p"),
            Block::Prose { text: "p".into(), strong: true },
            Block::list(vec!["i".into()]),
            Block::List { items: vec!["i".into()], ordered: true },
            Block::shaded(
                vec![vec!["a".into(), "b".into()], vec!["c".into(), "1".into()]],
                vec![vec![f64::NAN]],
            ),
            Block::Bars {
                unit: Unit::BytesPerSecond,
                bars: vec![Bar {
                    label: "l".into(),
                    text: "x".into(),
                    value: 1.0,
                    low: 0.5,
                    high: finite(f64::INFINITY),
                    class: Class::Baseline,
                }],
                lines: vec![Line { label: "l".into(), value: 2.0 }],
            },
            Block::Percentiles {
                unit: Unit::Seconds,
                rows: vec![Percentiles { label: "l".into(), text: "x".into(), values: vec![1.0] }],
            },
            Block::Courses {
                unit: Unit::PerSecond,
                title: "t".into(),
                across: "a".into(),
                courses: vec![Course { label: "l".into(), points: vec![(0.0, 1.0)], band: Vec::new() }],
            },
            Block::Dots {
                x: Axis { title: "x".into(), unit: Unit::SecondsPerGigabyte },
                y: Axis { title: "y".into(), unit: Unit::Ratio },
                dots: vec![Dot { label: "l".into(), x: 1.0, y: 2.0, marked: true }],
            },
        ];
        let told = serde_json::to_value(&document).unwrap();
        assert_eq!(
            told,
            json!({
                "generator": "cenote lab", "version": 1, "title": "t", "question": "q", "notes": [],
                "answer": { "sentences": ["yes"], "is_answered": true },
                "blocks": [
                    { "kind": "heading", "level": 2, "text": "h" },
                    { "kind": "heading", "level": 3, "text": "h", "small": "s" },
                    { "kind": "prose", "text": "p" },
                    { "kind": "prose", "text": "p", "strong": true },
                    { "kind": "list", "items": ["i"] },
                    { "kind": "list", "items": ["i"], "ordered": true },
                    { "kind": "table", "rows": [["a", "b"], ["c", "1"]], "words": [true, false],
                      "shades": [[0.0]] },
                    { "kind": "bars", "unit": "bytes_per_second",
                      "bars": [{ "label": "l", "text": "x", "value": 1.0, "low": 0.5, "high": f64::MAX,
                                 "class": "baseline" }],
                      "lines": [{ "label": "l", "value": 2.0 }] },
                    { "kind": "percentiles", "unit": "seconds",
                      "rows": [{ "label": "l", "text": "x", "values": [1.0] }] },
                    { "kind": "courses", "unit": "per_second", "title": "t", "across": "a",
                      "courses": [{ "label": "l", "points": [[0.0, 1.0]], "band": [] }] },
                    { "kind": "dots", "x": { "title": "x", "unit": "seconds_per_gigabyte" },
                      "y": { "title": "y", "unit": "ratio" },
                      "dots": [{ "label": "l", "x": 1.0, "y": 2.0, "marked": true }] },
                ],
                "facts": [],
            })
        );
        assert_eq!(serde_json::from_value::<Document>(told).unwrap(), document);
        assert!(serde_json::to_value(Document::new("t", "")).unwrap().get("answer").is_none());
    }

    #[test]
    fn values_are_in_the_unit_that_is_named() {
        assert_eq!((Unit::of(Metric::LatencyP99), in_unit(Metric::LatencyP99, 5e6)), (Unit::Seconds, 0.005));
        assert_eq!((Unit::of(Metric::Memory), in_unit(Metric::Memory, 5e6)), (Unit::Bytes, 5e6));
        // Intervals of two rounds may reach as far as numbers do.
        let estimate = Estimate { value: 2e9, low: 0.0, high: f64::INFINITY };
        let bar = Bar::of("a", Metric::Latency, &estimate, Class::Same);
        assert_eq!((bar.text.as_str(), bar.value, bar.low, bar.high), ("2.00 s", 2.0, 0.0, f64::MAX));
    }

    #[test]
    fn all_numbers_can_be_written() {
        let kept = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5].map(finite);
        assert_eq!(kept, [0.0, f64::MAX, f64::MIN, 1.5]);
    }
}
