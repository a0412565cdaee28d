//! The arguments of fio, for each kind of work.
//!
//! | work | fio |
//! |---|---|
//! | transfers | `io_uring` on files, around the page cache unless the workload says `direct=0`; `nbd` on exports; `libiscsi` on disks behind iSCSI; for a time |
//! | creating, opening files | `psync` with as many files as the workload has, each opened, written or read whole, closed; once |
//! | attributes, removing | `filestat`, `filedelete`; once |
//! | a trace | `read_iolog`; with its own pauses one request after the other ([`Workload::replay_depth`]) |

use std::path::{Path, PathBuf};

use crate::size::Size;
use crate::workload::{Work, Workload, does_write};

/// Where fio works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A file or block device.
    Path(PathBuf),
    /// A directory: its files are in [`OWN_DIRECTORY`] in it.
    Directory(PathBuf),
    /// An NBD export.
    Nbd(String),
    /// A disk behind iSCSI.
    Iscsi(String),
    /// A file or block device where a command runs a shell.
    Elsewhere {
        /// The command.
        by: Vec<String>,
        /// The path there.
        path: PathBuf,
        /// fio's engine there.
        engine: String,
    },
}

/// The name of every job, which those of the files that it makes begin with.
const NAME: &str = "lab";

/// The directory of the lab's files in a directory that is worked on.
pub const OWN_DIRECTORY: &str = "lab-files";
/// The file in it that transfers go to.
pub const DATA: &str = "data";

impl Endpoint {
    /// Whether a URI is of a disk behind iSCSI; else it is of an NBD export.
    pub(crate) fn is_iscsi(uri: &str) -> bool {
        uri.starts_with("iscsi://")
    }

    /// What is behind a URI.
    pub(crate) fn of_uri(uri: &str) -> Self {
        if Self::is_iscsi(uri) { Self::Iscsi(uri.to_owned()) } else { Self::Nbd(uri.to_owned()) }
    }

    /// The file that transfers go to, as fio calls it.
    pub fn file(&self) -> String {
        match self {
            Self::Path(path) | Self::Elsewhere { path, .. } => path.display().to_string(),
            Self::Directory(path) => path.join(OWN_DIRECTORY).join(DATA).display().to_string(),
            // Any name would do.
            Self::Nbd(_) => "nbd".to_owned(),
            Self::Iscsi(uri) => uri.clone(),
        }
    }

    /// The command that runs a shell where it is; no words where that is here.
    pub fn by(&self) -> &[String] {
        match self {
            Self::Elsewhere { by, .. } => by,
            _ => &[],
        }
    }

    /// How transfers go there.
    fn engine(&self) -> Vec<String> {
        match self {
            Self::Nbd(uri) => vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
            Self::Iscsi(_) => vec!["--ioengine=libiscsi".to_owned()],
            // What is not there any more is not made: it would be a file in memory.
            Self::Elsewhere { engine, .. } => {
                let engine = format!("--ioengine={engine}");
                [engine.as_str(), "--direct=1", "--allow_file_create=0"].map(str::to_owned).to_vec()
            }
            _ => vec!["--ioengine=io_uring".to_owned(), "--direct=1".to_owned()],
        }
    }

    fn file_argument(&self) -> Option<String> {
        // A colon would end the name.
        (!matches!(self, Self::Nbd(_))).then(|| format!("--filename={}", self.file().replace(':', "\\:")))
    }
}

/// The arguments of fio for a workload that is measured; of a trace see [`replay`].
pub fn arguments(workload: &Workload, at: &Endpoint, size: Size, seed: u64) -> Vec<String> {
    let mut arguments = match (workload.work(), at) {
        (Work::Transfers | Work::Replay | Work::Copy, _) => {
            let mut arguments = transfers(workload, at, workload.share(size));
            if !workload.once {
                arguments.extend(["--time_based".to_owned(), "--norandommap=1".to_owned()]);
            }
            arguments.push(format!("--runtime={}ms", (workload.seconds * 1000.0).round()));
            if workload.ramp_seconds > 0.0 {
                arguments.push(format!("--ramp_time={}ms", (workload.ramp_seconds * 1000.0).round()));
            }
            // A server's cache of writes is written out within the time that is measured.
            if writes(&workload.rw) {
                arguments.push("--end_fsync=1".to_owned());
            }
            arguments
        }
        (work, Endpoint::Directory(directory)) => files(work, workload, directory),
        // The experiment's check lets this pass only for a directory.
        (work, at) => files(work, workload, Path::new(&at.file())),
    };
    arguments.push(format!("--randseed={seed}"));
    with_options(arguments, workload, at, size)
}

