//! The check of a device: what its newest state needs, whether that is there and right, and what is left
//! over.
//!
//! # What is left over, and why
//! An owner that dies leaves segments that no commit names, pages of a checkpoint that was not finished, and
//! objects that it was about to delete. Deletions that failed are not tried again. None of that does harm but
//! for its price.
//!
//! # Why a removal is safe
//! The bucket may have an owner at work, others that were taken over and do not know it yet, and hosts that
//! are opening the device. The check asks none of them. It removes an object only if all of this is so, in a
//! reading of the state that was begun after the bucket was listed, and in a second one after that:
//!
//! 1. **It is unreachable.** Neither the map nor a page of it is in the object; it is no commit from the
//!    newest checkpoint on, and none that took over.
//! 2. **It is of an earlier opening.** Its epoch is older than that of the last commit, and its head has
//!    another opening. Only the opening that made an object ever names it in a commit. That opening has been
//!    taken over, by a commit that stays for ever in the place of its next one. So no commit will name it. A
//!    segment of the present owner that is not in a commit yet is never touched, nor is anything else of it.
//! 3. **No checkpoint will name it**; for pages of the map. An owner that was taken over while it slept may
//!    still make the checkpoint that it had begun, and that is valid as long as no later one is. So the
//!    newest checkpoint was made by another opening than the pages were, and its epoch is later. Then an
//!    owner before finds a later checkpoint in its way, and ends.
//! 4. **No opening goes by an older checkpoint**; for pages of the map and commits, which only those need.
//!    The owner has said in a commit that it knows the newest checkpoint, or has made that. All checkpoints
//!    before are pointers, and were so before the commits were read. A host that is opening the device from
//!    one of them makes its commit after the last that was read, looks at its checkpoint again, finds the
//!    pointer, and begins anew. Where an owner ended before it made the pointers, a check that removes makes
//!    them.
//! 5. **No read of the owner can need it any more.** A read that began before the object was superseded may
//!    still go on. So there are `READ_WAITS` times the patience of a request between the two readings, unless
//!    the owner took the device over after the newest checkpoint and did not need the object then. No data
//!    depends on this clock: a read that is slower gets an error.
//!
//! A listing may be old: what it has and what is not there any more is no fault. What it lacks is left over
//! until the next check. Checkpoints and pointers are never removed, so that numbers are made once. With
//! `take_over` the check is the owner itself and makes a checkpoint: everything that is unreachable is of an
//! earlier opening then.
//!
//! # What is verified
//! Each object that is needed has its checksum, which covers its head and the list of what is in it; its data
//! only with `data`, by the checksums of that list. What is missing or wrong while an owner works may just
//! have been superseded: it is a fault only if a state that is read afterwards needs it.

mod object;
mod reading;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::bucket::{Bucket, BucketError, Listed};
use crate::core::Options;
use crate::error::{Damage, Error};
use crate::format::{
    self, CheckpointNumber, Kind, LATEST_KEY, ObjectId, SECTOR_BYTES, Sequence, checkpoint_key, commit_key,
    map_key,
};
use crate::requests::{self, Waits};
use object::Looked;
use reading::{Identity, Reading, Superseded};

/// How many requests, one after the other, a read of the owner may need.
const READ_WAITS: u32 = 3;
/// Keys of a page of a listing.
const LISTED_AT_ONCE: usize = 1000;
/// Requests at once that read heads, that read whole objects, and that delete.
const HEADS_AT_ONCE: usize = 16;
const OBJECTS_AT_ONCE: usize = 4;
const DELETIONS_AT_ONCE: usize = 8;
/// Faults that are told one by one.
const MOST_PROBLEMS: usize = 1000;
/// Bytes of a pointer; a checkpoint has more.
const POINTER_BYTES: u64 = format::HEAD_BYTES as u64 + 8;

/// What a check does.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// Reads all data, and verifies it.
    pub data: bool,
    /// Removes what is left over.
    pub remove: bool,
    /// Takes the device over from its owner before, so that all that is left over can be told.
    pub take_over: bool,
    /// How requests are made.
    pub device: Options,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Its key.
    pub key: String,
    /// What is wrong, in words.
    pub what: String,
}

