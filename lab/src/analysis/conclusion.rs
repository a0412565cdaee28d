//! The answer in a few sentences: which variant to choose, its gain, its cost in other metrics and in safety,
//! and the distance to the limit.

use serde::{Deserialize, Serialize};

use super::best::{Best, changes};
use super::judge::{Noise, Verdict};
use super::{Contrast, Finding, Findings, LeftOut, NOISY, Subject, bounds};
use crate::experiment::{Experiment, Metric, SettingOwner, risk};
use crate::metric::written;
use crate::models::percent;
use crate::plan::{self, BASELINE, DEVICE, Plan, Variant};
use crate::stats::{self, times};

/// Whether a value that was wanted was reached: by the interval, not by the figure in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All of the interval is on the right side.
    Reached,
    /// None of it is.
    Missed,
    /// It has both sides, or there was one round only.
    Undecided,
}

/// The answer of an experiment.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Sentence by sentence, the most important first.
    pub(super) sentences: Vec<String>,
    /// Whether the goal was reached.
    pub(super) outcome: Option<Outcome>,
    /// Whether the first sentence is an answer, and not that more rounds are needed.
    pub(super) is_answer: bool,
}

/// The answer. `resume` is the command that goes on with the experiment.
pub(super) fn verdict(experiment: &Experiment, plan: &Plan, all: &Findings, resume: &str) -> Said {
    let (metric, workload) = (experiment.goal.metric, experiment.goal_workload());
    let of = |variant: &str| all.find(variant, workload, metric);
    let Some(baseline) = of(BASELINE) else {
        let is_baseline = |it: &&LeftOut| it.variant == BASELINE && it.workload == workload;
        let told = match all.left_out.iter().find(is_baseline) {
            Some(_) => format!(
                "There is no result: the baseline could not be measured with \"{workload}\", so there is \
                 nothing to compare with."
            ),
            None => "There is no result yet.".to_owned(),
        };
        return Said { sentences: vec![told], ..Said::default() };
    };
    let changes: Vec<&Variant> = changes(plan).collect();
    let findings: Vec<&Finding> = changes.iter().filter_map(|variant| of(&variant.name)).collect();
    let best = all.best.as_ref().and_then(|best| Some((best, of(&best.variant)?)));
    let chosen = best.map_or(BASELINE, |(_, finding)| &finding.variant);
    let certain = match best {
        None => certain(experiment, all, baseline, &changes),
        Some(_) => None,
    };
    let lacks_some = changes.iter().any(|variant| {
        all.left_out
            .iter()
            .any(|it| it.variant == variant.name && it.workload == workload && it.measured == 0)
    });
    let mut sentences = match (findings.is_empty(), best) {
        (true, _) => vec![alone(experiment, baseline)],
        (false, Some((best, finding))) => {
            let mut sentences = better(experiment, best, finding);
            sentences.extend(may_be_better(experiment.goal.metric, &findings, finding));
            sentences.extend(cost_words(all, finding));
            let chosen = changes.iter().find(|it| it.name == best.variant);
            sentences.extend(chosen.and_then(|chosen| risk_words(experiment, chosen)));
            sentences
        }
        (false, None) => {
            let is_unfinished = all.unfinished.is_some() || all.few.is_some() || lacks_some;
            let none = none_better(experiment, &findings, is_unfinished);
            certain.iter().cloned().chain([none]).collect()
        }
    };
    sentences.extend(others(&findings, certain.is_none(), resume));
    sentences.extend(elsewhere(experiment, all));
    sentences.extend(besides(experiment, all, chosen));
    sentences.extend(levels(experiment, all));
    let value = best.map_or(baseline, |(_, finding)| finding).median.value;
    sentences.extend(of(DEVICE).map(|device| below(all, chosen, device, value)));
    if metric == Metric::Throughput {
        let settings = plan.variants().iter().find(|variant| variant.name == chosen).map(|it| &it.settings);
        sentences.extend(settings.and_then(|settings| bounds::nearest(experiment, settings, value)));
    }
    if let Some(costliest) = costliest(experiment, all) {
        sentences.insert(0, costliest);
    }
    let noise = all.noise(workload, metric);
    sentences.extend(noise.filter(|_| !findings.is_empty()).and_then(unquiet));
    sentences.extend(drift(baseline));
    let judged = best.map_or(baseline, |(_, finding)| finding);
    let outcome = outcome(experiment, judged);
    sentences.extend(outcome.map(|outcome| reached(experiment, judged, outcome)));
    let is_open =
        all.unfinished.is_some() || lacks_some || findings.iter().any(|it| is(it, Verdict::Undecided));
    let is_answer = best.is_some() || certain.is_some() || !is_open;
    Said { sentences, outcome, is_answer }
}

