//! What users may do who are not root: by their role, and by what `zfs allow` granted.

use std::fs::File;
use std::ops::Deref;

use device::block_on;
use server::api::{
    Action, AllowPermissions, ApiError, CloneSnapshot, CompareFiles, CreateBookmark, CreateDataset,
    CreatePool, DestroyDataset, ErrorKind, GetAudit, Grantees, HoldSnapshots, InheritProperty, ListDatasets,
    ListPermissions, ListSpace, LoadKey, Mount, NewDevices, NewLayout, NewVdev, PoolHistory, Promote,
    ReceiveStream, RenameDataset, Role, Rollback, SendSnapshot, SetPoolProperty, SetProperties,
    TakeSnapshots, UnallowPermissions,
};
use server::audit::AuditLog;
use server::caller::{Caller, Person, Process, Roles};
use server::daemon::{Daemon, dispatch_comparison, dispatch_for, dispatch_receive, dispatch_send};
use tempfile::TempDir;

use crate::harness::Running;

const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;
const STAFF: u32 = 71_000;
const OPERATORS: u32 = 71_001;

fn user(uid: u32, groups: &[u32]) -> Caller {
    in_group(uid, uid, groups)
}

fn in_group(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller::process_of(Process { uid, gid, groups: groups.to_vec(), pid: None })
}

fn alice() -> Caller {
    user(ALICE, &[])
}

/// A daemon, with the folder of its audit log.
struct Site {
    running: Running,
    _log: TempDir,
}

impl Deref for Site {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

/// A daemon with a pool `tank` that mounts nothing, with `tank/a/b` and `tank/c`.
fn start() -> Site {
    let folder = tempfile::tempdir().unwrap();
    let roles = Roles::of_groups(&[OPERATORS.to_string()], &[]).unwrap();
    let log = AuditLog::new(folder.path().join("audit.log"));
    let running = Running::start_as(Daemon::default().with_roles(roles).auditing(Some(log)));
    let disk = running.place.path().join("tank.disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
    let create = CreatePool {
        name: "tank".into(),
        devices: NewDevices { vdevs: vec![vdev], ..NewDevices::default() },
        altroot: Some(running.altroot()),
        root_properties: vec![("mountpoint".into(), "none".into())],
        ..CreatePool::default()
    };
    block_on(running.daemon.create_pool(create)).unwrap();
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        ask(&running, &Caller::own(), &new(name)).unwrap();
    }
    Site { running, _log: folder }
}

fn new(name: &str) -> CreateDataset {
    CreateDataset { name: name.into(), ..CreateDataset::default() }
}

fn ask<A: Action>(running: &Running, caller: &Caller, request: &A) -> Result<A::Reply, ApiError> {
    let body = serde_json::to_vec(request).unwrap();
    let reply = dispatch_for(&running.daemon, caller, A::NAME, &body)?;
    Ok(serde_json::from_slice(&reply).unwrap())
}

/// Grants a user permissions, here and below.
fn allow(running: &Running, uid: u32, permissions: &str, dataset: &str) {
    let to = Grantees::Users(vec![uid.to_string()]);
    let request = AllowPermissions { to, ..grant(permissions, dataset) };
    ask(running, &Caller::own(), &request).unwrap();
}

fn grant(permissions: &str, dataset: &str) -> AllowPermissions {
    AllowPermissions {
        dataset: dataset.into(),
        permissions: permissions.split(',').map(str::to_owned).collect(),
        ..AllowPermissions::default()
    }
}

fn unallow(running: &Running, uid: u32, dataset: &str) {
    let from = Grantees::Users(vec![uid.to_string()]);
    let request = UnallowPermissions { dataset: dataset.into(), from, ..UnallowPermissions::default() };
    ask(running, &Caller::own(), &request).unwrap();
}

#[track_caller]
fn is_denied<T: std::fmt::Debug>(done: Result<T, ApiError>) {
    let error = done.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.ends_with("permission denied"), "{error}");
}

