//! How much may be done to a pool before data are lost: the state of each device as the torturer knows it.
//!
//! A device is *hurt* from the moment when its contents are damaged, or it misses a write, until a resilver or
//! scrub that began later has ended well. A top-level vdev can do without as many of its children as it has
//! redundancy; a child is as hurt as its best leaf. So a device may be hurt only while the others of its vdev
//! make up for all that are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engine::vdev::{Kind, Vdev, VdevTree};

/// Why a device is hurt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hurt {
    /// Its contents were overwritten.
    Corrupt,
    /// It is not there.
    Pulled,
    /// It was taken offline.
    Offline,
    /// Its operations fail now and then.
    Flaky,
}

/// What was done to the devices.
#[derive(Debug, Default)]
pub struct Harm {
    hurt: BTreeMap<PathBuf, BTreeSet<Hurt>>,
}

impl Harm {
    /// Notes that a device is hurt.
    pub fn add(&mut self, path: &Path, hurt: Hurt) {
        self.hurt.entry(path.to_owned()).or_default().insert(hurt);
    }

    /// Notes that a device is no longer hurt in this way.
    pub fn remove(&mut self, path: &Path, hurt: Hurt) -> bool {
        let removed = self.hurt.get_mut(path).is_some_and(|of| of.remove(&hurt));
        self.hurt.retain(|_, of| !of.is_empty());
        removed
    }

    /// Whether a device is hurt in this way.
    pub fn has(&self, path: &Path, hurt: Hurt) -> bool {
        self.hurt.get(path).is_some_and(|of| of.contains(&hurt))
    }

    /// In which ways a device is hurt.
    pub fn of(&self, path: &Path) -> Vec<Hurt> {
        self.hurt.get(path).into_iter().flatten().copied().collect()
    }

    /// The devices that are hurt in this way.
    pub fn with(&self, hurt: Hurt) -> Vec<PathBuf> {
        self.hurt.iter().filter(|(_, of)| of.contains(&hurt)).map(|(path, _)| path.clone()).collect()
    }

    /// Forgets a device.
    pub fn forget(&mut self, path: &Path) {
        self.hurt.remove(path);
    }

    /// Whether a leaf is fine, as the torturer and the pool know it.
    fn is_fine(&self, leaf: &Vdev, except: Option<&Path>) -> bool {
        let path = Path::new(&leaf.name);
        !self.hurt.contains_key(path)
            && Some(path) != except
            && leaf.status().is_readable()
            && leaf.missing_txgs.is_empty()
    }

    /// Whether all data can be read though a device be hurt too.
    pub fn allows(&self, tree: &VdevTree, path: &Path) -> bool {
        tree.tops.iter().all(|top| self.holds(top, Some(path)))
    }

    fn holds(&self, vdev: &Vdev, except: Option<&Path>) -> bool {
        let lost = || vdev.children.iter().filter(|child| !self.holds(child, except)).count();
        match &vdev.kind {
            Kind::Mirror => vdev.children.iter().any(|child| self.holds(child, except)),
            // One of them goes as soon as the other is resilvered, which says nothing of damage.
            Kind::Replacing | Kind::Spare => {
                let is_corrupt = |path: &Path| Some(path) == except || self.has(path, Hurt::Corrupt);
                vdev.children.iter().any(|child| self.holds(child, except))
                    && !vdev.walk().any(|leaf| is_corrupt(Path::new(&leaf.name)))
            }
            Kind::Raidz(raidz) => lost() <= raidz.nparity(),
            Kind::Draid(draid) => lost() <= draid.config().nparity,
            Kind::Leaf(_) => self.is_fine(vdev, except),
            // A distributed spare is not used here.
            Kind::DraidSpare { .. } => false,
            Kind::Indirect(_) | Kind::Hole | Kind::Missing => true,
        }
    }
}
