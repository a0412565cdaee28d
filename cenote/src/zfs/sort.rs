//! `-s` and `-S` of `zfs list`: by which properties the lines are sorted.
//!
//! The first property that differs decides. Numbers sort by number, all else as text, words that stand for
//! numbers too; datasets without the property come last in either direction, and equal ones stay in the order
//! of names.

use std::cmp::Ordering;

use clap::{Arg, ArgAction, ArgMatches, Command};
use engine::properties::{Kind, Prop};
use server::api::DatasetEntry;

/// The properties to sort by, the most important first.
#[derive(Debug, Clone, Default)]
pub struct SortKeys(pub Vec<SortKey>);

/// A property to sort by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    /// Its name, as typed.
    pub name: String,
    /// Largest first.
    pub descending: bool,
}

/// A value to compare.
#[derive(Debug, PartialEq, PartialOrd)]
enum Value {
    Number(f64),
    Text(String),
}

impl SortKey {
    fn value(&self, dataset: &DatasetEntry, place: usize) -> Option<Value> {
        if self.name == "name" {
            return Some(Value::Text(dataset.name.clone()));
        }
        let text = dataset.properties.get(place)?.parsable.clone()?;
        let number = match Prop::from_name(&self.name).map(|prop| prop.desc().kind) {
            Some(Kind::Number(_)) if text == "none" => Some(f64::INFINITY),
            Some(Kind::Number(_)) => text.parse().ok(),
            Some(Kind::Index(..) | Kind::Text(_)) | None => None,
        };
        Some(number.map_or(Value::Text(text), Value::Number))
    }
}

impl SortKeys {
    /// Sorts datasets whose properties from `first` on are those of the keys, in their order.
    pub fn sort(&self, datasets: &mut [DatasetEntry], first: usize) {
        datasets.sort_by(|a, b| {
            let keys = self.0.iter().enumerate();
            let order =
                keys.map(|(place, key)| match (key.value(a, first + place), key.value(b, first + place)) {
                    (None, None) => Ordering::Equal,
                    (None, Some(_)) => Ordering::Greater,
                    (Some(_), None) => Ordering::Less,
                    (Some(a), Some(b)) => {
                        let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
                        if key.descending { order.reverse() } else { order }
                    }
                });
            order.fold(Ordering::Equal, Ordering::then)
        });
    }
}

const ASCENDING: &str = "sort-ascending";
const DESCENDING: &str = "sort-descending";

impl clap::Args for SortKeys {
    fn augment_args(command: Command) -> Command {
        let option = |name, short, help| {
            Arg::new(name).short(short).value_name("PROPERTY").help(help).action(ArgAction::Append)
        };
        command
            .arg(option(ASCENDING, 's', "Sort by a property, smallest first; may be given several times"))
            .arg(option(DESCENDING, 'S', "Sort by a property, largest first"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SortKeys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of = |name, descending| {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            places.zip(values).map(move |(place, value)| (place, SortKey { name: value.clone(), descending }))
        };
        // Both kinds count in the order in which they were typed.
        let mut keys: Vec<(usize, SortKey)> = of(ASCENDING, false).chain(of(DESCENDING, true)).collect();
        keys.sort_by_key(|(place, _)| *place);
        Ok(Self(keys.into_iter().map(|(_, key)| key).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};
    use server::api::{DatasetKind, Property, Source};

    fn dataset(name: &str, used: Option<&str>) -> DatasetEntry {
        let property = Property {
            name: "used".into(),
            value: None,
            parsable: used.map(str::to_owned),
            source: Source::None,
            received: None,
            received_parsable: None,
        };
        DatasetEntry {
            name: name.into(),
            kind: DatasetKind::Filesystem,
            createtxg: 1,
            properties: vec![property],
        }
    }

    fn keys(words: &[&str]) -> SortKeys {
        let command = SortKeys::augment_args(Command::new("list"));
        SortKeys::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn keys_count_in_the_order_typed() {
        let names: Vec<_> =
            keys(&["list", "-S", "used", "-s", "name"]).0.into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["used", "name"]);
    }

    #[test]
    fn numbers_sort_as_numbers_and_absent_values_come_last() {
        let all = [("a", Some("9")), ("b", None), ("c", Some("10"))];
        for (words, expected) in [(["list", "-s", "used"], "acb"), (["list", "-S", "used"], "cab")] {
            let mut datasets = all.map(|(name, used)| dataset(name, used));
            keys(&words).sort(&mut datasets, 0);
            let order: String = datasets.iter().map(|dataset| dataset.name.as_str()).collect();
            assert_eq!(order, expected);
        }
    }

    #[test]
    fn words_sort_as_text() {
        let mut datasets = [("a", "on"), ("b", "sha256"), ("c", "off"), ("d", "fletcher4")]
            .map(|(name, checksum)| dataset(name, Some(checksum)));
        keys(&["list", "-s", "checksum"]).sort(&mut datasets, 0);
        let order: String = datasets.iter().map(|dataset| dataset.name.as_str()).collect();
        assert_eq!(order, "dcab");
    }
}
