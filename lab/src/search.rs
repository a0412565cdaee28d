//! Finding a good configuration among many, within a budget of runs; and improving one step by step.
//!
//! # The idea
//! A [`Space`] has a dimension for each factor; a [`Point`] is a value of each. The worth of a point can be
//! measured, with noise. These functions decide what to measure next, and depend only on the measurements so
//! far and a seed: the same measurements lead to the same questions, so an interrupted search continues where
//! it was.
//!
//! # [`find`]: within a budget
//! *Successive halving*: all candidates are measured once, the better half of them again, and so on, so that
//! most runs go to the close decisions. A point's worth is the mean of its measurements (of their logarithms,
//! as everywhere here). A race starts with as many candidates as leave enough runs for its later rounds.
//!
//! If the budget allows, every point is a candidate: then nothing is assumed about how factors interact.
//! Otherwise candidates come from a *coordinate search*: from a point on, one factor after the other gets its
//! best value, until none changes; then again from a random point, so that factors that only help together
//! are found too. The best points seen are the candidates.
//!
//! # [`improve`]: one proven change at a time
//! For each factor in turn, all its values race for as many rounds as an experiment has. The best replaces
//! the present value only if that is certain, corrected for the number of factors and values; otherwise the
//! factor keeps its value. The experiment that follows measures the result again against the start, because
//! the best of many looks better than it is.
//!
//! Source: Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification and Hyperparameter
//! Optimization" (successive halving).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats::{self, Comparison};

/// Of a budget that has not room for all points, this share is for looking around, in percent; the rest is
/// for the race, if there is enough for one.
const LOOKING_PERCENT: usize = 70;
/// A race's later rounds are worth it with so many runs for each candidate that is left.
const RUNS_EACH: usize = 3;
/// Points that are kept ready to be measured again; each takes the space of a variant.
pub(crate) const MOST_SEARCHED: usize = 6;
/// Chance that a step is kept that helps nothing, over all steps; and that a point is called less good than
/// the best that is not.
const ALPHA: f64 = 0.05;

/// The index of a value of each factor.
pub type Point = Vec<usize>;

/// How many values each factor has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    sizes: Vec<usize>,
}

impl Space {
    /// Factors with so many values each; each has one at least.
    pub fn new(sizes: Vec<usize>) -> Self {
        Self { sizes: sizes.into_iter().map(|size| size.max(1)).collect() }
    }

    /// How many points there are.
    pub fn points(&self) -> usize {
        self.sizes.iter().fold(1, |all, size| all.saturating_mul(*size))
    }

