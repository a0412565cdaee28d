//! What a request waits for, as a person wants to know it of a request that takes long.
//!
//! # The idea
//! A future that is not ready does not say why. So the places of the engine where a request may wait for
//! something else than a device say it when they are polled in vain ([`note`]): a word for a person, in a
//! variable of the thread. What polls a request looks at the last word afterwards ([`observe`]). A request
//! that is not ready and said nothing waits for a device.
//!
//! A request that does not wait costs nothing here but two accesses to that variable.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

/// For a device: what a request waits for that says nothing else.
pub const DEVICE: &str = "a device";

thread_local! {
    static LAST: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// What is being polled waits for this.
pub fn note(what: &'static str) {
    LAST.set(Some(what));
}

/// Has `poll` poll something; what that waits for, if it said so.
pub fn observe<T>(poll: impl FnOnce() -> T) -> (T, Option<&'static str>) {
    /// Puts the word of what is around it back, also after a panic.
    struct Outer(Option<&'static str>);
    impl Drop for Outer {
        fn drop(&mut self) {
            LAST.set(self.0);
        }
    }
    let _outer = Outer(LAST.take());
    let polled = poll();
    (polled, LAST.get())
}

/// A future that waits for this, unless it says something else itself.
pub async fn noting<F: Future>(what: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        note(what);
        future.as_mut().poll(context)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_innermost_word_counts_and_what_is_around_keeps_its_own() {
        let inner = || noting("a turn", noting("room", pending::<()>())).now_or_never();
        let (_, outer) = observe(|| {
            note("a log");
            assert_eq!(observe(inner), (None, Some("room")));
            assert_eq!(observe(|| ()), ((), None));
        });
        assert_eq!(outer, Some("a log"));
        assert_eq!(observe(|| ()).1, None);
    }
}
