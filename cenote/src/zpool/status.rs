//! `zpool status`: the health of pools.
//!
//! What is wrong, what to do, work in progress, the vdevs with their errors, and the files that could not be
//! read. The JSON form is in [`json`].

mod json;

use std::path::PathBuf;

use anyhow::Result;
use engine::properties::format::{nicebytes, nicenum};
use server::api::{
    Dedup, DedupRow, GetStatus, Listed, PoolStatus, Progress, SUSPENDED, ScanKind, State, Sweep, SweepState,
    Sweeping, VdevClass, VdevNode,
};

use super::repeat::{Repeat, TimeStamp};
use super::scripts::{Said, Scripts};
use super::vdevs::{Naming, SECTIONS, aux_words, of_class, spare_word, state_word};
use super::{PoolJson, progress, reason};
use crate::dead_mounts;
use crate::output::{self, complain, ctime};
use crate::table::{pad_left, pad_right};

/// The least width of the column of names.
const NAME_WIDTH: usize = 10;

/// Arguments of `zpool status`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    json: PoolJson,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    scripts: Scripts,
    #[command(flatten)]
    time: TimeStamp,
    /// Print vdevs side by side
    #[arg(long, requires = "json")]
    json_flat_vdevs: bool,
    /// List the files with errors
    #[arg(short)]
    verbose: bool,
    /// Only pools with problems
    #[arg(short = 'x')]
    explain: bool,
    /// Show dedup statistics; given twice, how much of the tables is in the ARC too
    #[arg(short = 'D', action = clap::ArgAction::Count)]
    dedup: u8,
    /// The pools, all open ones if none is named; then seconds after which to repeat it, and how often
    #[arg(value_name = "POOL|INTERVAL")]
    pools: Vec<String>,
}

/// The columns of each vdev.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
struct Shown {
    /// Show numbers in full
    #[arg(short = 'p')]
    literal: bool,
    /// Only vdevs with problems; with -s also those with slow reads and writes
    #[arg(short = 'e')]
    unhealthy: bool,
    /// Show how many reads and writes were slow
    #[arg(short = 's')]
    slow: bool,
    /// Show errors of direct I/O
    #[arg(short = 'd')]
    direct: bool,
    /// Show the progress of trimming devices
    #[arg(short = 't')]
    trim: bool,
    /// Show the progress of initializing devices
    #[arg(short = 'i')]
    initialize: bool,
}

impl Shown {
    fn shows(self, work: Sweep) -> bool {
        match work {
            Sweep::Trim => self.trim,
            Sweep::Initialize => self.initialize,
        }
    }
}

impl Arguments {
    /// Prints the health of each pool, once or repeatedly.
    pub fn run(mut self) -> Result<()> {
        if self.scripts.are_to_be_listed() {
            return self.scripts.list("status");
        }
        let scripts = self.scripts.find()?;
        Repeat::take(&mut self.pools)?.run(|_| self.show(&scripts))
    }

    fn show(&self, scripts: &[PathBuf]) -> Result<()> {
        let request = GetStatus {
            pools: self.pools.clone(),
            files: self.verbose,
            dedup: self.dedup > 0,
            dedup_cached: self.dedup > 1,
        };
        let listed = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        let vdevs = listed.entries.iter().flat_map(|pool| {
            let vdevs = pool.health.vdevs.walk();
            vdevs.map(|vdev| (pool.name.as_str(), vdev))
        });
        let said = Said::ask(scripts, vdevs);
        if self.json.base.json {
            self.print_json(&listed.entries, &said)?;
        } else {
            output::print(&(self.time.line() + &self.render(&listed.entries, &said)))?;
            if self.pools.is_empty() && listed.entries.is_empty() && listed.failed.is_empty() {
                eprintln!("no pools available");
                dead_mounts::explain();
            }
        }
        complain(&listed.failed)
    }

    fn print_json(&self, pools: &[PoolStatus], said: &Said) -> Result<()> {
        let pools = pools.iter().filter(|pool| !self.explain || !reason::is_healthy(pool.health.reason));
        let items =
            pools.map(|pool| (self.json.key(&pool.name, pool.guid), json::pool(pool, self, said).into()));
        let mut document = output::document("zpool status");
        self.time.add_json(self.json.base.json_int, &mut document);
        document.insert("pools".into(), serde_json::Value::Object(items.collect()));
        output::print_json(&document)
    }