/// Asks with each of the permissions missing, and expects that to be denied, then with all.
fn needs_all<A: Action<Reply: std::fmt::Debug>>(
    running: &Running,
    permissions: &[&str],
    dataset: &str,
    request: &A,
) -> A::Reply {
    is_denied(ask(running, &alice(), request));
    for missing in permissions {
        let others: Vec<&str> = permissions.iter().copied().filter(|name| name != missing).collect();
        if !others.is_empty() {
            allow(running, ALICE, &others.join(","), dataset);
        }
        is_denied(ask(running, &alice(), request));
        unallow(running, ALICE, dataset);
    }
    allow(running, ALICE, &permissions.join(","), dataset);
    // What is allowed to one user is not allowed to another.
    is_denied(ask(running, &user(BOB, &[STAFF]), request));
    let reply = ask(running, &alice(), request).unwrap();
    unallow(running, ALICE, dataset);
    is_denied(ask(running, &alice(), request));
    reply
}

fn names(running: &Running) -> Vec<String> {
    let listed = block_on(running.daemon.list_datasets(ListDatasets::default())).unwrap();
    listed.entries.into_iter().map(|entry| entry.name).collect()
}

fn has(running: &Running, name: &str) -> bool {
    names(running).iter().any(|found| found == name)
}

fn snapshots(names: &[&str]) -> TakeSnapshots {
    TakeSnapshots { names: names.iter().map(|name| (*name).to_owned()).collect(), ..TakeSnapshots::default() }
}

#[test]
fn snapshots_are_taken_held_sent_and_destroyed_by_who_may() {
    let running = start();
    needs_all(&running, &["snapshot"], "tank/a", &snapshots(&["tank/a@s"]));
    assert!(has(&running, "tank/a@s"));
    let recursive = TakeSnapshots { recursive: true, ..snapshots(&["tank/a@r"]) };
    needs_all(&running, &["snapshot"], "tank/a", &recursive);
    assert!(has(&running, "tank/a/b@r"));
    let hold =
        HoldSnapshots { tag: "t".into(), snapshots: vec!["tank/a@s".into()], ..HoldSnapshots::default() };
    needs_all(&running, &["hold"], "tank/a", &hold);
    needs_all(&running, &["release"], "tank/a", &HoldSnapshots { release: true, ..hold });
    let mark = CreateBookmark {
        source: "tank/a@s".into(),
        bookmark: "tank/a#m".into(),
        ..CreateBookmark::default()
    };
    needs_all(&running, &["bookmark"], "tank/a", &mark);
    let gone = |name: &str| DestroyDataset { name: name.into(), ..DestroyDataset::default() };
    needs_all(&running, &["destroy"], "tank/a", &gone("tank/a#m"));
    let rename = RenameDataset { from: "tank/a@s".into(), to: "tank/a@t".into(), ..RenameDataset::default() };
    needs_all(&running, &["rename", "mount", "create"], "tank/a", &rename);
    needs_all(&running, &["destroy", "mount"], "tank/a", &gone("tank/a@t"));
    assert!(!has(&running, "tank/a@t"));
}

