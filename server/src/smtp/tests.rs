//! Relays of a few lines: good ones, and such that refuse, hang, or want TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// A line that a client says begins with the first text; the relay answers with the second. An answer of
/// `TLS` begins TLS, one of `HANG` leaves the client waiting for ever.
type Script = Vec<(&'static str, &'static str)>;

trait Talk: Read + Write + Send {}
impl<T: Read + Write + Send> Talk for T {}

struct Relay {
    port: u16,
    thread: JoinHandle<Vec<String>>,
}

fn tls(place: &Path) -> (Arc<ServerConfig>, Trust) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let file = place.join("relay.pem");
    std::fs::write(&file, certificate.pem()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = builder.with_single_cert(vec![certificate.der().clone()], key.into()).unwrap();
    (Arc::new(config), Trust { authorities: Some(file), ..Trust::default() })
}

impl Relay {
    fn start(config: Option<Arc<ServerConfig>>, greeting: &'static str, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            Self::talk(stream, config, greeting, script)
        });
        Self { port, thread }
    }

    fn talk(
        stream: TcpStream,
        config: Option<Arc<ServerConfig>>,
        greeting: &str,
        script: Script,
    ) -> Vec<String> {
        let raw = stream.try_clone().unwrap();
        let mut talk: BufReader<Box<dyn Talk>> = BufReader::new(Box::new(stream));
        let mut said = Vec::new();
        talk.get_mut().write_all(greeting.as_bytes()).unwrap();
        for (begins, answer) in script {
            let mut line = String::new();
            if talk.read_line(&mut line).unwrap_or(0) == 0 {
                break;
            }
            said.push(line.trim_end().to_owned());
            assert!(line.starts_with(begins), "'{line}', and not '{begins}'");
            if begins == "DATA" {
                talk.get_mut().write_all(b"354 go on\r\n").unwrap();
                while !line.ends_with("\r\n.\r\n") {
                    talk.read_line(&mut line).unwrap();
                }
                said.push(line);
            }
            match answer {
                "HANG" => {
                    // Until the client has had enough.
                    let _ = talk.read_to_end(&mut Vec::new());
                    break;
                }
                "TLS" => {
                    talk.get_mut().write_all(b"220 begin\r\n").unwrap();
                    let connection = ServerConnection::new(config.clone().unwrap()).unwrap();
                    talk = BufReader::new(Box::new(StreamOwned::new(connection, raw.try_clone().unwrap())));
                }
                answer if talk.get_mut().write_all(answer.as_bytes()).is_err() => break,
                _ => {}
            }
        }
        said
    }

    fn address(&self, user: &str) -> Address {
        Address::relay(&format!("smtp://{user}localhost:{}", self.port)).unwrap()
    }

    fn said(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

fn letter(to: &[&str]) -> Letter {
    let to = to.iter().map(|to| (*to).to_owned()).collect();
    Letter { from: "nas@example.org".into(), to, text: "Subject: x\r\n\r\n.dot\r\nend\r\n".into() }
}

fn delivered(relay: &Address, password: Option<&[u8]>, trust: &Trust, letter: &Letter) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(deliver(relay, password, trust, letter))
}

#[test]
fn a_letter_goes_to_a_relay_with_its_dots() {
    let relay = Relay::start(
        None,
        "220-hello\r\n220 there\r\n",
        vec![
            ("EHLO [127.0.0.1]", "250 nas\r\n"),
            ("MAIL FROM:<nas@example.org>", "250 ok\r\n"),
            ("RCPT TO:<a@example.org>", "250 ok\r\n"),
            ("RCPT TO:<b@example.org>", "550 no such user\r\n"),
            ("DATA", "250 taken\r\n"),
            ("QUIT", "221 bye\r\n"),
        ],
    );
    let told =
        delivered(&relay.address(""), None, &Trust::default(), &letter(&["a@example.org", "b@example.org"]));
    let told = told.unwrap_err();
    assert!(told.contains("not taken for b@example.org ('550 no such user')"), "{told}");
    let said = relay.said();
    assert_eq!(said[5], "DATA\r\nSubject: x\r\n\r\n..dot\r\nend\r\n.\r\n");
}

