//! Filesystems of pools that the lab makes, mounted.

use serde::{Deserialize, Serialize};

use super::pools::{POOL_KEYS, of_pools};
use super::{DatasetKind, Facts, Kind, Pools, Site, Words};
use crate::design::Design;
use crate::reference::TableOf;

/// A filesystem for each variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filesystem(Pools);

pub(super) const KIND: Kind = Kind {
    name: "filesystem",
    tables: &[TableOf {
        head: "[target] kind = \"filesystem\"",
        about: "A mounted filesystem for each variant, in such pools",
        keys: &POOL_KEYS,
    }],
    words: Some(Words { about: "filesystem", fields: |text| (text == "filesystem").then(Vec::new) }),
};

const FACTS: Facts = Facts { dataset: Some(DatasetKind::Filesystem), ..Facts::POOLED };

impl Site for Filesystem {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    of_pools!();

    fn described(&self, design: Design<'_>) -> String {
        let Pools { size, .. } = &self.0;
        format!("The target was files of {size} on a filesystem {}.", self.0.described(design))
    }
}
