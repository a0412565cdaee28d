//! Sets of numbers in ZAPs that change only when their group is written.
//!
//! # The idea
//! Most numbers in such a set are removed again soon: files that lost their name are freed a moment later. A
//! number that a group adds and removes again costs two entries in memory. The remaining changes of the group
//! are written to the ZAP when the group is quiesced, by the sync. So only the sync changes the ZAP, and
//! groups do so in their order: a number that a later group removes is in the set by then.
//!
//! A number that is added is not in the set, and a number that is removed is: the caller ensures that,
//! because the set is not read before the group is committed.
//!
//! An entry has the number as its value and, in hexadecimal, as its name. Source: OpenZFS 2.3 `zap_micro.c`
//! (`zap_add_int`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use ondisk::{ObjectId, Txg};

use super::LiveObjset;
use crate::dmu::zap::{Key, Value, edit};
use crate::error::Result;
use crate::txg::Tx;

/// The changes of a group in sets: for the object of the ZAP and the number, whether the number is added.
/// Otherwise it is removed.
pub(super) type SetChanges = BTreeMap<(u64, u64), bool>;

impl LiveObjset {
    /// Adds a number that is not in it to the set of a ZAP, when the group of `tx` is written.
    pub fn put_in_set(&self, tx: &Tx, set: ObjectId, number: u64) {
        self.change_set(tx, set, number, true);
    }

    /// Removes a number from the set of a ZAP that contains it, when the group of `tx` is written.
    pub fn take_from_set(&self, tx: &Tx, set: ObjectId, number: u64) {
        self.change_set(tx, set, number, false);
    }

    fn change_set(&self, tx: &Tx, set: ObjectId, number: u64, put: bool) {
        tx.note_changed();
        let mut state = self.lock();
        match state.dirty.entry(tx.txg()).or_default().sets.entry((set.0, number)) {
            Entry::Vacant(change) => {
                change.insert(put);
            }
            Entry::Occupied(change) if *change.get() != put => {
                change.remove();
            }
            Entry::Occupied(_) => {}
        }
    }

    /// The uncommitted changes in the set of a ZAP, in the order of their groups: numbers, and whether they
    /// are added.
    pub fn set_changes(&self, set: ObjectId) -> Vec<(u64, bool)> {
        let state = self.lock();
        let changes = state.dirty.values().flat_map(|dirty| dirty.sets.range((set.0, 0)..=(set.0, u64::MAX)));
        changes.map(|((_, number), put)| (*number, *put)).collect()
    }

    /// Applies the changes of the group `txg`, which no operation changes any more, to the ZAPs. If a ZAP
    /// cannot be read, its numbers stay as they are: the rest of the group must be written all the same.
    pub(super) async fn settle_sets(self: &Arc<Self>, txg: Txg) {
        let Some(changes) = self.lock().dirty.get(&txg).map(|dirty| dirty.sets.clone()) else { return };
        let tx = Tx::syncing(txg);
        for ((set, number), put) in changes {
            if let Err(error) = self.settle(&tx, ObjectId(set), number, put).await {
                let objset = self.id().0;
                tracing::error!(objset, set, number, put, %error, "a set of numbers stays as it is");
            }
        }
        if let Some(dirty) = self.lock().dirty.get_mut(&txg) {
            dirty.sets.clear();
        }
    }

    async fn settle(self: &Arc<Self>, tx: &Tx, set: ObjectId, number: u64, put: bool) -> Result<()> {
        let object = self.object(set).await?;
        let key = Key::Name(format!("{number:x}").into_bytes());
        if put {
            edit::insert(&object, tx, &key, &Value::U64(vec![number])).await?;
        } else {
            edit::remove(&object, tx, &key).await?;
        }
        Ok(())
    }
}
