//! `zfs set`, `zfs inherit`.

use anyhow::Result;
use engine::properties::table::TABLE;
use engine::properties::{Prop, is_user};
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
            return Err(usage("missing property=value argument(s)"));
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
        let property = self.property.ok_or_else(|| usage("missing property argument"))?;
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

fn none(datasets: &[String]) -> PropertiesSet {
    PropertiesSet { failed: output::none_of(datasets, "dataset does not exist"), warnings: Vec::new() }
}

fn told(set: &PropertiesSet) -> Result<()> {
    set.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    complain(&set.failed)
}
