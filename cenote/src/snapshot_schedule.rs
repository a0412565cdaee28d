//! `cenote snapshot-schedule`: snapshots that the daemon takes and destroys by itself.
//!
//! The schedule is a user property, which this command only writes: `zfs set`, `zfs inherit` and `zfs get` do
//! the same. What is due is decided by the daemon, whether a timer asks for that or it does so by itself.

use anyhow::{Result, anyhow};
use server::api::{
    ApiError, ErrorKind, GetSnapshotSchedules, InheritProperty, Listed, RunSnapshotSchedules,
    SNAPSHOT_SCHEDULE, SetProperties, SnapshotKind, SnapshotNames, SnapshotPlan, SnapshotSchedule,
    SnapshotsScheduled,
};

use crate::output::{self, complain, usage};
use crate::table::{Column, Layout};
use crate::{client, command_line};

const ABOUT: &str = "\
The schedule is the user property org.cenote:snapshots, such as hourly=24,daily=30,recursive. The daemon \
runs it in each quarter of an hour, takes one snapshot in each hour, day and so on, and destroys those \
beyond the number that is kept. It destroys only what a schedule made (by the local property \
org.cenote:snapshot-kind of the snapshot), nothing that is held or has clones, and nothing of a kind that \
the schedule does not name. com.sun:auto-snapshot=false keeps a dataset out, \
com.sun:auto-snapshot:hourly=false out of one kind.";

/// Arguments of `cenote snapshot-schedule`.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// The filesystem or volume; without it all of them, which can be shown and run
    #[arg(value_name = "DATASET")]
    dataset: Option<String>,
    /// off: no snapshots here; inherit: what is set above
    #[arg(value_name = "off|inherit", requires = "dataset", value_parser = ["off", "inherit"])]
    word: Option<String>,
    #[command(flatten)]
    keep: Keep,
    /// For everything below too
    #[arg(short = 'r', long, requires = "dataset")]
    recursive: bool,
    /// How the snapshots are called: autosnap_DATE_TIME_KIND, or zfs-auto-snap_KIND-DATE-TIME
    #[arg(long, value_name = "NAMES", requires = "dataset", value_parser = ["sanoid", "zfs-auto-snapshot"])]
    names: Option<String>,
    /// Take what is due now, and destroy what is beyond (the daemon does so by itself)
    #[arg(long, conflicts_with_all = ["word", "recursive", "names"])]
    run: bool,
    /// With --run: only say what would be done
    #[arg(short = 'n', long, requires = "run")]
    dry_run: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

/// How many are kept of each kind.
#[derive(Debug, clap::Args)]
struct Keep {
    /// Keep so many of every 15 minutes
    #[arg(long, value_name = "N", requires = "dataset", conflicts_with_all = ["run", "word"])]
    frequent: Option<u32>,
    /// Keep so many of every hour
    #[arg(long, value_name = "N", requires = "dataset", conflicts_with_all = ["run", "word"])]
    hourly: Option<u32>,
    /// Keep so many of every day
    #[arg(long, value_name = "N", requires = "dataset", conflicts_with_all = ["run", "word"])]
    daily: Option<u32>,
    /// Keep so many of every week
    #[arg(long, value_name = "N", requires = "dataset", conflicts_with_all = ["run", "word"])]
    weekly: Option<u32>,
    /// Keep so many of every month
    #[arg(long, value_name = "N", requires = "dataset", conflicts_with_all = ["run", "word"])]
    monthly: Option<u32>,
    /// Keep so many of every year
    #[arg(long, value_name = "N", requires = "dataset", conflicts_with_all = ["run", "word"])]
    yearly: Option<u32>,
}

