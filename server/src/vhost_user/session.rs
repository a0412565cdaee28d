//! One client's connection: what it asks for, and its rings.
//!
//! # The idea
//! A session is a task on one shard. It keeps what the client said of each ring. As soon as that is complete
//! and the ring is enabled, a task on a shard of the ring's own serves it (`queue`); when the client stops
//! the ring, that task says where it stands. So the session never touches a ring that is served.
//!
//! # States of a ring
//! | state | until |
//! |---|---|
//! | known in part | it has a size, addresses, a kick and memory, and is enabled |
//! | served | the client asks for its base, disables it, or resets the device |
//!
//! A ring that is served has its *turn* until all that it began is done, also after it was stopped; the task
//! that serves it next waits for that.
//!
//! # Ends
//! A session ends when the client goes, when it breaks the protocol or the rules of a ring, when the file of
//! its memory becomes shorter, and when the volume is taken away. Its rings are given up then, and it waits
//! for what they have begun; only after that may another session go on with the same file of requests under
//! way.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use device::IgnorePoison;
use futures_util::FutureExt;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::device::{Disk, EVENT_INDEX, MOST_QUEUES, PROTOCOL_FEATURES, WRITEBACK_AT};
use super::inflight::{Claims, Inflight};
use super::memory::{Described, MOST_REGIONS, Memory};
use super::protocol::{Message, Wire, feature, request, tell_config_changed, violation};
use super::queue::{self, Control, Failure, MOST_DESCRIPTORS, RingPlace, Stopped};
use crate::block::{Export, Loan, Seat};
use crate::runtime::Shards;

/// How often it is looked whether the volume, or its blocks, have another size.
const LOOK: Duration = Duration::from_millis(500);
/// How long the session before may take to end that used the same file of requests under way.
const CLAIM_LIMIT: Duration = Duration::from_secs(60);
/// What a client may ask of the configuration at once.
const MOST_CONFIG_BYTES: u32 = 256;

/// The flag beside a ring's number that no file comes with it.
const NO_FILE: u64 = 1 << 8;

/// What all sessions share.
pub(super) struct Common {
    pub shards: Weak<Shards>,
    pub claims: Claims,
    pub handshake: Duration,
    /// How long requests may take after their ring was stopped, where they are not noted in a file.
    pub patience: Duration,
}

/// A ring that is served.
struct Running {
    /// Stops it; dropped to give it up.
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<Result<u16, Failure>>,
}

/// What is known of a ring.
#[derive(Default)]
struct Ring {
    size: u16,
    base: u16,
    /// User addresses of the table, of what is available, and of what is used.
    addresses: Option<[u64; 3]>,
    kick: Option<OwnedFd>,
    error: Option<OwnedFd>,
    is_enabled: bool,
    control: Arc<Mutex<Control>>,
    running: Option<Running>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A session.
pub(super) struct Session<E> {
    disk: Arc<Disk<E>>,
    common: Arc<Common>,
    seat: Arc<Seat>,
    features: u64,
    protocol: u64,
    memory: Arc<Memory>,
    rings: Vec<Ring>,
    inflight: Option<Arc<Inflight>>,
    claim: Option<OwnedSemaphorePermit>,
    /// Where the client is told of changes.
    channel: Option<UnixStream>,
    /// The volume's size and that of its blocks, as the client was told.
    told: (u64, u32),
}

/// Serves a client until it goes, or `open` says that the volume's socket is closed.
///
/// # Errors
/// Why the session ended, where the client did not end it.
pub(super) async fn serve<E: Export>(
    stream: UnixStream,
    export: Arc<E>,
    common: Arc<Common>,
    seat: Seat,
    mut open: watch::Receiver<()>,
) -> io::Result<()> {
    let mut wire = Wire::new(stream);
    let first = timeout(common.handshake, wire.next()).await;
    let Some(first) = first.map_err(|_| violation("the client says nothing"))?? else { return Ok(()) };
    let told = (export.size_bytes(), export.block_bytes());
    let mut session = Session {
        disk: Arc::new(Disk::new(export)),
        common,
        seat: Arc::new(seat),
        features: 0,
        protocol: 0,
        memory: Arc::default(),
        rings: (0..MOST_QUEUES).map(|_| Ring::default()).collect(),
        inflight: None,
        claim: None,
        channel: None,
        told,
    };
    let served = session.run(&mut wire, first, &mut open).await;
    // The client need not wait for what its rings have begun; who goes on with its requests does.
    drop(wire);
    session.give_up().await;
    served
}

impl<E: Export> Session<E> {
    async fn run(
        &mut self,
        wire: &mut Wire,
        first: Message,
        open: &mut watch::Receiver<()>,
    ) -> io::Result<()> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = Some(first);
        loop {
            if let Some(message) = next.take() {
                self.take(wire, message).await?;
            }
            tokio::select! {
                message = wire.next() => match message? {
                    Some(message) => next = Some(message),
                    None => return Ok(()),
                },
                (number, failure) = poll_fn(|context| self.poll_failed(context)) => {
                    self.report(number);
                    return Err(io::Error::other(format!("ring {number}: {failure}")));
                }
                _ = looks.tick() => self.tell_size().await?,
                closed = open.changed() => if closed.is_err() { return Ok(()) },
            }
        }
    }

