//! `cenote inject` (also as `zinject`): faults on demand, for tests of pools.
//!
//! The options are those of OpenZFS's `zinject`, as far as they make sense here, and a few more.

use anyhow::Result;
use server::api::{
    BlockError, BlockFault, Blocks, ClearInjections, DeviceError, Fault, Flip, InjectFault, InjectTarget,
    InjectedOperation, Injection, LabelPart, ListInjections,
};

use crate::client;
use crate::output::{self, usage};
use crate::remotes;

/// What a handler out of a million is in percent.
const PER_PERCENT: f64 = 10_000.0;

/// More of the help.
const ABOUT: &str = "\
Without arguments, list the faults that are made. Errors, delays and devices that are gone do no harm: they
end when their handler is cleared or the pool is exported. What changes or drops writes, and bits that flip
in memory, damages what is stored: that needs --force.

Examples:
  cenote inject -d /disks/a -e io -T read tank     reads of a device fail
  cenote inject -d /disks/a --gone tank            the device is pulled (cenote inject -c ID returns it)
  cenote inject -d /disks/a -D 100:1 tank          each transfer takes 100 ms, one at a time
  cenote inject -t data -e checksum /tank/file     a file cannot be read
  cenote inject --flip before-checksum -b 36:2:0:0-ff --force tank
                                                   bad memory: bits of blocks to be written flip";

