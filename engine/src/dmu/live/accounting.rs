//! The space and files of users, groups and projects in a filesystem.
//!
//! # The idea
//! A filesystem counts the bytes of all files per user, group and project, in three ZAPs whose dnodes are in
//! its object set's block. With the feature `userobj_accounting` it also counts the files, under names that
//! begin with `obj-`. Flags in a dnode record the counts in which it is included. When a group is written,
//! each changed file is subtracted from its previous owners, with its previous space, and added to its
//! present owners. The object set's flags record which of the counts are complete.
//!
//! # Completing counts
//! A filesystem may get features, or a version that counts by users at all, later than its files. Then its
//! counts are complete after all its files were written again ([`Completing`]). The flags of a written file's
//! dnode record that it is counted, so that this may be interrupted. There is no such flag for projects: they
//! are counted from nothing each time, and the set of files that are already counted is known only while the
//! object set is open. (OpenZFS subtracts a file from its project then that was never added to it.)
//!
//! Of what came with a raw stream nothing was counted, though dnodes and counts may be left of a time before
//! it. So all counts of an encrypted filesystem whose counts are not complete are dropped, and made from
//! nothing: flags of dnodes say nothing then, but for files that were counted since.
//!
//! A file counts its dnode's first slot and its blocks. The ids are at fixed places in the attributes of all
//! files.
//!
//! Source of the facts: OpenZFS 2.3 `dmu_objset.c` (`do_userquota_update`), `zfs_quota.c`
//! (`zpl_get_file_info`), `zfs_sa.h`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED};
use ondisk::objset::{
    FLAG_PROJECT_QUOTA_COMPLETE, FLAG_USER_ACCOUNTING_COMPLETE, FLAG_USER_OBJECT_ACCOUNTING_COMPLETE,
    OBJSET_SIZE_V2, OBJSET_SIZE_V3, Objset as ObjsetPhys, ObjsetType,
};
use ondisk::{ByteOrder, ObjectId, Txg};

use super::Policy;
use super::batch::Batcher;
use super::dnodes;
use super::layer::Core;
use super::object::LiveObject;
use super::objset::LiveObjset;
use super::sync::Work;
use super::tree_sync::{Account, TreeSync};
use crate::dmu::tree::Tree;
use crate::dmu::zap::{Key, edit};
use crate::error::Result;
use crate::range_set::RangeSet;
use crate::txg::Tx;

/// The first word of attributes in a bonus area.
const SA_MAGIC: u32 = 0x002f_505a;
/// Offsets after the header of attributes.
const SA_UID: usize = 24;
const SA_GID: usize = 32;
const SA_FLAGS: usize = 48;
const SA_PROJECT: usize = 128;
/// Flag of files that have a project.
const HAS_PROJECT: u64 = 0x8000_0000_0000;
/// Offsets in the bonus area of old files.
const ZNODE_UID: usize = 128;
const ZNODE_GID: usize = 136;

/// The kinds of counts of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// Whether files are counted, not only their space.
    objects: bool,
    /// Whether projects are counted too.
    projects: bool,
    /// Whether the counts by projects are being completed.
    pub(super) completes_projects: bool,
    /// Whether the counts by projects are dropped, because they are not complete.
    pub(super) drops_projects: bool,
    /// Whether all counts are dropped, and made from nothing.
    pub(super) drops_all: bool,
    /// Whether only what was counted since is subtracted.
    pub(super) restarts: bool,
}

/// Counts that are being completed.
#[derive(Debug, Default)]
pub(super) struct Completing {
    objects: bool,
    projects: bool,
    /// All counts are made from nothing.
    restarts: bool,
    /// The files that are already counted for their projects, or at all.
    counted: RangeSet,
    is_begun: bool,
    /// The dataset has recorded that it counts.
    is_active: bool,
}

/// The owners of a file: user, group, project.
type Ids = [u64; 3];

/// The usage of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    ids: Option<Ids>,
    used_bytes: u64,
    flags: u8,
}

