//! The audit log: who asked the daemon for which change, and what became of it.
//!
//! # What is in it
//! A line for each request that may change something, and for each that was refused to its caller: when, by
//! which user and process, in which role, which action, on what, and how it ended. Never the request itself:
//! keys, addresses of webhooks and values of properties do not get here. Where the text of an error could
//! repeat such a thing ([`Declaration::has_secrets`](crate::api::Declaration)), only its kind is written.
//! What the daemon does by itself is not in it: that is in the pools' history and among the events.
//!
//! # The file
//! A JSON document a line, in ASCII: other characters, and all that could end a line, are escaped, so that no
//! name can look like a line. The file is kept below [`MAX_BYTES`]; then it becomes `FILE.1`, and that
//! `FILE.2`, up to [`KEPT`] files. Lines are written as requests end, in one write each, and not forced to
//! the disk.
//!
//! Users who are refused again and again push no other lines out: of refusals at most [`MAX_REFUSALS`] are
//! written in [`REFUSAL_WINDOW`].
//!
//! A log that cannot be written stops nothing. That is reported once, and again after it worked meanwhile;
//! the lines that are left out are counted, and the count stands in the next line that is written (`lost`).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `AuditLog::file` | the open file; while a line is written | taken alone |

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use device::IgnorePoison;

use crate::api::{ApiError, AuditEntry};
use crate::caller::Caller;

/// The name of the file, beside the cache file.
pub const FILE_NAME: &str = "audit.log";
/// The largest a file becomes, in bytes.
pub const MAX_BYTES: u64 = 8 << 20;
/// Files of earlier lines that are kept.
pub const KEPT: u32 = 4;
/// What is written of a request that has no result.
const ENDED_EARLY: &str = "it ended early: the daemon failed, or the client went away";
/// The longest text of a field, in characters; the rest is cut off.
const MAX_TEXT: usize = 512;
/// The most refusals that are written in [`REFUSAL_WINDOW`].
pub const MAX_REFUSALS: u64 = 300;
/// See [`MAX_REFUSALS`].
pub const REFUSAL_WINDOW: Duration = Duration::from_secs(60);
/// The most lines that are given back at a time.
pub const MAX_LINES: usize = 10_000;

/// A log that is written. See the module documentation.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    max_bytes: u64,
    file: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    /// Bytes of it.
    length: u64,
    /// A line may be there in part only.
    is_torn: bool,
    /// Lines that were left out.
    lost: u64,
    /// Whether it is known that it cannot be written.
    is_failing: bool,
    /// Since when refusals are counted, and how many there were.
    refusals: Option<(Instant, u64)>,
}

impl AuditLog {
    /// The log in this file, which is made with its first line.
    pub fn new(path: PathBuf) -> Self {
        Self::with_limit(path, MAX_BYTES)
    }

    fn with_limit(path: PathBuf, max_bytes: u64) -> Self {
        Self { path, max_bytes, file: Mutex::default() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line.
    pub fn add(&self, entry: AuditEntry) {
        self.add_to(&mut self.file.lock().ignore_poison(), entry);
    }

    /// Adds a line about a request that was refused, unless there were many of late.
    fn add_refusal(&self, entry: AuditEntry) {
        let mut state = self.file.lock().ignore_poison();
        let now = Instant::now();
        let (since, count) = match state.refusals {
            Some((since, count)) if now.duration_since(since) < REFUSAL_WINDOW => (since, count),
            _ => (now, 0),
        };
        state.refusals = Some((since, count + 1));
        match count < MAX_REFUSALS {
            true => self.add_to(&mut state, entry),
            false => state.lost += 1,
        }
    }

    fn add_to(&self, state: &mut State, mut entry: AuditEntry) {
        entry.lost = state.lost;
        let written = self.write(state, &line(&entry));
        match &written {
            Ok(()) => state.lost = 0,
            Err(error) => {
                state.lost += 1;
                // It may have been moved away, or its disk may have room again.
                state.file = None;
                if !state.is_failing {
                    tracing::error!(%error, file = %self.path.display(), "the audit log cannot be written");
                }
            }
        }
        if written.is_ok() && state.is_failing {
            tracing::warn!(file = %self.path.display(), "the audit log is written again");
        }
        state.is_failing = written.is_err();
    }

    fn write(&self, state: &mut State, line: &str) -> io::Result<()> {
        if state.file.is_none() {
            self.open(state)?;
        }
        if state.length > 0 && state.length + line.len() as u64 > self.max_bytes {
            self.rotate(state)?;
        }
        let Some(file) = &mut state.file else { return Err(io::Error::other("it is not open")) };
        // What is left of a torn line is a line of its own.
        let line = if state.is_torn { format!("\n{line}") } else { line.to_owned() };
        state.is_torn = true;
        file.write_all(line.as_bytes())?;
        state.is_torn = false;
        state.length += line.len() as u64;
        Ok(())
    }

    fn open(&self, state: &mut State) -> io::Result<()> {
        if let Some(directory) = self.path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        }
        let mut file = File::options().append(true).read(true).create(true).mode(0o600).open(&self.path)?;
        state.length = file.metadata()?.len();
        if state.length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            state.is_torn = last != *b"\n";
        } else {
            state.is_torn = false;
        }
        state.file = Some(file);
        Ok(())
    }

