//! `zfs list`: a line for each dataset.

use anyhow::Result;
use engine::properties::table::TABLE;
use ondisk::nearest::meant;
use serde_json::Value;
use server::api::{DatasetEntry, DatasetKind};

use super::dataset_json;
use super::select::Selection;
use super::sort::SortKeys;
use crate::columns::{self, Wanted};
use crate::output::{self, JsonOptions, complain, usage};
use crate::table::Layout;

/// The default columns.
const DEFAULT: &str = "name,used,available,referenced,mountpoint";

/// Arguments of `zfs list`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    json: JsonOptions,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    sort: SortKeys,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show numbers in full
    #[arg(short = 'p')]
    literal: bool,
    /// Properties to list, separated by commas, or space
    #[arg(short = 'o', value_name = "PROPERTY,…", default_value = DEFAULT, hide_default_value = true)]
    properties: String,
    /// Filesystems, volumes, snapshots or paths; everything if none is named
    #[arg(value_name = "DATASET|PATH")]
    datasets: Vec<String>,
}

impl Arguments {
    /// Prints the list.
    pub fn run(self) -> Result<()> {
        let wanted = match columns::of_datasets(&self.properties)? {
            Some(wanted) => wanted,
            None => Wanted::of_dataset("name").into_iter().chain(columns::all_of_datasets()).collect(),
        };
        if let Some(unknown) = self.sort.0.iter().find(|key| Wanted::of_dataset(&key.name).is_none()) {
            let meant = meant(&unknown.name, TABLE.iter().map(|desc| desc.name));
            return Err(usage(format!("invalid property '{}'{meant}", unknown.name)));
        }
        let shown = wanted.iter().map(|wanted| wanted.name.clone());
        let asked = shown.chain(self.sort.0.iter().map(|key| key.name.clone())).collect();
        let kinds = [DatasetKind::Filesystem, DatasetKind::Volume];
        let mut listed = self.selection.fetch(&self.datasets, asked, &kinds)?;
        self.sort.sort(&mut listed.entries, wanted.len());
        if self.json.json {
            self.print_json(&wanted, &listed.entries)?;
        } else {
            output::print(&self.render(wanted, &listed.entries))?;
        }
        if listed.entries.is_empty() && listed.failed.is_empty() && !self.scripted {
            eprintln!("no datasets available");
            crate::dead_mounts::explain();
        }
        complain(&listed.failed)
    }

    fn value(&self, wanted: &Wanted, place: usize, dataset: &DatasetEntry) -> String {
        if wanted.name == "name" {
            return dataset.name.clone();
        }
        let literal = self.literal || self.json.json_int;
        let property = dataset.properties.get(place);
        property.and_then(|property| columns::shown(property, literal)).unwrap_or_else(|| "-".to_owned())
    }

    fn render(&self, mut wanted: Vec<Wanted>, datasets: &[DatasetEntry]) -> String {
        if datasets.is_empty() {
            return String::new();
        }
        let row = |dataset: &DatasetEntry| -> Vec<String> {
            wanted.iter().enumerate().map(|(place, wanted)| self.value(wanted, place, dataset)).collect()
        };
        let rows: Vec<Vec<String>> = datasets.iter().map(row).collect();
        for row in &rows {
            for (wanted, value) in wanted.iter_mut().zip(row) {
                wanted.grow(value, self.literal);
            }
        }
        let columns = wanted.into_iter().map(|wanted| wanted.column).collect();
        let layout = Layout { columns, scripted: self.scripted };
        rows.iter().fold(layout.header(), |text, row| text + &layout.row(row))
    }

    fn print_json(&self, wanted: &[Wanted], datasets: &[DatasetEntry]) -> Result<()> {
        let numbers = self.json.numbers(self.literal);
        let items = datasets.iter().map(|dataset| {
            let asked = wanted.iter().enumerate().filter(|(_, wanted)| wanted.name != "name");
            let properties = asked.filter_map(|(place, wanted)| {
                let source = columns::source_of(dataset.properties.get(place)?);
                let value = self.value(wanted, place, dataset);
                Some((wanted.name.clone(), columns::property_json(&value, &source, numbers)))
            });
            let mut item = dataset_json(dataset, numbers);
            item.insert("properties".into(), Value::Object(properties.collect()));
            (dataset.name.clone(), Value::from(item))
        });
        let mut document = output::document("zfs list");
        document.insert("datasets".into(), Value::Object(items.collect()));
        output::print_json(&document)
    }
}
