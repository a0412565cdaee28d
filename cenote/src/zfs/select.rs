//! Which datasets a command is about: names or paths, how deep below them, of which kinds.

use std::path::Path;

use anyhow::Result;
use server::api::{DatasetKind, DatasetPage, ListDatasets, ListMounts, ListPools, Listed};

use super::pool_of;
use crate::output::{self, usage};
use crate::{command_line, remotes};

/// The choice of datasets on the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Selection {
    /// Also everything below
    #[arg(short)]
    recursive: bool,
    /// How many levels below
    #[arg(short, value_name = "DEPTH")]
    depth: Option<String>,
    /// Kinds: filesystem, volume, snapshot, bookmark, or all, separated by commas
    #[arg(short = 't', value_name = "TYPE,…")]
    types: Option<String>,
}

impl Selection {
    /// What is named, with what lies below if `recursive`.
    pub fn of(recursive: bool) -> Self {
        Self { recursive, ..Self::default() }
    }

    /// Asks the daemon for the chosen datasets. `default_kinds` are those of a command without arguments for
    /// it; where it has no snapshots, pools with the property `listsnapshots` add theirs.
    pub fn fetch(
        &self,
        arguments: &[String],
        properties: Vec<String>,
        default_kinds: &[DatasetKind],
    ) -> Result<DatasetPage> {
        let names = arguments.iter().map(|argument| name_of(argument)).collect::<Result<Vec<String>>>()?;
        let mut kinds = match &self.types {
            Some(types) => parse_kinds(types)?,
            None => default_kinds.to_vec(),
        };
        let depth = self.depth(&kinds, names.is_empty())?;
        let by_pool = self.types.is_none() && !kinds.contains(&DatasetKind::Snapshot);
        let listing_pools = if by_pool { pools_listing_snapshots()? } else { Vec::new() };
        if by_pool && (!listing_pools.is_empty() || names.iter().any(|name| name.contains('@'))) {
            kinds.push(DatasetKind::Snapshot);
        }
        let pass_over = self.depth.is_some();
        let request = ListDatasets { names, depth, kinds, pass_over, properties, ..ListDatasets::default() };
        let mut listed = output::ask(&request, |request| DatasetPage {
            failed: output::none_of(&request.names, "dataset does not exist"),
            ..DatasetPage::default()
        })?;
        if by_pool {
            listed.entries.retain(|entry| {
                entry.kind != DatasetKind::Snapshot
                    || request.names.contains(&entry.name)
                    || listing_pools.iter().any(|pool| pool == pool_of(&entry.name))
            });
        }
        Ok(listed)
    }

    fn depth(&self, kinds: &[DatasetKind], all: bool) -> Result<Option<usize>> {
        if let Some(text) = &self.depth {
            let depth: i64 = text.parse().map_err(|_| usage(format!("{text} is not an integer")))?;
            return match usize::try_from(depth) {
                Ok(depth) => Ok(Some(depth)),
                Err(_) => Err(usage("Depth can not be negative.")),
            };
        }
        let below_only = matches!(kinds, [DatasetKind::Snapshot] | [DatasetKind::Bookmark]);
        Ok(match (self.recursive || all, below_only) {
            (true, _) => None,
            // The snapshots or bookmarks of a dataset are one level below it.
            (false, true) => Some(1),
            (false, false) => Some(0),
        })
    }
}

/// The kinds in a comma-separated list.
fn parse_kinds(list: &str) -> Result<Vec<DatasetKind>> {
    use DatasetKind::{Bookmark, Filesystem, Snapshot, Volume};
    let mut kinds = Vec::new();
    for word in list.split(',') {
        let named: &[DatasetKind] = match word {
            "filesystem" | "fs" => &[Filesystem],
            "volume" | "vol" => &[Volume],
            "snapshot" | "snap" => &[Snapshot],
            "bookmark" => &[Bookmark],
            "all" => &[Filesystem, Volume, Snapshot, Bookmark],
            _ => return Err(usage(format!("invalid type '{word}'"))),
        };
        kinds.extend(named);
    }
    kinds.dedup();
    Ok(kinds)
}

/// The dataset that an argument names: a path stands for the filesystem that is mounted there.
pub(super) fn name_of(argument: &str) -> Result<String> {
    if !argument.starts_with('/') && !argument.starts_with("./") {
        return Ok(argument.to_owned());
    }
    // Links of another machine are not followed.
    let path = match remotes::is_afar() {
        true => command_line::absolute(Path::new(argument))?,
        false => std::fs::canonicalize(argument)
            .map_err(|error| anyhow::anyhow!("cannot open '{argument}': {error}"))?,
    };
    let mounts = output::ask(&ListMounts {}, |_| Vec::new())?;
    let inside = mounts.into_iter().filter(|mount| path.starts_with(Path::new(&mount.mountpoint)));
    match inside.max_by_key(|mount| mount.mountpoint.components().count()) {
        Some(mount) => Ok(mount.dataset),
        None => Err(anyhow::anyhow!("'{argument}': not a ZFS filesystem")),
    }
}

/// Pools whose property `listsnapshots` is on.
fn pools_listing_snapshots() -> Result<Vec<String>> {
    let request = ListPools { properties: vec!["listsnapshots".to_owned()], ..ListPools::default() };
    let listed = output::ask(&request, |_| Listed::default())?;
    let on = |value: &Option<String>| value.as_deref() == Some("on");
    let listing = listed.entries.into_iter();
    let listing = listing.filter(|pool| pool.properties.first().is_some_and(|property| on(&property.value)));
    Ok(listing.map(|pool| pool.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_alone_are_looked_for_below_the_named_dataset() {
        let selection = Selection::default();
        assert_eq!(selection.depth(&[DatasetKind::Snapshot], false).unwrap(), Some(1));
        assert_eq!(selection.depth(&[DatasetKind::Volume], false).unwrap(), Some(0));
        assert_eq!(selection.depth(&[DatasetKind::Volume], true).unwrap(), None);
    }

    #[test]
    fn short_words_for_kinds_are_understood() {
        assert_eq!(parse_kinds("fs,snap").unwrap(), [DatasetKind::Filesystem, DatasetKind::Snapshot]);
        assert_eq!(parse_kinds("all").unwrap().len(), 4);
        assert!(parse_kinds("pool").is_err());
    }
}
