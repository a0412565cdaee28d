//! Claims of files and devices that are written: each is taken, so that no other program takes it meanwhile,
//! and noted in the directory of results, with the consent that there was.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Usage;
use super::contents::{BYTES, size};
use super::system::{Number, System};
use crate::error::{Error, Result};

/// The file in the directory of results that says what was claimed.
const CLAIMS: &str = "claims.json";

/// The findings about a path that workloads would write to.
pub fn look(path: &Path) -> Result<Usage> {
    let mut found = System::default().look(path)?;
    // What cannot be taken exclusively is in use.
    if found.uses.is_empty()
        && let Err(Refused::InUse(by)) = take_all(path)
    {
        found.uses.push(by);
    }
    Ok(found)
}

/// A file or device that is held until this is dropped, so that no other process takes it meanwhile.
#[derive(Debug)]
pub(crate) struct Claim {
    _held: Vec<File>,
}

/// Why something could not be taken.
#[derive(Debug)]
enum Refused {
    /// It is in use, in words that follow its name.
    InUse(String),
    Other(io::Error),
}

/// Takes what is at a path, and the locks of all that it lies on: who has a pool open on the file of a loop
/// device has locked that file. Nothing where nothing is there to be taken.
fn take_all(path: &Path) -> std::result::Result<Vec<File>, Refused> {
    let Some(file) = take(path)? else { return Ok(Vec::new()) };
    let mut held = vec![file];
    for below in System::default().all_foundations(path) {
        // A removed file has no lock that another process could ask for.
        let Ok(file) = File::open(&below) else { continue };
        match lock(&file) {
            Ok(()) => held.push(file),
            Err(Refused::InUse(by)) => {
                return Err(Refused::InUse(format!("lies on {}, which {by}", below.display())));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(held)
}

fn lock(file: &File) -> std::result::Result<(), Refused> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(Refused::InUse("is locked by a process, as by one that has a pool open on it".to_owned()))
        }
        Err(errno) => Err(Refused::Other(errno.into())),
    }
}

/// Takes a device exclusively, or a file's lock; a directory, or what is not there, needs neither.
fn take(path: &Path) -> std::result::Result<Option<File>, Refused> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(None),
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Refused::Other(error)),
    };
    let is_block = metadata.file_type().is_block_device();
    let mut options = File::options();
    options.read(true).write(true);
    if is_block {
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => Refused::InUse("is in use: the kernel refuses exclusive access".to_owned()),
        _ => Refused::Other(error),
    })?;
    lock(&file)?;
    Ok(Some(file))
}

/// A claim: the identity of the file or device, and its contents then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claimed {
    path: PathBuf,
    identity: String,
    held: Vec<String>,
    /// Whether a pool of the lab's is on it, so that it has labels, and as a disk a table of partitions.
    #[serde(default)]
    has_pool: bool,
    /// Whether there was only consent as yet, and nothing was written.
    #[serde(default)]
    is_untaken: bool,
}

impl Claimed {
    /// Whether what was found is from then, or what the lab left there.
    fn explains(&self, what: &String) -> bool {
        let of_pool = what.contains("has the label of") || what.contains("table of partitions");
        let of_lab = what == BYTES || (self.has_pool && of_pool);
        self.held.contains(what) || (of_lab && !self.is_untaken)
    }

    /// Whether it may be of the device at a path that is `identity` since the machine started anew, which
    /// that is unknown.
    fn is_from_before(&self, path: &Path, identity: &str) -> bool {
        let is_of_a_start = |identity: &str| identity.starts_with(DEVICE) && identity.contains(SINCE);
        self.path == path
            && self.identity != identity
            && is_of_a_start(&self.identity)
            && is_of_a_start(identity)
    }
}

/// What the identity of a device begins with, and what stands before the start of the machine that it is of
/// where the device does not say which it is.
const DEVICE: &str = "device ";
const SINCE: &str = " since ";

/// Why what was found at a path may not be written, of which nothing is left that is known of it. `all` was
/// claimed before.
fn fault_of(
    found: &Usage,
    path: &Path,
    identity: &str,
    all: &[Claimed],
    may_overwrite: bool,
) -> Option<String> {
    let mut fault = found.fault(path, may_overwrite)?;
    if found.uses.is_empty() && all.iter().any(|it| it.is_from_before(path, identity)) {
        fault.push_str(
            ". This experiment had consent before the machine was restarted, but the device has no wwid or \
             serial number by which it could be recognized",
        );
    }
    Some(fault)
}

