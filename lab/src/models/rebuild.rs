//! Odds to survive failures, and what a rebuild takes.
//!
//! # Which failures are survived
//! A pool lives while each vdev has lost no more devices than it tolerates. Of the `C(n, k)` ways in which
//! `k` of `n` devices fail, those are counted: a vdev with `w` devices and tolerance `t` has `C(w, j)` of
//! them for `j <= t`; the numbers of several vdevs are multiplied as polynomials. All devices are taken to
//! fail alike.
//!
//! # A rebuild
//! The new device gets what the lost one held: that over its bandwidth at best, and one random access for
//! each block at worst. A mirror loads one partner, raidz every device of the vdev, draid all devices with a
//! part of it each. Meanwhile the pool is lost when more devices fail than are tolerated beyond the first
//! (`1 - e^(-t/MTTF)` each); where none is tolerated any more, one unreadable sector among what must be read
//! loses a block.
//!
//! # Over the years
//! A vdev is a chain of states, so many devices lost, with failures `(w - j) / MTTF` and rebuilds `1 / T`
//! between them; the mean time from none to too many follows from the recurrence of birth-death chains. It
//! takes failures for independent, which those of one batch, one shelf and one heat are not: real odds are
//! worse.

use std::fmt;

use serde::Serialize;

use super::speed::{Placed, Speed, Stable};
use super::{Model, bytes, duration, percent};
use crate::error::{Error, Result};
use crate::layout::{Layout, Vdev};
use crate::size::Size;
use crate::table;

/// The chance that a device fails within a year, unless another one is given.
pub const ANNUAL_FAILURE_RATE: f64 = 0.015;
/// The chance that a bit cannot be read, unless another one is given.
pub const BIT_ERROR_RATE: f64 = 1e-15;

const YEAR_SECONDS: f64 = 365.25 * 86_400.0;
/// Failures that odds are given for.
const MOST_FAILURES: u64 = 6;

/// The reliability and speed of devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Devices {
    /// Size of one.
    pub size: Size,
    /// Share of it that is allocated.
    pub full: f64,
    /// Bytes a second that it reads or writes in order.
    pub bytes_per_second: f64,
    /// Random accesses a second.
    pub iops: f64,
    /// Mean size of a block's piece on one device.
    pub piece: Size,
    /// The chance that it fails within a year.
    pub annual_failure_rate: f64,
    /// The chance that a bit cannot be read.
    pub bit_error_rate: f64,
}

impl Devices {
    /// Such devices of a model, of which this share is full of blocks whose pieces have this size.
    ///
    /// # Errors
    /// Pieces of a size that no block has.
    pub fn of_model(model: device::simulated::Model, size: Size, full: f64, piece: Size) -> Result<Self> {
        // What is no share is told by the model of rebuilds itself.
        let placed = [Placed { used: full.clamp(0.001, 1.0), metaslabs: None }];
        let alone = Speed::of(&"1".parse()?, model, &Stable::default(), piece, &placed)?;
        Ok(Self {
            size,
            full,
            bytes_per_second: model.write_bytes_per_second.min(model.read_bytes_per_second) as f64,
            iops: alone.iops(1).unwrap_or(1.0),
            piece,
            annual_failure_rate: ANNUAL_FAILURE_RATE,
            bit_error_rate: BIT_ERROR_RATE,
        })
    }
}

/// The fate of a layout when devices fail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rebuild {
    /// The layout.
    pub layout: String,
    /// Its devices.
    pub devices: Devices,
    /// How many there are.
    pub count: u64,
    /// The share of their space that is data.
    pub efficiency: f64,
    /// The chance to survive one failure, two, three …, at the same time.
    pub survival: Vec<f64>,
    /// The chance to survive each of these failures where all before it were survived and none is rebuilt
    /// yet: the first, the second, the third …
    pub conditional: Vec<f64>,
    /// The chance to survive one more failure before the first is rebuilt.
    pub next: f64,
    /// Seconds of a rebuild that reads and writes in order.
    pub seconds_at_best: f64,
    /// Seconds of a rebuild with a random access for each piece.
    pub seconds_at_worst: f64,
    /// Devices that are read meanwhile.
    pub loaded: u64,
    /// Bytes that are read.
    pub read: f64,
    /// The chance that the vdev is lost before a rebuild is done, at its worst.
    pub lost_meanwhile: f64,
    /// The chance that a block cannot be read while nothing makes up for it.
    pub block_lost: f64,
    /// The chance that the pool is lost within a year.
    pub lost_in_a_year: f64,
}

