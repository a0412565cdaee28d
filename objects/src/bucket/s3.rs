//! Objects in a store that speaks S3: AWS, Ceph RGW, MinIO, RustFS and others.
//!
//! # What is sent
//! | for | request | done |
//! |---|---|---|
//! | [`create`](Bucket::create) | `PUT` with `If-None-Match: *` | 2xx |
//! | [`put`](Bucket::put) | `PUT` | 2xx |
//! | [`get`](Bucket::get) | `GET` with `Range` | 206 with this range, all of it |
//! | [`get_all`](Bucket::get_all) | `GET` | 200, and its end |
//! | [`delete`](Bucket::delete) | `DELETE` | 2xx, and where there is no such object |
//! | [`list`](Bucket::list) | `GET ?list-type=2` | 200 |
//!
//! Each is one request with a body that the signature covers, so that bytes that change on their way are
//! refused by the store. An object is one `PUT`, whatever its length, which is at most [`MAX_OBJECT_BYTES`]:
//! a segment of 16 MiB in parts would be four requests in place of one, at four times the price, and a client
//! that ends in between leaves parts behind that no listing shows and that cost. Segments are sent side by
//! side, so that one slow stream does not hold up the next.
//!
//! # What answers mean
//! [`answers`] has the table. Nothing is asked again here: [`crate::requests`] does that. A request whose end
//! is not known is [`BucketError::Unsure`], and its late effects are those of a late request.
//!
//! # Bounds
//! So many requests at once, each with so much time; answers of so many bytes, which is checked before they
//! are taken into memory.

mod answers;
mod credentials;
mod http;
mod parameters;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderValue, IF_NONE_MATCH, RANGE};
use hyper::{HeaderMap, Method, Request, StatusCode};
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Bucket, BucketError, BucketFuture, Listed};
use crate::format::MAX_OBJECT_BYTES;
use answers::{Asked, Said};
use credentials::Credentials;
use http::{BodyError, Sender};
use parameters::Parameters;

pub use parameters::S3Error;

/// The most bytes of an answer that is not an object: a listing of 1000 keys.
const MAX_ANSWER_BYTES: u64 = 4 << 20;
/// The most bytes of an answer that says what went wrong.
const MAX_ERROR_BYTES: u64 = 64 << 10;
/// The most keys of a listing.
const MAX_KEYS: usize = 1000;
/// Pages of a listing without a key of ours, after which the store is at fault.
const MAX_PAGES: usize = 1000;

/// A bucket of a store that speaks S3.
pub struct S3Bucket {
    bucket: String,
    address: String,
    /// The address of the bucket, as requests have it.
    base: String,
    /// What keys begin with.
    prefix: String,
    region: String,
    credentials: Credentials,
    sender: Arc<Sender>,
    /// One for each request.
    permits: Semaphore,
    timeout: Duration,
}

impl fmt::Debug for S3Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Bucket")
            .field("address", &self.address)
            .field("region", &self.region)
            .field("credentials", &self.credentials.place())
            .finish_non_exhaustive()
    }
}

/// A request.
struct Ask<'a> {
    asked: Asked,
    method: Method,
    key: &'a str,
    query: &'a str,
    header: Option<(hyper::header::HeaderName, String)>,
    body: Bytes,
    /// The most bytes of the answer.
    limit: u64,
}

