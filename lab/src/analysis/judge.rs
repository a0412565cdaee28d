//! The verdict of a comparison.
//!
//! A difference counts if it is certain, and larger than two equal variants may differ by. That is not their
//! observed difference, which in few rounds can be small by chance, but what the interval of their ratio
//! allows. "No difference" is as strict: a difference of a tenth or more would have shown. All other
//! comparisons are undecided, with the reason and the number of rounds that would decide.

use serde::{Deserialize, Serialize};

use super::{ALPHA, NOISY};
use crate::stats::{self, Comparison, MARGIN, MOST_ROUNDS};

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Certainly better than the baseline, by more than noise.
    Better,
    /// Certainly worse.
    Worse,
    /// Certainly less than a tenth, and not certainly more than noise.
    NoDifference,
    /// It may differ or not.
    Undecided,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::Undecided => "undecided",
        }
    }
}

/// Why nothing could be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Rounds are much alike, but there are not enough of them.
    TooFewRounds,
    /// Rounds differ much from each other.
    TooNoisy,
    /// Two equal variants differ by as much.
    WithinNoise,
}

/// How far two equal variants were apart.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Noise {
    /// In the mean of all rounds, as a share.
    pub floor: f64,
    /// How far they may be apart in truth, as a share: what is not more than that is not distinguished from
    /// noise.
    pub reach: f64,
    /// Whether they certainly were apart: then more rounds do not bring them together.
    pub is_lasting: bool,
}

impl Noise {
    /// From a comparison of the two.
    pub fn of(twins: &Comparison) -> Self {
        let is_lasting = twins.p < ALPHA;
        Self { floor: stats::noise_floor(twins), reach: stats::noise_reach(twins), is_lasting }
    }

    /// The larger noise of the two.
    pub fn or_noisier(self, other: Self) -> Self {
        Self {
            floor: self.floor.max(other.floor),
            reach: self.reach.max(other.reach),
            is_lasting: self.is_lasting || other.is_lasting,
        }
    }

    /// Rounds after which a comparison that is a tenth or more is most likely more than this noise, of which
    /// `lasting` stays however many there are; none where less is asked.
    fn rounds_below(&self, it: &Comparison, lasting: f64) -> usize {
        let (mean, stays) = (it.ratio.value.ln().abs(), lasting.ln_1p());
        if mean < MARGIN.ln_1p() || mean > self.reach.ln_1p() || mean <= stays {
            return 0;
        }
        let times = ((self.reach.ln_1p() - stays) / (mean - stays)).powi(2);
        ((it.rounds as f64 * times).ceil() as usize).min(MOST_ROUNDS + 1)
    }
}

/// A comparison with what it means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The ratio to the baseline and how certain it is.
    pub comparison: Comparison,
    /// The p-value of no difference, corrected for all comparisons by the goal's metric, or for all by the
    /// other metrics.
    pub corrected_p: f64,
    /// The p-value of a difference of a tenth or more, corrected likewise.
    pub corrected_p_apart: f64,
    /// How far two equal variants may be apart, as a share: only more than that is called better or worse.
    pub noise_floor: f64,
    /// Its meaning.
    pub verdict: Verdict,
    /// Why it is undecided, where it is.
    pub why: Option<Why>,
    /// Rounds in all that would most likely decide it, where some number would.
    pub rounds_to_tell: Option<usize>,
}

impl Compared {
    /// Beside so many others that are not decided either.
    fn of(it: &Judging, undecided: usize) -> Self {
        let mut compared = Self {
            comparison: it.comparison,
            corrected_p: it.p,
            corrected_p_apart: it.p_apart,
            noise_floor: it.noise.reach,
            verdict: it.verdict(),
            why: None,
            rounds_to_tell: None,
        };
        if compared.verdict == Verdict::Undecided {
            compared.explain(it.noise, undecided);
        }
        compared
    }

    /// Says why nothing is decided, and what would.
    fn explain(&mut self, noise: Noise, undecided: usize) {
        let it = &self.comparison;
        let is_within = noise.is_lasting && it.ratio.value.ln().abs() <= noise.floor.ln_1p();
        // Others of the family make it that much harder.
        let alpha = ALPHA / undecided.max(1) as f64;
        // What is apart by chance comes together in more rounds.
        let lasting = if noise.is_lasting { noise.floor } else { 0.0 };
        let rounds = it.rounds_to_tell(alpha, lasting);
        self.rounds_to_tell = rounds.map(|rounds| rounds.max(noise.rounds_below(it, lasting)));
        self.why = Some(match (is_within && self.rounds_to_tell.is_none(), it.spread() > NOISY) {
            (true, _) => Why::WithinNoise,
            (false, true) => Why::TooNoisy,
            (false, false) => Why::TooFewRounds,
        });
    }

