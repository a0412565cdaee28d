//! An open object set: a dataset's objects, or the pool's own.
//!
//! The content of the meta-dnode is the array of all dnodes, in slots of 512 bytes. An object's number is the
//! number of its first slot; a large dnode occupies several slots. Object 0 is the meta-dnode itself.

use std::fmt;
use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};
use ondisk::objset::{Objset as ObjsetPhys, ObjsetType};
use ondisk::{ObjectId, ObjsetId};

use super::live::LiveObjset;
use super::object::Object;
use super::sibling_prefetch::SiblingPrefetch;
use super::tree::{Found, OrderedBlock, Tree};
use crate::cache::{PrimaryCache, Retain};
use crate::{Bookmark, Error, Pool, Result};

/// Object numbers have 48 bits (`DN_MAX_OBJECT`).
pub(super) const MAX_OBJECT: u64 = (1 << 48) - 1;
/// The offset in a dnode of the number of slots beyond its first.
const EXTRA_SLOTS_OFFSET: usize = 12;

/// The numbers that accounting objects have in bookmarks.
const USER_USED: u64 = u64::MAX;
const GROUP_USED: u64 = u64::MAX - 1;
const PROJECT_USED: u64 = u64::MAX - 2;

/// An open object set.
pub struct Objset {
    pool: Arc<Pool>,
    id: ObjsetId,
    root: Blkptr,
    phys: ObjsetPhys,
    meta: Tree,
    keyless: bool,
    /// Which of its blocks the ARC caches.
    primary: PrimaryCache,
    /// Prefetches small files when neighbours are read.
    sibling_prefetch: SiblingPrefetch,
    /// The live object set from which objects are opened, if this is its view.
    live: Option<Arc<LiveObjset>>,
}

impl Objset {
    /// Opens the object set whose block is at `root`. `id` is the object number of its dataset in the MOS,
    /// for messages, the error log and the choice of the key; 0 for the MOS.
    pub async fn open(pool: &Arc<Pool>, id: ObjsetId, root: &Blkptr) -> Result<Arc<Self>> {
        Self::open_as(pool, id, root, false).await
    }

    /// Like [`Objset::open`], for callers that look at the readable parts of an encrypted dataset without its
    /// key: its objects, and the contents of those in plaintext. Nothing is authenticated, and the bonus
    /// areas of encrypted types are ciphertext.
    pub async fn open_without_key(pool: &Arc<Pool>, id: ObjsetId, root: &Blkptr) -> Result<Arc<Self>> {
        Self::open_as(pool, id, root, true).await
    }

    async fn open_as(pool: &Arc<Pool>, id: ObjsetId, root: &Blkptr, keyless: bool) -> Result<Arc<Self>> {
        let at = Bookmark::objset_root(id.0);
        if root.is_hole() {
            return Err(Error::corrupt(at.to_string(), "the object set was never written"));
        }
        let block = pool.read_block(root, &at).await?;
        let phys = ObjsetPhys::parse(&block, root.byte_order())
            .map_err(|error| Error::corrupt(at.to_string(), error))?
            .into_little();
        let primary = PrimaryCache::default();
        let meta = Tree::new(id, ObjectId::META_DNODE, phys.meta_dnode.clone(), keyless, primary.clone());
        Ok(Arc::new(Self {
            pool: Arc::clone(pool),
            id,
            root: *root,
            phys,
            meta,
            keyless,
            primary,
            sibling_prefetch: SiblingPrefetch::default(),
            live: None,
        }))
    }

    /// The object set with the block at `root`, whose contents are `phys`; to be read without its key or not.
    pub(super) fn of(
        pool: &Arc<Pool>,
        id: ObjsetId,
        (root, keyless): (Blkptr, bool),
        phys: ObjsetPhys,
        primary: PrimaryCache,
    ) -> Arc<Self> {
        let meta = Tree::new(id, ObjectId::META_DNODE, phys.meta_dnode.clone(), keyless, primary.clone());
        let sibling_prefetch = SiblingPrefetch::default();
        let pool = Arc::clone(pool);
        Arc::new(Self { pool, id, root, phys, meta, keyless, primary, sibling_prefetch, live: None })
    }

