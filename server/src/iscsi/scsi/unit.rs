//! Doing commands on an export.
//!
//! # Order
//! Commands run at the same time, as the export allows it. Only COMPARE AND WRITE and ORWRITE keep all other
//! writes of the same export's sessions away while they read and write ([`Shared`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::{IgnorePoison, IoBuf};
use futures_util::future::BoxFuture;
use tokio::sync::{self, Notify, RwLock, RwLockReadGuard};

use super::super::login::Initiator;
use super::attention::{Attentions, State};
use super::command::{Blocks, Command, Compares, OPERATIONS, Shape, What};
use super::copy::{self, Segment};
use super::inquiry::{self, Identity, MOST_RANGES};
use super::interruptions::{Interruption, Member, Members, Running};
use super::provisioning::{LOG_PAGE, Provisioning, Scarcity};
use super::reservations::{Change, Refusal, Reservations, Use};
use super::units::Reach;
use super::{Found, Outcome, Sense, mode};
use crate::block::{Asked, Export, ExportError, Gathered, Listed, ListedRequest, Percent, Share, UnderWay};

/// Bytes that are read or written at a time where a command names a long run.
const PIECE_BYTES: u64 = 1 << 20;

/// The action of PERSISTENT RESERVE OUT that ends commands, too.
const PREEMPT_AND_ABORT: u8 = 5;

/// What all sessions of a volume share.
#[derive(Debug, Default)]
pub(in crate::iscsi) struct Shared {
    /// Writes hold it together, what reads and writes alone.
    exclusive: RwLock<()>,
    reservations: Mutex<Reservations>,
    /// Held while reservations change and are kept. True once those that were kept are there.
    is_loaded: sync::Mutex<bool>,
    members: Members,
}

impl Shared {
    /// Takes up the reservations that were kept with the volume.
    ///
    /// # Errors
    /// They cannot be read, or not be understood, for a person.
    pub async fn load<E: Export>(&self, export: &E) -> Result<(), String> {
        let mut is_loaded = self.is_loaded.lock().await;
        if !*is_loaded {
            let kept = export.kept().await.map_err(|error| error.to_string())?;
            if let Some(kept) = kept {
                let reservations = Reservations::from_text(&kept, export.guid())?;
                *self.reservations.lock().ignore_poison() = reservations;
            }
            *is_loaded = true;
        }
        Ok(())
    }
}

/// Counts when reservations were asked for, to know the last answer.
static TURNS: AtomicU64 = AtomicU64::new(1);

impl Shared {
    /// Has the reservations that another daemon, or another task, knew.
    ///
    /// # Errors
    /// They are not understood, for a person.
    pub async fn take_over(&self, text: &str) -> Result<(), String> {
        let mut is_loaded = self.is_loaded.lock().await;
        *self.reservations.lock().ignore_poison() = Reservations::as_they_were(text)?;
        *is_loaded = true;
        Ok(())
    }
}

/// What a unit needs beside its export.
pub(in crate::iscsi) struct Surroundings<E> {
    /// The name of its target, and the group of the portal.
    pub target: String,
    pub port: u16,
    pub initiator: Initiator,
    pub reach: Arc<Reach<E>>,
    /// Wakes the session when another one interrupts its commands.
    pub wake: Arc<Notify>,
}

/// What the initiator is told without asking.
#[derive(Debug)]
struct Watch {
    attentions: Attentions,
    /// When its room is scarce, and whether it is.
    threshold: Percent,
    scarcity: Scarcity,
}

/// A logical unit as one session has it.
pub(in crate::iscsi) struct Unit<E> {
    export: Arc<E>,
    identity: Identity,
    initiator: Initiator,
    reach: Arc<Reach<E>>,
    shared: Arc<Shared>,
    member: Arc<Member>,
    watch: Mutex<Watch>,
    /// The number of the last copy that was done, and its segments, until the initiator asks for it.
    copied: Mutex<Option<(u8, u16)>>,
}

