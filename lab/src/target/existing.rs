//! Volumes that hold data: what variants differ in is set on them, and set back.
//!
//! Before a run each property that some variant sets has the variant's value, or the one that it had before
//! the experiment. Another block size rewrites the volume while its clients go on; the volume that it was
//! before has another name then, and is destroyed at once, so that there is never room for more than one
//! copy needed.
//!
//! The file [`FORMER`] in the directory of results is written before the first change. It has the former
//! values, and the guids of volumes that the lab had rewritten: only these are destroyed, and never with
//! snapshots that others made of them meanwhile. What was set is set back by it when the experiment ends in
//! whatever way; after a kill, `resume` and `clean` do that.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Bench;
use crate::error::{Error, Result};
use crate::experiment::{SettingOwner, Settings, meaning};
use crate::fio::Endpoint;
use crate::programs::Programs;
use crate::progress::{Part, Progress};
use crate::site::Server;
use crate::site::existing::{BLOCK, LIVE, hanging};
use crate::size::Size;
use crate::store::Run;

/// The file of what the volume was before.
const FORMER: &str = "existing.json";
/// What the name has of a volume that was rewritten.
const KEPT: &str = ".volblocksize-";

/// What a volume was before the experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Former {
    volume: String,
    properties: Vec<Property>,
    /// The guids of volumes that were rewritten, and are not destroyed yet.
    rewritten: Vec<String>,
}

/// A property as `zfs get` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Property {
    name: String,
    value: String,
    source: String,
}

/// An end that is not waited for by a user.
struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: Option<Duration>, _: &str) {}
    fn ended(&self, _: &Run) {}
    fn stops(&self) -> bool {
        false
    }
}

/// Progress that cannot be stopped: what was changed is set back whatever the user does.
struct Unstoppable<'a>(&'a dyn Progress);

impl Progress for Unstoppable<'_> {
    fn begins(&self, done: usize, total: usize, left: Option<Duration>, what: &str) {
        self.0.begins(done, total, left, what);
    }
    fn ended(&self, run: &Run) {
        self.0.ended(run);
    }
    fn goes_on(&self, part: Part<'_>) {
        self.0.goes_on(part);
    }
    fn stops(&self) -> bool {
        false
    }
}

