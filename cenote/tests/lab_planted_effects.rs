//! Whether the lab finds effects of known size that are planted in modelled devices: by the binary, real fio
//! and real time. Hundreds of such experiments, in the devices' own time, are in
//! `lab/src/analysis/planted_effects.rs`.
//!
//! A stick has no arm, so that it does not matter where in it a volume lies, as it does on a disk: two equal
//! volumes of one differ by almost a tenth there. What a read takes beside the device's own time is in the
//! baseline, so the true ratio follows from that: so many per cent of the device's time are added.
//!
//! `cargo test -p cenote --test lab_planted_effects -- --ignored --nocapture` takes about five minutes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Stdio};

use device::simulated::Model;
use lab::analysis::{Findings, Verdict};
use lab::experiment::Metric;
use lab::plan::BASELINE;
use lab::report;

/// Of 0, 3, 10 and 50 per cent. Nothing of what is read is in the cache.
const EXPERIMENT: &str = r#"
name = "truth"
question = "Is a planted slowness found?"
rounds = 12
[goal]
metric = "iops"
[target]
kind = "volume"
size = "64M"
[settings]
primarycache = "metadata"
volblocksize = "4K"
[[factor]]
name = "devices"
values = ["usb-flash", "usb-flash+0%", "usb-flash+3%", "usb-flash+10%", "usb-flash+50%"]
[[workload]]
name = "reads"
rw = "randread"
bs = "4K"
seconds = 3
"#;
/// How far what is measured may be from the truth, as a share: the interval of so many rounds, and what a
/// busy machine adds.
const MOST_OFF: f64 = 0.04;

#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn planted_slowness_of_devices_is_measured_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("truth.toml"), EXPERIMENT).unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_cenote"));
    lab.args(["lab", "run", "truth.toml", "--json", "-o", "out"]).current_dir(directory.path());
    let ended = lab.stderr(Stdio::inherit()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let findings: Findings = serde_json::from_slice(&ended.stdout).unwrap();
    println!("{}", findings.verdict);
    let model = Model::USB_FLASH;
    let device_ns = model.read_latency_ns as f64 + 4096.0 * 1e9 / model.read_bytes_per_second as f64;
    let baseline_ns = 1e9 / findings.find(BASELINE, "reads", Metric::Iops).unwrap().median.value;
    let mut wrong = Vec::new();
    for percent in [0, 3, 10, 50] {
        let truth = baseline_ns / (baseline_ns + device_ns * f64::from(percent) / 100.0);
        let found = findings.find(&format!("devices=usb-flash+{percent}%"), "reads", Metric::Iops).unwrap();
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
            // On a busy machine that is less than noise, or cannot be decided.
            (3, verdict) => verdict != Verdict::Better,
            (_, verdict) => verdict == Verdict::Worse,
        };
        if !is_right || (ratio.value / truth - 1.0).abs() > MOST_OFF {
            wrong.push(told);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}
