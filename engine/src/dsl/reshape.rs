//! What the pool says about volumes that are being given another block size.
//!
//! A *copy* is a volume with a user property that says what it is a copy of, and how far it is: the *mark*.
//! It has its own name, `VOLUME.reshape`, so that it is found without reading the properties of all volumes.
//! The mark is written in the same group as what it speaks of, or in a later one. So a crash can only make
//! it say too little, and then some of the work is done again.
//!
//! When the copy takes the name of the volume, it takes its *identity* too: the number by which clients
//! recognize a disk, whatever it is called. That is the guid of the dataset, unless a user property says
//! otherwise. Only a local value counts: a replica of a volume is another disk.

use std::fmt;

use ondisk::Guid;

use super::{Dataset, Dsl, ValueExt};
use crate::error::Result;

/// The user property that marks a copy.
pub(crate) const MARK: &str = "org.cenote:reshape";
/// The user property with the identity of a volume, in decimal.
pub(crate) const IDENTITY: &str = "org.cenote:identity";
/// The end of the name of a copy.
pub(crate) const COPY_SUFFIX: &str = ".reshape";
/// The beginning of the names of snapshots that are copied.
pub(crate) const SNAPSHOT_PREFIX: &str = "cenote-reshape-";

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The volume that is copied.
    pub source: Guid,
    /// How many passes were begun.
    pub pass: u32,
    /// The snapshot of which the copy has everything.
    pub copied: Option<Guid>,
    /// The snapshot that is being copied.
    pub copying: Option<Guid>,
    /// What lies before this byte is copied of it.
    pub offset: u64,
    /// Whether a user paused it.
    pub is_paused: bool,
}

impl Mark {
    /// The mark of a copy that has nothing yet.
    pub fn new(source: Guid) -> Self {
        Self { source, pass: 0, copied: None, copying: None, offset: 0, is_paused: false }
    }

    /// The mark in the words of the property. `None` when it makes no sense.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut word = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let guid = |text: &str| Some(text.parse().ok().filter(|guid| *guid != 0).map(Guid));
        let mark = Self {
            source: Guid(word("source")?.parse().ok()?),
            pass: word("pass")?.parse().ok()?,
            copied: guid(word("copied")?)?,
            copying: guid(word("copying")?)?,
            offset: word("offset")?.parse().ok()?,
            is_paused: match word("state")? {
                "paused" => true,
                "active" => false,
                _ => return None,
            },
        };
        words.next().is_none().then_some(mark)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guid = |guid: Option<Guid>| guid.map_or(0, Guid::get);
        write!(
            f,
            "source={} pass={} copied={} copying={} offset={} state={}",
            self.source.get(),
            self.pass,
            guid(self.copied),
            guid(self.copying),
            self.offset,
            if self.is_paused { "paused" } else { "active" },
        )
    }
}

impl Dataset {
    /// Whether it is a snapshot that was only taken, and is held, to be copied. It goes when it is.
    pub fn is_taken_for_copy(&self) -> bool {
        let short = self.name.split_once('@').map_or("", |(_, short)| short);
        self.is_snapshot() && short.starts_with(SNAPSHOT_PREFIX) && !self.phys.userrefs.is_none()
    }
}

impl Dsl {
    /// Whether a volume is the unfinished copy of another one, with another block size. Nothing may use it.
    pub async fn is_unfinished_copy(&self, dataset: &Dataset) -> Result<bool> {
        Ok(self.mark(dataset).await?.is_some())
    }

    /// The mark of a copy, as it is stored.
    pub(crate) async fn mark(&self, dataset: &Dataset) -> Result<Option<String>> {
        self.local_text(dataset, MARK).await
    }

    /// The number by which clients recognize a volume or a snapshot, whatever its name is.
    pub async fn identity(&self, dataset: &Dataset) -> Result<Guid> {
        let own = dataset.phys.guid;
        if dataset.is_snapshot() {
            return Ok(own);
        }
        let given = self.local_text(dataset, IDENTITY).await?;
        Ok(given.and_then(|text| text.parse().ok()).map_or(own, Guid))
    }

    /// The text of a user property that was set on a filesystem or volume itself.
    async fn local_text(&self, dataset: &Dataset, name: &str) -> Result<Option<String>> {
        if dataset.is_snapshot() || dataset.dir.phys.props_zap.is_none() {
            return Ok(None);
        }
        let value = self.mos().value(dataset.dir.phys.props_zap, name).await?;
        Ok(value.and_then(|value| value.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_the_same_after_it_was_stored() {
        let new = Mark::new(Guid(u64::MAX));
        let later = Mark { pass: 7, copied: Some(Guid(5)), copying: Some(Guid(6)), offset: 1 << 40, ..new };
        for mark in [new, later, Mark { is_paused: true, ..later }] {
            assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        }
        let good = new.to_string();
        for bad in ["", "source=1", &good.replace("active", "lost"), &format!("{good} more"), &good[1..]] {
            assert_eq!(Mark::parse(bad), None, "{bad}");
        }
    }
}
