//! What was measured: facts that a reader needs to compare it with other systems.
//!
//! For pools that the lab made these are the layout, the medium of their devices, and their sector size:
//! `zpool create` chooses it by the devices, so the lab asks the pool ([`crate::store::Run::sector`]). Blocks
//! that are not whole sectors, sectors that are not whole units of the medium, and operations on parts of
//! blocks cost more than the client sees; the report says so.

use std::collections::BTreeMap;
use std::path::Path;

use super::section::plan_of;
use crate::analysis::Findings;
use crate::experiment::{Experiment, Settings};
use crate::medium::Medium;
use crate::plan::{Variant, VariantKind};
use crate::site::DatasetKind;
use crate::size::Size;
use crate::store::Store;

/// The defaults of the properties that speed depends on most; not `volblocksize` and
/// `recordsize`.
const DEFAULTS: [(&str, &str); 5] = [
    ("compression", "on (lz4)"),
    ("checksum", "on (fletcher4)"),
    ("sync", "standard"),
    ("copies", "1"),
    ("primarycache", "all"),
];

/// All that is to be said of it.
pub(super) fn facts(store: &Store, findings: &Findings) -> Vec<String> {
    let experiment = store.experiment();
    let sectors = sectors(store);
    let mut facts = vec![experiment.target.described(experiment.design())];
    facts.extend(defaults(experiment));
    facts.extend(of_sectors(&sectors));
    let media = &store.environment().media;
    facts.extend(media.iter().map(|(path, medium)| lies_on(path, medium, &sectors)));
    facts.extend(of_blocks(experiment, findings, &sectors));
    facts
}

/// The settings that were not named.
fn defaults(experiment: &Experiment) -> Option<String> {
    experiment.target.pools()?;
    let block = experiment.target.facts().dataset.map(DatasetKind::block);
    let all = block.into_iter().chain(DEFAULTS);
    let left = all.filter(|(name, _)| experiment.design().compared(name).is_none());
    let left: Vec<String> = left.map(|(name, value)| format!("{name}={value}")).collect();
    (!left.is_empty()).then(|| {
        format!(
            "Settings that are not named had their defaults, such as \
        {}.",
            left.join(", ")
        )
    })
}

/// The size of a variant's blocks.
pub(super) fn block_of(experiment: &Experiment, settings: &Settings) -> Option<Size> {
    let (property, default) = experiment.target.dataset_kind(settings)?.block();
    settings.get(property).map_or(default, String::as_str).parse().ok()
}

/// Variants by the bytes of their pools' sectors.
type Sectors<'a> = BTreeMap<u64, Vec<&'a str>>;

fn sectors(store: &Store) -> Sectors<'_> {
    let mut sectors = Sectors::new();
    for run in store.runs() {
        let Some(sector) = run.sector else { continue };
        let variants = sectors.entry(sector).or_default();
        if !variants.contains(&run.variant.as_str()) {
            variants.push(&run.variant);
        }
    }
    sectors
}

fn of_sectors(sectors: &Sectors<'_>) -> Option<String> {
    let said = |(sector, variants): (&u64, &Vec<&str>)| match sectors.len() {
        1 => format!("{sector} bytes"),
        _ => format!("{sector} bytes ({})", variants.join(", ")),
    };
    let all: Vec<String> = sectors.iter().map(said).collect();
    (!all.is_empty()).then(|| format!("Sectors of the pools are of {}.", all.join(", and of ")))
}

/// The medium of the target, and whether the pools' sectors fit it.
fn lies_on(path: &Path, medium: &Medium, sectors: &Sectors<'_>) -> String {
    let fits = match medium.unit.filter(|_| !sectors.is_empty()) {
        None => String::new(),
        Some(unit) => {
            let small: Vec<String> =
                sectors.keys().filter(|sector| **sector < unit).map(u64::to_string).collect();
            match small.is_empty() {
                true => "; the pools' sectors fit".to_owned(),
                false => format!(
                    "; sectors of {} do not fill one: it reads and writes more than requested",
                    small.join(" and ")
                ),
            }
        }
    };
    format!("{} lies on {medium}{fits}.", path.display())
}