/// An answer that the request was done.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl S3Bucket {
    /// That of this name; keys are below the prefix. The parameters are those of the module `parameters`:
    /// `endpoint`, `region`, `profile`, `style`, `concurrency`, `timeout`. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// A name or a parameter makes no sense, or there are no credentials.
    pub fn open(bucket: &str, prefix: &str, parameters: &[(String, String)]) -> Result<Self, S3Error> {
        Self::open_in(bucket, prefix, parameters, &|name| std::env::var(name).ok())
    }

    /// The same in an environment whose variables are looked up so.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in(
        bucket: &str,
        prefix: &str,
        parameters: &[(String, String)],
        look: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, S3Error> {
        let parameters = Parameters::parse(bucket, prefix, parameters)?;
        let region = credentials::region(&parameters, look);
        let base = parameters.base(bucket, &region);
        let sender = Arc::new(Sender::new(parameters.concurrency, base.starts_with("https"))?);
        let credentials = Credentials::find(bucket, &parameters, &region, &sender, look)?;
        let Parameters { prefix, concurrency, timeout, address, .. } = parameters;
        let permits = Semaphore::new(concurrency);
        let bucket = bucket.to_owned();
        Ok(Self { bucket, address, base, prefix, region, credentials, sender, permits, timeout })
    }

    /// Where a key is.
    fn url(&self, key: &str, query: &str) -> Result<String, BucketError> {
        let is_plain = |one: u8| one.is_ascii_alphanumeric() || b"-_.".contains(&one);
        let is_word = |word: &str| !word.is_empty() && !word.starts_with('.') && word.bytes().all(is_plain);
        match (key.is_empty(), key.split('/').all(is_word)) {
            // A host has a path at least.
            (true, _) if self.base.split('/').count() == 3 => Ok(format!("{}/{query}", self.base)),
            (true, _) => Ok(format!("{}{query}", self.base)),
            (false, true) => Ok(format!("{}/{}{key}{query}", self.base, self.prefix)),
            (false, false) => Err(BucketError::Refused(format!("'{key}' is no key"))),
        }
    }

    /// Asks, within the bounds of time and number.
    async fn ask(&self, ask: Ask<'_>) -> Result<Answer, BucketError> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|_| BucketError::Unsure("the bucket is closed".into()))?;
        let late = |_| BucketError::Unsure(format!("no answer within {} s", self.timeout.as_secs()));
        timeout(self.timeout, self.ask_now(ask)).await.map_err(late)?
    }

    async fn ask_now(&self, ask: Ask<'_>) -> Result<Answer, BucketError> {
        let request = self.request(&ask).await?;
        let response = self.sender.send(request).await.map_err(BucketError::Unsure)?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            let body = http::body(response, ask.limit).await.map_err(|error| match error {
                BodyError::TooLong if ask.asked == Asked::All => BucketError::TooLong,
                BodyError::TooLong => {
                    BucketError::Unsure("the answer is longer than what was asked for".into())
                }
                BodyError::Cut(why) => BucketError::Unsure(why),
            })?;
            return Ok(Answer { status, headers, body });
        }
        // Without its body an answer says less, and still what it is.
        let body = http::body(response, MAX_ERROR_BYTES).await.unwrap_or_default();
        let said = Said::new(status, &body);
        Err(said.meaning(ask.asked, &self.bucket, self.credentials.place()))
    }

    /// A request, signed.
    async fn request(&self, ask: &Ask<'_>) -> Result<object_store::client::HttpRequest, BucketError> {
        let credential = self.credentials.get().await?;
        let mut request = Request::builder().method(ask.method.clone()).uri(self.url(ask.key, ask.query)?);
        if let Some((name, value)) = &ask.header {
            request = request.header(name, value);
        }
        if ask.method == Method::PUT {
            request = request.header(CONTENT_LENGTH, HeaderValue::from(ask.body.len()));
        }
        let request = request.body(HttpRequestBody::from(ask.body.clone()));
        let mut request = request.map_err(|error| BucketError::Refused(error.to_string()))?;
        let signed = AwsAuthorizer::new(&credential, "s3", &self.region).try_authorize(&mut request, None);
        signed.map_err(|_| BucketError::Refused("the request could not be signed".into()))?;
        Ok(request)
    }

    async fn store(&self, key: &str, body: Bytes, is_new: bool) -> Result<(), BucketError> {
        if body.len() as u64 > MAX_OBJECT_BYTES {
            return Err(BucketError::Refused(format!("an object has at most {MAX_OBJECT_BYTES} bytes")));
        }
        let (asked, header) = match is_new {
            true => (Asked::Create, Some((IF_NONE_MATCH, "*".to_owned()))),
            false => (Asked::Put, None),
        };
        let ask = Ask { asked, method: Method::PUT, key, query: "", header, body, limit: MAX_ANSWER_BYTES };
        self.ask(ask).await.map(drop)
    }

    async fn range(&self, key: &str, range: Range<u64>) -> Result<Bytes, BucketError> {
        let length = range.end.checked_sub(range.start).filter(|length| *length <= MAX_OBJECT_BYTES);
        let Some(length) = length else {
            return Err(BucketError::Refused(format!(
                "{} to {} is no range of an object",
                range.start, range.end
            )));
        };
        if length == 0 {
            return Ok(Bytes::new());
        }
        let header = Some((RANGE, format!("bytes={}-{}", range.start, range.end - 1)));
        let ask = Ask {
            asked: Asked::Range,
            method: Method::GET,
            key,
            query: "",
            header,
            body: Bytes::new(),
            limit: length,
        };
        let Answer { status, headers, body } = self.ask(ask).await?;
        let came = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let expected = format!("bytes {}-{}/", range.start, range.end - 1);
        if status != StatusCode::PARTIAL_CONTENT || !came.starts_with(&expected) {
            let words = format!("{status} with '{}' is no answer for a range", answers::shown(came, 80));
            return Err(BucketError::Unsure(words));
        }
        match body.len() as u64 == length {
            true => Ok(body),
            false => Err(BucketError::Unsure(format!("{} of {length} bytes came", body.len()))),
        }
    }

    async fn all(&self, key: &str, limit: u64) -> Result<Bytes, BucketError> {
        let ask = Ask {
            asked: Asked::All,
            method: Method::GET,
            key,
            query: "",
            header: None,
            body: Bytes::new(),
            limit: limit.min(MAX_OBJECT_BYTES),
        };
        let answer = self.ask(ask).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            status => Err(BucketError::Unsure(format!("{status} is no answer for an object"))),
        }
    }

    async fn remove(&self, key: &str) -> Result<(), BucketError> {
        let ask = Ask {
            asked: Asked::Delete,
            method: Method::DELETE,
            key,
            query: "",
            header: None,
            body: Bytes::new(),
            limit: MAX_ANSWER_BYTES,
        };
        match self.ask(ask).await {
            Ok(_) | Err(BucketError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn page(&self, prefix: &str, after: &str, limit: usize) -> Result<answers::Page, BucketError> {
        let prefix = answers::escaped(&format!("{}{prefix}", self.prefix));
        let after = match after {
            "" => String::new(),
            after => format!("&start-after={}", answers::escaped(after)),
        };
        let query = format!("?list-type=2&max-keys={limit}&prefix={prefix}{after}");
        let ask = Ask {
            asked: Asked::List,
            method: Method::GET,
            key: "",
            query: &query,
            header: None,
            body: Bytes::new(),
            limit: MAX_ANSWER_BYTES,
        };
        answers::Page::parse(&self.ask(ask).await?.body)
    }

    async fn keys(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Listed>, BucketError> {
        let limit = limit.clamp(1, MAX_KEYS);
        let mut from = if after.is_empty() { String::new() } else { format!("{}{after}", self.prefix) };
        for _ in 0..MAX_PAGES {
            let page = self.page(prefix, &from, limit).await?;
            let last = page.listed.iter().map(|one| one.key.clone()).max();
            let mut listed: Vec<Listed> = page
                .listed
                .into_iter()
                .filter_map(|one| {
                    let key = one.key.strip_prefix(&self.prefix)?.to_owned();
                    (key.starts_with(prefix) && *key > *after).then_some(Listed { key, ..one })
                })
                .collect();
            listed.sort_by(|one, other| one.key.cmp(&other.key));
            listed.truncate(limit);
            match last {
                // Foreign keys, or those of a store that begins at the first whatever is asked for.
                Some(last) if listed.is_empty() && page.is_cut && last > from => from = last,
                _ if listed.is_empty() && page.is_cut => break,
                _ => return Ok(listed),
            }
        }
        Err(BucketError::Unsure("the listing does not come to its end".into()))
    }
}

impl Bucket for S3Bucket {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move { self.store(&key, body, true).await })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move { self.store(&key, body, false).await })
    }

    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move { self.range(&key, range).await })
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        let key = key.to_owned();
        Box::pin(async move { self.all(&key, limit).await })
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move { self.remove(&key).await })
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        Box::pin(async move { self.keys(&prefix, &after, limit).await })
    }
}
