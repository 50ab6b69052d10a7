//! TLS with the system's certificates and an optional private CA.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_rustls::TlsConnector;

use crate::ClientError;

/// Created once per client, and only for https: reading the system's certificates takes milliseconds.
pub(crate) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, ClientError> {
    let mut roots = RootCertStore::empty();
    // Invalid certificates in the system's store are ignored; without any valid one, the handshake fails.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| ClientError::Tls { source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), ClientError> {
    let read_error = |source| ClientError::CaFile { path: path.to_owned(), source };
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(path).map_err(read_error)? {
        let certificate = certificate.map_err(read_error)?;
        roots
            .add(certificate)
            .map_err(|source| ClientError::CaCertificate { path: path.to_owned(), source })?;
    }
    if roots.len() == before {
        return Err(ClientError::CaEmpty { path: path.to_owned() });
    }
    Ok(())
}
