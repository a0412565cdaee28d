//! Layouts for so many disks, side by side: what fits on them, which failures they survive, how fast they
//! are.
//!
//! The layouts are those that use all disks, of vdevs that are alike: single disks, mirrors of two and three,
//! raidz of each parity in vdevs of moderate width, and draid where there are disks enough. Each is asked of
//! the models of space, speed and rebuilds. What these take besides the number of disks and their size is
//! assumed here, the same for all layouts, and said with each:
//!
//! | assumed | value |
//! |---|---|
//! | the model of the disks | `hdd-7200` where they rotate, else `sata-ssd` |
//! | share of the pool in use | a half, from the start of each disk |
//! | a disk fails within a year | 1.5 % |
//! | a bit cannot be read | 1e-15 |
//! | blocks of small requests | 16 KiB |
//! | blocks of large files | 128 KiB, which space is reckoned by |
//!
//! Small writes come to the disks in order, many at a time. So they take the disks' bandwidth for writes,
//! with the parity, copies and padding that a small block has.

use std::fmt;

use serde::Serialize;

use super::rebuild::{Devices, Rebuild};
use super::space::cost;
use super::speed::{self, Placed, Speed, Stable};
use super::{Model, bytes, duration, percent};
use crate::error::{Error, Result};
use crate::layout::{Layout, Vdev};
use crate::size::Size;
use crate::table;

/// Devices that a layout may have.
const MOST_DISKS: u64 = 255;
/// Widths of raidz vdevs: wider ones read small blocks slowly and are rebuilt for long.
const MOST_WIDTH: u64 = 12;
/// Vdevs of raidz that are this narrow are mirrors with other words.
const LEAST_DATA: u64 = 2;
/// Disks from which on draid is looked at.
const LEAST_DRAID: u64 = 10;
/// Data columns of its groups that are looked at.
const DRAID_DATA: [u64; 2] = [4, 8];
/// Raidz vdevs of one parity that are looked at, from the widest on.
const MOST_OF_A_PARITY: usize = 3;
/// Clients at once, for small reads.
const CLIENTS: usize = 32;
/// Sectors have 2^this bytes.
const ASHIFT: u32 = 12;
const SMALL_BLOCK: Size = Size(16 << 10);
const LARGE_BLOCK: Size = Size(128 << 10);
/// The share of the pool that is in use.
const FULL: f64 = 0.5;
/// Mean size of a block's piece on a disk.
const PIECE: Size = Size(64 << 10);
/// Of the space, OpenZFS keeps this part for itself, but no more than this (`spa_slop_shift`,
/// `spa_max_slop`).
const SLOP_PART: f64 = 32.0;
const MOST_SLOP: f64 = (128u64 << 30) as f64;

/// The disks that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Disks {
    /// How many, spares among them.
    pub count: u64,
    /// The size of the smallest.
    pub size: Size,
    /// Whether they rotate.
    pub rotational: bool,
    /// How many are kept as spares.
    pub spares: u64,
}

/// A layout of such disks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Its vdevs.
    pub layout: String,
    /// The disks that are kept as spares beside it.
    pub spares: u64,
    /// Bytes of data that fit, in blocks of large files.
    pub usable_bytes: f64,
    /// How many disks may fail at once, whichever these are.
    pub survives: u64,
    /// The chance that the pool is lost within a year.
    pub lost_in_a_year: f64,
    /// Seconds of a rebuild that reads and writes in order; none where nothing can be rebuilt.
    pub rebuild_seconds: Option<f64>,
    /// The same with a random access for each piece.
    pub rebuild_seconds_at_worst: Option<f64>,
    /// Small random reads in a second, of many clients.
    pub read_iops: f64,
    /// Small random writes in a second, of many clients that need not wait for them.
    pub write_iops: f64,
    /// Bytes read in order in a second.
    pub read_bytes_per_second: f64,
    /// Bytes written in order in a second.
    pub write_bytes_per_second: f64,
    /// What else is to be known.
    pub remarks: Vec<String>,
}

/// Layouts for some disks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layouts {
    /// The disks.
    pub disks: Disks,
    /// The model of the disks.
    pub device: String,
    /// The layouts, those that survive the most failures first.
    pub choices: Vec<Choice>,
}

impl Layouts {
    /// Of these disks.
    ///
    /// # Errors
    /// There are none, or too many; their size is none that figures are given for.
    pub fn of(disks: Disks) -> Result<Self> {
        let wrong = |what: String| Err(Error::Model(what));
        if disks.count == 0 || disks.count > MOST_DISKS {
            return wrong(format!("{} disks: layouts have 1 to {MOST_DISKS}", disks.count));
        }
        if disks.spares >= disks.count {
            let Disks { count, spares, .. } = disks;
            return wrong(format!("{spares} of {count} disks as spares leave none for data"));
        }
        super::require_size("size of a disk", disks.size, super::LEAST, super::MOST)?;
        let name = if disks.rotational { "hdd-7200" } else { "sata-ssd" };
        let mut choices = Vec::new();
        for (vdev, count, spares) in candidates(disks.count, disks.spares) {
            choices.push(choice(disks, name, vdev, count, spares)?);
        }
        choices.sort_by(|one, other| {
            let by = |it: &Choice| (std::cmp::Reverse(it.survives), it.lost_in_a_year);
            let ((one, lost), (other, lost_by_other)) = (by(one), by(other));
            one.cmp(&other).then(lost.total_cmp(&lost_by_other))
        });
        Ok(Self { disks, device: name.to_owned(), choices })
    }
}

