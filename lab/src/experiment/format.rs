//! The reference of an experiment's file: every key, with its type, its default and an example.
//!
//! `cenote lab format` prints it. It is data, and its tests ask the parser: that no key is missing or
//! superfluous, that every example parses, and that the stated defaults are the parser's.

use crate::setting::{KNOBS, SETTINGS, SettingOwner};
use crate::site::KINDS;

pub(crate) use crate::reference::key;
pub use crate::reference::{Key, TableOf};

/// The tables before those of targets.
const BEFORE_TARGETS: [TableOf; 2] = [
    TableOf {
        head: "",
        about: "The question, and the number of measurements",
        keys: &[
            key(
                "name",
                "text",
                None,
                "\"volblocksize\"",
                "A short name, for directories and titles; required",
            ),
            key("question", "text", Some("\"\""), "\"Which is best?\"", "The question in a sentence"),
            key("rounds", "a number", Some("5"), "7", "Rounds at least, 2 or more"),
            key(
                "max_rounds",
                "a number",
                None,
                "10",
                "Rounds at most, while intervals are wider than precision; by default as rounds",
            ),
            key(
                "precision",
                "a share",
                Some("0.05"),
                "0.02",
                "Half the width of a ratio's interval that needs no more rounds",
            ),
            key(
                "mode",
                "each, full, search, improve",
                Some("\"each\""),
                "\"full\"",
                "Which variants: one change at a time; all combinations; the best of them within budget; \
                 changes that prove themselves",
            ),
            key(
                "budget",
                "a number",
                None,
                "40",
                "Runs that mode = \"search\" may take; by default a quarter of all",
            ),
            key("seed", "a number", None, "7", "Seed of all random choices; by default random, and kept"),
            key(
                "more_rounds",
                "a number",
                None,
                "12",
                "Rounds at least since `lab resume --rounds`, which writes it",
            ),
            key(
                "left_out_workloads",
                "names",
                Some("[]"),
                "[\"4K read\"]",
                "Workloads that the quick form left out; the quick form writes it",
            ),
            key(
                "within_seconds",
                "seconds",
                None,
                "240",
                "How long all of it should take: rounds that would end later are left out, but for two; the \
                 quick form writes it",
            ),
            key(
                "left_out_rounds",
                "a number",
                Some("0"),
                "2",
                "Rounds that were left out for that; `lab run` writes it",
            ),
            key(
                "boot_seconds",
                "seconds",
                None,
                "300",
                "How long a guest may take to boot; by default 10 times the longest boot so far, at least \
                 120. Only for kind = \"guest\"",
            ),
            key(
                "measured",
                "a table",
                None,
                "{ read = 5e8, write = 4e8, mixed = 4.5e8 }",
                "Bytes a second that each of the target's `disks` did by itself before pools were made of \
                 them, in the mean: `lab run` writes it",
            ),
            key("goal", "a table", None, "{ metric = \"iops\" }", "See [goal]"),
            key("target", "a table", None, "{ kind = \"volume\", size = \"64M\" }", "See [target]; required"),
            key(
                "bound",
                "tables",
                Some("[]"),
                "[{ name = \"the network\", rate = \"1gbe\" }]",
                "See [[bound]]",
            ),
            key("settings", "a table", Some("{}"), "{ compression = \"lz4\" }", "See [settings]"),
            key(
                "factor",
                "tables",
                Some("[]"),
                "[{ name = \"sync\", values = [\"standard\", \"always\"] }]",
                "See [[factor]]",
            ),
            key(
                "variant",
                "tables",
                Some("[]"),
                "[{ sync = \"always\", compression = \"off\" }]",
                "See [[variant]]",
            ),
            key(
                "claim",
                "tables",
                Some("[]"),
                "[{ text = \"t\", metric = \"iops\", of = { sync = \"always\" }, is = \"less\" }]",
                "See [[claim]]",
            ),
            key(
                "workload",
                "tables",
                None,
                "[{ name = \"w\", rw = \"read\" }]",
                "See [[workload]]; at least one",
            ),
        ],
    },
    TableOf {
        head: "[goal]",
        about: "What counts",
        keys: &[
            key(
                "metric",
                "iops, throughput, latency, latency_p50, latency_p99, latency_p999, space, cpu, memory, \
                 amplification, read_amplification",
                Some("\"iops\""),
                "\"latency_p99\"",
                "The metric by which variants are judged",
            ),
            key("workload", "a workload's name", None, "\"4K read\"", "Its workload; by default the first"),
            key(
                "at_least",
                "a number, or text with a unit",
                None,
                "20000.0",
                "The value of success, for metrics where more is better: \"500 MiB/s\", \"20k\"; without \
                 quotes in operations or bytes a second",
            ),
            key(
                "at_most",
                "a number, or text with a unit",
                None,
                "5e6",
                "The same for metrics where less is better; without quotes in nanoseconds, bytes …",
            ),
            key("also", "metrics", Some("[]"), "[\"space\"]", "Further metrics that variants are weighed by"),
        ],
    },
];

