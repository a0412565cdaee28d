//! The layers of a stack, each measured by itself.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Facts, Kind, Named, Site, Used, absolute, is_not};
use crate::design::Design;
use crate::environment::Environment;
use crate::error::Result;
use crate::export::Export;
use crate::layer::Layer;
use crate::reference::{OVERWRITE, SIZE, TableOf, key};
use crate::remote;
use crate::setting::{SettingOwner, Settings};
use crate::size::Size;

/// The layers of a stack: the factor `layer` has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// The layers, from the lowest to the highest.
    #[serde(rename = "layer")]
    pub layers: Vec<Layer>,
    /// How much of each is used.
    pub size: Size,
    /// Whether what they hold may be overwritten.
    #[serde(default, skip_serializing_if = "is_not")]
    pub overwrite: bool,
}

pub(super) const KIND: Kind = Kind { name: "layers", tables: &TABLES, words: None };

const TABLES: [TableOf; 2] = [
    TableOf {
        head: "[target] kind = \"layers\"",
        about: "Layers of a stack, each measured by itself",
        keys: &[
            key(
                "layer",
                "tables",
                None,
                "[{ name = \"disk\", at = \"/dev/sdx\" }, \
                 { name = \"export\", at = \"nbd://server/export\" }]",
                "See [[target.layer]]; required, two or more",
            ),
            SIZE,
            OVERWRITE,
        ],
    },
    TableOf {
        head: "[[target.layer]]",
        about: "A layer, from the lowest to the highest",
        keys: &[
            key("name", "text", None, "\"disk\"", "Its name; required"),
            key("at", "a path or URI", None, "\"/dev/sdx\"", "Its address; required"),
            key(
                "by",
                "words of a command",
                None,
                "[\"ssh\", \"root@guest\"]",
                "The command that runs a shell where the layer is (docker exec -i, kubectl exec -i, chroot \
                 …: the lab adds `sh`), if it is not on this machine. `at` is then a file or device there, \
                 and the fio that is installed there runs there. Workloads that write need `overwrite`, \
                 because its contents cannot be checked. A run that is stopped ends the command here; fio \
                 may go on there until its time is over. The lab gives a run up a minute after it should \
                 have ended; with ssh, `-o ServerAliveInterval=5` reports a guest that is gone sooner",
            ),
            key(
                "engine",
                "io_uring, libaio",
                None,
                "\"libaio\"",
                "The engine of the fio there, if not io_uring: only with `by`. Containers forbid \
                 io_uring by default; a dry run reports that. With `direct=0` libaio waits for each \
                 operation, so that every depth is 1",
            ),
        ],
    },
];

const FACTS: Facts = Facts {
    owners: &[SettingOwner::Layer],
    no_limit: Some(
        "the lowest layer limits those above it, except that these may be faster by what they keep in memory",
    ),
    ..Facts::NAMED
};

impl Site for Stack {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn used(&self) -> Used {
        Used { size: self.size, overwrite: self.overwrite }
    }

    fn layers(&self) -> &[Layer] {
        &self.layers
    }

    fn named(&self) -> Vec<Named<'_>> {
        self.layers.iter().map(Named::of).collect()
    }

    fn measured(&self, settings: &Settings) -> Option<Named<'_>> {
        let name = settings.get("layer");
        let layer = self.layers.iter().find(|layer| Some(&layer.name) == name);
        layer.or(self.layers.first()).map(Named::of)
    }

    fn make_absolute(&mut self) -> Result<()> {
        for layer in &mut self.layers {
            if let Some(path) = layer.path() {
                layer.at = absolute(path)?.display().to_string();
            }
        }
        Ok(())
    }

    fn faults(&self, _: Design<'_>) -> Vec<String> {
        let parsed = self.layers.iter().filter_map(|layer| Export::parse(layer.uri()?).err());
        let mut faults: Vec<String> = parsed.map(|what| format!("target: {what}")).collect();
        faults.extend(self.layers.iter().filter_map(Layer::fault));
        let names: BTreeSet<&String> = self.layers.iter().map(|layer| &layer.name).collect();
        if self.layers.len() < 2 || names.len() != self.layers.len() {
            faults.push("target: it needs at least two [[target.layer]] with different names".into());
        }
        faults.extend(self.layers.iter().filter_map(Layer::fault_of_engine));
        faults
    }

    fn environment(&self, _: &Path) -> Result<Environment> {
        let guests = remote::guests(&self.layers)?;
        let paths = self.layers.iter().filter_map(Layer::path);
        let environment = paths.fold(Environment::of_this_machine(), Environment::with);
        Ok(Environment { guests, ..environment })
    }

    fn described(&self, _: Design<'_>) -> String {
        let names: Vec<&str> = self.layers.iter().map(|layer| layer.name.as_str()).collect();
        format!("The target was {} of each of the layers {}.", self.size, names.join(", "))
    }
}
