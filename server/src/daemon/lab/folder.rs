//! The folder of an experiment: what the daemon keeps of it, beside the lab's own files.
//!
//! Each file is replaced as a whole, and is on the disk before its writer goes on: what stands in it is the
//! old or the new. What cannot be read is an error, and never taken for nothing.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::LabApplied;
use crate::progress_file::{Process, Progress};

/// The folder within that is the daemon's: the lab leaves it alone.
const WATCHER: &str = ".watcher";
/// The most that is read of a file that the daemon wrote, in bytes.
const MOST_BYTES: u64 = 4 << 20;
/// The most that is read of the end of what an experiment said, in bytes.
const MOST_WORDS: u64 = 4 << 10;
/// The most files whose space is added up.
const MOST_FILES: usize = 10_000;
/// Where an experiment mounts filesystems: what is in them is no space of the folder, and they may hang.
const MOUNTS: &str = "mnt";

/// How an experiment was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// In its quick form.
    pub quick: bool,
    /// With at least so many rounds.
    pub rounds: Option<u32>,
    /// What it asks.
    pub question: String,
    /// When it was begun first, in seconds since 1970.
    pub began: u64,
    /// The last process that carried it out; none before it is there.
    pub process: Option<Process>,
}

/// What a property was before another value was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Before {
    /// Set on the dataset itself, to this.
    Set(String),
    /// Received with a stream.
    Received,
    /// Inherited, or the default.
    Inherited,
}

/// A property that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changed {
    /// The property.
    pub property: String,
    /// The value, as the experiment has it.
    pub to: String,
    /// What it was.
    pub before: Before,
    /// That for people.
    pub told: Option<String>,
    /// The new value as it is read back; none before that was done.
    pub is: Option<String>,
}

/// What was set on a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Applied {
    pub dataset: String,
    /// Its guid: another dataset may have its name later.
    pub guid: String,
    pub variant: String,
    /// When, in seconds since 1970.
    pub at: u64,
    pub changed: Vec<Changed>,
}

impl Applied {
    /// For clients.
    pub fn told(&self) -> LabApplied {
        LabApplied {
            dataset: self.dataset.clone(),
            variant: self.variant.clone(),
            at: self.at,
            changes: self.changed.iter().map(|it| (it.property.clone(), it.to.clone())).collect(),
            was: was(&self.changed),
        }
    }
}

/// What properties were, for clients.
pub(super) fn was(changed: &[Changed]) -> Vec<(String, Option<String>)> {
    changed.iter().map(|it| (it.property.clone(), it.told.clone())).collect()
}

/// The folder of an experiment, which is there or not.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    name: String,
    path: PathBuf,
}

impl Folder {
    /// Of the experiment of this name, which was checked, among all.
    pub fn of(directory: &Path, name: &str) -> Self {
        Self { name: name.to_owned(), path: directory.join(name) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lab's directory of results.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(WATCHER).join(name)
    }

    /// The text of the experiment.
    pub fn asked(&self) -> PathBuf {
        self.file("asked.toml")
    }

    fn progress_file(&self) -> PathBuf {
        self.file("progress.json")
    }

    /// What its process says that is no report.
    pub fn words(&self) -> PathBuf {
        self.file("words")
    }

    /// The lab's report.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }

    /// Whether the daemon made it. What is being made is not there yet.
    pub fn is_there(&self) -> bool {
        fs::symlink_metadata(self.file("record.json")).is_ok_and(|found| found.is_file())
    }

    /// Whether the lab has begun with it.
    pub fn has_results(&self) -> bool {
        self.path.join("experiment.toml").exists()
    }

    /// Makes it, unless something is there.
    pub fn make(&self) -> io::Result<()> {
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        make(&self.path)?;
        let made = make(&self.path.join(WATCHER)).and_then(|()| sync(self.path.parent()));
        if made.is_err() {
            self.remove();
        }
        made
    }

    /// Removes it with all that is in it; whether nothing is left. What cannot be removed is no experiment
    /// any more.
    pub fn remove(&self) -> bool {
        let Some(directory) = self.path.parent() else { return false };
        let aside = directory.join(format!(".removed-{}", self.name));
        let _ = fs::remove_dir_all(&aside);
        let path = match fs::rename(&self.path, &aside) {
            Ok(()) => &aside,
            Err(_) => &self.path,
        };
        match fs::remove_dir_all(path) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    pub fn write_asked(&self, text: &str) -> io::Result<()> {
        replace(&self.asked(), text.as_bytes())
    }

    pub fn record(&self) -> io::Result<Record> {
        parsed(&self.file("record.json"))
    }

    pub fn write(&self, record: &Record) -> io::Result<()> {
        replace(&self.file("record.json"), &serde_json::to_vec(record)?)
    }

    /// The process that carries it out now. A daemon that was killed may not have written down which one it
    /// started, but that says so itself.
    pub fn process(&self) -> Option<Process> {
        let recorded = self.record().ok().and_then(|record| record.process);
        let said = || self.progress().map(|said| said.process);
        recorded.filter(Process::is_alive).or_else(|| said().filter(Process::is_alive))
    }

    /// What its last process said of itself.
    pub fn progress(&self) -> Option<Progress> {
        Progress::read(&self.progress_file()).ok()
    }

    /// Forgets what an earlier process said.
    pub fn forget_progress(&self) -> io::Result<()> {
        match fs::remove_file(self.progress_file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The arguments with which a process says how far it is.
    pub fn progress_arguments(&self) -> [String; 1] {
        [format!("--progress={}", self.progress_file().display())]
    }

    /// What was set according to it, the oldest first.
    pub fn applied(&self) -> io::Result<Vec<Applied>> {
        match parsed(&self.file("applied.json")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read,
        }
    }

    pub fn write_applied(&self, applied: &[Applied]) -> io::Result<()> {
        replace(&self.file("applied.json"), &serde_json::to_vec_pretty(applied)?)
    }

    /// The end of what its process said.
    pub fn last_words(&self) -> Option<String> {
        let mut file = File::open(self.words()).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MOST_WORDS))).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST_WORDS).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Bytes that its files take.
    pub fn space_bytes(&self) -> u64 {
        let Ok(top) = fs::symlink_metadata(&self.path) else { return 0 };
        let (mut bytes, mut seen, mut left) = (0u64, 0, vec![self.path.clone()]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                seen += 1;
                if seen > MOST_FILES {
                    return bytes;
                }
                if entry.file_name() == MOUNTS {
                    continue;
                }
                let Ok(found) = entry.metadata() else { continue };
                bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
                if found.is_dir() && found.dev() == top.dev() {
                    left.push(entry.path());
                }
            }
        }
        bytes
    }
}

