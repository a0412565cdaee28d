//! `zpool events`: what happened to pools.
//!
//! Source of the facts about texts and layout: OpenZFS 2.4 `zpool_main.c` (`zpool_do_events`),
//! `zfs_valstr.c`.

use std::io::Write as _;

use anyhow::{Context, Result};
use engine::vdev::State;
use serde_json::{Map, Value, json};
use server::api::{ClearEvents, Event, EventList, EventValue, FeedMessage, GetEvents};

use crate::client;
use crate::feed::{Came, Feed};
use crate::output::{self, JsonOptions, usage};

/// Arguments of `zpool events`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_version_flag = true)]
pub struct Arguments {
    /// Show all values of each event
    #[arg(short)]
    verbose: bool,
    /// For scripts: no headers, and a tab between the columns
    #[arg(short = 'H')]
    scripted: bool,
    /// Show each event when it happens, until interrupted
    #[arg(short)]
    follow: bool,
    /// Forget all events
    #[arg(short)]
    clear: bool,
    #[command(flatten)]
    json: JsonOptions,
    /// Only events of this pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        if self.clear {
            if self.pool.is_some() || self.verbose || self.scripted || self.follow || self.json.json {
                return Err(usage("invalid options combined with -c"));
            }
            let count = output::ask(&ClearEvents {}, |_| 0)?;
            return output::print(&format!("cleared {count} events\n"));
        }
        if self.json.json && self.follow {
            return Err(usage("-f prints no JSON document"));
        }
        let mut request = GetEvents { pool: self.pool.clone(), ..GetEvents::default() };
        if self.json.json {
            return print_json(&output::ask(&request, |_| EventList::default())?);
        }
        if !self.scripted {
            output::print(&format!("{:<30} {}\n", "TIME", "CLASS"))?;
        }
        if !self.follow {
            return self.print(&output::ask(&request, |_| EventList::default())?);
        }
        let listed = client::call(&request)?;
        self.print(&listed)?;
        let mut feed = Feed::begin()?.context("no daemon runs that you may use")?;
        let mut last = listed.last_eid;
        let mut may_miss = true;
        loop {
            if may_miss {
                // What happened before the feed began, or is not in it any more.
                request.after = last;
                let listed = client::call(&request)?;
                self.print(&listed)?;
                last = listed.last_eid;
            }
            may_miss = self.print_next(&mut feed, &mut last)?;
        }
    }

    /// Prints what comes next, if it is an event. Whether some may have been missed.
    fn print_next(&self, feed: &mut Feed, last: &mut u64) -> Result<bool> {
        let Came::Message(message) = feed.next(None)? else { return Ok(false) };
        match *message {
            FeedMessage::Event(event) if event.eid > *last => {
                *last = event.eid;
                let is_meant =
                    self.pool.is_none() || event.pool().is_none() || event.pool() == self.pool.as_deref();
                let events = if is_meant { vec![event] } else { Vec::new() };
                self.print(&EventList { events, ..EventList::default() })?;
                Ok(false)
            }
            message => Ok(matches!(message, FeedMessage::Missed(_))),
        }
    }

    fn print(&self, listed: &EventList) -> Result<()> {
        let mut text = String::new();
        if listed.dropped > 0 {
            text.push_str(&format!("dropped {} events\n", listed.dropped));
        }
        for event in &listed.events {
            let (seconds, nanoseconds) = event.time;
            let separator = if self.scripted { '\t' } else { ' ' };
            let date = short_date(seconds);
            text.push_str(&format!("{date}.{nanoseconds:09}{separator}{}\n", event.class));
            if self.verbose {
                let class = ("class".to_owned(), EventValue::Text(event.class.clone()));
                let (seconds, nanoseconds) = (seconds, u64::from(nanoseconds));
                let time = ("time".to_owned(), EventValue::Numbers(vec![seconds, nanoseconds]));
                let eid = ("eid".to_owned(), EventValue::Number(event.eid));
                for (name, value) in [&class].into_iter().chain(&event.fields).chain([&time, &eid]) {
                    push_value(&mut text, 8, name, value);
                }
                text.push('\n');
            }
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
    }
}

