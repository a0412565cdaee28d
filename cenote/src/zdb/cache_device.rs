//! `-l` of a cache device: its header, and whether its log blocks are whole.

use anyhow::{Result, bail};
use device::Device;
use engine::l2arc::inspect::{Inspection, inspect};

use super::{Arguments, Out};

/// "ZFSCACHE", as the header begins.
const MAGIC: u64 = 0x5a46_5343_4143_4845;

/// Shows what a cache device says of itself.
///
/// # Errors
/// There is no whole header, or a log block is damaged.
pub(super) async fn dump(
    arguments: &Arguments,
    device: &dyn Device,
    ashift: u32,
    out: &mut Out<'_>,
) -> Result<()> {
    let found = inspect(device, ashift).await?;
    let shows = !arguments.quiet && !arguments.json;
    let Some(found) = found else {
        if shows {
            title("L2ARC device header", out)?;
            writeln!(out, "there is none, or not a whole one")?;
        }
        bail!("{} has no valid header of a cache device", device.path().display());
    };
    let bad = found.logs.iter().filter(|log| log.entries.is_none()).count();
    if shows {
        header(&found, out)?;
        logs(arguments, &found, bad, out)?;
    }
    match bad {
        0 => Ok(()),
        _ => bail!("{bad} log blocks of {} are damaged", device.path().display()),
    }
}

fn title(text: &str, out: &mut Out<'_>) -> Result<()> {
    let line = "-".repeat(36);
    Ok(writeln!(out, "{line}\n{text}\n{line}")?)
}

fn header(found: &Inspection, out: &mut Out<'_>) -> Result<()> {
    title("L2ARC device header", out)?;
    let header = &found.header;
    for (name, value) in [
        ("magic", MAGIC),
        ("version", header.version),
        ("pool_guid", header.pool.get()),
        ("flags", header.flags),
        ("start_lbps[0]", header.newest[0].address),
        ("start_lbps[1]", header.newest[1].address),
        ("log_blk_ent", header.log_entries),
        ("start", header.start),
        ("end", header.end),
        ("evict", header.evict),
        ("lb_asize_refcount", header.log_bytes),
        ("lb_count_refcount", header.log_blocks),
        ("trim_action_time", header.trim_time),
        ("trim_state", header.trim_state),
    ] {
        writeln!(out, "    {name}: {value}")?;
    }
    Ok(writeln!(out)?)
}

fn logs(arguments: &Arguments, found: &Inspection, bad: usize, out: &mut Out<'_>) -> Result<()> {
    title("L2ARC device log blocks", out)?;
    if found.logs.is_empty() {
        return Ok(writeln!(out, "No log blocks to read\n")?);
    }
    if arguments.labels >= 2 {
        for (number, log) in found.logs.iter().enumerate() {
            let pointer = &log.pointer;
            let state = log.entries.map_or("damaged".to_owned(), |entries| format!("{entries} entries"));
            writeln!(
                out,
                "    log_blk: {number}  daddr: {}  asize: {}  payload: {} bytes from {}  {state}",
                pointer.address,
                pointer.asize(),
                pointer.payload_bytes,
                pointer.payload_start,
            )?;
        }
        writeln!(out)?;
    }
    let bytes: u64 = found.logs.iter().map(|log| log.pointer.asize()).sum();
    writeln!(out, "log_blk_count:\t {} with valid cksum", found.logs.len() - bad)?;
    writeln!(out, "\t\t {bad} with invalid cksum")?;
    Ok(writeln!(out, "log_blk_asize:\t {bytes}\n")?)
}
