//! `cenote tunable`: numbers of the daemon that can be set while it runs.

use anyhow::Result;
use clap::Subcommand;
use server::api::{Effect, ListTunables, SetTunables, TunableValue, Unit};

use crate::client;
use crate::output::{self, JsonOptions};

/// The commands about tunables.
#[derive(Debug, Subcommand)]
pub enum Tunables {
    /// Show tunables with their values
    List(ListArguments),
    /// Print values only
    Get(GetArguments),
    /// Set tunables, at once and without a restart
    #[command(
        after_help = "Values take suffixes: 64K, 32M, 4G. 'cenote tunable list -v NAME' tells what a tunable \
                            does, its range, and when a new value counts."
    )]
    Set(SetArguments),
    /// Set tunables back to their defaults
    Reset(ResetArguments),
}

/// Arguments of `cenote tunable list`.
#[derive(Debug, clap::Args)]
pub struct ListArguments {
    /// Also what each does, its default, its range, and when a new value counts
    #[arg(short, long)]
    verbose: bool,
    /// Only those that are set
    #[arg(short, long)]
    set: bool,
    #[command(flatten)]
    json: JsonOptions,
    /// Names, or parts of them; without one all
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Arguments of `cenote tunable get`.
#[derive(Debug, clap::Args)]
pub struct GetArguments {
    /// Names
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// Arguments of `cenote tunable set`.
#[derive(Debug, clap::Args)]
pub struct SetArguments {
    /// Also for the next start of the daemon
    #[arg(long)]
    save: bool,
    /// What is set
    #[arg(value_name = "NAME=VALUE", required = true)]
    settings: Vec<String>,
}

/// Arguments of `cenote tunable reset`.
#[derive(Debug, clap::Args)]
pub struct ResetArguments {
    /// Also for the next start of the daemon
    #[arg(long)]
    save: bool,
    /// All that are set
    #[arg(short, long, conflicts_with = "names", required_unless_present = "names")]
    all: bool,
    /// Names
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Tunables {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        match self {
            Self::List(arguments) => list(&arguments),
            Self::Get(GetArguments { names }) => {
                let values = ask(names)?;
                let lines: String = values.iter().map(|tunable| format!("{}\n", tunable.value)).collect();
                output::print(&lines)
            }
            Self::Set(SetArguments { save, settings }) => {
                let pair = |setting: &String| match setting.split_once('=') {
                    Some((name, value)) => Ok((name.to_owned(), Some(value.to_owned()))),
                    None => Err(output::usage(format!("'{setting}' is not NAME=VALUE"))),
                };
                let settings = settings.iter().map(pair).collect::<Result<_>>()?;
                show_set(&client::call(&SetTunables { settings, save })?)
            }
            Self::Reset(ResetArguments { save, all, names }) => {
                let names = match all {
                    true => ask(Vec::new())?.into_iter().filter(|it| it.is_set).map(|it| it.name).collect(),
                    false => names,
                };
                let settings = names.into_iter().map(|name| (name, None)).collect();
                show_set(&client::call(&SetTunables { settings, save })?)
            }
        }
    }
}

/// The values of the daemon; the defaults while none runs.
fn ask(names: Vec<String>) -> Result<Vec<TunableValue>> {
    let defaults =
        |_: &ListTunables| engine::tunables::all().iter().map(|tunable| (*tunable).into()).collect();
    let request = ListTunables { names };
    let mut values: Vec<TunableValue> = output::ask(&request, defaults)?;
    if !request.names.is_empty() {
        // In the order in which they were asked for, also without a daemon.
        let mut chosen = Vec::new();
        for name in &request.names {
            engine::tunables::named(name)?;
            let name = engine::tunables::bare(name.trim());
            chosen.extend(values.iter().find(|value| value.name == name).cloned());
        }
        values = chosen;
    }
    Ok(values)
}

fn show_set(values: &[TunableValue]) -> Result<()> {
    let later = |tunable: &TunableValue| match tunable.effect {
        Effect::AtOnce => "",
        Effect::ForNew => "  (for what begins from now on)",
        Effect::AtImport => "  (for pools that are imported from now on)",
    };
    let line = |tunable: &TunableValue| format!("{}={}{}\n", tunable.name, tunable.value, later(tunable));
    output::print(&values.iter().map(line).collect::<String>())
}

fn list(arguments: &ListArguments) -> Result<()> {
    let mut values = ask(Vec::new())?;
    if !arguments.names.is_empty() {
        let names: Vec<&str> = arguments.names.iter().map(|name| engine::tunables::bare(name)).collect();
        values.retain(|value| names.iter().any(|name| value.name.contains(name)));
        for name in names.into_iter().filter(|name| !values.iter().any(|v| v.name.contains(name))) {
            engine::tunables::named(name)?;
        }
    }
    values.retain(|value| value.is_set || !arguments.set);
    if arguments.json.json {
        let mut document = output::document("cenote tunable list");
        document.insert("tunables".into(), serde_json::to_value(&values)?);
        return output::print_json(&document);
    }
    if arguments.verbose {
        return output::print(&values.iter().map(described).collect::<Vec<_>>().join("\n"));
    }
    let width = values.iter().map(|value| value.name.len()).max().unwrap_or(0);
    let line = |value: &TunableValue| {
        let mark = if value.is_set { "  (set)" } else { "" };
        format!("{:<width$}  {}{mark}\n", value.name, in_words(value.unit, value.value))
    };
    output::print(&values.iter().map(line).collect::<String>())
}

fn described(value: &TunableValue) -> String {
    let is_set = if value.is_set { ", set" } else { "" };
    let effect = match value.effect {
        Effect::AtOnce => "at once",
        Effect::ForNew => "for what begins after it was set",
        Effect::AtImport => "for pools that are imported after it was set",
    };
    let of = |number| in_words(value.unit, number);
    let text = wrapped(&value.text).iter().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "{}\n{text}    value: {}{is_set}; default: {}; {}from {} to {}; counts {effect}\n",
        value.name,
        of(value.value),
        of(value.default),
        zero(value),
        of(value.least),
        of(value.most)
    )
}

/// The default, where it may be set and lies below the range.
fn zero(value: &TunableValue) -> &'static str {
    if value.default < value.least { "0, or " } else { "" }
}

