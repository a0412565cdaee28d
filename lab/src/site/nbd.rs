//! A volume that some NBD server serves.

use serde::{Deserialize, Serialize};

use super::{Facts, Kind, Named, Site, Used, Words, is_not};
use crate::design::Design;
use crate::export::Export;
use crate::reference::{OVERWRITE, SIZE, TableOf, key};
use crate::size::Size;

/// An NBD export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nbd {
    /// Its URI.
    pub uri: String,
    /// How much of it is used.
    pub size: Size,
    /// Whether what it holds may be overwritten.
    #[serde(default, skip_serializing_if = "is_not")]
    pub overwrite: bool,
}

pub(super) const KIND: Kind = Kind {
    name: "nbd",
    tables: &[TableOf {
        head: "[target] kind = \"nbd\"",
        about: "An NBD export, which workloads write only with consent (`overwrite`)",
        keys: &[
            key("uri", "a URI", None, "\"nbd://server/export\"", "Its address; required"),
            SIZE,
            OVERWRITE,
        ],
    }],
    words: Some(Words {
        about: "an NBD URI",
        fields: |text| {
            let is_one = ["nbd://", "nbds://", "nbd+unix://"].iter().any(|scheme| text.starts_with(scheme));
            is_one.then(|| vec![("uri", text)])
        },
    }),
};

/// Of exports, by whatever protocol.
pub(super) const FACTS: Facts = Facts {
    no_limit: Some(
        "the devices belong to the server of the export and cannot be reached from here; [[bound]] names \
         what the network carries",
    ),
    ..Facts::NAMED
};

const FACTS_OF_NBD: Facts = Facts { copied_by: Some("nbdcopy"), ..FACTS };

impl Site for Nbd {
    fn facts(&self) -> &'static Facts {
        &FACTS_OF_NBD
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
            Ok(export) if export.is_iscsi() => {
                Some(format!("target: '{}' is a disk behind iSCSI: kind = \"iscsi\"", self.uri))
            }
            Ok(_) => None,
        };
        fault.into_iter().collect()
    }

    fn described(&self, _: Design<'_>) -> String {
        format!("Measured was {} of {}.", self.size, self.uri)
    }
}