/// The tables after those.
const AFTER_TARGETS: [TableOf; 7] = [
    TableOf {
        head: "[[bound]]",
        about: "What nothing can beat",
        keys: &[
            key("name", "text", None, "\"the network\"", "Its name; required"),
            key("rate", "1gbe, 10gbe, or bytes a second", None, "\"117M\"", "Its capacity; required"),
        ],
    },
    TableOf { head: "[settings]", about: "Settings that all variants have: NAME = \"VALUE\"", keys: &[] },
    TableOf {
        head: "[[factor]]",
        about: "A setting with the values to compare",
        keys: &[
            key("name", "a setting", None, "\"recordsize\"", "Its name; required"),
            key("values", "values", None, "[\"128K\", \"16K\"]", "At least two; the first is the baseline's"),
            key(
                "quick",
                "values",
                Some("[]"),
                "[\"128K\", \"16K\"]",
                "Values that --quick compares; by default all",
            ),
            key(
                "left_out",
                "values",
                Some("[]"),
                "[\"1M\"]",
                "Values that the quick form left out; the quick form writes it",
            ),
            key(
                "risks",
                "a table",
                Some("{}"),
                "{ 16K = \"more metadata can be lost\" }",
                "The loss that a value risks, if the lab does not know it",
            ),
        ],
    },
    TableOf {
        head: "[[variant]]",
        about: "A variant that changes several settings at once: NAME = \"VALUE\"; only with mode = \"each\"",
        keys: &[],
    },
    TableOf {
        head: "[[claim]]",
        about: "A statement about two variants, to confirm or to refute",
        keys: &[
            key("text", "text", None, "\"zstd costs IOPS\"", "The statement in words; required"),
            key("metric", "as in [goal]", None, "\"iops\"", "What it is about; required"),
            key("workload", "a workload", None, "\"seeks\"", "With which load; by default the goal's"),
            key(
                "of",
                "settings",
                Some("{}"),
                "{ compression = \"zstd\" }",
                "What the variant changes of the baseline; nothing for the baseline itself",
            ),
            key(
                "than",
                "settings",
                Some("{}"),
                "{ compression = \"off\" }",
                "The same of the variant that it is compared with",
            ),
            key("is", "more, less, same", None, "\"less\"", "What is claimed; required"),
        ],
    },
    TableOf {
        head: "[[workload]]",
        about: "A load for each variant",
        keys: &[
            key(
                "preset",
                "a preset's name",
                None,
                "\"database-8k\"",
                "One or more workloads that come with the program (`lab presets`); other keys override \
                 theirs",
            ),
            key("name", "text", None, "\"4K random write\"", "Its name; required without a preset"),
            key(
                "rw",
                "fio's rw, or create, open, stat, delete, replay, copy",
                None,
                "\"randwrite\"",
                "The kind of operations; required without a preset",
            ),
            key(
                "bs",
                "a size",
                Some("\"4K\""),
                "\"64K\"",
                "Size of an operation; of each file, where files are made",
            ),
            key(
                "size",
                "a size",
                None,
                "\"64M\"",
                "The part of the target that it uses; by default all. Each job has less where offsets and \
                 several jobs would go past the end",
            ),
            key("iodepth", "a number", Some("1"), "8", "Operations under way at once"),
            key(
                "seconds",
                "a number",
                Some("10.0"),
                "2.5",
                "Seconds that are measured; files and traces are done once, however long that takes",
            ),
            key("ramp_seconds", "a number", Some("0.0"), "1.0", "Seconds before that"),
            key(
                "once",
                "true or false",
                Some("false"),
                "true",
                "Whether it ends when everything was read or written once, and after `seconds` at the \
                 latest: then cold data stay cold",
            ),
            key(
                "cache",
                "as_it_is, cold, warm, dirty",
                Some("\"as_it_is\""),
                "\"cold\"",
                "State of the caches when a run begins: as left, empty, filled by reads, filled by writes",
            ),
            key(
                "missing",
                "a number",
                Some("0"),
                "1",
                "The number of devices of the first vdev that are \
                offline",
            ),
            key("compressible", "per cent", Some("0"), "50", "Share of the data that compresses away"),
            key("duplicates", "per cent", Some("0"), "20", "Share of the data that are duplicates"),
            key("files", "a number", Some("1000"), "50", "How many files are made"),
            key(
                "trace",
                "a path",
                None,
                "\"vol.trace\"",
                "The trace: fio's log of version 3, as `lab record` writes it",
            ),
            key("source", "a path", None, "\"/usr/share\"", "The source of copies: a directory, or a file"),
            key(
                "as_disk",
                "true or false",
                Some("false"),
                "true",
                "Whether files that are copied lie as on a disk that has room left",
            ),
            key(
                "only",
                "text, programs",
                None,
                "\"text\"",
                "The files that are copied: uncompressed texts, or programs and libraries; by default all",
            ),
            key(
                "at_once",
                "true or false",
                Some("false"),
                "true",
                "Whether a trace is replayed as fast as possible, without its pauses",
            ),
            key("quick", "true or false", Some("true"), "false", "Whether --quick has it"),
            key(
                "options",
                "a table",
                Some("{}"),
                "{ fsync = \"1\" }",
                "More options of fio: those that write nowhere else and have no key of their own; numjobs is \
                 at most 64",
            ),
        ],
    },
    TableOf {
        head: "sizes",
        about: "Numbers of bytes, or text with a unit of 1024: 4096, \"8K\", \"1.5G\"",
        keys: &[],
    },
];

