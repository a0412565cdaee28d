//! What fio's logs of histograms say: how many operations ended by when.
//!
//! Each job has a file, `steps_clat_hist.N.log`. A line is milliseconds since what is measured began, the
//! direction (0 reads, 1 writes), a block size, and counters of latencies; their sum is how many operations
//! of that direction there were since the line before. What was done after a job's last line is known from
//! the totals only: it is spread evenly up to the end.
//!
//! Source: fio 3.33, `HOWTO`, "write_hist_log", "Log File Formats"; tried with several jobs, `ramp_time`, and
//! reads and writes together.

use std::fs;
use std::path::Path;

use crate::created_files;
use crate::error::{Error, Result};
use crate::series::{Course, Series};

/// The prefix of the files' names.
const NAME: &str = "steps";
/// Their names, with `#` for the number of the job.
pub const LOGS: &str = "steps_clat_hist.#.log";

/// The arguments with which fio writes such logs into `directory`, every `step` seconds. As few counters as
/// it has: only their sum is used.
pub(super) fn arguments(directory: &Path, step: f64) -> Vec<String> {
    vec![
        format!("--write_hist_log={}", directory.join(NAME).display()),
        format!("--log_hist_msec={}", (step * 1000.0).round()),
        "--log_hist_coarseness=6".to_owned(),
        "--per_job_logs=1".to_owned(),
    ]
}

/// Removes the logs that are in a directory, and nothing else.
pub(super) fn remove(directory: &Path) -> Result<()> {
    created_files::files(directory, LOGS)
        .iter()
        .try_for_each(|log| fs::remove_file(log).map_err(Error::file(log)))
}

/// The operations of all jobs in one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Total {
    pub operations: u64,
    pub bytes: u64,
}

/// The series of a run whose logs are in `directory`: reads, and writes. It ends after `seconds`, or with the
/// last line where that is later. `None` where no line was written.
pub(super) fn series(directory: &Path, totals: [Total; 2], seconds: f64, step: f64) -> Option<Series> {
    let mut names = created_files::files(directory, LOGS);
    names.sort();
    let logs: Vec<String> = names.iter().filter_map(|name| fs::read_to_string(name).ok()).collect();
    let jobs: Vec<[Course; 2]> = logs.iter().map(|log| courses(log)).collect();
    let all = || jobs.iter().flatten();
    if all().all(|course| course.last().1 == 0.0) {
        return None;
    }
    let end = all().map(|course| course.last().0).fold(seconds, f64::max);
    let mut finished = Vec::new();
    for (direction, total) in totals.into_iter().enumerate() {
        let each = total.bytes as f64 / total.operations.max(1) as f64;
        let noted: f64 = jobs.iter().map(|job| job[direction].last().1).sum();
        let rest = (total.operations as f64 - noted).max(0.0) / jobs.len() as f64;
        finished.extend(jobs.iter().map(|job| {
            let mut course = job[direction].clone();
            course.add(end, rest);
            (course, each)
        }));
    }
    Some(Series::of(&finished, end, step))
}

/// The operations of one job: its reads, and its writes.
fn courses(log: &str) -> [Course; 2] {
    let mut courses = <[Course; 2]>::default();
    for line in log.lines() {
        let mut numbers = line.split(',').map_while(|word| word.trim().parse::<u64>().ok());
        let (Some(at_ms), Some(direction)) = (numbers.next(), numbers.next()) else { continue };
        let Some(course) = usize::try_from(direction).ok().and_then(|at| courses.get_mut(at)) else {
            continue;
        };
        // The first of what is left is a block size.
        course.add(at_ms as f64 / 1000.0, numbers.skip(1).map(|count| count as f64).sum());
    }
    courses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_jobs_are_added_up_and_what_they_leave_out_is_spread() {
        let directory = tempfile::tempdir().unwrap();
        let path = |job: usize| directory.path().join(format!("{NAME}_clat_hist.{job}.log"));
        // The second job was late once, and wrote nothing at its end.
        fs::write(
            path(1),
            "100, 0, 4096, 3, 7\n100, 1, 4096, 0, 1\n200, 0, 4096, 0, 10\n200, 1, 4096, 1, 0\n",
        )
        .unwrap();
        fs::write(path(2), "200, 0, 4096, 20, 20\nnonsense\n").unwrap();
        let totals = [Total { operations: 90, bytes: 90 * 512 }, Total { operations: 2, bytes: 2 * 1024 }];
        let series = series(directory.path(), totals, 0.3, 0.1).unwrap();
        assert_eq!(series.operations, [31, 31, 30]);
        assert_eq!(series.bytes.iter().sum::<u64>(), 90 * 512 + 2 * 1024);
        assert_eq!(series.bytes[0], 30 * 512 + 1024);
    }

    #[test]
    fn a_run_without_a_line_has_no_series() {
        let directory = tempfile::tempdir().unwrap();
        let totals = [Total { operations: 5, bytes: 5 }; 2];
        assert_eq!(series(directory.path(), totals, 0.3, 0.1), None);
        fs::write(directory.path().join("steps_clat_hist.1.log"), "").unwrap();
        assert_eq!(series(directory.path(), totals, 0.3, 0.1), None);
    }
}
