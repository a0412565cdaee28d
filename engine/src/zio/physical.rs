//! From a block pointer to bytes that match the checksum.
//!
//! The copies (DVAs) are tried in order, those on usable vdevs first. Each read passes the checksum to the
//! vdev as the verdict, so that the vdev's own redundancy is used up before the next copy is tried.
//!
//! # Gangs
//! When no free run was long enough for a block, its DVA leads to a *gang header*: 512 bytes with three block
//! pointers and a checksum that covers the header's own address. With the feature `dynamic_gang_header`, a
//! header is as large as the smallest allocation of its vdevs and has as many pointers as fit. Older headers
//! stay as they are, and the checksum shows which kind a header is. The blocks behind the pointers (which may
//! be gangs again) make up the block when they are joined; the block's checksum covers the whole. A header's
//! checksum does not cover the members, so headers may lead back to themselves. Two bounds prevent endless
//! reads: the members together must be as large as their parent, and the headers that one read follows are
//! counted, copies and retries included.
//!
//! Source of the facts: OpenZFS 2.4 `zio.c` (the comment on gang blocks), `zio_checksum.c`, `vdev_mirror.c`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use codec::checksum::{self, verify_gang, verify_zilog};
use device::IoBuf;
use futures_util::future::BoxFuture;
use ondisk::Reader;
use ondisk::blkptr::{Blkptr, ChecksumType, Dva, GANG_HEADER_SIZE, MAX_BLOCK_SIZE, gang_pointers};
use ondisk::dmu::DmuType;

use crate::Bookmark;
use crate::error::{Attempt, Error, Failure, Result};
use crate::inject::{BlockError, Flip};
use crate::store::Store;
use crate::vdev::Vdev;
use crate::vdev::read::{Noticed, ReadResult, Request};

/// How deep gangs may nest. Each level divides the block, down to one sector.
const MAX_GANG_DEPTH: u32 = 16;

/// The most gang headers that are read for one block, however large it is.
const MAX_GANG_HEADERS: u64 = 1 << 14;

/// The contents of a gang header.
#[derive(Debug)]
pub(crate) struct GangTree {
    /// Its pointers that are not holes, in order, with the subtrees of those that are gangs themselves.
    pub members: Vec<(Blkptr, Option<GangTree>)>,
}

/// How a block is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct How<'n> {
    /// Collects the leaves that failed.
    pub noticed: Option<&'n Noticed>,
    /// The block may not exist: failures are not counted.
    pub speculative: bool,
    /// The block that is read, for messages.
    pub at: Option<Bookmark>,
    /// The number of gang headers on the way to the block.
    pub gang_depth: u32,
    /// The number of gang headers that may still be read for the block; absent for a block that is no gang.
    pub gang_headers_left: Option<Arc<AtomicU32>>,
}

impl How<'_> {
    pub(super) fn deeper(&self) -> Self {
        Self { gang_depth: self.gang_depth + 1, ..self.clone() }
    }

    /// Counts the headers from here on, unless a caller further up counts them already.
    pub(super) fn counting(self, bp: &Blkptr) -> Self {
        // A header leads to at least two parts of at least a sector each. Parts may be tried again through
        // other copies of the header.
        let most = || ((bp.psize().get() >> 9) * 4 + 64).min(MAX_GANG_HEADERS);
        let left = self.gang_headers_left.unwrap_or_else(|| Arc::new(AtomicU32::new(most() as u32)));
        Self { gang_headers_left: Some(left), ..self }
    }

    fn may_read_gang_header(&self) -> bool {
        let spend = |left: &AtomicU32| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        self.gang_depth < MAX_GANG_DEPTH && self.gang_headers_left.as_deref().is_none_or(spend)
    }
}

