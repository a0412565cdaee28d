//! A stream of the user's files, written to a target: what `dd` and `pv` do, with data that are neither
//! artificial nor all alike.
//!
//! The files below a directory, in the order of their names, are written one after the other in pieces of the
//! workload's size, and made stable at the end. The time of reading them is not counted. With `as_disk` they
//! lie as on a disk: each begins at a multiple of `DISK_BLOCK` bytes, and after every `DISK_USED` bytes of
//! files so many are free and zero that a third of all is. A [`Sort`] restricts the copy to texts or to
//! programs, so that data called text compress as text. An NBD export is written through `nbdcopy`, whose
//! standard input is the stream: then a piece's time ends when `nbdcopy` has taken it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::{Error, Result};
use crate::fio::{Endpoint, Figures, Outcome};
use crate::series::{self, Course, Series};
use crate::size::Size;
use crate::workload::Sort;

/// Where files of a disk begin.
const DISK_BLOCK: u64 = 4096;
/// Bytes of files that lie together on a disk; half as many behind them are free.
const DISK_USED: u64 = 4 << 20;

/// How often the progress of a copy is reported.
const TELL: Duration = Duration::from_millis(200);

/// Files that are to be copied.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// A directory, or a file.
    pub source: &'a Path,
    /// Whether they lie as on a disk.
    pub as_disk: bool,
    /// Which of them; all where none is said.
    pub only: Option<Sort>,
}

/// Where a stream goes.
enum Sink {
    File(File, PathBuf),
    Nbd(Child),
}

impl Sink {
    fn open(at: &Endpoint) -> Result<Self> {
        if let Endpoint::Iscsi(_) = at {
            return Err(Error::Experiment(
                "rw = \"copy\" does not work over iSCSI: log in, and name the block device".into(),
            ));
        }
        if let Endpoint::Elsewhere { .. } = at {
            return Err(Error::Experiment(
                "rw = \"copy\" works on files of this machine, and not where `by` runs a shell".into(),
            ));
        }
        if let Endpoint::Nbd(uri) = at {
            let mut command = Command::new("nbdcopy");
            command
                .args(["--flush", "-", uri])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                // Ctrl-C is for the lab.
                .process_group(0);
            let child = command.spawn();
            return child.map(Self::Nbd).map_err(|error| Error::Missing { program: "nbdcopy".into(), error });
        }
        let path = PathBuf::from(at.file());
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        Ok(Self::File(file.map_err(Error::file(&path))?, path))
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        match self {
            Self::File(file, path) => file.write_all(piece).map_err(Error::file(path)),
            Self::Nbd(child) => {
                let written = child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(piece));
                // Why it takes no more, it says at its end.
                written.or_else(|error| {
                    Self::end(child).and(Err(Error::Missing { program: "nbdcopy".into(), error }))
                })
            }
        }
    }

    fn finish(mut self) -> Result<()> {
        match &mut self {
            Self::File(file, path) => file.sync_all().map_err(Error::file(path)),
            Self::Nbd(child) => Self::end(child),
        }
    }

    fn end(child: &mut Child) -> Result<()> {
        drop(child.stdin.take());
        let mut said = String::new();
        // What it said is for a message only.
        let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        let status = child.wait().map_err(|error| Error::Missing { program: "nbdcopy".into(), error })?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Failed { command: "nbdcopy".into(), output: said.trim().to_owned() }),
        }
    }
}

/// Writes at most `extent` bytes of `files` to `at`, in pieces of `bs` bytes. `stops` is called now and then
/// how many bytes are written, and says whether it is to stop.
pub fn run(
    files: Files<'_>,
    at: &Endpoint,
    extent: Size,
    bs: Size,
    stops: &mut dyn FnMut(Size) -> bool,
) -> Result<Outcome> {
    let Files { source, as_disk, only } = files;
    let mut files = Vec::new();
    list(source, only, &mut files, &mut extent.0.clone()).map_err(Error::file(source))?;
    let mut stream = Stream { files: files.iter(), open: None, as_disk, given: 0, zeros: 0 };
    let mut sink = Sink::open(at)?;
    let mut piece = vec![0; usize::try_from(bs.0.min(extent.0)).unwrap_or(1 << 20)];
    let mut times: Vec<Duration> = Vec::new();
    let mut left = extent.0;
    let mut told = Instant::now();
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let filled = stream.fill(&mut piece[..most])?;
        if filled == 0 {
            break;
        }
        let began = Instant::now();
        sink.write(&piece[..filled])?;
        times.push(began.elapsed());
        left -= filled as u64;
        if told.elapsed() >= TELL {
            told = Instant::now();
            if stops(Size(extent.0 - left)) {
                sink.finish()?;
                return Err(Error::Stopped);
            }
        }
    }
    let written = extent.0 - left;
    if written == 0 {
        let what = match only {
            Some(only) => format!("there are no {} in it", only.words()),
            None => "there are no data in it".to_owned(),
        };
        return Err(Error::Results { path: source.to_owned(), what });
    }
    let began = Instant::now();
    sink.finish()?;
    let seconds = (times.iter().sum::<Duration>() + began.elapsed()).as_secs_f64().max(1e-9);
    let series = in_steps(&times, written, seconds);
    let figures = figures(&mut times, written, seconds);
    let json = json!({
        "copied from": source,
        "files": files.len(),
        "bytes": written,
        "seconds": seconds,
        "figures": figures,
    });
    Ok(Outcome { figures, json: json.to_string(), series: Some(series) })
}