impl Problem {
    fn new(key: String, what: Damage) -> Self {
        Self { key, what: what.to_string() }
    }
}

/// So many objects, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// Objects by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Segments.
    pub segments: Tally,
    /// Commits.
    pub commits: Tally,
    /// Objects with pages of the map.
    pub maps: Tally,
    /// Checkpoints, pointers, and what there is one of.
    pub others: Tally,
}

impl Tallies {
    /// All together.
    pub fn sum(&self) -> Tally {
        let all = [self.segments, self.commits, self.maps, self.others];
        Tally {
            count: all.iter().map(|tally| tally.count).sum(),
            bytes: all.iter().map(|tally| tally.bytes).sum(),
        }
    }

    fn add(&mut self, name: &Name, bytes: u64) {
        let tally = match name {
            Name::Segment(_) => &mut self.segments,
            Name::Commit(_) => &mut self.commits,
            Name::Map(_) => &mut self.maps,
            Name::Checkpoint(_) | Name::Single => &mut self.others,
        };
        tally.add(bytes);
    }
}

/// What a check has found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Bytes of the device.
    pub size_bytes: u64,
    /// The last commit, and the newest checkpoint.
    pub commit: u64,
    /// See there.
    pub checkpoint: u64,
    /// Bytes of the device that have data.
    pub used_bytes: u64,
    /// Objects of the listing that are needed, with those that stay for the order of things.
    pub needed: Tallies,
    /// What is left over, and was not removed.
    pub garbage: Tallies,
    /// What was removed.
    pub removed: Tallies,
    /// Objects that are not needed, and that the last owner may still have in its hands.
    pub with_owner: Tallies,
    /// Objects that are none of the device.
    pub foreign: Tally,
    /// Bytes of data that were verified.
    pub verified_bytes: u64,
    /// What is missing or damaged, at most 1,000.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether nothing that is needed is missing or damaged.
    pub fn is_right(&self) -> bool {
        self.problems.is_empty()
    }
}

/// What goes on, for those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many objects were listed.
    Listed(u64),
    /// So many of so many objects were verified.
    Verified(u64, u64),
    /// The end of reads is waited for.
    Waits,
    /// So many of so many objects were removed.
    Removed(u64, u64),
}

/// What a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Segment(ObjectId),
    Commit(Sequence),
    Map(ObjectId),
    Checkpoint(CheckpointNumber),
    Single,
}

impl Name {
    /// That of a key; none of one that is not of the format.
    fn of(key: &str) -> Option<Self> {
        if [format::DEVICE_KEY, LATEST_KEY, crate::lease::LEASE_KEY].contains(&key) {
            return Some(Self::Single);
        }
        let number = format::number_in(key)?;
        let name = match key.split_once('/')?.0 {
            "segment" => Self::Segment(ObjectId(number)),
            "commit" => Self::Commit(Sequence(number)),
            "map" => Self::Map(ObjectId(number)),
            "checkpoint" => Self::Checkpoint(CheckpointNumber(number)),
            _ => return None,
        };
        // There is one way to write each.
        (name.key() == key).then_some(name)
    }

    fn key(self) -> String {
        match self {
            Self::Segment(id) => format!("segment/{:016x}", id.0),
            Self::Commit(sequence) => commit_key(sequence),
            Self::Map(id) => map_key(id),
            Self::Checkpoint(number) => checkpoint_key(number),
            Self::Single => LATEST_KEY.to_owned(),
        }
    }
}

/// What is known of an object by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Needed,
    /// Unreachable; its head says the rest.
    LeftOver,
    WithOwner,
}

