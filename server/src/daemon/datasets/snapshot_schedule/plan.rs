//! The rules of snapshots by schedule, without a pool: slots of time, names, what is due, what may go.
//!
//! # Slots
//! Each kind divides time into slots on the clock of the machine: quarters of an hour, hours, days, weeks
//! from Monday, months, years. A kind is due as long as no snapshot with a name of that kind was taken in the
//! slot of now, by whichever program. So two runs in one slot take one snapshot, and so do two programs.
//!
//! # What may go
//! Only a snapshot that says by a local user property that a schedule made it, with a name of its kind. The
//! newest of them stay; of the others those that nothing holds and that have no clones go.

use engine::properties::format::Civil;

use crate::api::{SnapshotKind, SnapshotNames, SnapshotPlan};

const QUARTER_S: i64 = 15 * 60;
const HOUR_S: i64 = 60 * 60;
const DAY_S: i64 = 24 * HOUR_S;

/// A snapshot of one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    /// Its full name.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub creation: u64,
    /// In which transaction group.
    pub createtxg: u64,
    /// The kind that a schedule of this pool made it as.
    pub made_as: Option<SnapshotKind>,
    /// It is held, or has clones.
    pub is_in_use: bool,
}

/// What is done for one kind of one dataset.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deed {
    /// A snapshot is due.
    pub is_due: bool,
    /// Snapshots to destroy, the oldest first.
    pub surplus: Vec<String>,
    /// Those that would go if they were not in use.
    pub in_use: Vec<String>,
}

/// The slot of a kind that a moment is in, on a clock so many seconds ahead of UTC.
fn slot(kind: SnapshotKind, moment: i64, offset: i64) -> Option<i64> {
    let local = moment.checked_add(offset)?;
    // The hour that a clock repeats in autumn has slots of its own.
    let hours = moment.checked_add(offset.rem_euclid(HOUR_S))?;
    Some(match kind {
        SnapshotKind::Frequent => moment.div_euclid(QUARTER_S),
        SnapshotKind::Hourly => hours.div_euclid(HOUR_S),
        SnapshotKind::Daily => local.div_euclid(DAY_S),
        // 1 January 1970 was a Thursday.
        SnapshotKind::Weekly => (local.div_euclid(DAY_S) + 3).div_euclid(7),
        SnapshotKind::Monthly => Civil::at(local).map(|at| at.year * 12 + i64::from(at.month))?,
        SnapshotKind::Yearly => Civil::at(local)?.year,
    })
}

/// The quarter of an hour that a moment is in.
pub(super) fn quarter(moment: u64) -> u64 {
    moment / QUARTER_S.unsigned_abs()
}

/// The name of a snapshot of a kind, taken at this moment on this clock.
pub(super) fn name(names: SnapshotNames, kind: SnapshotKind, moment: u64, offset: i64) -> Option<String> {
    let at = Civil::at(i64::try_from(moment).ok()?.checked_add(offset)?)?;
    let date = format!("{:04}-{:02}-{:02}", at.year, at.month, at.day);
    let (hour, minute, second, word) = (at.hour, at.minute, at.second, names.word_of(kind));
    Some(match names {
        SnapshotNames::Sanoid => format!("autosnap_{date}_{hour:02}:{minute:02}:{second:02}_{word}"),
        SnapshotNames::ZfsAutoSnapshot => format!("zfs-auto-snap_{word}-{date}-{hour:02}{minute:02}"),
    })
}

/// What is to be done for a kind of a dataset with these snapshots.
pub(super) fn deed(
    plan: &SnapshotPlan,
    kind: SnapshotKind,
    snapshots: &[Taken],
    now: u64,
    utc_offset: impl Fn(i64) -> i64,
) -> Deed {
    let Some(keep) = plan.keeps(kind) else { return Deed::default() };
    let slot_of = |moment: u64| {
        let moment = i64::try_from(moment).ok()?;
        slot(kind, moment, utc_offset(moment))
    };
    let named: Vec<&Taken> = snapshots.iter().filter(|taken| has_name_of(taken, kind)).collect();
    let is_there = named.iter().any(|taken| slot_of(taken.creation) == slot_of(now));
    let is_due = keep > 0 && !is_there && slot_of(now).is_some();
    let mut made: Vec<&Taken> = named.into_iter().filter(|taken| taken.made_as == Some(kind)).collect();
    made.sort_by_key(|taken| std::cmp::Reverse(taken.createtxg));
    // The one that is taken now counts.
    let stay = (keep as usize).saturating_sub(usize::from(is_due));
    let beyond = made.split_off(stay.min(made.len()));
    let (in_use, surplus): (Vec<&Taken>, Vec<&Taken>) =
        beyond.into_iter().rev().partition(|taken| taken.is_in_use);
    let names = |all: Vec<&Taken>| all.into_iter().map(|taken| taken.name.clone()).collect();
    Deed { is_due, surplus: names(surplus), in_use: names(in_use) }
}