    /// Takes a message, and answers it.
    async fn take(&mut self, wire: &Wire, message: Message) -> io::Result<()> {
        let (number, needs_reply) = (message.request, message.needs_reply);
        let is_acknowledged = needs_reply && self.protocol & feature::REPLY_ACK != 0;
        match self.answer(message).await {
            Ok(Answer::Payload(payload, file)) => wire.reply(number, &payload, file.as_ref()).await,
            Ok(Answer::Done) if is_acknowledged => wire.reply(number, &0u64.to_ne_bytes(), None).await,
            Ok(Answer::Done) => Ok(()),
            Err(error) if is_acknowledged => {
                tracing::warn!(%error, request = number, "a vhost-user client is refused a request");
                wire.reply(number, &1u64.to_ne_bytes(), None).await
            }
            Err(error) => Err(error),
        }
    }

    async fn answer(&mut self, mut message: Message) -> io::Result<Answer> {
        match message.request {
            request::GET_FEATURES => return Ok(Answer::u64(self.disk.features())),
            request::GET_PROTOCOL_FEATURES => return Ok(Answer::u64(feature::ALL)),
            request::GET_QUEUE_NUM => return Ok(Answer::u64(MOST_QUEUES.into())),
            request::GET_MAX_MEM_SLOTS => return Ok(Answer::u64(MOST_REGIONS as u64)),
            request::GET_CONFIG => return self.config(&message),
            request::GET_INFLIGHT_FD => return self.new_inflight(message),
            request::GET_VRING_BASE => return self.base(&message).await,
            request::SET_OWNER | request::RESET_OWNER => {}
            request::SET_FEATURES => {
                let features = message.u64(0)?;
                if features & !self.disk.features() != 0 {
                    return Err(violation("a feature that was not offered"));
                }
                self.features = features;
            }
            request::SET_PROTOCOL_FEATURES => self.protocol = message.u64(0)? & feature::ALL,
            request::SET_MEM_TABLE => self.set_memory(message)?,
            request::ADD_MEM_REG => {
                let described = region(&message, 8)?;
                let file = message.file()?;
                self.replace_memory(self.memory.with(described, file)?);
            }
            request::REM_MEM_REG => self.replace_memory(self.memory.without(region(&message, 8)?)?),
            request::SET_BACKEND_REQ_FD => {
                let channel = StdStream::from(message.file()?);
                channel.set_nonblocking(true)?;
                self.channel = Some(UnixStream::from_std(channel)?);
            }
            request::SET_CONFIG => {
                if message.u32(0)? != WRITEBACK_AT || message.u32(4)? != 1 {
                    return Err(violation("a part of the configuration that cannot be changed"));
                }
                let writeback = message.payload.get(12).copied();
                let writeback = writeback.ok_or_else(|| violation("a message that is too short"))?;
                self.disk.set_writes_through(writeback == 0);
            }
            request::SET_INFLIGHT_FD => self.set_inflight(message).await?,
            request::RESET_DEVICE => {
                for number in 0..MOST_QUEUES.into() {
                    self.stop(number).await?;
                    let ring = self.ring(number)?;
                    let (control, turn) = (Arc::clone(&ring.control), Arc::clone(&ring.turn));
                    *ring = Ring { control, turn, ..Ring::default() };
                }
                self.disk.set_writes_through(false);
                self.disk.forget_losses();
            }
            _ => self.set_ring(message).await?,
        }
        Ok(Answer::Done)
    }

