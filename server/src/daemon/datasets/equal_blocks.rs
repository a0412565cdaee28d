//! Equal blocks of files and volumes: what is known of blocks, so that a command finds those that seem to be
//! equal, and sharing them once they were compared.
//!
//! The command ([`api::ListBlocks`], [`api::ShareBlocks`]) keeps the lists, which may be long, and the daemon
//! keeps nothing between two requests. So a command that lies or dies costs nothing but its own work: each
//! pair is locked and compared before anything is shared.
//!
//! While pairs of a pool are shared, none of its datasets is rolled back, renamed or destroyed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::dmu::{Shared, StoredBlocks};
use engine::dsl::{Dsl, Kind, with_room};
use engine::pool::live::LivePool;
use engine::zpl::LiveZpl;
use engine::zpl::live::FileBlocks;
use engine::zvol::LiveZvol;
use ondisk::ObjectId;

use crate::api::{
    self, ApiError, BlockPair, BlockPlace, ListedBlock, ListedBlocks, MOST_PAIR_BLOCKS, MOST_PAIRS,
    PairShared,
};
use crate::daemon::names;
use crate::daemon::{Daemon, dataset_error, not_of_this_type};

/// Pointers that one request looks at.
const MOST_LOOKED_AT: u64 = 16_384;
/// Files of which one request lists blocks.
const MOST_FILES: usize = 4096;
/// After this time a request is answered, with the pairs that were looked at.
const LONGEST: Duration = Duration::from_secs(1);

/// What is in a dataset.
enum Content {
    Files(Arc<LiveZpl>),
    Volume(Arc<LiveZvol>),
}

/// A dataset whose blocks are looked at.
struct Opened {
    content: Content,
    is_read_only: bool,
}

impl Opened {
    async fn of(live: &Arc<LivePool>, dsl: &Arc<Dsl>, name: &str) -> Result<Self, ApiError> {
        let failed = |error| dataset_error("open", name, error);
        let entry = dsl.entry(name).await.map_err(failed)?;
        let Some(dataset) = entry.dataset() else { return Err(not_of_this_type(name)) };
        let id = dataset.objset_id();
        let content = match entry.kind {
            Kind::Filesystem => Content::Files(live.filesystem(id).await.map_err(failed)?),
            Kind::Volume => Content::Volume(live.volume(id).await.map_err(failed)?),
            _ => return Err(not_of_this_type(name)),
        };
        let is_read_only = live.dataset(id).await.map_err(failed)?.is_read_only();
        Ok(Self { content, is_read_only })
    }
}

fn listed(file: Option<u64>, block_bytes: u64, found: StoredBlocks) -> ListedBlocks {
    let blocks = found.blocks.into_iter().map(|block| ListedBlock {
        block: block.id,
        digest: block.digest,
        place: block.place,
        birth: block.birth.get(),
        allocated_bytes: block.allocated_bytes,
    });
    ListedBlocks { file, block_bytes, blocks: blocks.collect(), next_block: found.next, error: None }
}

impl Daemon {
    /// What is known of the blocks of files or of a volume.
    ///
    /// # Errors
    /// The dataset does not exist, or is neither a filesystem nor a volume, or the pool is read-only. A file
    /// that cannot be listed has its error in its own place.
    pub async fn list_blocks(&self, request: api::ListBlocks) -> Result<Vec<ListedBlocks>, ApiError> {
        let name = &request.dataset;
        let pool = self.pool_of(name)?;
        let live = pool.writable(&format!("cannot list the blocks of '{name}'"))?;
        let dsl = pool.dsl().await.map_err(|error| dataset_error("open", name, error))?;
        let opened = Opened::of(live, &dsl, name).await?;
        let failed = |error| dataset_error("read", name, error);
        let files = match &opened.content {
            Content::Volume(volume) => {
                let found = volume.stored_blocks(request.first_block, MOST_LOOKED_AT).await;
                return Ok(vec![listed(None, volume.block_size(), found.map_err(failed)?)]);
            }
            Content::Files(files) => files,
        };
        let (mut first, mut left, mut all) = (request.first_block, MOST_LOOKED_AT, Vec::new());
        for file in request.files.into_iter().take(MOST_FILES) {
            let from = FileBlocks { file: ObjectId(file), first };
            let mut of_file = match files.stored_blocks(from, left).await {
                Ok((block_bytes, found)) => listed(Some(file), block_bytes, found),
                // It may be gone by now.
                Err(error) => ListedBlocks { error: Some(error.to_string()), ..ListedBlocks::default() },
            };
            of_file.file = Some(file);
            first = 0;
            // A file without blocks is looked at, too.
            left = left.saturating_sub(of_file.blocks.len() as u64 + 1);
            let is_whole = of_file.next_block.is_none();
            all.push(of_file);
            if left == 0 || !is_whole {
                break;
            }
        }
        Ok(all)
    }

