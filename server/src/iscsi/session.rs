//! A session, from the end of its login to its logout.
//!
//! # The idea
//! One task serves the only connection of a session. It waits for the next unit and for commands under way
//! at the same time. A command that waits for a disk is a future in `running`; a write whose data have not
//! all come is a [`Transfer`] in `incoming`. Answers are collected and leave in one write when nothing else
//! is ready.
//!
//! # While an initiator takes no answers
//! No more is read from it. But its commands go on to their ends, and so does the opening of units: a command
//! that was left half-way may hold what others wait for, as a transaction group, a range of the volume, or a
//! block that is being read. Those that end meanwhile are kept in `ended`, with their memory.
//!
//! # Units that come and go
//! A session follows the volumes that are shared with its target (`inventory`): those that are shared no
//! longer are no units from then on, and commands under way on them end. New ones are opened beside
//! everything else. One that cannot be opened is tried again, less and less often (`opening`).
//!
//! # A pool that another host has taken over
//! The session ends without an answer, so that the initiator logs in again and finds that host. It would take
//! an answer for one of the disk.
//!
//! # A daemon that hands over
//! A session that is to come to a boundary ([`crate::gate`]) takes only the data that writes under way wait
//! for. All other units are put aside as they are, for the task that goes on. It is there when nothing is
//! under way and no unit has been read in part.
//!
//! # Order
//! TCP keeps the order of one connection, so commands are numbered without a gap; one with another number is
//! passed over. A command that is immediate has no number of its own, and takes a place all the same; the
//! window that was told is not made smaller by it.
//!
//! # Bounds
//! At most [`MOST_COMMANDS`] are under way: initiators are told with MaxCmdSN, and more are passed over. The
//! bytes of commands under way are bounded as for all clients ([`Loan`]), and by [`MOST_HELD_BYTES`]. A
//! command that has to wait for them keeps only the data that came with it, and the input is read on
//! meanwhile: the data of older writes are in it, and their memory becomes free when they are there. An
//! initiator that holds a loan and does not send what it was asked for is sent away when others wait.
//!
//! Source of the facts: RFC 7143, sections 4.2, 4.6 and 11.

mod answers;
mod handing;
mod management;
mod opening;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use device::IoBuf;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf};
use tokio::sync::oneshot;
use tokio::time::{self, MissedTickBehavior};

use super::login::{Agreed, OWN_DATA_BYTES, Session};
use super::pdu::{self, Digests, Header, NO_TAG, Pdu, answer, request, violation};
use super::scsi::{Command, Opened, Outcome, Refusal, Sense, Unit, Units};
use crate::block::{Asked, Changes, Export, Listed, ListedRequest, Loan};
use crate::gate::Guest;
use answers::with_length;
use management::AbortAnswer;
use opening::{All, Opening, Retries};
use writes::Transfer;

/// Commands under way.
const MOST_COMMANDS: usize = 128;
/// Bytes of commands under way, whatever other clients leave; one alone may be larger.
const MOST_HELD_BYTES: usize = 64 << 20;
/// Bytes of answers that are collected before they are sent.
const SEND_BYTES: usize = 512 << 10;
/// How often it is looked whether units are other than they were.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes that are read from the socket at a time.
const INPUT_BYTES: usize = 256 << 10;

/// Why a session ends whose pool another host has.
const ELSEWHERE: &str = "another host has taken the pool over";

const READS: u8 = 0x40;
const WRITES: u8 = 0x20;

/// The targets and their units, as an initiator may have them.
pub(super) trait Directory<E>: Sync {
    /// Each target that an initiator may log in to, and the addresses where it is served.
    fn targets(&self) -> impl Future<Output = Vec<(String, Vec<String>)>> + Send;

    /// Tells when targets may have other units.
    fn changes(&self) -> Changes;

    /// The volumes that are units of a target now; `own` is the one that it belongs to.
    fn members(&self, target: &str, own: Option<u64>) -> impl Future<Output = BTreeMap<u8, Listed>> + Send;

    /// Opens such volumes. Those that could be opened, and whether all could.
    fn open(&self, target: String, members: BTreeMap<u8, Listed>) -> impl Future<Output = All<E>> + Send;
}

/// A command that came.
#[derive(Debug, Clone, Copy)]
struct Task {
    tag: u32,
    lun: [u8; 8],
    /// The bytes that the initiator expects to be moved.
    expected: u64,
    reads: bool,
    writes: bool,
}

