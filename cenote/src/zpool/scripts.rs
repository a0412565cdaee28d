//! `-c` of `zpool status` and `zpool iostat`: scripts of the user that run for each device and whose output
//! becomes columns.
//!
//! A script learns of its device by its environment, which contains nothing else, and writes lines:
//! `COLUMN=VALUE`, or a value without a column as its last line. The command runs the script itself, so that
//! it has the rights of the user and never those of the daemon; root must ask for that in the environment.
//!
//! A device's path may come from a label, that is, from whatever system made the disk, and not every script
//! quotes it. So scripts run only for devices that exist at that path.
//!
//! Source of the facts: OpenZFS 2.3 `zpool-iostat.8`, `zpool_iter.c`, `zpool.d`.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use device::IgnorePoison;
use serde_json::{Map, Value};
use server::api::VdevNode;

use super::vdevs::strip_partition;
use crate::output;
use crate::remotes;
use crate::table::{pad_left, pad_right};

/// Where scripts are, besides `.zpool.d` at home.
const SYSTEM_DIRECTORY: &str = "/etc/zfs/zpool.d";
/// Where scripts find the programs that they run.
const SCRIPT_PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";
/// Most of what a script says that is looked at, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// Scripts that run at once, for each processor: they mostly wait for devices.
const SCRIPTS_PER_PROCESSOR: usize = 5;

/// The option, and what it asks for.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Scripts {
    /// Run scripts for each device and show their output; without a name, list the scripts
    #[arg(short = 'c', value_name = "SCRIPT,…", num_args = 0..=1, default_missing_value = "")]
    scripts: Option<String>,
}

impl Scripts {
    /// Whether there is a script to run.
    pub fn are_given(&self) -> bool {
        self.scripts.is_some()
    }

    /// Whether they are to be listed instead of run.
    pub fn are_to_be_listed(&self) -> bool {
        self.scripts.as_deref() == Some("")
    }

    /// Prints the names of all scripts, with what each says of itself.
    pub fn list(&self, command: &str) -> Result<()> {
        let mut text = format!("Available 'zpool {command} -c' commands:\n");
        let may_run = permit().is_ok();
        for directory in directories() {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let mut scripts: Vec<PathBuf> =
                entries.map(|entry| entry.path()).filter(|path| is_script(path)).collect();
            scripts.sort();
            for script in scripts {
                let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let help =
                    may_run.then(|| run(Command::new(&script).arg("-h"))).flatten().unwrap_or_default();
                let help = help.lines().filter(|line| !line.trim().is_empty());
                let lines: Vec<&str> = if may_run { help.collect() } else { vec![""] };
                text.extend(lines.iter().map(|line| format!("  {}  {line}\n", pad_right(&name, 14))));
            }
        }
        output::print(&text)
    }

    /// The scripts to run, if they may be run and are all there.
    pub fn find(&self) -> Result<Vec<PathBuf>> {
        let Some(names) = &self.scripts else { return Ok(Vec::new()) };
        permit()?;
        let directories = directories();
        let find = |name: &str| {
            // A path would lead out of the directories.
            let is_name = !name.contains('/');
            let found = directories.iter().map(|directory| directory.join(name)).find(|path| is_script(path));
            found.filter(|_| is_name).with_context(|| {
                let directories: Vec<_> = directories.iter().map(|path| path.display().to_string()).collect();
                format!("no script '{name}' in {}", directories.join(" or "))
            })
        };
        names.split(',').filter(|name| !name.is_empty()).map(find).collect()
    }
}

/// Whether scripts may be run at all.
fn permit() -> Result<()> {
    if remotes::is_afar() {
        return Err(anyhow!(
            "Can't run -c: scripts look at devices of this machine, and another one is meant."
        ));
    }
    if std::env::var_os("ZPOOL_SCRIPTS_ENABLED").is_some() && !is_set("ZPOOL_SCRIPTS_ENABLED") {
        return Err(anyhow!("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED."));
    }
    let is_root = rustix::process::getuid().is_root() || rustix::process::geteuid().is_root();
    if is_root && !is_set("ZPOOL_SCRIPTS_AS_ROOT") {
        return Err(anyhow!("Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set."));
    }
    Ok(())
}

/// Whether a variable of the environment says yes.
fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| says_yes(&value))
}

fn says_yes(value: &str) -> bool {
    let is_word = ["yes", "on"].iter().any(|word| value.eq_ignore_ascii_case(word));
    is_word || value.trim_start().parse::<u64>().is_ok_and(|number| number > 0)
}

