//! A volume that holds data, of a pool that the running daemon has open.
//!
//! All variants are measured on the same volume. What they differ in is set on it before their runs, while
//! its clients go on; another `volblocksize` rewrites it. Afterwards it has its former properties and block
//! size. `lab/src/target/existing.rs` does that.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{DatasetKind, Facts, Kind, Named, Server, Site, Turns, Used, Words, is_not};
use crate::design::Design;
use crate::environment::Environment;
use crate::error::Result;
use crate::metric::Metric;
use crate::programs::Programs;
use crate::reference::{OVERWRITE, SIZE, TableOf, key};
use crate::setting::{SettingOwner, Settings};
use crate::size::Size;
use crate::workload::Workload;

/// A volume that holds data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Existing {
    /// Its name.
    pub volume: String,
    /// How much of it is used.
    pub size: Size,
    /// Whether what it holds may be overwritten.
    #[serde(default, skip_serializing_if = "is_not")]
    pub overwrite: bool,
}

pub(super) const KIND: Kind = Kind {
    name: "existing",
    tables: &[TableOf {
        head: "[target] kind = \"existing\"",
        about: "A volume that holds data, of a pool that the daemon has open: its properties, and its \
            volblocksize, are set for each variant and set back afterwards; workloads write it only with \
            consent (`overwrite`)",
        keys: &[key("volume", "a volume", None, "\"tank/vm1\"", "Its name; required"), SIZE, OVERWRITE],
    }],
    words: Some(Words {
        about: "existing:POOL/VOLUME",
        fields: |text| text.strip_prefix("existing:").map(|volume| vec![("volume", volume)]),
    }),
};

const FACTS: Facts = Facts {
    owners: &[SettingOwner::Dataset],
    dataset: Some(DatasetKind::Volume),
    unreported: &[(
        &[Metric::Space, Metric::Cpu, Metric::Memory, Metric::Amplification, Metric::ReadAmplification],
        "the daemon and the pool of the volume serve others too, and their figures are not of its workloads \
         alone",
    )],
    no_limit: Some("the devices belong to a pool in use, which the lab uses only through its volume"),
    copied_by: Some("nbdcopy"),
    turns: Turns {
        planned: "block sizes take turns: the volume is rewritten for each in every round",
        done: "block sizes took turns: in each round the volume was rewritten for one, its runs followed, \
            and then the next.",
    },
    ..Facts::NAMED
};

/// The property that rewrites the volume.
pub(crate) const BLOCK: &str = "volblocksize";
/// Properties that take effect while clients use the volume.
pub(crate) const LIVE: [&str; 7] =
    [BLOCK, "primarycache", "compression", "checksum", "dedup", "sync", "logbias"];
/// Those of them that only matter to what is written.
const OF_WRITES: [&str; 5] = ["compression", "checksum", "dedup", "sync", "logbias"];

impl Site for Existing {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn used(&self) -> Used {
        Used { size: self.size, overwrite: self.overwrite }
    }

    fn named(&self) -> Vec<Named<'_>> {
        vec![Named::Volume(&self.volume)]
    }

    fn server(&self) -> Option<Server<'_>> {
        Some(Server::Running)
    }

    /// A round has the runs of each block size in one stretch.
    fn turn(&self, settings: &Settings, _: &Workload) -> Option<Settings> {
        Some(
            settings
                .get_key_value(BLOCK)
                .map(|(name, value)| (name.clone(), value.clone()))
                .into_iter()
                .collect(),
        )
    }

    fn faults(&self, design: Design<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        let parts: Vec<&str> = self.volume.split('/').collect();
        if parts.len() < 2 || parts.contains(&"") || self.volume.contains('@') {
            faults.push(format!("target: '{}' is no volume: POOL/VOLUME", self.volume));
        }
        let mut names: Vec<&String> = design.all_settings().into_iter().map(|(name, _)| name).collect();
        names.dedup();
        let of_volume = names.into_iter().filter(|name| SettingOwner::of(name) == SettingOwner::Dataset);
        let refused = of_volume.filter(|name| !LIVE.contains(&name.as_str()));
        faults.extend(refused.map(|name| {
            format!("'{name}': of a volume that holds data the lab sets only {}", LIVE.join(", "))
        }));
        let compared = design.factors.iter().map(|factor| &factor.name);
        let compared = compared.chain(design.variants.iter().flat_map(Settings::keys));
        let in_vain = compared.filter(|name| OF_WRITES.contains(&name.as_str()) && !design.overwrites());
        faults.extend(in_vain.map(|name| {
            format!(
                "'{name}': its values would make no difference: no workload writes, and blocks stay as they \
                 were written"
            )
        }));
        if design.is_searched && !design.values_of(BLOCK).is_empty() {
            faults.push(format!(
                "'{BLOCK}': a search would rewrite the volume for every step: mode = \"each\" or \"full\""
            ));
        }
        faults
    }

    fn faults_of_server(&self, design: Design<'_>, programs: &dyn Programs) -> Vec<String> {
        let told = |what: &str| format!("target {}: {what}", self.volume);
        match faults_of_volume(self, design, programs) {
            Ok(faults) => faults.iter().map(|what| told(what)).collect(),
            Err(error) => vec![told(&error.to_string())],
        }
    }

    fn environment(&self, _: &Path) -> Result<Environment> {
        Ok(Environment::of_this_machine())
    }

    fn described(&self, _: Design<'_>) -> String {
        format!("Measured was {} of the volume {}, which held data.", self.size, self.volume)
    }
}

