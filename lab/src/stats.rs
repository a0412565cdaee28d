//! Intervals and comparisons.
//!
//! # Two variants
//! A round runs both close in time, so their ratio within the round is free of what drifts. The logarithms of
//! the ratios of `n` rounds are taken as draws around the true one: mean, Student's t interval with `n - 1`
//! degrees of freedom, and the p-value of "no difference". Logarithms make a gain and the loss that undoes it
//! equally large.
//!
//! # No difference
//! That no difference was shown is not that there is none: of few rounds, or of a machine that is not quiet,
//! nothing is ever shown. So it is tested as well, by two one-sided tests: that the ratio is not above 1 by a
//! tenth or more ([`MARGIN`]), and not below it by as much. The larger of the two p-values,
//! [`Comparison::p_apart`], is the chance of rounds as near to each other as these where variants are a tenth
//! apart.
//!
//! # Many comparisons
//! Of a hundred true "no difference" five would be called otherwise. [`holm`] corrects the p-values of all
//! comparisons of an experiment so that the chance of a single false alarm among them is what one comparison
//! alone would have.
//!
//! [`against_all`] compares one with each of some others, where that one was chosen for its figure: all pairs
//! of them are the family then, because any could have been chosen.
//!
//! # One variant
//! The interval of a figure is Student's too, of the logarithms of its rounds. Of five rounds or fewer
//! nothing that only looks at their order could hold the truth in 95 of 100 cases: the middle of two draws
//! lies between them in 50, that of five in 94. It holds what it says where rounds are alike; where they
//! drift it gets wider, and only ratios within rounds are free of that.
//!
//! Intervals are each for itself, and not corrected for being many.
//!
//! Sources: Student 1908; Holm 1979, "A simple sequentially rejective multiple test procedure"; Schuirmann
//! 1987 (two one-sided tests).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Share of intervals that hold the truth.
pub const CONFIDENCE: f64 = 0.95;
/// A difference that is certainly smaller than this share does not matter for a choice.
pub const MARGIN: f64 = 0.1;
/// How often the predicted number of rounds is enough.
const POWER: f64 = 0.8;
/// More rounds than this are not computed: they would not be run.
pub const MOST_ROUNDS: usize = 1024;

/// A figure and the interval that it most likely lies in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// A ratio in as many digits as it takes to distinguish it from 1 and from nothing, and no more.
pub fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio != 1.0 && (ratio - 1.0).abs() < 0.01 => format!("{ratio:.4}"),
        100.0.. => format!("{ratio:.0}"),
        10.0.. => format!("{ratio:.1}"),
        0.1.. => format!("{ratio:.2}"),
        0.01.. => format!("{ratio:.3}"),
        _ => format!("{ratio:.4}"),
    }
}

/// How many times the figure an interval may reach for it to say anything.
const WIDEST: f64 = 10.0;

impl Estimate {
    /// The interval in words: `low to high`, or that so few rounds leave everything open, where it reaches
    /// ten times the figure.
    pub fn interval(&self, written: impl Fn(f64) -> String) -> String {
        if self.value > 0.0 && self.high > WIDEST * self.value {
            return "not known".to_owned();
        }
        format!("{} to {}", written(self.low), written(self.high))
    }

    /// A ratio with its interval in words: `1.50 (1.20 to 1.90)`.
    pub fn ratio_words(&self) -> String {
        format!("{} ({})", times(self.value), self.ratio_interval())
    }

    /// The interval of a ratio in words.
    pub fn ratio_interval(&self) -> String {
        self.interval(times)
    }

    /// The inverse, of a ratio.
    pub fn inverse(&self) -> Self {
        Self { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low }
    }
}

/// The median; `None` of nothing.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[middle - 1] + upper) / 2.0 })
}

/// The median, and the interval of what it is of: Student's, of the logarithms, or of the values themselves
/// where one is not above zero. The median is always in it. One value has none but itself.
pub fn median_estimate(samples: &[f64]) -> Option<Estimate> {
    let value = median(samples)?;
    let interval = |values: &[f64]| {
        let (mean, variance) = moments(values);
        let reach = student_reach((values.len() - 1) as f64)? * (variance / values.len() as f64).sqrt();
        Some((mean - reach, mean + reach))
    };
    let (low, high) = match samples {
        [_] => (value, value),
        _ if samples.iter().all(|sample| *sample > 0.0) => {
            let logs: Vec<f64> = samples.iter().map(|sample| sample.ln()).collect();
            interval(&logs).map(|(low, high)| (low.exp(), high.exp()))?
        }
        // No figure is less than nothing.
        _ => interval(samples).map(|(low, high)| (low.max(0.0), high))?,
    };
    Some(Estimate { value, low: low.min(value), high: high.max(value) })
}

