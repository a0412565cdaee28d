//! TLS with a self-made certificate.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{ring::default_provider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};

use crate::harness::{Answer, Browser, LIMIT, Served, exchange};

/// Takes any certificate, and notes its fingerprint, as a person does who compares it.
#[derive(Debug, Default)]
struct Noted(Mutex<String>);

impl ServerCertVerifier for Noted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let bytes = digest(&SHA256, certificate);
        let pairs: Vec<String> = bytes.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        *self.0.lock().unwrap() = pairs.join(":");
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &default_provider().signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &default_provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Sends a request by TLS; the answer, and the fingerprint of the server's certificate.
fn send(browser: &Browser, request: &[u8]) -> (Answer, String) {
    let noted = Arc::new(Noted::default());
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().dangerous();
    let config = config.with_custom_certificate_verifier(Arc::clone(&noted) as _).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(browser.address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let answer = exchange(&mut StreamOwned::new(client, socket), request);
    let fingerprint = noted.0.lock().unwrap().clone();
    (answer, fingerprint)
}

#[test]
fn beyond_this_machine_all_is_encrypted_with_the_certificate_that_was_told() {
    let served = Served::start_with("0.0.0.0:0", |options| options);
    let (link, secret) = served.link();
    assert!(link.url.starts_with("https://127.0.0.1:"), "{}", link.url);
    let address = format!("127.0.0.1:{}", served.address.port()).parse().unwrap();
    let mut browser = Browser::new(address);
    let body = json!({ "link": secret }).to_string();
    let request =
        browser.request("POST", "/sign-in", &[("Content-Type", "application/json")], body.as_bytes());
    let (answer, fingerprint) = send(&browser, &request);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(Some(fingerprint), link.certificate_fingerprint);
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-cenote") && cookie.ends_with("; Secure"), "{cookie}");
    browser.cookie = cookie.split(';').next().map(str::to_owned);
    browser.csrf = answer.json()["csrf"].as_str().map(str::to_owned);
    let request = browser.request("POST", "/v1/hello", &[], b"{}");
    assert_eq!(send(&browser, &request).0.status, 200);
    // Without TLS there is no answer.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = Vec::new();
    std::io::Write::write_all(&mut plain, &request).unwrap();
    let _ = std::io::Read::read_to_end(&mut plain, &mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&bytes));
}
