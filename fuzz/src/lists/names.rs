//! Keys and names that carry numbers.

use ondisk::accounting::AccountingKey;
use ondisk::deleg::DelegKey;
use ondisk::errlog::{ErrorBookmark, HeadError};
use ondisk::features::{self, Feature};
use ondisk::holds::{self, DatasetName};
use ondisk::pool_directory;

/// Keys of user, group and project accounting.
pub fn accounting(bytes: &[u8]) {
    if let Some(key) = AccountingKey::parse(bytes) {
        assert_eq!(AccountingKey::parse(key.encode().as_bytes()), Some(key));
    }
}

/// Names of datasets, delegations, holds, errors and features.
pub fn names(bytes: &[u8]) {
    if let Some(error) = ErrorBookmark::parse(bytes) {
        assert_eq!(ErrorBookmark::parse(error.encode().as_bytes()), Some(error));
    }
    if let Some(error) = HeadError::parse(bytes) {
        assert_eq!(HeadError::parse(error.encode().as_bytes()), Some(error));
    }
    if let Some((snapshot, tag)) = holds::parse_temporary_hold_key(bytes)
        && let Ok(tag) = std::str::from_utf8(tag)
    {
        let key = holds::temporary_hold_key(snapshot, tag);
        assert_eq!(holds::parse_temporary_hold_key(key.as_bytes()), Some((snapshot, tag.as_bytes())));
    }
    if let Some(number) = pool_directory::parse_hex_key(bytes) {
        assert_eq!(pool_directory::parse_hex_key(pool_directory::hex_key(number).as_bytes()), Some(number));
    }
    let _ = pool_directory::hidden_dir::is_hidden(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(key) = DelegKey::parse(text) {
        assert_eq!(DelegKey::parse(&key.encode()), Some(key));
    }
    let _ = DatasetName::parse(text);
    let _ = (Feature::from_guid(text), Feature::from_name(text), features::is_valid_guid(text));
}
