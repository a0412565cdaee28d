//! Objects to the byte.
//!
//! All numbers are little-endian. Every object is a head, data, and a body:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `CENOTEOB` |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | kind: 1 device, 2 commit, 3 segment, 4 checkpoint, 5 map, 6 pointer, 7 lease |
//! | 12 | 4 | bytes of the body |
//! | 16 | 16 | device: random, made with it |
//! | 32 | 8 | number: of a commit its sequence, of a checkpoint its number, of others the [`ObjectId`] |
//! | 40 | 8 | opening: random, made each time that the device is opened to be written |
//! | 48 | 8 | bytes of the data |
//! | 56 | 8 | zero |
//! | 64 | 16 | the first bytes of the BLAKE3 of the head up to here and the body |
//! | 80 | | data |
//! | | | body |
//!
//! The body comes last because what it says of the data is known last. Data has checksums of its own, one for
//! each [`Entry`], and above all those of the pool.
//!
//! | key | kind | data | body |
//! |---|---|---|---|
//! | `device` | device | | size in bytes (8) |
//! | `commit/SEQUENCE` | commit | small writes | epoch (8), checkpoint (8), flags (4), entries (4), entries |
//! | `segment/ID` | segment | writes | entries (4), zero (4), entries |
//! | `checkpoint/NUMBER` | checkpoint | | sequence (8), epoch (8), objects (4), regions (4), both |
//! | `checkpoint/NUMBER`, `latest` | pointer | | number of a newer checkpoint (8) |
//! | `lease` | lease | | see [`crate::lease`] |
//! | `map/ID` | map | pages of regions: runs: start (4), sectors (4), id (8), offset (4), zero (4) | |
//!
//! The flag 1 of a commit says that it takes over. Parts of bodies:
//!
//! | part | fields |
//! |---|---|
//! | entry | sector (8), sectors (4), offset in the object (4), id, or all ones for no longer needed (8), hash (8) |
//! | object | id (8), sectors that are needed (4), sectors (4) |
//! | region | number (4), bytes of its page (4), id of the map (8), offset in it (8), hash (8) |
//!
//! Sequences, numbers and ids in keys are 16 hexadecimal digits, so that listings are in order.

use std::ops::Range;

use bytes::Bytes;

use crate::error::{Damage, Error};

/// Bytes of a sector, the unit of the map.
pub const SECTOR_BYTES: u64 = 4096;
/// Bytes of the device that a region of the map covers.
pub const REGION_BYTES: u64 = 1 << 30;
/// Sectors of a region.
pub const REGION_SECTORS: u32 = (REGION_BYTES / SECTOR_BYTES) as u32;
/// Bytes of a head.
pub const HEAD_BYTES: usize = 80;
/// Sequences and numbers are below this: there is always a next one, and room for what marks an id.
const LIMIT: u64 = 1 << 62;
/// The most bytes of any object.
pub const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 32;
/// Bytes of a run of a map's page.
pub const RUN_BYTES: usize = 24;

const MAGIC: &[u8; 8] = b"CENOTEOB";
const VERSION: u16 = 1;
const HASHED_HEAD_BYTES: usize = 64;

/// A number of a commit: each is one more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A number of a checkpoint: each is one more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CheckpointNumber(pub u64);

impl CheckpointNumber {
    /// The next one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// An object with data: a commit by its sequence, or a segment or map by the epoch in which it was made (the
/// sequence of the commit that took over) and a count within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(pub u64);

/// Bits of the count.
const COUNT_BITS: u32 = 24;
/// Says that an id is a commit's.
const OF_COMMIT: u64 = 1 << 63;
/// Stands for a range that is no longer needed.
const NOTHING: u64 = u64::MAX;

impl ObjectId {
    /// That of a commit.
    pub const fn of_commit(sequence: Sequence) -> Self {
        Self(OF_COMMIT | sequence.0)
    }

    /// The number `count` of an epoch; none beyond the last.
    pub fn new(epoch: Sequence, count: u64) -> Option<Self> {
        let fits = epoch.0 < 1 << (63 - COUNT_BITS) && count < 1 << COUNT_BITS;
        fits.then_some(Self(epoch.0 << COUNT_BITS | count))
    }

    /// The sequence, if it is a commit.
    pub const fn commit(self) -> Option<Sequence> {
        if self.0 & OF_COMMIT == 0 { None } else { Some(Sequence(self.0 & !OF_COMMIT)) }
    }

