//! Devices that are not files: addresses such as `s3://bucket/prefix`, in the place of a path.
//!
//! What opens devices has their path, and opens them again after a failure. So an address is kept where a
//! path is: in labels, in the cache file, in requests. Its scheme says what opens it: a program [`register`]s
//! that once, when it begins.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, RwLock},
};

use crate::{Cause, Device, IgnorePoison, IoError, OpenOptions, Operation};

/// Opens the devices of a scheme. The first argument is the whole address.
pub type Opener = fn(&str, OpenOptions) -> Result<Arc<dyn Device>, IoError>;

static OPENERS: RwLock<BTreeMap<&'static str, Opener>> = RwLock::new(BTreeMap::new());

/// From now on addresses of this scheme are opened so.
pub fn register(scheme: &'static str, opener: Opener) {
    OPENERS.write().ignore_poison().insert(scheme, opener);
}

/// The scheme of an address; none for a path.
fn scheme(path: &Path) -> Option<&str> {
    let (scheme, _) = path.to_str()?.split_once("://")?;
    let mut letters = scheme.bytes();
    let first = letters.next()?;
    let is_word = letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    (first.is_ascii_lowercase() && is_word).then_some(scheme)
}

/// Whether it is an address and no path.
pub fn is_address(path: &Path) -> bool {
    scheme(path).is_some()
}

/// Whether it says where a device is, wherever the process is: an absolute path, or an address.
pub fn is_complete(path: &Path) -> bool {
    path.is_absolute() || is_address(path)
}

/// Opens an address; none where it is a path.
pub(crate) fn open(path: &Path, options: OpenOptions) -> Option<Result<Arc<dyn Device>, IoError>> {
    let scheme = scheme(path)?;
    let opener = OPENERS.read().ignore_poison().get(scheme).copied();
    Some(match (opener, path.to_str()) {
        (Some(opener), Some(address)) => opener(address, options),
        _ => {
            let known: Vec<String> =
                OPENERS.read().ignore_poison().keys().map(|scheme| format!("{scheme}://")).collect();
            let said = format!("no such kind of address: it begins with {}", known.join(" or "));
            Err(IoError::new(path, Operation::Open, 0, 0, Cause::Store { said }))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme() {
        for address in ["s3://bucket/prefix", "file:///srv/pool?size=10G", "memory://one"] {
            assert!(is_address(Path::new(address)) && is_complete(Path::new(address)), "{address}");
        }
        for path in ["/dev/sda", "disk", "://x", "S3://x", "/a://b", "a b://c", "3s://x"] {
            assert!(!is_address(Path::new(path)), "{path}");
        }
        assert!(is_complete(Path::new("/dev/sda")) && !is_complete(Path::new("disk")));
        let unknown = OpenOptions::read_only().open_device("nothing://x").unwrap_err();
        assert!(unknown.to_string().contains("no such kind of address"), "{unknown}");
    }
}
