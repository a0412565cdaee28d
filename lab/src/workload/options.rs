//! The options of fio that a workload may have.
//!
//! They are listed by fio's full names. They change how much is done, how fast, in what pattern, and with
//! what data, and none of them can make a workload write anywhere but to its target. An option that is not
//! listed is refused: fio accepts short and second names for the same option, and has options that name
//! files, run programs, load engines or continue past the end of the target.
//!
//! Some options are checked more closely, because one of their values would do that as well ([`fault`]).
//!
//! Source: fio 3.33, `--cmdhelp=all` and `--enghelp=io_uring`, and its manual.

use std::collections::BTreeMap;

use super::sizes;
use crate::size::Size;
use ondisk::nearest::meant;

/// Jobs that a workload may have at most.
const MOST_JOBS: u32 = 64;

/// Options that the workload has as something else, or that the lab has to decide itself.
const OURS: [&str; 33] = [
    "rw",
    "bs",
    "blocksize",
    // `bssplit` has several sizes of which the lab knows the smallest.
    "bsrange",
    "blocksize_range",
    "iodepth",
    "readwrite",
    "filename",
    "filename_format",
    "opendir",
    "unlink",
    "unlink_each_loop",
    "allow_file_create",
    "directory",
    "uri",
    "ioengine",
    "output",
    "output-format",
    "name",
    "runtime",
    "timeout",
    "time_based",
    "size",
    "nrfiles",
    "nr_files",
    "filesize",
    "io_size",
    "io_limit",
    "read_iolog",
    "replay_no_stall",
    // Its output is read as that of all jobs together, and the time before as the workload says it; what is
    // random is another in each round.
    "group_reporting",
    "ramp_time",
    "randseed",
];

/// Those that a workload may have.
const ALLOWED: [&str; 107] = [
    // Sizes and places of operations.
    "bssplit",
    "bs_unaligned",
    "ba",
    "offset",
    "offset_increment",
    "number_ios",
    "loops",
    // The pattern.
    "rw_sequencer",
    "rwmixread",
    "rwmixwrite",
    "random_distribution",
    "percentage_random",
    "random_generator",
    "randrepeat",
    "allrandrepeat",
    "norandommap",
    "file_service_type",
    "openfiles",
    "replay_time_scale",
    "replay_skip",
    // How many at once.
    "iodepth_batch",
    "iodepth_batch_complete_min",
    "iodepth_batch_complete_max",
    "iodepth_low",
    "io_submit_mode",
    "serialize_overlap",
    "numjobs",
    "thread",
    "flow",
    "flow_id",
    "flow_sleep",
    // How fast, and when.
    "rate",
    "rate_min",
    "rate_process",
    "rate_cycle",
    "rate_ignore_thinktime",
    "rate_iops",
    "rate_iops_min",
    "thinktime",
    "thinktime_spin",
    "thinktime_blocks",
    "thinktime_blocks_type",
    "thinktime_iotime",
    "max_latency",
    "latency_target",
    "latency_window",
    "latency_percentile",
    "latency_run",
    "startdelay",
    "steadystate",
    "steadystate_duration",
    "steadystate_ramp_time",
    "clocksource",
    "gtod_cpu",
    // How the target is opened, flushed and laid out.
    "direct",
    "buffered",
    "atomic",
    "sync",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "write_barrier",
    "end_fsync",
    "fsync_on_close",
    "create_fsync",
    "create_serialize",
    "create_on_open",
    "overwrite",
    "fallocate",
    "fadvise_hint",
    "write_hint",
    "invalidate",
    "pre_read",
    // The data, and the memory that they are in.
    "zero_buffers",
    "refill_buffers",
    "scramble_buffers",
    "buffer_pattern",
    "buffer_compress_percentage",
    "buffer_compress_chunk",
    "dedupe_percentage",
    "dedupe_mode",
    "dedupe_working_set_percentage",
    "dedupe_global",
    "mem",
    "hugepage-size",
    "lockmem",
    // Processors and priorities.
    "nice",
    "prio",
    "prioclass",
    "cpumask",
    "cpus_allowed",
    "cpus_allowed_policy",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "cmdprio",
    "cmdprio_percentage",
    "cmdprio_class",
    "cmdprio_bssplit",
    // The way into the kernel.
    "hipri",
    "fixedbufs",
    "registerfiles",
    "sqthread_poll",
    "sqthread_poll_cpu",
    "nonvectored",
    "uncached",
    "nowait",
    "force_async",
];

