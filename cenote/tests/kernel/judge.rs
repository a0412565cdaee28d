//! The module's judgement of many pools in one boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::block_on;
use engine::pool::import::{ImportOptions, import, select};
use engine::pool::{discovery, verify};
use tempfile::TempDir;
use testkit::kernel::{Job, KernelVm};

use crate::hand::{CHANGE, Hand, OBSERVE};

/// The kernel's side of the scripts.
const THEIRS: &str = include_str!("scripts/theirs.sh");
/// Room for all that is seen.
const SEEN_BYTES: u64 = 64 << 20;
/// How long the machine works before it gives up what is not done, when `CENOTE_KERNEL_SECONDS` says nothing
/// else, and how long it then has to say so.
const WORK_SECONDS: u64 = 600;
const LAST_WORDS: Duration = Duration::from_secs(120);
/// Differences that are shown.
const SHOWN: usize = 120;

/// A pool that is closed, and what we see in it.
pub struct Pool {
    name: String,
    folder: TempDir,
    seen: String,
}

impl Pool {
    /// The pool whose disks are in a folder.
    pub fn new(hand: &Hand, name: &str, folder: TempDir) -> Self {
        let seen = hand.observe(name, folder.path());
        Self { name: name.into(), folder, seen }
    }

    fn disks(&self) -> Vec<PathBuf> {
        files_of(self.folder.path())
    }
}

/// The disks in a folder.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut all: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    all.sort();
    all
}

/// What a machine saw, by name, and what it said.
pub struct Told {
    pub seen: BTreeMap<String, String>,
    pub said: String,
}

/// Lets the machine do one job for each group of disks, all at the same time: `job` is given the number of
/// the group and the names that its disks have there.
pub fn work(vm: &KernelVm, groups: &[Vec<PathBuf>], job: impl Fn(usize, &str) -> String) -> Told {
    let results = tempfile::NamedTempFile::new().expect("a file");
    results.as_file().set_len(SEEN_BYTES).expect("room");
    let mut lines = "mkdir -p /tmp/seen /tmp/log /tmp/done\n".to_owned();
    let mut disks = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let names = group.iter().map(|disk| {
            disks.push(disk.clone());
            format!("/dev/{}", Job::disk_name(disks.len() - 1))
        });
        let names = names.collect::<Vec<_>>().join(" ");
        let job = job(number, &names);
        lines += &format!("({{ {job}\n}} > /tmp/log/{number:02} 2>&1\n: > /tmp/done/{number}) &\n");
    }
    disks.push(results.path().to_owned());
    let seen = Job::disk_name(disks.len() - 1);
    let told = std::env::var("CENOTE_KERNEL_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let seconds = told.unwrap_or(WORK_SECONDS);
    lines += &format!("finish {seconds} {}\nhand_over /dev/{seen}\n", groups.len());
    let limit = Duration::from_secs(seconds) + LAST_WORDS;
    let script = [THEIRS, OBSERVE, CHANGE, &lines].join("\n");
    let outcome = vm.run(&Job { script, disks, limit }).expect("the machine runs");
    println!("{}", outcome.output);
    let text = fs::read(results.path()).expect("what was seen");
    let text = String::from_utf8_lossy(&text);
    let mut seen = BTreeMap::new();
    for part in text.trim_end_matches('\0').split("@@ seen ").skip(1) {
        let (name, lines) = part.split_once('\n').unwrap_or((part, ""));
        seen.insert(name.to_owned(), lines.to_owned());
    }
    Told { seen, said: outcome.output }
}

/// What one reader of a pool sees and the other does not, in words.
pub fn differences(ours: &str, theirs: &str) -> Option<String> {
    let (ours, theirs): (BTreeSet<&str>, BTreeSet<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let mut both: Vec<_> = ours.difference(&theirs).map(|line| (*line, "ours")).collect();
    both.extend(theirs.difference(&ours).map(|line| (*line, "theirs")));
    both.sort_unstable();
    let shown: Vec<_> = both.iter().take(SHOWN).map(|(line, whose)| format!("  {whose:>6} {line}")).collect();
    (!both.is_empty()).then(|| format!("{} lines differ\n{}", both.len(), shown.join("\n")))
}

/// The module judges pools, and we judge what it made of them.
///
/// # Panics
/// When anything is wrong with any of them, with all that is.
pub fn judge(vm: &KernelVm, hand: &Hand, pools: &[Pool]) {
    let groups: Vec<_> = pools.iter().map(Pool::disks).collect();
    let told = work(vm, &groups, |number, disks| format!("judge {} {disks}", pools[number].name));
    let mut wrong = Vec::new();
    for pool in pools {
        let mut complain = |what: String| {
            println!("{}: {what}", pool.name);
            wrong.push(format!("{}: {what}", pool.name));
        };
        check_words(&told.said, &pool.name).into_iter().for_each(&mut complain);
        let nothing = String::new();
        let theirs = |when: &str| told.seen.get(&format!("{}.{when}", pool.name)).unwrap_or(&nothing);
        if let Some(differences) = differences(&pool.seen, theirs("before")) {
            complain(format!("as we wrote it: {differences}"));
        }
        let after = hand.observe(&pool.name, pool.folder.path());
        if let Some(differences) = differences(&after, theirs("after")) {
            complain(format!("as the module wrote it: {differences}"));
        }
        if after == pool.seen {
            complain("the module changed nothing".into());
        }
        // We go on where it ended.
        hand.import(&pool.name, pool.folder.path(), "");
        println!("{}: changed by us again: {}", pool.name, hand.change(&pool.name));
        hand.export(&pool.name);
        check_blocks(&pool.name, pool.folder.path()).into_iter().for_each(&mut complain);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is missing in the module's words on a pool.
fn check_words(said: &str, pool: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !said.contains(&format!("@@ judged {pool}\n")) {
        wrong.push("the module did not get to the end".into());
    }
    let is_about = |status: &&str| status.lines().next().is_some_and(|name| name == pool);
    let statuses: Vec<&str> = said.split("  pool: ").skip(1).filter(is_about).collect();
    for status in &statuses {
        for words in ["state: ONLINE", "with 0 errors", "errors: No known data errors"] {
            if !status.contains(words) {
                wrong.push(format!("no '{words}' in\n{status}"));
            }
        }
    }
    if statuses.len() != 2 || !said.contains(&format!("pool '{pool}' is healthy")) {
        wrong.push("the module did not call it healthy".into());
    }
    wrong
}

/// What we and `zdb` find wrong with the blocks of a closed pool.
fn check_blocks(name: &str, folder: &Path) -> Vec<String> {
    let pool = block_on(async {
        let found = discovery::scan(&[folder]).await.expect("a scan");
        let found = select(found, name).expect("the pool");
        import(&found, &ImportOptions::read_only()).await
    });
    let pool = pool.expect("an import");
    let report = verify::verify(&pool, verify::VerifyOptions::default(), &verify::Progress::default());
    let report = report.expect("a verification");
    let ours = (!report.is_clean()).then(|| format!("{report:?}"));
    drop(pool);
    ours.into_iter().chain(testkit::oracle::complaint(folder, name)).collect()
}

/// Empty disks in a folder.
pub fn new_disks(folder: &Path, count: usize, bytes: u64) {
    for number in 0..count {
        let disk = File::create(folder.join(format!("d{number}"))).expect("a disk");
        disk.set_len(bytes).expect("a disk");
    }
}
