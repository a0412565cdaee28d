//! What is to be copied: `POOL/FS[@SNAPSHOT][:/PATH]`.

use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use engine::dsl::{Dataset, Dsl, Kind};
use engine::properties::Environment;
use engine::zpl::{Znode, Zpl, ZplOptions};
use engine::zvol::Zvol;

use crate::exported::PoolPlace;

/// A dataset, and a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Full name of the dataset or snapshot.
    pub dataset: String,
    /// Path below the dataset's root, without a leading slash; empty for the root.
    pub path: String,
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        // A dataset's name may have a colon in it, a path begins with a slash.
        let (dataset, path) = text.split_once(":/").unwrap_or((text, ""));
        ensure!(
            !dataset.is_empty() && !dataset.starts_with('/'),
            "'{text}': expected POOL/FS[@SNAPSHOT][:/PATH]"
        );
        Ok(Self { dataset: dataset.to_owned(), path: path.trim_matches('/').to_owned() })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.dataset)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, ":/{}", self.path) }
    }
}

/// What a dataset holds.
pub enum Content {
    /// Files.
    Filesystem(Arc<Zpl>),
    /// A disk image.
    Volume(Arc<Zvol>),
}

impl Target {
    /// Name of the pool.
    pub fn pool(&self) -> &str {
        self.dataset.split(['/', '@']).next().unwrap_or_default()
    }

    /// Opens the pool and the dataset, unlocked. Beside them, the names of datasets of which not all is shown
    /// ([`PoolPlace::open`]).
    pub async fn open(&self, place: &PoolPlace) -> Result<(Arc<Dsl>, Content, Vec<String>)> {
        let (dsl, not_shown) = place.open(self.pool()).await?;
        let content = open_dataset(place, &dsl, &dsl.find(&self.dataset).await?).await?;
        Ok((dsl, content, not_shown))
    }
}

/// Opens a dataset, unlocked.
pub async fn open_dataset(place: &PoolPlace, dsl: &Dsl, dataset: &Dataset) -> Result<Content> {
    place.unlock(dsl, dataset).await?;
    let objset = dsl.open_objset(dataset).await.with_context(|| format!("cannot open '{}'", dataset.name))?;
    let entry = dsl.entry(&dataset.name).await?;
    if matches!(entry.kind, Kind::Volume | Kind::Snapshot { of_volume: true }) {
        return Ok(Content::Volume(Zvol::open(&objset).await?));
    }
    let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await?;
    let options = ZplOptions::from_properties(&properties);
    Ok(Content::Filesystem(Zpl::open(&objset, options).await?))
}

/// The file at `path`. Symbolic links are not followed.
pub async fn find(zpl: &Arc<Zpl>, path: &str) -> Result<Znode> {
    let mut node = zpl.node(zpl.root()).await?;
    let mut walked = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        walked = format!("{walked}/{name}");
        let found =
            node.lookup(name.as_bytes()).await.with_context(|| format!("cannot look up '{walked}'"))?;
        node = zpl.node(found.with_context(|| format!("'{walked}': no such file or directory"))?).await?;
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_behind_the_first_colon_and_slash() {
        let target: Target = "tank/fs:x@s:/a/b:c/".parse().unwrap();
        assert_eq!(
            (target.dataset.as_str(), target.path.as_str(), target.pool()),
            ("tank/fs:x@s", "a/b:c", "tank")
        );
        let target: Target = "tank".parse().unwrap();
        assert_eq!((target.dataset.as_str(), target.path.as_str()), ("tank", ""));
        assert!("/tank".parse::<Target>().is_err());
    }
}
