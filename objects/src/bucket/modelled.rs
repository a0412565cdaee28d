//! A bucket with the latency, the throughput and the prices of a real store, for benchmarks and experiments.
//!
//! A request takes the latency of its kind, and then its bytes at the rate of one stream. All streams
//! together have the network's rate, in the order in which they were begun. Requests beside each other do not
//! slow each other down otherwise. What a real store has besides is not played: slow requests now and then, a
//! rate of requests for each prefix.
//!
//! Prices are those that the vendor published in 2025, in billionths of a dollar, so that sums are exact.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::device::IgnorePoison;
use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::{Bucket, BucketError, BucketFuture, Listed};

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreModel {
    /// Its name in addresses: `model=NAME`.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Until the first byte of what is read comes.
    pub read_latency: Duration,
    /// Until a write of no bytes is acknowledged.
    pub write_latency: Duration,
    /// Bytes a second of one request.
    pub stream_bytes: u64,
    /// Bytes a second of all requests together.
    pub network_bytes: u64,
    /// What it costs.
    pub prices: Prices,
}

/// Prices in billionths of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// A request that writes or lists.
    pub put: u64,
    /// A request that reads.
    pub get: u64,
    /// Keeping 10^9 bytes for a month.
    pub gigabyte_month: u64,
}

impl Prices {
    /// Of so many requests, in dollars.
    pub fn of_requests(self, puts: u64, gets: u64) -> f64 {
        (self.put as f64 * puts as f64 + self.get as f64 * gets as f64) / 1e9
    }

    /// Of keeping so many bytes for a month, in dollars.
    pub fn of_space(self, bytes: u64) -> f64 {
        self.gigabyte_month as f64 * (bytes as f64 / 1e9) / 1e9
    }
}

/// All models.
pub const MODELS: [StoreModel; 2] = [
    StoreModel {
        name: "s3-standard",
        about: "AWS S3 Standard in the same region (us-east-1, prices of 2025)",
        read_latency: Duration::from_millis(25),
        write_latency: Duration::from_millis(35),
        stream_bytes: 80_000_000,
        network_bytes: 1_250_000_000,
        prices: Prices { put: 5_000, get: 400, gigabyte_month: 23_000_000 },
    },
    StoreModel {
        name: "lan",
        about: "a store of one's own on the same network of 10 Gbit/s, without prices",
        read_latency: Duration::from_millis(2),
        write_latency: Duration::from_millis(6),
        stream_bytes: 400_000_000,
        network_bytes: 1_100_000_000,
        prices: Prices { put: 0, get: 0, gigabyte_month: 0 },
    },
];

impl StoreModel {
    /// The model of this name.
    pub fn find(name: &str) -> Option<Self> {
        MODELS.into_iter().find(|model| model.name == name)
    }
}

/// Requests that were made, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that wrote or listed.
    pub puts: u64,
    /// Bytes of those.
    pub put_bytes: u64,
    /// Requests that read.
    pub gets: u64,
    /// Bytes of those.
    pub got_bytes: u64,
    /// Deletions, which are free.
    pub deletes: u64,
}

impl Requests {
    /// Those since an earlier time.
    pub fn since(self, before: Self) -> Self {
        Self {
            puts: self.puts - before.puts,
            put_bytes: self.put_bytes - before.put_bytes,
            gets: self.gets - before.gets,
            got_bytes: self.got_bytes - before.got_bytes,
            deletes: self.deletes - before.deletes,
        }
    }
}

/// See the module documentation. Its futures are awaited in a runtime of tokio with time.
#[derive(Debug)]
pub struct ModelledBucket {
    below: Arc<dyn Bucket>,
    model: StoreModel,
    /// When all that was begun has gone over the network.
    network_free: Mutex<Option<Instant>>,
    puts: AtomicU64,
    put_bytes: AtomicU64,
    gets: AtomicU64,
    got_bytes: AtomicU64,
    deletes: AtomicU64,
}

