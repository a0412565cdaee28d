//! The rules of replication, without a pool: what a dataset is sent from, what is in the way, what may go.
//!
//! Snapshots are the same where their guids are: names may differ. Those of a dataset are in order of the
//! transaction group in which they were made, of bookmarks that of their snapshot.

use std::collections::{BTreeMap, HashSet};

use server::api::SnapshotKind;

/// What the names of snapshots begin with that are made for replication.
pub const PREFIX: &str = "cenote-replicate_";

/// A snapshot or bookmark, as `zfs list` tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Point {
    /// Its full name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The transaction group in which it was made.
    pub createtxg: u64,
    /// How many holds it has.
    pub holds: u64,
    /// The mark of replication, where it has one.
    pub mark: Option<String>,
}

impl Point {
    /// Whether it is a bookmark.
    pub fn is_bookmark(&self) -> bool {
        self.name.contains('#')
    }

    /// Its name behind the name of the dataset.
    pub fn short(&self) -> &str {
        self.name.split_once(['@', '#']).map_or(&*self.name, |(_, short)| short)
    }
}

/// What is sent for a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Nothing: the destination has the newest one.
    UpToDate,
    /// All of a snapshot, then what follows up to the newest one.
    Full,
    /// What changed since this snapshot or bookmark.
    Since(Point),
}

/// Why a dataset is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing is in common; the destination has snapshots, or none.
    NothingInCommon {
        /// Whether the destination has snapshots.
        has_snapshots: bool,
    },
    /// Snapshots of the destination after the newest common one, which would have to go.
    Newer(Vec<String>),
}

/// How to bring the snapshots of a dataset to its destination. `destination` is none where there is none;
/// `is_forced` gives up what the destination has beyond what is in common.
pub fn way(
    source: &[Point],
    target: u64,
    destination: Option<&[Point]>,
    is_forced: bool,
) -> Result<Way, Refusal> {
    let Some(there) = destination else { return Ok(Way::Full) };
    let guids: HashSet<u64> = there.iter().map(|point| point.guid).collect();
    let common = source.iter().filter(|point| guids.contains(&point.guid));
    let Some(common) = common.max_by_key(|point| (point.createtxg, !point.is_bookmark())) else {
        let has_snapshots = !there.is_empty();
        return if is_forced && !has_snapshots {
            Ok(Way::Full)
        } else {
            Err(Refusal::NothingInCommon { has_snapshots })
        };
    };
    let at = there.iter().find(|point| point.guid == common.guid).map_or(0, |point| point.createtxg);
    let newer: Vec<String> =
        there.iter().filter(|point| point.createtxg > at).map(|point| point.name.clone()).collect();
    if common.guid == target {
        // What came after it there is in the way of nothing.
        return Ok(Way::UpToDate);
    }
    match newer.is_empty() || is_forced {
        true => Ok(Way::Since(common.clone())),
        false => Err(Refusal::Newer(newer)),
    }
}

/// How many snapshots of each series are kept: `7`, or `daily=30,hourly=48,replicate=3`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    all: Option<usize>,
    of: BTreeMap<String, usize>,
}

/// The series of the snapshots that replication makes.
const OWN: &str = "replicate";

impl Keep {
    /// From the text of the option.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keep = Self::default();
        let number = |text: &str| match text.parse::<usize>() {
            Ok(0) => Err("at least the newest one is kept: 1 or more".to_owned()),
            Ok(number) => Ok(number),
            Err(_) => Err(format!("'{text}' is no number")),
        };
        for part in text.split(',') {
            match part.split_once('=') {
                None if keep.all.is_none() => keep.all = Some(number(part)?),
                None => return Err(format!("'{part}': a second number for all")),
                Some((series, count)) => {
                    if series != OWN && SnapshotKind::from_word(series).is_none() {
                        return Err(format!("'{series}' is neither {OWN} nor a kind such as hourly"));
                    }
                    if keep.of.insert(series.to_owned(), number(count)?).is_some() {
                        return Err(format!("'{series}' stands there twice"));
                    }
                }
            }
        }
        Ok(keep)
    }

    fn of(&self, series: &str) -> Option<usize> {
        self.of.get(series).copied().or(self.all)
    }
}

/// The series that the name of a snapshot belongs to; none for names that a person gave.
fn series(short: &str) -> Option<&'static str> {
    match short.starts_with(PREFIX) {
        true => Some(OWN),
        false => SnapshotKind::of_name(short).map(SnapshotKind::word),
    }
}

