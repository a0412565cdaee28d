//! The directories that filesystems are mounted at.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Whether a mountpoint that a pool names stays where it seems to be: no step of it goes up, and what exists
/// of it is no symbolic link out of `confined_to`. The links may be the pool's own, in a filesystem that was
/// mounted before.
pub(in crate::daemon) fn leads_nowhere_else(at: &Path, confined_to: Option<&Path>) -> bool {
    let goes_up = |path: &Path| path.components().any(|component| component == Component::ParentDir);
    let Some(directory) = confined_to else { return !goes_up(at) };
    let Ok(inside) = at.strip_prefix(directory) else { return false };
    if goes_up(inside) {
        return false;
    }
    let Ok(mut real) = directory.canonicalize() else {
        // What does not exist yet has no links in it.
        return directory.symlink_metadata().is_err();
    };
    for component in inside {
        real.push(component);
        match real.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
        }
    }
    true
}

/// Makes a directory and those above it that do not exist. Those that were made, the deepest first.
pub(in crate::daemon) fn make_directories(at: &Path) -> std::io::Result<Vec<PathBuf>> {
    let made = at.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
    fs::create_dir_all(at)?;
    Ok(made)
}

/// Removes directories as long as they are empty.
pub(in crate::daemon) fn remove_directories(made: &[PathBuf]) {
    for directory in made {
        // One that is not empty is in use now.
        let _ = fs::remove_dir(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountpoint_cannot_lead_out_of_its_altroot() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        assert!(leads_nowhere_else(&root.join("a"), Some(&root)), "nothing exists yet");
        fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink(place.path(), root.join("a/out")).unwrap();
        assert!(leads_nowhere_else(&root.join("a/b/c"), Some(&root)));
        assert!(!leads_nowhere_else(&root.join("a/../../etc"), Some(&root)));
        assert!(!leads_nowhere_else(&root.join("a/out/etc"), Some(&root)));
        assert!(!leads_nowhere_else(&root.join("a/out"), Some(&root)));
        assert!(!leads_nowhere_else(Path::new("/etc"), Some(&root)));
        assert!(leads_nowhere_else(Path::new("/etc"), None));
    }

    #[test]
    fn only_directories_that_were_made_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let there = place.path().join("there");
        fs::create_dir(&there).unwrap();
        let made = make_directories(&there.join("a/b")).unwrap();
        assert_eq!(made, [there.join("a/b"), there.join("a")]);
        fs::write(there.join("a/file"), b"").unwrap();
        remove_directories(&made);
        assert!(there.join("a").exists() && !there.join("a/b").exists());
        fs::remove_file(there.join("a/file")).unwrap();
        remove_directories(&made[1..]);
        assert!(there.exists() && !there.join("a").exists());
    }
}