/// The first snapshot or bookmark of a volume, where it has some.
pub(crate) fn hanging(programs: &dyn Programs, volume: &str) -> Result<Option<String>> {
    let words = ["list", "-H", "-o", "name", "-d", "1", "-t", "snapshot,bookmark", volume];
    let listed = programs.zfs(&words.map(str::to_owned))?;
    Ok(listed.lines().next().map(|name| name.trim().to_owned()))
}

/// Why the volume cannot be measured, or not be rewritten.
fn faults_of_volume(site: &Existing, design: Design<'_>, programs: &dyn Programs) -> Result<Vec<String>> {
    let volume = site.volume.as_str();
    let get =
        |property: &str| programs.zfs(&["get", "-Hp", "-o", "value", property, volume].map(str::to_owned));
    let text = get("type,volsize,volblocksize,origin")?;
    let [kind, bytes, block, origin] = text.lines().map(str::trim).collect::<Vec<_>>()[..] else {
        return Ok(vec!["it is no volume".to_owned()]);
    };
    if kind != "volume" {
        return Ok(vec!["it is no volume".to_owned()]);
    }
    let mut faults = Vec::new();
    let has = Size(bytes.parse().unwrap_or(0));
    if has < site.size {
        faults.push(format!("it has {has}, fewer than its size of {}: make `size` smaller", site.size));
    }
    let blocks = design.values_of(BLOCK).into_iter().filter_map(|value| value.parse::<Size>().ok());
    let others: Vec<Size> = blocks.filter(|size| size.0.to_string() != block).collect();
    if others.is_empty() {
        return Ok(faults);
    }
    // A rewritten volume is another dataset: what hangs on the old one stays with that.
    if let Some(first) = hanging(programs, volume)? {
        faults.push(format!(
            "{BLOCK}: it has snapshots or bookmarks ({first}), which would stay with the old volume when it \
             is rewritten: destroy them, or compare {BLOCK} on another volume"
        ));
    }
    if origin != "-" {
        faults.push(format!(
            "{BLOCK}: it is a clone of {origin}, and would be one no more after it was rewritten"
        ));
    }
    for size in others {
        faults.extend(programs.reshape_fault(volume, size)?.map(|what| format!("{BLOCK}={size}: {what}")));
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::plan::Plan;

    fn faults(rest: &str) -> Vec<String> {
        faults_in("each", rest)
    }

    fn faults_in(mode: &str, rest: &str) -> Vec<String> {
        let text = format!(
            "name = \"x\"\nmode = \"{mode}\"\n[target]\nkind = \"existing\"\nvolume = \"tank/vm1\"\nsize = \
             \"16M\"\n{rest}"
        );
        Experiment::read(&text).unwrap().faults()
    }

    const READS: &str = "[[workload]]\nname = \"w\"\nrw = \"randread\"\nbs = \"4K\"\n";
    const WRITES: &str = "[[workload]]\nname = \"w\"\nrw = \"randwrite\"\nbs = \"4K\"\n";

    fn factor(name: &str, values: &str) -> String {
        format!("[[factor]]\nname = \"{name}\"\nvalues = [{values}]\n")
    }

    #[test]
    fn only_what_can_be_set_on_a_volume_in_use_is_compared_on_it() {
        let blocks = factor("volblocksize", "\"16K\", \"64K\"");
        assert!(faults(&format!("{blocks}{READS}")).is_empty());
        let sync = factor("sync", "\"standard\", \"always\"");
        assert!(faults(&format!("{sync}{WRITES}")).is_empty());
        let dedup = factor("dedup", "\"off\", \"on\", \"verify\"");
        assert!(faults(&format!("{dedup}{WRITES}")).is_empty());
        for (rest, named) in [
            (format!("{sync}{READS}"), "'sync': its values would make no difference"),
            (format!("{dedup}{READS}"), "'dedup': its values would make no difference"),
            (format!("{}{READS}", factor("copies", "\"1\", \"2\"")), "'copies': of a volume that holds data"),
            (format!("{}{READS}", factor("layout", "\"1\", \"mirror 2\"")), "no setting 'layout'"),
            (format!("{READS}[goal]\nmetric = \"cpu\"\n"), "serve others too"),
        ] {
            let told = faults(&rest);
            assert!(told.iter().any(|it| it.contains(named)), "{rest}: {told:?}");
        }
        let told = faults_in("search", &format!("{blocks}{READS}"));
        assert!(told.iter().any(|it| it.contains("a search would rewrite")), "{told:?}");
    }

    #[test]
    fn a_round_rewrites_the_volume_once_for_each_block_size() {
        let text = format!(
            "name = \"x\"\nmode = \"full\"\n[target]\nkind = \"existing\"\nvolume = \"tank/vm1\"\nsize = \
             \"16M\"\n{}{}{READS}",
            factor("volblocksize", "\"16K\", \"64K\", \"8K\""),
            factor("primarycache", "\"all\", \"metadata\""),
        );
        let experiment = Experiment::parse(&text).unwrap();
        let plan = Plan::new(&experiment, None, 7);
        assert_eq!(plan.turns(), 3);
        for round in 0..3 {
            let block = |variant: usize| &plan.variants()[variant].settings[BLOCK];
            let mut blocks: Vec<&String> = plan.round(round).iter().map(|step| block(step.variant)).collect();
            assert_eq!(blocks.len(), 7);
            blocks.dedup();
            assert_eq!(blocks.len(), 3, "{blocks:?}");
        }
    }
}
