//! What the newest state of a device needs, from its checkpoint, all pages of the map, and the commits.
//!
//! Pages are read one after the other and forgotten, so that memory is needed for the objects and for the
//! commits after the checkpoint, not for the map.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::{Problem, patiently};
use crate::bucket::{Bucket, BucketError};
use crate::core::Options;
use crate::error::{Damage, Error};
use crate::format::{
    self, CheckpointNumber, DEVICE_KEY, Entry, HEAD_BYTES, Head, Kind, MAX_OBJECT_BYTES, ObjectId, PagePlace,
    Place, REGION_BYTES, REGION_SECTORS, Run, SECTOR_BYTES, Sequence, checkpoint_key, map_key,
};
use crate::map::{Map, Piece};
use crate::opening::{self, At};
use crate::requests;

/// How often a state is read that changes all the time.
const TRIES: usize = 64;
/// Commits that are read at once.
const READ_AHEAD: usize = 8;
/// Parts of entries by regions that are held at once.
const MOST_PARTS: usize = 64 << 20;

/// The device itself.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Its random id.
    pub device: [u8; 16],
    /// Its size in sectors.
    pub sectors: u64,
}

impl Identity {
    fn regions(self) -> u64 {
        (self.sectors * SECTOR_BYTES).div_ceil(REGION_BYTES)
    }
}

/// What is needed of an object with data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needed {
    /// Sectors.
    pub sectors: u64,
    /// The byte after the last that is needed.
    pub end: u64,
}

/// The newest state, as it was found.
#[derive(Debug, Default)]
pub struct Reading {
    /// The newest checkpoint, and its commit.
    pub number: CheckpointNumber,
    pub stored: Sequence,
    /// The last commit.
    pub last: Sequence,
    /// The opening of the last commit: the sequence that began it, and its random number.
    pub epoch: Sequence,
    pub opening: u64,
    /// The same of the checkpoint: who made it was the owner then.
    pub stored_epoch: Sequence,
    pub stored_opening: u64,
    /// Whether the owner goes by this checkpoint or a later one, and all before are pointers.
    pub is_taken_up: bool,
    /// Objects with data that the state needs.
    pub objects: BTreeMap<ObjectId, Needed>,
    /// Those that the owner needed when it took over; none where the checkpoint does not say any more.
    pub known: Option<BTreeSet<ObjectId>>,
    /// Objects with pages of the map.
    pub maps: BTreeSet<ObjectId>,
    /// What cannot be read of it. Then it may need objects that are not among those.
    pub problems: Vec<Problem>,
}

/// Reads what the device is.
pub async fn identity(bucket: &dyn Bucket, options: &Options) -> Result<Identity, Error> {
    let read = patiently(options, async || {
        let bytes = requests::object(bucket, DEVICE_KEY, MAX_OBJECT_BYTES, options.patience).await?;
        let Some(bytes) = bytes else { return Ok(None) };
        format::decode(DEVICE_KEY, &bytes, Kind::Device, None, 0).map(Some)
    });
    let Some(object) = read.await? else {
        return Err(Error::NoDevice { address: bucket.address().to_owned() });
    };
    let size_bytes = format::number_of(DEVICE_KEY, &object.body)?;
    if !opening::is_size(size_bytes) {
        return Err(Error::damaged(DEVICE_KEY, Damage::Body));
    }
    Ok(Identity { device: object.head.origin.device, sectors: size_bytes / SECTOR_BYTES })
}

/// Checkpoints of the bucket: those that were pointers in a listing, and whether others may become pointers.
#[derive(Debug, Default)]
pub struct Superseded {
    /// Numbers of those that are pointers.
    pub pointers: BTreeSet<CheckpointNumber>,
    /// Whether those that are not may be replaced.
    pub may_replace: bool,
}

impl Superseded {
    /// Whether all before `number` are pointers now. What is missing is told.
    async fn all_before(
        &mut self,
        bucket: &dyn Bucket,
        of: Identity,
        number: CheckpointNumber,
        options: &Options,
        problems: &mut Vec<Problem>,
    ) -> Result<bool, Error> {
        /// More cannot be asked for one by one.
        const MOST: u64 = 4096;
        let known = self.pointers.range(..number).count() as u64;
        if number.0 - known > MOST {
            problems.push(Problem::new(checkpoint_key(number), Damage::Missing));
            return Ok(false);
        }
        let unknown = (0..number.0).map(CheckpointNumber).filter(|one| !self.pointers.contains(one));
        let unknown: Vec<CheckpointNumber> = unknown.collect();
        let mut are_all = true;
        for one in unknown {
            let key = checkpoint_key(one);
            match opening::checkpoint_at(bucket, of.device, one, of.regions(), options).await? {
                At::Pointer(_) => {}
                At::Checkpoint(_) if self.may_replace => {
                    let origin = format::Origin { device: of.device, opening: 0 };
                    let head = Head { origin, number: one.0, data_bytes: 0 };
                    let pointer = format::encode(Kind::Pointer, head, Vec::new(), &number.0.to_le_bytes());
                    let ask = async || bucket.put(&key, pointer.clone()).await;
                    requests::ask(bucket, &key, options.patience, ask).await?;
                }
                At::Checkpoint(_) => {
                    are_all = false;
                    continue;
                }
                At::Missing => {
                    problems.push(Problem::new(key, Damage::Missing));
                    continue;
                }
            }
            self.pointers.insert(one);
        }
        Ok(are_all)
    }
}

