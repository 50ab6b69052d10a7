//! Certificates for hosts, issued by the authority that the sandbox's lineage trusts (E-T9).
//!
//! They are created on demand, only for names that the policy intercepts, and at a limited rate (E-N10). All leaf
//! certificates of a sandbox share one key, which never leaves this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::HostName;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::der::{self, value};
use crate::Authority;
use crate::clock::{epoch_ms, monotonic_ms};
use crate::limits::Bucket;

/// Largest number of cached certificates per sandbox.
const KEPT_MAX: usize = 256;

/// New certificates per second; a burst may be six times as large.
const MINTS_PER_SECOND: u64 = 10;

/// The clock of a sandbox that was hibernated may be behind.
const BEFORE_S: u64 = 24 * 60 * 60;
const VALID_S: u64 = 7 * 24 * 60 * 60;
/// A cached certificate is renewed long before it expires.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// RFC 5280, upper bound of a common name.
const COMMON_NAME_MAX: usize = 64;

const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_KEY: &[u8] = &[0x55, 0x1d, 0x0e];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// The signature schemes of an authority.
const SCHEMES: [(SignatureScheme, &[u8]); 3] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, ECDSA_SHA384),
    (SignatureScheme::ED25519, ED25519),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LeafError {
    #[error("certificates for new hosts exceed the sandbox's rate limit")]
    Rate,
    #[error("the sandbox's authority cannot be used")]
    Authority,
}

/// The TLS server configurations for one sandbox's hosts.
pub(crate) struct LeafConfigs {
    state: Mutex<State>,
}

struct State {
    /// The authority to which the other fields belong.
    certificate: Vec<u8>,
    minter: Option<Minter>,
    kept: HashMap<HostName, (u64, Arc<ServerConfig>)>,
    mints: Bucket,
}

impl fmt::Debug for LeafConfigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeafConfigs")
    }
}

impl LeafConfigs {
    pub(crate) fn new() -> Self {
        let state = State {
            certificate: Vec::new(),
            minter: None,
            kept: HashMap::new(),
            mints: Bucket::new(MINTS_PER_SECOND, monotonic_ms()),
        };
        Self { state: Mutex::new(state) }
    }

    /// Returns the TLS configuration for a hello to `host`.
    pub(super) fn config(
        &self,
        provider: &Arc<CryptoProvider>,
        authority: &Authority,
        host: &HostName,
    ) -> Result<Arc<ServerConfig>, LeafError> {
        let now = monotonic_ms();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.certificate != authority.certificate || state.minter.is_none() {
            state.minter = Some(Minter::new(authority).ok_or(LeafError::Authority)?);
            state.certificate.clone_from(&authority.certificate);
            state.kept.clear();
        }
        if let Some((until, config)) = state.kept.get(host)
            && *until > now
        {
            return Ok(Arc::clone(config));
        }
        if !state.mints.take(now) {
            return Err(LeafError::Rate);
        }
        let minter = state.minter.as_ref().ok_or(LeafError::Authority)?;
        let certified = minter.mint(host, epoch_ms() / 1_000).ok_or(LeafError::Authority)?;
        let config = Arc::new(server_config(provider, certified).ok_or(LeafError::Authority)?);
        if state.kept.len() >= KEPT_MAX {
            state.kept.clear();
        }
        state.kept.insert(host.clone(), (now + KEPT_MS, Arc::clone(&config)));
        Ok(config)
    }
}

fn server_config(provider: &Arc<CryptoProvider>, certified: CertifiedKey) -> Option<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Both ends are on this machine, so the suite that is fastest for the proxy is the fastest for both.
    config.ignore_client_order = true;
    // Sessions are never resumed: every connection is checked from its hello on.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Some(config)
}

