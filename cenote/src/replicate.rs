//! `cenote replicate`: brings the snapshots of datasets to another pool, here or on another machine.
//!
//! # What it does, for each dataset
//! 1. It goes on with a receive that broke off, by the token that the destination has.
//! 2. It takes a snapshot, of all datasets in one moment, unless it is to use those that are there.
//! 3. It looks for the newest snapshot or bookmark that both sides have, by guid, and sends what came after
//!    that; all where the destination is not there. Where nothing is in common it refuses.
//! 4. It holds the newest common snapshot on both sides, and releases the one before.
//! 5. It marks what it delivered, and destroys what is beyond `--keep`: here of the snapshots that it took
//!    for this destination, there of those that it delivered.
//!
//! It never destroys at the destination what it did not bring there, unless `--force` says so. A dataset that
//! fails does not keep the others from being sent; the exit code says that something failed.
//!
//! Both sides are asked by the command line of `zfs` ([`side`]), the rules are in [`plan`].

mod plan;
mod side;
mod transfer;

use std::collections::{HashMap, HashSet};

use anyhow::{Result, anyhow, bail};
use engine::properties::format::nicebytes;
use serde_json::{Map, Value, json};

use self::plan::{Keep, PREFIX, Point, Refusal, Way};
use self::side::Side;
use crate::output::{self, Exit, FAILED};
use crate::zfs::absent;

/// The property of snapshots that were taken to be sent: where to.
const TAKEN_FOR: &str = "org.cenote:replicate";
/// The property of snapshots that were delivered: the same.
const DELIVERED: &str = "org.cenote:replicated";
/// The hold on the newest snapshot that both sides have.
const HOLD: &str = "cenote-replicate";
/// The longest name of a hold.
const MAX_TAG_BYTES: usize = 255;

const ABOUT: &str = "\
The destination is created where it is not there, with readonly=on and not mounted. HOST is reached by ssh \
(--rsh), and needs a 'zfs' there (--remote-zfs), of this program or of OpenZFS. A receive that broke off \
goes on with the next run. --keep 7 keeps the newest 7 snapshots of each series that replication took or \
brought, --keep replicate=3,hourly=48,daily=30 says it for each series; without it nothing is destroyed.\n\n\
Exit codes: 0 all was done, 1 something was not, 2 the command line makes no sense.";

/// Arguments of `cenote replicate`.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command")]
pub struct Arguments {
    /// The filesystem or volume
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Where it goes: a filesystem or volume of this machine or of HOST
    #[arg(value_name = "[HOST:]DESTINATION")]
    destination: String,
    /// With everything below
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Take no snapshot: send up to the newest that is there
    #[arg(long)]
    no_snapshot: bool,
    /// Leave out the snapshots between the common one and the newest
    #[arg(long)]
    newest_only: bool,
    /// Blocks as they are on disk, encrypted ones too; no key is needed
    #[arg(short = 'w', long)]
    raw: bool,
    /// With properties
    #[arg(short = 'p', long)]
    props: bool,
    /// New datasets there can be written
    #[arg(long)]
    writable: bool,
    /// Give up what the destination has beyond the newest common snapshot
    #[arg(short = 'F', long)]
    force: bool,
    /// Put no holds on the newest common snapshot
    #[arg(long)]
    no_holds: bool,
    /// Destroy what replication took or brought beyond these numbers
    #[arg(long, value_name = "N|SERIES=N,…", value_parser = Keep::parse)]
    keep: Option<Keep>,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// How HOST is reached
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// What 'zfs' is on HOST
    #[arg(long, value_name = "COMMAND", default_value = "zfs")]
    remote_zfs: String,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

/// A replication under way.
struct Replication {
    arguments: Arguments,
    here: Side,
    there: Side,
    /// The dataset at the destination.
    destination: String,
    /// What snapshots here are marked with.
    mark: String,
    tag: String,
    /// The snapshot that was taken, behind its `@`.
    taken: Option<String>,
}

/// What became of a dataset.
#[derive(Debug, Default)]
struct Outcome {
    dataset: String,
    destination: String,
    /// `sent`, `resumed`, `up-to-date`, `failed`, and in a dry run `would-send`.
    state: &'static str,
    from: Option<String>,
    to: Option<String>,
    bytes: u64,
    destroyed: Vec<String>,
    error: Option<String>,
}

/// What the destination has of a dataset.
#[derive(Debug, Default, Clone)]
struct There {
    token: Option<String>,
    points: Vec<Point>,
}

/// The host and the dataset of a destination. A colon behind a slash is part of a name, and one in front of
/// all says that it is on this machine.
fn parts(text: &str) -> (Option<&str>, &str) {
    match text.split_once(':') {
        Some(("", name)) => (None, name),
        Some((host, name)) if !host.contains('/') => (Some(host), name),
        _ => (None, text),
    }
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let (host, destination) = parts(&self.destination);
        for name in [&*self.source, destination] {
            if name.is_empty() || name.contains(['@', '#']) || name.starts_with('-') {
                return Err(output::usage(format!("'{name}' is no filesystem or volume")));
            }
        }
        if host.is_some_and(|host| host.starts_with('-')) {
            return Err(output::usage("the name of a host does not begin with '-'"));
        }
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let there =
            host.map_or(Side::Here, |host| Side::there(words(&self.rsh), host, words(&self.remote_zfs)));
        let mark = host.map_or_else(|| destination.to_owned(), |host| format!("{host}:{destination}"));
        if host.is_none() && is_same_or_below(destination, &self.source) {
            bail!("cannot replicate '{}' into itself: '{destination}'", self.source);
        }
        let destination = destination.to_owned();
        let tag = tag(&mark);
        let replication =
            Replication { arguments: self, here: Side::Here, there, destination, mark, tag, taken: None };
        replication.run()
    }
}

