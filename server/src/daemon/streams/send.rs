//! `zfs send`: streams of snapshots.
//!
//! A stream reads one committed state of the pool, which is lent to it ([`super::lent_views`]): a snapshot
//! that is destroyed meanwhile is sent to its end. The stream goes to its client in frames as fast as that
//! takes them, and ends early when the client goes away or the state is taken back.

use std::sync::Arc;

use axum::body::Bytes;
use engine::dsl::{Dsl, Entry, Kind};
use engine::pool::live::Lent;
use engine::send::{Flags, Order, Piece, Plan, Stream, Token, Warning};
use ondisk::nvlist::{NvValue, Nvlist};

use crate::api::{Action, ApiError, FrameKind, SendPart, SendSnapshot};
use crate::caller::Caller;
use crate::daemon::{Daemon, OpenPool, dataset_error};

/// Pieces of a stream that are as large go into frames of their own, without a copy.
const LARGE_BYTES: usize = 64 << 10;
/// Bytes of smaller ones after which a frame is sent.
const FRAME_BYTES: usize = 256 << 10;

/// Streams that are about to be sent.
#[derive(Debug)]
pub struct Sending {
    plan: Plan,
    dsl: Dsl,
    lent: Arc<Lent>,
    token: Option<Token>,
    estimate: bool,
    dry_run: bool,
}

impl Daemon {
    /// Finds what is to be sent.
    ///
    /// # Errors
    /// Names that do not exist or do not belong together, and states that cannot be read.
    pub async fn send(&self, request: &SendSnapshot) -> Result<Sending, ApiError> {
        let token = request.token.as_deref().map(Token::parse).transpose()?;
        let name = token.as_ref().map_or(&request.snapshot, |token| &token.to_name);
        let pool = self.pool_of(name)?;
        let (view, lent) = pool.lend()?;
        let dsl = Dsl::open(&view).await.map_err(|error| dataset_error("open", name, error))?;
        let flags = Flags {
            large_blocks: request.large_blocks || request.raw,
            embedded: request.embedded || request.raw,
            compressed: request.compressed || request.raw,
            raw: request.raw,
        };
        let plan = match &token {
            Some(token) => {
                if let Some(head) = token.head()
                    && let Ok(entry) = dsl.entry(head).await
                {
                    refuse_in_use(&pool, &entry)?;
                }
                token.plan(&dsl, flags).await?
            }
            None => {
                let entry = dsl.entry(name).await.map_err(|error| dataset_error("open", name, error))?;
                refuse_in_use(&pool, &entry)?;
                let made = Plan::make(&dsl, &order(request, flags)).await;
                made.map_err(|error| failed(name, request.from.as_deref(), error))?
            }
        };
        let (estimate, dry_run) = (request.estimate, request.dry_run);
        Ok(Sending { plan, dsl, lent, token, estimate, dry_run })
    }
}

/// Begins what a request asks for: [`crate::daemon::dispatch_for`] for an action whose answer is a stream.
///
/// # Errors
/// As those of [`crate::daemon::dispatch_for`].
pub fn dispatch_send(daemon: &Daemon, caller: &Caller, body: &[u8]) -> Result<Sending, ApiError> {
    daemon.prepare();
    device::block_on(async {
        let admitted = daemon.admit(caller, SendSnapshot::NAME, body).await?;
        daemon.send(&admitted.request()?).await
    })
}

fn order(request: &SendSnapshot, flags: Flags) -> Order {
    Order {
        to: request.snapshot.clone(),
        from: request.from.clone(),
        flags,
        all_between: request.all_between,
        replicate: request.replicate,
        skip_missing: request.skip_missing,
        properties: request.properties,
        backup: request.backup,
        holds: request.holds,
        no_preserve_encryption: request.no_preserve_encryption,
        excluded: request.excluded.clone(),
    }
}

