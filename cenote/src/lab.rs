//! `cenote lab`: experiments, from the question to the report.

mod progress;
mod server;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use lab::environment::Environment;
use lab::experiment::{Experiment, Target};
use lab::models::raidz::Raidz;
use lab::recipes::{self, RECIPES};
use lab::run::Ended;
use lab::store::Store;
use lab::target::{Bench, KernelPrograms, Programs};
use serde_json::json;

use crate::output::{self, Exit, print};
use crate::table::{pad_left, pad_right};
use progress::Shown;
use server::Private;

/// Seconds of each run of `--quick`.
const QUICK_SECONDS: f64 = 1.0;

/// What the lab can do.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// List the experiments that come with this program
    Recipes {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Write an experiment's file, to be changed and run
    New {
        /// The recipe to start from
        recipe: String,
        /// Where to write it; printed where left out
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Run an experiment: a recipe or a file; everything happens in one directory
    Run {
        /// A recipe's name, or a file like those that `new` writes
        experiment: String,
        /// The directory of its results and, while it runs, its pools (default: ./lab-NAME)
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
        /// At most three rounds of one second a run: an impression, with wide intervals
        #[arg(long)]
        quick: bool,
        /// Rounds at least
        #[arg(long, value_name = "N")]
        rounds: Option<usize>,
        /// Print the findings as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Go on with an experiment that was interrupted
    Resume {
        /// The directory of its results
        directory: PathBuf,
        /// Print the findings as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Make the report of an experiment again, and print it
    Report {
        /// The directory of its results
        directory: PathBuf,
        /// Print the findings as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// What blocks of each size cost on raidz: parity, padding, efficiency
    Raidz {
        /// Devices
        #[arg(short, long)]
        width: u64,
        /// How many may fail: 1 to 3
        #[arg(short, long, default_value_t = 1)]
        parity: u64,
        /// Sectors have 2^ASHIFT bytes
        #[arg(short, long, default_value_t = 12)]
        ashift: u32,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
}

impl Lab {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Recipes { json } => list(json),
            Self::New { recipe, output } => new(&recipe, output.as_deref()),
            Self::Run { experiment, output, quick, rounds, json } => {
                let mut experiment = load(&experiment)?;
                if let Some(rounds) = rounds {
                    experiment.rounds = rounds;
                    experiment.max_rounds = experiment.max_rounds.filter(|most| *most >= rounds);
                }
                if quick {
                    experiment.quick(QUICK_SECONDS);
                }
                experiment.check()?;
                let directory = output.unwrap_or_else(|| format!("lab-{}", experiment.name).into());
                let store = Store::create(&directory, experiment, Environment::of_this_machine())?;
                carry_out(store, json)
            }
            Self::Resume { directory, json } => carry_out(Store::open(&directory)?, json),
            Self::Report { directory, json } => report(&Store::open(&directory)?, json),
            Self::Raidz { width, parity, ashift, json } => raidz(width, parity, ashift, json),
        }
    }
}

fn list(json: bool) -> Result<()> {
    if json {
        let recipes: Vec<_> = RECIPES
            .iter()
            .map(|recipe| json!({ "name": recipe.name, "about": recipe.about, "experiment": recipe.experiment() }))
            .collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&recipes)?));
    }
    let lines = RECIPES.iter().map(|recipe| format!("{}  {}\n", pad_right(recipe.name, 13), recipe.about));
    print(&lines.collect::<String>())
}

fn recipe(name: &str) -> Result<recipes::Recipe> {
    recipes::find(name).with_context(|| {
        let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        format!("there is no recipe '{name}'; there are {}", names.join(", "))
    })
}

fn new(name: &str, output: Option<&Path>) -> Result<()> {
    let text = recipe(name)?.text();
    let Some(path) = output else { return print(text) };
    let mut file =
        std::fs::File::create_new(path).with_context(|| format!("cannot make {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// A recipe, or a file.
fn load(name: &str) -> Result<Experiment> {
    if let Some(recipe) = recipes::find(name) {
        return Ok(recipe.experiment());
    }
    if !Path::new(name).exists() {
        // Says which recipes there are.
        recipe(name).with_context(|| format!("there is no file {name} either"))?;
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
    Experiment::parse(&text).with_context(|| format!("{name} is not an experiment"))
}

fn carry_out(mut store: Store, json: bool) -> Result<()> {
    let experiment = store.experiment().clone();
    let directory = std::path::absolute(store.directory())?;
    let shown = Shown::start()?;
    let programs: Option<Box<dyn Programs>> = match &experiment.target {
        Target::Volume { .. } => Some(Box::new(Private::start()?)),
        Target::Host { .. } => Some(Box::new(KernelPrograms)),
        Target::Path { .. } | Target::Nbd { .. } => None,
    };
    let mut bench = Bench::new(&experiment, &directory, programs);
    let ended = lab::run::run(&mut store, &mut bench, &shown);
    let removed = bench.remove();
    drop(bench);
    shown.finish();
    let ended = ended.with_context(|| {
        format!(
            "the experiment stopped; what was measured is kept: cenote lab resume {}",
            store.directory().display()
        )
    })?;
    removed.context("the experiment's pools could not be removed")?;
    if ended == Ended::Stopped {
        eprintln!("stopped; to go on: cenote lab resume {}", store.directory().display());
        return Err(Exit(output::FAILED).into());
    }
    report(&store, json)
}

fn report(store: &Store, json: bool) -> Result<()> {
    if store.runs().is_empty() {
        bail!("{}: no run has ended yet", store.directory().display());
    }
    let paths = lab::report::write(store)?;
    let findings = lab::analysis::findings(store);
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&findings)?));
    }
    print(&lab::report::markdown(store, &findings))?;
    let page = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    print(&format!("\nwith plots: {page}\n"))
}

fn raidz(width: u64, parity: u64, ashift: u32, json: bool) -> Result<()> {
    let raidz = Raidz::new(width, parity, ashift)?;
    let costs = raidz.costs();
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&costs)?));
    }
    let mut text = format!(
        "raidz{parity} of {width} devices with sectors of {} bytes: at best {:.1} % of their space is data\n\n",
        1_u64 << ashift,
        raidz.ideal() * 100.0
    );
    let columns = ["block", "takes", "parity", "padding", "efficiency"];
    let row = |cells: [String; 5]| cells.map(|cell| pad_left(&cell, 10)).concat() + "\n";
    text.push_str(&row(columns.map(str::to_owned)));
    for cost in costs {
        let size = |bytes| lab::size::Size(bytes).to_string();
        text.push_str(&row([
            cost.block.to_string(),
            size(cost.allocated),
            size(cost.parity),
            size(cost.padding),
            format!("{:.1} %", cost.efficiency * 100.0),
        ]));
    }
    print(&text)
}
