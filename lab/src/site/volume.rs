//! Volumes of pools that the lab makes.

use serde::{Deserialize, Serialize};

use super::pools::{POOL_KEYS, of_pools};
use super::{ANY_URI, Access, DatasetKind, Facts, Kind, Pools, Site, Words};
use crate::design::Design;
use crate::reference::TableOf;
use crate::setting::{PROCESS, SettingOwner, THROUGH};

/// A volume for each variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Volume(Pools);

pub(super) const KIND: Kind = Kind {
    name: "volume",
    tables: &[TableOf {
        head: "[target] kind = \"volume\"",
        about: "A volume for each variant, in pools that the lab makes on files in the experiment's \
            directory, over NBD",
        keys: &POOL_KEYS,
    }],
    words: Some(Words { about: "volume", fields: |text| (text == "volume").then(Vec::new) }),
};

const FACTS: Facts = Facts {
    owners: &[
        SettingOwner::Server,
        SettingOwner::Tunable,
        SettingOwner::Pool,
        SettingOwner::Dataset,
        SettingOwner::Way,
    ],
    dataset: Some(DatasetKind::Volume),
    copied_by: Some("nbdcopy"),
    ..Facts::POOLED
};

impl Site for Volume {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    of_pools!();

    fn accesses<'a>(&'a self, design: Design<'a>) -> Vec<Access<'a>> {
        let ways = design.values_of(THROUGH);
        let by_process = ways.iter().any(|way| *way == PROCESS).then_some(Access::Process);
        let by_export = ways.is_empty() || ways.iter().any(|way| *way != PROCESS);
        by_process.into_iter().chain(by_export.then_some(Access::Nbd(ANY_URI))).collect()
    }

    fn described(&self, design: Design<'_>) -> String {
        format!("Measured was a volume of {} {}.", self.0.size, self.0.described(design))
    }
}
