//! Hooks: commands, webhooks, messages and mail, when something happens to a pool.
//!
//! # The idea
//! A hook names events and what to do. Events are named by classes with `*` for anything
//! (`ereport.fs.zfs.*`), by the part of a class after `fs.zfs.` (`scrub_finish`), or by a short name
//! ([`SHORT_NAMES`]). A command is run by `/bin/sh` with the values of the event in its environment, under
//! the names that OpenZFS's `zed` gives them (`ZEVENT_POOL`). A webhook gets the event as JSON (`POST`). Mail
//! and messages (ntfy) say it in words.
//!
//! Hooks lie in a file beside the cache file, which only the daemon's user can read: it has the secrets of
//! relays and servers. A secret is never told again, and is kept for the server that it was given for: a hook
//! that is added again for another one needs another. Each run has a time limit, and at most [`MAX_RUNNING`]
//! run at a time. What a hook writes is not kept.
//!
//! A hook that failed, or could not be run, is not lost silently: the log says so, and so does an event
//! (`hook_failed`), at most one of a hook in [`TOLD_EACH`]. No hook hears of these events, since it could
//! fail again.
//!
//! | module | what it owns |
//! |---|---|
//! | `named` | which events a hook wants |
//! | `command` | commands, and their environment |
//! | `message` | what is said of an event to a person |
//! | `sending` | webhooks, ntfy and mail |
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Hooks::list` | the hooks; for a few lines | taken alone |
//! | `Failures` | when a failure was told last; for a few lines | taken alone |

mod command;
mod message;
mod named;
mod sending;

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::events::{Event, Events, HOOK_FAILED, Value, field, text};
use engine::vdev::State;

use crate::accounts::replace;
use crate::api::{self, ApiError, Hook, HookAction, HookTested};
use crate::daemon::{Daemon, machine_name};
use command::environment;
use message::Message;
pub use named::SHORT_NAMES;
use named::{check_name, is_named};

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
/// How often an event tells of failures of a hook.
const TOLD_EACH: Duration = Duration::from_secs(60);
/// The longest reason of a failure in an event, in characters.
const MAX_REASON: usize = 400;

/// The hooks of a daemon.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Hooks {
    list: RwLock<Vec<Hook>>,
    running: Arc<AtomicUsize>,
    failures: Arc<Failures>,
}

/// When an event told last that a hook failed, and how often it failed since.
#[derive(Debug, Default)]
struct Failures(Mutex<HashMap<String, (Instant, u64)>>);

impl Failures {
    /// Tells of a failure: in the log always, as an event from time to time.
    fn tell(&self, events: &Events, hook: &str, event: &Event, why: &str) {
        tracing::error!(hook, event = event.class, eid = event.eid, error = why, "a hook failed");
        let now = Instant::now();
        let untold = {
            let mut told = self.0.lock().ignore_poison();
            // Those of hooks that are gone make room.
            if told.len() > MAX_HOOKS {
                told.clear();
            }
            match told.get_mut(hook) {
                Some((last, untold)) if now.duration_since(*last) < TOLD_EACH => {
                    *untold += 1;
                    return;
                }
                Some((last, untold)) => {
                    *last = now;
                    std::mem::take(untold)
                }
                None => {
                    told.insert(hook.to_owned(), (now, 0));
                    0
                }
            }
        };
        let of_pool = ["pool", "pool_guid"].into_iter().filter_map(|name| {
            let value = event.get(name)?;
            Some((name.to_owned(), value.clone()))
        });
        let reason: String = why.chars().take(MAX_REASON).collect();
        let mut fields: Vec<(String, Value)> = of_pool.collect();
        fields.push(text("hook", hook));
        fields.push(text("hook_event", &event.class));
        fields.push(field("hook_eid", event.eid));
        fields.push(text("hook_error", &reason));
        fields.push(field("hook_failures_untold", untold));
        events.post(HOOK_FAILED.to_owned(), fields);
    }
}

/// A hook as it is told: without its secret.
fn told(hook: &Hook) -> Hook {
    Hook { has_secret: hook.secret.is_some(), secret: None, ..hook.clone() }
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

    /// The hooks, without their secrets.
    ///
    /// # Errors
    /// None.
    pub fn list_hooks(&self, _: api::ListHooks) -> Result<Vec<Hook>, ApiError> {
        Ok(self.hooks.list.read().ignore_poison().iter().map(told).collect())
    }

    /// Adds a hook, or replaces the one of that name, whose secret it keeps for the same server.
    ///
    /// # Errors
    /// A hook without a name, events or an action that can be; too many; a secret that may not be sent there;
    /// the file cannot be written.
    pub fn add_hook(&self, request: api::AddHook) -> Result<(), ApiError> {
        let mut hook = request.hook;
        let invalid = |name: &str, why: String| ApiError::invalid(format!("hook '{name}': {why}"));
        check(&hook)?;
        let server = sending::server_of(&hook.action).map_err(|why| invalid(&hook.name, why))?;
        self.change_hooks(|hooks| {
            let old = hooks.iter().position(|other| other.name == hook.name).map(|at| hooks.remove(at));
            if hooks.len() >= MAX_HOOKS {
                return Err(ApiError::refused(format!("there are {MAX_HOOKS} hooks already")));
            }
            let given = hook.secret.take();
            hook.has_secret = false;
            hook.secret = match (given, old.as_ref().and_then(|old| old.secret.as_ref())) {
                (Some(given), _) => Some(given).filter(|given| !given.bytes().is_empty()),
                (None, None) => None,
                (None, Some(kept)) => {
                    let before = old.as_ref().and_then(|old| sending::server_of(&old.action).ok().flatten());
                    let is_same = match (&before, &server) {
                        (Some(before), Some(server)) => before.is_same_server(server),
                        _ => false,
                    };
                    // Else its secret would be sent where it was not meant for.
                    if server.is_some() && !is_same {
                        let why = "its secret was given for another server: give the one for this server, or \
                                   an empty one";
                        return Err(invalid(&hook.name, why.to_owned()));
                    }
                    is_same.then(|| kept.clone())
                }
            };
            if hook.secret.is_some() {
                sending::check_secret(&hook.action, server.as_ref())
                    .map_err(|why| invalid(&hook.name, why))?;
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
        let message = match &hook.action {
            HookAction::Mail(_) | HookAction::Ntfy(_) => {
                let message = Message::of(&event, &machine_name());
                Some(format!("{}\n\n{}", message.title, message.text))
            }
            HookAction::Command(_) | HookAction::Webhook(_) => None,
        };
        Ok(HookTested { hook: told(&hook), environment, message, outcome })
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
        if event.class == HOOK_FAILED {
            return;
        }
        let hooks = self.hooks.list.read().ignore_poison();
        for hook in hooks.iter().filter(|hook| hook.events.iter().any(|name| is_named(event, name))) {
            let (events, failures) = (self.events(), Arc::clone(&self.hooks.failures));
            let running = Running::begin(&self.hooks.running);
            let Some(running) = running else {
                failures.tell(&events, &hook.name, event, "too many hooks run at once: it was not run");
                continue;
            };
            let (hook, event) = (hook.clone(), event.clone());
            let (name, about) = (hook.name.clone(), event.clone());
            let deliver = move || {
                let _running = running;
                match run(&hook, &event) {
                    Ok(()) => {
                        let (name, class, eid) = (&hook.name, &event.class, event.eid);
                        tracing::info!(hook = name, event = class, eid, "a hook ran");
                    }
                    Err(error) => failures.tell(&events, &hook.name, &event, &error),
                }
            };
            let failures = Arc::clone(&self.hooks.failures);
            if let Err(error) = std::thread::Builder::new().name("hook".into()).spawn(deliver) {
                failures.tell(&self.events(), &name, &about, &format!("it gets no thread: {error}"));
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
    if let Some(why) = hook.events.iter().find_map(|name| check_name(name).err()) {
        return invalid(&why);
    }
    if hook.limit_s.is_some_and(|limit| limit == 0 || limit > MAX_LIMIT_S) {
        return invalid("the time limit is between 1 and 3600 seconds");
    }
    match &hook.action {
        HookAction::Command(command) if command.trim().is_empty() => invalid("the command is empty"),
        _ => Ok(()),
    }
}

/// Runs a hook to its end, or to the end of its time.
fn run(hook: &Hook, event: &Event) -> Result<(), String> {
    let limit = Duration::from_secs(hook.limit_s.unwrap_or(USUAL_LIMIT_S));
    match &hook.action {
        HookAction::Command(command) => command::run(command, event, limit),
        _ => sending::send(hook, event, &machine_name(), limit),
    }
}

#[cfg(test)]
mod tests;
