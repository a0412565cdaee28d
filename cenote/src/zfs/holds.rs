//! `zfs holds`: what keeps snapshots from being destroyed.

use anyhow::Result;
use engine::properties::format::Civil;
use serde_json::{Map, Value};
use server::api::{ApiError, Hold, ListHolds, Listed};

use crate::output::{self, JsonOptions, Numbers, complain, utc_offset};
use crate::table::{Column, Layout};

/// Arguments of `zfs holds`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Also snapshots of the same name of all descendants
    #[arg(short)]
    recursive: bool,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show times in seconds since 1970
    #[arg(short = 'p')]
    parsable: bool,
    #[command(flatten)]
    json: JsonOptions,
    /// The snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<String>,
}

impl Arguments {
    /// Prints the holds.
    pub fn run(self) -> Result<()> {
        let (snapshots, others): (Vec<String>, Vec<String>) =
            self.snapshots.into_iter().partition(|name| name.contains('@'));
        let not_snapshots: Vec<ApiError> =
            others.iter().map(|name| ApiError::invalid(format!("'{name}' is not a snapshot"))).collect();
        let request = ListHolds { snapshots, recursive: self.recursive };
        let listed = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.snapshots, "dataset does not exist"),
        })?;
        if self.json.json {
            print_json(&listed.entries, self.json.numbers(self.parsable))?;
            return complain(&[not_snapshots, listed.failed].concat());
        }
        let rows: Vec<[String; 3]> = listed
            .entries
            .iter()
            .map(|hold| {
                let time = if self.parsable { hold.time.to_string() } else { date(hold.time) };
                [hold.snapshot.clone(), hold.tag.clone(), time]
            })
            .collect();
        let mut columns = vec![Column::left("NAME"), Column::left("TAG"), Column::left("TIMESTAMP")];
        for row in &rows {
            for (column, value) in columns.iter_mut().zip(row) {
                column.grow(value);
            }
        }
        let layout = Layout { columns, scripted: self.scripted };
        output::print(&rows.iter().fold(layout.header(), |text, row| text + &layout.row(row)))?;
        let all_failed = listed.failed.len() == request.snapshots.len();
        if listed.entries.is_empty() && all_failed {
            eprintln!("no datasets available");
        }
        complain(&[not_snapshots, listed.failed].concat())
    }
}

/// OpenZFS has no such form; this follows that of its other listings.
fn print_json(holds: &[Hold], numbers: Numbers) -> Result<()> {
    let mut snapshots = Map::new();
    for hold in holds {
        let of_snapshot = snapshots.entry(&hold.snapshot).or_insert_with(|| Map::new().into());
        of_snapshot[&hold.tag] = numbers.date(hold.time);
    }
    let mut document = output::document("zfs holds");
    document.insert("holds".into(), Value::Object(snapshots));
    output::print_json(&document)
}

/// A date to the minute: `Sat Nov 21 06:06 2026`.
fn date(seconds: u64) -> String {
    let at = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Civil::at(seconds.checked_add(i64::from(utc_offset(seconds)))?));
    at.map_or_else(
        || seconds.to_string(),
        |at| {
            format!(
                "{} {} {:>2} {:02}:{:02} {}",
                at.weekday, at.month_name, at.day, at.hour, at.minute, at.year
            )
        },
    )
}
