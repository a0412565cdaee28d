//! `cenote zdb`: looks at what is stored, from labels to bytes, and verifies all of it.
//!
//! The letters are those of OpenZFS's `zdb`, and so is the order of facts in what is printed. It links the
//! engine directly: no daemon, no root, and never a write. Pools are looked for with `-p` and need not be
//! imported anywhere; a daemon that has one open is asked where it is (`open_pool`). `--json` prints one
//! document for those letters that are of use to programs.
//!
//! | module | letters |
//! |---|---|
//! | `label` | `-l`: the labels of a device |
//! | `uberblock` | `-u` |
//! | `config` | `-C` |
//! | `datasets` | `-d`: object sets, their deadlists and bookmarks |
//! | `objects`, `objset_view`, `contents`, `znode` | `-dd` and more: dnodes, block trees, what objects mean |
//! | `intent_log` | `-i` |
//! | `metaslabs` | `-m`: metaslabs and space maps, `-M`: vdevs of them |
//! | `dedup` | `-D`: dedup tables, `-S`: those that there would be |
//! | `paths` | `-O`, `-r`: the object of a path, and its bytes |
//! | `pool_log` | `-h`: history, `-s`: space and errors of vdevs |
//! | `blocks` | `-b`, `-c`: the traversal of the pool, `-y`: livelists of destroyed clones |
//! | `raw` | `-R`: what lies at an address, `-E`: embedded blocks |
//! | `text` | numbers, times and block pointers as `zdb` writes them |

mod blocks;
mod cache_device;
mod config;
mod contents;
mod datasets;
mod dedup;
mod intent_log;
mod label;
mod metaslabs;
mod objects;
mod objset_view;
mod open_pool;
mod paths;
mod pool_log;
mod raw;
mod text;
mod uberblock;
mod znode;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::{Args as _, FromArgMatches as _};
use engine::dmu::Objset;
use engine::dsl::Dsl;
use engine::dsl::pool_features::Features;
use engine::pool::import::{ImportOptions, Rewind};
use engine::pool::verify::Simulated;
use ondisk::features::Feature;
use ondisk::{Guid, ObjsetId, Txg};
use server::cachefile;

use crate::exported::PoolPlace;
use open_pool::OpenPool;
use text::Numbers;

