//! From a dataset's properties to how its files are shown.

use super::{AclType, ZplOptions};
use crate::properties::{Prop, PropertySet, Style, Types};

impl ZplOptions {
    /// The values of `xattr`, `acltype` and `longname`.
    pub fn from_properties(properties: &PropertySet) -> Self {
        let acl = properties.get(Prop::Acltype, Style::PARSABLE).map(|shown| shown.value);
        Self {
            snapshot: properties.kind == Types::SNAPSHOT,
            xattr: properties.number(Prop::Xattr) != Some(0),
            acl: match acl.as_deref() {
                Some("posix") => AclType::Posix,
                Some("nfsv4") => AclType::Nfs4,
                _ => AclType::Off,
            },
            long_names: properties.number(Prop::Longname) == Some(1),
        }
    }
}