#[test]
fn a_password_goes_by_tls_only_or_to_this_machine() {
    let place = tempfile::tempdir().unwrap();
    let (config, trust) = tls(place.path());
    let after = |answers: &'static str| -> Script {
        vec![("EHLO", "250-nas\r\n250 STARTTLS\r\n"), ("STARTTLS", "TLS"), ("EHLO", answers)]
    };
    let mut script = after("250-nas\r\n250 AUTH LOGIN PLAIN\r\n");
    script.extend([
        ("AUTH PLAIN AGFubgBzZXNhbWU=", "235 welcome\r\n"),
        ("MAIL", "250 ok\r\n"),
        ("RCPT", "250 ok\r\n"),
        ("DATA", "250 taken\r\n"),
    ]);
    let relay = Relay::start(Some(Arc::clone(&config)), "220 hello\r\n", script);
    delivered(&relay.address("ann@"), Some(b"sesame"), &trust, &letter(&["a@example.org"])).unwrap();
    assert!(relay.said().len() >= 8);

    let mut script = after("250-nas\r\n250 AUTH LOGIN\r\n");
    script.extend([
        ("AUTH LOGIN", "334 VXNlcm5hbWU6\r\n"),
        ("YW5u", "334 UGFzc3dvcmQ6\r\n"),
        ("c2VzYW1l", "535 5.7.8 wrong\r\n"),
    ]);
    let relay = Relay::start(Some(Arc::clone(&config)), "220 hello\r\n", script);
    let told = delivered(&relay.address("ann@"), Some(b"sesame"), &trust, &letter(&["a@example.org"]));
    let told = told.unwrap_err();
    assert!(told.contains("refused the name or the password: '535 5.7.8 wrong'"), "{told}");
    relay.said();

    // One that no authority vouches for gets nothing.
    let relay = Relay::start(Some(config), "220 hello\r\n", after("250 nas\r\n"));
    let other = tempfile::tempdir().unwrap();
    let (_, wary) = tls(other.path());
    let told = delivered(&relay.address("ann@"), Some(b"sesame"), &wary, &letter(&["a@example.org"]));
    assert!(told.unwrap_err().contains("certificate"));
    assert_eq!(relay.said().len(), 2);

    // Something that was said before TLS began.
    let relay = Relay::start(
        None,
        "220 hello\r\n",
        vec![("EHLO", "250-nas\r\n250 STARTTLS\r\n"), ("STARTTLS", "220 go\r\n250 injected\r\n")],
    );
    let told = delivered(&relay.address(""), None, &trust, &letter(&["a@example.org"])).unwrap_err();
    assert!(!told.is_empty());
    relay.said();
}

#[test]
fn a_relay_that_refuses_or_is_none_is_named_and_one_that_hangs_is_left() {
    let trust = Trust::default();
    let one = letter(&["a@example.org"]);
    for (greeting, script, expected) in [
        ("554 no service\r\n", vec![], "greeted '554 no service'"),
        ("SSH-2.0-OpenSSH_9.9\r\n", vec![], "no relay of mail"),
        ("220 hi\r\n", vec![("EHLO", "502 what\r\n")], "answered EHLO with '502 what'"),
        (
            "220 hi\r\n",
            vec![("EHLO", "250 nas\r\n"), ("MAIL", "550 \u{1b}[31mgo away\r\n")],
            "refused the sender nas@example.org: '550 \\u{1b}[31mgo away'",
        ),
        (
            "220 hi\r\n",
            vec![("EHLO", "250 nas\r\n"), ("MAIL", "250 ok\r\n"), ("RCPT", "450 later\r\n")],
            "refused a@example.org ('450 later')",
        ),
        ("220 hi\r\n", vec![("EHLO", "250 nas\r\n"), ("MAIL", "")], "closed the connection"),
    ] {
        let relay = Relay::start(None, greeting, script);
        let told = delivered(&relay.address(""), None, &trust, &one).unwrap_err();
        assert!(told.contains(expected), "{expected}: {told}");
        relay.said();
    }
    let relay = Relay::start(None, "220 hi\r\n", vec![("EHLO", "HANG")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = relay.address("");
    let limit = Duration::from_millis(300);
    let ended =
        runtime.block_on(async { tokio::time::timeout(limit, deliver(&address, None, &trust, &one)).await });
    assert!(ended.is_err());
    relay.said();
}

#[test]
fn addresses_say_nothing_else_to_a_relay() {
    for right in ["a@b", "ann+nas@mail.example.org", "root@localhost"] {
        assert!(is_address(right), "{right}");
    }
    for wrong in [
        "",
        "a",
        "@b",
        "a@",
        "a b@c",
        "a@b>\r\nDATA",
        "<a@b>",
        "a@b c",
        "a@b\r\n",
        "é@b",
        "a@é",
        "a@-b",
        "a@b@c",
    ] {
        assert!(!is_address(wrong), "{wrong}");
    }
    assert_eq!(stuffed("a\r\n"), "a\r\n.\r\n");
    assert_eq!(stuffed(".\r\n"), "..\r\n.\r\n");
}
