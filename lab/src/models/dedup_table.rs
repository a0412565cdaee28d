//! What a dedup table of so many blocks costs, without the data: from a number of blocks, or from what
//! `zdb -DD` prints of a pool.
//!
//! # What is read of `zdb -DD`
//! Each part of a table has a line, of which OpenZFS has had two forms; the ratio of all tables stands at the
//! end.
//!
//! | line | version |
//! |---|---|
//! | `DDT-sha256: version=1 [FDT]; …` before the parts of a fast table | from 2.3 on |
//! | `DDT-sha256-zap-unique: dspace=44544; mspace=65536; entries=173` | from 2.3 on |
//! | `DDT-log-sha256-0: flags=0x00; obj=89; len=0; txg=19; entries=0` | from 2.3 on |
//! | `DDT-sha256-zap-unique: 173 entries, size 257 on disk, 378 in core` | before |
//! | `dedup = 1.33, compress = 1.48, copies = 1.00, …` | all |

use std::fmt;

use serde::Serialize;

use super::dedup::{self, Fit, Kind};
use super::{Model, bytes, percent};
use crate::error::{Error, Result};
use crate::size::Size;

/// More blocks than this no pool has: 2^64 bytes in blocks of 512.
const MOST_BLOCKS: u64 = 1 << 55;

/// A dedup table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DedupTable {
    /// Entries: blocks that differ.
    pub entries: u64,
    /// Entries of blocks that occur once only, where that is known.
    pub unique: Option<u64>,
    /// How many times less is allocated than is referenced, where that is known.
    pub ratio: Option<f64>,
    /// Bytes of memory that the table takes when all of it is cached.
    pub memory: u64,
    /// The cache that it shares.
    pub cache: Size,
    /// Whether it fits the cache, and what each write costs where it does not.
    #[serde(flatten)]
    pub fit: Fit,
}

/// A part of a table, as `zdb -DD` has it.
struct Part {
    entries: u64,
    kind: Kind,
    is_unique: bool,
    is_log: bool,
}

impl DedupTable {
    /// Of a table with so many entries.
    pub fn of(entries: u64, cache: Size) -> Result<Self> {
        if entries == 0 || entries > MOST_BLOCKS {
            return Err(Error::Experiment(format!(
                "blocks: {entries} is not a number from 1 to {MOST_BLOCKS}"
            )));
        }
        Ok(Self::with(entries, None, None, dedup::table_bytes(entries, Kind::Fast), cache))
    }

    /// Of the tables of a pool, from what `zdb -DD POOL` prints.
    pub fn of_zdb(text: &str, cache: Size) -> Result<Self> {
        let mut kind = Kind::Traditional;
        let mut parts: Vec<Part> = Vec::new();
        for line in text.lines() {
            if line.starts_with("DDT-") && line.contains(": version=") {
                kind = if line.contains("[FDT]") { Kind::Fast } else { Kind::Traditional };
            }
            parts.extend(part(line, kind));
        }
        let sum = |is_counted: fn(&Part) -> bool| {
            let counted = parts.iter().filter(|part| is_counted(part));
            counted.fold(0_u64, |sum, part| sum.saturating_add(part.entries))
        };
        let (entries, unique) = (sum(|_| true), sum(|part| part.is_unique));
        if entries == 0 {
            return Err(Error::Experiment(
                "the output of zdb -DD has no entries of a dedup table; lines like 'DDT-sha256-zap-unique: \
                 …entries=173' were expected"
                    .into(),
            ));
        }
        if entries > MOST_BLOCKS {
            return Err(Error::Experiment(
                "the output of zdb -DD has more entries than a pool can have".into(),
            ));
        }
        // Each part is a ZAP of its own. Logs are kept in memory beside them, and end up there.
        let memory = parts.iter().map(|part| dedup::table_bytes(part.entries, part.kind)).sum();
        let ratio = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("dedup = ")?.split(',').next()?.parse().ok());
        let has_logs = parts.iter().any(|part| part.is_log && part.entries > 0);
        Ok(Self::with(entries, Some(unique).filter(|_| !has_logs), ratio, memory, cache))
    }

    fn with(entries: u64, unique: Option<u64>, ratio: Option<f64>, memory: f64, cache: Size) -> Self {
        Self { entries, unique, ratio, memory: memory as u64, cache, fit: Fit::of(memory, cache) }
    }
}

