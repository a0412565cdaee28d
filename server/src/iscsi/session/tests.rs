//! Sessions over a wire that holds little, whose other end reads when it is told to.

use std::time::Duration;

use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::login::Initiator;
use super::super::scsi::{Reach, Surroundings};
use super::*;
use crate::block::{ExportError, Extent, Limits, OWN_BYTES, Resources, Share, SharedMemory};
use crate::gate::Gate;

const PATIENCE: Duration = Duration::from_secs(20);

/// A disk without contents, whose writes wait until they are let through.
struct Gated {
    gate: Semaphore,
    /// Gets the place of each write that is done.
    done: mpsc::UnboundedSender<u64>,
    under_way: Arc<crate::block::UnderWay>,
}

impl Export for Gated {
    fn size_bytes(&self) -> u64 {
        1 << 30
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn under_way(&self) -> Option<&Arc<crate::block::UnderWay>> {
        Some(&self.under_way)
    }

    async fn read(&self, _: u64, into: &mut [u8]) -> Result<(), ExportError> {
        into.fill(0);
        Ok(())
    }

    async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: 1 << 30, is_hole: true })
    }

    async fn write(&self, offset: u64, _: IoBuf, _: bool) -> Result<(), ExportError> {
        self.gate.acquire().await.expect("it is not closed").forget();
        let _ = self.done.send(offset);
        Ok(())
    }
}

struct OneUnit;

impl Directory<Gated> for OneUnit {
    async fn targets(&self) -> Vec<(String, Vec<String>)> {
        Vec::new()
    }

    fn changes(&self) -> Changes {
        Changes::none()
    }

    async fn members(&self, _: &str, _: Option<u64>) -> BTreeMap<u8, Listed> {
        BTreeMap::from([(0, Listed::to_all("disk"))])
    }

    async fn open(&self, _: String, _: BTreeMap<u8, Listed>) -> (Opened<Gated>, bool) {
        (Vec::new(), true)
    }
}

/// A session, and the initiator's end of it.
struct Served {
    disk: Arc<Gated>,
    done: mpsc::UnboundedReceiver<u64>,
    wire: DuplexStream,
    replaces: oneshot::Sender<()>,
    session: JoinHandle<io::Result<()>>,
    next: u32,
}

impl Served {
    fn start(resources: &Arc<Resources>, wire_bytes: usize) -> Self {
        let (sender, done) = mpsc::unbounded_channel();
        let disk = Arc::new(Gated { gate: Semaphore::new(0), done: sender, under_way: Arc::default() });
        let (wire, socket) = tokio::io::duplex(wire_bytes);
        let (replaces, replaced) = oneshot::channel();
        let initiator = Initiator { name: "iqn.test:one".into(), isid: [0; 6] };
        let surroundings = Surroundings {
            target: "iqn.test:disk".into(),
            port: 1,
            initiator: initiator.clone(),
            reach: Arc::<Reach<Gated>>::default(),
            wake: Arc::default(),
        };
        let unit = Unit::new(Arc::clone(&disk), &Share::default(), &surroundings, Arc::default());
        let units = Units::new("iqn.test:disk".into(), None, vec![(0, Arc::new(unit))], Arc::default());
        let seat = resources.seat().expect("a seat");
        let agreed = Agreed::default();
        let (shared_with, target) = (None, None);
        let (command, window_end, status) = (1, 1, 1);
        let session = Session { initiator, shared_with, target, agreed, command, window_end, status, seat };
        let place = Place { guest: Gate::default().guest("an initiator"), socket: None, tsih: 1 };
        let session = tokio::spawn(async move {
            super::serve(socket, session, Some(units), &OneUnit, replaced, &place).await
        });
        Self { disk, done, wire, replaces, session, next: 1 }
    }

    /// Sends a unit; `number` is that of the next command.
    async fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        header[24..28].copy_from_slice(&self.next.to_be_bytes());
        let unit = [&header[..], data].concat();
        timeout(PATIENCE, self.wire.write_all(&unit)).await.expect("it is read").expect("a session");
    }

    /// A command of 10 bytes for so many blocks. Its tag is its number, or that of the next one if it is
    /// immediate, with a bit more.
    async fn command(
        &mut self,
        operation: u8,
        first: u8,
        blocks: u16,
        data: &[u8],
        is_immediate: bool,
    ) -> u32 {
        let reads = operation == 0x28;
        let tag = if is_immediate { self.next | 1 << 16 | u32::from(first) << 20 } else { self.next };
        let mut header = [0; 48];
        header[0] = 1 | if is_immediate { 0x40 } else { 0 };
        header[1] = if reads { 0xc1 } else { 0xa1 };
        header[16..20].copy_from_slice(&tag.to_be_bytes());
        header[20..24].copy_from_slice(&(u32::from(blocks) * 512).to_be_bytes());
        (header[32], header[37]) = (operation, first);
        header[39..41].copy_from_slice(&blocks.to_be_bytes());
        self.send(header, data).await;
        self.next += u32::from(!is_immediate);
        tag
    }

    async fn write(&mut self, first: u8) -> u32 {
        self.command(0x2a, first, 1, &[1; 512], false).await
    }

    /// Asks for an answer, which comes when all that was sent before has been looked at.
    async fn ping(&mut self) {
        let mut ping = [0; 48];
        (ping[0], ping[1]) = (0x40, 0x80);
        ping[16..20].copy_from_slice(&7u32.to_be_bytes());
        self.send(ping, &[]).await;
    }

    /// The next answer's header; its data are read, too.
    async fn answer(&mut self) -> Header {
        let read = async {
            let mut header = [0; 48];
            self.wire.read_exact(&mut header).await.expect("an answer");
            let header = Header(header);
            let mut data = vec![0; header.data_bytes().next_multiple_of(4)];
            self.wire.read_exact(&mut data).await.expect("its data");
            header
        };
        timeout(PATIENCE, read).await.expect("an answer in time")
    }

    /// Waits until something is listed as under way that waits for this.
    async fn waits_for(&self, what: &str) {
        let listed = async {
            let is_listed = || {
                let all = self.disk.under_way.older_than(Duration::ZERO);
                all.iter().any(|pending| pending.waits_for.contains(what))
            };
            while !is_listed() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, listed).await.expect(what);
    }
}

