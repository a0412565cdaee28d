//! Send streams: `zfs send`.

use engine::send::Token;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Form, Need, Part, Role, needs};

/// Sends a snapshot, or several.
///
/// The answer is a sequence of [frames](FrameKind): the stream itself, and a JSON of a [`SendPart`] where
/// something else is told. It is made as fast as its reader takes it. What is sent is kept for as long as
/// the connection is open, unless the pool is closed or needs the space.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SendSnapshot {
    /// The snapshot; a filesystem or volume too, where `from` and what follows it are not given.
    pub snapshot: String,
    /// Full name of the snapshot or bookmark that the stream is incremental from.
    pub from: Option<String>,
    /// The token of an interrupted receive, in the place of a snapshot.
    pub token: Option<String>,
    /// All snapshots in between too.
    pub all_between: bool,
    /// With all children, their snapshots and properties.
    pub replicate: bool,
    /// Children without the snapshot are left out.
    pub skip_missing: bool,
    /// Datasets that are left out with all below them.
    pub excluded: Vec<String>,
    /// With properties.
    pub properties: bool,
    /// With properties that were received, and no others.
    pub backup: bool,
    /// With holds.
    pub holds: bool,
    /// Encrypted datasets are sent decrypted though properties go along.
    pub no_preserve_encryption: bool,
    /// Records may be larger than 128 KiB.
    pub large_blocks: bool,
    /// Blocks that are embedded in pointers are sent so.
    pub embedded: bool,
    /// Blocks are sent compressed as they are on disk.
    pub compressed: bool,
    /// Blocks are sent as they are on disk, encrypted ones too.
    pub raw: bool,
    /// How large the streams will be is told first.
    pub estimate: bool,
    /// Nothing is sent.
    pub dry_run: bool,
}

impl Action for SendSnapshot {
    const DECLARED: Declaration = Declaration::reads(
        "send",
        Part::Datasets,
        Role::Admin,
        "Streams of snapshots, and how large they will be",
    )
    .in_words("send", "snapshot")
    .answered(Form::FramesOut);
    const DELEGATED: Delegated<Self> = Delegated::Needs("`send`, or `send:raw` for raw streams", |request| {
        let name = match &request.token {
            Some(token) => Token::parse(token)?.to_name,
            None => request.snapshot.clone(),
        };
        let need = |permission: &str| {
            let on = Need::on(permission, &name);
            let of = needs::head_of(&name);
            if request.replicate { vec![on, Need::below(permission, of)] } else { vec![on] }
        };
        let needs = match request.raw {
            true => {
                need("send").into_iter().zip(need("send:raw")).map(|(a, b)| Need::Any(vec![a, b])).collect()
            }
            false => need("send"),
        };
        Ok((request, needs))
    });
    type Reply = SendPart;
}

/// What is told beside the bytes of streams. A whole answer ends with [`SendPart::Complete`] or
/// [`SendPart::Failed`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SendPart {
    /// Something is left out, or changed.
    Warning(String),
    /// Something is left out, for users who want to know all.
    Note(String),
    /// The contents of the token, a line for each.
    Token(Vec<String>),
    /// How large a stream will be.
    Estimated {
        /// The snapshot.
        to: String,
        /// What it is incremental from, as users are told.
        from: Option<String>,
        /// Bytes.
        bytes: u64,
    },
    /// The bytes of a stream follow.
    Begun {
        /// The snapshot.
        to: String,
    },
    /// It was given up.
    Failed(ApiError),
    /// That is all.
    Complete {
        /// Something that was asked for could not be sent.
        is_partial: bool,
    },
}

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Bytes of the stream.
    Stream,
    /// A [`SendPart`].
    Part,
}

/// Bytes before the contents of a frame: the kind (0 for the stream, 1 for a part), and the length as a
/// little-endian number of 32 bits.
pub const FRAME_HEAD_BYTES: usize = 5;
/// Largest part, in bytes.
pub const MAX_PART_BYTES: u32 = 16 << 20;

impl FrameKind {
    /// What comes before the contents.
    pub fn head(self, length: u32) -> [u8; FRAME_HEAD_BYTES] {
        let kind = match self {
            Self::Stream => 0,
            Self::Part => 1,
        };
        let [a, b, c, d] = length.to_le_bytes();
        [kind, a, b, c, d]
    }

    /// Kind and length; nothing where it is no such head.
    pub fn parse([kind, length @ ..]: [u8; FRAME_HEAD_BYTES]) -> Option<(Self, u32)> {
        let length = u32::from_le_bytes(length);
        match kind {
            0 => Some((Self::Stream, length)),
            1 if length <= MAX_PART_BYTES => Some((Self::Part, length)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_frames_round_trip_and_others_are_refused() {
        for (kind, length) in [(FrameKind::Stream, 0), (FrameKind::Stream, u32::MAX), (FrameKind::Part, 7)] {
            assert_eq!(FrameKind::parse(kind.head(length)), Some((kind, length)));
        }
        assert_eq!(FrameKind::parse([2, 0, 0, 0, 0]), None);
        assert_eq!(FrameKind::parse(FrameKind::Part.head(MAX_PART_BYTES + 1)), None);
    }
}
