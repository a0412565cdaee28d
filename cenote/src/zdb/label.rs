//! `-l`: what a device says of itself in its four labels, and with `-u` the uberblocks in them.
//!
//! Equal labels are shown once, with the numbers of all that are so; `-lll` shows each, and so does `-uuu`
//! for uberblocks. A label whose checksum is wrong is shown as far as it can be read, and called so.

use std::path::Path;

use anyhow::{Context, Result, bail};
use engine::pool::discovery;
use engine::vdev::label::{Label, read_damaged_label, read_labels, read_uberblocks};
use ondisk::label::{LABELS, uberblock_count};
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::PoolConfig;
use serde_json::{Map, Value, json};

use super::config::{self, write_nvlist};
use super::{Arguments, Out, uberblock};
use crate::output::Exit;

/// Shift of the smallest sectors, where no label tells.
const MIN_ASHIFT: u32 = 9;

/// Exit code where no label was found at all, as OpenZFS's `zdb` has it.
const NO_LABEL: u8 = 2;

/// The labels of the device that is the target.
pub(super) async fn dump(arguments: &Arguments, out: &mut Out<'_>) -> Result<()> {
    let path = Path::new(&arguments.target);
    let path = if path.exists() { path.to_owned() } else { Path::new("/dev").join(path) };
    let device =
        discovery::open_device(&path).with_context(|| format!("cannot open '{}'", path.display()))?;
    let labels = read_labels(&*device).await;
    let ashift = labels.iter().flatten().find_map(ashift).unwrap_or(MIN_ASHIFT);
    let uberblocks = match arguments.uberblock {
        0 => Vec::new(),
        _ => read_uberblocks(&*device, ashift).await,
    };
    if arguments.json {
        super::write_json(json(&labels, &uberblocks), out)?;
    }
    let mut configs = Vec::with_capacity(LABELS);
    for (index, label) in labels.iter().enumerate() {
        configs.push(match label {
            Ok(config) => Some(config.clone()),
            Err(_) => read_damaged_label(&*device, index).await,
        });
    }
    for (index, label) in labels.iter().enumerate().filter(|_| !arguments.json) {
        let mut header = Header { index, is_damaged: label.is_err(), shown: arguments.quiet };
        match (label, configs.get(index)) {
            _ if arguments.quiet => {}
            (_, Some(Some(config))) => dump_config(arguments, &configs, config, &mut header, out)?,
            (Err(error), _) => writeln!(out, "failed to read label {index}: {error}")?,
            (Ok(_), _) => {}
        }
        if arguments.uberblock > 0 {
            dump_uberblocks(arguments, &uberblocks, ashift, &mut header, out)?;
        }
    }
    let bad = labels.iter().filter(|label| label.is_err()).count();
    match bad {
        0 => Ok(()),
        LABELS if configs.iter().all(Option::is_none) => {
            out.flush()?;
            eprintln!("cenote: {} has no label", path.display());
            Err(Exit(NO_LABEL).into())
        }
        LABELS => bail!("{} has no valid label", path.display()),
        _ => bail!("{bad} of the {LABELS} labels of {} are not valid", path.display()),
    }
}

/// The labels for programs, and the uberblocks that were read.
fn json(labels: &[Label; LABELS], uberblocks: &[(usize, u64, Uberblock)]) -> Map<String, Value> {
    let labels = labels.iter().map(|label| match label {
        Ok(config) => json!({"config": config::json(&config.raw)}),
        Err(error) => json!({"error": error.to_string()}),
    });
    let uberblocks = uberblocks.iter().map(|(label, slot, found)| {
        let mut item = uberblock::json(found);
        item["label"] = (*label).into();
        item["slot"] = (*slot).into();
        item
    });
    let mut document = Map::from_iter([("labels".to_owned(), labels.collect())]);
    let uberblocks: Vec<Value> = uberblocks.collect();
    if !uberblocks.is_empty() {
        document.insert("uberblocks".into(), uberblocks.into());
    }
    document
}

fn ashift(config: &PoolConfig) -> Option<u32> {
    config.vdev_tree.as_ref()?.ashift.map(u32::from)
}

/// The line above a label, shown before the first thing that is shown of it.
struct Header {
    index: usize,
    /// The checksum of the label is wrong.
    is_damaged: bool,
    shown: bool,
}

impl Header {
    fn show(&mut self, out: &mut Out<'_>) -> Result<()> {
        if !std::mem::replace(&mut self.shown, true) {
            let line = "-".repeat(36);
            let damaged = if self.is_damaged { "(Bad label cksum)" } else { "" };
            writeln!(out, "{line}\nLABEL {} {damaged}\n{line}", self.index)?;
        }
        Ok(())
    }
}

fn dump_config(
    arguments: &Arguments,
    configs: &[Option<PoolConfig>],
    config: &PoolConfig,
    header: &mut Header,
    out: &mut Out<'_>,
) -> Result<()> {
    let same = |other: &Option<PoolConfig>| other.as_ref().is_some_and(|other| other.raw == config.raw);
    let equal: Vec<usize> =
        (0..).zip(configs).filter(|(_, other)| same(other)).map(|(index, _)| index).collect();
    if arguments.labels < 3 && equal.first() != Some(&header.index) {
        return Ok(());
    }
    header.show(out)?;
    write_nvlist(&config.raw, 4, out)?;
    write_numbers("    labels = ", &equal, out)
}

fn dump_uberblocks(
    arguments: &Arguments,
    found: &[(usize, u64, Uberblock)],
    ashift: u32,
    header: &mut Header,
    out: &mut Out<'_>,
) -> Result<()> {
    for slot in 0..uberblock_count(ashift) {
        let here = found.iter().find(|(label, at, _)| (*label, *at) == (header.index, slot));
        let Some((_, _, uberblock)) = here else {
            if arguments.uberblock >= 2 {
                header.show(out)?;
                writeln!(out, "    Uberblock[{slot}] invalid")?;
            }
            continue;
        };
        // The same uberblock stands in the same slot of each label.
        let equal: Vec<usize> = found
            .iter()
            .filter(|(_, at, other)| *at == slot && other == uberblock)
            .map(|(label, ..)| *label)
            .collect();
        if arguments.uberblock < 3 && equal.first() != Some(&header.index) {
            continue;
        }
        // The last slot of a multihost pool is for heartbeats.
        if arguments.uberblock < 4 && uberblock.is_multihost() && slot + 1 == uberblock_count(ashift) {
            continue;
        }
        header.show(out)?;
        writeln!(out, "    Uberblock[{slot}]")?;
        uberblock::dump(uberblock, out)?;
        write_numbers("        labels = ", &equal, out)?;
    }
    Ok(())
}

fn write_numbers(prefix: &str, labels: &[usize], out: &mut Out<'_>) -> Result<()> {
    write!(out, "{prefix}")?;
    for label in labels {
        write!(out, "{label} ")?;
    }
    writeln!(out)?;
    Ok(())
}
