//! Certificate authorities: one per lineage, trusted only by the sandboxes of that lineage.

use burrow_model::SecretBytes;
use data_encoding::BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::VaultError;

const LINE_CHARS: usize = 64;

/// A new authority. Its key is to be sealed next, and then dropped.
#[derive(Clone, Debug)]
pub struct MintedAuthority {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// The private key, in PKCS#8.
    pub key: SecretBytes,
}

/// Creates an authority that can sign servers' certificates, but no further authorities.
pub fn mint_authority(lineage: &str) -> Result<MintedAuthority, VaultError> {
    let failed = |source| VaultError::Authority { source };
    let mut key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Burrow");
    name.push(DnType::CommonName, format!("Burrow egress {lineage}"));
    params.distinguished_name = name;
    // Valid as long as its lineage may exist: processes that were hibernated for years must still trust it.
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2099, 12, 31);
    let certificate = params.self_signed(&key).map_err(failed)?.der().to_vec();
    let minted = MintedAuthority { certificate, key: SecretBytes::new(key.serialize_der()) };
    zeroize::Zeroize::zeroize(&mut key);
    Ok(minted)
}

/// The certificate as PEM, as in files of trusted certificates.
pub fn certificate_pem(certificate: &[u8]) -> String {
    let text = BASE64.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Refuses a value that cannot be used as a client certificate.
pub fn check_client_certificate(value: &SecretBytes) -> Result<(), VaultError> {
    let refused = |_| VaultError::ClientCertificate;
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(value.expose()).collect::<Result<_, _>>().map_err(refused)?;
    PrivateKeyDer::from_pem_slice(value.expose()).map_err(refused)?;
    if chain.is_empty() { Err(VaultError::ClientCertificate) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem_of(label: &str, der: &[u8]) -> String {
        certificate_pem(der).replace("CERTIFICATE", label)
    }

    #[test]
    fn an_authority_names_its_lineage_and_never_prints_its_key() {
        let (one, two) = (mint_authority("spc1").unwrap(), mint_authority("spc2").unwrap());
        assert_ne!(one.certificate, two.certificate);
        assert!(one.certificate.windows(4).any(|window| window == b"spc1"));
        let key = KeyPair::try_from(one.key.expose()).unwrap();
        assert!(format!("{one:?}").contains("key: ***"), "{one:?}");
        // It is an authority: another crate reads it as an issuer and signs with it.
        let der = CertificateDer::from(one.certificate.clone());
        assert!(der.len() > 200);
        let leaf = CertificateParams::new(vec!["api.example.com".to_owned()]).unwrap();
        let issuer = rcgen::Issuer::from_params(&leaf, &key);
        assert!(leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).is_ok());
    }

    #[test]
    fn a_certificate_is_formatted_as_pem() {
        let minted = mint_authority("spc1").unwrap();
        let pem = certificate_pem(&minted.certificate);
        assert!(pem.lines().all(|line| line.len() <= LINE_CHARS), "{pem}");
        assert_eq!(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().as_ref(), minted.certificate);
    }

    #[test]
    fn a_client_certificate_has_a_chain_and_a_key() {
        let minted = mint_authority("client").unwrap();
        let chain = certificate_pem(&minted.certificate);
        let key = pem_of("PRIVATE KEY", minted.key.expose());
        let check = |text: &str| check_client_certificate(&SecretBytes::new(text.as_bytes().to_vec()));
        check(&format!("{chain}{key}")).unwrap();
        check(&format!("{key}{chain}{chain}")).unwrap();
        for bad in [chain.as_str(), key.as_str(), "not a certificate", ""] {
            assert!(matches!(check(bad), Err(VaultError::ClientCertificate)), "{bad}");
        }
    }
}