/// Whether a finding is what the goal wants.
fn outcome(experiment: &Experiment, finding: &Finding) -> Option<Outcome> {
    let (least, most) = (experiment.goal.at_least, experiment.goal.at_most);
    if least.is_none() && most.is_none() {
        return None;
    }
    let it = finding.median;
    let is_right = least.is_none_or(|least| it.low >= least) && most.is_none_or(|most| it.high <= most);
    let is_wrong = least.is_some_and(|least| it.high < least) || most.is_some_and(|most| it.low > most);
    Some(match (is_right, is_wrong) {
        _ if finding.values.len() < 2 => Outcome::Undecided,
        (true, _) => Outcome::Reached,
        (false, true) => Outcome::Missed,
        (false, false) => Outcome::Undecided,
    })
}

/// The goal in words, and what became of it.
fn reached(experiment: &Experiment, finding: &Finding, outcome: Outcome) -> String {
    let metric = experiment.goal.metric;
    let written = |value: f64| written(metric, value);
    let bound = |word: &str, value: Option<f64>| value.map(|value| format!("{word} {}", written(value)));
    let bounds = [bound("at least", experiment.goal.at_least), bound("at most", experiment.goal.at_most)];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    let it = finding.median;
    let interval = match finding.values.len() {
        1 => format!("{} in the only round", written(it.value)),
        _ => format!("{} ({})", written(it.value), it.interval(written)),
    };
    let name = named(experiment, &finding.variant);
    let what = match outcome {
        Outcome::Reached => "is reached",
        Outcome::Missed => "is missed",
        Outcome::Undecided => "may be reached or missed; more rounds would decide",
    };
    format!("The goal, {} of {}, {what}: {name} has {interval}.", metric.title(), bounds.join(" and "))
}

fn is(finding: &Finding, verdict: Verdict) -> bool {
    // Of one round nothing is known.
    finding.compared.map_or(Verdict::Undecided, |compared| compared.verdict) == verdict
}

/// The answer for an experiment without changes.
fn alone(experiment: &Experiment, baseline: &Finding) -> String {
    let metric = experiment.goal.metric;
    let value = written(metric, baseline.median.value);
    format!("{}: {value} with \"{}\".", metric.title(), experiment.goal_workload())
}

/// How far away the raw device is from the chosen variant, which has `value`.
fn below(all: &Findings, chosen: &str, device: &Finding, value: f64) -> String {
    let title = device.metric.title();
    match all.layer(chosen, DEVICE, &device.workload).map(|it| it.compared) {
        Some(it) if it.verdict == Verdict::NoDifference => {
            format!("The raw device has the same {title}, to a tenth.")
        }
        Some(it) if it.verdict == Verdict::Undecided => {
            format!("Whether the raw device has another {title} could not be decided.")
        }
        Some(it) => {
            let ratio = it.comparison.ratio.inverse();
            format!(
                "The raw device has {} times the {title} ({}).",
                times(ratio.value),
                ratio.ratio_interval()
            )
        }
        None => format!(
            "The raw device has {} times the {title}, which one round does not prove.",
            times(device.median.value / value)
        ),
    }
}

/// Workloads beside others that a sentence names.
const MOST_BESIDE: usize = 4;