impl ModelledBucket {
    /// A bucket that plays such a store.
    pub fn new(below: Arc<dyn Bucket>, model: StoreModel) -> Self {
        Self {
            below,
            model,
            network_free: Mutex::default(),
            puts: AtomicU64::default(),
            put_bytes: AtomicU64::default(),
            gets: AtomicU64::default(),
            got_bytes: AtomicU64::default(),
            deletes: AtomicU64::default(),
        }
    }

    /// What it plays.
    pub fn model(&self) -> StoreModel {
        self.model
    }

    /// What was asked of it.
    pub fn requests(&self) -> Requests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            puts: of(&self.puts),
            put_bytes: of(&self.put_bytes),
            gets: of(&self.gets),
            got_bytes: of(&self.got_bytes),
            deletes: of(&self.deletes),
        }
    }

    /// Waits as long as the store would, from `began` on.
    async fn wait(&self, began: Instant, latency: Duration, bytes: u64) {
        let at_rate = |rate: u64| Duration::from_secs_f64(bytes as f64 / rate as f64);
        let over_network = {
            let mut free = self.network_free.lock().ignore_poison();
            let start = free.map_or(began, |free| free.max(began));
            *free.insert(start + at_rate(self.model.network_bytes))
        };
        sleep_until((began + latency + at_rate(self.model.stream_bytes)).max(over_network + latency)).await;
    }

    async fn write(&self, bytes: u64) {
        let began = Instant::now();
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wait(began, self.model.write_latency, bytes).await;
    }

    async fn read(&self, read: BucketFuture<'_, Bytes>) -> Result<Bytes, BucketError> {
        let began = Instant::now();
        self.gets.fetch_add(1, Ordering::Relaxed);
        let body = read.await;
        let bytes = body.as_ref().map_or(0, |body| body.len() as u64);
        self.got_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wait(began, self.model.read_latency, bytes).await;
        body
    }
}

impl Bucket for ModelledBucket {
    fn address(&self) -> &str {
        self.below.address()
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.write(body.len() as u64).await;
            self.below.create(&key, body).await
        })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            self.write(body.len() as u64).await;
            self.below.put(&key, body).await
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move { self.read(self.below.get(&key, range)).await })
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move { self.read(self.below.get_all(&key, limit)).await })
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            let began = Instant::now();
            self.deletes.fetch_add(1, Ordering::Relaxed);
            self.wait(began, self.model.write_latency, 0).await;
            self.below.delete(&key).await
        })
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        Box::pin(async move {
            self.write(0).await;
            self.below.list(&prefix, &after, limit).await
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::bucket::MemoryBucket;

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_its_latency_and_its_bytes_and_streams_share_the_network() {
        let model = StoreModel::find("s3-standard").unwrap();
        let bucket = ModelledBucket::new(Arc::new(MemoryBucket::default()), model);
        let began = Instant::now();
        bucket.put("a", Bytes::from(vec![0; 8_000_000])).await.unwrap();
        assert_eq!(began.elapsed().as_millis(), 135);
        let began = Instant::now();
        bucket.get("a", 0..80).await.unwrap();
        assert_eq!(began.elapsed().as_millis(), 26, "the timer's own grain is 1 ms");
        let began = Instant::now();
        join_all((0..100).map(|_| bucket.get_all("a", 8_000_000))).await;
        assert_eq!(began.elapsed().as_millis(), 665, "800 MB at 1.25 GB/s");
        assert_eq!(bucket.get("b", 0..1).await, Err(BucketError::Missing));
        let asked = bucket.requests();
        assert_eq!((asked.puts, asked.gets, asked.got_bytes), (1, 102, 800_000_080));
        assert!((model.prices.of_requests(1_000_000, 10_000_000) - 9.0).abs() < 1e-9);
        assert!((model.prices.of_space(1_000_000_000_000) - 23.0).abs() < 1e-9);
        assert_eq!(StoreModel::find("no such"), None);
    }
}
