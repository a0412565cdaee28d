//! Whether the lab finds effects of known size that are planted in modelled devices: by the binary, real fio and real time. Hundreds of such experiments, in the devices' own time, are in
//! `lab/src/analysis/truth.rs`.
//!
//! Disks whose arms and platters are slower by so many per cent read so much slower one at a time: all else that a read takes is less than a hundredth of that.
//!
//! `cargo test -p cenote --test lab_truth -- --ignored --nocapture` takes about ten minutes.

use std::process::{Command, Stdio};

use lab::analysis::{Findings, Verdict};
use lab::experiment::Metric;
use lab::report;

/// Of 0, 3, 10 and 50 per cent. Of those that read there is never anything in the cache.
const EXPERIMENT: &str = r#"
name = "truth"
question = "Is a planted slowness found?"
rounds = 12
[goal]
metric = "iops"
[target]
kind = "volume"
size = "128M"
[settings]
primarycache = "metadata"
[[factor]]
name = "devices"
values = ["hdd-7200", "hdd-7200+0%", "hdd-7200+3%", "hdd-7200+10%", "hdd-7200+50%"]
[[workload]]
name = "reads"
rw = "randread"
bs = "4K"
seconds = 6
"#;
/// How far what is measured may be from the truth, as a share: the interval of so many rounds, and what a busy machine adds.
const MOST_OFF: f64 = 0.04;

#[test]
#[ignore = "takes ten minutes; on a quiet machine"]
fn planted_slowness_of_devices_is_measured_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("truth.toml"), EXPERIMENT).unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_cenote"));
    lab.args(["lab", "run", "truth.toml", "--json", "-o", "out"]).current_dir(directory.path());
    let ended = lab.stderr(Stdio::inherit()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let findings: Findings = serde_json::from_slice(&ended.stdout).unwrap();
    println!("{}", findings.verdict);
    let mut wrong = Vec::new();
    for percent in [0, 3, 10, 50] {
        let truth = 1.0 / (1.0 + f64::from(percent) / 100.0);
        let found = findings.find(&format!("devices=hdd-7200+{percent}%"), "reads", Metric::Iops).unwrap();
        let compared = found.compared.unwrap();
        let ratio = compared.comparison.ratio;
        let told = format!(
            "{percent} % slower: {}, {:.3} ({:.3} to {:.3}) and in truth {truth:.3}: {}",
            report::written(Metric::Iops, found.median.value),
            ratio.value,
            ratio.low,
            ratio.high,
            compared.verdict.words()
        );
        println!("{told}");
        let is_right = match (percent, compared.verdict) {
            (0, verdict) => verdict == Verdict::NoDifference,
            // That is as much as chance does to so few reads.
            (3, verdict) => matches!(verdict, Verdict::Worse | Verdict::NoDifference),
            (_, verdict) => verdict == Verdict::Worse,
        };
        if !is_right || (ratio.value / truth - 1.0).abs() > MOST_OFF {
            wrong.push(told);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}