    fn render(&self, pools: &[PoolStatus], said: &Said) -> String {
        let (healthy, shown): (Vec<_>, Vec<_>) =
            pools.iter().partition(|pool| self.explain && reason::is_healthy(pool.health.reason));
        let mut text = String::new();
        if !self.pools.is_empty() {
            text.extend(healthy.iter().map(|pool| format!("pool '{}' is healthy\n", pool.name)));
        } else if shown.is_empty() && !healthy.is_empty() {
            text.push_str("all pools are healthy\n");
        }
        for pool in shown {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&self.pool(pool, said));
        }
        text
    }

    fn pool(&self, pool: &PoolStatus, said: &Said) -> String {
        let state = match pool.health.is_suspended() {
            true => SUSPENDED.to_owned(),
            false => state_word(pool.health.state, pool.health.vdevs.aux),
        };
        let mut text = format!("  pool: {}\n state: {state}\n", pool.name);
        let (status, action) = reason::of_open_pool(pool);
        for (label, sentence) in [("status", status), ("action", action)] {
            if !sentence.is_empty() {
                text.push_str(&format!("{label}: {sentence}"));
            }
        }
        if let Some(id) = reason::message_id(pool.health.reason) {
            text.push_str(&format!("   see: {}{id}\n", reason::MESSAGES));
        }
        text.push_str(&progress::lines(pool));
        text.push_str(&Config { pool, naming: self.naming, shown: self.shown, said }.render());
        text.push_str(&self.errors(pool));
        text.push_str(
            &pool.dedup.as_ref().map_or_else(String::new, |dedup| dedup_lines(dedup, self.shown.literal)),
        );
        text
    }

    fn errors(&self, pool: &PoolStatus) -> String {
        match (pool.health.error_count, self.verbose) {
            (0, _) => "\nerrors: No known data errors\n".to_owned(),
            (count, false) => format!("\nerrors: {count} data errors, use '-v' for a list\n"),
            (_, true) => {
                let files = pool.error_files.iter().map(|file| format!("        {file}\n"));
                let intro = "\nerrors: Permanent errors have been detected in the following files:\n\n";
                intro.to_owned() + &files.collect::<String>()
            }
        }
    }
}

/// The table of vdevs.
struct Config<'a> {
    pool: &'a PoolStatus,
    naming: Naming,
    shown: Shown,
    said: &'a Said,
}