/// A filesystem or volume that is written while it is sent would be no state that there ever was for its
/// users.
fn refuse_in_use(pool: &OpenPool, entry: &Entry) -> Result<(), ApiError> {
    let name = entry.name();
    let is_head = matches!(entry.kind, Kind::Filesystem | Kind::Volume);
    let is_used = || {
        !pool.in_use_where(|used| used == name).is_empty()
            || !pool.shares_in_use(|used| used == name).is_empty()
    };
    if is_head && pool.live().is_some() && is_used() {
        return Err(ApiError::busy(format!(
            "warning: cannot send '{name}': target is busy; if a filesystem, it must not be mounted"
        )));
    }
    Ok(())
}

/// An error in OpenZFS's words.
fn failed(name: &str, from: Option<&str>, error: engine::Error) -> ApiError {
    use engine::Error as E;
    match error {
        E::NotFound(missing) if missing != name => match from {
            Some(from) if from.contains('@') => {
                ApiError::not_found(format!("cannot open '{from}': dataset does not exist"))
            }
            Some(from) => ApiError::not_found(format!(
                "warning: cannot send '{name}': incremental source ({from}) does not exist"
            )),
            None => ApiError::not_found(format!("cannot open '{missing}': dataset does not exist")),
        },
        E::KeyNotLoaded { .. } => {
            ApiError::refused(format!("warning: cannot send '{name}': dataset key must be loaded"))
        }
        // These are whole messages.
        E::Invalid(message)
            if ["cannot ", "Error: ", "WARNING: "].iter().any(|first| message.starts_with(first)) =>
        {
            ApiError::invalid(message)
        }
        other => {
            let ApiError { kind, message } = other.into();
            ApiError { kind, message: format!("warning: cannot send '{name}': {message}") }
        }
    }
}

/// Hands frames over; an error where there is no client any more.
struct Frames<F> {
    send: F,
    waiting: Vec<u8>,
}

/// There is no client any more.
struct Gone;

impl<F: FnMut(Vec<Bytes>) -> bool> Frames<F> {
    /// Gives whole frames.
    fn give(&mut self, frames: Vec<Bytes>) -> Result<(), Gone> {
        if (self.send)(frames) { Ok(()) } else { Err(Gone) }
    }

    fn part(&mut self, part: &SendPart) -> Result<(), Gone> {
        let json = serde_json::to_vec(part).unwrap_or_default();
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        let waiting = self.take_frame();
        self.give(vec![Bytes::from([&waiting, &FrameKind::Part.head(length)[..], &json].concat())])
    }

    fn pieces(&mut self, pieces: Vec<Piece>) -> Result<(), Gone> {
        for piece in pieces {
            let length = piece.as_ref().len();
            if length < LARGE_BYTES {
                self.waiting.extend_from_slice(piece.as_ref());
                if self.waiting.len() >= FRAME_BYTES {
                    self.flush()?;
                }
                continue;
            }
            // The head of the frame goes with what waits.
            let head = FrameKind::Stream.head(u32::try_from(length).unwrap_or(u32::MAX));
            let before = [&self.take_frame()[..], &head].concat();
            self.give(vec![Bytes::from(before), Bytes::from_owner(piece)])?;
        }
        Ok(())
    }

    /// What waits, as a frame.
    fn take_frame(&mut self) -> Vec<u8> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.waiting);
        let head = FrameKind::Stream.head(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
        [&head[..], &waiting].concat()
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let frame = self.take_frame();
        if frame.is_empty() { Ok(()) } else { self.give(vec![Bytes::from(frame)]) }
    }
}

impl Sending {
    /// What keeps its state.
    pub fn lent(&self) -> &Arc<Lent> {
        &self.lent
    }

    /// Makes the streams and sends whole frames, until `send` says that there is no client any more. Blocks
    /// the thread.
    pub fn run(self, send: impl FnMut(Vec<Bytes>) -> bool) {
        let mut frames = Frames { send, waiting: Vec::new() };
        let ended = device::block_on(self.send_all(&mut frames));
        let last = match ended {
            Ok(()) => SendPart::Complete { is_partial: self.plan.has_failed },
            Err(Ended::Failed(error)) => SendPart::Failed(error),
            Err(Ended::Gone | Ended::TakenBack) => return,
        };
        // A client that is gone needs no last part.
        let _ = frames.part(&last);
    }

