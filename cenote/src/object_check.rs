//! `cenote object-check`: the check of a device in an object store. What it judges by is in `objects::check`.
//!
//! It reads the bucket itself, without the daemon, so that it can be run from any host while another one has
//! the pool. Exit codes are those of a check: 0 for nothing to do, 1 for objects that are left over, 2 for
//! damage, and 3 where the device could not be checked.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use device::OpenOptions;
use objects::bucket::Bucket;
use objects::check::{CheckOptions, Report, Step, Tallies, Tally, check};
use objects::lease::{self, INTERVALS, Lease, Seen, State, Watch};
use objects::{Address, Error};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::output::{self, Exit};
use crate::progress::Progress;

/// Objects are left over.
const LEFT_OVER: u8 = 1;
/// Something that is needed is missing or wrong.
const DAMAGED: u8 = 2;
/// It could not be found out.
const UNKNOWN: u8 = 3;

/// What the help says below the options.
const AFTER_HELP: &str = "\
A pool may be imported and written while its device is checked, here or on another host: what its owner \
may still need is never removed. '--remove --take-over' finds everything that is left over, and ends the \
owner: export the pool before.

Exit codes: 0 nothing is left over, 1 objects are left over, 2 something that is needed is missing or \
damaged, 3 it could not be checked.";

/// Arguments of `cenote object-check`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Where the device is, as 'zpool status' shows it
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Read all data too, and verify it
    #[arg(long)]
    data: bool,
    /// Remove what is left over, where no owner can need it
    #[arg(long)]
    remove: bool,
    /// Take the device over from its owner before, so that everything that is left over can be told
    #[arg(long, requires = "remove")]
    take_over: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self.report() {
            Ok(report) => {
                let text = if self.json { format!("{:#}\n", as_json(&report)) } else { in_words(&report) };
                output::print(&text)?;
                match code(&report) {
                    0 => Ok(()),
                    code => Err(Exit(code).into()),
                }
            }
            Err(error) => {
                let is_damage = matches!(error.downcast_ref(), Some(Error::Damaged { .. }));
                eprintln!("cannot check '{}': {}", self.address, output::in_words(&error));
                Err(Exit(if is_damage { DAMAGED } else { UNKNOWN }).into())
            }
        }
    }

    fn report(&self) -> Result<Report> {
        let address: Address = self.address.parse()?;
        let bucket = address.bucket(false)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // It is the owner until the check has ended. The lock of this host keeps it from a pool that is open
        // here, the lease from one that is open elsewhere.
        let _owner = match self.take_over {
            true => {
                let left = runtime.block_on(left_as(&bucket))?;
                let opened = OpenOptions::read_write().open_device(Path::new(&self.address));
                let opened = opened.context("the device cannot be taken over; export its pool before")?;
                lease::leave_as(bucket.address(), Some(left));
                Some(opened)
            }
            false => None,
        };
        let options = CheckOptions { data: self.data, remove: self.remove, ..CheckOptions::default() };
        let shown = Shown::new();
        Ok(LocalSet::new().block_on(&runtime, check(&bucket, &options, &|step| shown.show(step)))?)
    }
}

/// How the last owner left the device. An owner that gives no sign of life is waited for as long as a lease
/// lasts.
///
/// # Errors
/// It lives, or the store does not answer.
async fn left_as(bucket: &Arc<dyn Bucket>) -> Result<State> {
    let mut watch = Watch::new(Arc::clone(bucket), INTERVALS);
    let mut first: Option<Option<Lease>> = None;
    loop {
        match watch.look().await {
            Seen::Exported(_) => return Ok(State::Exported),
            Seen::Free(_) | Seen::Over(_) => return Ok(State::Free),
            Seen::Unknown(why) => bail!("the lease of the device cannot be read: {why}"),
            Seen::Held { lease, .. } => match &first {
                Some(first) if *first != lease => {
                    let host = lease.map_or_else(|| "another host".to_owned(), |lease| lease.host);
                    bail!("the device cannot be taken over: '{host}' has it; export its pool before");
                }
                Some(_) => {}
                None => first = Some(lease),
            },
        }
        sleep(watch.pause()).await;
    }
}

