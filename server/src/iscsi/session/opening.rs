//! Units that are being opened beside everything else, and when that is tried again.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::super::scsi::Opened;

/// The time after which units that could not be opened are tried again; then twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest such time.
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What was opened, and whether that is all that was to be.
pub(super) type All<E> = (Opened<E>, bool);

/// Units that are being opened.
pub(super) enum Opening<'a, E> {
    None,
    Going(BoxFuture<'a, All<E>>),
    Done(All<E>),
}

impl<'a, E> Opening<'a, E> {
    pub fn of(opening: Option<BoxFuture<'a, All<E>>>) -> Self {
        opening.map_or(Self::None, Self::Going)
    }

    /// Goes on with it.
    pub fn go_on(&mut self, context: &mut Context<'_>) {
        if let Self::Going(opening) = self
            && let Poll::Ready(units) = opening.poll_unpin(context)
        {
            *self = Self::Done(units);
        }
    }

    /// What was opened, once it is.
    pub fn poll_units(&mut self, context: &mut Context<'_>) -> Poll<All<E>> {
        self.go_on(context);
        match std::mem::replace(self, Self::None) {
            Self::Done(units) => Poll::Ready(units),
            under_way => {
                *self = under_way;
                Poll::Pending
            }
        }
    }
}

/// When units that could not be opened are tried again.
#[derive(Debug, Default)]
pub(super) struct Retries {
    at: Option<Instant>,
    after: Duration,
}

impl Retries {
    /// After another time that failed.
    pub fn again(self) -> Self {
        let after = if self.after.is_zero() { FIRST_RETRY } else { (self.after * 2).min(LAST_RETRY) };
        Self { at: Some(Instant::now() + after), after }
    }

    /// Whether it is time, which it is once.
    pub fn is_due(&mut self) -> bool {
        self.at.take_if(|at| *at <= Instant::now()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_less_and_less_often() {
        let mut retries = Retries::default();
        assert!(!retries.is_due());
        let mut waits = Vec::new();
        for _ in 0..8 {
            retries = retries.again();
            waits.push(retries.after.as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(!retries.is_due());
        retries.at = Some(Instant::now());
        assert!(retries.is_due() && !retries.is_due());
    }
}
