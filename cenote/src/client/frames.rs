//! Answers that come in pieces: lines of JSON, and streams in frames.

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use server::api::{FRAME_HEAD_BYTES, FrameKind};

use super::OTHER_VERSION;
use super::wire::{Asked, refusal};

/// Largest line of an answer that lasts or comes in parts, in bytes: it names the devices of one pool, or a
/// few files.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;

/// Takes an answer line by line.
pub(super) async fn take_lines(
    response: Response<Incoming>,
    asked: &Asked,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    if !response.status().is_success() {
        return Err(refusal(response, asked).await);
    }
    let mut body = response.into_body();
    let mut waiting = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| asked.broke_off(error))?;
        waiting.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        anyhow::ensure!(waiting.len() < MAX_LINE_BYTES, OTHER_VERSION);
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            take(&waiting[..end])?;
            waiting.drain(..=end);
        }
    }
    Ok(())
}

/// What comes in an answer that is a stream.
#[derive(Debug)]
pub enum Frame<'a, P> {
    /// Bytes of the stream.
    Bytes(&'a [u8]),
    /// What is told beside it.
    Part(P),
    /// Nothing came for a while.
    Nothing,
}

/// Takes an answer in frames apart. The bytes of the stream are not copied.
#[derive(Debug)]
pub(super) enum Unframing {
    /// The head of a frame comes, of which this came already.
    Head(Vec<u8>),
    /// So many bytes of the stream come.
    Stream(usize),
    /// A part comes, of which this came already; so many bytes are still to come.
    Part(Vec<u8>, usize),
}

impl Unframing {
    pub(super) const fn new() -> Self {
        Self::Head(Vec::new())
    }

    pub(super) fn add(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(Frame<'_, &[u8]>) -> Result<()>,
    ) -> Result<()> {
        while !bytes.is_empty() {
            let wanted = match self {
                Self::Head(came) => FRAME_HEAD_BYTES.saturating_sub(came.len()),
                Self::Stream(left) | Self::Part(_, left) => *left,
            };
            let (here, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            let left = wanted - here.len();
            let next = match self {
                Self::Head(came) => {
                    came.extend_from_slice(here);
                    came.first_chunk().map(|head| Self::begun(*head)).transpose()?
                }
                Self::Stream(wanted) => {
                    *wanted = left;
                    take(Frame::Bytes(here))?;
                    (left == 0).then(Self::new)
                }
                Self::Part(came, wanted) => {
                    *wanted = left;
                    came.extend_from_slice(here);
                    if left == 0 {
                        take(Frame::Part(came))?;
                    }
                    (left == 0).then(Self::new)
                }
            };
            if let Some(next) = next {
                *self = next;
            }
        }
        Ok(())
    }

    /// What follows this head.
    fn begun(head: [u8; FRAME_HEAD_BYTES]) -> Result<Self> {
        let (kind, length) = FrameKind::parse(head).context(OTHER_VERSION)?;
        let length = usize::try_from(length).context(OTHER_VERSION)?;
        Ok(match (kind, length) {
            (_, 0) => Self::new(),
            (FrameKind::Stream, length) => Self::Stream(length),
            (FrameKind::Part, length) => Self::Part(Vec::new(), length),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_apart_wherever_they_are_cut() {
        let frames = [
            &FrameKind::Stream.head(3)[..],
            b"abc",
            &FrameKind::Part.head(2),
            b"{}",
            &FrameKind::Stream.head(0),
            &FrameKind::Stream.head(1),
            b"d",
        ];
        let all = frames.concat();
        for size in 1..=all.len() {
            let (mut stream, mut parts) = (Vec::new(), Vec::new());
            let mut unframing = Unframing::new();
            for bytes in all.chunks(size) {
                let mut take = |frame: Frame<'_, &[u8]>| {
                    match frame {
                        Frame::Bytes(bytes) => stream.extend_from_slice(bytes),
                        Frame::Part(part) => parts.push(part.to_vec()),
                        Frame::Nothing => {}
                    }
                    Ok(())
                };
                unframing.add(bytes, &mut take).unwrap();
            }
            assert_eq!((&stream[..], &parts[..]), (&b"abcd"[..], &[b"{}".to_vec()][..]), "{size}");
        }
        let refused = Unframing::new().add(&[9; FRAME_HEAD_BYTES], &mut |_| Ok(()));
        assert!(refused.is_err());
    }
}
