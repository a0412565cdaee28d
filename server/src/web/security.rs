//! TLS: a given certificate, a self-made one, or none.
//!
//! A self-made certificate is made once, and kept beside the cache file, so that browsers that were told to
//! trust it do so later. Its fingerprint is told by `cenote dashboard`, which came by a way that can be
//! trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use ring::digest::{SHA256, digest};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Options;
use crate::accounts;

/// The names of the files with a self-made certificate and its key.
const CERTIFICATE_NAME: &str = "dashboard-certificate.pem";
const KEY_NAME: &str = "dashboard-key.pem";

/// How connections are secured.
#[derive(Clone, Default)]
pub struct Security(Option<Tls>);

#[derive(Clone)]
struct Tls {
    acceptor: TlsAcceptor,
    fingerprint: String,
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Security").field(&self.fingerprint()).finish()
    }
}

impl Security {
    /// What the options ask for: none on this machine only, unless a certificate is given.
    ///
    /// # Errors
    /// A file cannot be used or written, for a person.
    pub fn load(options: &Options) -> Result<Self, String> {
        if let Some((certificate, key)) = &options.certificate {
            return Self::of(&read_certificates(certificate)?, read_key(key)?)
                .map_err(|why| format!("cannot use {}: {why}", certificate.display()));
        }
        let is_local = options.listen.iter().all(|place| place.is_loopback());
        if is_local || options.is_insecure {
            return Ok(Self::default());
        }
        let made = match &options.folder {
            Some(folder) => kept(options, folder)?,
            None => make(options)?,
        };
        let (certificate, key) = made;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
        let certificate = certificate.map_err(|error| format!("the self-made certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|error| format!("the self-made certificate: {error}"))?;
        Self::of(&[certificate], key).map_err(|why| format!("the self-made certificate: {why}"))
    }

    fn of(certificates: &[CertificateDer<'static>], key: PrivateKeyDer<'static>) -> Result<Self, String> {
        let first = certificates.first().ok_or("no certificate in it")?;
        let bytes = digest(&SHA256, first);
        let fingerprint: Vec<String> = bytes.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = builder.with_no_client_auth().with_single_cert(certificates.to_vec(), key);
        let mut config = config.map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self(Some(Tls { acceptor, fingerprint: fingerprint.join(":") })))
    }

    /// Whether TLS is used.
    pub fn has_tls(&self) -> bool {
        self.0.is_some()
    }

    /// The SHA-256 fingerprint of the certificate.
    pub fn fingerprint(&self) -> Option<String> {
        self.0.as_ref().map(|tls| tls.fingerprint.clone())
    }

    /// What begins TLS.
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.as_ref().map(|tls| tls.acceptor.clone())
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|error| format!("cannot use {}: {error}", path.display()))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| format!("cannot use {}: {error}", path.display()))
}

/// The self-made certificate of a folder, with its key. It is made where there is none.
fn kept(options: &Options, folder: &Path) -> Result<(String, String), String> {
    let (certificate, key): (PathBuf, PathBuf) = (folder.join(CERTIFICATE_NAME), folder.join(KEY_NAME));
    if let (Ok(certificate), Ok(key)) = (std::fs::read_to_string(&certificate), std::fs::read_to_string(&key))
    {
        return Ok((certificate, key));
    }
    let made = make(options)?;
    let failed = |path: &Path, error: std::io::Error| format!("cannot write {}: {error}", path.display());
    accounts::replace(&key, made.1.as_bytes()).map_err(|error| failed(&key, error))?;
    accounts::replace(&certificate, made.0.as_bytes()).map_err(|error| failed(&certificate, error))?;
    Ok(made)
}

/// Makes a certificate for the names and addresses of this page, as PEM, with its key.
fn make(options: &Options) -> Result<(String, String), String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let places = options.listen.iter().map(|place| place.host().to_owned());
    let usual = ["localhost", "127.0.0.1", "::1", host.trim()].map(str::to_owned);
    let mut names: Vec<String> = usual.into_iter().chain(places).chain(options.hosts.clone()).collect();
    let is_name = |name: &String| !name.is_empty() && name.is_ascii() && name != "0.0.0.0" && name != "::";
    names.retain(is_name);
    names.sort_unstable();
    names.dedup();
    let failed = |error: rcgen::Error| format!("a certificate cannot be made: {error}");
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Cenote on {}", host.trim()));
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_self_made_certificate_is_kept_and_used_beyond_this_machine() {
        let place = tempfile::tempdir().unwrap();
        let of = |listen: &str| Options {
            listen: vec![listen.parse().unwrap()],
            folder: Some(place.path().to_owned()),
            ..Options::default()
        };
        for local in ["127.0.0.1:0", "[::1]:0", "localhost:0"] {
            assert!(!Security::load(&of(local)).unwrap().has_tls(), "{local}");
        }
        for beyond in ["0.0.0.0:0", "[::]:0", "192.0.2.7:0", "nas:0"] {
            assert!(Security::load(&of(beyond)).unwrap().has_tls(), "{beyond}");
        }
        let first = Security::load(&of("0.0.0.0:0")).unwrap().fingerprint().unwrap();
        assert_eq!(first.len(), 32 * 3 - 1);
        assert_eq!(Security::load(&of("0.0.0.0:0")).unwrap().fingerprint().unwrap(), first);
        let key = std::fs::metadata(place.path().join(KEY_NAME)).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        let insecure = Options { is_insecure: true, ..of("0.0.0.0:0") };
        assert!(!Security::load(&insecure).unwrap().has_tls());
        let missing =
            Options { certificate: Some(("/no/such".into(), "/no/such".into())), ..of("127.0.0.1:0") };
        assert!(Security::load(&missing).unwrap_err().contains("/no/such"));
    }
}