fn is_same_or_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The hold here, which is one for each destination.
fn tag(mark: &str) -> String {
    let tag = format!("{HOLD}:{mark}").replace(' ', "_");
    if tag.len() <= MAX_TAG_BYTES {
        return tag;
    }
    // FNV-1a, so that it is the same with the next version.
    let hash = mark
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{HOLD}:{hash:016x}")
}

impl Replication {
    fn run(mut self) -> Result<()> {
        let source = self.arguments.source.clone();
        let datasets = self.datasets()?;
        self.check_parent()?;
        let mut outcomes = Vec::new();
        let before = self.there()?;
        for dataset in &datasets {
            let token = before.get(&self.destination_of(dataset)).and_then(|there| there.token.clone());
            if let Some(token) = token {
                let outcome = self.resume(dataset, &token);
                self.tell(&outcome)?;
                outcomes.push(outcome);
            }
        }
        // Where one cannot be resumed, the rest would meet what it left.
        let stuck: HashSet<String> = outcomes
            .iter()
            .filter(|outcome| outcome.error.is_some() || outcome.state == "would-resume")
            .map(|outcome| outcome.dataset.clone())
            .collect();
        if !self.arguments.no_snapshot {
            self.take(&source)?;
        }
        let (ours, theirs) = (self.points_here(&source)?, self.there()?);
        for dataset in datasets.iter().filter(|dataset| !stuck.contains(*dataset)) {
            let points = ours.get(dataset).map_or(&[][..], Vec::as_slice);
            let there = theirs.get(&self.destination_of(dataset));
            let mut outcome = self.outcome(dataset);
            let known = before.get(&self.destination_of(dataset));
            if let Err(error) = self.replicate(dataset, points, (known, there), &mut outcome) {
                if outcome.state.is_empty() {
                    self.take_back(dataset);
                }
                outcome.state = "failed";
                outcome.error = Some(output::in_words(&error));
            }
            self.tell(&outcome)?;
            outcomes.push(outcome);
        }
        self.end(&outcomes)
    }

    fn outcome(&self, dataset: &str) -> Outcome {
        Outcome {
            dataset: dataset.to_owned(),
            destination: self.there.named(&self.destination_of(dataset)),
            ..Outcome::default()
        }
    }

