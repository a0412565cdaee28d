//! Deduplicated writes: a block that is stored already gets a pointer to what is there.
//!
//! # The idea
//! When a batch is encoded, checksum, sizes and compression of each block are known, and these are the key of
//! its entry in a dedup table ([`DedupTable`]; the layer above keeps them). The entries of the batch are
//! brought into memory together. Then, while places are looked for, each block takes one of five ways:
//!
//! | the table says | what happens |
//! |---|---|
//! | no entry | the block gets a place, and an entry with that place and one reference |
//! | an entry with enough copies | the pointer gets the entry's places; the entry counts one reference more |
//! | an entry that another block of this batch has just made | the same |
//! | an entry with too few copies, or of a gang in a traditional table | an ordinary block, without entry |
//! | no entry, and no room for one more below the quota of tables | the same |
//!
//! A block that finds no free run becomes a gang, and an ordinary block: OpenZFS 2.3 misreads such entries of
//! traditional tables when their blocks are freed.
//!
//! # Comparing
//! With `verify`, what the entry leads to is read and compared before it is referred to; a block that
//! differs, or that cannot be compared, becomes an ordinary block. The blocks of a batch are read side by
//! side, in the order of their addresses. A block that another batch is writing at this moment cannot be read
//! yet: its entry has its bytes until they are written.
//!
//! # Encrypted blocks
//! The key of an entry tells an encrypted block, and has its MAC in one half of the checksum. Salt and IV
//! follow from the bytes ([`super::seal`]), so blocks of one dataset key that are equal before encryption
//! find the same entry, and those of two keys never do. The entry has the salt and a part of the IV; a block
//! that has others, although everything else is equal, becomes an ordinary block. Comparing reads with the
//! key of the dataset that writes.
//!
//! # Blocks that were written early
//! A block that was written before its group, for the intent log, is an ordinary one until its group is
//! written. Then its pointer makes the entry, or, where equal bytes are stored already, is replaced by one to
//! these; the early copy is free then ([`Writer::enter_early`]). Where that is encrypted, it got its salt and
//! IV from its bytes at once.
//!
//! # Invariants
//! - Entries are changed when all blocks of a batch have their places, in one step without waiting. A batch
//!   that fails after that ends the group: nothing of it is ever committed.
//! - Only the sync of groups writes deduplicated blocks, on one thread. So what the table says cannot change
//!   between looking at it and changing it, except while a batch waits; then it looks again.
//! - A deduplicated block is never overwritten in place.
//!
//! Source of the facts: OpenZFS 2.4 `zio.c` (`zio_ddt_write`, `zio_ddt_collision`).

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use ondisk::blkptr::{Blkptr, ChecksumType, CryptParts, Dva};
use ondisk::ddt::DdtKey;
use ondisk::{ByteOrder, Lsize, Txg};

use super::encode::{Encoded, Stored, level_of};
use super::{BlkptrParts, WriteRequest, Writer};
use crate::error::{Error, Result};
use crate::{Block, Bookmark};

/// Blocks that are read side by side to be compared.
const READS_AT_ONCE: usize = 32;

/// How a block is deduplicated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dedup {
    /// Blocks of equal checksums are equal.
    ByChecksum,
    /// Blocks are compared before they are taken for equal (`verify`).
    Verified,
}

/// The entry of a block: the checksum function of its table, and the key in it.
pub(crate) type EntryId = (ChecksumType, DdtKey);

/// Where the block of an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedBlock {
    /// The addresses of its copies.
    pub dvas: Vec<Dva>,
    /// Of an encrypted block, what its pointer has in the place of the third address.
    pub salt_and_iv: Option<[u64; 2]>,
    /// When it was written.
    pub physical_birth: Txg,
}

impl SharedBlock {
    /// The block that a pointer leads to.
    pub fn of(bp: &Blkptr) -> Self {
        let (dvas, salt_and_iv) = (bp.dvas().collect(), bp.salt_and_iv_words());
        Self { dvas, salt_and_iv, physical_birth: bp.physical_birth() }
    }
}

/// What a dedup table says of a block that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It has no such block yet.
    New,
    /// It has one with enough copies.
    Shared(SharedBlock),
    /// It has one that cannot be used.
    Unfit,
}

/// What a batch changes in an entry.
#[derive(Debug)]
pub(crate) enum Change {
    /// A block is stored there now, with one reference. While it is being written, its bytes may be needed.
    Stored(SharedBlock, Option<Block>),
    /// The block has one reference more.
    Referred,
}