    /// The epoch in which it was made, if it is no commit.
    pub const fn epoch(self) -> Option<Sequence> {
        if self.0 & OF_COMMIT == 0 { Some(Sequence(self.0 >> COUNT_BITS)) } else { None }
    }

    /// Its key, if it is one with data of the device.
    pub fn key(self) -> String {
        match self.commit() {
            Some(sequence) => commit_key(sequence),
            None => format!("segment/{:016x}", self.0),
        }
    }
}

/// The key of a commit.
pub fn commit_key(sequence: Sequence) -> String {
    format!("commit/{:016x}", sequence.0)
}

/// The key of a checkpoint.
pub fn checkpoint_key(number: CheckpointNumber) -> String {
    format!("checkpoint/{:016x}", number.0)
}

/// The key of an object with pages of the map.
pub fn map_key(id: ObjectId) -> String {
    format!("map/{:016x}", id.0)
}

/// The number in a key after the `/`.
pub fn number_in(key: &str) -> Option<u64> {
    let digits = key.rsplit_once('/')?.1;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The key of the object that says what this is.
pub const DEVICE_KEY: &str = "device";

/// The key of a pointer to the newest checkpoint. It may be old.
pub const LATEST_KEY: &str = "latest";

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// The device: there is one.
    Device = 1,
    /// A commit.
    Commit = 2,
    /// Data.
    Segment = 3,
    /// The map as of a commit.
    Checkpoint = 4,
    /// Pages of the map.
    Map = 5,
    /// Where a newer checkpoint is.
    Pointer = 6,
    /// A sign of life of the owner ([`crate::lease`]).
    Lease = 7,
}

/// Who an object is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// The device.
    pub device: [u8; 16],
    /// The opening that wrote it.
    pub opening: u64,
}

/// The head of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Who it is of.
    pub origin: Origin,
    /// Its number.
    pub number: u64,
    /// Bytes of its data.
    pub data_bytes: u64,
}

/// An object that was read and is what it should be.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its head.
    pub head: Head,
    /// Its body.
    pub body: Bytes,
}

fn hash(head: &[u8], body: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    first
}

/// The checksum of a range of data.
pub fn data_hash(data: &[u8]) -> u64 {
    let hash = blake3::hash(data);
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap_or_default())
}

/// An object's bytes. `data` begins with room for the head.
pub fn encode(kind: Kind, head: Head, mut data: Vec<u8>, body: &[u8]) -> Bytes {
    data.resize(data.len().max(HEAD_BYTES), 0);
    let data_bytes = (data.len() - HEAD_BYTES) as u64;
    let mut bytes = Writer(Vec::with_capacity(HEAD_BYTES));
    bytes.raw(MAGIC).u16(VERSION).u16(kind as u16).u32(body.len() as u32);
    bytes.raw(&head.origin.device).u64(head.number).u64(head.origin.opening).u64(data_bytes).u64(0);
    let hash = hash(&bytes.0, body);
    bytes.raw(&hash);
    data[..HEAD_BYTES].copy_from_slice(&bytes.0);
    data.extend_from_slice(body);
    Bytes::from(data)
}

/// The number that is the whole body of an object.
pub fn number_of(key: &str, body: &[u8]) -> Result<u64, Error> {
    let number = <[u8; 8]>::try_from(body).map(u64::from_le_bytes).ok();
    number.filter(|number| *number < LIMIT).ok_or_else(|| Error::damaged(key, Damage::Body))
}

/// The kind that an object says it has.
pub fn kind_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(10..12)?.try_into().ok()?))
}

/// The head alone, with the length of the body; its hash is not checked.
pub fn decode_head(key: &str, bytes: &[u8], kind: Kind) -> Result<(Head, u32), Error> {
    let damaged = |what| Error::damaged(key, what);
    let mut from = Reader(bytes);
    let magic = from.take(8).ok_or(damaged(Damage::Short))?;
    if magic != MAGIC {
        return Err(damaged(Damage::Foreign));
    }
    let (version, of_kind) = (from.u16().ok_or(damaged(Damage::Short))?, from.u16());
    if version != VERSION {
        return Err(damaged(Damage::Version(version)));
    }
    let mut rest = || -> Option<(Head, u32)> {
        let body_bytes = from.u32()?;
        let device = from.take(16)?.try_into().ok()?;
        let (number, opening, data_bytes) = (from.u64()?, from.u64()?, from.u64()?);
        from.take(24)?;
        Some((Head { origin: Origin { device, opening }, number, data_bytes }, body_bytes))
    };
    let (head, body_bytes) = rest().ok_or(damaged(Damage::Short))?;
    if of_kind != Some(kind as u16) {
        return Err(damaged(Damage::Kind));
    }
    Ok((head, body_bytes))
}