/// Whether the name of a snapshot says this kind.
pub(super) fn has_name_of(taken: &Taken, kind: SnapshotKind) -> bool {
    taken.name.split_once('@').and_then(|(_, short)| SnapshotKind::of_name(short)) == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use SnapshotKind::{Daily, Frequent, Hourly, Monthly, Weekly, Yearly};

    /// 2026-11-30 09:10:11 UTC, a Monday.
    const NOW: i64 = 1_796_029_811;

    fn taken(kind: SnapshotKind, at: i64) -> Taken {
        let at = at.unsigned_abs();
        let short = name(SnapshotNames::Sanoid, kind, at, 0).unwrap();
        Taken {
            name: format!("tank@{short}"),
            creation: at,
            createtxg: at,
            made_as: Some(kind),
            is_in_use: false,
        }
    }

    fn deeds(plan: &str, kind: SnapshotKind, snapshots: &[Taken], now: i64) -> Deed {
        deed(&plan.parse().unwrap(), kind, snapshots, now.unsigned_abs(), |_| 0)
    }

    #[test]
    fn names_are_those_of_the_two_programs_and_are_known_again() {
        let of = |names, kind| name(names, kind, NOW.unsigned_abs(), 3600).unwrap();
        assert_eq!(of(SnapshotNames::Sanoid, Hourly), "autosnap_2026-11-30_10:10:11_hourly");
        assert_eq!(of(SnapshotNames::ZfsAutoSnapshot, Frequent), "zfs-auto-snap_frequent-2026-11-30-1010");
        assert!(of(SnapshotNames::Sanoid, Frequent).ends_with("_frequently"));
        for names in SnapshotNames::ALL {
            for kind in SnapshotKind::ALL {
                assert_eq!(SnapshotKind::of_name(&of(names, kind)), Some(kind));
            }
        }
        for other in [
            "autosnap_hourly",
            "autosnap_2026-11-30_10:10:11_mine",
            "zfs-auto-snap_hourly-x",
            "autosnap_2026-11-30_10:10:1é_hourly",
            "autosnap_2026-11-30_10:10_hourly",
            "mine",
        ] {
            assert_eq!(SnapshotKind::of_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_snapshot_is_due_once_in_a_slot() {
        for (kind, same, before) in [
            (Frequent, NOW - 611, NOW - 612),
            (Hourly, NOW - 611, NOW - 612),
            (Daily, NOW - 9 * 3600, NOW - 10 * 3600),
            (Weekly, NOW - 9 * 3600, NOW - 10 * 3600),
            (Monthly, NOW - 29 * DAY_S, NOW - 30 * DAY_S),
            (Yearly, NOW - 333 * DAY_S, NOW - 334 * DAY_S),
        ] {
            let plan = format!("{}=3", kind.word());
            assert!(!deeds(&plan, kind, &[taken(kind, same)], NOW).is_due, "{kind:?}");
            assert!(deeds(&plan, kind, &[taken(kind, before)], NOW).is_due, "{kind:?}");
            assert!(deeds(&plan, kind, &[], NOW).is_due);
        }
        assert!(!deeds("hourly=0", Hourly, &[], NOW).is_due);
        assert!(!deeds("daily=3", Hourly, &[], NOW).is_due);
        // One of the future, taken while the clock was wrong, does not keep the others from being taken.
        assert!(deeds("hourly=3", Hourly, &[taken(Hourly, NOW + 9 * DAY_S)], NOW).is_due);
    }

    #[test]
    fn an_hour_that_the_clock_repeats_has_two_slots_and_a_day_begins_at_midnight_of_the_clock() {
        assert_ne!(slot(Hourly, NOW, 7200), slot(Hourly, NOW + 3600, 3600));
        assert_eq!(slot(Hourly, NOW, 7200), slot(Hourly, NOW, 3600));
        assert_ne!(
            slot(Hourly, NOW, 19_800),
            slot(Hourly, NOW + 1_200, 19_800),
            "India's hours begin at :30"
        );
        assert_eq!(slot(Daily, NOW, -10 * 3600), slot(Daily, NOW - 10 * 3600, 0));
    }

    #[test]
    fn only_what_a_schedule_made_goes_and_only_beyond_what_is_kept() {
        let hours = |back: i64| taken(Hourly, NOW - back * 3600);
        let mut all: Vec<Taken> = (0..6).map(hours).collect();
        all[3].is_in_use = true;
        all[4].made_as = None;
        all[5].name = "tank@renamed".to_owned();
        let names = |places: &[usize]| places.iter().map(|at| all[*at].name.clone()).collect::<Vec<_>>();
        let deed = deeds("hourly=1", Hourly, &all, NOW);
        assert_eq!((deed.is_due, deed.surplus, deed.in_use), (false, names(&[2, 1]), names(&[3])));
        // An hour later one more is taken, which counts.
        let deed = deeds("hourly=3", Hourly, &all[..3], NOW + 3600);
        assert_eq!((deed.is_due, deed.surplus), (true, names(&[2])));
        assert_eq!(deeds("hourly=0", Hourly, &all[..2], NOW).surplus, names(&[1, 0]));
        assert_eq!(deeds("daily=0", Hourly, &all, NOW), Deed::default(), "a kind that is not named is left");
    }
}
