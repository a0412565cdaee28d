//! `zfs load-key`, `zfs unload-key`, `zfs change-key`; keys of new datasets.
//!
//! A key belongs to an encryption root. Where its `keylocation` is a file or on a server the daemon gets it;
//! where it is `prompt` the key is asked for, without echo on a terminal and up to three times, or read from
//! standard input. A new key is typed twice.

use std::io::IsTerminal;

use anyhow::{Context, Result, bail};
use server::api::{
    ApiError, ChangeKey, DatasetKind, DatasetPage, ErrorKind, KeyEntry, ListDatasets, ListKeys, LoadKey,
    Secret, UnloadKey,
};

use crate::command_line;
use crate::output::{self, Exit, FAILED, in_words, usage};
use crate::{client, prompt};

/// How often a key may be typed.
const MAX_ATTEMPTS: u32 = 3;
/// The location of a key that is asked for.
const PROMPT: &str = "prompt";
/// Length of a raw key, in bytes.
const RAW_KEY_BYTES: usize = 32;

/// Arguments of `zfs load-key`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct LoadArguments {
    /// Only check the key
    #[arg(short = 'n')]
    dry_run: bool,
    /// Also below
    #[arg(short)]
    recursive: bool,
    /// All keys of all open pools
    #[arg(short)]
    all: bool,
    /// Location of the key, instead of the dataset's: prompt, file:///PATH, or an https:// or http://
    /// address
    #[arg(short = 'L', value_name = "KEYLOCATION")]
    location: Option<String>,
    /// The filesystem or volume
    #[arg(value_name = "DATASET")]
    datasets: Vec<String>,
}

/// Arguments of `zfs unload-key`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct UnloadArguments {
    /// Also below
    #[arg(short)]
    recursive: bool,
    /// All keys of all open pools
    #[arg(short)]
    all: bool,
    /// The filesystem or volume
    #[arg(value_name = "DATASET")]
    datasets: Vec<String>,
}

/// Arguments of `zfs change-key`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct ChangeArguments {
    /// Have the key of the parent, and be no encryption root any more
    #[arg(short)]
    inherit: bool,
    /// Load the key first, if it is not
    #[arg(short)]
    load: bool,
    /// keyformat, keylocation, pbkdf2iters, or a user property (may be repeated)
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// The filesystem or volume
    #[arg(value_name = "DATASET")]
    datasets: Vec<String>,
}

impl ChangeArguments {
    /// Changes the key.
    pub fn run(self) -> Result<()> {
        let name = match self.datasets.as_slice() {
            [] => return Err(usage("Missing dataset argument")),
            [name] => name.clone(),
            _ => return Err(usage("Too many arguments")),
        };
        let properties = command_line::properties(&self.properties)?;
        if self.load {
            load_key_of(&name)?;
        }
        let mut request = ChangeKey {
            dataset: name,
            inherit: self.inherit,
            properties,
            command: command_line::command(),
            ..ChangeKey::default()
        };
        match change(&mut request) {
            Ok(()) => Ok(()),
            Err(error) if error.is::<Exit>() => Err(error),
            Err(error) => {
                eprintln!("Key change error: {}", reworded(&in_words(&error)));
                Err(Exit(FAILED).into())
            }
        }
    }
}

/// Asks for the new key where it is given by hand, and has it changed.
fn change(request: &mut ChangeKey) -> Result<()> {
    let name = request.dataset.clone();
    let root = match root_of(&name)? {
        Ok(root) => Some(root),
        Err(NoRoot::NotEncrypted(_)) => bail!("Dataset not encrypted."),
        Err(NoRoot::Inherited(..)) => None,
    };
    if !request.inherit {
        let asked = AskedKey::of(&request.properties);
        let format = asked.format.or(root.as_ref().map(|root| root.format.clone()));
        let location = asked.location.or(root.map(|root| root.location));
        if let Some(format) = format
            && location.is_none_or(|location| location == PROMPT)
        {
            // What can be refused without the key is refused before it is asked for.
            send(&ChangeKey { dry_run: true, ..request.clone() })?;
            request.key = Some(new_key(&format, Some(&name))?);
        }
    }
    send(request)
}

