//! What the process of an experiment says of itself: a small file that it replaces as a whole, and the daemon
//! or another program reads.
//!
//! A process is known by its number and the moment at which it began, so that another one with the same
//! number later is not taken for it. What the file says of a process that has ended without a last word is
//! that it runs: so readers ask the kernel too ([`Process::is_alive`]).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 256 << 10;
/// The longest text that is written into it, in bytes.
const MAX_TEXT: usize = 16 << 10;

/// A process, as long as the machine runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// When it began, as the kernel counts.
    pub began: u64,
    /// The run of the machine.
    pub boot: String,
}

impl Process {
    /// This process.
    pub fn own() -> Self {
        Self::of(std::process::id()).unwrap_or_default()
    }

    /// The process that has this number now, if it has not ended.
    pub fn of(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Some(Self { id, began: began(&stat)?, boot: boot() })
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.id != 0 && Self::of(self.id).as_ref() == Some(self)
    }
}

/// When a process began, by its line of `/proc/ID/stat`; nothing of one that has ended.
fn began(stat: &str) -> Option<u64> {
    // The name of the program, in brackets, may have spaces and brackets.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    // Nothing waited for it yet, but that is all that is left of it.
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// How the process of an experiment stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It is at work.
    #[default]
    Running,
    /// All is done.
    Ended,
    /// It was interrupted, in order.
    Stopped,
    /// It failed.
    Failed,
}

/// What the process of an experiment says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The process.
    pub process: Process,
    /// How it stands.
    pub state: Standing,
    /// Why it failed.
    pub error: Option<String>,
    /// Runs that are done.
    pub runs: u64,
    /// Runs that there are at least.
    pub of_runs: u64,
    /// How long the rest takes about, in seconds, once that is known.
    pub seconds_left: Option<f64>,
    /// What goes on.
    pub now: String,
}

impl Progress {
    /// That of a file.
    ///
    /// # Errors
    /// It cannot be read, or has something else in it.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut text = String::new();
        File::open(file)?.take(MAX_BYTES).read_to_string(&mut text)?;
        serde_json::from_str(&text).map_err(io::Error::from)
    }

    /// Puts it in the place of what the file had. It is never seen in part.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let short = |text: &str| text[..text.floor_char_boundary(MAX_TEXT)].to_owned();
        let bounded = Self { now: short(&self.now), error: self.error.as_deref().map(short), ..self.clone() };
        let bytes = serde_json::to_vec(&bounded)?;
        let beside = file.with_extension("new");
        let written = File::create(&beside).and_then(|mut to| to.write_all(&bytes));
        let replaced = written.and_then(|()| fs::rename(&beside, file));
        if replaced.is_err() {
            // What is left of it would only be in the way.
            let _ = fs::remove_file(&beside);
        }
        replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let own = Process::own();
        assert!(own.is_alive() && own.id == std::process::id());
        assert!(!Process { began: own.began + 1, ..own.clone() }.is_alive());
        assert!(!Process { boot: "another".into(), ..own }.is_alive());
        assert!(!Process::default().is_alive());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        while process.is_alive() {
            std::thread::yield_now();
        }
        // It has not been waited for.
        assert!(Path::new(&format!("/proc/{}", process.id)).exists());
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn names_of_programs_do_not_confuse() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = |name: &str, state: &str| format!("7 ({name}) {state} {}", fields.join(" "));
        assert_eq!(began(&stat("a) S 1 (b", "S")), Some(22));
        assert_eq!(began(&stat("a", "Z")), None);
        assert_eq!(began("7 (a) S 1"), None);
        assert_eq!(began(""), None);
    }

    #[test]
    fn what_is_read_is_what_was_written_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("progress.json");
        assert!(Progress::read(&file).is_err());
        let told = Progress { runs: 3, of_runs: 9, now: "ä".repeat(MAX_TEXT), ..Progress::default() };
        told.write(&file).unwrap();
        let read = Progress::read(&file).unwrap();
        assert_eq!((read.runs, read.of_runs, read.state), (3, 9, Standing::Running));
        assert!(read.now.len() <= MAX_TEXT && read.now.starts_with('ä'));
        fs::write(&file, "{\"runs\": \"many\"}").unwrap();
        assert!(Progress::read(&file).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
