//! The rules: each looks for one mistake that administrators learned the hard way.
//!
//! | module | what its rules look for |
//! |---|---|
//! | `safety` | what may be lost |
//! | `space` | what takes more space than it needs |
//! | `speed` | what is slower than it could be |
//!
//! `proof` makes the experiment that shows what a change would do.

mod proof;
mod safety;
mod space;
mod speed;

use super::Advice;
use super::caches::{cache_device, larger_arc, special_vdev};
use super::observations::Observations;
use safety::{
    checksum_off, degraded, failing_devices, few_metadata, no_redundancy, stale_halves, sync_disabled,
    thin_redundancy, unmirrored_log,
};
use space::{
    blocks_below_sectors, copy_on_write_twice, dedup, misaligned, nearly_full, small_blocks, uncompressed,
    wide_raidz,
};
use speed::{
    cache_headers, no_aes, slow_compression, slow_devices, stable_writes_without_log, uncached, unused_cache,
    writethrough,
};

/// One thing to look for.
type Rule = fn(&Observations) -> Vec<Advice>;

/// All of them.
pub(super) const RULES: [Rule; 28] = [
    degraded,
    stale_halves,
    unmirrored_log,
    sync_disabled,
    checksum_off,
    few_metadata,
    failing_devices,
    no_redundancy,
    thin_redundancy,
    copy_on_write_twice,
    misaligned,
    blocks_below_sectors,
    small_blocks,
    wide_raidz,
    dedup,
    writethrough,
    no_aes,
    stable_writes_without_log,
    uncompressed,
    uncached,
    unused_cache,
    slow_compression,
    cache_headers,
    slow_devices,
    nearly_full,
    larger_arc,
    cache_device,
    special_vdev,
];

#[cfg(test)]
mod tests {
    use super::space::smallest_efficient;
    use super::*;
    use crate::advice::Weight;
    use crate::advice::observations::{Dataset, Leaf, Top};
    use crate::environment::Environment;
    use crate::experiment::draft::Draft;
    use crate::layout::Vdev;
    use crate::medium::Medium;

    /// A pool that nothing is wrong with.
    fn good() -> Observations {
        let leaf = |index: u64| Leaf {
            path: format!("/dev/sd{index}"),
            top: "raidz2-0".into(),
            ashift: 12,
            wait_ns: [Some(8_000_000), Some(100_000)],
            operations: [Some(5000), Some(200_000)],
            medium: Medium { unit: Some(4096), turns: Some(false), ..Medium::default() },
            ..Leaf::default()
        };
        Observations {
            pool: "tank".into(),
            machine: Environment {
                memory_bytes: 16 << 30,
                cpu_flags: vec!["aes".into()],
                ..Environment::default()
            },
            capacity: 0.5,
            dedup_ratio: 1.0,
            tops: vec![Top {
                name: "raidz2-0".into(),
                vdev: Vdev::Raidz { parity: 2, width: 6 },
                ashift: 12,
                device_bytes: 1 << 40,
            }],
            leaves: (0..6).map(leaf).collect(),
            datasets: vec![
                Dataset::made("tank", false, &[("recordsize", "131072"), ("compression", "lz4")]),
                Dataset::made("tank/v", true, &[("volblocksize", "65536"), ("sync", "standard")]),
            ],
            ..Observations::default()
        }
    }

    fn volume(seen: &mut Observations, properties: &[(&str, &str)]) {
        seen.datasets.push(Dataset::made("tank/bad", true, properties));
    }

    /// Makes the pool a mirror of two.
    fn mirrored(seen: &mut Observations) {
        seen.leaves.truncate(2);
        seen.leaves.iter_mut().for_each(|leaf| leaf.top = "mirror-0".into());
        seen.tops[0] =
            Top { name: "mirror-0".into(), vdev: Vdev::Mirror { ways: 2 }, ..seen.tops[0].clone() };
    }