fn resources(shared_bytes: usize) -> Arc<Resources> {
    Resources::new(Limits { shared: SharedMemory::new(shared_bytes), ..Limits::default() })
}

#[tokio::test]
async fn commands_go_on_while_the_initiator_takes_no_answers() {
    let mut served = Served::start(&resources(1 << 20), 2048);
    served.write(7).await;
    served.command(0x28, 0, 128, &[], false).await;
    // The answer does not fit into the wire.
    served.waits_for("takes no answers").await;
    served.disk.gate.add_permits(1);
    assert_eq!(timeout(PATIENCE, served.done.recv()).await.expect("it is done"), Some(7 * 512));
    // Both are answered once the initiator reads.
    let mut ended = 0;
    while ended < 2 {
        let header = served.answer().await;
        ended += u32::from(header.operation() == answer::SCSI_RESPONSE || header.flags() & 1 != 0);
    }
    assert!(served.disk.under_way.older_than(Duration::ZERO).is_empty());
}

#[tokio::test]
async fn an_initiator_that_logs_in_anew_ends_a_session_whose_answers_it_does_not_take() {
    let mut served = Served::start(&resources(1 << 20), 2048);
    served.command(0x28, 0, 128, &[], false).await;
    served.waits_for("takes no answers").await;
    served.replaces.send(()).expect("a session");
    let ended = timeout(PATIENCE, served.session).await.expect("it ends").expect("without a panic");
    assert!(ended.is_err());
}

#[tokio::test]
async fn the_window_that_was_told_is_kept_whatever_comes_beside_it() {
    let mut served = Served::start(&resources(1 << 20), 1 << 20);
    // A first command, which is answered with the window: until then there is room for one.
    served.command(0x28, 0, 1, &[], false).await;
    let end = served.answer().await.word(32);
    assert_eq!(end, 1 + MOST_COMMANDS as u32);
    // Commands that are immediate take places.
    for first in 0..8 {
        served.command(0x2a, first, 1, &[1; 512], true).await;
    }
    while served.next <= end {
        let number = served.next;
        served.write((number % 200) as u8).await;
    }
    // None is answered before all have come.
    served.ping().await;
    assert_eq!(served.answer().await.operation(), answer::NOP_IN);
    served.disk.gate.add_permits(8 + MOST_COMMANDS);
    let mut told = end;
    for _ in 0..8 + MOST_COMMANDS {
        let header = served.answer().await;
        assert_eq!((header.operation(), header.0[3]), (answer::SCSI_RESPONSE, 0), "{header:?}");
        assert!(!is_after(told, header.word(32)), "it became smaller");
        told = header.word(32);
    }
    assert_eq!(told, end + MOST_COMMANDS as u32);
}

#[tokio::test]
async fn a_command_that_was_aborted_is_not_in_line_for_memory() {
    // With the command itself as much as each client has of its own.
    const BLOCKS: u16 = (OWN_BYTES / 512) as u16 - 8;
    let all = resources(OWN_BYTES);
    let [mut first, mut second, mut third] = [(); 3].map(|()| Served::start(&all, 1 << 20));
    // The first takes all that is shared: its writes wait for their data.
    for at in 0..2 {
        first.command(0x2a, at, BLOCKS, &[], false).await;
        while first.answer().await.operation() != answer::R2T {}
    }
    // The second waits for some of it, and gives that up.
    second.command(0x2a, 0, BLOCKS, &[], false).await;
    while second.answer().await.operation() != answer::R2T {}
    let waits = second.command(0x2a, 1, BLOCKS, &[], false).await;
    second.waits_for("memory").await;
    let mut abort = [0; 48];
    (abort[0], abort[1]) = (0x42, 0x81);
    abort[16..20].copy_from_slice(&9u32.to_be_bytes());
    abort[20..24].copy_from_slice(&waits.to_be_bytes());
    second.send(abort, &[]).await;
    while second.answer().await.operation() != answer::TASK_MANAGEMENT {}
    // The third gets it when the first has left, although the second was there before.
    third.command(0x2a, 0, BLOCKS, &[], false).await;
    while third.answer().await.operation() != answer::R2T {}
    third.command(0x2a, 1, BLOCKS, &[], false).await;
    third.waits_for("memory").await;
    drop(first);
    while third.answer().await.operation() != answer::R2T {}
}

#[tokio::test]
async fn a_session_has_a_bound_of_its_own_where_it_has_all_shared_memory() {
    let mut served = Served::start(&resources(1 << 20), 1 << 20);
    // Each has almost 32 MiB: the first takes all that is shared, and two are more than a session may have.
    for at in 0..3 {
        served.command(0x2a, at, u16::MAX, &[], false).await;
    }
    served.ping().await;
    let answers = [served.answer().await.operation(), served.answer().await.operation()];
    assert_eq!(answers, [answer::R2T, answer::NOP_IN]);
    served.waits_for("memory").await;
}
