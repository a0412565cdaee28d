//! `cenote arcstat` (also as `arcstat` and `zarcstat`): the ARC, line by line.
//!
//! The columns, options and numbers are those of OpenZFS's script, so that what reads its output can read
//! this: the first line shows what happened since the program began.
//!
//! Source of names, widths and scales: OpenZFS 2.4 `zarcstat`.

mod columns;

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use server::api::GetCounters;

use self::columns::{Column, Number, Sample, columns, now_of_day};
use crate::counters;
use crate::output::{self, Exit, FAILED};

/// The columns without options.
const DEFAULT: [&str; 11] =
    ["time", "read", "ddread", "ddh%", "dmread", "dmh%", "pread", "ph%", "size", "c", "avail"];
/// With `-x`.
const EXTENDED: [&str; 11] =
    ["time", "mfu", "mru", "mfug", "mrug", "unc", "eskip", "mtxmis", "dread", "pread", "read"];
/// With `-z`.
const ZFETCH: [&str; 11] = [
    "time", "ztotal", "zhits", "zahead", "zpast", "zmisses", "zmax", "zfuture", "zstride", "zissued",
    "zactive",
];
/// Lines between headings, where there is no terminal whose height says so.
const LINES: u64 = 20;

/// Arguments of `cenote arcstat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
'arcstat' and 'zarcstat' as names of a link to this program are this command. Without an interval one line is
printed. With one, lines are printed until it is interrupted, or as often as the count says.")]
pub struct Arguments {
    /// Print all columns
    #[arg(short = 'a', long)]
    all: bool,
    /// Print the columns of hits by list, and of eviction
    #[arg(short = 'x', long, conflicts_with_all = ["zfetch", "columns"])]
    extended: bool,
    /// Print the columns of reading ahead
    #[arg(short = 'z', long, conflicts_with = "columns")]
    zfetch: bool,
    /// Print these columns, separated by commas
    #[arg(short = 'f', long, value_name = "COLUMNS")]
    columns: Option<String>,
    /// Write to a file
    #[arg(short = 'o', long, value_name = "FILE")]
    outfile: Option<PathBuf>,
    /// What separates columns
    #[arg(short = 's', long, value_name = "TEXT", default_value = "  ")]
    separator: String,
    /// Print numbers in full
    #[arg(short = 'p', long)]
    parsable: bool,
    /// Print each line as a JSON object, with numbers in full
    #[arg(short = 'j', long, conflicts_with = "separator")]
    json: bool,
    /// List the columns with what each means
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Seconds between lines
    #[arg(value_name = "INTERVAL", value_parser = clap::value_parser!(u64).range(1..))]
    interval: Option<u64>,
    /// How many lines
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let all = columns();
        if self.verbose {
            return listed(&all);
        }
        let mut before = sample()?;
        let shown = self.chosen(&all, before.has_l2arc())?;
        let mut out: Box<dyn Write> = match &self.outfile {
            Some(path) => {
                let file = File::create(path);
                Box::new(file.with_context(|| format!("cannot open {} for writing", path.display()))?)
            }
            None => Box::new(io::stdout()),
        };
        let seconds = self.interval.unwrap_or(1);
        let count = self.count.or(self.interval.is_none().then_some(1));
        let (mut line, mut left, lines) = (0, count, lines_between_headings());
        loop {
            if line == 0 && !self.json {
                self.print(&mut out, shown.iter().map(|column| self.heading(column)))?;
            }
            let now = sample()?;
            let time = now_of_day();
            let value = |column: &&Column| match column.value(&now, &before, seconds) {
                Some(number) if self.parsable => number.to_string(),
                Some(number) => pretty(column, seconds, number),
                None => time.clone(),
            };
            if self.json {
                let values = shown
                    .iter()
                    .map(|column| (column.name.clone(), json_of(column, &now, &before, seconds, &time)));
                let object = values.collect::<Map<_, _>>();
                writeln!(out, "{}", Value::Object(object))
                    .and_then(|()| out.flush())
                    .context("cannot write")?;
            } else {
                self.print(&mut out, shown.iter().map(value))?;
            }
            before = now;
            left = left.map(|left| left - 1);
            if left == Some(0) {
                return Ok(());
            }
            line = if line >= lines { 0 } else { line + 1 };
            std::thread::sleep(Duration::from_secs(seconds));
        }
    }

    /// The columns to print.
    fn chosen<'a>(&self, all: &'a [Column], has_l2arc: bool) -> Result<Vec<&'a Column>> {
        let names: Vec<&str> = match &self.columns {
            Some(names) => names.split(',').collect(),
            None if self.all => {
                let shown = all.iter().map(|column| column.name.as_str());
                return Ok(find(all, shown.filter(|name| has_l2arc || !name.starts_with("l2"))).0);
            }
            None if self.extended => EXTENDED.to_vec(),
            None if self.zfetch => ZFETCH.to_vec(),
            None => DEFAULT.to_vec(),
        };
        let (found, unknown) = find(all, names.iter().copied());
        if !unknown.is_empty() {
            bail!("no such columns: {}; 'cenote arcstat -v' lists all", unknown.join(", "));
        }
        let of_l2arc = |name: &&str| !has_l2arc && name.starts_with("l2");
        if let Some(name) = names.into_iter().find(of_l2arc) {
            println!("No L2ARC Here\n{name}");
            eprintln!("Incompatible field specified! -- {name}: no pool has a cache device");
            return Err(Exit(FAILED).into());
        }
        Ok(found)
    }

    fn heading(&self, column: &Column) -> String {
        if self.parsable { column.name.clone() } else { format!("{:>1$}", column.name, column.width) }
    }

    fn print(&self, out: &mut dyn Write, cells: impl Iterator<Item = String>) -> Result<()> {
        let line = cells.collect::<Vec<_>>().join(&self.separator);
        writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write")
    }
}