/// What goes on, where there is a terminal to see it.
struct Shown(Option<RefCell<(Progress, u64)>>);

impl Shown {
    fn new() -> Self {
        Self(stderr().is_terminal().then(|| RefCell::new((Progress::counting(), 0))))
    }

    fn show(&self, step: Step) {
        let Some(shown) = &self.0 else { return };
        let (progress, before) = &mut *shown.borrow_mut();
        let (name, done, total) = match step {
            Step::Listed(done) => ("listing", done, None),
            Step::Verified(done, total) => ("verifying objects", done, Some(total)),
            Step::Waits => ("waiting for reads of the owner", *before, None),
            Step::Removed(done, total) => ("removing objects", done, Some(total)),
        };
        if done < *before {
            (*progress, *before) = (Progress::counting(), 0);
        }
        progress.name(name);
        progress.total(total);
        progress.advance(done - *before);
        *before = done;
    }
}

fn code(report: &Report) -> u8 {
    match (report.is_right(), report.garbage.sum().count) {
        (false, _) => DAMAGED,
        (true, 0) => 0,
        (true, _) => LEFT_OVER,
    }
}

fn size(bytes: u64) -> String {
    lab::models::bytes(bytes as f64)
}

fn tally_in_words(tally: Tally, name: &str) -> Option<String> {
    let plural = if tally.count == 1 { "" } else { "s" };
    (tally.count > 0).then(|| format!("{} {name}{plural} ({})", tally.count, size(tally.bytes)))
}

fn tallies_in_words(tallies: &Tallies) -> String {
    let all = [
        tally_in_words(tallies.segments, "segment"),
        tally_in_words(tallies.commits, "commit"),
        tally_in_words(tallies.maps, "map"),
        tally_in_words(tallies.others, "other"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

fn in_words(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // A text takes all that is written.
        let _ = writeln!(text, "{name:>12}: {value}");
    };
    line("device", format!("{}, {} in use", size(report.size_bytes), size(report.used_bytes)));
    line("state", format!("commit {}, checkpoint {}", report.commit, report.checkpoint));
    line("needed", tallies_in_words(&report.needed));
    line("left over", tallies_in_words(&report.garbage));
    if report.removed.sum().count > 0 {
        line("removed", tallies_in_words(&report.removed));
    }
    if report.with_owner.sum().count > 0 {
        let not_yet = tallies_in_words(&report.with_owner);
        line("of the owner", format!("{not_yet}, not needed now; left to the last owner, or to --take-over"));
    }
    if let Some(foreign) = tally_in_words(report.foreign, "object") {
        line("foreign", format!("{foreign}, left alone"));
    }
    if report.verified_bytes > 0 {
        line("verified", format!("{} of data", size(report.verified_bytes)));
    }
    match report.problems.len() {
        0 => line("damage", "none".to_owned()),
        count => line("damage", format!("{count} objects are missing or damaged:")),
    }
    for problem in &report.problems {
        let _ = writeln!(text, "{:14}{}: {}", "", problem.key, problem.what);
    }
    text
}

fn as_json(report: &Report) -> Value {
    let tally = |tally: Tally| json!({ "count": tally.count, "bytes": tally.bytes });
    let tallies = |tallies: &Tallies| {
        json!({
            "segments": tally(tallies.segments),
            "commits": tally(tallies.commits),
            "maps": tally(tallies.maps),
            "others": tally(tallies.others),
        })
    };
    let problems = report.problems.iter().map(|it| json!({ "object": it.key, "problem": it.what }));
    json!({
        "size_bytes": report.size_bytes,
        "used_bytes": report.used_bytes,
        "commit": report.commit,
        "checkpoint": report.checkpoint,
        "needed": tallies(&report.needed),
        "left_over": tallies(&report.garbage),
        "removed": tallies(&report.removed),
        "of_owner": tallies(&report.with_owner),
        "foreign": tally(report.foreign),
        "verified_bytes": report.verified_bytes,
        "problems": problems.collect::<Vec<_>>(),
    })
}