impl Reading {
    /// How an object stands in this state.
    fn standing(&self, name: Name) -> Standing {
        let is_old = |id: ObjectId| id.epoch().is_some_and(|epoch| epoch < self.epoch);
        let of = |is_needed: bool, is_old: bool| match (is_needed, is_old) {
            (true, _) => Standing::Needed,
            (false, true) => Standing::LeftOver,
            (false, false) => Standing::WithOwner,
        };
        match name {
            Name::Single | Name::Checkpoint(_) => Standing::Needed,
            Name::Commit(sequence) => {
                let has_data = self.objects.contains_key(&ObjectId::of_commit(sequence));
                of(has_data || sequence >= self.stored, self.is_taken_up)
            }
            Name::Segment(id) => of(self.objects.contains_key(&id), is_old(id)),
            Name::Map(id) => {
                let is_old = id.epoch().is_some_and(|epoch| epoch < self.stored_epoch);
                of(self.maps.contains(&id), is_old && self.is_taken_up)
            }
        }
    }

    /// Whether an object that is unreachable is of an opening that may still need it.
    fn may_need(&self, name: Name, opening: u64) -> bool {
        opening == self.opening || matches!(name, Name::Map(_)) && opening == self.stored_opening
    }

    /// Whether the present owner may have needed it.
    fn owner_may_have_known(&self, name: Name) -> bool {
        let Some(known) = &self.known else { return true };
        match name {
            Name::Segment(id) => known.contains(&id),
            Name::Commit(sequence) => known.contains(&ObjectId::of_commit(sequence)),
            // It goes by this checkpoint or a later one.
            _ => false,
        }
    }
}

/// Tries until it is neither unsure nor looks as if it came in part, or patience ends.
async fn patiently<T>(
    options: &Options,
    mut attempt: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let until = Instant::now() + options.patience;
    let mut waits = Waits::default();
    loop {
        match attempt().await {
            Err(
                Error::Damaged { what: Damage::Short | Damage::Hash, .. }
                | Error::Store { error: BucketError::Unsure(_), .. },
            ) if Instant::now() < until => waits.wait().await,
            done => return done,
        }
    }
}

/// Tells damage, and that an object is missing, from other errors.
fn as_damage<T>(read: Result<T, Error>) -> Result<Result<T, Damage>, Error> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(Error::Damaged { what, .. }) => Ok(Err(what)),
        Err(Error::Store { error: BucketError::Missing, .. }) => Ok(Err(Damage::Missing)),
        Err(error) => Err(error),
    }
}

/// Checks the device in a bucket; see the module documentation. Runs in a `tokio::task::LocalSet`.
///
/// # Errors
/// There is no device, its state cannot be read, the store does not answer.
pub async fn check(
    bucket: &Arc<dyn Bucket>,
    options: &CheckOptions,
    progress: &dyn Fn(Step),
) -> Result<Report, Error> {
    if options.take_over {
        take_over(bucket, &options.device).await?;
    }
    let check = Check { bucket: &**bucket, options, progress };
    check.run().await
}

/// Makes the check the owner, with a checkpoint of its own. It ends at once; what it has made stays.
async fn take_over(bucket: &Arc<dyn Bucket>, options: &Options) -> Result<(), Error> {
    let options = Options { checkpoint_commits: 1, ..options.clone() };
    let core = crate::opening::open(Arc::clone(bucket), options).await?;
    // A checkpoint is made of a commit, and a commit of a write: one of what is there.
    let first = core.read(0, SECTOR_BYTES as usize).await?;
    core.write(0, first.into()).await?;
    core.flush().await?;
    core.settle().await;
    core.ended().map_or(Ok(()), Err)
}

/// What all steps of a check need.
#[derive(Clone, Copy)]
struct Check<'a> {
    bucket: &'a dyn Bucket,
    options: &'a CheckOptions,
    progress: &'a dyn Fn(Step),
}

/// What a listing has.
#[derive(Debug, Default)]
struct Listing {
    objects: Vec<(Name, u64)>,
    foreign: Tally,
}

