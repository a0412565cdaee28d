//! `cenote nfs`: what is shared by NFS, with whom and where, and the clients.

use std::fmt::Write;

use anyhow::Result;
use engine::properties::format::nicebytes;
use serde_json::Value;
use server::api::{ListNfs, NfsListing};

use crate::output;
use crate::table::{Column, Layout};

/// Arguments of `cenote nfs`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long, short = 'j')]
    json: bool,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let listed = output::ask(&ListNfs {}, |_| NfsListing::default()).map_err(output::report)?;
        if self.json {
            let mut document = output::document("nfs");
            if let Ok(Value::Object(fields)) = serde_json::to_value(&listed) {
                document.extend(fields);
            }
            return output::print_json(&document);
        }
        output::print(&text(&listed))
    }
}

fn text(listed: &NfsListing) -> String {
    let mut text = String::new();
    let addresses: Vec<String> = listed.addresses.iter().map(ToString::to_string).collect();
    let place = match (addresses.is_empty(), listed.waiting.is_empty()) {
        (true, true) => "not served; start the daemon with --nfs ADDRESS:PORT".to_owned(),
        (true, false) => format!("not listening: {}", listed.waiting.join("; ")),
        (false, true) => addresses.join(" "),
        (false, false) => format!("{} (not listening: {})", addresses.join(" "), listed.waiting.join("; ")),
    };
    // A String takes all that is written to it.
    let _ = writeln!(text, "NFS: {place}");
    let shares: Vec<Vec<String>> = listed
        .shares
        .iter()
        .map(|share| {
            let told = share.fault.clone().unwrap_or_else(|| share.options.clone());
            vec![share.dataset.clone(), share.path.display().to_string(), told]
        })
        .collect();
    if !shares.is_empty() {
        text += "\n";
        text += &table(&["FILESYSTEM", "PATH", "OPTIONS"], &shares);
    }
    let clients: Vec<Vec<String>> = listed
        .clients
        .iter()
        .map(|client| {
            let mounts = if client.mounts.is_empty() { "-".to_owned() } else { client.mounts.join(" ") };
            vec![
                client.address.to_string(),
                client.connections.to_string(),
                client.requests.to_string(),
                nicebytes(client.read_bytes),
                nicebytes(client.written_bytes),
                mounts,
            ]
        })
        .collect();
    if !clients.is_empty() {
        text += "\n";
        text += &table(&["CLIENT", "CONNECTIONS", "REQUESTS", "READ", "WRITTEN", "MOUNTED"], &clients);
    }
    text
}

fn table(titles: &[&'static str], rows: &[Vec<String>]) -> String {
    let mut columns: Vec<Column> = titles.iter().map(|title| Column::left(title)).collect();
    for row in rows {
        columns.iter_mut().zip(row).for_each(|(column, value)| column.grow(value));
    }
    let layout = Layout { columns, scripted: false };
    rows.iter().fold(layout.header(), |text, row| text + &layout.row(row))
}
