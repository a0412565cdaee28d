//! `zfs receive`: a stream on standard input becomes a filesystem or volume with its snapshots.
//!
//! The stream goes through to the daemon as it comes. What the daemon tells of it is printed meanwhile.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_main.c` (`zfs_do_receive`), `zfs-receive.8`.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};
use device::IgnorePoison as _;
use engine::properties::Prop;
use server::api::{AbortReceive, Appends, ReceivePart, ReceiveStream};

use super::{absent, change};
use crate::output::{self, Exit, FAILED, complain, usage};
use crate::progress::Progress;
use crate::{client, command_line};

/// Arguments of `zfs receive`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_version_flag = true)]
pub struct Arguments {
    /// Give up what was changed since the last common snapshot
    #[arg(short = 'F')]
    force: bool,
    /// Unmount the destination by force where it is in the way
    #[arg(short = 'M')]
    force_unmount: bool,
    /// Only say what would be received
    #[arg(short = 'n')]
    dry_run: bool,
    /// Keep what was received when the stream breaks off
    #[arg(short = 's')]
    resumable: bool,
    /// Do not mount what is received
    #[arg(short = 'u')]
    no_mount: bool,
    /// Tell of each stream
    #[arg(short = 'v')]
    verbose: bool,
    /// Leave out holds
    #[arg(short = 'h')]
    skip_holds: bool,
    /// Append the sent name without its pool
    #[arg(short = 'd')]
    all_but_pool: bool,
    /// Append the last part of the sent name
    #[arg(short = 'e')]
    last: bool,
    /// A property of what is received, or origin=SNAPSHOT (may be repeated)
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// A property that is not received (may be repeated)
    #[arg(short = 'x', value_name = "PROPERTY")]
    excluded: Vec<String>,
    /// Give up what an interrupted receive left
    #[arg(short = 'A')]
    abort: bool,
    /// Repair a snapshot with a stream of it
    #[arg(short = 'c')]
    corrective: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Where it goes
    #[arg(value_name = "FILESYSTEM|VOLUME|SNAPSHOT")]
    name: Option<String>,
}

/// Standard input, whose bytes are counted.
struct Counted {
    input: std::io::Stdin,
    progress: Arc<Mutex<Progress>>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(into)?;
        self.progress.lock().ignore_poison().advance(read as u64);
        Ok(read)
    }
}

/// A property's name, of which its column heading is a short form.
fn whole(name: &str) -> String {
    Prop::from_name(name).map_or_else(|| name.to_owned(), |prop| prop.desc().name.to_owned())
}

impl Arguments {
    /// Receives the stream.
    pub fn run(self) -> Result<()> {
        let Some(name) = self.name.clone() else { return Err(usage("missing snapshot argument")) };
        if self.all_but_pool && self.last {
            return Err(usage("invalid option combination: -d and -e are mutually exclusive"));
        }
        if self.corrective {
            bail!("zfs receive -c is not there yet; 'zpool scrub' repairs what has another copy");
        }
        if self.abort {
            return self.abort(name);
        }
        if std::io::stdin().is_terminal() {
            bail!(
                "Error: Backup stream can not be read from a terminal.\n\
                 You must redirect standard input."
            );
        }
        let request = self.request(name)?;
        let mut failed = None;
        let progress = Arc::new(Mutex::new(self.progress()));
        let input = Counted { input: std::io::stdin(), progress: Arc::clone(&progress) };
        let tell = |print: &dyn Fn() -> Result<()>| progress.lock().ignore_poison().suspend(print);
        let answered = client::call_with_stream(&request, input, |part| match part {
            ReceivePart::Told(text) => tell(&|| output::print(&format!("{text}\n"))),
            ReceivePart::Warning(text) => tell(&|| {
                eprintln!("{text}");
                Ok(())
            }),
            ReceivePart::Failed(error) => {
                failed = Some(Err(error));
                Ok(())
            }
            ReceivePart::Complete => {
                failed = Some(Ok(()));
                Ok(())
            }
        })?;
        // The bar ends before there is more to read on the terminal.
        *progress.lock().ignore_poison() = Progress::hidden();
        match (answered, failed) {
            (None, _) => bail!(absent(request.name.split('@').next().unwrap_or_default())),
            (Some(()), Some(Ok(()))) => Ok(()),
            (Some(()), Some(Err(error))) => {
                complain(std::slice::from_ref(&error))?;
                Err(Exit(FAILED).into())
            }
            (Some(()), None) => bail!("cannot receive: the daemon's answer broke off"),
        }
    }

    /// A bar where people watch and nothing else tells them how far it is. Of the commands of a pipe on one
    /// terminal the sender has it.
    fn progress(&self) -> Progress {
        let file = std::io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let metadata = file.and_then(|file| file.metadata()).ok().filter(|metadata| metadata.is_file());
        let is_watched = std::io::stderr().is_terminal()
            && (metadata.is_some() || !std::io::stdout().is_terminal())
            && !self.verbose
            && !self.dry_run;
        match is_watched {
            true => Progress::shown(metadata.map(|metadata| metadata.len())),
            false => Progress::hidden(),
        }
    }

    fn request(&self, name: String) -> Result<ReceiveStream> {
        let mut properties = command_line::properties(&self.properties)?;
        let mut origin = None;
        properties.retain(|(property, value)| match property == "origin" {
            true => {
                origin = Some(value.clone());
                false
            }
            false => true,
        });
        let mut named: Vec<String> = properties.iter().map(|(name, _)| whole(name)).collect();
        for name in &self.excluded {
            if named.contains(&whole(name)) {
                return Err(usage(format!("property '{name}' specified multiple times")));
            }
            let is_of_contents = |prop: Prop| match prop {
                // The daemon says what goes with which stream.
                Prop::Encryption | Prop::Keyformat | Prop::Pbkdf2Iters => false,
                Prop::Version | Prop::Volsize => true,
                other => other.desc().readonly(),
            };
            if Prop::from_name(name).is_some_and(is_of_contents) {
                return Err(usage(format!("invalid property '{name}': it comes with the data")));
            }
            named.push(whole(name));
        }
        Ok(ReceiveStream {
            name,
            appends: match (self.all_but_pool, self.last) {
                (true, _) => Appends::AllButPool,
                (_, true) => Appends::Last,
                _ => Appends::Below,
            },
            force: self.force,
            force_unmount: self.force_unmount,
            resumable: self.resumable,
            dry_run: self.dry_run,
            verbose: self.verbose,
            no_mount: self.no_mount,
            skip_holds: self.skip_holds,
            origin,
            properties,
            excluded: self.excluded.clone(),
            only_one: false,
            command: command_line::command(),
        })
    }

    fn abort(self, name: String) -> Result<()> {
        let others = self.force || self.dry_run || self.resumable || self.no_mount || self.verbose;
        if others || self.all_but_pool || self.last || !self.properties.is_empty() {
            return Err(usage("invalid option combination: -A may only be combined with a name"));
        }
        if name.contains(['@', '#']) {
            return Err(usage(format!("invalid name '{name}': a filesystem or volume is needed")));
        }
        let request = AbortReceive { name: name.clone(), command: command_line::command() };
        change(&request, || absent(&name))
    }
}
