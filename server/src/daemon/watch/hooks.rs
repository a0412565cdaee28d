//! Hooks: commands and webhooks that run when something happens to a pool.
//!
//! # The idea
//! A hook names events and what to do. Events are named by classes with `*` for anything
//! (`ereport.fs.zfs.*`), by the part of a class after `fs.zfs.` (`scrub_finish`), or by a short name
//! ([`SHORT_NAMES`]). A command is run by `/bin/sh` with the values of the event in its environment, under
//! the names that OpenZFS's `zed` gives them (`ZEVENT_POOL`). A webhook gets the event as JSON (`POST`).
//!
//! Hooks lie in a file beside the cache file, which only the daemon's user can write. Each run has a time
//! limit, and at most [`MAX_RUNNING`] run at a time: an event beyond that is logged and not delivered. What a
//! hook writes is not kept; how it ended is in the log.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Hooks::list` | the hooks; for a few lines | taken alone |

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::events::{CLASSES, Event, Value};
use engine::vdev::State;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use ondisk::nearest::meant;
use tokio::net::TcpStream;

use super::events::replace;
use crate::api::{self, ApiError, Hook, HookAction, HookTested};
use crate::daemon::Daemon;

/// The name of the file, beside the cache file.
const FILE_NAME: &str = "hooks.json";
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The most hooks.
const MAX_HOOKS: usize = 256;
/// The most runs at a time.
const MAX_RUNNING: usize = 16;
/// The time limit of a hook that has none of its own, in seconds.
const USUAL_LIMIT_S: u64 = 30;
/// The longest time limit, in seconds.
const MAX_LIMIT_S: u64 = 3600;
/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(20);

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

/// The hooks of a daemon.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Hooks {
    list: RwLock<Vec<Hook>>,
    running: Arc<AtomicUsize>,
}

impl Daemon {
    fn hooks_file(&self) -> Option<PathBuf> {
        Some(self.cachefile.as_ref()?.with_file_name(FILE_NAME))
    }