/// Arguments of `cenote inject`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// Stop making a fault, by its number, or all
    #[arg(short = 'c', value_name = "ID|all")]
    clear: Option<String>,
    /// The device
    #[arg(short = 'd', value_name = "DEVICE")]
    device: Option<String>,
    /// The error: for devices io, nxio (default), checksum, corrupt, noop; for blocks io (default), checksum,
    /// decompress
    #[arg(short = 'e', value_name = "ERROR")]
    error: Option<String>,
    /// Which transfers of a device: read, write, trim, flush, probe, all (default)
    #[arg(short = 'T', value_name = "OPERATION")]
    operation: Option<String>,
    /// How often, in percent
    #[arg(short = 'f', value_name = "PERCENT")]
    frequency: Option<f64>,
    /// Only transfers of a part of the device's labels: nvlist, uber, pad1, pad2
    #[arg(short = 'L', value_name = "PART")]
    label: Option<String>,
    /// Each transfer of the device takes so many milliseconds, so many at a time
    #[arg(short = 'D', value_name = "LATENCY:LANES")]
    delay: Option<String>,
    /// Declare the device degraded or faulted
    #[arg(short = 'A', value_name = "degrade|fault")]
    action: Option<String>,
    /// The device is gone until this is cleared
    #[arg(long)]
    gone: bool,
    /// All devices of the pool drop writes, and say that they have them; until the pool is exported by force
    #[arg(short = 'I')]
    ignore: bool,
    /// The object: data or dnode of a file (by its path) or volume (by its name), or mos
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// The level of blocks
    #[arg(short = 'l', value_name = "LEVEL", default_value_t = 0)]
    level: i64,
    /// The bytes of the file, in decimal
    #[arg(short = 'r', value_name = "FIRST[,LAST]")]
    range: Option<String>,
    /// Blocks by their numbers, in hexadecimal
    #[arg(short = 'b', value_name = "OBJSET:OBJECT:LEVEL:BLOCK[-LAST]")]
    bookmark: Option<String>,
    /// Only these copies, counted from 0
    #[arg(short = 'C', value_name = "COPY[,COPY...]")]
    copies: Option<String>,
    /// A bit of each block flips in memory: before-checksum, after-checksum (writes), before-check,
    /// after-check (reads)
    #[arg(long, value_name = "WHEN")]
    flip: Option<String>,
    /// Forget cached blocks first, so that they are read from the devices; of all pools, if none is named
    #[arg(short = 'a')]
    empty_cache: bool,
    /// OpenZFS's: mount the filesystem anew; -a is enough here
    #[arg(short = 'm', hide = true)]
    remount: bool,
    /// OpenZFS's: do not try a transfer again; here a failed transfer is tried again at most once
    #[arg(short = 'F', hide = true)]
    fail_fast: bool,
    /// Print only the number of the handler
    #[arg(short = 'q')]
    quiet: bool,
    /// Print JSON: the faults that are made, or the numbers of the new handlers
    #[arg(short = 'j', long, conflicts_with_all = ["clear", "quiet"])]
    json: bool,
    /// Even if it damages what is stored, or gives wrong bytes to readers
    #[arg(long)]
    force: bool,
    /// The pool; with -t data or dnode the path of a file, or the name of a volume
    #[arg(value_name = "POOL|FILE")]
    object: Option<String>,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(mut self) -> Result<()> {
        if let Some(clear) = &self.clear {
            let id = match clear.as_str() {
                "all" => None,
                number => {
                    Some(number.parse().map_err(|_| usage("-c needs the number of a handler, or 'all'"))?)
                }
            };
            client::call_running(&ClearInjections { id })?;
            return output::print(&match id {
                Some(id) => format!("removed handler {id}\n"),
                None => "removed all registered handlers\n".to_owned(),
            });
        }
        let Some(object) = self.object.take() else {
            return match self.empty_cache {
                true => client::call(&InjectFault { empty_cache: true, ..InjectFault::default() }).map(drop),
                false => list(self.json),
            };
        };
        let target = self.target(&object)?;
        if target.is_none() && !self.empty_cache {
            return Err(usage("it is not said what goes wrong"));
        }
        let _ = self.fail_fast;
        if (self.empty_cache || self.remount) && object.starts_with('/') {
            forget_pages(&object);
        }
        let frequency = match self.frequency {
            None => 0,
            Some(percent) if (0.0001..=100.0).contains(&percent) => (percent * PER_PERCENT) as u32,
            Some(_) => return Err(usage("-f needs a percentage between 0.0001 and 100")),
        };
        let pool = if matches!(target, Some(InjectTarget::File { .. })) { String::new() } else { object };
        let (force, empty_cache) = (self.force, self.empty_cache);
        let ids = client::call(&InjectFault { pool, target, frequency, force, empty_cache })?;
        if self.json {
            return print_json("handlers", &ids);
        }
        let line = |id: &u64| match self.quiet {
            true => format!("{id}\n"),
            false => format!("Added handler {id}\n"),
        };
        output::print(&ids.iter().map(line).collect::<String>())
    }

    fn target(&self, object: &str) -> Result<Option<InjectTarget>> {
        if self.ignore {
            return Ok(Some(InjectTarget::IgnoreWrites));
        }
        if let Some(device) = &self.device {
            return self.device_target(device.clone()).map(Some);
        }
        if let Some(bookmark) = &self.bookmark {
            let blocks =
                bookmark_of(bookmark).ok_or_else(|| usage(format!("invalid bookmark '{bookmark}'")))?;
            let blocks = Blocks { copies: self.copies()?, ..blocks };
            return Ok(Some(InjectTarget::Blocks { blocks, what: self.block_fault()? }));
        }
        let Some(kind) = self.kind.as_deref() else { return Ok(None) };
        let (level, copies, what) = (self.level, self.copies()?, self.block_fault()?);
        match kind {
            "data" | "dnode" => {
                let (path, dnode, range) = (object.to_owned(), kind == "dnode", self.range()?);
                Ok(Some(InjectTarget::File { path, dnode, level, range, copies, what }))
            }
            "mos" | "mosdir" => {
                let object = (kind == "mosdir").then_some(1);
                let blocks = Blocks { objset: 0, object, level: Some(level), blocks: (0, u64::MAX), copies };
                Ok(Some(InjectTarget::Blocks { blocks, what }))
            }
            "config" | "bpobj" | "spacemap" | "metaslab" | "errlog" => {
                let why = "blocks of such objects are named by their numbers: -b 0:OBJECT:LEVEL:BLOCK";
                Err(usage(format!("'{kind}' is no type here; {why}")))
            }
            _ => Err(usage(format!("invalid type '{kind}'"))),
        }
    }

    fn device_target(&self, device: String) -> Result<InjectTarget> {
        let operation = match self.operation.as_deref() {
            None | Some("all") => InjectedOperation::All,
            Some("read") => InjectedOperation::Read,
            Some("write") => InjectedOperation::Write,
            Some("trim" | "free") => InjectedOperation::Trim,
            Some("flush") => InjectedOperation::Flush,
            Some("probe") => InjectedOperation::Probe,
            Some(other) => return Err(usage(format!("invalid I/O type '{other}'"))),
        };
        if self.gone {
            return Ok(InjectTarget::Gone { device });
        }
        if let Some(action) = &self.action {
            return match action.as_str() {
                "degrade" => Ok(InjectTarget::Declare { device, faulted: false }),
                "fault" => Ok(InjectTarget::Declare { device, faulted: true }),
                _ => Err(usage(format!("invalid action '{action}': must be either 'degrade' or 'fault'"))),
            };
        }
        if let Some(delay) = &self.delay {
            let parsed = delay.split_once(':').and_then(|(latency, lanes)| {
                Some((
                    latency.parse().ok().filter(|ms| *ms > 0)?,
                    lanes.parse().ok().filter(|lanes| *lanes > 0)?,
                ))
            });
            let (latency_ms, lanes) =
                parsed.ok_or_else(|| usage(format!("invalid delay '{delay}': LATENCY:LANES is needed")))?;
            return Ok(InjectTarget::Delay { device, latency_ms, lanes, operation });
        }
        let error = match self.error.as_deref() {
            None | Some("nxio") => DeviceError::Nxio,
            Some("io") => DeviceError::Io,
            Some("checksum") => DeviceError::Checksum,
            Some("corrupt") => DeviceError::Corrupt,
            Some("noop") => DeviceError::Noop,
            Some(other) => return Err(usage(format!("invalid error type '{other}' for a device"))),
        };
        let label = match self.label.as_deref() {
            None => None,
            Some("nvlist") => Some(LabelPart::Nvlist),
            Some("uber") => Some(LabelPart::Uber),
            Some("pad1") => Some(LabelPart::Pad1),
            Some("pad2") => Some(LabelPart::Pad2),
            Some(other) => return Err(usage(format!("invalid label type '{other}'"))),
        };
        Ok(InjectTarget::Device { device, error, operation, label })
    }

    fn block_fault(&self) -> Result<BlockFault> {
        if let Some(flip) = &self.flip {
            return Ok(BlockFault::Flip(match flip.as_str() {
                "before-checksum" => Flip::BeforeChecksum,
                "after-checksum" => Flip::AfterChecksum,
                "before-check" => Flip::BeforeCheck,
                "after-check" => Flip::AfterCheck,
                other => return Err(usage(format!("'{other}' is no moment at which bits flip"))),
            }));
        }
        Ok(BlockFault::Read(match self.error.as_deref() {
            None | Some("io") => BlockError::Io,
            Some("checksum") => BlockError::Checksum,
            Some("decompress") => BlockError::Decompress,
            Some(other) => return Err(usage(format!("invalid error type '{other}' for blocks"))),
        }))
    }

    fn copies(&self) -> Result<u8> {
        let Some(copies) = &self.copies else { return Ok(0) };
        let mut bits = 0;
        for copy in copies.split(',') {
            match copy.parse::<u8>() {
                Ok(copy) if copy < 3 => bits |= 1 << copy,
                _ => return Err(usage(format!("invalid copies '{copies}': of 0, 1 and 2"))),
            }
        }
        Ok(bits)
    }

    fn range(&self) -> Result<Option<(u64, u64)>> {
        let Some(range) = &self.range else { return Ok(None) };
        let (first, last) = range.split_once(',').unwrap_or((range, range));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Some((first, last))),
            _ => Err(usage(format!("invalid range '{range}'"))),
        }
    }
}