#[test]
fn what_is_granted_for_one_dataset_does_not_hold_for_those_below_or_for_snapshots() {
    let running = start();
    let local = AllowPermissions {
        to: Grantees::Users(vec![ALICE.to_string()]),
        local: true,
        ..grant("snapshot,destroy,mount,send", "tank/a")
    };
    ask(&running, &Caller::own(), &local).unwrap();
    ask(&running, &alice(), &snapshots(&["tank/a@s"])).unwrap();
    is_denied(ask(&running, &alice(), &snapshots(&["tank/a/b@s"])));
    is_denied(ask(&running, &alice(), &TakeSnapshots { recursive: true, ..snapshots(&["tank/a@r"]) }));
    // A snapshot counts as being below.
    let gone = DestroyDataset { name: "tank/a@s".into(), ..DestroyDataset::default() };
    is_denied(ask(&running, &alice(), &gone));
    let send = SendSnapshot { snapshot: "tank/a@s".into(), ..SendSnapshot::default() };
    assert!(dispatch_send(&running.daemon, &alice(), &serde_json::to_vec(&send).unwrap()).is_err());
    let below = AllowPermissions { local: false, descendent: true, ..local };
    ask(&running, &Caller::own(), &below).unwrap();
    dispatch_send(&running.daemon, &alice(), &serde_json::to_vec(&send).unwrap()).unwrap();
    ask(&running, &alice(), &gone).unwrap();
    // All of a tree that goes must be allowed.
    let everything = DestroyDataset { name: "tank/a".into(), recursive: true, ..DestroyDataset::default() };
    ask(&running, &Caller::own(), &snapshots(&["tank/a/b@x"])).unwrap();
    let clone = CloneSnapshot {
        snapshot: "tank/a/b@x".into(),
        target: "tank/c/clone".into(),
        ..CloneSnapshot::default()
    };
    ask(&running, &Caller::own(), &clone).unwrap();
    is_denied(ask(&running, &alice(), &DestroyDataset { clones: true, ..everything.clone() }));
    assert!(has(&running, "tank/a/b@x") && has(&running, "tank/c/clone"));
    allow(&running, ALICE, "destroy,mount", "tank/c");
    ask(&running, &alice(), &DestroyDataset { clones: true, ..everything }).unwrap();
    assert!(!has(&running, "tank/a") && !has(&running, "tank/c/clone"));
}

#[test]
fn datasets_are_made_with_what_is_needed_for_their_properties() {
    let running = start();
    needs_all(&running, &["create", "mount"], "tank/a", &new("tank/a/n"));
    let compressed = CreateDataset { properties: vec![("compress".into(), "on".into())], ..new("tank/a/p") };
    needs_all(&running, &["create", "mount", "compression"], "tank/a", &compressed);
    let volume = CreateDataset {
        volume_bytes: Some(1 << 20),
        properties: vec![("volblocksize".into(), "8K".into())],
        ..new("tank/a/v")
    };
    needs_all(&running, &["create", "mount", "refreservation"], "tank/a", &volume);
    let sparse = CreateDataset { name: "tank/a/w".into(), sparse: true, ..volume };
    needs_all(&running, &["create", "mount"], "tank/a", &sparse);
    // Those in between are made too.
    let deep = CreateDataset { parents: true, ..new("tank/a/x/y/z") };
    let local = AllowPermissions {
        to: Grantees::Users(vec![ALICE.to_string()]),
        local: true,
        ..grant("create,mount", "tank/a")
    };
    ask(&running, &Caller::own(), &local).unwrap();
    is_denied(ask(&running, &alice(), &deep));
    needs_all(&running, &["create", "mount"], "tank/a", &CreateDataset { name: "tank/a/q/r".into(), ..deep });
    ask(&running, &Caller::own(), &snapshots(&["tank/c@s"])).unwrap();
    let clone =
        CloneSnapshot { snapshot: "tank/c@s".into(), target: "tank/c/k".into(), ..CloneSnapshot::default() };
    needs_all(&running, &["clone", "create", "mount"], "tank/c", &clone);
    let promote = Promote { dataset: "tank/c/k".into(), ..Promote::default() };
    needs_all(&running, &["promote", "mount"], "tank/c", &promote);
    // On the origin too, which has it from another dataset.
    allow(&running, ALICE, "promote,mount", "tank/c/k");
    let back = Promote { dataset: "tank/c".into(), ..Promote::default() };
    is_denied(ask(&running, &alice(), &back));
}