impl Keep {
    fn given(&self) -> Vec<(SnapshotKind, u32)> {
        let numbers = [self.frequent, self.hourly, self.daily, self.weekly, self.monthly, self.yearly];
        let given = SnapshotKind::ALL.into_iter().zip(numbers);
        given.filter_map(|(kind, number)| Some((kind, number?))).collect()
    }
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let datasets: Vec<String> = self.dataset.iter().cloned().collect();
        if self.run {
            let request =
                RunSnapshotSchedules { datasets, dry_run: self.dry_run, command: command_line::command() };
            let done = output::ask(&request, |request| SnapshotsScheduled {
                failed: none(&request.datasets),
                ..Default::default()
            })?;
            return self.told(&done);
        }
        if let Some(dataset) = &self.dataset {
            self.set(dataset)?;
        }
        let request = GetSnapshotSchedules { datasets };
        let listed =
            output::ask(&request, |request| Listed { entries: Vec::new(), failed: none(&request.datasets) })?;
        self.show(&listed.entries)?;
        complain(&listed.failed)
    }

    /// Sets the schedule of a dataset, where one is given, and has it run.
    fn set(&self, dataset: &str) -> Result<()> {
        let keep = self.keep.given();
        let plan = match (self.word.as_deref(), keep.is_empty()) {
            (Some("inherit"), _) if self.recursive => {
                return Err(usage("inherit is for one dataset: 'zfs inherit -r' takes it from those below"));
            }
            (Some("inherit"), _) => return inherit(dataset),
            (Some(_), _) => SnapshotPlan::default(),
            (None, false) => SnapshotPlan {
                keep,
                recursive: self.recursive,
                names: self.names.as_deref().and_then(SnapshotNames::from_word).unwrap_or_default(),
            },
            (None, true) if self.recursive || self.names.is_some() => {
                return Err(usage("say how many are kept, for example --hourly 24 --daily 30"));
            }
            (None, true) => return Ok(()),
        };
        let text = plan.to_string();
        text.parse::<SnapshotPlan>().map_err(usage)?;
        let request = SetProperties {
            datasets: vec![dataset.to_owned()],
            properties: vec![(SNAPSHOT_SCHEDULE.to_owned(), text)],
            no_mount: false,
            command: command_line::command(),
        };
        let set = client::call_running(&request)?.ok_or_else(|| anyhow!(crate::zfs::absent(dataset)))?;
        complain(&set.failed)?;
        if plan.keep.is_empty() {
            return Ok(());
        }
        let request = RunSnapshotSchedules { datasets: vec![dataset.to_owned()], ..Default::default() };
        match client::call_running(&request) {
            Ok(done) => complain(&done.map(|done| done.failed).unwrap_or_default()),
            // Users who may set properties need not be those who may run schedules. The daemon does so soon.
            Err(error) if is_refused(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn told(&self, done: &SnapshotsScheduled) -> Result<()> {
        if self.json {
            let mut document = output::document("cenote snapshot-schedule");
            document.insert("run".into(), serde_json::to_value(done)?);
            output::print_json(&document)?;
            return complain(&done.failed);
        }
        let will = if self.dry_run { "would be " } else { "" };
        let mut text = String::new();
        for (names, what) in [(&done.taken, "taken"), (&done.destroyed, "destroyed")] {
            names.iter().for_each(|name| text.push_str(&format!("{will}{what}: {name}\n")));
        }
        let stays = |name: &String| text.push_str(&format!("stays, held or with clones: {name}\n"));
        done.in_use.iter().for_each(stays);
        output::print(&text)?;
        complain(&done.failed)
    }

    fn show(&self, schedules: &[SnapshotSchedule]) -> Result<()> {
        if self.json {
            let mut document = output::document("cenote snapshot-schedule");
            document.insert("schedules".into(), serde_json::to_value(schedules)?);
            return output::print_json(&document);
        }
        if schedules.is_empty() {
            return output::print("no snapshots by schedule\n");
        }
        let titles = ["DATASET", "KIND", "KEEP", "THERE", "NEWEST", "SOURCE", "STATE"];
        let mut columns = titles.map(Column::left);
        let rows: Vec<[String; 7]> = schedules.iter().flat_map(rows).collect();
        for row in &rows {
            columns.iter_mut().zip(row).for_each(|(column, value)| column.grow(value));
        }
        let layout = Layout { columns: columns.to_vec(), scripted: false };
        output::print(&rows.iter().fold(layout.header(), |text, row| text + &layout.row(row)))
    }
}

/// The lines of a schedule: one for each kind.
fn rows(of: &SnapshotSchedule) -> Vec<[String; 7]> {
    let source = of.source.to_string();
    let state = |is_out: bool| match (&of.idle, is_out) {
        (Some(why), _) => format!("does not run: {why}"),
        (None, true) => "does not run: com.sun:auto-snapshot".to_owned(),
        (None, false) => "runs".to_owned(),
    };
    if of.kinds.is_empty() {
        let dash = || "-".to_owned();
        return vec![[of.dataset.clone(), of.schedule.clone(), dash(), dash(), dash(), source, state(false)]];
    }
    let row = |kind: &server::api::ScheduledKind| {
        let newest = kind.newest.map_or_else(|| "-".to_owned(), output::ctime);
        let (keep, there) = (kind.keep.to_string(), kind.there.to_string());
        let word = kind.kind.word().to_owned();
        [of.dataset.clone(), word, keep, there, newest, source.clone(), state(kind.ruled_out)]
    };
    of.kinds.iter().map(row).collect()
}

fn inherit(dataset: &str) -> Result<()> {
    let request = InheritProperty {
        property: SNAPSHOT_SCHEDULE.to_owned(),
        datasets: vec![dataset.to_owned()],
        command: command_line::command(),
        ..Default::default()
    };
    let done = client::call_running(&request)?.ok_or_else(|| anyhow!(crate::zfs::absent(dataset)))?;
    complain(&done.failed)
}

fn is_refused(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ApiError>().is_some_and(|error| error.kind == ErrorKind::Refused)
}

fn none(datasets: &[String]) -> Vec<ApiError> {
    output::none_of(datasets, "dataset does not exist")
}
