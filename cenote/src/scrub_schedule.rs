//! `cenote scrub-schedule`: scrubs that the daemon begins by itself.

use anyhow::Result;
use server::api::{GetScrubSchedules, Listed, ScrubSchedule, SetScrubSchedule};

use crate::output::{self, complain};
use crate::{client, command_line};

/// Arguments of `cenote scrub-schedule`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The pool; without it all open pools
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// How often: daily, weekly, monthly, a number of days such as 10d, or off; without it the schedule is
    /// shown
    #[arg(value_name = "SCHEDULE", requires = "pool")]
    schedule: Option<String>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        if let (Some(pool), Some(schedule)) = (&self.pool, self.schedule) {
            let (pool, command) = (pool.clone(), command_line::command());
            return show(self.json, &[client::call(&SetScrubSchedule { pool, schedule, command })?]);
        }
        let request = GetScrubSchedules { pools: self.pool.into_iter().collect() };
        let listed = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        show(self.json, &listed.entries)?;
        complain(&listed.failed)
    }
}

fn show(as_json: bool, schedules: &[ScrubSchedule]) -> Result<()> {
    if as_json {
        let mut document = output::document("cenote scrub-schedule");
        document.insert("schedules".into(), serde_json::to_value(schedules)?);
        return output::print_json(&document);
    }
    let date = |seconds: Option<u64>| seconds.map_or_else(|| "-".to_owned(), output::ctime);
    let line = |of: &ScrubSchedule| {
        let schedule = of.schedule.as_deref().unwrap_or("off");
        format!("{:<20}  {schedule:<10}  {:<24}  {}\n", of.pool, date(of.last), date(of.next))
    };
    let lines: String = schedules.iter().map(line).collect();
    output::print(&format!(
        "{:<20}  {:<10}  {:<24}  {}\n{lines}",
        "POOL", "SCHEDULE", "LAST SCRUB", "NEXT SCRUB"
    ))
}
