//! Which servers are trusted, and how they know this machine.
//!
//! A server is trusted by an authority, for its name; or by the fingerprint of its certificate and by nothing
//! else, for a server whose certificate no authority vouches for. That the server has the key of its
//! certificate, the handshake proves either way.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use ring::digest::{SHA256, digest};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, WebPkiSupportedAlgorithms};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Bytes of a fingerprint.
const FINGERPRINT_BYTES: usize = 32;

/// SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// That of a certificate.
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = match text.get(..7) {
            Some(prefix) if prefix.eq_ignore_ascii_case("sha256:") => text.get(7..).unwrap_or_default(),
            _ => text,
        };
        let digits: Vec<Option<u32>> = digits.chars().filter(|c| *c != ':').map(|c| c.to_digit(16)).collect();
        let mut bytes = [0; FINGERPRINT_BYTES];
        let is_whole = digits.len() == 2 * FINGERPRINT_BYTES && digits.iter().all(Option::is_some);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let value = pair.iter().flatten().fold(0, |value, digit| value << 4 | digit);
            *byte = u8::try_from(value).unwrap_or_default();
        }
        match is_whole {
            true => Ok(Self(bytes)),
            false => {
                Err("a fingerprint is SHA-256, 64 hexadecimal digits, with colons or without".to_owned())
            }
        }
    }
}

/// The certificate that a server showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Why no authority vouches for it; none where one does.
    pub fault: Option<String>,
}

/// Which servers are trusted, and how they know this machine.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// A file and a folder with authorities; those of the system without both.
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) directory: Option<PathBuf>,
    /// The own certificate and its key.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// The only certificate that is trusted.
    pub(crate) pinned: Option<Fingerprint>,
    /// Any certificate is taken, to be looked at.
    pub(crate) looks: bool,
}

impl Trust {
    /// As the environment of this process says.
    pub fn of_environment() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        Self {
            authorities: path("SSL_CA_CERT_FILE"),
            directory: path("SSL_CA_CERT_PATH"),
            certificate: path("SSL_CLIENT_CERT_FILE"),
            key: path("SSL_CLIENT_KEY_FILE"),
            ..Self::default()
        }
    }

    /// Trusts the certificate with this fingerprint, and nothing else.
    #[must_use]
    pub fn pinned_to(self, fingerprint: Option<Fingerprint>) -> Self {
        Self { pinned: fingerprint, ..self }
    }

    /// Trusts whatever is shown. Nothing secret may be sent.
    #[must_use]
    pub fn only_to_look(self) -> Self {
        Self { looks: true, ..self }
    }

    /// What begins TLS with servers that are trusted.
    ///
    /// # Errors
    /// A file cannot be used, or no authority is found.
    pub fn connector(&self) -> Result<Connector, String> {
        let provider = Arc::new(crypto::ring::default_provider());
        let usual = match self.pinned {
            Some(_) => Err("it has another certificate than the kept one".to_owned()),
            None => self.authorities(&provider),
        };
        let (usual, given, fault) = match usual {
            Ok((usual, given)) => (Some(usual), given, None),
            Err(fault) if self.pinned.is_none() && !self.looks => return Err(fault),
            Err(fault) => (None, None, Some(fault)),
        };
        let presented = Arc::new(Mutex::new(None));
        let verifier = Verifier {
            usual,
            given,
            pinned: self.pinned,
            looks: self.looks,
            fault,
            algorithms: provider.signature_verification_algorithms,
            presented: Arc::clone(&presented),
        };
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let unusable = |file: &Path, why: &dyn fmt::Display| {
                    format!("cannot use {} as this machine's certificate: {why}", file.display())
                };
                let read =
                    CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let certificates = read.map_err(|error| unusable(file, &error))?;
                let key_file = self.key.as_ref().unwrap_or(file);
                let key =
                    PrivateKeyDer::from_pem_file(key_file).map_err(|error| unusable(key_file, &error))?;
                builder.with_client_auth_cert(certificates, key).map_err(|error| unusable(file, &error))?
            }
        };
        Ok(Connector { tls: TlsConnector::from(Arc::new(config)), pinned: self.pinned, presented })
    }

    /// What verifies by authorities, and the certificate that the user gave for a server's own.
    fn authorities(&self, provider: &Arc<CryptoProvider>) -> Result<Authorities, String> {
        let found = match (&self.authorities, &self.directory) {
            (None, None) => rustls_native_certs::load_native_certs(),
            (file, directory) => {
                rustls_native_certs::load_certs_from_paths(file.as_deref(), directory.as_deref())
            }
        };
        let given = match (found.certs.as_slice(), &self.authorities) {
            ([only], Some(_)) => Some(Fingerprint::of(only)),
            _ => None,
        };
        let mut roots = RootCertStore::empty();
        // One bad certificate of a system's must not keep all others from being trusted.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
            let hint = "install ca-certificates, or name a file by SSL_CA_CERT_FILE";
            return Err(format!("no certificate of an authority is found{why} ({hint})"));
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        Ok((usual.build().map_err(|error| error.to_string())?, given))
    }
}

