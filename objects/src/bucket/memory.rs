//! Objects in memory, for tests and simulations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use ::device::IgnorePoison;
use bytes::Bytes;

use super::{Bucket, BucketError, BucketFuture, Listed};

/// Objects in memory.
#[derive(Debug)]
pub struct MemoryBucket {
    address: String,
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl Default for MemoryBucket {
    fn default() -> Self {
        Self::named("memory:".into())
    }
}

impl MemoryBucket {
    /// One that calls itself so.
    pub fn named(address: String) -> Self {
        Self { address, objects: Mutex::default() }
    }

    /// The objects.
    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.objects.lock().ignore_poison()
    }

    fn of(&self, key: &str) -> Result<Bytes, BucketError> {
        self.objects().get(key).cloned().ok_or(BucketError::Missing)
    }
}

impl Bucket for MemoryBucket {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            let mut objects = self.objects();
            if objects.contains_key(&key) {
                return Err(BucketError::Exists);
            }
            objects.insert(key, body);
            Ok(())
        })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.objects().insert(key, body);
            Ok(())
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move {
            let object = self.of(&key)?;
            if range.start > range.end || range.end > object.len() as u64 {
                return Err(BucketError::Unsure(format!("{key} ends at {}", object.len())));
            }
            Ok(object.slice(range.start as usize..range.end as usize))
        })
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move {
            let object = self.of(&key)?;
            match object.len() as u64 > limit {
                true => Err(BucketError::TooLong),
                false => Ok(object),
            }
        })
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.objects().remove(&key);
            Ok(())
        })
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        Box::pin(async move {
            let objects = self.objects();
            let of = objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after);
            let listed =
                |(key, body): (&String, &Bytes)| Listed { key: key.clone(), size_bytes: body.len() as u64 };
            Ok(of.take(limit).map(listed).collect())
        })
    }
}