impl<E> Drop for Unit<E> {
    fn drop(&mut self) {
        // Without a session an initiator has no reservation but persistent ones.
        self.shared.reservations.lock().ignore_poison().release_unit(&self.initiator);
    }
}

impl<E: Export> Unit<E> {
    /// A unit of a target.
    pub fn new(export: Arc<E>, share: &Share, surroundings: &Surroundings<E>, shared: Arc<Shared>) -> Self {
        let Surroundings { target, port, initiator, reach, wake } = surroundings;
        let identity = Identity {
            guid: export.guid(),
            target: target.clone(),
            port: *port,
            block_bytes: share.sector.get(),
        };
        let watch = Watch {
            attentions: Attentions::new(state(&*export, share.sector.get())),
            threshold: share.threshold,
            scarcity: Scarcity::default(),
        };
        Self {
            export,
            identity,
            initiator: initiator.clone(),
            reach: Arc::clone(reach),
            member: shared.members.add(initiator.clone(), Arc::clone(wake)),
            shared,
            watch: Mutex::new(watch),
            copied: Mutex::default(),
        }
    }

    /// Whether another host has its volume by now.
    pub fn is_elsewhere(&self) -> bool {
        self.export.is_elsewhere()
    }

    /// The initiator is told when more of its room than this is taken.
    pub fn set_threshold(&self, threshold: Percent) {
        self.watch.lock().ignore_poison().threshold = threshold;
    }

    /// Whether it is of this volume, as that is shared.
    pub fn is_of(&self, listed: &Listed) -> bool {
        listed.guid == self.identity.guid && listed.share.sector.get() == self.identity.block_bytes
    }

    /// Its name of 8 bytes.
    pub fn naa(&self) -> [u8; 8] {
        self.identity.naa()
    }

    /// The number of the volume, and its reservations for another daemon. The last to ask, by the number
    /// between, knows them as they are.
    pub fn reservations_as_they_are(&self) -> Option<(u64, u64, String)> {
        let reservations = self.shared.reservations.lock().ignore_poison();
        let text = reservations.as_they_are()?;
        Some((self.identity.guid, TURNS.fetch_add(1, Ordering::Relaxed), text))
    }

    /// The unit at present.
    fn shape(&self) -> Shape {
        let block_bytes = self.identity.block_bytes;
        let capacity = self.export.size_bytes() / u64::from(block_bytes);
        Shape { capacity, block_bytes, is_writable: self.export.is_writable() }
    }

    fn block_bytes(&self) -> usize {
        self.identity.block_bytes as usize
    }

    /// What the initiator has to be told before its next command is done. It is told once.
    pub fn attention(&self) -> Option<Sense> {
        if let Some(reset) = self.member.take_attention() {
            return Some(reset);
        }
        let now = state(&*self.export, self.identity.block_bytes);
        let mut watch = self.watch.lock().ignore_poison();
        let is_scarce = watch.scarcity.is_scarce();
        watch.attentions.next(State { is_scarce, ..now })
    }

    /// What the initiator is told without asking, once. Looks how much room there is.
    pub fn news(&self) -> impl Iterator<Item = Sense> + use<E> {
        // What could be written anew as a whole lacks nothing.
        let size_bytes = self.export.size_bytes();
        let room = self.export.room().filter(|room| room.left_bytes < size_bytes);
        let now = state(&*self.export, self.identity.block_bytes);
        let mut watch = self.watch.lock().ignore_poison();
        watch.scarcity = watch.scarcity.next(room, watch.threshold);
        let is_scarce = watch.scarcity.is_scarce();
        watch.attentions.news(State { is_scarce, ..now })
    }

    /// Its target has other units than before.
    pub fn has_other_neighbours(&self) {
        self.watch.lock().ignore_poison().attentions.add_other_units();
    }

    /// The initiator was told which units its target has.
    pub fn knows_its_neighbours(&self) {
        self.watch.lock().ignore_poison().attentions.forget_other_units();
    }