#[test]
fn who_makes_a_dataset_has_there_what_creators_get() {
    let running = start();
    let creators = AllowPermissions { to: Grantees::Creator, ..grant("snapshot,quota", "tank/a") };
    let everyone = AllowPermissions { local: true, ..grant("create,mount", "tank/a") };
    ask(&running, &Caller::own(), &creators).unwrap();
    ask(&running, &Caller::own(), &everyone).unwrap();
    // They may set what they will be allowed to set.
    let with_quota = CreateDataset { properties: vec![("quota".into(), "1M".into())], ..new("tank/a/n") };
    ask(&running, &alice(), &with_quota).unwrap();
    is_denied(ask(
        &running,
        &alice(),
        &CreateDataset { properties: vec![("compression".into(), "on".into())], ..new("tank/a/o") },
    ));
    ask(&running, &alice(), &snapshots(&["tank/a/n@s"])).unwrap();
    is_denied(ask(&running, &user(BOB, &[]), &snapshots(&["tank/a/n@t"])));
    is_denied(ask(&running, &alice(), &snapshots(&["tank/a@s"])));
    is_denied(ask(&running, &alice(), &new("tank/a/n/m")));
    let granted = ask(&running, &alice(), &ListPermissions { dataset: "tank/a/n".into() }).unwrap();
    let datasets: Vec<&str> = granted.iter().map(|by| by.dataset.as_str()).collect();
    assert_eq!(datasets, ["tank/a/n", "tank/a"]);
    let [own] = &granted[0].grants[..] else { panic!("{granted:?}") };
    assert_eq!(
        (own.local, own.descendent, own.permissions.join(",")),
        (true, false, "quota,snapshot".into())
    );
    // The history says who it was.
    let history = PoolHistory { pools: vec!["tank".into()], internal: true, long: true };
    let history = ask(&running, &Caller::own(), &history).unwrap();
    let text: String = history.entries[0].records.iter().map(|record| record.text.clone()).collect();
    assert!(text.contains("permission update") && text.contains("c-$ snapshot"), "{text}");
}

#[test]
fn properties_are_set_by_who_may_set_them() {
    let running = start();
    let set = |name: &str, value: &str| SetProperties {
        datasets: vec!["tank/a".into()],
        properties: vec![(name.into(), value.into())],
        ..SetProperties::default()
    };
    for (name, value, permission) in [
        ("compression", "off", "compression"),
        ("org:note", "x", "userprop"),
        ("quota", "100M", "quota"),
        ("userquota@70001", "1M", "userquota"),
        ("mountpoint", "/elsewhere", "mountpoint"),
    ] {
        let done = needs_all(&running, &[permission], "tank/a", &set(name, value));
        assert!(done.failed.is_empty(), "{name}: {:?}", done.failed);
    }
    let inherit = InheritProperty {
        property: "compression".into(),
        datasets: vec!["tank/a".into()],
        recursive: true,
        ..InheritProperty::default()
    };
    needs_all(&running, &["compression"], "tank/a", &inherit);
    // All of several are needed, and zones are root's.
    allow(&running, ALICE, "compression,zoned,readonly", "tank/a");
    let both = SetProperties {
        properties: vec![("compression".into(), "on".into()), ("atime".into(), "off".into())],
        ..set("", "")
    };
    is_denied(ask(&running, &alice(), &both));
    is_denied(ask(&running, &alice(), &set("zoned", "on")));
    let two = SetProperties { datasets: vec!["tank/a".into(), "tank/c".into()], ..set("compression", "on") };
    is_denied(ask(&running, &alice(), &two));
    ask(&running, &alice(), &set("readonly", "on")).unwrap();
}

