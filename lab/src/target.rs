//! Where variants live.
//!
//! A variant's volume is made once, filled once, and used by every round. Variants that differ in what only a whole pool can have (`layout`, `log`, `ashift`) have pools of
//! their own; all others share one, so that they share its free space and its age as well.
//!
//! | in the experiment's directory | what |
//! |---|---|
//! | `devices/lab0-0`, `devices/lab0-1` … | the devices of pool `lab0` |
//! | `devices/modelled/MODEL/lab0-0` | devices that play a medium: the experiment's own daemon slows them down by their directory |
//! | `devices/raw` | the file that the raw device is measured by |
//!
//! The programs that make pools and volumes are behind [`Programs`]: this system's own, in a process of their own, or those of a host that runs OpenZFS.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::experiment::{Experiment, Place, Target};
use crate::fio::{self, Endpoint};
use crate::layout::Layout;
use crate::models::speed;
use crate::plan::{Variant, VariantKind};
use crate::size::Size;

/// A device is at least this large.
const LEAST_DEVICE_BYTES: u64 = 256 << 20;

/// Counters that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes read from the pool's devices.
    pub read_bytes: u64,
    /// Bytes written to them.
    pub written_bytes: u64,
    /// CPU time of whoever serves, in seconds.
    pub cpu_seconds: f64,
    /// The most memory it held, in bytes.
    pub peak_memory_bytes: u64,
}

/// `zpool` and `zfs` of some system, and what its volumes are reached by.
pub trait Programs {
    /// Runs `zpool`; what it printed.
    fn zpool(&self, arguments: &[String]) -> Result<String>;
    /// Runs `zfs`; what it printed.
    fn zfs(&self, arguments: &[String]) -> Result<String>;
    /// Where the volume `name` is.
    fn volume(&self, name: &str) -> Result<Endpoint>;
    /// What was done until now to the devices of a pool, and by whoever serves it; `None` where that cannot be told.
    fn counters(&self, pool: &str) -> Result<Option<Counters>>;
}

/// The programs of a host that runs OpenZFS in its kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelPrograms;

impl Programs for KernelPrograms {
    fn zpool(&self, arguments: &[String]) -> Result<String> {
        output(Command::new("zpool").args(arguments))
    }

    fn zfs(&self, arguments: &[String]) -> Result<String> {
        output(Command::new("zfs").args(arguments))
    }

    fn volume(&self, name: &str) -> Result<Endpoint> {
        let path = Path::new("/dev/zvol").join(name);
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
    let output = command.stdin(Stdio::null()).output().map_err(|error| Error::Missing { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed { command: words.join(" "), output: said })
}

/// The variants' volumes, made as they are needed.
pub struct Bench<'a> {
    experiment: &'a Experiment,
    programs: Option<Box<dyn Programs + 'a>>,
    devices: PathBuf,
    /// The pools that were made, by the settings that only a pool can have.
    pools: BTreeMap<BTreeMap<String, String>, String>,
    /// The volumes that were made, by the variant's name: pool and dataset.
    volumes: BTreeMap<String, (String, String)>,
    raw_is_filled: bool,
}

impl<'a> Bench<'a> {
    /// For an experiment whose files are in `directory`. A target with volumes needs the programs.
    pub fn new(
        experiment: &'a Experiment,
        directory: &Path,
        programs: Option<Box<dyn Programs + 'a>>,
    ) -> Self {
        Self {
            experiment,
            programs,
            devices: directory.join("devices"),
            pools: BTreeMap::new(),
            volumes: BTreeMap::new(),
            raw_is_filled: false,
        }
    }

    fn programs(&self) -> Result<&dyn Programs> {
        let programs = self.programs.as_deref();
        programs.ok_or_else(|| Error::Experiment("this target has no volumes".into()))
    }