/// An object that was read whole, of this kind, device and number.
pub fn decode(
    key: &str,
    bytes: &Bytes,
    kind: Kind,
    device: Option<[u8; 16]>,
    number: u64,
) -> Result<Object, Error> {
    let (head, body_bytes) = decode_head(key, bytes, kind)?;
    let body = body_range(key, &head, body_bytes)?;
    if body.end != bytes.len() as u64 {
        return Err(Error::damaged(key, Damage::Short));
    }
    decode_parts(key, bytes, bytes.slice(body.start as usize..), kind, device, number)
}

/// Where the body of an object is, in bytes from its beginning.
pub fn body_range(key: &str, head: &Head, body_bytes: u32) -> Result<Range<u64>, Error> {
    let start = head.data_bytes.checked_add(HEAD_BYTES as u64);
    let range = start.and_then(|start| Some(start..start.checked_add(body_bytes.into())?));
    range.filter(|range| range.end <= MAX_OBJECT_BYTES).ok_or_else(|| Error::damaged(key, Damage::Short))
}

/// An object whose head and body were read apart. Its data is not looked at.
pub fn decode_parts(
    key: &str,
    bytes: &[u8],
    body: Bytes,
    kind: Kind,
    device: Option<[u8; 16]>,
    number: u64,
) -> Result<Object, Error> {
    let damaged = |what| Error::damaged(key, what);
    let (head, body_bytes) = decode_head(key, bytes, kind)?;
    if body.len() as u64 != u64::from(body_bytes) {
        return Err(damaged(Damage::Short));
    }
    if hash(&bytes[..HASHED_HEAD_BYTES], &body) != bytes[HASHED_HEAD_BYTES..HEAD_BYTES] {
        return Err(damaged(Damage::Hash));
    }
    if device.is_some_and(|device| device != head.origin.device) {
        return Err(damaged(Damage::Device));
    }
    if head.number != number {
        return Err(damaged(Damage::Number));
    }
    Ok(Object { head, body })
}

/// What became of a range of the device, in the order in which it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// Where its bytes are; none where it is no longer needed.
    pub place: Option<Place>,
    /// Of its bytes ([`data_hash`]).
    pub hash: u64,
}

/// Where bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The object.
    pub id: ObjectId,
    /// Bytes from its beginning.
    pub offset: u32,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// The commit that began this opening.
    pub epoch: Sequence,
    /// The newest checkpoint that was known.
    pub checkpoint: CheckpointNumber,
    /// It begins an opening.
    pub takes_over: bool,
    /// What is new since the commit before.
    pub entries: Vec<Entry>,
}

fn write_entries(to: &mut Writer, entries: &[Entry]) {
    for entry in entries {
        let (id, offset) = entry.place.map_or((NOTHING, 0), |place| (place.id.0, place.offset));
        to.u64(entry.sector).u32(entry.sectors).u32(offset).u64(id).u64(entry.hash);
    }
}

fn read_entries(from: &mut Reader<'_>, count: u32, sectors: u64) -> Option<Vec<Entry>> {
    if from.0.len() != (count as usize).checked_mul(ENTRY_BYTES)? {
        return None;
    }
    let mut entries = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (sector, length, offset) = (from.u64()?, from.u32()?, from.u32()?);
        let (id, hash) = (from.u64()?, from.u64()?);
        let end = sector.checked_add(length.into())?;
        if length == 0 || end > sectors {
            return None;
        }
        let place = (id != NOTHING).then_some(Place { id: ObjectId(id), offset });
        // What is nowhere has no offset.
        let most = if place.is_some() { MAX_OBJECT_BYTES } else { u64::from(length) * SECTOR_BYTES };
        if u64::from(offset) + u64::from(length) * SECTOR_BYTES > most {
            return None;
        }
        entries.push(Entry { sector, sectors: length, place, hash });
    }
    Some(entries)
}

