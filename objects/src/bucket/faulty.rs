//! A store with the faults of real ones, by seed: errors, lost answers, requests that are done again much
//! later, old listings, short and wrong bodies; and one that ends for good after so many requests.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::device::IgnorePoison;
use bytes::Bytes;
use fastrand::Rng;

use super::{Bucket, BucketError, BucketFuture, Listed};

/// What goes wrong, each as one request in so many; 0 for never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fault {
    /// Nothing is done, and an error says so.
    pub errors: u64,
    /// It is done, and an error says that it may not have been.
    pub lost_answers: u64,
    /// A write is done once more, some requests later.
    pub late_copies: u64,
    /// A listing is that of some requests ago.
    pub old_lists: u64,
    /// A body that is read is too short.
    pub short_bodies: u64,
}

/// A write that comes again.
#[derive(Debug)]
enum Copy {
    Create(String, Bytes),
    Put(String, Bytes),
    Delete(String),
}

/// A client's view of a bucket, with faults.
#[derive(Debug)]
pub struct FaultyBucket {
    below: Arc<dyn Bucket>,
    fault: Fault,
    rng: Mutex<Rng>,
    copies: Mutex<VecDeque<Copy>>,
    lists: Mutex<Option<Vec<Listed>>>,
    /// Requests until the client is cut off.
    left: AtomicU64,
}

impl FaultyBucket {
    /// A view with these faults.
    pub fn new(below: Arc<dyn Bucket>, fault: Fault, seed: u64) -> Self {
        let rng = Mutex::new(Rng::with_seed(seed));
        let (copies, lists) = (Mutex::default(), Mutex::default());
        Self { below, fault, rng, copies, lists, left: AtomicU64::new(u64::MAX) }
    }

    /// After so many more requests nothing reaches the store: the machine has lost its power. Each further
    /// request never ends.
    pub fn cut_after(&self, requests: u64) {
        self.left.store(requests, Ordering::SeqCst);
    }

    /// Whether it was cut off.
    pub fn is_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    fn one_in(&self, number: u64) -> bool {
        number > 0 && self.rng.lock().ignore_poison().u64(..number) == 0
    }

    /// Counts a request; whether it reaches the store.
    async fn begin(&self) -> Result<(), BucketError> {
        let counted =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !counted {
            std::future::pending::<()>().await;
        }
        // Requests are done in another order than they were made.
        let yields = self.rng.lock().ignore_poison().u64(..4);
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        if self.one_in(16) {
            self.do_late_copies().await;
        }
        match self.one_in(self.fault.errors) {
            true => Err(BucketError::Unsure("503 slow down".into())),
            false => Ok(()),
        }
    }

    /// Does what comes again.
    pub async fn do_late_copies(&self) {
        while let Some(copy) = { self.copies.lock().ignore_poison().pop_front() } {
            // Its answer reaches no client.
            let _ = match copy {
                Copy::Create(key, body) => self.below.create(&key, body).await,
                Copy::Put(key, body) => self.below.put(&key, body).await,
                Copy::Delete(key) => self.below.delete(&key).await,
            };
        }
    }

    fn end<T>(&self, done: Result<T, BucketError>) -> Result<T, BucketError> {
        match self.one_in(self.fault.lost_answers) {
            true => Err(BucketError::Unsure("the connection was reset".into())),
            false => done,
        }
    }

    fn cut_short(&self, body: Bytes) -> Bytes {
        match self.one_in(self.fault.short_bodies) && !body.is_empty() {
            true => body.slice(..body.len() / 2),
            false => body,
        }
    }
}

impl Bucket for FaultyBucket {
    fn address(&self) -> &str {
        "faulty:"
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.begin().await?;
            if self.one_in(self.fault.late_copies) {
                self.copies.lock().ignore_poison().push_back(Copy::Create(key.clone(), body.clone()));
            }
            self.end(self.below.create(&key, body).await)
        })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.begin().await?;
            if self.one_in(self.fault.late_copies) {
                self.copies.lock().ignore_poison().push_back(Copy::Put(key.clone(), body.clone()));
            }
            self.end(self.below.put(&key, body).await)
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move {
            self.begin().await?;
            let body = self.end(self.below.get(&key, range).await)?;
            Ok(self.cut_short(body))
        })
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move {
            self.begin().await?;
            let body = self.end(self.below.get_all(&key, limit).await)?;
            Ok(self.cut_short(body))
        })
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.begin().await?;
            if self.one_in(self.fault.late_copies) {
                self.copies.lock().ignore_poison().push_back(Copy::Delete(key.clone()));
            }
            self.end(self.below.delete(&key).await)
        })
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        Box::pin(async move {
            self.begin().await?;
            let now = self.end(self.below.list(&prefix, &after, limit).await)?;
            let mut old = self.lists.lock().ignore_poison();
            match (self.one_in(self.fault.old_lists), old.as_ref()) {
                (true, Some(old)) if after.is_empty() => {
                    Ok(old.iter().filter(|one| one.key.starts_with(&prefix)).take(limit).cloned().collect())
                }
                _ => {
                    *old = Some(now.clone());
                    Ok(now)
                }
            }
        })
    }
}