/// Has the kernel forget what it keeps of a file. A file that cannot be opened is found wrong by the daemon.
fn forget_pages(path: &str) {
    // The file is another machine's then.
    if remotes::is_afar() {
        return;
    }
    if let Ok(file) = std::fs::File::open(path) {
        // Only pages that are written are dropped.
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// `36:2:0:0-ff`
fn bookmark_of(text: &str) -> Option<Blocks> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut parts = text.split(':');
    let (objset, object) = (number(parts.next()?)?, number(parts.next()?)?);
    let level = i64::from_str_radix(parts.next()?, 16).ok()?;
    let blocks = parts.next()?;
    let (first, last) = blocks.split_once('-').unwrap_or((blocks, blocks));
    let blocks = (number(first)?, number(last)?);
    let is_whole = parts.next().is_none() && blocks.0 <= blocks.1;
    is_whole.then_some(Blocks { objset, object: Some(object), level: Some(level), blocks, copies: 0 })
}

fn print_json(name: &str, what: &impl serde::Serialize) -> Result<()> {
    let mut document = output::document("cenote inject");
    document.insert(name.into(), serde_json::to_value(what)?);
    output::print_json(&document)
}

fn list(as_json: bool) -> Result<()> {
    let all = output::ask(&ListInjections {}, |_| Vec::new())?;
    if as_json {
        return print_json("faults", &all);
    }
    if all.is_empty() {
        return output::print("No handlers registered.\n");
    }
    let mut text = format!(
        "{:>4}  {:<15}  {:>9}  {:>9}  {:>9}  {}\n",
        "ID", "POOL", "FREQUENCY", "MATCH", "INJECT", "FAULT"
    );
    for one in &all {
        let percent = f64::from(one.frequency) / PER_PERCENT;
        let fault = in_words(one);
        let Injection { id, pool, matched, injected, .. } = one;
        text.push_str(&format!("{id:>4}  {pool:<15}  {percent:>8}%  {matched:>9}  {injected:>9}  {fault}\n"));
    }
    output::print(&text)
}

/// What goes wrong, in a few words.
fn in_words(one: &Injection) -> String {
    let device = one.device.as_deref().unwrap_or("a device");
    let lower = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    let of = |blocks: &Blocks| {
        let Blocks { objset, object, level, blocks: (first, last), copies } = blocks;
        let object = object.map_or("*".to_owned(), |object| format!("{object:x}"));
        let level = level.map_or("*".to_owned(), |level| level.to_string());
        let last = if *last == u64::MAX { "end".to_owned() } else { format!("{last:x}") };
        let copies = if *copies == 0 { String::new() } else { format!(", copies {copies:#b}") };
        format!("{objset:x}:{object}:{level}:{first:x}-{last}{copies}")
    };
    match &one.fault {
        Fault::Device { error, operation, label, .. } => {
            let label = label.map_or(String::new(), |label| format!(" of its labels ({})", lower(&label)));
            format!("{device}: {} on {}{label}", lower(error), lower(operation))
        }
        Fault::Delay { latency, lanes, operation, .. } => {
            format!("{device}: {} ms for {}, {lanes} at a time", latency.as_millis(), lower(operation))
        }
        Fault::Gone { .. } => format!("{device}: gone"),
        Fault::Block { blocks, error } => format!("{}: {}", of(blocks), lower(error)),
        Fault::Memory { blocks, flip } => format!("{}: a bit flips ({})", of(blocks), flip.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_is_four_hexadecimal_numbers_with_a_range() {
        let blocks = Blocks { objset: 0x36, object: Some(2), level: Some(0), blocks: (0, 0xff), copies: 0 };
        assert_eq!(bookmark_of("36:2:0:0-ff"), Some(blocks));
        assert_eq!(bookmark_of("36:2:0:1f").map(|blocks| blocks.blocks), Some((0x1f, 0x1f)));
        for bad in ["", "1:2:3", "1:2:3:4:5", "1:2:0:9-3", "x:1:0:0"] {
            assert_eq!(bookmark_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_typed_becomes_what_goes_wrong() {
        let device =
            Arguments { device: Some("/a".into()), error: Some("io".into()), ..Arguments::default() };
        let target = device.target("tank").unwrap();
        assert!(matches!(target, Some(InjectTarget::Device { error: DeviceError::Io, .. })));
        let flip =
            Arguments { kind: Some("data".into()), flip: Some("after-check".into()), ..Arguments::default() };
        let what = BlockFault::Flip(Flip::AfterCheck);
        let target = flip.target("/tank/file").unwrap();
        assert!(matches!(target, Some(InjectTarget::File { what: flipped, .. }) if flipped == what));
        let copies = Arguments { copies: Some("0,2".into()), ..Arguments::default() };
        assert_eq!(copies.copies().unwrap(), 0b101);
    }
}