    /// Takes up the hooks of the file.
    pub(in crate::daemon) fn load_hooks(&self) {
        let Some(file) = self.hooks_file() else { return };
        let read = || -> std::io::Result<Vec<Hook>> {
            let mut text = String::new();
            match std::fs::File::open(&file) {
                Ok(opened) => opened.take(MAX_BYTES).read_to_string(&mut text)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            };
            serde_json::from_str(&text).map_err(std::io::Error::other)
        };
        match read() {
            Ok(hooks) => *self.hooks.list.write().ignore_poison() = hooks,
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "hooks are not read: none will run")
            }
        }
    }

    /// The hooks.
    ///
    /// # Errors
    /// None.
    pub fn list_hooks(&self, _: api::ListHooks) -> Result<Vec<Hook>, ApiError> {
        Ok(self.hooks.list.read().ignore_poison().clone())
    }

    /// Adds a hook, or replaces the one of that name.
    ///
    /// # Errors
    /// A hook without a name, events or an action that can be; too many; the file cannot be written.
    pub fn add_hook(&self, request: api::AddHook) -> Result<(), ApiError> {
        let hook = request.hook;
        check(&hook)?;
        self.change_hooks(|hooks| {
            hooks.retain(|other| other.name != hook.name);
            if hooks.len() >= MAX_HOOKS {
                return Err(ApiError::refused(format!("there are {MAX_HOOKS} hooks already")));
            }
            hooks.push(hook);
            Ok(())
        })
    }

    /// Removes a hook.
    ///
    /// # Errors
    /// There is none of that name; the file cannot be written.
    pub fn remove_hook(&self, request: api::RemoveHook) -> Result<(), ApiError> {
        self.change_hooks(|hooks| {
            let before = hooks.len();
            hooks.retain(|hook| hook.name != request.name);
            match hooks.len() < before {
                true => Ok(()),
                false => Err(no_such_hook(&request.name)),
            }
        })
    }

    /// Runs a hook with an event that is made up, and waits for its end; or only says what would be run.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn test_hook(&self, request: api::TestHook) -> Result<HookTested, ApiError> {
        let hook =
            self.hooks.list.read().ignore_poison().iter().find(|hook| hook.name == request.name).cloned();
        let hook = hook.ok_or_else(|| no_such_hook(&request.name))?;
        let fields = vec![
            ("pool".to_owned(), Value::Text("test".into())),
            ("pool_guid".to_owned(), Value::Number(0)),
            ("vdev_state".to_owned(), Value::Number(State::Faulted.number())),
        ];
        let class = "resource.fs.zfs.statechange".to_owned();
        let event = Event { eid: 0, time: (0, 0), class, fields };
        let environment = environment(&event);
        let outcome = match request.dry_run {
            true => None,
            false => Some(run(&hook, &event).map_or_else(|error| error, |()| "it succeeded".to_owned())),
        };
        Ok(HookTested { hook, environment, message: None, outcome })
    }

    fn change_hooks(
        &self,
        change: impl FnOnce(&mut Vec<Hook>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut list = self.hooks.list.write().ignore_poison();
        let mut changed = list.clone();
        change(&mut changed)?;
        if let Some(file) = self.hooks_file() {
            let cannot = |error: std::io::Error| ApiError::failed(format!("{}: {error}", file.display()));
            let text = serde_json::to_vec_pretty(&changed).map_err(|error| cannot(error.into()))?;
            replace(&file, &text).map_err(cannot)?;
        }
        *list = changed;
        Ok(())
    }

    /// Runs the hooks that want an event, each on a thread of its own.
    pub(in crate::daemon) fn run_hooks(&self, event: &Event) {
        let hooks = self.hooks.list.read().ignore_poison();
        for hook in hooks.iter().filter(|hook| hook.events.iter().any(|name| is_named(event, name))) {
            let running = Running::begin(&self.hooks.running);
            let Some(running) = running else {
                tracing::error!(hook = hook.name, event = event.class, "too many hooks run: not delivered");
                continue;
            };
            let (hook, event) = (hook.clone(), event.clone());
            let deliver = move || {
                let _running = running;
                let (name, class, eid) = (&hook.name, &event.class, event.eid);
                match run(&hook, &event) {
                    Ok(()) => tracing::info!(hook = name, event = class, eid, "a hook ran"),
                    Err(error) => tracing::error!(hook = name, event = class, eid, error, "a hook failed"),
                }
            };
            if let Err(error) = std::thread::Builder::new().name("hook".into()).spawn(deliver) {
                tracing::error!(%error, "a hook gets no thread");
            }
        }
    }
}

/// A run, counted as long as it lasts.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(count: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |running: usize| (running < MAX_RUNNING).then_some(running + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn no_such_hook(name: &str) -> ApiError {
    ApiError::not_found(format!("there is no hook '{name}'"))
}

fn check(hook: &Hook) -> Result<(), ApiError> {
    let invalid = |why: &str| Err(ApiError::invalid(format!("hook '{}': {why}", hook.name)));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if hook.name.is_empty() || !hook.name.bytes().all(is_word) {
        return invalid("a name has letters, digits, '-', '_' and '.'");
    }
    if hook.events.is_empty() {
        return invalid("it names no events");
    }
    if let Some(unknown) = hook.events.iter().find(|name| !is_known(name)) {
        let parts = CLASSES.iter().filter_map(|class| class.split("fs.zfs.").nth(1));
        let names = SHORT_NAMES.iter().map(|(name, _)| *name).chain(parts);
        let meant = meant(unknown, names);
        return invalid(&format!(
            "there is no event '{unknown}'{meant} (a short name of 'cenote hooks add --help', a class such as \
             {}, or a part of one such as 'scrub_*')",
            CLASSES[0]
        ));
    }
    if hook.limit_s.is_some_and(|limit| limit == 0 || limit > MAX_LIMIT_S) {
        return invalid("the time limit is between 1 and 3600 seconds");
    }
    match &hook.action {
        HookAction::Command(command) if command.trim().is_empty() => invalid("the command is empty"),
        HookAction::Webhook(url) if parse_url(url).is_none() => invalid(
            "a webhook is http://HOST[:PORT]/PATH; for https let a command such as curl send the event",
        ),
        HookAction::Mail(_) | HookAction::Ntfy(_) => invalid("this is not sent yet"),
        _ => Ok(()),
    }
}