/// Sums of changes, by kind of owner and name of the entry.
#[derive(Debug, Default)]
pub(super) struct Deltas(BTreeMap<(usize, String), i64>);

impl Counted {
    /// `None` when nothing is counted, or not completely.
    pub(super) fn of(phys: &ObjsetPhys, completing: Option<&Completing>) -> Option<Self> {
        let completing = completing.filter(|completing| completing.is_active);
        let projects = completing.filter(|completing| completing.projects);
        let counts = phys.is_user_accounting_complete() || completing.is_some();
        (phys.objset_type == ObjsetType::Zfs && counts).then_some(Self {
            objects: phys.is_user_object_accounting_complete()
                || completing.is_some_and(|completing| completing.objects),
            projects: phys.is_project_quota_complete() || projects.is_some(),
            completes_projects: projects.is_some(),
            drops_projects: projects.is_some_and(|completing| !completing.is_begun),
            drops_all: completing.is_some_and(|completing| completing.restarts && !completing.is_begun),
            restarts: completing.is_some_and(|completing| completing.restarts),
        })
    }

    /// The accounting flags of a dnode that is written.
    pub(super) fn flags(self) -> u8 {
        FLAG_USERUSED_ACCOUNTED | if self.objects { FLAG_USEROBJUSED_ACCOUNTED } else { 0 }
    }

    fn kinds(self) -> usize {
        if self.projects { 3 } else { 2 }
    }
}

impl Completing {
    /// Whether a file is already counted for its project, and where all is counted anew at all.
    pub(super) fn has_counted(&self, file: u64) -> bool {
        !(self.projects || self.restarts) || self.counted.contains(file, file + 1)
    }

    /// Notes that written files are counted.
    pub(super) fn note(&mut self, files: impl Iterator<Item = u64>) {
        self.is_begun = true;
        for file in files {
            self.counted.add(file, file + 1);
        }
    }

    /// Sets the flags of complete counts in an object set.
    pub(super) fn complete(&self, phys: &mut ObjsetPhys) {
        phys.flags |= FLAG_USER_ACCOUNTING_COMPLETE;
        phys.flags |= if self.objects { FLAG_USER_OBJECT_ACCOUNTING_COMPLETE } else { 0 };
        phys.flags |= if self.projects { FLAG_PROJECT_QUOTA_COMPLETE } else { 0 };
    }
}

impl Usage {
    pub(super) fn of(dnode: &Dnode) -> Self {
        Self { ids: ids(dnode), used_bytes: dnode.used_bytes(), flags: dnode.flags }
    }
}

/// The owners of a file; `None` for objects that are not files.
fn ids(dnode: &Dnode) -> Option<Ids> {
    let bonus = &dnode.bonus;
    let word = |at: usize| {
        let bytes = bonus.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| dnode.order.u64(*bytes))
    };
    if dnode.bonus_type == DmuType::ZNODE {
        return Some([word(ZNODE_UID)?, word(ZNODE_GID)?, 0]);
    }
    if dnode.bonus_type != DmuType::SA {
        return None;
    }
    let magic = dnode.order.u32(*bonus.first_chunk()?);
    if magic == 0 {
        // It was just created, without attributes yet.
        return Some([0; 3]);
    }
    let layout = bonus.get(4..).and_then(|bytes| bytes.first_chunk()).map(|bytes| dnode.order.u16(*bytes))?;
    let header = usize::from(layout >> 10) * 8;
    if magic != SA_MAGIC || header < 8 {
        return None;
    }
    let has_project = word(header + SA_FLAGS)? & HAS_PROJECT != 0;
    let project = if has_project { word(header + SA_PROJECT)? } else { 0 };
    Some([word(header + SA_UID)?, word(header + SA_GID)?, project])
}