/// The lines of a text, each of at most 74 columns.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + word.len() < 74 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A number with its unit: bytes as the largest suffix that divides them.
fn in_words(unit: Unit, number: u64) -> String {
    let bytes = || {
        let suffixes = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let fitting = suffixes.iter().find(|(shift, _)| number != 0 && number.is_multiple_of(1 << shift));
        fitting.map_or_else(|| number.to_string(), |(shift, suffix)| format!("{}{suffix}", number >> shift))
    };
    match unit {
        Unit::Switch | Unit::Count => number.to_string(),
        Unit::Bytes => bytes(),
        Unit::BytesPerSecond => format!("{}/s", bytes()),
        Unit::Percent => format!("{number}%"),
        Unit::Seconds => format!("{number} s"),
        Unit::Milliseconds => format!("{number} ms"),
        Unit::Groups => format!("{number} groups"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/tunables.md");

    /// The page, from the table.
    fn page() -> String {
        let mut page = String::from(
            "# Tunables\n\n\
             Numbers of the daemon that can be set while it runs, under the names of OpenZFS's parameters.\n\
             `cenote tunable set NAME=VALUE` sets one, `--save` also for the next start;\n\
             `cenote tunable list -v` shows what is below. Values take suffixes (`64K`, `32M`, `4G`).\n\
             Most machines need none of them: measure with the lab before and after.\n\n\
             At start the daemon reads `/etc/cenote/tunables.conf`, and `tunables.conf` beside its\n\
             cache file, which `--save` writes. A line is `NAME=VALUE`, or `options zfs NAME=VALUE`\n\
             as modprobe has it.\n\n\
             A name may be the path of the kernel module's parameter,\n\
             `/sys/module/zfs/parameters/NAME`. Parameters of OpenZFS that are not here are refused with\n\
             the reason.\n\n\
             | name | what it does | default | range | counts |\n|---|---|---|---|---|\n",
        );
        for value in engine::tunables::all().iter().map(|tunable| TunableValue::from(*tunable)) {
            let effect = match value.effect {
                Effect::AtOnce => "at once",
                Effect::ForNew => "for what begins afterwards",
                Effect::AtImport => "after an import",
            };
            let of = |number| match number {
                most if most >= i64::MAX as u64 => "any".to_owned(),
                number => in_words(value.unit, number),
            };
            page.push_str(&format!(
                "| `{}` | {} | {} | {}{} to {} | {effect} |\n",
                value.name,
                value.text,
                in_words(value.unit, value.default),
                zero(&value),
                of(value.least),
                of(value.most)
            ));
        }
        page
    }

    /// `CENOTE_WRITE_DOCS=1` writes the page anew.
    #[test]
    fn the_page_about_tunables_is_what_the_table_says() {
        if std::env::var_os("CENOTE_WRITE_DOCS").is_some() {
            std::fs::write(PAGE, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(PAGE).unwrap(), page(), "see CENOTE_WRITE_DOCS");
    }
}
