//! `zpool get`: properties of pools, features included.

use anyhow::Result;
use serde_json::Value;
use server::api::{ListPools, Listed, PoolEntry, Property};

use super::{PoolJson, pool_json};
use crate::columns::{self, Wanted};
use crate::output::{self, complain};
use crate::property_list::{Field, Row, Widths, render};

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
    /// The pools; all open ones if none is named
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Prints the properties.
    pub fn run(self) -> Result<()> {
        let fields = Field::parse(&self.fields, false)?;
        let wanted = columns::of_pools(&self.properties)?;
        let request = ListPools {
            pools: self.pools.clone(),
            properties: match &wanted {
                Some(wanted) => wanted.iter().map(|wanted| wanted.name.clone()).collect(),
                None => vec!["all".to_owned()],
            },
            vdevs: false,
        };
        let listed = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        if self.json.base.json {
            self.print_json(&listed.entries)?;
        } else {
            let rows: Vec<Row> = listed.entries.iter().flat_map(|pool| self.rows(pool)).collect();
            let widths = self.widths(wanted, &listed.entries);
            output::print(&render(&rows, &fields, widths, self.scripted))?;
        }
        complain(&listed.failed)
    }

    fn value<'a>(&self, property: &'a Property) -> Option<&'a String> {
        match self.literal || self.json.base.json_int {
            true => property.parsable.as_ref(),
            false => property.value.as_ref(),
        }
    }

    fn rows(&self, pool: &PoolEntry) -> Vec<Row> {
        let row = |property: &Property| {
            Some(Row {
                name: pool.name.clone(),
                property: property.name.clone(),
                value: self.value(property)?.clone(),
                received: None,
                source: property.source.clone(),
            })
        };
        pool.properties.iter().filter_map(row).collect()
    }

    fn widths(&self, wanted: Option<Vec<Wanted>>, pools: &[PoolEntry]) -> Widths {
        let mut wanted = wanted.unwrap_or_else(|| {
            let others = pools.iter().flat_map(|pool| &pool.properties);
            let others = others.filter_map(|property| Wanted::of_pool(&property.name));
            columns::all_of_pools().chain(others.filter(|wanted| !wanted.native)).collect()
        });
        let name = pools.iter().map(|pool| pool.name.len()).max().unwrap_or(0);
        let mut widths = Widths { name, ..Widths::default() };
        for wanted in &mut wanted {
            let of_name = |pool: &'_ PoolEntry| -> Vec<String> {
                let same = pool.properties.iter().filter(|property| property.name == wanted.name);
                same.filter_map(|property| self.value(property).cloned()).collect()
            };
            // The values of features do not widen their column.
            let grows = wanted.native || !wanted.name.contains('@');
            let values: Vec<String> = pools.iter().filter(|_| grows).flat_map(of_name).collect();
            for value in values {
                wanted.grow(&value, self.literal);
            }
            widths.grow(wanted);
        }
        widths
    }

    fn print_json(&self, pools: &[PoolEntry]) -> Result<()> {
        let numbers = self.json.base.numbers(self.literal);
        let items = pools.iter().filter_map(|pool| {
            let rows = self.rows(pool);
            if rows.is_empty() {
                return None;
            }
            let mut item = pool_json(&pool.name, pool.guid, pool.txg, pool.state, true, numbers);
            let properties = rows
                .into_iter()
                .map(|row| (row.property, columns::property_json(&row.value, &row.source, numbers)));
            item.insert("properties".into(), Value::Object(properties.collect()));
            Some((self.json.key(&pool.name, pool.guid), Value::from(item)))
        });
        let mut document = output::document("zpool get");
        document.insert("pools".into(), Value::Object(items.collect()));
        output::print_json(&document)
    }
}
