//! Checks before anything is made or written: whether the named files, devices and exports exist, are large
//! enough, and may be overwritten.

use std::path::{Path, PathBuf};

use super::filling::made_by;
use super::pools::{data_devices, device_size, require_disk};
use super::{in_use, placement};
use crate::created_files;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Settings};
use crate::export::{Export, ExportFacts, NBDINFO, READ_CAPACITY};
use crate::fio;
use crate::layout::Layout;
use crate::remote;
use crate::site::path::{require, require_device_length, require_length};
use crate::size::Size;

/// Room that a variant needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// The space of its data, on all devices.
    pub filled: Size,
    /// The most space that its pool's devices may take.
    pub at_most: Size,
}

/// The space that a variant with these settings needs where pools are.
pub(crate) fn needs(experiment: &Experiment, settings: &Settings) -> Result<Needs> {
    let pools = experiment.target.pools();
    let pools = pools.ok_or_else(|| Error::Experiment("this target has no pools".into()))?;
    let layout: Layout = settings.get("layout").unwrap_or(&pools.layout).parse()?;
    let share = layout.devices() as f64 / data_devices(&layout);
    let filled = Size((placement::bytes_of_a_variant(experiment) as f64 * share) as u64);
    let of_each = device_size(experiment, pools, &layout).0;
    Ok(Needs { filled, at_most: Size(of_each.saturating_mul(layout.devices())) })
}

/// Faults of the files and devices that an experiment measures, before anything is made or written:
/// all of it. `may_overwrite` is consent for whatever is there; `directory` is that of its results, where
/// there are some, which has the consent that was noted ([`consent`]).
pub fn faults(experiment: &Experiment, may_overwrite: bool, directory: Option<&Path>) -> Vec<String> {
    let (target, overwrites) = (&experiment.target, experiment.design().overwrites());
    let of = |path: &Path| -> Result<Option<String>> {
        require(path)?;
        if path.is_dir() {
            let made = experiment.workloads.iter().map(made_by);
            return created_files::require(&path.join(fio::OWN_DIRECTORY), made).map(|()| None);
        }
        if !path.exists() {
            return Ok(None);
        }
        if !overwrites && !in_use::is_made(path) {
            return require_length(path, target.size()).map(|()| None);
        }
        require_device_length(path, target.size())?;
        in_use::fault(path, may_overwrite, directory)
    };
    let said = |path| match of(path) {
        Ok(fault) => fault,
        Err(Error::Experiment(what)) => Some(what),
        Err(error) => Some(error.to_string()),
    };
    let of_disk = |path: &Path| -> Result<Option<String>> {
        require(path)?;
        let pools = target.pools().ok_or_else(|| Error::Experiment("this target has no pools".into()))?;
        require_disk(path, device_size(experiment, pools, &pools.layout.parse()?))?;
        in_use::fault(path, may_overwrite, directory)
    };
    let of_disks = target.disks().iter().filter_map(|path| match of_disk(path) {
        Ok(fault) => fault,
        Err(Error::Experiment(what)) => Some(what),
        Err(error) => Some(error.to_string()),
    });
    let unexamined = target.unexamined().into_iter().filter(|_| overwrites);
    let consent = unexamined.filter_map(|name| {
        in_use::fault_of_export(&name, may_overwrite, directory).unwrap_or_else(|it| Some(it.to_string()))
    });
    let of_uris = target.uris().into_iter().filter_map(|uri| fault_of_uri(uri, target.size(), overwrites));
    let of_elsewhere = target
        .elsewhere()
        .filter_map(|layer| remote::fault(layer, target.size(), overwrites, remote::ANSWER_LIMIT));
    let of_paths = target.paths().into_iter().filter_map(said);
    of_paths.chain(of_disks).chain(consent).chain(of_uris).chain(of_elsewhere).collect()
}

/// Why what is behind a URI cannot be measured, as far as its server reports it.
fn fault_of_uri(uri: &str, size: Size, overwrites: bool) -> Option<String> {
    // What is no URI is told by the experiment itself.
    let export = Export::parse(uri).ok()?;
    fault_of_told(uri, export.asked_by(), export.look(), size, overwrites)
}

/// The same, by what who serves it said.
fn fault_of_told(
    uri: &str,
    asked_by: Option<&str>,
    told: std::result::Result<Option<ExportFacts>, String>,
    size: Size,
    overwrites: bool,
) -> Option<String> {
    match told {
        Err(what) => Some(format!("target {uri}: {what}")),
        Ok(Some(told)) if told.size < size => Some(format!(
            "target {uri} has {}, fewer than its size of {size}: make `size` smaller",
            told.size
        )),
        Ok(Some(told)) if told.is_read_only && overwrites => {
            Some(format!("target {uri} is read-only, and workloads write to it"))
        }
        // fio makes of what is larger what is there, and says nothing.
        Ok(None) if asked_by == Some(READ_CAPACITY) => Some(format!(
            "target {uri}: cannot find out whether it has {size}: install {READ_CAPACITY} (in Debian it is \
             in libiscsi-bin, in Fedora in libiscsi-utils), or log in (iscsiadm --login) and measure the \
             block device"
        )),
        Ok(None) if asked_by == Some(NBDINFO) => Some(format!(
            "target {uri}: cannot find out whether it has {size}: install {NBDINFO}, which asks within TLS \
             (it is in libnbd's package of programs: libnbd-bin in Debian, nbdinfo in Fedora)"
        )),
        Ok(_) => None,
    }
}

/// Records the consent that the user just gave to overwrite what the experiment in `directory` names and
/// writes.
pub fn consent(experiment: &Experiment, directory: &Path) -> Result<()> {
    let target = &experiment.target;
    let is_there = |path: &&Path| path.exists() && !path.is_dir();
    let mut paths: Vec<&Path> = target.disks().iter().map(PathBuf::as_path).filter(is_there).collect();
    let mut unexamined = Vec::new();
    if experiment.design().overwrites() {
        paths.extend(target.paths().into_iter().filter(is_there));
        unexamined = target.unexamined();
    }
    let unexamined: Vec<&str> = unexamined.iter().map(String::as_str).collect();
    in_use::consent(&paths, &unexamined, directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_behind_iscsi_is_measured_only_where_it_is_known_to_be_large_enough() {
        let uri = "iscsi://h/t/1";
        let fault =
            |told, overwrites| fault_of_told(uri, Some(READ_CAPACITY), told, Size(64 << 20), overwrites);
        let of = |size| Ok(Some(ExportFacts { size: Size(size), is_read_only: false }));
        assert_eq!((fault(of(64 << 20), true), fault(of(64 << 20), false)), (None, None));
        let too_small = fault(of(32 << 20), true).unwrap();
        assert!(too_small.contains("has 32M, fewer than its size of 64M"), "{too_small}");
        assert_eq!(fault(of(32 << 20), false), Some(too_small));
        let unknown = fault(Ok(None), false).unwrap();
        assert!(unknown.contains(READ_CAPACITY) && unknown.contains("iscsiadm"), "{unknown}");
        assert!(fault(Err("Login Failed".into()), false).unwrap().contains("Login Failed"));
        let within_tls = fault_of_told("nbds://h/v", Some(NBDINFO), Ok(None), Size(64 << 20), false).unwrap();
        assert!(within_tls.contains("install nbdinfo"), "{within_tls}");
        assert_eq!(fault_of_told("nbd+vsock://1/v", None, Ok(None), Size(64 << 20), true), None);
    }
}