/// The dedup tables, as the writer of blocks sees them.
pub(crate) trait DedupTable: Send + Sync + Debug {
    /// Brings entries into memory, where they stay until the group is written.
    fn load(&self, entries: Vec<EntryId>) -> BoxFuture<'_, Result<()>>;

    /// What the entry says of a block that shall have so many copies, to a caller that is about to make
    /// `made` entries besides. It must have been loaded.
    fn entry(&self, entry: &EntryId, copies: u8, made: usize) -> Entry;

    /// The bytes of the entry's block, if it is being written.
    fn being_written(&self, entry: &EntryId, copies: u8) -> Option<Block>;

    /// Changes entries, for blocks that have so many copies. They must have been loaded.
    ///
    /// # Errors
    /// The changes contradict the entries. Some may be made: the group must not be committed.
    fn change(&self, changes: Vec<(EntryId, u8, Change)>) -> Result<()>;

    /// The blocks of these entries are written.
    fn written(&self, entries: &[EntryId]);
}

/// The blocks of a batch that are deduplicated, and what was compared.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// The entries, by number in the batch.
    entries: HashMap<usize, EntryId>,
    /// Blocks that were compared with what is there, and are equal.
    equal: HashMap<usize, SharedBlock>,
}

/// What places of a batch mean for the tables.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    pub changes: Vec<(EntryId, u8, Change)>,
    /// Entries that this batch makes, by copies.
    made: HashMap<(EntryId, u8), SharedBlock>,
}

/// How a block of a batch is to be placed.
pub(super) enum Way {
    /// Without a table.
    Plain,
    /// Its pointer is known.
    Known(Blkptr),
    /// As the block of a new entry.
    Enter(EntryId),
    /// It must be compared first.
    Compare,
}

fn copies_of(request: &WriteRequest) -> u8 {
    request.copies.clamp(1, 3)
}

/// The key of a block in the tables: that of any pointer to it. Of an encrypted one the checksum has its MAC.
fn key_of(request: &WriteRequest, block: &Stored) -> DdtKey {
    let lsize = Lsize(request.data.len() as u64);
    let plain = DdtKey::of_parts(block.digest, lsize, block.psize, block.compress);
    if block.crypt.is_some() { plain.encrypted() } else { plain }
}

/// The pointer of `request` to a block that is stored. None if that was encrypted with another salt or IV.
fn pointer(request: &WriteRequest, block: &Stored, shared: &SharedBlock, txg: Txg) -> Result<Option<Blkptr>> {
    let parts = BlkptrParts {
        dvas: shared.dvas.clone(),
        lsize: Lsize(request.data.len() as u64),
        psize: block.psize,
        compress: block.compress,
        checksum_type: request.checksum,
        checksum: block.digest,
        dmu_type: request.dmu_type,
        level: level_of(request),
        dedup: true,
        byte_order: ByteOrder::Little,
        logical_birth: txg,
        physical_birth: shared.physical_birth,
        fill: request.fill,
        crypt: block.crypt,
    };
    let pointer = parts.build().map_err(Error::format(request.at.to_string()))?;
    Ok((pointer.salt_and_iv_words() == shared.salt_and_iv).then_some(pointer))
}

impl Candidates {
    /// Whether no block of the batch is deduplicated.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How the block numbered `owner` is placed, after those before it.
    pub fn way(
        &self,
        table: &dyn DedupTable,
        sharing: &mut Sharing,
        (owner, request, block): (usize, &WriteRequest, &Stored),
        txg: Txg,
    ) -> Result<Way> {
        let Some(entry) = self.entries.get(&owner) else { return Ok(Way::Plain) };
        let copies = copies_of(request);
        if let Some(made) = sharing.made.get(&(*entry, copies)) {
            let Some(known) = pointer(request, block, made, txg)? else { return Ok(Way::Plain) };
            sharing.changes.push((*entry, copies, Change::Referred));
            return Ok(Way::Known(known));
        }
        match table.entry(entry, copies, sharing.made.len()) {
            Entry::Unfit => Ok(Way::Plain),
            Entry::New => Ok(Way::Enter(*entry)),
            Entry::Shared(shared) => {
                if request.dedup == Some(Dedup::Verified) && self.equal.get(&owner) != Some(&shared) {
                    return Ok(Way::Compare);
                }
                let Some(known) = pointer(request, block, &shared, txg)? else { return Ok(Way::Plain) };
                sharing.changes.push((*entry, copies, Change::Referred));
                Ok(Way::Known(known))
            }
        }
    }
}