#[test]
fn names_and_contents_change_by_who_may() {
    let running = start();
    let rename = RenameDataset { from: "tank/a".into(), to: "tank/c/a".into(), ..RenameDataset::default() };
    allow(&running, ALICE, "rename,mount", "tank/a");
    is_denied(ask(&running, &alice(), &rename));
    allow(&running, ALICE, "create,mount", "tank/c");
    ask(&running, &alice(), &rename).unwrap();
    // What was granted goes with the dataset, and what is granted above counts.
    let granted = ask(&running, &alice(), &ListPermissions { dataset: "tank/c/a".into() }).unwrap();
    assert_eq!(granted.len(), 2, "{granted:?}");
    for name in ["tank/c@one", "tank/c@two"] {
        ask(&running, &Caller::own(), &snapshots(&[name])).unwrap();
    }
    unallow(&running, ALICE, "tank/c");
    let newest = Rollback { snapshot: "tank/c@two".into(), ..Rollback::default() };
    needs_all(&running, &["rollback"], "tank/c", &newest);
    let earlier = Rollback { snapshot: "tank/c@one".into(), destroy_later: true, ..Rollback::default() };
    needs_all(&running, &["rollback", "destroy", "mount"], "tank/c", &earlier);
    assert!(!has(&running, "tank/c@two"));
    let diff = CompareFiles { from: "tank/c@one".into(), to: None };
    let body = serde_json::to_vec(&diff).unwrap();
    assert!(dispatch_comparison(&running.daemon, &alice(), &body).is_err());
    allow(&running, ALICE, "diff", "tank/c");
    dispatch_comparison(&running.daemon, &alice(), &body).unwrap();
    let space = ListSpace { dataset: "tank/c".into(), ..ListSpace::default() };
    needs_all(&running, &["userused", "userquota", "userobjused", "userobjquota"], "tank/c", &space);
}

#[test]
fn permissions_are_handed_on_only_by_who_has_them() {
    let running = start();
    let to_bob = |permissions: &str| AllowPermissions {
        to: Grantees::Users(vec![BOB.to_string()]),
        ..grant(permissions, "tank/a")
    };
    allow(&running, ALICE, "snapshot", "tank/a");
    is_denied(ask(&running, &alice(), &to_bob("snapshot")));
    allow(&running, ALICE, "allow,@set", "tank/a");
    ask(&running, &alice(), &to_bob("snapshot")).unwrap();
    ask(&running, &user(BOB, &[]), &snapshots(&["tank/a@bob"])).unwrap();
    for more in ["allow", "destroy", "snapshot,destroy", "@set"] {
        is_denied(ask(&running, &alice(), &to_bob(more)));
    }
    let take = |from: Grantees| UnallowPermissions {
        dataset: "tank/a".into(),
        from,
        ..UnallowPermissions::default()
    };
    for from in [Grantees::Users(vec![BOB.to_string()]), Grantees::Everyone, Grantees::Creator] {
        is_denied(ask(&running, &alice(), &take(from)));
    }
    let both = Grantees::Users(vec![ALICE.to_string(), BOB.to_string()]);
    is_denied(ask(&running, &alice(), &take(both)));
    ask(&running, &alice(), &take(Grantees::Users(vec![ALICE.to_string()]))).unwrap();
    is_denied(ask(&running, &alice(), &snapshots(&["tank/a@alice"])));
}

#[test]
fn what_is_granted_does_not_count_for_a_person_of_the_dashboard() {
    let running = start();
    let everyone = AllowPermissions { to: Grantees::Everyone, ..grant("snapshot", "tank/a") };
    ask(&running, &Caller::own(), &everyone).unwrap();
    ask(&running, &alice(), &snapshots(&["tank/a@a"])).unwrap();
    let person = |role| {
        let address = "192.0.2.7".parse().unwrap();
        let name = "ann".to_owned();
        Caller::person_of(Person { name, role, token: None, session: None, uid: None, address })
    };
    is_denied(ask(&running, &person(Role::Viewer), &snapshots(&["tank/a@b"])));
    let named = TakeSnapshots { command: Some("zfs snapshot tank/a@c".into()), ..snapshots(&["tank/a@c"]) };
    ask(&running, &person(Role::Operator), &named).unwrap();
    let history = PoolHistory { pools: vec!["tank".into()], internal: false, long: true };
    let history = ask(&running, &Caller::own(), &history).unwrap();
    let text = format!("{history:?}");
    assert!(text.contains("(dashboard: ann, 192.0.2.7)"), "{text}");
}