fn directories() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("ZPOOL_SCRIPTS_PATH") {
        return std::env::split_paths(&path).collect();
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".zpool.d"));
    home.into_iter().chain([PathBuf::from(SYSTEM_DIRECTORY)]).collect()
}

fn is_script(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The output of a command, if it succeeds.
fn run(command: &mut Command) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut said = Vec::new();
    // Who says more finds the pipe closed.
    let read = child.stdout.take().map(|out| out.take(MAX_OUTPUT).read_to_end(&mut said));
    let ended = child.wait().ok()?;
    (ended.success() && matches!(read, Some(Ok(_)))).then(|| String::from_utf8_lossy(&said).into_owned())
}

/// The output of the scripts for one device.
#[derive(Debug, Clone, Default, PartialEq)]
struct Words {
    columns: Vec<(String, String)>,
    /// Values without a column.
    more: Vec<String>,
}

impl Words {
    /// Takes what one script wrote. A column that is there already stays, and a value without one ends it.
    fn take(&mut self, said: &str) {
        for line in said.lines() {
            let Some((column, value)) = line.split_once('=') else {
                self.more.push(line.to_owned());
                return;
            };
            if self.of(column).is_none() {
                self.columns.push((column.to_owned(), value.to_owned()));
            }
        }
    }

    fn of(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str())
    }
}

/// The output of the scripts for all devices.
#[derive(Debug, Default)]
pub struct Said {
    /// All columns with their widths, in the order in which they were first met.
    columns: Vec<(String, usize)>,
    /// By pool and path of the device.
    devices: HashMap<(String, String), Words>,
}

impl Said {
    /// Runs scripts for those of the vdevs that are devices, each with the name of its pool.
    pub fn ask<'a>(scripts: &[PathBuf], vdevs: impl IntoIterator<Item = (&'a str, &'a VdevNode)>) -> Self {
        let mut devices: Vec<(&str, &str)> = Vec::new();
        let present = vdevs.into_iter().filter(|(_, vdev)| !scripts.is_empty() && !vdev.not_present);
        for (pool, path) in present.filter_map(|(pool, vdev)| Some((pool, vdev.path.as_deref()?))) {
            // A spare in use is met twice.
            if !devices.contains(&(pool, path)) && Path::new(path).exists() {
                devices.push((pool, path));
            }
        }
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = devices.len().min(processors * SCRIPTS_PER_PROCESSOR);
        let waiting = Mutex::new(devices.iter());
        let (send, answers) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let (send, waiting) = (send.clone(), &waiting);
                scope.spawn(move || {
                    let next = || waiting.lock().ignore_poison().next();
                    while let Some(device) = next() {
                        // Fails only when the receiver is gone.
                        let _ = send.send((*device, words_of(scripts, *device)));
                    }
                });
            }
        });
        drop(send);
        let mut answers: HashMap<_, _> = answers.into_iter().collect();
        let ordered = devices.iter().filter_map(|device| Some((*device, answers.remove(device)?)));
        Self::of(ordered)
    }

    fn of<'a>(devices: impl Iterator<Item = ((&'a str, &'a str), Words)>) -> Self {
        let mut said = Self::default();
        for ((pool, path), words) in devices {
            for (column, value) in &words.columns {
                match said.columns.iter_mut().find(|(name, _)| name == column) {
                    Some((_, width)) => *width = (*width).max(value.len()),
                    None => said.columns.push((column.clone(), column.len().max(value.len()))),
                }
            }
            said.devices.insert((pool.to_owned(), path.to_owned()), words);
        }
        said
    }

    /// The headings of the columns.
    pub fn headings(&self) -> String {
        self.columns.iter().map(|(name, width)| format!("  {}", pad_left(name, *width))).collect()
    }

    /// Dashes below the headings.
    pub fn dashes(&self) -> String {
        self.columns.iter().map(|(_, width)| format!("  {}", "-".repeat(*width))).collect()
    }

    fn words(&self, pool: &str, path: Option<&str>) -> Option<&Words> {
        self.devices.get(&(pool.to_owned(), path?.to_owned()))
    }

    /// The value of each column, a dash where there is none.
    fn values<'a>(&'a self, words: &'a Words) -> impl Iterator<Item = (&'a str, &'a str, usize)> {
        self.columns.iter().map(|(name, width)| {
            let value = words.of(name).filter(|value| !value.trim().is_empty()).unwrap_or("-");
            (name.as_str(), value, *width)
        })
    }

    /// The end of the line of a vdev with this path.
    pub fn line(&self, pool: &str, path: Option<&str>) -> String {
        let Some(words) = self.words(pool, path) else { return String::new() };
        let columns = self.values(words).map(|(_, value, width)| format!("  {}", pad_left(value, width)));
        columns.chain(words.more.iter().map(|value| format!("  {value}"))).collect()
    }

    /// The same for JSON: one text for each column.
    pub fn add_json(&self, pool: &str, path: Option<&str>, item: &mut Map<String, Value>) {
        let Some(words) = self.words(pool, path) else { return };
        item.extend(self.values(words).map(|(name, value, _)| (name.to_owned(), value.into())));
        let more = (1u32..).zip(&words.more);
        item.extend(more.map(|(number, value)| (format!("extra_{number}"), value.as_str().into())));
    }
}

