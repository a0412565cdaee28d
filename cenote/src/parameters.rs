//! `cenote serve --parameters FOLDER`: tunables by files, as the kernel shows them in
//! `/sys/module/zfs/parameters`.
//!
//! OpenZFS's test suite sets tunables by writing into such files. Its folder begins with the defaults of
//! OpenZFS, which are not those of this program: so only what changes counts, and a file that is as it was at
//! the start means the default again.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use engine::tunables;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_millis(50);

/// Follows the files of a folder until the process ends.
///
/// # Errors
/// There is no thread.
pub fn follow(folder: PathBuf) -> io::Result<()> {
    let values = move || -> HashMap<&'static str, String> {
        tunables::all()
            .iter()
            .filter_map(|tunable| Some((tunable.name(), read(&folder, tunable.name())?)))
            .collect()
    };
    let first = values();
    let mut before = first.clone();
    let follow = move || {
        loop {
            thread::sleep(INTERVAL);
            let now = values();
            for tunable in tunables::all() {
                let value = now.get(tunable.name());
                if value == before.get(tunable.name()) {
                    continue;
                }
                match value.filter(|value| first.get(tunable.name()) != Some(value)) {
                    None => tunable.reset(),
                    Some(value) => {
                        if let Err(error) = tunable.parse(value).and_then(|value| tunable.set(value)) {
                            tracing::warn!(%error, "a parameter was not set");
                        }
                    }
                }
            }
            before = now;
        }
    };
    thread::Builder::new().name("parameters".into()).spawn(follow).map(drop)
}

fn read(folder: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned())
}
