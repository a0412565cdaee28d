//! Requests and replies, after the handshake.
//!
//! # The idea
//! A connection is polled as one state machine: take finished reads from the disks, start the requests in the
//! input buffer, write the replies that are ready, read more requests. It repeats until nothing moves.
//!
//! A started request is a future in a *slot* (a pinned allocation that is used again and again), with a
//! pooled, page-aligned buffer for its data. The slot is polled once at once. A request for cached data is
//! done then, its slot is free again and its reply queued. A request that waits moves, slot and all, to
//! `waiting`.
//!
//! # Invariants
//! - Requests under way (waiting or replied but unsent) are at most [`MAX_REQUESTS`], and their bytes at most
//!   [`MAX_BYTES`], except for the one that passed the limit. Beyond that no input is taken until replies
//!   have left. A request whose bytes need more memory than the client has is *postponed*, with everything
//!   after it, until `limits` lends it more.
//! - Every request gets exactly one reply, in any order. A flush covers the writes that were replied to
//!   before it came.
//! - The bytes of a write are read into a buffer of its own as far as they have arrived; until all are there
//!   nothing else is taken from the input. The bytes of a write that will be refused are discarded.
//! - Requests before the client's disconnect are completed first.
//! - A connection that is to come to a boundary (`parks`) starts no request, and is there when none waits. What
//!   was read of requests and what did not leave of replies goes along, byte by byte.
//! - A request that breaks the framing ends the connection; its neighbours' replies may be lost, as with a
//!   broken wire.

use std::{
    collections::VecDeque,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use device::IoBuf;
use futures_util::{StreamExt, stream::FuturesUnordered};
use rustix::net::{AddressFamily, sockopt::socket_domain};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{MAX_REQUEST_BYTES, PROTOCOL, PROTOCOL_OVER_TCP, extents, handshake::Session, protocol::*};
use crate::block::{Export, ExportError, FailureKind, Gathered, Loan, Seat};
use crate::gate::{Guest, Movable, Parked, Told};

/// Requests of a connection that are under way.
const MAX_REQUESTS: usize = 256;

/// Bytes of replies of a connection that are under way.
const MAX_BYTES: usize = 32 << 20;

/// Replies of this size are written before more requests are started: their memory is still in the
/// processor's cache.
const WRITE_BATCH_BYTES: usize = 512 << 10;

/// The input buffer: more than a thousand requests without data, or as many small writes as clients have
/// under way.
const INPUT_BYTES: usize = 32 << 10;
const WRITABLE_INPUT_BYTES: usize = 256 << 10;

/// Slices of one vectored write: two for each reply of one block.
const MAX_SLICES: usize = 128;

/// What a connection begins with that another task, or another daemon, served before.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// Bytes of replies that did not leave.
    pub unsent: Vec<u8>,
    /// Bytes of the payload of a refused write that are still to come.
    pub skip_bytes: u32,
}