/// Which file or device is at a path: another device may have its name after the next start of the machine,
/// unless it says which it is by itself.
fn identity(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::file(path))?;
    if metadata.file_type().is_block_device() {
        let number = Number::of(metadata.rdev());
        if let Some(own) = System::default().own_identity(&number) {
            let size = File::open(path).and_then(|file| size(&file)).map_err(Error::file(path))?;
            return Ok(format!("{DEVICE}{own} of {size} bytes"));
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        return Ok(format!("{DEVICE}{}{SINCE}{}", Number::of(metadata.rdev()).0, boot.trim()));
    }
    Ok(format!("file {} of {}", metadata.ino(), metadata.dev()))
}

/// Claims a file or device for writing, unless another program needs it. What was claimed before for the
/// experiment in `directory` may hold what it held then, and data.
pub(crate) fn claim(path: &Path, may_overwrite: bool, directory: &Path) -> Result<Claim> {
    claim_as(path, may_overwrite, directory, false)
}

/// The same for a pool to be made on it, which then holds it itself.
pub(crate) fn claim_for_pool(path: &Path, may_overwrite: bool, directory: &Path) -> Result<()> {
    claim_as(path, may_overwrite, directory, true).map(drop)
}

fn claim_as(path: &Path, may_overwrite: bool, directory: &Path, has_pool: bool) -> Result<Claim> {
    let mut found = System::default().look(path)?;
    let held = match take_all(path) {
        Ok(held) => held,
        Err(Refused::Other(error)) => return Err(Error::file(path)(error)),
        Err(Refused::InUse(by)) => {
            if found.uses.is_empty() {
                found.uses.push(by);
            }
            Vec::new()
        }
    };
    if held.is_empty() && found.uses.is_empty() {
        return Ok(Claim { _held: held });
    }
    let identity = identity(path)?;
    let mut all = claims(directory)?;
    let known = all.iter().find(|it| it.path == path && it.identity == identity);
    let before = found.holds.clone();
    if let Some(known) = known {
        found.holds.retain(|what| !known.explains(what));
    }
    if let Some(what) = fault_of(&found, path, &identity, &all, may_overwrite) {
        return Err(Error::Experiment(what));
    }
    if known.is_none_or(|known| known.is_untaken) {
        let claimed = Claimed { path: path.to_owned(), identity, held: before, has_pool, is_untaken: false };
        note(&mut all, claimed);
        keep(directory, &all)?;
    }
    Ok(Claim { _held: held })
}

/// Adds to what is known, in the place of what is known of the same path.
fn note(all: &mut Vec<Claimed>, claimed: Claimed) {
    all.retain(|it| it.path != claimed.path);
    all.push(claimed);
}

fn keep(directory: &Path, all: &[Claimed]) -> Result<()> {
    let file = directory.join(CLAIMS);
    let text = serde_json::to_vec_pretty(all);
    let text = text.map_err(|error| Error::Results { path: file.clone(), what: error.to_string() })?;
    // Who is killed meanwhile loses no consent that there was.
    let beside = file.with_extension("new");
    fs::write(&beside, text).map_err(Error::file(&beside))?;
    fs::rename(&beside, &file).map_err(Error::file(&file))
}

/// Notes, for the experiment in `directory`, that what these files and devices hold now may be overwritten,
/// and what is behind these URIs. What holds nothing needs no consent, and has none for what is put there
/// later.
pub fn consent(paths: &[&Path], uris: &[&str], directory: &Path) -> Result<()> {
    let mut all = claims(directory)?;
    for path in paths {
        let held = System::default().look(path)?.holds;
        if held.is_empty() {
            continue;
        }
        let identity = identity(path)?;
        // What was taken before may hold what it holds now as well.
        let known = all.iter().find(|it| it.path == **path && it.identity == identity);
        let (has_pool, is_untaken) = known.map_or((false, true), |it| (it.has_pool, it.is_untaken));
        note(&mut all, Claimed { path: path.to_path_buf(), identity, held, has_pool, is_untaken });
    }
    for uri in uris {
        let (path, identity) = (PathBuf::from(uri), EXPORT.to_owned());
        note(&mut all, Claimed { path, identity, held: Vec::new(), has_pool: false, is_untaken: false });
    }
    keep(directory, &all)
}

