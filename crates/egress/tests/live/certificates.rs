//! Certificate authorities for the tests, and the certificates that they issue.

use burrow_egress::Authority;
use burrow_model::SecretBytes;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const ECDSA_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len();
    let mut bytes = vec![tag];
    match length {
        0..128 => bytes.push(u8::try_from(length).unwrap()),
        128..256 => bytes.extend([0x81, u8::try_from(length).unwrap()]),
        _ => {
            bytes.push(0x82);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    bytes.extend(content);
    bytes
}

fn name(text: &str) -> Vec<u8> {
    let pair = der(0x30, &[&[0x06, 0x03, 0x55, 0x04, 0x03], &der(0x0c, &[text.as_bytes()])]);
    der(0x30, &[&der(0x31, &[&pair])])
}

fn extension(last: u8, content: &[u8]) -> Vec<u8> {
    der(0x30, &[&[0x06, 0x03, 0x55, 0x1d, last], &der(0x04, &[content])])
}

/// A key pair and its certificate.
pub(crate) struct KeyAndCertificate {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    subject: String,
}

/// Validity of a certificate.
#[derive(Clone, Copy)]
pub(crate) enum Validity {
    Long,
    Over,
}

fn make(
    subject: &str,
    extensions: &[u8],
    valid: Validity,
    issuer: Option<&KeyAndCertificate>,
) -> KeyAndCertificate {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let pair_of =
        |key: &[u8]| EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &random).unwrap();
    let key = document.as_ref().to_vec();
    let own = pair_of(&key);
    let signing = issuer.map_or_else(|| pair_of(&key), |issuer| pair_of(&issuer.key));
    let issuer = issuer.map_or(subject, |issuer| &issuer.subject);
    let algorithm = der(0x30, &[ECDSA_SHA256]);
    let until: &[u8] = match valid {
        Validity::Long => b"491231235959Z",
        Validity::Over => b"210101000000Z",
    };
    let validity = der(0x30, &[&der(0x17, &[b"200101000000Z"]), &der(0x17, &[until])]);
    let point = der(0x03, &[&[0], own.public_key().as_ref()]);
    let spki = der(0x30, &[&der(0x30, &[EC_P256]), &point]);
    let mut serial = [1; 8];
    getrandom::fill(&mut serial[1..]).unwrap();
    let tbs = der(
        0x30,
        &[
            &[0xa0, 3, 2, 1, 2],
            &der(0x02, &[&serial]),
            &algorithm,
            &name(issuer),
            &validity,
            &name(subject),
            &spki,
            &der(0xa3, &[&der(0x30, &[extensions])]),
        ],
    );
    let signature = signing.sign(&random, &tbs).unwrap();
    let certificate = der(0x30, &[&tbs, &algorithm, &der(0x03, &[&[0], signature.as_ref()])]);
    KeyAndCertificate { certificate, key, subject: subject.to_owned() }
}

/// An authority.
pub(crate) fn authority(subject: &str) -> KeyAndCertificate {
    let constraints = der(0x30, &[&[0x01, 0x01, 0xff], &[0x02, 0x01, 0x00]]);
    let extensions =
        [extension(0x13, &constraints), extension(0x0e, &der(0x04, &[subject.as_bytes()]))].concat();
    make(subject, &extensions, Validity::Long, None)
}

impl KeyAndCertificate {
    /// A certificate for a host.
    pub(crate) fn host(&self, host: &str, valid: Validity) -> KeyAndCertificate {
        let names = der(0x30, &[&der(0x82, &[host.as_bytes()])]);
        make(host, &extension(0x11, &names), valid, Some(self))
    }

    pub(crate) fn as_authority(&self) -> Authority {
        Authority { certificate: self.certificate.clone(), key: SecretBytes::new(self.key.clone()) }
    }

    pub(crate) fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        (vec![CertificateDer::from(self.certificate.clone())], key)
    }

    /// Certificate and key in the format of a client certificate secret.
    pub(crate) fn pem(&self) -> String {
        let part = |label: &str, bytes: &[u8]| {
            let text = data_encoding::BASE64.encode(bytes);
            let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
        };
        part("CERTIFICATE", &self.certificate) + &part("PRIVATE KEY", &self.key)
    }
}
