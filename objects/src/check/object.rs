//! One object: whether it is what it should be, and of which opening.

use bytes::Bytes;

use super::reading::{Identity, Needed};
use super::{CheckOptions, Name, as_damage, patiently};
use crate::bucket::{Bucket, BucketError};
use crate::core::Options;
use crate::error::{Damage, Error};
use crate::format::{
    self, Commit, Entry, HEAD_BYTES, Kind, MAX_OBJECT_BYTES, Object, ObjectId, SECTOR_BYTES,
};
use crate::requests;

/// What an object says of itself that no state needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// The listing was old.
    Gone,
    /// A commit that began an opening.
    TookOver,
    /// Not of the device, or damaged: it is left alone.
    Foreign,
    /// Of this opening.
    Of(u64),
}

/// Reads the head and the body of an object, and not its data.
async fn ends(bucket: &dyn Bucket, of: Identity, name: Name, options: &Options) -> Result<Object, Error> {
    let key = name.key();
    let get = async |range| {
        let bytes: Result<Bytes, BucketError> = bucket.get(&key, range).await;
        bytes.map_err(|error| requests::failed(bucket, &key, error))
    };
    let read = patiently(options, async || {
        let bytes = get(0..HEAD_BYTES as u64).await?;
        let (head, body_bytes) = format::decode_head(&key, &bytes, name.kind())?;
        let range = format::body_range(&key, &head, body_bytes)?;
        let body = if range.is_empty() { Bytes::new() } else { get(range).await? };
        format::decode_parts(&key, &bytes, body, name.kind(), Some(of.device), name.number())
    });
    match read.await {
        // It may end before what was asked for, which is no fault of the store.
        Err(error @ Error::Store { error: BucketError::Unsure(_), .. }) => {
            match bucket.get_all(&key, MAX_OBJECT_BYTES).await {
                Ok(bytes) => format::decode(&key, &bytes, name.kind(), Some(of.device), name.number()),
                Err(_) => Err(error),
            }
        }
        read => read,
    }
}

/// Of which opening an object is.
///
/// # Errors
/// The store.
pub async fn look(bucket: &dyn Bucket, of: Identity, name: Name, options: &Options) -> Result<Looked, Error> {
    let object = match as_damage(ends(bucket, of, name, options).await)? {
        Ok(object) => object,
        Err(Damage::Missing) => return Ok(Looked::Gone),
        Err(_) => return Ok(Looked::Foreign),
    };
    if let Name::Commit(_) = name {
        match Commit::read(&name.key(), &object.body, of.sectors) {
            Ok(commit) if commit.takes_over => return Ok(Looked::TookOver),
            Ok(_) => {}
            Err(_) => return Ok(Looked::Foreign),
        }
    }
    Ok(Looked::Of(object.head.origin.opening))
}

/// Verifies an object of which something is needed: the bytes of its data that were verified, or what is
/// wrong.
///
/// # Errors
/// The store.
pub async fn verify(
    bucket: &dyn Bucket,
    of: Identity,
    id: ObjectId,
    needed: Needed,
    options: &CheckOptions,
) -> Result<Result<u64, String>, Error> {
    let name = match id.commit() {
        Some(sequence) => Name::Commit(sequence),
        None => Name::Segment(id),
    };
    let key = name.key();
    let read = patiently(&options.device, async || {
        if !options.data {
            let object = ends(bucket, of, name, &options.device).await?;
            entries(&key, name.kind(), &object, of.sectors)?;
            return Ok((object, None));
        }
        let bytes = bucket.get_all(&key, MAX_OBJECT_BYTES).await;
        let bytes = bytes.map_err(|error| requests::failed(bucket, &key, error))?;
        let object = format::decode(&key, &bytes, name.kind(), Some(of.device), name.number())?;
        Ok((object, Some(bytes)))
    });
    let (object, bytes) = match as_damage(read.await)? {
        Ok(read) => read,
        Err(what) => return Ok(Err(what.to_string())),
    };
    if needed.end > object.head.data_bytes + HEAD_BYTES as u64 {
        return Ok(Err("it has less than the map says".to_owned()));
    }
    let Some(bytes) = bytes else { return Ok(Ok(0)) };
    let entries = match entries(&key, name.kind(), &object, of.sectors) {
        Ok(entries) => entries,
        Err(_) => return Ok(Err(Damage::Body.to_string())),
    };
    let (mut right, mut wrong) = (0, 0);
    for entry in entries {
        let Some(place) = entry.place.filter(|place| place.id == id) else { continue };
        let length = u64::from(entry.sectors) * SECTOR_BYTES;
        let from = place.offset as usize;
        match bytes.get(from..from + length as usize) {
            Some(data) if format::data_hash(data) == entry.hash => right += length,
            _ => wrong += 1,
        }
    }
    Ok(match wrong {
        0 => Ok(right),
        1 => Err("the checksum of a write in it is wrong".to_owned()),
        _ => Err(format!("the checksums of {wrong} writes in it are wrong")),
    })
}

fn entries(key: &str, kind: Kind, object: &Object, sectors: u64) -> Result<Vec<Entry>, Error> {
    match kind {
        Kind::Commit => Ok(Commit::read(key, &object.body, sectors)?.entries),
        _ => format::read_segment(key, &object.body, sectors),
    }
}
