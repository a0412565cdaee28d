//! `zfs set`, `zfs inherit`.

use anyhow::Result;
use engine::properties::index;
use engine::properties::table::TABLE;
use engine::properties::{Desc, Kind, Prop, is_user};
use ondisk::nearest::meant;
use server::api::{InheritProperty, PropertiesSet, SetProperties};

use crate::command_line;
use crate::output::{self, Exit, FAILED, complain, usage};

/// Arguments of `zfs set`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave mounts as they are
    #[arg(short = 'u')]
    no_mount: bool,
    /// Properties and their values, then datasets
    #[arg(value_name = "PROPERTY=VALUE… DATASET")]
    words: Vec<String>,
}

impl Arguments {
    /// Sets them.
    pub fn run(self) -> Result<()> {
        let count = self.words.iter().take_while(|word| word.contains('=')).count();
        let (given, datasets) = self.words.split_at(count);
        if given.is_empty() {
            return Err(usage_with_properties("missing property=value argument(s)"));
        }
        if datasets.is_empty() {
            return Err(usage("missing dataset name(s)"));
        }
        let request = SetProperties {
            datasets: datasets.to_vec(),
            properties: command_line::properties(given)?,
            no_mount: self.no_mount,
            command: command_line::command(),
        };
        told(&output::ask(&request, |request| none(&request.datasets))?)
    }
}

/// Arguments of `zfs inherit`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct InheritArguments {
    /// Also of everything below
    #[arg(short)]
    recursive: bool,
    /// Go back to the received value, if there is one
    #[arg(short = 'S')]
    received: bool,
    /// The property
    #[arg(value_name = "PROPERTY")]
    property: Option<String>,
    /// The datasets
    #[arg(value_name = "DATASET")]
    datasets: Vec<String>,
}

impl InheritArguments {
    /// Takes the property away from them.
    pub fn run(self) -> Result<()> {
        let property = self.property.ok_or_else(|| usage_with_properties("missing property argument"))?;
        if self.datasets.is_empty() {
            return Err(usage("missing dataset argument"));
        }
        let property = match Prop::from_name(&property) {
            Some(prop) => {
                let (name, desc) = (prop.desc().name, prop.desc());
                if desc.readonly() {
                    eprintln!("{name} property is read-only");
                    return Err(Exit(FAILED).into());
                }
                if !desc.inheritable() && !self.received {
                    eprintln!("'{name}' property cannot be inherited");
                    let limits = [Prop::Quota, Prop::Reservation, Prop::Refquota, Prop::Refreservation];
                    if limits.contains(&prop) {
                        eprintln!("use 'zfs set {name}=none' to clear");
                    }
                    return Err(Exit(FAILED).into());
                }
                name.to_owned()
            }
            None if is_user(&property) => property,
            None => {
                let meant = meant(&property, TABLE.iter().map(|desc| desc.name));
                return Err(usage(format!("invalid property '{property}'{meant}")));
            }
        };
        let request = InheritProperty {
            property,
            datasets: self.datasets,
            recursive: self.recursive,
            received: self.received,
            command: command_line::command(),
        };
        told(&output::ask(&request, |request| none(&request.datasets))?)
    }
}

/// Ends a command that lacks a property, with a table of those that there are, as OpenZFS's commands do:
/// scripts read the table.
fn usage_with_properties(message: &str) -> anyhow::Error {
    let error = usage(message);
    let yes_or_no = |is_so: bool| if is_so { "YES" } else { "NO" };
    let line = |(name, edit, inherit, values): (&str, &str, &str, &str)| {
        format!("\t{name:<21} {edit:>4}  {inherit:>7}   {values}\n")
    };
    let mut text = line(("PROPERTY", "EDIT", "INHERIT", "VALUES"));
    let mut known: Vec<_> = TABLE.iter().filter(|desc| desc.visible).collect();
    known.sort_by_key(|desc| (!desc.readonly(), desc.name));
    for desc in known {
        let (edit, inherit) = (yes_or_no(!desc.readonly()), yes_or_no(desc.inheritable()));
        text.push_str(&line((desc.name, edit, inherit, &values_of(desc))));
    }
    let settable = ["userquota@...", "groupquota@...", "projectquota@..."];
    let counted = ["userused@...", "groupused@...", "projectused@..."];
    counted.iter().for_each(|name| text.push_str(&line((name, "NO", "NO", "<size>"))));
    settable.iter().for_each(|name| text.push_str(&line((name, "YES", "NO", "<size> | none"))));
    eprintln!(
        "\nThe following properties are supported:\n\n{text}\nUser-defined properties can be specified by \
         using a name containing a colon (:)."
    );
    error
}

/// The values of a property, in short.
fn values_of(desc: &Desc) -> String {
    match (desc.name, desc.kind) {
        ("mountpoint", _) => "<path> | legacy | none".into(),
        ("sharenfs", _) => "on | off | <options of exports(5)>".into(),
        ("sharesmb", _) => "on | off | options of shares by SMB".into(),
        (_, Kind::Index(_, names)) => index::choices(names),
        (_, Kind::Number(_)) => "<number>".into(),
        (_, Kind::Text(_)) => "<text>".into(),
    }
}

fn none(datasets: &[String]) -> PropertiesSet {
    PropertiesSet { failed: output::none_of(datasets, "dataset does not exist"), warnings: Vec::new() }
}

fn told(set: &PropertiesSet) -> Result<()> {
    set.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    complain(&set.failed)
}