/// Serves the session until the client leaves, or another task is to go on.
pub(super) async fn serve<S, E>(
    socket: S,
    session: Session<E>,
    seat: Seat,
    guest: &Guest,
    before: Before,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Movable,
    E: Export,
{
    let session = Arc::new(session);
    guest.is_served(match session.export.name() {
        Some(name) => format!("an NBD client of '{name}'"),
        None => "an NBD client".to_owned(),
    });
    let is_writable = session.export.is_writable();
    let start = {
        let session = Arc::clone(&session);
        move |request| answer(Arc::clone(&session), request)
    };
    let mut output = Output::default();
    if !before.unsent.is_empty() {
        output.push(Reply { head: Head::none(), payload: Payload::Bytes(before.unsent) });
    }
    let mut input = Input::new(if is_writable { WRITABLE_INPUT_BYTES } else { INPUT_BYTES });
    input.skip(before.skip_bytes);
    let mut connection = Connection {
        socket,
        size_bytes: {
            let session = Arc::clone(&session);
            move || session.export.size_bytes()
        },
        is_elsewhere: {
            let session = Arc::clone(&session);
            move || session.export.is_elsewhere()
        },
        is_writable,
        structured: session.structured,
        base_allocation: session.base_allocation,
        start,
        input,
        incoming: None,
        free_slots: Vec::new(),
        waiting: FuturesUnordered::new(),
        waiting_bytes: 0,
        has_begun: false,
        output,
        postponed: None,
        loan: Loan::none(seat),
        moved_bytes: 0,
        is_leaving: false,
        parks: false,
    };
    loop {
        let ended = std::future::poll_fn(|context| {
            connection.parks = guest.is_to_park(context);
            connection.poll(context)
        });
        match ended.await? {
            End::Left => return Ok(()),
            End::AtBoundary => {
                let parked = session.export.name().and_then(|volume| connection.parked(volume));
                if !guest.park(parked).await {
                    return Ok(());
                }
            }
        }
    }
}

/// Why a connection is not polled any more.
enum End {
    /// The client left.
    Left,
    /// Nothing of it is under way.
    AtBoundary,
}

/// A request that is answered by the export.
#[derive(Debug)]
enum Asked {
    Read(Request),
    BlockStatus(Request),
    Write(Request, IoBuf),
    Trim(Request),
    WriteZeroes(Request),
    Flush(Request),
}

impl Asked {
    fn request(&self) -> &Request {
        match self {
            Asked::Read(request)
            | Asked::BlockStatus(request)
            | Asked::Write(request, _)
            | Asked::Trim(request)
            | Asked::WriteZeroes(request)
            | Asked::Flush(request) => request,
        }
    }

    /// The memory of the request and its reply.
    fn bytes(&self) -> usize {
        match self {
            Asked::Read(request) | Asked::Write(request, _) => request.len_bytes as usize,
            _ => 0,
        }
    }
}

/// A request that was looked at.
#[derive(Debug)]
enum Checked {
    /// The export can answer it.
    Asked(Asked),
    /// A write whose bytes come next.
    Payload(Request),
}

impl Checked {
    fn request(&self) -> &Request {
        match self {
            Checked::Asked(asked) => asked.request(),
            Checked::Payload(request) => request,
        }
    }

    /// The memory of the request and its reply.
    fn bytes(&self) -> usize {
        match self {
            Checked::Asked(asked) => asked.bytes(),
            Checked::Payload(request) => request.len_bytes as usize,
        }
    }
}

/// A write whose bytes have not all arrived.
#[derive(Debug)]
struct Incoming {
    request: Request,
    data: IoBuf,
    filled: usize,
}

/// Head and payload of a reply.
struct Reply {
    head: Head,
    payload: Payload,
}

enum Payload {
    None,
    Data(Gathered),
    Bytes(Vec<u8>),
}

impl Reply {
    fn done(cookie: u64) -> Self {
        Self { head: Head::simple(cookie, None), payload: Payload::None }
    }

    fn failed(cookie: u64, structured: bool, error: &ExportError) -> Self {
        if !structured {
            return Self { head: Head::simple(cookie, Some(error.kind.into())), payload: Payload::None };
        }
        let message = error.message.as_bytes();
        let message = &message[..message.len().min(4096)];
        let mut bytes = Vec::with_capacity(6 + message.len());
        bytes.extend((Errno::from(error.kind) as u32).to_be_bytes());
        bytes.extend((message.len() as u16).to_be_bytes());
        bytes.extend(message);
        Self { head: Head::chunk(cookie, chunk::ERROR, bytes.len() as u32), payload: Payload::Bytes(bytes) }
    }

    fn refused(cookie: u64, errno: Errno) -> Self {
        Self { head: Head::simple(cookie, Some(errno)), payload: Payload::None }
    }

    fn len(&self) -> usize {
        let payload = match &self.payload {
            Payload::None => 0,
            Payload::Data(data) => data.len(),
            Payload::Bytes(bytes) => bytes.len(),
        };
        self.head.as_bytes().len() + payload
    }

    /// Its bytes, in order.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (data, bytes) = match &self.payload {
            Payload::None => (None, None),
            Payload::Data(data) => (Some(data.parts()), None),
            Payload::Bytes(bytes) => (None, Some(bytes.as_slice())),
        };
        std::iter::once(self.head.as_bytes()).chain(data.into_iter().flatten()).chain(bytes)
    }
}

