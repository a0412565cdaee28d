//! The file of tunables that is read at start.
//!
//! A line is `NAME=VALUE`; `#` begins a comment. Lines as modprobe's configuration has them,
//! `options zfs NAME=VALUE NAME=VALUE`, are taken too, so that a file of an OpenZFS machine can be used. In
//! such lines, names that mean nothing here are passed over.

use super::{TunableError, named};

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct FileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub error: TunableError,
}

/// Sets what the text of a file says. Lines that are wrong are left out and returned.
pub fn apply_file(text: &str) -> Vec<FileError> {
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let words =
            line.strip_prefix("options ").map(str::trim_start).and_then(|rest| rest.strip_prefix("zfs "));
        let settings: Vec<&str> = match words {
            Some(words) => words.split_whitespace().collect(),
            None if line.is_empty() || line.starts_with("options ") => Vec::new(),
            None => vec![line],
        };
        for setting in settings {
            match apply(setting) {
                Err(TunableError::Refused { .. }) if words.is_some() => {}
                Err(error) => errors.push(FileError { line: index + 1, error }),
                Ok(()) => {}
            }
        }
    }
    errors
}

fn apply(setting: &str) -> Result<(), TunableError> {
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let tunable = named(name.trim())?;
    tunable.set(tunable.parse(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunables;

    #[test]
    fn lines_are_set_and_wrong_ones_are_returned() {
        let text = "# a comment\nzfs_history_probe=1\n\
                    options zfs zfs_vdev_raidz_impl=scalar zil_maxblocksize=64K\n\
                    options spl spl_hostid=1\nzil_maxblocksize\nzio_taskq_read = 4 # why\n";
        let errors: Vec<String> = apply_file(text).iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[0].starts_with("line 2: no such tunable"), "{errors:?}");
        assert!(errors[1].starts_with("line 5: '' is not a value of zil_maxblocksize"), "{errors:?}");
        assert!(errors[2].starts_with("line 6: 'zio_taskq_read' has no effect here"), "{errors:?}");
        assert_eq!(tunables::ZIL_MAXBLOCKSIZE.given(), Some(64 << 10));
        tunables::ZIL_MAXBLOCKSIZE.reset();
    }
}