type Authorities = (Arc<WebPkiServerVerifier>, Option<Fingerprint>);

/// Begins TLS with servers that are trusted, and remembers the last certificate that it was shown.
#[derive(Clone)]
pub struct Connector {
    tls: TlsConnector,
    pinned: Option<Fingerprint>,
    presented: Arc<Mutex<Option<Presented>>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("pinned", &self.pinned).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn tls(&self) -> &TlsConnector {
        &self.tls
    }

    /// The certificate that the server showed last.
    pub fn presented(&self) -> Option<Presented> {
        self.presented.lock().ignore_poison().clone()
    }

    /// Why TLS did not begin, with both fingerprints where they differ.
    pub(crate) fn explain(&self, error: String) -> String {
        match (self.pinned, self.presented()) {
            (Some(kept), Some(shown)) if shown.fingerprint != kept => format!(
                "its certificate is not the kept one: either it was replaced, or this is another machine\n  \
                 kept:  {kept}\n  shown: {}",
                shown.fingerprint
            ),
            _ => error,
        }
    }
}

/// Verifies servers by authorities, by the certificate that the user gave, or by a fingerprint. The library
/// takes no certificate of an authority as that of a server, which `openssl req -x509` makes by default.
#[derive(Debug)]
struct Verifier {
    usual: Option<Arc<WebPkiServerVerifier>>,
    given: Option<Fingerprint>,
    pinned: Option<Fingerprint>,
    looks: bool,
    /// Why there is no usual way.
    fault: Option<String>,
    algorithms: WebPkiSupportedAlgorithms,
    presented: Arc<Mutex<Option<Presented>>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let fingerprint = Fingerprint::of(server);
        let verified = match (self.pinned, &self.usual) {
            (Some(pinned), _) if pinned == fingerprint => Ok(ServerCertVerified::assertion()),
            (None, _) if self.given == Some(fingerprint) => Ok(ServerCertVerified::assertion()),
            (None, Some(usual)) => usual.verify_server_cert(server, above, name, ocsp, now),
            _ => Err(rustls::Error::General(self.fault.clone().unwrap_or_default())),
        };
        let fault = verified.as_ref().err().map(ToString::to_string);
        *self.presented.lock().ignore_poison() = Some(Presented { fingerprint, fault });
        match self.looks {
            true => Ok(ServerCertVerified::assertion()),
            false => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, server, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, server, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_and_in_other_forms() {
        let fingerprint = Fingerprint::of(b"certificate");
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 3 * FINGERPRINT_BYTES - 1);
        let bare = text.replace(':', "");
        for form in [text.clone(), bare.clone(), text.to_lowercase(), format!("SHA256:{bare}")] {
            assert_eq!(form.parse(), Ok(fingerprint), "{form}");
        }
        for wrong in ["", "SHA256:", &bare[1..], &format!("{bare}0"), &format!("{bare}x"), &"é".repeat(64)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