    /// Begins another file. The oldest is forgotten.
    fn rotate(&self, state: &mut State) -> io::Result<()> {
        for number in (1..=KEPT).rev() {
            let from = if number == 1 { self.path.clone() } else { self.earlier(number - 1) };
            match fs::rename(from, self.earlier(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        state.file = None;
        self.open(state)
    }

    /// The file with the lines before those of number - 1.
    fn earlier(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// The newest lines, the oldest of them first. Lines that make no sense are left out.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn newest(&self, count: usize) -> io::Result<Vec<AuditEntry>> {
        let count = count.min(MAX_LINES);
        // No file is exchanged for another one meanwhile.
        let _state = self.file.lock().ignore_poison();
        let mut newest: Vec<AuditEntry> = Vec::new();
        let files = std::iter::once(self.path.clone()).chain((1..=KEPT).map(|number| self.earlier(number)));
        for path in files {
            if newest.len() >= count {
                break;
            }
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut bytes = Vec::new();
            // It may have been appended to by others.
            file.take(self.max_bytes.saturating_mul(2)).read_to_end(&mut bytes)?;
            let lines =
                bytes.rsplit(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
            newest.extend(lines.take(count - newest.len()));
        }
        newest.reverse();
        Ok(newest)
    }
}

/// A line, its end included. All is ASCII, so that what some programs take for the end of a line (U+2028) is
/// no such thing here.
fn line(entry: &AuditEntry) -> String {
    let json = serde_json::to_string(entry).unwrap_or_default();
    let mut line = String::with_capacity(json.len() + 1);
    for letter in json.chars() {
        if (' '..='~').contains(&letter) {
            line.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    line.push('\n');
    line
}

/// A text that is no longer than a field may be.
pub(crate) fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A line about a request, which is written when the request has ended, even if that is because the thread
/// panicked.
#[derive(Debug)]
pub struct Line<'a> {
    log: Option<&'a AuditLog>,
    entry: AuditEntry,
    hides_errors: bool,
}

impl<'a> Line<'a> {
    /// A line of a caller. None is written where there is no log.
    pub(crate) fn new(log: Option<&'a AuditLog>, caller: &Caller, action: &str) -> Self {
        let entry = AuditEntry {
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            uid: caller.uid(),
            user: caller.user().map(|user| bounded(&user)),
            pid: caller.process().and_then(|process| process.pid),
            from: caller.person().map(|person| person.address.to_string()),
            token: caller.person().and_then(|person| person.token.as_deref()).map(bounded),
            role: None,
            action: bounded(action),
            object: None,
            and_more: 0,
            result: ENDED_EARLY.into(),
            lost: 0,
        };
        Self { log, entry, hides_errors: false }
    }

    /// The same, of a caller with this role.
    pub(crate) fn of_role(mut self, role: Option<&str>) -> Self {
        self.entry.role = role.map(str::to_owned);
        self
    }

    /// The same, about this object and so many more.
    pub(crate) fn about(mut self, object: Option<&str>, and_more: usize) -> Self {
        self.entry.object = object.map(bounded);
        self.entry.and_more = and_more as u64;
        self
    }

    /// The same, without the texts of errors.
    pub(crate) fn hiding_errors(mut self, hides: bool) -> Self {
        self.hides_errors = hides;
        self
    }

    /// Writes that it was refused.
    pub(crate) fn refuse(mut self, error: &ApiError) {
        let Some(log) = self.log.take() else { return };
        self.set_error(error);
        log.add_refusal(self.entry.clone());
    }

    /// Writes nothing.
    pub(crate) fn discard(mut self) {
        self.log = None;
    }

    fn set_error(&mut self, error: &ApiError) {
        self.entry.result = match self.hides_errors {
            true => format!("error ({:?})", error.kind).to_lowercase(),
            false => bounded(&error.message),
        };
    }

    /// Writes it.
    pub(crate) fn end<T>(mut self, result: &Result<T, ApiError>) {
        match result {
            Ok(_) => self.entry.result = "ok".into(),
            Err(error) => self.set_error(error),
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if let Some(log) = self.log {
            log.add(self.entry.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str) -> AuditEntry {
        AuditEntry {
            time: 7,
            action: "dataset-destroy".into(),
            object: Some(object.into()),
            ..Default::default()
        }
    }

    fn objects(log: &AuditLog, count: usize) -> Vec<String> {
        log.newest(count).unwrap().into_iter().filter_map(|entry| entry.object).collect()
    }

    #[test]
    fn no_name_makes_a_line() {
        let place = tempfile::tempdir().unwrap();
        let log = AuditLog::new(place.path().join("state/audit.log"));
        let json = r#"{"time":1,"uid":0,"action":"shutdown","result":"ok"}"#;
        let forged = &format!("x\"}}\n{json}\u{2028}\u{85}\u{7f}\u{1f600}\r");
        log.add(entry(forged));
        let text = fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
        assert_eq!(objects(&log, 10), std::slice::from_ref(forged));
        let mode = fs::metadata(log.path()).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
    }

    #[test]
    fn files_are_bounded_and_the_oldest_go() {
        let place = tempfile::tempdir().unwrap();
        let log = AuditLog::with_limit(place.path().join("audit.log"), 1000);
        for number in 0..200 {
            log.add(entry(&number.to_string()));
        }
        let files: Vec<_> = fs::read_dir(place.path()).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 1 + KEPT as usize);
        assert!(files.iter().all(|file| file.metadata().unwrap().len() <= 1000));
        let kept = objects(&log, MAX_LINES);
        assert!(kept.len() > 20 && kept.len() < 100, "{kept:?}");
        let expected: Vec<String> = (200 - kept.len()..200).map(|number| number.to_string()).collect();
        assert_eq!(kept, expected);
        assert_eq!(objects(&log, 3), ["197", "198", "199"]);
        // One that begins anew goes on in the same file.
        let again = AuditLog::with_limit(place.path().join("audit.log"), 1000);
        again.add(entry("200"));
        assert_eq!(objects(&again, 2), ["199", "200"]);
    }

    #[test]
    fn a_log_that_cannot_be_written_counts_what_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
        fs::create_dir(&path).unwrap();
        let log = AuditLog::new(path.clone());
        for _ in 0..3 {
            log.add(entry("a"));
        }
        fs::remove_dir(&path).unwrap();
        log.add(entry("b"));
        log.add(entry("c"));
        let lost: Vec<u64> = log.newest(9).unwrap().iter().map(|entry| entry.lost).collect();
        assert_eq!(lost, [3, 0]);
    }

    #[test]
    fn what_is_left_of_a_torn_line_spoils_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
        fs::write(&path, "{\"time\": 1, \"act").unwrap();
        let log = AuditLog::new(path);
        log.add(entry("a"));
        assert_eq!(objects(&log, 9), ["a"]);
    }

    #[test]
    fn refusals_do_not_push_other_lines_out() {
        let place = tempfile::tempdir().unwrap();
        let log = AuditLog::new(place.path().join("audit.log"));
        let caller = Caller::own();
        for _ in 0..MAX_REFUSALS + 50 {
            Line::new(Some(&log), &caller, "mount").refuse(&ApiError::refused("no"));
        }
        Line::new(Some(&log), &caller, "mount").end(&Ok(()));
        let lines = log.newest(MAX_LINES).unwrap();
        assert_eq!(lines.len() as u64, MAX_REFUSALS + 1);
        assert_eq!((lines.last().unwrap().lost, lines.last().unwrap().result.as_str()), (50, "ok"));
    }

    #[test]
    fn a_request_that_panics_has_a_line() {
        let place = tempfile::tempdir().unwrap();
        let log = AuditLog::new(place.path().join("audit.log"));
        let caller = Caller::own();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _line = Line::new(Some(&log), &caller, "mount");
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        Line::new(Some(&log), &caller, "mount").hiding_errors(true).end::<()>(&Err(ApiError::busy("secret")));
        let results: Vec<String> = log.newest(9).unwrap().into_iter().map(|entry| entry.result).collect();
        assert_eq!(results, [ENDED_EARLY, "error (busy)"]);
    }
}
