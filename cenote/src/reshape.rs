//! `cenote reshape`: volumes that get another block size while clients use them.

use anyhow::{Result, anyhow};
use engine::properties::format::nicebytes;
use server::api::{ListReshapes, ReshapeAction, ReshapePlan, ReshapeState, ReshapeVolume, Reshaping};
use server::sizes::parse_size;

use crate::feed::Feed;
use crate::output::{self, usage};
use crate::{client, command_line};

const ABOUT: &str = "\
The volume is copied to VOLUME.reshape, with the new block size, while clients go on reading and writing \
it. Then their requests wait for a moment, the copy gets the volume's name, and they go on with it. The old \
volume, with its snapshots and bookmarks, stays as VOLUME.volblocksize-SIZE until it is destroyed. Copying \
goes on after a crash, and after the pool was exported and imported. 'zfs set volblocksize=SIZE VOLUME' does \
the same.";

/// Arguments of `cenote reshape`.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// The volume; without it, all that are copied are listed
    #[arg(value_name = "VOLUME")]
    volume: Option<String>,
    /// Begin: the new size of a block (512 to 16M, a power of two)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "volume", group = "action")]
    volblocksize: Option<u64>,
    /// Wait until it is resumed, also after the pool was imported again
    #[arg(long, requires = "volume", group = "action")]
    pause: bool,
    /// Resume
    #[arg(long, requires = "volume", group = "action")]
    resume: bool,
    /// Give up: destroy the copy; the volume stays as it is
    #[arg(long, requires = "volume", group = "action")]
    cancel: bool,
    /// Show how far it is
    #[arg(long, group = "action")]
    status: bool,
    /// With --volblocksize: only show what room and time it takes
    #[arg(long, short = 'n', requires = "volblocksize")]
    dry_run: bool,
    /// Return when the copy has taken the volume's place
    #[arg(long, short = 'w', requires = "volume", conflicts_with_all = ["pause", "cancel", "dry_run"])]
    wait: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let action = match (self.volblocksize, self.pause, self.resume, self.cancel) {
            (Some(_), ..) => Some(ReshapeAction::Start),
            (_, true, ..) => Some(ReshapeAction::Pause),
            (_, _, true, _) => Some(ReshapeAction::Resume),
            (_, _, _, true) => Some(ReshapeAction::Cancel),
            _ => None,
        };
        if let (Some(action), Some(volume)) = (action, &self.volume) {
            let request = ReshapeVolume {
                volume: volume.clone(),
                action,
                volblocksize: self.volblocksize.unwrap_or(0),
                dry_run: self.dry_run,
                command: command_line::command(),
            };
            let absent = || anyhow!("cannot open '{volume}': no pool is open");
            let plan = client::call_running(&request)?.ok_or_else(absent)?;
            if let Some(plan) = plan.filter(|_| self.dry_run || !self.wait) {
                match self.json {
                    true => print_json(&plan)?,
                    false => output::print(&plan_lines(&plan, self.dry_run))?,
                }
            }
        }
        match &self.volume {
            Some(volume) if self.wait => self.wait_for(volume),
            _ if action.is_none() => self.show(),
            _ => Ok(()),
        }
    }

    /// Shows how far they are.
    fn show(&self) -> Result<()> {
        let volumes: Vec<String> = self.volume.iter().cloned().collect();
        let all = reshapes(volumes)?;
        if let (Some(volume), true) = (&self.volume, all.is_empty()) {
            return Err(anyhow!("the volblocksize of '{volume}' is not being changed"));
        }
        match self.json {
            true => print_json(&all),
            false => output::print(&all.iter().map(lines).collect::<String>()),
        }
    }

    fn wait_for(&self, volume: &str) -> Result<()> {
        let mut feed = Feed::begin()?;
        loop {
            let all = reshapes(vec![volume.to_owned()])?;
            let Some(found) = all.into_iter().next() else {
                return Err(usage(format!("the volblocksize of '{volume}' is not being changed")));
            };
            match (&found.state, &found.error) {
                (ReshapeState::Active, _) => match &mut feed {
                    Some(feed) => feed.wait(None)?,
                    None => return Err(anyhow!("no daemon runs that you may use")),
                },
                (ReshapeState::Complete, _) if self.json => return print_json(&found),
                (ReshapeState::Complete, _) => return output::print(&lines(&found)),
                (ReshapeState::Canceled, _) => return Err(anyhow!("the copy of '{volume}' was canceled")),
                (ReshapeState::Paused, Some(error)) => {
                    return Err(anyhow!("the copy of '{volume}' does not go on: {error}"));
                }
                (ReshapeState::Paused, None) => return Err(anyhow!("the copy of '{volume}' was paused")),
            }
        }
    }
}