/// How many standard errors an interval reaches to either side.
fn student_reach(freedom: f64) -> Option<f64> {
    student_at(f64::midpoint(1.0, CONFIDENCE), freedom)
}

/// How many standard errors a mean lies above the true one at most, but for a share of cases.
fn student_at(share: f64, freedom: f64) -> Option<f64> {
    StudentsT::new(0.0, 1.0, freedom).ok().map(|student| student.inverse_cdf(share))
}

/// One variant beside another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How many times the baseline: 1 is no change.
    pub ratio: Estimate,
    /// The chance that rounds differ as much when there is no difference.
    pub p: f64,
    /// The chance that rounds differ as little when the true ratio is off 1 by [`MARGIN`] or more.
    #[serde(default = "certain")]
    pub p_apart: f64,
    /// The standard error of the ratio's logarithm.
    #[serde(default)]
    pub error: f64,
    /// The difference in units of its spread from round to round (Cohen's d of the paired logarithms).
    pub effect_size: f64,
    /// Rounds that both had.
    pub rounds: usize,
}

fn certain() -> f64 {
    1.0
}

impl Comparison {
    /// How far one round's ratio is from another's, as a share: the standard deviation.
    pub fn spread(&self) -> f64 {
        (self.error * (self.rounds as f64).sqrt()).exp_m1()
    }

    /// Rounds after which a difference would most likely be found, or that there is none, if they go on as
    /// they did; more than there were, because those did not decide. `alpha` is what p-values must be below,
    /// and less than `noise_floor`, as a share, is no difference. More than [`MOST_ROUNDS`] are all one;
    /// `None` if no number of rounds would decide.
    pub fn rounds_to_tell(&self, alpha: f64, noise_floor: f64) -> Option<usize> {
        let (mean, margin, floor) = (self.ratio.value.ln().abs(), MARGIN.ln_1p(), noise_floor.ln_1p());
        let room = if floor < margin { margin - mean } else { 0.0 };
        if mean <= floor && room <= 0.0 {
            return None;
        }
        let is_told = |rounds: usize| {
            let freedom = (rounds - 1) as f64;
            let error = self.error * (self.rounds as f64 / rounds as f64).sqrt();
            let Some(power) = student_at(POWER, freedom) else { return false };
            let reaches = |share: f64, least: f64| {
                student_at(1.0 - share, freedom).is_some_and(|certain| (certain + power) * error < least)
            };
            // Either of the two tests of none may fail.
            (mean > floor && reaches(alpha / 2.0, mean)) || (room > 0.0 && reaches(alpha, room))
        };
        let mut most = (self.rounds + 1).max(3);
        while !is_told(most) {
            if most > MOST_ROUNDS {
                return Some(most);
            }
            most *= 2;
        }
        let mut least = self.rounds.max(2);
        while least + 1 < most {
            let middle = usize::midpoint(least, most);
            if is_told(middle) { most = middle } else { least = middle }
        }
        Some(most)
    }
}

/// Compares pairs of one round each: `(variant, baseline)`, all above zero. `None` of fewer than two.
pub fn compare(pairs: &[(f64, f64)]) -> Option<Comparison> {
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(variant, baseline)| (variant / baseline).ln())
        .filter(|log| log.is_finite())
        .collect();
    let n = logs.len();
    if n < 2 {
        return None;
    }
    let (mean, variance) = moments(&logs);
    told(mean, (variance / n as f64).sqrt(), (n - 1) as f64, variance.sqrt(), n)
}

/// Compares values of a variant with values of a baseline that were not measured together (Welch). `None` of
/// fewer than two of either.
pub fn compare_unpaired(variant: &[f64], baseline: &[f64]) -> Option<Comparison> {
    let logs = |values: &[f64]| {
        values.iter().map(|value| value.ln()).filter(|log| log.is_finite()).collect::<Vec<_>>()
    };
    let (ours, theirs) = (logs(variant), logs(baseline));
    let (n, m) = (ours.len() as f64, theirs.len() as f64);
    if n < 2.0 || m < 2.0 {
        return None;
    }
    let ((mean, variance), (other_mean, other_variance)) = (moments(&ours), moments(&theirs));
    let (a, b) = (variance / n, other_variance / m);
    let freedom = if a + b > 0.0 {
        (a + b).powi(2) / (a.powi(2) / (n - 1.0) + b.powi(2) / (m - 1.0))
    } else {
        n + m - 2.0
    };
    let spread = f64::midpoint(variance, other_variance).sqrt();
    told(mean - other_mean, (a + b).sqrt(), freedom, spread, ours.len().min(theirs.len()))
}