/// An authority that can sign, and the key of its leaf certificates.
struct Minter {
    /// The authority's certificate, which is sent with every leaf.
    certificate: CertificateDer<'static>,
    /// The authority's subject, as encoded in its certificate.
    issuer: Vec<u8>,
    /// The identifier of the authority's key, if its certificate contains one.
    issuer_key: Option<Vec<u8>>,
    signing: Arc<dyn SigningKey>,
    leaf: Arc<dyn SigningKey>,
    leaf_public: Vec<u8>,
}

impl Minter {
    fn new(authority: &Authority) -> Option<Self> {
        let (issuer, issuer_key) = subject(&authority.certificate)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(authority.key.expose()));
        let signing = any_supported_type(&key).ok()?;
        let random = ring::rand::SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok()?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).ok()?;
        let leaf =
            any_supported_type(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(document.as_ref()))).ok()?;
        Some(Self {
            certificate: CertificateDer::from(authority.certificate.clone()),
            issuer,
            issuer_key,
            signing,
            leaf,
            leaf_public: pair.public_key().as_ref().to_vec(),
        })
    }

    fn mint(&self, host: &HostName, now_s: u64) -> Option<CertifiedKey> {
        let schemes = SCHEMES.map(|(scheme, _)| scheme);
        let signer = self.signing.choose_scheme(&schemes)?;
        let (_, algorithm) = SCHEMES.iter().find(|(scheme, _)| *scheme == signer.scheme())?;
        let algorithm = value(der::SEQUENCE, &[&value(der::OID, &[algorithm])]);
        let tbs = self.to_be_signed(host, now_s, &algorithm)?;
        let signature = signer.sign(&tbs).ok()?;
        let signature = value(der::BIT_STRING, &[&[0], &signature]);
        let leaf = CertificateDer::from(value(der::SEQUENCE, &[&tbs, &algorithm, &signature]));
        Some(CertifiedKey::new(vec![leaf, self.certificate.clone()], Arc::clone(&self.leaf)))
    }

    fn to_be_signed(&self, host: &HostName, now_s: u64, algorithm: &[u8]) -> Option<Vec<u8>> {
        let mut serial = [0; 16];
        getrandom::fill(&mut serial).ok()?;
        // Positive, and without a leading zero.
        serial[0] = serial[0] & 0x3f | 0x40;
        let validity = value(
            der::SEQUENCE,
            &[&time(now_s.saturating_sub(BEFORE_S)), &time(now_s.saturating_add(VALID_S))],
        );
        let name = host.as_str().as_bytes();
        let subject = match name.len() {
            ..=COMMON_NAME_MAX => {
                let pair = [value(der::OID, &[COMMON_NAME]), value(der::UTF8_STRING, &[name])];
                let pair = value(der::SEQUENCE, &[&pair[0], &pair[1]]);
                value(der::SEQUENCE, &[&value(der::SET, &[&pair])])
            }
            _ => value(der::SEQUENCE, &[]),
        };
        let algorithm_of_key =
            value(der::SEQUENCE, &[&value(der::OID, &[EC_PUBLIC_KEY]), &value(der::OID, &[P256])]);
        let key =
            value(der::SEQUENCE, &[&algorithm_of_key, &value(der::BIT_STRING, &[&[0], &self.leaf_public])]);
        let version = value(0xa0, &[&value(der::INTEGER, &[&[2]])]);
        Some(value(
            der::SEQUENCE,
            &[
                &version,
                &value(der::INTEGER, &[&serial]),
                algorithm,
                &self.issuer,
                &validity,
                &subject,
                &key,
                &self.extensions(name),
            ],
        ))
    }

    fn extensions(&self, name: &[u8]) -> Vec<u8> {
        let names = value(der::SEQUENCE, &[&value(0x82, &[name])]);
        let usage = value(der::SEQUENCE, &[&value(der::OID, &[SERVER_AUTH])]);
        let mut list = vec![
            extension(BASIC_CONSTRAINTS, true, &value(der::SEQUENCE, &[])),
            // Digital signature.
            extension(KEY_USAGE, true, &value(der::BIT_STRING, &[&[7, 0x80]])),
            extension(EXTENDED_USAGE, false, &usage),
            extension(ALTERNATIVE_NAME, name.len() > COMMON_NAME_MAX, &names),
        ];
        if let Some(key) = &self.issuer_key {
            let identifier = value(der::SEQUENCE, &[&value(0x80, &[key])]);
            list.push(extension(AUTHORITY_KEY, false, &identifier));
        }
        let list: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
        value(0xa3, &[&value(der::SEQUENCE, &list)])
    }
}

