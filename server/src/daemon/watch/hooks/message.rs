//! What a hook says of an event to a person: a title, how urgent it is, a text.

use engine::events::Event;
use engine::properties::format::Civil;
use engine::vdev::State;

use super::environment;

/// The longest title, in characters.
const MAX_TITLE: usize = 160;
/// The longest value that is shown, in characters, and the most of them.
const MAX_VALUE: usize = 500;
const MAX_VALUES: usize = 80;
/// Bytes of a text in one encoded word of a header, whose base64 has at most 75 characters then.
const WORD_BYTES: usize = 42;

/// An event in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// One line.
    pub title: String,
    /// From 1 to 5, as ntfy.sh has it; 3 is usual.
    pub priority: u8,
    /// Several lines.
    pub text: String,
}

impl Message {
    /// What is said of an event by the daemon of this machine.
    pub(super) fn of(event: &Event, host: &str) -> Self {
        let (what, priority) = in_words(event);
        let title: String = plain(&format!("{host}: {what}")).chars().take(MAX_TITLE).collect();
        let mut text = format!("{}\n\nMachine:  {host}\nTime:     {}\n", plain(&what), time(event));
        text += &format!("Event:    {} (number {})\n", event.class, event.eid);
        let shown = environment(event).into_iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("ZEVENT_")?.to_ascii_lowercase();
            let is_told = ["class", "subclass", "eid"].contains(&&*name) || name.starts_with("time");
            (!is_told && !value.is_empty()).then_some((name, value))
        });
        let lines = shown.take(MAX_VALUES).map(|(name, value)| {
            let value: String = plain(&value).chars().take(MAX_VALUE).collect();
            format!("{name}: {value}\n")
        });
        text += "\n";
        text.extend(lines);
        Self { title, priority, text }
    }
}

/// What happened, and how urgent it is.
fn in_words(event: &Event) -> (String, u8) {
    let pool = event.pool().unwrap_or("?");
    let device = event.text("vdev_path").unwrap_or("a device");
    let state = || {
        let number = event.number("vdev_state");
        let all = [
            State::Offline,
            State::Removed,
            State::CantOpen,
            State::Faulted,
            State::Degraded,
            State::Healthy,
        ];
        all.into_iter().find(|state| Some(state.number()) == number)
    };
    let of_pool = |what: &str| format!("{what} of pool '{pool}'");
    match event.subclass() {
        "statechange" => match state() {
            Some(State::Healthy) => (format!("{device} of pool '{pool}' is ONLINE"), 3),
            Some(State::Offline) => (format!("{device} of pool '{pool}' is OFFLINE"), 3),
            Some(state) => (format!("{device} of pool '{pool}' is {state}"), 5),
            None => (format!("{device} of pool '{pool}' has another state"), 4),
        },
        "removed" => (format!("{device} of pool '{pool}' was removed"), 4),
        "scrub_finish" => (format!("{} is finished", of_pool("the scrub")), 3),
        "resilver_finish" => (format!("{} is finished", of_pool("the resilver")), 3),
        "vdev_spare" => (of_pool("a hot spare took the place of a device"), 4),
        "io_failure" => (format!("pool '{pool}' waits for its devices"), 5),
        "data" => (of_pool("a block cannot be read from any device"), 5),
        other => match &*event.class {
            class if class.starts_with("ereport.") => (of_pool(&format!("an error ({other})")), 4),
            _ => (of_pool(other), 3),
        },
    }
}

/// A text without control characters, which could begin other lines.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// When it happened, as mail writes times.
fn time(event: &Event) -> String {
    let at = i64::try_from(event.time.0).ok().and_then(Civil::at);
    at.map_or_else(|| event.time.0.to_string(), date)
}

/// A time of the clock of Greenwich as RFC 5322 has it.
pub(super) fn date(at: Civil) -> String {
    format!(
        "{}, {} {} {} {:02}:{:02}:{:02} +0000",
        at.weekday, at.day, at.month_name, at.year, at.hour, at.minute, at.second
    )
}

/// A text for a header, which has ASCII only: others are words of RFC 2047.
pub(super) fn header_text(text: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    if text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') && !text.contains("=?") {
        return text.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        match words.last_mut().filter(|word| word.len() + c.len_utf8() <= WORD_BYTES) {
            Some(word) => word.push(c),
            None => words.push(c.to_string()),
        }
    }
    let words: Vec<String> =
        words.iter().map(|word| format!("=?utf-8?B?{}?=", STANDARD.encode(word))).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use engine::events::Value;

    use super::*;

    fn with_text(name: &str, text: &str) -> (String, Value) {
        (name.to_owned(), Value::Text(text.to_owned()))
    }

    fn event(class: &str, fields: Vec<(String, Value)>) -> Event {
        Event { eid: 7, time: (1_790_000_000, 2), class: class.into(), fields }
    }

    #[test]
    fn an_event_is_told_in_words_and_says_nothing_in_other_lines() {
        let fields = vec![
            with_text("pool", "tank\r\nBcc: x"),
            with_text("vdev_path", "/dev/sdb"),
            ("vdev_state".to_owned(), Value::Number(State::Faulted.number())),
        ];
        let message = Message::of(&event("resource.fs.zfs.statechange", fields), "nas");
        assert_eq!(message.title, "nas: /dev/sdb of pool 'tank  Bcc: x' is FAULTED");
        assert_eq!(message.priority, 5);
        assert!(message.text.contains("vdev_state_str: FAULTED\n"), "{}", message.text);
        assert!(!message.text.contains('\r') && !message.text.contains("\nBcc"), "{}", message.text);
        assert!(message.text.contains("Time:     Mon, 21 Sep 2026"), "{}", message.text);
        let scrub =
            Message::of(&event("sysevent.fs.zfs.scrub_finish", vec![with_text("pool", "tank")]), "nas");
        assert_eq!((scrub.title.as_str(), scrub.priority), ("nas: the scrub of pool 'tank' is finished", 3));
    }

    #[test]
    fn headers_are_ascii() {
        assert_eq!(header_text("nas: a 'b'"), "nas: a 'b'");
        assert_eq!(header_text("Büro"), "=?utf-8?B?QsO8cm8=?=");
        let long = header_text(&"ä".repeat(100));
        assert!(long.split(' ').all(|word| word.len() <= 75) && long.is_ascii(), "{long}");
        assert!(!header_text("a\r\nBcc: b").contains('\n'));
    }
}
