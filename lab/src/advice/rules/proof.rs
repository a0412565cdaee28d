//! The proof that an advice offers: the experiment that shows what the change would do here.

use crate::advice::observations::{Dataset, Observations};
use crate::size::Size;

/// Share of the memory that caches and tables may take.
pub(super) const MEMORY_SHARE: f64 = 0.25;
/// The longest name of an experiment.
const LONGEST_NAME: usize = 64;

/// What the experiment of a rule about something is called, and its file: no two advices have the same.
pub(super) fn named(rule: &str, about: &str) -> String {
    let plain = |c: char| match c {
        '/' => '.',
        c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
        _ => '_',
    };
    let name = format!("{rule}-{}", about.trim_start_matches('/'));
    name.chars().map(plain).take(LONGEST_NAME).collect()
}

/// The command that makes an experiment called `name` out of a recipe, or where that is empty out of
/// `options` only, with these factors instead of the recipe's.
pub(super) fn made(name: &str, recipe: &str, options: &str, factors: &[String]) -> String {
    let factors: String = factors.iter().map(|factor| format!(" --factor '{factor}'")).collect();
    let [recipe, options] =
        [recipe, options].map(|it| if it.is_empty() { String::new() } else { format!(" {it}") });
    format!("cenote lab new{recipe} --name {name}{options}{factors} -o {name}.toml")
}

/// The same on pools like this one, and the command that runs it.
pub(super) fn experiment(
    seen: &Observations,
    name: &str,
    recipe: &str,
    options: &str,
    factors: &[String],
) -> String {
    let layout = seen.layout();
    let layout = if layout.is_empty() { String::new() } else { format!("--layout '{layout}'") };
    let options = [options, &layout].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    format!("{} && cenote lab run {name}.toml", made(name, recipe, &options.join(" "), factors))
}

/// Variations of the size of a dataset's blocks, by the space that they take.
pub(super) fn block_experiment(
    seen: &Observations,
    name: &str,
    dataset: &Dataset,
    sizes: [u64; 2],
    more: &[String],
) -> String {
    let sizes = sizes.map(|size| Size(size).to_string()).join(",");
    let (property, options) = match dataset.is_volume {
        true => ("volblocksize", "--goal space"),
        false => ("recordsize", "--target filesystem --goal space"),
    };
    let factors = [vec![format!("{property}={sizes}")], more.to_vec()].concat();
    experiment(seen, name, "volblocksize", options, &factors)
}

pub(super) fn volumes_and_filesystems(seen: &Observations) -> impl Iterator<Item = &Dataset> {
    seen.datasets.iter()
}

/// Names of datasets that have a property by themselves, so that each cause is reported once.
pub(super) fn with_own<'a>(seen: &'a Observations, property: &'a str, value: &'a str) -> Vec<&'a str> {
    let has = |dataset: &&Dataset| dataset.text(property) == value && dataset.is_own(property);
    volumes_and_filesystems(seen).filter(has).map(|dataset| dataset.name.as_str()).collect()
}