/// The arguments of fio for a workload, to be looked at only: without the place, which may not exist yet.
pub fn parsed(workload: &Workload, at: &Endpoint, size: Size) -> Vec<String> {
    let mut all = match workload.work() {
        Work::Replay => {
            let mut all = common(workload);
            all.extend(at.engine());
            all.push(format!("--iodepth={}", workload.iodepth));
            with_options(all, workload, at, size)
        }
        _ => arguments(workload, at, size, 1),
    };
    all.retain(|argument| !["--directory=", "--filename="].iter().any(|place| argument.starts_with(place)));
    all.push("--filename=cenote-lab".to_owned());
    all
}

/// The arguments of fio to go once over `extent` bytes from byte `from` on; what is random is another for
/// each `from`.
pub fn piece(workload: &Workload, at: &Endpoint, from: u64, extent: Size, flush: bool) -> Vec<String> {
    let mut arguments = once(workload, at, extent, flush);
    arguments.extend([format!("--offset={from}"), format!("--randseed={}", from + 1)]);
    arguments
}

/// The arguments of fio to go over the first `extent` bytes once.
pub fn once(workload: &Workload, at: &Endpoint, extent: Size, flush: bool) -> Vec<String> {
    let mut arguments = transfers(workload, at, extent);
    if flush && writes(&workload.rw) {
        arguments.push("--end_fsync=1".to_owned());
    }
    arguments
}

/// The arguments of fio to replay the trace in the file `trace`, which says where it goes, in a target of
/// `size`, and which only reads or does not.
pub fn replay(workload: &Workload, at: &Endpoint, trace: &Path, reads_only: bool, size: Size) -> Vec<String> {
    let mut arguments = common(workload);
    arguments.extend(at.engine());
    arguments.extend(only_reading(reads_only).into_iter().flatten());
    arguments.push(format!("--iodepth={}", workload.replay_depth()));
    arguments.push(format!("--read_iolog={}", trace.display().to_string().replace(':', "\\:")));
    arguments.push(format!("--replay_no_stall={}", u8::from(workload.at_once)));
    with_options(arguments, workload, at, size)
}

/// The arguments of fio to make the files that a workload opens, looks at or removes.
pub fn make_files(workload: &Workload, directory: &Path) -> Vec<String> {
    let mut arguments = common(workload);
    arguments.extend(of_files(workload, directory));
    arguments.extend(CREATING.map(str::to_owned));
    arguments
}

/// Where a workload's files are in `directory`. Those that are only looked at are the same for all workloads
/// with so many of that size.
pub fn files_directory(workload: &Workload, directory: &Path) -> PathBuf {
    directory.join(OWN_DIRECTORY).join(files_place(workload))
}

/// The names of these files in [`OWN_DIRECTORY`], with `#` for the numbers of job and file.
pub fn files_names(workload: &Workload) -> String {
    format!("{}/{NAME}.#.#", files_place(workload))
}

fn files_place(workload: &Workload) -> String {
    let kind = match workload.work() {
        Work::Create => "created",
        Work::Delete => "deleted",
        _ => "kept",
    };
    format!("{kind}-{}-of-{}", workload.files, workload.bs.0)
}

fn writes(rw: &str) -> bool {
    rw.contains("write") || rw.starts_with("randrw") || rw.starts_with("rw")
}

/// The options that keep fio from writing where it only reads: else it makes a file that is missing, or
/// shorter than it thinks, and removes the one that is there.
fn only_reading(is_so: bool) -> Option<[String; 2]> {
    is_so.then(|| ["--readonly".to_owned(), "--allow_file_create=0".to_owned()])
}

