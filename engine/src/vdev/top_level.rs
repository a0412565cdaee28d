//! The list of top-level vdevs, and those of spares and cache devices: they only grow, and are read without a
//! lock.
//!
//! The number of a vdev stands in the pointers of all its blocks, so that vdevs are never taken out of the
//! list: what was removed stays as an indirect vdev or a hole, which takes its place once and for all. A
//! spare or cache device has no number; one that was removed is passed over. Adding one happens while others
//! read and write; those who are in the list do not move.

use std::fmt;
use std::ops::Index;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::{Kind, Vdev};

/// Top-level vdevs by number.
#[derive(Default)]
pub struct Tops(boxcar::Vec<Place>);

/// A place in the list: a vdev, and what came in its place.
struct Place {
    vdev: Vdev,
    successor: OnceLock<Vdev>,
}

impl Place {
    fn of(vdev: Vdev) -> Self {
        Self { vdev, successor: OnceLock::new() }
    }

    fn now(&self) -> &Vdev {
        self.successor.get().unwrap_or(&self.vdev)
    }
}

impl Tops {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vdev of this number.
    pub fn get(&self, index: usize) -> Option<&Vdev> {
        self.0.get(index).map(Place::now)
    }

    /// All that there are at this moment, by number.
    pub fn iter(&self) -> Iter<'_> {
        Iter { tops: self, front: 0, back: self.len() }
    }

    /// Adds a vdev. Returns its number. Whoever adds vdevs sees to it that nobody else does so meanwhile.
    pub(super) fn push(&self, vdev: Vdev) -> usize {
        self.0.push(Place::of(vdev))
    }

    /// Puts another vdev in the place of one. Whoever has the old one keeps it. False where that was done
    /// before, or there is none.
    pub(super) fn replace(&self, index: usize, vdev: Vdev) -> bool {
        self.0.get(index).is_some_and(|place| place.successor.set(vdev).is_ok())
    }
}

/// Spares or cache devices: some may be added, and some removed, while others look. Whoever changes the list
/// sees to it that nobody else does so meanwhile.
#[derive(Debug, Default)]
pub struct Auxiliary(Tops);

impl Auxiliary {
    /// Those that were not removed.
    pub fn iter(&self) -> impl Iterator<Item = &Vdev> {
        self.0.iter().filter(|vdev| !vdev.is_removed.load(Ordering::Acquire))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The vdevs of a list that nobody else has.
    pub(crate) fn into_vdevs(self) -> impl Iterator<Item = Vdev> {
        self.0.0.into_iter().map(|place| place.vdev)
    }

    /// Adds one.
    pub(crate) fn push(&self, vdev: Vdev) {
        self.0.push(vdev);
    }

    /// Removes one. Its device is closed.
    pub(crate) fn remove(&self, vdev: &Vdev) {
        vdev.is_removed.store(true, Ordering::Release);
        if let Kind::Leaf(slot) = &vdev.kind {
            slot.replace(None);
        }
    }
}

impl FromIterator<Vdev> for Auxiliary {
    fn from_iter<I: IntoIterator<Item = Vdev>>(vdevs: I) -> Self {
        Self(vdevs.into_iter().collect())
    }
}

impl FromIterator<Vdev> for Tops {
    fn from_iter<I: IntoIterator<Item = Vdev>>(vdevs: I) -> Self {
        Self(vdevs.into_iter().map(Place::of).collect())
    }
}

impl Index<usize> for Tops {
    type Output = Vdev;

    fn index(&self, index: usize) -> &Vdev {
        self.0[index].now()
    }
}

impl<'a> IntoIterator for &'a Tops {
    type Item = &'a Vdev;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Tops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// Iterator of [`Tops::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    tops: &'a Tops,
    front: usize,
    back: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Vdev;

    fn next(&mut self) -> Option<&'a Vdev> {
        let vdev = (self.front < self.back).then(|| self.tops.get(self.front))?;
        self.front += 1;
        vdev
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.back - self.front;
        (left, Some(left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let last = (self.front < self.back).then(|| self.back - 1)?;
        self.back = last;
        self.tops.get(last)
    }
}

impl ExactSizeIterator for Iter<'_> {}