/// The columns of these names, and the names that no column has.
fn find<'a, 'n>(all: &'a [Column], names: impl Iterator<Item = &'n str>) -> (Vec<&'a Column>, Vec<&'n str>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for name in names {
        match all.iter().find(|column| column.name == name) {
            Some(column) => found.push(column),
            None => unknown.push(name),
        }
    }
    (found, unknown)
}

fn listed(all: &[Column]) -> Result<()> {
    let lines = all.iter().map(|column| format!("{:>11} : {}\n", column.name, column.text));
    output::print(&format!("Field definitions are as follows:\n{}\n", lines.collect::<String>()))
}

fn sample() -> Result<Sample> {
    let groups = ["arcstats", "zfetchstats"].map(str::to_owned).to_vec();
    Ok(Sample::of(&counters::ask(&GetCounters { groups, pools: vec![] })?))
}

/// What is in a column, the time as text.
fn json_of(column: &Column, now: &Sample, before: &Sample, seconds: u64, time: &str) -> Value {
    match column.value(now, before, seconds) {
        Some(Number::Int(number)) => number.into(),
        Some(Number::Float(number)) => number.into(),
        None => time.into(),
    }
}

/// A number in its column: scaled, with a letter for the power of the scale.
fn pretty(column: &Column, seconds: u64, number: Number) -> String {
    const LETTERS: [&str; 8] = ["", "K", "M", "G", "T", "P", "E", "Z"];
    let (mut value, mut power) = (number.float(), 0);
    let scale = column.scale as f64;
    if column.scale != 100 {
        while value.abs() > scale && power < 5 {
            value /= scale;
            power += 1;
        }
    }
    let width = column.width - usize::from(power > 0);
    let digits = format!("{value:.0}").len();
    let is_whole = value.fract() == 0.0;
    let decimals = if seconds == 1 && is_whole || width < digits + 2 { 0 } else { 1 };
    format!("{value:>width$.decimals$}{}", LETTERS[power])
}

