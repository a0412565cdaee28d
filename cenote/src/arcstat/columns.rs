//! The columns of `arcstat`: names, widths, scales, and how each is made of counters.

use std::collections::HashMap;
use std::fmt;

use engine::properties::format::Civil;
use server::api::Counters;

use crate::output;

use self::Value::{Grows, Now, Part, Rate, Rest, Share, Time};

/// A column that every machine has.
struct Base {
    name: &'static str,
    width: usize,
    scale: i64,
    value: Value<&'static str>,
    text: &'static str,
}

/// How the numbers of a column are made.
#[derive(Debug, Clone)]
enum Value<Name: 'static> {
    /// The time of day.
    Time,
    /// How much these counters grew in a second.
    Rate(&'static [&'static str]),
    /// What share the growth of the first ones is of that of the second ones, in percent.
    Share(&'static [&'static str], &'static [&'static str]),
    /// What is left of 100 percent beside the shares of the first ones.
    Rest(&'static [&'static str], &'static [&'static str]),
    /// A state.
    Now(Name),
    /// What share a state is of another one, in percent.
    Part(Name, Name),
    /// Whether the ARC may grow.
    Grows,
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name, which is its heading.
    pub name: String,
    /// Its least width.
    pub width: usize,
    /// What its numbers are divided by until they are small: 1000, 1024, or 100 for a percentage, which is
    /// not scaled.
    pub scale: i64,
    /// What it means.
    pub text: String,
    value: Value<String>,
}

/// A number in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A counter or state.
    Int(i64),
    /// A rate, a share or a target.
    Float(f64),
}

impl Number {
    /// As a float.
    pub fn float(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            // With a decimal point, also where it is whole.
            Self::Float(number) => write!(f, "{number:?}"),
        }
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Sample(HashMap<String, Number>);

/// 2^32: shares in `arcstats` are parts of it.
const PARTS: f64 = 4_294_967_296.0;

impl Sample {
    /// The counters of the ARC and of reading ahead, and the targets that follow from them.
    pub fn of(counters: &Counters) -> Self {
        let mut all = HashMap::new();
        for group in &counters.groups {
            let prefix = if group.name == "zfetchstats" { "zfetch_" } else { "" };
            // Their bits, where a number is signed.
            let named = group.counters.0.iter().map(|(name, number)| (name, Number::Int(*number as i64)));
            all.extend(named.map(|(name, number)| (format!("{prefix}{name}"), number)));
        }
        let mut sample = Self(all);
        sample.add_targets();
        sample
    }

    fn add_targets(&mut self) {
        let kinds = ["anon", "mfu", "mru", "uncached"];
        let of_kind = |kind: &str| self.int(&format!("{kind}_data")) + self.int(&format!("{kind}_metadata"));
        let size: i64 = kinds.iter().map(|kind| of_kind(kind)).sum();
        let [pd, pm, meta] = ["pd", "pm", "meta"].map(|name| self.float(name));
        let target = |share: f64| share / 65536.0 * size as f64 / 65536.0;
        let mfu_data = target((PARTS - pd) * (PARTS - meta) / PARTS);
        let mfu_metadata = target((PARTS - pm) * meta / PARTS);
        let mru_data = target(pd * (PARTS - meta) / PARTS);
        let mru_metadata = target(pm * meta / PARTS);
        for (name, target) in [
            ("mfu_data", mfu_data),
            ("mfu_metadata", mfu_metadata),
            ("mru_data", mru_data),
            ("mru_metadata", mru_metadata),
            ("data", mfu_data + mru_data),
            ("metadata", mfu_metadata + mru_metadata),
            ("mfu", mfu_data + mfu_metadata),
            ("mru", mru_data + mru_metadata),
        ] {
            self.0.insert(format!("{name}_target"), Number::Float(target));
        }
        self.0.insert("caches_size".into(), Number::Int(size));
    }

    /// Whether a pool has a cache device.
    pub fn has_l2arc(&self) -> bool {
        self.int("l2_ndev") > 0 || self.int("l2_size") > 0
    }

