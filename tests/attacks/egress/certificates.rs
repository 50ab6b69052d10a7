//! The certificates of the island's hosts, valid and invalid, and the client certificates they require.

use std::sync::Arc;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate authority of the test.
pub(crate) struct Authority {
    params: CertificateParams,
    key: KeyPair,
    certificate: Vec<u8>,
}

/// A certificate with its key.
pub(crate) struct CertificateWithKey {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// A period of validity.
#[derive(Clone, Copy)]
pub(crate) enum Validity {
    Long,
    Over,
}

fn params(subject: &str, names: &[&str], valid: Validity) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, subject);
    params.distinguished_name = name;
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = match valid {
        Validity::Long => rcgen::date_time_ymd(2049, 1, 1),
        Validity::Over => rcgen::date_time_ymd(2021, 1, 1),
    };
    params
}

impl Authority {
    pub(crate) fn new(subject: &str) -> Self {
        let mut params = params(subject, &[], Validity::Long);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        Self { params, key, certificate }
    }

    pub(crate) fn certifies(&self, names: &[&str], valid: Validity) -> CertificateWithKey {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params(names[0], names, valid).signed_by(&key, &issuer).unwrap();
        CertificateWithKey { certificate: certificate.der().to_vec(), key: key.serialize_der() }
    }

    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.certificate.clone())).unwrap();
        roots
    }
}

impl CertificateWithKey {
    pub(crate) fn by_itself(names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names[0], names, Validity::Long).self_signed(&key).unwrap();
        Self { certificate: certificate.der().to_vec(), key: key.serialize_der() }
    }

    /// Certificate and key, in the format of a secret.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate) + &pem("PRIVATE KEY", &self.key)
    }

    /// For a server that presents it, and requires a certificate of one of `clients` if there are any.
    pub(crate) fn server(&self, protocols: &[&str], clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let roots = Arc::new(authority.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = vec![CertificateDer::from(self.certificate.clone())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