/// The output of all scripts for a device.
fn words_of(scripts: &[PathBuf], (pool, path): (&str, &str)) -> Words {
    let (underlying, enclosure) = underlying(Path::new(path));
    let mut words = Words::default();
    for script in scripts {
        let mut command = Command::new(script);
        command.env_clear().env("PATH", SCRIPT_PATH).env("POOL_NAME", pool).env("VDEV_PATH", path);
        command
            .env("VDEV_UPATH", &underlying)
            .env("VDEV_ENC_SYSFS_PATH", enclosure.as_deref().unwrap_or(Path::new("")));
        words.take(&run(&mut command).unwrap_or_default());
    }
    words
}

/// The disk that a device is on, and its slot in an enclosure where the kernel knows that. Of the paths to
/// one disk the first that has a slot.
fn underlying(path: &Path) -> (PathBuf, Option<PathBuf>) {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(name) = real.file_name().and_then(|name| name.to_str()) else { return (real, None) };
    if !fs::metadata(&real).is_ok_and(|file| file.file_type().is_block_device()) {
        return (real, None);
    }
    let slaves = names_in(&Path::new("/sys/block").join(name).join("slaves"));
    let of_slave = slaves.iter().find_map(|slave| Some((slave.as_str(), enclosure(strip_partition(slave))?)));
    let disk = of_slave.as_ref().map(|(slave, _)| *slave).or(slaves.first().map(String::as_str));
    let disk = strip_partition(disk.unwrap_or(name));
    let slot = of_slave.map(|(_, slot)| slot).or_else(|| enclosure(disk));
    (Path::new("/dev").join(disk), slot)
}

/// The slot of a disk in its enclosure.
fn enclosure(disk: &str) -> Option<PathBuf> {
    let device = Path::new("/sys/block").join(disk).join("device");
    let link = names_in(&device).into_iter().find(|name| name.starts_with("enclosure_device"))?;
    fs::canonicalize(device.join(link)).ok()
}

/// The names in a directory, in order.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(said: &[&str]) -> Words {
        let mut words = Words::default();
        said.iter().for_each(|said| words.take(said));
        words
    }

    #[test]
    fn the_first_value_of_a_column_stays_and_a_bare_value_ends_a_script() {
        let found = words(&["size=1G\nsize=2G\nbare\nnever=seen\n", "temp=30\n"]);
        let columns =
            [("size", "1G"), ("temp", "30")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, Words { columns: columns.to_vec(), more: vec!["bare".to_owned()] });
    }

    #[test]
    fn columns_are_aligned_and_what_is_missing_is_a_dash() {
        let said = Said::of(
            [
                (("tank", "/dev/a"), words(&["model=Disk of a kind\ntemp=30"])),
                (("tank", "/dev/b"), words(&["temp= \nnote"])),
            ]
            .into_iter(),
        );
        assert_eq!(said.headings(), "           model  temp");
        assert_eq!(said.dashes(), "  --------------  ----");
        assert_eq!(said.line("tank", Some("/dev/a")), "  Disk of a kind    30");
        assert_eq!(said.line("tank", Some("/dev/b")), "               -     -  note");
        assert_eq!(said.line("tank", Some("/dev/c")), "");
        let mut item = Map::new();
        said.add_json("tank", Some("/dev/b"), &mut item);
        assert_eq!(Value::Object(item), serde_json::json!({"model": "-", "temp": "-", "extra_1": "note"}));
    }

    #[test]
    fn variables_say_yes_by_a_number_or_a_word() {
        for (value, yes) in
            [("1", true), ("YES", true), ("on", true), ("0", false), ("no", false), ("", false)]
        {
            assert_eq!(says_yes(value), yes, "{value}");
        }
    }
}
