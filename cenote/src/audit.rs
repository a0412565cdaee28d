//! `cenote audit`: who asked the daemon for which change, and what became of it.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use server::api::{AuditEntry, GetAudit};

use crate::client;
use crate::output::{self, JsonOptions};

/// Arguments of `cenote audit`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many lines, the newest ones
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 50)]
    count: usize,
    #[command(flatten)]
    json: JsonOptions,
}

impl Arguments {
    /// Prints the newest lines, the oldest of them first.
    pub fn run(self) -> Result<()> {
        let Some(entries) = client::call_running(&GetAudit { count: self.count })? else {
            bail!("no daemon runs that you may use");
        };
        if self.json.json {
            let numbers = self.json.numbers(false);
            let lines = entries.iter().map(|entry| {
                let mut line = json!(entry);
                line["time"] = json!(numbers.date(entry.time));
                line
            });
            let mut document = output::document("cenote audit");
            document.insert("audit".into(), lines.collect::<Vec<Value>>().into());
            return output::print_json(&document);
        }
        output::print(&entries.iter().map(line).collect::<String>())
    }
}

/// A line for a person. Names may hold anything, and a terminal gets no control characters.
fn line(entry: &AuditEntry) -> String {
    let user = entry.user.clone().unwrap_or_else(|| entry.uid.to_string());
    let role = entry.role.as_deref().unwrap_or("-");
    let by = match (&entry.from, &entry.token) {
        (Some(from), Some(token)) => format!("dashboard from {from}, token {token}"),
        (Some(from), None) => format!("dashboard from {from}"),
        (None, _) => {
            format!("process {}", entry.pid.map_or_else(|| "-".into(), |pid| pid.to_string()))
        }
    };
    let object = entry.object.as_deref().map(|object| format!(" '{object}'")).unwrap_or_default();
    let more = match entry.and_more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let time = output::history_date(entry.time);
    let text = format!(
        "{}  {user} ({role}, {by})  {}{object}{more}: {}",
        time.trim_end(),
        entry.action,
        entry.result
    );
    let mut text: String =
        text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    if entry.lost > 0 {
        text = format!("(left out before this: {})\n{text}", entry.lost);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_control_characters_and_says_what_is_missing() {
        let entry = AuditEntry {
            uid: 70_000,
            role: Some("viewer".into()),
            action: "dataset-destroy".into(),
            object: Some("tank/a\n\u{1b}[2J".into()),
            and_more: 2,
            result: "ok".into(),
            lost: 3,
            ..AuditEntry::default()
        };
        let text = line(&entry);
        let (first, second) = text.trim_end().split_once('\n').unwrap();
        assert_eq!(first, "(left out before this: 3)");
        let rest = "  70000 (viewer, process -)  dataset-destroy 'tank/a??[2J' and 2 more: ok";
        assert!(second.ends_with(rest), "{second}");
    }
}