impl Sharing {
    /// A block has this pointer, and its entry is new.
    pub fn enter(&mut self, entry: EntryId, request: &WriteRequest, pointer: &Blkptr) {
        let shared = SharedBlock::of(pointer);
        let bytes = (request.dedup == Some(Dedup::Verified)).then(|| request.data.clone());
        let copies = copies_of(request);
        self.changes.push((entry, copies, Change::Stored(shared.clone(), bytes)));
        self.made.insert((entry, copies), shared);
    }

    /// The entries that are new.
    pub fn made(&self) -> Vec<EntryId> {
        self.made.keys().map(|(entry, _)| *entry).collect()
    }
}

impl Writer {
    /// The blocks of a batch that are deduplicated. Their entries are in memory then.
    pub(super) async fn candidates(&self, batch: &[WriteRequest], encoded: &[Encoded]) -> Result<Candidates> {
        let mut candidates = Candidates::default();
        let Some(table) = &self.dedup else { return Ok(candidates) };
        for (owner, (request, encoded)) in batch.iter().zip(encoded).enumerate() {
            if let (Some(_), Encoded::Stored(block)) = (request.dedup, encoded) {
                candidates.entries.insert(owner, (request.checksum, key_of(request, block)));
            }
        }
        if !candidates.is_empty() {
            let entries: HashSet<EntryId> = candidates.entries.values().copied().collect();
            table.load(entries.into_iter().collect()).await?;
            self.compare(batch, encoded, &mut candidates).await;
        }
        Ok(candidates)
    }

    /// How an encoded block is placed, if it is not kept as it is.
    pub(super) fn way(
        &self,
        candidates: &Candidates,
        sharing: &mut Sharing,
        (owner, request, block): (usize, &WriteRequest, &Stored),
        txg: Txg,
    ) -> Result<Way> {
        match (self.unchanged(request, block), &self.dedup) {
            (Some(kept), _) => Ok(Way::Known(kept)),
            (None, Some(table)) if !candidates.is_empty() => {
                candidates.way(&**table, sharing, (owner, request, block), txg)
            }
            (None, _) => Ok(Way::Plain),
        }
    }

    /// Notes in the dedup tables what a placed batch stores and refers to. Gives the entries that are new.
    pub(super) fn enter(&self, sharing: &mut Sharing) -> Result<Vec<EntryId>> {
        if let Some(table) = self.dedup.as_ref().filter(|_| !sharing.changes.is_empty()) {
            table.change(std::mem::take(&mut sharing.changes))?;
        }
        Ok(sharing.made())
    }

    /// Compares blocks that want it with what is there, and with equal ones before them in the batch. Those
    /// that differ are candidates no longer.
    pub(super) async fn compare(
        &self,
        batch: &[WriteRequest],
        encoded: &[Encoded],
        candidates: &mut Candidates,
    ) {
        let Some(table) = &self.dedup else { return };
        let mut first: HashMap<(EntryId, u8), &Block> = HashMap::new();
        let mut stored = Vec::new();
        for (owner, (request, encoded)) in batch.iter().zip(encoded).enumerate() {
            let (Some(Dedup::Verified), Encoded::Stored(_)) = (request.dedup, encoded) else { continue };
            let Some(entry) = candidates.entries.get(&owner).copied() else { continue };
            let copies = copies_of(request);
            let is_equal = match table.entry(&entry, copies, 0) {
                Entry::Unfit => true,
                Entry::New => {
                    let lead: &Block = first.entry((entry, copies)).or_insert(&request.data);
                    **lead == *request.data
                }
                Entry::Shared(shared) if candidates.equal.get(&owner) == Some(&shared) => true,
                Entry::Shared(shared) => match table.being_written(&entry, copies) {
                    Some(bytes) => {
                        candidates.equal.insert(owner, shared);
                        *bytes == *request.data
                    }
                    None => {
                        stored.push((owner, shared));
                        true
                    }
                },
            };
            if !is_equal {
                candidates.entries.remove(&owner);
            }
        }
        self.compare_stored(batch, encoded, candidates, stored).await;
    }

