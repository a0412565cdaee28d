//! Whether a caller may have what it asks for, and the line about that in the audit log.
//!
//! A request is admitted by the caller's role: what it asks for has at most that role. A viewer and an
//! operator get less than an admin of some actions ([`Action::for_viewer`], [`Action::for_operator`]). Where
//! the role is not enough, permissions of `zfs allow` may be ([`super::datasets::delegation`]); a user
//! without any role is refused all the same. What is refused is refused in OpenZFS's words. Which actions
//! there are is told to admins only.
//!
//! [`Action::for_viewer`]: crate::api::Action::for_viewer
//! [`Action::for_operator`]: crate::api::Action::for_operator

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::Daemon;
use super::actions::{Known, known};
use crate::api::{Action, ApiError, AuditEntry, Effects, GetAudit, Role, Wiped, Words};
use crate::audit::{AuditLog, Line};
use crate::caller::{Caller, Roles};

/// A request that is to be done.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub known: &'static Known,
    /// The request, as it is done for this caller.
    pub body: Body<'a>,
    line: Option<Line<'a>>,
}

/// The JSON of a request.
#[derive(Debug)]
pub(super) enum Body<'a> {
    /// As it came.
    Given(&'a [u8]),
    /// As it is done for this caller.
    Narrowed(Wiped),
}

impl Deref for Body<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Given(body) => body,
            Self::Narrowed(body) => body.as_ref(),
        }
    }
}

/// A request that is not to be done.
struct Refused<'a> {
    error: ApiError,
    known: Option<&'static Known>,
    line: Line<'a>,
}

impl Refused<'_> {
    /// Writes it down.
    fn write(self) -> ApiError {
        self.line.refuse(&self.error);
        self.error
    }
}

/// Whether an action may change something.
fn changes(known: &Known) -> bool {
    known.declared.effects != Effects::NONE
}

impl Admitted<'_> {
    /// The request.
    ///
    /// # Errors
    /// It is no such request.
    pub(super) fn request<A: Action>(&self) -> Result<A, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::invalid(format!("{}: {error}", A::NAME)))
    }

    /// Writes down how it ended.
    pub(super) fn end<T>(self, result: &Result<T, ApiError>) {
        if let Some(line) = self.line {
            line.end(result);
        }
    }
}

impl Daemon {
    /// The same, which gives users these roles.
    #[must_use]
    pub fn with_roles(self, roles: Roles) -> Self {
        Self { roles, ..self }
    }

    /// The same, which writes down who asked for which change.
    #[must_use]
    pub fn auditing(self, log: Option<AuditLog>) -> Self {
        Self { audit: log, ..self }
    }

    /// The newest lines of the audit log, the oldest of them first.
    ///
    /// # Errors
    /// There is no such log, or it cannot be read.
    pub fn newest_audit(&self, request: GetAudit) -> Result<Vec<AuditEntry>, ApiError> {
        let Some(log) = &self.audit else {
            return Err(ApiError::not_found(
                "this daemon keeps no audit log; 'cenote serve --audit FILE' makes it keep one",
            ));
        };
        let file = log.path().display();
        log.newest(request.count).map_err(|error| ApiError::failed(format!("cannot read {file}: {error}")))
    }

    /// Writes down that a person came by the dashboard, could not come, or went.
    pub(crate) fn note_visit(&self, caller: &Caller, what: &str, result: &Result<(), ApiError>) {
        let role = self.roles.of(caller).map(Role::name).filter(|_| result.is_ok());
        let line = Line::new(self.audit.as_ref(), caller, what).of_role(role);
        match result {
            Ok(()) => line.end(result),
            Err(error) => line.refuse(error),
        }
    }

