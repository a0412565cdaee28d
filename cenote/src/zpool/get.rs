//! `zpool get`: properties of pools, features included, or of the vdevs of one pool.

use anyhow::Result;
use serde_json::{Map, Value};
use server::api::{ListPools, ListVdevs, Listed, PoolEntry, Property};

use super::vdevs::{Naming, vdev_json};
use super::{PoolJson, entry_json};
use crate::columns::{self, Wanted};
use crate::output::{self, Exit, USAGE, complain};
use crate::property_list::{Field, Row, Widths, render};

/// The name of the root vdev here.
const ROOT: &str = "root-0";

/// Arguments of `zpool get`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    json: PoolJson,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show numbers in full
    #[arg(short = 'p')]
    literal: bool,
    /// Columns to show: name, property, value, source, or all
    #[arg(short = 'o', value_name = "FIELD,…", default_value = "all", hide_default_value = true)]
    fields: String,
    /// Properties to show, separated by commas, or all
    #[arg(value_name = "PROPERTY,…")]
    properties: String,
    /// The pools, all open ones if none is named; or a pool and vdevs of it, or all-vdevs
    #[arg(value_name = "POOL|VDEV")]
    things: Vec<String>,
}

/// A pool or a vdev, and its properties.
struct Thing {
    name: String,
    properties: Vec<Property>,
    /// The first members of its JSON.
    json: Map<String, Value>,
    /// Its name in JSON.
    key: String,
}

impl Arguments {
    /// Prints the properties.
    pub fn run(self) -> Result<()> {
        let fields = Field::parse(&self.fields, false)?;
        match self.pool_of_vdevs()? {
            Some(pool) => self.vdevs(&pool, &fields),
            None => self.pools(&fields),
        }
    }

