//! The table of all actions: what is declared of each, and what answers it.
//!
//! A new action is its types with their declaration ([`crate::api`]), a method of the daemon, and its line in
//! [`ACTIONS`].

use std::any::type_name;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::Daemon;
use crate::api::openapi::{self, Schemas, schemas_of};
use crate::api::{self, Action, ApiError, Declaration, Delegated, Need, Wiped};

/// What answers an action whose form is [`api::Form::Once`]: it takes the JSON of the request and gives that
/// of the reply.
type Answer = for<'a> fn(&'a Arc<Daemon>, &'a [u8]) -> LocalBoxFuture<'a, Result<Vec<u8>, ApiError>>;

/// A request as it is done for a caller with permissions, and what the caller needs for that.
type Narrowed = (Wiped, Vec<Need>);

/// An action of the daemon.
#[derive(Debug)]
pub struct Known {
    /// What is known of it.
    pub declared: Declaration,
    /// The types of its request and its reply, with their paths.
    pub types: fn() -> [&'static str; 2],
    /// The schemas of the same.
    pub schemas: Schemas,
    /// The request as it is answered to any user.
    for_viewer: fn(&[u8]) -> Result<Wiped, ApiError>,
    /// The request as it is answered to an operator.
    for_operator: fn(&[u8]) -> Result<Wiped, ApiError>,
    /// The request as it is done for a caller with permissions, and which these are; `None` where permissions
    /// are no matter.
    delegated: fn(&[u8]) -> Result<Option<Narrowed>, ApiError>,
    /// The names of these permissions, for the book.
    pub permissions: Option<&'static str>,
    /// None where the form is another one than once: these have functions of their own.
    answer: Option<Answer>,
}

impl Known {
    const fn of<A: Action>(answer: Option<Answer>) -> Self {
        let types = || [type_name::<A>(), type_name::<A::Reply>()];
        Self {
            declared: A::DECLARED,
            types,
            schemas: schemas_of::<A>,
            for_viewer: for_viewer::<A>,
            for_operator: for_operator::<A>,
            delegated: delegated::<A>,
            permissions: match A::DELEGATED {
                Delegated::Never => None,
                Delegated::Needs(names, _) => Some(names),
            },
            answer,
        }
    }

    /// The request as it is answered to any user: without what only some may see.
    ///
    /// # Errors
    /// It asks for nothing else, or makes no sense.
    pub fn for_viewer(&self, body: &[u8]) -> Result<Wiped, ApiError> {
        (self.for_viewer)(body)
    }

    /// The request as it is answered to an operator: without what only admins may do.
    ///
    /// # Errors
    /// As those of [`Self::for_viewer`].
    pub fn for_operator(&self, body: &[u8]) -> Result<Wiped, ApiError> {
        (self.for_operator)(body)
    }

    /// The request as it is done for a caller with permissions, and which these are; `None` where permissions
    /// are no matter.
    ///
    /// # Errors
    /// It makes no sense.
    pub(super) fn delegated(&self, body: &[u8]) -> Result<Option<Narrowed>, ApiError> {
        (self.delegated)(body)
    }

    /// Answers a request.
    pub(super) async fn answer(&self, daemon: &Arc<Daemon>, body: &[u8]) -> Result<Vec<u8>, ApiError> {
        match self.answer {
            Some(answer) => answer(daemon, body).await,
            None => Err(ApiError::invalid(format!("{}: its answer has another form", self.declared.name))),
        }
    }
}

/// What is declared of each action.
pub fn actions() -> impl Iterator<Item = &'static Declaration> {
    ACTIONS.iter().map(|known| &known.declared)
}

/// The OpenAPI document of all actions.
pub fn openapi() -> serde_json::Value {
    openapi::document(ACTIONS.iter().map(|known| (&known.declared, known.schemas)))
}

/// The action of this name.
///
/// # Errors
/// There is none.
pub fn known(name: &str) -> Result<&'static Known, ApiError> {
    let found = ACTIONS.iter().find(|known| known.declared.name == name);
    found.ok_or_else(|| ApiError::not_found(format!("there is no action '{name}'")))
}