/// What every run has: a name, its kind of output (with the counts of times that percentiles are made of),
/// and data as they are wanted.
fn common(workload: &Workload) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["output-format=json+", "group_reporting"].map(|option| format!("--{option}")).to_vec();
    arguments.insert(0, format!("--name={NAME}"));
    // Of whole operations: who writes through the page cache waits while he submits. (Those of completion
    // stay, for the logs of steps.)
    arguments.push("--lat_percentiles=1".to_owned());
    arguments.push("--percentile_list=50:99:99.9".to_owned());
    if workload.compressible > 0 {
        arguments.push(format!("--buffer_compress_percentage={}", workload.compressible));
    }
    if workload.duplicates > 0 {
        arguments.push(format!("--dedupe_percentage={}", workload.duplicates));
    }
    arguments.push("--refill_buffers".to_owned());
    arguments
}

fn transfers(workload: &Workload, at: &Endpoint, extent: Size) -> Vec<String> {
    let mut arguments = common(workload);
    arguments.extend(at.engine());
    arguments.extend(at.file_argument());
    arguments.extend(only_reading(!does_write(&workload.rw)).into_iter().flatten());
    arguments.extend([
        format!("--rw={}", workload.rw),
        format!("--bs={}", workload.bs.0),
        format!("--iodepth={}", workload.iodepth),
        format!("--size={}", extent.0),
    ]);
    arguments
}

/// Each file is made as it is opened, not laid out before.
const CREATING: [&str; 5] =
    ["--ioengine=psync", "--rw=write", "--create_on_open=1", "--fallocate=none", "--end_fsync=1"];

fn files(work: Work, workload: &Workload, directory: &Path) -> Vec<String> {
    let mut arguments = common(workload);
    arguments.extend(of_files(workload, directory));
    match work {
        Work::Create => arguments.extend(CREATING.map(str::to_owned)),
        Work::Stat => arguments.extend(["--ioengine=filestat", "--rw=read"].map(str::to_owned)),
        Work::Delete => arguments.extend(["--ioengine=filedelete", "--rw=read"].map(str::to_owned)),
        _ => arguments.extend(["--ioengine=psync", "--rw=read"].map(str::to_owned)),
    }
    arguments
}

fn of_files(workload: &Workload, directory: &Path) -> Vec<String> {
    vec![
        format!(
            "--directory={}",
            files_directory(workload, directory).display().to_string().replace(':', "\\:")
        ),
        format!("--nrfiles={}", workload.files),
        format!("--filesize={}", workload.bs.0),
        format!("--bs={}", workload.bs.0),
        "--openfiles=1".to_owned(),
        "--file_service_type=sequential".to_owned(),
    ]
}

