//! `cenote what-if`: what a cache of another size would do for the reads that come.

use anyhow::Result;
use engine::properties::format::nicebytes;
use lab::size::Size;
use server::api::{Curve, GetWhatIf, Listed, PoolWhatIf, Prediction, Trust};

use crate::output::{self, JsonOptions, complain};
use crate::table;

/// Sizes that are shown, as powers of two of the ARC's.
const SIZES: std::ops::RangeInclusive<i32> = -2..=6;
/// The widest bar, for all reads.
const BAR: usize = 40;

/// Arguments of `cenote what-if`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The pools; without one all open ones
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
    /// Also with a cache device of this size beside the present ARC
    #[arg(long, value_name = "SIZE")]
    l2arc: Option<Size>,
    #[command(flatten)]
    json: JsonOptions,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let listed = output::ask(&GetWhatIf { pools: self.pools.clone() }, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        if self.json.json {
            let mut document = output::document("cenote what-if");
            document.insert("pools".into(), serde_json::to_value(&listed.entries)?);
            output::print_json(&document)?;
        } else {
            let texts: Vec<String> = listed.entries.iter().map(|pool| text(pool, self.l2arc)).collect();
            output::print(&texts.join("\n"))?;
        }
        complain(&listed.failed)
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn text(pool: &PoolWhatIf, l2arc: Option<Size>) -> String {
    let Some(all) = pool.curves.iter().find(|curve| curve.dataset.is_none()) else {
        return format!("pool {}: nothing was read yet\n", pool.name);
    };
    let size = nicebytes;
    let mut text = format!(
        "pool {}: {} were read ({} as stored), {} of the reads were of metadata\n",
        pool.name,
        size(all.distinct_bytes),
        size(all.distinct_stored_bytes),
        percent(all.metadata_share)
    );
    text.push_str(&trust(all));
    text.push_str("\n  ARC        reads answered (without read-ahead), between\n");
    for power in SIZES {
        let bytes = (pool.arc_bytes as f64 * f64::from(power).exp2()) as u64;
        let mark = if power == 0 { "  <- now" } else { "" };
        let Prediction { hit_ratio, least, most, .. } = all.prediction(bytes);
        text.push_str(&row(&size(bytes), hit_ratio, &between(least, most), mark));
    }
    if let Some(device) = l2arc {
        let ratio = all.hit_ratio_with_device(pool.arc_bytes, device.0);
        text.push_str(&row(&format!("+ {device}"), ratio, "", "  <- with that cache device"));
    }
    text.push_str(&special(all, pool.arc_bytes));
    let of_datasets = pool.curves.iter().filter_map(|curve| Some((curve.dataset.as_deref()?, curve)));
    let mut of_datasets: Vec<(&str, &Curve)> = of_datasets.collect();
    if of_datasets.is_empty() {
        return text;
    }
    of_datasets.sort_by(|a, b| b.1.samples.total_cmp(&a.1.samples));
    let width = of_datasets.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(7);
    text.push_str(&format!(
        "\n  {:<width$}  {:>9}  {:>7}  {:>7}  {:>7}  {}\n",
        "DATASET", "READ", "NOW", "2x", "8x", "TRUST"
    ));
    for (name, curve) in of_datasets {
        let [now, twice, eight] = [1, 2, 8].map(|factor| percent(curve.hit_ratio(pool.arc_bytes * factor)));
        let read = size(curve.distinct_bytes);
        let trust = word(curve.now.trust);
        text.push_str(&format!("  {name:<width$}  {read:>9}  {now:>7}  {twice:>7}  {eight:>7}  {trust}\n"));
    }
    text
}

fn word(trust: Trust) -> &'static str {
    match trust {
        Trust::Low => "low",
        Trust::Fair => "fair",
        Trust::Good => "good",
    }
}

/// How far the figures can be trusted, and why.
fn trust(all: &Curve) -> String {
    let advice = match all.now.trust {
        Trust::Low | Trust::Fair => "; more reads of the same blocks make the figures surer",
        Trust::Good => "",
    };
    format!(
        "  trust: {} ({} blocks were followed, each was read {:.1} times){advice}\n",
        word(all.now.trust),
        all.followed_blocks,
        all.passes
    )
}

/// Two shares.
fn between(least: f64, most: f64) -> String {
    format!("{} .. {}", percent(least), percent(most))
}

/// What a special vdev would do.
fn special(all: &Curve, arc_bytes: u64) -> String {
    let [answered, misses] = [all.hit_ratio(arc_bytes), all.metadata_misses(arc_bytes)];
    format!(
        "\n  a special vdev would get {} of the reads: those of metadata that the ARC does not answer.\n  {} \
         would still go to the other vdevs. {} of metadata were read.\n",
        percent(misses),
        percent((1.0 - answered - misses).max(0.0)),
        nicebytes(all.distinct_metadata_bytes)
    )
}

fn row(size: &str, ratio: f64, between: &str, mark: &str) -> String {
    let bar = "#".repeat((ratio * BAR as f64).round() as usize);
    format!("  {}  {:>6}  {between:<16}  {bar}{mark}\n", table::pad_right(size, 9), percent(ratio))
}