/// The gain of the cache for the chosen variant, and the cost of missing devices.
fn besides(experiment: &Experiment, all: &Findings, chosen: &str) -> Option<String> {
    let of = all.beside.iter().filter(|it| it.subject != Subject::Layer && it.variant == chosen);
    let metric = of.clone().next()?.metric;
    let words = |it: &Contrast| {
        let ratio = it.compared.comparison.ratio;
        let interval = ratio.interval(times);
        let more = match it.compared.verdict {
            Verdict::Better | Verdict::Worse => String::new(),
            Verdict::NoDifference => ", no difference".to_owned(),
            Verdict::Undecided => ", undecided".to_owned(),
        };
        format!(
            "\"{}\" has {} times the figure of \"{}\" ({interval}{more})",
            it.workload,
            times(ratio.value),
            it.to_workload
        )
    };
    let told: Vec<String> = of.map(words).collect();
    let (shown, more) = told.split_at(told.len().min(MOST_BESIDE));
    let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
    Some(format!("{} with {}: {}{more}.", metric.title(), named(experiment, chosen), shown.join("; ")))
}

/// A variant by its settings, the baseline too.
fn named(experiment: &Experiment, variant: &str) -> String {
    if variant == BASELINE { base_words(experiment) } else { variant.to_owned() }
}

/// The layer of guests that costs most, where layers were compared.
fn costliest(experiment: &Experiment, all: &Findings) -> Option<String> {
    let pairs = plan::layers_of_guests(experiment);
    if pairs.len() < 3 || !experiment.factors.is_empty() {
        return None;
    }
    let workload = experiment.goal_workload();
    let cost = |pair: &'_ [String; 2]| {
        let [upper, lower] = pair.clone();
        let compared = all.layer(&upper, &lower, workload)?.compared;
        let ratio = compared.comparison.ratio.inverse();
        // What several layers cost together is no layer's cost.
        let is_one = upper.split(' ').count() == 1;
        is_one.then_some((ratio, compared.verdict, upper, lower))
    };
    let mut costs: Vec<_> = pairs.iter().filter_map(cost).collect();
    costs.sort_by(|one, other| other.0.value.total_cmp(&one.0.value));
    let with = |expected| costs.iter().find(move |(_, verdict, ..)| *verdict == expected);
    let Some((ratio, _, upper, lower)) = with(Verdict::Worse) else {
        let (ratio, _, upper, lower) = with(Verdict::Undecided)?;
        return Some(format!(
            "Which layer costs most with \"{workload}\" could not be decided; by the figures alone it is {}, \
             with {lower} below it ({} times).",
            plan::layer_words(experiment, upper),
            ratio.interval(times)
        ));
    };
    let layer = plan::layer_words(experiment, upper);
    Some(format!(
        "The layer that costs most with \"{workload}\" is {layer}: {lower} below it has {} times its {} \
         ({}).",
        times(ratio.value),
        experiment.goal.metric.title(),
        ratio.interval(times)
    ))
}

/// The loss between the pool and the export.
fn levels(experiment: &Experiment, all: &Findings) -> Option<String> {
    let [pool, export] = plan::ways(experiment)?;
    let (metric, workload) = (experiment.goal.metric, experiment.goal_workload());
    let of = |variant: &str| all.find(variant, workload, metric);
    let (pool, export) = (of(&pool)?, of(&export)?);
    let verdict = pool.compared.or(export.compared)?.verdict;
    let words = match verdict {
        Verdict::Better | Verdict::Worse => {
            format!("{} times that over NBD", times(pool.median.value / export.median.value))
        }
        Verdict::NoDifference => "the same as over NBD".to_owned(),
        Verdict::Undecided => "and whether it differs over NBD could not be decided".to_owned(),
    };
    let value = written(metric, pool.median.value);
    Some(format!("In the process that has the pool open, without NBD: {} {value}, {words}.", metric.title()))
}