    /// Takes what a client says of one ring.
    async fn set_ring(&mut self, mut message: Message) -> io::Result<()> {
        match message.request {
            request::SET_VRING_NUM => {
                let size = u16::try_from(message.u32(4)?).unwrap_or_default();
                if !size.is_power_of_two() || size > MOST_DESCRIPTORS {
                    return Err(violation("a ring of a wrong size"));
                }
                self.ring(message.u32(0)?)?.size = size;
            }
            request::SET_VRING_BASE => {
                // Only the ring's numbers are that long.
                let base = message.u32(4)? as u16;
                self.ring(message.u32(0)?)?.base = base;
            }
            request::SET_VRING_ADDR => {
                // The order is: table, used, available, log.
                let addresses = [message.u64(8)?, message.u64(24)?, message.u64(16)?];
                self.ring(message.u32(0)?)?.addresses = Some(addresses);
            }
            request::SET_VRING_KICK => {
                let (number, file) = ring_file(&mut message)?;
                let file = file.ok_or_else(|| violation("a ring that is to be polled"))?;
                self.stop(number).await?;
                self.ring(number)?.kick = Some(file);
                self.start(number)?;
            }
            request::SET_VRING_CALL => {
                let (number, file) = ring_file(&mut message)?;
                if let Some(call) = &file {
                    // A daemon may have ended after it put answers into the ring and before it told of them.
                    queue::signal(call)?;
                }
                self.ring(number)?.control.lock().ignore_poison().call = file.map(Arc::new);
            }
            request::SET_VRING_ERR => {
                let (number, file) = ring_file(&mut message)?;
                self.ring(number)?.error = file;
            }
            request::SET_VRING_ENABLE => {
                let (number, is_enabled) = (message.u32(0)?, message.u32(4)? != 0);
                self.ring(number)?.is_enabled = is_enabled;
                match is_enabled {
                    true => self.start(number)?,
                    false => self.stop(number).await?,
                }
            }
            _ => return Err(violation("a request that is not known")),
        }
        Ok(())
    }

    fn ring(&mut self, number: u32) -> io::Result<&mut Ring> {
        self.rings.get_mut(number as usize).ok_or_else(|| violation("a ring that does not exist"))
    }

    fn config(&self, message: &Message) -> io::Result<Answer> {
        let (offset, size) = (message.u32(0)?, message.u32(4)?);
        if size > MOST_CONFIG_BYTES || offset > MOST_CONFIG_BYTES {
            return Err(violation("a part of the configuration that does not exist"));
        }
        let config = self.disk.config();
        if self.disk.is_gone() {
            return Err(io::Error::other(Failure::Export.to_string()));
        }
        let asked = config.iter().copied().chain(std::iter::repeat(0));
        let mut payload: Vec<u8> = message.payload.get(..12).unwrap_or_default().to_vec();
        payload.extend(asked.skip(offset as usize).take(size as usize));
        Ok(Answer::Payload(payload, None))
    }

    fn set_memory(&mut self, message: Message) -> io::Result<()> {
        let count = message.u32(0)? as usize;
        if count > MOST_REGIONS || count != message.files.len() {
            return Err(violation("regions of memory without their files"));
        }
        let described: io::Result<Vec<Described>> =
            (0..count).map(|number| region(&message, 8 + number * 32)).collect();
        let mut memory = Memory::default();
        for (described, file) in described?.into_iter().zip(message.files) {
            memory = memory.with(described, file)?;
        }
        self.replace_memory(memory);
        Ok(())
    }

    fn replace_memory(&mut self, memory: Memory) {
        self.memory = Arc::new(memory);
        for ring in &self.rings {
            ring.control.lock().ignore_poison().memory = Arc::clone(&self.memory);
        }
    }