/// The snapshots beyond what is kept, the oldest first: of those that have this mark and a name of a series,
/// with `only_own` of that of replication alone. One that is held, or has the guid of the newest common one,
/// stays.
pub fn surplus(points: &[Point], mark: &str, keep: &Keep, newest_common: u64, only_own: bool) -> Vec<String> {
    let mut by_series: BTreeMap<&str, Vec<&Point>> = BTreeMap::new();
    for point in points.iter().filter(|point| !point.is_bookmark() && point.mark.as_deref() == Some(mark)) {
        if let Some(series) = series(point.short()).filter(|series| !only_own || *series == OWN) {
            by_series.entry(series).or_default().push(point);
        }
    }
    let mut beyond: Vec<&Point> = Vec::new();
    for (series, mut points) in by_series {
        let Some(keep) = keep.of(series) else { continue };
        points.sort_by_key(|point| std::cmp::Reverse(point.createtxg));
        beyond.extend(points.into_iter().skip(keep));
    }
    beyond.retain(|point| point.holds == 0 && point.guid != newest_common);
    beyond.sort_by_key(|point| point.createtxg);
    beyond.into_iter().map(|point| point.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, guid: u64, createtxg: u64) -> Point {
        Point { name: name.to_owned(), guid, createtxg, holds: 0, mark: Some("m".to_owned()) }
    }

    fn source() -> Vec<Point> {
        vec![point("s@a", 1, 10), point("s#b", 2, 20), point("s@c", 3, 30), point("s@d", 4, 40)]
    }

    #[test]
    fn a_dataset_is_sent_from_the_newest_that_both_have() {
        let way = |there: Option<&[Point]>| way(&source(), 4, there, false);
        assert_eq!(way(None), Ok(Way::Full));
        assert_eq!(way(Some(&[point("d@a", 1, 7)])), Ok(Way::Since(point("s@a", 1, 10))));
        // From a bookmark, whose snapshot is gone here.
        let there = [point("d@a", 1, 7), point("d@other", 2, 8)];
        assert_eq!(way(Some(&there)), Ok(Way::Since(point("s#b", 2, 20))));
        assert_eq!(way(Some(&[point("d@d", 4, 9)])), Ok(Way::UpToDate));
        assert_eq!(way(Some(&[point("d@d", 4, 9), point("d@own", 9, 10)])), Ok(Way::UpToDate));
        // A snapshot and its bookmark are one: the snapshot has what lies between.
        let both = [point("s#c", 3, 30), point("s@c", 3, 30), point("s@d", 4, 40)];
        let found = super::way(&both, 4, Some(&[point("d@c", 3, 9)]), false);
        assert_eq!(found, Ok(Way::Since(point("s@c", 3, 30))));
    }

    #[test]
    fn what_would_destroy_something_there_is_refused_unless_it_is_forced() {
        let none: &[Point] = &[];
        let way = |there: &[Point], is_forced| way(&source(), 4, Some(there), is_forced);
        assert_eq!(way(none, false), Err(Refusal::NothingInCommon { has_snapshots: false }));
        assert_eq!(way(none, true), Ok(Way::Full));
        let other = [point("d@a", 99, 7)];
        for is_forced in [false, true] {
            let refusal = Err(Refusal::NothingInCommon { has_snapshots: true });
            assert_eq!(way(&other, is_forced), refusal, "a name alone is nothing in common");
        }
        let newer = [point("d@a", 1, 7), point("d@own", 98, 8)];
        assert_eq!(way(&newer, false), Err(Refusal::Newer(vec!["d@own".to_owned()])));
        assert_eq!(way(&newer, true), Ok(Way::Since(point("s@a", 1, 10))));
    }

    #[test]
    fn what_is_kept_is_a_number_or_one_for_each_series() {
        let keep = Keep::parse("3,daily=30").unwrap();
        assert_eq!((keep.of("daily"), keep.of("replicate")), (Some(30), Some(3)));
        assert_eq!(Keep::parse("hourly=2").unwrap().of("replicate"), None);
        for wrong in ["", "0", "x", "1,2", "mine=3", "daily=0", "daily=1,daily=2"] {
            assert!(Keep::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_marked_snapshots_of_a_series_go_and_never_the_newest_common_one() {
        let own = |hour: u64| point(&format!("s@{PREFIX}2026-11-30_{hour:02}:00:00"), hour, hour);
        let mut points: Vec<Point> = (1..=6).map(own).collect();
        points[0].holds = 1;
        points[1].mark = None;
        points[2].mark = Some("another destination".to_owned());
        points.push(point("s@mine", 20, 0));
        points.push(point("s@autosnap_2026-11-30_01:00:00_hourly", 21, 0));
        let keep = Keep::parse("1").unwrap();
        let name = |at: usize| points[at].name.clone();
        assert_eq!(surplus(&points, "m", &keep, 6, true), [name(3), name(4)]);
        assert_eq!(surplus(&points, "m", &keep, 4, true), [name(4)]);
        let two_of_a_kind =
            [points.clone(), vec![point("s@autosnap_2026-11-30_02:00:00_hourly", 22, 8)]].concat();
        assert_eq!(surplus(&two_of_a_kind, "m", &keep, 6, false), [name(7), name(3), name(4)]);
    }
}
