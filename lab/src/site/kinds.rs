//! The list of kinds: the one place that names them all.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use super::{Kind, Site};

/// Makes of each kind a variant of [`ExperimentTarget`] with its fields, and of all of them [`KINDS`].
macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident: $module:ident::$fields:ident,)*) => {
        /// The target of an experiment, as its file has it: a kind with its fields. It is used as its
        /// [`Site`].
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum ExperimentTarget {
            $($(#[$about])* $name(super::$module::$fields),)*
        }

        /// All kinds, in the order of the reference.
        pub const KINDS: &[Kind] = &[$(super::$module::KIND),*];

        impl ExperimentTarget {
            fn site(&self) -> &(dyn Site + 'static) {
                match self {
                    $(Self::$name(site) => site,)*
                }
            }

            fn site_mut(&mut self) -> &mut (dyn Site + 'static) {
                match self {
                    $(Self::$name(site) => site,)*
                }
            }
        }
    };
}

kinds! {
    /// Volumes of pools that the lab makes, over NBD, or from inside the process that has their pool open.
    Volume: volume::Volume,
    /// Filesystems of such pools, mounted.
    Filesystem: filesystem::Filesystem,
    /// Volumes of such pools, or images on their filesystems, as the disks of guests ([`crate::guest`]).
    Guest: guest::Guests,
    /// A file, directory or block device.
    Path: path::AtPath,
    /// An NBD export.
    Nbd: nbd::Nbd,
    /// A disk behind iSCSI.
    Iscsi: iscsi::Iscsi,
    /// Layers of a stack, each measured by itself: the factor `layer` has them.
    Layers: layers::Stack,
    /// Volumes on a host that runs OpenZFS.
    Host: host::Host,
    /// A volume that holds data.
    Existing: existing::Existing,
}

impl Deref for ExperimentTarget {
    type Target = dyn Site;

    fn deref(&self) -> &Self::Target {
        self.site()
    }
}

impl DerefMut for ExperimentTarget {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.site_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::experiment::draft;
    use crate::experiment::{Experiment, Metric, SettingOwner};
    use crate::plan::Plan;
    use crate::site::{Access, Cold, Named, Server};

    /// The smallest experiment with a target of this kind: the fields that the reference calls required, with
    /// its examples.
    fn smallest(kind: &Kind) -> Experiment {
        let keys = kind.tables.iter().take(1).flat_map(|table| table.keys);
        let required = keys.filter(|key| key.about.contains("required"));
        let fields: String = required.map(|key| format!("{} = {}\n", key.name, key.example)).collect();
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"{}\"\n{fields}[[workload]]\nname = \"w\"\nrw = \
             \"randread\"\nbs = \"4K\"\n",
            kind.name
        );
        Experiment::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_kind_answers_every_question() {
        for kind in KINDS {
            let (name, experiment) = (kind.name, smallest(kind));
            let target = &experiment.target;
            let facts = target.facts();
            let is_pooled = target.pools().is_some();
            let has_datasets = is_pooled || target.below().is_some();
            // It is made by the lab, or named by the user.
            assert_ne!(has_datasets, !target.named().is_empty(), "{name}");
            assert_eq!(target.is_as_found(), !has_datasets, "{name}");
            // A dataset has properties, and a program that sets them.
            assert_eq!(target.has(SettingOwner::Dataset), facts.dataset.is_some(), "{name}");
            assert_eq!(target.has(SettingOwner::Dataset), target.server().is_some(), "{name}");
            assert!(!has_datasets || facts.dataset.is_some(), "{name}");
            assert_eq!(target.has(SettingOwner::Layer), !target.layers().is_empty(), "{name}");
            assert!(
                target.has(SettingOwner::Job) && !target.accesses(experiment.design()).is_empty(),
                "{name}"
            );
            // A limit is measured, or it is said why not.
            assert_eq!(facts.no_limit.is_none(), is_pooled, "{name}");
            assert!(target.has_no(Metric::Iops).is_none(), "{name}");
            assert_eq!(target.has_no(Metric::Space).is_none(), has_datasets, "{name}");
            assert_eq!(target.has_no(Metric::Cpu).is_none(), is_pooled, "{name}");
            let (used, settings) = (target.used(), &experiment.settings);
            assert!(!used.overwrite && target.size() == used.size && used.size.0 == 512 << 20, "{name}");
            assert_eq!(target.dataset(settings).unwrap().map(|made| made.kind), facts.dataset, "{name}");
            assert_eq!(target.measured(settings), target.named().first().copied(), "{name}");
            assert_eq!(target.fault_of_settings(settings), None, "{name}");
            assert!(target.described(experiment.design()).contains("512M"), "{name}");
            assert!(target.environment("/".as_ref()).is_ok_and(|it| it != Environment::default()), "{name}");
            match facts.cold {
                Cold::Imported => assert!(is_pooled, "{name}"),
                Cold::Dropped => assert!(!has_datasets, "{name}"),
                Cold::Kept(why) => assert!(!why.is_empty(), "{name}"),
            }
            if let Some(Server::Own { serves_guests, .. }) = target.server() {
                assert_eq!(serves_guests, target.has(SettingOwner::Guest), "{name}");
            }
            for (named, access) in target.named().iter().zip(target.accesses(experiment.design())) {
                let is_export = matches!(named, Named::Uri(_) | Named::Volume(_));
                assert_eq!(is_export, access != Access::File, "{name}");
            }
            assert_eq!(
                target.unexamined().is_empty(),
                target.named().len() == target.paths().len(),
                "{name}"
            );
            let plan = Plan::new(&experiment, None, 1);
            assert!(plan.turns() <= 1 && plan.round(0).len() == plan.round_length(), "{name}");
            // What is kept with results is read again as it was.
            let again = Experiment::parse(&experiment.to_toml().unwrap()).unwrap();
            assert_eq!(again.target, experiment.target, "{name}");
            let mut moved = experiment.target.clone();
            moved.make_absolute().unwrap();
            assert_eq!(moved, experiment.target, "{name}: the examples are absolute");
        }
    }

    #[test]
    fn words_name_the_kind_that_says_so_and_no_other() {
        let words = [
            "volume",
            "filesystem",
            "guest",
            "/a",
            "./a",
            "nbd+unix:///v",
            "iscsi://h/t/1",
            "host:a/b",
            "existing:a/b",
        ];
        let kinds = ["volume", "filesystem", "guest", "path", "path", "nbd", "iscsi", "host", "existing"];
        for (text, expected) in words.into_iter().zip(kinds) {
            let named: Vec<&str> = KINDS
                .iter()
                .filter(|kind| kind.words.is_some_and(|words| (words.fields)(text).is_some()))
                .map(|kind| kind.name)
                .collect();
            assert_eq!(named, [expected], "{text}");
            assert_eq!(draft::target(text).unwrap()["kind"].as_str(), Some(expected));
        }
        let error = draft::target("layers").unwrap_err().to_string();
        assert!(error.contains("host:POOL/DATASET, or existing:POOL/VOLUME"), "{error}");
    }
}
