//! Where a device is: `SCHEME://PLACE?NAME=VALUE&…`.
//!
//! | scheme | place |
//! |---|---|
//! | `file` | a folder, from `/` on; it may be one that hosts share |
//! | `memory` | a name; gone with the process |
//! | `s3` | a bucket and a prefix in it |
//!
//! `model=s3-standard` gives a folder or memory the latency and the throughput of such a store
//! ([`MODELS`](crate::bucket::MODELS)), for experiments.
//!
//! `size` is the size of a device that is to be made, and is not kept. All other parameters are those of the
//! bucket, and are kept in labels: no secret is among them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};

use ::device::{IgnorePoison, in_words};

use crate::bucket::{Bucket, FolderBucket, MODELS, MemoryBucket, ModelledBucket, S3Bucket, StoreModel};

/// What a place lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// A folder.
    File,
    /// The memory of this process.
    Memory,
    /// A store that speaks S3.
    S3,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::S3, Self::File, Self::Memory];

    /// As addresses have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
            Self::S3 => "s3",
        }
    }
}

/// The address of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    scheme: Scheme,
    place: String,
    /// All but `size`, in the order in which they were given.
    parameters: Vec<(String, String)>,
    size_bytes: Option<u64>,
}

/// An address that cannot be used: which, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{address}' cannot be used: {why}")]
pub struct AddressError {
    address: String,
    why: String,
}

/// A size as people write it: `10G`, `512M`, or bytes.
fn size_of(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[number.len()..].to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        _ => 10 * (1 + "KMGTPE".find(unit).filter(|_| unit.len() == 1)? as u32),
    };
    let whole: u64 = number.parse().ok()?;
    whole.checked_mul(1_u64.checked_shl(shift)?)
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(address: &str) -> Result<Self, AddressError> {
        let fail = |why: String| AddressError { address: address.to_owned(), why };
        let (scheme, rest) =
            address.split_once("://").ok_or_else(|| fail("an address is SCHEME://PLACE".into()))?;
        let scheme = Scheme::ALL.into_iter().find(|one| one.word() == scheme).ok_or_else(|| {
            let known: Vec<String> = Scheme::ALL.iter().map(|one| format!("{}://", one.word())).collect();
            fail(format!("it begins with {}", known.join(" or ")))
        })?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if scheme == Scheme::File && !place.starts_with('/') {
            return Err(fail("a folder is given from / on: file:///srv/pool".into()));
        }
        if place.trim_matches('/').is_empty() {
            return Err(fail("it names no place".into()));
        }
        let (mut parameters, mut size_bytes) = (Vec::<(String, String)>::new(), None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter
                .split_once('=')
                .ok_or_else(|| fail(format!("'{parameter}' is not of the form NAME=VALUE")))?;
            if name == "size" {
                let size = size_of(value);
                size_bytes = Some(size.ok_or_else(|| fail(format!("'{value}' is no size such as 10G")))?);
                continue;
            }
            if parameters.iter().any(|(known, _)| known == name) {
                return Err(fail(format!("it has '{name}' twice")));
            }
            parameters.push((name.to_owned(), value.to_owned()));
        }
        let this = Self { scheme, place: place.to_owned(), parameters, size_bytes };
        for (name, value) in &this.parameters {
            match (name.as_str(), scheme) {
                ("model", Scheme::File | Scheme::Memory) if StoreModel::find(value).is_none() => {
                    let known: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
                    return Err(fail(format!("model is one of {}", known.join(", "))));
                }
                ("model", Scheme::File | Scheme::Memory) => {}
                // Judged when the bucket is opened.
                (_, Scheme::S3) => {}
                (_, Scheme::File | Scheme::Memory) => {
                    return Err(fail(format!("{}:// has no parameter '{name}'", scheme.word())));
                }
            }
        }
        Ok(this)
    }
}

/// As labels have it: without the size.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.word(), self.place)?;
        let mut separator = '?';
        for (name, value) in &self.parameters {
            write!(f, "{separator}{name}={value}")?;
            separator = '&';
        }
        Ok(())
    }
}

impl Address {
    /// What it lies in.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The size that a device is to have that is made there.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// The bucket. Of a folder that is not there, one is made if `make` says so.
    ///
    /// # Errors
    /// What cannot be used, and why.
    pub fn bucket(&self, make: bool) -> Result<Arc<dyn Bucket>, AddressError> {
        let bucket = self.plain_bucket(make)?;
        Ok(match self.model() {
            Some(model) => Arc::new(ModelledBucket::new(bucket, model)),
            None => bucket,
        })
    }

