//! One run of fio, and what its JSON says.
//!
//! `jobs` has the arguments of a run, `steps` what its logs say of the time within it, `latency` what
//! operations of several kinds took together; here it is carried out, and its JSON read.
//!
//! fio's own figures are taken as they are: `iops`, `bw_bytes`, `lat_ns`, of the reads and the writes
//! together.
//!
//! Source: fio 3.33, `HOWTO` and its JSON output. Its `sync` counts `fdatasync` in no `total_ios`, but in the
//! `N` of its latencies; in a load that also reads, that version flushes after reads too while the number of
//! writes is a multiple of `fsync`.

#![allow(unsafe_code, reason = "`pre_exec` before fio starts")]

mod jobs;
mod latency;
mod steps;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output as Ended, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::remote;
use crate::series::{self, Series};
use crate::subprocess::{SubprocessOutput, end, has_ended};

pub use latency::Latency;

pub use jobs::{
    DATA, Endpoint, OWN_DIRECTORY, arguments, files_directory, files_names, make_files, once, parsed, piece,
    replay,
};
pub use steps::LOGS as STEP_LOGS;

/// The result of a run of fio.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Operations in a second.
    pub iops: f64,
    /// Bytes in a second.
    pub throughput: f64,
    /// Mean time of an operation, nanoseconds: of reads and writes together, a write with its flush.
    pub latency: f64,
    /// The time that half of the operations take at most.
    pub latency_p50: f64,
    /// The time that one of a hundred exceeds.
    pub latency_p99: f64,
    /// The time that one of a thousand exceeds.
    pub latency_p999: f64,
    /// Bytes read in all.
    pub read_bytes: u64,
    /// Bytes written in all.
    pub written_bytes: u64,
    /// CPU time of fio itself, as a share of one core.
    pub client_cpu: f64,
    /// How long reads took, and writes with their flushes, where there were both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_direction: Option<[Latency; 2]>,
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Its result.
    pub figures: Figures,
    /// All that fio said: its JSON.
    pub json: String,
    /// The series of steps within it, if they were counted.
    pub series: Option<Series>,
}