    /// Compares pairs of blocks, and makes equal ones share their space. Answers for the first of them, as
    /// many as are looked at in a second.
    ///
    /// # Errors
    /// Too many pairs, or of several pools, or of a pool that is not open for writing. What is wrong with one
    /// pair stands in its own answer.
    pub async fn share_blocks(&self, request: api::ShareBlocks) -> Result<Vec<PairShared>, ApiError> {
        let pairs = &request.pairs;
        let Some(first) = pairs.first() else { return Ok(Vec::new()) };
        let pool_name = names::pool_of(&first.kept.dataset);
        let sides = || pairs.iter().flat_map(|pair| [&pair.kept, &pair.other]);
        if sides().any(|side| names::pool_of(&side.dataset) != pool_name) {
            return Err(ApiError::invalid("cannot share blocks: they are of different pools"));
        }
        if pairs.len() > MOST_PAIRS || pairs.iter().any(|pair| pair.blocks > MOST_PAIR_BLOCKS) {
            return Err(ApiError::invalid(format!(
                "cannot share blocks: more than {MOST_PAIRS} pairs, or more than {MOST_PAIR_BLOCKS} blocks \
                 in one of them"
            )));
        }
        let pool = self.pool_of(pool_name)?;
        let live = pool.writable(&format!("cannot share blocks of '{pool_name}'"))?;
        let _adding = pool.add().await?;
        let dsl = pool.dsl().await.map_err(|error| dataset_error("open", pool_name, error))?;
        let mut opened: HashMap<&str, Result<Opened, ApiError>> = HashMap::new();
        for BlockPlace { dataset, .. } in sides() {
            if !opened.contains_key(dataset.as_str()) {
                opened.insert(dataset, Opened::of(live, &dsl, dataset).await);
            }
        }
        let (began, mut all) = (Instant::now(), Vec::with_capacity(pairs.len()));
        for pair in pairs {
            // Others wait for the right to change the pool.
            if began.elapsed() > LONGEST && !all.is_empty() {
                break;
            }
            let both = [&pair.kept, &pair.other].map(|side| opened.get(side.dataset.as_str()));
            all.push(match both {
                [Some(Ok(kept)), Some(Ok(other))] => share(live, pair, kept, other).await,
                [Some(Err(error)), _] | [_, Some(Err(error))] => failure(error.to_string()),
                _ => failure("it was not opened".to_owned()),
            });
        }
        Ok(all)
    }
}

fn failure(error: String) -> PairShared {
    PairShared { error: Some(error), ..PairShared::default() }
}

async fn share(live: &Arc<LivePool>, pair: &BlockPair, kept: &Opened, other: &Opened) -> PairShared {
    let name = &pair.other.dataset;
    if other.is_read_only {
        return failure(format!("cannot share blocks of '{name}': dataset is read-only"));
    }
    let (to, from, count) = (pair.other.block, pair.kept.block, pair.blocks);
    let shared = match (&kept.content, pair.kept.file, &other.content, pair.other.file) {
        (Content::Volume(source), None, Content::Volume(volume), None) => {
            with_room(live.txgs(), || volume.share_blocks(to, source, from, count)).await
        }
        (Content::Files(source), Some(kept_file), Content::Files(files), Some(file)) => {
            let to = FileBlocks { file: ObjectId(file), first: to };
            let from = FileBlocks { file: ObjectId(kept_file), first: from };
            with_room(live.txgs(), || files.share_blocks(to, source, from, count)).await
        }
        _ => return failure("cannot share blocks of a file with those of a volume".to_owned()),
    };
    match shared {
        Ok(Shared { blocks, allocated_bytes, already, different }) => PairShared {
            shared_blocks: blocks,
            allocated_bytes,
            already_blocks: already,
            different_blocks: different,
            error: None,
        },
        Err(error) => failure(format!("cannot share blocks of '{name}': {error}")),
    }
}
