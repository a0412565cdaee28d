//! `cenote api`: the actions of the daemon's API, for programs that use it.

use anyhow::Result;
use server::api::Effects;
use server::daemon::{actions, openapi};

use crate::output::{self, JsonOptions};
use crate::table::{Column, Layout};

/// Arguments of `cenote api`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print the OpenAPI 3.1 document of all actions
    #[arg(long)]
    openapi: bool,
    #[command(flatten)]
    json: JsonOptions,
}

impl Arguments {
    /// Prints the document, or a table of the actions.
    pub fn run(&self) -> Result<()> {
        if self.openapi {
            return output::print(&format!("{}\n", serde_json::to_string_pretty(&openapi())?));
        }
        if self.json.json {
            let rows: Vec<_> = actions()
                .map(|declared| {
                    serde_json::json!({
                        "name": declared.name,
                        "role": declared.role.name(),
                        "effects": declared.effects.names(),
                        "form": declared.form.name(),
                        "summary": declared.summary,
                    })
                })
                .collect();
            let mut document = output::document("cenote api");
            document.insert("actions".into(), rows.into());
            return output::print_json(&document);
        }
        let mut columns = ["ACTION", "FOR", "CHANGES", "WHAT IT DOES"].map(Column::left);
        let rows: Vec<[String; 4]> = actions()
            .map(|declared| {
                let changes = match declared.effects {
                    Effects::NONE => "-".to_owned(),
                    effects => effects.names().join(","),
                };
                [declared.name.into(), declared.role.name().into(), changes, declared.summary.into()]
            })
            .collect();
        for row in &rows {
            columns.iter_mut().zip(row).for_each(|(column, value)| column.grow(value));
        }
        let table = Layout { columns: columns.to_vec(), scripted: false };
        let lines: String = rows.iter().map(|row| table.row(row)).collect();
        output::print(&format!("{}{lines}", table.header()))
    }
}
