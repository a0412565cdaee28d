//! What to change about a live pool.
//!
//! [`Observations`] holds the output of the pool's commands and the facts of this machine: vdevs, properties
//! of pool and datasets, counters, the media below the devices. Each rule is a function from that to
//! [`Advice`], which always comes with evidence: the observed value, and the result of a model. The stated
//! gain is that of the model; so each advice has the command that would prove it on this machine.
//!
//! Only read-only commands are used, and nothing is changed.

mod caches;
mod observations;
mod rules;

use std::fmt;

use serde::Serialize;

pub use observations::{Commands, Observations};

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Data can be lost.
    Danger,
    /// Speed or space is lost.
    Cost,
    /// Worth a look.
    Hint,
}

impl Weight {
    fn word(self) -> &'static str {
        match self {
            Self::Danger => "DANGER",
            Self::Cost => "COST",
            Self::Hint => "HINT",
        }
    }
}

/// Something to change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// A short name of the rule, the same each time.
    pub rule: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// The dataset, vdev or machine that it is about.
    pub about: String,
    /// The change.
    pub change: String,
    /// The evidence.
    pub evidence: String,
    /// The gain of the change.
    pub gain: String,
    /// Its value.
    pub cost: String,
    /// Its risk.
    pub risk: String,
    /// The command that would prove it.
    pub proof: String,
}

/// All that there is to say of a pool, the weightiest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advised {
    /// The pool.
    pub pool: String,
    /// The change.
    pub advice: Vec<Advice>,
}

impl Advised {
    /// The advice of the rules for the observations.
    pub fn of(seen: &Observations) -> Self {
        let mut advice: Vec<Advice> = rules::RULES.iter().flat_map(|rule| rule(seen)).collect();
        advice.sort_by_key(|advice| advice.weight);
        Self { pool: seen.pool.clone(), advice }
    }

    /// The subject of an advice, with the pool where that is not in its name: several pools may have a
    /// raidz1-0.
    fn about(&self, advice: &Advice) -> String {
        let within = advice.about.strip_prefix(&self.pool);
        match within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            true => advice.about.clone(),
            false => format!("{} (pool {})", advice.about, self.pool),
        }
    }
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.advice.is_empty() {
            return writeln!(f, "{}: nothing to change that these rules know of", self.pool);
        }
        for (index, advice) in self.advice.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let about = self.about(advice);
            writeln!(f, "{} {about}: {}", advice.weight.word(), advice.change)?;
            for (name, text) in [
                ("seen", &advice.evidence),
                ("gain", &advice.gain),
                ("cost", &advice.cost),
                ("risk", &advice.risk),
                ("proof", &advice.proof),
            ] {
                writeln!(f, "  {name:<6} {text}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_on_vdevs_names_their_pool() {
        let advice = |about: &str| Advice {
            rule: "rule",
            weight: Weight::Hint,
            about: about.into(),
            change: "change it".into(),
            evidence: String::new(),
            gain: String::new(),
            cost: String::new(),
            risk: String::new(),
            proof: String::new(),
        };
        let about = ["raidz1-0", "tank", "tank/v", "tank2-disk"].map(advice).to_vec();
        let told = Advised { pool: "tank".into(), advice: about }.to_string();
        let heads: Vec<&str> = told.lines().filter(|line| line.starts_with("HINT")).collect();
        assert_eq!(
            heads,
            [
                "HINT raidz1-0 (pool tank): change it",
                "HINT tank: change it",
                "HINT tank/v: change it",
                "HINT tank2-disk (pool tank): change it"
            ]
        );
    }
}
