//! Sets of numbers in ZAPs that change when their group is written, and not before.
//!
//! # The idea
//! Most numbers that are put into such a set are taken out again soon: files that lost their name are let go
//! a moment later. What a group puts in and takes out again costs two entries in memory; what is left of it
//! is written to the ZAP when the group is quiesced, by whoever writes it. So nobody else changes the ZAP,
//! and groups do so in their order: a number that a later group takes out is in it by then.
//!
//! A number that is put in is not in the set, and one that is taken out is: the caller knows that, as nobody
//! reads the set before the group is committed.
//!
//! An entry has the number for its value and, in hexadecimal, for its name. Source: OpenZFS 2.3 `zap_micro.c`
//! (`zap_add_int`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use ondisk::{ObjectId, Txg};

use super::LiveObjset;
use crate::dmu::zap::{Key, Value, edit};
use crate::error::Result;
use crate::txg::Tx;

/// What a group changes in sets: by the object of the ZAP and the number, whether the number is put in. The
/// others are taken out.
pub(super) type SetChanges = BTreeMap<(u64, u64), bool>;

impl LiveObjset {
    /// Puts a number that is not in it into the set of a ZAP, when the group of `tx` is written.
    pub fn put_in_set(&self, tx: &Tx, set: ObjectId, number: u64) {
        self.change_set(tx, set, number, true);
    }

    /// Takes a number out of the set of a ZAP that has it, when the group of `tx` is written.
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

    /// What groups that are not committed change in the set of a ZAP, in their order: numbers, and whether
    /// they are put in.
    pub fn set_changes(&self, set: ObjectId) -> Vec<(u64, bool)> {
        let state = self.lock();
        let changes = state.dirty.values().flat_map(|dirty| dirty.sets.range((set.0, 0)..=(set.0, u64::MAX)));
        changes.map(|((_, number), put)| (*number, *put)).collect()
    }

    /// Changes the ZAPs as the group `txg`, which nobody else changes any more, says. Where a ZAP cannot be
    /// read, its numbers stay as they are: that must not keep the rest of the group from being written.
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