/// Says what is wrong with `options` on a target of that size, each in a sentence.
pub(crate) fn faults(options: &BTreeMap<String, String>, target: Size) -> Vec<String> {
    options.iter().filter_map(|(name, value)| fault(name, value, target)).collect()
}

/// What of the experiment's file says what an option of [`OURS`] would; nothing where it is the lab's alone.
fn key(name: &str) -> Option<&'static str> {
    Some(match name {
        "rw" | "readwrite" => "the workload's key rw",
        "bs" | "blocksize" => "the workload's key bs",
        "bsrange" | "blocksize_range" => "the option bssplit, as 8k/50:64k/50",
        "iodepth" => "the workload's key iodepth",
        "runtime" | "timeout" => "the workload's key seconds",
        "time_based" => "the workload's key once",
        "ramp_time" => "the workload's key ramp_seconds",
        "size" | "io_size" | "io_limit" => "the workload's key size",
        "filesize" => "the workload's key bs, which is the size of each file where files are made",
        "nrfiles" | "nr_files" => "the workload's key files",
        "read_iolog" => "the workload's key trace",
        "replay_no_stall" => "the workload's key at_once",
        "randseed" => "the experiment's key seed",
        "filename" | "filename_format" | "directory" | "opendir" | "uri" => "[target]",
        _ => return None,
    })
}

/// Says that an option is one that a workload cannot have since the lab decides it, and what to write
/// instead, where it is.
pub(crate) fn decided(name: &str) -> Option<String> {
    let instead = key(name).map_or_else(String::new, |key| format!(": write {key}"));
    OURS.contains(&name).then(|| format!("the lab decides fio's option '{name}'{instead}"))
}

/// Says why a workload cannot have an option with that value; nothing where it can.
fn fault(name: &str, value: &str, target: Size) -> Option<String> {
    if let Some(decided) = decided(name) {
        return Some(decided);
    }
    if !ALLOWED.contains(&name) {
        return Some(format!(
            "fio's option '{name}' is not allowed: the lab allows options, by their full names, that cannot \
             write anywhere but to the target{}",
            meant(name, ALLOWED)
        ));
    }
    let what = match name {
        // What is not understood here would not be kept within the target either.
        "offset" | "offset_increment" if !is_place(value, target) => {
            "it must be a size such as 64K, or a percentage such as 25%"
        }
        "bssplit" if !are_many(value) => {
            "it must have at least two sizes, such as 4k/40:16k/60; for one \
            size use `bs`"
        }
        "numjobs" if value.parse::<u32>().is_err() => "it is not a number",
        "numjobs" if !value.parse().is_ok_and(|jobs| (1..=MOST_JOBS).contains(&jobs)) => {
            "from 1 to 64 jobs are allowed; the workload's key iodepth runs more operations in each"
        }
        "mem" if value.contains(':') => "the lab allows memory without a file, which has no ':' in its name",
        "buffer_pattern" if value.contains('\'') => "the lab allows patterns without a file",
        _ => return None,
    };
    Some(format!("fio's option {name}={value}: {what}"))
}

/// Whether fio and the lab take it for the same place in a target.
fn is_place(value: &str, target: Size) -> bool {
    // fio knows no exponents, and would take what is before one.
    !value.contains(['e', 'E']) && sizes::increment(value, target).is_some()
}