impl Rebuild {
    /// Of a layout of such devices. Where vdevs differ, the rebuild is of the first.
    pub fn of(layout: &Layout, devices: Devices) -> Result<Self> {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        if !is_share(devices.full)
            || !is_share(devices.annual_failure_rate)
            || !is_share(devices.bit_error_rate)
        {
            return Err(Error::Experiment("shares and chances are from 0 to 1".into()));
        }
        super::require_size("size of a device", devices.size, super::LEAST, super::MOST)?;
        let held = devices.size.0 as f64 * devices.full;
        if held < devices.piece.0 as f64 {
            return Err(Error::Experiment(format!(
                "a device of {} that is {} full does not hold a piece of {}",
                devices.size,
                percent(devices.full),
                devices.piece
            )));
        }
        if devices.bytes_per_second < 1.0 || devices.iops < 1e-3 || devices.piece.0 == 0 {
            return Err(Error::Experiment("devices need a bandwidth, IOPS and a piece above zero".into()));
        }
        let count = layout.devices();
        let survival: Vec<f64> =
            (1..=count.min(MOST_FAILURES)).map(|failures| survival(layout, failures)).collect();
        let data: f64 = layout.vdevs().iter().map(|vdev| vdev.devices() as f64 * vdev.ideal()).sum();
        let first = layout.vdevs().first().copied().unwrap_or(Vdev::Disk);
        let (loaded, share_of_each) = match first {
            Vdev::Disk => (0, 0.0),
            Vdev::Mirror { .. } => (1, 1.0),
            Vdev::Raidz { width, .. } => (width - 1, 1.0),
            // Each block needs its group's data columns, and is written again; all other devices share both.
            Vdev::Draid { data, children, spares, .. } if spares > 0 => {
                (children - 1, (data + 1) as f64 / (children - 1) as f64)
            }
            Vdev::Draid { children, .. } => (children - 1, 1.0),
        };
        let time = |seconds: f64| if loaded == 0 { f64::INFINITY } else { seconds };
        let seconds_at_best = time(held * share_of_each / devices.bytes_per_second);
        let seconds_at_worst =
            seconds_at_best.max(time(held * share_of_each / devices.piece.0 as f64 / devices.iops));
        let read = match first {
            Vdev::Draid { data, .. } => held * data as f64,
            Vdev::Raidz { parity, width } => held * (width - parity) as f64,
            _ => held * loaded as f64,
        };
        let mttf_seconds = YEAR_SECONDS / -(1.0 - devices.annual_failure_rate.min(0.999_999)).ln();
        let one = 1.0 - (-seconds_at_worst / mttf_seconds).exp();
        let lost_meanwhile = match first.tolerance() {
            0 => 1.0,
            tolerance => at_least(first.devices() - 1, tolerance, one),
        };
        let block_lost = match first.tolerance() {
            1 => 1.0 - (read * 8.0 * (-devices.bit_error_rate).ln_1p()).exp(),
            0 => 1.0,
            _ => 0.0,
        };
        let losses_a_second: f64 = layout
            .vdevs()
            .iter()
            .map(|vdev| {
                1.0 / seconds_to_loss(vdev.devices(), vdev.tolerance(), mttf_seconds, seconds_at_worst)
            })
            .sum();
        Ok(Self {
            layout: layout.to_string(),
            devices,
            count,
            efficiency: data / count as f64,
            next: match survival.as_slice() {
                [first, second, ..] if *first > 0.0 => second / first,
                _ => 0.0,
            },
            conditional: conditional(&survival),
            survival,
            seconds_at_best,
            seconds_at_worst,
            loaded,
            read,
            lost_meanwhile,
            block_lost,
            lost_in_a_year: -(-YEAR_SECONDS * losses_a_second).exp_m1(),
        })
    }
}

/// Ways to choose `k` of `n`.
fn choose(n: u64, k: u64) -> f64 {
    (0..k.min(n)).map(|index| (n - index) as f64 / (k - index) as f64).product::<f64>()
        * f64::from(u8::from(k <= n))
}

/// The chance that a pool lives when `failures` of its devices have failed.
fn survival(layout: &Layout, failures: u64) -> f64 {
    let most = failures as usize;
    // How many ways there are to have so many failures and live.
    let mut ways = vec![0.0; most + 1];
    ways[0] = 1.0;
    for vdev in layout.vdevs() {
        let mut with = vec![0.0; most + 1];
        for (already, ways) in ways.iter().enumerate() {
            for more in 0..=vdev.tolerance().min((most - already) as u64) {
                with[already + more as usize] += ways * choose(vdev.devices(), more);
            }
        }
        ways = with;
    }
    ways[most] / choose(layout.devices(), failures)
}