    fn number(&self, name: &str) -> Number {
        self.0.get(name).copied().unwrap_or(Number::Int(0))
    }

    fn float(&self, name: &str) -> f64 {
        self.number(name).float()
    }

    fn int(&self, name: &str) -> i64 {
        match self.number(name) {
            Number::Int(number) => number,
            Number::Float(number) => number as i64,
        }
    }

    /// How much counters grew since `before`, in a second.
    fn rate(&self, before: &Self, seconds: u64, names: &[&str]) -> f64 {
        let grown = |name: &&str| self.int(name).wrapping_sub(before.int(name));
        names.iter().map(grown).sum::<i64>() as f64 / seconds as f64
    }
}

impl Column {
    /// The number of this column between two moments, `seconds` apart; none in the column of the time.
    pub fn value(&self, now: &Sample, before: &Sample, seconds: u64) -> Option<Number> {
        let rate = |names: &[&str]| now.rate(before, seconds, names);
        let share = |part: f64, whole: f64| match whole > 0.0 {
            true => Number::Float(100.0 * part / whole),
            false => Number::Int(0),
        };
        Some(match &self.value {
            Time => return None,
            Rate(names) => Number::Float(rate(names)),
            Share(names, of) => share(rate(names), rate(of)),
            Rest(names, of) => match rate(of) > 0.0 {
                // Hits and waits one after the other, as the script subtracts them.
                true => {
                    let half = names.len().div_ceil(2);
                    let (first, second) = names.split_at(half);
                    let percent = |names| share(rate(names), rate(of)).float();
                    Number::Float(100.0 - percent(first) - percent(second))
                }
                false => Number::Int(0),
            },
            Now(name) => now.number(name),
            Part(name, of) => share(now.float(name), now.float(of)),
            Grows => Number::Int(i64::from(now.int("arc_no_grow") == 0)),
        })
    }
}

/// The time of day.
pub fn now_of_day() -> String {
    let now = i64::try_from(output::now()).unwrap_or(0);
    let at = Civil::at(now + i64::from(output::utc_offset(now)));
    at.map_or_else(String::new, |at| format!("{:02}:{:02}:{:02}", at.hour, at.minute, at.second))
}

/// All columns, in the order of `arcstat -v`.
pub fn columns() -> Vec<Column> {
    let own = |name: &&str| (*name).to_owned();
    let base = BASE.iter().map(|base| Column {
        name: base.name.to_owned(),
        width: base.width,
        scale: base.scale,
        text: base.text.to_owned(),
        value: match &base.value {
            Time => Time,
            Rate(names) => Rate(names),
            Share(names, of) => Share(names, of),
            Rest(names, of) => Rest(names, of),
            Now(name) => Now(own(name)),
            Part(name, of) => Part(own(name), own(of)),
            Grows => Grows,
        },
    });
    base.chain(breakdowns()).collect()
}

/// A breakdown of the ARC: short and long names and words of its parts, and the numbers of each part.
struct Breakdown {
    parts: &'static [(&'static str, &'static str, &'static str)],
    /// Short names, ends of names and words of the numbers.
    numbers: &'static [(&'static str, &'static str, &'static str)],
    /// Of what a share is shown too.
    whole: Option<&'static str>,
    /// The only parts with these numbers, where not all have them.
    only: Option<&'static [&'static str]>,
}

const STRUCTURE: &[(&str, &str, &str)] = &[
    ("cmp", "compressed", "Blocks as they are kept"),
    ("ovh", "overhead", "Uncompressed copies"),
    ("bon", "bonus", "Bonus buffers"),
    ("dno", "dnode", "Open objects"),
    ("dbu", "dbuf", "Handles on blocks"),
    ("hdr", "hdr", "Headers"),
    ("l2h", "l2_hdr", "Headers of the L2ARC"),
    ("abd", "abd_chunk_waste", "Memory beyond the size of blocks"),
];
const TYPES: &[(&str, &str, &str)] = &[("data", "data", "Data"), ("meta", "metadata", "Metadata")];
const STATES: &[(&str, &str, &str)] = &[
    ("ano", "anon", "Dirty data"),
    ("mfu", "mfu", "Blocks used more often"),
    ("mru", "mru", "Blocks used once"),
    ("unc", "uncached", "Blocks that are not kept"),
];
const LISTS: Option<&[&str]> = Some(&["mfu", "mru"]);