/// Whether there are several sizes in each of the lists of a value: with one size fio would go past the end
/// with its last operation.
fn are_many(value: &str) -> bool {
    let sizes = |list: &str| -> Option<Vec<Size>> {
        list.split(':').map(|size| size.split('/').next()?.parse().ok()).collect()
    };
    value.split(',').all(|list| sizes(list).is_some_and(|sizes| sizes.iter().any(|size| *size != sizes[0])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn fault(name: &str, value: &str) -> Option<String> {
        super::fault(name, value, Size(1 << 20))
    }

    #[test]
    fn only_what_cannot_write_elsewhere_is_allowed_by_its_full_name() {
        for (name, value) in [
            ("direct", "0"),
            ("bssplit", "4k/40:16k/60"),
            ("numjobs", "4"),
            ("offset", "64K"),
            ("offset_increment", "25%"),
            ("mem", "mmapshared"),
            ("buffer_pattern", "0xdeadbeef"),
            ("cpus_allowed", "0-1"),
        ] {
            assert_eq!(fault(name, value), None, "{name}={value}");
        }
        for name in [
            "directo",
            "directory",
            "nr_files",
            "nrfile",
            "readwrit",
            "unlink_each",
            "replay_redirect",
            "replay_redir",
            "iomem",
            "blocksize",
            "write_iolog",
            "write_bw_log",
            "write_lat_log",
            "write_hist_log",
            "write_iops_log",
            "merge_blktrace_file",
            "exec_prerun",
            "exec_postrun",
            "file_append",
            "fill_device",
            "zonemode",
            "zonesize",
            "zoneskip",
            "zonerange",
            "kb_base",
            "offset_align",
            "ioengine",
            "ioengin",
            "ioscheduler",
            "cgroup",
            "verify",
            "verify_state_save",
            "trim_percentage",
            "aux-path",
            "opendir",
            "uid",
            "profile",
            "",
            "direct=1 --rw",
        ] {
            let told = fault(name, "1").unwrap();
            assert!(told.contains(&format!("'{name}'")) && told.contains("the lab"), "{told}");
        }
        assert!(fault("thinktyme", "1").unwrap().ends_with("did you mean 'thinktime'?"));
    }

    #[test]
    fn what_the_lab_reads_fios_output_by_is_its_own() {
        for (name, instead) in [
            ("group_reporting", ""),
            ("ramp_time", ": write the workload's key ramp_seconds"),
            ("randseed", ": write the experiment's key seed"),
        ] {
            assert_eq!(fault(name, "0"), Some(format!("the lab decides fio's option '{name}'{instead}")));
        }
    }

    #[test]
    fn what_a_key_says_no_option_does() {
        for (name, instead) in [
            ("iodepth", "key iodepth"),
            ("bs", "key bs"),
            ("blocksize", "key bs"),
            ("bsrange", "bssplit"),
            ("size", "key size"),
            ("io_size", "key size"),
            ("runtime", "key seconds"),
            ("readwrite", "key rw"),
            ("filename", "[target]"),
        ] {
            let told = fault(name, "1").unwrap();
            assert!(told.contains(instead), "{told}");
        }
        for (jobs, is_right) in [("1", true), ("64", true), ("0", false), ("65", false), ("4000", false)] {
            let told = fault("numjobs", jobs);
            assert_eq!(told.is_none(), is_right, "{jobs}");
            assert!(told.is_none_or(|told| told.contains("from 1 to 64") && told.contains("iodepth")));
        }
    }

    #[test]
    fn values_that_lead_elsewhere_are_refused() {
        for (name, value) in [
            ("mem", "mmapshared:/etc/passwd"),
            ("mem", "mmaphuge:/dev/sda"),
            ("buffer_pattern", "'/etc/shadow'"),
            ("offset", "0x100000"),
            ("offset", "1e9"),
            ("offset", "(1024*1024)"),
            ("offset_increment", "2z"),
            ("numjobs", "2*8"),
            ("bssplit", "300k"),
            ("bssplit", "4k/50:8k/50,1m/50:1024k/50"),
            ("bsrange", "300k-300k"),
            ("bs", "300k"),
        ] {
            let told = fault(name, value).unwrap();
            assert!(told.contains(name), "{told}");
        }
    }

    #[test]
    fn every_name_is_fios_own() {
        let mut names = ALLOWED.to_vec();
        names.extend(OURS);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        let told = |argument: &str| {
            let output = Command::new("fio").arg(argument).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let (Some(common), Some(of_engine)) = (told("--cmdhelp=all"), told("--enghelp=io_uring")) else {
            println!("skipped: there is no fio");
            return;
        };
        let lines = common.lines().chain(of_engine.lines());
        let known: Vec<&str> =
            lines.filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
        let unknown: Vec<_> = ALLOWED.iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
