//! Traces: the requests of a volume, with their times.
//!
//! A trace is a file as fio 3.31 and later replay it (`read_iolog`, version 3): lines of microseconds since
//! the beginning, a file's name, the operation, offset and length. So traces that fio wrote (`write_iolog`)
//! can be replayed here, and those that are recorded here by fio alone.
//!
//! Source: fio 3.33, `HOWTO`, "Trace file format v3". The unit of time is not in it; it was found by
//! replaying.

use std::io;
use std::path::Path;

use crate::input_file;
use crate::size::Size;

const FIRST_LINE: &str = "fio version 3 iolog";
/// Events that a trace may have.
const MOST_EVENTS: usize = 10_000_000;

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are given up. fio replays these on block devices only, and not over NBD, so that they are left
    /// out; the report says so.
    Trim,
    /// A flush.
    Sync,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Sync => "sync",
        }
    }
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the trace began.
    pub at_us: u64,
    /// The operation.
    pub operation: Operation,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// Requests in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The requests.
    pub events: Vec<Event>,
}

/// Bytes that its file may have: about what so many events take.
const MOST_BYTES: Size = Size(1 << 30);

impl Trace {
    /// Reads one from a regular file.
    ///
    /// # Errors
    /// A fault of the file, or the trace.
    pub fn read(path: &Path) -> Result<Self, String> {
        input_file::read(path, MOST_BYTES)
            .map_err(|error| error.to_string())
            .and_then(|text| Self::parse(&text))
    }

    /// Reads one. All files in it are taken as one.
    ///
    /// # Errors
    /// The fault, with the line's number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, first)| first.trim() != FIRST_LINE) {
            return Err(format!("its first line is not '{FIRST_LINE}'"));
        }
        let mut events: Vec<Event> = Vec::new();
        for (number, line) in lines {
            let wrong = || format!("line {}: '{line}' is not a request", number + 1);
            let words: Vec<&str> = line.split_whitespace().collect();
            let (at, operation, offset, length) = match words.as_slice() {
                [] => continue,
                [_, _, "add" | "open" | "close"] => continue,
                [at, _, operation, offset, length] => (at, *operation, offset, length),
                _ => return Err(wrong()),
            };
            let number_of = |word: &str| word.parse::<u64>().map_err(|_| wrong());
            let operation = match operation {
                "read" => Operation::Read,
                "write" => Operation::Write,
                "trim" => Operation::Trim,
                "sync" | "datasync" => Operation::Sync,
                _ => return Err(wrong()),
            };
            let event = Event {
                at_us: number_of(at)?,
                operation,
                offset: number_of(offset)?,
                length: number_of(length)?,
            };
            if events.last().is_some_and(|before| before.at_us > event.at_us) {
                return Err(format!("line {}: it is older than the line before", number + 1));
            }
            if events.len() == MOST_EVENTS {
                return Err(format!("it has more than {MOST_EVENTS} requests"));
            }
            events.push(event);
        }
        Ok(Self { events })
    }

    /// Itself, where all of it is within the first `size` bytes.
    ///
    /// # Errors
    /// Where it does not fit.
    pub fn within(self, size: Size) -> Result<Self, String> {
        let end = |event: &Event| event.offset.saturating_add(event.length);
        match self.events.iter().map(end).max() {
            None => Err("there is no request in it".to_owned()),
            Some(_) if !self.events.iter().any(Event::is_replayed) => {
                Err("it has no reads or writes to replay".to_owned())
            }
            Some(end) if end > size.0 => {
                Err(format!("it reaches byte {end}, but the target has {} bytes", size.0))
            }
            Some(_) => Ok(self),
        }
    }

    /// Whether it writes, or gives bytes up.
    pub fn writes(&self) -> bool {
        self.events.iter().any(|event| matches!(event.operation, Operation::Write | Operation::Trim))
    }

    /// How many of its requests are trims, which are not replayed.
    pub fn trims(&self) -> usize {
        self.events.iter().filter(|event| event.operation == Operation::Trim).count()
    }

    /// Bytes that are read and written when it is replayed once.
    pub fn bytes(&self) -> u64 {
        self.events
            .iter()
            .filter(|event| event.is_replayed())
            .fold(0, |all, it| all.saturating_add(it.length))
    }

    /// From its beginning to its last request.
    pub fn seconds(&self) -> f64 {
        self.events.last().map_or(0.0, |event| event.at_us as f64 / 1e6)
    }

    /// How often it can be had on end at most.
    pub fn most_times(&self) -> usize {
        (MOST_EVENTS / self.events.len().max(1)).max(1)
    }

    /// The trace for fio to replay onto the file `name`, so many times on end. It ends with a sync, which
    /// waits for what is under way.
    pub fn for_fio(&self, name: &str, times: usize) -> String {
        let last = self.events.last().map_or(0, |event| event.at_us);
        let mut text = head(name);
        for time in 0..times as u64 {
            let later = time * (last + 1);
            for event in self.events.iter().filter(|event| event.operation != Operation::Trim) {
                text.push_str(&Event { at_us: event.at_us + later, ..*event }.line(name));
            }
        }
        let end = (times as u64).saturating_sub(1) * (last + 1) + last;
        let sync = Event { at_us: end, operation: Operation::Sync, offset: 0, length: 0 };
        text + &sync.line(name)
    }
}