/// Reads the newest state.
///
/// The order matters to [`Reading::is_taken_up`]: the pointers are looked at before the commits.
pub async fn read(
    bucket: &dyn Bucket,
    of: Identity,
    superseded: &mut Superseded,
    options: &Options,
) -> Result<Reading, Error> {
    for _ in 0..TRIES {
        let Some((number, checkpoint)) = opening::newest(bucket, of.device, of.regions(), options).await?
        else {
            return Err(Error::NoDevice { address: bucket.address().to_owned() });
        };
        let mut reading = Reading { number, stored: checkpoint.sequence, ..Reading::default() };
        let are_pointers = superseded.all_before(bucket, of, number, options, &mut reading.problems).await?;
        let counted: BTreeMap<ObjectId, u64> =
            checkpoint.objects.iter().map(|(id, live)| (*id, live.live.into())).collect();
        let of_checkpoint = (checkpoint.epoch, checkpoint.regions);
        let read = read_from(bucket, of, &mut reading, of_checkpoint, counted, are_pointers, options).await;
        // If it was superseded meanwhile, pages and commits may be gone.
        let again = opening::checkpoint_at(bucket, of.device, number, of.regions(), options).await?;
        if matches!(again, At::Checkpoint(_)) {
            read?;
            return Ok(reading);
        }
    }
    Err(Error::Store {
        address: bucket.address().to_owned(),
        key: checkpoint_key(CheckpointNumber(0)),
        error: BucketError::Unsure("checkpoints are made faster than they can be read".into()),
    })
}

async fn read_from(
    bucket: &dyn Bucket,
    of: Identity,
    reading: &mut Reading,
    (epoch, regions): (Sequence, Vec<(u32, PagePlace)>),
    counted: BTreeMap<ObjectId, u64>,
    are_pointers: bool,
    options: &Options,
) -> Result<(), Error> {
    let commits = Commits::read(bucket, of, reading, epoch, options).await?;
    reading.is_taken_up = are_pointers && commits.is_taken_up;
    let mut at_checkpoint: BTreeMap<ObjectId, u64> = BTreeMap::new();
    if commits.taken_over_at.is_some() {
        reading.known = Some(BTreeSet::new());
    }
    let pages: BTreeMap<u32, PagePlace> = regions.into_iter().collect();
    reading.maps = pages.values().map(|page| page.id).collect();
    let numbers: BTreeSet<u32> = pages.keys().chain(commits.by_region.keys()).copied().collect();
    let mut is_whole = true;
    for region in numbers {
        let page = pages.get(&region).copied();
        let runs = match page {
            None => Vec::new(),
            Some(page) => match read_page(bucket, page, options).await? {
                Ok(runs) => runs,
                Err(what) => {
                    reading.problems.push(Problem::new(map_key(page.id), what));
                    is_whole = false;
                    continue;
                }
            },
        };
        for run in &runs {
            *at_checkpoint.entry(run.place.id).or_default() += u64::from(run.sectors);
        }
        let changes = commits.by_region.get(&region).map_or(&[][..], Vec::as_slice);
        add_region(reading, (region, page, runs), changes, commits.taken_over_at);
    }
    let is_counted = |id: &ObjectId| counted.get(id) == at_checkpoint.get(id);
    if is_whole && !counted.keys().chain(at_checkpoint.keys()).all(is_counted) {
        reading.problems.push(Problem::new(checkpoint_key(reading.number), Damage::Body));
    }
    Ok(())
}

/// Adds what a region needs.
fn add_region(
    reading: &mut Reading,
    (region, page, runs): (u32, Option<PagePlace>, Vec<Run>),
    changes: &[(usize, Entry)],
    taken_over_at: Option<usize>,
) {
    let pages = page.map(|page| (region, page));
    let mut map = Map::new(Vec::new(), pages.into_iter().collect());
    if let Some(page) = page {
        map.load(region, page, runs);
    }
    let first = u64::from(region) * u64::from(REGION_SECTORS);
    let of = |map: &mut Map| map.get(first, REGION_SECTORS.into());
    let is_before = |at: usize| taken_over_at.is_some_and(|taken| at < taken);
    let mut changes = changes.iter().peekable();
    while let Some((_, entry)) = changes.next_if(|(at, _)| is_before(*at)) {
        map.set(entry.sector, entry.sectors.into(), entry.place);
    }
    if let Some(known) = &mut reading.known {
        known.extend(of(&mut map).iter().filter_map(|piece| Some(piece.place?.id)));
    }
    for (_, entry) in changes {
        map.set(entry.sector, entry.sectors.into(), entry.place);
    }
    for Piece { sectors, place, .. } in of(&mut map) {
        let Some(place) = place else { continue };
        let needed = reading.objects.entry(place.id).or_default();
        needed.sectors += u64::from(sectors);
        needed.end = needed.end.max(u64::from(place.offset) + u64::from(sectors) * SECTOR_BYTES);
    }
}