    fn new_inflight(&mut self, message: Message) -> io::Result<Answer> {
        let (queues, size) = inflight_shape(&message)?;
        let (file, len_bytes) = Inflight::create(queues, size)?;
        // The guest begins anew.
        self.disk.forget_losses();
        let mut payload = len_bytes.to_ne_bytes().to_vec();
        payload.extend(0u64.to_ne_bytes());
        payload.extend(queues.to_ne_bytes());
        payload.extend(size.to_ne_bytes());
        // Clients differ in whether the structure is padded.
        payload.resize(message.payload.len().max(payload.len()), 0);
        Ok(Answer::Payload(payload, Some(file)))
    }

    async fn set_inflight(&mut self, mut message: Message) -> io::Result<()> {
        let shape = inflight_shape(&message)?;
        let (len_bytes, offset) = (message.u64(0)?, message.u64(8)?);
        let inflight = Inflight::open(message.file()?, offset, len_bytes, shape)?;
        let before = self.inflight.as_ref().map(|inflight| inflight.identity());
        if before != Some(inflight.identity()) {
            self.claim = None;
            let claim = timeout(CLAIM_LIMIT, self.common.claims.claim(inflight.identity())).await;
            self.claim = claim.map_err(|_| violation("the session before does not end"))?;
        }
        let inflight = Arc::new(inflight);
        if self.disk.mark_in(&inflight) {
            tracing::error!(
                volume = self.disk.name(),
                "the guest was told of writes that the last daemon lost: its disk fails until it is reset"
            );
        }
        self.inflight = Some(inflight);
        Ok(())
    }

    /// Stops a ring, and says where it stands.
    async fn base(&mut self, message: &Message) -> io::Result<Answer> {
        let number = message.u32(0)?;
        self.stop(number).await?;
        let ring = self.ring(number)?;
        ring.kick = None;
        let mut payload = number.to_ne_bytes().to_vec();
        payload.extend(u32::from(ring.base).to_ne_bytes());
        Ok(Answer::Payload(payload, None))
    }

    /// Has a ring served, if enough is known of it.
    fn start(&mut self, number: u32) -> io::Result<()> {
        let is_always_enabled = self.features & PROTOCOL_FEATURES == 0;
        let has_event_index = self.features & EVENT_INDEX != 0;
        let (disk, memory, seat) = (Arc::clone(&self.disk), Arc::clone(&self.memory), Arc::clone(&self.seat));
        let (inflight, shards) = (self.inflight.clone(), self.common.shards.upgrade());
        let patience = self.common.patience;
        let ring = self.ring(number)?;
        let (Some(kick), Some(addresses), None) = (&ring.kick, ring.addresses, &ring.running) else {
            return Ok(());
        };
        if ring.size == 0 || !(ring.is_enabled || is_always_enabled) {
            return Ok(());
        }
        let addresses = addresses.map(|address| memory.guest_address(address));
        let [Some(table), Some(available), Some(used)] = addresses else {
            return Err(violation("a ring outside of guest memory"));
        };
        let Some(shards) = shards else { return Ok(()) };
        let ring_place =
            RingPlace { size: ring.size, table, available, used, next: ring.base, has_event_index };
        let inflight = match inflight {
            Some(inflight) => {
                let part = u16::try_from(number).ok().and_then(|number| inflight.queue(number, ring.size));
                Some(part.ok_or_else(|| violation("requests under way of a ring of another size"))?)
            }
            None => None,
        };
        let kick = kick.try_clone()?;
        let control = Arc::clone(&ring.control);
        let loan = Loan::of_part(seat, MOST_QUEUES.into());
        let (stop, mut stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let turn = Arc::clone(&ring.turn);
        shards.spawn(async move {
            // The session may be gone wherever this tells how it ended.
            let _turn = tokio::select! {
                biased;
                stopped = &mut stopped => {
                    return drop(end.send(stopped.map(|()| ring_place.next).map_err(|_| Failure::Client)));
                }
                turn = turn.lock_owned() => turn,
            };
            let stop = (stopped, patience);
            match queue::serve(disk, ring_place, (control, kick), inflight, loan, stop).await {
                Ok(Stopped { base, rest }) => {
                    let _ = end.send(Ok(base));
                    rest.done().await;
                }
                Err(failure) => drop(end.send(Err(failure))),
            }
        });
        ring.running = Some(Running { stop, ended });
        Ok(())
    }

    /// Stops a ring once what it took is answered, or is waited for no longer.
    async fn stop(&mut self, number: u32) -> io::Result<()> {
        let ring = self.ring(number)?;
        let Some(Running { stop, ended }) = ring.running.take() else { return Ok(()) };
        let _ = stop.send(());
        match ended.await {
            Ok(Ok(base)) => {
                ring.base = base;
                Ok(())
            }
            Ok(Err(failure)) => Err(io::Error::other(format!("ring {number}: {failure}"))),
            Err(_) => Err(io::Error::other("a ring ended with a panic")),
        }
    }

    /// Gives all rings up, and waits for what they have begun.
    async fn give_up(&mut self) {
        let ends: Vec<_> = self.rings.iter_mut().filter_map(|ring| ring.running.take()).collect();
        let ends: Vec<_> = ends.into_iter().map(|running| running.ended).collect();
        for ended in ends {
            let _ = ended.await;
        }
        for ring in &self.rings {
            drop(ring.turn.lock().await);
        }
    }

    /// Ready when a ring failed.
    fn poll_failed(&mut self, context: &mut Context<'_>) -> Poll<(usize, String)> {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            if let Some(running) = &mut ring.running
                && let Poll::Ready(ended) = running.ended.poll_unpin(context)
            {
                ring.running = None;
                let why = match ended {
                    Ok(Err(failure)) => failure.to_string(),
                    Ok(Ok(_)) | Err(_) => "it ended by itself".to_owned(),
                };
                return Poll::Ready((number, why));
            }
        }
        Poll::Pending
    }

