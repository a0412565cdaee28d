//! `cenote lab model`: predictions by formulas.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lab::layout::Layout;
use lab::models::client_latency::ClientLatency;
use lab::models::compression::Compression;
use lab::models::dedup::{Dedup, Occurring};
use lab::models::dedup_table::DedupTable;
use lab::models::l2arc::L2arc;
use lab::models::layouts::{Disks, Layouts};
use lab::models::object_store::{self, ObjectStore};
use lab::models::rebuild::{ANNUAL_FAILURE_RATE, BIT_ERROR_RATE, Devices, Rebuild};
use lab::models::slog::Slog;
use lab::models::space::Space;
use lab::models::speed::{self, Placed, Speed, Stable};
use lab::size::Size;

use super::reads::cache_reads;
use crate::output::print;

/// Layouts that are looked at where none is named.
const LAYOUTS: [&str; 3] = ["mirror 2", "raidz1 4", "raidz2 6"];
/// Links that are looked at where no rate is named.
const RATES: [&str; 2] = ["1gbe", "10gbe"];
/// Sizes of cache devices that are looked at where none is named.
const CACHE_DEVICES: [Size; 2] = [Size(200 << 30), Size(1 << 40)];

/// A model, and what it is asked.
#[derive(Debug, Args)]
pub struct ModelArguments {
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
    #[command(subcommand)]
    model: Model,
}