/// Mean and variance of a sample of two or more.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0))
}

/// Compares the first of some variants with each of the others: with the p-values corrected as if each had
/// been compared with each. All have as many rounds, side by side; `None` of others that have not two rounds
/// above zero.
pub fn against_all(first: &[f64], others: &[Vec<f64>]) -> Vec<Option<Comparison>> {
    let pair = |one: &[f64], other: &[f64]| {
        compare(&one.iter().copied().zip(other.iter().copied()).collect::<Vec<_>>())
    };
    let mut found: Vec<Option<Comparison>> = others.iter().map(|other| pair(first, other)).collect();
    let among_others = (1..others.len()).flat_map(|at| (0..at).map(move |of| (at, of)));
    let among_others = among_others.filter_map(|(at, of)| pair(&others[at], &others[of]));
    let p_values: Vec<f64> = found.iter().flatten().copied().chain(among_others).map(|it| it.p).collect();
    for (comparison, corrected) in found.iter_mut().flatten().zip(holm(&p_values)) {
        comparison.p = corrected;
    }
    found
}

/// A difference of logarithms with its standard error and degrees of freedom, as a comparison.
fn told(mean: f64, error: f64, freedom: f64, spread: f64, rounds: usize) -> Option<Comparison> {
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let reach = student_reach(freedom)? * error;
    let p = match error > 0.0 {
        true => 2.0 * student.cdf(-(mean / error).abs()),
        false if mean == 0.0 => 1.0,
        false => 0.0,
    };
    let room = MARGIN.ln_1p() - mean.abs();
    let p_apart = match error > 0.0 {
        true => student.cdf(-room / error),
        false if room > 0.0 => 0.0,
        false => 1.0,
    };
    let ratio = Estimate { value: mean.exp(), low: (mean - reach).exp(), high: (mean + reach).exp() };
    let effect_size = if spread > 0.0 { mean / spread } else { 0.0 };
    Some(Comparison { ratio, p, p_apart, error, effect_size, rounds })
}

/// Draws from a normal distribution (Box and Muller).
pub(crate) fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// The p-values, each corrected for its being one of many (Holm).
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut least = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        least = least.max(p_values[index] * (p_values.len() - rank) as f64).min(1.0);
        corrected[index] = least;
    }
    corrected
}

/// How far two equal things were apart in the mean of all rounds, from a comparison of them: as a share, 0.02
/// is two per cent.
pub fn noise_floor(equal: &Comparison) -> f64 {
    equal.ratio.value.ln().abs().exp_m1()
}