    /// Reads what entries lead to, many blocks at a time in the order of their addresses, and compares it.
    async fn compare_stored(
        &self,
        batch: &[WriteRequest],
        encoded: &[Encoded],
        candidates: &mut Candidates,
        mut stored: Vec<(usize, SharedBlock)>,
    ) {
        stored.sort_unstable_by_key(|(_, shared)| shared.dvas.first().map(|dva| (dva.vdev, dva.offset)));
        let compared = stream::iter(stored).map(|(owner, shared)| async move {
            let is_equal = match (batch.get(owner), encoded.get(owner)) {
                (Some(request), Some(Encoded::Stored(block))) => {
                    self.is_stored_there(request, block, &shared).await
                }
                _ => false,
            };
            (owner, shared, is_equal)
        });
        let compared: Vec<_> = compared.buffer_unordered(READS_AT_ONCE).collect().await;
        for (owner, shared, is_equal) in compared {
            candidates.equal.insert(owner, shared);
            if !is_equal {
                candidates.entries.remove(&owner);
            }
        }
    }

    /// Whether the bytes of a request are those of a stored block.
    async fn is_stored_there(&self, request: &WriteRequest, block: &Stored, shared: &SharedBlock) -> bool {
        match pointer(request, block, shared, shared.physical_birth) {
            Ok(Some(there)) => self.is_stored(&request.data, &there, &request.at).await,
            Ok(None) | Err(_) => false,
        }
    }

    /// Whether these bytes are those of a stored block.
    async fn is_stored(&self, data: &Block, there: &Blkptr, at: &Bookmark) -> bool {
        match self.store.read_block(there, at).await {
            Ok(bytes) => *bytes == **data,
            Err(error) => {
                tracing::warn!(%at, %error, "a block cannot be compared: it is stored once more");
                false
            }
        }
    }

    /// Brings a block that was written early, with these bytes, into the tables. Gives the pointer to it from
    /// now on. Where that leads elsewhere, the caller frees the early copy.
    pub(crate) async fn enter_early(
        &self,
        early: &Blkptr,
        data: &Block,
        (dedup, at): (Dedup, &Bookmark),
    ) -> Result<Blkptr> {
        let Some(table) = self.dedup.as_ref().filter(|_| !early.is_gang()) else { return Ok(*early) };
        let entry = (early.checksum_type(), DdtKey::of(early));
        let copies = u8::try_from(early.copies()).unwrap_or(u8::MAX);
        table.load(vec![entry]).await?;
        loop {
            let shared = match table.entry(&entry, copies, 0) {
                Entry::Unfit => return Ok(*early),
                Entry::New => {
                    let here = SharedBlock::of(early);
                    let entered = leading_to(early, &here)?;
                    table.change(vec![(entry, copies, Change::Stored(here, None))])?;
                    return Ok(entered);
                }
                // It was encrypted with another salt or IV.
                Entry::Shared(shared) if shared.salt_and_iv != early.salt_and_iv_words() => {
                    return Ok(*early);
                }
                Entry::Shared(shared) => shared,
            };
            let there = leading_to(early, &shared)?;
            if dedup == Dedup::Verified {
                let is_equal = match table.being_written(&entry, copies) {
                    Some(bytes) => *bytes == **data,
                    None => self.is_stored(data, &there, at).await,
                };
                if !is_equal {
                    return Ok(*early);
                }
            }
            // It may have changed while the block was read.
            if table.entry(&entry, copies, 0) == Entry::Shared(shared) {
                table.change(vec![(entry, copies, Change::Referred)])?;
                return Ok(there);
            }
        }
    }
}

/// The pointer `early`, to the block of an entry.
fn leading_to(early: &Blkptr, shared: &SharedBlock) -> Result<Blkptr> {
    let crypt =
        early.uses_crypt().then(|| CryptParts { salt: early.salt(), iv: early.iv(), mac: early.mac() });
    let parts = BlkptrParts {
        dvas: shared.dvas.clone(),
        lsize: early.lsize(),
        psize: early.psize(),
        compress: early.compress(),
        checksum_type: early.checksum_type(),
        checksum: early.checksum(),
        dmu_type: early.dmu_type(),
        level: early.level(),
        dedup: true,
        byte_order: early.byte_order(),
        logical_birth: early.logical_birth(),
        physical_birth: shared.physical_birth,
        fill: early.fill(),
        crypt,
    };
    parts.build().map_err(Error::format("a block that was written early"))
}