/// Answers a request whose range has been checked.
async fn answer<E: Export>(session: Arc<Session<E>>, asked: Asked) -> Reply {
    let &Request { cookie, offset, len_bytes, flags, .. } = asked.request();
    let export = &*session.export;
    let length = u64::from(len_bytes);
    let stable = flags & command_flag::FUA != 0;
    let done = |()| Reply::done(cookie);
    let result = match asked {
        Asked::Read(_) => {
            let mut data = Gathered::new(len_bytes as usize);
            export.read_to(offset, len_bytes as usize, &mut data).await.map(|()| Reply {
                head: match session.structured {
                    true => Head::data_chunk(cookie, offset, len_bytes),
                    false => Head::simple(cookie, None),
                },
                payload: Payload::Data(data),
            })
        }
        Asked::BlockStatus(_) => {
            let only_first = flags & command_flag::REQ_ONE != 0;
            extents::describe(export, offset, len_bytes, only_first).await.map(|payload| Reply {
                head: Head::chunk(cookie, chunk::BLOCK_STATUS, payload.len() as u32),
                payload: Payload::Bytes(payload),
            })
        }
        Asked::Write(_, data) => export.write(offset, data, stable).await.map(done),
        Asked::Trim(_) => export.trim(offset, length, stable).await.map(done),
        Asked::WriteZeroes(_) => {
            let allocate = flags & command_flag::NO_HOLE != 0;
            export.write_zeroes(offset, length, allocate, stable).await.map(done)
        }
        Asked::Flush(_) => export.flush().await.map(done),
    };
    result.unwrap_or_else(|error| {
        tracing::warn!(offset, len_bytes, %error, "a request failed");
        Reply::failed(cookie, session.structured, &error)
    })
}

/// Memory for one request's future, used again and again.
type Slot<F> = Pin<Box<Option<F>>>;

/// A request that waits: completes with its reply and the slot.
struct Waiting<F> {
    slot: Option<Slot<F>>,
    bytes: usize,
}

impl<F: Future<Output = Reply>> Future for Waiting<F> {
    type Output = (Reply, Slot<F>, usize);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = &mut self.slot else { return Poll::Pending };
        let reply = ready!(poll_slot(slot, context));
        match self.slot.take() {
            Some(slot) => Poll::Ready((reply, slot, self.bytes)),
            None => Poll::Pending,
        }
    }
}

/// Polls the slot's future, and frees it when it is done.
fn poll_slot<F: Future<Output = Reply>>(slot: &mut Slot<F>, context: &mut Context<'_>) -> Poll<Reply> {
    let Some(future) = slot.as_mut().as_pin_mut() else { return Poll::Pending };
    let reply = ready!(future.poll(context));
    slot.set(None);
    Poll::Ready(reply)
}

struct Connection<S, Z, W, M, F> {
    socket: S,
    /// The size at present.
    size_bytes: Z,
    /// Whether another host has the volume by now.
    is_elsewhere: W,
    is_writable: bool,
    structured: bool,
    base_allocation: bool,
    start: M,
    input: Input,
    incoming: Option<Incoming>,
    free_slots: Vec<Slot<F>>,
    waiting: FuturesUnordered<Waiting<F>>,
    waiting_bytes: usize,
    /// Requests began to wait since devices were told last.
    has_begun: bool,
    output: Output,
    /// Waits for memory.
    postponed: Option<Checked>,
    loan: Loan,
    /// Bytes that the client took or sent.
    moved_bytes: u64,
    /// The client said that it is to be the end.
    is_leaving: bool,
    /// It is to come to a boundary.
    parks: bool,
}