impl Store {
    /// The bytes that `bp` points to as they lie on disk: the checksum is verified, the bytes are still
    /// encrypted and compressed.
    ///
    /// A hole has no bytes on disk, and an embedded block has its bytes in the pointer; both return an empty
    /// buffer. Failures to read blocks of intent logs are not counted, because a log ends where a block
    /// cannot be read.
    pub async fn read_raw(&self, bp: &Blkptr, at: &Bookmark) -> Result<IoBuf> {
        // An intent log may end here.
        if at.level == Bookmark::LEVEL_ZIL {
            return self.try_raw(bp, at).await;
        }
        let mut failed = false;
        loop {
            match self.try_raw(bp, at).await {
                Err(error) => self.until_readable(error).await?,
                Ok(bytes) => {
                    if failed {
                        self.damage.mended(at, bp.physical_birth());
                    }
                    return Ok(bytes);
                }
            }
            failed = true;
        }
    }

    /// Like [`Store::read_raw`]; never waits for devices that fail.
    pub(super) async fn try_raw(&self, bp: &Blkptr, at: &Bookmark) -> Result<IoBuf> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(IoBuf::zeroed(0));
        }
        let noticed = Noticed::default();
        let speculative = at.level == Bookmark::LEVEL_ZIL;
        let how = How { speculative, noticed: Some(&noticed), at: Some(*at), ..How::default() };
        let read = self.read_copies(bp, &how).await;
        let read = read.map_err(|tried| {
            if !how.speculative {
                self.damage.note(at, bp.physical_birth());
            }
            let damaged =
                |attempt: &Attempt| matches!(attempt.failure, Failure::Checksum | Failure::Malformed(_));
            let is_damaged = tried.iter().any(damaged);
            if !how.speculative {
                self.vdevs.report_data(at, is_damaged);
            }
            match is_damaged {
                true => {
                    if !how.speculative {
                        self.root_errors.count_checksum(true);
                    }
                    Error::Checksum { at: *at, tried }
                }
                false => {
                    if !how.speculative {
                        self.root_errors.count_read(true);
                    }
                    Error::Io { at: *at, tried }
                }
            }
        })?;
        let mut read = read;
        if self.vdevs.injections().has_blocks() {
            self.vdevs.injections().flip(at, Flip::AfterCheck, &mut read);
        }
        let failed = noticed.into_leaves();
        if !failed.is_empty() {
            self.repairs.ask(bp, at, failed);
        }
        Ok(read)
    }

    /// Reads one copy after the other, until one is right.
    pub(crate) fn read_copies<'a>(&'a self, bp: &'a Blkptr, how: &'a How<'a>) -> BoxFuture<'a, ReadResult> {
        Box::pin(async move {
            let mut dvas: Vec<Dva> = bp.dvas().collect();
            dvas.sort_by_key(|dva| {
                self.vdevs.top(dva.vdev.get()).is_none_or(|top| !top.status().is_readable())
            });
            let mut tried = Vec::new();
            for dva in dvas {
                if self.vdevs.injections().has_blocks()
                    && let Some(spoilt) = self.read_injected(bp, &dva, how).await
                {
                    tried.extend(spoilt);
                    continue;
                }
                match self.read_copy(bp, &dva, how).await {
                    Ok(bytes) => return Ok(bytes),
                    Err(more) => tried.extend(more),
                }
            }
            Err(tried)
        })
    }

    /// Reads a copy of which a handler wants an error ([`crate::inject`]); `None` where none does.
    async fn read_injected(&self, bp: &Blkptr, dva: &Dva, how: &How<'_>) -> Option<Vec<Attempt>> {
        let at = how.at?;
        let copy = bp.dvas().position(|other| other == *dva).unwrap_or(0);
        let error = self.vdevs.injections().of_copy(&at, copy)?;
        let (vdev, offset_bytes) = (format!("vdev {}", dva.vdev), dva.offset.get());
        let failure = match error {
            BlockError::Io => {
                // Each device is asked, and fails.
                if let (Ok(top), false) = (self.top_for(dva), dva.gang) {
                    let (size, txg) = (bp.psize().get() as usize, bp.physical_birth().get());
                    let request = Request::new(&self.vdevs, dva.offset.get(), size, txg, None);
                    return Some(top.fail(request.speculative(how.speculative).of_block(how.at)));
                }
                Failure::Io("an injected error".into())
            }
            BlockError::Decompress => Failure::Malformed("an injected error".into()),
            BlockError::Checksum => {
                // Each device is asked, and counts wrong bytes.
                if let (Ok(top), false) = (self.top_for(dva), dva.gang) {
                    let verdict = |_: &[u8]| Err(Failure::Checksum);
                    let (size, txg) = (bp.psize().get() as usize, bp.physical_birth().get());
                    let request = Request::new(&self.vdevs, dva.offset.get(), size, txg, Some(&verdict));
                    let request = request.speculative(how.speculative).of_block(how.at);
                    return Some(top.read(request).await.err().unwrap_or_default());
                }
                Failure::Checksum
            }
        };
        Some(vec![Attempt { vdev, offset_bytes, failure }])
    }

    /// Reads one copy, with all the redundancy of its vdev.
    pub(crate) async fn read_copy(&self, bp: &Blkptr, dva: &Dva, how: &How<'_>) -> ReadResult {
        let top = self.top_for(dva)?;
        if dva.gang {
            return self.read_gang(bp, dva, top, how).await;
        }
        // Parsing bounds the size.
        let size = bp.psize().get() as usize;
        let injections = self.vdevs.injections();
        let verdict = |bytes: &[u8]| match how.at.filter(|_| injections.has_blocks()) {
            None => self.verify(bp, bytes),
            Some(at) => match injections.flipped(&at, Flip::BeforeCheck, bytes) {
                Some(flipped) => self.verify(bp, &flipped),
                None => self.verify(bp, bytes),
            },
        };
        let has_checksum = !matches!(bp.checksum_type(), ChecksumType::Off | ChecksumType::NoParity);
        let txg = bp.physical_birth().get();
        let request = Request::new(
            &self.vdevs,
            dva.offset.get(),
            size,
            txg,
            if has_checksum { Some(&verdict) } else { None },
        );
        top.read(request.speculative(how.speculative).noticing(how.noticed).of_block(how.at)).await
    }

    pub(crate) fn top_for(&self, dva: &Dva) -> Result<&Vdev, Vec<Attempt>> {
        let (id, offset_bytes) = (dva.vdev.get(), dva.offset.get());
        let refuse = |failure| vec![Attempt { vdev: format!("vdev {id}"), offset_bytes, failure }];
        let top = self.vdevs.top(id).ok_or_else(|| refuse(Failure::Unavailable))?;
        // The address of a gang includes the size of its members, which lie elsewhere.
        let here = if dva.gang { GANG_HEADER_SIZE as u64 } else { dva.asize.get() };
        let end = dva.offset.checked_add_bytes(here).map(|end| end.get());
        match end {
            Some(end) if top.asize() == 0 || end <= top.asize() => Ok(top),
            _ => Err(refuse(Failure::Malformed("the address lies beyond the end of the vdev".into()))),
        }
    }

    /// Whether `bytes` are the bytes that `bp` points to.
    pub(crate) fn verify(&self, bp: &Blkptr, bytes: &[u8]) -> Result<(), Failure> {
        let (ty, order, expected) = (bp.checksum_type(), bp.byte_order(), bp.checksum());
        let salt = self.salt.get();
        let result = match ty {
            ChecksumType::Zilog | ChecksumType::Zilog2 => {
                verify_zilog(ty, bytes, &expected, has_mac(bp)).map(|_| ())
            }
            _ if has_mac(bp) => checksum::verify_encrypted(ty, bytes, order, salt, &expected),
            _ => checksum::verify(ty, bytes, order, salt, &expected),
        };
        result.map_err(|error| match error {
            codec::Error::ChecksumMismatch { .. } => Failure::Checksum,
            other => Failure::Malformed(other.to_string()),
        })
    }

    /// The size in bytes of the gang headers of a block, unless they are old: all copies have room for it.
    fn gang_header_size(&self, bp: &Blkptr) -> usize {
        let tops = bp.dvas().filter_map(|dva| self.vdevs.top(dva.vdev.get()));
        let size = tops.map(Vdev::min_alloc).min().unwrap_or(0);
        size.clamp(GANG_HEADER_SIZE as u64, MAX_BLOCK_SIZE) as usize
    }

    /// The pointers of the gang header that a DVA leads to.
    async fn gang_header(
        &self,
        bp: &Blkptr,
        dva: &Dva,
        top: &Vdev,
        how: &How<'_>,
    ) -> Result<Vec<Blkptr>, Vec<Attempt>> {
        Ok(self.whole_gang_header(bp, dva, top, how).await?.0)
    }

    /// The pointers of the gang header that a DVA leads to, and the header as it lies on disk.
    pub(super) async fn whole_gang_header(
        &self,
        bp: &Blkptr,
        dva: &Dva,
        top: &Vdev,
        how: &How<'_>,
    ) -> Result<(Vec<Blkptr>, IoBuf), Vec<Attempt>> {
        let attempt =
            |failure| vec![Attempt { vdev: top.name.clone(), offset_bytes: dva.offset.get(), failure }];
        let malformed = |why: &str| attempt(Failure::Malformed(why.into()));
        if !how.may_read_gang_header() {
            return Err(malformed("gang headers lead to too many others"));
        }
        let (offset, birth) = (dva.offset.get(), bp.physical_birth().get());
        // All copies of a gang header are sealed for the address of the first one.
        let first = bp.dva(0).unwrap_or(*dva);
        let (first_vdev, first_offset) = (first.vdev.get().into(), first.offset.get());
        let verify_size = |bytes: &[u8]| {
            verify_gang(bytes, first_vdev, first_offset, birth, has_mac(bp)).map(|order| (bytes.len(), order))
        };
        // A header from before the feature `dynamic_gang_header` is at the beginning of its space.
        let verify = |bytes: &[u8]| match bytes.get(..GANG_HEADER_SIZE) {
            Some(old) if old.len() < bytes.len() => verify_size(bytes).or_else(|_| verify_size(old)),
            _ => verify_size(bytes),
        };
        let verdict = |bytes: &[u8]| match verify(bytes) {
            Ok(_) => Ok(()),
            Err(codec::Error::ChecksumMismatch { .. }) => Err(Failure::Checksum),
            Err(other) => Err(Failure::Malformed(other.to_string())),
        };
        let request = Request::new(&self.vdevs, offset, self.gang_header_size(bp), birth, Some(&verdict));
        let request = request.speculative(how.speculative).noticing(how.noticed);
        let header = top.read(request).await?;
        let (size, order) = verify(&header).map_err(|_| attempt(Failure::Checksum))?;
        let mut reader = Reader::new("gang header", &header, order);
        let mut members = Vec::new();
        for _ in 0..gang_pointers(size) {
            let member = Blkptr::read(&mut reader).map_err(|error| malformed(&error.to_string()))?;
            if !member.is_hole() {
                members.push(member);
            }
        }
        let size = bp.psize().get();
        let joined: u64 = members.iter().map(|member| member.psize().get()).sum();
        if joined != size {
            return Err(malformed("gang members are not the parts of the block"));
        }
        Ok((members, header))
    }

    /// The blocks that the gang headers of a block point to, at all depths. All copies of a header are the
    /// same.
    pub(crate) fn gang_members<'a>(
        &'a self,
        bp: &'a Blkptr,
        how: How<'a>,
        members: &'a mut Vec<Blkptr>,
    ) -> BoxFuture<'a, Result<(), Vec<Attempt>>> {
        Box::pin(async move {
            let how = if bp.is_gang() { how.counting(bp) } else { how };
            let mut tried = Vec::new();
            for dva in bp.dvas().filter(|dva| dva.gang) {
                let header = match self.top_for(&dva) {
                    Ok(top) => self.gang_header(bp, &dva, top, &how).await,
                    Err(tried) => Err(tried),
                };
                match header {
                    Ok(found) => {
                        for member in found {
                            members.push(member);
                            self.gang_members(&member, how.deeper(), members).await?;
                        }
                        return Ok(());
                    }
                    Err(more) => tried.extend(more),
                }
            }
            if tried.is_empty() { Ok(()) } else { Err(tried) }
        })
    }

    /// The tree of a gang block. All copies of a header are the same.
    pub(crate) fn gang_tree<'a>(
        &'a self,
        bp: &'a Blkptr,
        how: How<'a>,
    ) -> BoxFuture<'a, Result<GangTree, Vec<Attempt>>> {
        Box::pin(async move {
            let how = how.counting(bp);
            let mut tried = Vec::new();
            for dva in bp.dvas().filter(|dva| dva.gang) {
                let found = match self.top_for(&dva) {
                    Ok(top) => self.gang_header(bp, &dva, top, &how).await,
                    Err(tried) => Err(tried),
                };
                match found {
                    Ok(found) => {
                        let mut members = Vec::with_capacity(found.len());
                        for member in found {
                            let below = match member.is_gang() {
                                true => Some(self.gang_tree(&member, how.deeper()).await?),
                                false => None,
                            };
                            members.push((member, below));
                        }
                        return Ok(GangTree { members });
                    }
                    Err(more) => tried.extend(more),
                }
            }
            Err(tried)
        })
    }

    async fn read_gang(&self, bp: &Blkptr, dva: &Dva, top: &Vdev, how: &How<'_>) -> ReadResult {
        let how = how.clone().counting(bp);
        let attempt =
            |failure| vec![Attempt { vdev: top.name.clone(), offset_bytes: dva.offset.get(), failure }];
        let malformed = |why: &str| attempt(Failure::Malformed(why.into()));
        let size = bp.psize().get() as usize;
        let parts = self.gang_header(bp, dva, top, &how).await?;
        let mut block = IoBuf::for_overwrite(size);
        let mut filled = 0;
        for member in parts {
            let bytes = self.read_copies(&member, &how.deeper()).await?;
            let place = block.get_mut(filled..).and_then(|rest| rest.get_mut(..bytes.len()));
            device::copy(place.ok_or_else(|| malformed("gang members are longer than the block"))?, &bytes);
            filled += bytes.len();
        }
        if filled != size {
            return Err(malformed("gang members are shorter than the block"));
        }
        match self.verify(bp, &block) {
            Ok(()) => Ok(block),
            Err(failure) => {
                if !how.speculative {
                    top.errors.count_checksum(true);
                }
                Err(attempt(failure))
            }
        }
    }
}

/// Whether half of the pointer's checksum is a MAC. Object sets keep their MACs inside the block.
fn has_mac(bp: &Blkptr) -> bool {
    bp.uses_crypt() && bp.dmu_type() != DmuType::OBJSET
}

#[cfg(test)]
mod tests {
    use ondisk::{Asize, ByteOffset, ByteOrder, VdevId};

    use super::*;
    use crate::dmu::forge::Forge;

    #[test]
    fn a_gang_header_near_the_end_of_its_vdev_lies_within_it() {
        let Some(forge) = Forge::new(ByteOrder::Little) else { return };
        let vdev = VdevId(0);
        let end = forge.pool.vdevs().top(vdev.get()).map_or(0, Vdev::asize);
        assert!(end > 1 << 20);
        let is_within = |from_end: u64, gang: bool| {
            let offset = ByteOffset(end - from_end);
            forge.pool.top_for(&Dva { vdev, offset, asize: Asize(1 << 20), gang }).is_ok()
        };
        // The address of a gang includes the size of its members.
        assert!(is_within(GANG_HEADER_SIZE as u64, true));
        assert!(!is_within(GANG_HEADER_SIZE as u64, false));
        assert!(is_within(1 << 20, false));
        assert!(!is_within(0, true));
    }
}