    /// The verdict in words, with the reason where there is none.
    pub fn words(&self) -> String {
        match self.reason() {
            Some(reason) => format!("{}: {reason}", self.verdict.words()),
            None => self.verdict.words().to_owned(),
        }
    }

    /// The verdict in few words, with the rounds that would decide if it is open.
    pub fn short(&self) -> String {
        let words = self.verdict.words();
        match (self.why.is_some(), self.rounds_to_tell) {
            (true, Some(rounds)) if rounds <= MOST_ROUNDS => format!("{words}, ~{rounds} rounds"),
            (true, Some(_)) => format!("{words}, >{MOST_ROUNDS} rounds"),
            _ => words.to_owned(),
        }
    }

    /// Why it is undecided, and how many rounds would decide.
    pub fn reason(&self) -> Option<String> {
        let rounds = match self.rounds_to_tell {
            Some(rounds) if rounds <= MOST_ROUNDS => format!("about {rounds} rounds would decide"),
            Some(_) => format!("more than {MOST_ROUNDS} rounds would decide"),
            None => "more rounds would not decide".to_owned(),
        };
        Some(match self.why? {
            Why::TooFewRounds => format!("too few rounds, {rounds}"),
            Why::TooNoisy => format!("too noisy, {rounds}"),
            Why::WithinNoise => {
                format!(
                    "too noisy, two equal variants may differ by {}, {rounds}",
                    super::noise_share(self.noise_floor)
                )
            }
        })
    }
}

/// A comparison with all that its verdict depends on.
struct Judging {
    comparison: Comparison,
    /// Corrected for the others of its family.
    p: f64,
    p_apart: f64,
    noise: Noise,
    more_is_better: bool,
}

impl Judging {
    fn verdict(&self) -> Verdict {
        let ratio = self.comparison.ratio.value;
        let is_more = self.p < ALPHA && ratio.ln().abs() > self.noise.reach.ln_1p();
        match (is_more, self.p_apart < ALPHA && self.noise.floor < MARGIN) {
            (true, _) if (ratio > 1.0) == self.more_is_better => Verdict::Better,
            (true, _) => Verdict::Worse,
            (false, true) => Verdict::NoDifference,
            (false, false) => Verdict::Undecided,
        }
    }
}

/// All comparisons of a family, each with its noise and whether more is better, with p-values that are
/// corrected for how many there are.
fn corrected(family: &[(Comparison, Noise, bool)]) -> Vec<Judging> {
    let holm = |of: fn(&Comparison) -> f64| {
        stats::holm(&family.iter().map(|(comparison, ..)| of(comparison)).collect::<Vec<_>>())
    };
    let both = holm(|it| it.p).into_iter().zip(holm(|it| it.p_apart));
    let all = family.iter().zip(both).map(|(&(comparison, noise, more_is_better), (p, p_apart))| Judging {
        comparison,
        p,
        p_apart,
        noise,
        more_is_better,
    });
    all.collect()
}

/// The verdicts of all comparisons of a family.
pub(crate) fn judged(family: &[(Comparison, Noise, bool)]) -> Vec<Compared> {
    let all = corrected(family);
    let open = |of: fn(&Judging) -> f64| all.iter().filter(|it| of(it) >= ALPHA).count();
    let undecided = open(|it| it.p).max(open(|it| it.p_apart));
    all.iter().map(|it| Compared::of(it, undecided)).collect()
}