/// Arguments of `cenote zdb`. Letters may be joined and repeated: `-dddd`, `-bcc`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The object to show (without it and with -C: the cache file): POOL, POOL/DATASET[@SNAPSHOT],
    /// POOL/OBJSET-ID; with -l a device, with -E a block pointer
    #[arg(value_name = "TARGET", default_value = "", hide_default_value = true)]
    pub target: String,
    /// With -d: numbers of objects or ranges of them (FIRST:LAST[:TYPES]); with -m: VDEV [METASLAB...]; with
    /// -R: VDEV:OFFSET:SIZE[:FLAGS]
    #[arg(value_name = "OBJECT", allow_negative_numbers = true)]
    pub objects: Vec<String>,

    /// Directory with the pool's disks or image files, or one of them (may be repeated; default: where the
    /// daemon has it open, then /dev)
    #[arg(short = 'p', long = "path", value_name = "DIR|DEVICE")]
    pub places: Vec<PathBuf>,
    /// Cache file with the devices of pools (default: the daemon's)
    #[arg(short = 'U', long = "cachefile", value_name = "FILE")]
    pub cachefile: Option<PathBuf>,
    /// Key or passphrase of an encrypted dataset
    #[arg(short = 'K', long = "key", value_name = "KEY", conflicts_with = "key_file")]
    pub key: Option<String>,
    /// File with the key or passphrase of an encrypted dataset
    #[arg(long = "key-file", value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Statistics of all blocks; twice: by type, three times: by level too
    #[arg(short = 'b', long = "block-stats", action = clap::ArgAction::Count)]
    pub blocks: u8,
    /// Verify checksums: once of all metadata, twice of everything, all copies and parity
    #[arg(short = 'c', long = "checksum", action = clap::ArgAction::Count)]
    pub checksums: u8,
    /// The configuration
    #[arg(short = 'C', long = "config", action = clap::ArgAction::Count)]
    pub config: u8,
    /// Datasets; more often: objects, their contents, their blocks
    #[arg(short = 'd', long = "datasets", action = clap::ArgAction::Count)]
    pub datasets: u8,
    /// Dedup tables; more often: histograms, entries
    #[arg(short = 'D', long = "dedup-stats", action = clap::ArgAction::Count)]
    pub dedup: u8,
    /// Histogram of references, as if all blocks were deduplicated
    #[arg(short = 'S', long = "simulate-dedup", action = clap::ArgAction::Count)]
    pub simulated: u8,
    /// Show the object of a path: DATASET PATH
    #[arg(short = 'O', long = "object-lookups")]
    pub object_of_path: bool,
    /// Copy a file out: DATASET PATH DESTINATION (with -O: DATASET OBJECT DESTINATION)
    #[arg(short = 'r', long = "copy-object")]
    pub copy_out: bool,
    /// Decode an embedded block pointer, given as 16 words with colons between them
    #[arg(short = 'E', long = "embedded-block-pointer")]
    pub embedded: bool,
    /// The history of the pool
    #[arg(short = 'h', long = "history", action = clap::ArgAction::Count)]
    pub history: u8,
    /// Intent logs; more often: their records
    #[arg(short = 'i', long = "intent-logs", action = clap::ArgAction::Count)]
    pub intent_log: u8,
    /// The labels of a device; with -u its uberblocks
    #[arg(short = 'l', long = "label", action = clap::ArgAction::Count)]
    pub labels: u8,
    /// Metaslabs; more often: their free space, the entries of space maps
    #[arg(short = 'm', long = "metaslabs", action = clap::ArgAction::Count)]
    pub metaslabs: u8,
    /// Fragmentation and free segments of vdevs; twice: of special ones too
    #[arg(short = 'M', long = "metaslab-groups", action = clap::ArgAction::Count)]
    pub metaslab_groups: u8,
    /// Check space maps, and that blocks of destroyed clones that wait to be freed are allocated
    #[arg(short = 'y', long = "livelist", action = clap::ArgAction::Count)]
    pub livelists: u8,
    /// Show the block at an address (flags: r raw, d decompress, i indirect, b pointer, g gang, e swapped, c
    /// checksums)
    #[arg(short = 'R', long = "read-block")]
    pub read: bool,
    /// Space and errors of the vdevs
    #[arg(short = 's', long = "io-stats", action = clap::ArgAction::Count)]
    pub statistics: u8,
    /// The uberblock
    #[arg(short = 'u', long = "uberblock", action = clap::ArgAction::Count)]
    pub uberblock: u8,

    /// Accepted for compatibility: this program has no assertions that end it early
    #[arg(short = 'A', long = "ignore-assertions", action = clap::ArgAction::Count)]
    pub ignore_assertions: u8,
    /// With -ddddd: the headers of blocks compressed by zstd
    #[arg(short = 'Z', long = "zstd-headers")]
    pub zstd_headers: bool,
    /// Accepted for compatibility: the log goes to standard error at once
    #[arg(short = 'G', long = "dump-debug-msg")]
    pub debug_messages: bool,
    /// Accepted for compatibility: copies of removed vdevs are tried as they are needed
    #[arg(short = 'Y', long = "all-reconstruction")]
    pub all_reconstruction: bool,
    /// Do not look for leaks in -b and -c
    #[arg(short = 'L', long = "disable-leak-tracking")]
    pub ignore_leaks: bool,
    /// The pool is exported: look for its devices, and do not ask the daemon for them
    #[arg(short = 'e', long = "exported")]
    pub exported: bool,
    /// Look at the state at the pool's checkpoint
    #[arg(short = 'k', long = "checkpointed-state")]
    pub checkpoint: bool,
    /// Go back to an older state if the newest is damaged
    #[arg(short = 'F', long = "automatic-rewind")]
    pub rewind: bool,
    /// As -F, but go back further, to states that may be partly overwritten
    #[arg(short = 'X', long = "extreme-rewind")]
    pub extreme: bool,
    /// Go back to this transaction group
    #[arg(short = 't', long = "txg", value_name = "TXG")]
    pub txg: Option<u64>,
    /// Numbers in full
    #[arg(short = 'P', long = "parseable")]
    pub parsable: bool,
    /// With -l: only the uberblocks
    #[arg(short = 'q', long = "skip-label")]
    pub quiet: bool,
    /// More of everything
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// One JSON document, of -l, -u, -C, -d, -D, -b and -c
    #[arg(long)]
    pub json: bool,
    /// Threads of the traversal (default: one for each processor)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The end of the name of a pool of which the state at its checkpoint is shown.
