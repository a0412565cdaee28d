//! The speed of the user's disks, measured by fio before a pool is made of them.
//!
//! The disks were named for pools, which needs consent to overwrite them anyway. They are claimed here
//! exactly as for a pool, and held meanwhile. So the lab never writes to a disk that another program uses, or
//! whose contents must not be overwritten. Files of the lab need none of this: there the raw device is a
//! variant ([`crate::plan::DEVICE`]), with every workload. For other targets no limit is measured, and
//! [`crate::site::Facts::no_limit`] says why.

use std::path::{Path, PathBuf};

use super::in_use;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Rates, Workload};
use crate::fio::{self, Endpoint};
use crate::size::Size;

/// Seconds of each of the three runs on a disk.
const SECONDS: f64 = if cfg!(test) { 0.1 } else { 1.0 };
/// Bytes that are gone over: what is read was written just before.
const EXTENT: Size = Size(64 << 20);
/// So many disks are measured at most; the others are taken to be like these.
const MOST: usize = 8;

/// Measures the disks that pools are to be made of; nothing where there are none.
pub(super) fn measure(
    experiment: &Experiment,
    may_overwrite: bool,
    directory: &Path,
    stops: &mut dyn FnMut() -> bool,
) -> Result<Option<Rates>> {
    let disks: Vec<&PathBuf> = experiment.target.disks().iter().take(MOST).collect();
    let mut sum = [0.0; 3];
    for disk in &disks {
        // As for the pool, which comes after this; then held, so that no other process takes it meanwhile.
        in_use::claim_for_pool(disk, may_overwrite, directory)?;
        let _held = in_use::claim(disk, may_overwrite, directory)?;
        for (sum, rw) in sum.iter_mut().zip(["write", "read", "rw"]) {
            if stops() {
                return Err(Error::Stopped);
            }
            *sum += throughput(disk, rw, experiment.target.size().min(EXTENT), stops)?;
        }
    }
    let count = disks.len() as f64;
    let [write, read, mixed] = sum.map(|sum| sum / count);
    Ok((!disks.is_empty()).then_some(Rates { read, write, mixed }))
}

/// Bytes a second that one does in order, in pieces of 1 MiB.
fn throughput(disk: &Path, rw: &str, size: Size, stops: &mut dyn FnMut() -> bool) -> Result<f64> {
    let mut workload = Workload::of_options("limit", Default::default());
    (workload.rw, workload.bs, workload.iodepth) = (rw.to_owned(), Size(1 << 20), 8);
    workload.seconds = SECONDS;
    let arguments = fio::arguments(&workload, &Endpoint::Path(disk.to_owned()), size, 1);
    Ok(fio::run_unless(&arguments, stops)?.figures.throughput)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_measured_only_where_they_may_be_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        std::fs::write(&disk, vec![7; 4 << 20]).unwrap();
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"4M\"\ndisks = [\"{}\"]\n[[workload]]\nname \
             = \"w\"\nrw = \"read\"\n",
            disk.display()
        );
        let experiment = Experiment::parse(&text).unwrap();
        let of = |may| measure(&experiment, may, directory.path(), &mut || false);
        assert!(of(false).unwrap_err().to_string().contains("--overwrite"));
        assert_eq!(std::fs::read(&disk).unwrap(), vec![7; 4 << 20]);
        let rates = of(true).unwrap().unwrap();
        assert!(rates.read > 0.0 && rates.write > 0.0 && rates.mixed > 0.0, "{rates:?}");
        assert!(matches!(measure(&experiment, true, directory.path(), &mut || true), Err(Error::Stopped)));
        assert_eq!(experiment.target.facts().no_limit, None);
    }
}