/// Their verdicts alone.
pub(crate) fn verdicts(family: &[(Comparison, Noise, bool)]) -> Vec<Verdict> {
    corrected(family).iter().map(Judging::verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of rounds with these ratios to the baseline, one of so many comparisons; the others say nothing.
    fn of(ratios: &[f64], among: usize, floor: f64) -> Compared {
        let comparison =
            stats::compare(&ratios.iter().map(|ratio| (*ratio, 1.0)).collect::<Vec<_>>()).unwrap();
        let nothing = Comparison { p: 1.0, p_apart: 1.0, ..comparison };
        let noise = Noise { floor, reach: 1.2 * floor, is_lasting: floor > 0.0 };
        let mut family = vec![(nothing, noise, true); among];
        family[0].0 = comparison;
        judged(&family)[0]
    }

    #[test]
    fn no_difference_is_said_only_where_it_is_proven() {
        let verdict = |ratios: &[f64], among, floor| of(ratios, among, floor).verdict;
        // Two rounds that hardly differ prove nothing; nor do five that do.
        assert_eq!(verdict(&[1.03, 0.98], 1, 0.0), Verdict::Undecided);
        assert_eq!(verdict(&[0.8, 1.2, 1.0, 0.9, 1.1], 1, 0.0), Verdict::Undecided);
        let near = [1.01, 0.99, 1.0, 1.02, 0.99];
        assert_eq!(verdict(&near, 1, 0.0), Verdict::NoDifference);
        // As near as that one in thousands is by chance.
        assert_eq!(verdict(&near, 100_000, 0.0), Verdict::Undecided);
        // And where equal variants differ by a fifth, nothing is known.
        assert_eq!(verdict(&near, 1, 0.2), Verdict::Undecided);
    }

    #[test]
    fn what_is_certain_and_more_than_noise_is_a_difference_however_small() {
        let verdict = |ratios: &[f64], among, floor| of(ratios, among, floor).verdict;
        let more = [1.031, 1.029, 1.03, 1.032, 1.028];
        assert_eq!(verdict(&more, 1, 0.0), Verdict::Better);
        assert_eq!(verdict(&more.map(|ratio| 1.0 / ratio), 1, 0.0), Verdict::Worse);
        assert_eq!(verdict(&more, 1, 0.05), Verdict::NoDifference, "equal variants differ by more");
        let much = [1.31, 1.29, 1.3, 1.32, 1.28];
        assert_eq!(verdict(&much, 1, 0.2), Verdict::Better);
        assert_eq!(verdict(&much, 1, 0.5), Verdict::Undecided);
    }

    #[test]
    fn what_equal_variants_may_differ_by_is_not_called_better() {
        // Both are certain; the twins were by chance nearer to each other than they may be.
        let pairs = [1.0031, 1.0029, 1.003, 1.0032, 1.0028].map(|ratio| (ratio, 1.0));
        let small = stats::compare(&pairs).unwrap();
        let told = |reach| judged(&[(small, Noise { floor: 0.00095, reach, is_lasting: false }, true)])[0];
        assert_eq!(told(0.012).verdict, Verdict::NoDifference);
        assert_eq!(told(0.002).verdict, Verdict::Better);
        // What the table shows is what the verdict goes by.
        assert_eq!(told(0.012).noise_floor, 0.012);
        let large = stats::compare(&[1.31, 1.29, 1.3, 1.32, 1.28].map(|ratio| (ratio, 1.0))).unwrap();
        let noise = Noise { floor: 0.05, reach: 0.6, is_lasting: false };
        let told = judged(&[(large, noise, true)])[0];
        assert_eq!(told.verdict, Verdict::Undecided);
        assert!(told.rounds_to_tell.is_some_and(|rounds| (12..30).contains(&rounds)), "{told:?}");
    }

    #[test]
    fn what_is_undecided_says_why_and_what_would_decide_it() {
        let few = of(&[1.03, 0.98, 1.01], 20, 0.0);
        assert_eq!((few.verdict, few.why), (Verdict::Undecided, Some(Why::TooFewRounds)));
        assert!(few.rounds_to_tell.is_some_and(|rounds| (4..30).contains(&rounds)), "{few:?}");
        assert!(few.words().starts_with("undecided: too few rounds, about "), "{}", few.words());
        let noisy = of(&[0.5, 1.7, 1.1, 0.8], 1, 0.0);
        assert_eq!(noisy.why, Some(Why::TooNoisy));
        assert!(
            noisy.rounds_to_tell > few.rounds_to_tell
                && noisy.words().starts_with("undecided: too noisy, about "),
            "{noisy:?}"
        );
        let within = of(&[1.31, 1.29, 1.3, 1.32, 1.28], 1, 0.5);
        assert_eq!((within.why, within.rounds_to_tell), (Some(Why::WithinNoise), None));
        assert!(
            within.words().ends_with("may differ by 60.0 %, more rounds would not decide"),
            "{}",
            within.words()
        );
        assert_eq!(few.short(), format!("undecided, ~{} rounds", few.rounds_to_tell.unwrap()));
        assert_eq!(within.short(), "undecided");
        let better = of(&[1.31, 1.29, 1.3], 1, 0.0);
        assert_eq!((better.reason(), better.short().as_str()), (None, "better"));
    }
}