    /// Interrupts the commands of all other sessions. A reset ends the reservation of SPC-2, too. Ready when
    /// all commands have ended that ran when this was called, those of this session included.
    pub fn interrupt_others(&self, why: Interruption) -> BoxFuture<'static, ()> {
        if let Interruption::Reset(_) = why {
            self.shared.reservations.lock().ignore_poison().release_all_units();
        }
        self.shared.members.interrupt(why, |member| !std::ptr::eq(member, &*self.member))
    }

    /// Whether another session ended its commands, and that was not taken up yet.
    pub fn is_interrupted(&self) -> bool {
        self.member.is_interrupted()
    }

    /// Takes up that its commands are to end.
    pub fn take_interruption(&self) -> Option<Interruption> {
        self.member.take_interruption()
    }

    /// The initiator is to be told that its commands were ended.
    pub fn tell_of_cleared_commands(&self) {
        self.member.tell(Sense::COMMANDS_CLEARED);
    }

    /// A command begins to run.
    pub fn begin(&self) -> Running {
        self.shared.members.begin()
    }

    /// Reads a command.
    ///
    /// # Errors
    /// What the initiator is told.
    pub fn parse(&self, descriptor: &[u8; 16]) -> Result<Command, Sense> {
        Command::parse(descriptor, self.shape())
    }

    /// Whether a command is to be done now.
    ///
    /// # Errors
    /// A reservation is in the way, or the initiator is to be told of something first.
    pub fn admits(&self, command: &Command) -> Result<(), Refusal> {
        let mut reservations = self.shared.reservations.lock().ignore_poison();
        if let Some(attention) = reservations.attention(&self.initiator) {
            return Err(Refusal::Check(attention));
        }
        let is_own = command.what == What::ReleaseUnit || !reservations.is_taken_from(&self.initiator);
        match is_own && reservations.lets(&self.initiator, command.usage()) {
            true => Ok(()),
            false => Err(Refusal::Conflict),
        }
    }

    /// Where commands are listed that are not done yet.
    pub fn under_way(&self) -> Option<&Arc<UnderWay>> {
        self.export.under_way()
    }

    /// Lists a command that waits for this, as long as what is returned is kept.
    pub fn list(&self, command: &Command, waits_for: &'static str) -> Option<ListedRequest> {
        let asked = match command.what {
            What::Read(blocks) => Asked::of("read", blocks.offset(), blocks.bytes()),
            What::Write { blocks, .. } => Asked::of("write", blocks.offset(), blocks.bytes()),
            _ => Asked::of("command", 0, command.sends),
        };
        self.export.under_way().map(|list| list.begin(asked, waits_for))
    }

    /// Keeps commands away that must be alone.
    async fn together(&self) -> RwLockReadGuard<'_, ()> {
        if let Ok(guard) = self.shared.exclusive.try_read() {
            return guard;
        }
        let alone = Asked::of("write", 0, 0);
        let _listed = self.export.under_way().map(|list| list.begin(alone, "a command that is alone"));
        self.shared.exclusive.read().await
    }

    /// Does a command with the data that the initiator sent, of which there may be too few.
    pub async fn perform(self: Arc<Self>, command: Command, data: IoBuf, running: Running) -> Outcome {
        let changed = match command.what {
            What::ReserveOut { action, kind } => {
                // It waits for commands that run, and not for itself.
                drop(running);
                Some(self.reserve(action, kind, &data).await)
            }
            What::ReserveUnit => {
                Some(self.shared.reservations.lock().ignore_poison().reserve_unit(&self.initiator))
            }
            _ => None,
        };
        match changed {
            Some(Ok(())) => return Outcome::Good(Found::nothing()),
            Some(Err(Refusal::Conflict)) => return Outcome::Conflict,
            Some(Err(Refusal::Check(sense))) => return Outcome::Check(sense),
            None => {}
        }
        let result = self.answer(command, data).await;
        match result {
            Ok(found) => Outcome::Good(found),
            Err(sense) => Outcome::Check(sense),
        }
    }

    async fn answer(self: &Arc<Self>, command: Command, data: IoBuf) -> Result<Found, Sense> {
        let found = match command.what {
            What::Read(blocks) => return self.gather(blocks).await.map(Found::Read),
            What::Write { blocks, stable } => {
                return self.write(blocks, data, stable).await.map(|()| Found::nothing());
            }
            What::TestUnitReady
            | What::Nothing
            | What::Prefetch
            | What::ReserveOut { .. }
            | What::ReserveUnit => Vec::new(),
            What::ReleaseUnit => {
                self.shared.reservations.lock().ignore_poison().release_unit(&self.initiator);
                Vec::new()
            }
            What::ReserveIn { action } => {
                let is_kept = self.export.is_writable();
                self.shared.reservations.lock().ignore_poison().tell_of(action, is_kept)?
            }
            What::RequestSense => Sense::NONE.to_bytes().to_vec(),
            What::Inquiry { page: None } => inquiry::standard(),
            What::Inquiry { page: Some(page) } => {
                inquiry::page(page, &self.identity, self.export.block_bytes())?
            }
            What::ModeSense { is_long, page, subpage, control, without_blocks } => {
                let asked = mode::Asked { is_long, page, subpage, control, without_blocks };
                mode::sense(asked, self.shape(), self.provisioning())?
            }
            What::ModeSelect { is_long } => {
                mode::select(is_long, &data, self.provisioning()).map(|()| Vec::new())?
            }
            What::LogSense { page, subpage, first } => self.log((page, subpage), first)?,
            What::ReadCapacity => {
                let shape = self.shape();
                let last = u32::try_from(shape.capacity.saturating_sub(1)).unwrap_or(u32::MAX);
                [last.to_be_bytes(), shape.block_bytes.to_be_bytes()].concat()
            }
            What::ReadCapacity16 => self.capacity16(),
            What::LbaStatus { first } => self.lba_status(first, command.room).await?,
            What::Flush => {
                self.export.flush().await.map_err(|error| Sense::of(&error, true))?;
                Vec::new()
            }
            What::Verify { blocks, compares } => {
                self.verify(blocks, compares, &data).await.map(|()| Vec::new())?
            }
            What::Unmap => self.unmap(&data).await.map(|()| Vec::new())?,
            What::WriteSame { blocks, is_zeroes } => {
                self.write_same(blocks, is_zeroes, &data).await.map(|()| Vec::new())?
            }
            What::CompareAndWrite { blocks, stable } => {
                self.compare_and_write(blocks, &data, stable).await.map(|()| Vec::new())?
            }
            What::OrWrite { blocks, stable } => {
                self.or_write(blocks, &data, stable).await.map(|()| Vec::new())?
            }
            What::Copy => self.copy(&data).await.map(|()| Vec::new())?,
            What::CopyParameters => copy::parameters(),
            What::CopyStatus { list } => {
                let copied = self.copied.lock().ignore_poison().take_if(|(number, _)| *number == list);
                copy::status(copied.ok_or(Sense::INVALID_FIELD)?.1)
            }
            // The target has answered it.
            What::ReportLuns => return Err(Sense::INVALID_OPERATION),
            What::SupportedOperations { options, operation, action } => {
                supported(options, operation, action)?
            }
            What::PortGroups => {
                let [high, low] = self.identity.port.to_be_bytes();
                // Active and optimized, which is the only state; one port.
                vec![0, 0, 0, 12, 0, 1, high, low, 0, 0, 0, 1, 0, 0, 0, 1]
            }
        };
        let found = found.get(..found.len().min(command.room)).unwrap_or_default();
        Ok(Found::Bytes(IoBuf::from(found)))
    }

    /// Reads for an answer: blocks that are cached stay where they are.
    async fn gather(&self, blocks: Blocks) -> Result<Gathered, Sense> {
        // The descriptor was checked: at most as much as a command may move.
        let bytes = blocks.bytes() as usize;
        let mut data = Gathered::new(bytes);
        if blocks.count > 0 {
            let read = self.export.read_to(blocks.offset(), bytes, &mut data);
            read.await.map_err(|error| Sense::of(&error, false))?;
        }
        Ok(data)
    }

    async fn read(&self, blocks: Blocks) -> Result<IoBuf, Sense> {
        // The descriptor was checked: at most as much as a command may move.
        let mut data = IoBuf::for_overwrite(blocks.bytes() as usize);
        if blocks.count > 0 {
            self.export.read(blocks.offset(), &mut data).await.map_err(|error| Sense::of(&error, false))?;
        }
        Ok(data)
    }

    /// Writes the whole blocks among the data.
    async fn write(&self, blocks: Blocks, data: IoBuf, stable: bool) -> Result<(), Sense> {
        let whole = data.len() - data.len() % self.block_bytes();
        if whole == 0 {
            return Ok(());
        }
        let _together = self.together().await;
        let data = data.narrow(0..whole.min(blocks.bytes() as usize));
        self.export.write(blocks.offset(), data, stable).await.map_err(failed_write)
    }

    async fn verify(&self, blocks: Blocks, compares: Compares, data: &[u8]) -> Result<(), Sense> {
        let end = blocks.offset() + blocks.bytes();
        let mut at = blocks.offset();
        while at < end {
            let size = (end - at).min(PIECE_BYTES);
            let mut found = IoBuf::for_overwrite(size as usize);
            self.export.read(at, &mut found).await.map_err(|error| Sense::of(&error, false))?;
            let start = (at - blocks.offset()) as usize;
            let differs = match compares {
                Compares::Nothing => None,
                Compares::All => {
                    let given = data.get(start..).unwrap_or_default();
                    first_difference(&found, given.get(..found.len().min(given.len())).unwrap_or_default())
                }
                Compares::One => {
                    let each = self.block_bytes();
                    let mut pieces = found.chunks(each).enumerate();
                    pieces.find_map(|(index, block)| Some(index * each + first_difference(block, data)?))
                }
            };
            if let Some(place) = differs {
                return Err(Sense::miscompare((start + place) as u32));
            }
            at += size;
        }
        Ok(())
    }

    async fn unmap(&self, data: &[u8]) -> Result<(), Sense> {
        if data.is_empty() {
            return Ok(());
        }
        let length = |at: usize| {
            let bytes = data.get(at..at + 2)?;
            Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
        };
        let bytes = length(2).ok_or(Sense::PARAMETER_LENGTH)?;
        let list = data.get(8..).ok_or(Sense::PARAMETER_LENGTH)?;
        let list = list.get(..bytes.min(list.len())).unwrap_or_default();
        let Shape { capacity, block_bytes: each, .. } = self.shape();
        let ranges = list.chunks_exact(16).filter_map(|range| {
            let first = u64::from_be_bytes(*range.first_chunk()?);
            let count = u32::from_be_bytes(range.get(8..12)?.try_into().ok()?);
            Some(Blocks { first, count: u64::from(count), each })
        });
        let ranges: Vec<_> = ranges.collect();
        if ranges.len() > MOST_RANGES as usize {
            return Err(Sense::INVALID_PARAMETER);
        }
        if ranges.iter().any(|range| range.first.checked_add(range.count).is_none_or(|end| end > capacity)) {
            return Err(Sense::OUT_OF_RANGE);
        }
        let _together = self.together().await;
        for range in ranges.iter().filter(|range| range.count > 0) {
            self.zero(*range).await.map_err(failed_write)?;
        }
        Ok(())
    }

    /// Makes blocks read as zeroes, and gives their space back.
    async fn zero(&self, blocks: Blocks) -> Result<(), ExportError> {
        let end = blocks.offset() + blocks.bytes();
        let mut at = blocks.offset();
        while at < end {
            let size = (end - at).min(1 << 30);
            self.export.write_zeroes(at, size, false, false).await?;
            at += size;
        }
        Ok(())
    }

    async fn write_same(&self, blocks: Blocks, is_zeroes: bool, data: &[u8]) -> Result<(), Sense> {
        let _together = self.together().await;
        let is_zeroes = is_zeroes || data.iter().all(|byte| *byte == 0);
        if is_zeroes {
            return self.zero(blocks).await.map_err(failed_write);
        }
        if data.len() != self.block_bytes() {
            return Err(Sense::PARAMETER_LENGTH);
        }
        let end = blocks.offset() + blocks.bytes();
        let mut at = blocks.offset();
        while at < end {
            let size = (end - at).min(PIECE_BYTES) as usize;
            let mut piece = IoBuf::for_overwrite(size);
            piece.chunks_exact_mut(data.len()).for_each(|block| block.copy_from_slice(data));
            self.export.write(at, piece, false).await.map_err(failed_write)?;
            at += size as u64;
        }
        Ok(())
    }

    async fn compare_and_write(&self, blocks: Blocks, data: &[u8], stable: bool) -> Result<(), Sense> {
        let (compared, written) =
            data.split_at_checked(blocks.bytes() as usize).ok_or(Sense::PARAMETER_LENGTH)?;
        if written.len() != compared.len() {
            return Err(Sense::PARAMETER_LENGTH);
        }
        if compared.is_empty() {
            return Ok(());
        }
        let _alone = self.shared.exclusive.write().await;
        let found = self.read(blocks).await?;
        if let Some(place) = first_difference(&found, compared) {
            return Err(Sense::miscompare(place as u32));
        }
        self.export.write(blocks.offset(), IoBuf::from(written), stable).await.map_err(failed_write)
    }

    async fn or_write(&self, blocks: Blocks, data: &[u8], stable: bool) -> Result<(), Sense> {
        if data.len() as u64 != blocks.bytes() {
            return Err(Sense::PARAMETER_LENGTH);
        }
        if data.is_empty() {
            return Ok(());
        }
        let _alone = self.shared.exclusive.write().await;
        let mut found = self.read(blocks).await?;
        found.iter_mut().zip(data).for_each(|(byte, set)| *byte |= set);
        self.export.write(blocks.offset(), found, stable).await.map_err(failed_write)
    }

    /// Changes persistent reservations, and keeps them where that is asked for.
    async fn reserve(&self, action: u8, kind: u8, data: &[u8]) -> Result<(), Refusal> {
        let change = Change::parse(action, kind, data).map_err(Refusal::Check)?;
        if change.is_kept && !self.export.is_writable() {
            return Err(Refusal::Check(Sense::INVALID_PARAMETER));
        }
        // One change after another.
        let _changing = self.shared.is_loaded.lock().await;
        let reservations = self.shared.reservations.lock().ignore_poison().clone();
        let mut next = reservations.clone();
        next.change(&self.initiator, change)?;
        let guid = self.export.guid();
        let text = next.to_text(guid).map_err(Refusal::Check)?;
        if Ok(&text) != reservations.to_text(guid).as_ref()
            && let Err(error) = self.export.keep(text).await
        {
            tracing::warn!(target = self.identity.target, %error, "reservations cannot be kept");
            return Err(Refusal::Check(Sense::of(&error, true)));
        }
        let preempted = reservations.lost_by(&next);
        self.shared.reservations.lock().ignore_poison().change(&self.initiator, change)?;
        if action == PREEMPT_AND_ABORT {
            let is_preempted = |member: &Member| preempted.contains(&member.initiator);
            self.shared.members.interrupt(Interruption::Preempted, is_preempted).await;
        }
        Ok(())
    }

    /// A unit that a copy names, which the initiator may use for that.
    fn reached(self: &Arc<Self>, name: [u8; 8], usage: Use) -> Result<Arc<Self>, Sense> {
        let unit = match name == self.naa() {
            true => Arc::clone(self),
            false => self.reach.find(&self.initiator.name, name).ok_or(Sense::UNREACHABLE_UNIT)?,
        };
        let reservations = unit.shared.reservations.lock().ignore_poison();
        let is_let =
            !reservations.is_taken_from(&unit.initiator) && reservations.lets(&unit.initiator, usage);
        drop(reservations);
        if is_let { Ok(unit) } else { Err(Sense::COPY_FAILED) }
    }

    /// Does EXTENDED COPY. All segments are checked before the first is copied.
    async fn copy(self: &Arc<Self>, list: &[u8]) -> Result<(), Sense> {
        let mut runs = Vec::new();
        for segment in copy::parse(list)? {
            let Segment { first_of_source, first_of_destination, count, .. } = segment;
            let source = self.reached(segment.source, Use::Reads)?;
            let destination = self.reached(segment.destination, Use::Writes)?;
            let blocks = |unit: &Self, first: u64| {
                let Shape { capacity, block_bytes: each, .. } = unit.shape();
                let end = first.checked_add(count).filter(|end| *end <= capacity);
                end.map(|_| Blocks { first, count, each }).ok_or(Sense::COPY_ABORTED)
            };
            let (from, to) = (blocks(&source, first_of_source)?, blocks(&destination, first_of_destination)?);
            if from.each != to.each {
                return Err(Sense::INVALID_PARAMETER);
            }
            if !destination.shape().is_writable {
                return Err(Sense::WRITE_PROTECTED);
            }
            runs.push((source, from, destination, to));
        }
        let segments = runs.len() as u16;
        for (source, from, destination, to) in runs.into_iter().filter(|(_, from, ..)| from.count > 0) {
            // A session that interrupts the destination's commands waits for this, too.
            let _running = destination.begin();
            let _together = destination.together().await;
            let overlaps = Arc::ptr_eq(&source.shared, &destination.shared)
                && from.first < to.first + to.count
                && to.first < from.first + from.count;
            let (offsets, length) = ((from.offset(), to.offset()), from.bytes());
            let cloned = match overlaps {
                true => Ok(None),
                false => destination.export.copy_from(&source.export, offsets.0, offsets.1, length).await,
            };
            match cloned {
                Ok(Some(_)) => {}
                Ok(None) => copy_bytes(&*source.export, &*destination.export, offsets, length).await?,
                Err(error) => {
                    tracing::warn!(target = self.identity.target, %error, "a copy failed");
                    return Err(Sense::of(&error, true));
                }
            }
        }
        *self.copied.lock().ignore_poison() = copy::list_number(list).map(|number| (number, segments));
        Ok(())
    }

    /// The room for it, and its threshold.
    fn provisioning(&self) -> Option<Provisioning> {
        let threshold = self.watch.lock().ignore_poison().threshold;
        self.export.room().map(|room| Provisioning::new(room, threshold))
    }

    /// A page of the log, from a parameter on.
    fn log(&self, page: (u8, u8), first: u16) -> Result<Vec<u8>, Sense> {
        let (mut data, body) = match page {
            (0, 0) => (vec![0, 0], vec![0, LOG_PAGE]),
            // Pages and their subpages.
            (0, 0xff) => (vec![0x40, 0xff], vec![0, 0, 0, 0xff, LOG_PAGE, 0]),
            (LOG_PAGE, 0) => {
                let provisioning = self.provisioning().ok_or(Sense::INVALID_FIELD)?;
                (vec![0x80 | LOG_PAGE, 0], provisioning.log(first).ok_or(Sense::INVALID_FIELD)?)
            }
            _ => return Err(Sense::INVALID_FIELD),
        };
        data.extend((body.len() as u16).to_be_bytes());
        data.extend(body);
        Ok(data)
    }

    fn capacity16(&self) -> Vec<u8> {
        let shape = self.shape();
        let mut data = shape.capacity.saturating_sub(1).to_be_bytes().to_vec();
        data.extend(shape.block_bytes.to_be_bytes());
        // No protection; the length of a physical block as a power of two; thin, and zeroes where unmapped.
        let exponent = self.identity.best_blocks(self.export.block_bytes()).ilog2() as u8;
        data.extend([0, exponent.min(15), 0xc0, 0]);
        data.resize(32, 0);
        data
    }

    async fn lba_status(&self, first: u64, room: usize) -> Result<Vec<u8>, Sense> {
        let Shape { capacity, block_bytes, .. } = self.shape();
        let each = u64::from(block_bytes);
        let mut runs: Vec<(u64, u64, bool)> = Vec::new();
        let mut at = first;
        while at < capacity && 8 + 16 * runs.len() < room.min(8 + 16 * 64) {
            let extent = self.export.extent(at * each).await.map_err(|error| Sense::of(&error, false))?;
            // What is not known to be a hole is data.
            let count = extent.len_bytes.div_ceil(each).clamp(1, capacity - at).min(u64::from(u32::MAX));
            runs.push((at, count, extent.is_hole));
            at += count;
        }
        let mut data = ((4 + 16 * runs.len()) as u32).to_be_bytes().to_vec();
        data.extend([0; 4]);
        for (first, count, is_hole) in runs {
            data.extend(first.to_be_bytes());
            data.extend((count as u32).to_be_bytes());
            data.extend([u8::from(is_hole), 0, 0, 0]);
        }
        Ok(data)
    }
}

