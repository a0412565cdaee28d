//! How commands speak: text on standard output, refusals on standard error, JSON documents, dates of the
//! user's time zone.
//!
//! A command that has said why it failed returns [`Exit`], which carries only the exit code; `main` adds
//! nothing to it. Text is collected and written at once, so that a table never stands half-printed in front
//! of an error.

#![allow(unsafe_code, reason = "the C library's local time, and the size of the terminal")]

use std::fmt;
use std::io::Write as _;

use anyhow::{Context, Result};
use engine::properties::Style;
use engine::properties::format::{Civil, nicebytes, nicenum};
use serde_json::{Map, Value};
use server::api::{Action, ApiError};

use crate::client;

/// Exit code of a command that was understood and failed.
pub const FAILED: u8 = 1;
/// Exit code of a command that makes no sense.
pub const USAGE: u8 = 2;

/// The end of a command that has already said why.
#[derive(Debug, Clone, Copy)]
pub struct Exit(pub u8);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// Arguments that do not go together: `main` says why, and how the command is used.
#[derive(Debug)]
pub struct Misuse(String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// Says an error as OpenZFS's tools do, without the program's name, and leaves the exit code. A misuse is left
/// to `main`.
pub fn report(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Exit>() || error.is::<Misuse>() {
        return error;
    }
    eprintln!("{}", in_words(&error));
    Exit(FAILED).into()
}

/// The text of an error, without the numbers that the system has for its reasons.
pub fn in_words(error: &anyhow::Error) -> String {
    without_numbers(format!("{error:#}"))
}

fn without_numbers(mut text: String) -> String {
    const NUMBER: &str = " (os error ";
    while let Some(start) = text.find(NUMBER) {
        let rest = text.split_off(start);
        let Some((_, after)) = rest.split_once(')') else { return text + &rest };
        text.push_str(after);
    }
    text
}

/// Ends a command whose arguments do not go together.
pub fn usage(message: impl fmt::Display) -> anyhow::Error {
    Misuse(message.to_string()).into()
}

/// Says what could not be done; fails if there is anything.
pub fn complain(failed: &[ApiError]) -> Result<()> {
    for error in failed {
        eprintln!("{}", without_numbers(error.to_string()));
    }
    if failed.is_empty() { Ok(()) } else { Err(Exit(FAILED).into()) }
}

/// Asks the daemon if one runs; without one there are no pools, which `absent` puts into a reply.
pub fn ask<A: Action>(action: &A, absent: impl FnOnce(&A) -> A::Reply) -> Result<A::Reply> {
    Ok(client::call_running(action)?.unwrap_or_else(|| absent(action)))
}

/// The answer of a daemon without pools about these names.
pub fn none_of<'a>(names: impl IntoIterator<Item = &'a String>, what: &str) -> Vec<ApiError> {
    let refusal = |name| ApiError::not_found(format!("cannot open '{name}': {what}"));
    names.into_iter().map(refusal).collect()
}

/// Writes text to standard output.
pub fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes text that may not be UTF-8 to standard output.
pub fn print_bytes(text: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a JSON document to standard output, on one line as OpenZFS does.
pub fn print_json(document: &Map<String, Value>) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string(document)?))
}

/// Options of commands that can print JSON.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct JsonOptions {
    /// Print JSON
    #[arg(short = 'j', long)]
    pub json: bool,
    /// Print numbers in full and as JSON integers
    #[arg(long, requires = "json")]
    pub json_int: bool,
}

impl JsonOptions {
    /// How numbers are written.
    pub fn numbers(&self, literal: bool) -> Numbers {
        Numbers { literal: literal || self.json_int, as_integers: self.json_int }
    }
}

/// The beginning of the JSON that `command` prints: the version of its form.
pub fn document(command: &str) -> Map<String, Value> {
    let mut version = Map::new();
    version.insert("command".into(), command.into());
    version.insert("vers_major".into(), 0.into());
    version.insert("vers_minor".into(), 1.into());
    Map::from_iter([("output_version".to_owned(), Value::Object(version))])
}

/// How numbers stand in a JSON document.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    /// In full instead of scaled.
    pub literal: bool,
    /// As integers instead of strings.
    pub as_integers: bool,
}

impl Numbers {
    fn value(self, number: u64, scaled: impl FnOnce(u64) -> String) -> Value {
        match (self.as_integers, self.literal) {
            (true, _) => number.into(),
            (false, true) => number.to_string().into(),
            (false, false) => scaled(number).into(),
        }
    }

    /// A count.
    pub fn count(self, number: u64) -> Value {
        self.value(number, nicenum)
    }

    /// A size in bytes.
    pub fn bytes(self, number: u64) -> Value {
        self.value(number, nicebytes)
    }

    /// A number that is never scaled.
    pub fn exact(self, number: u64) -> Value {
        self.value(number, |number| number.to_string())
    }

    /// A number that is never scaled, and may be negative.
    pub fn signed(self, number: i64) -> Value {
        if self.as_integers { number.into() } else { number.to_string().into() }
    }

    /// A date.
    pub fn date(self, seconds: u64) -> Value {
        self.value(seconds, timestamp)
    }

    /// A property's value: text, unless it is digits that are to be an integer.
    pub fn property(self, text: &str) -> Value {
        match text.parse::<u64>() {
            Ok(number) if self.as_integers => number.into(),
            _ => text.into(),
        }
    }
}

/// The style of values, with dates in the user's time zone.
pub fn style(parsable: bool) -> Style {
    Style { parsable, utc_offset }
}