/// The chance to survive each failure after all before it: 0 where nothing is left to lose.
fn conditional(survival: &[f64]) -> Vec<f64> {
    let before = std::iter::once(&1.0).chain(survival);
    let each = survival.iter().zip(before);
    each.map(|(now, before)| if *before > 0.0 { now / before } else { 0.0 }).collect()
}

/// The chance that at least `least` of `n` do what each does with chance `p`.
fn at_least(n: u64, least: u64, p: f64) -> f64 {
    // From the far end: the sum of small terms is exact where one minus the others would not be.
    (least..=n).map(|k| choose(n, k) * p.powf(k as f64) * (1.0 - p).powf((n - k) as f64)).sum()
}

/// Mean seconds until a vdev has lost more than it tolerates; rebuilds run one at a time.
fn seconds_to_loss(devices: u64, tolerance: u64, mttf_seconds: f64, rebuild_seconds: f64) -> f64 {
    // From `lost` devices lost to one more takes, in the mean, 1/failures plus the chance to be rebuilt first
    // times the way back.
    let mut total = 0.0;
    let mut step = 0.0;
    for lost in 0..=tolerance {
        let failures = devices.saturating_sub(lost) as f64 / mttf_seconds;
        let rebuilds = if lost == 0 { 0.0 } else { 1.0 / rebuild_seconds };
        step = 1.0 / failures + rebuilds / failures * step;
        total += step;
    }
    total
}

impl Model for Rebuild {
    const FORMULA: &'static str = "survival of k failures: ways to have them within each vdev's tolerance / \
        C(n, k); rebuild: held / bandwidth to held / piece / IOPS; a year: birth-death chain with (w - j) / \
        MTTF and 1 / T";
    const SOURCE: &'static str =
        "Patterson, Gibson and Katz 1988 (RAID); Gibson 1992 (MTTDL); OpenZFS documentation on dRAID";
}