/// Pieces by when they were written. What their making stable took is at the end.
fn in_steps(times: &[Duration], written: u64, seconds: f64) -> Series {
    let mut course = Course::default();
    let mut at = Duration::ZERO;
    for time in times {
        at += *time;
        course.add(at.as_secs_f64(), 1.0);
    }
    let each = written as f64 / times.len().max(1) as f64;
    Series::of(&[(course, each)], seconds, series::step(seconds))
}

fn figures(times: &mut [Duration], written: u64, seconds: f64) -> Figures {
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len().saturating_sub(1)) as f64 * share).round() as usize;
        times.get(index).map_or(0.0, |time| time.as_nanos() as f64)
    };
    let count = times.len().max(1) as f64;
    Figures {
        iops: times.len() as f64 / seconds,
        throughput: written as f64 / seconds,
        latency: times.iter().sum::<Duration>().as_nanos() as f64 / count,
        latency_p50: at(0.5),
        latency_p99: at(0.99),
        latency_p999: at(0.999),
        read_bytes: 0,
        written_bytes: written,
        client_cpu: 0.0,
        by_direction: None,
    }
}

/// The plain files below a path, by name, as many as have `left` bytes. What may not be read is left out.
fn list(path: &Path, only: Option<Sort>, into: &mut Vec<PathBuf>, left: &mut u64) -> io::Result<()> {
    let kind = fs::metadata(path)?;
    let is_meant =
        || File::open(path).is_ok_and(|mut file| only.is_none_or(|sort| sort.has(path, &mut file)));
    if kind.is_file() && is_meant() {
        into.push(path.to_owned());
        *left = left.saturating_sub(kind.len());
    }
    if !kind.is_dir() || *left == 0 {
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path)?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links may lead anywhere, and back.
        if entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_dir()) {
            let _ = list(&entry.path(), only, into, left);
        }
    }
    Ok(())
}

/// The bytes of files, one behind the other.
struct Stream<'a> {
    files: std::slice::Iter<'a, PathBuf>,
    open: Option<File>,
    as_disk: bool,
    /// Bytes of files, and what fills their last blocks, since there was free space.
    given: u64,
    /// Zeros that come next.
    zeros: u64,
}