#[test]
fn groups_and_everyone_have_what_they_are_given_unless_the_pool_has_it_turned_off() {
    let running = start();
    let staff =
        AllowPermissions { to: Grantees::Groups(vec![STAFF.to_string()]), ..grant("snapshot", "tank/a") };
    ask(&running, &Caller::own(), &staff).unwrap();
    ask(&running, &user(ALICE, &[9, STAFF]), &snapshots(&["tank/a@a"])).unwrap();
    ask(&running, &in_group(ALICE, STAFF, &[]), &snapshots(&["tank/a@b"])).unwrap();
    is_denied(ask(&running, &alice(), &snapshots(&["tank/a@c"])));
    ask(&running, &Caller::own(), &grant("snapshot", "tank/c")).unwrap();
    ask(&running, &alice(), &snapshots(&["tank/c@a"])).unwrap();
    let turn = |value: &str| SetPoolProperty {
        pool: "tank".into(),
        property: "delegation".into(),
        value: value.into(),
        ..SetPoolProperty::default()
    };
    ask(&running, &Caller::own(), &turn("off")).unwrap();
    let refused = ask(&running, &alice(), &snapshots(&["tank/c@b"])).unwrap_err();
    assert!(refused.message.contains("delegated administration is disabled on pool"), "{refused}");
    ask(&running, &Caller::own(), &turn("on")).unwrap();
    ask(&running, &alice(), &snapshots(&["tank/c@b"])).unwrap();
}