    /// The store that it plays, if it only plays one: `model=s3-standard`.
    pub fn model(&self) -> Option<StoreModel> {
        let (_, model) = self.parameters.iter().find(|(name, _)| name == "model")?;
        StoreModel::find(model)
    }

    fn plain_bucket(&self, make: bool) -> Result<Arc<dyn Bucket>, AddressError> {
        let fail = |why: String| AddressError { address: self.to_string(), why };
        match self.scheme {
            Scheme::S3 => {
                let (bucket, prefix) = self.place.split_once('/').unwrap_or((&self.place, ""));
                // A parameter may be a secret that does not belong there, and is not repeated.
                let address = format!("s3://{}", self.place);
                S3Bucket::open(bucket, prefix, &self.parameters).map_or_else(
                    |error| Err(AddressError { address, why: error.to_string() }),
                    |bucket| Ok(Arc::new(bucket) as Arc<dyn Bucket>),
                )
            }
            Scheme::Memory => {
                static ALL: OnceLock<Mutex<BTreeMap<String, Arc<MemoryBucket>>>> = OnceLock::new();
                let mut all = ALL.get_or_init(Mutex::default).lock().ignore_poison();
                let name = format!("{}://{}", self.scheme.word(), self.place);
                Ok(Arc::clone(all.entry(name.clone()).or_insert_with(|| Arc::new(MemoryBucket::named(name))))
                    as _)
            }
            Scheme::File => {
                let folder = Path::new(&self.place);
                if !make && !folder.is_dir() {
                    return Err(fail("there is no such folder".into()));
                }
                FolderBucket::new(folder).map_or_else(
                    |error| Err(fail(in_words(&error))),
                    |bucket| Ok(Arc::new(bucket) as Arc<dyn Bucket>),
                )
            }
        }
    }

    /// A number for what lies there, whatever the other parameters are.
    pub fn identity(&self) -> u64 {
        let place = match self.scheme {
            Scheme::File => Path::new(&self.place)
                .canonicalize()
                .map_or_else(|_| self.place.clone(), |folder| folder.display().to_string()),
            Scheme::S3 => self.place.clone(),
            // Of this process only.
            Scheme::Memory => format!("{}\0{}", self.place, std::process::id()),
        };
        let of_bucket = |(name, value): &&(String, String)| name == "endpoint" && !value.is_empty();
        let endpoint = self.parameters.iter().find(of_bucket).map_or("", |(_, value)| value.as_str());
        let text = format!("{}\0{}\0{endpoint}", self.scheme.word(), place.trim_end_matches('/'));
        u64::from_le_bytes(blake3::hash(text.as_bytes()).as_bytes()[..8].try_into().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_is_wrong_with_it() {
        let right: Address = "file:///srv/pool?size=10G".parse().unwrap();
        assert_eq!((right.to_string().as_str(), right.size_bytes()), ("file:///srv/pool", Some(10 << 30)));
        for (address, why) in [
            ("/srv/pool", "an address is SCHEME://PLACE"),
            ("ftp://x/y", "it begins with s3:// or"),
            ("file://srv/pool", "from / on"),
            ("file:///", "names no place"),
            ("file:///srv?size=big", "'big' is no size"),
            ("file:///srv?size=99999999E", "is no size"),
            ("file:///srv?size", "NAME=VALUE"),
            ("memory://x?secret=1", "memory:// has no parameter 'secret'"),
            ("memory://x?model=tape", "model is one of s3-standard, lan"),
        ] {
            let error = address.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{address}: {error}");
        }
        let modelled: Address = "memory://x?model=s3-standard&size=1G".parse().unwrap();
        assert_eq!(modelled.to_string(), "memory://x?model=s3-standard");
        assert_eq!(modelled.model().unwrap().name, "s3-standard");
        for (text, bytes) in [("512M", 512 << 20), ("1t", 1 << 40), ("4096", 4096), ("3GiB", 3 << 30)] {
            assert_eq!(size_of(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "1.5G", "KM", "1KM", "-1", "1é"] {
            assert_eq!(size_of(text), None, "{text}");
        }
    }
}