/// A line about a part of a table.
fn part(line: &str, kind: Kind) -> Option<Part> {
    let (name, rest) = line.trim().strip_prefix("DDT-")?.split_once(": ")?;
    let entries = match rest.split("; ").find_map(|word| word.strip_prefix("entries=")) {
        Some(entries) => entries,
        None => rest.split_once(" entries")?.0,
    };
    let entries = entries.trim().parse().ok()?;
    Some(Part { entries, kind, is_unique: name.ends_with("-unique"), is_log: name.starts_with("log-") })
}

impl Model for DedupTable {
    const FORMULA: &'static str = dedup::FORMULA_OF_TABLES;
    const SOURCE: &'static str = dedup::SOURCE_OF_TABLES;
}

impl fmt::Display for DedupTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = bytes(self.memory as f64);
        writeln!(f, "{} entries take {memory} of memory", self.entries)?;
        if let Some(unique) = self.unique {
            let share = percent(unique as f64 / self.entries as f64);
            writeln!(
                f,
                "{unique} of them ({share}) are of blocks that occur once, for which deduplication saves \
                 nothing"
            )?;
        }
        if let Some(ratio) = self.ratio {
            writeln!(f, "deduplication stores {ratio:.2} times less")?;
        }
        writeln!(f, "{}", self.fit.words(self.cache))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: Size = Size(8 << 30);

    #[test]
    fn a_number_of_blocks_says_what_their_table_takes() {
        let of = |entries| DedupTable::of(entries, CACHE).unwrap();
        assert_eq!(of(173).memory, 65536);
        // A terabyte in blocks of 8K.
        let large = of(1 << 27);
        let each = large.memory as f64 / large.entries as f64;
        assert!((200.0..300.0).contains(&each) && !large.fit.fits, "{each} {large:?}");
        assert!(of(1 << 20).fit.fits);
        for wrong in [0, u64::MAX] {
            assert!(DedupTable::of(wrong, CACHE).unwrap_err().to_string().contains("blocks: "));
        }
    }

    #[test]
    fn what_zdb_prints_is_read_in_its_old_and_its_new_form() {
        let new = "DDT-sha256: version=0 [LEGACY]; flags=0x00; rootobj=1\n\
                   DDT-sha256-zap-duplicate: dspace=46080; mspace=65536; entries=173\n\
                   DDT-sha512-zap-unique: dspace=44544; mspace=65536; entries=346\n\n\
                   dedup = 1.33, compress = 1.48, copies = 1.00, dedup * compress / copies = 1.97\n";
        let told = DedupTable::of_zdb(new, CACHE).unwrap();
        assert_eq!((told.entries, told.unique, told.ratio), (519, Some(346), Some(1.33)));
        let of = |entries| dedup::table_bytes(entries, Kind::Traditional);
        assert_eq!(told.memory as f64, (of(173) + of(346)).floor());
        let fast = new.replace("version=0 [LEGACY]", "version=1 [FDT]");
        assert!(DedupTable::of_zdb(&fast, CACHE).unwrap().memory > told.memory);
        let old = "DDT-sha256-zap-unique: 173 entries, size 257 on disk, 378 in core\n";
        assert_eq!(DedupTable::of_zdb(old, CACHE).unwrap().entries, 173);
        let logged = format!("{new}DDT-log-sha256-0: flags=0x00; obj=89; len=0; txg=19; entries=5\n");
        let told = DedupTable::of_zdb(&logged, CACHE).unwrap();
        assert_eq!((told.entries, told.unique), (524, None));
    }

    #[test]
    fn what_zdb_did_not_print_is_refused() {
        let many = format!("DDT-a-zap-unique: entries={0}\nDDT-b-zap-unique: entries={0}\n", u64::MAX);
        for (text, why) in
            [("", "no entries"), ("zdb: can't open 'x'", "no entries"), (&many, "more entries")]
        {
            let error = DedupTable::of_zdb(text, CACHE).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
