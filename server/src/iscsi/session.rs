//! A session, from the end of its login to its logout.
//!
//! # The idea
//! One task serves the only connection of a session. It waits for the next unit and for commands under way
//! at the same time. A command that waits for a disk is a future in `running`; a write whose data have not
//! all come is a [`Transfer`] in `incoming`. Answers are collected and leave in one write when nothing else
//! is ready.
//!
//! # Units that come and go
//! A session follows the volumes that are shared with its target (`inventory`): those that are shared no
//! longer are no units from then on, and commands under way on them end. New ones are opened beside
//! everything else.
//!
//! # Order
//! TCP keeps the order of one connection, so commands are numbered without a gap; one with another number is
//! passed over. A command that is immediate has no number of its own.
//!
//! # Bounds
//! At most [`MOST_COMMANDS`] are under way: initiators are told with MaxCmdSN, and more are passed over. The
//! bytes of commands under way are bounded as for all clients ([`Loan`]). A command that has to wait for them
//! keeps only the data that came with it, and the input is read on meanwhile: the data of older writes are in
//! it, and their memory becomes free when they are there. An initiator that holds a loan and does not send
//! what it was asked for is sent away when others wait.
//!
//! Source of the facts: RFC 7143, sections 4.2, 4.6 and 11.

mod management;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use device::IoBuf;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf};
use tokio::sync::oneshot;
use tokio::time::{self, MissedTickBehavior};

use super::login::{Agreed, LOGIN_DATA_BYTES, OWN_DATA_BYTES, Session};
use super::pdu::{self, Digests, FINAL, Header, NO_TAG, Pdu, answer, request, violation};
use super::scsi::{Command, Opened, Outcome, Refusal, Sense, Unit, Units};
use super::text::Text;
use crate::block::{Changes, Export, Listed, Loan};

/// Commands under way.
const MOST_COMMANDS: usize = 128;
/// Bytes of answers that are collected before they are sent.
const SEND_BYTES: usize = 512 << 10;
/// How often it is looked whether units are other than they were.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes that are read from the socket at a time.
const INPUT_BYTES: usize = 256 << 10;

const READS: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;
const CONTINUE: u8 = 0x40;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const RESERVATION_CONFLICT: u8 = 0x18;

/// The targets and their units, as an initiator may have them.
pub(super) trait Directory<E>: Sync {
    /// Each target that an initiator may log in to, and the address where it is served.
    fn targets(&self) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// Tells when targets may have other units.
    fn changes(&self) -> Changes;

    /// The volumes that are units of a target now; `own` is the one that it belongs to.
    fn members(&self, target: &str, own: Option<u64>) -> impl Future<Output = BTreeMap<u8, Listed>> + Send;

    /// Opens such volumes.
    fn open(&self, target: String, members: BTreeMap<u8, Listed>) -> impl Future<Output = Opened<E>> + Send;
}

/// A command that came.
#[derive(Debug, Clone, Copy)]
struct Task {
    tag: u32,
    lun: [u8; 8],
    /// The bytes that the initiator expects to be moved.
    expected: u64,
    reads: bool,
}

/// A command that waits for memory, and what came with it.
struct Postponed<E> {
    task: Task,
    unit: Arc<Unit<E>>,
    command: Command,
    came: IoBuf,
}

/// A write whose data have not all come.
struct Transfer<E> {
    task: Task,
    unit: Arc<Unit<E>>,
    command: Command,
    data: IoBuf,
    /// The bytes that came.
    filled: usize,
    /// The tag of what was asked for.
    asked: u32,
    /// The number of the next request for data.
    next_request: u32,
    /// The number of the next unit of data.
    next_data: u32,
    is_damaged: bool,
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
}