/// Runs fio for `seconds`, as its arguments say, unless it is to stop, with a log of what happens within
/// that. Its logs are in `directory` meanwhile, which is made for them.
pub fn in_steps(
    arguments: &[String],
    seconds: f64,
    directory: &Path,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Outcome> {
    fs::create_dir_all(directory).map_err(Error::file(directory))?;
    steps::remove(directory)?;
    let step = series::step(seconds);
    let mut outcome = run_unless(&[arguments, &steps::arguments(directory, step)].concat(), stops)?;
    if let [job] = read(&outcome.json)?.jobs.as_slice() {
        let total = |of: &Direction| steps::Total { operations: of.total_ios, bytes: of.io_bytes };
        // A flush at the end of all is in none of its steps.
        outcome.series = steps::series(directory, [total(&job.read), total(&job.write)], seconds, step);
    }
    steps::remove(directory)?;
    Ok(outcome)
}

/// How often it is asked whether a run is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long fio may take to end on a signal.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of what it says that are read: a run's JSON has a few hundred thousand.
const MOST_SAID: usize = 64 << 20;

/// How long a remote run may exceed its own time until it is given up.
const BEYOND: Duration = Duration::from_secs(60);
/// Bytes in a second that are moved one after the other at least, wherever that is.
const LEAST_RATE: u64 = 1 << 20;

/// Runs fio to its end.
pub fn run(arguments: &[String]) -> Result<Outcome> {
    run_unless(arguments, &mut || false)
}

/// How long a remote run may take until it is given up: one of `seconds`, or that moves so
/// many bytes one after the other.
pub(crate) fn limit(seconds: f64, bytes: u64) -> Duration {
    let own = seconds.clamp(0.0, 1e6) + (bytes / LEAST_RATE) as f64;
    Duration::from_secs_f64(own) + BEYOND
}

/// Has fio look at arguments, and do nothing.
///
/// # Errors
/// Its errors about them.
pub fn parse(arguments: &[String]) -> Result<()> {
    let mut command = Command::new("fio");
    command.arg("--parse-only").args(arguments).stdin(Stdio::null()).process_group(0);
    let ended = command.output().map_err(|error| Error::Missing { program: "fio".into(), error })?;
    let said = String::from_utf8_lossy(&[ended.stderr, ended.stdout].concat()).into_owned();
    if ended.status.success() {
        return Ok(());
    }
    let mut lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.dedup();
    lines.truncate(4);
    Err(Error::Failed { command: "fio --parse-only".into(), output: lines.join("; ") })
}

/// Runs fio unless `stops` says that it is to stop, which is asked again and again.
pub fn run_unless(arguments: &[String], stops: &mut dyn FnMut() -> bool) -> Result<Outcome> {
    run_with(&[], arguments, None, stops)
}

/// The same where the command `by` runs a shell (here, and as long as it takes, where that has no words), for
/// `limit` at most: a guest that is gone says nothing, and its connection may wait for it for ever.
///
/// When it is to stop, the command here is ended; its fio may go on there until its time is over.
pub fn run_by(
    by: &[String],
    arguments: &[String],
    limit: Duration,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Outcome> {
    run_with(by, arguments, Some(limit).filter(|_| !by.is_empty()), stops)
}

/// Runs fio, here where `by` has no words.
fn run_with(
    by: &[String],
    arguments: &[String],
    limit: Option<Duration>,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Outcome> {
    let mut command = match by.is_empty() {
        true => Command::new("fio"),
        false => remote::shell(by),
    };
    match by.is_empty() {
        true => command.args(arguments).stdin(Stdio::null()),
        false => command.stdin(Stdio::piped()),
    };
    // Ctrl-C is for the lab, which ends this run.
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A lab that is killed takes it along: else it would go on with what others are to measure, or to remove.
    let orphan = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: it is one system call, with no memory and no lock in it.
    unsafe { command.pre_exec(orphan) };
    let program = by.first().map_or("fio", String::as_str);
    let missing = |error| Error::Missing { program: program.to_owned(), error };
    let began = Instant::now();
    let mut child = command.spawn().map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        let line = remote::command_line("fio", arguments);
        // A shell that does not read it says why.
        thread::spawn(move || stdin.write_all(line.as_bytes()));
    }
    let heard = SubprocessOutput::of(&mut child, MOST_SAID);
    let mut told: Option<(Instant, Error)> = None;
    while !has_ended(&child).map_err(missing)? {
        let silent = limit.filter(|limit| began.elapsed() > *limit);
        match (&told, silent) {
            _ if heard.is_too_much() => end(&child, Signal::KILL),
            (Some((at, _)), _) if at.elapsed() > END_LIMIT => end(&child, Signal::KILL),
            (Some(_), _) => {}
            (None, _) if stops() => {
                end(&child, Signal::TERM);
                told = Some((Instant::now(), Error::Stopped));
            }
            (None, Some(limit)) => {
                end(&child, Signal::TERM);
                let silent = Error::Silent { by: by.join(" "), limit, run: String::new(), seen: None };
                told = Some((Instant::now(), silent));
            }
            (None, None) => {}
        }
        thread::sleep(LOOK);
    }
    // Its jobs may not have begun when it was told to end, and then wait for it for ever, with what it says
    // open. It is there still, so the group is its own.
    end(&child, Signal::KILL);
    let status = child.wait().map_err(missing)?;
    let [stdout, stderr] = heard.rest(status.success());
    if let Some((_, why)) = told {
        return Err(why);
    }
    if [&stdout, &stderr].iter().any(|said| said.len() > MOST_SAID) {
        return Err(Error::Output { program: "fio", what: "its output is too long".into() });
    }
    let output = Ended { status, stdout, stderr };
    if !output.status.success() {
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        if arguments.iter().any(|it| it == "--ioengine=libiscsi") && said.contains("libiscsi") {
            return Err(Error::Failed {
                command: "fio --ioengine=libiscsi".into(),
                output: "this fio was built without libiscsi: use one that has it, or log in (iscsiadm \
                    --login) and measure the block device"
                    .into(),
            });
        }
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(6).collect();
        return Err(Error::Failed {
            command: [by, &["fio".to_owned()], arguments].concat().join(" "),
            output: lines.join("; "),
        });
    }
    let said = String::from_utf8_lossy(&output.stdout);
    // Warnings may stand before the JSON.
    let json = said.find('{').map_or("", |start| &said[start..]);
    let flushes = |it: &String| {
        let every = it.strip_prefix("--fsync=").or(it.strip_prefix("--fdatasync="));
        every.is_some_and(|every| every != "0")
    };
    outcome(json, arguments.iter().any(flushes))
}

/// How long fio's job took, in whole milliseconds.
pub(crate) fn runtime(outcome: &Outcome) -> Result<Duration> {
    let output = read(&outcome.json)?;
    let most = output.jobs.iter().map(|job| job.read.runtime.max(job.write.runtime)).max();
    Ok(Duration::from_millis(most.unwrap_or(0)))
}

/// What fio's JSON says, or what has its form, of a job that flushes what it writes or does not.
pub(crate) fn outcome(json: &str, flushes: bool) -> Result<Outcome> {
    let output = read(json)?;
    Ok(Outcome { figures: figures(&output, flushes)?, json: json.to_owned(), series: output.series })
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
    /// fio has none here.
    #[serde(default)]
    series: Option<Series>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    error: i64,
    read: Direction,
    write: Direction,
    #[serde(default)]
    sync: Flushes,
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    bw_bytes: f64,
    iops: f64,
    total_ios: u64,
    /// Milliseconds.
    #[serde(default)]
    runtime: u64,
    #[serde(default)]
    lat_ns: latency::Said,
    /// Without what submitting took. Engines that neither read nor write (of `stat`, `delete`) count this
    /// alone.
    #[serde(default)]
    clat_ns: latency::Said,
}

impl Direction {
    fn times(&self) -> latency::Times {
        if self.lat_ns.is_empty() { self.clat_ns.times() } else { self.lat_ns.times() }
    }
}

#[derive(Deserialize, Default)]
struct Flushes {
    #[serde(default)]
    lat_ns: latency::Said,
}

fn read(json: &str) -> Result<Output> {
    serde_json::from_str(json)
        .map_err(|error| Error::Output { program: "fio", what: format!("its JSON: {error}") })
}

/// The figures of a job. If it does not flush its writes (`flushes`), the flush at its end is not counted.
fn figures(output: &Output, flushes: bool) -> Result<Figures> {
    let wrong = |what: String| Error::Output { program: "fio", what };
    let [job] = output.jobs.as_slice() else { return Err(wrong("not one group of jobs".into())) };
    if job.error != 0 {
        return Err(wrong(format!("its job ended with error {}", job.error)));
    }
    let (reads, mut writes) = (job.read.times(), job.write.times());
    if flushes {
        writes = writes.flushed(&job.sync.lat_ns.times());
    }
    let all = reads.and(&writes).latency().unwrap_or_default();
    let operations = job.read.total_ios + job.write.total_ios;
    if operations == 0 {
        return Err(wrong("it did nothing in its time".into()));
    }
    let (mut iops, mut throughput) = (job.read.iops + job.write.iops, job.read.bw_bytes + job.write.bw_bytes);
    if iops <= 0.0 {
        // It was over before a millisecond was, which is what fio counts: then it took as long as its
        // operations did, one after the other.
        let seconds = operations as f64 * all.mean / 1e9;
        let bytes = (job.read.io_bytes + job.write.io_bytes) as f64;
        (iops, throughput) = (operations as f64 / seconds, bytes / seconds);
        if !iops.is_finite() {
            return Err(wrong("it does not report latencies".into()));
        }
    }
    let figures = Figures {
        iops,
        throughput,
        latency: all.mean,
        latency_p50: all.p50,
        latency_p99: all.p99,
        latency_p999: all.p999,
        read_bytes: job.read.io_bytes,
        written_bytes: job.write.io_bytes,
        client_cpu: (job.usr_cpu + job.sys_cpu) / 100.0,
        by_direction: reads.latency().zip(writes.latency()).map(|(reads, writes)| [reads, writes]),
    };
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str, flushes: bool) -> Result<Figures> {
        figures(&read(json)?, flushes)
    }

    const OUTPUT: &str = r#"{"jobs": [{"error": 0, "usr_cpu": 10.0, "sys_cpu": 15.0,
          "read": {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "total_ios": 0, "lat_ns": {"mean": 0.0}},
          "write": {"io_bytes": 8192, "bw_bytes": 4096, "iops": 1.0, "total_ios": 2,
            "lat_ns": {"mean": 6.5, "N": 2, "bins": {"4": 1, "9": 1}}}}]}"#;

    #[test]
    fn figures_come_out_of_fios_json() {
        let figures = parse(OUTPUT, false).unwrap();
        assert_eq!((figures.iops, figures.throughput, figures.written_bytes), (1.0, 4096.0, 8192));
        assert_eq!(
            (figures.latency, figures.latency_p50, figures.latency_p99, figures.latency_p999),
            (6.5, 4.0, 9.0, 9.0)
        );
        assert_eq!((figures.client_cpu, figures.by_direction), (0.25, None));
    }

    #[test]
    fn times_are_of_whole_operations_where_those_are_counted() {
        let with_clat = |lat: &str| {
            let clat = "\"clat_ns\": {\"mean\": 6.5, \"N\": 2, \"bins\": {\"4\": 1, \"9\": 1}}";
            let said = "\"lat_ns\": {\"mean\": 6.5, \"N\": 2, \"bins\": {\"4\": 1, \"9\": 1}}";
            parse(&OUTPUT.replace(said, &format!("{lat}, {clat}")), false).unwrap().latency
        };
        assert_eq!(with_clat("\"lat_ns\": {\"mean\": 70.0, \"N\": 2, \"bins\": {\"70\": 2}}"), 70.0);
        // As fio 3.33 says it of its engines that look at files or delete them.
        assert_eq!(with_clat("\"lat_ns\": {\"mean\": 0.0, \"N\": 0}"), 6.5);
    }

    #[test]
    fn who_flushes_waits_for_that_too() {
        // As fio 3.33 says it of fdatasync.
        let sync =
            r#""sync": {"total_ios": 0, "lat_ns": {"mean": 145.0, "N": 2, "bins": {"90": 1, "200": 1}}},"#;
        let output = OUTPUT.replace("\"read\"", &format!("{sync} \"read\""));
        let figures = parse(&output, true).unwrap();
        assert_eq!((figures.latency, figures.latency_p50, figures.latency_p99), (151.5, 94.0, 209.0));
        // Without it, the one flush at the end of a job is not counted.
        assert_eq!(parse(&output, false).unwrap().latency, 6.5);
        // Of a flush for every other write, each write has a half; the median write has none.
        let seldom = output.replace(
            "\"mean\": 145.0, \"N\": 2, \"bins\": {\"90\": 1, ",
            "\"mean\": 200.0, \"N\": 1, \"bins\": {",
        );
        let figures = parse(&seldom, true).unwrap();
        assert_eq!((figures.latency, figures.latency_p50, figures.latency_p99), (106.5, 9.0, 209.0));
    }

    #[test]
    fn reads_beside_writes_wait_for_no_flush_and_both_count_whichever_are_more() {
        let of = |reads: u64, writes: u64| {
            let said = |count: u64, ns: u64| {
                format!(
                    "{{\"io_bytes\": 1, \"bw_bytes\": 1, \"iops\": 1.0, \"total_ios\": {count}, \"lat_ns\": {{\"mean\": {ns}, \"N\": {count}, \"bins\": {{\"{ns}\": {count}}}}}}}"
                )
            };
            let sync = format!(
                "{{\"lat_ns\": {{\"mean\": 90000, \"N\": {writes}, \"bins\": {{\"90000\": {writes}}}}}}}"
            );
            let json = format!(
                "{{\"jobs\": [{{\"error\": 0, \"read\": {}, \"write\": {}, \"sync\": {sync}}}]}}",
                said(reads, 100),
                said(writes, 1000)
            );
            parse(&json, true).unwrap()
        };
        let figures = of(998, 2);
        let [reads, writes] = figures.by_direction.unwrap();
        assert_eq!((reads.p50, reads.p999, reads.operations), (100.0, 100.0, 998));
        assert_eq!((writes.mean, writes.p50, writes.operations), (91_000.0, 91_000.0, 2));
        assert_eq!(
            (figures.latency_p50, figures.latency_p99, figures.latency_p999),
            (100.0, 100.0, 91_000.0)
        );
        assert!((figures.latency - (0.998 * 100.0 + 0.002 * 91_000.0)).abs() < 1e-6, "{figures:?}");
        // Half and half: a run with one more write is like one with one more read.
        let [one, other] = [of(501, 499), of(499, 501)].map(|it| (it.latency, it.latency_p99));
        assert!((one.0 / other.0 - 1.0).abs() < 0.01 && one.1 == other.1, "{one:?} {other:?}");
    }

    #[test]
    fn a_run_that_did_nothing_or_failed_is_no_result() {
        for (from, to) in [
            ("\"total_ios\": 2", "\"total_ios\": 0"),
            ("\"error\": 0", "\"error\": 5"),
            ("{\"jobs\"", "jobs"),
        ] {
            assert!(parse(&OUTPUT.replace(from, to), false).is_err(), "{to}");
        }
        assert!(parse("", false).is_err());
        // Two operations of 6.5 ns that fio found no millisecond for are what was done all the same.
        let short =
            OUTPUT.replace("\"iops\": 1.0", "\"iops\": 0.0").replace("\"bw_bytes\": 4096", "\"bw_bytes\": 0");
        let figures = parse(&short, false).unwrap();
        assert!(
            (figures.iops - 1e9 / 6.5).abs() < 1.0 && (figures.throughput - 4096e9 / 6.5).abs() < 1e4,
            "{figures:?}"
        );
    }

    #[test]
    fn what_fio_does_in_each_step_adds_up_to_what_it_did() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("data").display().to_string();
        let words = "--name=lab --output-format=json+ --group_reporting --ioengine=psync --rw=randrw --bs=4k \
            --size=1M --time_based --runtime=350ms";
        let mut arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
        arguments.push(format!("--filename={file}"));
        for more in ["--numjobs=1", "--numjobs=3", "--ramp_time=200ms"] {
            arguments.push(more.to_owned());
            let logs = directory.path().join("logs");
            let outcome = in_steps(&arguments, 0.35, &logs, &mut || false).unwrap();
            let series = outcome.series.unwrap();
            let bytes = outcome.figures.read_bytes + outcome.figures.written_bytes;
            assert!(series.bytes.iter().sum::<u64>().abs_diff(bytes) <= 4096, "{more}: {series:?} {bytes}");
            assert_eq!(series.operations.iter().sum::<u64>(), bytes / 4096, "{more}");
            let [reads, writes] = outcome.figures.by_direction.unwrap();
            assert_eq!(reads.operations + writes.operations, bytes / 4096, "{more}");
            assert!(series.operations.len() >= 4 && series.step == 0.1, "{more}: {series:?}");
            assert_eq!(fs::read_dir(&logs).unwrap().count(), 0);
        }
    }

    #[test]
    fn fio_elsewhere_fails_as_here_and_nobody_reads_all_that_somebody_says() {
        let arguments = ["--name=lab", "--rw=sideways or 'up'"].map(str::to_owned);
        let by = |words: &[&str]| {
            let by: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            run_by(&by, &arguments, BEYOND, &mut || false).unwrap_err().to_string()
        };
        let failed = by(&["env", "ELSEWHERE=1"]);
        assert!(
            failed.contains("env ELSEWHERE=1 fio --name") && failed.contains("sideways or 'up'"),
            "{failed}"
        );
        assert!(by(&["/no/such/program"]).contains("cannot run '/no/such/program'"));
        let endless = by(&["sh", "-c", "exec cat /dev/zero"]);
        assert!(endless.contains("its output is too long"), "{endless}");
    }

    #[test]
    fn who_is_gone_is_not_waited_for() {
        let gone = ["sh", "-c", "cat >/dev/null; sleep 600"].map(str::to_owned);
        let began = Instant::now();
        let told = run_by(&gone, &["--name=lab".to_owned()], Duration::from_millis(300), &mut || false);
        let Err(Error::Silent { by, run, .. }) = &told else { panic!("{told:?}") };
        assert!(by.starts_with("sh -c") && run.is_empty() && began.elapsed() < Duration::from_secs(30));
        assert!(told.unwrap_err().to_string().contains("ServerAliveInterval"));
        assert_eq!(limit(5.0, 0), Duration::from_secs(65));
        assert_eq!(limit(0.0, 100 << 20), Duration::from_secs(160));
    }

    #[test]
    fn fio_is_stopped_while_it_runs() {
        let words = "--name=lab --output-format=json --ioengine=null --rw=read --size=1G --time_based \
            --runtime=600 --numjobs=2";
        let arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
        // While it begins, and when its jobs are at work.
        for patience in [0, 0, 0, 1, 1, 4] {
            let mut asked = 0;
            let mut stops = || {
                asked += 1;
                asked > patience
            };
            assert!(matches!(run_unless(&arguments, &mut stops), Err(Error::Stopped)));
        }
        let here = ["env".to_owned(), "ELSEWHERE=1".to_owned()];
        for patience in [0, 2] {
            let mut asked = 0;
            let mut stops = || {
                asked += 1;
                asked > patience
            };
            assert!(matches!(run_by(&here, &arguments, BEYOND, &mut stops), Err(Error::Stopped)));
        }
        let short = arguments.iter().map(|word| word.replace("=600", "=100ms")).collect::<Vec<_>>();
        run_unless(&[short, vec!["--group_reporting".to_owned()]].concat(), &mut || false).unwrap();
    }
}