impl<S, Z, W, M, F> Connection<S, Z, W, M, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    Z: Fn() -> u64,
    W: Fn() -> bool,
    M: Fn(Asked) -> F,
    F: Future<Output = Reply>,
{
    /// What another task needs to go on with the client. Nothing where none can.
    fn parked(&mut self, volume: String) -> Option<Parked>
    where
        S: Movable,
    {
        self.loan.leave_line();
        let (socket, unread) = match self.socket.moved()? {
            Ok(moved) => moved,
            Err(error) => {
                tracing::warn!(volume, %error, "an NBD client cannot be handed over");
                return None;
            }
        };
        let mut bytes = Vec::new();
        if let Some(checked) = &self.postponed {
            bytes.extend(checked.request().encode());
        }
        if let Some(Incoming { request, data, filled }) = &self.incoming {
            bytes.extend(request.encode());
            bytes.extend(data.iter().take(*filled));
        }
        bytes.extend(self.input.unparsed());
        bytes.extend(unread);
        let read_bytes = bytes.len() as u64;
        self.output.unsent(&mut bytes);
        let facts = [
            ("structured", u64::from(self.structured)),
            ("base:allocation", u64::from(self.base_allocation)),
            ("skip", self.input.skip as u64),
        ];
        let facts = facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect();
        let protocol = match socket_domain(&socket) {
            Ok(AddressFamily::UNIX) => PROTOCOL,
            _ => PROTOCOL_OVER_TCP,
        };
        let protocol = protocol.to_owned();
        let told = Told { protocol, volume, facts, read_bytes, ..Told::default() };
        Some(Parked { socket, told, bytes })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<End>> {
        loop {
            let mut moved = false;
            while let Poll::Ready(Some((reply, slot, bytes))) = self.waiting.poll_next_unpin(context) {
                self.waiting_bytes -= bytes;
                self.free_slots.push(slot);
                if (self.is_elsewhere)() {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "another host has taken the pool over",
                    )));
                }
                self.output.push(reply);
                moved = true;
            }
            moved |= self.receive(context);
            moved |= self.take_requests(context)?;
            if std::mem::take(&mut self.has_begun) {
                // Devices work while replies are written and more requests are looked at.
                device::submit_and_reap();
            }
            match self.output.poll_write(&mut self.socket, context) {
                Poll::Ready(Ok(written)) => {
                    self.moved_bytes += written as u64;
                    moved |= written > 0;
                }
                // The client is gone, but its requests must still be done.
                Poll::Ready(Err(_)) if self.is_leaving => self.output = Output::default(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
            if self.is_leaving && self.waiting.is_empty() && self.output.replies.is_empty() {
                return Poll::Ready(Ok(End::Left));
            }
            if self.parks && !self.is_leaving && self.waiting.is_empty() {
                return Poll::Ready(Ok(End::AtBoundary));
            }
            if let Poll::Ready(read) = self.poll_read(context)? {
                match read {
                    Some(0) if self.input.is_empty() && self.incoming.is_none() => {
                        return Poll::Ready(Ok(End::Left));
                    }
                    Some(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    Some(read) => {
                        self.moved_bytes += read as u64;
                        moved = true;
                    }
                    None => {}
                }
            }
            self.loan.shrink_to(self.bytes_under_way());
            if !moved {
                if !self.waiting.is_empty() {
                    // Requests that went on; a busy shard seldom sleeps, and only then submits by itself.
                    device::submit_and_reap();
                }
                let is_its_turn = self.incoming.is_some() || !self.output.replies.is_empty();
                if self.loan.poll_is_stalled(is_its_turn, self.moved_bytes, context).is_ready() {
                    return Poll::Ready(Err(violation("the client kept memory that others waited for")));
                }
                return Poll::Pending;
            }
        }
    }

    /// Starts the requests that are there, or replies to them, as far as there is room.
    fn take_requests(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        if !self.has_room() {
            self.loan.leave_line();
        }
        while self.incoming.is_none() && self.has_room() {
            let checked = match self.postponed.take() {
                Some(checked) => checked,
                None => {
                    let Some(request) = self.input.next_request()? else { break };
                    moved = true;
                    if request.command == command::DISC {
                        self.is_leaving = true;
                        break;
                    }
                    match self.check(request)? {
                        Ok(checked) => checked,
                        Err(reply) => {
                            self.output.push(reply);
                            continue;
                        }
                    }
                }
            };
            let bytes = self.bytes_under_way() + checked.bytes();
            if self.loan.poll_cover(bytes, context).is_pending() {
                self.postponed = Some(checked);
                break;
            }
            moved = true;
            match checked {
                Checked::Asked(asked) => self.start_request(asked, context),
                Checked::Payload(request) => {
                    let mut data = IoBuf::for_overwrite(request.len_bytes as usize);
                    let filled = self.input.take_bytes(&mut data);
                    self.incoming = Some(Incoming { request, data, filled });
                    self.receive(context);
                }
            }
        }
        Ok(moved)
    }

    fn bytes_under_way(&self) -> usize {
        self.waiting_bytes
            + self.output.bytes
            + self.incoming.as_ref().map_or(0, |incoming| incoming.data.len())
    }

    fn has_room(&self) -> bool {
        !self.is_leaving
            && !self.parks
            && self.waiting.len() + self.output.replies.len() < MAX_REQUESTS
            && self.waiting_bytes + self.output.bytes < MAX_BYTES
            && self.output.bytes < WRITE_BATCH_BYTES
    }

    /// Reads what is wanted next: the rest of a write's bytes, or requests. `None` when nothing is wanted.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<usize>>> {
        if self.parks {
            return Poll::Ready(Ok(None));
        }
        if let Some(Incoming { data, filled, .. }) = &mut self.incoming {
            let mut free = ReadBuf::new(&mut data[*filled..]);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut free))?;
            let read = free.filled().len();
            *filled += read;
            return Poll::Ready(Ok(Some(read)));
        }
        if !self.has_room() || self.input.is_full() {
            return Poll::Ready(Ok(None));
        }
        self.input.poll_read(&mut self.socket, context).map_ok(Some)
    }

    /// Starts the write whose bytes were awaited, once they are all there.
    fn receive(&mut self, context: &mut Context<'_>) -> bool {
        match self.incoming.take_if(|incoming| incoming.filled == incoming.data.len()) {
            Some(Incoming { request, data, .. }) => {
                self.start_request(Asked::Write(request, data), context);
                true
            }
            None => false,
        }
    }

    fn start_request(&mut self, asked: Asked, context: &mut Context<'_>) {
        let bytes = asked.bytes();
        let mut slot = self.free_slots.pop().unwrap_or_else(|| Box::pin(None));
        slot.set(Some((self.start)(asked)));
        match poll_slot(&mut slot, context) {
            Poll::Ready(reply) => {
                self.free_slots.push(slot);
                self.output.push(reply);
            }
            Poll::Pending => {
                self.has_begun = true;
                self.waiting_bytes += bytes;
                self.waiting.push(Waiting { slot: Some(slot), bytes });
            }
        }
    }

    /// The operation on the export, or the reply if none is needed. An error ends the connection.
    #[allow(clippy::result_large_err, reason = "a reply is sent as it is")]
    fn check(&mut self, request: Request) -> io::Result<Result<Checked, Reply>> {
        let Request { flags, command, cookie, offset, len_bytes } = request;
        let in_range = offset.checked_add(len_bytes.into()).is_some_and(|end| end <= (self.size_bytes)());
        let is_valid = in_range && len_bytes > 0;
        let only = |allowed: u16| flags & !allowed == 0;
        let changes = matches!(command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if changes && (!self.is_writable || !is_valid) {
            if command == command::WRITE {
                self.skip_payload(len_bytes)?;
            }
            let (kind, message) = match (self.is_writable, in_range) {
                (false, _) => (FailureKind::ReadOnly, "the export is read-only"),
                (_, false) => (FailureKind::NoSpace, "the range reaches past the end"),
                _ => (FailureKind::Invalid, "the range is empty"),
            };
            return Ok(Err(Reply::failed(cookie, self.structured, &error(kind, message))));
        }
        let asked = |asked| Ok(Checked::Asked(asked));
        Ok(match command {
            command::READ if is_valid && len_bytes <= MAX_REQUEST_BYTES && only(command_flag::DF) => {
                asked(Asked::Read(request))
            }
            command::BLOCK_STATUS if self.base_allocation && is_valid && only(command_flag::REQ_ONE) => {
                asked(Asked::BlockStatus(request))
            }
            // Replies to reads must be structured where that was agreed, also when they fail.
            command::READ | command::BLOCK_STATUS => {
                let error = error(FailureKind::Invalid, "the request is malformed or out of range");
                Err(Reply::failed(cookie, self.structured, &error))
            }
            command::WRITE if len_bytes <= MAX_REQUEST_BYTES && only(command_flag::FUA) => {
                Ok(Checked::Payload(request))
            }
            command::WRITE => {
                self.skip_payload(len_bytes)?;
                Err(Reply::refused(cookie, Errno::Inval))
            }
            command::TRIM if only(command_flag::FUA) => asked(Asked::Trim(request)),
            // Zeroes that are to take space are written one by one.
            command::WRITE_ZEROES
                if flags & command_flag::NO_HOLE != 0 && flags & command_flag::FAST_ZERO != 0 =>
            {
                Err(Reply::refused(cookie, Errno::NotSupported))
            }
            command::WRITE_ZEROES
                if only(command_flag::FUA | command_flag::NO_HOLE | command_flag::FAST_ZERO) =>
            {
                asked(Asked::WriteZeroes(request))
            }
            command::FLUSH if self.is_writable => asked(Asked::Flush(request)),
            command::FLUSH => Err(Reply::done(cookie)),
            command::CACHE if in_range => Err(Reply::done(cookie)),
            _ => Err(Reply::refused(cookie, Errno::Inval)),
        })
    }

    /// Reads past the bytes of a write that is refused.
    fn skip_payload(&mut self, len_bytes: u32) -> io::Result<()> {
        if len_bytes > MAX_REQUEST_BYTES {
            return Err(violation("a write is too long"));
        }
        self.input.skip(len_bytes);
        Ok(())
    }
}