fn extension(oid: &[u8], critical: bool, content: &[u8]) -> Vec<u8> {
    let flag = if critical { value(der::BOOLEAN, &[&[0xff]]) } else { Vec::new() };
    value(der::SEQUENCE, &[&value(der::OID, &[oid]), &flag, &value(der::OCTET_STRING, &[content])])
}

/// The subject of a certificate and the identifier of its key.
pub(super) fn subject(certificate: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut bytes = certificate;
    let mut certificate = der::expect(&mut bytes, der::SEQUENCE)?.inside;
    let mut tbs = der::expect(&mut certificate, der::SEQUENCE)?.inside;
    // Version, serial number, algorithm, issuer, validity.
    for tag in [0xa0, der::INTEGER, der::SEQUENCE, der::SEQUENCE, der::SEQUENCE] {
        der::expect(&mut tbs, tag)?;
    }
    let subject = der::expect(&mut tbs, der::SEQUENCE)?.whole.to_vec();
    der::expect(&mut tbs, der::SEQUENCE)?;
    let mut key = None;
    while let Some(part) = der::next(&mut tbs) {
        if part.tag == 0xa3 {
            key = subject_key(part.inside);
        }
    }
    Some((subject, key))
}

fn subject_key(mut extensions: &[u8]) -> Option<Vec<u8>> {
    let mut list = der::expect(&mut extensions, der::SEQUENCE)?.inside;
    while let Some(extension) = der::expect(&mut list, der::SEQUENCE) {
        let mut parts = extension.inside;
        if der::expect(&mut parts, der::OID)?.inside == SUBJECT_KEY {
            let mut last = der::next(&mut parts)?;
            if last.tag == der::BOOLEAN {
                last = der::next(&mut parts)?;
            }
            let mut content = last.inside;
            return Some(der::expect(&mut content, der::OCTET_STRING)?.inside.to_vec());
        }
    }
    None
}