    /// The datasets that are sent, those above first.
    fn datasets(&self) -> Result<Vec<String>> {
        let source = &self.arguments.source;
        let mut words = vec!["list", "-H", "-t", "filesystem,volume", "-o", "name", "-s", "name"];
        words.extend(self.arguments.recursive.then_some("-r"));
        words.push(source);
        let listed = self.here.print_if_there(&words)?.ok_or_else(|| anyhow!(absent(source)))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    fn destination_of(&self, dataset: &str) -> String {
        let below = dataset.strip_prefix(&*self.arguments.source).unwrap_or_default();
        format!("{}{below}", self.destination)
    }

    /// What a new destination would lie in must be there.
    fn check_parent(&self) -> Result<()> {
        let Some((parent, _)) = self.destination.rsplit_once('/') else { return Ok(()) };
        let words = ["list", "-H", "-o", "name", "-t", "filesystem", parent];
        if self.there.print_if_there(&words)?.is_none() {
            bail!(
                "cannot replicate to '{}': '{parent}' does not exist there; create it with 'zfs create -p \
                 {parent}'",
                self.there.named(&self.destination)
            );
        }
        Ok(())
    }

    /// What the destination has, by dataset.
    fn there(&self) -> Result<HashMap<String, There>> {
        let list = |kinds: &str, columns: &str, sort: &[&str]| {
            let mut words = vec!["list", "-H", "-p", "-r", "-t", kinds, "-o", columns];
            words.extend(sort);
            words.push(&self.destination);
            self.there.print_if_there(&words)
        };
        let mut there: HashMap<String, There> = HashMap::new();
        let Some(datasets) = list("filesystem,volume", "name,receive_resume_token", &[])? else {
            return Ok(there);
        };
        for line in datasets.lines() {
            let (name, token) = line.split_once('\t').unwrap_or((line, "-"));
            let token = Some(token).filter(|token| *token != "-" && !token.is_empty()).map(str::to_owned);
            there.insert(name.to_owned(), There { token, points: Vec::new() });
        }
        let columns = format!("name,guid,createtxg,userrefs,{DELIVERED}");
        let snapshots = list("snapshot", &columns, &[])?.unwrap_or_default();
        for point in points(&snapshots)? {
            let dataset = point.name.split('@').next().unwrap_or_default();
            if let Some(there) = there.get_mut(dataset) {
                there.points.push(point);
            }
        }
        Ok(there)
    }

    /// The snapshots and bookmarks here, by dataset.
    fn points_here(&self, source: &str) -> Result<HashMap<String, Vec<Point>>> {
        let columns = format!("name,guid,createtxg,userrefs,{TAKEN_FOR}");
        let mut words = vec!["list", "-H", "-p", "-t", "snapshot,bookmark", "-o", &columns];
        // The level below a dataset has its snapshots, and children without theirs.
        words.extend(if self.arguments.recursive { &["-r"][..] } else { &["-d", "1"] });
        words.push(source);
        let mut by_dataset: HashMap<String, Vec<Point>> = HashMap::new();
        for point in points(&self.here.print(&words)?)? {
            let dataset = point.name.split(['@', '#']).next().unwrap_or_default().to_owned();
            by_dataset.entry(dataset).or_default().push(point);
        }
        Ok(by_dataset)
    }

    /// Takes the snapshot, of all datasets in one moment.
    fn take(&mut self, source: &str) -> Result<()> {
        let time = output::history_date(output::now()).replace('.', "_");
        let short = format!("{PREFIX}{time}");
        if !self.arguments.dry_run {
            let (mark, name) = (format!("{TAKEN_FOR}={}", self.mark), format!("{source}@{short}"));
            let mut words = vec!["snapshot", "-o", &mark];
            words.extend(self.arguments.recursive.then_some("-r"));
            words.push(&name);
            self.here.print(&words)?;
        }
        self.taken = Some(short);
        Ok(())
    }

    /// Destroys the snapshot that was taken of a dataset that could not be sent, unless the destination has
    /// begun to receive it: with each run there would be one more.
    fn take_back(&self, dataset: &str) {
        let Some(short) = self.taken.as_ref().filter(|_| !self.arguments.dry_run) else { return };
        let destination = self.destination_of(dataset);
        let words = ["list", "-H", "-o", "receive_resume_token", "-t", "filesystem,volume", &destination];
        let is_begun = match self.there.print_if_there(&words) {
            Ok(token) => token.is_some_and(|token| token.trim() != "-"),
            Err(_) => true,
        };
        if !is_begun {
            // Where it cannot be destroyed, it stays, and goes when it is beyond what is kept.
            let _ = self.here.print(&["destroy", &format!("{dataset}@{short}")]);
        }
    }

    /// Goes on with a receive that broke off.
    fn resume(&self, dataset: &str, token: &str) -> Outcome {
        let mut outcome = self.outcome(dataset);
        if self.arguments.dry_run {
            outcome.state = "would-resume";
            return outcome;
        }
        let destination = self.destination_of(dataset);
        let sent = self.transfer(&["send", "-t", token], &["receive", "-s", "-u", &destination]);
        match sent {
            Ok(bytes) => (outcome.state, outcome.bytes) = ("resumed", bytes),
            Err(error) => {
                let why = output::in_words(&error);
                outcome.state = "failed";
                outcome.error = Some(format!(
                    "cannot resume: {why}\nwhere the snapshot is gone, give up what was received: 'zfs \
                     receive -A {destination}'"
                ));
            }
        }
        outcome
    }

    fn replicate(
        &self,
        dataset: &str,
        points: &[Point],
        (known, there): (Option<&There>, Option<&There>),
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut points = points.to_vec();
        points.sort_by_key(|point| point.createtxg);
        let target = match (&self.taken, self.arguments.dry_run) {
            (Some(short), true) => {
                // It would be the newest.
                let name = format!("{dataset}@{short}");
                points.push(Point { name, createtxg: u64::MAX, ..Point::default() });
                points.last().cloned()
            }
            (Some(short), false) => {
                points.iter().find(|point| !point.is_bookmark() && point.short() == short).cloned()
            }
            (None, _) => points.iter().rfind(|point| !point.is_bookmark()).cloned(),
        };
        let target = target.ok_or_else(|| anyhow!("'{dataset}' has no snapshot to send"))?;
        outcome.to = Some(target.name.clone());
        let destination = self.destination_of(dataset);
        let way = plan::way(&points, target.guid, there.map(|there| &*there.points), self.arguments.force);
        let way = way.map_err(|refusal| self.refused(dataset, &destination, &refusal))?;
        if let Way::Since(from) = &way {
            outcome.from = Some(from.name.clone());
        }
        let is_there = there.is_some();
        // What a resumed receive brought is not among them.
        let before: HashSet<u64> =
            known.iter().flat_map(|known| &known.points).map(|point| point.guid).collect();
        match way {
            Way::UpToDate => outcome.state = "up-to-date",
            _ if self.arguments.dry_run => {
                outcome.state = "would-send";
                return Ok(());
            }
            way => {
                self.send(&points, &target, &destination, &way, is_there, outcome)?;
                outcome.state = "sent";
            }
        }
        if self.arguments.dry_run {
            return Ok(());
        }
        self.finish(&points, &target, &destination, &before, outcome)
    }

    fn refused(&self, dataset: &str, destination: &str, refusal: &Refusal) -> anyhow::Error {
        let there = self.there.named(destination);
        match refusal {
            Refusal::NothingInCommon { has_snapshots: true } => anyhow!(
                "'{dataset}' and '{there}' have no snapshot in common: nothing can be sent into it. Rename \
                 or destroy '{there}', or replicate to another name"
            ),
            Refusal::NothingInCommon { has_snapshots: false } => anyhow!(
                "'{there}' is there and has no snapshot: what is in it would be replaced. Replicate to \
                 another name, or replace it with --force"
            ),
            Refusal::Newer(names) => anyhow!(
                "'{there}' has snapshots after the newest common one, which would be destroyed: {}. Destroy \
                 or rename '{there}', or have them destroyed with --force",
                names.join(", ")
            ),
        }
    }

    /// Sends what is missing: all of the first snapshot, then what came after it.
    fn send(
        &self,
        points: &[Point],
        target: &Point,
        destination: &str,
        way: &Way,
        is_there: bool,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut receive = vec!["receive", "-s", "-u"];
        receive.extend(self.arguments.force.then_some("-F"));
        let from = match way {
            Way::Since(from) => from,
            _ => {
                let oldest = points.iter().find(|point| !point.is_bookmark());
                let first = oldest.filter(|_| !self.arguments.newest_only).unwrap_or(target);
                let mut receive = receive.clone();
                if !is_there && !self.arguments.writable {
                    receive.extend(["-o", "readonly=on"]);
                }
                receive.push(destination);
                outcome.bytes += self.transfer(&self.send_words(&[], &first.name), &receive)?;
                if first.guid == target.guid {
                    return Ok(());
                }
                first
            }
        };
        // From a bookmark there is nothing in between.
        let option = if self.arguments.newest_only || from.is_bookmark() { "-i" } else { "-I" };
        receive.push(destination);
        outcome.bytes += self.transfer(&self.send_words(&[option, &from.name], &target.name), &receive)?;
        Ok(())
    }

    fn send_words<'a>(&self, since: &[&'a str], snapshot: &'a str) -> Vec<&'a str> {
        let mut words = vec!["send"];
        words.extend(if self.arguments.raw { &["-w"][..] } else { &["-L", "-c"] });
        words.extend(self.arguments.props.then_some("-p"));
        words.extend(since);
        words.push(snapshot);
        words
    }

