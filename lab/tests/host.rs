//! A host that runs OpenZFS, as its commands look to the lab: two scripts play them, with files for volumes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lab::environment::Environment;
use lab::experiment::{Experiment, Settings};
use lab::programs::{KernelPrograms, Programs};
use lab::progress::{Ended, Progress};
use lab::store::{Run, Store};
use lab::target::{Bench, Placement};

/// What a host has: its commands write down what they are asked, and make and remove files as OpenZFS does
/// volumes.
struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self { directory: tempfile::tempdir().unwrap() };
        let root = host.directory.path().display().to_string();
        host.script("zpool", &format!("echo \"zpool $*\" >> {root}/asked\n"));
        // The last word is the dataset; the one after -V the size. Another process uses the first volume that
        // is to be destroyed.
        let zfs = format!(
            "echo \"zfs $*\" >> {root}/asked\n\
             for last; do :; done\n\
             case \"$1\" in\n\
             create) case \"$*\" in *volblocksize=bad*) echo 'bad value' >&2; exit 1;; esac\n\
               while [ \"$1\" != -V ]; do case \"$1\" in cenote:lab=*) owner=\"${{1#*=}}\";; esac; shift; \
               done\n\
               printf '%s\\t%s\\n' \"$last\" \"$owner\" >> {root}/owners\n\
               mkdir -p \"{root}/zvol/${{last%/*}}\"; truncate -s \"$2\" \"{root}/zvol/$last\";;\n\
             destroy) if mkdir {root}/busy 2>/dev/null; then echo 'dataset is busy' >&2; exit 1; fi\n\
               grep -v \"$last\t\" {root}/owners > {root}/others; mv {root}/others {root}/owners\n\
               rm \"{root}/zvol/$last\";;\n\
             get) case \"$*\" in *cenote:lab*) cat {root}/owners; exit;; esac; echo 3000000; echo 2000000;;\n\
             esac\n"
        );
        host.script("zfs", &zfs);
        fs::write(host.path("owners"), "tank/lab/lab-1-1\t/elsewhere\n").unwrap();
        fs::create_dir_all(host.path("zvol/tank/lab")).unwrap();
        fs::write(host.path("zvol/tank/other"), "somebody else's").unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.path("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    fn volumes(&self) -> Vec<String> {
        let all = fs::read_dir(self.path("zvol/tank/lab")).unwrap();
        all.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn bench<'a>(&'a self, experiment: &'a Experiment, results: &Path) -> Bench<'a> {
        let programs = || KernelPrograms::at(self.path("zpool"), self.path("zfs"), self.path("zvol"));
        let launch = Box::new(move |_: &Settings| Ok(Box::new(programs()) as Box<dyn Programs>));
        Bench::new(experiment, results, Some(launch))
    }

    /// Runs an experiment on it.
    fn run(&self, values: &str, results: &Path) -> (lab::Result<Ended>, Store) {
        let text = format!(
            "name = \"host\"\nrounds = 2\n[target]\nkind = \"host\"\ndataset = \"tank/lab\"\nsize = \
             \"1M\"\n[settings]\ncompression = \"lz4\"\n\
             [[factor]]\nname = \"volblocksize\"\nvalues = [{values}]\n\
             [[workload]]\nname = \"writes\"\nrw = \"randwrite\"\nbs = \"4K\"\nseconds = 0.1\n\
             [[workload]]\nname = \"cold reads\"\nrw = \"randread\"\nbs = \"4K\"\nseconds = 0.1\ncache = \
             \"cold\"\n"
        );
        let experiment = Experiment::parse(&text).unwrap();
        let mut store = Store::create(results, experiment.clone(), Environment::default()).unwrap();
        let mut bench = self.bench(&experiment, results);
        let ended = lab::run::run(&mut store, &mut bench, &Silent);
        bench.remove().unwrap();
        (ended, store)
    }
}

struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: Option<std::time::Duration>, _: &str) {}
    fn ended(&self, _: &Run) {}
    fn stops(&self) -> bool {
        false
    }
}

#[test]
fn a_host_is_measured_by_its_commands_and_left_as_it_was_found() {
    let (host, results) = (Host::new(), tempfile::tempdir().unwrap());
    let (ended, store) = host.run("\"16K\", \"8K\"", &results.path().join("out"));
    assert_eq!(ended.unwrap(), Ended::Complete);
    // Baseline, twin and the other block size, two workloads, two rounds.
    assert_eq!(store.runs().len(), 12);
    let report = lab::report::markdown(&store, &lab::analysis::findings(&store));
    assert!(report.contains("volblocksize=8K") && report.contains("1.50"), "{report}");
    assert!(report.contains("may have been cached"), "{report}");

    // What is random is alike within a round, and another in the next.
    let seeds = |round: usize| -> std::collections::BTreeSet<&String> {
        let of_round = store.runs().iter().filter(|run| run.round == round);
        of_round.flat_map(|run| &run.command).filter(|word| word.starts_with("--randseed=")).collect()
    };
    assert!(seeds(0).len() == 1 && seeds(1).len() == 1 && seeds(0) != seeds(1), "{:?}", seeds(0));

    let asked = host.asked();
    let creates: Vec<&String> = asked.iter().filter(|line| line.starts_with("zfs create")).collect();
    assert_eq!(creates.len(), 3, "{asked:?}");
    assert!(creates.iter().all(|line| line.contains("-o compression=lz4") && line.contains("-s -V 1048576")));
    assert_eq!(creates.iter().filter(|line| line.contains("volblocksize=8K")).count(), 1);
    // Of the pool only a sync is asked; all else is about volumes of the lab's own below the dataset.
    for line in &asked {
        let mine = line.split_whitespace().last().is_some_and(|word| word.starts_with("tank/lab/lab-"));
        assert!(mine || line == "zpool sync tank", "{line}");
    }
    assert_eq!(asked.iter().filter(|line| line.starts_with("zfs destroy -r tank/lab/lab-")).count(), 4);
    assert!(host.volumes().is_empty());
    assert_eq!(fs::read_to_string(host.path("zvol/tank/other")).unwrap(), "somebody else's");
}

#[test]
fn what_a_host_refuses_is_told_and_what_was_made_is_removed() {
    let (host, results) = (Host::new(), tempfile::tempdir().unwrap());
    let (ended, _) = host.run("\"16K\", \"bad\"", &results.path().join("out"));
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("volblocksize=bad") && error.contains("bad value"), "{error}");
    assert!(host.volumes().is_empty());
}

#[test]
fn a_lab_that_was_killed_finds_its_own_volumes_again_and_no_others() {
    let (host, results) = (Host::new(), tempfile::tempdir().unwrap());
    let text = "name = \"host\"\n[target]\nkind = \"host\"\ndataset = \"tank/lab\"\nsize = \"1M\"\n\
                [[workload]]\nname = \"reads\"\nrw = \"randread\"\nbs = \"4K\"\n";
    let experiment = Experiment::parse(text).unwrap();
    let mut killed = host.bench(&experiment, results.path());
    let plan = lab::plan::Plan::new(&experiment, None, 1);
    for variant in plan.variants() {
        let workload = &experiment.workloads[0];
        killed.ready(&Placement::of(variant, workload), workload, &Silent).unwrap();
    }
    // Nothing of it is removed.
    std::mem::forget(killed);
    assert_eq!(host.volumes().len(), 2);
    let others = host.bench(&experiment, results.path()).remove_left().unwrap();
    assert!(host.volumes().is_empty(), "{:?}", host.volumes());
    assert_eq!(others, [("tank/lab/lab-1-1".to_owned(), PathBuf::from("/elsewhere"))]);
}
