//! Reads that wait for devices, as writes do: those of the sync of a group.
//!
//! # The idea
//! A group that is being written cannot be written without the blocks that it builds on: space maps, indirect
//! blocks, tables of names, lists of what is to be freed. When such a block cannot be read because devices
//! are away or fail, the group must not be given up, because devices may come back: the pool is suspended,
//! and after `zpool clear` the read is made again ([`crate::store::suspend`]).
//!
//! Whether a read waits is a matter of who needs it, not of the block. A client that reads the same block
//! gets an error and may try again. So the sync says it for everything that it polls ([`waiting`]), in a
//! variable of the thread, and the entries of the block layer ask here when a read has failed. They stand
//! above the ARC: a load that fails has ended for all that share it, and the sync begins another one.
//!
//! Damage is not waited for: a block of which every copy was read and is wrong stays wrong. Neither is a read
//! whose failure the sync can do without ([`failing`]).
//!
//! # Changes of several steps
//! A change that creates or renames a file makes several steps in the open group. Before the first one, a
//! read that fails fails the change, which has done nothing. From then on the change must be completed,
//! because half of it must not be committed: its reads wait ([`once_changed`]), and its group with them.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

/// Whether the reads of what is being polled wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    No,
    /// Not yet, but from its first change on.
    OnceChanged,
    Yes,
}

thread_local! {
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::No) };
}

/// A future whose reads wait for devices.
pub(crate) async fn waiting<F: Future>(future: F) -> F::Output {
    with(Patience::Yes, future).await
}

/// A future whose reads fail when devices do, as part of one whose reads wait.
pub(crate) async fn failing<F: Future>(future: F) -> F::Output {
    with(Patience::No, future).await
}

/// A change whose reads wait for devices once it has changed something.
pub(crate) async fn once_changed<F: Future>(change: F) -> F::Output {
    with(Patience::OnceChanged, change).await
}

/// What is being polled changes something.
pub(crate) fn note_changed() {
    if PATIENCE.get() == Patience::OnceChanged {
        PATIENCE.set(Patience::Yes);
    }
}

async fn with<F: Future>(mut patience: Patience, future: F) -> F::Output {
    /// Puts back what holds for the future around it, also after a panic.
    struct Outer(Patience);
    impl Drop for Outer {
        fn drop(&mut self) {
            PATIENCE.set(self.0);
        }
    }
    let mut future = pin!(future);
    poll_fn(|context| {
        let _outer = Outer(PATIENCE.replace(patience));
        let polled = future.as_mut().poll(context);
        patience = PATIENCE.get();
        polled
    })
    .await
}

/// Whether a read that has just failed waits.
pub(crate) fn is_waiting() -> bool {
    PATIENCE.get() == Patience::Yes
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::FutureExt;
    use futures_util::future::join;

    use super::*;

    /// Lets others go first.
    async fn pause() {
        let mut first = true;
        poll_fn(move |context| {
            context.waker().wake_by_ref();
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Before and after a pause.
    async fn seen() -> (Patience, Patience) {
        let before = PATIENCE.get();
        pause().await;
        (before, PATIENCE.get())
    }

    fn run<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Some(ended) = future.as_mut().now_or_never() {
                return ended;
            }
            assert_eq!(PATIENCE.get(), Patience::No);
        }
    }

    #[test]
    fn each_future_keeps_to_what_it_said_beside_others() {
        let one = waiting(async { (seen().await, failing(seen()).await, seen().await) });
        let (yes, no) = ((Patience::Yes, Patience::Yes), (Patience::No, Patience::No));
        assert_eq!(run(join(one, seen())), ((yes, no, yes), no));
    }

    #[test]
    fn a_change_waits_from_its_first_step_on() {
        let change = || async {
            let before = seen().await.1;
            note_changed();
            let inner = failing(async {
                note_changed();
                seen().await.1
            });
            (before, inner.await, seen().await.1)
        };
        let expected = (Patience::OnceChanged, Patience::No, Patience::Yes);
        assert_eq!(run(join(once_changed(change()), once_changed(seen()))).0, expected);
        assert_eq!(run(change()), (Patience::No, Patience::No, Patience::No));
    }
}
