//! Addresses of object stores.

use std::path::Path;
use std::sync::Arc;

use crate::bucket::{Bucket, FolderBucket};

/// Whether a vdev's path is the address of a device in an object store.
pub fn is_address(path: &str) -> bool {
    let scheme = path.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// The store at an address.
///
/// # Errors
/// It is not known, or not there.
pub fn bucket_at(address: &str) -> std::io::Result<Arc<dyn Bucket>> {
    let path = address.split('?').next().unwrap_or_default();
    let folder = path.strip_prefix("file://").ok_or_else(|| {
        let why = format!("'{address}' is no address of an object store that is known here");
        std::io::Error::new(std::io::ErrorKind::InvalidInput, why)
    })?;
    Ok(Arc::new(FolderBucket::new(Path::new(folder))?))
}