fn error(kind: FailureKind, message: &str) -> ExportError {
    ExportError { kind, message: message.to_owned() }
}

/// Bytes from the socket that were not parsed yet: `buffer[start..end]`, after `skip` bytes to discard.
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    skip: usize,
}

impl Input {
    fn new(bytes: usize) -> Self {
        Self { buffer: vec![0; bytes].into_boxed_slice(), start: 0, end: 0, skip: 0 }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end && self.skip == 0
    }

    /// Whether a whole request is there, so that nothing more need be read to go on.
    fn is_full(&self) -> bool {
        self.skip == 0 && self.end - self.start >= Request::BYTES
    }

    /// What was read and not looked at.
    fn unparsed(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the next bytes, which may not have arrived yet: the payload of a refused write.
    fn skip(&mut self, bytes: u32) {
        self.skip += bytes as usize;
        self.drop_skipped();
    }

    /// Moves what is there to the front of `into`, and says how much that was.
    fn take_bytes(&mut self, into: &mut [u8]) -> usize {
        let taken = into.len().min(self.end - self.start);
        device::copy(&mut into[..taken], &self.buffer[self.start..self.start + taken]);
        self.start += taken;
        taken
    }

    fn drop_skipped(&mut self) {
        let dropped = self.skip.min(self.end - self.start);
        self.start += dropped;
        self.skip -= dropped;
    }

    fn next_request(&mut self) -> io::Result<Option<Request>> {
        if self.skip > 0 {
            return Ok(None);
        }
        let Some(bytes) = self.buffer[self.start..self.end].first_chunk() else { return Ok(None) };
        let request = Request::parse(bytes).ok_or_else(|| violation("no request magic"))?;
        self.start += Request::BYTES;
        Ok(Some(request))
    }

    /// Reads what the socket has, after moving a partial request to the front. 0 is the end of the stream.
    fn poll_read<S>(&mut self, socket: &mut S, context: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let mut free = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(Pin::new(socket).poll_read(context, &mut free))?;
        let read = free.filled().len();
        self.end += read;
        self.drop_skipped();
        Poll::Ready(Ok(read))
    }
}

/// Replies that have not left yet.
#[derive(Default)]
struct Output {
    replies: VecDeque<Reply>,
    /// The bytes of the first reply that have been sent.
    sent_of_first: usize,
    /// The bytes of all replies.
    bytes: usize,
}

impl Output {
    fn push(&mut self, reply: Reply) {
        self.bytes += reply.len();
        self.replies.push_back(reply);
    }

