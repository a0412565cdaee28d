//! A workload that runs in the process that has the pool open, on the volume's own object: without NBD, a
//! socket and fio (`through = "process"`).
//!
//! A few fields describe here what fio would do, for [`crate::programs::Programs::load`]. The answer has the
//! form of fio's JSON and is parsed as such. Any option of a workload that is not among these fields is
//! refused by name before a run: both ways to a volume must do the same.

use crate::error::{Error, Result};
use crate::size::Size;
use crate::workload::sizes::{self, increment};
use crate::workload::{Work, Workload};

pub use crate::workload::sizes::Share;

/// A load on a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Whether blocks are chosen at random.
    pub is_random: bool,
    /// How many of a hundred operations read.
    pub read_percent: u32,
    /// Size of an operation.
    pub bs: Size,
    /// Sizes of reads and of writes that there are instead.
    pub sizes: Option<[Vec<Share>; 2]>,
    /// How much of the volume each job works on.
    pub extent: Size,
    /// How much further on in the volume each job begins than the one before; rounded up to the smallest
    /// size.
    pub offset_increment: Size,
    /// Operations that each job has under way.
    pub iodepth: u32,
    /// Jobs at once.
    pub numjobs: u32,
    /// A flush after so many writes of a job; none for 0.
    pub fsync: u32,
    /// How uneven random blocks are: fio's `zipf:THETA`.
    pub zipf: Option<f64>,
    /// Share of the data that compresses away, in per cent.
    pub compressible: u32,
    /// Seconds that are measured.
    pub seconds: f64,
    /// Seconds before that.
    pub ramp_seconds: f64,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Load {
    /// The load of a workload on a volume of so many bytes.
    pub fn of(workload: &Workload, volume: Size, seed: u64) -> Result<Self> {
        let refused = |what: String| {
            let name = &workload.name;
            Err(Error::Experiment(format!(
                "workload '{name}': {what}: through=process does not support that; leave it out, or measure \
                 through=nbd only"
            )))
        };
        if workload.work() != Work::Transfers {
            return refused(format!("rw = \"{}\"", workload.rw));
        }
        if workload.duplicates > 0 {
            return refused("duplicates".into());
        }
        if workload.once {
            return refused("once".into());
        }
        let (is_random, reads, writes) = match workload.rw.as_str() {
            "read" => (false, true, false),
            "write" => (false, false, true),
            "rw" | "readwrite" => (false, true, true),
            "randread" => (true, true, false),
            "randwrite" => (true, false, true),
            "randrw" => (true, true, true),
            other => return refused(format!("rw = \"{other}\"")),
        };
        let mut load = Self {
            is_random,
            read_percent: 50,
            bs: workload.bs,
            sizes: None,
            extent: workload.share(volume),
            offset_increment: Size(0),
            iodepth: workload.iodepth,
            numjobs: 1,
            fsync: 0,
            zipf: None,
            compressible: workload.compressible,
            seconds: workload.seconds,
            ramp_seconds: workload.ramp_seconds,
            seed,
        };
        for (name, value) in &workload.options {
            let number = || value.parse::<u32>();
            let known = match name.as_str() {
                "bssplit" => match sizes::parse(value) {
                    Ok(sizes) => {
                        load.sizes = Some(sizes);
                        true
                    }
                    Err(what) => return refused(format!("{name}={value} ({what})")),
                },
                "offset_increment" => {
                    let increment = increment(value, volume);
                    load.offset_increment = increment.unwrap_or_default();
                    increment.is_some()
                }
                "rwmixread" => number().map(|percent| load.read_percent = percent).is_ok(),
                "rwmixwrite" => {
                    let rest = number().ok().and_then(|percent| 100_u32.checked_sub(percent));
                    rest.map(|percent| load.read_percent = percent).is_some()
                }
                "numjobs" => number().map(|jobs| load.numjobs = jobs).is_ok(),
                // A volume has one kind of flush.
                "fsync" | "fdatasync" => number().map(|every| load.fsync = load.fsync.max(every)).is_ok(),
                "buffer_compress_percentage" => number().map(|share| load.compressible = share).is_ok(),
                // There is no page cache here.
                "direct" => true,
                "random_distribution" if value == "random" => true,
                "random_distribution" => {
                    let theta = value.strip_prefix("zipf:").and_then(|theta| theta.parse().ok());
                    load.zipf = theta;
                    theta.is_some()
                }
                _ => false,
            };
            if !known {
                return refused(format!("{name}={value}"));
            }
        }
        // fio rounds a percentage, and takes other bytes as they are.
        let is_odd = !load.offset_increment.0.is_multiple_of(load.least().0.max(1));
        if let Some(value) =
            workload.options.get("offset_increment").filter(|it| is_odd && !it.ends_with('%'))
        {
            return refused(format!("offset_increment={value} (no multiple of the smallest size)"));
        }
        match (reads, writes) {
            (true, false) => load.read_percent = 100,
            (false, true) => load.read_percent = 0,
            _ => {}
        }
        Ok(load)
    }

    /// The smallest size of an operation.
    fn least(&self) -> Size {
        let sizes = self.sizes.iter().flatten().flatten().map(|share| share.size);
        sizes.min().unwrap_or(self.bs)
    }

    /// It in words, to repeat it.
    pub fn words(&self, volume: &str) -> Vec<String> {
        let mut words = vec!["load".to_owned(), format!("volume={volume}")];
        let pattern = if self.is_random { "random" } else { "sequential" };
        words.extend([pattern.to_owned(), format!("reads={}%", self.read_percent)]);
        words.push(match &self.sizes {
            Some(sizes) => format!("bssplit={}", sizes::words(sizes)),
            None => format!("bs={}", self.bs.0),
        });
        words.push(format!("size={}", self.extent.0));
        words.extend([format!("iodepth={}", self.iodepth), format!("numjobs={}", self.numjobs)]);
        let increment = self.offset_increment.0;
        words.extend((increment > 0).then(|| format!("offset_increment={increment}")));
        words.extend((self.fsync > 0).then(|| format!("fsync={}", self.fsync)));
        words.extend(self.zipf.map(|theta| format!("zipf:{theta}")));
        words.push(format!("compressible={}%", self.compressible));
        words.extend((self.ramp_seconds > 0.0).then(|| format!("ramp={}s", self.ramp_seconds)));
        words.extend([format!("seconds={}", self.seconds), format!("seed={}", self.seed)]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::presets;

    fn workload(text: &str) -> Workload {
        toml::from_str(&format!("name = \"w\"\n{text}")).unwrap()
    }

    fn load(text: &str) -> Result<Load> {
        Load::of(&workload(text), Size(1 << 20), 3)
    }

    #[test]
    fn what_fio_is_told_is_told_to_the_process() {
        let text = "rw = \"randrw\"\nbs = \"8K\"\niodepth = 16\ncompressible = 40\nseconds = \
            2.5\nramp_seconds = 1\n\
                    options = \
                    { rwmixread = \"70\", fdatasync = \"32\", random_distribution = \"zipf:1.1\", \
                    numjobs = \"4\" }";
        let expected = Load {
            is_random: true,
            read_percent: 70,
            bs: Size(8192),
            sizes: None,
            extent: Size(1 << 20),
            offset_increment: Size(0),
            iodepth: 16,
            numjobs: 4,
            fsync: 32,
            zipf: Some(1.1),
            compressible: 40,
            seconds: 2.5,
            ramp_seconds: 1.0,
            seed: 3,
        };
        assert_eq!(load(text).unwrap(), expected);
        let words = expected.words("lab1/v").join(" ");
        for word in ["volume=lab1/v", "random", "reads=70%", "bs=8192", "fsync=32", "zipf:1.1", "ramp=1s"] {
            assert!(words.contains(word), "{word}: {words}");
        }
        for (rw, is_random, read_percent) in [
            ("read", false, 100),
            ("write", false, 0),
            ("randread", true, 100),
            ("randwrite", true, 0),
            ("rw", false, 50),
        ] {
            let load = load(&format!("rw = \"{rw}\"")).unwrap();
            assert_eq!((load.is_random, load.read_percent), (is_random, read_percent), "{rw}");
        }
    }

    #[test]
    fn what_the_process_does_not_do_is_refused_by_name() {
        for (text, named) in [
            ("rw = \"copy\"\nsource = \"/x\"", "copy"),
            ("rw = \"randtrim\"", "randtrim"),
            ("rw = \"randread:8\"", "randread:8"),
            ("rw = \"write\"\nduplicates = 10", "duplicates"),
            ("rw = \"read\"\nonce = true", "once"),
            (
                "rw = \"read\"\noptions = { bssplit = \"4k/50\" }",
                "bssplit=4k/50 (the percentages add up to 50",
            ),
            ("rw = \"read\"\noptions = { offset_increment = \"101%\" }", "offset_increment=101%"),
            ("rw = \"read\"\noptions = { offset_increment = \"6K\" }", "no multiple"),
            ("rw = \"read\"\noptions = { offset = \"8K\" }", "offset=8K"),
            ("rw = \"read\"\noptions = { random_distribution = \"pareto:0.2\" }", "pareto"),
            ("rw = \"write\"\noptions = { fsync = \"often\" }", "fsync=often"),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("through"), "{named}: {error}");
        }
    }

    #[test]
    fn sizes_and_places_of_jobs_are_told_to_the_process() {
        let options = |options: &str| {
            load(&format!("rw = \"randrw\"\nbs = \"16K\"\nsize = \"512K\"\noptions = {{ {options} }}"))
                .unwrap()
        };
        let load = options("bssplit = \"4k/50:8k/,16k/100\", numjobs = \"3\", offset_increment = \"7%\"");
        let share = |bytes, percent| Share { size: Size(bytes), percent };
        assert_eq!(load.sizes, Some([vec![share(4096, 50), share(8192, 50)], vec![share(16384, 100)]]));
        // Of the whole volume; the worker rounds it.
        assert_eq!((load.extent, load.offset_increment), (Size(512 << 10), Size((1 << 20) * 7 / 100)));
        let words = load.words("lab1/v").join(" ");
        for word in ["bssplit=4096/50:8192/50,16384/100 size=524288", "numjobs=3 offset_increment=73400"] {
            assert!(words.contains(word) && !words.contains(" bs="), "{word}: {words}");
        }
        assert_eq!(options("offset_increment = \"48K\"").offset_increment, Size(48 << 10));
        // Of the smallest size it is a multiple.
        assert_eq!(options("bssplit = \"4k/\", offset_increment = \"20K\"").offset_increment, Size(20 << 10));
    }

    #[test]
    fn all_presets_of_volumes_are_done() {
        let text = |name: &str| {
            format!(
                "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[settings]\nthrough = \
                 \"process\"\n[[workload]]\npreset = \"{name}\"\n"
            )
        };
        for preset in presets::all() {
            let parsed = crate::Experiment::parse(&text(&preset.name));
            // A volume has no files.
            assert_eq!(parsed.is_ok(), preset.name != "small-files", "{}: {parsed:?}", preset.name);
        }
    }
}