/// What an initiator may know of a unit with blocks of so many bytes, and enough room.
fn state<E: Export>(export: &E, block_bytes: u32) -> State {
    let capacity = export.size_bytes() / u64::from(block_bytes);
    State { capacity, volume_block_bytes: export.block_bytes(), is_scarce: false }
}

/// Copies bytes through memory, in the order in which runs that overlap keep what they have.
async fn copy_bytes<E: Export>(
    source: &E,
    destination: &E,
    (from, to): (u64, u64),
    length: u64,
) -> Result<(), Sense> {
    let mut done = 0;
    while done < length {
        let size = (length - done).min(PIECE_BYTES);
        let at = if to > from { length - done - size } else { done };
        let mut piece = IoBuf::for_overwrite(size as usize);
        source.read(from + at, &mut piece).await.map_err(|error| Sense::of(&error, false))?;
        destination.write(to + at, piece, false).await.map_err(failed_write)?;
        done += size;
    }
    Ok(())
}

fn failed_write(error: ExportError) -> Sense {
    Sense::of(&error, true)
}

/// The first byte that differs.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    let pairs = one.iter().zip(other);
    pairs.enumerate().find(|(_, (one, other))| one != other).map(|(place, _)| place)
}

/// The operations that there are, or one of them.
fn supported(options: u8, operation: u8, action: u16) -> Result<Vec<u8>, Sense> {
    let has_timeouts = options & 0x80 != 0;
    let of_code = || OPERATIONS.iter().filter(|(code, ..)| *code == operation);
    let one = |found: Option<&[u8]>| {
        let mut data = vec![0, if found.is_some() { 3 } else { 1 }];
        let usage = found.unwrap_or_default();
        if has_timeouts && found.is_some() {
            data = vec![0, 0x83];
        }
        data.extend((usage.len() as u16).to_be_bytes());
        data.extend_from_slice(usage);
        if has_timeouts && found.is_some() {
            data.extend([0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        data
    };
    match options & 7 {
        0 => {
            let mut list = Vec::new();
            for (code, action, usage) in OPERATIONS {
                let [high, low] = action.unwrap_or(0).to_be_bytes();
                let flags = u8::from(action.is_some()) | if has_timeouts { 2 } else { 0 };
                let [length_high, length_low] = (usage.len() as u16).to_be_bytes();
                list.extend([*code, 0, high, low, 0, flags, length_high, length_low]);
                if has_timeouts {
                    list.extend([0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            let mut data = (list.len() as u32).to_be_bytes().to_vec();
            data.extend(list);
            Ok(data)
        }
        // Of one code that has no actions.
        1 => match of_code().any(|(_, action, _)| action.is_some()) {
            true => Err(Sense::INVALID_FIELD),
            false => Ok(one(of_code().next().map(|(.., usage)| *usage))),
        },
        // Of one action.
        2 => match of_code().any(|(_, action, _)| action.is_none()) {
            true => Err(Sense::INVALID_FIELD),
            false => {
                let found = of_code().find(|(_, known, _)| *known == Some(action));
                Ok(one(found.map(|(.., usage)| *usage)))
            }
        },
        3 => {
            let found = of_code().find(|(_, known, _)| known.unwrap_or(0) == action);
            Ok(one(found.map(|(.., usage)| *usage)))
        }
        _ => Err(Sense::INVALID_FIELD),
    }
}
