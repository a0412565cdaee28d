//! The state of caches before a run.

use std::fs::{self, File};

use super::filling::whole;
use super::{Bench, Home, Placement, in_use, luks};
use crate::error::{Error, Result};
use crate::experiment::{CacheState, Workload};
use crate::fio::{self, Endpoint};
use crate::progress::Progress;
use crate::remote;
use crate::setting::DEVICE_LUKS;
use crate::site::Cold;
use crate::size::Size;

impl Bench<'_> {
    /// Brings the caches into the state that a workload wants.
    pub(super) fn prepare_caches(
        &mut self,
        lodging: &Placement,
        workload: &Workload,
        endpoint: &Endpoint,
        progress: &dyn Progress,
    ) -> Result<()> {
        let extent = workload.extent(self.experiment.target.size());
        match workload.cache {
            CacheState::AsItIs => Ok(()),
            CacheState::Cold => self.make_cold(lodging, endpoint),
            CacheState::Warm => self.pass("read", workload, extent, endpoint, progress),
            CacheState::Dirty if !self.experiment.target.is_as_found() || self.claims.may_write(endpoint) => {
                self.pass("write", workload, extent, endpoint, progress)
            }
            CacheState::Dirty => Err(Error::Experiment(format!(
                "workload '{}': cache = \"dirty\" would write to {}, to which no workload writes",
                workload.name,
                endpoint.file()
            ))),
        }
    }

    /// Goes over the first `extent` bytes once, with data as the workload's.
    fn pass(
        &self,
        rw: &str,
        like: &Workload,
        extent: Size,
        endpoint: &Endpoint,
        progress: &dyn Progress,
    ) -> Result<()> {
        let workload = whole(rw, like, extent);
        let arguments = fio::once(&workload, endpoint, extent, false);
        let limit = self.guests.limit(0.0, extent.0);
        fio::run_by(endpoint.by(), &arguments, limit, &mut || progress.stops()).map(drop)
    }

    /// Empties the caches that can be emptied.
    fn make_cold(&mut self, lodging: &Placement, endpoint: &Endpoint) -> Result<()> {
        match (self.homes.get(lodging), self.experiment.target.facts().cold) {
            (Some(home), Cold::Imported) => self.import_again(home)?,
            (Some(_), Cold::Kept(_)) => {}
            _ => self.drop_caches_of(endpoint),
        }
        if let Err(error) = fs::write("/proc/sys/vm/drop_caches", "3") {
            self.remarks.note(format!(
                "The system's page cache could not be dropped as a whole ({error}), which only root may: \
                 data that go through it may have been cached where they are called cold."
            ));
        }
        Ok(())
    }

    /// Exports a pool and imports it, so that nothing of it is cached.
    fn import_again(&self, home: &Home) -> Result<()> {
        let programs = self.servers.programs(&home.server)?;
        programs.zpool(&["export".to_owned(), home.pool.clone()])?;
        let mut arguments = vec!["import".to_owned()];
        let all = self.experiment.design().all_settings();
        if all.iter().any(|(name, value)| *name == "encryption" && *value != "off") {
            // Keys lie in files, which this reads.
            arguments.push("-l".to_owned());
        }
        if all.iter().any(|(name, value)| *name == DEVICE_LUKS && *value == "on") {
            arguments.extend(["-d", luks::MAPPER].map(str::to_owned));
        }
        let disks = self.pools.disks_of(&home.pool).iter().flat_map(|disk| in_use::devices_of(disk));
        for place in self.folders.of_devices().into_iter().chain(disks) {
            arguments.extend(["-d".to_owned(), place.display().to_string()]);
        }
        arguments.push(home.pool.clone());
        programs.zpool(&arguments).map(drop)
    }

    /// Drops what is cached of a file, device or export as far as that is allowed from here; notes what may
    /// remain.
    fn drop_caches_of(&mut self, endpoint: &Endpoint) {
        match endpoint {
            Endpoint::Nbd(at) | Endpoint::Iscsi(at) => self.remarks.note(format!(
                "The server of {at} has caches that cannot be emptied from here: data called cold may have \
                 been cached there."
            )),
            Endpoint::Elsewhere { by, path, .. } => {
                if let Err(why) = remote::drop_caches(by) {
                    self.remarks.note(format!(
                        "The page cache where '{}' runs fio could not be dropped ({why}): data of {} called \
                         cold may have been cached there.",
                        by.join(" "),
                        path.display()
                    ));
                }
            }
            Endpoint::Path(_) | Endpoint::Directory(_) => {
                self.remarks.note(
                    "For devices and files only the system's page cache is emptied; data called cold may be \
                     in caches of the devices themselves."
                        .into(),
                );
                // Every user may for a file that they can open; what is not on the device yet stays.
                if let Ok(file) = File::open(endpoint.file()) {
                    let _ = file.sync_all();
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                }
            }
        }
    }
}