/// Vdevs with how many there are of them, and how many disks are spares beside them.
fn candidates(disks: u64, spares: u64) -> Vec<(Vdev, u64, u64)> {
    let data = disks - spares;
    let mut all = vec![(Vdev::Disk, data, spares)];
    let mirrors = [2, 3].into_iter().filter(|ways| data.is_multiple_of(*ways));
    all.extend(mirrors.map(|ways| (Vdev::Mirror { ways }, data / ways, spares)));
    for parity in 1..=3 {
        let widths =
            (parity + LEAST_DATA..=MOST_WIDTH.min(data)).rev().filter(|width| data.is_multiple_of(*width));
        let raidz = widths.map(|width| (Vdev::Raidz { parity, width }, data / width, spares));
        all.extend(raidz.take(MOST_OF_A_PARITY));
    }
    // Its spares are room on all disks, so that none is kept beside it.
    let room = spares.max(1);
    for parity in 1..=3 {
        let fits = |data: &u64| disks >= LEAST_DRAID && data + parity + room <= disks;
        let of = |data| Vdev::Draid { parity, data, children: disks, spares: room };
        all.extend(DRAID_DATA.into_iter().filter(fits).map(|data| (of(data), 1, 0)));
    }
    all
}

fn choice(disks: Disks, device: &str, vdev: Vdev, count: u64, spares: u64) -> Result<Choice> {
    let words = match vdev.keyword() {
        None => count.to_string(),
        Some(keyword) => vec![format!("{keyword} {}", vdev.devices()); count as usize].join(" + "),
    };
    let layout: Layout = words.parse()?;
    let model = speed::device(device)?;
    let placed = [Placed { used: FULL, metaslabs: None }];
    let speed = Speed::of(&layout, model, &Stable::default(), SMALL_BLOCK, &placed)?;
    let rebuild = Rebuild::of(&layout, Devices::of_model(model, disks.size, FULL, PIECE)?)?;
    let share_of = |block: Size| {
        let room = match vdev {
            Vdev::Draid { children, spares, .. } => (children - spares) as f64 / children as f64,
            _ => 1.0,
        };
        cost(vdev, ASHIFT, block.0).efficiency * room
    };
    let raw = layout.devices() as f64 * disks.size.0 as f64;
    // Parity is no space of the pool's, nor are copies.
    let space = raw * share_of(LARGE_BLOCK);
    let usable_bytes = space - (space / SLOP_PART).min(MOST_SLOP);
    // The model's bandwidth has parity and copies as large blocks have them.
    let padding = share_of(SMALL_BLOCK) / share_of(LARGE_BLOCK).max(f64::MIN_POSITIVE);
    let known = |seconds: f64| Some(seconds).filter(|seconds| seconds.is_finite());
    Ok(Choice {
        layout: words,
        spares,
        usable_bytes,
        survives: vdev.tolerance(),
        lost_in_a_year: rebuild.lost_in_a_year,
        rebuild_seconds: known(rebuild.seconds_at_best),
        rebuild_seconds_at_worst: known(rebuild.seconds_at_worst),
        read_iops: speed.iops(CLIENTS).unwrap_or_default(),
        write_iops: speed.write_limit * padding.min(1.0) / SMALL_BLOCK.0 as f64,
        read_bytes_per_second: speed.read_limit,
        write_bytes_per_second: speed.write_limit,
        remarks: remarks(disks, vdev, count, &rebuild),
    })
}

/// What people should know of a layout that the figures do not say.
fn remarks(disks: Disks, vdev: Vdev, count: u64, rebuild: &Rebuild) -> Vec<String> {
    let mut all = Vec::new();
    if vdev.tolerance() == 0 {
        all.push("The first disk that fails takes the pool with it.".to_owned());
    }
    if vdev.tolerance() == 1 && rebuild.block_lost > 0.01 {
        all.push(format!(
            "While a failed disk is rebuilt, the chance that some block cannot be read is {}.",
            percent(rebuild.block_lost)
        ));
    }
    if matches!(vdev, Vdev::Mirror { .. }) && count > 1 {
        all.push("More disks may fail, as long as one of each mirror is left.".to_owned());
    }
    if matches!(vdev, Vdev::Raidz { .. }) && count > 1 {
        all.push(format!("More disks may fail, as long as no vdev loses more than {}.", vdev.tolerance()));
    }
    if let Vdev::Raidz { parity, width } = vdev
        && cost(vdev, ASHIFT, SMALL_BLOCK.0).efficiency < 0.9 * (width - parity) as f64 / width as f64
    {
        let share = cost(vdev, ASHIFT, SMALL_BLOCK.0).efficiency;
        all.push(format!(
            "Blocks of {SMALL_BLOCK}, as volumes have them, use only {} of the space for data.",
            percent(share)
        ));
    }
    if let Vdev::Draid { spares, .. } = vdev {
        if disks.spares == 0 {
            all.push("Room for one spare is spread over all disks.".to_owned());
        } else {
            all.push(format!("Room for {spares} of the disks as spares is spread over all disks."));
        }
        all.push("Each block takes whole groups, so that small blocks waste space.".to_owned());
    }
    all
}