/// How far they may be apart in truth, as a share: what differs by no more than that is no difference that
/// this machine could show.
pub fn noise_reach(equal: &Comparison) -> f64 {
    equal.ratio.low.ln().abs().max(equal.ratio.high.ln().abs()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a variant that is `ratio` times the baseline, with 3 % noise each and a machine that gets
    /// slower by half on the way.
    fn rounds(rng: &mut fastrand::Rng, n: usize, ratio: f64) -> Vec<(f64, f64)> {
        let one = |rng: &mut fastrand::Rng, drift: f64| 1000.0 * drift * (0.03 * normal(rng)).exp();
        (0..n)
            .map(|round| {
                let drift = 1.0 - 0.5 * round as f64 / n as f64;
                (ratio * one(rng, drift), one(rng, drift))
            })
            .collect()
    }

    #[test]
    fn equal_variants_are_seldom_called_different() {
        let mut rng = fastrand::Rng::with_seed(7);
        let trials = 1000;
        let alarms = (0..trials).filter(|_| compare(&rounds(&mut rng, 5, 1.0)).unwrap().p < 0.05).count();
        assert!(alarms <= trials * 65 / 1000, "{alarms} of {trials}");
    }

    #[test]
    fn a_family_of_equal_variants_raises_an_alarm_in_one_of_twenty() {
        let mut rng = fastrand::Rng::with_seed(8);
        let trials = 400;
        let alarms = (0..trials).filter(|_| {
            let p: Vec<f64> = (0..12).map(|_| compare(&rounds(&mut rng, 5, 1.0)).unwrap().p).collect();
            holm(&p).iter().any(|p| *p < 0.05)
        });
        let alarms = alarms.count();
        assert!(alarms <= trials * 75 / 1000, "{alarms} of {trials}");
    }

    #[test]
    fn ratios_have_the_digits_that_say_something() {
        let all = [1.003, 0.9971, 1.0, 1.5, 0.98, 212.5, 42.42, 0.0123, 0.00123];
        assert_eq!(
            all.map(times),
            ["1.0030", "0.9971", "1.00", "1.50", "0.98", "212", "42.4", "0.012", "0.0012"]
        );
    }

    #[test]
    fn an_interval_that_holds_everything_is_not_known() {
        let of = |value: f64, low: f64, high: f64| Estimate { value, low, high };
        assert_eq!(of(2.0, 1.5, 3.0).ratio_words(), "2.00 (1.50 to 3.00)");
        assert_eq!(of(2.0, 0.01, 400.0).ratio_words(), "2.00 (not known)");
        assert_eq!(of(0.0, 0.0, 0.0).ratio_interval(), "0.0000 to 0.0000");
        assert_eq!(of(4.0, 2.0, 8.0).inverse(), of(0.25, 0.125, 0.5));
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut rng = fastrand::Rng::with_seed(9);
        for truth in [1.0, 1.03, 1.1, 1.5] {
            let trials = 1000;
            let held = (0..trials).filter(|_| {
                let ratio = compare(&rounds(&mut rng, 6, truth)).unwrap().ratio;
                (ratio.low..=ratio.high).contains(&truth)
            });
            let held = held.count();
            assert!(held >= trials * 93 / 100, "{truth}: {held} of {trials}");
        }
    }

    #[test]
    fn intervals_of_figures_hold_the_truth_as_often_as_they_say_in_few_rounds_too() {
        let mut rng = fastrand::Rng::with_seed(13);
        for n in [2, 3, 5, 8] {
            let trials = 2000;
            let held = (0..trials).filter(|_| {
                let values: Vec<f64> = (0..n).map(|_| 1000.0 * (0.05 * normal(&mut rng)).exp()).collect();
                let it = median_estimate(&values).unwrap();
                (it.low..=it.high).contains(&1000.0)
            });
            let held = held.count();
            assert!((trials * 94 / 100..=trials * 97 / 100).contains(&held), "{n}: {held} of {trials}");
        }
    }

    #[test]
    fn who_is_the_best_by_chance_is_seldom_told_from_its_equals() {
        let mut rng = fastrand::Rng::with_seed(14);
        // Of six equals the one with the highest median is compared with the rest: that alone raises three
        // times as many alarms as one pair does, where it is not corrected for.
        let trials = 400;
        let alarms = (0..trials).filter(|_| {
            let mut all: Vec<Vec<f64>> =
                (0..6).map(|_| (0..8).map(|_| (0.03 * normal(&mut rng)).exp()).collect()).collect();
            all.sort_by(|a, b| median(b).unwrap().total_cmp(&median(a).unwrap()));
            against_all(&all[0], &all[1..]).iter().flatten().any(|it| it.p < 0.05)
        });
        let alarms = alarms.count();
        assert!(alarms <= trials * 6 / 100, "{alarms} of {trials}");
        let two = against_all(&[2.0, 2.1, 2.0], &[vec![1.0, 1.01, 1.0], vec![2.0, 2.2, 1.9]]);
        assert!(two[0].unwrap().p < 0.05 && two[1].unwrap().p > 0.5, "{two:?}");
        assert_eq!(against_all(&[1.0], &[vec![1.0]]), [None]);
    }

    #[test]
    fn real_differences_are_found() {
        let mut rng = fastrand::Rng::with_seed(10);
        for (truth, least) in [(1.1, 70), (1.5, 99)] {
            let found = (0..200).filter(|_| compare(&rounds(&mut rng, 5, truth)).unwrap().p < 0.05).count();
            assert!(found * 100 >= 200 * least, "{truth}: {found} of 200");
        }
    }

    #[test]
    fn large_differences_are_found_among_many_in_five_rounds_and_seldom_in_three() {
        let mut rng = fastrand::Rng::with_seed(11);
        // One variant has a ninth of the speed; as many others as a quick form compares have all of it.
        let mut found = |n: usize, comparisons: usize| {
            let is_found = |rng: &mut fastrand::Rng| {
                let pairs = |truth: f64, rng: &mut fastrand::Rng| -> Vec<(f64, f64)> {
                    let one = |truth: f64, rng: &mut fastrand::Rng| truth * (0.08 * normal(rng)).exp();
                    (0..n).map(|_| (one(truth, rng), one(1.0, rng))).collect()
                };
                let mut p = vec![compare(&pairs(0.11, rng)).unwrap().p];
                p.extend((1..comparisons).map(|_| compare(&pairs(1.0, rng)).unwrap().p));
                holm(&p)[0] < 0.05
            };
            (0..100).filter(|_| is_found(&mut rng)).count()
        };
        let (five, three) = (found(5, 49), found(3, 112));
        assert!(five == 100 && three < 60, "{five} {three}");
    }

    #[test]
    fn variants_that_are_a_tenth_apart_are_seldom_called_equal_and_equal_ones_mostly_are() {
        let mut rng = fastrand::Rng::with_seed(15);
        let mut share = |n: usize, truth: f64| {
            let is_equal = |rng: &mut fastrand::Rng| compare(&rounds(rng, n, truth)).unwrap().p_apart < 0.05;
            (0..1000).filter(|_| is_equal(&mut rng)).count() / 10
        };
        for n in [2, 3, 5, 12] {
            let apart = [share(n, 1.1), share(n, 1.0 / 1.1), share(n, 1.5)];
            assert!(apart.iter().all(|share| *share <= 6), "{n}: {apart:?}");
        }
        let equal = [share(2, 1.0), share(5, 1.0), share(12, 1.0)];
        assert!(equal[0] < 50 && equal[1] > 90 && equal[2] == 100, "{equal:?}");
        let none = compare(&[(1.0, 1.0), (2.0, 2.0)]).unwrap();
        assert_eq!((none.p, none.p_apart), (1.0, 0.0));
    }

    #[test]
    fn as_many_rounds_as_are_foretold_are_mostly_enough() {
        let mut rng = fastrand::Rng::with_seed(16);
        for truth in [1.0, 1.05, 1.3] {
            // What many rounds show of three: the mean and the spread as they are.
            let known = Comparison {
                rounds: 3,
                error: (2.0_f64.sqrt() * 0.03) / 3.0_f64.sqrt(),
                ..compare(&[(truth, 1.0); 3]).unwrap()
            };
            let n = known.rounds_to_tell(0.05, 0.0).unwrap();
            let told = (0..500).filter(|_| {
                let it = compare(&rounds(&mut rng, n, truth)).unwrap();
                it.p < 0.05 || it.p_apart < 0.05
            });
            let told = told.count();
            assert!((350..=500).contains(&told) && n < 20, "{truth}: {told} of 500 with {n}");
        }
        let noisy = Comparison { rounds: 3, error: 0.3, ..compare(&[(1.0, 1.0); 3]).unwrap() };
        let (few, many) = (noisy.rounds_to_tell(0.05, 0.0), noisy.rounds_to_tell(0.001, 0.0));
        assert!(few > Some(100) && many > few, "{few:?} {many:?}");
        // Twins are further apart than the variant is from the baseline.
        assert_eq!(noisy.rounds_to_tell(0.05, 0.2), None);
    }

    #[test]
    fn holm_corrects_as_published() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expected).abs() < 1e-12, "{corrected:?}");
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn medians_and_their_intervals() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let estimate = median_estimate(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert!(estimate.value == 3.0 && estimate.low < 1.0 && estimate.high > 4.0, "{estimate:?}");
        let [some, none] = [[0.0, 0.2, 0.1], [0.0; 3]].map(|values| median_estimate(&values).unwrap());
        assert!(some.low == 0.0 && some.value == 0.1 && some.high > 0.2, "{some:?}");
        assert_eq!(none, Estimate { value: 0.0, low: 0.0, high: 0.0 });
        assert_eq!(median_estimate(&[7.0]).unwrap(), Estimate { value: 7.0, low: 7.0, high: 7.0 });
        assert_eq!(compare(&[(1.0, 1.0)]), None);
        assert_eq!(compare(&[(2.0, 1.0), (2.0, 1.0)]).unwrap().p, 0.0);
    }
}