/// How many lines fit the terminal between headings.
fn lines_between_headings() -> u64 {
    let rows = output::terminal_size().map(|(rows, _)| u64::from(rows));
    rows.filter(|rows| *rows > 3).map_or(LINES, |rows| rows - 3)
}

#[cfg(test)]
mod tests {
    use engine::stats::{Arcstats, Group, ZfetchStats};
    use server::api::{CounterGroup, Counters, Numbers};

    use super::*;

    /// Counters that are made up: of each name by its place, and some with values that are possible.
    fn made_up(is_later: bool) -> Sample {
        let special: [(&str, u64, u64); 8] = [
            ("pd", 1 << 30, 1 << 30),
            ("pm", 1 << 29, 3 << 28),
            ("meta", 1 << 31, 5 << 28),
            ("arc_no_grow", 0, 0),
            ("size", 5 << 30, 5 << 30),
            ("c", 6 << 30, 6 << 30),
            ("memory_available_bytes", 123_456_789, 223_456_789),
            ("l2_ndev", 1, 1),
        ];
        let mut groups = Vec::new();
        let mut place = 0;
        for (name, fields) in [(Arcstats::NAME, Arcstats::FIELDS), (ZfetchStats::NAME, ZfetchStats::FIELDS)] {
            let numbers = fields.iter().map(|field| {
                let first = (place * 7919 + 13) * (1 + place % 5 * 1000) % 1_000_003;
                let grown = (place * place * 31 + place) % 50_021;
                place += 1;
                let number = match special.iter().find(|(name, ..)| *name == field.name) {
                    Some((_, first, later)) => {
                        if is_later {
                            *later
                        } else {
                            *first
                        }
                    }
                    None => first + if is_later { grown } else { 0 },
                };
                (field.name.to_owned(), number)
            });
            let counters = Numbers(numbers.collect());
            groups.push(CounterGroup { name: name.into(), counters, ..CounterGroup::default() });
        }
        Sample::of(&Counters { groups, ..Counters::default() })
    }

    /// `script.txt` has what OpenZFS's script prints of these counters with `-a -s '|'`, without the time:
    /// its headings, a line of an interval of two seconds, one of a second, and one of two seconds with `-p`.
    #[test]
    fn lines_are_those_of_the_script_for_the_same_counters() {
        let (before, now, all) = (made_up(false), made_up(true), columns());
        let numbers = |seconds, is_parsable| {
            let number = |column: &Column| {
                let number = column.value(&now, &before, seconds).unwrap();
                if is_parsable { number.to_string() } else { pretty(column, seconds, number) }
            };
            all.iter().skip(1).map(number).collect::<Vec<_>>()
        };
        let heading = |column: &Column| format!("{:>1$}", column.name, column.width);
        let printed = [
            all.iter().skip(1).map(heading).collect(),
            numbers(2, false),
            numbers(1, false),
            numbers(2, true),
        ];
        for (line, printed) in include_str!("arcstat/script.txt").lines().zip(printed) {
            let expected: Vec<&str> = line.split('|').collect();
            assert_eq!(expected.len(), printed.len());
            for ((column, expected), printed) in all.iter().skip(1).zip(expected).zip(printed) {
                assert_eq!(printed, expected, "{}", column.name);
            }
        }
    }

    #[test]
    fn the_columns_are_those_of_the_script() {
        let all = columns();
        assert!([&DEFAULT[..], &EXTENDED, &ZFETCH].iter().all(|names| {
            let (found, unknown) = find(&all, names.iter().copied());
            found.len() == names.len() && unknown.is_empty()
        }));
        for name in ["cmpsz", "cmpsz%", "datatg%", "mfudt", "mrugsz", "anoed", "uncem%"] {
            assert!(all.iter().any(|column| column.name == name), "{name}");
        }
        assert!(!all.iter().any(|column| column.name == "anogsz"));
    }
}
