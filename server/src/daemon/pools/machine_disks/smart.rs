//! How disks are, as they say themselves: by the program `smartctl`, where it is installed.
//!
//! A disk that answers slowly is given up after [`LIMIT`], and few are asked at a time. What the program
//! writes is bounded, and is a stranger's text: numbers are taken from it, and nothing else.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::{DiskEntry, DiskHealth};

/// How long a disk may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether it is done.
const LOOK: Duration = Duration::from_millis(20);
/// How many are asked at a time.
const AT_A_TIME: usize = 8;
/// The most that the program may write, in bytes.
const MAX_BYTES: u64 = 512 << 10;
/// Where the program may be besides the search path, which may lack directories of root.
const PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
/// Kinds of disks that can say how they are.
const KINDS: [&str; 3] = ["sd", "hd", "nvme"];
/// Attributes of ATA disks.
const REALLOCATED: u64 = 5;
const PENDING: u64 = 197;
const UNCORRECTABLE: u64 = 198;

/// Asks all disks that can say it.
pub(super) fn ask(disks: &mut [DiskEntry]) {
    let asked: Vec<&mut DiskEntry> = disks.iter_mut().filter(|disk| can_say(&disk.path)).collect();
    if asked.is_empty() {
        return;
    }
    let Some(program) = program() else {
        let fault = "the program smartctl is not installed (package smartmontools)";
        for disk in asked {
            disk.smart = Some(DiskHealth { fault: Some(fault.to_owned()), ..DiskHealth::default() });
        }
        return;
    };
    let next = AtomicUsize::new(0);
    let asked: Vec<_> = asked.into_iter().map(std::sync::Mutex::new).collect();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(asked.len()) {
            scope.spawn(|| {
                while let Some(disk) = asked.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Each is one thread's.
                    if let Ok(mut disk) = disk.lock() {
                        let health = health(&program, &disk.path);
                        disk.smart = Some(health.unwrap_or_else(|fault| DiskHealth {
                            fault: Some(fault),
                            ..DiskHealth::default()
                        }));
                    }
                }
            });
        }
    });
}

fn can_say(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    KINDS.iter().any(|kind| name.starts_with(kind))
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    places.map(|place| place.join("smartctl")).find(|file| file.is_absolute() && file.is_file())
}

/// Asks a disk.
fn health(program: &Path, disk: &Path) -> Result<DiskHealth, String> {
    let mut command = Command::new(program);
    // A disk that sleeps is left asleep.
    command.args(["--json", "-n", "standby", "-i", "-H", "-A"]).arg(disk).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("smartctl cannot be run: {error}"))?;
    let output = child.stdout.take();
    let text = std::thread::scope(|scope| {
        let read = scope.spawn(move || {
            let mut bytes = Vec::new();
            let read = output.map(|output| output.take(MAX_BYTES).read_to_end(&mut bytes));
            matches!(read, Some(Ok(_))).then_some(bytes)
        });
        let ended = wait(&mut child);
        let text = read.join().ok().flatten();
        ended.and(text.ok_or_else(|| "what smartctl says cannot be read".to_owned()))
    })?;
    let told: Value =
        serde_json::from_slice(&text).map_err(|_| "what smartctl says makes no sense".to_owned())?;
    Ok(parsed(&told))
}

/// Waits for the program, and ends it when it takes too long. Its exit code tells nothing that the text does
/// not.
fn wait(child: &mut Child) -> Result<(), String> {
    let until = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
                return Err(format!("the disk did not answer within {} s", LIMIT.as_secs()));
            }
        }
    }
}

/// What the program says.
fn parsed(told: &Value) -> DiskHealth {
    let count = |path: &str| told.pointer(path).and_then(Value::as_u64);
    let nvme = |field: &str| count(&format!("/nvme_smart_health_information_log/{field}"));
    let table = told.pointer("/ata_smart_attributes/table").and_then(Value::as_array);
    let attribute = |id: u64| {
        let found = table?.iter().find(|row| row.get("id").and_then(Value::as_u64) == Some(id))?;
        found.pointer("/raw/value").and_then(Value::as_u64)
    };
    let mut health = DiskHealth {
        healthy: told.pointer("/smart_status/passed").and_then(Value::as_bool),
        temperature: told.pointer("/temperature/current").and_then(Value::as_i64),
        hours: count("/power_on_time/hours"),
        reallocated: attribute(REALLOCATED),
        pending: attribute(PENDING),
        uncorrectable: attribute(UNCORRECTABLE).or_else(|| nvme("media_errors")),
        wear_percent: nvme("percentage_used"),
        fault: None,
    };
    if health == DiskHealth::default() {
        health.fault = Some("it says nothing of its health, or sleeps".to_owned());
    }
    health
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_disks_say_is_understood() {
        let ata = json!({
            "smart_status": { "passed": true },
            "temperature": { "current": 31 },
            "power_on_time": { "hours": 1234 },
            "ata_smart_attributes": { "table": [
                { "id": 5, "raw": { "value": 7 } },
                { "id": 197, "raw": { "value": 2 } },
            ] },
        });
        let health = parsed(&ata);
        assert_eq!((health.healthy, health.temperature, health.hours), (Some(true), Some(31), Some(1234)));
        assert_eq!((health.reallocated, health.pending, health.uncorrectable), (Some(7), Some(2), None));
        let nvme = json!({
            "smart_status": { "passed": false },
            "nvme_smart_health_information_log": { "percentage_used": 93, "media_errors": 4 },
        });
        let health = parsed(&nvme);
        assert_eq!(
            (health.healthy, health.wear_percent, health.uncorrectable),
            (Some(false), Some(93), Some(4))
        );
        for strange in [json!(null), json!([1]), json!({ "temperature": "hot", "smart_status": 7 })] {
            assert!(parsed(&strange).fault.is_some(), "{strange}");
        }
    }

    #[test]
    fn a_program_that_talks_too_much_or_nonsense_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let disk = Path::new("/dev/none");
        assert!(health(&program("nonsense", "echo hello"), disk).unwrap_err().contains("makes no sense"));
        let much = program("much", "head -c 1000000 /dev/zero");
        assert!(health(&much, disk).unwrap_err().contains("makes no sense"));
        let right = program("right", r#"echo '{"smart_status": {"passed": true}}'; exit 4"#);
        assert_eq!(health(&right, disk).unwrap().healthy, Some(true));
        assert!(health(&place.path().join("missing"), disk).is_err());
    }
}
