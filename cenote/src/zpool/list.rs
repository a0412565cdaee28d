//! `zpool list`: pools and, with `-v`, their vdevs, with their space.

use anyhow::Result;
use serde_json::{Map, Value};
use server::api::{ListPools, Listed, PoolEntry, VdevClass, VdevNode, VdevSpace};

use super::repeat::{Repeat, TimeStamp};
use super::vdevs::{Naming, SECTIONS, of_class, spare_word, state_word, vdev_json};
use super::{PoolJson, entry_json};
use crate::columns::{self, Wanted};
use crate::dead_mounts;
use crate::output::{self, Numbers, complain, style};
use crate::table::{Layout, pad_left, pad_right};

/// The default columns.
const DEFAULT: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";
/// The least width of the column of names with vdevs.
const NAME_WIDTH: usize = 9;
/// Names and widths of the columns of a vdev, after its name.
const VDEV_COLUMNS: [(&str, usize); 9] = [
    ("size", 5),
    ("allocated", 5),
    ("free", 5),
    ("checkpoint", 7),
    ("expandsize", 8),
    ("fragmentation", 5),
    ("capacity", 5),
    ("dedupratio", 5),
    ("health", 8),
];

/// Arguments of `zpool list`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    json: PoolJson,
    #[command(flatten)]
    time: TimeStamp,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show numbers in full
    #[arg(short = 'p')]
    literal: bool,
    /// Show vdevs too
    #[arg(short)]
    verbose: bool,
    /// Properties to list, separated by commas
    #[arg(short = 'o', value_name = "PROPERTY,…", default_value = DEFAULT, hide_default_value = true)]
    properties: String,
    /// The pools, all open ones if none is named; then seconds after which to repeat it, and how often
    #[arg(value_name = "POOL|INTERVAL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Prints the list, once or repeatedly.
    pub fn run(mut self) -> Result<()> {
        Repeat::take(&mut self.pools)?.run(|first| self.show(first))
    }

    fn show(&self, first: bool) -> Result<()> {
        let wanted =
            columns::of_pools(&self.properties)?.unwrap_or_else(|| columns::all_of_pools().collect());
        let request = ListPools {
            pools: self.pools.clone(),
            properties: wanted.iter().map(|wanted| wanted.name.clone()).collect(),
            vdevs: self.verbose,
        };
        let listed = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        if self.json.base.json {
            self.print_json(&wanted, &listed.entries)?;
        } else if listed.entries.is_empty() {
            if self.pools.is_empty() && !self.scripted && listed.failed.is_empty() {
                output::print("no pools available\n")?;
                dead_mounts::explain();
            }
        } else {
            let table = self.render(wanted, &listed.entries, first || self.verbose);
            output::print(&(self.time.line() + &table))?;
        }
        complain(&listed.failed)
    }

    fn is_literal(&self) -> bool {
        self.literal || self.json.base.json_int
    }

    fn value(&self, wanted: &Wanted, place: usize, pool: &PoolEntry) -> String {
        if wanted.name == "name" {
            return pool.name.clone();
        }
        let property = pool.properties.get(place);
        let text = property.and_then(|property| match self.is_literal() {
            true => property.parsable.clone(),
            false => property.value.clone(),
        });
        text.unwrap_or_else(|| "-".to_owned())
    }

    fn render(&self, mut wanted: Vec<Wanted>, pools: &[PoolEntry], with_header: bool) -> String {
        let rows: Vec<Vec<String>> = pools
            .iter()
            .map(|pool| {
                wanted.iter().enumerate().map(|(place, wanted)| self.value(wanted, place, pool)).collect()
            })
            .collect();
        for row in &rows {
            for (wanted, value) in wanted.iter_mut().zip(row) {
                wanted.grow(value, self.is_literal());
            }
        }
        let name_width = pools.iter().map(|pool| {
            let vdevs = pool.vdevs.as_ref().map_or(0, |root| self.naming.width(&pool.name, root, 0));
            vdevs.max(pool.name.len())
        });
        let name_width = name_width.fold(NAME_WIDTH, usize::max);
        let mut columns: Vec<_> = wanted.into_iter().map(|wanted| wanted.column).collect();
        if let Some(first) = columns.first_mut().filter(|_| self.verbose) {
            first.width = name_width;
        }
        let layout = Layout { columns, scripted: self.scripted };
        let mut text = if with_header { layout.header() } else { String::new() };
        for (pool, row) in pools.iter().zip(&rows) {
            text.push_str(&layout.row(row));
            if let Some(root) = &pool.vdevs {
                text.push_str(&self.vdevs(&pool.name, root, name_width));
            }
        }
        text
    }

    /// The lines of all vdevs of a pool.
    fn vdevs(&self, pool: &str, root: &VdevNode, width: usize) -> String {
        let mut text = String::new();
        for top in of_class(root, VdevClass::Normal) {
            self.tree(pool, top, width, 2, &mut text);
        }
        let auxiliary = [(VdevClass::L2cache, "cache"), (VdevClass::Spare, "spare")];
        for (class, heading) in SECTIONS.into_iter().chain(auxiliary) {
            if of_class(root, class).next().is_some() {
                let dashes = VDEV_COLUMNS.map(|(_, width)| format!("  {}", pad_left("-", width))).concat();
                text.push_str(&format!("{}{dashes}\n", pad_right(heading, width)));
            }
            for top in of_class(root, class) {
                self.tree(pool, top, width, 2, &mut text);
            }
        }
        text
    }

    fn tree(&self, pool: &str, vdev: &VdevNode, width: usize, depth: usize, text: &mut String) {
        let name = self.naming.name(pool, vdev);
        let values = vdev_values(vdev, self.is_literal());
        if self.scripted {
            text.push_str(&format!("\t{name}\t{}\n", values.join("\t")));
        } else {
            let name = pad_right(&name, width.saturating_sub(depth));
            let columns = values.iter().zip(VDEV_COLUMNS);
            let values = columns.map(|(value, (_, width))| format!("  {}", pad_left(value, width)));
            text.push_str(&format!("{}{name}{}\n", " ".repeat(depth), values.collect::<String>()));
        }
        for child in &vdev.children {
            self.tree(pool, child, width, depth + 2, text);
        }
    }

    fn print_json(&self, wanted: &[Wanted], pools: &[PoolEntry]) -> Result<()> {
        let numbers = self.json.base.numbers(self.literal);
        let items = pools.iter().map(|pool| {
            let mut item = entry_json(pool, true, numbers);
            let asked = wanted.iter().enumerate().filter(|(_, wanted)| wanted.name != "name");
            let properties = asked.filter_map(|(place, wanted)| {
                let source = &pool.properties.get(place)?.source;
                let value = self.value(wanted, place, pool);
                Some((wanted.name.clone(), columns::property_json(&value, source, numbers)))
            });
            item.insert("properties".into(), Value::Object(properties.collect()));
            if let Some(root) = &pool.vdevs {
                item.insert("vdevs".into(), self.vdevs_json(&pool.name, root, numbers).into());
            }
            (self.json.key(&pool.name, pool.guid), Value::from(item))
        });
        let mut document = output::document("zpool list");
        self.time.add_json(self.json.base.json_int, &mut document);
        document.insert("pools".into(), Value::Object(items.collect()));
        output::print_json(&document)
    }

    fn vdevs_json(&self, pool: &str, root: &VdevNode, numbers: Numbers) -> Map<String, Value> {
        let section = |class| -> Map<String, Value> {
            of_class(root, class).map(|top| self.vdev_json(pool, top, numbers)).collect()
        };
        let mut vdevs = section(VdevClass::Normal);
        let auxiliary = [(VdevClass::L2cache, "l2cache"), (VdevClass::Spare, "spares")];
        for (class, key) in SECTIONS.into_iter().chain(auxiliary) {
            let items = section(class);
            if !items.is_empty() {
                vdevs.insert(key.into(), items.into());
            }
        }
        vdevs
    }

    fn vdev_json(&self, pool: &str, vdev: &VdevNode, numbers: Numbers) -> (String, Value) {
        let name = self.naming.name(pool, vdev);
        let mut item = vdev_json(&name, vdev, numbers);
        let values = vdev_values(vdev, self.is_literal());
        let properties = VDEV_COLUMNS.iter().zip(values).map(|((key, _), value)| {
            ((*key).to_owned(), columns::property_json(&value, &server::api::Source::None, numbers))
        });
        item.insert("properties".into(), Value::Object(properties.collect()));
        if !vdev.children.is_empty() {
            let children = vdev.children.iter().map(|child| self.vdev_json(pool, child, numbers));
            item.insert("vdevs".into(), Value::Object(children.collect()));
        }
        (name, item.into())
    }
}

