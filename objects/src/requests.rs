//! Asking again.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::bucket::{Bucket, BucketError};
use crate::error::Error;

/// The first wait before a request is made again.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Waits between tries: twice as long each time, each a random part of that.
#[derive(Debug)]
pub struct Waits(Duration);

impl Default for Waits {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl Waits {
    /// Waits once.
    pub async fn wait(&mut self) {
        let most = self.0;
        self.0 = (most * 2).min(LONGEST_WAIT);
        sleep(most.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

/// An error of a request.
pub fn failed(bucket: &dyn Bucket, key: &str, error: BucketError) -> Error {
    Error::Store { address: bucket.address().to_owned(), key: key.to_owned(), error }
}

/// Asks until there is an answer, or `patience` has passed.
pub async fn ask<T>(
    bucket: &dyn Bucket,
    key: &str,
    patience: Duration,
    mut request: impl AsyncFnMut() -> Result<T, BucketError>,
) -> Result<T, Error> {
    let until = Instant::now() + patience;
    let mut waits = Waits::default();
    loop {
        match request().await {
            Ok(answer) => return Ok(answer),
            Err(BucketError::Unsure(_)) if Instant::now() < until => waits.wait().await,
            Err(error) => return Err(failed(bucket, key, error)),
        }
    }
}

/// An object of at most `limit` bytes; none where it is missing.
pub async fn object(
    bucket: &dyn Bucket,
    key: &str,
    limit: u64,
    patience: Duration,
) -> Result<Option<Bytes>, Error> {
    match ask(bucket, key, patience, async || bucket.get_all(key, limit).await).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Store { error: BucketError::Missing, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes an object; whether it is ours: what is there may be of an earlier try.
pub async fn create(bucket: &dyn Bucket, key: &str, body: &Bytes, patience: Duration) -> Result<bool, Error> {
    let until = Instant::now() + patience;
    let mut waits = Waits::default();
    loop {
        let error = match bucket.create(key, body.clone()).await {
            Ok(()) => return Ok(true),
            Err(BucketError::Exists) => match bucket.get_all(key, body.len() as u64).await {
                Ok(there) if there == *body => return Ok(true),
                // A body that is cut short on its way is asked for again: it must not look like another's.
                Ok(there) if there.len() == body.len() => return Ok(false),
                Ok(there) if is_whole(key, &there) => return Ok(false),
                Ok(_) => BucketError::Unsure("the object came in part".into()),
                Err(BucketError::TooLong) => return Ok(false),
                Err(error) => error,
            },
            Err(error) => error,
        };
        match error {
            BucketError::Unsure(_) | BucketError::Missing if Instant::now() < until => waits.wait().await,
            error => return Err(failed(bucket, key, error)),
        }
    }
}

/// Whether these are all bytes of an object.
fn is_whole(key: &str, bytes: &Bytes) -> bool {
    use crate::format::{self, Kind};
    let kinds = [Kind::Device, Kind::Commit, Kind::Checkpoint, Kind::Pointer];
    let number = bytes.get(32..40).and_then(|number| number.try_into().ok()).map_or(0, u64::from_le_bytes);
    kinds.into_iter().any(|kind| format::decode(key, bytes, kind, None, number).is_ok())
}
