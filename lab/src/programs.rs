//! `zpool` and `zfs` as the lab uses them: this program's own, in a process of their own, or those of a host
//! that runs OpenZFS.

use std::path::PathBuf;
use std::process::Command;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::fio::Endpoint;
use crate::guest::Wire;
use crate::load::Load;
use crate::setting::{NBD, THROUGH};
use crate::size::Size;
use crate::subprocess::output;

/// `zpool` and `zfs` of some system, and what its volumes are reached by.
pub trait Programs {
    /// Runs `zpool`; what it printed.
    fn zpool(&self, arguments: &[String]) -> Result<String>;
    /// Runs `zfs`; what it printed.
    fn zfs(&self, arguments: &[String]) -> Result<String>;
    /// Where the volume `name` is.
    fn volume(&self, name: &str) -> Result<Endpoint>;
    /// The counters of a pool's devices and of its serving process so far; `None` where that cannot
    /// be known.
    fn counters(&self, pool: &str) -> Result<Option<Counters>>;
    /// Has the process that has the pool open do `load` to the volume `name`, unless `stops` says that it is
    /// to stop; how it went, as fio's JSON says it.
    fn load(&self, name: &str, load: &Load, stops: &dyn Fn() -> bool) -> Result<String> {
        let _ = (load, stops);
        Err(Error::Experiment(format!(
            "the server of {name} runs no load by itself: measure it with {THROUGH}={NBD}"
        )))
    }
    /// Where QEMU finds the volume `name` by a protocol: a socket's path or a URI.
    fn wire(&self, name: &str, wire: Wire) -> Result<String> {
        Err(Error::Experiment(format!("the server of {name} serves no guests by {wire:?}")))
    }
    /// Has this machine's kernel make a block device of the volume `name`: its path.
    fn block_device(&self, name: &str) -> Result<PathBuf> {
        Err(Error::Experiment(format!("the server of {name} makes no block devices")))
    }
    /// A folder for sockets, whose path is short, and which goes with the server.
    fn sockets(&self) -> Result<PathBuf> {
        Err(Error::Experiment("this target's server has no folder for guests".into()))
    }
    /// Sets tunables of the process that has the pools open, or sets them back.
    fn tune(&self, tunables: &[(String, Option<String>)]) -> Result<()> {
        match tunables.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::Experiment(format!("the server of this target has no tunables to set: '{name}'")))
            }
        }
    }
    /// Why a volume that holds data cannot be given blocks of another size; nothing where it can.
    fn reshape_fault(&self, volume: &str, block: Size) -> Result<Option<String>> {
        Ok(Some(format!("the server of {volume} gives no volume blocks of {block}")))
    }
    /// Gives a volume blocks of another size while its clients go on, unless `stops` says that it is to stop;
    /// `goes_on` gets the bytes that are done, and all. The volume that it was before has another name then.
    fn reshape(
        &self,
        volume: &str,
        block: Size,
        goes_on: &mut dyn FnMut(Size, Size),
        stops: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _ = (goes_on, stops);
        Err(Error::Experiment(format!("the server of {volume} gives no volume blocks of {block}")))
    }
    /// Gives that up, where it is under way.
    fn cancel_reshape(&self, volume: &str) -> Result<()> {
        let _ = volume;
        Ok(())
    }
    /// Requests of the clients of the volume `name` that take long, with what each waits for; nothing where
    /// that is not known.
    fn waiting(&self, name: &str) -> Option<Vec<String>> {
        let _ = name;
        None
    }
    /// Why a pool takes nothing that is written any more, if that is so and known.
    fn lost(&self, pool: &str) -> Option<String> {
        let _ = pool;
        None
    }
}

/// The programs of a host that runs OpenZFS in its kernel.
#[derive(Debug, Clone)]
pub struct KernelPrograms {
    zpool: PathBuf,
    zfs: PathBuf,
    volumes: PathBuf,
}

impl Default for KernelPrograms {
    /// Those of this host.
    fn default() -> Self {
        Self::at("zpool", "zfs", "/dev/zvol")
    }
}

impl KernelPrograms {
    /// The two commands, and the directory where volumes appear under their names.
    pub fn at(zpool: impl Into<PathBuf>, zfs: impl Into<PathBuf>, volumes: impl Into<PathBuf>) -> Self {
        Self { zpool: zpool.into(), zfs: zfs.into(), volumes: volumes.into() }
    }
}

impl Programs for KernelPrograms {
    fn zpool(&self, arguments: &[String]) -> Result<String> {
        output(Command::new(&self.zpool).args(arguments))
    }

    fn zfs(&self, arguments: &[String]) -> Result<String> {
        output(Command::new(&self.zfs).args(arguments))
    }

    fn volume(&self, name: &str) -> Result<Endpoint> {
        let path = self.volumes.join(name);
        for _ in 0..100 {
            if path.exists() {
                return Ok(Endpoint::Path(path));
            }
            // The link is made by udev.
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Err(Error::Output {
            program: "zfs",
            what: format!("the volume {name} does not appear at {}", path.display()),
        })
    }

    fn counters(&self, _: &str) -> Result<Option<Counters>> {
        Ok(None)
    }
}