impl Commit {
    /// Its body.
    pub fn body(&self) -> Vec<u8> {
        let mut to = Writer(Vec::with_capacity(24 + self.entries.len() * ENTRY_BYTES));
        to.u64(self.epoch.0)
            .u64(self.checkpoint.0)
            .u32(self.takes_over.into())
            .u32(self.entries.len() as u32);
        write_entries(&mut to, &self.entries);
        to.0
    }

    /// That of a device of so many sectors.
    pub fn read(key: &str, body: &[u8], sectors: u64) -> Result<Self, Error> {
        let mut from = Reader(body);
        let mut read = || {
            let (epoch, checkpoint, flags, count) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
            let entries = read_entries(&mut from, count, sectors)?;
            let (epoch, checkpoint) = (Sequence(epoch), CheckpointNumber(checkpoint));
            (flags <= 1).then_some(Self { epoch, checkpoint, takes_over: flags == 1, entries })
        };
        read().ok_or_else(|| Error::damaged(key, Damage::Body))
    }
}

/// The body of a segment.
pub fn segment_body(entries: &[Entry]) -> Vec<u8> {
    let mut to = Writer(Vec::with_capacity(8 + entries.len() * ENTRY_BYTES));
    to.u32(entries.len() as u32).u32(0);
    write_entries(&mut to, entries);
    to.0
}

/// The entries of a segment.
pub fn read_segment(key: &str, body: &[u8], sectors: u64) -> Result<Vec<Entry>, Error> {
    let mut from = Reader(body);
    let mut read = || {
        let count = from.u32()?;
        from.zero()?;
        read_entries(&mut from, count, sectors)
    };
    read().ok_or_else(|| Error::damaged(key, Damage::Body))
}

/// How much of an object with data is needed, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// What is needed.
    pub live: u32,
    /// What it has.
    pub total: u32,
}

/// Where the page of a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePlace {
    /// The object.
    pub id: ObjectId,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Bytes of the page.
    pub bytes: u32,
    /// Of the page ([`data_hash`]).
    pub hash: u64,
}

/// The state as of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// That commit.
    pub sequence: Sequence,
    /// The opening of that commit.
    pub epoch: Sequence,
    /// All objects with data.
    pub objects: Vec<(ObjectId, Live)>,
    /// All regions that have something.
    pub regions: Vec<(u32, PagePlace)>,
}

impl Checkpoint {
    /// Its body.
    pub fn body(&self) -> Vec<u8> {
        let mut to = Writer(Vec::with_capacity(24 + self.objects.len() * 16 + self.regions.len() * 32));
        to.u64(self.sequence.0)
            .u64(self.epoch.0)
            .u32(self.objects.len() as u32)
            .u32(self.regions.len() as u32);
        for (id, live) in &self.objects {
            to.u64(id.0).u32(live.live).u32(live.total);
        }
        for (region, page) in &self.regions {
            to.u32(*region).u32(page.bytes).u64(page.id.0).u64(page.offset).u64(page.hash);
        }
        to.0
    }

    /// That of a device of so many regions.
    pub fn read(key: &str, body: &[u8], regions: u64) -> Result<Self, Error> {
        let mut from = Reader(body);
        let mut read = || {
            let (sequence, epoch) = (Sequence(from.u64()?), Sequence(from.u64()?));
            let (objects, pages) = (from.u32()? as usize, from.u32()? as usize);
            if from.0.len() != objects.checked_mul(16)?.checked_add(pages.checked_mul(32)?)? {
                return None;
            }
            let mut checkpoint = Self { sequence, epoch, ..Self::default() };
            for _ in 0..objects {
                let (id, live) = (ObjectId(from.u64()?), Live { live: from.u32()?, total: from.u32()? });
                checkpoint.objects.push((id, live));
            }
            for _ in 0..pages {
                let (region, bytes) = (from.u32()?, from.u32()?);
                let (id, offset, hash) = (ObjectId(from.u64()?), from.u64()?, from.u64()?);
                let end = offset.checked_add(bytes.into())?;
                let is_long = bytes as usize > REGION_SECTORS as usize * RUN_BYTES;
                if u64::from(region) >= regions || is_long || end > MAX_OBJECT_BYTES {
                    return None;
                }
                checkpoint.regions.push((region, PagePlace { id, offset, bytes, hash }));
            }
            (sequence.0 < LIMIT).then_some(checkpoint)
        };
        read().ok_or_else(|| Error::damaged(key, Damage::Body))
    }
}

