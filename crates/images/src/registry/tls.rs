//! TLS: the system's certificates, and a file for private authorities.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_rustls::TlsConnector;

use crate::ImageError;

pub(super) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, ImageError> {
    let mut roots = RootCertStore::empty();
    // An invalid certificate in the system's store is ignored; without any, the handshake fails with an error that
    // says so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)
            .map_err(|reason| ImageError::Certificates { path: path.to_owned(), reason })?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| ImageError::Tls { source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    match roots.len() > before {
        true => Ok(()),
        false => Err("it contains no certificate".to_owned()),
    }
}
