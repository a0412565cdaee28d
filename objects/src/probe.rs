//! Whether a store keeps to what is relied on.
//!
//! Some stores do not know a conditional `PUT` and overwrite, without a word. On those two hosts would both
//! be told that their commit is made, and a pool would be lost. So each store is tried before a device is
//! made: on keys of its own below `probe/`, which are removed at the end. What is tried:
//!
//! - of [`CONTENDERS`] that make one object at once exactly one succeeds, [`ROUNDS`] times, and what is there
//!   then is its object and stays that;
//! - what was put is read at once, replaced too, and in a range of it exactly that range;
//! - what was deleted is missing at once, may be deleted again, and may be made again.
//!
//! A request whose end is not known is made again. Then it may find its own object there; that is counted for
//! it. A race that a store loses once in a million is not found here; one that it does not guard is.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::bucket::{Bucket, BucketError};
use crate::error::Error;
use crate::requests;

/// How many make one object at once.
const CONTENDERS: usize = 16;
/// How often they do.
const ROUNDS: usize = 8;
/// Bytes of the object that is read in part.
const BODY_BYTES: usize = 100_000;

/// What a store lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// An object that is there is made again.
    Overwrites,
    /// Of several at once more than one makes an object.
    SeveralMake,
    /// All of several at once are told that the object is there already.
    NoneMakes,
    /// A read shows something else than what was put.
    OldReads,
    /// A read of a range is not that range.
    Ranges,
    /// What was deleted is still there.
    DeletedIsThere,
    /// What was deleted cannot be deleted or made again.
    DeletedBlocks,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overwrites => "a PUT with If-None-Match overwrites an object that is there",
            Self::SeveralMake => "of several PUT with If-None-Match at once more than one succeeds",
            Self::NoneMakes => "of several PUT with If-None-Match at once none succeeds",
            Self::OldReads => "a GET after a PUT shows something else",
            Self::Ranges => "a GET of a range shows something else",
            Self::DeletedIsThere => "a GET after a DELETE shows the object",
            Self::DeletedBlocks => "an object that was deleted cannot be deleted or made again",
        })
    }
}

/// Why a store cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It does not do what was asked.
    #[error(transparent)]
    Store(#[from] Error),
    /// It lacks something.
    #[error("{address} cannot hold a device, since the store is not safe: {}", words(.lacks))]
    Unsafe {
        /// Where.
        address: String,
        /// What it lacks.
        lacks: BTreeSet<Lack>,
    },
}

fn words(lacks: &BTreeSet<Lack>) -> String {
    lacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Tries a store; each request for so long.
///
/// # Errors
/// What it lacks, or that it does not answer.
pub async fn probe(bucket: &dyn Bucket, patience: Duration) -> Result<(), ProbeError> {
    let random = u128::from_le_bytes(crate::opening::random());
    let probe = Probe { bucket, patience, name: format!("probe/{random:032x}") };
    let tried = probe.run().await;
    for key in probe.keys() {
        // What stays is a small object that no device looks at.
        let _ = requests::ask(bucket, &key, patience, async || bucket.delete(&key).await).await;
    }
    let lacks = tried?;
    match lacks.is_empty() {
        true => Ok(()),
        false => Err(ProbeError::Unsafe { address: bucket.address().to_owned(), lacks }),
    }
}

/// How a contender fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Yes,
    /// It asked again, and the object was there.
    Perhaps,
    No,
}

struct Probe<'a> {
    bucket: &'a dyn Bucket,
    patience: Duration,
    name: String,
}