/// All of a file, up to a limit: one that is longer is an error.
pub(super) fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too long")),
        false => Ok(bytes),
    }
}

fn parsed<T: DeserializeOwned>(file: &Path) -> io::Result<T> {
    serde_json::from_slice(&read(file, MOST_BYTES)?).map_err(io::Error::from)
}

/// Puts bytes in the place of a file, durably.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = file.with_extension("new");
    let write = || {
        let mut opened = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        opened.write_all(bytes)?;
        opened.sync_all()?;
        fs::rename(&beside, file)?;
        sync(file.parent())
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Has the names in a directory on the disk.
fn sync(directory: Option<&Path>) -> io::Result<()> {
    directory.map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_what_is_damaged_is_no_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::of(directory.path(), "a");
        folder.make().unwrap();
        assert_eq!(folder.make().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.is_there(), "it is only being made");
        let record = Record { quick: true, question: "Why?".into(), ..Record::default() };
        folder.write(&record).unwrap();
        assert!(folder.is_there() && folder.record().unwrap() == record && !folder.has_results());
        assert!(folder.applied().unwrap().is_empty());
        let changed = Changed {
            property: "recordsize".into(),
            to: "16K".into(),
            before: Before::Inherited,
            told: None,
            is: Some("16384".into()),
        };
        let applied = Applied {
            dataset: "tank/a".into(),
            guid: "7".into(),
            variant: "recordsize=16K".into(),
            at: 1,
            changed: vec![changed],
        };
        folder.write_applied(std::slice::from_ref(&applied)).unwrap();
        assert_eq!(folder.applied().unwrap(), std::slice::from_ref(&applied));
        assert_eq!(applied.told().was, [("recordsize".to_owned(), None)]);
        fs::write(folder.file("applied.json"), "[{").unwrap();
        assert!(folder.applied().is_err());
        fs::write(folder.file("applied.json"), vec![b' '; MOST_BYTES as usize + 1]).unwrap();
        assert_eq!(folder.applied().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(folder.space_bytes() >= MOST_BYTES);
        assert!(folder.remove() && !folder.path().exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn of_words_the_end_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::of(directory.path(), "a");
        folder.make().unwrap();
        assert_eq!(folder.last_words(), None);
        fs::write(folder.words(), format!("{}the end\n", "x".repeat(1 << 20))).unwrap();
        let words = folder.last_words().unwrap();
        assert!(words.len() <= MOST_WORDS as usize && words.ends_with("the end"));
    }

    #[test]
    fn links_in_a_folder_lead_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = directory.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), vec![1; 1 << 20]).unwrap();
        let folder = Folder::of(directory.path(), "a");
        folder.make().unwrap();
        std::os::unix::fs::symlink(&theirs, folder.path().join("link")).unwrap();
        assert!(folder.space_bytes() < 1 << 20);
        assert!(folder.remove() && theirs.join("file").exists());
    }
}
