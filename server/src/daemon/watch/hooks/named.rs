//! Which events a hook wants: classes, parts of classes, short names.

use engine::events::{CLASSES, Event, HOOK_FAILED};
use engine::vdev::State;
use ondisk::nearest::meant;

/// Short names of events, with what they stand for.
pub const SHORT_NAMES: [(&str, &str); 8] = [
    ("fault", "a device became FAULTED, UNAVAIL, REMOVED or DEGRADED"),
    ("online", "a device became ONLINE"),
    ("scrub-finished", "a scrub finished"),
    ("resilver-finished", "a resilver finished"),
    ("spare-in-use", "a hot spare took the place of a device"),
    ("suspended", "a pool waits for its devices"),
    ("data-error", "a block could not be read from any device"),
    ("all", "any event"),
];

/// Why there are no events of this name, for a person.
///
/// # Errors
/// There are none.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if is_known(name) {
        return Ok(());
    }
    let parts = CLASSES.iter().filter_map(|class| class.split("fs.zfs.").nth(1));
    let names = SHORT_NAMES.iter().map(|(name, _)| *name).chain(parts);
    let meant = meant(name, names);
    Err(format!(
        "there is no event '{name}'{meant} (a short name of 'cenote hooks add --help', a class such as {}, \
         or a part of one such as 'scrub_*')",
        CLASSES[0]
    ))
}

/// Whether there are events that a name stands for.
fn is_known(name: &str) -> bool {
    let class = |class: &str| {
        let part = class.split("fs.zfs.").nth(1).unwrap_or_default();
        matches(name, class) || matches(name, part)
    };
    // Of hooks that failed no hook hears: it could fail again.
    let mut classes = CLASSES.iter().filter(|class| **class != HOOK_FAILED);
    SHORT_NAMES.iter().any(|(short, _)| *short == name) || classes.any(|known| class(known))
}

/// Whether an event is one of those that a name stands for.
pub(super) fn is_named(event: &Event, name: &str) -> bool {
    let state = event.number("vdev_state");
    let became = |states: &[State]| {
        event.subclass() == "statechange" && states.iter().any(|one| Some(one.number()) == state)
    };
    match name {
        "all" => true,
        "fault" => became(&[State::Faulted, State::CantOpen, State::Removed, State::Degraded]),
        "online" => became(&[State::Healthy]),
        "scrub-finished" => event.subclass() == "scrub_finish",
        "resilver-finished" => event.subclass() == "resilver_finish",
        "spare-in-use" => event.subclass() == "vdev_spare",
        "suspended" => event.subclass() == "io_failure",
        "data-error" => event.subclass() == "data",
        _ => matches(name, &event.class) || matches(name, event.subclass()),
    }
}

/// Whether a text is as a pattern, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use engine::events::Value;

    use super::*;

    fn event(class: &str, state: Option<State>) -> Event {
        let fields = state.map(|state| ("vdev_state".to_owned(), Value::Number(state.number())));
        Event { eid: 7, time: (1, 2), class: class.into(), fields: fields.into_iter().collect() }
    }

    #[test]
    fn events_are_named_by_class_part_of_it_or_short_name() {
        let faulted = event("resource.fs.zfs.statechange", Some(State::Faulted));
        let online = event("resource.fs.zfs.statechange", Some(State::Healthy));
        let scrub = event("sysevent.fs.zfs.scrub_finish", None);
        for (event, names, others) in [
            (&faulted, ["fault", "statechange", "resource.*"], ["online", "sysevent.*", "scrub_*"]),
            (&online, ["online", "state*", "*"], ["fault", "data-error", "suspended"]),
            (
                &scrub,
                ["scrub-finished", "scrub_*", "*.scrub_finish"],
                ["fault", "scrub", "resilver-finished"],
            ),
        ] {
            assert!(names.iter().all(|name| is_named(event, name)), "{}", event.class);
            assert!(!others.iter().any(|name| is_named(event, name)), "{}", event.class);
        }
    }

    #[test]
    fn events_that_there_are_not_are_named_by_none() {
        for known in ["fault", "scrub_*", "statechange", "ereport.fs.zfs.*", "*", "vdev.open_failed", "*.io"]
        {
            check_name(known).unwrap();
        }
        for (unknown, meant) in
            [("faullt", "did you mean 'fault'?"), ("scrub_finsh", "did you mean 'scrub_finish'?")]
        {
            let refused = check_name(unknown).unwrap_err();
            assert!(refused.contains(&format!("there is no event '{unknown}'; {meant}")), "{refused}");
        }
        for unknown in ["", "ereport.fs.zfs.*x", "sysevent", "fs.zfs.", "hook_failed", HOOK_FAILED] {
            check_name(unknown).unwrap_err();
        }
    }
}