/// A run of sectors of a region that lie one after the other in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first sector, within its region.
    pub start: u32,
    /// How many.
    pub sectors: u32,
    /// Where they are.
    pub place: Place,
}

/// A page of the map.
pub fn page(runs: impl Iterator<Item = Run>) -> Vec<u8> {
    let mut to = Writer(Vec::new());
    for run in runs {
        to.u32(run.start).u32(run.sectors).u64(run.place.id.0).u32(run.place.offset).u32(0);
    }
    to.0
}

/// The runs of a page, in order and without overlaps.
pub fn read_page(key: &str, bytes: &[u8]) -> Result<Vec<Run>, Error> {
    let mut from = Reader(bytes);
    let mut runs: Vec<Run> = Vec::with_capacity(bytes.len() / RUN_BYTES);
    let mut read = || {
        let mut end = 0;
        while !from.0.is_empty() {
            let (start, sectors) = (from.u32()?, from.u32()?);
            let place = Place { id: ObjectId(from.u64()?), offset: from.u32()? };
            from.zero()?;
            let after = start.checked_add(sectors)?;
            let last = u64::from(place.offset) + u64::from(sectors) * SECTOR_BYTES;
            if sectors == 0 || start < end || after > REGION_SECTORS || last > MAX_OBJECT_BYTES {
                return None;
            }
            end = after;
            runs.push(Run { start, sectors, place });
        }
        Some(())
    };
    read().ok_or_else(|| Error::damaged(key, Damage::Body))?;
    Ok(runs)
}

/// Appends numbers.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }
}

/// Takes numbers from the front.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Four bytes that mean nothing yet, and are zero.
    fn zero(&mut self) -> Option<()> {
        (self.u32()? == 0).then_some(())
    }

    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_changed_byte_is_found() {
        let origin = Origin { device: [7; 16], opening: 9 };
        let place = Place { id: ObjectId::new(Sequence(3), 4).unwrap(), offset: 80 };
        let entries = vec![
            Entry { sector: 5, sectors: 2, place: Some(place), hash: 1 },
            Entry { sector: 9, sectors: 1, place: None, hash: 0 },
        ];
        let commit =
            Commit { epoch: Sequence(3), checkpoint: CheckpointNumber(1), takes_over: true, entries };
        let head = Head { origin, number: 8, data_bytes: 0 };
        let bytes = encode(Kind::Commit, head, vec![0; HEAD_BYTES + 100], &commit.body());
        let read = |bytes: &Bytes| {
            let object = decode("k", bytes, Kind::Commit, Some([7; 16]), 8)?;
            assert_eq!(object.head, Head { data_bytes: 100, ..head });
            Commit::read("k", &object.body, 10)
        };
        assert_eq!(read(&bytes).unwrap(), commit);
        for at in (0..HEAD_BYTES).chain(HEAD_BYTES + 100..bytes.len()) {
            let mut changed = bytes.to_vec();
            changed[at] ^= 4;
            assert!(read(&changed.into()).is_err(), "{at}");
        }
        assert!(read(&bytes.slice(..bytes.len() - 1)).is_err());
        assert!(Commit::read("k", &commit.body(), 9).is_err(), "beyond the end of the device");
        assert!(decode("k", &bytes, Kind::Commit, Some([8; 16]), 8).is_err());
        assert!(decode("k", &bytes, Kind::Commit, None, 9).is_err());
        assert!(decode("k", &bytes, Kind::Segment, None, 8).is_err());
    }

    #[test]
    fn ids_say_their_keys() {
        assert_eq!(ObjectId::of_commit(Sequence(26)).key(), "commit/000000000000001a");
        let id = ObjectId::new(Sequence(1), 2).unwrap();
        assert_eq!((id.commit(), number_in(&id.key())), (None, Some(id.0)));
        assert_eq!(ObjectId::new(Sequence(1), 1 << COUNT_BITS), None);
        assert_eq!(number_in("segment/1"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Commit::read("k", &bytes, 1 << 20);
            let _ = read_segment("k", &bytes, 1 << 20);
            let _ = Checkpoint::read("k", &bytes, 16);
            let _ = read_page("k", &bytes);
            let _ = decode("k", &bytes.into(), Kind::Map, None, 0);
        }
    }
}