    fn transfer(&self, send: &[&str], receive: &[&str]) -> Result<u64> {
        transfer::run((&self.here, send), (&self.there, receive), !self.arguments.json)
    }

    /// Holds and marks what both sides have now, and destroys what is beyond what is kept.
    fn finish(
        &self,
        points: &[Point],
        target: &Point,
        destination: &str,
        before: &HashSet<u64>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let columns = format!("name,guid,createtxg,userrefs,{DELIVERED}");
        let list = ["list", "-H", "-p", "-d", "1", "-t", "snapshot", "-o", &columns, destination];
        let mut theirs = points_of(&self.there.print(&list)?, destination)?;
        let delivered: Vec<String> = theirs
            .iter()
            .filter(|point| !before.contains(&point.guid))
            .map(|point| point.name.clone())
            .collect();
        if !delivered.is_empty() {
            let mark = format!("{DELIVERED}={}", self.mark);
            let mut words = vec!["set", &*mark];
            words.extend(delivered.iter().map(String::as_str));
            self.there.print(&words)?;
            for point in theirs.iter_mut().filter(|point| delivered.contains(&point.name)) {
                point.mark = Some(self.mark.clone());
            }
        }
        let target_there = theirs.iter().find(|point| point.guid == target.guid).cloned();
        let Some(target_there) = target_there else {
            bail!("'{}' does not have '{}' after all", self.there.named(destination), target.name);
        };
        let mut ours: Vec<Point> = points.iter().filter(|point| !point.is_bookmark()).cloned().collect();
        if !self.arguments.no_holds {
            move_hold(&self.here, &self.tag, &mut ours, target)?;
            move_hold(&self.there, HOLD, &mut theirs, &target_there)?;
        }
        let Some(keep) = &self.arguments.keep else { return Ok(()) };
        for (side, points, only_own) in [(&self.here, &ours, true), (&self.there, &theirs, false)] {
            let surplus = plan::surplus(points, &self.mark, keep, target.guid, only_own);
            let Some(first) = surplus.first() else { continue };
            let short = |name: &String| name.split_once('@').map(|(_, short)| short.to_owned());
            let all: Vec<String> = surplus.iter().filter_map(short).collect();
            let dataset = first.split('@').next().unwrap_or_default();
            side.print(&["destroy", &format!("{dataset}@{}", all.join(","))])?;
            outcome.destroyed.extend(surplus.iter().map(|name| side.named(name)));
        }
        Ok(())
    }

