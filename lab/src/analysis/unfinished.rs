//! What an unfinished experiment lacks, and what few rounds cannot show: every reader of its report must
//! know.

use super::is_precise;
use crate::found;
use crate::plan::Plan;
use crate::store::{Stage, Store};

/// Fewer rounds than this decide hardly anything.
const FEW_ROUNDS: usize = 3;

/// What is missing in words, with so many complete rounds; `None` where all that was planned was run.
pub(super) fn told(store: &Store, plan: &Plan, rounds: usize) -> Option<String> {
    let experiment = store.experiment();
    let goes_on =
        format!("The findings below are those of these runs and may change; `{}` goes on.", resume(store));
    if experiment.is_searched() && found::found(store).is_none() {
        let most = experiment.search_runs();
        let runs = store.runs().iter().filter(|run| run.stage == Stage::Search).count();
        return Some(format!(
            "Unfinished: the search has not ended, {runs} of up to {most} runs are done. {goes_on}"
        ));
    }
    let compared = store.compared().count();
    let planned = experiment.least_rounds();
    let most = experiment.max_rounds.unwrap_or(planned).max(planned);
    if rounds < planned {
        return Some(format!(
            "Unfinished: {rounds} of {planned} rounds are complete, {compared} of {} runs are done. \
             {goes_on}",
            planned * plan.round_length()
        ));
    }
    if rounds < most && !is_precise(store) {
        return Some(format!(
            "Unfinished: {rounds} rounds are complete, and intervals are not yet as narrow as `precision` \
             wants; up to {most} were planned. {goes_on}"
        ));
    }
    None
}

/// The command that goes on with it, as a shell takes it.
pub(super) fn resume(store: &Store) -> String {
    let directory = store.directory().display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./+,:@%".contains(c);
    match directory.chars().all(is_plain) {
        _ if directory.is_empty() => "cenote lab resume DIR".to_owned(),
        true => format!("cenote lab resume {directory}"),
        false => format!("cenote lab resume '{}'", directory.replace('\'', "'\\''")),
    }
}

/// Rounds that can show differences that are not small.
const SOME_ROUNDS: usize = 5;

/// A note that so many complete rounds decide hardly anything, if so; all that was planned may have been
/// run.
pub(super) fn few(store: &Store, rounds: usize) -> Option<String> {
    let few = match rounds {
        0 => return None,
        1 => "One round only: nothing can be compared, and no figure has an interval.",
        _ if rounds < FEW_ROUNDS => "Two rounds only: intervals are very wide, and little can be decided.",
        _ => return None,
    };
    Some(format!("{few} `{} --rounds {SOME_ROUNDS}` adds rounds, up to {SOME_ROUNDS} in all.", resume(store)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::experiment::Experiment;

    #[test]
    fn commands_can_be_typed_as_they_are_told() {
        let text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[workload]]\nname = \
            \"w\"\nrw = \"read\"\n";
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let (experiment, path) = (Experiment::parse(text).unwrap(), directory.path().join(name));
            (Store::create(&path, experiment, Environment::default()).unwrap(), path.display().to_string())
        };
        let (store, path) = of("plain");
        let told = few(&store, 2).unwrap();
        assert!(told.contains(&format!("`cenote lab resume {path} --rounds 5`")), "{told}");
        let (store, path) = of("my lab");
        assert_eq!(resume(&store), format!("cenote lab resume '{path}'"));
        assert_eq!(few(&store, 3), None);
    }
}