    /// Admits a request, or refuses it and writes that down.
    ///
    /// # Errors
    /// The caller may not ask for it, or the request makes no sense.
    pub(super) async fn admit<'a>(
        &'a self,
        caller: &Caller,
        action: &str,
        body: &'a [u8],
    ) -> Result<Admitted<'a>, ApiError> {
        let refused = match self.judge(caller, action, body) {
            Ok(admitted) => return Ok(admitted),
            Err(refused) => *refused,
        };
        // Permissions are granted to users of the system, not to persons.
        let may_be_granted = caller.process().is_some() && self.roles.of(caller).is_some();
        let Some(known) = refused.known.filter(|_| may_be_granted) else {
            return Err(refused.write());
        };
        let delegated = async {
            let Some((body, needs)) = known.delegated(body)? else { return Ok(None) };
            Ok(self.has_all(caller, &needs).await?.then_some(body))
        };
        match delegated.await {
            Ok(Some(body)) => {
                let line = match changes(known) {
                    true => Some(refused.line),
                    false => {
                        refused.line.discard();
                        None
                    }
                };
                caller.connection.may_last();
                Ok(Admitted { known, body: Body::Narrowed(body), line })
            }
            Ok(None) => Err(refused.write()),
            Err(error) => Err(Refused { error, ..refused }.write()),
        }
    }

    /// A request that changes nothing, as it is done for this caller by its role alone.
    ///
    /// # Errors
    /// As those of [`Self::admit`].
    pub(crate) fn request_by_role<A: Action>(&self, caller: &Caller, body: &[u8]) -> Result<A, ApiError> {
        self.admit_by_role(caller, A::NAME, body)?.request()
    }

    /// As [`Self::admit`] does it, by the role of the caller alone.
    ///
    /// # Errors
    /// As those of [`Self::admit`].
    pub(super) fn admit_by_role<'a>(
        &'a self,
        caller: &Caller,
        action: &str,
        body: &'a [u8],
    ) -> Result<Admitted<'a>, ApiError> {
        self.judge(caller, action, body).map_err(|refused| refused.write())
    }

    fn judge<'a>(
        &'a self,
        caller: &Caller,
        action: &str,
        body: &'a [u8],
    ) -> Result<Admitted<'a>, Box<Refused<'a>>> {
        let role = self.roles.of(caller);
        let found = known(action);
        let line = |words: Option<Words>, has_secrets: bool| {
            let (object, more) = object(words, body);
            let line = Line::new(self.audit.as_ref(), caller, action).of_role(role.map(Role::name));
            line.about(object.as_deref(), more).hiding_errors(has_secrets)
        };
        let known = match found {
            Ok(known) => known,
            Err(error) => {
                let error = match role {
                    Some(Role::Admin) => error,
                    _ => denied(&attempted(None, body)),
                };
                return Err(Box::new(Refused { error, known: None, line: line(None, false) }));
            }
        };
        let line = || line(known.declared.words, known.declared.has_secrets);
        match permitted(role, known, body).and_then(|body| here(caller, known).map(|()| body)) {
            Ok(body) => {
                // What any user may ask for takes no long time.
                if known.declared.role > Role::Viewer {
                    caller.connection.may_last();
                }
                Ok(Admitted { known, body, line: changes(known).then(line) })
            }
            Err(error) => Err(Box::new(Refused { error, known: Some(known), line: line() })),
        }
    }
}

/// Refuses to a person what is for this machine only.
fn here(caller: &Caller, known: &Known) -> Result<(), ApiError> {
    match known.declared.is_local && caller.process().is_none() {
        true => Err(ApiError::refused(format!(
            "{}: this is answered to programs of the machine itself, and not by the dashboard",
            known.declared.name
        ))),
        false => Ok(()),
    }
}

/// The request as it is done for callers of a role.
fn permitted<'a>(role: Option<Role>, known: &'static Known, body: &'a [u8]) -> Result<Body<'a>, ApiError> {
    match role {
        Some(Role::Admin) => Ok(Body::Given(body)),
        Some(Role::Operator) if known.declared.role <= Role::Operator => {
            known.for_operator(body).map(Body::Narrowed)
        }
        Some(Role::Viewer) if known.declared.role == Role::Viewer => {
            known.for_viewer(body).map(Body::Narrowed)
        }
        _ => Err(denied(&attempted(known.declared.words, body))),
    }
}

/// What a request is about, or the first of several things, and how many more there are.
fn object(words: Option<Words>, body: &[u8]) -> (Option<String>, usize) {
    let Some(Words { field, .. }) = words else { return (None, 0) };
    let mut json = serde_json::Deserializer::from_slice(body);
    let Ok(Some(named)) = json.deserialize_map(Only(field)) else { return (None, 0) };
    let more = named.as_array().map_or(0, |all| all.len().saturating_sub(1));
    let first = named.get(0).unwrap_or(&named).as_str().map(str::to_owned);
    (first, more)
}

