//! Experiments that come with the program: each answers a question on which administrators spend days.

use crate::experiment::Experiment;

/// An experiment by name.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// Its name.
    pub name: &'static str,
    /// The question that it answers.
    pub about: &'static str,
    text: &'static str,
}

/// All of them.
pub const RECIPES: [Recipe; 17] = [
    Recipe {
        name: "volblocksize",
        about: "volblocksize 8K to 64K by random writes of 4K and 1M and reads outside the cache",
        text: include_str!("../recipes/volblocksize.toml"),
    },
    Recipe {
        name: "matrix",
        about: "4K, 64K and 1M, random and sequential, read and write: raw device, pool and export, and the \
            gap by layer",
        text: include_str!("../recipes/matrix.toml"),
    },
    Recipe {
        name: "compression",
        about: "off, lz4, zstd and every gzip: speed, space and CPU with made-up and real data",
        text: include_str!("../recipes/compression.toml"),
    },
    Recipe {
        name: "dedup",
        about: "dedup off, on and verify, with lz4, gzip-9 and no compression: speed and space of copies \
            and of new data",
        text: include_str!("../recipes/dedup.toml"),
    },
    Recipe {
        name: "encryption",
        about: "encryption by the pool, LUKS below the pool, LUKS in the guest, and none: speed, CPU and \
            space",
        text: include_str!("../recipes/encryption.toml"),
    },
    Recipe {
        name: "topology",
        about: "stripe, mirrors and raidz of six devices: random and sequential, with a device missing, and \
            the space they take",
        text: include_str!("../recipes/topology.toml"),
    },
    Recipe {
        name: "cold-warm",
        about: "reads of files smaller and larger than the cache: cold, warm, just written",
        text: include_str!("../recipes/cold-warm.toml"),
    },
    Recipe {
        name: "sync",
        about: "sync standard, always and disabled, with and without a log device, by depth: what safety \
            costs",
        text: include_str!("../recipes/sync.toml"),
    },
    Recipe {
        name: "optane-log",
        about: "raidz1 of three modelled 7200 rpm disks with and without a modelled Optane log",
        text: include_str!("../recipes/optane-log.toml"),
    },
    Recipe {
        name: "l2arc-slog",
        about: "a NAS of seven modelled disks with a cache device, a log device, and the tunables that \
            people try then",
        text: include_str!("../recipes/l2arc-slog.toml"),
    },
    Recipe {
        name: "arc-size",
        about: "skewed and evenly spread reads, and those of bonnie++, with caches in memory from a \
            sixteenth of the data to all of them",
        text: include_str!("../recipes/arc-size.toml"),
    },
    Recipe {
        name: "nas-1gbe",
        about: "raidz2 of seven modelled 7200 rpm disks behind a modelled gigabit link",
        text: include_str!("../recipes/nas-1gbe.toml"),
    },
    Recipe {
        name: "object-store",
        about: "a pool on a modelled object store with and without a local cache device and log device, and on \
            modelled local disks",
        text: include_str!("../recipes/object-store.toml"),
    },
    Recipe {
        name: "striped-mirrors",
        about: "four modelled 7200 rpm disks as mirrors, raidz1 and raidz2",
        text: include_str!("../recipes/striped-mirrors.toml"),
    },
    Recipe {
        name: "home-nas",
        about: "six modelled 5400 rpm disks as raidz2, mirrors and two raidz1",
        text: include_str!("../recipes/home-nas.toml"),
    },
    Recipe {
        name: "cache-modes",
        about: "a guest's disk by cache mode, bus and kind: raw, qcow2, NBD, vhost-user, iSCSI; is \
            writethrough a trap?",
        text: include_str!("../recipes/cache-modes.toml"),
    },
    Recipe {
        name: "stack",
        about: "layer by layer from the device to a guest's filesystem: pool, export, virtio, LVM, LUKS, \
            ext2 to ext4, xfs",
        text: include_str!("../recipes/stack.toml"),
    },
];

/// The recipe `name`.
pub fn find(name: &str) -> Option<Recipe> {
    RECIPES.into_iter().find(|recipe| recipe.name == name)
}

/// The recipe that a wrong name may have meant, as the end of a message.
pub fn meant(name: &str) -> String {
    ondisk::nearest::meant(name, RECIPES.iter().map(|recipe| recipe.name))
}

impl Recipe {
    /// Its experiment.
    pub fn experiment(&self) -> Experiment {
        Experiment::parse(self.text).expect("a recipe is right, its test says so")
    }

    /// Its text, to start one's own from.
    pub fn text(&self) -> &'static str {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    #[test]
    fn every_recipe_is_an_experiment() {
        for recipe in RECIPES {
            let experiment =
                Experiment::parse(recipe.text).unwrap_or_else(|error| panic!("{}: {error}", recipe.name));
            assert_eq!(experiment.name, recipe.name);
            assert!(!experiment.question.is_empty(), "{}", recipe.name);
            assert!(!Plan::new(&experiment, None, 1).round(0).is_empty());
        }
        assert!(find("no such").is_none());
        assert_eq!(meant("topologie"), "; did you mean 'topology'?");
    }

    #[test]
    fn the_quick_form_of_every_recipe_is_few_runs_and_most_have_five_rounds() {
        for (name, rounds, runs) in [
            ("volblocksize", 5, 90),
            ("matrix", 5, 320),
            ("compression", 5, 315),
            ("dedup", 5, 140),
            ("encryption", 5, 120),
            ("topology", 5, 165),
            ("cold-warm", 5, 120),
            ("sync", 5, 160),
            ("optane-log", 5, 45),
            ("l2arc-slog", 3, 54),
            ("arc-size", 3, 48),
            ("nas-1gbe", 5, 60),
            ("object-store", 4, 56),
            ("striped-mirrors", 5, 60),
            ("home-nas", 5, 60),
            ("cache-modes", 3, 192),
            ("stack", 3, 192),
        ] {
            let mut experiment = find(name).unwrap().experiment();
            experiment.quick(1.0);
            experiment.check().unwrap();
            let in_a_round = Plan::new(&experiment, None, 1).round_length();
            assert_eq!((experiment.rounds, in_a_round * experiment.rounds), (rounds, runs), "{name}");
        }
    }
}
