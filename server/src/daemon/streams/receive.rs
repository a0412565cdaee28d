//! `zfs receive`: streams of snapshots become datasets.
//!
//! # The idea
//! The stream comes as the body of a request, and is applied while it comes; what there is to tell goes back
//! meanwhile. The pool's right to change is held only where a stream begins and ends, so that a slow sender
//! keeps no other request waiting. At the end of an incremental stream the users of the destination wait for
//! a moment, as for a rollback, and go on with the new contents.
//!
//! | module | what it owns |
//! |---|---|
//! | `encryption` | keys of what is new, encryption roots of what was sent raw |
//! | `input` | the bytes, and receives that end with their pool |
//! | `target` | names of what is received |
//! | `replication` | names that changed on the sender, and what it no longer has |
//! | `stream` | one stream: what it fits, its properties, its end |
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_sendrecv.c`, `zfs_ioctl.c` (`zfs_ioc_recv_impl`).

mod encryption;
pub(in crate::daemon) mod input;
mod replication;
mod stream;
mod target;

use std::sync::Arc;
use std::time::Instant;

use engine::properties::format::nicebytes;
use engine::receive::Records;
use ondisk::send::{Begin, HeaderType, Package, Record};

use crate::daemon::refusals::said;
use replication::Following;

use crate::api::{self, Action, ApiError, ReceivePart, ReceiveStream};
use crate::caller::Caller;
use crate::daemon::sync_tasks;
use crate::daemon::{Daemon, OpenPool};

pub use input::{StreamInput, StreamSource, stream as stream_of_client};

/// Whom to tell what goes on.
type Tell<'a> = &'a mut (dyn FnMut(ReceivePart) -> bool + Send);

/// Receives the stream that a request brings: [`crate::daemon::dispatch_for`] for the one action whose
/// request does not end before its answer begins. Blocks the thread. The last part that is told says how it
/// ended.
pub fn dispatch_receive(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    request: &[u8],
    mut input: StreamInput,
    mut tell: impl FnMut(ReceivePart) -> bool + Send,
) {
    daemon.prepare();
    let done = device::block_on(caller.clone().scope(async {
        let admitted = daemon.admit(caller, ReceiveStream::NAME, request).await?;
        let done = match admitted.request() {
            Ok(request) => daemon.receive(&request, &mut input, &mut tell).await,
            Err(error) => Err(error),
        };
        daemon.catch_up().await;
        admitted.end(&done);
        done
    }));
    tell(match done {
        Ok(()) => ReceivePart::Complete,
        Err(error) => ReceivePart::Failed(error),
    });
}

/// A receive: all streams that come one after the other.
struct Receive<'a> {
    daemon: &'a Arc<Daemon>,
    pool: Arc<OpenPool>,
    request: &'a ReceiveStream,
    tell: Tell<'a>,
    /// Filesystems that are new, or would be.
    new: Vec<String>,
    /// Those that came together, as their sender described them.
    package: Option<Package>,
    /// Name of the first dataset on the sender.
    top: String,
    following: Following,
}

impl Daemon {
    async fn receive(
        self: &Arc<Self>,
        request: &ReceiveStream,
        input: &mut StreamInput,
        tell: Tell<'_>,
    ) -> Result<(), ApiError> {
        let pool = self.pool_of(&request.name)?;
        let doing = format!("cannot receive into '{}'", request.name);
        pool.writable(&doing)?;
        let _under_way = pool.receives.add(input);
        let mut receive = Receive {
            daemon: self,
            pool,
            request,
            tell,
            new: Vec::new(),
            package: None,
            top: String::new(),
            following: Following::default(),
        };
        let mut records = Records::new(input);
        let received = receive.run(&mut records).await;
        if received.is_ok() && !request.no_mount && !request.dry_run {
            receive.mount_new().await;
        }
        received
    }

    /// Gives up what an interrupted receive left.
    ///
    /// # Errors
    /// There is nothing, or it is being received.
    pub async fn abort_receive(&self, request: api::AbortReceive) -> Result<(), ApiError> {
        let name = &request.name;
        let pool = self.pool_of(name)?;
        let doing = format!("cannot abort receive into '{name}'");
        let live = pool.writable(&doing)?;
        let _changing = pool.change().await?;
        let of = name.clone();
        let done = sync_tasks::change(live, request.command, move |s| async move {
            engine::receive::abort_receive(&s, &of).await
        });
        done.await.map_err(|error| match error {
            engine::Error::NotFound(text) if text.starts_with('\'') => ApiError::not_found(text),
            error => said(&doing, error),
        })
    }
}

/// What came instead of what must come next.
fn broken(records: &Records<'_>) -> ApiError {
    ApiError::invalid(format!("cannot receive: invalid stream (byte {})", records.position()))
}

/// The error of reading a stream.
fn failed_to_read(error: &engine::Error) -> ApiError {
    ApiError::invalid(format!("cannot receive: {error}"))
}

impl Receive<'_> {
    async fn run(&mut self, records: &mut Records<'_>) -> Result<(), ApiError> {
        let Next::Begin(begin, payload) = next_begin(records)? else {
            return Err(ApiError::invalid("cannot receive: failed to read from stream"));
        };
        self.top = name_of(&begin)?.split('@').next().unwrap_or_default().to_owned();
        if begin.header == HeaderType::Plain {
            return self.receive_one(&begin, &payload, records).await;
        }
        if self.request.only_one {
            return Err(ApiError::refused(
                "cannot receive: permission denied: only root may receive several snapshots in one stream, \
                 or a stream with properties",
            ));
        }
        if !payload.is_empty() {
            let package = Package::parse(&payload)
                .map_err(|error| ApiError::invalid(format!("cannot receive: invalid stream: {error}")))?;
            if !package.not_recursive && self.request.name.contains('@') {
                return Err(ApiError::invalid(
                    "cannot receive: cannot specify snapshot name for multi-snapshot stream",
                ));
            }
            self.package = Some(package);
        }
        match records.next_record().map_err(|error| failed_to_read(&error))? {
            Some((Record::End(_), _)) => {}
            _ => return Err(broken(records)),
        }
        let received = self.receive_all(records).await;
        if received.is_err() {
            self.put_back_aside().await;
        }
        received?;
        self.conclude().await?;
        self.restore_roots().await
    }

    /// Receives the streams of a package, up to its end.
    async fn receive_all(&mut self, records: &mut Records<'_>) -> Result<(), ApiError> {
        self.follow_sender().await?;
        self.follow_snapshot_properties().await?;
        loop {
            match next_begin(records)? {
                Next::Begin(begin, _) if begin.header == HeaderType::Compound => return Err(broken(records)),
                Next::Begin(begin, payload) => {
                    self.follow_sender().await?;
                    self.receive_one(&begin, &payload, records).await?;
                }
                Next::Conclusion => return Ok(()),
                // The sender ends all of them together.
                Next::Nothing => {
                    return Err(ApiError::invalid(format!(
                        "cannot receive: incomplete stream: it ends at byte {}, between two snapshots",
                        records.position()
                    )));
                }
            }
        }
    }

    /// Receives one stream, and tells of it.
    async fn receive_one(
        &mut self,
        begin: &Begin,
        payload: &[u8],
        records: &mut Records<'_>,
    ) -> Result<(), ApiError> {
        let (began, before) = (Instant::now(), records.position());
        let is_received = self.receive_stream(begin, payload, records).await?;
        if self.request.verbose && is_received && !self.request.dry_run {
            let bytes = records.position().saturating_sub(before);
            let seconds = began.elapsed().as_secs_f64().max(0.01);
            let (all, rate) = (nicebytes(bytes), nicebytes((bytes as f64 / seconds) as u64));
            self.told(format!("received {all} stream in {seconds:.2} seconds ({rate}/sec)"));
        }
        Ok(())
    }

    fn told(&mut self, text: String) {
        (self.tell)(ReceivePart::Told(text));
    }

    fn warn(&mut self, text: String) {
        (self.tell)(ReceivePart::Warning(text));
    }

    /// Mounts what is new and is to be mounted, as all of it is there.
    async fn mount_new(&mut self) {
        let mut new = std::mem::take(&mut self.new);
        new.sort();
        let pool = Arc::clone(&self.pool);
        let Ok(changing) = pool.change().await else { return };
        for name in new {
            if let Err(error) = self.daemon.mount_if_wanted(&pool, &changing, &name).await {
                self.warn(error.message);
            }
        }
    }
}

/// What comes where a stream may begin.
enum Next {
    /// A stream, or a package of streams: its `BEGIN` with its payload.
    Begin(Begin, Vec<u8>),
    /// The end of a package.
    Conclusion,
    /// No more bytes.
    Nothing,
}

fn next_begin(records: &mut Records<'_>) -> Result<Next, ApiError> {
    match records.next_record().map_err(|error| failed_to_read(&error))? {
        Some((Record::Begin(begin), payload)) => Ok(Next::Begin(begin, payload.to_vec())),
        Some((Record::End(_), _)) => Ok(Next::Conclusion),
        None => Ok(Next::Nothing),
        Some(_) => Err(broken(records)),
    }
}

/// The name of the snapshot that was sent.
fn name_of(begin: &Begin) -> Result<&str, ApiError> {
    std::str::from_utf8(&begin.to_name)
        .map_err(|_| ApiError::invalid("cannot receive: invalid stream (bad snapshot name)"))
}
