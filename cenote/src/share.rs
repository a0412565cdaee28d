//! `cenote share` and `cenote shares`: which protocols serve a volume, and to whom.

use anyhow::Result;
use serde_json::Value;
use server::api::{ListShares, Listed, SetProperties, SharedThrough, VolumeShares};
use server::block::shares::{PROPERTY, Protocol, Shares, check_option};

use crate::output::{self, complain};
use crate::table::{Column, Layout};
use crate::{client, command_line};

/// Arguments of `cenote share`.
#[derive(Debug, clap::Args)]
pub struct Share {
    /// The volume
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// The protocols that serve it, and no others: nbd, iscsi, vhost-user; on for all, off for none
    #[arg(value_name = "PROTOCOL", required = true)]
    protocols: Vec<String>,
    /// Only to clients from this address or network (nbd, iscsi); may be given several times
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    address: Vec<String>,
    /// Only to initiators of this name, or of names that begin so and with '*' (iscsi); may be given several
    /// times
    #[arg(long, value_name = "NAME")]
    initiator: Vec<String>,
    /// As a unit of this target: a word, or a name such as iqn.2005-10.org.example:disks (iscsi)
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// The number of the unit there (iscsi)
    #[arg(long, value_name = "NUMBER", requires = "target")]
    lun: Option<String>,
    /// Bytes of a sector: 512 or 4096 (iscsi)
    #[arg(long, value_name = "BYTES")]
    sector: Option<String>,
    /// Initiators are told when more of the room for the volume is taken than this, 90% without it (iscsi)
    #[arg(long, value_name = "PERCENT")]
    thin_threshold: Option<String>,
}

impl Share {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let value = self.value().map_err(output::usage)?;
        let request = SetProperties {
            datasets: vec![self.volume.clone()],
            properties: vec![(PROPERTY.to_owned(), value)],
            no_mount: true,
            command: command_line::command(),
        };
        let set = client::call(&request)?;
        for warning in &set.warnings {
            eprintln!("cenote: {warning}");
        }
        complain(&set.failed)?;
        let listed = client::call(&ListShares { names: vec![self.volume] })?;
        show(&listed.entries)
    }

    /// The property's value.
    fn value(&self) -> Result<String, String> {
        let options = |protocol: &str| {
            let mut options = Vec::new();
            let mut add = |name: &str, values: &mut dyn Iterator<Item = &String>| {
                options.extend(values.map(|value| format!("{name}={value}")));
            };
            if protocol == Protocol::Iscsi.name() {
                add("target", &mut self.target.iter());
                add("lun", &mut self.lun.iter());
                add("sector", &mut self.sector.iter());
                add("threshold", &mut self.thin_threshold.iter());
                add("initiator", &mut self.initiator.iter());
            }
            if protocol != Protocol::VhostUser.name() {
                add("address", &mut self.address.iter());
            }
            options
        };
        let has = |protocol: Protocol| self.protocols.iter().any(|name| name == protocol.name());
        let of_iscsi = [
            ("--thin-threshold", self.thin_threshold.is_some()),
            ("--target", self.target.is_some()),
            ("--lun", self.lun.is_some()),
            ("--sector", self.sector.is_some()),
            ("--initiator", !self.initiator.is_empty()),
        ];
        if let Some((option, _)) = of_iscsi.iter().find(|(_, is_given)| *is_given && !has(Protocol::Iscsi)) {
            return Err(format!("{option} is of iscsi, which is not among the protocols"));
        }
        if !self.address.is_empty() && !has(Protocol::Iscsi) && !has(Protocol::Nbd) {
            return Err("--address is of nbd and iscsi, which are not among the protocols".into());
        }
        let given = [
            ("target", self.target.as_slice()),
            ("lun", self.lun.as_slice()),
            ("sector", self.sector.as_slice()),
            ("threshold", self.thin_threshold.as_slice()),
            ("initiator", self.initiator.as_slice()),
            ("address", self.address.as_slice()),
        ];
        for (option, values) in given {
            values.iter().try_for_each(|value| check_option(option, value))?;
        }
        let words = self.protocols.iter().map(|protocol| {
            let options = options(protocol);
            let is_plain = options.is_empty() || matches!(protocol.as_str(), "on" | "off");
            if is_plain { protocol.clone() } else { format!("{protocol}({})", options.join(",")) }
        });
        let text = words.collect::<Vec<_>>().join(" ");
        text.parse::<Shares>().map(|shares| shares.to_string())
    }
}

/// Arguments of `cenote shares`.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Volumes, or what they are below; without it all
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print JSON
    #[arg(long, short = 'j')]
    json: bool,
}