    fn list(&self, pools: Vec<String>, properties: Vec<String>) -> Result<Listed<PoolEntry>> {
        let request = ListPools { pools, properties, vdevs: false };
        output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })
    }

    /// The pool, where the arguments are a pool and then something that is no pool.
    fn pool_of_vdevs(&self) -> Result<Option<PoolEntry>> {
        let [first, others @ ..] = &self.things[..] else { return Ok(None) };
        if others.is_empty() {
            return Ok(None);
        }
        let pools = self.list(self.things.clone(), Vec::new())?.entries;
        let is_open = |name: &String| pools.iter().any(|pool| pool.name == *name);
        let vdevs_follow = is_open(first) && !others.iter().all(is_open);
        Ok(if vdevs_follow { pools.into_iter().next() } else { None })
    }

    fn pools(&self, fields: &[Field]) -> Result<()> {
        let wanted = columns::of_pools(&self.properties)?;
        let listed = self.list(self.things.clone(), names(&wanted))?;
        let numbers = self.json.base.numbers(self.literal);
        let things = listed.entries.into_iter().map(|pool| Thing {
            json: entry_json(&pool, true, numbers),
            key: self.json.key(&pool.name, pool.guid),
            name: pool.name,
            properties: pool.properties,
        });
        let things: Vec<Thing> = things.collect();
        if self.json.base.json {
            let mut document = output::document("zpool get");
            document.insert("pools".into(), self.items(things).into());
            output::print_json(&document)?;
        } else {
            let wanted = wanted.unwrap_or_else(|| all(columns::all_of_pools(), Wanted::of_pool, &things));
            self.print(fields, wanted, &things)?;
        }
        complain(&listed.failed)
    }

    fn vdevs(&self, pool: &PoolEntry, fields: &[Field]) -> Result<()> {
        let wanted = columns::of_vdevs(&self.properties)?;
        let vdevs = match &self.things[1..] {
            [only] if only == "all-vdevs" => Vec::new(),
            vdevs => vdevs.to_vec(),
        };
        let request = ListVdevs { pool: pool.name.clone(), vdevs, properties: names(&wanted) };
        let listed = output::ask(&request, |_| Listed::default())?;
        if !listed.failed.is_empty() {
            let got: String = self.things[1..].iter().map(|name| format!("\t{name}\n")).collect();
            eprint!("Expected a list of vdevs in \"{}\", but got:\n{got}", pool.name);
            return complain(&listed.failed).map_err(|_| Exit(USAGE).into());
        }
        let numbers = self.json.base.numbers(self.literal);
        let naming = Naming::default();
        let things = listed.entries.into_iter().map(|entry| {
            let name = match entry.vdev.kind.as_str() {
                "root" => ROOT.to_owned(),
                _ => naming.name(&pool.name, &entry.vdev),
            };
            let mut json = vdev_json(&name, &entry.vdev, numbers);
            json.insert("type".into(), "VDEV".into());
            Thing { json, key: name.clone(), name, properties: entry.properties }
        });
        let things: Vec<Thing> = things.collect();
        if !self.json.base.json {
            let wanted = wanted.unwrap_or_else(|| all(columns::all_of_vdevs(), Wanted::of_vdev, &things));
            return self.print(fields, wanted, &things);
        }
        let mut document = output::document("zpool get");
        let about = entry_json(pool, false, numbers);
        document.insert("pool".into(), about.into());
        document.insert("vdevs".into(), self.items(things).into());
        output::print_json(&document)
    }

    fn value<'a>(&self, property: &'a Property) -> Option<&'a String> {
        match self.literal || self.json.base.json_int {
            true => property.parsable.as_ref(),
            false => property.value.as_ref(),
        }
    }

    fn rows(&self, thing: &Thing) -> Vec<Row> {
        let row = |property: &Property| {
            Some(Row {
                name: thing.name.clone(),
                property: property.name.clone(),
                value: self.value(property)?.clone(),
                received: None,
                source: property.source.clone(),
            })
        };
        thing.properties.iter().filter_map(row).collect()
    }

    fn print(&self, fields: &[Field], mut wanted: Vec<Wanted>, things: &[Thing]) -> Result<()> {
        let name = things.iter().map(|thing| thing.name.len()).max().unwrap_or(0);
        let mut widths = Widths { name, ..Widths::default() };
        for wanted in &mut wanted {
            // The values of features do not widen their column.
            let grows = wanted.native || !wanted.name.contains('@');
            for property in things.iter().filter(|_| grows).flat_map(|thing| &thing.properties) {
                if property.name == wanted.name
                    && let Some(value) = self.value(property)
                {
                    wanted.grow(value, self.literal);
                }
            }
            widths.grow(wanted);
        }
        let rows: Vec<Row> = things.iter().flat_map(|thing| self.rows(thing)).collect();
        output::print(&render(&rows, fields, widths, self.scripted))
    }

    /// The JSON of each thing that has any of the properties.
    fn items(&self, things: Vec<Thing>) -> Map<String, Value> {
        let numbers = self.json.base.numbers(self.literal);
        let items = things.into_iter().filter_map(|thing| {
            let rows = self.rows(&thing);
            let mut item = thing.json;
            let properties = rows
                .iter()
                .map(|row| (row.property.clone(), columns::property_json(&row.value, &row.source, numbers)));
            item.insert("properties".into(), Value::Object(properties.collect()));
            (!rows.is_empty()).then(|| (thing.key, Value::from(item)))
        });
        items.collect()
    }
}

/// The request.
fn names(wanted: &Option<Vec<Wanted>>) -> Vec<String> {
    match wanted {
        Some(wanted) => wanted.iter().map(|wanted| wanted.name.clone()).collect(),
        None => vec!["all".to_owned()],
    }
}

/// The columns of `all`: the native ones, and those of user properties and features that are there.
fn all(
    native: impl Iterator<Item = Wanted>,
    column: impl Fn(&str) -> Option<Wanted>,
    things: &[Thing],
) -> Vec<Wanted> {
    let properties = things.iter().flat_map(|thing| &thing.properties);
    let others = properties.filter_map(|property| column(&property.name)).filter(|wanted| !wanted.native);
    native.chain(others).collect()
}
