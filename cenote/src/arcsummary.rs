//! `cenote arcsummary` (also as `arc_summary` and `zarcsummary`): a report on the ARC, reading ahead, intent
//! logs and devices.
//!
//! Layout, labels and numbers are those of OpenZFS's script, so that what reads its output can read this. The
//! section `vdev`, which the script once had, shows the devices of open pools here. There is no section
//! `spl`.
//!
//! Source of labels and layout: OpenZFS 2.4 `zarcsummary`.

mod sections;

use std::collections::HashMap;

use anyhow::{Result, bail};
use engine::tunables;
use server::api::{CounterGroup, Counters, GetCounters};

use crate::counters;
use crate::output;

/// The width of a line.
const WIDTH: usize = 72;
/// Blanks in front of details.
const INDENT: usize = 8;
/// The groups that the report is made of.
const GROUPS: [&str; 7] = ["arcstats", "zfetchstats", "zil", "dmu_tx", "memory", "vdev", TUNABLES];
/// The group of what can be tuned.
const TUNABLES: &str = "tunables";

/// A section of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// The size and the parts of the ARC
    Arc,
    /// Hits and misses of the ARC
    Archits,
    /// Reading ahead
    Dmu,
    /// Cache devices
    L2arc,
    /// What can be tuned
    Tunables,
    /// Devices
    Vdev,
    /// Intent logs
    Zil,
}

const SECTIONS: [Section; 7] = [
    Section::Arc,
    Section::Archits,
    Section::Dmu,
    Section::L2arc,
    Section::Tunables,
    Section::Vdev,
    Section::Zil,
];

/// Arguments of `cenote arcsummary`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
'arc_summary' and 'zarcsummary' as names of a link to this program are this command.")]
pub struct Arguments {
    /// Print a line that shows how full the ARC is
    #[arg(short = 'g', long, conflicts_with_all = ["raw", "section", "page"])]
    graph: bool,
    /// Print all counters with little formatting
    #[arg(short = 'r', long, conflicts_with_all = ["section", "page"])]
    raw: bool,
    /// Print one section
    #[arg(short = 's', long, conflicts_with = "page")]
    section: Option<Section>,
    /// Print a section by its number: 1 arc, 2 archits, 3 l2arc, 4 dmu, 5 vdev, 6 tunables
    #[arg(short = 'p', long, value_parser = clap::value_parser!(u8).range(1..=6))]
    page: Option<u8>,
    /// Print values of tunables as name=value
    #[arg(short = 'a', long)]
    alternate: bool,
    /// Print all counters as JSON
    #[arg(short = 'j', long, conflicts_with_all = ["graph", "raw", "section", "page", "description"])]
    json: bool,
    /// Print what each tunable does
    #[arg(short = 'd', long)]
    description: bool,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let groups = GROUPS.map(str::to_owned).to_vec();
        let counters = counters::ask(&GetCounters { groups, pools: vec![] })?;
        let report = Report::of(&counters)?;
        if self.json {
            let mut document = output::document("cenote arcsummary");
            document.insert("groups".into(), serde_json::to_value(&counters.groups)?);
            return output::print_json(&document);
        }
        if self.graph {
            return output::print(&report.graph());
        }
        let mut text = heading();
        if self.raw {
            text.push_str(&report.raw());
            return output::print(&text);
        }
        let by_number =
            [Section::Arc, Section::Archits, Section::L2arc, Section::Dmu, Section::Vdev, Section::Tunables];
        let page = self.page.and_then(|page| by_number.get(usize::from(page) - 1).copied());
        let sections = match self.section.or(page) {
            Some(section) => vec![section],
            None => SECTIONS.to_vec(),
        };
        for section in sections {
            text.push_str(&match section {
                Section::Arc => report.arc() + &report.process(),
                Section::Archits => report.archits(),
                Section::Dmu => report.dmu(),
                Section::L2arc => report.l2arc(),
                Section::Tunables => self.tunables(&report),
                Section::Vdev => report.vdev(),
                Section::Zil => report.zil(),
            });
        }
        output::print(&text)
    }

    /// The tunables of the daemon, with the values that count now.
    fn tunables(&self, report: &Report<'_>) -> String {
        let mut values = report.groups.get(TUNABLES).map_or(Vec::new(), |group| group.counters.0.clone());
        values.sort();
        let mut text = "Tunables:\n".to_owned();
        for (name, value) in values {
            let known = tunables::all().iter().find(|tunable| tunable.name() == name);
            if let Some(tunable) = known.filter(|_| self.description) {
                text.push_str(&format!("{}# {}\n", " ".repeat(INDENT), tunable.text()));
            }
            text.push_str(&match self.alternate {
                true => format!("{}{name}={value}\n", " ".repeat(INDENT)),
                false => raw_line(&name, &value.to_string()),
            });
        }
        text + "\n"
    }
}

