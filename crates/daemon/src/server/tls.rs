//! Certificate and key: loads them from files, and reloads them on SIGHUP, because certificates expire while daemons
//! run.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::TlsAcceptor;

use burrow_config::TlsFiles;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("could not read the certificate `{}`", .path.display())]
    Certificate { path: PathBuf, source: pem::Error },
    #[error("there is no certificate in `{}`", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("could not read the private key `{}`", .path.display())]
    Key { path: PathBuf, source: pem::Error },
    #[error("certificate and private key do not match")]
    Unsuitable { source: rustls::Error },
}

/// The certificate for handshakes, which can be replaced at runtime.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    shown: Arc<CertificateResolver>,
}

#[derive(Debug)]
struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    pub(crate) fn open(files: &TlsFiles) -> Result<Self, TlsError> {
        let shown = Arc::new(CertificateResolver(RwLock::new(Arc::new(read(files)?))));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Unsuitable { source })?
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), shown })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Uses the current contents of the files for new connections. Invalid files change nothing.
    pub(crate) fn reload(&self, files: &TlsFiles) -> Result<(), TlsError> {
        let read = Arc::new(read(files)?);
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let path = || files.cert.clone();
    let cannot = |source| TlsError::Certificate { path: path(), source };
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(cannot)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path() });
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::Key { path: files.key.clone(), source })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|source| TlsError::Unsuitable { source })
}
