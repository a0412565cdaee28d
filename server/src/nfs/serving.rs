//! Connections, and the threads that do what clients ask for.
//!
//! # The idea
//! A connection has a thread that reads its requests, which sleeps most of the time and has a small stack.
//! Each request is done by one of [`WORKERS`] threads, which waits for devices through its own ring, and
//! sends the answer as far as the client takes it at once. What is left is sent by a thread that the
//! connection has for as long as answers wait. So neither a request that waits for a device nor a client that
//! takes no answers delays others. Answers leave in the order in which they are ready.
//!
//! # What clients can take
//! | what | at most |
//! |---|---|
//! | connections | [`MOST_CONNECTIONS`]; of one address [`MOST_OF_ONE`] |
//! | requests of a connection that are not answered | [`MOST_UNDER_WAY`]; its next one is not read before |
//! | bytes of long requests that are read or under way | [`MOST_LONG_BYTES`] of all connections together |
//! | bytes of answers that wait | [`MOST_WAITING_BYTES`] of all connections; one more ends its connection |
//! | time for the rest of a request, or for an answer to be taken | [`PATIENCE`] |
//! | time without a request | [`IDLE`] |

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use device::IgnorePoison;
use socket2::SockRef;

use super::call::{Context, Server};
use super::repeated::{Key, Repeated, Seen};
use super::rpc::{self, Refusal};
use super::rules::Rules;
use super::status::Status;
use super::xdr::Garbage;
use super::{Clients, mounting, procedures};
use crate::files::{Share, Shares};
use crate::listening::Listener;

/// Threads that do requests.
const WORKERS: usize = 32;
/// Most connections.
const MOST_CONNECTIONS: usize = 256;
/// Most connections from one address.
const MOST_OF_ONE: usize = 64;
/// Most requests of one connection that are not answered.
const MOST_UNDER_WAY: usize = 32;
/// Records up to here are read without asking for room.
const SHORT_BYTES: usize = 64 << 10;
/// The most bytes of longer ones at once.
const MOST_LONG_BYTES: usize = 64 << 20;
/// The most bytes of answers that wait for their clients.
const MOST_WAITING_BYTES: usize = 256 << 20;
/// How long the rest of a request may take, and an answer may wait for its client.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client may be silent.
const IDLE: Duration = Duration::from_secs(6 * 60);
/// The stack of a thread that reads requests.
const READER_STACK_BYTES: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    peer: SocketAddr,
    socket: TcpStream,
    outgoing: Mutex<Outgoing>,
    /// Bytes of answers that wait, of all connections.
    waiting_bytes: Arc<AtomicUsize>,
    under_way: Mutex<usize>,
    answered: Condvar,
}

impl Connection {
    fn end(&self) {
        // It may have ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn under_way(&self) -> MutexGuard<'_, usize> {
        self.under_way.lock().ignore_poison()
    }

    fn begin_request(&self) {
        let mut under_way = self.under_way();
        while *under_way >= MOST_UNDER_WAY {
            under_way = self.answered.wait(under_way).ignore_poison();
        }
        *under_way += 1;
    }

    fn end_request(&self) {
        *self.under_way() -= 1;
        self.answered.notify_one();
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().ignore_poison()
    }

    /// Sends an answer, or leaves that to the thread that sends what waits. The request has ended then.
    fn answer(self: &Arc<Self>, body: Vec<u8>) {
        let mut answer = Answer::new(body);
        let mut outgoing = self.outgoing();
        let sent = match outgoing.is_sending {
            true => Ok(false),
            false => answer.send(&self.socket, libc::MSG_DONTWAIT),
        };
        let waits = match sent {
            Ok(true) => return self.end_request(),
            Ok(false) => self.make_room(answer.body.len()),
            Err(error) => Err(error),
        };
        if let Err(error) = waits {
            drop(outgoing);
            return self.end_with(&error);
        }
        outgoing.waiting.push_back(answer);
        if std::mem::replace(&mut outgoing.is_sending, true) {
            return;
        }
        drop(outgoing);
        let connection = Arc::clone(self);
        let builder = thread::Builder::new().name("nfs-send".into()).stack_size(READER_STACK_BYTES);
        if let Err(error) = builder.spawn(move || connection.send_waiting()) {
            self.give_up(&error);
        }
    }