/// The lines above the report.
fn heading() -> String {
    let two = |left: &str, right: &str| {
        let gap = WIDTH.saturating_sub(left.len() + right.len()).max(1);
        format!("{left}{}{right}\n", " ".repeat(gap))
    };
    let of_system = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let [name, release, node] = ["ostype", "osrelease", "hostname"].map(of_system);
    let machine = std::env::consts::ARCH;
    let version = format!("cenote {}", env!("CARGO_PKG_VERSION"));
    let mut text = format!("\n{}\n", "-".repeat(WIDTH));
    text.push_str(&two("ZFS Subsystem Report", &output::ctime(output::now())));
    text.push_str(&two(&format!("{name} {release}"), &version));
    text.push_str(&two(&format!("Machine: {node} ({machine})"), ""));
    text.push('\n');
    text
}

/// The counters of a report.
struct Report<'a> {
    groups: HashMap<&'a str, &'a CounterGroup>,
    vdevs: Vec<&'a CounterGroup>,
}

impl<'a> Report<'a> {
    fn of(counters: &'a Counters) -> Result<Self> {
        let of_process = counters.groups.iter().filter(|group| group.pool.is_none());
        let groups: HashMap<_, _> = of_process.map(|group| (group.name.as_str(), group)).collect();
        if !groups.contains_key("arcstats") {
            bail!("the daemon does not report the counters of its ARC; it may be of an older version");
        }
        let vdevs = counters.groups.iter().filter(|group| group.name == "vdev").collect();
        Ok(Self { groups, vdevs })
    }

    fn number(&self, group: &str, name: &str) -> u64 {
        self.groups.get(group).map_or(0, |group| group.counters.get(name))
    }

    /// A number of `arcstats`.
    fn arcstat(&self, name: &str) -> u64 {
        self.number("arcstats", name)
    }

    /// The sum of numbers of `arcstats`.
    fn sum(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.arcstat(name)).sum()
    }

    /// All numbers.
    fn raw(&self) -> String {
        let mut names: Vec<_> = self.groups.keys().collect();
        names.sort_unstable();
        let mut text = String::new();
        for name in names {
            text.push_str(&format!("\n{}:\n", name.to_uppercase()));
            let mut numbers = self.groups.get(name).map_or(Vec::new(), |group| group.counters.0.clone());
            numbers.sort();
            text.extend(numbers.iter().map(|(name, number)| raw_line(name, &number.to_string())));
        }
        text + "\n"
    }
}

/// A name and its value, the value at the right edge.
fn raw_line(name: &str, value: &str) -> String {
    let width = (WIDTH - INDENT).saturating_sub(name.len()).max(value.len() + 1);
    format!("{}{name}{value:>width$}\n", " ".repeat(INDENT))
}

/// The beginning of a section, or a detail below it, with a value at the right edge.
fn one(is_detail: bool, label: &str, value: &str) -> String {
    let indent = if is_detail { INDENT } else { 0 };
    let gap = WIDTH.saturating_sub(indent + label.len() + value.len());
    format!("{}{label}{}{value}\n", " ".repeat(indent), " ".repeat(gap))
}

/// The same with two values.
fn two(is_detail: bool, label: &str, first: &str, second: &str) -> String {
    let indent = if is_detail { INDENT } else { 0 };
    let values = format!("{first:>9}  {second:>9}");
    let gap = WIDTH.saturating_sub(indent + label.len() + values.len() + 2);
    format!("{}{label}{}  {values}\n", " ".repeat(indent), " ".repeat(gap))
}

/// Bytes: `1.5 MiB`.
fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} Bytes");
    }
    let power = (number.ilog2() / 10) as usize;
    let unit = UNITS.get(power - 1).copied().unwrap_or_default();
    format!("{:.1} {unit}", number as f64 / 1024f64.powi(power as i32))
}

/// A count: `1.5k`.
fn hits(number: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if number < 1000 {
        return number.to_string();
    }
    let power = (number.ilog10() / 3) as usize;
    let unit = UNITS.get(power - 1).copied().unwrap_or_default();
    format!("{:.1}{unit}", number as f64 / 1000f64.powi(power as i32))
}