impl Stream<'_> {
    /// Fills a piece; less only at the end of all files. A file that cannot be read further ends there.
    fn fill(&mut self, piece: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < piece.len() {
            if self.zeros > 0 {
                let count = (piece.len() - filled).min(usize::try_from(self.zeros).unwrap_or(usize::MAX));
                piece[filled..filled + count].fill(0);
                filled += count;
                self.zeros -= count as u64;
                continue;
            }
            let Some(file) = &mut self.open else {
                let Some(path) = self.files.next() else { break };
                self.open = File::open(path).ok();
                continue;
            };
            match file.read(&mut piece[filled..]) {
                Ok(0) | Err(_) => {
                    self.open = None;
                    self.end_file();
                }
                Ok(read) => {
                    filled += read;
                    self.given += read as u64;
                }
            }
        }
        Ok(filled)
    }

    /// The bytes after a file on a disk.
    fn end_file(&mut self) {
        if !self.as_disk {
            return;
        }
        self.zeros = self.given.next_multiple_of(DISK_BLOCK) - self.given;
        self.given += self.zeros;
        if self.given >= DISK_USED {
            self.zeros += (self.given / 2).next_multiple_of(DISK_BLOCK);
            self.given = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(source: &Path, as_disk: bool) -> Files<'_> {
        Files { source, as_disk, only: None }
    }

    #[test]
    fn only_texts_that_are_not_compressed_are_texts_and_only_programs_programs() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir_all(&source).unwrap();
        let long = "\u{e9}".repeat(3000);
        for (name, bytes) in [
            ("a.gz", [0x1f, 0x8b, 8, 0].as_slice()),
            ("b", &[0x1f, 0x8b, 8, 0, b'x']),
            ("c.md", b"a text\n"),
            ("d", format!("x{long}").as_bytes()),
            ("e", b"\x7fELF\x02\x01"),
            ("f.zst", b"named so"),
            ("g", b"\xff\xfe latin"),
            ("h", b"another\n"),
        ] {
            fs::write(source.join(name), bytes).unwrap();
        }
        let copied = |only| {
            let target = directory.path().join(format!("{only:?}"));
            let files = Files { source: &source, as_disk: false, only: Some(only) };
            run(files, &Endpoint::Path(target.clone()), Size(1 << 20), Size(4096), &mut |_| false).unwrap();
            fs::read(target).unwrap()
        };
        assert_eq!(copied(Sort::Text), format!("a text\nx{long}another\n").as_bytes());
        assert_eq!(copied(Sort::Programs), b"\x7fELF\x02\x01");
    }

    #[test]
    fn files_are_streamed_by_name_up_to_the_extent() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir_all(source.join("b")).unwrap();
        fs::write(source.join("a"), [1; 3000]).unwrap();
        fs::write(source.join("b/c"), [2; 3000]).unwrap();
        fs::write(source.join("d"), [3; 3000]).unwrap();
        std::os::unix::fs::symlink(&source, source.join("e")).unwrap();
        let whole = [[1; 3000], [2; 3000], [3; 3000]].concat();
        for (extent, bytes) in [(8000, 8000), (1 << 20, 9000)] {
            let target = directory.path().join(format!("target-{extent}"));
            let outcome = run(
                all(&source, false),
                &Endpoint::Path(target.clone()),
                Size(extent),
                Size(4096),
                &mut |_| false,
            )
            .unwrap();
            assert_eq!(outcome.figures.written_bytes, bytes);
            let series = outcome.series.unwrap();
            assert_eq!((series.operations, series.bytes), (vec![bytes.div_ceil(4096)], vec![bytes]));
            assert_eq!(fs::read(target).unwrap(), whole[..bytes as usize]);
            assert!(
                outcome.figures.throughput > 0.0 && outcome.json.contains("\"files\":3"),
                "{}",
                outcome.json
            );
        }
    }

    #[test]
    fn files_of_a_disk_begin_at_blocks_and_a_third_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("a"), [1; 3000]).unwrap();
        fs::write(source.join("b"), vec![2; 4 << 20]).unwrap();
        fs::write(source.join("c"), [3; 100]).unwrap();
        let target = directory.path().join("target");
        run(all(&source, true), &Endpoint::Path(target.clone()), Size(16 << 20), Size(1 << 20), &mut |_| {
            false
        })
        .unwrap();
        let disk = fs::read(target).unwrap();
        let used = 4096 + (4 << 20);
        let free = (used / 2_usize).next_multiple_of(4096);
        assert!(disk[..3000].iter().all(|byte| *byte == 1) && disk[3000..4096].iter().all(|byte| *byte == 0));
        assert!(disk[4096..used].iter().all(|byte| *byte == 2));
        assert!(disk[used..used + free].iter().all(|byte| *byte == 0));
        assert!(disk[used + free..used + free + 100].iter().all(|byte| *byte == 3));
        assert_eq!(disk.len(), used + free + 4096);
    }

    #[test]
    fn nothing_to_copy_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let at = Endpoint::Path(directory.path().join("target"));
        let run = |source: &str| {
            run(all(&directory.path().join(source), false), &at, Size(4096), Size(4096), &mut |_| false)
        };
        assert!(run("none").is_err());
        fs::create_dir(directory.path().join("empty")).unwrap();
        assert!(run("empty").is_err());
        fs::write(directory.path().join("empty/a"), "text").unwrap();
        let source = directory.path().join("empty");
        let files = Files { source: &source, as_disk: false, only: Some(Sort::Programs) };
        let error = super::run(files, &at, Size(4096), Size(4096), &mut |_| false).unwrap_err().to_string();
        assert!(error.contains("no programs"), "{error}");
    }
}
