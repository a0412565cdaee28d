//! The command line as the user typed it: the text for a pool's history, and `property=value` options.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use device::address::is_address;

use crate::output::usage;
use crate::remotes;

/// The command line for the history: without the path of the program, and without what leads to `zpool` or
/// `zfs`.
pub fn command() -> Option<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    // Another machine's history does not have how the command came there.
    match words.get(1).map(String::as_str) {
        Some("--remote") => drop(words.drain(1..words.len().min(3))),
        Some(word) if word.starts_with("--remote=") => drop(words.remove(1)),
        _ => {}
    }
    if let Some(program) = words.first_mut() {
        *program = Path::new(program)
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    }
    if words.first().is_some_and(|program| !matches!(program.as_str(), "zpool" | "zfs")) && words.len() > 1 {
        words.remove(0);
    }
    Some(words.join(" "))
}

/// A path that means the same to the daemon. A relative one means nothing on another machine.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    if is_address(path) {
        return Ok(path.to_owned());
    }
    if remotes::is_afar() {
        anyhow::ensure!(
            path.is_absolute(),
            "cannot use '{}': paths are those of the other machine, and are given from / on",
            path.display()
        );
        return Ok(path.to_owned());
    }
    std::path::absolute(path).with_context(|| format!("cannot use '{}'", path.display()))
}

/// `name=value` pairs; each name once.
pub fn properties(given: &[String]) -> Result<Vec<(String, String)>> {
    let mut properties: Vec<(String, String)> = Vec::new();
    for option in given {
        let Some((name, value)) = option.split_once('=') else {
            return Err(usage("missing '=' for property=value argument"));
        };
        if properties.iter().any(|(known, _)| known == name) {
            return Err(usage(format!("property '{name}' specified multiple times")));
        }
        properties.push((name.to_owned(), value.to_owned()));
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_has_one_value() {
        let pair = |text: &str| text.to_owned();
        assert_eq!(properties(&[pair("a=b=c")]).unwrap(), [(pair("a"), pair("b=c"))]);
        assert!(properties(&[pair("a")]).is_err());
        assert!(properties(&[pair("a=1"), pair("a=2")]).is_err());
    }
}