/// The models.
#[derive(Debug, Subcommand)]
enum Model {
    /// The cost of blocks of each size on a layout: parity, padding, efficiency
    Space {
        /// Layouts: 'raidz2 6', 'mirror 2', 'draid2:4d:1s 11'
        #[arg(default_values = LAYOUTS)]
        layouts: Vec<Layout>,
        /// Sectors have 2^ASHIFT bytes
        #[arg(short, long, default_value_t = 12)]
        ashift: u32,
    },
    /// IOPS and bandwidth of a layout of modelled devices
    Speed {
        /// Layouts: 'raidz2 6', 'mirror 2 + mirror 2'
        #[arg(default_values = LAYOUTS)]
        layouts: Vec<Layout>,
        /// Model of the devices: hdd-7200, hdd-5400, sata-ssd, nvme, optane, usb-flash; hdd-7200+10% takes a
        /// tenth longer
        #[arg(short, long, default_value = "hdd-7200")]
        device: String,
        /// Model of a log device
        #[arg(short, long)]
        log: Option<String>,
        /// Size of a block
        #[arg(short, long, default_value = "16K")]
        block: Size,
        /// How clients reach the pool, which adds to the time of stable writes: process, nbd, fuse, or a time
        /// such as 80us (the mean latency of stable writes without that of the log device)
        #[arg(short, long, default_value = "nbd")]
        way: ClientLatency,
        /// The share of each device that data lie on; of several vdevs, one for all or one for each: 0.5,0.2
        #[arg(short, long, value_delimiter = ',', default_value = "1")]
        used: Vec<f64>,
        /// Number of metaslabs with data in each vdev, if it is small: on some raidz, blocks of one metaslab
        /// begin on some devices only (default: many); one value for all vdevs or one for each
        #[arg(short, long, value_name = "N", value_delimiter = ',')]
        metaslabs: Vec<u64>,
    },
    /// Odds to survive failures, and the time of a rebuild
    Rebuild {
        /// Layouts: 'raidz2 6', 'mirror 2 + mirror 2'
        #[arg(default_values = LAYOUTS)]
        layouts: Vec<Layout>,
        /// Model of the devices
        #[arg(short, long, default_value = "hdd-7200")]
        device: String,
        /// Size of a device
        #[arg(short, long, default_value = "8T")]
        size: Size,
        /// The share of it that is allocated
        #[arg(short, long, default_value_t = 0.5)]
        full: f64,
        /// Mean size of a block's piece on a device
        #[arg(short, long, default_value = "64K")]
        piece: Size,
        /// The chance that a device fails within a year
        #[arg(long, default_value_t = ANNUAL_FAILURE_RATE)]
        failures: f64,
        /// The chance that a bit cannot be read
        #[arg(long, default_value_t = BIT_ERROR_RATE)]
        errors: f64,
    },
    /// Layouts for so many disks, side by side: space, survival, rebuilds and speed
    Layouts {
        /// The number of disks, spares among them
        #[arg(default_value_t = 6)]
        disks: u64,
        /// The size of the smallest of them
        #[arg(short, long, default_value = "8T")]
        size: Size,
        /// They do not rotate
        #[arg(long)]
        ssd: bool,
        /// How many of them are kept as spares
        #[arg(long, default_value_t = 0)]
        spares: u64,
    },
    /// Duplicates in your files, and the memory of the dedup table
    Dedup {
        /// Files and directories
        #[arg(default_value = ".")]
        paths: Vec<PathBuf>,
        /// Only the memory of a table with this number of different blocks
        #[arg(long, value_name = "N", conflicts_with_all = ["paths", "zdb", "block", "compression", "ashift"])]
        blocks: Option<u64>,
        /// Only the memory of the tables of a pool, from a file with what `zdb -DD POOL` printed ('-' is
        /// standard input)
        #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "block", "compression", "ashift"])]
        zdb: Option<PathBuf>,
        /// By the blocks of this pool, as their pointers have them: no data are read
        #[arg(long, value_name = "POOL")]
        #[arg(conflicts_with_all = ["paths", "zdb", "blocks", "block", "compression", "ashift"])]
        from: Option<String>,
        /// Size of a block: recordsize or volblocksize
        #[arg(short, long, default_value = "128K")]
        block: Size,
        /// Their compression
        #[arg(short, long, default_value = "lz4")]
        compression: String,
        /// Sectors have 2^ASHIFT bytes
        #[arg(short, long, default_value_t = 12)]
        ashift: u32,
        /// The cache in memory that the table shares
        #[arg(long, default_value = "8G")]
        cache: Size,
    },
    /// What a pool on an object store costs in a month: requests, bytes and money, beside a local disk
    ObjectStore {
        /// The store: s3-standard, or lan for one of your own
        #[arg(long, default_value = "s3-standard")]
        store: String,
        /// What is in use
        #[arg(long, default_value = "1T")]
        used: Size,
        /// What is written in a day, with metadata
        #[arg(long, default_value = "50G")]
        writes: Size,
        /// What is read in a day outside the cache in memory
        #[arg(long, default_value = "100G")]
        reads: Size,
        /// Size of a block: recordsize or volblocksize
        #[arg(short, long, default_value = "128K")]
        block: Size,
        /// Hours of a day in which something is written
        #[arg(long, default_value_t = 24.0)]
        hours: f64,
        /// Bytes that compaction moves for each that is written: up to 1 for random overwrites (virtual
        /// machines, databases), 0.1 for large files
        #[arg(long, default_value_t = 0.5)]
        moved: f64,
        /// Stable writes a second, each a request; 0 with a local log device
        #[arg(long, default_value_t = 0.0)]
        stable: f64,
        /// What reads come back to (default: all that is in use)
        #[arg(long, value_name = "SIZE")]
        working_set: Option<Size>,
        /// A local cache device
        #[arg(long, value_name = "SIZE", default_value = "100G")]
        l2arc: Size,
        /// Dollars for a local disk, for a GB and a month
        #[arg(long, value_name = "DOLLARS", default_value_t = 0.08)]
        disk_price: f64,
    },
    /// Memory for the headers of a cache device, and the largest that makes sense; or what devices would do
    /// for the reads of a pool
    L2arc {
        /// Size of the device; some sizes where it is left out
        size: Option<Size>,
        /// By the reads of this pool since it was opened; several sizes are shown where none is given
        #[arg(long, value_name = "POOL", conflicts_with_all = ["arc", "fill"])]
        from: Option<String>,
        /// The cache in memory
        #[arg(long, default_value = "8G")]
        arc: Size,
        /// Bytes of a feed; there are one to five feeds a second (l2arc_write_max)
        #[arg(long, default_value = "32M")]
        fill: Size,
    },
    /// The largest log device that can be of use
    Slog {
        /// Bytes that clients send in a second: 1gbe, 10gbe, or a size
        #[arg(default_values = RATES)]
        rates: Vec<String>,
        /// Seconds that a transaction group stays open
        #[arg(short, long, default_value_t = 5.0)]
        timeout: f64,
        /// Memory of the server
        #[arg(short, long, default_value = "16G")]
        memory: Size,
    },
    /// Ratio and speed of each compression on your files
    Compression {
        /// Files and directories
        #[arg(default_value = ".")]
        paths: Vec<PathBuf>,
        /// Size of a block: recordsize or volblocksize
        #[arg(short, long, default_value = "128K")]
        block: Size,
        /// Sectors have 2^ASHIFT bytes
        #[arg(short, long, default_value_t = 12)]
        ashift: u32,
        /// Size of the sample of the files
        #[arg(short, long, default_value = "8M")]
        sample: Size,
    },
}

