//! Servers of keys over TLS and without, good and bad ones.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// For tests whose server answers, however busy the machine is.
const PATIENT: Limits = Limits { connect: Duration::from_secs(60), total: Duration::from_secs(120) };
/// For servers that do not answer.
const SHORT: Limits = Limits { connect: Duration::from_millis(200), total: Duration::from_millis(400) };

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server's own certificate that is one of an authority and names no host, as `openssl req -x509` makes it.
fn self_signed() -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap(), key)
}

/// A certificate for `name`, and its key, as PEM.
fn signed(name: &str, by: &Authority) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, by).unwrap(), key)
}

fn trusting(place: &Path, authority: &Authority) -> Trust {
    let file = place.join("authority.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    Trust { authorities: Some(file), ..Trust::default() }
}

/// A server that gives the same answers, one for each connection, and the address of which is told.
struct Served {
    port: u16,
    thread: JoinHandle<Vec<String>>,
}

impl Served {
    fn start(tls: Option<ServerConfig>, answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = tls.map(Arc::new);
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                match &config {
                    None => asked.extend(answer_one(stream, &answer)),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                        asked.extend(answer_one(StreamOwned::new(connection, stream), &answer));
                    }
                }
            }
            asked
        });
        Self { port, thread }
    }

    /// With a certificate of an authority for this name.
    fn secure(authority: &Authority, name: &str, answers: Vec<Vec<u8>>) -> Self {
        Self::with(signed(name, authority), answers)
    }

    fn with((certificate, key): (rcgen::Certificate, KeyPair), answers: Vec<Vec<u8>>) -> Self {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = builder.with_single_cert(vec![certificate.der().clone()], key.into()).unwrap();
        Self::start(Some(config), answers)
    }

    fn address(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}/keys/tank", self.port)
    }

    /// What it was asked.
    fn ended(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

/// Reads a request and writes the answer; `None` from a client that does not trust the server.
fn answer_one(mut stream: impl Read + Write, answer: &[u8]) -> Option<String> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&part[..read]),
        }
    }
    // The client may have had enough before the end.
    let _ = stream.write_all(answer).and_then(|()| stream.flush());
    Some(String::from_utf8(request).unwrap())
}

fn ok(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fn refusal(address: &str, trust: &Trust, limits: Limits) -> Failure {
    fetch_with(address, trust, limits).unwrap_err()
}

#[test]
fn a_key_comes_over_tls_from_a_server_that_is_trusted() {
    let place = tempfile::tempdir().unwrap();
    let (ours, others) = (authority(), authority());
    let served = Served::secure(&ours, "localhost", vec![ok(b"correct horse\n"), Vec::new()]);
    let address = served.address("https");
    let trust = trusting(place.path(), &ours);
    assert_eq!(fetch_with(&address, &trust, PATIENT).unwrap().bytes(), b"correct horse\n");
    let wary = trusting(place.path(), &others);
    let refused = refusal(&address, &wary, PATIENT).message;
    assert!(refused.starts_with(&format!("Failed to connect to {address}: ")), "{refused}");
    assert!(refused.contains("certificate"), "{refused}");
    let asked = served.ended();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].starts_with("GET /keys/tank HTTP/1.1\r\n"), "{}", asked[0]);

    let misnamed = Served::secure(&ours, "elsewhere", vec![Vec::new()]);
    let trust = trusting(place.path(), &ours);
    let refused = refusal(&misnamed.address("https"), &trust, PATIENT).message;
    assert!(refused.contains("certificate"), "{refused}");
    assert!(misnamed.ended().is_empty());
    let none = Trust { authorities: Some(place.path().join("missing")), ..Trust::default() };
    let refused = none.connector().err().unwrap();
    assert!(refused.contains("SSL_CA_CERT_FILE"), "{refused}");
}

