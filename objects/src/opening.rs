//! A device that is made, found, and taken over.
//!
//! # How its state is found
//! Checkpoints are numbered one after the other, and each number is made once. So the newest is the one after
//! which none is. The object `latest` and pointers, which stand where older ones were, lead near it. Then the
//! commits after it are read, one by one, up to the first that is missing. Then the checkpoint again: if it
//! is a pointer by now, commits may have been deleted that were read as missing, and all begins anew.
//!
//! # How it is taken over
//! By making that first missing commit. If another host makes it first, its commit is read, and the next one
//! tried. Then the checkpoint is looked at once more: if it is a pointer by now, all begins anew, because the
//! owner before may have deleted commits, and the one that took over may stand where one of them was. From
//! this look on, whatever the owner before begins to delete needs a commit of its own first, which fails.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::bucket::{Bucket, BucketError};
use crate::core::{Core, Options};
use crate::error::{Damage, Error};
use crate::format::{
    self, Checkpoint, CheckpointNumber, Commit, DEVICE_KEY, HEAD_BYTES, Head, Kind, LATEST_KEY,
    MAX_OBJECT_BYTES, ObjectId, Origin, PagePlace, REGION_BYTES, SECTOR_BYTES, Sequence, checkpoint_key,
    commit_key, map_key,
};
use crate::map::Map;
use crate::opener;
use crate::requests;

/// The least size of a device, in bytes.
const MIN_BYTES: u64 = 64 << 20;
/// The largest.
const MAX_BYTES: u64 = 1 << 60;
/// How often a state is looked for that changes all the time.
const TRIES: usize = 64;
/// Commits that are read at once.
const READ_AHEAD: usize = 8;

/// What a device is as of a commit.
#[derive(Debug)]
pub(crate) struct Found {
    pub origin: Origin,
    pub size_bytes: u64,
    pub map: Map,
    /// The last commit.
    pub last: Sequence,
    /// The checkpoint before it.
    pub checkpoint: CheckpointNumber,
    /// The commit of that.
    pub stored: Sequence,
    /// The opening that made the last commit.
    pub epoch: Sequence,
}

/// Random numbers that no other opening has.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    if filled.is_err() {
        // The system has none yet: what is not random is at least not the same twice.
        bytes.fill_with(|| fastrand::u8(..));
    }
    bytes
}

/// Whether a device can have so many bytes.
pub(crate) fn is_size(bytes: u64) -> bool {
    (MIN_BYTES..=MAX_BYTES).contains(&bytes) && bytes.is_multiple_of(SECTOR_BYTES)
}

/// Makes a device of so many bytes.
///
/// # Errors
/// A size that cannot be; there is one; the store.
pub async fn create(bucket: &dyn Bucket, size_bytes: u64, options: &Options) -> Result<(), Error> {
    if !is_size(size_bytes) {
        return Err(Error::Size);
    }
    let device = random();
    let head = first_head(device);
    let body = format::encode(Kind::Device, head, Vec::new(), &size_bytes.to_le_bytes());
    if !requests::create(bucket, DEVICE_KEY, &body, options.patience).await? {
        return Err(Error::IsThere { address: bucket.address().to_owned() });
    }
    complete(bucket, device, options).await
}

/// The head of the first objects.
fn first_head(device: [u8; 16]) -> Head {
    let origin = Origin { device, opening: u64::from_le_bytes(random()) };
    Head { origin, number: 0, data_bytes: 0 }
}

/// Makes the first checkpoint, if it is not there: one who makes a device may end before that.
pub(crate) async fn complete(bucket: &dyn Bucket, device: [u8; 16], options: &Options) -> Result<(), Error> {
    let body = Checkpoint::default().body();
    let first = format::encode(Kind::Checkpoint, first_head(device), Vec::new(), &body);
    requests::create(bucket, &checkpoint_key(CheckpointNumber(0)), &first, options.patience).await?;
    Ok(())
}

/// Where to begin to look for the newest checkpoint.
async fn hint(bucket: &dyn Bucket, options: &Options) -> Result<CheckpointNumber, Error> {
    let bytes = requests::object(bucket, LATEST_KEY, MAX_OBJECT_BYTES, options.patience).await?;
    // One that is damaged is none.
    let pointer = bytes.and_then(|bytes| format::decode(LATEST_KEY, &bytes, Kind::Pointer, None, 0).ok());
    let number = pointer.and_then(|pointer| format::number_of(LATEST_KEY, &pointer.body).ok());
    Ok(CheckpointNumber(number.unwrap_or(0)))
}