/// With the options that the workload has itself. NBD has one kind of flush, and fio's client of it takes no
/// other.
fn with_options(mut arguments: Vec<String>, workload: &Workload, at: &Endpoint, size: Size) -> Vec<String> {
    let value = |name: &str, value: &String| {
        workload.in_bytes(name, size).map_or_else(|| value.clone(), |bytes| bytes.to_string())
    };
    let named = |name| match (name, at) {
        ("fdatasync", Endpoint::Nbd(_)) => "fsync",
        (name, _) => name,
    };
    let options = workload.options.iter();
    arguments.extend(options.map(|(name, said)| format!("--{}={}", named(name.as_str()), value(name, said))));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio;

    fn workload(text: &str) -> Workload {
        toml::from_str(&format!("name = \"w\"\nseconds = 0.2\n{text}")).unwrap()
    }

    #[test]
    fn fio_makes_opens_looks_at_and_removes_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = Endpoint::Directory(directory.path().to_owned());
        let count = |workload: &Workload| {
            files_directory(workload, directory.path()).read_dir().map_or(0, Iterator::count)
        };
        for (rw, left) in [("create", 30), ("open", 30), ("stat", 30), ("delete", 0)] {
            let workload = workload(&format!("rw = \"{rw}\"\nbs = \"5000\"\nfiles = 30"));
            std::fs::create_dir_all(files_directory(&workload, directory.path())).unwrap();
            if rw != "create" {
                fio::run(&make_files(&workload, directory.path())).unwrap();
                assert_eq!(count(&workload), 30, "{rw}");
            }
            let outcome = fio::run(&arguments(&workload, &at, Size(1 << 20), 1)).unwrap();
            assert!(outcome.figures.iops > 0.0 && outcome.json.starts_with('{'), "{rw}");
            assert_eq!(count(&workload), left, "{rw}");
        }
    }

    #[test]
    fn what_is_done_once_ends_when_it_was_at_every_block() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let read = |more: &str| {
            let workload = workload(&format!("rw = \"randread\"\nbs = \"4K\"\niodepth = 4\n{more}"));
            let arguments = arguments(&workload, &Endpoint::Path(path.clone()), Size(1 << 20), 1);
            fio::run(&arguments).unwrap().figures
        };
        assert_eq!(read("once = true").read_bytes, 1 << 20);
        assert!(read("").read_bytes > 1 << 20);
    }

    #[test]
    fn flushes_of_data_alone_are_flushes_over_nbd() {
        let workload = workload("rw = \"write\"\noptions = { fdatasync = \"8\" }");
        let of =
            |at: &Endpoint| arguments(&workload, at, Size(1 << 20), 1).contains(&"--fdatasync=8".to_owned());
        assert!(of(&Endpoint::Path("/x".into())));
        let nbd = Endpoint::Nbd("nbd://h/v".into());
        assert!(!of(&nbd) && arguments(&workload, &nbd, Size(1 << 20), 1).contains(&"--fsync=8".to_owned()));
    }

    #[test]
    fn disks_behind_iscsi_are_reached_by_their_uri() {
        let at = Endpoint::Iscsi("iscsi://127.0.0.1/iqn.2016-02.com.example:disk/1".into());
        let arguments = arguments(&workload("rw = \"read\""), &at, Size(1 << 20), 1);
        assert!(arguments.contains(&"--ioengine=libiscsi".to_owned()), "{arguments:?}");
        let name = "--filename=iscsi\\://127.0.0.1/iqn.2016-02.com.example\\:disk/1";
        assert!(arguments.iter().any(|argument| argument == name), "{arguments:?}");
    }

    #[test]
    fn pauses_of_a_trace_are_in_no_latency() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("data");
        std::fs::write(&file, vec![1; 1 << 20]).unwrap();
        let (trace, name) = (directory.path().join("trace"), file.display());
        let mut text = format!("fio version 3 iolog\n0 {name} add\n0 {name} open\n");
        for number in 1..=6_u64 {
            text.push_str(&format!("{} {name} read {} 4096\n", number * 100_000, number * 65_536));
        }
        std::fs::write(&trace, text).unwrap();
        let mut workload = workload("rw = \"replay\"\niodepth = 4\ntrace = \"/t\"");
        let arguments = replay(&workload, &Endpoint::Path(file.clone()), &trace, true, Size(1 << 20));
        // Were they reaped only when four are under way, three pauses would be in most.
        let outcome = fio::run(&arguments).unwrap();
        assert!(outcome.figures.latency_p50 < 90e6, "{:?}", outcome.figures);
        workload.at_once = true;
        let arguments = replay(&workload, &Endpoint::Path(file), &trace, true, Size(1 << 20));
        assert!(arguments.contains(&"--iodepth=4".to_owned()), "{arguments:?}");
    }

    #[test]
    fn a_pass_touches_its_extent_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("data");
        let at = Endpoint::Path(file.clone());
        let workload = workload("rw = \"write\"\nbs = \"64K\"\nduplicates = 50\ncompressible = 50");
        fio::run(&once(&workload, &at, Size(1 << 20), true)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn pieces_make_a_whole_and_no_two_are_alike() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("data");
        std::fs::File::create(&file).unwrap().set_len(3 << 20).unwrap();
        let workload = workload("rw = \"write\"\nbs = \"64K\"");
        for number in 0..3 {
            let at = Endpoint::Path(file.clone());
            fio::run(&piece(&workload, &at, number << 20, Size(1 << 20), number == 2)).unwrap();
        }
        let data = std::fs::read(&file).unwrap();
        let pieces: Vec<&[u8]> = data.chunks(1 << 20).collect();
        assert_eq!(pieces.len(), 3);
        assert!(pieces.iter().all(|piece| piece.chunks(4096).all(|block| block != [0; 4096])));
        assert!(pieces[0] != pieces[1] && pieces[1] != pieces[2]);
    }
}