#[test]
fn a_server_that_signed_its_certificate_itself_is_trusted_only_where_it_is_the_one_that_was_given() {
    let place = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed();
    let file = place.path().join("server.pem");
    std::fs::write(&file, certificate.pem()).unwrap();
    let trust = Trust { authorities: Some(file.clone()), ..Trust::default() };
    let served = Served::with((certificate, key), vec![ok(b"own"), Vec::new()]);
    let address = served.address("https");
    assert_eq!(fetch_with(&address, &trust, PATIENT).unwrap().bytes(), b"own");
    let both = std::fs::read_to_string(&file).unwrap() + &authority().pem();
    std::fs::write(&file, both).unwrap();
    refusal(&address, &trust, PATIENT);
    assert_eq!(served.ended().len(), 1);
    let impostor = Served::with(self_signed(), vec![Vec::new()]);
    std::fs::write(&file, self_signed().0.pem()).unwrap();
    refusal(&impostor.address("https"), &trust, PATIENT);
    assert!(impostor.ended().is_empty());
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_it() {
    let place = tempfile::tempdir().unwrap();
    let ours = authority();
    let mut roots = RootCertStore::empty();
    roots.add(ours.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (certificate, key) = signed("localhost", &ours);
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier.build().unwrap());
    let config = config.with_single_cert(vec![certificate.der().clone()], key.into()).unwrap();
    let served = Served::start(Some(config), vec![ok(b"known"), ok(b"known"), ok(b"unknown")]);
    let address = served.address("https");
    let (certificate, key) = signed("client", &ours);
    let (own, own_key) = (place.path().join("own.pem"), place.path().join("own.key"));
    std::fs::write(&own, certificate.pem()).unwrap();
    std::fs::write(&own_key, key.serialize_pem()).unwrap();
    let trust = trusting(place.path(), &ours);
    let trust = Trust { certificate: Some(own.clone()), key: Some(own_key), ..trust };
    assert_eq!(fetch_with(&address, &trust, PATIENT).unwrap().bytes(), b"known");
    std::fs::write(&own, certificate.pem() + &key.serialize_pem()).unwrap();
    let trust = Trust { key: None, ..trust };
    assert_eq!(fetch_with(&address, &trust, PATIENT).unwrap().bytes(), b"known");
    let trust = Trust { certificate: None, ..trust };
    refusal(&address, &trust, PATIENT);
    assert_eq!(served.ended().len(), 2);
}

#[test]
fn answers_that_are_no_keys_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let ours = authority();
    let trust = trusting(place.path(), &ours);
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'a'; 1 << 20]].concat();
    let boasting = b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nshort".to_vec();
    let huge_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\nshort".to_vec();
    let long_head = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    let (moved, nowhere) = ("HTTP/1.1 302 Found\r\nLocation: ", "\r\nContent-Length: 0\r\n\r\n");
    let cases = [
        (ok(&[b'a'; MAX_BYTES + 1]), "it is too long for a key"),
        (endless, "it is too long for a key"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone".to_vec(), "404 Not Found"),
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "503 Service Unavailable",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort".to_vec(), "it broke off"),
        // The end of TLS is not said.
        (b"HTTP/1.1 200 OK\r\n\r\nshort".to_vec(), "it broke off"),
        (boasting, "it broke off"),
        (huge_chunk, "it broke off"),
        (long_head, "Couldn't GET"),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "Couldn't GET"),
        (Vec::new(), "Couldn't GET"),
        (format!("{moved}http://localhost/k{nowhere}").into_bytes(), "the key would not be encrypted"),
        (format!("{moved}file:///etc/shadow{nowhere}").into_bytes(), "'file:///etc/shadow', which is not"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "302 Found"),
    ];
    for (answer, expected) in cases {
        let served = Served::secure(&ours, "localhost", vec![answer]);
        let address = served.address("https");
        let refused = refusal(&address, &trust, PATIENT);
        assert!(refused.message.starts_with(&format!("Couldn't GET {address}: ")), "{refused}");
        assert!(refused.message.contains(expected), "{expected}: {refused}");
        assert!(!refused.message.contains("short") && !refused.is_silent, "{refused}");
        served.ended();
    }
}

#[test]
fn redirects_are_followed_a_few_times() {
    let moved = |to: &str| {
        format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    };
    let served = Served::start(None, vec![moved("/other?a=b"), ok(b"there")]);
    let trust = Trust::default();
    assert_eq!(fetch_with(&served.address("http"), &trust, PATIENT).unwrap().bytes(), b"there");
    assert!(served.ended()[1].starts_with("GET /other?a=b HTTP/1.1\r\n"));
    let turning = Served::start(None, vec![moved("/"); MAX_REDIRECTS + 1]);
    let refused = refusal(&turning.address("http"), &trust, PATIENT).message;
    assert!(refused.ends_with("it leads on more than 5 times"), "{refused}");
    turning.ended();
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let trust = Trust::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The system takes the connection, and nothing ever answers on it.
    for scheme in ["http", "https"] {
        let address = format!("{scheme}://127.0.0.1:{port}/key");
        let silent = refusal(&address, &trust, SHORT);
        assert!(silent.message.starts_with(&format!("Failed to connect to {address}: ")), "{silent}");
        assert!(silent.is_silent, "{silent}");
    }
    drop(listener);
    let refused = refusal(&format!("http://127.0.0.1:{port}/key"), &trust, PATIENT);
    assert!(refused.message.contains("refused") && !refused.is_silent, "{refused}");
}

#[test]
fn redirects_lead_to_servers_that_are_as_private() {
    let from = Address::web("https://[::1]:81/a").unwrap();
    let followed = |to: &str| follow(&from, to).map(|to| (to.host_and_port(), to.path));
    assert_eq!(followed("/b"), Ok(("[::1]:81".to_owned(), "/b".to_owned())));
    assert_eq!(followed("//keys/b"), Ok(("keys:443".to_owned(), "/b".to_owned())));
    for bad in ["b", "http://keys/b", "https://me@keys/", "", "javascript:1"] {
        followed(bad).unwrap_err();
    }
    assert_eq!(server_of("https://keys/a").as_deref(), Some("keys:443"));
    for bad in ["https://", "https:///path", "ftp://keys/a", "https://me:word@keys/a", "https://keys/a b"] {
        assert_eq!(server_of(bad), None, "{bad}");
    }
}
