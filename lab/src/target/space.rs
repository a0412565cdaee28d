//! What variants take on devices, and the counters of their servers.

use super::{Bench, Home, Placement};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::models::space;
use crate::setting::is_deduplicated;

impl Bench<'_> {
    /// The counters of its server.
    pub fn counters(&self, lodging: &Placement) -> Result<Option<Counters>> {
        match self.homes.get(lodging) {
            Some(home) => self.servers.programs(&home.server)?.counters(&home.pool),
            None => Ok(None),
        }
    }

    /// Bytes that it takes on the devices, and bytes in it.
    pub fn space(&self, lodging: &Placement) -> Result<Option<(u64, u64)>> {
        let Some(home) = self.homes.get(lodging) else { return Ok(None) };
        let words = ["get", "-Hp", "-o", "value", "used,logicalused", &home.dataset];
        let text = self.servers.programs(&home.server)?.zfs(&words.map(str::to_owned))?;
        let mut values = text.lines().map(|line| line.trim().parse().ok());
        let Some((used, logical)) = values.next().flatten().zip(values.next().flatten()) else {
            return Ok(None);
        };
        let used = match is_deduplicated(&lodging.settings) {
            true => self.deduplicated(home, used)?,
            false => used,
        };
        Ok(Some((self.on_devices(lodging, home, used)?, logical)))
    }

    /// What `used` bytes take in a pool that deduplicates them, with the tables. A dataset counts each block
    /// in full.
    fn deduplicated(&self, home: &Home, used: u64) -> Result<u64> {
        let words = ["get", "-Hp", "-o", "value", "dedupratio,dedup_table_size", &home.pool];
        let text = self.servers.programs(&home.server)?.zpool(&words.map(str::to_owned))?;
        let mut values = text.lines().map(|line| line.trim().trim_end_matches('x'));
        let ratio = values.next().and_then(|value| value.parse().ok()).filter(|ratio: &f64| *ratio >= 1.0);
        let table: Option<u64> = values.next().and_then(|value| value.parse().ok());
        let (Some(ratio), Some(table)) = (ratio, table) else {
            let what = format!("it does not report the dedup ratio and tables of {}", home.pool);
            return Err(Error::Output { program: "zpool", what });
        };
        Ok(((used as f64 / ratio) as u64).saturating_add(table))
    }

    /// What `used` bytes of a dataset take on the devices. Of a pool that was not made here it is what the
    /// pool counts.
    ///
    /// It is that of the dataset alone: pools have metadata of their own, of which a variant that shares its
    /// pool would have a smaller part than one that has a pool to itself.
    fn on_devices(&self, lodging: &Placement, home: &Home, used: u64) -> Result<u64> {
        let Some(pools) = self.experiment.target.pools() else { return Ok(used) };
        let ashift = self.ashift(home)?;
        let layout: Layout = lodging.settings.get("layout").unwrap_or(&pools.layout).parse()?;
        Ok((used as f64 * space::raw_for_used(layout.vdevs(), ashift)) as u64)
    }

    /// Bytes of a sector of its pool, where that was made for it.
    pub fn sector(&self, lodging: &Placement) -> Result<Option<u64>> {
        match (self.homes.get(lodging), self.experiment.target.pools()) {
            (Some(home), Some(_)) => Ok(Some(1 << self.ashift(home)?)),
            _ => Ok(None),
        }
    }

    /// Of the largest sectors of a pool, as a power of two.
    fn ashift(&self, home: &Home) -> Result<u32> {
        let words = ["get", "-Hp", "-o", "value", "ashift", &home.pool, "all-vdevs"];
        let told = self.servers.programs(&home.server)?.zpool(&words.map(str::to_owned))?;
        let ashifts = told.lines().filter_map(|line| line.trim().parse::<u32>().ok());
        let ashift = ashifts.filter(|ashift| (9..=16).contains(ashift)).max();
        ashift.ok_or_else(|| Error::Output {
            program: "zpool",
            what: format!("it does not report the sector size of {}", home.pool),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Settings};
    use crate::fio::Endpoint;
    use crate::programs::Programs;

    /// Programs of pools of which each has metadata of its own size.
    struct Told;

    impl Programs for Told {
        fn zpool(&self, arguments: &[String]) -> Result<String> {
            let of = |pool: &str| if pool == "lab1" { "9000000\n" } else { "5000000\n" }.to_owned();
            match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [.., "ashift", _, "all-vdevs"] => Ok("-\n0\n12\n12\n".to_owned()),
                [.., "allocated", pool] => Ok(of(pool)),
                [.., "dedupratio,dedup_table_size", _] => Ok("1.50\n40000\n".to_owned()),
                _ => Ok(String::new()),
            }
        }

        fn zfs(&self, arguments: &[String]) -> Result<String> {
            let is_of_dataset = arguments.iter().any(|word| word == "used,logicalused");
            Ok(if is_of_dataset { "3000000\n4000000\n" } else { "4500000\n" }.to_owned())
        }

        fn volume(&self, name: &str) -> Result<Endpoint> {
            Ok(Endpoint::Path(name.into()))
        }

        fn counters(&self, _: &str) -> Result<Option<Counters>> {
            Ok(None)
        }
    }

    /// What `ask` learns from a bench that has the variants of an experiment, in these pools by turns. `rest`
    /// ends the target of the experiment, and names a factor.
    fn in_pools<T>(rest: &str, pools: &[&str], ask: impl FnOnce(&Bench<'_>, &[Placement]) -> T) -> T {
        let text = format!(
            "name = \"space\"\n[target]\nkind = \"volume\"\nsize = \"4M\"\n{rest}\
             [[workload]]\nname = \"w\"\nrw = \"write\"\n"
        );
        let experiment = Experiment::parse(&text).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(&experiment, directory.path(), Some(Box::new(|_| Ok(Box::new(Told)))));
        bench.servers.start(&Settings::new()).unwrap();
        let plan = crate::plan::Plan::new(&experiment, None, 1);
        let lodgings = plan.variants().iter().map(|variant| Placement::of(variant, &experiment.workloads[0]));
        let lodgings: Vec<Placement> = lodgings.collect();
        for (lodging, pool) in lodgings.iter().zip(pools.iter().cycle()) {
            let endpoint = Endpoint::Path("volume".into());
            let (server, dataset) = (Settings::new(), format!("{pool}/lab-1"));
            bench.homes.insert(lodging.clone(), Home { server, pool: (*pool).into(), dataset, endpoint });
        }
        let learned = ask(&bench, &lodgings);
        bench.homes.clear();
        learned
    }

    #[test]
    fn a_variant_takes_the_same_space_whether_or_not_others_are_in_its_pool() {
        let rest =
            "layout = \"raidz1 3\"\n[[factor]]\nname = \"pool.autotrim\"\nvalues = [\"off\", \"on\"]\n";
        // Two data sectors and one of parity; of 512 bytes 341 count as used.
        let expected = Some(((3_000_000.0 * 512.0 / 341.0) as u64, 4_000_000));
        let spaces = in_pools(rest, &["lab1", "lab2"], |bench, lodgings| {
            [0, 1].map(|index: usize| bench.space(&lodgings[index]).unwrap())
        });
        assert_eq!(spaces, [expected, expected]);
    }

    #[test]
    fn deduplicated_data_take_what_is_left_of_them_and_the_tables() {
        let rest = "[[factor]]\nname = \"dedup\"\nvalues = [\"off\", \"on\"]\n";
        let (on, off) = in_pools(rest, &["lab1"], |bench, lodgings| {
            let is_on = |lodging: &&Placement| is_deduplicated(&lodging.settings);
            let space = |lodging: &Placement| bench.space(lodging).unwrap().unwrap().0;
            let off = lodgings.iter().find(|lodging| !is_on(lodging)).map(space);
            (lodgings.iter().find(is_on).map(space), off)
        });
        assert_eq!((on, off), (Some(2_040_000), Some(3_000_000)));
    }
}
