//! Volumes on a host that runs OpenZFS.
//!
//! They are made below the named dataset, by the host's own `zfs`, and nothing else there is touched.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::facts::OF_SERVER;
use super::{Cold, DatasetKind, Facts, Kind, Server, Site, Used, Words};
use crate::design::Design;
use crate::environment::Environment;
use crate::error::Result;
use crate::reference::{SIZE, TableOf, key};
use crate::setting::SettingOwner;
use crate::size::Size;

/// A dataset of a pool that this host's OpenZFS has imported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The dataset below which volumes are made, and removed afterwards.
    pub dataset: String,
    /// Size of a volume.
    pub size: Size,
}

pub(super) const KIND: Kind = Kind {
    name: "host",
    tables: &[TableOf {
        head: "[target] kind = \"host\"",
        about: "Volumes on a host that runs OpenZFS, made and removed below a dataset by its own zfs",
        keys: &[key("dataset", "a dataset", None, "\"tank/lab\"", "The dataset; required"), SIZE],
    }],
    words: Some(Words {
        about: "host:POOL/DATASET",
        fields: |text| text.strip_prefix("host:").map(|dataset| vec![("dataset", dataset)]),
    }),
};

const FACTS: Facts = Facts {
    owners: &[SettingOwner::Dataset],
    dataset: Some(DatasetKind::Volume),
    unreported: &[(
        OF_SERVER,
        "a host's kernel reports neither what it uses for one volume nor what it does to devices for it",
    )],
    no_limit: Some("the devices belong to the host's pool, which the lab uses only through its volumes"),
    cold: Cold::Kept(
        "The cache of a host's pool cannot be emptied without exporting it, which the lab does not do: data \
         called cold here may have been cached.",
    ),
    caveat: Some(
        "On a host the lab only uses commands, which report neither amplification nor what CPU time and \
         memory were used for.",
    ),
    ..Facts::POOLED
};

impl Site for Host {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn used(&self) -> Used {
        Used { size: self.size, overwrite: false }
    }

    fn below(&self) -> Option<&str> {
        Some(&self.dataset)
    }

    fn server(&self) -> Option<Server<'_>> {
        Some(Server::Kernel)
    }

    fn environment(&self, _: &Path) -> Result<Environment> {
        Ok(Environment::of_this_machine().with_openzfs())
    }

    fn described(&self, _: Design<'_>) -> String {
        format!("The target was a volume of {} below {}, in a pool that existed.", self.size, self.dataset)
    }
}
