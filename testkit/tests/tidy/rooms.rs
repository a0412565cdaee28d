//! The rooms of the daemon stand in an order, as the folders of a crate do.
//!
//! A room is a file or folder of `server/src/daemon`. It imports from those before it. What the daemon shows
//! of a room under a shorter name counts for the room. `open_pool` is no room: it puts together what each
//! room keeps of a pool, and all of them use it.

use std::collections::BTreeMap;
use std::path::Path;

use super::circles::{absolute, module, paths, plain};
use super::sources;

/// The rooms, the lowest first.
const ROOMS: &[&str] = &[
    "names",
    "host",
    "refusals",
    "handing",
    "dashboard",
    "sync_tasks",
    "mounts",
    "volumes",
    "shares",
    "datasets",
    "streams",
    "pools",
    "watch",
    "standby",
    "lab",
    "actions",
    "admission",
];

/// Files that belong to all rooms.
const OF_ALL: &[&str] = &["open_pool"];

/// Items that the daemon gives a shorter name, with the rooms that have them.
const SHOWN: &[(&str, &str)] = &[
    ("VolumeExport", "volumes"),
    ("VolumeList", "volumes"),
    ("Volumes", "volumes"),
    ("DeviceMaker", "volumes"),
    ("Endpoints", "volumes"),
    ("Importing", "pools"),
    ("Known", "actions"),
    ("Begin", "dashboard"),
    ("Begun", "dashboard"),
    ("machine_name", "dashboard"),
];

/// What files of rooms import from rooms above: (room, imported) and the files.
fn upwards(sources: &[(String, String)]) -> BTreeMap<(String, String), Vec<String>> {
    let place = |room: &str| ROOMS.iter().position(|known| *known == room);
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (path, text) in sources {
        let from = module(path);
        let [daemon, room, ..] = &from[..] else { continue };
        if daemon != "daemon" || OF_ALL.contains(&room.as_str()) {
            continue;
        }
        let here = place(room).unwrap_or_else(|| panic!("{path}: the room '{room}' has no place"));
        for path_in_code in paths(&plain(text)) {
            let Some(to) = absolute(&from, &path_in_code) else { continue };
            let [daemon, item, ..] = &to[..] else { continue };
            let shown = SHOWN.iter().find(|(name, _)| name == item).map(|(_, room)| *room);
            let to = shown.unwrap_or(item);
            if daemon == "daemon" && place(to).is_some_and(|place| place > here) {
                let files = found.entry((room.clone(), to.to_owned())).or_default();
                if !files.contains(path) {
                    files.push(path.clone());
                }
            }
        }
    }
    found
}

/// [`upwards`] of a tree.
pub(crate) fn rooms_upwards(root: &Path) -> BTreeMap<(String, String), Vec<String>> {
    upwards(&sources(&root.join("server/src")))
}

#[test]
fn rooms_of_the_daemon_import_downwards() {
    assert_eq!(rooms_upwards(&super::root()), BTreeMap::new());
}

#[test]
fn an_import_of_a_room_above_is_found() {
    let of = |path: &str, text: &str| upwards(&[(path.into(), text.into())]).into_keys().collect::<Vec<_>>();
    let pair = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
    assert_eq!(of("daemon/mounts/nested.rs", "use crate::daemon::pools::host;"), pair("mounts", "pools"));
    assert_eq!(of("daemon/mounts.rs", "use super::{Daemon, volumes::clients};"), pair("mounts", "volumes"));
    assert_eq!(
        of("daemon/mounts/nested.rs", "use crate::daemon::{OpenPool, VolumeList};"),
        pair("mounts", "volumes")
    );
    assert_eq!(
        of("daemon/pools/import.rs", "fn of() { super::super::watch::told() }"),
        pair("pools", "watch")
    );
    assert_eq!(of("daemon/pools/import.rs", "use crate::daemon::{names, volumes::sharing};"), []);
    assert_eq!(of("daemon/open_pool.rs", "use super::watch::following::Followed;"), []);
}
