//! Tunables of the daemon: they are set live, and read from files when it starts.
//!
//! Two files are read, the second one overrides the first: `/etc/cenote/tunables.conf`, which the
//! administrator writes, and `tunables.conf` beside the daemon's cache file, which `cenote tunable set
//! --save` writes. A line that is wrong is reported in the log and left out: a daemon that does not start would be
//! worse than one that runs with a default.

use std::path::{Path, PathBuf};

use engine::tunables::{self, Tunable, TunableError};

use super::events::replace;
use crate::api::{self, ApiError, TunableValue};
use crate::daemon::Daemon;

/// The file of the administrator.
const SYSTEM_FILE: &str = "/etc/cenote/tunables.conf";
/// The name of the file beside the cache file.
const FILE_NAME: &str = "tunables.conf";
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Daemon {
    fn tunables_file(&self) -> Option<PathBuf> {
        Some(self.cachefile.as_ref()?.with_file_name(FILE_NAME))
    }

    /// Sets what the files say, before pools are imported. A daemon that keeps nothing reads no files.
    pub fn load_tunables(&self) {
        let Some(own) = self.tunables_file() else { return };
        for file in [Path::new(SYSTEM_FILE), &own] {
            match read(file) {
                Ok(text) => tunables::apply_file(&text).iter().for_each(
                    |error| tracing::error!(file = %file.display(), %error, "a tunable is not set"),
                ),
                Err(error) => tracing::error!(file = %file.display(), %error, "tunables are not read"),
            }
        }
    }

    /// Tunables with their values.
    ///
    /// # Errors
    /// There is none of a name.
    pub fn list_tunables(&self, request: &api::ListTunables) -> Result<Vec<TunableValue>, ApiError> {
        match request.names.is_empty() {
            true => Ok(tunables::all().iter().map(|tunable| (*tunable).into()).collect()),
            false => request.names.iter().map(|name| Ok(named(name)?.into())).collect(),
        }
    }

    /// Sets tunables.
    ///
    /// # Errors
    /// There is none of a name, a value is not one of it, or the file cannot be written. Nothing is set then.
    pub fn set_tunables(&self, request: api::SetTunables) -> Result<Vec<TunableValue>, ApiError> {
        let mut settings: Vec<(&'static Tunable, Option<u64>)> = Vec::new();
        for (name, value) in &request.settings {
            let tunable = named(name)?;
            let value = value.as_ref().map(|value| tunable.parse(value)).transpose();
            let value = value.map_err(|error| ApiError::invalid(error.to_string()))?;
            settings.push((tunable, value));
        }
        let before: Vec<Option<u64>> = settings.iter().map(|(tunable, _)| tunable.given()).collect();
        let done = settings.iter().try_for_each(|(tunable, value)| apply(tunable, *value));
        let done =
            done.map_err(|error| ApiError::invalid(error.to_string())).and_then(|()| match request.save {
                true => self.save_tunables(&settings),
                false => Ok(()),
            });
        if let Err(error) = done {
            for ((tunable, _), before) in settings.iter().zip(before).rev() {
                // It was that before.
                let _ = apply(tunable, before);
            }
            return Err(error);
        }
        for (tunable, value) in &settings {
            tracing::info!(tunable = tunable.name(), value = tunable.get(), is_set = value.is_some(), "set");
        }
        Ok(settings.iter().map(|(tunable, _)| (*tunable).into()).collect())
    }

    fn save_tunables(&self, settings: &[(&'static Tunable, Option<u64>)]) -> Result<(), ApiError> {
        let Some(file) = self.tunables_file() else {
            return Err(ApiError::refused(
                "this daemon keeps nothing for its next start (see --cachefile of 'cenote serve'); set it \
                 without --save",
            ));
        };
        let cannot = |error| ApiError::failed(format!("cannot save tunables in {}: {error}", file.display()));
        let before = read(&file).map_err(cannot)?;
        let is_other = |line: &&str| {
            let name = line.split_once('=').map_or("", |(name, _)| name.trim());
            !settings.iter().any(|(tunable, _)| tunable.name() == name)
        };
        let mut text: String = before.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
        for (tunable, value) in settings {
            if let Some(value) = value {
                text.push_str(&format!("{}={value}\n", tunable.name()));
            }
        }
        replace(&file, text.as_bytes()).map_err(cannot)
    }
}

fn named(name: &str) -> Result<&'static Tunable, ApiError> {
    tunables::named(name).map_err(|error| match error {
        TunableError::Unknown(_) => ApiError::not_found(error.to_string()),
        error => ApiError::refused(error.to_string()),
    })
}

fn apply(tunable: &Tunable, value: Option<u64>) -> Result<(), TunableError> {
    match value {
        Some(value) => tunable.set(value),
        None => {
            tunable.reset();
            Ok(())
        }
    }
}

/// The text of a file; empty when there is none.
fn read(file: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    match std::fs::File::open(file) {
        Ok(opened) => opened.take(MAX_BYTES).read_to_string(&mut text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(text)
}