impl Probe<'_> {
    fn race_key(&self, round: usize) -> String {
        format!("{}-race-{round}", self.name)
    }

    fn body_key(&self) -> String {
        format!("{}-body", self.name)
    }

    fn keys(&self) -> Vec<String> {
        (0..ROUNDS).map(|round| self.race_key(round)).chain([self.body_key()]).collect()
    }

    async fn run(&self) -> Result<BTreeSet<Lack>, Error> {
        let mut lacks = BTreeSet::new();
        for round in 0..ROUNDS {
            self.race(&self.race_key(round), &mut lacks).await?;
        }
        self.reads(&mut lacks).await?;
        self.deletions(&mut lacks).await?;
        Ok(lacks)
    }

    async fn read(&self, key: &str) -> Result<Option<Bytes>, Error> {
        requests::object(self.bucket, key, BODY_BYTES as u64, self.patience).await
    }

    async fn make(&self, key: &str, body: &Bytes) -> Result<Made, Error> {
        let mut tries = 0;
        let ask = async || {
            tries += 1;
            self.bucket.create(key, body.clone()).await
        };
        match requests::ask(self.bucket, key, self.patience, ask).await {
            Ok(()) => Ok(Made::Yes),
            Err(Error::Store { error: BucketError::Exists, .. }) if tries > 1 => Ok(Made::Perhaps),
            Err(Error::Store { error: BucketError::Exists, .. }) => Ok(Made::No),
            Err(error) => Err(error),
        }
    }

    async fn race(&self, key: &str, lacks: &mut BTreeSet<Lack>) -> Result<(), Error> {
        let bodies: Vec<Bytes> =
            (0..CONTENDERS).map(|at| format!("{key} of contender {at:02}").into()).collect();
        let made = join_all(bodies.iter().map(|body| self.make(key, body))).await;
        let made = made.into_iter().collect::<Result<Vec<_>, _>>()?;
        let winners = made.iter().filter(|made| **made == Made::Yes).count();
        if winners > 1 {
            lacks.insert(Lack::SeveralMake);
        }
        let there = self.read(key).await?;
        let of = there.as_ref().and_then(|there| bodies.iter().position(|body| body == there));
        match of.map(|of| made[of]) {
            Some(Made::Yes) => {}
            Some(Made::Perhaps) if winners == 0 => {}
            // Of several that were told so, one is there.
            _ if winners > 1 => {}
            _ if winners == 0 => {
                lacks.insert(Lack::NoneMakes);
            }
            _ => {
                lacks.insert(Lack::OldReads);
            }
        }
        if self.make(key, &Bytes::from_static(b"too late")).await? == Made::Yes
            || self.read(key).await? != there
        {
            lacks.insert(Lack::Overwrites);
        }
        Ok(())
    }

    async fn put(&self, key: &str, body: &Bytes) -> Result<(), Error> {
        requests::ask(self.bucket, key, self.patience, async || self.bucket.put(key, body.clone()).await)
            .await
    }

    async fn reads(&self, lacks: &mut BTreeSet<Lack>) -> Result<(), Error> {
        let key = self.body_key();
        for seed in 1..4 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let body: Bytes = (0..BODY_BYTES).map(|_| rng.u8(..)).collect::<Vec<_>>().into();
            self.put(&key, &body).await?;
            if self.read(&key).await?.as_ref() != Some(&body) {
                lacks.insert(Lack::OldReads);
            }
            for range in [0..1, 4095..4097, 60_000..BODY_BYTES as u64] {
                let ask = async || self.bucket.get(&key, range.clone()).await;
                let read = requests::ask(self.bucket, &key, self.patience, ask).await?;
                if read[..] != body[range.start as usize..range.end as usize] {
                    lacks.insert(Lack::Ranges);
                }
            }
        }
        Ok(())
    }

    async fn deletions(&self, lacks: &mut BTreeSet<Lack>) -> Result<(), Error> {
        let key = self.body_key();
        for _ in 0..3 {
            // The second finds nothing.
            for _ in 0..2 {
                let ask = async || self.bucket.delete(&key).await;
                match requests::ask(self.bucket, &key, self.patience, ask).await {
                    Ok(()) => {}
                    Err(Error::Store { error: BucketError::Missing, .. }) => {
                        lacks.insert(Lack::DeletedBlocks);
                    }
                    Err(error) => return Err(error),
                }
            }
            if self.read(&key).await?.is_some() {
                lacks.insert(Lack::DeletedIsThere);
            }
            if self.make(&key, &Bytes::from_static(b"again")).await? == Made::No {
                lacks.insert(Lack::DeletedBlocks);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use super::*;
    use crate::bucket::{BucketFuture, Fault, FaultyBucket, FolderBucket, Listed, MemoryBucket};

    /// A store that lacks something.
    #[derive(Debug)]
    struct Lacking {
        below: MemoryBucket,
        lack: Lack,
    }

    impl Bucket for Lacking {
        fn address(&self) -> &str {
            "lacking:"
        }

        fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
            let key = key.to_owned();
            Box::pin(async move {
                match self.lack {
                    Lack::Overwrites => self.below.put(&key, body).await,
                    Lack::NoneMakes if !body.starts_with(b"too late") => Err(BucketError::Exists),
                    Lack::SeveralMake if !self.below.objects().contains_key(&key) => {
                        tokio::task::yield_now().await;
                        self.below.put(&key, body).await
                    }
                    _ => self.below.create(&key, body).await,
                }
            })
        }

        fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
            match self.lack == Lack::OldReads && self.below.objects().contains_key(key) {
                true => Box::pin(async { Ok(()) }),
                false => self.below.put(key, body),
            }
        }

        fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
            let by = u64::from(self.lack == Lack::Ranges);
            self.below.get(key, range.start - by.min(range.start)..range.end - by.min(range.start))
        }

        fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
            self.below.get_all(key, limit)
        }

        fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
            match self.lack == Lack::DeletedIsThere {
                true => Box::pin(async { Ok(()) }),
                false => self.below.delete(key),
            }
        }

        fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
            self.below.list(prefix, after, limit)
        }
    }

    fn run(bucket: &dyn Bucket) -> Result<(), ProbeError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(probe(bucket, Duration::from_secs(10_000)))
    }

    #[test]
    fn a_store_that_keeps_to_it_passes_and_nothing_stays() {
        let memory = MemoryBucket::default();
        assert_eq!(run(&memory), Ok(()));
        assert!(memory.objects().is_empty());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(run(&FolderBucket::new(folder.path()).unwrap()), Ok(()));
        for seed in 0..50 {
            let below = Arc::new(MemoryBucket::default());
            let fault = Fault { errors: 10, lost_answers: 10, ..Fault::default() };
            assert_eq!(run(&FaultyBucket::new(below.clone(), fault, seed)), Ok(()), "seed {seed}");
            assert!(below.objects().is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn what_a_store_lacks_is_found_and_named() {
        let all = [
            Lack::Overwrites,
            Lack::SeveralMake,
            Lack::NoneMakes,
            Lack::OldReads,
            Lack::Ranges,
            Lack::DeletedIsThere,
        ];
        for lack in all {
            let refused = run(&Lacking { below: MemoryBucket::default(), lack }).unwrap_err();
            let ProbeError::Unsafe { lacks, address } = &refused else { panic!("{lack:?}: {refused}") };
            assert!(lacks.contains(&lack) && address == "lacking:", "{lack:?}: {lacks:?}");
            assert!(refused.to_string().contains(&lack.to_string()), "{refused}");
        }
    }

    #[test]
    fn a_store_that_does_not_answer_is_an_error_of_the_store() {
        let below = Arc::new(MemoryBucket::default());
        let silent = FaultyBucket::new(below, Fault { errors: 1, ..Fault::default() }, 1);
        assert!(matches!(run(&silent), Err(ProbeError::Store(Error::Store { .. }))));
    }
}