impl Check<'_> {
    async fn run(self) -> Result<Report, Error> {
        let (bucket, device) = (self.bucket, &self.options.device);
        let of = reading::identity(bucket, device).await?;
        let listing = self.list().await?;
        let pointers = listing.objects.iter().filter_map(|(name, bytes)| match name {
            Name::Checkpoint(number) if *bytes == POINTER_BYTES => Some(*number),
            _ => None,
        });
        let mut superseded = Superseded { pointers: pointers.collect(), may_replace: self.options.remove };
        let first = reading::read(bucket, of, &mut superseded, device).await?;
        let mut report = Report {
            size_bytes: of.sectors * SECTOR_BYTES,
            commit: first.last.0,
            checkpoint: first.number.0,
            used_bytes: first.objects.values().map(|needed| needed.sectors).sum::<u64>() * SECTOR_BYTES,
            foreign: listing.foreign,
            ..Report::default()
        };
        let mut problems = first.problems.clone();
        problems.extend(gaps(&listing, &first));
        let faults = self.verify(of, &first, &mut report).await?;
        let mut left: Vec<(Name, u64)> = Vec::new();
        for (name, bytes) in &listing.objects {
            match first.standing(*name) {
                Standing::Needed => report.needed.add(name, *bytes),
                Standing::WithOwner => report.with_owner.add(name, *bytes),
                Standing::LeftOver => left.push((*name, *bytes)),
            }
        }
        let left = self.by_heads(of, &first, left, &mut report).await?;
        // What cannot be read may need anything.
        let may_remove = self.options.remove && !left.is_empty() && first.problems.is_empty();
        // What the check itself took over needs none of it, nor does an owner that comes after.
        if may_remove
            && !self.options.take_over
            && left.iter().any(|(name, ..)| first.owner_may_have_known(*name))
        {
            (self.progress)(Step::Waits);
            sleep(device.patience * READ_WAITS).await;
        }
        if faults.is_empty() && !may_remove {
            left.iter().for_each(|(name, bytes, _)| report.garbage.add(name, *bytes));
        } else {
            let second = reading::read(bucket, of, &mut superseded, device).await?;
            for (name, what) in faults {
                if second.standing(name) == Standing::Needed {
                    problems.push(Problem { key: name.key(), what });
                }
            }
            let is_still = |(name, _, opening): &(Name, u64, u64)| {
                second.problems.is_empty()
                    && !second.may_need(*name, *opening)
                    && second.standing(*name) == Standing::LeftOver
            };
            let (now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|one| may_remove && is_still(one));
            later.iter().for_each(|(name, bytes, _)| report.garbage.add(name, *bytes));
            self.remove(now, &mut report).await;
        }
        problems.sort();
        problems.dedup();
        problems.truncate(MOST_PROBLEMS);
        report.problems = problems;
        Ok(report)
    }

    async fn list(self) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        let mut seen: BTreeSet<Name> = BTreeSet::new();
        let mut after = String::new();
        loop {
            let ask = async || self.bucket.list("", &after, LISTED_AT_ONCE).await;
            let page = requests::ask(self.bucket, "", self.options.device.patience, ask).await?;
            let Some(last) = page.last().map(|one| one.key.clone()) else { return Ok(listing) };
            // One that goes back would never end.
            if last <= after {
                return Ok(listing);
            }
            after = last;
            for Listed { key, size_bytes } in page {
                match Name::of(&key) {
                    Some(Name::Single) => listing.objects.push((Name::Single, size_bytes)),
                    Some(name) => {
                        if seen.insert(name) {
                            listing.objects.push((name, size_bytes));
                        }
                    }
                    None => listing.foreign.add(size_bytes),
                }
            }
            (self.progress)(Step::Listed(listing.objects.len() as u64));
        }
    }

    /// Verifies all objects with data that a state needs; what is wrong.
    async fn verify(
        self,
        of: Identity,
        state: &Reading,
        report: &mut Report,
    ) -> Result<Vec<(Name, String)>, Error> {
        let total = state.objects.len() as u64;
        let verify = async |(id, needed): (&ObjectId, &reading::Needed)| {
            let name = match id.commit() {
                Some(sequence) => Name::Commit(sequence),
                None => Name::Segment(*id),
            };
            let looked = object::verify(self.bucket, of, *id, *needed, self.options).await?;
            Ok::<_, Error>((name, looked))
        };
        let at_once = if self.options.data { OBJECTS_AT_ONCE } else { HEADS_AT_ONCE };
        let mut all = std::pin::pin!(stream::iter(&state.objects).map(verify).buffer_unordered(at_once));
        let (mut done, mut faults) = (0, Vec::new());
        while let Some((name, looked)) = all.try_next().await? {
            match looked {
                Ok(bytes) => report.verified_bytes += bytes,
                Err(what) => faults.push((name, what)),
            }
            done += 1;
            (self.progress)(Step::Verified(done, total));
        }
        Ok(faults)
    }

    /// Of objects that are unreachable, those of earlier openings, with these.
    async fn by_heads(
        self,
        of: Identity,
        state: &Reading,
        left: Vec<(Name, u64)>,
        report: &mut Report,
    ) -> Result<Vec<(Name, u64, u64)>, Error> {
        let look = async |(name, bytes): (Name, u64)| {
            let looked = object::look(self.bucket, of, name, &self.options.device).await?;
            Ok::<_, Error>((name, bytes, looked))
        };
        let looked = stream::iter(left).map(look).buffered(HEADS_AT_ONCE);
        let looked: Vec<_> = looked.try_collect().await?;
        let mut found = Vec::new();
        for (name, bytes, looked) in looked {
            match looked {
                Looked::Gone => {}
                Looked::TookOver => report.needed.add(&name, bytes),
                Looked::Foreign => report.foreign.add(bytes),
                Looked::Of(opening) if state.may_need(name, opening) => report.with_owner.add(&name, bytes),
                Looked::Of(opening) => found.push((name, bytes, opening)),
            }
        }
        Ok(found)
    }

    async fn remove(self, all: Vec<(Name, u64, u64)>, report: &mut Report) {
        let total = all.len() as u64;
        let remove = async |(name, bytes, _): (Name, u64, u64)| {
            let key = name.key();
            let ask = async || self.bucket.delete(&key).await;
            let removed = requests::ask(self.bucket, &key, self.options.device.patience, ask).await;
            (name, bytes, removed)
        };
        let mut removed = std::pin::pin!(stream::iter(all).map(remove).buffer_unordered(DELETIONS_AT_ONCE));
        let mut done = 0;
        while let Some((name, bytes, removed)) = removed.next().await {
            match removed {
                Ok(()) => report.removed.add(&name, bytes),
                Err(error) => {
                    tracing::warn!(%error, "an object is left over");
                    report.garbage.add(&name, bytes);
                }
            }
            done += 1;
            (self.progress)(Step::Removed(done, total));
        }
    }
}

/// Commits and checkpoints that lead nowhere: one before them is missing. What was listed was there before
/// the state was read, so that it cannot be newer.
fn gaps(listing: &Listing, state: &Reading) -> Vec<Problem> {
    let names = || listing.objects.iter().map(|(name, _)| *name);
    let mut problems = Vec::new();
    if names().any(|name| matches!(name, Name::Commit(sequence) if sequence > state.last)) {
        problems.push(Problem::new(commit_key(state.last.next()), Damage::Missing));
    }
    if names().any(|name| matches!(name, Name::Checkpoint(number) if number > state.number)) {
        problems.push(Problem::new(checkpoint_key(state.number.next()), Damage::Missing));
    }
    problems
}

impl Name {
    fn kind(self) -> Kind {
        match self {
            Self::Segment(_) => Kind::Segment,
            Self::Commit(_) => Kind::Commit,
            Self::Map(_) => Kind::Map,
            Self::Checkpoint(_) => Kind::Checkpoint,
            Self::Single => Kind::Pointer,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Segment(id) | Self::Map(id) => id.0,
            Self::Commit(sequence) => sequence.0,
            Self::Checkpoint(number) => number.0,
            Self::Single => 0,
        }
    }
}
