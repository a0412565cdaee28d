//! Intervals and comparisons.
//!
//! # Two variants
//! A round runs both close in time, so their ratio within the round is free of what drifts. The logarithms of the ratios of `n` rounds are taken as
//! draws around the true one: mean, Student's t interval with `n - 1` degrees of freedom, and the p-value of "no difference". Logarithms make a gain and the
//! loss that undoes it equally large.
//!
//! # Many comparisons
//! Of a hundred true "no difference" five would be called otherwise. [`holm`] corrects the p-values of all comparisons of an experiment so that the
//! chance of a single false alarm among them is what one comparison alone would have.
//!
//! # One variant
//! The interval of a median comes from the bootstrap: medians of samples drawn from the sample, with a fixed seed, so that a report is the same each time.
//!
//! Sources: Student 1908; Holm 1979, "A simple sequentially rejective multiple test procedure"; Efron 1979.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Share of intervals that hold the truth.
pub const CONFIDENCE: f64 = 0.95;
/// Samples drawn for an interval of a median.
const DRAWS: usize = 2000;

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

/// The median; `None` of nothing.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[middle - 1] + upper) / 2.0 })
}

/// The median and its interval by bootstrap.
pub fn median_estimate(samples: &[f64]) -> Option<Estimate> {
    let value = median(samples)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut medians: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            median(&(0..samples.len()).map(|_| samples[rng.usize(..samples.len())]).collect::<Vec<_>>())
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
    Some(Estimate { value, low: at((1.0 - CONFIDENCE) / 2.0), high: at((1.0 + CONFIDENCE) / 2.0) })
}

/// One variant beside another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How many times the baseline: 1 is no change.
    pub ratio: Estimate,
    /// The chance that rounds differ as much when there is no difference.
    pub p: f64,
    /// The difference in units of its spread from round to round (Cohen's d of the paired logarithms).
    pub effect_size: f64,
    /// Rounds that both had.
    pub rounds: usize,
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

/// Compares values of a variant with values of a baseline that were not measured together (Welch). `None` of fewer than two of either.
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

/// A difference of logarithms with its standard error and degrees of freedom, as a comparison.
fn told(mean: f64, error: f64, freedom: f64, spread: f64, rounds: usize) -> Option<Comparison> {
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let reach = student.inverse_cdf((1.0 + CONFIDENCE) / 2.0) * error;
    let p = match error > 0.0 {
        true => 2.0 * student.cdf(-(mean / error).abs()),
        false if mean == 0.0 => 1.0,
        false => 0.0,
    };
    let ratio = Estimate { value: mean.exp(), low: (mean - reach).exp(), high: (mean + reach).exp() };
    Some(Comparison { ratio, p, effect_size: if spread > 0.0 { mean / spread } else { 0.0 }, rounds })
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

/// How far two equal things were apart, from a comparison of them: as a share, 0.02 is two per cent. What differs less than that is no difference that this
/// machine could show.
pub fn noise_floor(equal: &Comparison) -> f64 {
    equal.ratio.low.ln().abs().max(equal.ratio.high.ln().abs()).exp() - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a variant that is `ratio` times the baseline, with 3 % noise each and a machine that gets slower by half on the way.
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
        assert!(estimate.low >= 1.0 && estimate.low <= 3.0 && estimate.high >= 3.0 && estimate.high <= 100.0);
        assert_eq!(estimate, median_estimate(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap(), "the same each time");
        assert_eq!(compare(&[(1.0, 1.0)]), None);
        assert_eq!(compare(&[(2.0, 1.0), (2.0, 1.0)]).unwrap().p, 0.0);
    }
}