/// The best variant, its gain, and equally good ones.
fn better(experiment: &Experiment, best: &Best, finding: &Finding) -> Vec<String> {
    let (title, workload) = (experiment.goal.metric.title(), experiment.goal_workload());
    let equals: Vec<&str> = best.equals().collect();
    // Layers are not a choice: they are there together.
    let is_choice = !experiment.target.has(SettingOwner::Layer);
    let (has, name) = (if equals.is_empty() && is_choice { "the best" } else { "better" }, &best.variant);
    let base = base_words(experiment);
    let ratio = finding.compared.map(|compared| compared.comparison.ratio);
    let times = ratio.map(|it| format!("{} times that of {base} ({})", times(it.value), it.interval(times)));
    let than = if has == "the best" { String::new() } else { format!(" than {base}") };
    let mut sentences =
        vec![format!("{name} has {has} {title} with \"{workload}\"{than}: {}.", times.unwrap_or_default())];
    if !equals.is_empty() {
        sentences.push(format!(
            "It is the best by its median, but was not shown to be better than {}: any of them may be the \
             best.",
            equals.join(", ")
        ));
    }
    let less: Vec<&str> =
        best.rivals.iter().filter(|rival| rival.is_less).map(|rival| rival.variant.as_str()).collect();
    if !less.is_empty() {
        sentences.push(format!("Better than {base} too, but less so: {}.", less.join(", ")));
    }
    sentences
}

/// Variants with a better median than the best certain one.
fn may_be_better(metric: Metric, findings: &[&Finding], best: &Finding) -> Option<String> {
    let is_more = |it: &Finding| (it.median.value > best.median.value) == metric.more_is_better();
    let undecided = findings.iter().filter(|it| is(it, Verdict::Undecided) && is_more(it));
    let names: Vec<&str> = undecided.map(|it| it.variant.as_str()).collect();
    (!names.is_empty()).then(|| format!("Better still by the median, but undecided: {}.", names.join(", ")))
}

/// A figure in which all variants certainly differ from the baseline, where there is one: it is known even if
/// the goal's figure is not. What each costs comes first.
fn certain(
    experiment: &Experiment,
    all: &Findings,
    baseline: &Finding,
    changes: &[&Variant],
) -> Option<String> {
    let costs =
        [Metric::Amplification, Metric::Space, Metric::ReadAmplification, Metric::Cpu, Metric::Memory];
    let metrics = experiment.goal.also.iter().copied().chain(costs).filter(|it| *it != baseline.metric);
    let workload = &baseline.workload;
    let of_metric = |metric: Metric| {
        let own = all.find(BASELINE, workload, metric)?;
        let others = changes.iter().map(|variant| all.find(&variant.name, workload, metric));
        let others = others.collect::<Option<Vec<&Finding>>>()?;
        let is_told = |it: &&Finding| is(it, Verdict::Better) || is(it, Verdict::Worse);
        (!others.is_empty() && others.iter().all(is_told)).then(|| {
            let mut figures: Vec<&Finding> = std::iter::once(own).chain(others).collect();
            figures.sort_by(|one, other| one.median.value.total_cmp(&other.median.value));
            let figure = |it: &&Finding| {
                let value = written(metric, it.median.value);
                format!("{value} with {}", named(experiment, &it.variant))
            };
            let figures: Vec<String> = figures.iter().map(figure).collect();
            let what = metric.meaning().map_or_else(String::new, |meaning| format!(" ({meaning})"));
            format!("Certain: {}{what} with \"{workload}\": {}.", metric.title(), figures.join(", "))
        })
    };
    metrics.filter_map(of_metric).next()
}

/// That nothing was shown to be better.
fn none_better(experiment: &Experiment, findings: &[&Finding], is_unfinished: bool) -> String {
    let (title, workload) = (experiment.goal.metric.title(), experiment.goal_workload());
    let base = base_words(experiment);
    match findings.iter().any(|it| is(it, Verdict::Undecided)) {
        true => format!(
            "No choice was shown to have better {title} with \"{workload}\" than {base}, but not all could \
             be decided."
        ),
        false if is_unfinished => {
            format!("No other choice has better {title} with \"{workload}\" than {base} so far.")
        }
        false => format!("No other choice has better {title} with \"{workload}\" than {base}: keep that."),
    }
}

/// The metrics in which the best is certainly worse.
pub(crate) fn cost_words(all: &Findings, best: &Finding) -> Option<String> {
    let others = all
        .findings
        .iter()
        .filter(|it| it.variant == best.variant && it.workload == best.workload && it.metric != best.metric);
    let others = others.filter(|it| it.metric.is_common());
    let cost = |it: &Finding| {
        let ratio = it.compared.filter(|compared| compared.verdict == Verdict::Worse)?.comparison.ratio;
        Some(format!("{} times the {}", times(ratio.value), it.metric.title()))
    };
    let costs: Vec<String> = others.filter_map(cost).collect();
    (!costs.is_empty()).then(|| format!("It costs {}.", costs.join(", ")))
}