/// What stands for which file or device it is, of an export: another under the same URI is not distinguished
/// from it.
const EXPORT: &str = "export";

/// Why workloads may not write to what is behind a URI; nothing where they may.
pub fn fault_of_export(uri: &str, may_overwrite: bool, directory: Option<&Path>) -> Result<Option<String>> {
    let is_known = match directory {
        Some(directory) => {
            claims(directory)?.iter().any(|it| it.path == Path::new(uri) && it.identity == EXPORT)
        }
        None => false,
    };
    Ok((!may_overwrite && !is_known).then(|| {
        format!(
            "target {uri}: workloads would overwrite what it holds; if they may, say so (--overwrite, or \
             overwrite = true in [target])"
        )
    }))
}

/// The faults of what is at a path that workloads would write to: what it was asked about before for the
/// experiment in `directory` is no more.
pub fn fault(path: &Path, may_overwrite: bool, directory: Option<&Path>) -> Result<Option<String>> {
    let mut found = look(path)?;
    let Some((directory, identity)) = directory.zip(identity(path).ok()) else {
        return Ok(found.fault(path, may_overwrite));
    };
    let all = claims(directory)?;
    if let Some(known) = all.iter().find(|it| it.path == path && it.identity == identity) {
        found.holds.retain(|what| !known.explains(what));
    }
    Ok(fault_of(&found, path, &identity, &all, may_overwrite))
}