fn send(request: &ChangeKey) -> Result<()> {
    let changed = client::call_running(request)?;
    changed.with_context(|| format!("cannot open '{}': dataset does not exist", request.dataset))
}

/// What properties say of the key of something new.
#[derive(Debug)]
pub struct AskedKey {
    format: Option<String>,
    location: Option<String>,
}

impl AskedKey {
    /// Reads that from properties as typed.
    pub fn of(properties: &[(String, String)]) -> Self {
        let given = |wanted: &str| {
            let found = properties.iter().rev().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        Self { format: given("keyformat").filter(|format| format != "none"), location: given("keylocation") }
    }

    /// Whether it has to be typed, or read from standard input.
    pub fn is_asked_for(&self) -> bool {
        self.format.is_some() && self.location.as_deref().is_none_or(|location| location == PROMPT)
    }

    /// Gets it from the user.
    pub fn ask(&self) -> Result<Secret> {
        new_key(self.format.as_deref().unwrap_or_default(), None)
    }
}

/// Gets a new key from the user, who types it twice on a terminal. `name` is that of a dataset that is there.
fn new_key(format: &str, name: Option<&str>) -> Result<Secret> {
    let typed = std::io::stdin().is_terminal();
    let of = name.map(|name| format!(" for '{name}'")).unwrap_or_default();
    let key = ask(format, &format!("Enter new {}{of}:", what(format)), typed)?;
    if typed && key != ask(format, &format!("Re-enter new {}{of}:", what(format)), typed)? {
        bail!("Provided keys do not match.");
    }
    Ok(key)
}

/// Keys that were tried and that failed.
#[derive(Debug, Default)]
struct Tally {
    tried: usize,
    failed: usize,
    /// A dataset could not be looked at.
    broken: bool,
}

impl Tally {
    fn count(&mut self, done: Result<()>, what: &str) {
        self.tried += 1;
        if let Err(error) = done {
            self.failed += 1;
            eprintln!("{what}: {}", reworded(&in_words(&error)));
        }
    }

