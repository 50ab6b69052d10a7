//! Certificate and key, from files to an acceptor.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("could not read the certificate `{}`", .path.display())]
    Certificate { path: PathBuf, source: pem::Error },
    #[error("there is no certificate in `{}`", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("could not read the private key `{}`", .path.display())]
    Key { path: PathBuf, source: pem::Error },
    #[error("certificate and private key do not suit")]
    Unsuitable { source: rustls::Error },
}

pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let path = || files.cert.clone();
    let cannot = |source| TlsError::Certificate { path: path(), source };
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(cannot)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path() });
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::Key { path: files.key.clone(), source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|source| TlsError::Unsuitable { source })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