impl Deltas {
    /// Notes the change of a file from `before`, when it was counted for its project (or at all) or not, to
    /// `after`.
    pub(super) fn note(
        &mut self,
        counted: Counted,
        (before, had_project): (Usage, bool),
        after: Option<Usage>,
    ) {
        let old_kinds = match had_project {
            true => counted.kinds(),
            false if counted.restarts => 0,
            false => 2,
        };
        for (usage, sign, kinds) in [(Some(before), -1, old_kinds), (after, 1, counted.kinds())] {
            let Some(Usage { ids: Some(ids), used_bytes, flags }) = usage else { continue };
            for (kind, id) in ids.into_iter().enumerate().take(kinds) {
                if flags & FLAG_USERUSED_ACCOUNTED != 0 {
                    let bytes = used_bytes.saturating_add(DNODE_MIN_SIZE as u64) as i64;
                    *self.0.entry((kind, format!("{id:x}"))).or_default() += sign * bytes;
                }
                if flags & FLAG_USEROBJUSED_ACCOUNTED != 0 {
                    *self.0.entry((kind, format!("obj-{id:x}"))).or_default() += sign;
                }
            }
        }
    }
}

impl LiveObjset {
    /// Whether its counts of users are incomplete, or those of `objects` and `projects` if they are wanted.
    pub(crate) fn has_to_count(&self, objects: bool, projects: bool) -> bool {
        let state = self.lock();
        let phys = state.committed.phys();
        let is_complete = phys.is_user_accounting_complete()
            && (!objects || phys.is_user_object_accounting_complete())
            && (!projects || phys.is_project_quota_complete());
        phys.objset_type == ObjsetType::Zfs && !is_complete
    }

    /// Starts to complete the counts of users; and of `objects` and `projects` if they are wanted, as far as
    /// they are not complete. The caller will write all files from now on.
    pub(crate) fn begin_counting(&self, objects: bool, projects: bool) {
        let mut state = self.lock();
        let projects = projects && !state.committed.phys().is_project_quota_complete();
        let is_complete = state.committed.phys().is_user_accounting_complete();
        let restarts = state.committed.root().uses_crypt() && !is_complete;
        let completing = state.completing.get_or_insert_default();
        let is_news = (projects && !completing.projects) || (objects && !completing.objects);
        if is_news || (restarts && !completing.restarts) {
            // The dataset has not recorded yet that it counts these too.
            *completing = Completing { objects, projects, restarts, ..Completing::default() };
        }
    }

    /// The dataset has recorded that it counts them: files that are written from now on are counted.
    pub(crate) fn start_counting(&self) {
        if let Some(completing) = &mut self.lock().completing {
            completing.is_active = true;
        }
    }

    /// All files were written since the start: with the group of `tx` the counts are complete.
    pub(crate) fn end_counting(&self, tx: &Tx) {
        self.lock().dirty.entry(tx.txg()).or_default().completes_counts = true;
    }

    /// Drops all counts.
    pub(super) async fn drop_counts(
        &self,
        batcher: &Batcher<'_>,
        policy: &Policy,
        phys: &mut ObjsetPhys,
    ) -> Result<Account> {
        let mut account = self.drop_projects(batcher, policy, phys).await?;
        let taken = [phys.user_used_dnode.take(), phys.group_used_dnode.take()];
        for (kind, dnode) in (0u64..).zip(taken) {
            let Some(dnode) = dnode else { continue };
            let id = ObjectId(u64::MAX - kind);
            let tree = Tree::new(self.id(), id, dnode.clone(), false, self.primary().clone());
            let sync = TreeSync::new(batcher, policy, self.id(), &tree, dnode, 1);
            account.add(batcher.drive_one(sync.free()).await?);
        }
        Ok(account)
    }

    /// Drops the counts by projects.
    pub(super) async fn drop_projects(
        &self,
        batcher: &Batcher<'_>,
        policy: &Policy,
        phys: &mut ObjsetPhys,
    ) -> Result<Account> {
        phys.size = OBJSET_SIZE_V3;
        let Some(dnode) = phys.project_used_dnode.take() else { return Ok(Account::default()) };
        let id = ObjectId(u64::MAX - 2);
        let tree = Tree::new(self.id(), id, dnode.clone(), false, self.primary().clone());
        let sync = TreeSync::new(batcher, policy, self.id(), &tree, dnode, 1);
        batcher.drive_one(sync.free()).await
    }