#[test]
fn what_no_permission_gives_is_refused_whatever_a_user_has() {
    let running = start();
    let all = "create,destroy,mount,snapshot,rollback,clone,promote,rename,send,receive,allow,hold,release,\
               load-key,change-key,diff,bookmark,userprop,mountpoint,canmount,share";
    allow(&running, ALICE, all, "tank");
    is_denied(ask(&running, &alice(), &Mount { dataset: Some("tank/a".into()), ..Mount::default() }));
    for action in
        ["pool-destroy", "pool-export", "pool-set", "shutdown", "volume-attach", "pool-view", "hook-add"]
    {
        let refused = dispatch_for(&running.daemon, &alice(), action, br#"{"pool": "tank"}"#).unwrap_err();
        assert!(refused.message.ends_with("permission denied"), "{action}: {refused}");
    }
    // Root's daemon reads no file for a user.
    let key = LoadKey {
        dataset: "tank/a".into(),
        location: Some("file:///etc/shadow".into()),
        ..LoadKey::default()
    };
    is_denied(ask(&running, &alice(), &key));
    is_denied(ask(&running, &alice(), &LoadKey { dataset: "tank/a".into(), ..LoadKey::default() }));
    // A user without any role has nothing at all.
    let roles = Roles::of_groups(&[], &[STAFF.to_string()]).unwrap();
    assert!(roles.of(&alice()).is_none());
}

#[test]
fn an_operator_runs_the_machine_and_every_change_is_written_down() {
    let running = start();
    let operator = user(BOB, &[OPERATORS]);
    ask(&running, &operator, &snapshots(&["tank/a@s"])).unwrap();
    is_denied(ask(
        &running,
        &operator,
        &DestroyDataset { name: "tank/a@s".into(), ..DestroyDataset::default() },
    ));
    is_denied(ask(&running, &alice(), &snapshots(&["tank/a@t"])));
    is_denied(ask(&running, &alice(), &GetAudit { count: 9 }));
    let lines = ask(&running, &operator, &GetAudit { count: 4 }).unwrap();
    let told: Vec<(u32, &str, Option<&str>, bool)> = lines
        .iter()
        .map(|line| (line.uid, line.action.as_str(), line.object.as_deref(), line.result == "ok"))
        .collect();
    let expected = [
        (BOB, "snapshot-create", Some("tank/a@s"), true),
        (BOB, "dataset-destroy", Some("tank/a@s"), false),
        (ALICE, "snapshot-create", Some("tank/a@t"), false),
        (ALICE, "audit", None, false),
    ];
    assert_eq!(told, expected);
}

/// The stream of a snapshot.
fn stream(running: &Running, caller: &Caller, request: &SendSnapshot) -> Vec<u8> {
    let sending = dispatch_send(&running.daemon, caller, &serde_json::to_vec(request).unwrap()).unwrap();
    let mut bytes = Vec::new();
    sending.run(|frames| {
        bytes.extend(frames.concat());
        true
    });
    // Heads of frames: a kind and a length.
    let (mut stream, mut rest) = (Vec::new(), &bytes[..]);
    while let [kind, a, b, c, d, after @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        if *kind == 0 {
            stream.extend_from_slice(&after[..length]);
        }
        rest = &after[length..];
    }
    stream
}

fn receive(running: &Running, caller: &Caller, request: &ReceiveStream, stream: &[u8]) -> Option<ApiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut source, input) = server::daemon::stream_of_client();
    let body = serde_json::to_vec(request).unwrap();
    let mut last = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            dispatch_receive(&running.daemon, caller, &body, input, |part| {
                last = Some(part);
                true
            });
        });
        runtime.block_on(async {
            source.send(stream.to_vec().into()).await;
            source.close();
        });
    });
    match last.unwrap() {
        server::api::ReceivePart::Complete => None,
        server::api::ReceivePart::Failed(error) => Some(error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn streams_are_received_by_who_may_one_snapshot_at_a_time() {
    let running = start();
    ask(&running, &Caller::own(), &TakeSnapshots { recursive: true, ..snapshots(&["tank/a@s"]) }).unwrap();
    let send = SendSnapshot { snapshot: "tank/a@s".into(), ..SendSnapshot::default() };
    let one = stream(&running, &Caller::own(), &send);
    let whole = stream(&running, &Caller::own(), &SendSnapshot { replicate: true, ..send });
    let to = ReceiveStream { name: "tank/c/new".into(), ..ReceiveStream::default() };
    for some in ["receive,create", "receive,mount", "create,mount"] {
        allow(&running, ALICE, some, "tank/c");
        is_denied(receive(&running, &alice(), &to, &one).map_or(Ok(()), Err));
        unallow(&running, ALICE, "tank/c");
    }
    allow(&running, ALICE, "receive,create,mount", "tank/c");
    let other_names = ReceiveStream { appends: server::api::Appends::AllButPool, ..to.clone() };
    is_denied(receive(&running, &alice(), &other_names, &one).map_or(Ok(()), Err));
    let refused = receive(&running, &alice(), &to, &whole).unwrap();
    assert!(refused.message.contains("permission denied"), "{refused}");
    assert!(!has(&running, "tank/c/new"));
    let with = ReceiveStream { properties: vec![("canmount".into(), "off".into())], ..to.clone() };
    is_denied(receive(&running, &alice(), &with, &one).map_or(Ok(()), Err));
    assert!(receive(&running, &alice(), &to, &one).is_none());
    assert!(has(&running, "tank/c/new@s"));
    // To append takes less, but then without -F.
    unallow(&running, ALICE, "tank/c");
    allow(&running, ALICE, "receive:append,create,mount", "tank/c");
    let to = ReceiveStream { name: "tank/c/next".into(), force: true, ..to };
    is_denied(receive(&running, &alice(), &to, &one).map_or(Ok(()), Err));
    assert!(receive(&running, &alice(), &ReceiveStream { force: false, ..to }, &one).is_none());
}
