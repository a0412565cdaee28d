//! `--remote`: one machine manages another, over TLS with a token.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::session::Session;

/// A machine that is managed: its daemon, and its dashboard's address and certificate.
struct There {
    session: Session,
    place: String,
    fingerprint: String,
}

impl There {
    /// With TLS, by a certificate that it makes itself.
    fn start() -> Self {
        Self::start_at("0.0.0.0:0")
    }

    fn start_at(listen: &str) -> Self {
        let session = Session::start_serving(&["--dashboard", listen]);
        let told: Value = serde_json::from_str(&session.print(&["dashboard", "--json"])).unwrap();
        let url = told["url"].as_str().unwrap();
        let place = url.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let fingerprint = told["certificate_fingerprint"].as_str().unwrap_or_default().to_owned();
        Self { session, place, fingerprint }
    }

    fn token(&self, name: &str, role: &str) -> String {
        let made = self.session.print(&["dashboard", "token", "create", name, "--role", role]);
        made.trim().to_owned()
    }
}

/// The machine of the user, with a daemon of its own that must never be asked.
struct Here {
    session: Session,
    config: TempDir,
}

impl Here {
    fn start() -> Self {
        Self { session: Session::start_serving(&[]), config: tempfile::tempdir().unwrap() }
    }

    fn command(&self, program: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("CENOTE_SOCKET", self.session.socket()).env("TZ", "UTC");
        command.env("XDG_CONFIG_HOME", self.config.path()).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run_with(&self, environment: &[(&str, &str)], arguments: &[&str], input: &[u8]) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_cenote"));
        let mut child = self.command(program, environment, arguments).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command that does not read its input may be gone already.
        let feeding = std::thread::spawn(move || drop(to.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        output
    }

    fn run(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
        self.run_with(environment, arguments, b"")
    }

    /// What a command prints that must not fail.
    fn print(&self, environment: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.run(environment, arguments);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && err.is_empty(), "{arguments:?}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command says that has to fail.
    fn refused(&self, environment: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.run(environment, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn kept(&self) -> std::path::PathBuf {
        self.config.path().join("cenote/remotes.json")
    }
}

fn disk(there: &There) -> String {
    let path = there.session.directory().join("disk");
    fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn one_machine_manages_another_and_nothing_is_done_here() {
    let (here, there) = (Here::start(), There::start());
    let token = there.token("admin", "admin");
    let with_token = [("CENOTE_TOKEN", token.as_str())];
    let add = ["remote", "add", "nas", &there.place];
    // Neither without a fingerprint, nor with another one.
    let said = here.refused(&with_token, &add);
    assert!(said.contains(&there.fingerprint) && said.contains("--fingerprint"), "{said}");
    let other = there.fingerprint.replace(|c: char| c.is_ascii_digit(), "A");
    let said = here.refused(&with_token, &[&add[..], &["--fingerprint", &other]].concat());
    assert!(said.contains(&format!("given: {other}")), "{said}");
    assert!(said.contains(&format!("shown: {}", there.fingerprint)), "{said}");
    let with_fingerprint = [&add[..], &["--fingerprint", &there.fingerprint]].concat();
    let said = here.refused(&[("CENOTE_TOKEN", "cenote_wrong")], &with_fingerprint);
    assert!(said.contains("does not let you in") && !here.kept().exists(), "{said}");
    // The token is the first line of standard input where the environment has none.
    let output = here.run_with(&[], &with_fingerprint, format!("{token}\n").as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(here.kept()).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = here.print(&[], &["remote", "list"]);
    assert!(listed.contains("nas ") && listed.contains(&there.fingerprint), "{listed}");
    let json = here.print(&[], &["remote", "list", "--json"]);
    assert!(json.contains("\"has_token\":true") && !json.contains(&token), "{json}");

    let nas = |arguments: &[&str]| here.print(&[], &[&["--remote", "nas"], arguments].concat());
    assert_eq!(nas(&["zpool", "create", "-O", "canmount=off", "tank", &disk(&there)]), "");
    assert_eq!(there.session.print(&["zpool", "list", "-H", "-o", "name"]), "tank\n");
    assert_eq!(here.session.print(&["zpool", "list", "-H", "-o", "name"]), "");
    let history = there.session.print(&["zpool", "history", "-l", "tank"]);
    assert!(history.contains("zpool create") && !history.contains("--remote"), "{history}");
    // By the environment, and by a link that is called as OpenZFS's command.
    let by_variable = [("CENOTE_REMOTE", "nas")];
    here.print(&by_variable, &["zfs", "create", "-o", "canmount=off", "tank/a"]);
    let history = there.session.print(&["zpool", "history", "-l", "tank"]);
    assert!(history.contains("zfs create -o canmount=off tank/a"), "{history}");
    assert!(history.contains("dashboard: ") && history.contains("token admin"), "{history}");
    let link = here.config.path().join("zfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), &link).unwrap();
    for (environment, arguments) in [
        (&by_variable[..], &["list", "-H", "-o", "name"][..]),
        (&[], &["--remote=nas", "list", "-Ho", "name"]),
    ] {
        let output = here.command(&link, environment, arguments).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "tank\ntank/a\n", "{:?}", output.stderr);
    }
    // By its address the kept certificate and token count too.
    assert_eq!(
        here.print(&[], &["--remote", &there.place, "zfs", "list", "-Ho", "name", "tank/a"]),
        "tank/a\n"
    );
    let json: Value = serde_json::from_str(&nas(&["zfs", "list", "-j", "tank/a"])).unwrap();
    assert_eq!(json["datasets"]["tank/a"]["pool"], "tank");

    // Streams go both ways.
    nas(&["zfs", "snapshot", "tank/a@1"]);
    let stream = here.run(&[], &["--remote", "nas", "zfs", "send", "tank/a@1"]);
    assert!(stream.status.success() && stream.stdout.len() > 312, "{stream:?}");
    let received = here.run_with(&[], &["--remote", "nas", "zfs", "receive", "-u", "tank/b"], &stream.stdout);
    assert!(received.status.success(), "{received:?}");
    assert_eq!(nas(&["zfs", "list", "-t", "snapshot", "-Ho", "name", "tank/b"]), "tank/b@1\n");
    let completed = nas(&["complete", "--", "cenote", "--remote", "nas", "zfs", "list", "tank/"]);
    assert_eq!(completed, "tank/a\ntank/b\n");
    let completed = here.print(&[], &["complete", "--", "cenote", "--remote", "n"]);
    assert_eq!(completed, "nas\n");

    // Events are followed.
    let program = Path::new(env!("CARGO_BIN_EXE_cenote"));
    let mut following =
        here.command(program, &[], &["--remote", "nas", "zpool", "events", "-f", "-H"]).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("pool_create")));
    nas(&["zfs", "create", "-o", "canmount=off", "tank/c"]);
    assert!(lines.any(|line| line.unwrap().contains("history_event")));
    following.kill().unwrap();
    following.wait().unwrap();

    // A path is the other machine's, and what needs the machine is refused.
    for (arguments, expected) in [
        (&["zdb", "tank"][..], "it reads devices itself"),
        (&["serve"], "it runs a daemon where it is started"),
        (&["up"], "it runs a daemon where it is started"),
        (&["attach", "tank/v"], "it makes devices of the kernel"),
        (&["doctor"], "it looks at the machine itself"),
        (&["zfs", "rewrite", "/etc/hostname"], "it works on files by their paths"),
        (&["dashboard"], "programs of its own machine only"),
        (&["zpool", "create", "other", "./disk"], "cannot open './disk'"),
        (&["zfs", "list", "./tank"], "given from / on"),
    ] {
        let said = here.refused(&[], &[&["--remote", "nas"], arguments].concat());
        assert!(said.contains(expected), "{arguments:?}: {said}");
        let said = here.refused(&by_variable, arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert_eq!(here.print(&[], &["remote", "remove", "nas"]), "");
    let said = here.refused(&[], &["--remote", &there.place, "zfs", "list"]);
    assert!(said.contains("there is no token"), "{said}");
    assert_eq!(here.session.print(&["zpool", "list", "-H"]), "");
}

#[test]
fn strangers_small_roles_and_other_certificates_are_refused() {
    let (here, there, other) = (Here::start(), There::start(), There::start());
    let token = there.token("admin", "admin");
    let add = ["remote", "add", "nas", &there.place, "--fingerprint", &there.fingerprint];
    here.print(&[("CENOTE_TOKEN", &token)], &add);
    here.print(&[], &["--remote", "nas", "zpool", "create", "-O", "canmount=off", "tank", &disk(&there)]);
    let destroy = ["--remote", "nas", "zfs", "destroy", "-r", "tank/a"];
    here.print(&[], &["--remote", "nas", "zfs", "create", "-o", "canmount=off", "tank/a"]);
    // A role that is too small sees and changes nothing.
    let viewer = there.token("see", "viewer");
    let by_viewer = [("CENOTE_TOKEN", viewer.as_str())];
    assert_eq!(here.print(&by_viewer, &["--remote", "nas", "zfs", "list", "-Ho", "name"]), "tank\ntank/a\n");
    let said = here.refused(&by_viewer, &destroy);
    assert!(said.contains("permission denied"), "{said}");
    let metrics = there.token("count", "metrics");
    let said = here.refused(&[("CENOTE_TOKEN", &metrics)], &["--remote", "nas", "zfs", "list"]);
    assert!(said.contains("metrics"), "{said}");
    // One that has ended lets no command in any more, and neither does a wrong one.
    there.session.print(&["dashboard", "token", "remove", "see"]);
    for token in [viewer.as_str(), "cenote_wrong", "nonsense"] {
        let said = here.refused(&[("CENOTE_TOKEN", token)], &destroy);
        assert!(said.contains("does not let you in"), "{said}");
        assert!(!said.contains(token), "{said}");
    }
    let said = here.refused(&[("CENOTE_TOKEN", "two words")], &destroy);
    assert!(said.contains("CENOTE_TOKEN makes no sense") && !said.contains("two words"), "{said}");
    assert_eq!(there.session.print(&["zfs", "list", "-Ho", "name", "tank/a"]), "tank/a\n");

    // Another machine at the place of the kept one.
    let kept = fs::read_to_string(here.kept()).unwrap();
    fs::write(here.kept(), kept.replace(&there.place, &other.place)).unwrap();
    let said = here.refused(&[], &destroy);
    assert!(said.contains(&format!("kept:  {}", there.fingerprint)), "{said}");
    assert!(said.contains(&format!("shown: {}", other.fingerprint)), "{said}");
    assert!(said.contains("nothing was asked of it"), "{said}");
    // Without a kept one, authorities decide.
    let said = here.refused(&[("CENOTE_TOKEN", &token)], &["--remote", &there.place, "zfs", "list"]);
    assert!(said.contains("certificate") && said.contains("cenote remote add"), "{said}");
    // A file that others can read is not used.
    fs::set_permissions(here.kept(), fs::Permissions::from_mode(0o644)).unwrap();
    let said = here.refused(&[], &["--remote", "nas", "zfs", "list"]);
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn a_connection_that_breaks_off_says_whether_something_may_have_changed() {
    let here = Here::start();
    let token = [("CENOTE_TOKEN", "cenote_x")];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut piece = [0; 4096];
            assert_ne!(stream.read(&mut piece).unwrap(), 0);
        }
    });
    let said = here.refused(&token, &["--remote", &place, "zfs", "create", "tank/a"]);
    assert!(said.contains("it may have done what was asked"), "{said}");
    let said = here.refused(&token, &["--remote", &place, "zfs", "list"]);
    assert!(said.contains("nothing was changed by this"), "{said}");
    served.join().unwrap();
    // By now none listens there.
    let said = here.refused(&token, &["--remote", &place, "zfs", "create", "tank/a"]);
    assert!(said.contains("cannot reach") && said.contains("nothing was asked of it"), "{said}");
    for place in ["http://192.0.2.7", "http://nas.example"] {
        let said = here.refused(&token, &["--remote", place, "zfs", "list"]);
        assert!(said.contains("without TLS"), "{said}");
    }
    assert_eq!(here.session.print(&["zpool", "list", "-H"]), "");
}

#[test]
fn this_machine_itself_is_spoken_to_without_tls() {
    let (here, there) = (Here::start(), There::start_at("127.0.0.1:0"));
    let token = there.token("admin", "operator");
    let token = [("CENOTE_TOKEN", token.as_str())];
    let plain = format!("http://{}", there.place);
    assert_eq!(here.print(&token, &["--remote", &plain, "zpool", "list", "-H"]), "");
    let said = here.refused(&token, &["--remote", &there.place, "zpool", "list", "-H"]);
    assert!(said.contains(&format!("'{plain}'")), "{said}");
    here.print(&token, &["remote", "add", "tunnel", &plain]);
    assert_eq!(here.print(&[], &["--remote", "tunnel", "zpool", "list", "-H"]), "");
}