    fn make_room(&self, bytes: usize) -> io::Result<()> {
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= MOST_WAITING_BYTES {
            return Ok(());
        }
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Err(io::Error::other("there is no room for answers that wait"))
    }

    fn next_waiting(&self) -> Option<Answer> {
        let mut outgoing = self.outgoing();
        let next = outgoing.waiting.pop_front();
        outgoing.is_sending = next.is_some();
        next
    }

    /// Sends what waits, until nothing does.
    fn send_waiting(self: &Arc<Self>) {
        while let Some(mut answer) = self.next_waiting() {
            let sent = answer.send(&self.socket, 0);
            self.waiting_bytes.fetch_sub(answer.body.len(), Ordering::Relaxed);
            match sent {
                Ok(true) => self.end_request(),
                Ok(false) => {
                    self.end_with(&ErrorKind::TimedOut.into());
                    return self.give_up(&ErrorKind::TimedOut.into());
                }
                Err(error) => {
                    self.end_with(&error);
                    return self.give_up(&error);
                }
            }
        }
    }

    /// Ends the connection, and all requests whose answers wait.
    fn give_up(&self, error: &io::Error) {
        while let Some(answer) = self.next_waiting() {
            self.waiting_bytes.fetch_sub(answer.body.len(), Ordering::Relaxed);
            self.end_with(error);
        }
    }

    /// Ends the connection with a request whose answer does not leave.
    fn end_with(&self, error: &io::Error) {
        tracing::debug!(%error, client = %self.peer, "an answer was not taken");
        self.end();
        self.end_request();
    }
}

/// What leaves on a connection.
#[derive(Debug, Default)]
struct Outgoing {
    waiting: VecDeque<Answer>,
    /// A thread sends what waits.
    is_sending: bool,
}

/// An answer on its way.
#[derive(Debug)]
struct Answer {
    head: [u8; 4],
    body: Vec<u8>,
    /// Bytes of both that left.
    sent: usize,
}

impl Answer {
    fn new(body: Vec<u8>) -> Self {
        Self { head: (body.len() as u32 | 1 << 31).to_be_bytes(), body, sent: 0 }
    }

