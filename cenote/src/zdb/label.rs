//! `-l`: what a device says of itself in its four labels, and with `-u` the uberblocks in them.
//!
//! Equal labels are shown once, with the numbers of all that are so, and from `-ll` on with how full they
//! are; `-lll` shows each, and so does `-uuu` for uberblocks. A label whose checksum is wrong is shown as far
//! as it can be read, and called so.

use std::path::Path;

use anyhow::{Context, Result, bail};
use engine::pool::discovery;
use engine::vdev::label::{Label, read_damaged_label, read_labels, read_uberblocks};
use ondisk::label::{LABELS, uberblock_count};
use ondisk::nvlist::{Encoding, NvValue, Nvlist};
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{PoolConfig, PoolState};
use serde_json::{Map, Value, json};

use super::config::{self, write_nvlist};
use super::{Arguments, Out, cache_device, uberblock};
use crate::output::Exit;

/// Shift of the smallest sectors, if no label states it.
const MIN_ASHIFT: u32 = 9;
/// Shift of the largest.
const MAX_ASHIFT: u32 = 16;

/// Bytes of a label that its list may fill: all but those of the checksum.
const LABEL_NVLIST_BYTES: u64 = (112 << 10) - 40;

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
    let is_cache = |label: &Label| label.as_ref().is_ok_and(|config| config.state == PoolState::L2cache);
    if labels.iter().any(is_cache) {
        cache_device::dump(arguments, &*device, ashift, out).await?;
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
    // Spares and cache devices have no tree.
    let own = || config.raw.get_u64("ashift").ok().and_then(|ashift| u32::try_from(ashift).ok());
    let of_tree = config.vdev_tree.as_ref().and_then(|tree| tree.ashift).map(u32::from);
    of_tree.or_else(own).filter(|ashift| (MIN_ASHIFT..=MAX_ASHIFT).contains(ashift))
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
    write_numbers("    labels = ", &equal, out)?;
    if arguments.labels >= 2 {
        Statistics::of(&config.raw)?.write(&config.raw, arguments.labels >= 3, out)?;
    }
    Ok(())
}

/// What a label consists of.
#[derive(Debug, Default)]
struct Statistics {
    /// Pairs of these types in all lists.
    integers: Nvlist,
    strings: Nvlist,
    booleans: Nvlist,
    lists: u64,
    /// Members of lists called `children`, their bytes and those of the largest.
    children: u64,
    children_bytes: u64,
    largest_bytes: u64,
}

impl Statistics {
    fn of(label: &Nvlist) -> Result<Self> {
        let mut statistics = Self::default();
        statistics.add(label)?;
        Ok(statistics)
    }

    /// The parser bounds how deep lists are.
    fn add(&mut self, list: &Nvlist) -> Result<()> {
        self.lists += 1;
        for (name, value) in list.iter() {
            match value {
                NvValue::String(_) => self.strings.push(name.clone(), value.clone()),
                NvValue::Uint64(_) => self.integers.push(name.clone(), value.clone()),
                NvValue::Boolean => self.booleans.push(name.clone(), value.clone()),
                NvValue::Nvlist(list) => self.add(list)?,
                NvValue::NvlistArray(lists) => {
                    for list in lists {
                        self.add(list)?;
                        if name.to_str() == Some("children") {
                            let bytes = encoded_bytes(list)?;
                            self.children += 1;
                            self.children_bytes += bytes;
                            self.largest_bytes = self.largest_bytes.max(bytes);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, label: &Nvlist, tells_room: bool, out: &mut Out<'_>) -> Result<()> {
        let total = encoded_bytes(label)?;
        let room = LABEL_NVLIST_BYTES.saturating_sub(total);
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
        let used = percent(total, LABEL_NVLIST_BYTES);
        writeln!(out, "\n\nZFS Label NVList Config Stats:")?;
        writeln!(out, "  {total} bytes used, {room} bytes free (using {used:4.1}%)\n")?;
        let empty = encoded_bytes(&Nvlist::new())?;
        let mut rest = total;
        let line = |name: &str, count: u64, bytes: u64, out: &mut Out<'_>| {
            writeln!(out, "{name:>12} {count:>4} {bytes:>6} bytes ({:5.2}%)", percent(bytes, total))
        };
        let kinds =
            [("integers:", &self.integers), ("strings:", &self.strings), ("booleans:", &self.booleans)];
        for (name, list) in kinds {
            let bytes = encoded_bytes(list)?.saturating_sub(empty);
            rest = rest.saturating_sub(bytes);
            line(name, list.len() as u64, bytes, out)?;
        }
        line("nvlists:", self.lists, rest, out)?;
        writeln!(out)?;
        if let Some(average) = self.children_bytes.checked_div(self.children) {
            writeln!(out, "{:>12} {:>4} {average:>6} bytes average", "leaf vdevs:", self.children)?;
            writeln!(out, "{:>24} bytes largest", self.largest_bytes)?;
            if tells_room && let Some(more) = room.checked_div(average) {
                writeln!(out, "  space for {more} additional leaf vdevs")?;
            }
        }
        writeln!(out)?;
        Ok(())
    }
}

fn encoded_bytes(list: &Nvlist) -> Result<u64> {
    Ok(list.encode(Encoding::Xdr)?.len() as u64)
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
        // The same uberblock is in the same slot of each label.
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
