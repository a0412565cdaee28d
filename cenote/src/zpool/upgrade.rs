//! `zpool upgrade`: which features pools do not have yet, and enabling them.

use anyhow::Result;
use engine::pool::live::default_features;
use server::api::{Listed, UpgradePools, UpgradedPool};

use crate::output::{self, complain, usage};
use crate::typed;

/// Arguments of `zpool upgrade`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// All pools
    #[arg(short)]
    all: bool,
    /// Only show the features that can be enabled
    #[arg(short = 'v')]
    versions: bool,
    /// Pools whose features are to be enabled; without any, pools that lack some are listed
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Lists or enables.
    pub fn run(self) -> Result<()> {
        if self.versions {
            if self.all || !self.pools.is_empty() {
                return Err(usage("-v option is incompatible with other arguments"));
            }
            return print_features();
        }
        if self.all && !self.pools.is_empty() {
            return Err(usage("-a option should not be used along with a pool name"));
        }
        let dry_run = !self.all && self.pools.is_empty();
        let request =
            UpgradePools { pools: self.pools, dry_run, command: typed::command().filter(|_| !dry_run) };
        let upgraded = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        let mut text = "This system supports ZFS pool feature flags.\n\n".to_owned();
        match dry_run {
            true => text.push_str(&listing(&upgraded.entries)),
            false => upgraded.entries.iter().for_each(|pool| text.push_str(&done(pool))),
        }
        output::print(&text)?;
        complain(&upgraded.failed)
    }
}

fn done(upgraded: &UpgradedPool) -> String {
    let pool = &upgraded.pool;
    if upgraded.features.is_empty() {
        return format!("Pool '{pool}' already has all supported and requested features enabled.\n");
    }
    let features: String = upgraded.features.iter().map(|feature| format!("  {feature}\n")).collect();
    format!("Enabled the following features on '{pool}':\n{features}\n")
}

fn listing(pools: &[UpgradedPool]) -> String {
    let mut text = "All pools are formatted using feature flags.\n\n".to_owned();
    let lacking: Vec<&UpgradedPool> = pools.iter().filter(|pool| !pool.features.is_empty()).collect();
    if lacking.is_empty() {
        return text + "Every feature flags pool has all supported and requested features enabled.\n";
    }
    text.push_str(
        "Some supported features are not enabled on the following pools. Once a\n\
         feature is enabled the pool may become incompatible with software\n\
         that does not support the feature. See zpool-features(7) for details.\n\n\
         POOL  FEATURE\n---------------\n",
    );
    for pool in lacking {
        text.push_str(&format!("{}\n", pool.pool));
        pool.features.iter().for_each(|feature| text.push_str(&format!("      {feature}\n")));
    }
    text
}

fn print_features() -> Result<()> {
    let mut text = "This system supports ZFS pool feature flags.\n\n\
                    The following features are supported:\n\n\
                    FEAT DESCRIPTION\n\
                    -------------------------------------------------------------\n"
        .to_owned();
    for feature in default_features() {
        let readonly = if feature.is_readonly_compatible() { " (read-only compatible)" } else { "" };
        text.push_str(&format!("{:<37}{readonly}\n     {}\n", feature.name(), feature.info().description));
    }
    output::print(&text)
}
