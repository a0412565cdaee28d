//! Requests of a client that are under way, for a person who asks why it waits.
//!
//! # The idea
//! Most requests are done when they are polled for the first time, and are never here. One that is not is
//! listed from then until it ends, with what it is, since when it is under way, and what it waits for: a word
//! that the place where it waits gives ([`engine::waits`]). A protocol lists in the same way what waits
//! before an export is asked or after that: for memory, for the initiator's data, or for the initiator to
//! take answers ([`UnderWay::begin`]).
//!
//! The daemon looks through the lists now and then, and tells of requests that take longer than [`SLOW`].
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `list` | the requests of one client; held for a few lines | taken alone |

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::waits;

use super::{BlockRequest, ExportError, Layer};

/// A request that takes longer is reported.
pub const SLOW: Duration = Duration::from_secs(10);

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// What is asked for, as `write`.
    pub what: &'static str,
    /// The first byte.
    pub offset: u64,
    /// The bytes.
    pub len_bytes: u64,
}

impl Asked {
    /// Of these bytes.
    pub fn of(what: &'static str, offset: u64, len_bytes: u64) -> Self {
        Self { what, offset, len_bytes }
    }
}

/// One that is under way.
#[derive(Debug, Clone, Copy)]
pub struct Pending {
    /// The request.
    pub asked: Asked,
    /// Since when.
    pub began: Instant,
    /// What it waits for.
    pub waits_for: &'static str,
    is_told: bool,
}

/// The requests of one client that are under way.
#[derive(Debug, Default)]
pub struct UnderWay {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    /// By the order in which they came.
    pending: BTreeMap<u64, Pending>,
}

impl List {
    fn add(&mut self, asked: Asked, waits_for: &'static str) -> u64 {
        self.next += 1;
        self.pending.insert(self.next, Pending { asked, began: Instant::now(), waits_for, is_told: false });
        self.next
    }
}

impl UnderWay {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().ignore_poison()
    }

    /// Does a request, which is listed as long as it is under way. The caller pins it: what is handed to an
    /// `async fn` is moved once more, and requests are as large as some pages.
    pub async fn watch<F: Future>(&self, asked: Asked, mut request: Pin<&mut F>) -> F::Output {
        /// The place in the list, once it has one.
        struct InList<'a>(&'a UnderWay, Option<u64>);
        impl Drop for InList<'_> {
            fn drop(&mut self) {
                if let Some(number) = self.1 {
                    self.0.list().pending.remove(&number);
                }
            }
        }
        let mut listed = InList(self, None);
        poll_fn(|context| {
            let (polled, word) = waits::observe(|| request.as_mut().poll(context));
            if polled.is_pending() {
                let waits_for = word.unwrap_or(waits::DEVICE);
                let mut list = self.list();
                match listed.1 {
                    None => listed.1 = Some(list.add(asked, waits_for)),
                    Some(number) => {
                        if let Some(pending) = list.pending.get_mut(&number) {
                            pending.waits_for = waits_for;
                        }
                    }
                }
            }
            polled
        })
        .await
    }

    /// Lists a request as long as what is returned is kept.
    pub fn begin(self: &Arc<Self>, asked: Asked, waits_for: &'static str) -> ListedRequest {
        let number = self.list().add(asked, waits_for);
        ListedRequest { under_way: Arc::clone(self), number }
    }

    /// Those that are under way for so long, the oldest first.
    pub fn older_than(&self, age: Duration) -> Vec<Pending> {
        let list = self.list();
        list.pending.values().filter(|pending| pending.began.elapsed() >= age).copied().collect()
    }

    /// Those that are under way for so long and were not returned by this before, the oldest first.
    pub fn newly_older_than(&self, age: Duration) -> Vec<Pending> {
        let mut list = self.list();
        let is_new = |pending: &&mut Pending| !pending.is_told && pending.began.elapsed() >= age;
        let new = list.pending.values_mut().filter(is_new);
        new.map(|pending| {
            pending.is_told = true;
            *pending
        })
        .collect()
    }
}

impl Layer for UnderWay {
    async fn around<T: Send, F>(&self, asked: BlockRequest, request: Pin<&mut F>) -> Result<T, ExportError>
    where
        F: Future<Output = Result<T, ExportError>> + Send,
    {
        let BlockRequest { operation, offset, len_bytes, .. } = asked;
        self.watch(Asked::of(operation.name(), offset, len_bytes), request).await
    }
}

/// A request that is listed until this is dropped.
#[derive(Debug)]
pub struct ListedRequest {
    under_way: Arc<UnderWay>,
    number: u64,
}

impl Drop for ListedRequest {
    fn drop(&mut self) {
        self.under_way.list().pending.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::block::BlockOperation;

    #[test]
    fn a_request_is_listed_while_it_waits_with_its_last_word() {
        let list = UnderWay::default();
        let asked = Asked::of("write", 4096, 512);
        assert_eq!(list.watch(asked, pin!(ready(7))).now_or_never(), Some(7));
        assert!(list.list().pending.is_empty() && list.list().next == 0, "done at once");
        let mut at_once = true;
        let words = poll_fn(|_| {
            if std::mem::take(&mut at_once) {
                waits::note("room");
            }
            std::task::Poll::<()>::Pending
        });
        let words = pin!(words);
        let mut waiting = Box::pin(list.watch(asked, words));
        for word in ["room", waits::DEVICE] {
            assert!((&mut waiting).now_or_never().is_none());
            let [one] = list.older_than(Duration::ZERO)[..] else { panic!("not listed") };
            assert_eq!((one.asked, one.waits_for), (asked, word));
        }
        assert!(list.older_than(Duration::from_secs(3600)).is_empty());
        drop(waiting);
        assert!(list.older_than(Duration::ZERO).is_empty());
    }

    #[test]
    fn as_a_layer_it_lists_requests_by_what_they_are() {
        let list = UnderWay::default();
        let asked = BlockRequest {
            operation: BlockOperation::WriteZeroes,
            offset: 4096,
            len_bytes: 512,
            is_stable: true,
        };
        let request = pin!(pending::<Result<(), ExportError>>());
        let mut waiting = Box::pin(list.around(asked, request));
        assert!((&mut waiting).now_or_never().is_none());
        let [one] = list.older_than(Duration::ZERO)[..] else { panic!("not listed") };
        assert_eq!(one.asked, Asked::of("write of zeroes", 4096, 512));
    }

    #[test]
    fn each_slow_request_is_told_of_once() {
        let list = Arc::new(UnderWay::default());
        let first = list.begin(Asked::of("write", 0, 512), "the initiator's data");
        assert_eq!(list.newly_older_than(Duration::ZERO).len(), 1);
        let flush = pin!(pending::<()>());
        let mut second = Box::pin(list.watch(Asked::of("flush", 0, 0), flush));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(list.newly_older_than(Duration::ZERO)[0].asked.what, "flush");
        assert!(list.newly_older_than(Duration::ZERO).is_empty());
        assert_eq!(list.older_than(Duration::ZERO).len(), 2);
        drop((first, second));
        assert!(list.older_than(Duration::ZERO).is_empty());
    }
}
