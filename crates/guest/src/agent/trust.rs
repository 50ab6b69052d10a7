//! Makes programs inside trust the certificate authority of their lineage, so that the host can intercept their TLS.
//!
//! ```text
//!   /usr/local/share/ca-certificates/burrow-egress.crt   where `update-ca-certificates` finds it, so that it is kept
//!   /etc/ssl/certs/ca-certificates.crt, …                the system's bundles: the authority is added between two marks
//!   /usr/local/share/burrow/ca-bundle.crt                the first bundle and the authority, for SSL_CERT_FILE etc.
//!   /usr/local/share/burrow/truststore.jks               the same for Java, which reads nothing else
//! ```
//!
//! Idempotent: a file that is correct is not written. Missing files are not created (except for Burrow's own), and
//! anything but a regular file of a reasonable size is left unchanged. Only public certificates are handled here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::failure::{fail, invalid};
use super::{identity, truststore};
use crate::protocol::{ErrorCode, RequestError, TRUST_BUNDLE, TRUST_STORE};

const CERTIFICATE: &str = "usr/local/share/ca-certificates/burrow-egress.crt";

/// The bundles of Debian and Alpine, of Fedora, of OpenBSD's LibreSSL, and of Alpine. The first that exists is the
/// base of Burrow's own.
const SYSTEM_BUNDLES: [&str; 4] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/cert.pem",
];

const BEGIN_MARK: &str = "# burrow-egress begin";
const END_MARK: &str = "# burrow-egress end";

/// A bundle of all public authorities is 250 KiB.
const BUNDLE_BYTES_MAX: u64 = 8 << 20;
const CERTIFICATE_BYTES_MAX: usize = 16 * 1024;

/// Trusts a certificate in PEM; with `None`, removes the trusted one.
pub(super) async fn set(certificate: Option<String>) -> Result<(), RequestError> {
    if let Some(pem) = &certificate {
        check(pem)?;
    }
    let work = tokio::task::spawn_blocking(move || set_files(Path::new("/"), certificate.as_deref()));
    let done = work.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
    done.map_err(|error| {
        fail(ErrorCode::Internal, format!("could not change the trusted certificates: {error}"))
    })
}

/// Whether a certificate is trusted already, possibly of another lineage.
pub(super) fn is_set() -> bool {
    Path::new("/").join(CERTIFICATE).exists()
}

fn check(pem: &str) -> Result<(), RequestError> {
    let framed =
        pem.starts_with("-----BEGIN CERTIFICATE-----\n") && pem.ends_with("-----END CERTIFICATE-----\n");
    let plain = pem.bytes().all(|b| b.is_ascii_graphic() || matches!(b, b' ' | b'\n'));
    let one = pem.matches("-----BEGIN").count() == 1;
    if framed && plain && one && pem.len() <= CERTIFICATE_BYTES_MAX {
        return Ok(());
    }
    Err(invalid(format_args!("the certificate to trust must be a single certificate in PEM format")))
}

/// `root` is `/` except in tests.
fn set_files(root: &Path, certificate: Option<&str>) -> io::Result<()> {
    let own = root.join(CERTIFICATE);
    let known = read_bundle(&own)?;
    let Some(pem) = certificate else {
        return if known.is_some() { remove(root, known.as_deref()) } else { Ok(()) };
    };
    // An image that was created from a sandbox may contain the certificate of another lineage.
    let stale = known.as_deref().filter(|known| *known != pem);
    write(&own, pem.as_bytes())?;
    let mut base = None;
    for bundle in SYSTEM_BUNDLES {
        let path = root.join(bundle);
        let Some(found) = read_bundle(&path)? else { continue };
        let wanted = with_certificate(&without_certificate(&found, stale), pem);
        if wanted != found {
            write(&real_path(&path), wanted.as_bytes())?;
        }
        base = base.or(Some(wanted));
    }
    let bundle = base.unwrap_or_else(|| with_certificate("", pem));
    write(&inside(root, TRUST_BUNDLE), bundle.as_bytes())?;
    write(&inside(root, TRUST_STORE), &truststore::of_bundle(&bundle))
}

fn remove(root: &Path, known: Option<&str>) -> io::Result<()> {
    for bundle in SYSTEM_BUNDLES {
        let path = root.join(bundle);
        let Some(found) = read_bundle(&path)? else { continue };
        let wanted = without_certificate(&found, known);
        if wanted != found {
            write(&real_path(&path), wanted.as_bytes())?;
        }
    }
    // Running programs have Burrow's bundle in their environment, so it stays, with the present content of the
    // system's bundle.
    let base = SYSTEM_BUNDLES.iter().find_map(|bundle| read_bundle(&root.join(bundle)).ok().flatten());
    let base = base.unwrap_or_default();
    write(&inside(root, TRUST_BUNDLE), base.as_bytes())?;
    write(&inside(root, TRUST_STORE), &truststore::of_bundle(&base))?;
    fs::remove_file(root.join(CERTIFICATE))
}

/// The bundle with a certificate added between marks, unless it contains it already.
fn with_certificate(bundle: &str, pem: &str) -> String {
    let bundle = without_certificate(bundle, None);
    if bundle.contains(pem.trim_end()) {
        return bundle;
    }
    let line = if bundle.is_empty() || bundle.ends_with('\n') { "" } else { "\n" };
    format!("{bundle}{line}{BEGIN_MARK}\n{pem}{END_MARK}\n")
}

/// The bundle without the part between the marks, and without a certificate that a tool copied into it.
fn without_certificate(bundle: &str, known: Option<&str>) -> String {
    let mut kept = String::with_capacity(bundle.len());
    let mut rest = bundle;
    while let Some(begin) = rest.find(BEGIN_MARK) {
        let Some(length) = rest[begin..].find(END_MARK) else { break };
        kept.push_str(&rest[..begin]);
        rest = rest[begin + length + END_MARK.len()..].trim_start_matches('\n');
    }
    kept.push_str(rest);
    match known {
        Some(known) if kept.contains(known) => kept.replace(known, ""),
        _ => kept,
    }
}

