//! Files that the lab made in directories that users name, and may remove.
//!
//! Results lie beside other files, and a target's directory is full of the user's files. So each directory
//! that the lab makes contains a file [`MARK`]. A directory of that name that exists without the mark, and is
//! not empty, belongs to the user: the lab refuses it before it writes anything, and leaves it alone at the
//! end.
//!
//! The mark lists each file before the lab makes it ([`take`]), and only listed files are removed. Files that
//! users put there meanwhile stay, and the directory with them. A file that exists and is not listed is never
//! taken for the lab's. Two labs may be given the same directory to measure, and must not use each other's
//! files: so the mark is locked by the lab that works there ([`hold`]). If a filesystem is mounted in a
//! directory of the lab, another program mounted it: then nothing in that directory is removed.
//!
//! | line | what is removed |
//! |---|---|
//! | `file NAME` | that file |
//! | `files NAME` | the files of that name, with any number in the place of each `#`: fio makes them |
//! | `directory NAME` | that directory, if it is empty |
//! | anything else | nothing: it is a note for readers |

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, StatxAttributes, StatxFlags, flock, statx};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The file that says whose a directory is, and what in it.
const MARK: &str = ".cenote-lab";
/// Its first lines.
const TOLD: &str = "# cenote lab made this directory. It removes what is listed here, and the directory when \
    nothing else is in it.\n";

/// Something that the lab makes in a directory of its own, by its name in that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Created {
    /// A file.
    File(String),
    /// Files that fio makes, with numbers in the place of each `#`.
    Files(String),
    /// A directory.
    Directory(String),
}

impl Created {
    fn read(line: &str) -> Option<Self> {
        let (kind, name) = line.split_once(' ')?;
        // Nothing leads out of the directory, whatever the line says.
        let parts = Path::new(name).components();
        if name.is_empty() || !parts.into_iter().all(|part| matches!(part, std::path::Component::Normal(_))) {
            return None;
        }
        match kind {
            "file" => Some(Self::File(name.to_owned())),
            "files" => Some(Self::Files(name.to_owned())),
            "directory" => Some(Self::Directory(name.to_owned())),
            _ => None,
        }
    }

    fn line(&self) -> String {
        match self {
            Self::File(name) => format!("file {name}\n"),
            Self::Files(name) => format!("files {name}\n"),
            Self::Directory(name) => format!("directory {name}\n"),
        }
    }

    /// The existing files of its name in `directory`.
    fn there(&self, directory: &Path) -> Option<PathBuf> {
        match self {
            Self::Files(name) => files(directory, name).into_iter().next(),
            Self::File(name) | Self::Directory(name) => {
                Some(directory.join(name)).filter(|path| fs::symlink_metadata(path).is_ok())
            }
        }
    }

    /// Removes it from `directory`, where it is there.
    fn remove(&self, directory: &Path) -> Result<()> {
        let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
        let gone = |path: &Path, removed: io::Result<()>| match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(path)(error)),
            _ => Ok(()),
        };
        match self {
            Self::File(name) => {
                let path = directory.join(name);
                if is_file(&path) { gone(&path, fs::remove_file(&path)) } else { Ok(()) }
            }
            Self::Files(name) => files(directory, name).into_iter().try_for_each(|path| {
                if is_file(&path) { gone(&path, fs::remove_file(&path)) } else { Ok(()) }
            }),
            Self::Directory(name) => {
                let path = directory.join(name);
                match fs::remove_dir(&path) {
                    // Another program put something there, in it or in its place.
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory
                        ) =>
                    {
                        Ok(())
                    }
                    removed => gone(&path, removed),
                }
            }
        }
    }
}