/// The data that can be lost with it.
pub(crate) fn risk_words(experiment: &Experiment, chosen: &Variant) -> Option<String> {
    let risks = risk::of(&experiment.factors, &chosen.settings);
    let risks: Vec<String> = risks.iter().map(|(setting, loss)| format!("with {setting} {loss}")).collect();
    (!risks.is_empty()).then(|| format!("Mind that {}.", risks.join("; ")))
}

/// Rounds that may decide something after only one.
const ROUNDS_AFTER_ONE: usize = 5;
/// The most rounds that are advised: beyond that, the cause of the spread should be stopped first.
const BEARABLE_ROUNDS: usize = 50;

/// The command that would most likely decide some of what is undecided.
fn more_rounds(findings: &[&Finding], resume: &str) -> Option<String> {
    let wanted = |it: &&&Finding| {
        let rounds = it.compared.map_or(Some(ROUNDS_AFTER_ONE), |it| it.rounds_to_tell);
        is(it, Verdict::Undecided).then_some(rounds).flatten().filter(|rounds| *rounds <= BEARABLE_ROUNDS)
    };
    let decided: Vec<&str> =
        findings.iter().filter(|it| wanted(it).is_some()).map(|it| it.variant.as_str()).collect();
    let most = findings.iter().filter_map(|it| wanted(&it)).max()?;
    Some(format!("To probably decide {}: {resume} --rounds {most}.", decided.join(", ")))
}

/// The names of all others, by what is known of them; why the rest is undecided where `explains`.
fn others(findings: &[&Finding], explains: bool, resume: &str) -> Vec<String> {
    let names = |verdict: Verdict| -> Vec<&str> {
        findings.iter().filter(|it| is(it, verdict)).map(|it| it.variant.as_str()).collect()
    };
    let known = [(Verdict::Worse, "Worse"), (Verdict::NoDifference, "No difference")];
    let mut sentences: Vec<String> = known
        .into_iter()
        .map(|(verdict, words)| (words, names(verdict)))
        .filter(|(_, names)| !names.is_empty())
        .map(|(words, names)| format!("{words}: {}.", names.join(", ")))
        .collect();
    let open = findings.iter().filter(|it| is(it, Verdict::Undecided)).map(|it| {
        let reason = match &it.compared {
            Some(compared) => compared.reason(),
            None => Some("one round decides nothing".to_owned()),
        };
        reason.map_or_else(|| it.variant.clone(), |reason| format!("{} ({reason})", it.variant))
    });
    let open: Vec<String> = open.collect();
    if !open.is_empty() {
        if explains {
            sentences.push(format!("Undecided: {}.", open.join("; ")));
        }
        sentences.extend(more_rounds(findings, resume));
    }
    sentences
}

/// A note that little can be decided, if so.
fn unquiet(noise: Noise) -> Option<String> {
    (noise.reach > NOISY).then(|| {
        format!(
            "This machine was not quiet: {}. Stop other programs, or run more rounds.",
            noise_words(noise)
        )
    })
}

/// Rounds from which on it is known whether the baseline stayed the same.
const LEAST_FOR_DRIFT: usize = 6;
/// How much it may change from the first half of the rounds to the second, as a share.
const MOST_DRIFT: f64 = 0.15;
/// The chance that it looks so where it did not.
const DRIFT_ALPHA: f64 = 0.01;

/// That there was no steady state, where that is so. Variants are compared within rounds all the same; but
/// what is measured is not what will be.
fn drift(baseline: &Finding) -> Option<String> {
    let values = &baseline.values;
    let (first, second) = values.split_at(values.len() / 2);
    let change = stats::compare_unpaired(second, first).filter(|_| values.len() >= LEAST_FOR_DRIFT)?;
    let ratio = change.ratio.value;
    let is_told = change.p < DRIFT_ALPHA && ratio.ln().abs() > MOST_DRIFT.ln_1p();
    is_told.then(|| {
        format!(
            "There was no steady state: the baseline's second half of rounds had {ratio:.2} times the figure \
             of the first half. Give each run a longer start that is not measured (ramp_seconds)."
        )
    })
}

