//! The walk over many blocks at a time, in no order.
//!
//! # How it is fast
//! Work is a stack of blocks, shared by threads. A thread takes a *batch* from its top, which are neighbours
//! in the tree and so mostly neighbours on disk; the visitor reads what is near each other in large
//! transfers. Several batches of a thread are in flight. The stack is last in, first out, which bounds it by
//! the depth of the trees.

use device::block_on;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::Txg;
use ondisk::dnode::Dnode;

use super::below::{self, Below};
use super::queue::Queue;
use super::{Births, Leads, Node};
use crate::error::{Error, Result};
use crate::{Block, Bookmark};

/// Batches that one thread keeps in flight.
const BATCHES_IN_FLIGHT: usize = 4;
/// Most threads.
const MAX_THREADS: usize = 256;

/// What a [`survey`] is for. All threads share it; what is found is theirs, and merged at the end.
pub trait Survey: Sync {
    /// What the visitor knows of the root that a block is below.
    type Tag: Copy + Send;
    /// What was found.
    type Found: Default + Send;
    /// What was read of a batch at once.
    type Ahead;

    /// After which group the blocks below a root were born. What is older is left out with all below it.
    fn after(&self, tag: &Self::Tag) -> Txg;

    /// Reads blocks that are probably neighbours, as far as that is faster than one by one.
    fn read_ahead(&self, batch: &[Node<Self::Tag>]) -> impl Future<Output = Self::Ahead>;

    /// A block comes. Gives its contents where what it leads to is to be walked.
    ///
    /// # Errors
    /// What [`Survey::damaged`] will get.
    fn block(
        &self,
        node: &Node<Self::Tag>,
        ahead: &Self::Ahead,
        found: &mut Self::Found,
    ) -> impl Future<Output = Result<Option<Block>>>;

    /// An object comes, below `node`. Its blocks are walked, and those below the root that this gives.
    ///
    /// # Errors
    /// As for [`Survey::block`].
    fn object(
        &self,
        node: &Node<Self::Tag>,
        object: u64,
        dnode: &Dnode,
        found: &mut Self::Found,
    ) -> Result<Option<Node<Self::Tag>>>;

    /// A block cannot be read or makes no sense. What is below it is left out.
    fn damaged(&self, at: Bookmark, error: Error, found: &mut Self::Found);

    /// Adds what was found elsewhere.
    fn merge(&self, found: &mut Self::Found, more: Self::Found);

    /// Whether to leave out all that was not begun yet.
    fn is_cancelled(&self) -> bool;
}

/// Visits the roots and all below them on threads of its own. Blocks the calling thread until that is done.
///
/// # Errors
/// A thread failed.
pub fn survey<S: Survey>(
    survey: &S,
    threads: usize,
    roots: impl IntoIterator<Item = Node<S::Tag>>,
) -> Result<S::Found> {
    let queue = Queue::default();
    queue.push(roots);
    let of_threads = std::thread::scope(|scope| {
        let threads = 0..threads.clamp(1, MAX_THREADS);
        let workers: Vec<_> = threads.map(|_| scope.spawn(|| block_on(worker(survey, &queue)))).collect();
        workers.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
    });
    let mut found = S::Found::default();
    for of_thread in of_threads {
        // A thread that panicked lost its part of what was found: no result is better than a wrong one.
        let of_thread =
            of_thread.map_err(|_| Error::Invalid("a thread of the verification failed".into()))?;
        survey.merge(&mut found, of_thread);
    }
    Ok(found)
}

async fn worker<S: Survey>(survey: &S, queue: &Queue<S::Tag>) -> S::Found {
    let mut found = S::Found::default();
    let mut in_flight = FuturesUnordered::new();
    loop {
        while in_flight.len() < BATCHES_IN_FLIGHT {
            match queue.take() {
                Some(batch) => in_flight.push(process(survey, queue, batch)),
                None => break,
            }
        }
        match in_flight.next().await {
            Some((taken, of_batch)) => {
                survey.merge(&mut found, of_batch);
                queue.done(taken);
            }
            // Nothing in flight here, so that waiting for the other threads delays no transfer.
            None if queue.wait() => {}
            None => return found,
        }
        if survey.is_cancelled() {
            queue.clear();
        }
    }
}

/// Visits a batch, and adds what it leads to to the queue.
async fn process<S: Survey>(
    survey: &S,
    queue: &Queue<S::Tag>,
    batch: Vec<Node<S::Tag>>,
) -> (usize, S::Found) {
    let mut found = S::Found::default();
    let ahead = survey.read_ahead(&batch).await;
    for node in &batch {
        match survey.block(node, &ahead, &mut found).await {
            Ok(Some(block)) if node.leads() != Leads::Nowhere => {
                let mut work = Vec::new();
                if let Err(error) = expand(survey, node, &block, &mut work, &mut found) {
                    survey.damaged(node.at, error, &mut found);
                }
                queue.push(work);
            }
            Ok(_) => {}
            Err(error) => survey.damaged(node.at, error, &mut found),
        }
    }
    (batch.len(), found)
}

/// Adds what a block leads to to `work`.
fn expand<S: Survey>(
    survey: &S,
    node: &Node<S::Tag>,
    block: &Block,
    work: &mut Vec<Node<S::Tag>>,
    found: &mut S::Found,
) -> Result<()> {
    let births = Births::after(survey.after(&node.tag));
    let add = |below: Below<'_>, work: &mut Vec<Node<S::Tag>>, found: &mut S::Found| match below {
        Below::Pointer(bp, at) if births.may_lead_there(&bp) => work.push(Node { bp, at, tag: node.tag }),
        Below::Damage(at, error) => survey.damaged(at, error, found),
        Below::Pointer(..) | Below::Object(..) | Below::FreeSlot(_) => {}
    };
    below::each(node, block, |below| match below {
        Below::Object(object, dnode, _) => {
            let root = survey.object(node, object, &dnode, found);
            below::each_of_object(node.at.objset, object, &dnode, |below| add(below, work, found));
            match root {
                Ok(root) => work.extend(root),
                Err(error) => {
                    let at = Bookmark { object, level: 0, blkid: 0, ..node.at };
                    survey.damaged(at, error, found);
                }
            }
        }
        below => add(below, work, found),
    })
}