    /// Gives the pool a cache device that was read so often.
    fn cache(seen: &mut Observations, reads: Option<u64>) {
        let path = "/dev/cache".to_owned();
        let operations = [reads, Some(7)];
        seen.leaves.push(Leaf {
            path: path.clone(),
            top: path.clone(),
            ashift: 12,
            operations,
            ..Leaf::default()
        });
        seen.caches.push((path, Some(4096)));
    }

    #[test]
    fn what_is_behind_idle_or_alone_is_told_with_figures_and_commands() {
        let mut seen = Observations { program: "cenote ".into(), ..good() };
        mirrored(&mut seen);
        seen.leaves[1].state = "OFFLINE".into();
        seen.leaves[1].operations[1] = Some(12);
        let stale = &stale_halves(&seen)[0];
        assert_eq!(
            stale.evidence,
            "/dev/sd1 is OFFLINE; since the pool was opened another half of mirror-0 took 200000 writes, it \
             12"
        );
        assert!(
            stale.change.starts_with(
                "bring it back (cenote zpool online tank /dev/sd1), and it is resilvered; replace"
            )
        );
        cache(&mut seen, Some(0));
        let unused = &unused_cache(&seen)[0];
        assert!(
            unused
                .evidence
                .starts_with("/dev/cache, which holds 4.0 KiB, was never read since the pool was opened,"),
            "{unused:?}"
        );
        assert!(unused.change.contains("(cenote zpool remove tank /dev/cache)"));
        seen.bare_logs.push("/dev/sd0".into());
        let bare = &unmirrored_log(&seen)[0];
        assert_eq!(bare.evidence, "the log vdev /dev/sd0 is one device");
        assert!(bare.change.contains("cenote zpool add tank log mirror DEVICE DEVICE"));
        seen.leaves[0].top = "/dev/sd0".into();
        assert!(
            unmirrored_log(&seen)[0].evidence.ends_with("; it took 200000 writes since the pool was opened")
        );
        seen.writes = Some([1000, 3000]);
        volume(&mut seen, &[("compression", "gzip-9")]);
        assert_eq!(
            slow_compression(&seen)[0].evidence,
            "compression=gzip-9, in a pool that made 1000 synchronous writes since it was opened (25.0 % of \
             its writes)"
        );
    }