/// `Jun 30 1993 21:49:08`, in the user's time zone.
fn short_date(seconds: u64) -> String {
    // `Thu Jun 30 21:49:08 1993`
    let date = output::ctime(seconds);
    let part = |range: std::ops::Range<usize>| date.get(range).unwrap_or_default();
    format!("{} {} {}", part(4..10), part(20..24), part(11..19))
}

fn push_value(text: &mut String, depth: usize, name: &str, value: &EventValue) {
    let margin = " ".repeat(depth);
    text.push_str(&format!("{margin}{name} = "));
    match value {
        EventValue::Number(number) => text.push_str(&number_in_words(name, *number)),
        EventValue::Signed(number) => text.push_str(&format!("{number:#x}")),
        EventValue::Text(value) => text.push_str(&format!("\"{value}\"")),
        EventValue::Numbers(numbers) => {
            numbers.iter().for_each(|number| text.push_str(&format!("{number:#x} ")));
        }
        EventValue::Texts(texts) => texts.iter().for_each(|value| text.push_str(&format!("\"{value}\" "))),
        EventValue::Nested(values) => {
            text.push_str("(embedded nvlist)\n");
            values.iter().for_each(|(name, value)| push_value(text, depth + 8, name, value));
            text.push_str(&format!("{margin}(end {name})"));
        }
    }
    text.push('\n');
}

fn number_in_words(name: &str, number: u64) -> String {
    let word = match (name, number) {
        ("vdev_state" | "vdev_laststate", _) => return format!("\"{}\" ({number:#x})", state(number)),
        ("zio_type", 1) => "READ",
        ("zio_type", 2) => "WRITE",
        ("zio_type", 5) => "FLUSH",
        ("zio_type", 6) => "TRIM",
        ("zio_priority", 0) => "SYNC_READ",
        ("zio_priority", 3) => "ASYNC_WRITE",
        ("zio_priority", 4) => "SCRUB",
        _ => return format!("{number:#x}"),
    };
    format!("{number:#x} [{word}]")
}

fn state(number: u64) -> String {
    let states =
        [State::Offline, State::Removed, State::CantOpen, State::Faulted, State::Degraded, State::Healthy];
    let found = states.into_iter().find(|state| state.number() == number);
    found.map_or_else(|| "UNKNOWN".to_owned(), |state| state.to_string())
}

/// OpenZFS has no such form; this follows that of its other listings.
fn print_json(listed: &EventList) -> Result<()> {
    let mut document = output::document("zpool events");
    let events: Vec<Value> = listed.events.iter().map(event_json).collect();
    document.insert("events".into(), events.into());
    output::print_json(&document)
}

fn event_json(event: &Event) -> Value {
    let (seconds, nanoseconds) = event.time;
    json!({
        "eid": event.eid,
        "class": event.class,
        "time": {"seconds": seconds, "nanoseconds": nanoseconds},
        "values": values_json(&event.fields),
    })
}

fn values_json(fields: &[(String, EventValue)]) -> Value {
    let value = |value: &EventValue| match value {
        EventValue::Nested(fields) => values_json(fields),
        other => serde_json::to_value(other).unwrap_or_default(),
    };
    fields.iter().map(|(name, of)| (name.clone(), value(of))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_as_openzfs_prints_them() {
        let mut text = String::new();
        let detector = EventValue::Nested(vec![("version".into(), EventValue::Number(0))]);
        for (name, value) in [
            ("detector", detector),
            ("vdev_state", EventValue::Number(7)),
            ("zio_err", EventValue::Signed(52)),
            ("zio_level", EventValue::Signed(-1)),
            ("pool", EventValue::Text("tank".into())),
            ("time", EventValue::Numbers(vec![16, 255])),
        ] {
            push_value(&mut text, 8, name, &value);
        }
        let expected = "        detector = (embedded nvlist)\n                version = 0x0\n        (end detector)\n        \
                        vdev_state = \"ONLINE\" (0x7)\n        zio_err = 0x34\n        \
                        zio_level = 0xffffffffffffffff\n        pool = \"tank\"\n        time = 0x10 0xff \n";
        assert_eq!(text, expected);
    }
}