/// Blocks beside sectors, and operations beside blocks.
fn of_blocks(experiment: &Experiment, findings: &Findings, sectors: &Sectors<'_>) -> Vec<String> {
    if experiment.target.pools().is_none() {
        return Vec::new();
    }
    let block = |variant: &Variant| block_of(experiment, &variant.settings).map(|block| block.0);
    let plan = plan_of(experiment, findings);
    let is_of_pools = |it: &&Variant| matches!(it.kind, VariantKind::Baseline | VariantKind::Change);
    let variants: Vec<(&Variant, u64)> =
        plan.variants().iter().filter(is_of_pools).filter_map(|it| Some((it, block(it)?))).collect();
    let sector_of =
        |variant: &str| sectors.iter().find(|(_, names)| names.contains(&variant)).map(|it| *it.0);
    let mut facts = Vec::new();
    let small =
        variants.iter().filter(|(variant, block)| sector_of(&variant.name).is_some_and(|it| *block < it));
    let small: Vec<&str> = small.map(|(variant, _)| variant.name.as_str()).collect();
    if !small.is_empty() {
        facts.push(format!(
            "Blocks are smaller than a sector with {}: each takes a whole one.",
            small.join(", ")
        ));
    }
    for workload in &experiment.workloads {
        let is_part = |(variant, block): &(&Variant, u64)| -> Option<u64> {
            let workload = workload.with(&variant.settings).ok()?;
            // What is written in order fills blocks before they are written.
            let is_random = workload.rw.contains("rand") && workload.writes();
            (is_random && !workload.bs.0.is_multiple_of(*block)).then_some(*block)
        };
        let mut blocks: Vec<u64> = variants.iter().filter_map(is_part).collect();
        blocks.sort_unstable();
        blocks.dedup();
        if !blocks.is_empty() {
            let blocks: Vec<String> = blocks.into_iter().map(|block| Size(block).to_string()).collect();
            facts.push(format!(
                "\"{}\" writes parts of blocks of {}: the rest of a block is written with it, and read \
                 before where it is not in the cache.",
                workload.name,
                blocks.join(" and ")
            ));
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Findings;

    const EXPERIMENT: &str = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\nlayout = \"mirror 2 \
        + mirror 2\"\n[settings]\nsync = \"always\"\n\
         [[factor]]\nname = \"volblocksize\"\nvalues = [\"16K\", \"4K\"]\n\
         [[workload]]\nname = \"w\"\nrw = \"randwrite\"\nbs = \"4K\"\n[[workload]]\nname = \"r\"\nrw = \
         \"randread\"\nbs = \"4K\"\n\
         [[workload]]\nname = \"s\"\nrw = \"write\"\nbs = \"4K\"\n";

    #[test]
    fn it_is_said_what_was_measured_and_what_held_for_what_is_not_named() {
        let experiment = Experiment::parse(EXPERIMENT).unwrap();
        assert_eq!(
            experiment.target.described(experiment.design()),
            "Measured was a volume of 64M in a pool of mirror 2 + mirror 2, on files."
        );
        assert_eq!(
            defaults(&experiment).unwrap(),
            "Settings that are not named had their defaults, such as compression=on (lz4), checksum=on \
             (fletcher4), copies=1, primarycache=all."
        );
    }

    #[test]
    fn sectors_are_those_that_pools_had_and_whether_they_and_blocks_fit_is_told_of_each() {
        let experiment = Experiment::parse(EXPERIMENT).unwrap();
        let findings = Findings::default();
        let mut sectors = Sectors::from([(4096, vec!["baseline", "volblocksize=4K"])]);
        let medium = Medium { unit: Some(4096), ..Medium::default() };
        let path = Path::new("/x");
        assert!(lies_on(path, &medium, &sectors).ends_with("; the pools' sectors fit."));
        assert_eq!(of_sectors(&sectors).unwrap(), "Sectors of the pools are of 4096 bytes.");
        let parts = "\"w\" writes parts of blocks of 16K: the rest of a block is written with it, and read \
            before where it is not in the cache.";
        assert_eq!(of_blocks(&experiment, &findings, &sectors), [parts]);
        sectors = Sectors::from([(512, vec!["baseline"]), (8192, vec!["volblocksize=4K"])]);
        assert!(lies_on(path, &medium, &sectors).contains("; sectors of 512 do not fill one"));
        assert!(
            of_sectors(&sectors)
                .unwrap()
                .contains("512 bytes (baseline), and of 8192 bytes (volblocksize=4K)")
        );
        assert_eq!(
            of_blocks(&experiment, &findings, &sectors),
            ["Blocks are smaller than a sector with volblocksize=4K: each takes a whole one.", parts]
        );
        // Nothing is assumed about pools that were not asked.
        assert!(lies_on(path, &medium, &Sectors::new()).ends_with("written in one piece."));
    }
}