    #[test]
    fn a_pool_that_is_right_gets_no_advice_and_each_fault_the_advice_for_it() {
        let rules = |seen: &Observations| {
            let advised = super::super::Advised::of(seen);
            assert!(advised.to_string().contains("tank") || !advised.advice.is_empty());
            advised.advice.iter().map(|advice| advice.rule).collect::<Vec<_>>()
        };
        assert_eq!(rules(&good()), Vec::<&str>::new());
        type Fault = fn(&mut Observations);
        let faults: [(&str, Fault); 29] = [
            ("degraded", |seen| {
                seen.health = "DEGRADED".into();
                seen.leaves[1].state = "FAULTED".into();
            }),
            ("checksum-off", |seen| volume(seen, &[("checksum", "off")])),
            ("few-metadata", |seen| volume(seen, &[("redundant_metadata", "none")])),
            ("sync-disabled", |seen| volume(seen, &[("sync", "disabled")])),
            ("errors", |seen| seen.leaves[0].errors = 1),
            ("no-redundancy", |seen| seen.tops[0].vdev = Vdev::Disk),
            ("thin-redundancy", |seen| {
                seen.tops[0].vdev = Vdev::Raidz { parity: 1, width: 6 };
                seen.tops[0].device_bytes = 16 << 40;
            }),
            ("copy-on-write-twice", |seen| seen.leaves[2].medium.filesystem = Some("btrfs".into())),
            ("misaligned", |seen| seen.leaves.iter_mut().for_each(|leaf| leaf.ashift = 9)),
            ("blocks-below-sectors", |seen| {
                seen.tops[0].vdev = Vdev::Mirror { ways: 2 };
                seen.tops[0].ashift = 14;
                volume(seen, &[("volblocksize", "8192")]);
            }),
            ("small-blocks", |seen| volume(seen, &[("volblocksize", "8192")])),
            ("wide-raidz", |seen| seen.tops[0].vdev = Vdev::Raidz { parity: 2, width: 14 }),
            ("dedup", |seen| volume(seen, &[("dedup", "on")])),
            ("dedup", |seen| seen.dedup_table = 5 << 30),
            ("writethrough", |seen| {
                seen.machine.is_virtual = true;
                seen.leaves[0].medium.is_virtual = true;
                seen.leaves[0].medium.is_writethrough = true;
            }),
            ("no-aes", |seen| {
                seen.machine.cpu_flags.clear();
                seen.leaves[2].medium.is_encrypted = true;
            }),
            ("no-aes", |seen| {
                seen.machine.cpu_flags.clear();
                volume(seen, &[("encryption", "aes-256-gcm")]);
            }),
            ("no-log-device", |seen| seen.leaves[0].medium.turns = Some(true)),
            ("uncompressed", |seen| volume(seen, &[("compression", "off")])),
            ("uncached", |seen| volume(seen, &[("primarycache", "metadata")])),
            ("cache-headers", |seen| {
                seen.cache_bytes = 4 << 40;
                volume(seen, &[("volblocksize", "65536")]);
            }),
            ("slow-device", |seen| seen.leaves[3].wait_ns[0] = Some(40_000_000)),
            ("stale-half", |seen| {
                mirrored(seen);
                seen.leaves[1].state = "OFFLINE".into();
            }),
            ("stale-half", |seen| {
                mirrored(seen);
                seen.leaves[0].behind = Some("awaiting resilver".into());
            }),
            ("unmirrored-log", |seen| {
                seen.has_log = true;
                seen.bare_logs.push("/dev/log".into());
            }),
            ("unused-cache", |seen| cache(seen, Some(0))),
            ("unused-cache", |seen| cache(seen, None)),
            ("gzip-beside-sync", |seen| {
                seen.writes = Some([1000, 9000]);
                volume(seen, &[("compression", "gzip-9")]);
            }),
            ("gzip-beside-sync", |seen| {
                seen.writes = Some([1000, 9000]);
                volume(seen, &[("compression", "gzip")]);
            }),
        ];
        for (rule, fault) in faults {
            let mut seen = good();
            fault(&mut seen);
            assert_eq!(rules(&seen), [rule]);
        }
        // None where the processor has them, nor on a host.
        let mut right = good();
        right.leaves[2].medium.is_encrypted = true;
        right.leaves[0].medium.is_writethrough = true;
        assert_eq!(rules(&right), Vec::<&str>::new());
        let right: [Fault; 6] = [
            // What was read is of use, and a pool that was just opened shows nothing of a cache.
            |seen| cache(seen, Some(1)),
            |seen| {
                cache(seen, Some(0));
                seen.leaves.iter_mut().for_each(|leaf| leaf.operations[0] = Some(0));
            },
            // No program waits, or nothing takes long.
            |seen| {
                seen.writes = Some([999, 0]);
                volume(seen, &[("compression", "gzip-9")]);
            },
            |seen| {
                seen.writes = Some([1000, 90_000]);
                volume(seen, &[("compression", "gzip-9")]);
            },
            |seen| {
                seen.writes = Some([1000, 0]);
                volume(seen, &[("compression", "gzip-1")]);
            },
            |seen| {
                mirrored(seen);
                seen.leaves[1].state = "DEGRADED".into();
            },
        ];
        for right in right {
            let mut seen = good();
            right(&mut seen);
            assert_eq!(rules(&seen), Vec::<&str>::new(), "{seen:?}");
        }
        let full = Observations { capacity: 0.97, ..good() };
        assert_eq!(rules(&full), ["nearly-full"]);
    }

