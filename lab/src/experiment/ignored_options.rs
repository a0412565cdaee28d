//! Options of fio that make no difference, because the program that does the work ignores them.
//!
//! fio accepts them silently and measures something else than was asked for. So they are known here:
//!
//! | the work is done by | ignored |
//! |---|---|
//! | fio's NBD client (transfers, traces) | [`OF_FILES`]: how a file is opened and laid out. It has no file; the server's volume is as stable as its property `sync` says, and flushes are `fsync` |
//! | the process that has the pool open | `direct`: it has no page cache. Other options that it does not know are refused ([`crate::load`]) |
//! | files made or opened one after the other | `iodepth` |
//! | traces with their own pauses | `iodepth`: fio would count the pauses as latencies ([`Workload::replay_depth`]) |
//! | transfers that only write, or only read | `rwmixread`; `fsync` and `fdatasync` |
//! | sequential transfers | `random_distribution` |
//! | transfers of several sizes (`bssplit`) | `bs` |
//! | attributes and removal of files | the same, and [`OF_FILES`] |
//! | copies | all but `bs`: fio does not do them |
//!
//! A factor that makes no difference to any measured workload is an error. An ignored option of a workload,
//! or one that only some workloads ignore, is reported.
//!
//! Source: fio 3.33 against an NBD server that records its requests: with each of [`OF_FILES`] the requests
//! were the same, and none had the flag for stable writes.

use super::{Experiment, FIO, SettingOwner, Work, Workload, does_write};
use crate::error::{Error, Result};
use crate::site::Access;

/// How files are opened and laid out.
const OF_FILES: [&str; 10] = [
    "direct",
    "buffered",
    "sync",
    "atomic",
    "invalidate",
    "fallocate",
    "overwrite",
    "create_on_open",
    "fadvise_hint",
    "write_hint",
];

/// Options that depend on `rw`.
const BY_KIND: [&str; 4] = ["rwmixread", "fsync", "fdatasync", "random_distribution"];

/// Why the program that runs a workload ignores fio's option `name`; `None` if it does not.
fn why(workload: &Workload, way: Access<'_>, name: &str) -> Option<&'static str> {
    let is_of_files = OF_FILES.contains(&name);
    match (workload.work(), way) {
        (Work::Copy, _) => (!["rw", "bs"].contains(&name))
            .then_some("fio does not do copies: of its options they only have bs"),
        (Work::Create | Work::Open | Work::Stat | Work::Delete, _) if name == "iodepth" => {
            Some("files are made, opened and removed one after the other")
        }
        (Work::Replay, _) if name == "iodepth" && !workload.at_once => Some(
            "a trace with its own pauses is replayed one request after the other, since fio would count the \
             pauses as latencies; at_once = true has more under way",
        ),
        (Work::Replay, _) if OF_TRACES.contains(&name) => Some("a trace has its own requests"),
        (Work::Transfers, _) if name == "bs" && has_sizes(workload) => Some(
            "the sizes are those of the workload's bssplit, which overrides bs; vary fio.bssplit, or use a \
             workload of one size",
        ),
        (Work::Transfers, _) if name == "rwmixread" && !is_mixed(workload) => {
            Some("it does not both read and write; rw = \"randrw\" or \"rw\" does")
        }
        (Work::Transfers, _) if ["fsync", "fdatasync"].contains(&name) && !does_write(&workload.rw) => {
            Some("it writes nothing that could be made stable")
        }
        (Work::Transfers, _) if name == "random_distribution" && !workload.rw.contains("rand") => {
            Some("it is sequential; rw = \"randread\" and similar ones are random")
        }
        (Work::Stat | Work::Delete, _) if is_of_files => Some("no file is opened"),
        (Work::Transfers | Work::Replay, Access::Nbd(_)) if name == "sync" => Some(
            "fio has no stable writes over NBD; fsync=1 flushes each, and sync is also a property of the \
             volume",
        ),
        (Work::Transfers | Work::Replay, Access::Nbd(_)) if is_of_files => Some(
            "over NBD fio opens no file; a filesystem (kind = \"filesystem\") or a block device (kind = \
             \"path\") has one",
        ),
        (Work::Transfers, Access::Process) if name == "direct" => {
            Some("the process that has the pool open has no page cache; a filesystem has one")
        }
        _ => None,
    }
}

/// Options that a trace fixes itself.
const OF_TRACES: [&str; 4] = ["rw", "bs", "rwmixread", "random_distribution"];

/// Whether it has sizes of its own beside `bs`.
fn has_sizes(workload: &Workload) -> bool {
    workload.options.contains_key("bssplit")
}

/// Whether it reads and writes.
fn is_mixed(workload: &Workload) -> bool {
    let kind = workload.rw.split(':').next().unwrap_or_default();
    ["rw", "readwrite", "randrw"].contains(&kind)
}

/// The option of fio that a setting of the job is.
fn option(setting: &str) -> Option<&str> {
    let is_of_job = SettingOwner::of(setting) == SettingOwner::Job;
    let name = if setting == "sync_job" { "sync" } else { setting.strip_prefix(FIO).unwrap_or(setting) };
    is_of_job.then_some(name)
}

/// Why an option is not looked at, each with the workload; and whether it is looked at anywhere.
fn places<'a>(experiment: &'a Experiment, name: &str) -> (Vec<(&'a Workload, &'static str)>, bool) {
    let ways = experiment.target.accesses(experiment.design());
    let mut unseen = Vec::new();
    // Where the kind of work is varied itself, it depends on that.
    let mut is_seen = BY_KIND.contains(&name) && !experiment.design().values_of("rw").is_empty();
    if is_seen {
        return (unseen, is_seen);
    }
    for workload in &experiment.workloads {
        let whys: Vec<Option<&str>> = ways.iter().map(|way| why(workload, *way, name)).collect();
        is_seen |= whys.contains(&None);
        unseen.extend(whys.into_iter().flatten().next().map(|why| (workload, why)));
    }
    (unseen, is_seen)
}