/// A command that waits for memory, and what came with it.
struct Postponed<E> {
    task: Task,
    unit: Arc<Unit<E>>,
    command: Command,
    came: IoBuf,
    /// That it waits, for a person who asks.
    listed: Option<ListedRequest>,
}

/// A command that ended.
struct Ended {
    task: Task,
    outcome: Outcome,
    /// The bytes that the initiator was to send.
    sends: u64,
    /// The memory that it had.
    held_bytes: usize,
}

/// A request to end tasks. It is answered when they have ended.
struct Abort {
    tag: u32,
    tasks: HashSet<u32>,
    /// Those of other sessions, too.
    waits_for_others: bool,
}

/// What a session has under way.
struct Connection<E> {
    units: Option<Units<E>>,
    agreed: Agreed,
    expected_command: u32,
    /// The last number of a command that the initiator may send: it never becomes less.
    window_end: u32,
    status: u32,
    incoming: HashMap<u32, Transfer<E>>,
    /// Tags of commands that run, and their units.
    active: HashMap<u32, [u8; 8]>,
    /// Tags of commands that run and are aborted.
    aborted: HashMap<u32, AbortAnswer>,
    aborts: Vec<Abort>,
    /// Waits for commands of other sessions. The tag of the request to end them.
    interrupting: FuturesUnordered<BoxFuture<'static, u32>>,
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// Commands that ended, and are not answered yet.
    ended: VecDeque<Ended>,
    /// Commands that wait for memory, and what came with each.
    postponed: VecDeque<Postponed<E>>,
    loan: Loan,
    held_bytes: usize,
    moved_bytes: u64,
    next_transfer: u32,
    /// What is left of an answer to a text.
    text: Vec<u8>,
    out: Vec<u8>,
    is_leaving: bool,
}

/// The session as the gate knows it, and what another task needs.
pub(super) struct Place {
    pub guest: Guest,
    /// A copy of its socket, where it can be handed over.
    pub socket: Option<OwnedFd>,
    /// The number of the session.
    pub tsih: u16,
}

/// The socket's input, and what was read.
type Read<S> = io::Result<(BufReader<ReadHalf<S>>, Option<Pdu>)>;

/// What comes next.
enum Event<S, E> {
    Read(Read<S>),
    Ended(Ended),
    /// Commands of other sessions have ended, as this request asked for.
    OthersEnded(u32),
    /// Another session ends commands of this one.
    Interrupted,
    /// There is memory for the first postponed command.
    Covered,
    /// Nothing came for a while.
    Look,
    /// It is to come to a boundary.
    Park,
    /// The target may have other units.
    Changed,
    /// These are new, and whether those are all that were to be opened.
    Opened(Opened<E>, bool),
    /// The initiator does not send what it was asked for, and others wait for its memory.
    Stalled,
}

