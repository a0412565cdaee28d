//! Pools in an object store that one host takes over from another: two daemons with locks of their own stand
//! for two hosts.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::session::Session;

/// Longer than a lease lasts, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(180);

/// A host that stands by for the pool `tank`.
fn host(name: &str, store: &Path, place: &Path) -> Session {
    let locks = place.join(format!("locks-{name}"));
    let standby = format!("tank=file://{}", store.display());
    let cachefile = place.join(format!("{name}.cache"));
    let arguments = ["--standby", &standby, "--cachefile", cachefile.to_str().unwrap()];
    let environment = [("CENOTE_HOST_LOCKS", locks.to_str().unwrap()), ("CENOTE_HOST_NAME", name)];
    Session::start_on_host(&arguments, &environment)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_active(host: &Session) -> bool {
    host.run(&["standby", "active", "tank"]).code == 0
}

fn shows(host: &Session, words: &[&str]) -> bool {
    let shown = host.print(&["standby"]);
    words.iter().all(|word| shown.contains(word))
}

#[test]
fn a_pool_is_taken_over_on_command_and_when_its_host_is_gone() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    let one = host("one", &store, place.path());
    one.print(&["zpool", "create", "-m", "none", "tank", &format!("file://{}?size=1G", store.display())]);
    one.print(&["zfs", "create", "-V", "16M", "tank/vol"]);
    until("the pool is active on 'one'", || is_active(&one));
    let two = host("two", &store, place.path());
    until("'two' sees the owner", || shows(&two, &["watching", "one"]));

    // On command, from a host that is well.
    two.print(&["standby", "take-over", "tank"]);
    assert!(is_active(&two));
    assert_eq!(two.print(&["zfs", "list", "-H", "-o", "name", "-r", "tank"]), "tank\ntank/vol\n");
    until("'one' drops the pool", || !is_active(&one) && one.print(&["zpool", "list", "-H"]).is_empty());
    until("'one' stands by", || shows(&one, &["watching", "two"]));
    two.print(&["zfs", "create", "tank/of-two"]);
    let history = two.print(&["zpool", "history", "tank"]);
    assert!(history.contains("standby take-over tank"), "{history}");

    // A pool that a person exports stays closed.
    two.print(&["zpool", "export", "tank"]);
    until("'one' leaves it alone", || shows(&one, &["exported"]));
    until("'two' leaves it alone", || shows(&two, &["exported"]));
    one.print(&["standby", "take-over", "tank"]);
    assert!(is_active(&one));
    let told = one.run(&["standby", "take-over", "unknown"]);
    assert!(told.code == 1 && told.err.contains("say where its devices are"), "{told:?}");

    // The host dies.
    one.print(&["zfs", "create", "tank/of-one"]);
    one.kill();
    until("'two' takes over", || is_active(&two));
    let names = two.print(&["zfs", "list", "-H", "-o", "name", "-r", "tank"]);
    assert_eq!(names, "tank\ntank/of-one\ntank/of-two\ntank/vol\n");
    assert!(shows(&two, &["active", "two"]));

    // The end of a daemon hands it to the next one at once; a daemon that comes again does not import it.
    let one = host("one", &store, place.path());
    assert!(!is_active(&one));
    two.stop();
    until("'one' goes on", || is_active(&one));
    one.print(&["zpool", "scrub", "-w", "tank"]);
    let status = one.print(&["zpool", "status", "tank"]);
    assert!(status.contains("No known data errors"), "{status}");
}

#[test]
fn a_daemon_that_does_not_stand_by_ends_the_clients_of_a_pool_that_it_lost() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    let locks = place.path().join("locks-one");
    let environment = [("CENOTE_HOST_LOCKS", locks.to_str().unwrap()), ("CENOTE_HOST_NAME", "one")];
    let one = Session::start_on_host(&[], &environment);
    one.print(&["zpool", "create", "-m", "none", "tank", &format!("file://{}?size=1G", store.display())]);
    let two = host("two", &store, place.path());
    two.print(&["standby", "take-over", "tank"]);
    let health = || one.print(&["zpool", "list", "-H", "-o", "health", "tank"]);
    until("the pool is suspended on 'one'", || health() == "SUSPENDED\n");
    until("changes are refused on 'one'", || one.run(&["zfs", "create", "tank/late"]).code != 0);
    one.run(&["zpool", "export", "-f", "tank"]);
    assert_eq!(one.print(&["zpool", "list", "-H"]), "");
    two.print(&["zfs", "create", "tank/of-two"]);
}

#[test]
fn a_host_that_is_refused_takes_nothing_from_the_owner() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    let address = format!("file://{}", store.display());
    let host = |id: &str| {
        let locks = place.path().join(id);
        let environment = [("CENOTE_HOST_LOCKS", locks.to_str().unwrap()), ("ZFS_HOSTID", id)];
        Session::start_on_host(&[], &environment)
    };
    let (owner, other) = (host("0x11111111"), host("0x22222222"));
    owner.print(&["zpool", "create", "-m", "none", "tank", &format!("{address}?size=1G")]);
    let refused = other.run(&["zpool", "import", "-d", &address, "tank"]);
    assert!(refused.err.contains("previously in use from another system"), "{}", refused.err);
    let refused = other.run(&["zpool", "create", "-m", "none", "new", &address]);
    assert!(refused.err.contains("part of potentially active pool 'tank'"), "{}", refused.err);
    let refused = other.run(&["object-check", &address, "--remove", "--take-over"]);
    assert_eq!(refused.code, 3, "{}", refused.out);
    assert!(refused.err.contains("export its pool before"), "{}", refused.err);
    // The owner writes on, and this is durable.
    owner.print(&["zfs", "create", "tank/after"]);
    owner.print(&["zpool", "sync", "tank"]);
    assert_eq!(owner.print(&["zpool", "list", "-H", "-o", "health", "tank"]), "ONLINE\n");
    other.print(&["zpool", "import", "-f", "-d", &address, "tank"]);
    assert_eq!(other.print(&["zfs", "list", "-H", "-o", "name", "tank/after"]), "tank/after\n");
    let late = owner.run(&["zfs", "create", "tank/late"]);
    assert_ne!(late.code, 0, "{}", late.out);
    assert_eq!(other.run(&["zfs", "list", "tank/late"]).code, 1);
}
