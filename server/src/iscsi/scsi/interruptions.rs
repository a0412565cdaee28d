//! Commands that another session ends: resets of the unit, cleared task sets, and preemption.
//!
//! # The idea
//! All sessions of a volume are its *members*. One that interrupts the others marks each of them, and wakes
//! its session, which ends what it has under way there: commands that have not begun are answered at once
//! (TASK ABORTED), those that run when they are done. Nothing that an initiator sent before an interruption
//! may change the volume after the interruption was answered, because hosts fence each other in this way. So
//! each command that runs holds the *epoch* in which it began, and an interruption ends only when the epoch
//! before it does.
//!
//! A member is marked before the epoch changes, and a command looks for the mark after it took the epoch: it
//! is either waited for, or sees that it must not begin.
//!
//! Source of the facts: SAM-5, sections 5.14, 6.3 and 7; RFC 7143, section 11.5.

use std::sync::{Arc, Mutex, Weak};

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};

use super::super::login::Initiator;
use super::sense::Sense;

/// Why a session's commands are ended by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::iscsi) enum Interruption {
    /// The unit was reset, of which the session is told in any case.
    Reset(Sense),
    /// All commands were ended, of which the session is told if it had some.
    Cleared,
    /// The initiator lost its registration, of which it is told elsewhere.
    Preempted,
}

/// The unit of one session among those of the same volume.
#[derive(Debug)]
pub(super) struct Member {
    pub initiator: Initiator,
    marked: Mutex<Option<Interruption>>,
    attention: Mutex<Option<Sense>>,
    wake: Arc<Notify>,
}

impl Member {
    /// Whether its commands are to end, and none is to begin before that was taken up.
    pub fn is_interrupted(&self) -> bool {
        self.marked.lock().ignore_poison().is_some()
    }

    /// Takes up that its commands are to end.
    pub fn take_interruption(&self) -> Option<Interruption> {
        self.marked.lock().ignore_poison().take()
    }

    /// The initiator is to be told this with its next command.
    pub fn tell(&self, attention: Sense) {
        *self.attention.lock().ignore_poison() = Some(attention);
    }

    /// What the initiator is to be told, once.
    pub fn take_attention(&self) -> Option<Sense> {
        self.attention.lock().ignore_poison().take()
    }

    fn interrupt(&self, why: Interruption) {
        if let Interruption::Reset(sense) = why {
            self.tell(sense);
        }
        *self.marked.lock().ignore_poison() = Some(why);
        self.wake.notify_one();
    }
}

/// A command that runs, as long as this is kept.
#[derive(Debug)]
pub(in crate::iscsi) struct Running(#[allow(dead_code, reason = "held")] watch::Receiver<()>);

/// The units that sessions have of one volume.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: Mutex<Vec<Weak<Member>>>,
    /// Commands that run have its receivers.
    epoch: Mutex<watch::Sender<()>>,
}

impl Members {
    /// One more, whose session is woken through this.
    pub fn add(&self, initiator: Initiator, wake: Arc<Notify>) -> Arc<Member> {
        let (marked, attention) = (Mutex::default(), Mutex::default());
        let member = Arc::new(Member { initiator, marked, attention, wake });
        let mut all = self.all.lock().ignore_poison();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&member));
        member
    }

    /// A command begins to run.
    pub fn begin(&self) -> Running {
        Running(self.epoch.lock().ignore_poison().subscribe())
    }

    /// Interrupts the members that are meant. Ready when all commands have ended that ran then.
    pub fn interrupt(&self, why: Interruption, is_meant: impl Fn(&Member) -> bool) -> BoxFuture<'static, ()> {
        let all: Vec<_> = self.all.lock().ignore_poison().iter().filter_map(Weak::upgrade).collect();
        all.iter().filter(|member| is_meant(member)).for_each(|member| member.interrupt(why));
        let before = std::mem::take(&mut *self.epoch.lock().ignore_poison());
        async move { before.closed().await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_ends_with_the_commands_that_ran() {
        let members = Members::default();
        let wake = Arc::new(Notify::new());
        let initiator = |name: &str| Initiator { name: name.into(), isid: [0; 6] };
        let [one, other] = ["one", "other"].map(|name| members.add(initiator(name), Arc::clone(&wake)));
        let (ran, of_one) = (members.begin(), members.begin());
        let reset = Interruption::Reset(Sense::RESET);
        let mut ended = members.interrupt(reset, |member| !std::ptr::eq(member, &*one));
        assert!(!one.is_interrupted() && other.is_interrupted() && wake.notified().now_or_never().is_some());
        // What begins from now on is not waited for.
        let later = members.begin();
        drop(ran);
        assert!((&mut ended).now_or_never().is_none());
        drop(of_one);
        assert!(ended.now_or_never().is_some());
        drop(later);
        assert_eq!((one.take_attention(), other.take_attention()), (None, Some(Sense::RESET)));
        assert_eq!((other.take_interruption(), other.take_interruption()), (Some(reset), None));
    }
}