/// The newest checkpoint; none where that changes all the time.
pub(crate) async fn newest(
    bucket: &dyn Bucket,
    device: [u8; 16],
    regions: u64,
    options: &Options,
) -> Result<Option<(CheckpointNumber, Checkpoint)>, Error> {
    let mut at = hint(bucket, options).await?;
    let (mut found, mut began_anew) = (None, false);
    loop {
        match (checkpoint_at(bucket, device, at, regions, options).await?, found.take()) {
            (At::Checkpoint(checkpoint), _) => {
                found = Some((at, checkpoint));
                at = at.next();
            }
            (At::Pointer(next), _) if next > at => at = next,
            (At::Pointer(_), _) => return Err(Error::damaged(&checkpoint_key(at), Damage::Body)),
            (At::Missing, Some(found)) => return Ok(Some(found)),
            (At::Missing, None) if at == CheckpointNumber(0) => return Ok(None),
            // The hint made no sense.
            (At::Missing, None) if !began_anew => (at, began_anew) = (CheckpointNumber(0), true),
            // A pointer is made after what it leads to.
            (At::Missing, None) => return Err(Error::damaged(&checkpoint_key(at), Damage::Missing)),
        }
    }
}

/// The checkpoint of this number, or the one that its pointer leads to.
pub(crate) enum At {
    Checkpoint(Checkpoint),
    Pointer(CheckpointNumber),
    Missing,
}

pub(crate) async fn checkpoint_at(
    bucket: &dyn Bucket,
    device: [u8; 16],
    number: CheckpointNumber,
    regions: u64,
    options: &Options,
) -> Result<At, Error> {
    let key = checkpoint_key(number);
    let until = tokio::time::Instant::now() + options.patience;
    let mut waits = requests::Waits::default();
    loop {
        let Some(bytes) = requests::object(bucket, &key, MAX_OBJECT_BYTES, options.patience).await? else {
            return Ok(At::Missing);
        };
        let read = match format::kind_of(&bytes) == Some(Kind::Pointer as u16) {
            true => format::decode(&key, &bytes, Kind::Pointer, Some(device), number.0)
                .and_then(|object| Ok(At::Pointer(CheckpointNumber(format::number_of(&key, &object.body)?)))),
            false => format::decode(&key, &bytes, Kind::Checkpoint, Some(device), number.0)
                .and_then(|object| Ok(At::Checkpoint(Checkpoint::read(&key, &object.body, regions)?))),
        };
        match read {
            // It may have come in part.
            Err(Error::Damaged { what: Damage::Short | Damage::Hash, .. })
                if tokio::time::Instant::now() < until =>
            {
                waits.wait().await;
            }
            read => return read,
        }
    }
}