fn for_viewer<A: Action>(body: &[u8]) -> Result<Wiped, ApiError> {
    encoded(&parsed::<A>(body)?.for_viewer()?)
}

fn for_operator<A: Action>(body: &[u8]) -> Result<Wiped, ApiError> {
    encoded(&parsed::<A>(body)?.for_operator()?)
}

fn delegated<A: Action>(body: &[u8]) -> Result<Option<Narrowed>, ApiError> {
    let Delegated::Needs(_, needs) = A::DELEGATED else { return Ok(None) };
    let (request, needs) = needs(parsed(body)?)?;
    Ok(Some((encoded(&request)?, needs)))
}

fn encoded<A: Action>(request: &A) -> Result<Wiped, ApiError> {
    Wiped::json(request).map_err(|error| ApiError::failed(error.to_string()))
}

fn parsed<A: Action>(body: &[u8]) -> Result<A, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid(format!("{}: {error}", A::NAME)))
}

/// Has a request answered: from JSON to JSON.
pub(super) async fn answer<A: Action>(
    body: &[u8],
    act: impl AsyncFnOnce(A) -> Result<A::Reply, ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let reply = act(parsed(body)?).await?;
    serde_json::to_vec(&reply).map_err(|error| ApiError::failed(error.to_string()))
}

/// An action whose method waits.
macro_rules! later {
    ($action:ident: $method:ident) => {
        Known::of::<api::$action>(Some(|daemon, body| {
            Box::pin(answer(body, async |request: api::$action| daemon.$method(request).await))
        }))
    };
}

/// An action whose method answers at once.
macro_rules! now {
    ($action:ident: $method:ident) => {
        Known::of::<api::$action>(Some(|daemon, body| {
            Box::pin(answer(body, async |request: api::$action| daemon.$method(request)))
        }))
    };
}

/// The same, whose method only looks at the request.
macro_rules! now_of {
    ($action:ident: $method:ident) => {
        Known::of::<api::$action>(Some(|daemon, body| {
            Box::pin(answer(body, async |request: api::$action| daemon.$method(&request)))
        }))
    };
}