/// All breakdowns of one kind of parts, in the order in which their columns are listed.
const BREAKDOWNS: &[&[Breakdown]] = &[
    &[Breakdown { parts: STRUCTURE, numbers: &[("sz", "_size", "size")], whole: Some("size"), only: None }],
    &[Breakdown {
        parts: TYPES,
        numbers: &[("tg", "_target", "target"), ("sz", "_size", "size")],
        whole: Some("caches_size"),
        only: None,
    }],
    &[
        Breakdown {
            parts: STATES,
            numbers: &[
                ("tg", "_target", "target"),
                ("dt", "_data_target", "target of data"),
                ("mt", "_metadata_target", "target of metadata"),
            ],
            whole: Some("caches_size"),
            only: LISTS,
        },
        Breakdown {
            parts: STATES,
            numbers: &[
                ("sz", "_size", "size"),
                ("da", "_data", "size of data"),
                ("me", "_metadata", "size of metadata"),
                ("ed", "_evictable_data", "data that may be evicted"),
                ("em", "_evictable_metadata", "metadata that may be evicted"),
            ],
            whole: Some("caches_size"),
            only: None,
        },
        Breakdown {
            parts: STATES,
            numbers: &[
                ("gsz", "_ghost_size", "size of ghosts"),
                ("gd", "_ghost_data", "ghosts of data"),
                ("gm", "_ghost_metadata", "ghosts of metadata"),
            ],
            whole: None,
            only: LISTS,
        },
    ],
];

fn breakdowns() -> Vec<Column> {
    let mut columns = Vec::new();
    for groups in BREAKDOWNS {
        let parts = groups.first().map_or(&[][..], |group| group.parts);
        for (short, long, part) in parts {
            let has = |group: &&Breakdown| group.only.is_none_or(|only| only.contains(short));
            for group in groups.iter().filter(has) {
                for (number, end, words) in group.numbers {
                    let (name, counter) = (format!("{short}{number}"), format!("{long}{end}"));
                    let text = format!("{part}: {words}");
                    let percent = group.whole.map(|whole| Column {
                        name: format!("{name}%"),
                        width: name.len() + 1,
                        scale: 100,
                        text: format!("{text}, in percent"),
                        value: Part(counter.clone(), whole.to_owned()),
                    });
                    columns.push(Column { width: name.len(), name, scale: 1024, text, value: Now(counter) });
                    columns.extend(percent);
                }
            }
        }
    }
    columns
}

const fn column(
    name: &'static str,
    width: usize,
    scale: i64,
    value: Value<&'static str>,
    text: &'static str,
) -> Base {
    Base { name, width, scale, value, text }
}

const ALL: &[&str] = &["hits", "iohits", "misses"];
const DEMAND_HITS: &[&str] = &["demand_data_hits", "demand_metadata_hits"];
const DEMAND_WAITS: &[&str] = &["demand_data_iohits", "demand_metadata_iohits"];
const DEMAND_MISSES: &[&str] = &["demand_data_misses", "demand_metadata_misses"];
const PREFETCH_HITS: &[&str] = &["prefetch_data_hits", "prefetch_metadata_hits"];
const PREFETCH_WAITS: &[&str] = &["prefetch_data_iohits", "prefetch_metadata_iohits"];
const PREFETCH_MISSES: &[&str] = &["prefetch_data_misses", "prefetch_metadata_misses"];
const DEMAND: &[&str] = &[
    "demand_data_hits",
    "demand_metadata_hits",
    "demand_data_iohits",
    "demand_metadata_iohits",
    "demand_data_misses",
    "demand_metadata_misses",
];
const DEMAND_DATA: &[&str] = &["demand_data_hits", "demand_data_iohits", "demand_data_misses"];
const DEMAND_METADATA: &[&str] =
    &["demand_metadata_hits", "demand_metadata_iohits", "demand_metadata_misses"];