fn reshapes(volumes: Vec<String>) -> Result<Vec<Reshaping>> {
    Ok(client::call_running(&ListReshapes { volumes })?.unwrap_or_default())
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    output::print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

fn plan_lines(plan: &ReshapePlan, dry_run: bool) -> String {
    let ReshapePlan { volume, kept, copy, .. } = plan;
    let time = match &plan.time {
        Some(time) => format!(
            "at least {}: {} of it were read at {}/s, and writing is no faster",
            output::duration(time.seconds),
            nicebytes(time.sampled_bytes),
            nicebytes(time.bytes_per_second),
        ),
        None => "not known: there is nothing to read".to_owned(),
    };
    let verb = if dry_run { "would be" } else { "is being" };
    let mut text = format!(
        "'{volume}' {verb} copied to '{copy}': blocks of {} instead of {}, {} of data\n  room: about {} of \
         the {} that are free\n",
        nicebytes(plan.new_volblocksize),
        nicebytes(plan.old_volblocksize),
        nicebytes(plan.data_bytes),
        nicebytes(plan.needed_bytes),
        nicebytes(plan.available_bytes),
    );
    text.push_str(&format!("  time: {time}\n"));
    if dry_run && plan.needed_bytes > plan.available_bytes {
        text.push_str("  there is no room for it\n");
    }
    text.push_str(&format!("  the old volume is kept as '{kept}' until you destroy it\n"));
    text
}

/// How a volume stands that is copied, in one line; none for one that is not.
pub fn line(of: &Reshaping) -> Option<String> {
    let percent = 100.0 * of.done_bytes as f64 / of.total_bytes.max(1) as f64;
    let how = match of.state {
        ReshapeState::Active => match (of.seconds_left, of.pass) {
            (Some(seconds), ..=1) => format!(", {} to go", output::duration(seconds)),
            _ => String::new(),
        },
        ReshapeState::Paused if of.error.is_some() => ", does not go on".to_owned(),
        ReshapeState::Paused => ", paused".to_owned(),
        ReshapeState::Complete | ReshapeState::Canceled => return None,
    };
    let [old, new] = [of.old_volblocksize, of.new_volblocksize].map(nicebytes);
    Some(format!("reshape of {} from {old} to {new}: pass {}, {percent:.1}% done{how}", of.volume, of.pass))
}

/// How a volume stands, in lines for a person.
pub fn lines(of: &Reshaping) -> String {
    let [old, new] = [of.old_volblocksize, of.new_volblocksize].map(nicebytes);
    let what = format!("reshape: {} from volblocksize {old} to {new}", of.volume);
    let percent = 100.0 * of.done_bytes as f64 / of.total_bytes.max(1) as f64;
    let far = format!(
        "{} / {} copied, {percent:.2}% done, pass {}",
        nicebytes(of.done_bytes),
        nicebytes(of.total_bytes),
        of.pass
    );
    match of.state {
        ReshapeState::Active => {
            let left = match (of.seconds_left, of.pass) {
                (Some(seconds), ..=1) => format!(", {} to go", output::duration(seconds)),
                _ => String::new(),
            };
            let rate = of.bytes_per_second.filter(|rate| *rate > 0 && of.pass <= 1);
            let rate = rate.map_or_else(String::new, |rate| format!(" at {}/s", nicebytes(rate)));
            let hold = of.last_pass_milliseconds.map_or_else(String::new, |took| {
                format!("\n\tthe last pass took {}.{:03} s", took / 1000, took % 1000)
            });
            format!("{what}, since {}\n\t{far}{rate}{left}{hold}\n", output::ctime(of.start_time))
        }
        ReshapeState::Paused => match &of.error {
            Some(error) => format!("{what} does not go on: {error}\n\t{far}\n"),
            None => format!("{what}, paused\n\t{far}\n"),
        },
        ReshapeState::Complete => {
            let kept = of.kept.as_deref().unwrap_or("-");
            format!("{what} is complete, the old volume is kept as {kept}\n")
        }
        ReshapeState::Canceled => format!("{what} was canceled\n"),
    }
}
