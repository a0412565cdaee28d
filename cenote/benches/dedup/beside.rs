//! The same with OpenZFS's engine, through `ozbench`.

use std::path::Path;
use std::process::Command;

use super::{DEPTH, Scale, pools};

/// A number of the JSON that a run prints.
fn figure(text: &str, name: &str) -> Option<f64> {
    text.split(&format!("\"{name}\":")).nth(1)?.split([',', '}']).next()?.trim().parse().ok()
}

fn create(program: &Path, disk: &Path, block_bytes: u64, dedup: &str, volume_bytes: u64) -> Option<()> {
    let (block, mib) = (block_bytes.to_string(), (volume_bytes >> 20).to_string());
    let mut create = Command::new(program);
    create.args(["create", "bench", "stripe", &block, "lz4", dedup, &mib]).arg(disk);
    create.output().ok()?.status.success().then_some(())
}

/// What a run printed.
fn run(scale: &Scale, program: &Path, how: &str, block_bytes: u64, arc_bytes: u64) -> Option<String> {
    let run = Command::new(program)
        .args(["run", "bench"])
        .arg(&scale.dir)
        .args([how, &block_bytes.to_string(), &DEPTH.to_string(), &scale.seconds.to_string()])
        .env("ARC_MB", (arc_bytes >> 20).to_string())
        .env("RANDPCT", "100")
        .output()
        .ok()?;
    run.status.success().then(|| String::from_utf8_lossy(&run.stdout).into_owned())
}

/// Writes of new data a second, with the commit.
pub fn write_rate(scale: &Scale, block_bytes: u64, dedup: &str) -> Option<f64> {
    let program = scale.ozbench.as_deref()?;
    let disk = pools::new_disk(&scale.dir, pools::DISK_BYTES);
    let text = create(program, &disk, block_bytes, dedup, 2 << 30)
        .and_then(|()| run(scale, program, "write", block_bytes, 1 << 30));
    let _ = std::fs::remove_file(disk);
    figure(&text?, "iops_synced")
}

/// The curve: runs one after the other, until `entries` blocks were written.
pub fn curve(scale: &Scale, entries: u64, block_bytes: u64) {
    let Some(program) = scale.ozbench.as_deref() else { return };
    println!("{:>10} {:>10}   OpenZFS's engine, with an ARC of the same size", "written", "writes/s");
    let disk = pools::new_disk(&scale.dir, pools::DISK_BYTES);
    if create(program, &disk, block_bytes, "on", 2 * entries * block_bytes).is_some() {
        let mut written = 0;
        while written < entries {
            let text = run(scale, program, "randwrite", block_bytes, scale.small_arc_bytes);
            let rates = text.and_then(|text| Some((figure(&text, "iops")?, figure(&text, "iops_synced")?)));
            let Some((during, rate)) = rates.filter(|(during, _)| *during >= 1.0) else {
                println!("{written:>10} {:>10}", "failed");
                break;
            };
            written += (during * scale.seconds as f64) as u64;
            println!("{written:>10} {rate:>10.0}");
        }
    }
    let _ = std::fs::remove_file(disk);
}