impl List {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let listed = output::ask(&ListShares { names: self.names }, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.names, "no such volume"),
        })?;
        match self.json {
            true => {
                let mut document = output::document("shares");
                document
                    .insert("volumes".into(), serde_json::to_value(&listed.entries).unwrap_or(Value::Null));
                output::print_json(&document)?;
            }
            false => show(&listed.entries)?,
        }
        complain(&listed.failed)
    }
}

fn show(volumes: &[VolumeShares]) -> Result<()> {
    let mut columns = ["VOLUME", "PROTOCOL", "FOR", "ADDRESS"].map(Column::left);
    let rows: Vec<[String; 4]> = volumes.iter().flat_map(rows_of).collect();
    for row in &rows {
        columns.iter_mut().zip(row).for_each(|(column, value)| column.grow(value));
    }
    let layout = Layout { columns: columns.into(), scripted: false };
    let lines: String = rows.iter().map(|row| layout.row(row)).collect();
    let waiting: String = volumes.iter().flat_map(waiting).collect();
    output::print(&(layout.header() + &lines + &waiting))
}

/// What clients of a volume wait for, as sentences.
fn waiting(volume: &VolumeShares) -> impl Iterator<Item = String> {
    volume.waiting.iter().map(|request| format!("{}: {request}\n", volume.name))
}

fn rows_of(volume: &VolumeShares) -> Vec<[String; 4]> {
    let name = || volume.name.clone();
    if let Some(fault) = &volume.fault {
        return vec![[name(), "-".into(), "-".into(), format!("{PROPERTY}: {fault}")]];
    }
    if volume.through.is_empty() {
        return vec![[name(), "off".into(), "-".into(), "-".into()]];
    }
    let row = |through: &SharedThrough| {
        let named: Vec<&str> =
            through.initiators.iter().chain(&through.addresses).map(String::as_str).collect();
        let whom = if named.is_empty() { "all".to_owned() } else { named.join(" ") };
        let waits_for = through.not_listening.join("; ");
        let place = match (&through.fault, through.uris.as_slice()) {
            (Some(fault), _) => fault.clone(),
            (None, []) if waits_for.is_empty() => "not listening".to_owned(),
            (None, []) => format!("not listening: {waits_for}"),
            (None, uris) if waits_for.is_empty() => uris.join(" "),
            (None, uris) => format!("{} (not listening: {waits_for})", uris.join(" ")),
        };
        [name(), through.protocol.clone(), whom, place]
    };
    volume.through.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(protocols: &[&str], change: impl FnOnce(&mut Share)) -> Result<String, String> {
        let mut share = Share {
            volume: "tank/v".into(),
            protocols: protocols.iter().map(|name| (*name).to_owned()).collect(),
            address: Vec::new(),
            initiator: Vec::new(),
            target: None,
            lun: None,
            sector: None,
            thin_threshold: None,
        };
        change(&mut share);
        share.value()
    }

    #[test]
    fn options_go_to_the_protocols_that_take_them() {
        assert_eq!(value(&["off"], |_| {}).as_deref(), Ok("off"));
        assert_eq!(value(&["nbd", "vhost-user"], |_| {}).as_deref(), Ok("nbd vhost-user"));
        let both = value(&["nbd", "iscsi"], |share| {
            share.address = vec!["10.0.0.0/8".into()];
            (share.target, share.lun) = (Some("vms".into()), Some("3".into()));
        });
        assert_eq!(both.as_deref(), Ok("nbd(address=10.0.0.0/8) iscsi(target=vms,lun=3,address=10.0.0.0/8)"));
        let thin = value(&["iscsi"], |share| share.thin_threshold = Some("75".into()));
        assert_eq!(thin.as_deref(), Ok("iscsi(threshold=75%)"));
        assert!(value(&["nbd"], |share| share.sector = Some("4096".into())).is_err());
        assert!(value(&["vhost-user"], |share| share.address = vec!["::1".into()]).is_err());
        assert!(value(&["smb"], |_| {}).is_err());
        // What ends a word in the property is told as it was typed.
        for wrong in ["a b", "a,b", "a)", ""] {
            let told = value(&["iscsi"], |share| share.target = Some(wrong.into())).expect_err(wrong);
            assert!(told.starts_with(&format!("'{wrong}' is no name of a target")), "{told}");
            let told = value(&["iscsi"], |share| share.initiator = vec![wrong.into()]).expect_err(wrong);
            assert!(told.starts_with(&format!("'{wrong}' is no name of an initiator")), "{told}");
        }
    }
}
