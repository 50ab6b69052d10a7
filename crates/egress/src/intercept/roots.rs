//! The certificates with which hosts are verified.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::SecretBytes;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The system's certificates, and those that were added.
pub(crate) struct Roots {
    pub(super) provider: Arc<CryptoProvider>,
    native: Vec<CertificateDer<'static>>,
    store: Mutex<Arc<RootCertStore>>,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").field("native", &self.native.len()).finish()
    }
}

impl Roots {
    pub(crate) fn new(native: Vec<CertificateDer<'static>>) -> Self {
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        let provider = Arc::new(provider);
        let roots = Self { provider, native, store: Mutex::new(Arc::new(RootCertStore::empty())) };
        roots.set_extra(&[]);
        roots
    }

    /// Trusts these certificates (DER) in addition to the system's own.
    pub(crate) fn set_extra(&self, extra: &[Vec<u8>]) {
        let mut store = RootCertStore::empty();
        let extra = extra.iter().map(|der| CertificateDer::from(der.clone()));
        // An unreadable certificate is skipped; it could not verify any host.
        store.add_parsable_certificates(self.native.iter().cloned().chain(extra));
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(store);
    }

    pub(super) fn config(
        &self,
        identity: Option<&SecretBytes>,
        protocols: Protocols,
    ) -> io::Result<ClientConfig> {
        let store = Arc::clone(&self.store.lock().unwrap_or_else(PoisonError::into_inner));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(store);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let bad =
                    || io::Error::new(io::ErrorKind::InvalidData, "its client certificate is unreadable");
                let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.expose())
                    .collect::<Result<_, _>>()
                    .map_err(|_| bad())?;
                let key = PrivateKeyDer::from_pem_slice(pem.expose()).map_err(|_| bad())?;
                builder.with_client_auth_cert(chain, key).map_err(|_| bad())?
            }
        };
        config.alpn_protocols = match protocols {
            Protocols::Any => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocols::Http1 => vec![b"http/1.1".to_vec()],
        };
        // Sessions are not resumed, so none is shared between secrets (E-S17).
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Preferred first, as in browsers: no other sufficient suite is faster.
fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocols {
    Any,
    /// For a request that upgrades to another protocol.
    Http1,
}