/// A page of the map, or what is wrong with it.
async fn read_page(
    bucket: &dyn Bucket,
    place: PagePlace,
    options: &Options,
) -> Result<Result<Vec<Run>, Damage>, Error> {
    let key = map_key(place.id);
    let range = place.offset..place.offset + u64::from(place.bytes);
    let read = patiently(options, async || {
        let bytes: Bytes =
            bucket.get(&key, range.clone()).await.map_err(|error| requests::failed(bucket, &key, error))?;
        match format::data_hash(&bytes) == place.hash {
            true => format::read_page(&key, &bytes),
            false => Err(Error::damaged(&key, Damage::Hash)),
        }
    });
    super::as_damage(read.await)
}

/// The commits after a checkpoint.
#[derive(Debug, Default)]
struct Commits {
    /// Parts of their entries by regions, each with its place in the order of all.
    by_region: BTreeMap<u32, Vec<(usize, Entry)>>,
    /// Where among them the last owner took over; none where that was before.
    taken_over_at: Option<usize>,
    is_taken_up: bool,
}

impl Commits {
    async fn read(
        bucket: &dyn Bucket,
        of: Identity,
        reading: &mut Reading,
        epoch: Sequence,
        options: &Options,
    ) -> Result<Self, Error> {
        let read =
            async |sequence| opening::commit_at(bucket, of.device, sequence, of.sectors, options).await;
        let numbers = stream::iter((reading.stored.0 + 1..).map(Sequence));
        let mut stream = std::pin::pin!(numbers.map(read).buffered(READ_AHEAD));
        let mut commits = Self::default();
        (reading.last, reading.epoch, reading.stored_epoch) = (reading.stored, epoch, epoch);
        // A checkpoint is made by the owner whose commit it is of.
        let checkpoint = checkpoint_key(reading.number);
        let made_by = head_of(bucket, &checkpoint, Kind::Checkpoint, of, options).await?;
        reading.opening = made_by.map_or(0, |head| head.origin.opening);
        reading.stored_opening = reading.opening;
        commits.is_taken_up = true;
        let (mut entries, mut parts) = (0, 0);
        while let Some(read) = stream.next().await {
            let Some((head, commit)) = read? else { break };
            reading.last = reading.last.next();
            // An owner that begins a new epoch because ids run out is no other owner.
            if head.origin.opening != reading.opening {
                commits.taken_over_at = Some(entries);
                commits.is_taken_up = false;
            }
            (reading.opening, reading.epoch) = (head.origin.opening, commit.epoch);
            commits.is_taken_up |= commit.checkpoint >= reading.number;
            for entry in commit.entries {
                parts += commits.add(entries, entry);
                entries += 1;
            }
            if parts > MOST_PARTS {
                return Err(Error::damaged(&format::commit_key(reading.last), Damage::Body));
            }
        }
        Ok(commits)
    }

    /// Adds the parts of an entry; how many.
    fn add(&mut self, at: usize, entry: Entry) -> usize {
        let (mut sector, end) = (entry.sector, entry.sector + u64::from(entry.sectors));
        let mut parts = 0;
        while sector < end {
            let region = sector / u64::from(REGION_SECTORS);
            let next = end.min((region + 1) * u64::from(REGION_SECTORS));
            let skipped = ((sector - entry.sector) * SECTOR_BYTES) as u32;
            let place = entry.place.map(|place| Place { offset: place.offset + skipped, ..place });
            let part = Entry { sector, sectors: (next - sector) as u32, place, ..entry };
            self.by_region.entry(region as u32).or_default().push((at, part));
            (sector, parts) = (next, parts + 1);
        }
        parts
    }
}

/// The head of an object; none where that is missing.
async fn head_of(
    bucket: &dyn Bucket,
    key: &str,
    kind: Kind,
    of: Identity,
    options: &Options,
) -> Result<Option<Head>, Error> {
    let read = patiently(options, async || {
        let bytes = bucket.get(key, 0..HEAD_BYTES as u64).await;
        let bytes = bytes.map_err(|error| requests::failed(bucket, key, error))?;
        format::decode_head(key, &bytes, kind)
    });
    match read.await {
        Ok((head, _)) => Ok(Some(head).filter(|head| head.origin.device == of.device)),
        // It may be a pointer by now.
        Err(Error::Damaged { what: Damage::Kind, .. }) => Ok(None),
        Err(Error::Store { error: BucketError::Missing, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