    #[test]
    fn commands_are_those_that_can_be_typed_where_the_pool_is() {
        let proof = |program: &str| {
            let mut seen = Observations { program: program.into(), health: "DEGRADED".into(), ..good() };
            seen.leaves[3].wait_ns[0] = Some(40_000_000);
            [degraded(&seen), slow_devices(&seen)].map(|advice| advice[0].proof.clone())
        };
        assert_eq!(proof(""), ["zpool status tank", "zpool iostat -v tank 10 6"]);
        assert_eq!(proof("cenote "), ["cenote zpool status tank", "cenote zpool iostat -v tank 10 6"]);
    }

    #[test]
    fn a_cache_is_proven_by_reads_of_what_is_there() {
        let mut seen = good();
        let own = [("primarycache", "none"), ("recordsize", "16384")];
        seen.datasets.push(Dataset::made("tank/fs", false, &own));
        volume(&mut seen, &[("primarycache", "none"), ("volblocksize", "8192")]);
        let proofs: Vec<String> = uncached(&seen).into_iter().map(|advice| advice.proof).collect();
        assert!(
            proofs[0].contains("--target filesystem --workload randread,16K,4 --goal iops"),
            "{proofs:?}"
        );
        assert!(proofs[1].contains("--target volume --workload randread,8K,4 --goal iops"), "{proofs:?}");
    }

    #[test]
    fn devices_that_did_nothing_are_not_slow() {
        let mut seen = good();
        seen.leaves.iter_mut().for_each(|leaf| leaf.wait_ns = [None, None]);
        assert!(slow_devices(&seen).is_empty());
    }

    #[test]
    fn devices_that_did_little_are_not_slow_and_how_much_they_did_is_told() {
        let mut seen = good();
        seen.leaves[3].wait_ns[0] = Some(40_000_000);
        let told = slow_devices(&seen)[0].evidence.clone();
        assert!(
            told.contains("40.0 ms on average over 5000") && told.contains("at least 1000 reads"),
            "{told}"
        );
        for few in [Some(12), None] {
            seen.leaves[3].operations[0] = few;
            assert!(slow_devices(&seen).is_empty(), "{few:?}");
        }
    }

    #[test]
    fn the_block_that_is_advised_is_the_smallest_that_is_nearly_the_best() {
        let best = |parity, width, ashift| {
            let vdev = Vdev::Raidz { parity, width };
            smallest_efficient(&Top { name: String::new(), vdev, ashift, device_bytes: 0 })
        };
        // Whole rows, and no padding, where data devices are a power of two.
        assert_eq!([best(1, 3, 12), best(2, 6, 12), best(2, 6, 9)].map(|bytes| bytes >> 10), [16, 16, 4]);
        assert!(best(2, 11, 12) > 16 << 10);
        let mut seen = good();
        volume(&mut seen, &[("volblocksize", "8192")]);
        let advice = &small_blocks(&seen)[0];
        assert_eq!(advice.change, "use volblocksize=16K, or mirrors");
        assert!(advice.evidence.contains("33.3 %") && advice.evidence.contains("66.7 %"), "{advice:?}");
        seen.datasets.pop();
        volume(&mut seen, &[("volblocksize", "16384")]);
        assert!(small_blocks(&seen).is_empty());
    }