/// What a session has under way.
struct Connection<E> {
    units: Option<Units<E>>,
    agreed: Agreed,
    expected_command: u32,
    status: u32,
    incoming: HashMap<u32, Transfer<E>>,
    /// Tags of commands that run, and their units.
    active: HashMap<u32, [u8; 8]>,
    aborted: HashSet<u32>,
    aborts: Vec<Abort>,
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
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

/// The socket's input, and what was read.
type Read<S> = io::Result<(BufReader<ReadHalf<S>>, Option<Pdu>)>;

/// What comes next.
enum Event<S, E> {
    Read(Read<S>),
    Ended(Ended),
    /// There is memory for the first postponed command.
    Covered,
    /// Nothing came for a while.
    Look,
    /// The target may have other units.
    Changed,
    /// These are new.
    Opened(Opened<E>),
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
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: Export,
    D: Directory<E>,
{
    let Session { agreed, command, status, place, .. } = session;
    let mut connection = Connection {
        units,
        agreed,
        // The login was immediate: the first command has its number.
        expected_command: command,
        status,
        incoming: HashMap::new(),
        active: HashMap::new(),
        aborted: HashSet::new(),
        aborts: Vec::new(),
        running: FuturesUnordered::new(),
        postponed: VecDeque::new(),
        loan: Loan::none(place),
        held_bytes: 0,
        moved_bytes: 0,
        next_transfer: 0,
        text: Vec::new(),
        out: Vec::new(),
        is_leaving: false,
    };
    let (input, mut output) = tokio::io::split(socket);
    let mut reading = read(BufReader::with_capacity(INPUT_BYTES, input), agreed.digests).boxed();
    let mut looks = time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = if connection.units.is_some() { directory.changes() } else { Changes::none() };
    // What changed during the login is not known yet.
    let mut opening = connection.follow(directory).await;
    let result = loop {
        let is_empty = connection.out.is_empty();
        let next = poll_fn(|context| connection.poll(&mut reading, context));
        let event = match is_empty {
            true => tokio::select! {
                event = next => Some(event),
                _ = &mut replaced => break Ok(()),
                _ = looks.tick() => Some(Event::Look),
                () = changes.next() => Some(Event::Changed),
                units = opened(&mut opening) => Some(Event::Opened(units)),
            },
            // What was collected leaves as soon as nothing else is ready.
            false => next.now_or_never(),
        };
        let is_quiet = event.is_none();
        match event {
            Some(Event::Read(Ok((input, Some(unit))))) => {
                if let Err(error) = connection.take(unit, directory).await {
                    break Err(error);
                }
                reading = read(input, agreed.digests).boxed();
            }
            Some(Event::Read(Ok((_, None)))) => break Ok(()),
            Some(Event::Read(Err(error))) => break Err(error),
            Some(Event::Ended(ended)) => connection.finish(ended),
            Some(Event::Covered) => connection.go_on(),
            Some(Event::Look) => connection.tell_news(),
            Some(Event::Changed) => {
                opening = connection.follow(directory).await;
                connection.tell_news();
            }
            Some(Event::Opened(units)) => {
                opening = None;
                connection.add(units);
            }
            Some(Event::Stalled) => break Err(io::Error::new(io::ErrorKind::TimedOut, "it sends no data")),
            None => {}
        }
        if (is_quiet || connection.is_leaving || connection.out.len() >= SEND_BYTES)
            && let Err(error) = connection.send(&mut output).await
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

/// What was opened, once it is.
async fn opened<E>(opening: &mut Option<BoxFuture<'_, Opened<E>>>) -> Opened<E> {
    match opening {
        Some(opening) => opening.await,
        None => pending().await,
    }
}

/// Reads a unit; nothing at the end of the input.
async fn read<S: AsyncRead>(mut input: BufReader<ReadHalf<S>>, digests: Digests) -> Read<S> {
    if input.fill_buf().await?.is_empty() {
        return Ok((input, None));
    }
    let unit = pdu::read(&mut input, digests, OWN_DATA_BYTES).await?;
    Ok((input, Some(unit)))
}

/// Sense data as units of the protocol have them.
fn with_length(sense: Sense) -> Vec<u8> {
    let bytes = sense.to_bytes();
    [&(bytes.len() as u16).to_be_bytes(), &bytes[..]].concat()
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
    if !command.fits(task.expected) {
        return Err(Outcome::Check(Sense::INVALID_FIELD));
    }
    if is_asked {
        unit.admits(&command).map_err(|refusal| match refusal {
            Refusal::Conflict => Outcome::Conflict,
            Refusal::Check(sense) => Outcome::Check(sense),
        })?;
    }
    Ok((Arc::clone(unit), command))
}

impl<E: Export> Connection<E> {
    fn poll<S>(
        &mut self,
        reading: &mut BoxFuture<'static, Read<S>>,
        context: &mut Context<'_>,
    ) -> Poll<Event<S, E>> {
        if let Poll::Ready(Some(ended)) = self.running.poll_next_unpin(context) {
            return Poll::Ready(Event::Ended(ended));
        }
        if let Some(first) = self.postponed.front() {
            let needed = self.held_bytes + first.command.memory_bytes();
            if self.loan.poll_cover(needed, context).is_ready() {
                return Poll::Ready(Event::Covered);
            }
        }
        if let Poll::Ready(read) = reading.poll_unpin(context) {
            return Poll::Ready(Event::Read(read));
        }
        let is_its_turn = !self.incoming.is_empty() && self.running.is_empty();
        self.loan.poll_is_stalled(is_its_turn, self.moved_bytes, context).map(|()| Event::Stalled)
    }

    /// Commands under way.
    fn under_way(&self) -> usize {
        self.active.len() + self.incoming.len() + self.postponed.len()
    }

    fn is_known(&self, tag: u32) -> bool {
        let is_postponed = self.postponed.iter().any(|postponed| postponed.task.tag == tag);
        is_postponed || self.active.contains_key(&tag) || self.incoming.contains_key(&tag)
    }

    /// Sends what was collected. A client that takes nothing while others wait for its memory is sent away.
    async fn send(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        {
            let mut writing = pin!(output.write_all(&out));
            let (loan, moved_bytes) = (&mut self.loan, self.moved_bytes);
            poll_fn(|context| {
                if let Poll::Ready(written) = writing.as_mut().poll(context) {
                    return Poll::Ready(written);
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
            // It was told that no more are taken. An immediate one has no number by which it could know.
            if header.is_immediate() {
                self.reject(&header, 6);
            }
            return Ok(());
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

    /// Appends an answer with the next number.
    fn answer(&mut self, header: Header, data: &[u8]) {
        let header = header.set_word(24, self.status);
        self.status = self.status.wrapping_add(1);
        self.append(header, data);
    }

    /// Appends an answer that has no number of its own.
    fn append(&mut self, header: Header, data: &[u8]) {
        let room = MOST_COMMANDS.saturating_sub(self.under_way()) as u32;
        let header = header.set_word(28, self.expected_command);
        let header = header.set_word(32, self.expected_command.wrapping_add(room).wrapping_sub(1));
        pdu::write(&mut self.out, header, data, self.agreed.digests);
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

    /// Tells of a unit without being asked.
    fn tell(&mut self, number: u8, sense: Sense) {
        let header = Header::new(answer::ASYNC).set(8, &[0, number]).set_word(16, NO_TAG);
        self.answer(header, &with_length(sense));
    }

    /// Takes units away that are shared no longer. Opens those that are new.
    async fn follow<'a>(&mut self, directory: &'a impl Directory<E>) -> Option<BoxFuture<'a, Opened<E>>> {
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
        };
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
                let is_first = self.postponed.is_empty();
                self.postponed.push_back(Postponed { task, unit, command, came: data });
                let needed = self.held_bytes + command.memory_bytes();
                // Ready at once as long as the client has memory of its own.
                let mut cover = poll_fn(|context| self.loan.poll_cover(needed, context));
                if is_first && (&mut cover).now_or_never().is_some() {
                    self.go_on();
                }
            }
        }
    }

    /// Begins the first postponed command, for which there is memory.
    fn go_on(&mut self) {
        let Some(Postponed { task, unit, command, came }) = self.postponed.pop_front() else { return };
        self.held_bytes += command.memory_bytes();
        let needed = command.sends().min(task.expected) as usize;
        let mut data = IoBuf::for_overwrite(needed);
        let filled = came.len().min(needed);
        data[..filled].copy_from_slice(&came[..filled]);
        let transfer = Transfer {
            task,
            unit,
            command,
            data,
            filled,
            asked: NO_TAG,
            next_request: 0,
            next_data: 0,
            is_damaged: false,
        };
        match filled == needed {
            true => self.run(transfer),
            false => self.ask(transfer),
        }
    }

    /// Asks for the next burst of a write.
    fn ask(&mut self, mut transfer: Transfer<E>) {
        self.next_transfer = self.next_transfer.wrapping_add(1);
        if self.next_transfer == NO_TAG {
            self.next_transfer = 0;
        }
        (transfer.asked, transfer.next_data) = (self.next_transfer, 0);
        let length = (transfer.data.len() - transfer.filled).min(self.agreed.burst_bytes as usize);
        let header = Header::new(answer::R2T).set(8, &transfer.task.lun).set_word(16, transfer.task.tag);
        let header = header.set_word(20, transfer.asked).set_word(24, self.status);
        let header = header.set_word(36, transfer.next_request).set_word(40, transfer.filled as u32);
        transfer.next_request += 1;
        self.incoming.insert(transfer.task.tag, transfer);
        self.append(header.set_word(44, length as u32), &[]);
    }

    fn data_out(&mut self, header: &Header, data: &[u8], is_damaged: bool) {
        // Of a command that was refused or aborted: passed over.
        let Some(mut transfer) = self.incoming.remove(&header.task_tag()) else { return };
        let (offset, asked) = (header.word(40) as usize, header.word(20));
        let is_in_place = offset == transfer.filled || transfer.filled == transfer.data.len();
        if asked != transfer.asked || header.word(36) != transfer.next_data || !is_in_place {
            self.held_bytes -= transfer.command.memory_bytes();
            let outcome = Outcome::Check(Sense::ABORTED);
            return self.respond(&Ended { task: transfer.task, outcome, sends: 0, held_bytes: 0 });
        }
        transfer.is_damaged |= is_damaged;
        transfer.next_data = transfer.next_data.wrapping_add(1);
        let rest = transfer.data.get_mut(transfer.filled..).unwrap_or_default();
        // What is beyond the command's own length is passed over.
        let taken = data.len().min(rest.len());
        rest[..taken].copy_from_slice(&data[..taken]);
        transfer.filled += taken;
        match (header.is_final(), transfer.filled == transfer.data.len()) {
            (false, _) => drop(self.incoming.insert(transfer.task.tag, transfer)),
            (true, false) => self.ask(transfer),
            (true, true) if transfer.is_damaged => {
                self.held_bytes -= transfer.command.memory_bytes();
                let outcome = Outcome::Check(Sense::DAMAGED_DATA);
                self.respond(&Ended { task: transfer.task, outcome, sends: 0, held_bytes: 0 });
            }
            (true, true) => self.run(transfer),
        }
    }

    fn run(&mut self, transfer: Transfer<E>) {
        let Transfer { task, unit, command, data, .. } = transfer;
        self.active.insert(task.tag, task.lun);
        let (sends, held_bytes) = (command.sends(), command.memory_bytes());
        let running = async move {
            let outcome = unit.perform(command, data).await;
            Ended { task, outcome, sends, held_bytes }
        };
        self.running.push(running.boxed());
    }

    fn finish(&mut self, ended: Ended) {
        let tag = ended.task.tag;
        self.active.remove(&tag);
        self.held_bytes -= ended.held_bytes;
        if !self.aborted.remove(&tag) {
            self.respond(&ended);
        }
        for mut abort in std::mem::take(&mut self.aborts) {
            abort.tasks.remove(&tag);
            match abort.tasks.is_empty() {
                true => self.answer_management(abort.tag, 0),
                false => self.aborts.push(abort),
            }
        }
    }

    /// Tells the initiator how a command ended, with the data that it asked for.
    fn respond(&mut self, ended: &Ended) {
        let Ended { task, outcome, sends, .. } = ended;
        let (status, data, sense) = match outcome {
            Outcome::Good(data) => (GOOD, &data[..], None),
            Outcome::Check(sense) => (CHECK_CONDITION, &[][..], Some(sense)),
            Outcome::Conflict => (RESERVATION_CONFLICT, &[][..], None),
        };
        let moves = if task.reads || *sends == 0 { data.len() as u64 } else { *sends };
        let moves = if status == GOOD { moves } else { 0 };
        let (residual_flag, residual) = match moves.cmp(&task.expected) {
            std::cmp::Ordering::Less => (UNDERFLOW, task.expected - moves),
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Greater => (OVERFLOW, moves - task.expected),
        };
        let residual = u32::try_from(residual).unwrap_or(u32::MAX);
        let sent = data.get(..data.len().min(task.expected as usize)).unwrap_or_default();
        let mut pieces = 0;
        if task.reads && !sent.is_empty() {
            let burst = self.agreed.burst_bytes as usize;
            let mut at = 0;
            while at < sent.len() {
                // To the end of the burst at most.
                let end = (at + self.agreed.their_data_bytes).min((at / burst + 1) * burst).min(sent.len());
                let header = Header::new(answer::DATA_IN).set(8, &task.lun).set_word(16, task.tag);
                let header = header.set_word(20, NO_TAG).set_word(36, pieces).set_word(40, at as u32);
                let is_last = end == sent.len();
                let is_burst_over = is_last || end.is_multiple_of(burst);
                let piece = sent.get(at..end).unwrap_or_default();
                if is_last {
                    let header = header.set_flags(FINAL | HAS_STATUS | residual_flag).set(3, &[GOOD]);
                    self.answer(header.set_word(44, residual), piece);
                } else {
                    self.append(header.set_flags(if is_burst_over { FINAL } else { 0 }), piece);
                }
                pieces += 1;
                at = end;
            }
            return;
        }
        let header = Header::new(answer::SCSI_RESPONSE).set_flags(FINAL | residual_flag);
        let header = header.set(3, &[status]).set_word(16, task.tag).set_word(44, residual);
        let sense = sense.map(|sense| with_length(*sense));
        self.answer(header, sense.as_deref().unwrap_or_default());
    }

    async fn answer_text(&mut self, header: &Header, data: &[u8], directory: &impl Directory<E>) {
        // An initiator that goes on asks for the rest.
        if header.word(20) == NO_TAG {
            let Some(text) = Text::parse(data) else { return self.reject(header, 9) };
            let mut reply = Text::default();
            for (key, value) in &text.0 {
                match key.as_str() {
                    "SendTargets" => {
                        let of_session = self.units.as_ref().map(|units| units.target().to_owned());
                        for (target, address) in directory.targets().await {
                            let is_meant = match value.as_str() {
                                "All" => of_session.is_none(),
                                "" => of_session.as_ref() == Some(&target),
                                name => *name == target,
                            };
                            if is_meant {
                                reply.push("TargetName", &target);
                                reply.push("TargetAddress", address);
                            }
                        }
                    }
                    "MaxRecvDataSegmentLength" => {}
                    key => reply.push(key, "NotUnderstood"),
                }
            }
            self.text = reply.to_bytes();
        }
        let most = self.agreed.their_data_bytes.min(LOGIN_DATA_BYTES);
        let rest = self.text.split_off(self.text.len().min(most));
        let piece = std::mem::replace(&mut self.text, rest);
        let is_last = self.text.is_empty();
        let reply = Header::new(answer::TEXT).set_flags(if is_last { FINAL } else { CONTINUE });
        let reply = reply.set_word(16, header.task_tag()).set_word(20, if is_last { NO_TAG } else { 1 });
        self.answer(reply, &piece);
    }
}
