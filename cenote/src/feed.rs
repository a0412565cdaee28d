//! Waiting for something to change, without asking again and again: the daemon's feed of changes.
//!
//! A command that waits begins to follow the feed, looks, and looks again after each message until what it
//! waits for is there. What happens between two looks is in the feed, so that nothing is waited for that is
//! over. Heartbeats count as messages: a look too many harms nothing.
//!
//! A connection that breaks off is made anew once, and goes on where it was: the public socket ends each
//! after a while. Where no daemon answers any more, the command ends with an error.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use server::api::{FeedMessage, FollowChanges};
use tokio::runtime::Runtime;

use crate::client::{self, Followed};

/// Largest message that is waited for, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The feed as it comes.
#[derive(Debug)]
pub struct Feed {
    request: FollowChanges,
    runtime: Runtime,
    body: Incoming,
    waiting: Unfolding,
}

/// A part of the feed.
#[derive(Debug, PartialEq)]
pub enum Came {
    /// A message.
    Message(Box<FeedMessage>),
    /// Nothing but a sign of life.
    Heartbeat,
    /// Nothing in the time that was given.
    Nothing,
}

impl Feed {
    /// Begins to follow, from now on. `None` when no daemon runs that this user may ask.
    pub fn begin() -> Result<Option<Self>> {
        let request = FollowChanges { without_snapshot: true, ..FollowChanges::default() };
        let Some(Followed { runtime, body }) = client::follow(&request)? else { return Ok(None) };
        Ok(Some(Self { request, runtime, body, waiting: Unfolding::default() }))
    }

    /// Waits for the next part, for so long.
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Came> {
        loop {
            if let Some(came) = self.waiting.take()? {
                self.request.from = self.waiting.id.clone().or(self.request.from.take());
                if let Came::Message(message) = &came
                    && let FeedMessage::End(end) = &**message
                {
                    return Err(gone(&end.message));
                }
                return Ok(came);
            }
            let body = &mut self.body;
            let frame = match patience {
                Some(patience) => {
                    self.runtime.block_on(async { tokio::time::timeout(patience, body.frame()).await.ok() })
                }
                None => Some(self.runtime.block_on(body.frame())),
            };
            let Some(frame) = frame else { return Ok(Came::Nothing) };
            match frame {
                Some(Ok(frame)) => self.waiting.add(frame.data_ref().map_or(&[][..], |data| data))?,
                Some(Err(_)) | None => self.come_back()?,
            }
        }
    }

    /// Waits until something changed, for so long at most: what came meanwhile is passed over.
    pub fn wait(&mut self, patience: Option<Duration>) -> Result<()> {
        self.next(patience)?;
        // What is there already is about the time before the next look.
        while self.next(Some(Duration::ZERO))? != Came::Nothing {}
        Ok(())
    }

    fn come_back(&mut self) -> Result<()> {
        let followed = client::follow(&self.request).map_err(|error| gone(&format!("{error:#}")))?;
        let Some(Followed { runtime, body }) = followed else {
            return Err(gone("nothing answers any more"));
        };
        (self.runtime, self.body, self.waiting) = (runtime, body, Unfolding::default());
        Ok(())
    }
}

fn gone(why: &str) -> anyhow::Error {
    anyhow!("the daemon went away while this command waited: {why}")
}

/// Looks until `look` says that it is over; waits for changes between.
pub fn until(mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut feed = Feed::begin()?;
    while !look()? {
        match &mut feed {
            Some(feed) => feed.wait(None)?,
            None => bail!("no daemon runs that you may use"),
        }
    }
    Ok(())
}

/// Takes server-sent events apart.
#[derive(Debug, Default)]
struct Unfolding {
    bytes: Vec<u8>,
    /// Before this place there is no end of a message.
    searched: usize,
    /// The last id.
    id: Option<String>,
}

impl Unfolding {
    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        anyhow::ensure!(self.bytes.len() < MAX_MESSAGE_BYTES, client::OTHER_VERSION);
        Ok(())
    }

    /// The next message that is there as a whole.
    fn take(&mut self) -> Result<Option<Came>> {
        let found = self.bytes[self.searched..].windows(2).position(|pair| pair == b"\n\n");
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = self.bytes.len().saturating_sub(1);
            return Ok(None);
        };
        self.searched = 0;
        let message: Vec<u8> = self.bytes.drain(..end + 2).collect();
        let (mut event, mut data) = ("", "");
        let text = std::str::from_utf8(&message[..end]).context(client::OTHER_VERSION)?;
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("event", name)) => event = name,
                Some(("data", text)) => data = text,
                Some(("id", id)) => self.id = Some(id.to_owned()),
                // A comment.
                _ => {}
            }
        }
        if event.is_empty() {
            return Ok(Some(Came::Heartbeat));
        }
        let message =
            serde_json::from_str(&format!("{{\"{event}\":{data}}}")).context(client::OTHER_VERSION)?;
        Ok(Some(Came::Message(Box::new(message))))
    }
}

#[cfg(test)]
mod tests {
    use server::api::{Change, FeedEnd, What};

    use super::*;

    #[test]
    fn messages_are_taken_apart_wherever_they_are_cut() {
        let data = r#"{"pool":"tank","pool_guid":7,"txg":5,"kind":"renamed","from":"tank/a","to":"tank/b","#;
        let data = format!("{data}\"guid\":{}}}", u64::MAX);
        let text = format!(
            "id: a-1\n\n:\n\nevent: change\nid: a-2\ndata: {data}\n\n\
             event: end\ndata: {{\"message\":\"x\"}}\n\n"
        );
        let what = What::Renamed { from: "tank/a".into(), to: "tank/b".into(), guid: u64::MAX };
        let change = Change { pool: "tank".into(), pool_guid: 7, txg: 5, what };
        let expected = [
            Came::Heartbeat,
            Came::Heartbeat,
            Came::Message(Box::new(FeedMessage::Change(change))),
            Came::Message(Box::new(FeedMessage::End(FeedEnd { message: "x".into() }))),
        ];
        for size in 1..=text.len() {
            let (mut unfolding, mut all) = (Unfolding::default(), Vec::new());
            for bytes in text.as_bytes().chunks(size) {
                unfolding.add(bytes).unwrap();
                while let Some(came) = unfolding.take().unwrap() {
                    all.push(came);
                }
            }
            assert_eq!(all, expected, "{size}");
            assert_eq!(unfolding.id.as_deref(), Some("a-2"));
        }
    }
}
