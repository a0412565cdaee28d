//! What a setting costs in safety.
//!
//! A variant that is faster because it promises less must not win unnoticed. So each value of a factor may
//! state what can be lost with it ([`Factor::risks`]). The lab adds the known risks: the table below, and for
//! `layout` the number of failures that it survives.
//!
//! Source of the facts: OpenZFS's zfsprops(7), zpoolconcepts(7).

use crate::layout::{Layout, Vdev};
use crate::setting::{Factor, Settings};

/// Settings, their values, and what is lost with them when something fails.
const KNOWN: [(&str, &str, &str); 7] = [
    (
        "cache",
        "writeback",
        "a guest's writes are in the host's memory until it flushes them, and are lost when the host fails",
    ),
    (
        "sync",
        "disabled",
        "data that programs believe to be stable are lost when the power fails, up to the last group (5 s \
         and more)",
    ),
    ("checksum", "off", "damaged bytes are returned as correct ones, and redundancy does not repair them"),
    (
        "copies",
        "1",
        "damage on a device is repaired by the pool's redundancy or not at all; more copies \
         might have helped",
    ),
    ("redundant_metadata", "most", "one damaged block can lose about a thousand blocks of a file or volume"),
    ("redundant_metadata", "some", "one damaged block can lose several files or directories, or a volume"),
    ("redundant_metadata", "none", "one damaged block can lose the whole dataset"),
];

/// The loss with `name` set to `value`, as one of `others` that could be chosen instead.
fn known(name: &str, value: &str, others: &[String]) -> Option<String> {
    match name {
        "layout" => of_layout(value, others),
        "log" if value != "none" => Some(
            "the log device has no mirror: its loss together with a crash loses the last stable writes"
                .to_owned(),
        ),
        _ => {
            let found = KNOWN.into_iter().find(|(known, with, _)| *known == name && *with == value);
            found.map(|(_, _, loss)| loss.to_owned())
        }
    }
}

/// The failures that a layout survives, if another one of the same factor survives more.
fn of_layout(value: &str, others: &[String]) -> Option<String> {
    let bears = |text: &str| -> Option<u64> {
        let layout: Layout = text.parse().ok()?;
        layout.vdevs().iter().copied().map(Vdev::tolerance).min()
    };
    let mine = bears(value)?;
    let most = others.iter().filter_map(|other| bears(other)).max()?;
    match mine {
        _ if mine >= most => None,
        0 => Some("the pool is lost with any one device".to_owned()),
        _ => Some(format!(
            "the pool is lost with {} failed devices of one vdev; others here survive \
            {most}",
            mine + 1
        )),
    }
}

impl Factor {
    /// The loss with one of its values.
    pub fn risk(&self, value: &str) -> Option<String> {
        let own = self.risks.get(value).cloned();
        own.or_else(|| known(&self.name, value, &self.values))
    }
}

/// The possible losses with `settings`: a setting with its value, and the loss.
pub(crate) fn of(factors: &[Factor], settings: &Settings) -> Vec<(String, String)> {
    let risk = |(name, value): (&String, &String)| {
        let loss = match factors.iter().find(|factor| factor.name == *name) {
            Some(factor) => factor.risk(value),
            None => known(name, value, &[]),
        };
        Some((format!("{name}={value}"), loss?))
    };
    settings.iter().filter_map(risk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(name: &str, values: &[&str]) -> Factor {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Factor { name: name.to_owned(), values, ..Factor::default() }
    }

    #[test]
    fn settings_that_promise_less_say_what_is_lost() {
        let sync = factor("sync", &["standard", "disabled"]);
        assert!(sync.risk("disabled").is_some_and(|loss| loss.contains("lost when the power fails")));
        assert_eq!(sync.risk("standard"), None);
        let log = factor("log", &["none", "optane"]);
        assert!(log.risk("none").is_none() && log.risk("optane").is_some());
    }

    #[test]
    fn a_layout_is_judged_by_what_the_others_bear() {
        let layout = factor("layout", &["6", "mirror 2 + mirror 2", "raidz1 6", "raidz2 6"]);
        assert_eq!(layout.risk("6").as_deref(), Some("the pool is lost with any one device"));
        for less in ["raidz1 6", "mirror 2 + mirror 2"] {
            assert!(
                layout.risk(less).is_some_and(|loss| loss.contains(
                    "lost with 2 failed \
                devices"
                )),
                "{less}"
            );
        }
        assert_eq!(layout.risk("raidz2 6"), None);
        assert_eq!(factor("layout", &["6", "2"]).risk("6"), None, "neither bears more");
    }

    #[test]
    fn an_experiment_may_know_risks_of_its_own() {
        let mut cache = factor("direct", &["1", "0"]);
        cache.risks.insert("0".into(), "the client's page cache".into());
        let settings = Settings::from([("direct".into(), "0".into()), ("checksum".into(), "off".into())]);
        let risks = of(&[cache], &settings);
        let names: Vec<&str> = risks.iter().map(|(setting, _)| setting.as_str()).collect();
        assert_eq!(names, ["checksum=off", "direct=0"]);
        assert_eq!(risks[1].1, "the client's page cache");
    }
}