impl Model for Layouts {
    const FORMULA: &'static str =
        "those of `space` (blocks of 128 KiB), `speed` (blocks of 16 KiB) and `rebuild`, half full";
    const SOURCE: &'static str = "OpenZFS 2.3: vdev_raidz.c, vdev_draid.c, spa_misc.c (spa_get_slop_space)";
}

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disks { count, size, spares, .. } = self.disks;
        writeln!(f, "{count} disks of {size} ({}), {spares} of them spares", self.device)?;
        let titles = ["layout", "space", "survives", "lost/year", "rebuild", "reads/s", "writes/s", "read"];
        let mut rows = Vec::new();
        for choice in &self.choices {
            // Many likes are one.
            let parts: Vec<&str> = choice.layout.split(" + ").collect();
            let layout = match parts.as_slice() {
                [one, _, ..] => format!("{} x {one}", parts.len()),
                _ => choice.layout.clone(),
            };
            rows.push(vec![
                layout,
                bytes(choice.usable_bytes),
                choice.survives.to_string(),
                percent(choice.lost_in_a_year),
                choice.rebuild_seconds.map_or_else(|| "-".to_owned(), duration),
                format!("{:.0}", choice.read_iops),
                format!("{:.0}", choice.write_iops),
                bytes(choice.read_bytes_per_second) + "/s",
            ]);
        }
        f.write_str(&table::plain(&titles, &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u64, spares: u64) -> Layouts {
        Layouts::of(Disks { count, size: Size(8 << 40), rotational: true, spares }).unwrap()
    }

    fn find(layouts: &Layouts, name: &str) -> Choice {
        let names: Vec<&str> = layouts.choices.iter().map(|it| it.layout.as_str()).collect();
        let found = layouts.choices.iter().find(|choice| choice.layout == name).cloned();
        found.unwrap_or_else(|| panic!("{name}: {names:?}"))
    }

    #[test]
    fn layouts_use_all_disks_but_for_spares_and_are_those_of_the_lab() {
        for (count, spares) in [(1, 0), (2, 0), (5, 1), (6, 0), (12, 2), (24, 2), (60, 3), (255, 0)] {
            for choice in of(count, spares).choices {
                let layout: Layout = choice.layout.parse().unwrap();
                assert_eq!(layout.devices() + choice.spares, count, "{choice:?}");
                let figures = [
                    choice.usable_bytes,
                    choice.read_iops,
                    choice.write_iops,
                    choice.read_bytes_per_second,
                    choice.write_bytes_per_second,
                ];
                assert!(figures.iter().all(|it| it.is_finite() && *it > 0.0), "{choice:?}");
                assert!((0.0..=1.0).contains(&choice.lost_in_a_year), "{choice:?}");
                assert_eq!(choice.rebuild_seconds.is_none(), choice.survives == 0, "{choice:?}");
            }
        }
    }

    #[test]
    fn layouts_are_told_apart() {
        let six = of(6, 0);
        let (mirrors, raidz2) = (find(&six, "mirror 2 + mirror 2 + mirror 2"), find(&six, "raidz2 6"));
        assert_eq!((mirrors.survives, raidz2.survives), (1, 2));
        assert!(mirrors.read_iops > 2.0 * raidz2.read_iops);
        assert!(raidz2.usable_bytes > 1.2 * mirrors.usable_bytes);
        assert!(raidz2.lost_in_a_year < mirrors.lost_in_a_year);
        let tib = (1u64 << 40) as f64;
        assert!((23.0 * tib..24.0 * tib).contains(&mirrors.usable_bytes), "{}", mirrors.usable_bytes);
        assert_eq!(six.choices.last().unwrap().layout, "6", "what survives nothing is the last");
        assert!(six.to_string().contains("3 x mirror 2"), "{six}");
        find(&of(24, 2), "draid2:8d:24c:2s 24");
        let draid = find(&of(24, 0), "draid2:8d:24c:1s 24");
        assert!(draid.remarks[0].contains("one spare"), "{:?}", draid.remarks);
    }

    #[test]
    fn disks_that_make_no_pool_are_refused() {
        let disks = Disks { count: 4, size: Size(1 << 40), rotational: false, spares: 0 };
        for wrong in [
            Disks { count: 0, ..disks },
            Disks { count: 256, ..disks },
            Disks { spares: 4, ..disks },
            Disks { spares: u64::MAX, ..disks },
            Disks { size: Size(1 << 20), ..disks },
            Disks { size: Size(u64::MAX), ..disks },
        ] {
            assert!(Layouts::of(wrong).is_err(), "{wrong:?}");
        }
    }
}