const CHECKPOINTED: &str = "_CHECKPOINTED_UNIVERSE";

/// Where the text goes.
type Out<'a> = dyn Write + 'a;

/// A pool that is looked at.
struct View<'a> {
    arguments: &'a Arguments,
    numbers: Numbers,
    dsl: Arc<Dsl>,
    mos: Arc<Objset>,
}

/// Does what the letters ask for.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut arguments = arguments.clone();
    arguments.settle()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = dispatch(&arguments, &mut out);
    // What was found before something failed is shown too.
    result.and(out.flush().map_err(anyhow::Error::from))
}

fn dispatch(arguments: &Arguments, out: &mut Out<'_>) -> Result<()> {
    if arguments.embedded {
        return raw::dump_embedded(&arguments.target, out);
    }
    if arguments.labels > 0 {
        return device::block_on(label::dump(arguments, out));
    }
    if arguments.target.is_empty() {
        ensure!(arguments.config > 0, "a pool, dataset or device is needed, except with -C; see '--help'");
        return config::dump_cachefile(arguments, out);
    }
    let (pool, _) = arguments.pool();
    // A user who names the devices does not need the daemon.
    let elsewhere = arguments.exported || !arguments.places.is_empty() || arguments.cachefile.is_some();
    let opened = match elsewhere {
        true => None,
        false => OpenPool::ask(pool)?,
    };
    looked_at(arguments, opened, |view| if arguments.json { view.json(out) } else { view.text(out) })
}