    /// Writes as much as the socket takes, and says how much that was.
    fn poll_write<S>(&mut self, socket: &mut S, context: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        let mut total = 0;
        while !self.replies.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let parts = self.replies.iter().flat_map(Reply::parts);
            let mut used = 0;
            let mut passed = self.sent_of_first;
            for part in parts {
                let hidden = passed.min(part.len());
                passed -= hidden;
                if hidden < part.len() {
                    slices[used] = IoSlice::new(&part[hidden..]);
                    used += 1;
                    if used == MAX_SLICES {
                        break;
                    }
                }
            }
            match Pin::new(&mut *socket).poll_write_vectored(context, &slices[..used]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    total += written;
                    self.sent(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if total > 0 => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(total))
    }

    /// Adds what did not leave.
    fn unsent(&self, into: &mut Vec<u8>) {
        let from = into.len() + self.sent_of_first;
        self.replies.iter().flat_map(Reply::parts).for_each(|part| into.extend_from_slice(part));
        into.drain(from - self.sent_of_first..from);
    }

    fn sent(&mut self, written: usize) {
        self.sent_of_first += written;
        while let Some(first) = self.replies.front()
            && self.sent_of_first >= first.len()
        {
            self.sent_of_first -= first.len();
            self.bytes -= first.len();
            self.replies.pop_front();
        }
    }
}

fn violation(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("transmission: {what}"))
}