/// Whether a name is like `pattern`, with a number in the place of each `#`.
fn is_like(name: &str, pattern: &str) -> bool {
    let mut rest = name;
    for (number, part) in pattern.split('#').enumerate() {
        if number > 0 {
            let after = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if after.len() == rest.len() {
                return false;
            }
            rest = after;
        }
        let Some(after) = rest.strip_prefix(part) else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// The existing files that `name` stands for in `directory`.
pub(crate) fn files(directory: &Path, name: &str) -> Vec<PathBuf> {
    let path = directory.join(name);
    let (Some(within), Some(pattern)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let entries = fs::read_dir(within).into_iter().flatten().flatten();
    let like = entries.filter(|entry| entry.file_name().to_str().is_some_and(|it| is_like(it, pattern)));
    like.map(|entry| entry.path()).collect()
}

/// Makes a directory of the lab's own, or takes one that it made before.
pub(crate) fn make(directory: &Path) -> Result<()> {
    require_ours(directory)?;
    fs::create_dir_all(directory).map_err(Error::file(directory))?;
    if is_own(directory) {
        return Ok(());
    }
    let mark = directory.join(MARK);
    fs::write(&mark, TOLD).map_err(Error::file(&mark))
}

/// The error that a directory cannot be the lab's, because its contents belong to the user.
fn require_ours(directory: &Path) -> Result<()> {
    let kind = match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there.map_err(Error::file(directory))?.file_type(),
    };
    let is_empty = || fs::read_dir(directory).map(|mut entries| entries.next().is_none());
    let is_free = || Ok(is_empty()? && !is_mounted(directory)?);
    if is_own(directory) || (kind.is_dir() && is_free().map_err(Error::file(directory))?) {
        return Ok(());
    }
    let what = "it exists, and the lab did not make it: the lab removes its directories afterwards, so move \
        this one away or choose another";
    Err(Error::Results { path: directory.to_owned(), what: what.to_owned() })
}

/// Says, without making anything, why [`hold`] would be refused of a directory, or why this could not be made
/// in it then.
pub(crate) fn require(directory: &Path, made: impl IntoIterator<Item = Created>) -> Result<()> {
    require_ours(directory)?;
    if !is_own(directory) {
        return Ok(());
    }
    drop(lock(directory)?);
    made.into_iter().try_for_each(|made| is_listed(directory, &made).map(drop))
}

/// Whether the lab made it.
pub(crate) fn is_own(directory: &Path) -> bool {
    let is_kind =
        |path: &Path, is: fn(&fs::Metadata) -> bool| fs::symlink_metadata(path).is_ok_and(|it| is(&it));
    is_kind(directory, fs::Metadata::is_dir) && is_kind(&directory.join(MARK), fs::Metadata::is_file)
}

/// Makes a directory of the lab's own, and keeps other labs from working in it, or removing what is in it,
/// until what this gives is dropped.
pub(crate) fn hold(directory: &Path) -> Result<File> {
    loop {
        make(directory)?;
        let held = lock(directory)?;
        // Who had it locked before may have removed it just now.
        let is_that = |mark: fs::Metadata| held.metadata().is_ok_and(|it| it.ino() == mark.ino());
        if fs::symlink_metadata(directory.join(MARK)).is_ok_and(is_that) {
            return Ok(held);
        }
    }
}

/// The same of one that is there.
pub(crate) fn lock(directory: &Path) -> Result<File> {
    let mark = directory.join(MARK);
    let held = File::open(&mark).map_err(Error::file(&mark))?;
    match flock(&held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(held),
        Err(Errno::WOULDBLOCK) => Err(Error::Results {
            path: directory.to_owned(),
            what: "another 'cenote lab' works in it: wait until that is done, or end it".to_owned(),
        }),
        Err(errno) => Err(Error::file(&mark)(errno.into())),
    }
}

/// The entries of the mark, in their order.
fn listed(directory: &Path) -> Result<Vec<Created>> {
    let mark = directory.join(MARK);
    let text = fs::read_to_string(&mark).map_err(Error::file(&mark))?;
    Ok(text.lines().filter_map(Created::read).collect())
}

/// Lists what is about to be made, durably: who is killed, or loses its power, leaves nothing that is not
/// listed.
fn list(directory: &Path, made: &Created) -> Result<()> {
    let mark = directory.join(MARK);
    let write = || {
        let mut file = File::options().append(true).open(&mark)?;
        file.write_all(made.line().as_bytes())?;
        file.sync_data()
    };
    write().map_err(Error::file(&mark))
}

/// Whether something is listed. What is not listed, and there, is not the lab's: then it cannot be made.
fn is_listed(directory: &Path, made: &Created) -> Result<bool> {
    let is_listed = listed(directory)?.contains(made);
    match made.there(directory).filter(|_| !is_listed) {
        None => Ok(is_listed),
        Some(path) => {
            let what = "it exists, the lab did not make it, and it is in the lab's way: move it away";
            Err(Error::Results { path, what: what.to_owned() })
        }
    }
}

/// Makes the directories above `name`, as far as they are not there.
fn make_above(directory: &Path, name: &str) -> Result<()> {
    match Path::new(name).parent().and_then(Path::to_str) {
        None | Some("") => Ok(()),
        Some(above) => take_directory(directory, above).map(drop),
    }
}

/// The path of a file that the lab makes as `name` in a directory of its own. One that is there must be from
/// then.
pub(crate) fn take(directory: &Path, name: &str) -> Result<PathBuf> {
    expect(directory, Created::File(name.to_owned()), name)?;
    Ok(directory.join(name))
}

/// The same of files that fio makes, with numbers in the place of each `#`; the directory that they are in.
pub(crate) fn take_files(directory: &Path, name: &str) -> Result<PathBuf> {
    expect(directory, Created::Files(name.to_owned()), name)?;
    let path = directory.join(name);
    Ok(path.parent().unwrap_or(directory).to_owned())
}

/// Lists what is about to be made, where it is not listed, and makes the directories above it.
fn expect(directory: &Path, made: Created, name: &str) -> Result<()> {
    let is_listed = is_listed(directory, &made)?;
    make_above(directory, name)?;
    if is_listed { Ok(()) } else { list(directory, &made) }
}

/// The same for a directory, which is made. A directory of the user is used, and stays.
pub(crate) fn take_directory(directory: &Path, name: &str) -> Result<PathBuf> {
    make_above(directory, name)?;
    let path = directory.join(name);
    if path.is_dir() {
        return Ok(path);
    }
    expect_directory(directory, name)?;
    fs::create_dir(&path).map_err(Error::file(&path))?;
    Ok(path)
}

/// Lists a directory that another program makes for the lab and leaves empty: a mount point.
pub(crate) fn expect_directory(directory: &Path, name: &str) -> Result<PathBuf> {
    let made = Created::Directory(name.to_owned());
    if !listed(directory)?.contains(&made) {
        list(directory, &made)?;
    }
    Ok(directory.join(name))
}

/// Removes what the lab made in a directory of its own, if it made that; the directory too, unless something
/// else is in it. Nothing of it, where something is mounted in it.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    if !is_own(directory) {
        return Ok(());
    }
    require_no_mounts(directory)?;
    // What is in a directory was made after it.
    for made in listed(directory)?.iter().rev() {
        made.remove(directory)?;
    }
    Created::File(MARK.to_owned()).remove(directory)?;
    match fs::remove_dir(directory) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
            Err(Error::file(directory)(error))
        }
        _ => Ok(()),
    }
}