fn claims(directory: &Path) -> Result<Vec<Claimed>> {
    let file = directory.join(CLAIMS);
    match fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| Error::Results { path: file, what: error.to_string() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::file(&file)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::super::contents::{is_filled, mark};
    use super::*;

    /// A loop device, detached when this is dropped.
    struct Attached(PathBuf);

    impl Attached {
        fn to(image: &Path) -> std::result::Result<Self, String> {
            let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(image).output();
            let made = made.map_err(|error| error.to_string())?;
            if !made.status.success() {
                return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
            }
            Ok(Self(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim())))
        }
    }

    impl Drop for Attached {
        fn drop(&mut self) {
            let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    #[test]
    fn a_loop_device_is_as_much_in_use_as_its_file() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("image");
        File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let device = match Attached::to(&image) {
            Ok(device) => device,
            Err(why) => {
                println!("skipped: no loop device: {why}");
                return;
            }
        };
        let claim = || claim(&device.0, true, root.path());
        let held = claim().unwrap();
        // Its file is taken with it, as by a pool that is opened.
        assert!(matches!(take(&image), Err(Refused::InUse(_))));
        drop(held);
        let theirs = take(&image).unwrap();
        let error = claim().unwrap_err().to_string();
        assert!(error.contains("lies on") && error.contains("locked by a process"), "{error}");
        assert_eq!(look(&device.0).unwrap().uses.len(), 1);
        drop(theirs);
        let link = root.path().join("link");
        fs::hard_link(&image, &link).unwrap();
        let name = device.0.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(look(&link).unwrap().uses, [format!("is what {name} lies on")]);
        let other = Attached::to(&link).unwrap();
        let error = claim().unwrap_err().to_string();
        let name = other.0.file_name().unwrap().to_string_lossy().into_owned();
        assert!(error.contains(&format!("is what {name} lies on")), "{error}");
        drop(other);
        claim().unwrap();
    }

    #[test]
    fn what_a_file_holds_is_told_and_needs_consent() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let with = |name: &str, offset: u64, bytes: &[u8]| {
            let file = File::create(at(name)).unwrap();
            file.set_len(8 << 20).unwrap();
            file.write_all_at(bytes, offset).unwrap();
        };
        with("xfs", 0, b"XFSB");
        with("disk", 510, &[0x55, 0xaa]);
        with("end", (8 << 20) - 4096, b"x");
        with("empty", 0, b"");
        let claim = |name: &str, may| super::claim(&at(name), may, root.path());
        for (name, told) in
            [("xfs", "signature of xfs"), ("disk", "table of partitions (dos)"), ("end", "holds data")]
        {
            let error = claim(name, false).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("--overwrite"), "{error}");
        }
        claim("empty", false).unwrap();
        claim("nothing", false).unwrap();
        claim("xfs", true).unwrap();
        // Gone on with it is not asked of again, but of something else that was put there.
        with("xfs", 0, b"XFSB");
        claim("xfs", false).unwrap();
        with("xfs", 0, b"hsqs");
        assert!(claim("xfs", false).unwrap_err().to_string().contains("squashfs"));
        // What the lab made it may write, unless it became something.
        with("end", (8 << 20) - 4096, b"x");
        mark(&at("end"), true);
        if is_filled(&at("end")) {
            super::claim(&at("end"), false, &at("")).unwrap();
            File::options().write(true).open(at("end")).unwrap().write_all_at(b"XFSB", 0).unwrap();
            assert!(fault(&at("end"), false, None).unwrap().unwrap().contains("signature of xfs"));
        }
    }

    #[test]
    fn consent_is_for_what_was_there_then_and_for_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["theirs", "other", "replaced"] {
            fs::write(at(name), b"hsqs").unwrap();
        }
        fs::write(at("empty"), "").unwrap();
        let paths = ["theirs", "other", "replaced", "empty"].map(at);
        let paths = paths.each_ref().map(PathBuf::as_path);
        consent(&paths, &["nbd://h/v"], root.path()).unwrap();
        let fault = |name: &str| super::fault(&at(name), false, Some(root.path())).unwrap();
        let claim = |name: &str| super::claim(&at(name), false, root.path());
        assert_eq!(fault("theirs"), None);
        drop(claim("theirs").unwrap());
        // What is there after that may be the lab's.
        fs::write(at("theirs"), b"what a workload wrote").unwrap();
        assert_eq!(fault("theirs"), None);
        // Of what was not written yet it is not.
        fs::write(at("other"), b"something else").unwrap();
        assert!(fault("other").unwrap().contains("holds data") && claim("other").is_err());
        fs::write(at("new"), b"hsqs").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        assert!(fault("replaced").unwrap().contains("squashfs"));
        fs::write(at("empty"), b"not empty any more").unwrap();
        assert!(fault("empty").is_some());
        let of_export = |uri: &str, may| fault_of_export(uri, may, Some(root.path())).unwrap();
        assert_eq!((of_export("nbd://h/v", false), of_export("nbd://h/w", true)), (None, None));
        assert!(of_export("nbd://h/w", false).unwrap().contains("--overwrite"));
        assert!(fault_of_export("nbd://h/v", false, None).unwrap().is_some());
    }

    #[test]
    fn who_is_asked_again_because_the_machine_was_started_anew_is_told_so() {
        let path = Path::new("/dev/sdx");
        let claimed = |identity: &str| Claimed {
            path: path.to_owned(),
            identity: identity.to_owned(),
            held: vec![BYTES.to_owned()],
            has_pool: false,
            is_untaken: false,
        };
        let holds = Usage { holds: vec![BYTES.to_owned()], ..Usage::default() };
        let now = "device 8:16 since now";
        let told = |before: &str| fault_of(&holds, path, now, &[claimed(before)], false).unwrap();
        assert!(told("device 8:32 since before").contains("no wwid or serial number"));
        for other in ["file 7 of 8", "device naa.5000c500 of 512 bytes"] {
            assert!(!told(other).contains("started anew"), "{other}");
        }
        let known = [claimed("device 8:32 since before")];
        assert_eq!(fault_of(&holds, path, now, &known, true), None);
        let own = fault_of(&holds, path, "device naa.5000c500 of 512 bytes", &known, false).unwrap();
        assert!(!own.contains("started anew"), "{own}");
        let in_use = Usage { uses: vec!["is mounted at /".to_owned()], ..holds.clone() };
        assert!(!fault_of(&in_use, path, now, &known, false).unwrap().contains("started anew"));
    }

    #[test]
    fn what_is_locked_is_never_written_and_what_is_claimed_is_locked() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let held = claim(&path, false, root.path()).unwrap();
        let error = claim(&path, true, root.path()).unwrap_err().to_string();
        assert!(error.contains("locked by a process") && error.contains("never"), "{error}");
        assert!(look(&path).unwrap().uses.len() == 1);
        drop(held);
        claim(&path, false, root.path()).unwrap();
    }
}
