//! What is asked of an object store, and what it may answer.
//!
//! Of a store only this is relied on, for each key alone: a `GET` after a successful `PUT` or `DELETE` shows
//! what it did, and of several [`Bucket::create`] of one key exactly one succeeds. Listings may be old.

mod faulty;
mod folder;
mod memory;
mod modelled;
mod s3;

use std::fmt::Debug;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;

pub use faulty::{Fault, FaultyBucket};
pub use folder::FolderBucket;
pub use memory::MemoryBucket;
pub use modelled::{MODELS, ModelledBucket, Prices, Requests, StoreModel};
pub use s3::{S3Bucket, S3Error};

/// The result of a request, to be awaited.
pub type BucketFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BucketError>> + Send + 'a>>;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// There is no such object.
    #[error("there is no such object")]
    Missing,
    /// There is an object of this name already.
    #[error("there is such an object already")]
    Exists,
    /// The object has more bytes than were asked for.
    #[error("the object is too long")]
    TooLong,
    /// Asking again does not help: credentials, rights, a bucket that is not there.
    #[error("{0}")]
    Refused(String),
    /// Asking again may help. What was asked for may have been done.
    #[error("{0}")]
    Unsure(String),
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// A place for objects, each a key with bytes. Keys are below the bucket's own prefix.
pub trait Bucket: Send + Sync + Debug {
    /// Where it is, for messages: an address without secrets.
    fn address(&self) -> &str;

    /// Makes an object that is not there yet, or fails with [`BucketError::Exists`].
    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()>;

    /// Makes an object or replaces it.
    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()>;

    /// Reads this range, all of it, or fails. What is beyond the end is [`BucketError::Unsure`].
    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes>;

    /// Reads an object of at most `limit` bytes.
    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes>;

    /// Removes an object; that it is not there is no error.
    fn delete(&self, key: &str) -> BucketFuture<'_, ()>;

    /// The first objects, at most `limit` or fewer, whose keys begin with `prefix` and come after `after`, in
    /// order. Nothing only at the end.
    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>>;
}
