//! The list of top-level vdevs, and the lists of spares and cache devices: they are read without a lock.
//!
//! The pointers of all blocks contain the number of their vdev, so vdevs are never taken out of the list. A
//! vdev whose devices change is replaced by its next *version* in the same place; a removed one becomes an
//! indirect vdev or a hole there. Readers and writers that began with an old version keep it: versions stay
//! until the pool is closed, and share what lasts ([`super::Lasting`]). A spare or cache device has no
//! number; a removed one is skipped. Vdevs are added and replaced while other threads read and write; the
//! entries of the lists do not move.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Device;

use super::Vdev;

/// Top-level vdevs by number.
#[derive(Default)]
pub struct Tops(boxcar::Vec<Place>);

/// A place in the list: the versions of one vdev, of which the last counts. There is always one.
struct Place {
    first: Vdev,
    later: boxcar::Vec<Vdev>,
}

impl Place {
    fn of(vdev: Vdev) -> Self {
        Self { first: vdev, later: boxcar::Vec::new() }
    }

    fn now(&self) -> &Vdev {
        let last = self.later.count().checked_sub(1).and_then(|last| self.later.get(last));
        last.unwrap_or(&self.first)
    }
}

impl Tops {
    /// The number of vdevs.
    pub fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vdev of this number.
    pub fn get(&self, index: usize) -> Option<&Vdev> {
        self.0.get(index).map(Place::now)
    }

    /// All present vdevs, by number.
    pub fn iter(&self) -> Iter<'_> {
        Iter { tops: self, front: 0, back: self.len() }
    }

    /// Adds a vdev. Returns its number. The caller ensures that no other thread adds vdevs meanwhile.
    pub(super) fn push(&self, vdev: Vdev) -> usize {
        self.0.push(Place::of(vdev))
    }

    /// Replaces a vdev by its next version. Callers that hold the old one keep it. Returns false if there is
    /// no such vdev. The caller ensures that no other thread replaces it meanwhile.
    pub(super) fn replace(&self, index: usize, vdev: Vdev) -> bool {
        self.0.get(index).is_some_and(|place| {
            place.later.push(vdev);
            true
        })
    }
}

/// Spares or cache devices: devices may be added and removed while other threads read the list. The caller
/// that changes the list ensures that no other thread changes it meanwhile.
#[derive(Debug, Default)]
pub struct Auxiliary(Tops);

impl Auxiliary {
    /// The devices that were not removed.
    pub fn iter(&self) -> impl Iterator<Item = &Vdev> {
        self.0.iter().filter(|vdev| !vdev.is_removed.load(Ordering::Acquire))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The vdevs of a list that is not shared.
    pub(crate) fn into_vdevs(self) -> impl Iterator<Item = Vdev> {
        self.0.0.into_iter().map(|place| place.later.into_iter().last().unwrap_or(place.first))
    }

    /// Adds a device.
    pub(crate) fn push(&self, vdev: Vdev) {
        self.0.push(vdev);
    }

    /// Removes a vdev and lets go of its device. Returns that.
    pub(crate) fn remove(&self, vdev: &Vdev) -> Option<Arc<dyn Device>> {
        vdev.is_removed.store(true, Ordering::Release);
        vdev.close()
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
