//! Files, devices and exports that the user named.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::{Bench, Placement, in_use, make_file};
use crate::error::{Error, Result};
use crate::fio::{self, Endpoint};
use crate::progress::Progress;
use crate::site::Named;
use crate::site::path::{require, require_device_length, require_length};

impl Bench<'_> {
    /// Where fio reaches what is named; it is claimed, made and filled where it may be.
    pub(super) fn at_named(
        &mut self,
        named: Named<'_>,
        lodging: &Placement,
        progress: &dyn Progress,
    ) -> Result<Endpoint> {
        match named {
            Named::Volume(volume) => self.at_existing(volume, &lodging.settings, progress),
            Named::Path(path) => self.at_path(path, progress),
            Named::Uri(uri) => self.filled_once(Endpoint::of_uri(uri), uri, progress),
            Named::Elsewhere(layer) => {
                let endpoint = Endpoint::Elsewhere {
                    by: layer.by.clone().unwrap_or_default(),
                    path: PathBuf::from(&layer.at),
                    engine: layer.engine().to_owned(),
                };
                self.filled_once(endpoint, &layer.title(), progress)
            }
        }
    }

    /// A directory, a device, or a file that is made and filled where it is not there.
    fn at_path(&mut self, path: &Path, progress: &dyn Progress) -> Result<Endpoint> {
        self.experiment.target.paths().into_iter().try_for_each(require)?;
        let name = path.display().to_string();
        if path.is_dir() {
            let own = path.join(fio::OWN_DIRECTORY);
            self.claims.hold(own)?;
            return self.filled_once(Endpoint::Directory(path.to_owned()), &name, progress);
        }
        let endpoint = Endpoint::Path(path.to_owned());
        let size = self.experiment.target.size();
        let is_there = path.exists();
        if !self.claims.overwrites() && is_there && !in_use::is_made(path) {
            // It belongs to the user, and is only read.
            require_length(path, self.experiment.target.size())?;
            return Ok(endpoint);
        }
        if !self.claims.has(path) {
            self.claims.take(path, &self.folders.results)?;
        }
        require_device_length(path, size)?;
        if !is_there {
            make_file(path, 0)?;
            in_use::mark(path, false);
            self.claims.take(path, &self.folders.results)?;
        }
        let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let is_short = make_file(path, size.0)?;
        if is_short || (in_use::is_made(path) && !in_use::is_filled(path)) {
            // Reading what was never written reads nothing.
            let filled = self.fill_first(&endpoint, &name, progress);
            if filled.is_err() && !is_there {
                fs::remove_file(path).map_err(Error::file(path))?;
            } else if filled.is_err() && is_short {
                // As short as it was, so that a continued experiment fills it.
                let file = File::options().write(true).open(path).map_err(Error::file(path))?;
                file.set_len(length).map_err(Error::file(path))?;
            }
            filled?;
            if in_use::is_made(path) {
                in_use::mark(path, true);
            }
            self.filled.named.insert(name.clone());
        }
        self.filled_once(endpoint, &name, progress)
    }

    /// A named file or device is filled once, if it may be written: by workloads that write it anyway, or
    /// because it is a file of the lab's own.
    fn filled_once(&mut self, endpoint: Endpoint, name: &str, progress: &dyn Progress) -> Result<Endpoint> {
        // What is elsewhere can be looked at no more than what an export holds.
        let is_export =
            matches!(endpoint, Endpoint::Nbd(_) | Endpoint::Iscsi(_) | Endpoint::Elsewhere { .. });
        if is_export {
            self.claims.require_consent(name, &self.folders.results)?;
        }
        if self.claims.may_write(&endpoint) && !self.filled.named.contains(name) {
            self.fill_first(&endpoint, name, progress)?;
            self.filled.named.insert(name.to_owned());
        }
        Ok(endpoint)
    }
}
