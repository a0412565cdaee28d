//! TLS: whom libnbd trusts, whom the server serves, and what is told without it.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Output},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use server::nbd::Tls;

use crate::harness::{DeviceExport, Named, Served, pattern};

const NAME: &str = "tank/vol";
const SIZE_BYTES: usize = 5 << 20;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_LIST: u32 = 3;
const OPT_STARTTLS: u32 = 5;
const REP_ACK: u32 = 1;
const ERR_TLS_REQD: u32 = 0x8000_0005;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Files as libnbd looks for them, of a host called `localhost` that `signer` knows and that trusts
/// `trusted`.
fn certificates(at: &Path, role: &str, signer: &Authority, trusted: &Authority) {
    fs::create_dir_all(at).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, signer).unwrap();
    fs::write(at.join(format!("{role}-cert.pem")), certificate.pem()).unwrap();
    fs::write(at.join(format!("{role}-key.pem")), key.serialize_pem()).unwrap();
    fs::write(at.join("ca-cert.pem"), trusted.pem()).unwrap();
}

fn served(server: &Authority, of_clients: Option<&Authority>) -> (Served, SocketAddr) {
    let exports = |_: &Path| Named::default().with(NAME, DeviceExport::in_memory(pattern(SIZE_BYTES)));
    Served::start_secured(exports, |directory| {
        certificates(directory, "server", server, of_clients.unwrap_or(server));
        let file = |name: &str| directory.join(name);
        let authorities = of_clients.map(|_| file("ca-cert.pem"));
        Tls::load(&file("server-cert.pem"), &file("server-key.pem"), authorities.as_deref()).unwrap()
    })
}

/// Copies everything out as the client whose certificates are in `of`.
fn nbdcopy(address: SocketAddr, of: &Path, to: &Path) -> Output {
    let uri = format!("nbds://localhost:{}/{NAME}?tls-certificates={}", address.port(), of.display());
    let output = Command::new("nbdcopy").arg(uri).arg(to).output();
    output.unwrap_or_else(|error| panic!("nbdcopy: {error}; see scripts/install-test-tools"))
}

#[test]
fn nbdcopy_copies_over_tls() {
    let ours = authority();
    let (served, address) = served(&ours, None);
    let (client, target) = (served.directory.path().join("client"), served.directory.path().join("copy"));
    certificates(&client, "client", &ours, &ours);
    let output = nbdcopy(address, &client, &target);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(target).unwrap() == pattern(SIZE_BYTES));
}

#[test]
fn clients_and_servers_that_nobody_signed_for_are_refused() {
    let (ours, others) = (authority(), authority());
    let (served, address) = served(&ours, Some(&ours));
    let place = served.directory.path();
    let cases =
        [("known", &ours, &ours, true), ("unknown", &others, &ours, false), ("wary", &ours, &others, false)];
    for (name, signer, trusted, is_served) in cases {
        certificates(&place.join(name), "client", signer, trusted);
        let output = nbdcopy(address, &place.join(name), &place.join("copy"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_served, "{name}: {said}");
    }
}

#[test]
fn without_tls_nothing_is_told() {
    let (_served, address) = served(&authority(), None);
    let greeted = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        stream
    };
    let ask = |stream: &mut TcpStream, option: u32, data: &[u8]| {
        let length = (data.len() as u32).to_be_bytes();
        stream.write_all(&[b"IHAVEOPT", &option.to_be_bytes()[..], &length, data].concat()).unwrap();
    };
    let mut stream = greeted();
    let mut answer = |option: u32| {
        ask(&mut stream, option, &[]);
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        stream.read_exact(&mut vec![0; word(16) as usize]).unwrap();
        word(12)
    };
    assert_eq!(answer(OPT_LIST), ERR_TLS_REQD);
    assert_eq!(answer(OPT_STARTTLS), REP_ACK);
    // What is no TLS ends the connection.
    stream.write_all(&[0; 64]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.windows(4).any(|bytes| bytes == b"tank"));
    // The option that knows no error ends it too.
    let mut stream = greeted();
    ask(&mut stream, OPT_EXPORT_NAME, NAME.as_bytes());
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}
