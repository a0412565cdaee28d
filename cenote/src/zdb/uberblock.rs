//! `-u`: an uberblock.

use anyhow::Result;
use ondisk::uberblock::{MMP_MAGIC, UBERBLOCK_MAGIC, Uberblock};
use serde_json::{Value, json};

use super::Out;
use crate::output::ctime;

/// Bits with the state of a raidz expansion's scratch area.
const REFLOW_STATE_SHIFT: u32 = 55;

/// All fields, one on a line.
pub(super) fn dump(uberblock: &Uberblock, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\tmagic = {UBERBLOCK_MAGIC:016x}")?;
    writeln!(out, "\tversion = {}", uberblock.version)?;
    writeln!(out, "\ttxg = {}", uberblock.txg)?;
    writeln!(out, "\tguid_sum = {}", uberblock.guid_sum)?;
    writeln!(out, "\ttimestamp = {} UTC = {}", uberblock.timestamp, ctime(uberblock.timestamp))?;
    writeln!(out, "\tbp = {}", uberblock.root_bp)?;
    writeln!(out, "\tmmp_magic = {:016x}", uberblock.mmp.map_or(0, |_| MMP_MAGIC))?;
    if let Some(mmp) = uberblock.mmp {
        writeln!(out, "\tmmp_delay = {}", mmp.delay_ns)?;
        if let Some(sequence) = mmp.sequence() {
            writeln!(out, "\tmmp_seq = {sequence}")?;
        }
        if let Some(intervals) = mmp.fail_intervals() {
            writeln!(out, "\tmmp_fail = {intervals}")?;
        }
        if let Some(interval) = mmp.interval_ms() {
            writeln!(out, "\tmmp_write = {interval}")?;
        }
        writeln!(out, "\tmmp_valid = {:x}", mmp.config & 0xff)?;
    }
    writeln!(out, "\tcheckpoint_txg = {}", uberblock.checkpoint_txg)?;
    let state = uberblock.raidz_reflow_info >> REFLOW_STATE_SHIFT;
    writeln!(out, "\traidz_reflow state={state} off={}", uberblock.reflow_offset().get())?;
    Ok(())
}

/// The fields that programs ask for.
pub(super) fn json(uberblock: &Uberblock) -> Value {
    json!({
        "version": uberblock.version,
        "txg": uberblock.txg.get(),
        "guid_sum": uberblock.guid_sum,
        "timestamp": uberblock.timestamp,
        "root_bp": uberblock.root_bp.to_string(),
        "software_version": uberblock.software_version,
        "mmp": uberblock.mmp.map(|mmp| json!({
            "delay_ns": mmp.delay_ns,
            "sequence": mmp.sequence(),
            "fail_intervals": mmp.fail_intervals(),
            "interval_ms": mmp.interval_ms(),
        })),
        "checkpoint_txg": uberblock.checkpoint_txg.get(),
        "raidz_reflow_offset": uberblock.reflow_offset().get(),
    })
}
