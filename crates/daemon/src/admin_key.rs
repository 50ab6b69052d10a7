//! The first key: made when there is none that could make others, or when its file is gone, and written where its
//! owner finds it. Whoever can start the daemon owns all it keeps, so a lost file locks nobody out.
//!
//! The file is complete and synced before the key opens anything, so that no crash leaves a key that nobody knows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::path::Path;

use burrow_catalog::{Catalog, CatalogError, KeySecret, NewKey};
use burrow_model::Scope;

use crate::ServeError;

pub(crate) async fn ensure(catalog: &Catalog, path: &Path, now_ms: u64) -> Result<(), ServeError> {
    let tenant = catalog.default_tenant();
    let key = |source: CatalogError| ServeError::Catalog { source };
    if path.exists() && catalog.usable_admin_keys(&tenant, now_ms).await.map_err(key)? > 0 {
        return Ok(());
    }
    let secret = KeySecret::generate();
    let owner = sudo_user(std::env::var("SUDO_UID").ok(), std::env::var("SUDO_GID").ok());
    write(path, secret.expose(), owner)
        .map_err(|source| ServeError::AdminKey { path: path.to_owned(), source })?;
    let new = NewKey {
        tenant,
        name: "admin".to_owned(),
        scope: Scope::Admin,
        sandbox: None,
        created_ms: now_ms,
        expires_ms: None,
    };
    let row = catalog.create_key_with_secret(new, &secret).await.map_err(key)?;
    tracing::info!(key = %row.id, file = %path.display(), "admin key written");
    Ok(())
}

/// Who called `sudo`, if anybody did.
fn sudo_user(uid: Option<String>, gid: Option<String>) -> Option<(u32, u32)> {
    let uid: u32 = uid?.parse().ok()?;
    Some((uid, gid.and_then(|gid| gid.parse().ok()).unwrap_or(uid)))
}

/// Appears whole, readable for its owner only.
fn write(path: &Path, secret: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    // A left-over of a crash may belong to anybody by now.
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    writeln!(file, "{secret}")?;
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid))?;
    }
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[tokio::test]
    async fn the_first_start_writes_a_key_that_opens_and_later_ones_keep_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etc/admin.key");
        let catalog = Catalog::in_memory().unwrap();
        ensure(&catalog, &path, 1).await.unwrap();
        let secret = fs::read_to_string(&path).unwrap();
        let key = catalog.authenticate(secret.trim(), 2).expect("the written key opens");
        assert_eq!(key.scope, Scope::Admin);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        ensure(&catalog, &path, 3).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), secret);
    }

    #[test]
    fn the_one_who_called_sudo_owns_the_key() {
        assert_eq!(sudo_user(Some("1000".into()), None), Some((1000, 1000)));
        assert_eq!(sudo_user(Some("1000".into()), Some("100".into())), Some((1000, 100)));
        assert_eq!(sudo_user(Some("x".into()), None), None);
        assert_eq!(sudo_user(None, None), None);
    }

    #[test]
    fn a_key_file_is_given_to_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.key");
        let me = rustix::process::getuid().as_raw();
        // Only root can give files away; anybody can give one to themselves.
        let owner = if me == 0 { 12_345 } else { me };
        write(&path, "e2b_x", Some((owner, owner))).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
    }
}