    /// Sends what is left. Whether all of it left: with `MSG_DONTWAIT` it may not, and without that flag when
    /// the client takes nothing for long.
    fn send(&mut self, socket: &TcpStream, flags: i32) -> io::Result<bool> {
        loop {
            let head = self.head.get(self.sent..).unwrap_or_default();
            let body = self.body.get(self.sent.saturating_sub(self.head.len())..).unwrap_or_default();
            if head.is_empty() && body.is_empty() {
                return Ok(true);
            }
            let parts = [io::IoSlice::new(head), io::IoSlice::new(body)];
            match SockRef::from(socket).send_vectored_with_flags(&parts, flags | libc::MSG_NOSIGNAL) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Room for long requests, taken before one is read and given back when it is answered.
#[derive(Debug, Default)]
struct Room {
    taken: Mutex<usize>,
    given: Condvar,
}

#[derive(Debug)]
struct Loan(Arc<Room>, usize);

impl Room {
    /// Waits for so many bytes, but no longer than clients are waited for.
    fn take(self: &Arc<Self>, bytes: usize) -> io::Result<Loan> {
        let deadline = Instant::now() + PATIENCE;
        let mut taken = self.taken.lock().ignore_poison();
        while *taken + bytes > MOST_LONG_BYTES {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no room for a request"));
            }
            taken = self.given.wait_timeout(taken, left).ignore_poison().0;
        }
        *taken += bytes;
        Ok(Loan(Arc::clone(self), bytes))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        *self.0.taken.lock().ignore_poison() -= self.1;
        self.0.given.notify_all();
    }
}

/// A request that was read.
struct Job {
    connection: Arc<Connection>,
    record: Vec<u8>,
    _loan: Option<Loan>,
}

/// What all threads share.
struct Shared<S> {
    server: Server<S>,
    jobs: Mutex<VecDeque<Job>>,
    has_job: Condvar,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    is_over: AtomicBool,
    room: Arc<Room>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl<S> Shared<S> {
    fn jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock().ignore_poison()
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.connections.lock().ignore_poison()
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.connections().values().for_each(|connection| connection.end());
        let _jobs = self.jobs();
        self.has_job.notify_all();
    }
}

/// Ends the threads when it is dropped.
struct Running<S>(Arc<Shared<S>>);

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Accepts connections until dropped, and serves them.
///
/// # Errors
/// The system gives no threads.
pub async fn serve<S: Shares>(
    mut listener: Listener,
    shares: S,
    clients: Arc<Clients>,
) -> io::Result<Infallible>
where
    S::Share: Share<Rules = Rules>,
{
    let running = Running(Arc::new(Shared {
        server: Server { shares, clients, repeated: Repeated::default() },
        jobs: Mutex::default(),
        has_job: Condvar::new(),
        connections: Mutex::default(),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        room: Arc::default(),
        waiting_bytes: Arc::default(),
    }));
    for _ in 0..WORKERS {
        let shared = Arc::clone(&running.0);
        let builder = thread::Builder::new().name("nfs".into()).stack_size(device::STACK_BYTES);
        builder.spawn(move || work(&shared))?;
    }
    loop {
        let (stream, peer) = listener.accept().await;
        if let Err(error) = stream.into_std().and_then(|stream| begin(&running.0, stream, peer)) {
            tracing::debug!(%error, client = %peer, "an NFS connection is not served");
        }
    }
}

/// Begins to read from a connection.
fn begin<S: Shares>(shared: &Arc<Shared<S>>, stream: TcpStream, peer: SocketAddr) -> io::Result<()>
where
    S::Share: Share<Rules = Rules>,
{
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_keepalive(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    let connection = Arc::new(Connection {
        number,
        peer,
        socket: stream,
        outgoing: Mutex::default(),
        waiting_bytes: Arc::clone(&shared.waiting_bytes),
        under_way: Mutex::default(),
        answered: Condvar::new(),
    });
    let of_one = |connections: &HashMap<u64, Arc<Connection>>, address: IpAddr| {
        connections.values().filter(|other| other.peer.ip() == address).count()
    };
    {
        let mut connections = shared.connections();
        if connections.len() >= MOST_CONNECTIONS || of_one(&connections, peer.ip()) >= MOST_OF_ONE {
            return Err(io::Error::other("there are too many connections"));
        }
        connections.insert(number, Arc::clone(&connection));
    }
    let for_thread = Arc::clone(shared);
    let read = move || {
        let (shared, connection) = (for_thread, connection);
        shared.server.clients.note(connection.peer.ip(), |client| client.connections += 1);
        if let Err(error) = read_requests(&shared, &connection) {
            tracing::debug!(%error, client = %connection.peer, "an NFS connection ended");
        }
        connection.end();
        shared.connections().remove(&connection.number);
        shared.server.clients.note(connection.peer.ip(), |client| {
            client.connections = client.connections.saturating_sub(1);
        });
    };
    let builder = thread::Builder::new().name("nfs-read".into()).stack_size(READER_STACK_BYTES);
    if let Err(error) = builder.spawn(read) {
        shared.connections().remove(&number);
        return Err(error);
    }
    Ok(())
}

/// Reads requests until the client goes away.
fn read_requests<S: Shares>(shared: &Shared<S>, connection: &Arc<Connection>) -> io::Result<()>
where
    S::Share: Share<Rules = Rules>,
{
    let mut socket = &connection.socket;
    loop {
        let Some(head) = read_head(socket)? else { return Ok(()) };
        if shared.is_over.load(Ordering::Acquire) {
            return Ok(());
        }
        let (length, is_last) = rpc::fragment(head);
        let is_long = length > SHORT_BYTES || !is_last;
        if is_long && !is_known(shared, connection.peer) {
            return Err(io::Error::other("a long request of a client that nothing is shared with"));
        }
        let loan = is_long.then(|| shared.room.take(rpc::MOST_RECORD_BYTES)).transpose()?;
        let mut until = Until { socket: &mut socket, deadline: Instant::now() + PATIENCE };
        let record = rpc::rest_of_record(&mut until, head)?;
        connection.begin_request();
        let job = Job { connection: Arc::clone(connection), record, _loan: loan };
        shared.jobs().push_back(job);
        shared.has_job.notify_one();
    }
}

/// Whether anything is shared with a client.
fn is_known<S: Shares>(shared: &Shared<S>, peer: SocketAddr) -> bool
where
    S::Share: Share<Rules = Rules>,
{
    let listed = shared.server.shares.listed();
    listed
        .iter()
        .any(|share| share.rules().is_some_and(|rules| rules.grant(peer.ip(), peer.port()).is_some()))
}

/// The head of the next request; nothing where the client is gone, or silent for long.
fn read_head(mut socket: &TcpStream) -> io::Result<Option<[u8; 4]>> {
    let mut head = [0; 4];
    let since = Instant::now();
    let first = loop {
        match socket.read(&mut head) {
            Ok(0) => return Ok(None),
            Ok(first) => break first,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if since.elapsed() >= IDLE {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    };
    if let Some(rest) = head.get_mut(first..) {
        socket.read_exact(rest)?;
    }
    Ok(Some(head))
}

/// A socket that is read until a moment.
struct Until<'a, R> {
    socket: &'a mut R,
    deadline: Instant,
}

impl<R: Read> Read for Until<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match Instant::now() < self.deadline {
            true => self.socket.read(into),
            false => Err(io::Error::new(ErrorKind::TimedOut, "a request that does not end")),
        }
    }
}

/// Does requests until the end.
fn work<S: Shares>(shared: &Shared<S>)
where
    S::Share: Share<Rules = Rules>,
{
    loop {
        let job = {
            let mut jobs = shared.jobs();
            loop {
                if shared.is_over.load(Ordering::Acquire) {
                    return;
                }
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => jobs = shared.has_job.wait(jobs).ignore_poison(),
                }
            }
        };
        let Job { connection, record, _loan } = job;
        match answered(&shared.server, &record, connection.peer) {
            Ok(Some(answer)) => {
                drop(record);
                connection.answer(answer);
                continue;
            }
            Ok(None) => {}
            Err(Garbage) => connection.end(),
        }
        connection.end_request();
    }
}

/// The answer to a request; none to one that is under way already.
fn answered<S: Shares>(
    server: &Server<S>,
    record: &[u8],
    peer: SocketAddr,
) -> Result<Option<Vec<u8>>, Garbage>
where
    S::Share: Share<Rules = Rules>,
{
    let (call, mut arguments) = rpc::call(record)?;
    let call = match call {
        Ok(call) => call,
        Err((number, refusal)) => return Ok(Some(refusal.answer(number))),
    };
    server.clients.note(peer.ip(), |client| client.requests += 1);
    let context = Context { server, peer, call: &call };
    let is_once = call.program == procedures::PROGRAM && procedures::is_once(call.procedure);
    let key = is_once.then(|| Key::of(peer.ip(), call.number, record));
    if let Some(key) = key {
        match server.repeated.begin(key) {
            Seen::Never => {}
            Seen::UnderWay => return Ok(None),
            Seen::Answered(answer) => return Ok(Some(answer)),
        }
    }
    let mut act = || match (call.program, call.version) {
        (procedures::PROGRAM, procedures::VERSION) => procedures::act(&context, &mut arguments),
        (mounting::PROGRAM, mounting::VERSION) => mounting::act(&context, &mut arguments),
        (procedures::PROGRAM | mounting::PROGRAM, _) => Err(Refusal::ProgramVersion(3, 3)),
        _ => Err(Refusal::NoProgram),
    };
    // A panic ends the request alone; a change that is half done stops its pool.
    let done = catch_unwind(AssertUnwindSafe(&mut act)).unwrap_or_else(|_| {
        tracing::error!("a request of an NFS client ended with a panic");
        Err(Refusal::Failed)
    });
    if let Some(key) = key {
        let kept = done.as_deref().ok().filter(|answer| !is_to_try_again(answer));
        server.repeated.end(key, kept);
    }
    Ok(Some(done.unwrap_or_else(|refusal| refusal.answer(call.number))))
}

/// Whether the client is to ask the same again.
fn is_to_try_again(answer: &[u8]) -> bool {
    /// Where the status is, behind what all answers begin with.
    const STATUS_AT: usize = 24;
    answer.get(STATUS_AT..STATUS_AT + 4) == Some(&Status::JUKEBOX.0.to_be_bytes())
}
