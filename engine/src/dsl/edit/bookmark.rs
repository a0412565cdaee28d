//! Bookmarks, and what they know of the blocks freed since.
//!
//! A bookmark is made of a snapshot and survives it. With the feature `bookmark_written` it also counts what
//! was *freed before the next snapshot* of the blocks that its snapshot had, so that `written@` can be
//! computed later: a head adds what it gives up to the bookmarks after its last snapshot ([`blocks_killed`]),
//! and when a snapshot goes, the bookmarks before it take over what its successor's deadlist has
//! ([`snapshot_destroyed`]). For that its creation group must stay a key of deadlists as long as the bookmark
//! lives.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_bookmark.c`.

use ondisk::blkptr::Blkptr;
use ondisk::bookmark::{BookmarkPhys, BookmarkSpace, FLAG_HAS_FBN, FLAG_SNAPSHOT_EXISTS};
use ondisk::dsl_dataset::field::{BOOKMARK_NAMES, IVSET_GUID};
use ondisk::features::Feature;
use ondisk::zap::ZapValue;
use ondisk::{Guid, ObjectId, Txg};

use super::space::{counts, sum, weigh};
use super::{check_component, clones, deadlist, events, find_head, find_snapshot, objects};
use crate::dmu::Space;
use crate::dmu::zap::edit::NewZap;
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};

/// `U8_TEXTPREP_TOUPPER`: names that differ in case only collide in hashing.
pub(super) const NORMALIZE_CASE: u64 = 2;

/// A bookmark with its short name.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub name: String,
    pub phys: BookmarkPhys,
    words: usize,
}

impl Mark {
    fn counts_freed(&self) -> bool {
        self.phys.flags & FLAG_HAS_FBN != 0
    }
}

/// The ZAP of a head's bookmarks.
async fn names(s: &SyncTask, head: ObjectId) -> Result<Option<ObjectId>> {
    Ok(objects::field(s, head, BOOKMARK_NAMES).await?.filter(|zap| *zap != 0).map(ObjectId))
}

/// The bookmarks of a head, oldest first.
pub(super) async fn all(s: &SyncTask, head: ObjectId) -> Result<Vec<Mark>> {
    let mut all = Vec::new();
    if let Some(zap) = names(s, head).await? {
        for (name, value) in objects::mos(s).entries(zap).await? {
            let words = value.to_u64s();
            let phys = BookmarkPhys::from_words(&words).map_err(|error| objects::corrupt(zap, error))?;
            all.push(Mark { name, phys, words: words.len() });
        }
    }
    all.sort_by(|a, b| (a.phys.creation_txg, &a.name).cmp(&(b.phys.creation_txg, &b.name)));
    Ok(all)
}

fn value_of(phys: &BookmarkPhys, words: usize) -> ZapValue {
    let bytes = phys.encode(objects::ORDER);
    let (numbers, _) = bytes.as_chunks::<8>();
    ZapValue::U64(numbers.iter().take(words).map(|bytes| u64::from_le_bytes(*bytes)).collect())
}

async fn put(s: &SyncTask, head: ObjectId, mark: &Mark) -> Result<()> {
    let zap = names(s, head).await?.ok_or_else(|| objects::corrupt(head, "has no bookmarks"))?;
    objects::set(s, zap, &objects::name(&mark.name), &value_of(&mark.phys, mark.words)).await
}

fn to_space(space: Space) -> BookmarkSpace {
    BookmarkSpace {
        referenced_bytes: space.used,
        compressed_bytes: space.compressed,
        uncompressed_bytes: space.uncompressed,
    }
}

fn add_freed(mark: &mut Mark, space: Space) {
    let freed = mark.phys.freed_before_next;
    let before = Space {
        used: freed.referenced_bytes,
        compressed: freed.compressed_bytes,
        uncompressed: freed.uncompressed_bytes,
    };
    mark.phys.freed_before_next = to_space(sum(before, space));
}

