//! TLS for clients: the certificates of the host, and an optional file of private authorities.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_rustls::TlsConnector;

#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    #[error("could not read the certificates in `{}`", .path.display())]
    File { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("invalid certificate in `{}`", .path.display())]
    Certificate { path: PathBuf, source: rustls::Error },
    #[error("`{}` contains no certificate", .path.display())]
    Empty { path: PathBuf },
    #[error("could not set up TLS")]
    Protocol { source: rustls::Error },
}

/// Trusts the authorities of the host, and those in a PEM file. Reading those of the host takes milliseconds.
pub fn tls_connector(ca_file: Option<&Path>) -> Result<TlsConnector, TlsSetupError> {
    let mut roots = RootCertStore::empty();
    // Invalid certificates in the host's store are ignored; without any valid one, the handshake fails with an error that says so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsSetupError::Protocol { source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsSetupError> {
    let unreadable = |source| TlsSetupError::File { path: path.to_owned(), source };
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        let added = roots.add(certificate.map_err(unreadable)?);
        added.map_err(|source| TlsSetupError::Certificate { path: path.to_owned(), source })?;
    }
    if roots.len() == before {
        return Err(TlsSetupError::Empty { path: path.to_owned() });
    }
    Ok(())
}