    /// All of them. Only for spaces that are known to be small.
    fn all(&self) -> Vec<Point> {
        let mut all = vec![Point::new()];
        for size in &self.sizes {
            let longer = |point: &Point| {
                let point = point.clone();
                (0..*size).map(move |value| point.iter().copied().chain([value]).collect::<Point>())
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    fn start(&self) -> Point {
        vec![0; self.sizes.len()]
    }
}

/// Measures points. An error ends the search.
pub trait Measure {
    /// Why measuring ended.
    type Error;
    /// The worth of a point, above zero; more is better. No point is asked for twice with the same `round`.
    fn measure(&mut self, round: usize, point: &Point) -> Result<f64, Self::Error>;
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The best point.
    pub best: Point,
    /// Runs that it took.
    pub runs: usize,
    /// Points that were measured.
    pub tried: usize,
    /// Those of them that these runs cannot distinguish from the best, the best first.
    pub open: Vec<Point>,
}

/// Counts and remembers measurements.
struct Seen<'a, M> {
    measure: &'a mut M,
    /// Logarithms of what was measured, by point.
    worths: BTreeMap<Point, Vec<f64>>,
    runs: usize,
}

impl<M: Measure> Seen<'_, M> {
    fn again(&mut self, point: &Point) -> Result<(), M::Error> {
        let round = self.worths.get(point).map_or(0, Vec::len);
        let worth = self.measure.measure(round, point)?.max(f64::MIN_POSITIVE).ln();
        self.worths.entry(point.clone()).or_default().push(worth);
        self.runs += 1;
        Ok(())
    }

    fn worth(&self, point: &Point) -> f64 {
        match self.worths.get(point) {
            Some(worths) => worths.iter().sum::<f64>() / worths.len() as f64,
            None => f64::NEG_INFINITY,
        }
    }

    /// The points that cannot be distinguished from the best, the best first. Most were measured once or
    /// twice: so what a run differs by from another of the same point is taken from all points together.
    fn open(&self, best: &Point) -> Vec<Point> {
        let mut others: Vec<Point> = self.worths.keys().filter(|point| *point != best).cloned().collect();
        self.sort_best_first(&mut others);
        let many = |worths: &&Vec<f64>| worths.len() > 1;
        let squares = self.worths.values().filter(many).map(|worths| {
            let mean = worths.iter().sum::<f64>() / worths.len() as f64;
            (worths.iter().map(|worth| (worth - mean).powi(2)).sum::<f64>(), worths.len() - 1)
        });
        let (squares, freedom) = squares.fold((0.0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let Ok(student) = StudentsT::new(0.0, 1.0, freedom as f64) else { return others };
        let runs = |point: &Point| self.worths.get(point).map_or(0.0, |worths| worths.len() as f64);
        // Any of them could have been the best by chance: all pairs are the family.
        let pairs = (others.len() + 1) as f64 * others.len() as f64 / 2.0;
        let is_less = |other: &Point| {
            let error = (squares / freedom as f64 * (1.0 / runs(best) + 1.0 / runs(other))).sqrt();
            let gain = self.worth(best) - self.worth(other);
            let p = if error > 0.0 { 2.0 * student.cdf(-gain / error) } else { f64::from(gain <= 0.0) };
            p * pairs < ALPHA
        };
        others.retain(|other| !is_less(other));
        others
    }

    fn sort_best_first(&self, points: &mut [Point]) {
        points.sort_by(|a, b| self.worth(b).total_cmp(&self.worth(a)).then_with(|| a.cmp(b)));
    }
}

/// Looks for the best point with at most `budget` runs (but one at least).
pub fn find<M: Measure>(space: &Space, budget: usize, seed: u64, measure: &mut M) -> Result<Found, M::Error> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut seen = Seen { measure, worths: BTreeMap::new(), runs: 0 };
    let budget = budget.max(1);
    let points = space.points();
    let mut candidates = if points.saturating_add(points / 5) <= budget {
        let mut all = space.all();
        rng.shuffle(&mut all);
        for point in &all {
            seen.again(point)?;
        }
        all
    } else {
        let looking = budget * LOOKING_PERCENT / 100;
        let has_race = budget - looking >= 2 * RUNS_EACH;
        look_around(space, if has_race { looking } else { budget }, &mut rng, &mut seen)?;
        seen.worths.keys().cloned().collect()
    };
    loop {
        seen.sort_best_first(&mut candidates);
        let left = budget.saturating_sub(seen.runs);
        let half = candidates.len().div_ceil(2);
        candidates.truncate(half.min(left / RUNS_EACH).max(1));
        if candidates.len() == 1 {
            break;
        }
        let mut order = candidates.clone();
        rng.shuffle(&mut order);
        for point in &order {
            seen.again(point)?;
        }
    }
    let best = candidates.into_iter().next().unwrap_or_else(|| space.start());
    Ok(Found { runs: seen.runs, tried: seen.worths.len(), open: seen.open(&best), best })
}

/// A coordinate search with restarts, each point measured once, until `budget` runs are made or all points
/// were seen.
fn look_around<M: Measure>(
    space: &Space,
    budget: usize,
    rng: &mut fastrand::Rng,
    seen: &mut Seen<'_, M>,
) -> Result<(), M::Error> {
    let mut at = space.start();
    // A restart may hit what was seen; a space that is nearly all seen is not worth more tries than this.
    let mut restarts = budget;
    while seen.runs < budget && restarts > 0 {
        restarts -= 1;
        if !seen.worths.contains_key(&at) {
            seen.again(&at)?;
        }
        loop {
            let before = at.clone();
            let mut factors: Vec<usize> = (0..space.sizes.len()).collect();
            rng.shuffle(&mut factors);
            for factor in factors {
                let mut line: Vec<Point> = (0..space.sizes[factor])
                    .map(|value| {
                        let mut point = at.clone();
                        point[factor] = value;
                        point
                    })
                    .collect();
                rng.shuffle(&mut line);
                for point in &line {
                    if !seen.worths.contains_key(point) {
                        if seen.runs >= budget {
                            return Ok(());
                        }
                        seen.again(point)?;
                    }
                }
                seen.sort_best_first(&mut line);
                at = line.swap_remove(0);
            }
            if at == before {
                break;
            }
        }
        at = space.sizes.iter().map(|size| rng.usize(..*size)).collect();
    }
    Ok(())
}

/// One step of [`improve`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which factor was tried.
    pub factor: usize,
    /// Its value before.
    pub from: usize,
    /// The best of its other values.
    pub to: usize,
    /// That compared with the one before.
    pub comparison: Comparison,
    /// Whether it was kept.
    pub kept: bool,
}

/// The result of [`improve`].
#[derive(Debug, Clone, PartialEq)]
pub struct Improved {
    /// Where it ended.
    pub end: Point,
    /// How it came there.
    pub steps: Vec<Step>,
}

/// Changes one factor after the other, and keeps what proves itself within `rounds` rounds. Rounds are
/// numbered through over all steps.
pub fn improve<M: Measure>(
    space: &Space,
    rounds: usize,
    seed: u64,
    measure: &mut M,
) -> Result<Improved, M::Error> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let comparisons: usize = space.sizes.iter().map(|size| size - 1).sum();
    let mut at = space.start();
    let mut steps = Vec::new();
    for (factor, size) in space.sizes.iter().enumerate().filter(|(_, size)| **size > 1) {
        let from = at[factor];
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); *size];
        for round in factor * rounds..(factor + 1) * rounds {
            let mut order: Vec<usize> = (0..*size).collect();
            rng.shuffle(&mut order);
            for value in order {
                let mut point = at.clone();
                point[factor] = value;
                values[value].push(measure.measure(round, &point)?);
            }
        }
        let against = |value: usize| {
            let pairs: Vec<(f64, f64)> =
                values[value].iter().copied().zip(values[from].iter().copied()).collect();
            stats::compare(&pairs).map(|comparison| (value, comparison))
        };
        let others = (0..*size).filter(|value| *value != from).filter_map(against);
        let best = others.max_by(|(_, a), (_, b)| a.ratio.value.total_cmp(&b.ratio.value));
        if let Some((to, comparison)) = best {
            let kept = comparison.ratio.value > 1.0 && comparison.p * (comparisons as f64) < ALPHA;
            steps.push(Step { factor, from, to, comparison, kept });
            if kept {
                at[factor] = to;
            }
        }
    }
    Ok(Improved { end: at, steps })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// A surface that is measured with 3 % noise by a machine that gets slower by a tenth on the way.
    struct Planted<F> {
        surface: F,
        rng: fastrand::Rng,
        drift: f64,
        runs: usize,
    }

    impl<F: Fn(&Point) -> f64> Planted<F> {
        fn new(surface: F, seed: u64) -> Self {
            Self { surface, rng: fastrand::Rng::with_seed(seed), drift: 1.0, runs: 0 }
        }
    }

    impl<F: Fn(&Point) -> f64> Measure for Planted<F> {
        type Error = Infallible;

        fn measure(&mut self, _: usize, point: &Point) -> Result<f64, Infallible> {
            self.runs += 1;
            self.drift *= 0.9995;
            Ok(1000.0 * self.drift * (self.surface)(point) * (0.03 * stats::normal(&mut self.rng)).exp())
        }
    }

    fn space() -> Space {
        // volblocksize, compression, log, layout: as an experiment has them.
        Space::new(vec![5, 4, 2, 4])
    }

    /// Small random writes: each factor works for itself.
    fn separable(point: &Point) -> f64 {
        [1.0, 1.25, 0.9, 0.7, 0.5][point[0]]
            * [1.0, 1.05, 0.8, 0.6][point[1]]
            * [1.0, 1.3][point[2]]
            * [1.0, 0.8, 1.2, 0.9][point[3]]
    }

    /// Sequential writes: large blocks only help where they compress, and a log only without a mirror.
    fn interacting(point: &Point) -> f64 {
        let blocks = [0.8, 0.9, 1.0, 1.15, 1.25][point[0]];
        let compressed = if point[1] == 2 { blocks * blocks * 1.1 } else { [1.0, 1.05, 1.0, 0.7][point[1]] };
        let log = if point[2] == 1 && point[3] != 1 { 1.2 } else { 1.0 - 0.1 * point[2] as f64 };
        compressed * log * [1.0, 1.1, 0.95, 0.85][point[3]]
    }

    /// Mixed reads: a hill at the start, and a higher one that no single change leads to.
    fn two_hills(point: &Point) -> f64 {
        let distance =
            |to: [usize; 4]| -> f64 { point.iter().zip(to).map(|(a, b)| (*a as f64 - b as f64).abs()).sum() };
        (1.2 * (-0.35 * distance([0, 0, 0, 0])).exp()).max(1.6 * (-0.35 * distance([4, 3, 1, 3])).exp())
    }

    /// How often of a hundred a search is within 5 % of the best; it never takes more than its budget.
    fn good(surface: fn(&Point) -> f64, budget: usize) -> usize {
        let space = space();
        let best = space.all().iter().map(surface).fold(0.0, f64::max);
        let is_good = |seed: &u64| {
            let mut planted = Planted::new(surface, 1000 + seed);
            let Ok(found) = find(&space, budget, *seed, &mut planted);
            assert_eq!(found.runs, planted.runs);
            assert!(found.runs <= budget, "{} of {budget}", found.runs);
            surface(&found.best) >= 0.95 * best
        };
        (0..100).filter(is_good).count()
    }

    #[test]
    fn a_quarter_of_all_runs_finds_what_is_within_five_percent_of_the_best() {
        let quarter = space().points() * 5 / 4;
        for (name, surface) in [
            ("separable", separable as fn(&Point) -> f64),
            ("interacting", interacting),
            ("two hills", two_hills),
        ] {
            let good = good(surface, quarter);
            assert!(good >= 97, "{name}: {good} of 100");
        }
    }

    #[test]
    fn a_tenth_of_all_runs_is_enough_where_factors_work_alone() {
        let good = good(separable, space().points() / 2);
        assert!(good >= 95, "{good} of 100");
    }

    #[test]
    fn a_budget_without_room_for_a_race_is_spent_on_looking() {
        let surface = |point: &Point| [1.0, 0.6, 0.4][point[0]] * [1.0, 1.5, 1.7][point[1]];
        let is_best = |seed: &u64| {
            let mut planted = Planted::new(surface, 700 + seed);
            let Ok(found) = find(&Space::new(vec![3, 3]), 7, *seed, &mut planted);
            assert!(found.runs <= 7);
            found.best == [0, 2]
        };
        // Twelve percent apart with three of noise.
        let best = (0..100).filter(is_best).count();
        assert!(best >= 97, "{best} of 100");
    }

    #[test]
    fn what_cannot_be_told_from_the_best_is_named_and_what_is_far_off_is_not() {
        // The second factor does nothing, and the first is worth a half.
        let surface = |point: &Point| [1.0, 0.5, 0.4][point[0]];
        let (mut equals, mut wrong) = (0, 0);
        for seed in 0..50 {
            let Ok(found) = find(&Space::new(vec![3, 2]), 18, seed, &mut Planted::new(surface, 300 + seed));
            assert_eq!(found.tried, 6);
            equals += usize::from(found.open.iter().any(|point| point[0] == 0));
            wrong += usize::from(found.open.iter().any(|point| point[0] != 0));
        }
        assert!(equals >= 47 && wrong <= 5, "{equals} {wrong} of 50");
        // Measured once each, nothing is known.
        let Ok(once) = find(&Space::new(vec![3]), 3, 1, &mut Planted::new(surface, 1));
        assert_eq!((once.tried, once.open.len()), (3, 2));
    }

    #[test]
    fn tiny_spaces_and_budgets_have_an_answer() {
        for (sizes, budget) in [(vec![], 0), (vec![1], 1), (vec![2], 1), (vec![3, 3], 2), (vec![2], 50)] {
            let space = Space::new(sizes);
            let mut planted = Planted::new(|_: &Point| 1.0, 1);
            let Ok(found) = find(&space, budget, 1, &mut planted);
            assert_eq!(found.best.len(), space.sizes.len());
            assert!(found.runs <= budget.max(1));
        }
    }

    #[test]
    fn what_helps_is_kept_and_what_does_not_is_put_back() {
        let surface = |point: &Point| {
            [1.0, 1.2, 0.8][point[0]] * [1.0, 1.0][point[1]] * [1.0, 0.7][point[2]] * [1.0, 1.5][point[3]]
        };
        let space = Space::new(vec![3, 2, 2, 2]);
        let mut ends = BTreeMap::<Point, usize>::new();
        for seed in 0..100 {
            let mut planted = Planted::new(surface, 500 + seed);
            let Ok(improved) = improve(&space, 8, seed, &mut planted);
            assert_eq!(improved.steps.len(), 4);
            assert_eq!(planted.runs, 8 * (3 + 2 + 2 + 2));
            *ends.entry(improved.end).or_default() += 1;
        }
        // The second factor does nothing: it may be kept by chance in one of twenty.
        assert!(ends.get(&vec![1, 0, 0, 1]).is_some_and(|count| *count >= 93), "{ends:?}");
    }

    #[test]
    fn a_search_that_was_interrupted_asks_the_same_again() {
        struct Recorded(Vec<(usize, Point)>, usize);
        impl Measure for Recorded {
            type Error = ();
            fn measure(&mut self, round: usize, point: &Point) -> Result<f64, ()> {
                if self.0.len() == self.1 {
                    return Err(());
                }
                self.0.push((round, point.clone()));
                Ok(1.0 + separable(point))
            }
        }
        let mut whole = Recorded(Vec::new(), usize::MAX);
        let found = find(&space(), 100, 7, &mut whole).unwrap();
        let mut part = Recorded(Vec::new(), 40);
        assert_eq!(find(&space(), 100, 7, &mut part), Err(()));
        assert_eq!(part.0[..], whole.0[..40]);
        assert_eq!(found.runs, whole.0.len());
    }
}
