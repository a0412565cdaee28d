//! The kernel and the initial RAM disk of guests: made of Debian packages at first use, by a script that does
//! the same without the lab (`scripts/make-guest`).

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::subprocess::{self, SubprocessOutput};

/// Most bytes of its output that are kept.
const MOST_SAID: usize = 1 << 20;
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The script that makes them.
const SCRIPT: &str = "make-guest";
/// The script and its parts.
const FILES: [(&str, &str); 2] = [
    (SCRIPT, include_str!("../../../scripts/make-guest")),
    ("guest-image.sh", include_str!("../../../scripts/guest-image.sh")),
];

/// The folder that keeps them: `$CENOTE_GUEST`, or one in the user's cache.
fn folder() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("CENOTE_GUEST")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("cenote/guest")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/cenote/guest")))
        .ok_or_else(|| {
            Error::Experiment("guests need a folder to keep their kernel: set CENOTE_GUEST".into())
        })
}

/// The kernel and the initial RAM disk, made where they are missing or not this version's, unless the lab is
/// to stop.
///
/// # Errors
/// What the script says: for example that a package cannot be downloaded.
pub(super) fn ready(stops: &dyn Fn() -> bool) -> Result<[PathBuf; 2]> {
    let folder = folder()?;
    std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    // Files, so that the version is that of the scripts, as where they are called by hand.
    for (name, text) in FILES {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(Error::file(&file))?;
    }
    let script = folder.join(SCRIPT);
    let mut command = Command::new("bash");
    command.arg(&script).arg(&folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.process_group(0).spawn();
    let mut child = started.map_err(|error| Error::Missing { program: "bash".into(), error })?;
    let output = SubprocessOutput::of(&mut child, MOST_SAID);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::file(&script))? {
            break status;
        }
        if stops() {
            subprocess::end(&child, Signal::TERM);
            let _ = child.wait();
            return Err(Error::Stopped);
        }
        std::thread::sleep(LOOK);
    };
    let [_, said] = output.rest(status.success());
    if !status.success() {
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().rev().take(6).collect();
        let output = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
        return Err(Error::Failed { command: "scripts/make-guest".into(), output });
    }
    Ok(["vmlinuz", "initrd"].map(|name| folder.join(name)))
}