/// All tables, in the order in which a file has them.
pub fn tables() -> Vec<TableOf> {
    let of_targets = KINDS.iter().flat_map(|kind| kind.tables);
    BEFORE_TARGETS.iter().chain(of_targets).chain(&AFTER_TARGETS).copied().collect()
}

/// All settings, and what each applies to.
fn settings() -> String {
    let of = |place: SettingOwner| {
        let names: Vec<&str> = SETTINGS.into_iter().filter(|name| SettingOwner::of(name) == place).collect();
        names.join(", ")
    };
    format!(
        "Settings, of [settings], [[factor]] and [[variant]]:\n  \
         of the load: {}, and options of fio that write nowhere else with fio. before their names \
         (fio.thinktime)\n  of the process that serves: {}\n  \
         of that process while it runs: its tunables with tunable. before their names \
         (tunable.zfs_txg_timeout; `cenote tunable list`), set anew before each run\n  \
         of the pool: {}, feature@NAME, and every property of a pool with pool. before its name \
         (pool.autotrim)\n  of the way to a volume: {} (nbd, process; guest for guests)\n  \
         of a guest: {}\n  \
         of a stack: layer\n  \
         of the volume or filesystem: each of its properties (recordsize, compression …), and user \
         properties\n",
        of(SettingOwner::Job),
        of(SettingOwner::Server),
        of(SettingOwner::Pool),
        of(SettingOwner::Way),
        of_guests()
    )
}

/// The settings of guests, with their values.
fn of_guests() -> String {
    let all = KNOBS.iter().map(|knob| format!("{} ({})", knob.name, knob.values.join(", ")));
    all.collect::<Vec<_>>().join(", ")
}

