//! TLS: which clients may connect over TCP, without other parties reading along.
//!
//! A client asks for TLS within the handshake (`NBD_OPT_STARTTLS`); everything after the acknowledgement is
//! encrypted, and the negotiation begins again. If a certificate is configured, TCP serves nothing else:
//! other options are refused until TLS has begun. If certificate authorities for clients are configured, only
//! clients are served whose certificate one of them signed.
//!
//! `rustls` implements the protocol.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// A server's certificate, and the authorities that client certificates need.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads PEM files: the server's certificates, its own first, its private key, and, where only known
    /// clients are to be served, the certificates of the authorities that sign theirs.
    ///
    /// # Errors
    /// When a file cannot be read, holds nothing of the kind, or key and certificate do not belong together.
    pub fn load(certificate: &Path, key: &Path, authorities: Option<&Path>) -> io::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| unusable(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(path, &error))?)
            }
        };
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
        let config = builder.with_single_cert(certificates(certificate)?, secret);
        let config = config.map_err(|error| unusable(certificate, &error))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Begins TLS as its server.
    pub(super) async fn accept<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.0.accept(socket).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| unusable(path, &error))?;
    if all.is_empty() {
        return Err(unusable(path, &"no certificate in it"));
    }
    Ok(all)
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("cannot use {}: {why}", path.display()))
}