    /// Tells of a dataset when it is done.
    fn tell(&self, outcome: &Outcome) -> Result<()> {
        if let Some(error) = &outcome.error {
            eprintln!("cannot replicate '{}' to '{}': {error}", outcome.dataset, outcome.destination);
        }
        if self.arguments.json || outcome.error.is_some() {
            return Ok(());
        }
        let (name, to) = (&outcome.dataset, &outcome.destination);
        let what = match (outcome.state, &outcome.from, &outcome.to) {
            ("sent", Some(from), Some(target)) => {
                format!("{target} to {to}, since {from}: {}", nicebytes(outcome.bytes))
            }
            ("sent", None, Some(target)) => format!("{target} to {to}, all: {}", nicebytes(outcome.bytes)),
            ("resumed", ..) => format!("{name} to {to}, resumed: {}", nicebytes(outcome.bytes)),
            ("would-send", Some(from), Some(target)) => {
                format!("would send {target} to {to}, since {from}")
            }
            ("would-send", None, Some(target)) => format!("would send {target} to {to}, all"),
            ("would-resume", ..) => format!("would resume {name} to {to}"),
            _ => format!("{name} to {to}: up to date"),
        };
        let mut text = format!("{what}\n");
        outcome.destroyed.iter().for_each(|name| text.push_str(&format!("destroyed: {name}\n")));
        output::print(&text)
    }