/// Seconds to add to UTC at this moment for the user's clock.
pub fn utc_offset(seconds: i64) -> i32 {
    local(seconds).map_or(0, |tm| i32::try_from(tm.tm_gmtoff).unwrap_or(0))
}

/// The calendar time of this moment on the user's clock.
fn civil(seconds: u64) -> Option<Civil> {
    let seconds = i64::try_from(seconds).ok()?;
    Civil::at(seconds.checked_add(i64::from(utc_offset(seconds)))?)
}

/// A date as C's `ctime` writes it, without the line end: `Sat Nov 21 06:34:53 2026`.
pub fn ctime(seconds: u64) -> String {
    civil(seconds).map_or_else(
        || seconds.to_string(),
        |at| {
            format!(
                "{} {} {:>2} {:02}:{:02}:{:02} {}",
                at.weekday, at.month_name, at.day, at.hour, at.minute, at.second, at.year
            )
        },
    )
}

/// A date as `date` prints it: `Sat Nov 21 06:34:53 UTC 2026`; `-` for none.
pub fn timestamp(seconds: u64) -> String {
    if seconds == 0 {
        return "-".to_owned();
    }
    let zone = i64::try_from(seconds).ok().and_then(local).map_or_else(String::new, |tm| zone_of(&tm));
    let text = ctime(seconds);
    match text.rsplit_once(' ') {
        Some((before, year)) => format!("{before} {zone} {year}"),
        None => text,
    }
}

/// A date as the command history has it: `2026-11-21.06:06:33`.
pub fn history_date(seconds: u64) -> String {
    civil(seconds).map_or_else(
        || seconds.to_string(),
        |at| {
            format!(
                "{}-{:02}-{:02}.{:02}:{:02}:{:02}",
                at.year, at.month, at.day, at.hour, at.minute, at.second
            )
        },
    )
}

/// The time of day on the user's clock: `06:06:33`.
pub fn clock(seconds: u64) -> String {
    civil(seconds)
        .map_or_else(|| seconds.to_string(), |at| format!("{:02}:{:02}:{:02}", at.hour, at.minute, at.second))
}

/// The moment that a user's date names, in seconds since 1970: `2026-11-27`, or `2026-11-27 12:00`. The end
/// of that day or minute with `is_end`.
pub fn date_in(text: &str, is_end: bool) -> Option<u64> {
    let (day, time) = text.split_once(' ').map_or((text, None), |(day, time)| (day, Some(time)));
    let mut parts = day.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (hour, minute) = match time {
        Some(time) => {
            let (hour, minute) = time.split_once(':')?;
            (hour.parse::<i64>().ok()?, minute.parse::<i64>().ok()?)
        }
        None => (0, 0),
    };
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || !(0..24).contains(&hour) || !(0..60).contains(&minute) {
        return None;
    }
    // Days since 1970, with years that begin in March.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 719_469;
    let span = match (is_end, time) {
        (false, _) => 0,
        (true, Some(_)) => 60,
        (true, None) => 86_400,
    };
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + span;
    u64::try_from(seconds - i64::from(utc_offset(seconds))).ok()
}

/// A span of time: `00:00:04`, `2 days 01:00:00`.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let time = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if days > 0 { format!("{days} days {time}") } else { time }
}

/// Rows and columns of the terminal on standard output; none where it is no terminal.
pub fn terminal_size() -> Option<(u16, u16)> {
    // SAFETY: plain integers, for which zeroes are a valid value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call, which only writes to it.
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (asked == 0 && size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// The clock now, in seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn local(seconds: i64) -> Option<libc::tm> {
    // SAFETY: an all-zero `tm` is a valid value; localtime_r only writes to it.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, and nothing here changes the environment that names the
    // time zone.
    let filled = unsafe { libc::localtime_r(&seconds, &mut tm) };
    (!filled.is_null()).then_some(tm)
}

fn zone_of(tm: &libc::tm) -> String {
    if tm.tm_zone.is_null() {
        return String::new();
    }
    // SAFETY: localtime_r sets it to a string that ends with NUL and lives as long as the process.
    unsafe { std::ffi::CStr::from_ptr(tm.tm_zone) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_days_only_when_there_are_some() {
        assert_eq!(duration(4), "00:00:04");
        assert_eq!(duration(90_061), "1 days 01:01:01");
    }

    #[test]
    fn reasons_of_the_system_are_words() {
        let error = std::io::Error::from_raw_os_error(2);
        let error = anyhow::Error::from(error).context("failed to stat /p");
        assert_eq!(in_words(&error), "failed to stat /p: No such file or directory");
        let two = "a: No (os error 2); b: Busy (os error 16) (os error";
        assert_eq!(without_numbers(two.to_owned()), "a: No; b: Busy (os error");
    }

    #[test]
    fn json_numbers_are_scaled_strings_full_strings_or_integers() {
        assert_eq!(Numbers::default().bytes(2048), Value::from("2K"));
        assert_eq!(Numbers { literal: true, as_integers: false }.bytes(2048), Value::from("2048"));
        let integers = Numbers { literal: true, as_integers: true };
        assert_eq!(integers.bytes(2048), Value::from(2048));
        assert_eq!(integers.property("12"), Value::from(12));
        assert_eq!(integers.property("1.00"), Value::from("1.00"));
    }

    #[test]
    fn a_date_that_is_not_set_is_a_dash() {
        assert_eq!(timestamp(0), "-");
    }
}