/// What a bookmark of a snapshot says (`dsl_bookmark_set_phys`).
async fn describe(s: &SyncTask, snapshot: ObjectId) -> Result<BookmarkPhys> {
    let of = objects::dataset(s, snapshot).await?;
    let mut phys = BookmarkPhys {
        guid: of.guid,
        creation_txg: of.creation_txg,
        creation_time: of.creation_time,
        ..BookmarkPhys::default()
    };
    if s.feature_enabled(Feature::BookmarkV2) {
        phys.ivset_guid = Guid(objects::field(s, snapshot, IVSET_GUID).await?.unwrap_or(0));
    }
    if s.feature_enabled(Feature::BookmarkWritten) {
        phys.flags = FLAG_HAS_FBN | FLAG_SNAPSHOT_EXISTS;
        phys.referenced = BookmarkSpace {
            referenced_bytes: of.referenced_bytes,
            compressed_bytes: of.compressed_bytes,
            uncompressed_bytes: of.uncompressed_bytes,
        };
        let next = objects::dataset(s, of.next_snap).await?;
        phys.freed_before_next = to_space(deadlist::space(s, next.deadlist).await?);
    }
    Ok(phys)
}

/// Adds a bookmark to a head (`dsl_bookmark_node_add`).
async fn insert(s: &SyncTask, head: ObjectId, name: &str, phys: &BookmarkPhys) -> Result<()> {
    let zap = match names(s, head).await? {
        Some(zap) => zap,
        None => {
            let new = NewZap { normalization: NORMALIZE_CASE, ..NewZap::of(objects::ZAP_METADATA) };
            let zap = objects::create_zap(s, new).await?;
            s.use_feature(Feature::Bookmarks, 1).await?;
            objects::set_field(s, head, BOOKMARK_NAMES, &objects::one(zap.get())).await?;
            zap
        }
    };
    let long = s.feature_enabled(Feature::BookmarkV2) && phys.needs_v2();
    if long {
        s.use_feature(Feature::BookmarkV2, 1).await?;
    }
    let words = if long { BookmarkPhys::WORDS_V2 } else { BookmarkPhys::WORDS_V1 };
    objects::add(s, zap, &objects::name(name), &value_of(phys, words)).await
}

/// Makes a bookmark `pool/fs#mark` of a snapshot of that dataset, or of another bookmark of it.
pub async fn create_bookmark(s: &SyncTask, mark: &str, source: &str) -> Result<()> {
    let invalid = || Error::Invalid(format!("'{mark}': not a bookmark's name"));
    let (of, short) = mark.split_once('#').ok_or_else(invalid)?;
    check_component(mark, short)?;
    if !s.feature_enabled(Feature::Bookmarks) {
        return Err(Error::Unsupported("the pool's feature bookmarks is not enabled".to_owned()));
    }
    let head = find_head(s, of).await?;
    let marks = all(s, head.object).await?;
    let phys = match source.split_once('#') {
        Some((other, _)) if other != of => {
            return Err(Error::Invalid(format!("{source} is not a bookmark of {of}")));
        }
        Some((_, copied)) => {
            let copied = marks.iter().find(|other| other.name == copied);
            let copied = copied.ok_or_else(|| Error::NotFound(source.to_owned()))?;
            // What a bookmark was redacted for is its own.
            BookmarkPhys { redaction_list: ObjectId::default(), ..copied.phys }
        }
        None => {
            let snapshot = find_snapshot(s, source).await?;
            if snapshot.phys.dir != head.phys.dir {
                return Err(Error::Invalid(format!("{source} is not a snapshot of {of}")));
            }
            if objects::field(s, snapshot.object, Feature::RedactedDatasets.guid()).await?.is_some() {
                return Err(Error::Unsupported(format!("{source} is redacted")));
            }
            describe(s, snapshot.object).await?
        }
    };
    if marks.iter().any(|other| other.name == short) {
        return Err(Error::Exists(mark.to_owned()));
    }
    s.require_for_change(Spare::Normal, 1)?;
    if phys.flags & FLAG_HAS_FBN != 0 {
        s.use_feature(Feature::BookmarkWritten, 1).await?;
    }
    insert(s, head.object, short, &phys).await?;
    let of = match source.contains('#') {
        true => format!("source_guid={}", phys.guid.0),
        false => format!("target_snap={} redact_obj=0", find_snapshot(s, source).await?.object),
    };
    let text = format!("name={short} creation_txg={} {of}", phys.creation_txg);
    events::created(s, mark, phys.guid, None);
    events::note(s, "bookmark", &head.name, head.object, &text).await
}