/// One field of a request. The others are passed over: one of them may be a key.
struct Only(&'static str);

impl<'de> Visitor<'de> for Only {
    type Value = Option<serde_json::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
            match name == self.0 {
                true => found = Some(fields.next_value()?),
                false => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// The operation of a refused request, in OpenZFS's words.
fn attempted(words: Option<Words>, body: &[u8]) -> String {
    let Some(Words { what, .. }) = words else {
        return "only root, and the user who runs the daemon, may ask for that".into();
    };
    match object(words, body).0 {
        Some(name) => format!("cannot {what} '{}'", name.escape_debug()),
        None => {
            let without = |what: &'static str, end: &str| what.strip_suffix(end).unwrap_or(what);
            format!("cannot {}", [" pool", " for", " to"].into_iter().fold(what, without))
        }
    }
}

fn denied(what: &str) -> ApiError {
    ApiError::refused(format!("{what}: permission denied"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GetStatus, ListDatasets};
    use crate::caller::Process;

    fn for_role(role: Option<Role>, action: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
        permitted(role, known(action).unwrap(), body).map(|body| body.to_vec())
    }

    fn for_anyone(action: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
        for_role(Some(Role::Viewer), action, body)
    }

    #[test]
    fn only_listings_are_for_anyone_and_only_what_users_may_see() {
        for action in ["pool-destroy", "key-load", "key-list", "pool-view", "shutdown", "userspace"] {
            let refused = for_anyone(action, b"{}").unwrap_err();
            assert!(refused.message.ends_with("permission denied"), "{action}: {refused}");
        }
        let history = for_anyone("pool-history", br#"{"pools": ["tank"]}"#).unwrap_err();
        assert_eq!(history.message, "cannot show history for pool 'tank': permission denied");
        for (action, body, what) in [
            ("pool-create", r#"{"name": "tank"}"#, "cannot create 'tank'"),
            ("snapshot-create", r#"{"names": ["tank@a", "tank@b"]}"#, "cannot create snapshot 'tank@a'"),
            ("pool-sync", r#"{"pools": []}"#, "cannot sync"),
            ("pool-history", r#"{"pools": []}"#, "cannot show history"),
            ("property-set", "no JSON", "cannot set property"),
            ("mount", r#"{"dataset": null}"#, "cannot mount"),
            ("dataset-rename", "{\"from\": \"a\\n\"}", "cannot rename 'a\\n'"),
        ] {
            let refused = for_anyone(action, body.as_bytes()).unwrap_err();
            assert_eq!(refused.message, format!("{what}: permission denied"));
        }
        let status = for_anyone("pool-status", br#"{"pools": [], "files": true, "dedup": false}"#).unwrap();
        assert!(!serde_json::from_slice::<GetStatus>(&status).unwrap().files);
        let listing = |property: &str| {
            let request = ListDatasets { properties: vec![property.into()], ..ListDatasets::default() };
            for_anyone("dataset-list", &serde_json::to_vec(&request).unwrap())
        };
        for property in ["userused@root", "groupobjquota@1", "projectquota@5", "userobjused@x"] {
            assert!(listing(property).is_err(), "{property}");
        }
        for property in ["used", "written@now", "org:user@used", "keystatus"] {
            assert!(listing(property).is_ok(), "{property}");
        }
    }

    #[test]
    fn an_operator_gets_less_than_an_admin_and_a_user_without_a_role_nothing() {
        let operator = Some(Role::Operator);
        assert!(for_role(operator, "snapshot-create", br#"{"names": ["tank@a"]}"#).is_ok());
        assert!(for_role(operator, "pool-history", br#"{"pools": []}"#).is_ok());
        assert!(for_role(operator, "mount", br#"{"dataset": "tank/a"}"#).is_ok());
        for body in [
            r#"{"dataset": "tank/a", "at": "/etc"}"#,
            r#"{"dataset": "tank/a", "options": ["suid"]}"#,
            r#"{"dataset": "tank/a", "overlay": true}"#,
            r#"{"dataset": "tank/a", "legacy": true}"#,
        ] {
            assert!(for_role(operator, "mount", body.as_bytes()).is_err(), "{body}");
            assert!(for_role(Some(Role::Admin), "mount", body.as_bytes()).is_ok(), "{body}");
        }
        assert!(for_role(operator, "unmount", br#"{"target": "tank/a", "unload_keys": true}"#).is_err());
        for action in ["dataset-destroy", "send", "hook-list", "hook-add", "pool-destroy", "property-set"] {
            assert!(for_role(operator, action, b"{}").is_err(), "{action}");
        }
        assert!(for_role(None, "pool-list", b"{}").is_err());
    }

    #[test]
    fn requests_leave_lines_and_secrets_do_not() {
        let place = tempfile::tempdir().unwrap();
        let log = AuditLog::new(place.path().join("audit.log"));
        let daemon = Daemon::with_cache(64 << 20).auditing(Some(log));
        let process = Process { uid: 70_000, gid: 70_000, groups: Vec::new(), pid: Some(7) };
        let viewer = Caller::process_of(process);
        let (key, hook) =
            (br#"{"dataset": "tank/x", "key": [104, 117]}"#, br#"{"hook": {"name": "hunter2"}}"#);
        let own = Caller::own();
        let refused =
            daemon.admit_by_role(&viewer, "snapshot-create", br#"{"names": ["tank@a\n", "tank@b"]}"#);
        assert!(refused.is_err());
        assert!(daemon.admit_by_role(&viewer, "hunter3", b"{}").is_err());
        daemon.admit_by_role(&viewer, "pool-list", b"{}").unwrap().end(&Ok(()));
        for (action, body) in [("key-load", &key[..]), ("hook-add", hook)] {
            let failed: Result<(), _> = Err(ApiError::invalid("hunter2 is no key"));
            daemon.admit_by_role(&own, action, body).unwrap().end(&failed);
        }
        let lines = daemon.newest_audit(GetAudit { count: 10 }).unwrap();
        let [snapshot, unknown, key, hook] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(snapshot.object.as_deref(), Some("tank@a\n"));
        assert_eq!((snapshot.and_more, snapshot.uid, snapshot.pid), (1, 70_000, Some(7)));
        assert_eq!(snapshot.role.as_deref(), Some("viewer"));
        assert!(snapshot.result.ends_with("permission denied"), "{snapshot:?}");
        assert_eq!(unknown.action, "hunter3");
        assert_eq!((key.object.as_deref(), key.result.as_str()), (Some("tank/x"), "error (invalid)"));
        assert_eq!(hook.object, None);
        let text = std::fs::read_to_string(place.path().join("audit.log")).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("104"), "{text}");
    }
}
