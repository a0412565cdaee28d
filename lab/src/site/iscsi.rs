//! A disk behind iSCSI.

use serde::{Deserialize, Serialize};

use super::{Facts, Kind, Named, Site, Used, Words, is_not, nbd};
use crate::design::Design;
use crate::export::Export;
use crate::reference::{OVERWRITE, SIZE, TableOf, key};
use crate::size::Size;

/// A disk behind iSCSI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iscsi {
    /// Its URI.
    pub uri: String,
    /// How much of it is used.
    pub size: Size,
    /// Whether what it holds may be overwritten.
    #[serde(default, skip_serializing_if = "is_not")]
    pub overwrite: bool,
}

pub(super) const KIND: Kind = Kind {
    name: "iscsi",
    tables: &[TableOf {
        head: "[target] kind = \"iscsi\"",
        about: "A disk behind iSCSI, by a fio that has libiscsi, and libiscsi's iscsi-readcapacity16, which \
            reports its size; workloads write it only with consent (`overwrite`)",
        keys: &[
            key(
                "uri",
                "a URI",
                None,
                "\"iscsi://server/iqn.2016-02.com.example:disk/1\"",
                "Its address; required",
            ),
            SIZE,
            OVERWRITE,
        ],
    }],
    words: Some(Words {
        about: "an iSCSI URI",
        fields: |text| text.starts_with("iscsi://").then(|| vec![("uri", text)]),
    }),
};

impl Site for Iscsi {
    fn facts(&self) -> &'static Facts {
        &nbd::FACTS
    }

    fn used(&self) -> Used {
        Used { size: self.size, overwrite: self.overwrite }
    }

    fn named(&self) -> Vec<Named<'_>> {
        vec![Named::Uri(&self.uri)]
    }

    fn faults(&self, _: Design<'_>) -> Vec<String> {
        let fault = match Export::parse(&self.uri) {
            Err(what) => Some(format!("target: {what}")),
            Ok(export) if !export.is_iscsi() => {
                Some(format!("target: '{}' is an NBD export: kind = \"nbd\"", self.uri))
            }
            Ok(_) => None,
        };
        fault.into_iter().collect()
    }

    fn described(&self, _: Design<'_>) -> String {
        format!("Measured was {} of {}.", self.size, self.uri)
    }
}