    /// A view of a live object set: its objects are those of `live`, its own structure is this one's.
    pub(super) fn live(&self, live: &Arc<LiveObjset>) -> Arc<Self> {
        let meta_dnode = self.phys.meta_dnode.clone();
        let meta = Tree::new(self.id, ObjectId::META_DNODE, meta_dnode, self.keyless, self.primary.clone());
        Arc::new(Self {
            pool: Arc::clone(&self.pool),
            id: self.id,
            root: self.root,
            phys: self.phys.clone(),
            meta,
            keyless: self.keyless,
            primary: self.primary.clone(),
            sibling_prefetch: SiblingPrefetch::default(),
            live: Some(Arc::clone(live)),
        })
    }

    pub(super) fn meta(&self) -> &Tree {
        &self.meta
    }

    pub(crate) fn is_keyless(&self) -> bool {
        self.keyless
    }

    /// Which of its blocks the ARC caches; all, until a caller that knows its properties sets it.
    pub fn primary(&self) -> &PrimaryCache {
        &self.primary
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Object number of the dataset in the MOS; 0 is the MOS.
    pub fn id(&self) -> ObjsetId {
        self.id
    }

    /// The type of the object set.
    pub fn objset_type(&self) -> ObjsetType {
        self.phys.objset_type
    }

    /// The structure on disk.
    pub fn phys(&self) -> &ObjsetPhys {
        &self.phys
    }

    /// The pointer to the object set's block.
    pub fn root(&self) -> &Blkptr {
        &self.root
    }

    /// Opens an object.
    pub async fn object(self: &Arc<Self>, id: ObjectId) -> Result<Object> {
        if let Some(live) = &self.live {
            return Ok(Object::live(Arc::clone(self), Box::pin(live.object(id)).await?));
        }
        let dnode = self.dnode(id).await?;
        Ok(Object::new(Arc::clone(self), id, dnode))
    }

    /// The object that counts space per user, with one ZAP entry for each user.
    pub fn user_used(self: &Arc<Self>) -> Option<Object> {
        self.accounting(&self.phys.user_used_dnode, u64::MAX)
    }

    /// The object that counts space per group.
    pub fn group_used(self: &Arc<Self>) -> Option<Object> {
        self.accounting(&self.phys.group_used_dnode, u64::MAX - 1)
    }

    /// The object that counts space per project.
    pub fn project_used(self: &Arc<Self>) -> Option<Object> {
        self.accounting(&self.phys.project_used_dnode, u64::MAX - 2)
    }

    /// Accounting objects have the numbers -1, -2 and -3 in bookmarks.
    fn accounting(self: &Arc<Self>, dnode: &Option<Dnode>, id: u64) -> Option<Object> {
        dnode.as_ref().map(|dnode| Object::new(Arc::clone(self), ObjectId(id), dnode.clone()))
    }

    /// The pointer to the block at a bookmark of this object set, if it has such a block. The structure is
    /// followed without looking at contents.
    pub(crate) async fn pointer_of(self: &Arc<Self>, at: &Bookmark) -> Result<Option<Blkptr>> {
        if at.level == Bookmark::LEVEL_ROOT {
            return Ok(Some(self.root));
        }
        let object = match at.object {
            0 => Some(self.meta_dnode()),
            USER_USED => self.user_used(),
            GROUP_USED => self.group_used(),
            PROJECT_USED => self.project_used(),
            id => Some(self.object(ObjectId(id)).await?),
        };
        let (Some(object), Ok(level)) = (object, u8::try_from(at.level)) else { return Ok(None) };
        if at.blkid == Bookmark::BLKID_SPILL && level == 0 {
            return Ok(object.dnode().spill);
        }
        object.blkptr_at(level, at.blkid).await
    }

    /// The meta-dnode as an object.
    pub fn meta_dnode(self: &Arc<Self>) -> Object {
        Object::new(Arc::clone(self), ObjectId::META_DNODE, self.phys.meta_dnode.clone())
    }

    /// The dnode of object `id`.
    pub async fn dnode(&self, id: ObjectId) -> Result<Dnode> {
        if let Some(live) = &self.live {
            return Ok(Box::pin(live.object(id)).await?.dnode());
        }
        if id == ObjectId::META_DNODE || id.0 > MAX_OBJECT {
            return Err(self.no_object(id));
        }
        let (block_id, slot) = self.place(id.0);
        let Some(found) = self.meta.block(&self.pool, block_id, Retain::AsItWas).await? else {
            return Err(self.no_object(id));
        };
        if !is_first_slot(&found.block, slot) {
            return Err(self.no_object(id));
        }
        let bytes = found.block.get(slot * DNODE_MIN_SIZE..).unwrap_or_default();
        match Dnode::parse(bytes, found.order) {
            Ok(Some(dnode)) => Ok(dnode),
            Ok(None) => Err(self.no_object(id)),
            Err(error) => Err(Error::corrupt(format!("objset {}, dnode of object {id}", self.id), error)),
        }
    }

    /// The first object whose number is at least `from`. Skips holes, so that the cost depends on the number
    /// of objects.
    pub async fn next_object(&self, from: ObjectId) -> Result<Option<ObjectId>> {
        if let Some(live) = &self.live {
            return Box::pin(live.next_object(from)).await;
        }
        let (mut block_id, mut slot) = self.place(from.0.max(1));
        let last = self.meta.dnode().max_block_id.0.min(self.place(MAX_OBJECT).0);
        while block_id <= last {
            match self.meta.find(&self.pool, 0, block_id).await? {
                Found::Hole { end: None } => return Ok(None),
                Found::Hole { end: Some(end) } => (block_id, slot) = (end.max(block_id + 1), 0),
                Found::Data(pointer) => {
                    let block =
                        self.meta.read(&self.pool, &pointer, &self.meta.bookmark(0, block_id)).await?;
                    if let Some(found) = first_slots(&block).find(|first| *first >= slot) {
                        return Ok(Some(ObjectId(block_id * self.slots_per_dnode_block() + found as u64)));
                    }
                    (block_id, slot) = (block_id + 1, 0);
                }
            }
        }
        Ok(None)
    }

    /// Slots of dnodes in a block of the meta-dnode.
    pub(super) fn slots_per_dnode_block(&self) -> u64 {
        (self.meta.dnode().data_block_size() / DNODE_MIN_SIZE as u64).max(1)
    }

    pub(super) fn sibling_prefetch(&self) -> &SiblingPrefetch {
        &self.sibling_prefetch
    }

    /// Block of the meta-dnode, and slot in it.
    fn place(&self, id: u64) -> (u64, usize) {
        let slots_per_block = self.slots_per_dnode_block();
        (id / slots_per_block, (id % slots_per_block) as usize)
    }

    fn no_object(&self, id: ObjectId) -> Error {
        Error::NotFound(format!("objset {}, object {id}", self.id))
    }

    /// The block of a dnode's spill pointer.
    pub(crate) async fn spill(&self, tree: &Tree) -> Result<Option<OrderedBlock>> {
        let Some(pointer) = tree.dnode().spill.filter(|pointer| !pointer.is_hole()) else {
            return Ok(None);
        };
        let at = Bookmark::spill(self.id.0, tree.object_id().0);
        let block = tree.read(&self.pool, &pointer, &at).await?;
        Ok(Some(OrderedBlock::of(block, &pointer)))
    }
}

impl fmt::Debug for Objset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objset({} {} of {})", self.objset_type(), self.id, self.pool.name())
    }
}