/// Serves a session until the initiator leaves, or `replaced` says that another one took its place.
pub(super) async fn serve<S, E, D>(
    socket: S,
    session: Session<E>,
    units: Option<Units<E>>,
    directory: &D,
    mut replaced: oneshot::Receiver<()>,
    place: &Place,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: Export,
    D: Directory<E>,
{
    let of = (session.initiator.clone(), session.shared_with.clone());
    place.guest.is_served(format!("the iSCSI session of {}", of.0.name));
    let mut connection = Connection::new(session, units);
    let mut aside: Option<Vec<Pdu>> = None;
    let waits = Arc::new(AtomicBool::new(false));
    let digests = connection.agreed.digests;
    let (input, mut output) = tokio::io::split(socket);
    let mut reading = read(BufReader::with_capacity(INPUT_BYTES, input), digests, Arc::clone(&waits)).boxed();
    let mut looks = time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let wake = connection.units.as_ref().map(|units| Arc::clone(units.wake())).unwrap_or_default();
    let mut changes = if connection.units.is_some() { directory.changes() } else { Changes::none() };
    // What changed during the login is not known yet.
    let mut opening = Opening::of(connection.follow(directory).await);
    let mut retries = Retries::default();
    let result = loop {
        if let Some(units) = &aside
            && connection.is_at_boundary()
            && waits.load(Ordering::Acquire)
        {
            let goes_on = place.guest.park(connection.parked(place, &of, units)).await;
            if !goes_on {
                break Ok(());
            }
            let mut taken = Ok(());
            for unit in aside.take().into_iter().flatten() {
                if taken.is_ok() {
                    taken = connection.take(unit, directory).await;
                }
            }
            if taken.is_err() {
                break taken;
            }
        }
        let is_parking = aside.is_some();
        let is_empty = connection.out.is_empty();
        let next = poll_fn(|context| match connection.poll(&mut reading, context) {
            // Nothing else would tell that no unit has been read in part.
            Poll::Pending if is_parking && waits.load(Ordering::Acquire) && connection.is_at_boundary() => {
                Poll::Ready(Event::Park)
            }
            polled => polled,
        });
        let event = match is_empty {
            true => tokio::select! {
                event = next => Some(event),
                _ = &mut replaced => break Ok(()),
                _ = looks.tick(), if !is_parking => Some(Event::Look),
                () = changes.next(), if !is_parking => Some(Event::Changed),
                () = place.guest.asked_to_park(), if !is_parking => Some(Event::Park),
                () = wake.notified() => Some(Event::Interrupted),
                (units, is_all) = poll_fn(|context| opening.poll_units(context)), if !is_parking => {
                    Some(Event::Opened(units, is_all))
                }
            },
            // What was collected leaves as soon as nothing else is ready.
            false => next.now_or_never(),
        };
        let is_quiet = event.is_none();
        match event {
            Some(Event::Read(Ok((input, Some(unit))))) => {
                match &mut aside {
                    Some(aside) if !connection.awaits(&unit) => aside.push(unit),
                    _ => {
                        if let Err(error) = connection.take(unit, directory).await {
                            break Err(error);
                        }
                    }
                }
                waits.store(false, Ordering::Release);
                reading = read(input, digests, Arc::clone(&waits)).boxed();
            }
            Some(Event::Read(Ok((_, None)))) => break Ok(()),
            Some(Event::Read(Err(error))) => break Err(error),
            // What it would be told is of a pool that this host has no more.
            Some(Event::Ended(_) | Event::Look | Event::Changed) if connection.is_elsewhere() => {
                break Err(io::Error::new(io::ErrorKind::ConnectionAborted, ELSEWHERE));
            }
            Some(Event::Ended(ended)) => connection.finish(ended),
            Some(Event::OthersEnded(tag)) => connection.others_ended(tag),
            Some(Event::Interrupted) => connection.take_interruptions(),
            Some(Event::Covered) => connection.go_on(),
            Some(Event::Park) => {
                aside.get_or_insert_default();
            }
            Some(Event::Look) => {
                if retries.is_due() {
                    opening = Opening::of(connection.follow(directory).await);
                }
                connection.tell_news();
            }
            Some(Event::Changed) => {
                retries = Retries::default();
                opening = Opening::of(connection.follow(directory).await);
                connection.tell_news();
            }
            Some(Event::Opened(units, is_all)) => {
                retries = if is_all { Retries::default() } else { retries.again() };
                connection.add(units);
            }
            Some(Event::Stalled) => break Err(io::Error::new(io::ErrorKind::TimedOut, "it sends no data")),
            None => {}
        }
        if (is_quiet || connection.is_leaving || connection.out.len() >= SEND_BYTES)
            && let Err(error) = connection.send(&mut output, &mut opening, &mut replaced).await
        {
            break Err(error);
        }
        if connection.is_leaving {
            break Ok(());
        }
    };
    // What was begun is done: half a write would be worse.
    while connection.running.next().await.is_some() {}
    result
}

/// Whether a number comes after another one; numbers begin again after the last.
fn is_after(number: u32, other: u32) -> bool {
    number.wrapping_sub(other).cast_signed() > 0
}

/// Reads a unit; nothing at the end of the input. `waits` says that nothing of the next one has come.
async fn read<S: AsyncRead>(
    mut input: BufReader<ReadHalf<S>>,
    digests: Digests,
    waits: Arc<AtomicBool>,
) -> Read<S> {
    let is_over = poll_fn(|context| {
        let filled = Pin::new(&mut input).poll_fill_buf(context).map_ok(<[u8]>::is_empty);
        waits.store(filled.is_pending(), Ordering::Release);
        filled
    });
    if is_over.await? {
        return Ok((input, None));
    }
    let unit = pdu::read(&mut input, digests, OWN_DATA_BYTES).await?;
    Ok((input, Some(unit)))
}

/// The command, and the unit that is to do it now; or what it is answered with at once.
fn admit<E: Export>(
    units: &Units<E>,
    task: &Task,
    descriptor: &[u8; 16],
) -> Result<(Arc<Unit<E>>, Command), Outcome> {
    if let Some(outcome) = units.answer(task.lun, descriptor) {
        return Err(outcome);
    }
    let unit = units.get(task.lun).ok_or(Outcome::Check(Sense::NO_SUCH_UNIT))?;
    let is_asked = !Command::is_always_answered(descriptor);
    if let Some(attention) = if is_asked { unit.attention() } else { None } {
        return Err(Outcome::Check(attention));
    }
    let command = unit.parse(descriptor).map_err(Outcome::Check)?;
    command.check_sent(if task.writes { task.expected } else { 0 })?;
    if is_asked {
        unit.admits(&command).map_err(|refusal| match refusal {
            Refusal::Conflict => Outcome::Conflict,
            Refusal::Check(sense) => Outcome::Check(sense),
        })?;
    }
    Ok((Arc::clone(unit), command))
}

impl<E: Export> Connection<E> {
    /// That of a session after its login.
    fn new(session: Session<E>, units: Option<Units<E>>) -> Self {
        let Session { agreed, command, window_end, status, seat, .. } = session;
        Self {
            units,
            agreed,
            // The login was immediate: the first command has its number.
            expected_command: command,
            window_end,
            status,
            incoming: HashMap::new(),
            active: HashMap::new(),
            aborted: HashMap::new(),
            aborts: Vec::new(),
            interrupting: FuturesUnordered::new(),
            running: FuturesUnordered::new(),
            ended: VecDeque::new(),
            postponed: VecDeque::new(),
            loan: Loan::none(seat),
            held_bytes: 0,
            moved_bytes: 0,
            next_transfer: 0,
            text: Vec::new(),
            out: Vec::new(),
            is_leaving: false,
        }
    }

    fn poll<S>(
        &mut self,
        reading: &mut BoxFuture<'static, Read<S>>,
        context: &mut Context<'_>,
    ) -> Poll<Event<S, E>> {
        if let Some(ended) = self.ended.pop_front() {
            return Poll::Ready(Event::Ended(ended));
        }
        if let Poll::Ready(Some(ended)) = self.running.poll_next_unpin(context) {
            return Poll::Ready(Event::Ended(ended));
        }
        if let Poll::Ready(Some(tag)) = self.interrupting.poll_next_unpin(context) {
            return Poll::Ready(Event::OthersEnded(tag));
        }
        match self.postponed.front().map(|first| first.command) {
            Some(first) if self.has_room(first) => {
                let needed = self.held_bytes + first.memory_bytes();
                if self.loan.poll_cover(needed, context).is_ready() {
                    return Poll::Ready(Event::Covered);
                }
            }
            // The one that waited was aborted, or has to wait for its own session's.
            _ => self.loan.leave_line(),
        }
        if let Poll::Ready(read) = reading.poll_unpin(context) {
            return Poll::Ready(Event::Read(read));
        }
        if !self.running.is_empty() {
            // A busy shard seldom sleeps, and only then submits by itself.
            device::submit_and_reap();
        }
        let is_its_turn = !self.incoming.is_empty() && self.running.is_empty();
        self.loan.poll_is_stalled(is_its_turn, self.moved_bytes, context).map(|()| Event::Stalled)
    }

    /// Commands under way.
    fn under_way(&self) -> usize {
        self.active.len() + self.incoming.len() + self.postponed.len()
    }

    /// Whether the session may have this one under way, too: alone it may in any case.
    fn has_room(&self, command: Command) -> bool {
        self.held_bytes == 0 || self.held_bytes + command.memory_bytes() <= MOST_HELD_BYTES
    }

    fn is_known(&self, tag: u32) -> bool {
        let is_postponed = self.postponed.iter().any(|postponed| postponed.task.tag == tag);
        is_postponed || self.active.contains_key(&tag) || self.incoming.contains_key(&tag)
    }

    /// Sends what was collected. A client that takes nothing while others wait for its memory is sent away,
    /// and so is one that has another session by now.
    async fn send(
        &mut self,
        output: &mut (impl AsyncWrite + Unpin),
        opening: &mut Opening<'_, E>,
        replaced: &mut oneshot::Receiver<()>,
    ) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let list = self.units.iter().flat_map(Units::iter).find_map(|(_, unit)| unit.under_way().cloned());
        let mut listed = None;
        {
            let mut writing = pin!(output.write_all(&out));
            let (loan, moved_bytes) = (&mut self.loan, self.moved_bytes);
            let (running, ended) = (&mut self.running, &mut self.ended);
            poll_fn(|context| {
                if let Poll::Ready(written) = writing.as_mut().poll(context) {
                    return Poll::Ready(written);
                }
                if let (None, Some(list)) = (&listed, &list) {
                    let answers = Asked::of("answers", 0, out.len() as u64);
                    listed = Some(list.begin(answers, "the initiator, which takes no answers"));
                }
                if replaced.poll_unpin(context).is_ready() {
                    return Poll::Ready(Err(io::Error::other("the initiator logged in anew")));
                }
                opening.go_on(context);
                while let Poll::Ready(Some(one)) = running.poll_next_unpin(context) {
                    ended.push_back(one);
                }
                if !running.is_empty() {
                    device::submit_and_reap();
                }
                let stalled = || io::Error::new(io::ErrorKind::TimedOut, "it takes no answers");
                loan.poll_is_stalled(true, moved_bytes, context).map(|()| Err(stalled()))
            })
            .await?;
        }
        self.moved_bytes += out.len() as u64;
        self.out = out;
        self.out.clear();
        self.loan.shrink_to(self.held_bytes);
        Ok(())
    }

    /// Takes a unit.
    async fn take(&mut self, unit: Pdu, directory: &impl Directory<E>) -> io::Result<()> {
        let header = unit.header;
        self.moved_bytes += unit.data.len() as u64;
        if header.operation() == request::SCSI_COMMAND && self.under_way() >= MOST_COMMANDS {
            // An immediate one has no number by which the initiator could know that no more are taken.
            if header.is_immediate() {
                self.reject(&header, 6);
                return Ok(());
            }
            // It was told so. What it was promised before immediate ones came is kept.
            if is_after(header.word(24), self.window_end) {
                return Ok(());
            }
        }
        let is_numbered = !matches!(header.operation(), request::DATA_OUT | request::SNACK);
        if is_numbered && !header.is_immediate() {
            if header.word(24) != self.expected_command {
                // It was sent twice, or is not to be sent yet.
                return Ok(());
            }
            self.expected_command = self.expected_command.wrapping_add(1);
        }
        match header.operation() {
            request::SCSI_COMMAND => self.command(&header, unit.data, unit.is_damaged),
            request::DATA_OUT => self.data_out(&header, &unit.data, unit.is_damaged),
            _ if unit.is_damaged => self.reject(&header, 2),
            request::NOP_OUT => {
                if header.task_tag() != NO_TAG {
                    let reply = Header::new(answer::NOP_IN).set_word(16, header.task_tag());
                    let reply = reply.set(8, &header.array::<8>(8)).set_word(20, NO_TAG);
                    let most = unit.data.len().min(self.agreed.their_data_bytes);
                    self.answer(reply, unit.data.get(..most).unwrap_or_default());
                }
            }
            request::TASK_MANAGEMENT => self.manage(&header),
            request::TEXT => self.answer_text(&header, &unit.data, directory).await,
            request::LOGOUT => {
                let reply = Header::new(answer::LOGOUT).set_word(16, header.task_tag());
                self.answer(reply, &[]);
                self.is_leaving = true;
            }
            request::LOGIN => return Err(violation("a login within a session")),
            // Not supported.
            _ => self.reject(&header, 5),
        }
        Ok(())
    }

    /// Tells of units that are other than they were.
    fn tell_news(&mut self) {
        let units = self.units.iter().flat_map(Units::iter);
        let news: Vec<_> =
            units.flat_map(|(number, unit)| unit.news().map(move |sense| (number, sense))).collect();
        for (number, sense) in news {
            self.tell(number, sense);
        }
    }

    /// Whether another host has a volume of its units by now.
    fn is_elsewhere(&self) -> bool {
        self.units.iter().flat_map(Units::iter).any(|(_, unit)| unit.is_elsewhere())
    }

    /// Tells of a unit without being asked.
    fn tell(&mut self, number: u8, sense: Sense) {
        let header = Header::new(answer::ASYNC).set(8, &[0, number]).set_word(16, NO_TAG);
        self.answer(header, &with_length(sense));
    }

    /// Takes units away that are shared no longer. Opens those that are new.
    async fn follow<'a>(&mut self, directory: &'a impl Directory<E>) -> Option<BoxFuture<'a, All<E>>> {
        let units = self.units.as_mut()?;
        let target = units.target().to_owned();
        let members = directory.members(&target, units.own()).await;
        let (new, is_changed) = units.keep(members);
        if is_changed {
            self.tell_of_units();
        }
        (!new.is_empty()).then(|| directory.open(target, new).boxed())
    }

    /// Has these units from now on, too.
    fn add(&mut self, new: Opened<E>) {
        if self.units.as_mut().is_some_and(|units| units.add(new)) {
            self.tell_of_units();
        }
    }

    /// Tells that the target has other units, once for all of them.
    fn tell_of_units(&mut self) {
        let first = self.units.iter().flat_map(Units::iter).next().map_or(0, |(number, _)| number);
        self.tell(first, Sense::OTHER_UNITS);
    }

    fn reject(&mut self, refused: &Header, reason: u8) {
        let header = Header::new(answer::REJECT).set(2, &[reason]).set_word(16, NO_TAG);
        self.answer(header, &refused.0);
    }

    fn command(&mut self, header: &Header, data: IoBuf, is_damaged: bool) {
        let flags = header.flags();
        let task = Task {
            tag: header.task_tag(),
            lun: header.array(8),
            expected: u64::from(header.word(20)),
            reads: flags & READS != 0,
            writes: flags & WRITES != 0,
        };
        self.take_interruptions();
        let Some(units) = &self.units else {
            return self.reject(header, 4);
        };
        if self.is_known(task.tag) {
            return self.reject(header, 9);
        }
        let descriptor = header.array::<16>(32);
        let admitted = match is_damaged || data.len() > self.agreed.most_immediate_bytes() {
            true if is_damaged => Err(Outcome::Check(Sense::DAMAGED_DATA)),
            true => Err(Outcome::Check(Sense::UNEXPECTED_DATA)),
            false => admit(units, &task, &descriptor),
        };
        match admitted {
            Err(outcome) => self.respond(&Ended { task, outcome, sends: 0, held_bytes: 0 }),
            Ok((unit, command)) => {
                let is_first = self.postponed.is_empty() && self.has_room(command);
                self.postponed.push_back(Postponed { task, unit, command, came: data, listed: None });
                let needed = self.held_bytes + command.memory_bytes();
                // Ready at once as long as the client has memory of its own.
                let mut cover = poll_fn(|context| self.loan.poll_cover(needed, context));
                if is_first && (&mut cover).now_or_never().is_some() {
                    self.go_on();
                } else if let Some(last) = self.postponed.back_mut() {
                    last.listed = last.unit.list(&command, "memory that all clients share");
                }
            }
        }
    }

    fn run(&mut self, transfer: Transfer<E>) {
        let Transfer { task, unit, command, data, .. } = transfer;
        let begun = unit.begin();
        if unit.is_interrupted() {
            self.held_bytes -= command.memory_bytes();
            return self.respond(&Ended { task, outcome: Outcome::Aborted, sends: 0, held_bytes: 0 });
        }
        self.active.insert(task.tag, task.lun);
        let (sends, held_bytes) = (command.sends(), command.memory_bytes());
        let running = async move {
            let outcome = unit.perform(command, data, begun).await;
            Ended { task, outcome, sends, held_bytes }
        };
        self.running.push(running.boxed());
    }

    fn finish(&mut self, ended: Ended) {
        let tag = ended.task.tag;
        self.active.remove(&tag);
        self.held_bytes -= ended.held_bytes;
        match self.aborted.remove(&tag) {
            None => self.respond(&ended),
            Some(AbortAnswer::Aborted) => self.respond(&Ended { outcome: Outcome::Aborted, ..ended }),
            Some(AbortAnswer::Nothing) => {}
        }
        for abort in &mut self.aborts {
            abort.tasks.remove(&tag);
        }
        self.answer_aborts();
    }
}