/// Says which factor makes no difference, where one does not.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    for factor in &experiment.factors {
        let Some(name) = option(&factor.name) else { continue };
        let (unseen, is_seen) = places(experiment, name);
        if let Some((_, why)) = unseen.first().filter(|_| !is_seen) {
            return Err(Error::Experiment(format!(
                "factor '{}': its values would make no difference: {why}",
                factor.name
            )));
        }
    }
    Ok(())
}

/// Options of an experiment that some of its workloads ignore, in words.
pub(crate) fn told(experiment: &Experiment) -> Vec<String> {
    let mut told = Vec::new();
    let settings = experiment.settings.keys().chain(experiment.variants.iter().flat_map(|it| it.keys()));
    let settings = settings.chain(experiment.factors.iter().map(|factor| &factor.name));
    for name in settings.filter_map(|name| option(name)) {
        let (unseen, _) = places(experiment, name);
        told.extend(unseen.into_iter().map(|(workload, why)| (name.to_owned(), &workload.name, why)));
    }
    for workload in &experiment.workloads {
        if workload.work() == Work::Replay && workload.iodepth != workload.replay_depth() {
            let whys = why(workload, Access::File, "iodepth");
            told.extend(whys.map(|why| ("iodepth".to_owned(), &workload.name, why)));
        }
        for name in workload.options.keys() {
            let whys = experiment
                .target
                .accesses(experiment.design())
                .into_iter()
                .filter_map(|way| why(workload, way, name));
            told.extend(whys.take(1).map(|why| (name.clone(), &workload.name, why)));
        }
    }
    let mut lines: Vec<(String, &str, Vec<&str>)> = Vec::new();
    for (name, workload, why) in told {
        match lines.iter_mut().find(|(other, reason, _)| *other == name && *reason == why) {
            Some((_, _, workloads)) if workloads.contains(&workload.as_str()) => {}
            Some((_, _, workloads)) => workloads.push(workload),
            None => lines.push((name, why, vec![workload])),
        }
    }
    let line = |(name, why, workloads): (String, &str, Vec<&str>)| {
        format!("Option '{name}' had no effect in {}: {why}.", workloads.join(", "))
    };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(kind: &str, rest: &str) -> Result<Experiment> {
        let target = match kind {
            "nbd" => "kind = \"nbd\"\nuri = \"nbd://h/v\"\n".to_owned(),
            "path" => "kind = \"path\"\npath = \"/dev/x\"\n".to_owned(),
            kind => format!("kind = \"{kind}\"\n"),
        };
        Experiment::parse(&format!("name = \"x\"\n[target]\nsize = \"64M\"\n{target}{rest}"))
    }

    fn factor(name: &str) -> String {
        format!("[[factor]]\nname = \"{name}\"\nvalues = [\"0\", \"1\"]\n")
    }

    const WRITES: &str = "[[workload]]\nname = \"writes\"\nrw = \"write\"\n";

    #[test]
    fn factors_that_make_no_difference_are_refused_with_what_to_do() {
        for (kind, name, work, named) in [
            ("volume", "direct", WRITES, "filesystem"),
            ("nbd", "direct", WRITES, "block device"),
            ("volume", "sync_job", WRITES, "property"),
            ("volume", "fio.invalidate", WRITES, "opens no file"),
            (
                "filesystem",
                "iodepth",
                "[[workload]]\nname = \"make\"\nrw = \"create\"\n",
                "one after the other",
            ),
            ("filesystem", "direct", "[[workload]]\nname = \"look\"\nrw = \"stat\"\n", "no file is opened"),
            ("volume", "iodepth", "[[workload]]\nname = \"t\"\nrw = \"replay\"\ntrace = \"/t\"\n", "pauses"),
            ("filesystem", "bs", "[[workload]]\npreset = \"web\"\n", "bssplit"),
            ("volume", "rwmixread", WRITES, "randrw"),
            ("volume", "random_distribution", WRITES, "random"),
            ("volume", "fsync", "[[workload]]\nname = \"r\"\nrw = \"randread\"\n", "stable"),
            ("volume", "iodepth", "[[workload]]\nname = \"c\"\nrw = \"copy\"\nsource = \"/x\"\n", "copies"),
        ] {
            let error = experiment(kind, &format!("{}{work}", factor(name))).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("no difference"), "{kind} {name}: {error}");
        }
        for (kind, name) in
            [("filesystem", "direct"), ("path", "sync_job"), ("volume", "iodepth"), ("volume", "fsync")]
        {
            experiment(kind, &format!("{}{WRITES}", factor(name))).unwrap();
        }
    }

    #[test]
    fn what_some_do_not_look_at_is_told() {
        let bonnie = "[[workload]]\npreset = \"bonnie\"\n";
        let told = |kind: &str, rest: &str| super::told(&experiment(kind, rest).unwrap());
        let replay = "[[workload]]\nname = \"t\"\nrw = \"replay\"\ntrace = \"/t\"\niodepth = 4\n";
        let lines = told("volume", replay);
        assert!(lines.len() == 1 && lines[0].contains("'iodepth' had no effect in t"), "{lines:?}");
        assert!(told("volume", &format!("{replay}at_once = true\n")).is_empty());
        let lines = told("volume", bonnie);
        assert!(
            lines.len() == 1 && lines[0].contains("bonnie write, bonnie rewrite, bonnie read, bonnie seeks"),
            "{lines:?}"
        );
        assert!(told("filesystem", bonnie).is_empty());
        // One of two layers sees it.
        let layers = "kind = \"layers\"\n[[target.layer]]\nname = \"a\"\nat = \
            \"/dev/x\"\n[[target.layer]]\nname = \"b\"\nat = \"nbd://h/v\"\n";
        let text = format!("name = \"x\"\n[target]\nsize = \"64M\"\n{layers}{}{WRITES}", factor("direct"));
        assert_eq!(super::told(&Experiment::parse(&text).unwrap()).len(), 1);
    }
}
