//! What pools and datasets may be called, with OpenZFS's words for what is wrong with a name.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_namecheck.c`, `libzfs_dataset.c` (`zfs_validate_name`),
//! `libzfs_pool.c` (`zpool_name_valid`).

use crate::api::{ApiError, DatasetKind};

/// The length that a name must be below.
pub(in crate::daemon) const MAX_NAME_BYTES: usize = 256;
/// Most components of a dataset's name.
const MAX_COMPONENTS: usize = 50;

/// Whether `name` is `top` or lies below it.
pub(in crate::daemon) fn is_at_or_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@', '#']))
}

/// Words that vdev specifications begin with.
const RESERVED_PREFIXES: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

/// Why no pool may be called so; `None` for a good name.
pub(in crate::daemon) fn pool_name_fault(name: &str) -> Option<String> {
    if RESERVED_PREFIXES.iter().any(|word| name.starts_with(word)) || name == "log" {
        return Some("name is reserved\npool name may have been omitted".to_owned());
    }
    if name.len() >= MAX_NAME_BYTES {
        return Some("name is too long".to_owned());
    }
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || "-_.: ".contains(*character);
    if let Some(bad) = name.chars().find(|character| !is_plain(character)) {
        return Some(format!("invalid character '{bad}' in pool name"));
    }
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Some("name must begin with a letter".to_owned());
    }
    None
}

/// Why nothing of this kind may be called so; `None` for a good name.
pub(in crate::daemon) fn dataset_name_fault(name: &str, kind: DatasetKind) -> Option<String> {
    let delimiters = name.chars().filter(|character| "@#".contains(*character)).count();
    match kind {
        DatasetKind::Snapshot if !name.contains('@') => {
            return Some("missing '@' delimiter in snapshot name".to_owned());
        }
        DatasetKind::Bookmark if !name.contains('#') => {
            return Some("missing '#' delimiter in bookmark name".to_owned());
        }
        DatasetKind::Filesystem | DatasetKind::Volume if name.contains('@') => {
            return Some("snapshot delimiter '@' is not expected here".to_owned());
        }
        DatasetKind::Filesystem | DatasetKind::Volume if name.contains('#') => {
            return Some("bookmark delimiter '#' is not expected here".to_owned());
        }
        _ if delimiters > 1 => return Some("multiple '@' and/or '#' delimiters in name".to_owned()),
        _ => {}
    }
    if name.len() >= MAX_NAME_BYTES {
        return Some("name is too long".to_owned());
    }
    if name.starts_with('/') {
        return Some("leading slash in name".to_owned());
    }
    if name.ends_with('/') {
        return Some("trailing slash in name".to_owned());
    }
    let components = || name.split(['/', '@', '#']);
    if components().any(str::is_empty) {
        return Some("empty component or misplaced '@' or '#' delimiter in name".to_owned());
    }
    // The percent sign belongs to names that the system makes itself.
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || "-_.: /@#".contains(*character);
    if let Some(bad) = name.chars().find(|character| !is_plain(character)) {
        return Some(format!("invalid character '{bad}' in name"));
    }
    if components().any(|component| component == ".") {
        return Some("self reference, '.' is found in name".to_owned());
    }
    if components().any(|component| component == "..") {
        return Some("parent reference, '..' is found in name".to_owned());
    }
    (components().count() > MAX_COMPONENTS).then(|| "dataset nesting depth exceeded".to_owned())
}

/// Refuses a bad name of a new dataset.
pub(in crate::daemon) fn check_dataset_name(
    doing: &str,
    name: &str,
    kind: DatasetKind,
) -> Result<(), ApiError> {
    match dataset_name_fault(name, kind) {
        Some(fault) => Err(ApiError::invalid(format!("cannot {doing} '{name}': {fault}"))),
        None => Ok(()),
    }
}

/// Refuses the name of a hidden dataset. The dataset that a receive fills (`%recv`) belongs to the receive:
/// OpenZFS shows and destroys it by its name, and takes it for nothing else.
pub(in crate::daemon) fn refuse_hidden(name: &str) -> Result<(), ApiError> {
    if !engine::dsl::is_hidden(name) {
        return Ok(());
    }
    let parent = name.find(['%', '$']).and_then(|at| name.get(..at)?.rfind(['/', '@', '#']));
    let parent = parent.and_then(|at| name.get(..at)).unwrap_or(name);
    Err(ApiError::invalid(format!(
        "cannot open '{name}': names with '%' or '$' are of hidden datasets, which are no argument of this \
         command\n'zfs receive -A {parent}' gives up what an interrupted receive left"
    )))
}

/// The dataset that contains this one; `None` for a pool.
pub(in crate::daemon) fn parent_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(parent, _)| parent)
}

/// The pool that something is in.
pub(in crate::daemon) fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_not_called_like_vdevs_or_paths() {
        for good in ["tank", "rpool-2", "a.b:c d"] {
            assert_eq!(pool_name_fault(good), None, "{good}");
        }
        for bad in ["", "mirror-1", "raidz", "log", "tank/fs", "0day", "-f", "ta\u{1b}nk"] {
            assert!(pool_name_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn datasets_say_what_is_wrong_with_their_names() {
        use DatasetKind::{Bookmark, Filesystem, Snapshot};
        for (name, kind, fault) in [
            ("tank/a", Filesystem, None),
            ("tank/a@b", Snapshot, None),
            ("tank/a#b", Bookmark, None),
            ("tank//a", Filesystem, Some("empty component or misplaced '@' or '#' delimiter in name")),
            ("tank/a/", Filesystem, Some("trailing slash in name")),
            ("tank/a@b", Filesystem, Some("snapshot delimiter '@' is not expected here")),
            ("tank/a", Snapshot, Some("missing '@' delimiter in snapshot name")),
            ("tank/a%b", Filesystem, Some("invalid character '%' in name")),
            ("tank/..", Filesystem, Some("parent reference, '..' is found in name")),
        ] {
            assert_eq!(dataset_name_fault(name, kind).as_deref(), fault, "{name}");
        }
    }
}
