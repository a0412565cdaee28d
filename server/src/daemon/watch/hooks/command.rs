//! Commands of hooks, and the environment in which they run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::events::{Event, Value};
use engine::vdev::State;

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The environment of a command, as `zed` has it.
pub(super) fn environment(event: &Event) -> Vec<(String, String)> {
    let mut set = vec![
        ("ZEVENT_CLASS".to_owned(), event.class.clone()),
        ("ZEVENT_SUBCLASS".to_owned(), event.subclass().to_owned()),
        ("ZEVENT_EID".to_owned(), event.eid.to_string()),
        ("ZEVENT_TIME".to_owned(), format!("{} {}", event.time.0, event.time.1)),
        ("ZEVENT_TIME_SECS".to_owned(), event.time.0.to_string()),
        ("ZEVENT_TIME_NSECS".to_owned(), event.time.1.to_string()),
    ];
    for (name, value) in &event.fields {
        let variable = format!("ZEVENT_{}", name.to_ascii_uppercase());
        let numbers = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let text = match value {
            Value::Number(number) if name.ends_with("_guid") => format!("0x{number:016X}"),
            Value::Number(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Numbers(list) => numbers(list),
            Value::Texts(texts) => texts.join(" "),
            Value::Nested(_) => continue,
        };
        if name == "vdev_state" || name == "vdev_laststate" {
            let states = [
                State::Offline,
                State::Removed,
                State::CantOpen,
                State::Faulted,
                State::Degraded,
                State::Healthy,
            ];
            let state = states.into_iter().find(|state| Some(state.number()) == event.number(name));
            set.extend(state.map(|state| (format!("{variable}_STR"), state.to_string())));
        }
        set.push((variable, text.replace('\0', "")));
    }
    set
}

/// Runs a command to its end, or to the end of its time.
///
/// # Errors
/// It did not succeed, for a person.
pub(super) fn run(command: &str, event: &Event, limit: Duration) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(environment(event)).current_dir("/");
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A group of its own, so that all of it can be ended.
    shell.process_group(0);
    let mut child = shell.spawn().map_err(|error| format!("it cannot be run: {error}"))?;
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
                return Err(format!("it was ended after {} s", limit.as_secs()));
            }
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    }
}