/// The values of a vdev's columns. Only top-level vdevs have space; a leaf has the size of its device.
fn vdev_values(vdev: &VdevNode, literal: bool) -> [String; 9] {
    let dash = || "-".to_owned();
    // Here small sizes carry no unit.
    let number = |number: u64| style(literal).number(number);
    let sized = |bytes: u64| if bytes == 0 { dash() } else { number(bytes) };
    let space = vdev.space.filter(|space| space.size != 0);
    let of_space =
        |value: fn(&VdevSpace) -> u64| space.as_ref().map_or_else(dash, |space| number(value(space)));
    let size = vdev.device_bytes.filter(|bytes| *bytes != 0).or(space.map(|space| space.size));
    let percent = |percent: u64| style(literal).percent(percent);
    let health = match vdev.class {
        VdevClass::Spare => spare_word(vdev),
        _ => state_word(vdev.state, vdev.aux),
    };
    [
        size.map_or_else(dash, sized),
        of_space(|space| space.allocated),
        of_space(|space| space.free),
        dash(),
        vdev.space.map_or_else(dash, |space| sized(space.expandable)),
        space.and_then(|space| space.fragmentation).map_or_else(dash, percent),
        space.map_or_else(dash, |space| capacity(&space, literal)),
        dash(),
        health,
    ]
}

/// How full a vdev is, in percent, with three digits.
fn capacity(space: &VdevSpace, literal: bool) -> String {
    let permyriad = u128::from(space.allocated) * 10_000 / u128::from(space.size.max(1));
    let percent = permyriad as f64 / 100.0;
    match permyriad {
        _ if literal => (permyriad / 100).to_string(),
        0..1_000 => format!("{percent:.2}%"),
        1_000..10_000 => format!("{percent:.1}%"),
        _ => format!("{percent:3.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_has_three_digits() {
        let space = |allocated| VdevSpace { size: 10_000, allocated, ..VdevSpace::default() };
        assert_eq!(capacity(&space(5), false), "0.05%");
        assert_eq!(capacity(&space(1_234), false), "12.3%");
        assert_eq!(capacity(&space(10_000), false), "100%");
        assert_eq!(capacity(&space(1_234), true), "12");
    }
}
