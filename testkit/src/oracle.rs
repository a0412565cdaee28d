//! What OpenZFS's own tools say of a pool.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// The standard output of `zdb`, or `None` when `$CENOTE_SKIP` lists `openzfs`.
///
/// # Panics
/// When it cannot be run: a test that has nothing to compare with must not pass.
pub fn zdb(arguments: &[&str]) -> Option<String> {
    if crate::skipped("openzfs", &format!("zdb {}", arguments.join(" "))) {
        return None;
    }
    match run(arguments) {
        Ok(text) => Some(text),
        Err(error) => {
            panic!("{error:#}\nInstall OpenZFS's tools, or set CENOTE_SKIP=openzfs to leave such tests out.")
        }
    }
}

/// Whether `zdb` understands pools with the features of OpenZFS 2.4: it is one that `$CENOTE_ZDB` names, not
/// the installed one.
pub fn zdb_is_of_2_4() -> bool {
    std::env::var_os("CENOTE_ZDB").is_some()
}

/// OpenZFS's `zdb`, the installed one or that which `$CENOTE_ZDB` names, to be run with arguments. It ends
/// when it has said everything, and does not wait for its own cache first (six seconds after `-bcc`, one
/// after most else; what it says, and its exit code, are the same).
pub fn zdb_command() -> Command {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(std::env::var_os("CENOTE_ZDB").unwrap_or_else(|| "zdb".into()));
    command.env("PATH", path);
    if let Some(library) = option_env!("ZDB_ENDS_AT_ONCE").filter(|_| !zdb_is_of_2_4()) {
        command.env("LD_PRELOAD", library);
    }
    command
}

fn run(arguments: &[&str]) -> Result<String> {
    let output = zdb_command().args(arguments).output().context("zdb cannot be run")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The output of `zdb` with these letters about `target` in the exported pool whose devices are in `dir`.
pub fn zdb_of(dir: &Path, letters: &str, target: &str, more: &[&str]) -> Option<String> {
    let dir = dir.to_str().unwrap_or_default();
    zdb(&[&["-e", "-p", dir, letters, target], more].concat())
}

/// What `zdb` says of a cache device whose pool is exported: its header, its log blocks and their entries.
pub fn cache_device(path: &Path) -> Option<String> {
    zdb(&["-lll", path.to_str().unwrap_or_default()])
}

/// Errors that `zdb` finds in the exported pool whose devices are in `dir`: every block, copy and checksum,
/// leaks, reference counts, and all datasets. `None` too when `$CENOTE_SKIP` lists `openzfs`.
pub fn complaint(dir: &Path, pool: &str) -> Option<String> {
    let text = zdb_of(dir, "-bccd", pool, &[])?;
    let bad = [
        "leaked space",
        "ASSERT",
        "error:",
        "errors in",
        "Deadlist",
        "can't",
        "block traversal size",
        "leaked objects",
        "refcount mismatch",
        "mapping count mismatch",
        "does not match feature count",
    ];
    let bad = bad.iter().find(|bad| text.contains(**bad));
    if let Some(bad) = bad {
        return Some(format!("zdb says '{bad}':\n{text}"));
    }
    let sums = text.contains("No leaks (block sum matches space maps exactly)");
    (!sums).then(|| format!("zdb did not get to the sums of blocks:\n{text}"))
}