    fn finish(self, told: Option<&str>) -> Result<()> {
        if let Some(word) = told {
            output::print(&format!(
                "{} / {} key(s) successfully {word}\n",
                self.tried - self.failed,
                self.tried
            ))?;
        }
        if self.failed > 0 || self.broken { Err(Exit(FAILED).into()) } else { Ok(()) }
    }
}

impl LoadArguments {
    /// Loads the keys.
    pub fn run(self) -> Result<()> {
        check(self.all, &self.datasets)?;
        let recursive = self.recursive || self.all;
        if recursive && self.location.as_deref().is_some_and(|location| location != PROMPT) {
            return Err(usage("alternate keylocation may only be 'prompt' with -r or -a"));
        }
        let mut tally = Tally::default();
        for_each_root(self.all, recursive, &self.datasets, &mut tally, |root, tally| match root {
            Ok(root) if recursive && root.loaded => {}
            Ok(root) if root.loaded && !self.dry_run => {
                tally.count(
                    Err(anyhow::anyhow!("Key already loaded for '{}'.", root.dataset)),
                    "Key load error",
                );
            }
            Ok(root) => tally.count(load(&root, self.location.as_deref(), self.dry_run), "Key load error"),
            Err(NoRoot::NotEncrypted(name)) => {
                tally.count(Err(anyhow::anyhow!("'{name}' is not encrypted.")), "Key load error");
            }
            Err(NoRoot::Inherited(name, root)) => tally.count(
                Err(anyhow::anyhow!("Keys must be loaded for encryption root of '{name}' ({root}).")),
                "Key load error",
            ),
        })?;
        let told = (self.dry_run || (recursive && tally.tried > 0)).then_some(if self.dry_run {
            "verified"
        } else {
            "loaded"
        });
        tally.finish(told)
    }
}

impl UnloadArguments {
    /// Forgets the keys.
    pub fn run(self) -> Result<()> {
        check(self.all, &self.datasets)?;
        let recursive = self.recursive || self.all;
        let mut tally = Tally::default();
        for_each_root(self.all, recursive, &self.datasets, &mut tally, |root, tally| match root {
            Ok(root) if recursive && !root.loaded => {}
            Ok(root) if !root.loaded => tally.count(
                Err(anyhow::anyhow!("Key already unloaded for '{}'.", root.dataset)),
                "Key unload error",
            ),
            Ok(root) => tally.count(unload(&root), "Key unload error"),
            Err(NoRoot::NotEncrypted(name)) => {
                tally.count(Err(anyhow::anyhow!("'{name}' is not encrypted.")), "Key unload error");
            }
            Err(NoRoot::Inherited(name, root)) => tally.count(
                Err(anyhow::anyhow!("Keys must be unloaded for encryption root of '{name}' ({root}).")),
                "Key unload error",
            ),
        })?;
        let told = (recursive && tally.tried > 0).then_some("unloaded");
        tally.finish(told)
    }
}

fn check(all: bool, datasets: &[String]) -> Result<()> {
    match (all, datasets.is_empty()) {
        (false, true) => Err(usage("Missing dataset argument or -a option")),
        (true, false) => Err(usage("Cannot specify dataset with -a option")),
        _ => Ok(()),
    }
}

/// Why a dataset has no key of its own.
enum NoRoot {
    NotEncrypted(String),
    /// The dataset, and the encryption root that it uses.
    Inherited(String, String),
}

/// Calls `act` for each encryption root that the arguments choose.
fn for_each_root(
    all: bool,
    recursive: bool,
    datasets: &[String],
    tally: &mut Tally,
    mut act: impl FnMut(Result<KeyEntry, NoRoot>, &mut Tally),
) -> Result<()> {
    if all {
        let roots = output::ask(&ListKeys { dataset: None, recursive: true }, |_| Vec::new())?;
        roots.into_iter().for_each(|root| act(Ok(root), tally));
        return Ok(());
    }
    for name in datasets {
        let roots = if recursive {
            roots_below(name).map(|roots| roots.into_iter().map(Ok).collect())
        } else {
            root_of(name).map(|root| vec![root])
        };
        match roots {
            Ok(roots) => roots.into_iter().for_each(|root| act(root, tally)),
            Err(error) => {
                eprintln!("{}", in_words(&error));
                tally.broken = true;
            }
        }
    }
    Ok(())
}

/// The encryption roots at and below a dataset.
fn roots_below(name: &str) -> Result<Vec<KeyEntry>> {
    let request = ListKeys { dataset: Some(name.to_owned()), recursive: true };
    match client::call_running(&request)? {
        Some(roots) => Ok(roots),
        None => bail!("cannot open '{name}': dataset does not exist"),
    }
}

/// The dataset as an encryption root.
fn root_of(name: &str) -> Result<Result<KeyEntry, NoRoot>> {
    let (format, location, root, status) = ("keyformat", "keylocation", "encryptionroot", "keystatus");
    let request = ListDatasets {
        names: vec![name.to_owned()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
        properties: [format, location, root, status].map(str::to_owned).to_vec(),
        ..ListDatasets::default()
    };
    let listed = output::ask(&request, |request| DatasetPage {
        failed: output::none_of(&request.names, "dataset does not exist"),
        ..DatasetPage::default()
    })?;
    if let Some(error) = listed.failed.into_iter().next() {
        return Err(error.into());
    }
    let dataset = listed.entries.into_iter().next();
    let dataset = dataset.with_context(|| format!("cannot open '{name}': dataset does not exist"))?;
    let value = |property: &str| dataset.property(property).and_then(|property| property.value.clone());
    Ok(match value(root) {
        None => Err(NoRoot::NotEncrypted(name.to_owned())),
        Some(root) if root == "-" => Err(NoRoot::NotEncrypted(name.to_owned())),
        Some(root) if root != name => Err(NoRoot::Inherited(name.to_owned(), root)),
        Some(root) => Ok(KeyEntry {
            dataset: root,
            format: value(format).unwrap_or_default(),
            location: value(location).unwrap_or_default(),
            loaded: value(status).as_deref() == Some("available"),
        }),
    })
}

/// Loads the keys of a pool, or of all, that are not loaded, where they have to be asked for. With
/// `files_tried` those in files and on servers should be loaded by now, and one that is not is a failure, of
/// which the user knows.
pub fn load_missing_keys(pool: Option<&str>, files_tried: bool) -> Result<()> {
    let request = ListKeys { dataset: pool.map(str::to_owned), recursive: true };
    let roots = output::ask(&request, |_| Vec::new())?;
    let mut tally = Tally::default();
    for root in roots.iter().filter(|root| !root.loaded) {
        match root.location.as_str() {
            PROMPT => tally.count(load(root, None, false), "Key load error"),
            _ => tally.broken |= files_tried,
        }
    }
    tally.finish(None)
}

/// Loads the key that a dataset needs, if it needs one that is not loaded.
pub fn load_key_of(name: &str) -> Result<()> {
    let mut root = root_of(name)?;
    if let Err(NoRoot::Inherited(_, above)) = &root {
        root = root_of(above)?;
    }
    match root {
        Ok(root) if !root.loaded => {
            let mut tally = Tally::default();
            tally.count(load(&root, None, false), "Key load error");
            tally.finish(None)
        }
        _ => Ok(()),
    }
}

/// A refusal without what every line about keys begins with, and with OpenZFS's words for a wrong key.
fn reworded(message: &str) -> String {
    let is_prefix = |text: &str| text.starts_with("cannot ") && text.contains(" key for '");
    let message = match message.split_once("': ") {
        Some((prefix, rest)) if is_prefix(prefix) => rest,
        _ => message,
    };
    match message.strip_prefix("incorrect key for ") {
        Some(dataset) => format!("Incorrect key provided for {dataset}."),
        None => message.to_owned(),
    }
}

fn unload(root: &KeyEntry) -> Result<()> {
    match client::call_running(&UnloadKey { dataset: root.dataset.clone() }) {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast_ref::<ApiError>() {
            Some(refusal) if refusal.kind == ErrorKind::Busy => {
                Err(anyhow::anyhow!("'{}' is busy: {refusal}", root.dataset))
            }
            _ => Err(error),
        },
    }
}

/// Loads one key, asking for it again where it was typed wrong.
fn load(root: &KeyEntry, location: Option<&str>, dry_run: bool) -> Result<()> {
    let asked = location.unwrap_or(&root.location) == PROMPT;
    let typed = asked && std::io::stdin().is_terminal();
    for attempt in 1.. {
        let key = if asked { Some(ask_for_key(root, typed)?) } else { None };
        let request = LoadKey {
            dataset: root.dataset.clone(),
            key,
            location: location.filter(|_| !asked).map(str::to_owned),
            dry_run,
        };
        let error = match client::call(&request) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    eprintln!("{warning}");
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let kind = error.downcast_ref::<ApiError>().map(|refusal| refusal.kind);
        let correctible = matches!(kind, Some(ErrorKind::Refused | ErrorKind::Invalid));
        if !typed || !correctible || attempt >= MAX_ATTEMPTS {
            return Err(error);
        }
        eprintln!("Key load error: {}", reworded(&in_words(&error)));
    }
    Ok(())
}

fn ask_for_key(root: &KeyEntry, typed: bool) -> Result<Secret> {
    ask(&root.format, &format!("Enter {} for '{}':", what(&root.format), root.dataset), typed)
}

/// What a key of a format is called.
fn what(format: &str) -> &'static str {
    match format {
        "hex" => "hex key",
        "raw" => "raw key",
        _ => "passphrase",
    }
}

/// Gets a key from the user: a line, or as many bytes as a raw key has and one more, so that a longer one is
/// noticed.
fn ask(format: &str, question: &str, typed: bool) -> Result<Secret> {
    match format {
        "raw" if typed => bail!("Cannot enter raw keys on the terminal"),
        "raw" => Ok(prompt::read(RAW_KEY_BYTES + 1, None)?.into()),
        _ => prompt::secret(question),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_told_in_the_words_of_openzfs() {
        let message = "cannot load key for 'tank/a': incorrect key for 'tank/a'";
        assert_eq!(reworded(message), "Incorrect key provided for 'tank/a'.");
        assert_eq!(reworded("cannot load key for 'tank/a': /key: not found"), "/key: not found");
        assert_eq!(reworded("Key already loaded for 'tank/a'."), "Key already loaded for 'tank/a'.");
    }
}