const PREFETCH: &[&str] = &[
    "prefetch_data_hits",
    "prefetch_metadata_hits",
    "prefetch_data_iohits",
    "prefetch_metadata_iohits",
    "prefetch_data_misses",
    "prefetch_metadata_misses",
];
const PREFETCH_DATA: &[&str] = &["prefetch_data_hits", "prefetch_data_iohits", "prefetch_data_misses"];
const PREFETCH_METADATA: &[&str] =
    &["prefetch_metadata_hits", "prefetch_metadata_iohits", "prefetch_metadata_misses"];
const METADATA: &[&str] = &[
    "prefetch_metadata_hits",
    "demand_metadata_hits",
    "prefetch_metadata_iohits",
    "demand_metadata_iohits",
    "prefetch_metadata_misses",
    "demand_metadata_misses",
];
const METADATA_HITS: &[&str] = &["prefetch_metadata_hits", "demand_metadata_hits"];
const METADATA_WAITS: &[&str] = &["prefetch_metadata_iohits", "demand_metadata_iohits"];
const METADATA_MISSES: &[&str] = &["prefetch_metadata_misses", "demand_metadata_misses"];

const BASE: &[Base] = &[
    column("time", 8, -1, Time, "Time of day"),
    column("hits", 4, 1000, Rate(&["hits"]), "Hits each second: all accesses"),
    column("iohs", 4, 1000, Rate(&["iohits"]), "Waits for a load under way each second: all accesses"),
    column("miss", 4, 1000, Rate(&["misses"]), "Misses each second: all accesses"),
    column("read", 4, 1000, Rate(ALL), "Accesses each second: all accesses"),
    column("hit%", 4, 100, Share(&["hits"], ALL), "Share of hits: all accesses"),
    column("ioh%", 4, 100, Share(&["iohits"], ALL), "Share of waits for a load under way: all accesses"),
    column("miss%", 5, 100, Rest(&["hits", "iohits"], ALL), "Share of misses: all accesses"),
    column("dhit", 4, 1000, Rate(DEMAND_HITS), "Hits each second: readers"),
    column("dioh", 4, 1000, Rate(DEMAND_WAITS), "Waits for a load under way each second: readers"),
    column("dmis", 4, 1000, Rate(DEMAND_MISSES), "Misses each second: readers"),
    column("dh%", 3, 100, Share(DEMAND_HITS, DEMAND), "Share of hits: readers"),
    column("di%", 3, 100, Share(DEMAND_WAITS, DEMAND), "Share of waits for a load under way: readers"),
    column(
        "dm%",
        3,
        100,
        Rest(
            &["demand_data_hits", "demand_metadata_hits", "demand_data_iohits", "demand_metadata_iohits"],
            DEMAND,
        ),
        "Share of misses: readers",
    ),
    column("ddhit", 5, 1000, Rate(&["demand_data_hits"]), "Hits each second: readers of data"),
    column(
        "ddioh",
        5,
        1000,
        Rate(&["demand_data_iohits"]),
        "Waits for a load under way each second: readers of data",
    ),
    column("ddmis", 5, 1000, Rate(&["demand_data_misses"]), "Misses each second: readers of data"),
    column("ddh%", 4, 100, Share(&["demand_data_hits"], DEMAND_DATA), "Share of hits: readers of data"),
    column(
        "ddi%",
        4,
        100,
        Share(&["demand_data_iohits"], DEMAND_DATA),
        "Share of waits for a load under way: readers of data",
    ),
    column(
        "ddm%",
        4,
        100,
        Rest(&["demand_data_hits", "demand_data_iohits"], DEMAND_DATA),
        "Share of misses: readers of data",
    ),
    column("dmhit", 5, 1000, Rate(&["demand_metadata_hits"]), "Hits each second: readers of metadata"),
    column(
        "dmioh",
        5,
        1000,
        Rate(&["demand_metadata_iohits"]),
        "Waits for a load under way each second: readers of metadata",
    ),
    column("dmmis", 5, 1000, Rate(&["demand_metadata_misses"]), "Misses each second: readers of metadata"),
    column(
        "dmh%",
        4,
        100,
        Share(&["demand_metadata_hits"], DEMAND_METADATA),
        "Share of hits: readers of metadata",
    ),
    column(
        "dmi%",
        4,
        100,
        Share(&["demand_metadata_iohits"], DEMAND_METADATA),
        "Share of waits for a load under way: readers of metadata",
    ),
    column(
        "dmm%",
        4,
        100,
        Rest(&["demand_metadata_hits", "demand_metadata_iohits"], DEMAND_METADATA),
        "Share of misses: readers of metadata",
    ),
    column("phit", 4, 1000, Rate(PREFETCH_HITS), "Hits each second: prefetches"),
    column("pioh", 4, 1000, Rate(PREFETCH_WAITS), "Waits for a load under way each second: prefetches"),
    column("pmis", 4, 1000, Rate(PREFETCH_MISSES), "Misses each second: prefetches"),
    column("ph%", 3, 100, Share(PREFETCH_HITS, PREFETCH), "Share of hits: prefetches"),
    column("pi%", 3, 100, Share(PREFETCH_WAITS, PREFETCH), "Share of waits for a load under way: prefetches"),
    column(
        "pm%",
        3,
        100,
        Rest(
            &[
                "prefetch_data_hits",
                "prefetch_metadata_hits",
                "prefetch_data_iohits",
                "prefetch_metadata_iohits",
            ],
            PREFETCH,
        ),
        "Share of misses: prefetches",
    ),
    column("pdhit", 5, 1000, Rate(&["prefetch_data_hits"]), "Hits each second: prefetches of data"),
    column(
        "pdioh",
        5,
        1000,
        Rate(&["prefetch_data_iohits"]),
        "Waits for a load under way each second: prefetches of data",
    ),
    column("pdmis", 5, 1000, Rate(&["prefetch_data_misses"]), "Misses each second: prefetches of data"),
    column(
        "pdh%",
        4,
        100,
        Share(&["prefetch_data_hits"], PREFETCH_DATA),
        "Share of hits: prefetches of data",
    ),
    column(
        "pdi%",
        4,
        100,
        Share(&["prefetch_data_iohits"], PREFETCH_DATA),
        "Share of waits for a load under way: prefetches of data",
    ),
    column(
        "pdm%",
        4,
        100,
        Rest(&["prefetch_data_hits", "prefetch_data_iohits"], PREFETCH_DATA),
        "Share of misses: prefetches of data",
    ),
    column("pmhit", 5, 1000, Rate(&["prefetch_metadata_hits"]), "Hits each second: prefetches of metadata"),
    column(
        "pmioh",
        5,
        1000,
        Rate(&["prefetch_metadata_iohits"]),
        "Waits for a load under way each second: prefetches of metadata",
    ),
    column(
        "pmmis",
        5,
        1000,
        Rate(&["prefetch_metadata_misses"]),
        "Misses each second: prefetches of metadata",
    ),
    column(
        "pmh%",
        4,
        100,
        Share(&["prefetch_metadata_hits"], PREFETCH_METADATA),
        "Share of hits: prefetches of metadata",
    ),
    column(
        "pmi%",
        4,
        100,
        Share(&["prefetch_metadata_iohits"], PREFETCH_METADATA),
        "Share of waits for a load under way: prefetches of metadata",
    ),
    column(
        "pmm%",
        4,
        100,
        Rest(&["prefetch_metadata_hits", "prefetch_metadata_iohits"], PREFETCH_METADATA),
        "Share of misses: prefetches of metadata",
    ),
    column("mhit", 4, 1000, Rate(METADATA_HITS), "Hits each second: metadata"),
    column("mioh", 4, 1000, Rate(METADATA_WAITS), "Waits for a load under way each second: metadata"),
    column("mmis", 4, 1000, Rate(METADATA_MISSES), "Misses each second: metadata"),
    column("mread", 5, 1000, Rate(METADATA), "Accesses each second: metadata"),
    column("mh%", 3, 100, Share(METADATA_HITS, METADATA), "Share of hits: metadata"),
    column("mi%", 3, 100, Share(METADATA_WAITS, METADATA), "Share of waits for a load under way: metadata"),
    column(
        "mm%",
        3,
        100,
        Rest(
            &[
                "prefetch_metadata_hits",
                "demand_metadata_hits",
                "prefetch_metadata_iohits",
                "demand_metadata_iohits",
            ],
            METADATA,
        ),
        "Share of misses: metadata",
    ),
    column("arcsz", 5, 1024, Now("size"), "Memory that the ARC takes"),
    column("size", 5, 1024, Now("size"), "Memory that the ARC takes"),
    column("c", 5, 1024, Now("c"), "Memory that the ARC may take"),
    column("mfu", 4, 1000, Rate(&["mfu_hits"]), "Hits each second of blocks used more often"),
    column("mru", 4, 1000, Rate(&["mru_hits"]), "Hits each second of blocks used once"),
    column("mfug", 4, 1000, Rate(&["mfu_ghost_hits"]), "Loads each second of blocks evicted after more uses"),
    column("mrug", 4, 1000, Rate(&["mru_ghost_hits"]), "Loads each second of blocks evicted after one use"),
    column("unc", 4, 1000, Rate(&["uncached_hits"]), "Hits each second of blocks that are not kept"),
    column("eskip", 5, 1000, Rate(&["evict_skip"]), "Blocks that eviction passed over each second"),
    column("el2skip", 7, 1000, Rate(&["evict_l2_skip"]), "The same because the L2ARC was writing them"),
    column("el2cach", 7, 1024, Rate(&["evict_l2_cached"]), "Bytes evicted each second that the L2ARC has"),
    column(
        "el2el",
        5,
        1024,
        Rate(&["evict_l2_eligible"]),
        "Bytes evicted each second that the L2ARC may take",
    ),
    column("el2mfu", 6, 1024, Rate(&["evict_l2_eligible_mfu"]), "Those of blocks used more often"),
    column("el2mru", 6, 1024, Rate(&["evict_l2_eligible_mru"]), "Those of blocks used once"),
    column(
        "el2inel",
        7,
        1024,
        Rate(&["evict_l2_ineligible"]),
        "Bytes evicted each second that the L2ARC must not take",
    ),
    column("mtxmis", 6, 1000, Rate(&["mutex_miss"]), "Evictions each second that found a lock taken"),
    column("dread", 5, 1000, Rate(DEMAND), "Accesses each second: readers"),
    column("ddread", 6, 1000, Rate(DEMAND_DATA), "Accesses each second: readers of data"),
    column("dmread", 6, 1000, Rate(DEMAND_METADATA), "Accesses each second: readers of metadata"),
    column("pread", 5, 1000, Rate(PREFETCH), "Accesses each second: prefetches"),
    column("pdread", 6, 1000, Rate(PREFETCH_DATA), "Accesses each second: prefetches of data"),
    column("pmread", 6, 1000, Rate(PREFETCH_METADATA), "Accesses each second: prefetches of metadata"),
    column("l2hits", 6, 1000, Rate(&["l2_hits"]), "Hits of the L2ARC each second"),
    column("l2miss", 6, 1000, Rate(&["l2_misses"]), "Misses of the L2ARC each second"),
    column("l2read", 6, 1000, Rate(&["l2_hits", "l2_misses"]), "Accesses to the L2ARC each second"),
    column("l2hit%", 6, 100, Share(&["l2_hits"], &["l2_hits", "l2_misses"]), "Share of hits of the L2ARC"),
    column("l2miss%", 7, 100, Rest(&["l2_hits"], &["l2_hits", "l2_misses"]), "Share of misses of the L2ARC"),
    column("l2pref", 6, 1024, Now("l2_prefetch_asize"), "Bytes in the L2ARC that were read ahead"),
    column("l2mfu", 5, 1024, Now("l2_mfu_asize"), "Bytes in the L2ARC of blocks used more often"),
    column("l2mru", 5, 1024, Now("l2_mru_asize"), "Bytes in the L2ARC of blocks used once"),
    column("l2data", 6, 1024, Now("l2_bufc_data_asize"), "Bytes of data in the L2ARC"),
    column("l2meta", 6, 1024, Now("l2_bufc_metadata_asize"), "Bytes of metadata in the L2ARC"),
    column(
        "l2pref%",
        7,
        100,
        Part("l2_prefetch_asize", "l2_asize"),
        "Share of the L2ARC that was read ahead",
    ),
    column(
        "l2mfu%",
        6,
        100,
        Part("l2_mfu_asize", "l2_asize"),
        "Share of blocks used more often in the L2ARC",
    ),
    column("l2mru%", 6, 100, Part("l2_mru_asize", "l2_asize"), "Share of blocks used once in the L2ARC"),
    column("l2data%", 7, 100, Part("l2_bufc_data_asize", "l2_asize"), "Share of data in the L2ARC"),
    column("l2meta%", 7, 100, Part("l2_bufc_metadata_asize", "l2_asize"), "Share of metadata in the L2ARC"),
    column("l2asize", 7, 1024, Now("l2_asize"), "Bytes in the L2ARC as stored"),
    column("l2size", 6, 1024, Now("l2_size"), "Bytes in the L2ARC uncompressed"),
    column("l2bytes", 7, 1024, Rate(&["l2_read_bytes"]), "Bytes read from the L2ARC each second"),
    column("l2wbytes", 8, 1024, Rate(&["l2_write_bytes"]), "Bytes written to the L2ARC each second"),
    column("grow", 4, 1000, Grows, "1 while the ARC may grow"),
    column("need", 5, 1024, Now("arc_need_free"), "Bytes that the ARC is to give back"),
    column("free", 5, 1024, Now("memory_free_bytes"), "Free memory of the machine"),
    column("avail", 5, 1024, Now("memory_available_bytes"), "Memory that the machine could give"),
    column("waste", 5, 1024, Now("abd_chunk_waste_size"), "Bytes that blocks take beyond their size"),
    column(
        "ztotal",
        6,
        1000,
        Rate(&["zfetch_hits", "zfetch_future", "zfetch_stride", "zfetch_past", "zfetch_misses"]),
        "Reads each second that the prefetcher saw",
    ),
    column("zhits", 5, 1000, Rate(&["zfetch_hits"]), "Those that continued a stream"),
    column("zahead", 6, 1000, Rate(&["zfetch_future", "zfetch_stride"]), "Those ahead of a stream"),
    column("zpast", 5, 1000, Rate(&["zfetch_past"]), "Those behind a stream"),
    column("zmisses", 7, 1000, Rate(&["zfetch_misses"]), "Those of no stream"),
    column(
        "zmax",
        4,
        1000,
        Rate(&["zfetch_max_streams"]),
        "Streams that took the place of others each second",
    ),
    column("zfuture", 7, 1000, Rate(&["zfetch_future"]), "Reads each second that skipped ahead in a stream"),
    column("zstride", 7, 1000, Rate(&["zfetch_stride"]), "Reads each second with a stride"),
    column("zissued", 7, 1000, Rate(&["zfetch_io_issued"]), "Blocks requested ahead each second"),
    column("zactive", 7, 1000, Rate(&["zfetch_io_active"]), "Change of the blocks being loaded ahead"),
];