    fn end(&self, outcomes: &[Outcome]) -> Result<()> {
        if self.arguments.json {
            let mut document: Map<String, Value> = output::document("cenote replicate");
            let entry = |of: &Outcome| {
                json!({
                    "dataset": of.dataset, "destination": of.destination, "state": of.state, "from": of.from,
                    "to": of.to, "bytes": of.bytes, "destroyed": of.destroyed, "error": of.error,
                })
            };
            document.insert("datasets".into(), outcomes.iter().map(entry).collect());
            output::print_json(&document)?;
        }
        match outcomes.iter().any(|outcome| outcome.error.is_some()) {
            true => Err(Exit(FAILED).into()),
            false => Ok(()),
        }
    }
}

/// Holds a snapshot, and releases that hold from all others.
fn move_hold(side: &Side, tag: &str, points: &mut [Point], target: &Point) -> Result<()> {
    let held: Vec<String> =
        points.iter().filter(|point| point.holds > 0).map(|point| point.name.clone()).collect();
    let mut with_tag = HashSet::new();
    if !held.is_empty() {
        let mut words = vec!["holds", "-H"];
        words.extend(held.iter().map(String::as_str));
        for line in side.print(&words)?.lines() {
            let mut fields = line.split('\t');
            if let (Some(name), Some(found)) = (fields.next(), fields.next())
                && found == tag
            {
                with_tag.insert(name.to_owned());
            }
        }
    }
    if !with_tag.remove(&target.name) {
        side.print(&["hold", tag, &target.name])?;
    }
    if !with_tag.is_empty() {
        let mut words = vec!["release", tag];
        words.extend(with_tag.iter().map(String::as_str));
        side.print(&words)?;
    }
    for point in points {
        match (point.name == target.name, with_tag.contains(&point.name)) {
            (true, _) => point.holds = point.holds.max(1),
            (false, true) => point.holds = point.holds.saturating_sub(1),
            (false, false) => {}
        }
    }
    Ok(())
}

/// What `zfs list` tells of snapshots and bookmarks: name, guid, createtxg, userrefs, mark.
fn points(listed: &str) -> Result<Vec<Point>> {
    let mut all = Vec::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, guid, createtxg, holds, mark] = fields.as_slice() else {
            bail!("'zfs list' printed a line of another form: {line}");
        };
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| anyhow!("'zfs list' printed no number for '{name}': {text}"))
        };
        all.push(Point {
            name: name.to_owned(),
            guid: number(guid)?,
            createtxg: number(createtxg)?,
            // Bookmarks have none.
            holds: if holds == "-" { 0 } else { number(holds)? },
            mark: Some(mark).filter(|mark| *mark != "-").map(str::to_owned),
        });
    }
    Ok(all)
}

/// Those of one dataset.
fn points_of(listed: &str, dataset: &str) -> Result<Vec<Point>> {
    let mut all = points(listed)?;
    all.retain(|point| point.name.split('@').next() == Some(dataset));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_may_name_a_host() {
        for (text, expected) in [
            ("tank/a", (None, "tank/a")),
            ("host:tank/a", (Some("host"), "tank/a")),
            ("user@host:tank/a:b", (Some("user@host"), "tank/a:b")),
            ("tank/a:b", (None, "tank/a:b")),
            (":tank:x/a", (None, "tank:x/a")),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn the_hold_of_a_destination_is_its_own_and_never_too_long() {
        assert_eq!(tag("host:tank/a b"), "cenote-replicate:host:tank/a_b");
        let long = tag(&"x".repeat(400));
        assert!(long.len() < 40 && long == tag(&"x".repeat(400)) && long != tag(&"x".repeat(401)));
    }
}
