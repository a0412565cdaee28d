//! `zpool` and `zfs` as the lab uses them: this program's own, in a process of their own, or those of a host
//! that runs OpenZFS.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::experiment::{NBD, THROUGH};
use crate::fio::Endpoint;
use crate::guest::Wire;
use crate::load::Load;
use crate::size::Size;

/// Counters that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes read from the pool's devices.
    pub read_bytes: u64,
    /// Bytes written to them.
    pub written_bytes: u64,
    /// CPU time of the serving process, in seconds.
    pub cpu_seconds: f64,
    /// The most memory it held since it was asked the last time, in bytes.
    pub peak_memory_bytes: u64,
    /// Written bytes layer by layer, if known.
    #[serde(default)]
    pub layers: Option<Layers>,
    /// Whether they count more than what a run measured: then no figure is made of them but that of memory.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_of_more: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The bytes that a client wrote, layer by layer: each is written because of the one before, or
/// beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Layers {
    /// Whole blocks of data, before compression.
    pub logical: u64,
    /// The same after compression.
    pub compressed: u64,
    /// The same with copies, parity and padding.
    pub allocated: u64,
    /// The same, once for each device of a mirror. Results from before it was counted do not have it, and
    /// their metadata and logs count a mirror once.
    #[serde(default)]
    pub mirrored: Option<u64>,
    /// Pointers, dnodes, space maps and all else that describes data, once for each device of a mirror.
    pub metadata: u64,
    /// Intent logs, once for each device of a mirror.
    pub log: u64,
    /// All that went to the devices.
    pub device: u64,
}

impl Layers {
    /// The layers' names, from the client to the devices.
    pub const NAMES: [&'static str; 7] =
        ["logical", "compressed", "allocated", "mirrored", "metadata", "intent log", "devices"];

    /// Their bytes, in that order, where they were counted.
    pub fn bytes(&self) -> [Option<u64>; 7] {
        let [before, after] =
            [[self.logical, self.compressed, self.allocated], [self.metadata, self.log, self.device]];
        let ([logical, compressed, allocated], [metadata, log, device]) = (before.map(Some), after.map(Some));
        [logical, compressed, allocated, self.mirrored, metadata, log, device]
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            logical: self.logical.saturating_sub(before.logical),
            compressed: self.compressed.saturating_sub(before.compressed),
            allocated: self.allocated.saturating_sub(before.allocated),
            mirrored: self.mirrored.zip(before.mirrored).map(|(now, before)| now.saturating_sub(before)),
            metadata: self.metadata.saturating_sub(before.metadata),
            log: self.log.saturating_sub(before.log),
            device: self.device.saturating_sub(before.device),
        }
    }
}

impl Counters {
    /// The difference of the counters since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            cpu_seconds: (self.cpu_seconds - before.cpu_seconds).max(0.0),
            peak_memory_bytes: self.peak_memory_bytes,
            layers: self.layers.zip(before.layers).map(|(now, before)| now.since(&before)),
            is_of_more: self.is_of_more,
        }
    }
}

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

/// Runs a program to its end; what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Ctrl-C is for the lab, which ends in order.
    let output = command
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .map_err(|error| Error::Missing { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed { command: words.join(" "), output: said })
}
