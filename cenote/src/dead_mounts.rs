//! Mounts that a daemon left behind when it was killed: every access to them fails, and no pool is open.
//!
//! A listing that shows no pools says what became of them, on standard error: scripts read standard output.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::remotes;

/// The most mounts of a pool that are named.
const MAX_NAMED: usize = 5;

/// Says on standard error which mounts answer nothing, and what to do about them.
pub fn explain() {
    // Those of another machine are not known here.
    if remotes::is_afar() {
        return;
    }
    eprint!("{}", explanation(server::fuse::dead_mounts()));
}

fn explanation(mounts: Vec<(String, PathBuf)>) -> String {
    let mut pools: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (name, at) in mounts {
        let pool = name.split(['/', '@']).next().unwrap_or_default().to_owned();
        pools.entry(pool).or_default().push(at);
    }
    let mut text = String::new();
    for (pool, places) in &pools {
        text.push_str(&format!(
            "the daemon that served pool '{pool}' ended without unmounting it, and every access fails at:\n"
        ));
        for place in places.iter().take(MAX_NAMED) {
            text.push_str(&format!("  {}\n", place.display()));
        }
        match places.len().saturating_sub(MAX_NAMED) {
            0 => {}
            more => text.push_str(&format!("  and {more} more\n")),
        }
        text.push_str(&format!(
            "'zpool import {pool}' (-d DIR for a pool on files) mounts it again; \
             'umount -l MOUNTPOINT' removes such a mount\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_mounts_are_told_by_pool_with_what_to_do() {
        assert_eq!(explanation(Vec::new()), "");
        let at = |number: usize| (format!("tank/f{number}"), PathBuf::from(format!("/tank/f{number}")));
        let mounts = std::iter::once(("home@monday".into(), "/old".into())).chain((0..7).map(at));
        let text = explanation(mounts.collect());
        assert!(text.contains("pool 'home'") && text.contains("\n  /old\n"), "{text}");
        assert!(text.contains("  /tank/f4\n  and 2 more\n'zpool import tank'"), "{text}");
    }
}
