//! One request to the kernel, on its way through a ring or done at once.
//!
//! # The idea
//! A [`Request`] owns everything that the kernel needs: the buffer most of all. It goes into [`perform`] and
//! comes back with the result, as one value. While it is in a ring it lives in an [`Op`], which the ring's
//! slot and the waiting future share. Whichever of the two lets go last frees it. So a future that is dropped
//! midway frees nothing under the kernel: the slot keeps the buffer and the file open until the completion
//! arrives.
//!
//! On a thread that drives no ring (see `executor`) the first poll performs the request with a plain system
//! call.

#![allow(unsafe_code, reason = "pointers that the kernel reads")]

use std::{
    future::Future,
    io::IoSlice,
    mem,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use io_uring::{opcode, squeue, types};
use rustix::{
    fs::{self, FallocateFlags},
    io::{self, Errno, ReadWriteFlags},
};

use crate::executor;
use crate::ring::{self, Place};
use crate::{IgnorePoison, IoBuf, SharedBuf};

/// The most that one system call is asked to move; the kernel moves no more than 2 GiB less a page.
const MAX_TRANSFER_BYTES: usize = 1 << 30;
/// The most parts that one system call takes (`IOV_MAX`).
const MAX_VECTORS: usize = 1024;

/// A request to the kernel, with its memory.
#[derive(Debug)]
pub(crate) enum Request {
    /// Fill the buffer's window, from `done` on, with what is at `offset + done`.
    Read(Transfer),
    /// Write the buffer's window, from `done` on, to `offset + done`.
    Write(Transfer),
    /// Write the parts, from `done` on, to `offset + done`.
    Gather(Gather),
    /// Make what was written durable.
    Sync,
    /// Cancel a range.
    Punch { offset: u64, len: u64 },
}

/// A buffer and its place in the file.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) buf: IoBuf,
    pub(crate) done: usize,
    pub(crate) offset: u64,
}

/// Buffers that stand one after the other in the file.
#[derive(Debug)]
pub(crate) struct Gather {
    parts: Vec<SharedBuf>,
    len: usize,
    done: usize,
    offset: u64,
    durably: bool,
    /// The parts as the kernel gets them; it may read them until the completion.
    vectors: Vectors,
}

#[derive(Debug, Default)]
struct Vectors(Vec<libc::iovec>);

// SAFETY: the pointers are to the parts beside it, which move with it and are never written to.
unsafe impl Send for Vectors {}

impl Gather {
    /// With `durably`, what was written is durable when it is done.
    pub(crate) fn new(offset: u64, parts: Vec<SharedBuf>, durably: bool) -> Self {
        let len = parts.iter().map(|part| part.len()).sum();
        Self { parts, len, done: 0, offset, durably, vectors: Vectors::default() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done >= self.len
    }

    pub(crate) fn advance(&mut self, count: usize) {
        self.done += count;
    }

    fn position(&self) -> u64 {
        self.offset + self.done as u64
    }

    fn flags(&self) -> ReadWriteFlags {
        if self.durably { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() }
    }

    /// The remaining parts, as many as one system call takes.
    fn left(&self) -> impl Iterator<Item = &[u8]> {
        let mut before = self.done;
        let left = self.parts.iter().filter_map(move |part| {
            let skipped = before.min(part.len());
            before -= skipped;
            part.get(skipped..).filter(|left| !left.is_empty())
        });
        left.take(MAX_VECTORS)
    }
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
                Request::Gather(gather) => {
                    let left: Vec<IoSlice<'_>> = gather.left().map(IoSlice::new).collect();
                    io::pwritev2(file, &left, gather.position(), gather.flags())
                }
                Request::Sync => fs::fdatasync(file).map(|()| 0),
                Request::Punch { offset, len } => fs::fallocate(file, PUNCH, *offset, *len).map(|()| 0),
            };
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }

    /// The ring's form of the request. It points into the buffer, which must neither move nor be freed until
    /// the completion.
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
            Request::Gather(gather) => {
                let vector = |bytes: &[u8]| libc::iovec {
                    iov_base: bytes.as_ptr().cast_mut().cast(),
                    iov_len: bytes.len(),
                };
                gather.vectors = Vectors(gather.left().map(vector).collect());
                let vectors = &gather.vectors.0;
                opcode::Writev::new(fd, vectors.as_ptr(), vectors.len() as u32)
                    .offset(gather.position())
                    .rw_flags(gather.flags().bits() as i32)
                    .build()
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
    /// The ring has it. No code touches the request's buffer.
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

    /// The ring's form of the request; see [`Request::entry`]. The caller must keep the `Op` until the
    /// completion.
    pub(crate) fn entry(&self) -> squeue::Entry {
        match &mut *self.state.lock().ignore_poison() {
            State::Flying { request, .. } => request.entry(&self.file),
            State::Landed(_) | State::Taken => unreachable!("an op enters its ring once"),
        }
    }

    /// What it reads, and where to, if it is a read. The caller must keep the `Op` until the completion.
    pub(crate) fn place(&self) -> Option<Place> {
        match &mut *self.state.lock().ignore_poison() {
            State::Flying { request: Request::Read(transfer), .. } => {
                let offset = transfer.position();
                let left = transfer.left();
                Some(Place { fd: self.file.as_raw_fd(), offset, memory: left.as_mut_ptr(), len: left.len() })
            }
            _ => None,
        }
    }

    /// Performs the request here and now: for an op that no ring can take.
    pub(crate) fn land_synchronously(&self) {
        let state = mem::replace(&mut *self.state.lock().ignore_poison(), State::Taken);
        if let State::Flying { mut request, waker } = state {
            executor::hand_duty_over();
            let result = request.perform_now(&self.file);
            *self.state.lock().ignore_poison() = State::Landed((result, request));
            waker.wake();
        }
    }

    /// The completion arrived: keeps the outcome for the future and wakes it.
    pub(crate) fn land(&self, result: i32) {
        let result = match usize::try_from(result) {
            Ok(count) => Ok(count),
            Err(_) => Err(Errno::from_raw_os_error(result.wrapping_neg())),
        };
        let mut state = self.state.lock().ignore_poison();
        if let State::Flying { request, waker } = mem::replace(&mut *state, State::Taken) {
            *state = State::Landed((result, request));
            drop(state);
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Option<Outcome> {
        let mut state = self.state.lock().ignore_poison();
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