    /// Commands `cenote lab new` in a proof, as words.
    fn new_commands(proof: &str) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for (at, _) in proof.match_indices("cenote lab new ") {
            let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
            let command = &proof[at + "cenote lab new ".len()..];
            let end = command.find(" &&").or_else(|| command.find(", then")).unwrap_or(command.len());
            for c in command[..end].chars().chain([' ']) {
                match c {
                    '\'' => quoted = !quoted,
                    ' ' if !quoted => words.push(std::mem::take(&mut word)),
                    c => word.push(c),
                }
            }
            all.push(words);
        }
        all
    }

    #[test]
    fn proofs_are_experiments_that_show_what_is_claimed_each_in_a_file_of_its_own() {
        let mut seen = good();
        seen.capacity = 0.9;
        seen.machine.cpu_flags.clear();
        seen.tops[0].vdev = Vdev::Raidz { parity: 2, width: 14 };
        seen.tops[0].ashift = 13;
        seen.leaves[0].medium.turns = Some(true);
        seen.leaves[1].medium.is_virtual = true;
        seen.leaves[1].medium.is_writethrough = true;
        seen.machine.is_virtual = true;
        seen.leaves[2].medium.filesystem = Some("btrfs".into());
        seen.leaves[3].ashift = 9;
        let own = [
            ("sync", "disabled"),
            ("checksum", "off"),
            ("redundant_metadata", "none"),
            ("compression", "off"),
            ("primarycache", "none"),
            ("encryption", "aes-256-gcm"),
            ("volblocksize", "4096"),
        ];
        seen.datasets.push(Dataset::made("tank/one", true, &own));
        seen.datasets.push(Dataset::made("tank/two", true, &own));
        seen.datasets.push(Dataset::made("tank/fs", false, &[("recordsize", "4096")]));
        seen.writes = Some([5000, 5000]);
        seen.datasets.push(Dataset::made(
            "tank/z",
            true,
            &[("compression", "gzip-9"), ("volblocksize", "65536")],
        ));
        seen.datasets.push(Dataset::made(
            "tank/y",
            true,
            &[("compression", "gzip"), ("volblocksize", "65536")],
        ));
        let advised = super::super::Advised::of(&seen).advice;
        let proof = |rule: &str| &advised.iter().find(|advice| advice.rule == rule).unwrap().proof;
        let mut files = std::collections::BTreeSet::new();
        let mut count = 0;
        for advice in &advised {
            for words in new_commands(&advice.proof) {
                let mut draft = Draft::default();
                let mut recipe = None;
                let mut words = words.into_iter();
                while let Some(word) = words.next() {
                    if !word.starts_with('-') {
                        recipe = Some(word);
                        continue;
                    }
                    let value = words.next().unwrap();
                    match word.as_str() {
                        "--name" => draft.name = Some(value),
                        "--layout" => draft.layout = Some(value),
                        "--goal" => draft.metric = Some(value),
                        "--target" => draft.target = Some(value),
                        "--factor" => draft.factors.push(value),
                        "--workload" => draft.workloads.push(value),
                        "-o" => assert!(files.insert(value.clone()), "{value} is written twice"),
                        other => panic!("{other}: {}", advice.proof),
                    }
                }
                let recipe = recipe.map(|name| crate::recipes::find(&name).unwrap().experiment());
                let made = match recipe {
                    Some(recipe) => draft.changed(&recipe),
                    None => draft.experiment(),
                };
                made.unwrap_or_else(|error| panic!("{}: {error}", advice.proof));
                count += 1;
            }
        }
        assert!(count >= 15, "{count}");
        assert!(proof("blocks-below-sectors").contains(
            "--goal space --layout 'raidz2 14' --factor 'volblocksize=4K,8K' --factor 'ashift=13,9'"
        ));
        assert!(proof("wide-raidz").contains("modelled") && proof("wide-raidz").contains("striped-mirrors"));
        assert!(proof("no-aes").starts_with("the lab cannot") && proof("nearly-full").contains("host:tank"));
        assert!(proof("copy-on-write-twice").contains("lab compare '/dev/copy-on-write-twice-dev.sd2'"));
        assert!(proof("no-log-device").contains("optane-log"));
    }

    #[test]
    fn what_is_inherited_is_told_once_and_danger_comes_first() {
        let mut seen = good();
        seen.capacity = 0.9;
        volume(&mut seen, &[("sync", "disabled")]);
        let advised = super::super::Advised::of(&seen);
        let weights: Vec<Weight> = advised.advice.iter().map(|advice| advice.weight).collect();
        assert_eq!(weights, [Weight::Danger, Weight::Hint]);
        let text = advised.to_string();
        assert!(text.starts_with("DANGER tank/bad: set sync=standard\n"), "{text}");
        assert!(
            text.contains(
                "proof  cenote lab new sync --name sync-disabled-tank.bad --layout 'raidz2 6' --factor \
                 'sync=standard,disabled'"
            ),
            "{text}"
        );
    }
}