/// A commit; none where it is missing.
pub(crate) async fn commit_at(
    bucket: &dyn Bucket,
    device: [u8; 16],
    sequence: Sequence,
    sectors: u64,
    options: &Options,
) -> Result<Option<(Head, Commit)>, Error> {
    let key = commit_key(sequence);
    let until = tokio::time::Instant::now() + options.patience;
    let mut waits = requests::Waits::default();
    loop {
        let Some(bytes) = requests::object(bucket, &key, MAX_OBJECT_BYTES, options.patience).await? else {
            return Ok(None);
        };
        let read = format::decode(&key, &bytes, Kind::Commit, Some(device), sequence.0)
            .and_then(|object| Ok((object.head, Commit::read(&key, &object.body, sectors)?)));
        match read {
            Ok(read) => return Ok(Some(read)),
            Err(Error::Damaged { what: Damage::Short | Damage::Hash, .. })
                if tokio::time::Instant::now() < until =>
            {
                waits.wait().await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads a page of the map.
pub(crate) async fn page_at(
    bucket: &dyn Bucket,
    place: PagePlace,
    options: &Options,
) -> Result<Vec<format::Run>, Error> {
    let key = map_key(place.id);
    let range = place.offset..place.offset + u64::from(place.bytes);
    let ask = async || {
        let bytes = bucket.get(&key, range.clone()).await?;
        match format::data_hash(&bytes) == place.hash {
            true => Ok(bytes),
            false => Err(BucketError::Unsure("a page of the map has a wrong checksum".into())),
        }
    };
    let bytes = requests::ask(bucket, &key, options.patience, ask).await?;
    format::read_page(&key, &bytes)
}

/// Loads the regions of a range.
pub(crate) async fn load(
    bucket: &dyn Bucket,
    map: &mut Map,
    (sector, sectors): (u64, u64),
    options: &Options,
) -> Result<(), Error> {
    while let Some((region, place)) = map.to_load(sector, sectors) {
        let runs = page_at(bucket, place, options).await?;
        map.load(region, place, runs);
    }
    Ok(())
}

/// What a commit says is in the map from now on. Its regions must be loaded.
fn apply(map: &mut Map, sequence: Sequence, head: &Head, commit: &Commit) {
    let own = ObjectId::of_commit(sequence);
    if head.data_bytes > 0 {
        // An object has 64 MiB at most.
        map.add_object(own, (head.data_bytes / SECTOR_BYTES) as u32);
    }
    for entry in &commit.entries {
        if let Some(place) = entry.place {
            let total = map.object(place.id).map_or(0, |live| live.total);
            if place.id != own {
                map.add_object(place.id, total.saturating_add(entry.sectors));
            }
        }
        map.set(entry.sector, entry.sectors.into(), entry.place);
    }
}

/// The map of a checkpoint with the commits after it, the last of them, and the opening that made that.
async fn replay(
    bucket: &dyn Bucket,
    origin: Origin,
    checkpoint: Checkpoint,
    sectors: u64,
    options: &Options,
) -> Result<(Map, Sequence, Sequence), Error> {
    let (at, mut epoch) = (checkpoint.sequence, checkpoint.epoch);
    let mut map = Map::new(checkpoint.objects, checkpoint.regions);
    let mut last = at;
    let numbers = stream::iter((at.0 + 1..).map(Sequence));
    let read = async |sequence| commit_at(bucket, origin.device, sequence, sectors, options).await;
    let mut commits = std::pin::pin!(numbers.map(read).buffered(READ_AHEAD));
    while let Some(read) = commits.next().await {
        let Some((head, commit)) = read? else { break };
        for entry in &commit.entries {
            load(bucket, &mut map, (entry.sector, entry.sectors.into()), options).await?;
        }
        (last, epoch) = (last.next(), commit.epoch);
        apply(&mut map, last, &head, &commit);
    }
    Ok((map, last, epoch))
}

fn no_device(bucket: &dyn Bucket) -> Error {
    Error::NoDevice { address: bucket.address().to_owned() }
}

/// The device's id, and its size in bytes.
pub(crate) async fn device_of(bucket: &dyn Bucket, options: &Options) -> Result<([u8; 16], u64), Error> {
    let read_device = async || {
        let bytes = bucket.get_all(DEVICE_KEY, MAX_OBJECT_BYTES).await?;
        match format::decode(DEVICE_KEY, &bytes, Kind::Device, None, 0) {
            Err(Error::Damaged { what: Damage::Short | Damage::Hash, .. }) => {
                Err(BucketError::Unsure("the object is damaged".into()))
            }
            read => Ok(read),
        }
    };
    let device = match requests::ask(bucket, DEVICE_KEY, options.patience, read_device).await {
        Err(Error::Store { error: BucketError::Missing, .. }) => return Err(no_device(bucket)),
        read => read??,
    };
    let size_bytes = format::number_of(DEVICE_KEY, &device.body)?;
    if !is_size(size_bytes) {
        return Err(Error::damaged(DEVICE_KEY, Damage::Body));
    }
    Ok((device.head.origin.device, size_bytes))
}

/// What the device is now.
pub(crate) async fn find(bucket: &dyn Bucket, options: &Options) -> Result<Found, Error> {
    let (device, size_bytes) = device_of(bucket, options).await?;
    let (sectors, regions) = (size_bytes / SECTOR_BYTES, size_bytes.div_ceil(REGION_BYTES));
    let origin = Origin { device, opening: u64::from_le_bytes(random()) };
    for _ in 0..TRIES {
        let Some((at, checkpoint)) = newest(bucket, origin.device, regions, options).await? else {
            // A device whose first checkpoint was not made has nothing.
            return Err(no_device(bucket));
        };
        let stored = checkpoint.sequence;
        let replayed = replay(bucket, origin, checkpoint, sectors, options).await;
        if !matches!(checkpoint_at(bucket, origin.device, at, regions, options).await?, At::Checkpoint(_)) {
            continue;
        }
        let (map, last, epoch) = replayed?;
        return Ok(Found { origin, size_bytes, map, last, checkpoint: at, stored, epoch });
    }
    Err(Error::damaged(&checkpoint_key(CheckpointNumber(0)), Damage::Missing))
}

/// Opens the device to be written: takes it over from every other opening.
///
/// # Errors
/// There is none, it is damaged, the store does not answer, or others write and take it over all the time.
pub async fn open(bucket: Arc<dyn Bucket>, options: Options) -> Result<Core, Error> {
    open_if(bucket, options, |_| true).await
}

/// Opens the device to be written if this process wrote it last.
///
/// # Errors
/// As of [`open`]; [`Error::TakenOver`] where others wrote it since.
pub async fn open_again(bucket: Arc<dyn Bucket>, options: Options) -> Result<Core, Error> {
    open_if(bucket, options, |found| opener::held(found.origin.device) == Some(found.epoch)).await
}

async fn open_if(
    bucket: Arc<dyn Bucket>,
    options: Options,
    may: impl Fn(&Found) -> bool,
) -> Result<Core, Error> {
    for _ in 0..TRIES {
        let mut found = find(&*bucket, &options).await?;
        let regions = found.size_bytes.div_ceil(REGION_BYTES);
        let (device, base) = (found.origin.device, found.checkpoint);
        let taken = take_over(&*bucket, &mut found, &options, &may).await;
        // If the owner before has superseded the checkpoint meanwhile, it may have deleted what this state
        // needs; and this opening's commit may be where an older one was deleted.
        if !matches!(checkpoint_at(&*bucket, device, base, regions, &options).await?, At::Checkpoint(_)) {
            continue;
        }
        if let Some(sequence) = taken? {
            opener::is_held(device, sequence);
            return Ok(Core::new(bucket, found, Some(sequence), options));
        }
    }
    Err(Error::TakenOver)
}

/// Makes the commit that takes over, after those that others make meanwhile. None where that does not end.
async fn take_over(
    bucket: &dyn Bucket,
    found: &mut Found,
    options: &Options,
    may: impl Fn(&Found) -> bool,
) -> Result<Option<Sequence>, Error> {
    let sectors = found.size_bytes / SECTOR_BYTES;
    for _ in 0..TRIES {
        if !may(found) {
            return Err(Error::TakenOver);
        }
        let sequence = found.last.next();
        let commit =
            Commit { epoch: sequence, checkpoint: found.checkpoint, takes_over: true, entries: Vec::new() };
        let head = Head { origin: found.origin, number: sequence.0, data_bytes: 0 };
        let bytes: Bytes = format::encode(Kind::Commit, head, vec![0; HEAD_BYTES], &commit.body());
        if requests::create(bucket, &commit_key(sequence), &bytes, options.patience).await? {
            found.last = sequence;
            return Ok(Some(sequence));
        }
        // The owner before has written meanwhile, or another host takes the device over too.
        let read = commit_at(bucket, found.origin.device, sequence, sectors, options).await?;
        // It was there just now, and a checkpoint after it is.
        let Some((head, commit)) = read else { return Ok(None) };
        for entry in &commit.entries {
            load(bucket, &mut found.map, (entry.sector, entry.sectors.into()), options).await?;
        }
        apply(&mut found.map, sequence, &head, &commit);
        (found.last, found.epoch) = (sequence, commit.epoch);
    }
    Ok(None)
}

/// Opens the device to be read as it is now. Others may write it.
///
/// # Errors
/// There is none, it is damaged, the store does not answer.
pub async fn open_to_read(bucket: Arc<dyn Bucket>, options: Options) -> Result<Core, Error> {
    let found = find(&*bucket, &options).await?;
    Ok(Core::new(bucket, found, None, options))
}
