//! `cenote doctor`: what the machine lacks, what that costs, and what to do.
//!
//! It changes nothing and needs no daemon and no root. What it looks at is in [`machine`], the rules are in
//! [`checks`].

mod checks;
mod machine;

use anyhow::Result;
use server::api::Hello;

use self::checks::{Finding, State};
use self::machine::Machine;
use crate::client;
use crate::output::{self, Exit, FAILED};
use crate::table::{Column, Layout};

const ABOUT: &str = "\
States: ok; note, good to know; lacks, something does not work; broken, nothing works. Exit codes: 0 where \
nothing lacks or is broken, else 1. What other users, units and containers have may differ: run it where the \
daemon runs.";

/// Arguments of `cenote doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// Leave out what is fine
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

impl Arguments {
    /// Looks, and tells.
    pub fn run(self) -> Result<()> {
        let mut machine = Machine::this();
        // A daemon that does not answer is none.
        if let Some(hello) = client::call_running(&Hello {}).ok().flatten() {
            machine.daemon = Some((hello.version, hello.pid));
            machine.own_port = hello.nbd_address.map(|address| address.port());
        }
        let mut findings = checks::all(&machine);
        let worst = findings.iter().map(|finding| finding.state).max();
        findings.retain(|finding| !self.quiet || finding.state != State::Ok);
        match self.json {
            true => print_json(&findings)?,
            false => output::print(&table(&findings))?,
        }
        match worst {
            Some(State::Lacks | State::Broken) => Err(Exit(FAILED).into()),
            _ => Ok(()),
        }
    }
}

fn print_json(findings: &[Finding]) -> Result<()> {
    let mut document = output::document("cenote doctor");
    document.insert("findings".into(), serde_json::to_value(findings)?);
    output::print_json(&document)
}

/// A line for each finding, and below it what it costs and what to do.
fn table(findings: &[Finding]) -> String {
    let mut columns = vec![Column::left("CHECK"), Column::left("STATE"), Column::left("FOUND")];
    for finding in findings {
        let values = [finding.check, finding.state.word(), &finding.found];
        columns.iter_mut().zip(values).for_each(|(column, value)| column.grow(value));
    }
    let layout = Layout { columns, scripted: false };
    let mut text = layout.header();
    for finding in findings {
        text.push_str(&layout.row(&[finding.check, finding.state.word(), &finding.found]));
        for (what, said) in [("cost", &finding.cost), ("do", &finding.advice)] {
            if let Some(said) = said {
                text.push_str(&format!("    {what}: {said}\n"));
            }
        }
    }
    text
}