impl Event {
    /// Whether fio does anything for it that is measured.
    fn is_replayed(&self) -> bool {
        matches!(self.operation, Operation::Read | Operation::Write) && self.length > 0
    }

    fn line(&self, name: &str) -> String {
        let Self { at_us, operation, offset, length } = self;
        format!("{at_us} {name} {} {offset} {length}\n", operation.word())
    }
}

fn head(name: &str) -> String {
    format!("{FIRST_LINE}\n0 {name} add\n0 {name} open\n")
}

/// Writes a trace as it comes.
#[derive(Debug)]
pub struct Writer<W>(W);

/// What was recorded, in files that are recorded: the names of volumes may have spaces, fio's files have
/// none.
const RECORDED: &str = "volume";

impl<W: io::Write> Writer<W> {
    /// Begins it.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(head(RECORDED).as_bytes())?;
        Ok(Self(to))
    }

    /// Adds a request.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.0.write_all(event.line(RECORDED).as_bytes())
    }

    /// The file or device that was written.
    pub fn into_inner(self) -> W {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_us: u64, operation: Operation, offset: u64, length: u64) -> Event {
        Event { at_us, operation, offset, length }
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let events = vec![
            event(0, Operation::Read, 0, 4096),
            event(10, Operation::Write, 4096, 8192),
            event(10, Operation::Trim, 65536, 65536),
            event(2_000_000, Operation::Sync, 0, 0),
        ];
        let trace = Trace { events };
        let mut writer = Writer::new(Vec::new()).unwrap();
        trace.events.iter().for_each(|event| writer.write(event).unwrap());
        assert_eq!(Trace::parse(&String::from_utf8(writer.into_inner()).unwrap()), Ok(trace.clone()));
        let replayed = Trace::parse(&trace.for_fio("/dev/x", 1)).unwrap();
        assert!(replayed.events.iter().all(|event| event.operation != Operation::Trim));
        assert_eq!(replayed.events.last(), Some(&event(2_000_000, Operation::Sync, 0, 0)));
        assert_eq!((trace.seconds(), trace.trims(), replayed.trims()), (2.0, 1, 0));
        let twice = Trace::parse(&trace.for_fio("/dev/x", 2)).unwrap();
        assert_eq!((twice.events.len(), twice.events[4].at_us), (7, 2_000_011));
        assert!(trace.clone().within(Size(131072)).is_ok());
        let only_syncs = Trace { events: vec![event(0, Operation::Sync, 0, 0)] };
        assert!(only_syncs.within(Size(4096)).unwrap_err().contains("reads or writes"));
        assert!(trace.within(Size(65536)).is_err());
        assert!(Trace::default().within(Size(65536)).is_err());
    }

    #[test]
    fn what_is_no_trace_is_refused_by_line() {
        for (text, named) in [
            ("", "first line"),
            ("fio version 2 iolog\n", "first line"),
            ("fio version 3 iolog\n0 x add\n1 x jump 0 1\n", "line 3"),
            ("fio version 3 iolog\n1 x read 0\n", "line 2"),
            ("fio version 3 iolog\n1 x read 0 -1\n", "line 2"),
            ("fio version 3 iolog\n5 x read 0 1\n4 x read 0 1\n", "line 3"),
        ] {
            let error = Trace::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