/// Prints the results of a model.
pub fn run(arguments: ModelArguments) -> Result<()> {
    let json = arguments.json;
    match arguments.model {
        Model::Space { layouts, ashift } => show(&[Space::of(&layouts, ashift)?], json),
        Model::Speed { layouts, device, log, block, way, used, metaslabs } => {
            let (device, log) = (speed::device(&device)?, log.as_deref().map(speed::device).transpose()?);
            let (stable, placed) = (Stable { way, log }, placed(&used, &metaslabs)?);
            let told = layouts.iter().map(|layout| Speed::of(layout, device, &stable, block, &placed));
            show(&told.collect::<lab::Result<Vec<_>>>()?, json)
        }
        Model::Rebuild { layouts, device, size, full, piece, failures, errors } => {
            let devices = Devices {
                annual_failure_rate: failures,
                bit_error_rate: errors,
                ..Devices::of_model(speed::device(&device)?, size, full, piece)?
            };
            let told = layouts.iter().map(|layout| Rebuild::of(layout, devices));
            show(&told.collect::<lab::Result<Vec<_>>>()?, json)
        }
        Model::Layouts { disks: count, size, ssd, spares } => {
            show(&[Layouts::of(Disks { count, size, rotational: !ssd, spares })?], json)
        }
        Model::Dedup { blocks: Some(blocks), cache, .. } => show(&[DedupTable::of(blocks, cache)?], json),
        Model::Dedup { zdb: Some(path), cache, .. } => {
            show(&[DedupTable::of_zdb(&printed_by_zdb(&path)?, cache)?], json)
        }
        Model::Dedup { from: Some(pool), cache, .. } => show(&[occurring(&pool, cache)?], json),
        Model::Dedup { paths, block, compression, ashift, cache, .. } => {
            show(&[Dedup::of(&paths, block, &compression, ashift, cache)?], json)
        }
        Model::ObjectStore {
            store,
            used,
            writes,
            reads,
            block,
            hours,
            moved,
            stable,
            working_set,
            l2arc,
            disk_price,
        } => {
            let model = objects::bucket::StoreModel::find(&store).with_context(|| {
                let names: Vec<&str> = objects::bucket::MODELS.iter().map(|model| model.name).collect();
                format!("there is no model of a store '{store}'; there are {}", names.join(", "))
            })?;
            let working_set = working_set.unwrap_or(used);
            let workload = object_store::Workload {
                used,
                writes,
                reads,
                block,
                hours,
                moved,
                stable,
                working_set,
                l2arc,
                disk_price,
            };
            show(&[ObjectStore::of(model, workload)?], json)
        }
        Model::L2arc { size, from: Some(pool), .. } => show(&[cache_reads(&pool, size)?], json),
        Model::L2arc { size, arc, fill, .. } => {
            let sizes = size.map_or(CACHE_DEVICES.to_vec(), |size| vec![size]);
            let told = sizes.into_iter().map(|size| L2arc::of(size, arc, fill));
            show(&told.collect::<lab::Result<Vec<_>>>()?, json)
        }
        Model::Slog { rates, timeout, memory } => {
            let of = |rate: &String| -> Result<Slog> {
                let rate = match device::simulated::Model::link(rate) {
                    Some(link) => Size(link.write_bytes_per_second),
                    None => rate.parse().map_err(anyhow::Error::msg)?,
                };
                Ok(Slog::of(rate, timeout, memory)?)
            };
            show(&rates.iter().map(of).collect::<Result<Vec<_>>>()?, json)
        }
        Model::Compression { paths, block, ashift, sample } => {
            show(&[Compression::of(&paths, block, ashift, sample)?], json)
        }
    }
}

/// Different blocks of a pool that are looked at: enough for figures that are right to a thousandth.
const MOST_OF_POOL: usize = 1 << 20;

/// What deduplication would find in a pool.
fn occurring(pool: &str, cache: Size) -> Result<Dedup> {
    let found = crate::zdb::simulated(pool, MOST_OF_POOL)?;
    let blocks = found.blocks.iter().map(|(key, references)| Occurring {
        copies: references.count,
        lsize: key.lsize().get(),
        allocated: references.dsize / references.count.max(1),
    });
    Ok(Dedup::of_pool(found.one_in, blocks, cache)?)
}

/// Bytes of `zdb -DD` that are read: it prints a few lines for each table.
const MOST_OF_ZDB: u64 = 1 << 20;

/// What `zdb -DD` printed, from a file or from standard input.
fn printed_by_zdb(path: &Path) -> Result<String> {
    let from: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?),
    };
    let mut text = String::new();
    let read = from.take(MOST_OF_ZDB).read_to_string(&mut text);
    read.with_context(|| format!("cannot read what zdb printed from {}", path.display()))?;
    Ok(text)
}

/// Where data lie on each vdev, from lists of which a single value is that of all.
fn placed(used: &[f64], metaslabs: &[u64]) -> Result<Vec<Placed>> {
    let count = used.len().max(metaslabs.len());
    if [used.len(), metaslabs.len()].iter().any(|len| ![0, 1, count].contains(len)) {
        bail!("--used and --metaslabs: one value for all vdevs, or one for each");
    }
    let of = |at: usize| Placed {
        used: used.get(at).or(used.first()).copied().unwrap_or(1.0),
        metaslabs: metaslabs.get(at).or(metaslabs.first()).copied(),
    };
    Ok((0..count).map(of).collect())
}

fn show<M: lab::models::Model>(told: &[M], json: bool) -> Result<()> {
    if json {
        let told: Vec<_> = told.iter().map(M::to_json).collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&told)?));
    }
    print(&lab::models::told(told))
}