/// Encodes a time as certificates do: with a two-digit year until 2049.
fn time(epoch_s: u64) -> Vec<u8> {
    let (days, second) = (epoch_s / 86_400, epoch_s % 86_400);
    // Howard Hinnant's `civil_from_days`, for days after 1970.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let rest = format!("{month:02}{day:02}{:02}{:02}{:02}Z", second / 3_600, second / 60 % 60, second % 60);
    if year < 2_050 {
        value(der::UTC_TIME, &[format!("{:02}{rest}", year % 100).as_bytes()])
    } else {
        value(der::GENERALIZED_TIME, &[format!("{year:04}{rest}").as_bytes()])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use burrow_model::SecretBytes;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::{RootCertStore, crypto};
    use rustls_pki_types::{ServerName, UnixTime};

    use super::*;

    /// Creates an authority as the vault does.
    pub(crate) fn authority() -> Authority {
        let random = ring::rand::SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = document.as_ref();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &random).unwrap();
        let public = pair.public_key().as_ref();
        let oid = |oid: &[u8]| value(der::OID, &[oid]);
        let pair_of = value(der::SEQUENCE, &[&oid(COMMON_NAME), &value(der::UTF8_STRING, &[b"lineage"])]);
        let name = value(der::SEQUENCE, &[&value(der::SET, &[&pair_of])]);
        let algorithm = value(der::SEQUENCE, &[&oid(ECDSA_SHA256)]);
        let of_key = value(der::SEQUENCE, &[&oid(EC_PUBLIC_KEY), &oid(P256)]);
        let spki = value(der::SEQUENCE, &[&of_key, &value(der::BIT_STRING, &[&[0], public])]);
        let validity = value(der::SEQUENCE, &[&time(0), &time(4_000_000_000)]);
        let constraints =
            value(der::SEQUENCE, &[&value(der::BOOLEAN, &[&[0xff]]), &value(der::INTEGER, &[&[0]])]);
        let list = [
            extension(BASIC_CONSTRAINTS, true, &constraints),
            extension(KEY_USAGE, true, &value(der::BIT_STRING, &[&[1, 0x06]])),
            extension(SUBJECT_KEY, false, &value(der::OCTET_STRING, &[&[7; 20]])),
        ]
        .concat();
        let extensions = value(0xa3, &[&value(der::SEQUENCE, &[&list])]);
        let version = value(0xa0, &[&value(der::INTEGER, &[&[2]])]);
        let serial = value(der::INTEGER, &[&[1]]);
        let tbs = value(
            der::SEQUENCE,
            &[&version, &serial, &algorithm, &name, &validity, &name, &spki, &extensions],
        );
        let signature = pair.sign(&random, &tbs).unwrap();
        let signature = value(der::BIT_STRING, &[&[0], signature.as_ref()]);
        let certificate = value(der::SEQUENCE, &[&tbs, &algorithm, &signature]);
        Authority { certificate, key: SecretBytes::new(key.to_vec()) }
    }

    #[test]
    fn a_leaf_is_valid_only_for_its_host_and_under_its_own_authority() {
        let (ours, others) = (authority(), authority());
        let minter = Minter::new(&ours).unwrap();
        let host: HostName = "api.example.com".parse().unwrap();
        let now_s = 1_900_000_000;
        let leaf = minter.mint(&host, now_s).unwrap();
        let verify = |authority: &Authority, name: &str, at_s: u64| {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(authority.certificate.clone())).unwrap();
            let provider = Arc::new(crypto::ring::default_provider());
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at_s));
            verifier.verify_server_cert(&leaf.cert[0], &[], &name, &[], at).is_ok()
        };
        assert!(verify(&ours, "api.example.com", now_s));
        assert!(verify(&ours, "api.example.com", now_s - BEFORE_S + 1));
        assert!(!verify(&ours, "api.example.com", now_s + VALID_S + 1));
        assert!(!verify(&ours, "www.example.com", now_s));
        assert!(!verify(&others, "api.example.com", now_s));
    }

    #[test]
    fn e_n10_certificates_are_cached_and_issued_at_a_limited_rate() {
        let provider = Arc::new(crypto::ring::default_provider());
        let (leaves, authority) = (LeafConfigs::new(), authority());
        let made = |name: &str| leaves.config(&provider, &authority, &name.parse().unwrap());
        let first = made("a.example").unwrap();
        assert!(Arc::ptr_eq(&first, &made("a.example").unwrap()));
        let outcome = (0..1_000).map(|number| made(&format!("n{number}.example"))).find_map(Result::err);
        assert_eq!(outcome, Some(LeafError::Rate));
        let broken = Authority { certificate: vec![1, 2, 3], ..authority.clone() };
        assert_eq!(
            LeafConfigs::new().config(&provider, &broken, &"a.example".parse().unwrap()).unwrap_err(),
            LeafError::Authority
        );
    }

    #[test]
    fn times_are_encoded_as_in_certificates() {
        for (epoch_s, text) in [
            (0, "700101000000Z"),
            (951_782_400, "000229000000Z"),
            (1_900_000_000, "300317174640Z"),
            (2_524_608_000, "20500101000000Z"),
        ] {
            assert_eq!(&time(epoch_s)[2..], text.as_bytes(), "{epoch_s}");
        }
    }
}