/// The text of a regular file; `None` for anything else, and if it does not exist.
fn read_bundle(path: &Path) -> io::Result<Option<String>> {
    // Opening must not wait for a FIFO.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(_) => return Ok(None),
    };
    let about = file.metadata()?;
    if !about.is_file() || about.len() > BUNDLE_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(BUNDLE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok())
}

/// The real path of a file: links are kept, and their target is replaced.
fn real_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Replaces a file, unless it has this content already.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == content.len() as u64)
        && fs::read(path).is_ok_and(|found| found == content)
    {
        return Ok(());
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(directory)?;
    let directory = File::open(directory)?;
    Ok(identity::replace(directory.as_fd(), name, content, 0o644)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const OURS: &str = "-----BEGIN CERTIFICATE-----\nMAAB\n-----END CERTIFICATE-----\n";
    const OTHER: &str = "-----BEGIN CERTIFICATE-----\nMAAC\n-----END CERTIFICATE-----\n";
    const DEBIAN: &str = "etc/ssl/certs/ca-certificates.crt";

    fn machine(bundle: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/ssl/certs")).unwrap();
        if let Some(bundle) = bundle {
            fs::write(root.path().join(DEBIAN), bundle).unwrap();
        }
        root
    }

    fn read(root: &tempfile::TempDir, path: &str) -> String {
        fs::read_to_string(inside(root.path(), path)).unwrap()
    }

    #[test]
    fn a_certificate_is_added_once_to_every_bundle() {
        let root = machine(Some(ONE));
        symlink("certs/ca-certificates.crt", root.path().join("etc/ssl/cert.pem")).unwrap();
        for _ in 0..3 {
            set_files(root.path(), Some(OURS)).unwrap();
        }
        assert_eq!(read(&root, CERTIFICATE), OURS);
        let bundle = format!("{ONE}{BEGIN_MARK}\n{OURS}{END_MARK}\n");
        for path in [DEBIAN, "etc/ssl/cert.pem", TRUST_BUNDLE] {
            assert_eq!(read(&root, path), bundle, "{path}");
        }
        assert!(fs::symlink_metadata(root.path().join("etc/ssl/cert.pem")).unwrap().is_symlink());
        let store = fs::read(inside(root.path(), TRUST_STORE)).unwrap();
        assert!(store.starts_with(&[0xfe, 0xed, 0xfe, 0xed]));
    }

    #[test]
    fn correct_files_are_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;
        let root = machine(Some(ONE));
        set_files(root.path(), Some(OURS)).unwrap();
        let inode = |path: &str| fs::metadata(inside(root.path(), path)).unwrap().ino();
        let before: Vec<u64> = [DEBIAN, CERTIFICATE, TRUST_BUNDLE, TRUST_STORE].map(inode).to_vec();
        set_files(root.path(), Some(OURS)).unwrap();
        assert_eq!([DEBIAN, CERTIFICATE, TRUST_BUNDLE, TRUST_STORE].map(inode).to_vec(), before);
    }

    #[test]
    fn a_bundle_regenerated_with_the_certificate_is_unchanged() {
        let made = format!("{ONE}{OURS}");
        let root = machine(Some(&made));
        set_files(root.path(), Some(OURS)).unwrap();
        assert_eq!(read(&root, DEBIAN), made);
        assert_eq!(read(&root, TRUST_BUNDLE), made);
    }

    #[test]
    fn the_authority_of_another_lineage_is_replaced() {
        let root = machine(Some(ONE));
        set_files(root.path(), Some(OTHER)).unwrap();
        fs::write(root.path().join(DEBIAN), format!("{ONE}{OTHER}")).unwrap();
        set_files(root.path(), Some(OURS)).unwrap();
        for path in [DEBIAN, CERTIFICATE, TRUST_BUNDLE] {
            assert!(!read(&root, path).contains("MAAC"), "{path}");
            assert!(read(&root, path).contains("MAAB"), "{path}");
        }
    }

    #[test]
    fn removing_the_certificate_restores_the_files() {
        let root = machine(Some(ONE));
        set_files(root.path(), None).unwrap();
        assert!(!inside(root.path(), TRUST_BUNDLE).exists(), "nothing to remove, nothing changed");
        set_files(root.path(), Some(OURS)).unwrap();
        set_files(root.path(), None).unwrap();
        assert_eq!(read(&root, DEBIAN), ONE);
        assert_eq!(read(&root, TRUST_BUNDLE), ONE);
        assert!(!root.path().join(CERTIFICATE).exists());
    }

    #[test]
    fn a_system_without_certificates_gets_a_bundle_and_irregular_files_are_unchanged() {
        let root = machine(None);
        fs::create_dir_all(root.path().join(DEBIAN)).unwrap();
        set_files(root.path(), Some(OURS)).unwrap();
        assert!(root.path().join(DEBIAN).is_dir());
        assert_eq!(read(&root, TRUST_BUNDLE), format!("{BEGIN_MARK}\n{OURS}{END_MARK}\n"));
    }

    #[test]
    fn only_a_single_pem_certificate_is_accepted() {
        assert!(check(OURS).is_ok());
        let two = format!("{OURS}{OURS}");
        let key = OURS.replace("CERTIFICATE", "PRIVATE KEY");
        for bad in [
            "",
            "MAAB",
            two.as_str(),
            key.as_str(),
            "-----BEGIN CERTIFICATE-----\n\u{7}-----END CERTIFICATE-----\n",
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }
}