/// All actions.
pub static ACTIONS: [Known; 121] = [
    now!(Hello: hello),
    later!(Shutdown: shutdown),
    now!(GetAudit: newest_audit),
    later!(GetDashboardLink: dashboard_link),
    now!(ListDashboardUsers: dashboard_users),
    now!(SetDashboardUser: set_dashboard_user),
    later!(SetDashboardPassword: set_dashboard_password),
    now!(RemoveDashboardUser: remove_dashboard_user),
    now!(CreateDashboardToken: create_dashboard_token),
    now!(RemoveDashboardToken: remove_dashboard_token),
    later!(DiscoverPools: discover),
    later!(ImportPool: import),
    later!(ExportPool: export),
    later!(TakeOverPool: take_over),
    now!(ListStandby: list_standby),
    later!(CreatePool: create_pool),
    later!(AddVdevs: add_vdevs),
    later!(DestroyPool: destroy_pool),
    later!(FreezePool: freeze_pool),
    later!(SyncPools: sync_pools),
    later!(SetPoolProperty: set_pool_property),
    later!(CheckpointPool: checkpoint_pool),
    later!(ReguidPool: reguid_pool),
    later!(UpgradePools: upgrade_pools),
    later!(ClearLabel: clear_label),
    later!(ClearErrors: clear_errors),
    later!(OfflineDevices: offline_devices),
    later!(OnlineDevices: online_devices),
    later!(AttachDevice: attach_device),
    later!(DetachDevice: detach_device),
    later!(RemoveDevices: remove_devices),
    later!(ListDisks: list_disks),
    later!(ScanPool: scan_pool),
    later!(PrunePool: prune_pool),
    later!(PrefetchPool: prefetch_pool),
    later!(SweepDevices: sweep_devices),
    later!(ReopenPools: reopen_pools),
    now!(GetEvents: list_events),
    now!(ClearEvents: clear_events),
    later!(GetScrubSchedules: scrub_schedules),
    later!(SetScrubSchedule: set_scrub_schedule),
    later!(GetSnapshotSchedules: snapshot_schedules),
    later!(RunSnapshotSchedules: run_snapshot_schedules),
    later!(ListShares: list_shares),
    later!(InjectFault: inject_fault),
    now!(ListInjections: list_injections),
    now!(ClearInjections: clear_injections),
    later!(GetWhatIf: what_if),
    now_of!(ListTunables: list_tunables),
    now!(SetTunables: set_tunables),
    now!(ListHooks: list_hooks),
    now!(AddHook: add_hook),
    now!(RemoveHook: remove_hook),
    now!(TestHook: test_hook),
    now!(TakeTrace: take_trace),
    later!(GetCounters: counters),
    later!(GetIoStats: io_stats),
    later!(ListPools: list_pools),
    later!(ListVdevs: list_vdevs),
    later!(GetStatus: status),
    later!(PoolHistory: history),
    later!(ListDatasets: list_datasets),
    later!(CreateDataset: create_dataset),
    later!(CloneSnapshot: clone_snapshot),
    later!(DestroyDataset: destroy_dataset),
    later!(RenameDataset: rename_dataset),
    later!(Promote: promote),
    later!(AbortReceive: abort_receive),
    later!(TakeSnapshots: take_snapshots),
    later!(Rollback: rollback),
    later!(HoldSnapshots: hold_snapshots),
    later!(CreateBookmark: create_bookmark),
    later!(SetProperties: set_properties),
    later!(InheritProperty: inherit_property),
    later!(ListSpace: list_space),
    later!(ListBlocks: list_blocks),
    later!(ShareBlocks: share_blocks),
    later!(GetActivity: activity),
    later!(ListFiles: list_files),
    later!(RestoreFile: restore_file),
    later!(ListHolds: list_holds),
    later!(AllowPermissions: allow),
    later!(UnallowPermissions: unallow),
    later!(ListPermissions: granted),
    later!(LoadKey: load_key),
    later!(UnloadKey: unload_key),
    later!(ChangeKey: change_key),
    later!(ListKeys: list_keys),
    later!(Mount: mount),
    later!(Unmount: unmount),
    now!(ListMounts: list_mounts),
    later!(ShareFilesystems: share_filesystems),
    later!(UnshareFilesystems: unshare_filesystems),
    now!(ListNfs: list_nfs),
    later!(AttachVolume: attach_volume),
    later!(DetachVolume: detach_volume),
    now!(ListAttached: list_attached),
    later!(ReshapeVolume: reshape_volume),
    now_of!(ListReshapes: list_reshapes),
    now!(ListVolumes: list_volumes),
    now!(ListLabRecipes: lab_recipes),
    now!(ListLabPresets: lab_presets),
    now_of!(DraftLab: lab_draft),
    now_of!(PlanLab: lab_plan),
    later!(StartLab: lab_start),
    now!(ListLab: lab_list),
    now_of!(StopLab: lab_stop),
    later!(ResumeLab: lab_resume),
    later!(RemoveLab: lab_remove),
    now_of!(ReportLab: lab_report),
    now_of!(CompareLab: lab_compare),
    later!(ApplyLab: lab_apply),
    later!(RevertLab: lab_revert),
    now_of!(AdviseLab: lab_advise),
    now_of!(ListLabLayouts: lab_layouts),
    // These are answered in forms of their own, by the socket.
    Known::of::<api::RunLoad>(None),
    Known::of::<api::HoldView>(None),
    Known::of::<api::FollowChanges>(None),
    Known::of::<api::CompareFiles>(None),
    Known::of::<api::SendSnapshot>(None),
    Known::of::<api::ReceiveStream>(None),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Effects, Form, Part, Role};

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/api.md");
    /// What stands before and after the tables.
    const BEFORE: &str = "<!-- made from the declarations of actions -->\n\n";
    const AFTER: &str = "### The public socket";

    /// The tables of actions for the book, in Markdown.
    fn tables() -> String {
        let mut text = String::new();
        for part in Part::ALL {
            text += &format!("**{}**\n\n", part.heading());
            text += "| action | request → reply | for | what it does |\n|---|---|---|---|\n";
            for known in ACTIONS.iter().filter(|known| known.declared.part == part) {
                let Declaration { name, role, summary, .. } = known.declared;
                let permissions = known.permissions.map(|names| format!("; or {names}"));
                let who = format!("{}{}", role.name(), permissions.unwrap_or_default());
                text += &format!("| `{name}` | {} | {who} | {summary} |\n", signature(known));
            }
            text += "\n";
        }
        text
    }

    /// The request and the answer of an action, in Markdown.
    fn signature(known: &Known) -> String {
        let [request, reply] = (known.types)().map(without_paths);
        match known.declared.form {
            Form::Once | Form::OnceByServer => format!("`{request}` → `{reply}`"),
            Form::HeldOpen => format!("`{request}` → `{reply}`, and the connection stays open"),
            Form::Parts => format!("`{request}` → a `{reply}` a line"),
            Form::ServerSentEvents => format!("`{request}` → `{reply}`s, as server-sent events"),
            Form::FramesOut => format!("`{request}` → a stream in frames, and `{reply}`s"),
            Form::StreamIn => format!("`{request}` as a line, a stream behind it → a `{reply}` a line"),
        }
    }

    /// The name of a type without the paths of its parts.
    fn without_paths(name: &str) -> String {
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let mut text = String::new();
        let mut rest = name;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| !is_of_path(c)).unwrap_or(rest.len());
            let (path, after) = rest.split_at(end.max(first.len_utf8()));
            text += path.rsplit("::").next().unwrap_or(path);
            rest = after;
        }
        text
    }

    /// `CENOTE_WRITE_DOCS=1` writes it anew.
    #[test]
    fn the_openapi_document_is_that_of_the_actions() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/openapi.json");
        let text = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
        if std::env::var_os("CENOTE_WRITE_DOCS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(file).unwrap_or_default() == text,
            "docs/src/openapi.json is old: CENOTE_WRITE_DOCS=1 cargo test -p cenote-server actions"
        );
    }

    /// `CENOTE_WRITE_DOCS=1` writes the tables anew.
    #[test]
    fn the_page_has_all_actions() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (head, rest) = page.split_once(BEFORE).unwrap();
        let (_, tail) = rest.split_once(AFTER).unwrap();
        let right = format!("{head}{BEFORE}{}{AFTER}{tail}", tables());
        if std::env::var_os("CENOTE_WRITE_DOCS").is_some() {
            std::fs::write(PAGE, &right).unwrap();
        }
        assert_eq!(std::fs::read_to_string(PAGE).unwrap(), right, "see CENOTE_WRITE_DOCS");
    }

    #[test]
    fn a_name_is_of_one_action_and_what_any_user_may_ask_for_changes_nothing() {
        for (at, known) in ACTIONS.iter().enumerate() {
            let declared = known.declared;
            assert!(!ACTIONS[..at].iter().any(|other| other.declared.name == declared.name));
            // The own password is the only thing that any user may change.
            if declared.role == Role::Viewer && declared.name != api::SetDashboardPassword::NAME {
                assert_eq!(declared.effects, Effects::NONE, "{}", declared.name);
                assert!(declared.words.is_none(), "{}", declared.name);
            }
            if let Some(path) = declared.got_at {
                assert_eq!(declared.effects, Effects::NONE, "{path}: a browser may ask again and again");
                assert!(!ACTIONS[..at].iter().any(|other| other.declared.got_at == Some(path)));
            }
            assert_eq!(known.answer.is_some(), declared.form == Form::Once, "{}", declared.name);
        }
    }

    #[test]
    fn types_are_named_without_their_paths() {
        assert_eq!(without_paths(type_name::<api::Listed<Vec<api::PoolEntry>>>()), "Listed<Vec<PoolEntry>>");
        assert_eq!(without_paths(type_name::<()>()), "()");
        assert_eq!(without_paths(type_name::<Option<(u64, String)>>()), "Option<(u64, String)>");
    }
}
