//! The best variant for each workload, and the result of the goal's choice there: the best for one workload
//! may lose with another.

use super::section::Section;
use crate::analysis::{Best, Findings, Verdict, base_words};
use crate::experiment::{Experiment, Metric};
use crate::stats;

/// The table, where there is more than one workload and something to choose.
pub(super) fn section(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let all = &findings.by_workload;
    if all.len() < 2 {
        return None;
    }
    let (metric, base) = (experiment.goal.metric, base_words(experiment));
    let chosen = findings.best.as_ref().map(|best| best.variant.as_str());
    let head = [
        "workload".to_owned(),
        "best there".to_owned(),
        "times the baseline".to_owned(),
        "interval".to_owned(),
    ];
    let of_chosen = chosen.map(|chosen| format!("{chosen} there"));
    let rows = all.iter().map(|it| {
        let is_goal = it.workload == experiment.goal_workload();
        let name = if is_goal { format!("{} (the goal's)", it.workload) } else { it.workload.clone() };
        let mut row = vec![name];
        row.extend(best(findings, metric, &it.workload, it.best.as_ref()));
        row.extend(chosen.map(|chosen| place(findings, metric, &it.workload, it.best.as_ref(), chosen)));
        row
    });
    let text = format!(
        "By {}, as a multiple of the baseline ({base}). Only a choice that is certainly better than that is \
         called the best for a workload; \"or\" names choices that may be as good.",
        metric.title()
    );
    let head = head.into_iter().chain(of_chosen).collect();
    let rows = std::iter::once(head).chain(rows).collect();
    Some(Section::new("The best choice for each workload", text, rows))
}

/// The best for a workload, with what it gains.
fn best(findings: &Findings, metric: Metric, workload: &str, best: Option<&Best>) -> [String; 3] {
    let found = best.and_then(|best| Some((best, findings.find(&best.variant, workload, metric)?.compared?)));
    let Some((best, compared)) = found else {
        let of_it = findings.findings.iter().filter(|it| it.workload == workload && it.metric == metric);
        let of_it = || of_it.clone().filter_map(|it| it.compared);
        let open = of_it().any(|it| it.verdict == Verdict::Undecided);
        let words = match (of_it().next(), open) {
            (None, _) => "not compared",
            (Some(_), true) => "none was shown to be better",
            (Some(_), false) => "nothing is better",
        };
        return [words.to_owned(), "-".to_owned(), "-".to_owned()];
    };
    let names: Vec<&str> = std::iter::once(best.variant.as_str()).chain(best.equals()).collect();
    let ratio = compared.comparison.ratio;
    [names.join(" or "), stats::times(ratio.value), ratio.ratio_interval()]
}

/// The goal's choice for a workload.
fn place(findings: &Findings, metric: Metric, workload: &str, best: Option<&Best>, chosen: &str) -> String {
    if best.is_some_and(|best| best.variant == chosen) {
        return "the best".to_owned();
    }
    let compared = findings.find(chosen, workload, metric).and_then(|it| it.compared);
    let Some(compared) = compared else { return "not compared".to_owned() };
    let ratio = stats::times(compared.comparison.ratio.value);
    let rival = best.and_then(|best| best.rivals.iter().find(|rival| rival.variant == chosen));
    match (rival.map(|rival| rival.is_less), compared.verdict) {
        (Some(true), _) => format!("{ratio}: better, but less than the best"),
        (Some(false), _) => format!("{ratio}: may be the best as well"),
        (None, Verdict::Undecided) => format!("{ratio}: {}", compared.short()),
        (None, verdict) => format!("{ratio}: {}", verdict.words()),
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::findings;
    use crate::plan::BASELINE;
    use crate::report::{document_of, json, markdown};
    use crate::store::Store;

    #[test]
    fn where_the_goals_choice_loses_is_told_of_each_workload() {
        let text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \
            \"f\"\nvalues = [\"0\", \"1\", \"2\"]\n\
                    [[workload]]\nname = \"w\"\nrw = \"write\"\n[[workload]]\nname = \"r\"\nrw = \
                    \"read\"\n[[workload]]\nname = \"same\"\nrw = \"read\"\n";
        let planted = [
            (BASELINE, "w", 100.0),
            ("f=1", "w", 200.0),
            ("f=2", "w", 100.0),
            (BASELINE, "r", 100.0),
            ("f=1", "r", 50.0),
            ("f=2", "r", 150.0),
            (BASELINE, "same", 100.0),
            ("f=1", "same", 100.0),
            ("f=2", "same", 100.0),
        ];
        let store = Store::planted(text, &planted);
        let found = findings(&store);
        assert!(found.verdict.starts_with("f=1 has the best IOPS with \"w\""), "{}", found.verdict);
        let elsewhere = [
            "Elsewhere f=1 has worse IOPS than f=0: with \"r\" (0.5",
            "Better for other workloads: f=2 with \"r\" (1.5",
        ];
        for sentence in elsewhere {
            assert_eq!(found.verdict.matches(sentence).count(), 1, "{}", found.verdict);
        }
        let section = super::section(store.experiment(), &found).unwrap();
        let column = |at: usize| section.rows.iter().map(|row| row[at].as_str()).collect::<Vec<_>>();
        assert_eq!(column(0), ["workload", "w (the goal's)", "r", "same"]);
        assert_eq!(column(1), ["best there", "f=1", "f=2", "nothing is better"]);
        let place = column(4);
        assert!(
            place[1] == "the best" && place[2].starts_with("0.5") && place[2].ends_with(": worse"),
            "{place:?}"
        );
        assert!(place[3].ends_with("no difference"), "{place:?}");
        let forms =
            [markdown(&store, &found), document_of(&store, &found).texts(), json(&store, &found).unwrap()];
        assert!(forms.iter().all(|form| form.contains("The best choice for each workload")));
    }
}