    async fn send_all<F: FnMut(Vec<Bytes>) -> bool>(&self, frames: &mut Frames<F>) -> Result<(), Ended> {
        if let Some(token) = self.token.as_ref().filter(|_| self.estimate) {
            frames.part(&SendPart::Token(lines(token.list())))?;
        }
        for warning in &self.plan.warnings {
            frames.part(&match warning {
                Warning::Always(text) => SendPart::Warning(text.clone()),
                Warning::Verbose(text) => SendPart::Note(text.clone()),
            })?;
        }
        if self.estimate {
            for planned in &self.plan.streams {
                let to = planned.request.dataset.name.clone();
                let bytes = planned.estimate(&self.dsl).await.map_err(|error| {
                    let ApiError { kind, message } = error.into();
                    Ended::Failed(ApiError {
                        kind,
                        message: format!("warning: cannot estimate space for '{to}': {message}"),
                    })
                })?;
                let bytes = match bytes {
                    Some(bytes) => bytes,
                    None => self.measure(planned).await?,
                };
                frames.part(&SendPart::Estimated { to, from: planned.shown_from.clone(), bytes })?;
            }
        }
        if self.dry_run {
            return Ok(());
        }
        let header = self.plan.header().map_err(|error| Ended::Failed(error.into()))?;
        frames.pieces(header)?;
        for planned in &self.plan.streams {
            let to = planned.request.dataset.name.clone();
            frames.part(&SendPart::Begun { to })?;
            self.each(planned, |pieces| frames.pieces(pieces).map_err(Ended::from)).await?;
        }
        frames.pieces(self.plan.conclusion())?;
        Ok(frames.flush()?)
    }

    /// Makes a stream to find out how large it is.
    async fn measure(&self, planned: &engine::send::Planned) -> Result<u64, Ended> {
        let mut bytes = 0;
        let count = |pieces: Vec<Piece>| {
            bytes += pieces.iter().map(|piece| piece.as_ref().len() as u64).sum::<u64>();
            Ok(())
        };
        self.each(planned, count).await?;
        Ok(bytes)
    }

    async fn each(
        &self,
        planned: &engine::send::Planned,
        mut take: impl FnMut(Vec<Piece>) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        let name = &planned.request.dataset.name;
        let failed = |error| Ended::Failed(failed(name, None, error));
        let mut stream = Stream::open(&self.dsl, &planned.request).await.map_err(failed)?;
        while let Some(pieces) = stream.next().await.map_err(failed)? {
            take(pieces)?;
            if self.lent.has_ended() {
                return Err(Ended::TakenBack);
            }
        }
        Ok(())
    }

    /// The end of the answer when the state was taken back.
    pub fn taken_back() -> Bytes {
        let why = "warning: cannot send: the pool is closed, or needs the space that the stream keeps";
        let mut frame = Vec::new();
        let mut frames = Frames {
            send: |frames: Vec<Bytes>| {
                frame.extend(frames.concat());
                true
            },
            waiting: Vec::new(),
        };
        let _ = frames.part(&SendPart::Failed(ApiError::failed(why)));
        Bytes::from(frame)
    }
}

/// A list as OpenZFS prints it.
fn lines(list: &Nvlist) -> Vec<String> {
    let mut lines = vec!["nvlist version: 0".to_owned()];
    for (name, value) in list.iter() {
        let value = match value {
            NvValue::Boolean => "1".to_owned(),
            NvValue::Uint64(number) => format!("{number:#x}"),
            NvValue::String(text) => text.to_string(),
            other => format!("{other:?}"),
        };
        lines.push(format!("\t{name} = {value}"));
    }
    lines
}

/// Why streams end early.
enum Ended {
    Failed(ApiError),
    Gone,
    TakenBack,
}

impl From<Gone> for Ended {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}