/// The reference as text.
pub fn text() -> String {
    let mut text = String::from(
        "An experiment's file is TOML. `cenote lab new` writes one, `cenote lab run FILE --dry-run` lists \
         its faults.\n",
    );
    for table in tables() {
        let head = if table.head.is_empty() { "at the beginning" } else { table.head };
        text.push_str(&format!("\n{head}: {}\n", table.about));
        for key in table.keys {
            let default = key.default.map_or_else(String::new, |value| format!("; {value} where left out"));
            text.push_str(&format!(
                "  {} = {}\n      {} ({}{default})\n",
                key.name, key.example, key.about, key.takes
            ));
        }
    }
    text.push('\n');
    text + &settings()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toml::{Table, Value};

    use super::*;
    use crate::experiment::Experiment;

    /// The smallest file that has the table of this head, and the way to that table.
    fn smallest(head: &str) -> (String, Vec<&'static str>) {
        let of_target = |kind: &str, fields: &str| {
            format!(
                "name = \"x\"\n[target]\nkind = \"{kind}\"\nsize = \"64M\"\n{fields}\n[[workload]]\nname = \
                 \"w\"\nrw = \"read\"\n"
            )
        };
        let volume = of_target("volume", "");
        match head {
            "" => (volume, vec![]),
            "[goal]" => (volume + "[goal]\n", vec!["goal"]),
            "[[bound]]" => (volume + "[[bound]]\nname = \"b\"\nrate = \"1gbe\"\n", vec!["bound"]),
            "[[factor]]" => (volume + "[[factor]]\nname = \"f\"\nvalues = [\"1\", \"2\"]\n", vec!["factor"]),
            "[[claim]]" => {
                (volume + "[[claim]]\ntext = \"t\"\nmetric = \"cpu\"\nis = \"more\"\n", vec!["claim"])
            }
            "[[workload]]" => (volume, vec!["workload"]),
            "[[target.layer]]" => {
                let layers = "[[target.layer]]\nname = \"a\"\nat = \"/a\"\n[[target.layer]]\nname = \
                    \"b\"\nat = \"/b\"\n";
                (of_target("layers", layers), vec!["target", "layer"])
            }
            head => {
                let kind = head.split('"').nth(1).unwrap();
                let keys = tables().into_iter().filter(|table| table.head == head).flat_map(|it| it.keys);
                let required = keys.filter(|key| key.about.contains("required") && key.name != "size");
                let fields: String =
                    required.map(|key| format!("{} = {}\n", key.name, key.example)).collect();
                (of_target(kind, &fields), vec!["target"])
            }
        }
    }

    /// The file with a key set in that table; in the first of several.
    fn with(head: &str, name: &str, value: Value) -> String {
        let (text, way) = smallest(head);
        let mut root: Table = text.parse().unwrap();
        let mut table = &mut root;
        for step in way {
            table = match table.get_mut(step).unwrap() {
                Value::Array(all) => all[0].as_table_mut().unwrap(),
                Value::Table(table) => table,
                _ => panic!("{step}"),
            };
        }
        table.insert(name.to_owned(), value);
        root.to_string()
    }

    fn value(text: &str) -> Value {
        format!("it = {text}").parse::<Table>().unwrap().remove("it").unwrap()
    }

    /// The type that the parser expected.
    fn expected(error: &str) -> BTreeSet<String> {
        let after = error.split("expected").nth(1).unwrap_or_else(|| panic!("{error}"));
        after.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    fn tables_with_keys() -> impl Iterator<Item = TableOf> {
        tables().into_iter().filter(|table| !table.keys.is_empty())
    }

    #[test]
    fn every_key_that_the_parser_takes_is_there_and_no_other() {
        for table in tables_with_keys() {
            let error = Experiment::read(&with(table.head, "no-such-key", Value::Integer(1))).unwrap_err();
            let mut parsed = expected(&error.to_string());
            // The parser knows what is put in its place, and targets by their kinds.
            if table.head == "[[workload]]" {
                parsed.insert("preset".to_owned());
            }
            let told: BTreeSet<String> = table.keys.iter().map(|key| key.name.to_owned()).collect();
            assert_eq!(told, parsed, "{}", table.head);
        }
        let error =
            Experiment::read(&with("[target] kind = \"volume\"", "kind", value("\"x\""))).unwrap_err();
        let kinds = tables().into_iter().filter_map(|table| table.head.strip_prefix("[target] kind = "));
        let kinds: BTreeSet<String> = kinds.map(|kind| kind.trim_matches('"').to_owned()).collect();
        assert_eq!(kinds, expected(&error.to_string()));
    }

    #[test]
    fn examples_are_read_and_defaults_are_what_they_are_said_to_be() {
        for table in tables_with_keys() {
            let (smallest, _) = smallest(table.head);
            let left_out = Experiment::read(&smallest).unwrap();
            for key in table.keys {
                let name = format!("{} {}", table.head, key.name);
                let read = Experiment::read(&with(table.head, key.name, value(key.example)));
                let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
                if let Some(default) = key.default {
                    let with_default = Experiment::read(&with(table.head, key.name, value(default))).unwrap();
                    assert_eq!(with_default, left_out, "{name}");
                    assert_ne!(read, left_out, "{name}: the example is the default");
                }
            }
        }
        let text = text();
        for expected in ["fio.thinktime", "pool.autotrim", "[[workload]]", "rounds = 7"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn words_that_a_key_takes_are_those_that_the_parser_takes() {
        for (head, name) in
            [("", "mode"), ("[goal]", "metric"), ("[[claim]]", "is"), ("[[workload]]", "cache")]
        {
            let table = tables().into_iter().find(|table| table.head == head).unwrap();
            let key = table.keys.iter().find(|key| key.name == name).unwrap();
            let told: BTreeSet<String> = key.takes.split(", ").map(str::to_owned).collect();
            let error = Experiment::read(&with(head, name, value("\"no-such-word\""))).unwrap_err();
            assert_eq!(told, expected(&error.to_string()), "{name}");
        }
    }
}