impl Config<'_> {
    fn render(&self) -> String {
        let root = &self.pool.health.vdevs;
        let width = self.naming.width(&self.pool.name, root, 0).max(NAME_WIDTH);
        let mut text = format!("config:\n\n\t{}  STATE     READ WRITE CKSUM", pad_right("NAME", width));
        for (is_shown, title) in [(self.shown.slow, "SLOW"), (self.shown.direct, "DIO")] {
            if is_shown {
                text.push_str(&format!(" {title:>5}"));
            }
        }
        text.push_str(&self.said.headings());
        text.push('\n');
        text.push_str(&self.line(root, 0, width));
        for top in of_class(root, VdevClass::Normal) {
            self.tree(top, 2, width, &mut text);
        }
        let sections = SECTIONS.map(|(class, heading)| (class, format!("\t{heading}\t\n")));
        // Their headings have no tab behind them.
        let auxiliary = [(VdevClass::L2cache, "\tcache\n".into()), (VdevClass::Spare, "\tspares\n".into())];
        for (class, heading) in sections.into_iter().chain(auxiliary) {
            if of_class(root, class).next().is_some() {
                text.push_str(&heading);
            }
            for top in of_class(root, class) {
                self.tree(top, 2, width, &mut text);
            }
        }
        text
    }

    fn tree(&self, vdev: &VdevNode, depth: usize, width: usize, text: &mut String) {
        if self.shown.unhealthy && !has_problem(vdev, self.shown) {
            return;
        }
        text.push_str(&self.line(vdev, depth, width));
        for child in &vdev.children {
            self.tree(child, depth + 2, width, text);
        }
    }

    fn line(&self, vdev: &VdevNode, depth: usize, width: usize) -> String {
        let is_spare = vdev.class == VdevClass::Spare;
        let name = self.naming.name(&self.pool.name, vdev);
        let state = if is_spare { spare_word(vdev) } else { state_word(vdev.state, vdev.aux) };
        let name = pad_right(&name, width.saturating_sub(depth));
        let mut line = format!("\t{}{name}  {}", " ".repeat(depth), pad_right(&state, 8));
        if !is_spare {
            let count = |number: u64| {
                let text = if self.shown.literal { number.to_string() } else { nicenum(number) };
                format!(" {}", pad_left(&text, 5))
            };
            for errors in [vdev.read_errors, vdev.write_errors, vdev.checksum_errors] {
                line.push_str(&count(errors));
            }
            if self.shown.slow {
                let slow = vdev.children.is_empty().then_some(vdev.slow_ios);
                line.push_str(&slow.map_or_else(|| "     -".to_owned(), count));
            }
            if self.shown.direct {
                line.push_str(&count(0));
            }
        }
        match (&vdev.path, aux_words(vdev)) {
            (Some(path), _) if vdev.not_present => line.push_str(&format!("  was {path}")),
            (_, Some(words)) => line.push_str(&format!("  {words}")),
            _ if vdev.is_non_native() && reason::warns_of_sectors() => {
                let bytes = |ashift: u32| 1u64.checked_shl(ashift).unwrap_or(0);
                let (configured, native) = (bytes(vdev.configured_ashift), bytes(vdev.physical_ashift));
                line.push_str(&format!("  block size: {configured}B configured, {native}B native"));
            }
            _ => {}
        }
        if vdev.is_being_removed {
            line.push_str("  (removing)");
        } else if vdev.is_not_allocating {
            line.push_str("  (non-allocating)");
        }
        if let Some(scan) = self.pool.health.scan.as_ref().filter(|_| vdev.children.is_empty()) {
            match scan.kind {
                _ if scan.state != Progress::Running || vdev.scan_processed == 0 => {}
                ScanKind::Resilver => line.push_str("  (resilvering)"),
                _ => line.push_str("  (repairing)"),
            }
        }
        if vdev.resilver_deferred || (vdev.awaits_resilver && !is_scanning(self.pool)) {
            line.push_str("  (awaiting resilver)");
        }
        if let Some(model) = &vdev.modelled {
            line.push_str(&format!("  (modelled {model})"));
        }
        line.push_str(&self.said.line(&self.pool.name, vdev.path.as_deref()));
        if vdev.children.is_empty() && !is_spare && vdev.class != VdevClass::L2cache && vdev.kind != "root" {
            line.push_str(&self.swept(vdev, Sweep::Initialize));
            line.push_str(&self.swept(vdev, Sweep::Trim));
        }
        line.push('\n');
        line
    }
}

/// Whether a scrub or a resilver is under way.
fn is_scanning(pool: &PoolStatus) -> bool {
    pool.health.scan.as_ref().is_some_and(|scan| scan.state == Progress::Running)
}

impl Config<'_> {
    /// How far the free space of a device is gone through.
    fn swept(&self, vdev: &VdevNode, work: Sweep) -> String {
        let (doing, done) = match work {
            Sweep::Trim => ("trimming", "trimmed"),
            Sweep::Initialize => ("initializing", "initialized"),
        };
        let sweep = sweep_of(self.pool, vdev, work);
        if !self.shown.shows(work) {
            let is_active = sweep.is_some_and(|sweep| sweep.state == SweepState::Active);
            return if is_active { format!("  ({doing})") } else { String::new() };
        }
        let Some(sweep) = sweep.filter(|sweep| sweep.state != SweepState::Canceled) else {
            return match work {
                Sweep::Trim if vdev.cannot_trim => "  (trim unsupported)".to_owned(),
                _ => format!("  (un{done})"),
            };
        };
        let percent = sweep.done_bytes.saturating_mul(100).checked_div(sweep.total_bytes).unwrap_or(100);
        let at = ctime(sweep.time);
        match sweep.state {
            SweepState::Complete => format!("  (100% {done}, completed at {at})"),
            SweepState::Suspended => format!("  ({percent}% {done}, suspended, started at {at})"),
            _ => format!("  ({percent}% {done}, started at {at})"),
        }
    }
}