/// Where equal variants may be further apart than this, as a share, rounds were too few to say what noise is.
const UNKNOWN_NOISE: f64 = 9.0;

/// How far equal variants may be apart, in per cent.
pub fn noise_share(reach: f64) -> String {
    match reach {
        _ if reach > UNKNOWN_NOISE => "not known".to_owned(),
        // From twice as much on, a factor reads better than per cent.
        1.0.. => format!("{} times", times(reach + 1.0)),
        _ => percent(reach),
    }
}

/// An explanation of the noise.
pub fn noise_words(noise: Noise) -> String {
    if noise.reach > UNKNOWN_NOISE {
        return "two equal variants were so far apart, in so few rounds, that no effect can be distinguished \
            from noise"
            .to_owned();
    }
    format!(
        "two equal variants were {} apart, and so many rounds cannot rule out {}: a difference that is no \
         larger is not distinguished from noise",
        percent(noise.floor),
        noise_share(noise.reach)
    )
}

/// The baseline by its values of the factors.
pub fn base_words(experiment: &Experiment) -> String {
    let values: Vec<String> = experiment
        .factors
        .iter()
        .filter_map(|factor| Some(format!("{}={}", factor.name, factor.values.first()?)))
        .collect();
    if values.is_empty() { "the baseline".to_owned() } else { values.join(" ") }
}

/// Workloads that a sentence names.
const MOST_NAMED: usize = 4;

/// Where the goal's choice (the baseline, where there is none) loses with other workloads, in a sentence or
/// two.
fn elsewhere(experiment: &Experiment, findings: &Findings) -> Vec<String> {
    let (metric, base) = (experiment.goal.metric, base_words(experiment));
    let chosen = findings.best.as_ref().map_or(BASELINE, |best| &best.variant);
    let others = || findings.by_workload.iter().filter(|it| it.workload != experiment.goal_workload());
    let compared = |variant: &str, workload: &str| findings.find(variant, workload, metric)?.compared;
    let loses = others().filter_map(|it| {
        let compared = compared(chosen, &it.workload)?;
        let ratio = compared.comparison.ratio.value;
        (compared.verdict == Verdict::Worse).then(|| format!("\"{}\" ({ratio:.2} times)", it.workload))
    });
    let is_other = |best: &&Best| best.variant != chosen && best.equals().all(|equal| equal != chosen);
    let others_best = others().filter_map(|it| {
        let best = it.best.as_ref().filter(is_other)?;
        let ratio = compared(&best.variant, &it.workload)?.comparison.ratio.value;
        Some(format!("{} with \"{}\" ({ratio:.2} times that of {base})", best.variant, it.workload))
    });
    let listed = |all: Vec<String>| {
        let (shown, more) = all.split_at(all.len().min(MOST_NAMED));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
    };
    let title = metric.title();
    let loses = listed(loses.collect())
        .map(|loses| format!("Elsewhere {chosen} has worse {title} than {base}: with {loses}."));
    let others_best =
        listed(others_best.collect()).map(|others| format!("Better for other workloads: {others}."));
    loses.into_iter().chain(others_best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_told_as_far_as_it_is_known() {
        let told = |floor, reach| noise_words(Noise { floor, reach, is_lasting: false });
        let told_of = |reach: &str| {
            format!(
                "two equal variants were 3.4 % apart, and so many rounds cannot rule out {reach}: a \
                 difference that is no larger is not distinguished from noise"
            )
        };
        assert_eq!(told(0.034, 0.13), told_of("13.0 %"));
        assert_eq!(told(0.034, 1.3), told_of("2.30 times"));
        assert!(told(0.5, 170_000.0).ends_with("that no effect can be distinguished from noise"));
        assert_eq!([0.012, 170_000.0].map(noise_share), ["1.2 %", "not known"]);
    }
}
