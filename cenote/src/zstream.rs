//! `zstream`: what send streams and resume tokens say, without any pool.
//!
//! Source of the facts: OpenZFS 2.4 `zstream_dump.c`, `zstream_token.c`, `zstream.8`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use engine::receive::Records;
use engine::send::Token;
use ondisk::blkptr::CryptParts;
use ondisk::nvlist::{NvValue, Nvlist};
use ondisk::send::{Begin, ByteRange, HeaderType, MAGIC, Record};

use crate::output;

/// Bytes of a block that one line shows.
const LINE_BYTES: usize = 16;
/// Output that is gathered before it is printed, in bytes.
const OUTPUT_BYTES: usize = 64 << 10;

/// The commands of `zstream`.
#[derive(Debug, clap::Subcommand)]
pub enum Zstream {
    /// Show what a send stream consists of
    Dump(DumpArguments),
    /// Show what a resume token says
    Token(TokenArguments),
}

/// Arguments of `zstream dump`.
#[derive(Debug, clap::Args)]
pub struct DumpArguments {
    /// Show each record
    #[arg(short = 'v')]
    verbose: bool,
    /// Do not verify checksums
    #[arg(short = 'C')]
    unverified: bool,
    /// Show the contents of blocks too
    #[arg(short = 'd')]
    data: bool,
    /// The stream (default: standard input)
    file: Option<PathBuf>,
}

/// Arguments of `zstream token`.
#[derive(Debug, clap::Args)]
pub struct TokenArguments {
    /// The value of receive_resume_token
    #[arg(value_name = "TOKEN")]
    token: String,
}

impl Zstream {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Dump(arguments) => arguments.run(),
            Self::Token(arguments) => arguments.run(),
        }
    }
}

impl TokenArguments {
    fn run(self) -> Result<()> {
        let token = Token::parse(&self.token).map_err(|error| {
            let text = error.to_string();
            anyhow::anyhow!("Unable to parse resume token: {}", text.rsplit("send: ").next().unwrap_or(&text))
        })?;
        let mut text = String::new();
        token.list().dump(&mut text, 5)?;
        output::print(&text)
    }
}

/// Records of one kind, and what follows them.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    records: u64,
    payload_bytes: u64,
}

/// Names of the kinds in the order in which they are summed up.
const KINDS: [&str; 11] = [
    "BEGIN",
    "END",
    "OBJECT",
    "FREEOBJECTS",
    "WRITE",
    "WRITE_BYREF",
    "WRITE_EMBEDDED",
    "FREE",
    "SPILL",
    "OBJECT_RANGE",
    "REDACT",
];

fn kind(record: &Record) -> usize {
    match record {
        Record::Begin(_) => 0,
        Record::End(_) => 1,
        Record::Object(_) => 2,
        Record::FreeObjects(_) => 3,
        Record::Write(_) => 4,
        Record::WriteByRef(_) => 5,
        Record::WriteEmbedded(_) => 6,
        Record::Free(_) => 7,
        Record::Spill(_) => 8,
        Record::ObjectRange(_) => 9,
        Record::Redact(_) => 10,
    }
}

