//! `cenote serve --parameters FOLDER`: tunables by files, as the kernel shows them in
//! `/sys/module/zfs/parameters`.
//!
//! OpenZFS's test suite sets tunables by writing into such files. Its folder begins with the defaults of
//! OpenZFS, which are not those of this program: so only what changes counts, and a file that is as it was at
//! the start means the default again.
//!
//! The kernel module follows a parameter at once. So the files are read before each request, which then sees
//! what was written before it, and a few times a second for what works without requests.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use device::IgnorePoison;
use engine::tunables;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_millis(50);

/// The text of each file, by the name of its parameter.
type Values = HashMap<&'static str, String>;

/// The files of a folder.
pub struct Parameters {
    folder: PathBuf,
    /// As they were at the start.
    first: Values,
    /// As they were when they were read last.
    before: Mutex<Values>,
}

impl Parameters {
    /// Follows the files of a folder until the process ends.
    ///
    /// # Errors
    /// There is no thread.
    pub fn follow(folder: PathBuf) -> io::Result<Arc<Self>> {
        let first = values(&folder);
        let parameters = Arc::new(Self { folder, before: Mutex::new(first.clone()), first });
        let followed = Arc::clone(&parameters);
        let follow = move || {
            loop {
                thread::sleep(INTERVAL);
                followed.apply();
            }
        };
        thread::Builder::new().name("parameters".into()).spawn(follow)?;
        Ok(parameters)
    }

    /// Sets what was changed since the files were read last.
    pub fn apply(&self) {
        let mut before = self.before.lock().ignore_poison();
        let now = values(&self.folder);
        for tunable in tunables::all() {
            let value = now.get(tunable.name());
            if value == before.get(tunable.name()) {
                continue;
            }
            match value.filter(|value| self.first.get(tunable.name()) != Some(value)) {
                None => tunable.reset(),
                Some(value) => {
                    if let Err(error) = tunable.parse(value).and_then(|value| tunable.set(value)) {
                        tracing::warn!(%error, "a parameter was not set");
                    }
                }
            }
        }
        *before = now;
    }
}

fn values(folder: &Path) -> Values {
    let value = |tunable: &tunables::Tunable| Some((tunable.name(), read(folder, tunable.name())?));
    tunables::all().iter().copied().filter_map(value).collect()
}

fn read(folder: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned())
}