/// The slots of a dnode block in which dnodes start.
pub(super) fn first_slots(block: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut slot = 0;
    std::iter::from_fn(move || {
        loop {
            let dnode = block.get(slot * DNODE_MIN_SIZE..)?;
            let here = slot;
            if *dnode.first()? == 0 {
                slot += 1;
            } else {
                slot += 1 + usize::from(*dnode.get(EXTRA_SLOTS_OFFSET)?);
                return Some(here);
            }
        }
    })
}

/// False for a free slot and for the middle of a large dnode, whose bytes are another object's bonus area.
fn is_first_slot(block: &[u8], slot: usize) -> bool {
    first_slots(block).take_while(|first| *first <= slot).last() == Some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_large_dnode_is_no_object() {
        let mut block = vec![0u8; 8 * DNODE_MIN_SIZE];
        block[DNODE_MIN_SIZE] = 19;
        block[DNODE_MIN_SIZE + EXTRA_SLOTS_OFFSET] = 2;
        block[2 * DNODE_MIN_SIZE] = 1; // looks like a dnode, is bonus
        block[5 * DNODE_MIN_SIZE] = 19;
        assert_eq!(first_slots(&block).collect::<Vec<_>>(), [1, 5]);
        let firsts: Vec<_> = (0..9).filter(|slot| is_first_slot(&block, *slot)).collect();
        assert_eq!(firsts, [1, 5]);
    }
}
