//! One request to the kernel, on its way through a ring or done at once.
//!
//! # The idea
//! A [`Request`] owns everything that the kernel needs: the buffer most of all. It goes into [`perform`] and comes back with the
//! result, as one value. While it is in a ring it lives in an [`Op`], which the ring's slot and the waiting future share.
//! Whichever of the two lets go last frees it. So a future that is dropped midway frees nothing under the kernel: the slot
//! keeps the buffer and the file open until the completion arrives.
//!
//! On a thread that drives no ring (see `executor`) the first poll performs the request with a plain system call.

use std::{
    future::Future,
    mem,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use io_uring::{opcode, squeue, types};
use rustix::{
    fs::{self, FallocateFlags},
    io::{self, Errno},
};

use crate::{IoBuf, ring};

/// The most that one system call is asked to move; the kernel moves no more than 2 GiB less a page.
const MAX_TRANSFER_BYTES: usize = 1 << 30;

/// What is asked of the kernel, with all that it needs.
#[derive(Debug)]
pub(crate) enum Request {
    /// Fill the buffer's window, from `done` on, with what is at `offset + done`.
    Read(Transfer),
    /// Write the buffer's window, from `done` on, to `offset + done`.
    Write(Transfer),
    /// Make what was written durable.
    Sync,
    /// Give up a range.
    Punch { offset: u64, len: u64 },
}

/// A buffer and its place in the file.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) buf: IoBuf,
    pub(crate) done: usize,
    pub(crate) offset: u64,
}

impl Transfer {
    fn left(&mut self) -> &mut [u8] {
        let end = self.buf.len().min(self.done.saturating_add(MAX_TRANSFER_BYTES));
        &mut self.buf[self.done..end]
    }

    fn position(&self) -> u64 {
        self.offset + self.done as u64
    }
}

impl Request {
    fn perform_now(&mut self, file: &OwnedFd) -> io::Result<usize> {
        loop {
            let result = match self {
                Request::Read(transfer) => {
                    let position = transfer.position();
                    io::pread(file, transfer.left(), position)
                }
                Request::Write(transfer) => {
                    let position = transfer.position();
                    io::pwrite(file, transfer.left(), position)
                }
                Request::Sync => fs::fdatasync(file).map(|()| 0),
                Request::Punch { offset, len } => fs::fallocate(file, PUNCH, *offset, *len).map(|()| 0),
            };
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }

    /// The ring's form of the request. It points into the buffer, which must neither move nor be freed until the completion.
    fn entry(&mut self, file: &OwnedFd) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        match self {
            Request::Read(transfer) => {
                let position = transfer.position();
                let left = transfer.left();
                opcode::Read::new(fd, left.as_mut_ptr(), left.len() as u32).offset(position).build()
            }
            Request::Write(transfer) => {
                let position = transfer.position();
                let left = transfer.left();
                opcode::Write::new(fd, left.as_ptr(), left.len() as u32).offset(position).build()
            }
            Request::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Request::Punch { offset, len } => {
                opcode::Fallocate::new(fd, *len).offset(*offset).mode(PUNCH.bits() as i32).build()
            }
        }
    }
}

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// The result of a request and the request itself.
pub(crate) type Outcome = (io::Result<usize>, Request);

/// Performs `request` on `file`: through this thread's ring where it drives one, at once where not.
pub(crate) fn perform(file: Arc<OwnedFd>, request: Request) -> Performing {
    Performing::Asked(file, request)
}

/// The future of [`perform`].
pub(crate) enum Performing {
    Asked(Arc<OwnedFd>, Request),
    InRing(Arc<Op>),
    Done,
}

impl Future for Performing {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            match mem::replace(&mut *self, Performing::Done) {
                Performing::Asked(file, mut request) => {
                    if !ring::is_driven() {
                        return Poll::Ready((request.perform_now(&file), request));
                    }
                    let op = Arc::new(Op::new(file, request, context.waker().clone()));
                    ring::start(&op);
                    *self = Performing::InRing(op);
                    return Poll::Pending;
                }
                Performing::InRing(op) => match op.poll(context.waker()) {
                    None => {
                        *self = Performing::InRing(op);
                        return Poll::Pending;
                    }
                    // The kernel asks to try again: it had no memory to queue with, or a signal came between.
                    Some((Err(Errno::AGAIN | Errno::INTR), request)) => {
                        *self = Performing::Asked(Arc::clone(&op.file), request);
                    }
                    Some(outcome) => return Poll::Ready(outcome),
                },
                Performing::Done => panic!("polled after completion"),
            }
        }
    }
}

/// A request in a ring, shared by the ring's slot and the future.
pub(crate) struct Op {
    file: Arc<OwnedFd>,
    state: Mutex<State>,
}

enum State {
    /// The ring has it. Nobody touches the request's buffer.
    Flying { request: Request, waker: Waker },
    /// Completed; the future has not looked yet.
    Landed(Outcome),
    /// The future took the outcome.
    Taken,
}

impl Op {
    fn new(file: Arc<OwnedFd>, request: Request, waker: Waker) -> Self {
        Self { file, state: Mutex::new(State::Flying { request, waker }) }
    }

    /// The ring's form of the request; see [`Request::entry`]. The caller must keep the `Op` until the completion.
    pub(crate) fn entry(&self) -> squeue::Entry {
        match &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Flying { request, .. } => request.entry(&self.file),
            State::Landed(_) | State::Taken => unreachable!("an op enters its ring once"),
        }
    }

    /// Performs the request here and now: for an op that no ring can take.
    pub(crate) fn land_synchronously(&self) {
        let state =
            mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Taken);
        if let State::Flying { mut request, waker } = state {
            let result = request.perform_now(&self.file);
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Landed((result, request));
            waker.wake();
        }
    }

    /// The completion arrived: keeps the outcome for the future and wakes it.
    pub(crate) fn land(&self, result: i32) {
        let result = match usize::try_from(result) {
            Ok(count) => Ok(count),
            Err(_) => Err(Errno::from_raw_os_error(result.wrapping_neg())),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Flying { request, waker } = mem::replace(&mut *state, State::Taken) {
            *state = State::Landed((result, request));
            drop(state);
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Option<Outcome> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Flying { waker: held, .. } = &mut *state {
            held.clone_from(waker);
            return None;
        }
        match mem::replace(&mut *state, State::Taken) {
            State::Landed(outcome) => Some(outcome),
            State::Flying { .. } | State::Taken => None,
        }
    }
}
