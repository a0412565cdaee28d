//! `zfs get`: properties of datasets and where they come from.

use anyhow::Result;
use serde_json::{Value, json};
use server::api::{DatasetEntry, DatasetKind, Property, Source};

use super::dataset_json;
use super::select::Selection;
use crate::columns::{self, Wanted};
use crate::output::{self, JsonOptions, complain, usage};
use crate::property_list::{Field, Row, Widths, render};

/// Arguments of `zfs get`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    json: JsonOptions,
    #[command(flatten)]
    selection: Selection,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show numbers in full
    #[arg(short = 'p')]
    literal: bool,
    /// Columns to show: name, property, value, received, source, or all
    #[arg(
        short = 'o',
        value_name = "FIELD,…",
        default_value = "name,property,value,source",
        hide_default_value = true
    )]
    fields: String,
    /// Only properties from these sources: local, default, inherited, received, temporary, none
    #[arg(short = 's', value_name = "SOURCE,…")]
    sources: Option<String>,
    /// Properties to show, separated by commas, or all
    #[arg(value_name = "PROPERTY,…")]
    properties: String,
    /// Filesystems, volumes, snapshots, bookmarks or paths; everything if none is named
    #[arg(value_name = "DATASET|PATH")]
    datasets: Vec<String>,
}

impl Arguments {
    /// Prints the properties.
    pub fn run(self) -> Result<()> {
        let fields = Field::parse(&self.fields, true)?;
        let sources = self.sources.as_deref().map(parse_sources).transpose()?;
        let wanted = columns::of_datasets(&self.properties)?;
        let asked = match &wanted {
            Some(wanted) => wanted.iter().map(|wanted| wanted.name.clone()).collect(),
            None => vec!["all".to_owned()],
        };
        let kinds =
            [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot, DatasetKind::Bookmark];
        let listed = self.selection.fetch(&self.datasets, asked, &kinds)?;
        let rows_of = |dataset: &DatasetEntry| -> Vec<Row> {
            let rows = dataset
                .properties
                .iter()
                .filter_map(|property| self.row(dataset, property, wanted.is_none()));
            rows.filter(|row| {
                sources.as_ref().is_none_or(|sources| sources.contains(&source_word(&row.source)))
            })
            .collect()
        };
        if self.json.json {
            self.print_json(&listed.entries, rows_of)?;
        } else {
            let rows: Vec<Row> = listed.entries.iter().flat_map(rows_of).collect();
            let widths = self.widths(wanted.clone(), &listed.entries);
            output::print(&render(&rows, &fields, widths, self.scripted))?;
        }
        complain(&listed.failed)
    }

    fn is_literal(&self) -> bool {
        self.literal || self.json.json_int
    }

    /// The line of a property. One that was asked for by name has a line even where the dataset has no such
    /// property.
    fn row(&self, dataset: &DatasetEntry, property: &Property, all: bool) -> Option<Row> {
        let value = columns::shown(property, self.is_literal());
        let received = match self.is_literal() {
            true => &property.received_parsable,
            false => &property.received,
        };
        Some(Row {
            name: dataset.name.clone(),
            property: property.name.clone(),
            source: if value.is_some() { columns::source_of(property) } else { Source::None },
            value: if all { value? } else { value.unwrap_or_else(|| "-".to_owned()) },
            received: received.clone(),
        })
    }

    fn widths(&self, wanted: Option<Vec<Wanted>>, datasets: &[DatasetEntry]) -> Widths {
        let properties = || datasets.iter().flat_map(|dataset| &dataset.properties);
        let wanted = wanted.unwrap_or_else(|| {
            let others = properties().filter_map(|property| Wanted::of_dataset(&property.name));
            columns::all_of_datasets().chain(others.filter(|wanted| !wanted.native)).collect()
        });
        let mut widths = Widths {
            name: datasets.iter().map(|dataset| dataset.name.len()).max().unwrap_or(0),
            received: properties()
                .filter_map(|property| Some(property.received.as_ref()?.len()))
                .max()
                .unwrap_or(0),
            ..Widths::default()
        };
        for wanted in &wanted {
            widths.grow(wanted);
        }
        // The columns grow with values for people, also where full numbers are shown.
        let growing = wanted.iter().filter(|wanted| wanted.grows).map(|wanted| wanted.name.as_str());
        let growing: std::collections::HashSet<&str> = growing.collect();
        for property in properties().filter(|property| growing.contains(property.name.as_str())) {
            let value = columns::shown(property, false).unwrap_or_default();
            widths.value = widths.value.max(value.len());
        }
        widths
    }

    fn print_json(
        &self,
        datasets: &[DatasetEntry],
        rows_of: impl Fn(&DatasetEntry) -> Vec<Row>,
    ) -> Result<()> {
        let numbers = self.json.numbers(self.literal);
        let items = datasets.iter().filter_map(|dataset| {
            let rows = rows_of(dataset);
            if rows.is_empty() {
                return None;
            }
            let properties = rows.into_iter().map(|row| {
                let source = columns::source_json(&row.source, row.received.as_deref());
                (row.property, json!({ "value": numbers.property(&row.value), "source": source }))
            });
            let mut item = dataset_json(dataset, numbers);
            item.insert("properties".into(), Value::Object(properties.collect()));
            Some((dataset.name.clone(), Value::from(item)))
        });
        let mut document = output::document("zfs get");
        document.insert("datasets".into(), Value::Object(items.collect()));
        output::print_json(&document)
    }
}

const SOURCES: [&str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

/// The sources in a comma-separated list.
fn parse_sources(list: &str) -> Result<Vec<&'static str>> {
    let known = |word: &str| SOURCES.into_iter().find(|source| *source == word);
    list.split(',').map(|word| known(word).ok_or_else(|| usage(format!("invalid source '{word}'")))).collect()
}

fn source_word(source: &Source) -> &'static str {
    match source {
        Source::Local => "local",
        Source::Default => "default",
        Source::Inherited(_) => "inherited",
        Source::Received => "received",
        Source::Temporary => "temporary",
        Source::None => "none",
    }
}