    /// Where a variant is measured; it is made where it does not exist.
    pub fn endpoint(&mut self, variant: &Variant) -> Result<Endpoint> {
        match &self.experiment.target {
            Target::Path { path, size } => {
                make_file(path, size.0)?;
                Ok(Endpoint::Path(path.clone()))
            }
            Target::Nbd { uri, .. } => Ok(Endpoint::Nbd(uri.clone())),
            Target::Volume { size, .. } if variant.kind == VariantKind::Device => {
                let raw = self.devices.join("raw");
                make_file(&raw, size.0)?;
                let endpoint = Endpoint::Path(raw);
                if !self.raw_is_filled {
                    self.fill(&endpoint)?;
                    self.raw_is_filled = true;
                }
                Ok(endpoint)
            }
            Target::Volume { .. } | Target::Host { .. } => {
                if let Some((_, dataset)) = self.volumes.get(&variant.name) {
                    return self.programs()?.volume(dataset);
                }
                let (pool, parent) = self.parent(variant)?;
                let dataset = format!("{parent}/lab-{}-{}", std::process::id(), self.volumes.len());
                self.make_volume(variant, &dataset)?;
                self.volumes.insert(variant.name.clone(), (pool, dataset.clone()));
                let endpoint = self.programs()?.volume(&dataset)?;
                self.fill(&endpoint)?;
                Ok(endpoint)
            }
        }
    }

    /// The pool and the dataset below which a variant's volume belongs.
    fn parent(&mut self, variant: &Variant) -> Result<(String, String)> {
        if let Target::Host { dataset, .. } = &self.experiment.target {
            let pool = dataset.split('/').next().unwrap_or_default().to_owned();
            return Ok((pool, dataset.clone()));
        }
        let settings = variant.settings.iter().filter(|(name, _)| Place::of(name) == Place::Pool);
        let settings: BTreeMap<String, String> =
            settings.map(|(name, value)| (name.clone(), value.clone())).collect();
        if let Some(pool) = self.pools.get(&settings) {
            return Ok((pool.clone(), pool.clone()));
        }
        let pool = format!("lab{}", self.pools.len());
        self.make_pool(&pool, &settings)?;
        self.pools.insert(settings, pool.clone());
        Ok((pool.clone(), pool))
    }

    fn make_pool(&self, pool: &str, settings: &BTreeMap<String, String>) -> Result<()> {
        let Target::Volume { size, layout, device_size, devices, .. } = &self.experiment.target else {
            return Ok(());
        };
        let layout = settings.get("layout").unwrap_or(layout);
        // Room for the volumes of all variants, were they all in one pool.
        let variants =
            2 + self.experiment.factors.iter().map(|factor| factor.values.len()).sum::<usize>() as u64;
        let room = Size(size.0.saturating_mul(2 * variants).max(LEAST_DEVICE_BYTES));
        let device_size = device_size.unwrap_or(room);
        let mut count = 0;
        let mut device = |model: Option<&String>| -> Result<String> {
            let directory = match model {
                Some(model) => modelled(&self.devices).join(speed::device(model)?.name),
                None => self.devices.clone(),
            };
            let path = directory.join(format!("{pool}-{count}"));
            count += 1;
            let _ = fs::remove_file(&path);
            make_file(&path, device_size.0)?;
            Ok(path.display().to_string())
        };
        let mut arguments: Vec<String> = vec!["create".into(), "-f".into(), "-m".into(), "none".into()];
        for (name, value) in
            settings.iter().filter(|(name, _)| !matches!(name.as_str(), "layout" | "log" | "devices"))
        {
            arguments.extend(["-o".to_owned(), format!("{name}={value}")]);
        }
        arguments.push(pool.to_owned());
        for vdev in layout.parse::<Layout>()?.vdevs() {
            arguments.extend(vdev.keyword());
            for _ in 0..vdev.devices() {
                arguments.push(device(settings.get("devices").or(devices.as_ref()))?);
            }
        }
        match settings.get("log") {
            Some(log) if log == "file" => arguments.extend(["log".to_owned(), device(None)?]),
            Some(log) if log != "none" => arguments.extend(["log".to_owned(), device(Some(log))?]),
            _ => {}
        }
        self.programs()?.zpool(&arguments).map(|_| ())
    }

    fn make_volume(&self, variant: &Variant, dataset: &str) -> Result<()> {
        let mut arguments: Vec<String> = vec!["create".into(), "-s".into()];
        for (name, value) in variant.settings.iter().filter(|(name, _)| Place::of(name) == Place::Volume) {
            arguments.extend(["-o".to_owned(), format!("{name}={value}")]);
        }
        arguments.extend(["-V".to_owned(), self.experiment.target.size().0.to_string(), dataset.to_owned()]);
        self.programs()?.zfs(&arguments).map(|_| ())
    }

