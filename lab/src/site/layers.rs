//! The layers of a stack, each measured by itself.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Facts, Kind, Named, Site, Used, absolute, is_not};
use crate::environment::Environment;
use crate::error::Result;
use crate::experiment::format::{OVERWRITE, SIZE, TableOf, key};
use crate::experiment::{Experiment, Place, Settings};
use crate::remote;
use crate::size::Size;
use crate::target::export::Export;

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

/// A layer of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its kind.
    pub name: String,
    /// Where it is: a path, or the URI of an NBD export or of a disk behind iSCSI.
    pub at: String,
    /// The command that runs a shell where it is, where that is not here; then `at` is a path there
    /// ([`crate::remote`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Vec<String>>,
    /// The engine of the fio there, one of [`ENGINES`], where that is not the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// The engines that a fio elsewhere may have: the first is what is used here, and forbidden in some
/// containers.
pub const ENGINES: [&str; 2] = ["io_uring", "libaio"];

impl Layer {
    /// The engine of the fio that measures it.
    pub fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or(ENGINES[0])
    }

    /// The path of this machine that it is, where it is one.
    pub fn path(&self) -> Option<&Path> {
        (self.by.is_none() && !self.is_uri()).then(|| Path::new(&self.at))
    }

    /// The URI that it is, where it is one.
    pub fn uri(&self) -> Option<&str> {
        (self.by.is_none() && self.is_uri()).then_some(self.at.as_str())
    }

    /// It, as what is measured.
    fn named(&self) -> Named<'_> {
        match (self.path(), self.uri()) {
            (Some(path), _) => Named::Path(path),
            (None, Some(uri)) => Named::Uri(uri),
            (None, None) => Named::Elsewhere(self),
        }
    }

    /// What is wrong with its engine.
    fn fault_of_engine(&self) -> Option<String> {
        let engine = self.engine.as_deref()?;
        if self.by.is_none() {
            Some(format!("target {}: engine is for a remote fio: it needs `by`", self.title()))
        } else if !ENGINES.contains(&engine) {
            Some(format!("target {}: engine '{engine}' is not one of {}", self.title(), ENGINES.join(", ")))
        } else {
            None
        }
    }

    fn is_uri(&self) -> bool {
        self.at.contains("://")
    }

    /// It in words: its name, and where it is.
    pub fn title(&self) -> String {
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" by '{}'", by.join(" ")));
        format!("layer '{}' ({}{by})", self.name, self.at)
    }

    /// The faults of its address.
    fn fault(&self) -> Option<String> {
        let by = self.by.as_ref()?;
        let what = if by.first().is_none_or(String::is_empty) {
            "by is empty: it is the command that runs a shell where the layer is, for example [\"ssh\", \
             \"root@guest\"]; leave it out for layers of this machine"
        } else if self.is_uri() {
            "at is a URI, and with by it is the path of a file or device there: leave out by, or name the \
             path"
        } else if !self.at.starts_with('/') {
            "at is a path where by runs a shell, and must begin with '/'"
        } else if by.iter().chain([&self.at]).any(|word| word.contains('\0')) {
            "by and at can have no NUL in them"
        } else {
            return None;
        };
        Some(format!("target: layer '{}': {what}", self.name))
    }
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
    places: &[Place::Layer],
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
        self.layers.iter().map(Layer::named).collect()
    }

    fn measured(&self, settings: &Settings) -> Option<Named<'_>> {
        let name = settings.get("layer");
        let layer = self.layers.iter().find(|layer| Some(&layer.name) == name);
        layer.or(self.layers.first()).map(Layer::named)
    }

    fn make_absolute(&mut self) -> Result<()> {
        for layer in &mut self.layers {
            if let Some(path) = layer.path() {
                layer.at = absolute(path)?.display().to_string();
            }
        }
        Ok(())
    }

    fn faults(&self, _: &Experiment) -> Vec<String> {
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

    fn described(&self, _: &Experiment) -> String {
        let names: Vec<&str> = self.layers.iter().map(|layer| layer.name.as_str()).collect();
        format!("The target was {} of each of the layers {}.", self.size, names.join(", "))
    }
}