/// Removes those files that the lab made in a directory of its own whose names, without those of directories,
/// begin with `prefix`.
pub(crate) fn remove_some(directory: &Path, prefix: &str) -> Result<()> {
    let begins = |name: &str| {
        let name = Path::new(name).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix))
    };
    let is_meant = |made: &&Created| matches!(made, Created::File(name) if begins(name));
    listed(directory)?.iter().filter(is_meant).try_for_each(|made| made.remove(directory))
}

/// Removes the files that the lab had fio make, which `name` stands for.
pub(crate) fn remove_files(directory: &Path, name: &str) -> Result<()> {
    Created::Files(name.to_owned()).remove(directory)
}

/// The most names that are listed.
const MOST_TOLD: usize = 8;

/// What is in a directory that is not the lab's: some of the names, for a person.
pub(crate) fn theirs(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            if found.len() >= MOST_TOLD {
                return found;
            }
            let is_directory = fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir());
            if is_directory && fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
                left.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found
}

fn require_no_mounts(directory: &Path) -> Result<()> {
    if is_mounted(directory).map_err(Error::file(directory))? {
        let what = "a filesystem is mounted there, so nothing was removed: unmount it".to_owned();
        return Err(Error::Results { path: directory.to_owned(), what });
    }
    for entry in fs::read_dir(directory).map_err(Error::file(directory))? {
        let entry = entry.map_err(Error::file(directory))?;
        // Links are not followed, neither here nor by who removes.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            require_no_mounts(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a filesystem, or a part of one, is mounted at this directory.
pub(crate) fn is_mounted(directory: &Path) -> io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, directory, flags, StatxFlags::BASIC_STATS)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_lab_made_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let (own, other) = (root.path().join("a/own"), root.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("theirs"), "x").unwrap();
        // The first look finds the same.
        let refused = require(&other, []).unwrap_err().to_string();
        assert!(refused.contains("did not make it") && make(&other).unwrap_err().to_string() == refused);
        require(&own, []).unwrap();
        assert!(!own.exists());
        remove(&other).unwrap();
        assert!(other.join("theirs").exists() && !is_own(&other));
        make(&own).unwrap();
        make(&own).unwrap();
        fs::write(take(&own, "below/deep/data").unwrap(), "x").unwrap();
        fs::create_dir(expect_directory(&own, "mount").unwrap()).unwrap();
        for file in ["lab.0.1", "lab.11.0"] {
            fs::write(take_files(&own, "many/lab.#.#").unwrap().join(file), "x").unwrap();
        }
        remove(&own).unwrap();
        remove(&own).unwrap();
        assert!(!own.exists() && other.join("theirs").exists());
        // A link to a user's directory is never the lab's, marked or not.
        let link = root.path().join("link");
        fs::write(other.join(MARK), "file theirs\n").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(make(&link).is_err() && require(&link, []).is_err());
        remove(&link).unwrap();
        assert!(other.join("theirs").exists());
    }

    #[test]
    fn what_somebody_put_into_a_directory_of_the_labs_stays_there() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("own");
        make(&own).unwrap();
        fs::write(take(&own, "data").unwrap(), "x").unwrap();
        fs::write(take(&own, "lab1-0").unwrap(), "x").unwrap();
        fs::write(take_files(&own, "many/lab.#.#").unwrap().join("lab.0.0"), "x").unwrap();
        let theirs_are = ["lab1-notes", "many/lab.0.0.mine", "notes"].map(|name| own.join(name));
        for path in &theirs_are {
            fs::write(path, "theirs").unwrap();
        }
        std::os::unix::fs::symlink(root.path(), own.join("link")).unwrap();
        // Of what is there nothing becomes the lab's.
        let refused = take(&own, "notes").unwrap_err().to_string();
        let before = |name: &str| require(&own, [Created::File(name.to_owned())]);
        assert!(refused.contains("move it away") && before("notes").unwrap_err().to_string() == refused);
        before("data").unwrap();
        remove_some(&own, "lab1-").unwrap();
        assert!(!own.join("lab1-0").exists() && own.join("data").exists());
        // A forged mark leads nowhere else.
        let mark = own.join(MARK);
        let more = "file ../outside\nfile /etc/outside\ndirectory .\n";
        fs::write(&mark, fs::read_to_string(&mark).unwrap() + more).unwrap();
        fs::write(root.path().join("outside"), "x").unwrap();
        remove(&own).unwrap();
        let mut told = theirs(&own);
        told.sort();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(theirs_are.iter().all(|path| told.contains(path) && path.exists()), "{told:?}");
        assert!(!own.join("data").exists() && !mark.exists() && root.path().join("outside").exists());
    }

    #[test]
    fn one_lab_at_a_time_works_in_a_directory() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("own");
        let held = hold(&own).unwrap();
        let told = hold(&own).unwrap_err().to_string();
        assert!(told.contains("another 'cenote lab'") && lock(&own).is_err(), "{told}");
        assert_eq!(require(&own, []).unwrap_err().to_string(), told);
        drop(held);
        drop(hold(&own).unwrap());
        remove(&own).unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn mount_points_are_known() {
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(!is_mounted(tempfile::tempdir().unwrap().path()).unwrap());
        assert!(require_no_mounts(Path::new("/proc")).unwrap_err().to_string().contains("unmount it"));
    }
}