    /// Writes all of a volume once, so that no run finds it empty.
    fn fill(&self, endpoint: &Endpoint) -> Result<()> {
        let mut workload = match self.experiment.workloads.first() {
            Some(workload) => workload.clone(),
            None => return Ok(()),
        };
        workload.rw = "write".into();
        workload.bs = Size((1 << 20).min(self.experiment.target.size().0));
        workload.iodepth = 4;
        workload.ramp_seconds = 0.0;
        workload.options.clear();
        let mut arguments = fio::arguments(&workload, endpoint, self.experiment.target.size(), 1);
        arguments.retain(|argument| !argument.starts_with("--runtime") && argument != "--time_based");
        fio::run(&arguments).map(|_| ())
    }

    /// Waits until all that was written is on the devices, so that no run pays for the one before.
    pub fn settle(&self, variant: &Variant) -> Result<()> {
        match self.volumes.get(&variant.name) {
            Some((pool, _)) => self.programs()?.zpool(&["sync".to_owned(), pool.clone()]).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Empties the caches that can be emptied.
    pub fn make_cold(&self, variant: &Variant) -> Result<()> {
        // Only root may, and only the page cache of files is in question.
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
        if let (Some((pool, _)), Target::Volume { .. }) =
            (self.volumes.get(&variant.name), &self.experiment.target)
        {
            let programs = self.programs()?;
            programs.zpool(&["export".to_owned(), pool.clone()])?;
            let mut arguments = vec!["import".to_owned()];
            for directory in self.device_directories() {
                arguments.extend(["-d".to_owned(), directory.display().to_string()]);
            }
            arguments.push(pool.clone());
            programs.zpool(&arguments)?;
        }
        Ok(())
    }

    /// Where the pools' devices are.
    fn device_directories(&self) -> Vec<PathBuf> {
        let models = fs::read_dir(modelled(&self.devices)).into_iter().flatten().flatten();
        std::iter::once(self.devices.clone()).chain(models.map(|entry| entry.path())).collect()
    }

    /// The counters of whoever serves a variant.
    pub fn counters(&self, variant: &Variant) -> Result<Option<Counters>> {
        match self.volumes.get(&variant.name) {
            Some((pool, _)) => self.programs()?.counters(pool),
            None => Ok(None),
        }
    }

    /// Bytes that a variant's volume takes, and bytes in it.
    pub fn space(&self, variant: &Variant) -> Result<Option<(u64, u64)>> {
        let Some((_, dataset)) = self.volumes.get(&variant.name) else { return Ok(None) };
        let words = ["get", "-Hp", "-o", "value", "used,logicalused", dataset];
        let text = self.programs()?.zfs(&words.map(str::to_owned))?;
        let mut values = text.lines().map(|line| line.trim().parse().ok());
        Ok(values.next().flatten().zip(values.next().flatten()))
    }

    /// Removes all that was made.
    pub fn remove(&mut self) -> Result<()> {
        let mut first = Ok(());
        if let Some(programs) = self.programs.as_deref() {
            if matches!(self.experiment.target, Target::Host { .. }) {
                for (_, dataset) in self.volumes.values() {
                    let destroyed = programs.zfs(&["destroy".to_owned(), dataset.clone()]);
                    first = first.and(destroyed.map(|_| ()));
                }
            }
            for pool in self.pools.values() {
                let destroyed = programs.zpool(&["destroy".to_owned(), "-f".to_owned(), pool.clone()]);
                first = first.and(destroyed.map(|_| ()));
            }
        }
        self.volumes.clear();
        self.pools.clear();
        self.raw_is_filled = false;
        match fs::remove_dir_all(&self.devices) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                first.and(Err(error).map_err(Error::file(&self.devices)))
            }
            _ => first,
        }
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // An error was told before, or is told when the directory is used again.
        let _ = self.remove();
    }
}

/// The directory of devices that play a medium, below that of all devices.
fn modelled(devices: &Path) -> PathBuf {
    devices.join("modelled")
}

/// The same, for the daemon that slows them down, made where it does not exist. `directory` is the experiment's.
pub fn modelled_devices(directory: &Path) -> Result<PathBuf> {
    let modelled = modelled(&directory.join("devices"));
    fs::create_dir_all(&modelled).map_err(Error::file(&modelled))?;
    Ok(modelled)
}

/// A sparse file of at least `bytes`; a block device stays as it is.
fn make_file(path: &Path, bytes: u64) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    let file =
        File::options().write(true).create(true).truncate(false).open(path).map_err(Error::file(path))?;
    let metadata = file.metadata().map_err(Error::file(path))?;
    if metadata.is_file() && metadata.len() < bytes {
        file.set_len(bytes).map_err(Error::file(path))?;
    }
    Ok(())
}