/// Looks at a pool, which the daemon may have open.
fn looked_at<T>(
    arguments: &Arguments,
    mut opened: Option<OpenPool>,
    look: impl FnOnce(&View<'_>) -> Result<T>,
) -> Result<T> {
    let seen = device::block_on(View::open(arguments, opened.as_ref())).and_then(|view| look(&view));
    seen.map_err(|error| match &mut opened {
        Some(opened) => opened.explain(error),
        None => error,
    })
}

/// How often blocks of a pool occur, whether the daemon has it open or not, by a sample of `most` different
/// ones: for the lab.
pub fn simulated(pool: &str, most: usize) -> Result<Simulated> {
    let command = Arguments::augment_args(clap::Command::new("zdb").disable_help_flag(true));
    let matches = command.try_get_matches_from(["zdb", "-S", pool])?;
    let arguments = Arguments::from_arg_matches(&matches)?;
    looked_at(&arguments, OpenPool::ask(pool)?, |view| blocks::simulate_dedup(view, most))
}

fn write_json(document: serde_json::Map<String, serde_json::Value>, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
    Ok(())
}

impl Arguments {
    /// Without a letter the pool is shown from all sides; `-v` adds to each letter that is given.
    fn settle(&mut self) -> Result<()> {
        ensure!(
            !self.read || !self.objects.is_empty(),
            "-R needs an address: zdb -R POOL VDEV:OFFSET:SIZE[:FLAGS]"
        );
        let alone =
            self.labels > 0 || self.read || self.embedded || self.simulated > 0 || paths::is_asked(self);
        let others = self.metaslab_groups > 0 || self.livelists > 0;
        if self.object_of_path {
            // A line of the object, and more where more words are asked for.
            self.datasets = 3;
        }
        let mut letters = [
            &mut self.blocks,
            &mut self.checksums,
            &mut self.config,
            &mut self.datasets,
            &mut self.dedup,
            &mut self.history,
            &mut self.intent_log,
            &mut self.metaslabs,
            &mut self.statistics,
            &mut self.uberblock,
        ];
        if !alone && !others && !self.target.is_empty() && letters.iter().all(|letter| **letter == 0) {
            letters.iter_mut().for_each(|letter| **letter = 1);
        }
        for letter in letters.into_iter().chain([&mut self.labels]).filter(|letter| **letter > 0) {
            *letter = letter.saturating_add(self.verbose);
        }
        let for_programs = [
            self.blocks,
            self.checksums,
            self.config,
            self.datasets,
            self.dedup,
            self.labels,
            self.uberblock,
        ];
        ensure!(
            !self.json || for_programs.iter().any(|letter| *letter > 0),
            "--json is for -l, -u, -C, -d, -D, -b and -c"
        );
        Ok(())
    }

    fn import_options(&self) -> ImportOptions {
        let rewind = match (self.txg, self.rewind, self.extreme) {
            (Some(txg), ..) => Rewind::ToTxg(Txg(txg)),
            (None, _, true) => Rewind::Extreme,
            (None, true, false) => Rewind::Recent,
            (None, false, false) => Rewind::Never,
        };
        // Nothing is written, so an imported or destroyed pool may be read.
        ImportOptions {
            force: true,
            destroyed: true,
            missing_log: true,
            rewind,
            rewind_to_checkpoint: self.checkpoint,
            ..ImportOptions::read_only()
        }
    }

    /// The cache file.
    fn cachefile(&self) -> Option<PathBuf> {
        self.cachefile.clone().or_else(|| cachefile::default_path(&server::socket::default_socket()))
    }

    /// Guid and devices of a pool, from the cache file.
    fn cached(&self, pool: &str) -> Result<Option<(Guid, Vec<PathBuf>)>> {
        let Some(file) = self.cachefile().filter(|_| !self.exported && self.places.is_empty()) else {
            return Ok(None);
        };
        let pools = cachefile::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let by_guid = pool.parse().ok().map(Guid);
        let found = pools.into_iter().find(|cached| cached.name == pool || Some(cached.guid) == by_guid);
        // Who names a file means what is in it.
        let is_there = found.is_some() || self.cachefile.is_none();
        ensure!(is_there, "'{pool}' is not in {}", file.display());
        Ok(found.map(|cached| (cached.guid, cached.places().map(Path::to_owned).collect())))
    }

    fn place(&self) -> PoolPlace {
        PoolPlace { places: self.places.clone(), key: self.key_file.clone(), option: "-p" }
    }

    /// The pool of the target, and whether it is the whole target.
    fn pool(&self) -> (&str, bool) {
        match self.target.split_once(['/', '@']) {
            Some((pool, _)) => (pool, false),
            None => (&self.target, true),
        }
    }
}

impl<'a> View<'a> {
    async fn open(arguments: &'a Arguments, opened: Option<&OpenPool>) -> Result<Self> {
        let (name, _) = arguments.pool();
        let (place, options) = (arguments.place(), arguments.import_options());
        let pool = match opened {
            None => match arguments.cached(name)? {
                None => place.open_pool(name, &options).await?,
                Some((guid, places)) => {
                    PoolPlace { places, ..place }.open_pool(&guid.to_string(), &options).await?
                }
            },
            Some(opened) => {
                let place = PoolPlace { places: opened.devices(), ..place };
                // Who asks for an older state gets what the devices still have of it.
                let at = (options.rewind == Rewind::Never).then(|| opened.uberblock.clone());
                let new_name = Some(opened.name().to_owned());
                let options = ImportOptions { at, new_name, temporary: true, ..options };
                place.open_pool(&opened.guid().to_string(), &options).await?
            }
        };
        let pool = match arguments.checkpoint {
            true => pool.renamed(&format!("{}{CHECKPOINTED}", pool.name())),
            false => pool,
        };
        let what = || format!("cannot open '{}'", pool.name());
        let dsl = Arc::new(Dsl::open(&pool).await.with_context(what)?);
        let mos = Objset::open(&pool, ObjsetId::MOS, pool.root_blkptr()).await.with_context(what)?;
        Ok(Self { arguments, numbers: Numbers { parsable: arguments.parsable }, dsl, mos })
    }

    fn text(&self, out: &mut Out<'_>) -> Result<()> {
        let (arguments, pool) = (self.arguments, self.dsl.pool());
        if arguments.read {
            for address in &arguments.objects {
                device::block_on(raw::dump(self, address, out))?;
            }
            return Ok(());
        }
        if arguments.copy_out {
            return device::block_on(paths::copy_out(self, out));
        }
        if arguments.object_of_path {
            return device::block_on(paths::dump_object(self, out));
        }
        if arguments.simulated > 0 {
            return dedup::dump_simulated(self, out);
        }
        let (_, whole_pool) = arguments.pool();
        if whole_pool && arguments.livelists > 0 {
            blocks::check_livelists(self, out)?;
        }
        if !whole_pool {
            return device::block_on(datasets::dump_target(self, out));
        }
        if arguments.config > 0 {
            config::dump(pool, out)?;
        }
        if arguments.uberblock > 0 {
            writeln!(out, "\nUberblock:")?;
            uberblock::dump(pool.uberblock(), out)?;
            writeln!(out)?;
        }
        if arguments.dedup > 0 {
            device::block_on(dedup::dump(self, out))?;
        }
        let objects_only = arguments.datasets > 0 && !arguments.objects.is_empty();
        if arguments.metaslabs > 0 || (arguments.datasets > 2 && !objects_only) {
            device::block_on(metaslabs::dump(self, out))?;
        }
        if arguments.metaslab_groups > 0 {
            device::block_on(metaslabs::dump_groups(self, out))?;
        }
        if arguments.datasets > 0 || arguments.intent_log > 0 {
            match !objects_only {
                true => device::block_on(datasets::dump_all(self, out))?,
                false => device::block_on(datasets::dump_objset(self, None, &self.mos, out))?,
            }
        }
        if arguments.blocks > 0 || arguments.checksums > 0 {
            blocks::dump(self, out)?;
        }
        if arguments.statistics > 0 {
            device::block_on(pool_log::dump_statistics(self, out))?;
        }
        if arguments.history > 0 {
            device::block_on(pool_log::dump_history(self, out))?;
        }
        if let Some(checkpoint) = pool.checkpoint() {
            writeln!(out, "\nCheckpointed uberblock found:")?;
            uberblock::dump(checkpoint, out)?;
            writeln!(out)?;
        } else if device::block_on(Features::of(&self.dsl))?.is_active(Feature::ZpoolCheckpoint) {
            writeln!(out, "\nPartially discarded checkpoint state found:")?;
        }
        Ok(())
    }

    /// The target, with the name that the pool has here.
    fn target(&self) -> String {
        let (pool, _) = self.arguments.pool();
        let rest = self.arguments.target.get(pool.len()..).unwrap_or_default();
        format!("{}{rest}", self.dsl.pool().name())
    }

    fn json(&self, out: &mut Out<'_>) -> Result<()> {
        let (arguments, pool) = (self.arguments, self.dsl.pool());
        let mut document = serde_json::Map::new();
        if arguments.config > 0 {
            document.insert("config".into(), config::json(&pool.config().raw));
        }
        if arguments.uberblock > 0 {
            document.insert("uberblock".into(), uberblock::json(pool.uberblock()));
        }
        if arguments.dedup > 0 {
            document.insert("ddt".into(), device::block_on(dedup::json(self))?);
        }
        if arguments.datasets > 0 {
            document.insert("datasets".into(), device::block_on(datasets::json(self))?);
        }
        let mut verdict = Ok(());
        if arguments.blocks > 0 || arguments.checksums > 0 {
            let report = blocks::traverse(self)?;
            document.insert("blocks".into(), blocks::json(&report));
            verdict = blocks::verdict(&report);
        }
        write_json(document, out)?;
        verdict
    }
}
