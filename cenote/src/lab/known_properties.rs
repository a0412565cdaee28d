//! The properties that this program knows, for experiments whose pools it makes itself.

use engine::dsl::edit::check_properties;
use engine::pool::properties::table::{POOL_TABLE, PoolProp};
use engine::properties::table::TABLE;
use engine::properties::{Attr, Prop, Types, Value, is_user, typed};
use engine::tunables::{self, Effect};
use lab::preflight::KnownProperties;
use ondisk::pool_version::FEATURES;

/// The properties of this program's own pools.
pub struct OwnProperties;

/// Why properties of one's own change nothing.
const OWN_NAME: &str = "it is a user property, which the pool only stores";

fn types(of_volume: bool) -> Types {
    if of_volume { Types::VOLUME } else { Types::FILESYSTEM }
}

impl KnownProperties for OwnProperties {
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
        let mut property = vec![(name.to_owned(), value.to_owned())];
        if name == "encryption" && value != "off" {
            // The lab makes the key.
            property.push(("keyformat".to_owned(), "raw".to_owned()));
        }
        // A pool of the lab has all features that this program writes.
        check_properties(types(of_volume), &property, FEATURES, |_| true).err().map(|error| error.to_string())
    }

    fn meaning(&self, name: &str, value: &str) -> Option<String> {
        match typed::parse(Prop::from_name(name)?, value).ok()? {
            Value::Number(number) => Some(number.to_string()),
            Value::Text(text) => Some(text),
        }
    }

    fn idle(&self, name: &str) -> Option<&str> {
        if is_user(name) { Some(OWN_NAME) } else { Prop::from_name(name)?.idle() }
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

    fn tunable_fault(&self, name: &str, value: &str) -> Option<String> {
        let tunable = match tunables::named(name) {
            Ok(tunable) => tunable,
            Err(error) => return Some(error.to_string()),
        };
        if tunable.effect() == Effect::AtImport {
            return Some(
                "it only counts for pools that are imported afterwards, and variants share a pool".into(),
            );
        }
        let (least, most) = tunable.range();
        match tunable.parse(value) {
            Ok(value) if (least..=most).contains(&value) => None,
            Ok(_) => Some(format!("it is at least {least} and at most {most}")),
            Err(error) => Some(error.to_string()),
        }
    }

    fn pool_idle(&self, name: &str) -> Option<&str> {
        if is_user(name) { Some(OWN_NAME) } else { PoolProp::from_name(name)?.idle() }
    }
}

#[cfg(test)]
mod tests {
    use lab::Experiment;
    use lab::preflight::{alike, idle, names};
    use lab::recipes::RECIPES;

    use super::*;

    #[test]
    fn values_that_a_property_keeps_as_the_same_are_one() {
        let told = |values: &str| {
            let text = format!(
                "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \
                 \"compression\"\nvalues = [{values}]\n\
                 [[workload]]\nname = \"w\"\nrw = \"read\"\n"
            );
            alike(&Experiment::read(&text).unwrap(), &OwnProperties).join("; ")
        };
        assert!(told("\"gzip-6\", \"gzip\"").contains("gzip-6 and gzip are the same value"));
        assert_eq!(told("\"on\", \"gzip-5\", \"gzip\", \"zstd\", \"zstd-1\""), "");
    }

    #[test]
    fn properties_of_all_recipes_are_known_and_slips_are_told() {
        for recipe in RECIPES {
            let experiment = recipe.experiment();
            let told = [names(&experiment, &OwnProperties), idle(&experiment, &OwnProperties)].concat();
            assert_eq!(told, Vec::<String>::new(), "{}", recipe.name);
        }
        let told = |kind: &str, name: &str, values: &str| {
            let dataset = if kind == "host" { "dataset = \"a/b\"\n" } else { "" };
            let text = format!(
                "name = \"x\"\n[target]\n{dataset}kind = \"{kind}\"\nsize = \"64M\"\n[[factor]]\nname = \
                 \"{name}\"\nvalues = [{values}]\n\
                 [[workload]]\nname = \"w\"\nrw = \"read\"\n"
            );
            let experiment = Experiment::read(&text).unwrap();
            [names(&experiment, &OwnProperties), idle(&experiment, &OwnProperties)].concat().join("; ")
        };
        for (kind, name, values, expected) in [
            ("volume", "compression", "\"zstd-3\", \"lz4\"", ""),
            ("volume", "compress", "\"zstd\", \"lz4\"", ""),
            ("host", "prefetch", "\"all\", \"none\"", ""),
            ("host", "secondarycache", "\"all\", \"none\"", ""),
            ("filesystem", "primarycache", "\"all\", \"none\"", ""),
            (
                "filesystem",
                "lab:note",
                "\"a\", \"b\"",
                "'lab:note': its values would make no difference: it is a user property",
            ),
            (
                "volume",
                "prefetch",
                "\"all\", \"none\"",
                "'prefetch': its values would make no difference: Cenote reads ahead",
            ),
            ("filesystem", "secondarycache", "\"all\", \"none\"", "no cache device"),
            ("volume", "volthreading", "\"on\", \"off\"", "kernel module"),
            ("volume", "volmode", "\"dev\", \"none\"", "which volumes are devices"),
            (
                "filesystem",
                "pool.comment",
                "\"a\", \"b\"",
                "'pool.comment': its values would make no difference",
            ),
            ("filesystem", "pool.lab:note", "\"a\", \"b\"", "'pool.lab:note': its values"),
            ("filesystem", "special_small_blocks", "\"0\", \"4K\"", "no special devices"),
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
