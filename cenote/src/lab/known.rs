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