impl fmt::Display for Rebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} devices, {} of their space is data",
            self.layout,
            self.count,
            percent(self.efficiency)
        )?;
        let rows: Vec<Vec<String>> = self
            .survival
            .iter()
            .zip(&self.conditional)
            .enumerate()
            .map(|(index, (chance, next))| {
                vec![(index + 1).to_string(), percent(*chance), percent(*next), super::bar(*chance)]
            })
            .collect();
        let head = ["failed at once", "survived", "after those before", ""];
        writeln!(f, "\n{}", table::plain(&head, &rows))?;
        let mut rows = vec![vec!["survives the next failure".to_owned(), percent(self.next)]];
        if self.loaded > 0 {
            rows.extend([
                vec![
                    "rebuild, in order at full bandwidth".to_owned(),
                    format!("{} at least", duration(self.seconds_at_best)),
                ],
                vec![
                    format!("rebuild, one random access for each {}", self.devices.piece),
                    format!("{} at most, if nothing else uses the devices", duration(self.seconds_at_worst)),
                ],
                vec!["reads".to_owned(), format!("{} from {} devices", bytes(self.read), self.loaded)],
                vec!["vdev lost meanwhile".to_owned(), percent(self.lost_meanwhile)],
                vec!["some block lost meanwhile".to_owned(), percent(self.block_lost)],
            ]);
        }
        rows.push(vec!["pool lost in a year".to_owned(), percent(self.lost_in_a_year)]);
        f.write_str(table::plain(&["", ""], &rows).trim_start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Devices {
        Devices {
            size: Size(4 << 40),
            full: 0.5,
            bytes_per_second: 200e6,
            iops: 76.0,
            piece: Size(128 << 10),
            annual_failure_rate: 0.015,
            bit_error_rate: 1e-15,
        }
    }

    /// Counts every way in which so many devices fail.
    fn counted(layout: &Layout, failures: u32) -> f64 {
        let (mut all, mut alive) = (0, 0);
        for failed in 0_u32..1 << layout.devices() {
            if failed.count_ones() != failures {
                continue;
            }
            let mut rest = failed;
            let lives = layout.vdevs().iter().all(|vdev| {
                let lost = (rest & ((1 << vdev.devices()) - 1)).count_ones();
                rest >>= vdev.devices();
                u64::from(lost) <= vdev.tolerance()
            });
            all += 1;
            alive += u32::from(lives);
        }
        f64::from(alive) / f64::from(all)
    }

    #[test]
    fn survival_is_what_counting_all_cases_gives() {
        for layout in [
            "mirror 2 + mirror 2 + mirror 2",
            "raidz2 6",
            "raidz1 3 + raidz2 5",
            "mirror 3 + 2",
            "draid2:2d:1s 9",
        ] {
            let layout: Layout = layout.parse().unwrap();
            for failures in 1..=4 {
                let (model, counted) = (survival(&layout, failures.into()), counted(&layout, failures));
                assert!((model - counted).abs() < 1e-12, "{layout} {failures}: {model} {counted}");
            }
        }
    }

    #[test]
    fn mirrors_survive_the_next_failure_more_often_than_raidz1_and_less_than_raidz2() {
        let next = |layout: &str| Rebuild::of(&layout.parse().unwrap(), devices()).unwrap().next;
        assert!((next("mirror 2 + mirror 2 + mirror 2") - 4.0 / 5.0).abs() < 1e-12);
        assert_eq!((next("raidz1 6"), next("raidz2 6"), next("6")), (0.0, 1.0, 0.0));
    }

    #[test]
    fn a_mirror_is_lost_as_published() {
        // Gibson: (3 l + m) / 2 l^2 for failures l and rebuilds m.
        let (mttf, rebuild) = (1e8, 1e4);
        let (l, m) = (1.0 / mttf, 1.0 / rebuild);
        let expected = (3.0 * l + m) / (2.0 * l * l);
        assert!((seconds_to_loss(2, 1, mttf, rebuild) / expected - 1.0).abs() < 1e-9);
    }

    #[test]
    fn vdevs_live_as_long_as_when_they_are_played_through() {
        let mut rng = fastrand::Rng::with_seed(3);
        for (count, tolerance) in [(3_u64, 1_u64), (6, 2)] {
            // Rebuilds slow enough that it ends.
            let (mttf, rebuild) = (100.0, 20.0);
            let exponential = |rng: &mut fastrand::Rng, rate: f64| -(1.0 - rng.f64()).ln() / rate;
            let trials = 20_000;
            let mut total = 0.0;
            for _ in 0..trials {
                let (mut lost, mut now) = (0, 0.0);
                while lost <= tolerance {
                    let failure = exponential(&mut rng, (count - lost) as f64 / mttf);
                    let rebuilt = if lost > 0 { exponential(&mut rng, 1.0 / rebuild) } else { f64::INFINITY };
                    now += failure.min(rebuilt);
                    lost = if failure < rebuilt { lost + 1 } else { lost - 1 };
                }
                total += now;
            }
            let (played, model) =
                (total / f64::from(trials), seconds_to_loss(count, tolerance, mttf, rebuild));
            assert!((played / model - 1.0).abs() < 0.03, "{count} {tolerance}: {played} {model}");
        }
    }

    #[test]
    fn devices_that_cannot_be_are_refused() {
        let of = |devices| Rebuild::of(&"mirror 2".parse().unwrap(), devices).map_err(|it| it.to_string());
        assert!(of(devices()).is_ok());
        for (wrong, told) in [
            (Devices { size: Size(0), ..devices() }, "size of a device: 0"),
            (Devices { size: Size(1 << 60), ..devices() }, "size of a device"),
            (Devices { full: 0.0, ..devices() }, "does not hold a piece"),
            (Devices { full: -0.5, ..devices() }, "from 0 to 1"),
            (Devices { full: f64::NAN, ..devices() }, "from 0 to 1"),
            (Devices { annual_failure_rate: 1.5, ..devices() }, "from 0 to 1"),
            (Devices { piece: Size(0), ..devices() }, "above zero"),
        ] {
            assert!(of(wrong).is_err_and(|error| error.contains(told)), "{told}: {wrong:?}");
        }
    }

    #[test]
    fn rebuilds_take_what_must_be_moved() {
        let of = |layout: &str| Rebuild::of(&layout.parse().unwrap(), devices()).unwrap();
        let mirror = of("mirror 2");
        assert!((mirror.seconds_at_best - (2_u64 << 40) as f64 / 200e6).abs() < 1.0);
        assert_eq!((mirror.loaded, of("raidz2 8").loaded), (1, 7));
        assert!(of("draid2:4d:1s 30").seconds_at_best < mirror.seconds_at_best / 5.0);
        assert!(mirror.block_lost > 0.0 && of("raidz2 8").block_lost == 0.0);
        assert!(of("raidz2 8").lost_in_a_year < of("raidz1 8").lost_in_a_year);
        assert!(of("4").lost_in_a_year > 0.05, "nothing makes up for a failure");
    }
}