impl DumpArguments {
    fn run(self) -> Result<()> {
        let mut input: Box<dyn Read + Send> = match &self.file {
            Some(file) => {
                let opened = File::open(file);
                Box::new(opened.with_context(|| format!("cannot open '{}'", file.display()))?)
            }
            None if std::io::stdin().is_terminal() => {
                bail!("Error: The send stream is a binary format and can not be read from a terminal.");
            }
            None => Box::new(std::io::stdin()),
        };
        let mut records = match self.unverified {
            true => Records::unverified(&mut *input),
            false => Records::new(&mut *input),
        };
        let mut counts = [Count::default(); KINDS.len()];
        let mut text = String::new();
        let failed = loop {
            match records.next_record() {
                Ok(Some((record, payload))) => {
                    if let Some(count) = counts.get_mut(kind(&record)) {
                        count.records += 1;
                        count.payload_bytes += payload.len() as u64;
                    }
                    self.describe(&record, payload, &mut text)?;
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            if text.len() >= OUTPUT_BYTES {
                output::print(&std::mem::take(&mut text))?;
            }
        };
        let read_bytes = records.position();
        if let Some(error) = failed {
            output::print(&text)?;
            bail!("cannot dump the stream: {error}");
        }
        if read_bytes == 0 {
            bail!("cannot dump the stream: it is empty");
        }
        summary(&counts, read_bytes, &mut text)?;
        output::print(&text)
    }

    fn describe(&self, record: &Record, payload: &[u8], text: &mut String) -> Result<()> {
        match record {
            Record::Begin(begin) => describe_begin(begin, payload, text)?,
            Record::End(end) => {
                let [a, b, c, d] = end.checksum;
                writeln!(text, "END checksum = {a:x}/{b:x}/{c:x}/{d:x}")?;
            }
            _ if !self.verbose && !self.data => return Ok(()),
            other => writeln!(text, "{}", line(other, payload.len()))?,
        }
        if self.data && !matches!(record, Record::Begin(_)) {
            dump(payload, text)?;
        }
        Ok(())
    }
}

fn describe_begin(begin: &Begin, payload: &[u8], text: &mut String) -> Result<()> {
    let header = match begin.header {
        HeaderType::Plain => 1,
        HeaderType::Compound => 2,
    };
    writeln!(text, "BEGIN record")?;
    writeln!(text, "\thdrtype = {header}")?;
    writeln!(text, "\tfeatures = {:x}", begin.features)?;
    writeln!(text, "\tmagic = {MAGIC:x}")?;
    writeln!(text, "\tcreation_time = {:x}", begin.creation_time)?;
    writeln!(text, "\ttype = {}", begin.objset_type)?;
    writeln!(text, "\tflags = {:#x}", begin.flags)?;
    writeln!(text, "\ttoguid = {:x}", begin.to_guid.get())?;
    writeln!(text, "\tfromguid = {:x}", begin.from_guid.get())?;
    writeln!(text, "\ttoname = {}", String::from_utf8_lossy(&begin.to_name).escape_debug())?;
    writeln!(text, "\tpayloadlen = {}", begin.payload_bytes)?;
    if !payload.is_empty() {
        match Nvlist::parse(payload) {
            Ok(list) => describe_list(&list, 0, text)?,
            Err(error) => writeln!(text, "the list that follows cannot be read: {error}")?,
        }
    }
    Ok(())
}

/// A list as OpenZFS prints it.
fn describe_list(list: &Nvlist, depth: usize, text: &mut String) -> Result<()> {
    // A parser bounds how deep lists nest.
    let tabs = "\t".repeat(depth);
    writeln!(text, "{tabs}nvlist version: 0")?;
    for (name, value) in list.iter() {
        match value {
            NvValue::Nvlist(list) => {
                writeln!(text, "{tabs}\t{name} = (embedded nvlist)")?;
                describe_list(list, depth + 1, text)?;
                writeln!(text, "{tabs}\t(end {name})")?;
            }
            NvValue::NvlistArray(lists) => {
                writeln!(text, "{tabs}\t{name} = (array of embedded nvlists)")?;
                for (number, list) in lists.iter().enumerate() {
                    writeln!(text, "{tabs}\t(start {name}[{number}])")?;
                    describe_list(list, depth + 1, text)?;
                    writeln!(text, "{tabs}\t(end {name}[{number}])")?;
                }
            }
            other => writeln!(text, "{tabs}\t{name} = {}", shown(other))?,
        }
    }
    Ok(())
}

fn shown(value: &NvValue) -> String {
    let number = |number: u64| format!("{number:#x}");
    match value {
        NvValue::Boolean => "1".to_owned(),
        NvValue::BooleanValue(set) => if *set { "TRUE" } else { "FALSE" }.to_owned(),
        NvValue::Uint64(value) => number(*value),
        NvValue::Uint32(value) => number((*value).into()),
        NvValue::String(text) => text.to_string().escape_debug().to_string(),
        NvValue::Uint64Array(values) => {
            values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn crypt(parts: &CryptParts) -> String {
    let [salt, iv, mac] = [&parts.salt[..], &parts.iv[..], &parts.mac[..]].map(hexadecimal);
    format!("salt = {salt} iv = {iv} mac = {mac}")
}

/// A record in one line.
fn line(record: &Record, payload_bytes: usize) -> String {
    let range = |name: &str, range: &ByteRange, length: String| {
        let (object, offset) = (range.object, range.offset.get());
        format!("{name} object = {object} offset = {offset} length = {length}")
    };
    match record {
        Record::Begin(_) | Record::End(_) => String::new(),
        Record::Object(o) => format!(
            "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} \
             raw_bonuslen = {} flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
            o.object,
            o.dmu_type,
            o.bonus_type,
            o.block_bytes,
            o.bonus_bytes,
            o.dnode_slots,
            o.raw_bonus_bytes,
            o.flags,
            o.max_block_id,
            o.indirect_block_shift,
            o.levels,
            o.block_pointers
        ),
        Record::FreeObjects(free) => {
            format!("FREEOBJECTS firstobj = {} numobjs = {}", free.first, free.count)
        }
        Record::Write(w) => format!(
            "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} \
             logical_size = {} compressed_size = {} payload_size = {payload_bytes} props = {:x} {}",
            w.object,
            w.dmu_type,
            w.checksum,
            w.compress,
            w.flags,
            w.offset.get(),
            w.logical_bytes,
            w.compressed_bytes,
            w.key.prop,
            crypt(&w.crypt)
        ),
        Record::WriteByRef(w) => format!(
            "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} \
             refguid = {:x} refobject = {} refoffset = {}",
            w.range.object,
            w.checksum,
            w.key.prop,
            w.range.offset.get(),
            w.range.length,
            w.range.to_guid.get(),
            w.ref_guid.get(),
            w.ref_object,
            w.ref_offset.get()
        ),
        // To the end of the object is -1.
        Record::Free(free) => range("FREE", free, free.length.cast_signed().to_string()),
        Record::Redact(left_out) => range("REDACT", left_out, left_out.length.to_string()),
        Record::Spill(s) => format!(
            "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} \
             payload_size = {payload_bytes} {}",
            s.object,
            s.logical_bytes,
            s.flags,
            s.compress,
            s.compressed_bytes,
            crypt(&s.crypt)
        ),
        Record::WriteEmbedded(w) => format!(
            "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} \
             lsize = {} psize = {}",
            w.range.object,
            w.range.offset.get(),
            w.range.length,
            w.range.to_guid.get(),
            w.compress,
            w.kind,
            w.logical_bytes,
            w.physical_bytes
        ),
        Record::ObjectRange(o) => format!(
            "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
            o.first,
            o.slots,
            o.flags,
            crypt(&o.crypt)
        ),
    }
}

/// The bytes of a block, in hexadecimal digits and as text.
fn dump(payload: &[u8], text: &mut String) -> Result<()> {
    for (line, bytes) in payload.chunks(LINE_BYTES).enumerate() {
        let digits: Vec<String> = bytes.chunks(4).map(hexadecimal).collect();
        let letter = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
        let letters: String = bytes.iter().map(letter).collect();
        writeln!(text, "  {:08x}  {:<35}  {letters}", line * LINE_BYTES, digits.join(" "))?;
    }
    Ok(())
}

fn summary(counts: &[Count], stream_bytes: u64, text: &mut String) -> Result<()> {
    writeln!(text, "SUMMARY:")?;
    for (name, count) in KINDS.iter().zip(counts) {
        let Count { records, payload_bytes } = count;
        // Streams of most kinds have none of these.
        if *records > 0 || !matches!(*name, "OBJECT_RANGE" | "REDACT") {
            writeln!(text, "\tTotal DRR_{name} records = {records} ({payload_bytes} bytes)")?;
        }
    }
    let records: u64 = counts.iter().map(|count| count.records).sum();
    let payload: u64 = counts.iter().map(|count| count.payload_bytes).sum();
    let overhead = stream_bytes.saturating_sub(payload);
    writeln!(text, "\tTotal records = {records}")?;
    writeln!(text, "\tTotal payload size = {payload} ({payload:#x})")?;
    writeln!(text, "\tTotal header overhead = {overhead} ({overhead:#x})")?;
    writeln!(text, "\tTotal stream length = {stream_bytes} ({stream_bytes:#x})")?;
    Ok(())
}
