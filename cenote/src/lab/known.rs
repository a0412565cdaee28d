//! What this program knows of properties, for experiments whose pools it makes itself.

use engine::dataset::dsl::edit::check_properties;
use engine::dataset::properties::table::TABLE;
use engine::dataset::properties::{Attr, Types, is_user};
use engine::pool::properties::table::POOL_TABLE;
use lab::preflight::Known;

/// The properties of this program's own pools.
pub struct Own;

fn types(of_volume: bool) -> Types {
    if of_volume { Types::VOLUME } else { Types::FILESYSTEM }
}

impl Known for Own {
    fn properties(&self, of_volume: bool) -> Vec<&str> {
        let can_be_given = TABLE.iter().filter(|desc| {
            desc.valid_for(types(of_volume), false) && desc.visible && desc.attr != Attr::Readonly
        });
        can_be_given.map(|desc| desc.name).collect()
    }

    fn fault(&self, of_volume: bool, name: &str, value: &str) -> Option<String> {
        if is_user(name) {
            return None;
        }
        let property = [(name.to_owned(), value.to_owned())];
        // A pool of the lab has all features that this program writes.
        check_properties(types(of_volume), &property, |_| true).err().map(|error| error.to_string())
    }

    fn pool_properties(&self) -> Vec<&str> {
        POOL_TABLE
            .iter()
            .filter(|desc| desc.visible && desc.attr != Attr::Readonly)
            .map(|desc| desc.name)
            .collect()
    }

    fn pool_fault(&self, name: &str, value: &str) -> Option<String> {
        server::daemon::new_pool_fault(name, value)
    }
}

#[cfg(test)]
mod tests {
    use lab::Experiment;
    use lab::preflight::names;
    use lab::recipes::RECIPES;

    use super::*;

    #[test]
    fn properties_of_all_recipes_are_known_and_slips_are_told() {
        for recipe in RECIPES {
            assert_eq!(names(&recipe.experiment(), &Own), Vec::<String>::new(), "{}", recipe.name);
        }
        let told = |kind: &str, name: &str, values: &str| {
            let text = format!(
                "name = \"x\"\n[target]\nkind = \"{kind}\"\nsize = \"64M\"\n[[factor]]\nname = \"{name}\"\nvalues = [{values}]\n\
                 [[workload]]\nname = \"w\"\nrw = \"read\"\n"
            );
            names(&Experiment::read(&text).unwrap(), &Own).join("; ")
        };
        for (kind, name, values, expected) in [
            ("volume", "compression", "\"zstd-3\", \"lz4\"", ""),
            ("volume", "compress", "\"zstd\", \"lz4\"", ""),
            ("filesystem", "lab:note", "\"a\", \"b\"", ""),
            ("filesystem", "pool.autotrim", "\"on\", \"off\"", ""),
            ("volume", "compression", "\"zstd-99\", \"lz4\"", "compression=zstd-99: "),
            ("volume", "volblocksize", "\"17K\", \"16K\"", "volblocksize=17K: "),
            (
                "volume",
                "recordsize",
                "\"16K\", \"32K\"",
                "'recordsize' is no property that a new volume can have",
            ),
            ("filesystem", "record_size", "\"16K\", \"32K\"", "did you mean 'recordsize'?"),
            ("filesystem", "used", "\"1\", \"2\"", "'used' is no property that a new filesystem can have"),
            ("filesystem", "pool.autotrim", "\"yes\", \"off\"", "pool.autotrim=yes: "),
            ("filesystem", "feature@lz5_compress", "\"enabled\", \"disabled\"", "lz5_compress"),
        ] {
            let told = told(kind, name, values);
            assert!(
                told.contains(expected) && told.is_empty() == expected.is_empty(),
                "{name} {values}: {told}"
            );
        }
    }
}