/// Whether there are events that a name stands for.
fn is_known(name: &str) -> bool {
    let class = |class: &str| {
        let part = class.split("fs.zfs.").nth(1).unwrap_or_default();
        matches(name, class) || matches(name, part)
    };
    SHORT_NAMES.iter().any(|(short, _)| *short == name) || CLASSES.iter().any(|known| class(known))
}

/// Whether an event is one of those that a name stands for.
fn is_named(event: &Event, name: &str) -> bool {
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

/// The environment of a command, as `zed` has it.
fn environment(event: &Event) -> Vec<(String, String)> {
    let mut set = vec![
        ("ZEVENT_CLASS".to_owned(), event.class.clone()),
        ("ZEVENT_SUBCLASS".to_owned(), event.subclass().to_owned()),
        ("ZEVENT_EID".to_owned(), event.eid.to_string()),
        ("ZEVENT_TIME".to_owned(), format!("{} {}", event.time.0, event.time.1)),
        ("ZEVENT_TIME_SECS".to_owned(), event.time.0.to_string()),
        ("ZEVENT_TIME_NSECS".to_owned(), event.time.1.to_string()),
    ];
    for (name, value) in &event.fields {
        let variable = format!("ZEVENT_{}", name.to_ascii_uppercase());
        let numbers = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let text = match value {
            Value::Number(number) if name.ends_with("_guid") => format!("0x{number:016X}"),
            Value::Number(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Numbers(list) => numbers(list),
            Value::Texts(texts) => texts.join(" "),
            Value::Nested(_) => continue,
        };
        if name == "vdev_state" || name == "vdev_laststate" {
            let states = [
                State::Offline,
                State::Removed,
                State::CantOpen,
                State::Faulted,
                State::Degraded,
                State::Healthy,
            ];
            let state = states.into_iter().find(|state| Some(state.number()) == event.number(name));
            set.extend(state.map(|state| (format!("{variable}_STR"), state.to_string())));
        }
        set.push((variable, text.replace('\0', "")));
    }
    set
}

/// Runs a hook to its end, or to the end of its time.
fn run(hook: &Hook, event: &Event) -> Result<(), String> {
    let limit = Duration::from_secs(hook.limit_s.unwrap_or(USUAL_LIMIT_S));
    match &hook.action {
        HookAction::Command(command) => run_command(command, event, limit),
        HookAction::Webhook(url) => post(url, event, limit),
        HookAction::Mail(_) | HookAction::Ntfy(_) => Err("this is not sent yet".to_owned()),
    }
}

fn run_command(command: &str, event: &Event, limit: Duration) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(environment(event)).current_dir("/");
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A group of its own, so that all of it can be ended.
    shell.process_group(0);
    let mut child = shell.spawn().map_err(|error| format!("it cannot be run: {error}"))?;
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
                return Err(format!("it was ended after {} s", limit.as_secs()));
            }
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    }
}

/// Host with port, and path of a URL.
fn parse_url(url: &str) -> Option<(String, String)> {
    let url: Uri = url.parse().ok().filter(|url: &Uri| url.scheme() == Some(&Scheme::HTTP))?;
    let authority = url.authority().filter(|of| !of.host().is_empty() && !of.as_str().contains('@'))?;
    let host = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    Some((host, url.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()))
}

/// Sends an event as JSON.
fn post(url: &str, event: &Event, limit: Duration) -> Result<(), String> {
    let (host, path) = parse_url(url).ok_or("it is no http:// address")?;
    let body = serde_json::to_vec(event).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("its thread cannot wait for sockets: {error}"))?;
    let answer = runtime.block_on(async { tokio::time::timeout(limit, send(&host, &path, body)).await });
    // A name that is still looked up must not keep the thread.
    runtime.shutdown_background();
    match answer {
        Ok(Ok(status)) if status.is_success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{host} answered {status}")),
        Ok(Err(error)) => Err(format!("{host}: {error}")),
        Err(_) => Err(format!("{host}: no answer in {} s", limit.as_secs())),
    }
}