/// Forgets what a bookmark's features count, as it goes.
async fn uncount(s: &SyncTask, mark: &Mark) -> Result<()> {
    if mark.words > BookmarkPhys::WORDS_V1 {
        s.use_feature(Feature::BookmarkV2, -1).await?;
    }
    if mark.counts_freed() {
        s.use_feature(Feature::BookmarkWritten, -1).await?;
    }
    if !mark.phys.redaction_list.is_none() {
        let list = s.mos().object(mark.phys.redaction_list).await?;
        if list.spill().await?.is_some() {
            s.use_feature(Feature::RedactionListSpill, -1).await?;
        }
        objects::free_object(s, mark.phys.redaction_list).await?;
        s.use_feature(Feature::RedactionBookmarks, -1).await?;
    }
    Ok(())
}

/// Destroys the bookmark `pool/fs#mark`.
pub async fn destroy_bookmark(s: &SyncTask, name: &str) -> Result<()> {
    let missing = || Error::NotFound(name.to_owned());
    let (of, short) = name.split_once('#').ok_or_else(missing)?;
    let head = find_head(s, of).await?;
    let marks = all(s, head.object).await?;
    let mark = marks.iter().find(|mark| mark.name == short).ok_or_else(missing)?;
    let zap = names(s, head.object).await?.ok_or_else(missing)?;
    if mark.counts_freed() {
        let at = mark.phys.creation_txg;
        let others = marks
            .iter()
            .any(|other| other.name != short && other.counts_freed() && other.phys.creation_txg == at);
        let snapshot_exists = mark.phys.flags & FLAG_SNAPSHOT_EXISTS != 0;
        if !snapshot_exists && !others && at < head.phys.prev_snap_txg {
            clones::remove_keys(s, head.phys.dir, at).await?;
            deadlist::remove_key(s, head.phys.deadlist, at).await?;
        }
    }
    uncount(s, mark).await?;
    objects::take(s, zap, &objects::name(short)).await?;
    if marks.len() == 1 {
        // As OpenZFS does: without bookmarks there is no ZAP of them.
        drop_names(s, zap).await?;
        objects::take(s, head.object, &objects::name(BOOKMARK_NAMES)).await?;
    }
    events::destroyed(s, name, mark.phys.guid);
    events::note(s, "remove bookmark", &head.name, head.object, &format!("name={short}")).await
}

async fn drop_names(s: &SyncTask, zap: ObjectId) -> Result<()> {
    objects::free_object(s, zap).await?;
    s.use_feature(Feature::Bookmarks, -1).await
}

/// A head goes, and its bookmarks with it.
pub(super) async fn head_destroyed(s: &SyncTask, head: ObjectId) -> Result<()> {
    if let Some(zap) = names(s, head).await? {
        for mark in all(s, head).await? {
            uncount(s, &mark).await?;
        }
        drop_names(s, zap).await?;
    }
    Ok(())
}