/// How far the free space of a device is gone through, where that was begun.
fn sweep_of<'a>(pool: &'a PoolStatus, vdev: &VdevNode, work: Sweep) -> Option<&'a Sweeping> {
    pool.sweeps.iter().find(|sweep| sweep.guid == vdev.guid && sweep.work == work)
}

/// Whether a vdev or one below it is not healthy or had errors, or slow transfers where these are shown.
fn has_problem(vdev: &VdevNode, shown: Shown) -> bool {
    vdev.walk().any(|vdev| {
        vdev.state != State::Healthy
            || vdev.read_errors != 0
            || vdev.write_errors != 0
            || vdev.checksum_errors != 0
            || shown.slow && vdev.children.is_empty() && vdev.slow_ios != 0
    })
}

/// Bytes of tables in the ARC. That may have more of them than they take in memory: it is asked later, and
/// has pointers too.
fn bytes_cached(dedup: &Dedup) -> Option<u64> {
    dedup.bytes_cached.map(|cached| cached.min(dedup.bytes_in_core))
}

fn dedup_lines(dedup: &Dedup, literal: bool) -> String {
    if dedup.entries == 0 {
        return "\n dedup: no DDT entries\n".to_owned();
    }
    let size = |bytes: u64| if literal { bytes.to_string() } else { nicenum(bytes) };
    let cached = bytes_cached(dedup).map_or_else(String::new, |cached| {
        let percent = cached as f64 / dedup.bytes_in_core.max(1) as f64 * 100.0;
        format!(", {} cached ({percent:.2}%)", size(cached))
    });
    let mut text = format!(
        "\n dedup: DDT entries {}, size {} on disk, {} in core{cached}\n\n",
        dedup.entries,
        size(dedup.bytes_on_disk),
        size(dedup.bytes_in_core)
    );
    if dedup.logged_entries > 0 {
        text.truncate(text.len() - 1);
        text.push_str(&format!(
            "        in logs {}, {} of them being moved into the tables\n\n",
            dedup.logged_entries, dedup.flushing_entries
        ));
    }
    text.push_str("bucket              allocated                       referenced          \n");
    text.push_str("______   ______________________________   ______________________________\n");
    let titles = ["refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE", "blocks", "LSIZE", "PSIZE", "DSIZE"];
    text.push_str(&histogram_line(titles.map(str::to_owned)));
    text.push_str(&histogram_line(titles.map(|title| "-".repeat(title.len()))));
    for row in &dedup.histogram {
        let references = 1u64.checked_shl(row.log2_references).unwrap_or(u64::MAX);
        text.push_str(&histogram_row(&nicenum(references), row));
    }
    text.push_str(&histogram_row("Total", &total(&dedup.histogram)));
    text.push('\n');
    text
}

fn histogram_row(references: &str, row: &DedupRow) -> String {
    if row.blocks == 0 {
        return String::new();
    }
    histogram_line([
        references.to_owned(),
        nicenum(row.blocks),
        nicebytes(row.lsize),
        nicebytes(row.psize),
        nicebytes(row.dsize),
        nicenum(row.referenced_blocks),
        nicebytes(row.referenced_lsize),
        nicebytes(row.referenced_psize),
        nicebytes(row.referenced_dsize),
    ])
}

fn histogram_line(values: [String; 9]) -> String {
    let widths = [6, 6, 5, 5, 5, 6, 5, 5, 5];
    let padded = values.iter().zip(widths).map(|(value, width)| pad_left(value, width));
    padded.collect::<Vec<_>>().join("   ") + "\n"
}

/// All rows of a histogram together.
fn total(rows: &[DedupRow]) -> DedupRow {
    rows.iter().fold(DedupRow::default(), |sum, row| DedupRow {
        log2_references: 0,
        blocks: sum.blocks.saturating_add(row.blocks),
        lsize: sum.lsize.saturating_add(row.lsize),
        psize: sum.psize.saturating_add(row.psize),
        dsize: sum.dsize.saturating_add(row.dsize),
        referenced_blocks: sum.referenced_blocks.saturating_add(row.referenced_blocks),
        referenced_lsize: sum.referenced_lsize.saturating_add(row.referenced_lsize),
        referenced_psize: sum.referenced_psize.saturating_add(row.referenced_psize),
        referenced_dsize: sum.referenced_dsize.saturating_add(row.referenced_dsize),
    })
}
