//! `zpool upgrade`: which pools are of older versions or lack features, and taking them on.
//!
//! Source of the texts: OpenZFS 2.4 `zpool_main.c` (`zpool_do_upgrade`).

use anyhow::Result;
use ondisk::features::Feature;
use ondisk::pool_version as version;
use server::api::{Listed, UpgradePools, UpgradedPool};

use crate::command_line;
use crate::output::{self, complain, usage};

/// The description of each version before features.
const LEGACY_VERSIONS: [&str; version::LAST_NUMBERED as usize] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

/// Arguments of `zpool upgrade`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_version_flag = true)]
pub struct Arguments {
    /// All pools
    #[arg(short)]
    all: bool,
    /// Only show the features that can be enabled, and the versions before features
    #[arg(short = 'v')]
    versions: bool,
    /// Upgrade to this version, not to feature flags
    #[arg(short = 'V', value_name = "VERSION")]
    wanted: Option<String>,
    /// Pools to upgrade; without any, list pools that can be upgraded
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Lists or upgrades.
    pub fn run(self) -> Result<()> {
        let wanted = self.wanted.as_deref().map(parse_version).transpose()?;
        if wanted.is_some() && !self.all && self.pools.is_empty() {
            return Err(usage("-V option is incompatible with other arguments"));
        }
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
        let request = UpgradePools {
            pools: self.pools,
            dry_run,
            version: wanted,
            command: command_line::command().filter(|_| !dry_run),
        };
        let upgraded = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        let wanted = wanted.unwrap_or(version::FEATURES);
        let mut text = "This system supports ZFS pool feature flags.\n\n".to_owned();
        match dry_run {
            true => text.push_str(&listing(&upgraded.entries)),
            false => {
                let done: String = upgraded.entries.iter().map(|pool| done(pool, wanted, self.all)).collect();
                let nothing = self.all && done.is_empty() && upgraded.failed.is_empty();
                text.push_str(&if nothing { nothing_to_do(wanted) } else { done });
            }
        }
        output::print(&text)?;
        complain(&upgraded.failed)
    }
}

fn parse_version(typed: &str) -> Result<u64> {
    let known =
        |version: &u64| (1..=version::LAST_NUMBERED).contains(version) || *version == version::FEATURES;
    let version = typed.parse::<u64>().ok().filter(known);
    version.ok_or_else(|| usage(format!("invalid version '{typed}'")))
}

/// The message when no pool was changed.
fn nothing_to_do(wanted: u64) -> String {
    match wanted {
        version::FEATURES => "All pools are already formatted using feature flags.\n\n\
                              Every feature flags pool already has all supported and requested features \
                              enabled.\n"
            .to_owned(),
        _ => format!("All pools are already formatted with version {wanted} or higher.\n"),
    }
}

/// The message about one pool; with `-a` nothing about unchanged ones.
fn done(upgraded: &UpgradedPool, wanted: u64, all: bool) -> String {
    let (pool, before) = (&upgraded.pool, upgraded.version);
    let mut text = String::new();
    if before < wanted {
        let to = match wanted {
            version::FEATURES => "feature flags".to_owned(),
            version => format!("version {version}"),
        };
        text.push_str(&format!("Successfully upgraded '{pool}' from version {before} to {to}.\n"));
    }
    if !upgraded.features.is_empty() {
        text.push_str(&format!("Enabled the following features on '{pool}':\n"));
        upgraded.features.iter().for_each(|feature| text.push_str(&format!("  {feature}\n")));
    }
    if !text.is_empty() {
        return text + "\n";
    }
    match wanted {
        _ if all => text,
        _ if before > wanted => {
            format!("Pool '{pool}' is already formatted using more current version '{before}'.\n\n")
        }
        version::FEATURES => {
            format!("Pool '{pool}' already has all supported and requested features enabled.\n")
        }
        _ => format!("Pool '{pool}' is already formatted using version {wanted}.\n\n"),
    }
}

fn listing(pools: &[UpgradedPool]) -> String {
    let mut text = String::new();
    let older: Vec<&UpgradedPool> = pools.iter().filter(|pool| pool.version < version::FEATURES).collect();
    if older.is_empty() {
        text.push_str("All pools are formatted using feature flags.\n\n");
    } else {
        text.push_str(
            "The following pools are formatted with legacy version numbers and can\n\
             be upgraded to use feature flags.  After being upgraded, these pools\n\
             will no longer be accessible by software that does not support feature\n\
             flags.\n\n\
             Note that setting a pool's 'compatibility' feature to 'legacy' will\n\
             inhibit upgrades.\n\n\
             VER  POOL\n---  ------------\n",
        );
        for pool in older {
            text.push_str(&format!("{:2}   {}\n", pool.version, pool.pool));
        }
        text.push_str("\nUse 'zpool upgrade -v' for a list of available legacy versions.\n");
    }
    let lacking: Vec<&UpgradedPool> = pools.iter().filter(|pool| !pool.features.is_empty()).collect();
    if lacking.is_empty() {
        return text + "Every feature flags pool has all supported and requested features enabled.\n";
    }
    text.push_str(
        "\nSome supported features are not enabled on the following pools. Once a\n\
         feature is enabled the pool may become incompatible with software\n\
         that does not support the feature. See zpool-features(7) for details.\n\n\
         Note that the pool 'compatibility' feature can be used to inhibit\n\
         feature upgrades.\n\n\
         Features marked with (*) are not applied automatically on upgrade, and\n\
         must be applied explicitly with zpool-set(7).\n\n\
         POOL  FEATURE\n---------------\n",
    );
    for pool in lacking {
        text.push_str(&format!("{}\n", pool.pool));
        for feature in &pool.features {
            let is_named_only = Feature::from_name(feature).is_some_and(|known| !known.is_upgraded());
            let mark = if is_named_only { "(*)" } else { "" };
            text.push_str(&format!("      {feature}{mark}\n"));
        }
    }
    text + "\n"
}

fn print_features() -> Result<()> {
    let mut text = "This system supports ZFS pool feature flags.\n\n\
                    The following features are supported:\n\n\
                    FEAT DESCRIPTION\n\
                    -------------------------------------------------------------\n"
        .to_owned();
    for feature in Feature::ALL {
        let readonly = if feature.is_readonly_compatible() { " (read-only compatible)" } else { "" };
        text.push_str(&format!("{:<37}{readonly}\n     {}\n", feature.name(), feature.info().description));
    }
    text.push_str("\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n");
    text.push_str("---  --------------------------------------------------------\n");
    for (version, brought) in (1..).zip(LEGACY_VERSIONS) {
        text.push_str(&format!(" {version:<4}{brought}\n"));
    }
    text.push_str(
        "\nFor more information on a particular version, including supported releases,\n\
         see the ZFS Administration Guide.\n\n",
    );
    output::print(&text)
}