    /// Adds the changes to the counts and writes those.
    pub(super) async fn count(
        self: &Arc<Self>,
        batcher: &Batcher<'_>,
        policy: &Policy,
        txg: Txg,
        deltas: Deltas,
        phys: &mut ObjsetPhys,
    ) -> Result<Account> {
        let tx = Tx::syncing(txg);
        let mut total = Account::default();
        if !deltas.0.is_empty() {
            // The blocks of old pools are too small for it.
            phys.size = phys.size.max(OBJSET_SIZE_V2);
        }
        for (kind, place) in
            [&mut phys.user_used_dnode, &mut phys.group_used_dnode, &mut phys.project_used_dnode]
                .into_iter()
                .enumerate()
        {
            let changes: Vec<_> = deltas.0.range((kind, String::new())..(kind + 1, String::new())).collect();
            if changes.iter().all(|(_, delta)| **delta == 0) {
                continue;
            }
            let zap = edit::NewZap::of(DmuType::USERGROUP_USED);
            let dnode = match place.as_ref() {
                Some(dnode) => dnode.clone(),
                None => dnodes::new_dnode(&zap.object())?,
            };
            // Only this code uses the object; readers of the counts see the committed ones.
            let id = ObjectId(u64::MAX - kind as u64);
            let core =
                Core::new(id, Arc::new(Tree::new(self.id(), id, dnode, false, self.primary().clone())), None);
            let object = LiveObject::new(Arc::clone(self), Arc::clone(&core));
            let changed = async {
                if place.is_none() {
                    edit::initialize(&object, &tx, zap).await?;
                }
                for ((_, name), delta) in changes {
                    if *delta != 0 {
                        edit::add(&object, &tx, &Key::Name(name.clone().into_bytes()), *delta).await?;
                    }
                }
                Ok(())
            };
            let changed = changed.await;
            self.forget_dirty(txg, id);
            changed?;
            let Some(work) = Work::of(&core, txg) else { continue };
            let sync = TreeSync::new(batcher, policy, self.id(), &work.tree, work.dnode, 1);
            let (dnode, account) = batcher.drive_one(sync.write(work.changes)).await?;
            *place = Some(Dnode { order: ByteOrder::Little, ..dnode });
            total.add(account);
        }
        Ok(total)
    }

    /// Removes an object from the dirty ones, because it is written separately.
    fn forget_dirty(&self, txg: Txg, id: ObjectId) {
        let mut state = self.lock();
        if let Some(dirty) = state.dirty.get_mut(&txg) {
            dirty.objects.remove(&id.0);
            if dirty.objects.is_empty() && dirty.zil_header.is_none() && !dirty.completes_counts {
                state.dirty.remove(&txg);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dmu::NewObject;

    #[test]
    fn ids_are_found_in_attributes_and_in_old_files_only() {
        let dnode = |bonus_type, bonus: Vec<u8>| {
            let new = NewObject {
                dmu_type: DmuType::PLAIN_FILE_CONTENTS,
                block_size: 512,
                bonus_type,
                bonus,
                slots: 1,
            };
            dnodes::new_dnode(&new).unwrap()
        };
        let mut words = vec![0u64; 18];
        words[0] = u64::from(SA_MAGIC) | (1 << 10 | 2) << 32;
        (words[1 + 3], words[1 + 4], words[1 + 6], words[1 + 16]) = (501, 20, HAS_PROJECT, 7);
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(ids(&dnode(DmuType::SA, bytes(&words))), Some([501, 20, 7]));
        words[1 + 6] = 0;
        assert_eq!(ids(&dnode(DmuType::SA, bytes(&words))), Some([501, 20, 0]));
        assert_eq!(ids(&dnode(DmuType::SA, bytes(&words[..5]))), None);
        assert_eq!(ids(&dnode(DmuType::UINT64_OTHER, bytes(&words))), None);
        assert_eq!(ids(&dnode(DmuType::ZNODE, bytes(&words))), Some([0, 7, 0]));
    }
}