impl Former {
    /// That of an experiment in `directory`; nothing where nothing was changed.
    fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(FORMER);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::Results { path, what: error.to_string() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(&path)(error)),
        }
    }

    /// Keeps it, so that it outlives this process.
    fn keep(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(FORMER), directory.join(format!("{FORMER}.new")));
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Results { path: path.clone(), what: error.to_string() })?;
        fs::create_dir_all(directory).map_err(Error::file(directory))?;
        let write = || {
            fs::write(&new, &bytes)?;
            fs::File::open(&new)?.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(Error::file(&path))
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// The properties of a volume that can be set while it is used.
fn properties(programs: &dyn Programs, volume: &str) -> Result<Vec<Property>> {
    let told =
        programs.zfs(&words(["get", "-Hp", "-o", "property,value,source", &LIVE.join(","), volume]))?;
    let property = |line: &str| {
        let mut fields = line.split('\t').map(|field| field.trim().to_owned());
        Some(Property { name: fields.next()?, value: fields.next()?, source: fields.next()? })
    };
    Ok(told.lines().filter_map(property).collect())
}

/// Says which snapshot or bookmark was made since the experiment began: it would not stay with the volume.
fn require_nothing_hangs(programs: &dyn Programs, volume: &str) -> Result<()> {
    match hanging(programs, volume)? {
        None => Ok(()),
        Some(first) => Err(Error::Experiment(format!(
            "{first} was made since the experiment began, and would not stay with {volume} when that is \
             rewritten"
        ))),
    }
}

/// Sets a property back, where it is not as it was.
fn set_back(programs: &dyn Programs, volume: &str, former: &Property) -> Result<()> {
    let name = former.name.as_str();
    match former.source.as_str() {
        "local" => programs.zfs(&words(["set", &format!("{name}={}", former.value), volume])),
        "received" => programs.zfs(&words(["inherit", "-S", name, volume])),
        _ => programs.zfs(&words(["inherit", name, volume])),
    }
    .map(drop)
}

impl Bench<'_> {
    /// What the server of the target refuses of the experiment.
    ///
    /// # Errors
    /// It does not start.
    pub fn faults_of_server(&mut self) -> Result<Vec<String>> {
        let target = &self.experiment.target;
        if target.server() != Some(Server::Running) {
            return Ok(Vec::new());
        }
        self.servers.start(&Settings::new())?;
        Ok(target.faults_of_server(self.experiment.design(), self.servers.programs(&Settings::new())?))
    }

    /// The export of a volume that holds data, which is as these settings of a variant say.
    pub(super) fn at_existing(
        &mut self,
        volume: &str,
        settings: &Settings,
        progress: &dyn Progress,
    ) -> Result<Endpoint> {
        self.servers.start(&Settings::new())?;
        self.claims.require_consent(volume, &self.folders.results)?;
        let now = properties(self.servers.programs(&Settings::new())?, volume)?;
        let former = match Former::read(&self.folders.results)? {
            Some(former) => former,
            None => {
                let properties = now.clone();
                let former = Former { volume: volume.to_owned(), properties, rewritten: Vec::new() };
                former.keep(&self.folders.results)?;
                former
            }
        };
        self.changed = Some(volume.to_owned());
        let all = self.experiment.design().all_settings().into_iter().map(|(name, _)| name.as_str());
        let varied: Vec<&str> = all.filter(|name| SettingOwner::of(name) == SettingOwner::Dataset).collect();
        for was in former.properties.iter().filter(|it| varied.contains(&it.name.as_str())) {
            let is = now.iter().find(|it| it.name == was.name);
            let means = |value: &str| meaning(&was.name, value);
            match settings.get(&was.name) {
                Some(value) if is.is_some_and(|it| means(&it.value) == means(value)) => {}
                Some(value) if was.name == BLOCK => {
                    require_nothing_hangs(self.servers.programs(&Settings::new())?, volume)?;
                    self.rewrite(volume, value, progress)?;
                }
                Some(value) => {
                    let set = words(["set", &format!("{}={value}", was.name), volume]);
                    self.servers.programs(&Settings::new())?.zfs(&set)?;
                }
                None if is == Some(was) => {}
                None if was.name == BLOCK => self.rewrite(volume, &was.value, progress)?,
                None => set_back(self.servers.programs(&Settings::new())?, volume, was)?,
            }
        }
        self.servers.programs(&Settings::new())?.volume(volume)
    }

    /// Gives a volume blocks of another size, and destroys what it was before.
    fn rewrite(&mut self, volume: &str, block: &str, progress: &dyn Progress) -> Result<()> {
        let size: Size = block.parse().map_err(Error::Experiment)?;
        let path = self.folders.results.join(FORMER);
        let lost = || Error::Results { path, what: "it is gone".to_owned() };
        let mut former = Former::read(&self.folders.results)?.ok_or_else(lost)?;
        let began = Instant::now();
        let programs = self.servers.programs(&Settings::new())?;
        let guid = programs.zfs(&words(["get", "-Hp", "-o", "value", "guid", volume]))?;
        former.rewritten.push(guid.trim().to_owned());
        former.keep(&self.folders.results)?;
        let what = format!("rewriting {volume} for {BLOCK}={size}");
        let mut goes_on = |done, total| {
            progress.goes_on(Part { what: &what, done, total, elapsed: began.elapsed() });
        };
        programs.reshape(volume, size, &mut goes_on, &|| progress.stops())?;
        self.destroy_rewritten(&mut former)?;
        self.remarks.rewritten(began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Destroys the volumes that the lab had rewritten. What cannot be destroyed is told once.
    fn destroy_rewritten(&self, former: &mut Former) -> Result<()> {
        let programs = self.servers.programs(&Settings::new())?;
        let (parent, _) = former.volume.rsplit_once('/').unwrap_or_default();
        // A copy may be complete before listings show that it has the name.
        programs.zpool(&words(["sync", parent.split('/').next().unwrap_or_default()]))?;
        let listed = words(["get", "-Hp", "-d", "1", "-t", "volume", "-o", "name,value", "guid", parent]);
        let listed = programs.zfs(&listed)?;
        let listed: Vec<(&str, &str)> =
            listed.lines().filter_map(|line| line.trim().split_once('\t')).collect();
        let mut first = Ok(());
        for guid in std::mem::take(&mut former.rewritten) {
            match listed.iter().find(|(_, of)| *of == guid) {
                // It was not rewritten in the end.
                Some((name, _)) if *name == former.volume => former.rewritten.push(guid),
                Some((name, _)) if name.contains(KEPT) => {
                    // Without -r: a snapshot that others made of it is not the lab's to destroy.
                    let destroyed = programs.zfs(&words(["destroy", name])).map_err(|error| {
                        let volume = &former.volume;
                        Error::Experiment(format!(
                            "{name} is what {volume} was before it was rewritten, and is kept: {error}"
                        ))
                    });
                    first = first.and(destroyed.map(drop));
                }
                _ => {}
            }
        }
        former.keep(&self.folders.results)?;
        first
    }

    /// Whether something is to be set back about a volume that holds data.
    pub fn is_to_be_set_back(&self) -> bool {
        self.folders.results.join(FORMER).exists()
    }

    /// Sets back what this experiment changed about a volume that holds data, also before it was killed.
    ///
    /// # Errors
    /// That is not possible now; what was before stays noted.
    pub fn set_back(&mut self, progress: &dyn Progress) -> Result<()> {
        self.changed = None;
        let Some(mut former) = Former::read(&self.folders.results)? else { return Ok(()) };
        self.servers.start(&Settings::new())?;
        let volume = former.volume.clone();
        let mut kept = Ok(());
        if !former.rewritten.is_empty() {
            self.servers.programs(&Settings::new())?.cancel_reshape(&volume)?;
            kept = self.destroy_rewritten(&mut former);
        }
        for was in &former.properties {
            let now = properties(self.servers.programs(&Settings::new())?, &volume)?;
            match now.iter().find(|it| it.name == was.name) {
                Some(is) if is == was => {}
                Some(is) if was.name == BLOCK && is.value == was.value => {}
                _ if was.name == BLOCK => {
                    kept = kept.and(self.rewrite(&volume, &was.value, &Unstoppable(progress)));
                }
                _ => set_back(self.servers.programs(&Settings::new())?, &volume, was)?,
            }
        }
        let now = properties(self.servers.programs(&Settings::new())?, &volume)?;
        let is_as_before = |was: &Property| now.iter().any(|is| is.name == was.name && is.value == was.value);
        if former.properties.iter().all(is_as_before) {
            let path = self.folders.results.join(FORMER);
            fs::remove_file(&path).map_err(Error::file(&path))?;
        }
        // What is kept is told once.
        kept
    }

    /// The same, where this process changed something and no progress is shown.
    pub(super) fn set_back_silently(&mut self) -> Result<()> {
        if self.changed.is_some() { self.set_back(&Silent) } else { Ok(()) }
    }
}