    /// Tells the client that a ring failed, where it asked for that.
    fn report(&self, number: usize) {
        if let Some(error) = self.rings.get(number).and_then(|ring| ring.error.as_ref()) {
            let _ = queue::signal(error);
        }
    }

    /// Tells the client if the volume, or its blocks, have another size.
    async fn tell_size(&mut self) -> io::Result<()> {
        let size_bytes = self.disk.size_bytes();
        if self.disk.is_gone() {
            return Err(io::Error::other(Failure::Export.to_string()));
        }
        let now = (size_bytes, self.disk.export().block_bytes());
        if std::mem::replace(&mut self.told, now) == now {
            return Ok(());
        }
        let can_tell = self.protocol & feature::BACKEND_REQ != 0 && self.protocol & feature::CONFIG != 0;
        if let Some(channel) = self.channel.as_ref().filter(|_| can_tell)
            && timeout(LOOK, tell_config_changed(channel)).await.is_err()
        {
            tracing::debug!("a vhost-user client takes no messages");
        }
        Ok(())
    }
}

/// What a request is answered with.
enum Answer {
    /// Nothing, unless the client asks for it.
    Done,
    Payload(Vec<u8>, Option<OwnedFd>),
}

impl Answer {
    fn u64(number: u64) -> Self {
        Self::Payload(number.to_ne_bytes().to_vec(), None)
    }
}

/// The region that is described at an offset.
fn region(message: &Message, at: usize) -> io::Result<Described> {
    Ok(Described {
        guest_address: message.u64(at)?,
        len_bytes: message.u64(at + 8)?,
        user_address: message.u64(at + 16)?,
        file_offset: message.u64(at + 24)?,
    })
}

/// How many rings, of how many descriptors.
fn inflight_shape(message: &Message) -> io::Result<(u16, u16)> {
    // Two numbers of 16 bits.
    let [q0, q1, s0, s1] = message.u32(16)?.to_ne_bytes();
    let (queues, size) = (u16::from_ne_bytes([q0, q1]), u16::from_ne_bytes([s0, s1]));
    if queues == 0 || queues > MOST_QUEUES || size == 0 || size > MOST_DESCRIPTORS {
        return Err(violation("requests under way of rings that do not exist"));
    }
    Ok((queues, size))
}

/// The number of a ring, and the eventfd that comes for it.
fn ring_file(message: &mut Message) -> io::Result<(u32, Option<OwnedFd>)> {
    let number = message.u64(0)?;
    let ring = (number & 0xff) as u32;
    if number & NO_FILE != 0 {
        return Ok((ring, None));
    }
    let file = message.file()?;
    // Anything else could make a shard wait that writes to it.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if link.as_os_str() != "anon_inode:[eventfd]" {
        return Err(violation("a file that is no eventfd"));
    }
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok((ring, Some(file)))
}