/// A head gave up blocks: the bookmarks after its last snapshot count them (`dsl_bookmark_block_killed`).
pub(super) async fn blocks_killed(s: &SyncTask, head: ObjectId, killed: &[Blkptr]) -> Result<()> {
    if killed.is_empty() || names(s, head).await?.is_none() {
        return Ok(());
    }
    let since = objects::dataset(s, head).await?.prev_snap_txg;
    for mut mark in all(s, head).await? {
        if mark.phys.creation_txg < since || !mark.counts_freed() {
            continue;
        }
        let had = |bp: &&Blkptr| counts(bp) && bp.birth() <= mark.phys.creation_txg;
        let freed = killed.iter().filter(had).map(|bp| weigh(s, bp)).fold(Space::default(), sum);
        if freed != Space::default() {
            add_freed(&mut mark, freed);
            put(s, head, &mark).await?;
        }
    }
    Ok(())
}

/// A head's deadlist begins anew behind a new snapshot: the bookmarks after the snapshot before are keys of
/// it (`dsl_bookmark_snapshotted`). `previous` is when the snapshot before the new one was taken.
pub(super) async fn snapshotted(
    s: &SyncTask,
    head: ObjectId,
    deadlist: ObjectId,
    previous: Txg,
) -> Result<()> {
    let mut keys: Vec<Txg> = all(s, head)
        .await?
        .iter()
        .filter(|mark| mark.counts_freed())
        .map(|mark| mark.phys.creation_txg)
        .collect();
    keys.retain(|txg| *txg > previous);
    keys.dedup();
    for txg in keys {
        deadlist::add_key(s, deadlist, txg).await?;
    }
    Ok(())
}

/// A snapshot goes (`dsl_bookmark_ds_destroyed`). True when bookmarks of it still need its key in deadlists.
pub(super) async fn snapshot_destroyed(s: &SyncTask, head: ObjectId, snapshot: ObjectId) -> Result<bool> {
    if names(s, head).await?.is_none() {
        return Ok(false);
    }
    let gone = objects::dataset(s, snapshot).await?;
    let next = objects::dataset(s, gone.next_snap).await?;
    let mut needed = false;
    for mut mark in all(s, head).await? {
        let txg = mark.phys.creation_txg;
        if !mark.counts_freed() || txg < gone.prev_snap_txg || txg > gone.creation_txg {
            continue;
        }
        if txg == gone.creation_txg {
            mark.phys.flags &= !FLAG_SNAPSHOT_EXISTS;
            needed = true;
        } else {
            add_freed(&mut mark, deadlist::space_range(s, next.deadlist, Txg::NONE, txg).await?);
        }
        put(s, head, &mark).await?;
    }
    Ok(needed)
}

/// Another dataset follows `snapshot` now: its bookmarks count anew (`dsl_bookmark_next_changed`).
pub(super) async fn next_changed(s: &SyncTask, head: ObjectId, snapshot: ObjectId) -> Result<()> {
    let txg = objects::dataset(s, snapshot).await?.creation_txg;
    for mut mark in all(s, head).await? {
        if mark.phys.creation_txg == txg && mark.counts_freed() {
            let redaction_list = mark.phys.redaction_list;
            mark.phys = BookmarkPhys { redaction_list, ..describe(s, snapshot).await? };
            put(s, head, &mark).await?;
        }
    }
    Ok(())
}

/// When the snapshot of the latest bookmark of a head was taken.
pub(super) async fn latest(s: &SyncTask, head: ObjectId) -> Result<Txg> {
    Ok(all(s, head).await?.last().map_or(Txg::NONE, |mark| mark.phys.creation_txg))
}

/// Moves the bookmarks of a head that are not after `until` to another head.
pub(super) async fn move_until(s: &SyncTask, from: ObjectId, to: ObjectId, until: Txg) -> Result<()> {
    let Some(zap) = names(s, from).await? else { return Ok(()) };
    for mark in all(s, from).await?.into_iter().filter(|mark| mark.phys.creation_txg <= until) {
        objects::take(s, zap, &objects::name(&mark.name)).await?;
        if mark.words > BookmarkPhys::WORDS_V1 {
            s.use_feature(Feature::BookmarkV2, -1).await?;
        }
        insert(s, to, &mark.name, &mark.phys).await?;
    }
    Ok(())
}