/// Sends JSON; the body of the answer is not read.
async fn send(host: &str, path: &str, body: Vec<u8>) -> Result<StatusCode, Box<dyn std::error::Error>> {
    let stream = TcpStream::connect(host).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "cenote")
        .body(Full::new(Bytes::from(body)))?;
    let answer = sender.send_request(request).await;
    connection.abort();
    Ok(answer?.status())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn event(class: &str, state: Option<State>) -> Event {
        let fields = state.map(|state| ("vdev_state".to_owned(), Value::Number(state.number())));
        Event { eid: 7, time: (1, 2), class: class.into(), fields: fields.into_iter().collect() }
    }

    fn hook(action: HookAction, limit_s: u64) -> Hook {
        Hook {
            name: "test".into(),
            events: vec!["all".into()],
            action,
            limit_s: Some(limit_s),
            secret: None,
            has_secret: false,
        }
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
    fn hooks_for_events_that_there_are_not_are_refused() {
        let hook = |event: &str| Hook {
            events: vec!["all".into(), event.into()],
            ..hook(HookAction::Command("true".into()), 1)
        };
        for known in ["fault", "scrub_*", "statechange", "ereport.fs.zfs.*", "*", "vdev.open_failed", "*.io"]
        {
            check(&hook(known)).unwrap();
        }
        for (unknown, meant) in
            [("faullt", "did you mean 'fault'?"), ("scrub_finsh", "did you mean 'scrub_finish'?")]
        {
            let refused = check(&hook(unknown)).unwrap_err().message;
            assert!(refused.contains(&format!("there is no event '{unknown}'; {meant}")), "{refused}");
        }
        for unknown in ["", "ereport.fs.zfs.*x", "sysevent", "fs.zfs."] {
            check(&hook(unknown)).unwrap_err();
        }
    }

    #[test]
    fn a_command_gets_the_event_and_is_ended_when_it_takes_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out");
        let command =
            format!("echo $ZEVENT_SUBCLASS $ZEVENT_EID $ZEVENT_VDEV_STATE_STR > {}", file.display());
        let faulted = event("resource.fs.zfs.statechange", Some(State::Faulted));
        run(&hook(HookAction::Command(command), 10), &faulted).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "statechange 7 FAULTED\n");
        let slow = run(&hook(HookAction::Command("sleep 600".into()), 1), &faulted).unwrap_err();
        assert_eq!(slow, "it was ended after 1 s");
        let failed = run(&hook(HookAction::Command("exit 3".into()), 10), &faulted).unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
    }

    /// Up to the end of its JSON.
    fn read_request(stream: &mut std::net::TcpStream) -> String {
        let mut request = Vec::new();
        let mut part = [0; 4096];
        while !request.ends_with(b"}") {
            let read = stream.read(&mut part).unwrap();
            request.extend_from_slice(&part[..read]);
        }
        String::from_utf8(request).unwrap()
    }

    #[test]
    fn a_webhook_that_refuses_the_event_or_does_not_answer_says_so() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut refusing, _) = listener.accept().unwrap();
            read_request(&mut refusing);
            refusing.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").unwrap();
            let (silent, _) = listener.accept().unwrap();
            (refusing, silent)
        });
        let event = event("sysevent.fs.zfs.scrub_finish", None);
        let hook = hook(HookAction::Webhook(url), 1);
        let refused = run(&hook, &event).unwrap_err();
        assert!(refused.ends_with("answered 503 Service Unavailable"), "{refused}");
        let silent = run(&hook, &event).unwrap_err();
        assert!(silent.ends_with("no answer in 1 s"), "{silent}");
        drop(served.join().unwrap());
    }

    #[test]
    fn a_webhook_gets_the_event_as_json() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            request
        });
        let faulted = event("resource.fs.zfs.statechange", Some(State::Faulted));
        run(&hook(HookAction::Webhook(url), 10), &faulted).unwrap();
        let request = served.join().unwrap();
        assert!(request.starts_with("POST /events HTTP/1.1\r\n"), "{request}");
        let body = request.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(serde_json::from_str::<Event>(body).unwrap(), faulted);
        for url in ["https://host/", "http://:80/", "/events", "http://name@host/", "http://host/a b"] {
            assert_eq!(parse_url(url), None, "{url}");
        }
        assert_eq!(parse_url("http://[::1]:81/a?b=1"), Some(("[::1]:81".into(), "/a?b=1".into())));
        assert_eq!(parse_url("http://host"), Some(("host:80".into(), "/".into())));
    }
}