/// A share: `12.3 %`, or `n/a` of nothing.
fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        return "n/a".to_owned();
    }
    match format!("{:.1} %", 100.0 * part / whole) {
        text if text == "0.0 %" && part > 0.0 => "< 0.1 %".to_owned(),
        text => text,
    }
}

/// The same of counters.
fn share(part: u64, whole: u64) -> String {
    percent(part as f64, whole as f64)
}

#[cfg(test)]
mod tests {
    use engine::stats::{Arcstats, Group, ZfetchStats};
    use server::api::Numbers;

    use super::*;

    /// Counters that are made up: of each name by its place, and some with values that are possible.
    fn made_up() -> Counters {
        const ZIL: [&str; 7] = [
            "zil_commit_count",
            "zil_commit_writer_count",
            "zil_itx_count",
            "zil_itx_metaslab_slog_bytes",
            "zil_itx_metaslab_slog_count",
            "zil_itx_metaslab_normal_bytes",
            "zil_itx_metaslab_normal_count",
        ];
        let special: [(&str, u64); 10] = [
            ("c_max", 8 << 30),
            ("pd", 1 << 30),
            ("pm", 3 << 28),
            ("meta", 5 << 28),
            ("arc_no_grow", 0),
            ("size", 5 << 30),
            ("c", 6 << 30),
            ("memory_all_bytes", 64 << 30),
            ("memory_available_bytes", 223_456_789),
            ("l2_ndev", 1),
        ];
        let mut place = 0;
        let mut groups = Vec::new();
        for (name, fields) in [(Arcstats::NAME, Arcstats::FIELDS), (ZfetchStats::NAME, ZfetchStats::FIELDS)] {
            let numbers = fields.iter().map(|field| {
                let first = (place * 7919 + 13) * (1 + place % 5 * 1000) % 1_000_003;
                let number = first + (place * place * 31 + place) % 50_021;
                place += 1;
                let special = special.iter().find(|(name, _)| *name == field.name);
                (field.name.to_owned(), special.map_or(number, |(_, number)| *number))
            });
            let counters = Numbers(numbers.collect());
            groups.push(CounterGroup { name: name.into(), counters, ..CounterGroup::default() });
        }
        let zil = ZIL.iter().zip(1..).map(|(name, place)| ((*name).to_owned(), place * 12_345));
        let counters = Numbers(zil.collect());
        groups.push(CounterGroup { name: "zil".into(), counters, ..CounterGroup::default() });
        Counters { groups, ..Counters::default() }
    }

    /// `script.txt` has what OpenZFS's script prints of these counters, section by section, and its graph.
    #[test]
    fn sections_are_those_of_the_script_for_the_same_counters() {
        let counters = made_up();
        let report = Report::of(&counters).unwrap();
        let sections =
            [report.arc(), report.archits(), report.dmu(), report.l2arc(), report.zil(), report.graph()];
        let printed = sections.concat();
        for (printed, expected) in printed.lines().zip(include_str!("arcsummary/script.txt").lines()) {
            assert_eq!(printed, expected);
        }
        assert_eq!(printed.lines().count(), include_str!("arcsummary/script.txt").lines().count());
    }

    #[test]
    fn numbers_look_as_the_script_has_them() {
        assert_eq!((bytes(1023), bytes(1536)), ("1023 Bytes".into(), "1.5 KiB".into()));
        assert_eq!((bytes(1 << 30), bytes(u64::MAX)), ("1.0 GiB".into(), "16.0 EiB".into()));
        assert_eq!((hits(999), hits(1500)), ("999".into(), "1.5k".into()));
        assert_eq!((share(1, 0), share(0, 7)), ("n/a".into(), "0.0 %".into()));
        assert_eq!((share(1, 10_000), share(1, 3)), ("< 0.1 %".into(), "33.3 %".into()));
    }

    #[test]
    fn lines_end_at_the_same_column() {
        for line in [
            one(false, "ARC status:", "1"),
            one(true, "Free memory size:", "1.0 GiB"),
            two(false, "ARC total", "1.0 %", "7"),
            two(true, "Min target size:", "6.2 %", "1.0 GiB"),
            raw_line("hits", "17"),
        ] {
            assert_eq!(line.len(), WIDTH + 1, "{line}");
        }
    }
}
