//! Creates the first admin key: when no key exists that could create others, or when the key file was deleted. Anyone
//! who can start the daemon owns all its data, so a lost file can be created again.
//!
//! The file is written and synced under a temporary name before the key becomes valid, and is renamed afterwards. So a
//! crash leaves neither a valid key that is not in a file, nor a file with an invalid key: the next start finds the
//! temporary file and renames it if its key is valid, or starts again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use burrow_catalog::{Catalog, CatalogError, KeySecret, NewKey};
use burrow_model::Scope;

use crate::error::ServeError;

pub(crate) async fn ensure(catalog: &Catalog, path: &Path, now_ms: u64) -> Result<(), ServeError> {
    let tenant = catalog.default_tenant();
    let key = |source: CatalogError| ServeError::Catalog { source };
    if path.exists() && catalog.usable_admin_keys(&tenant, now_ms).await.map_err(key)? > 0 {
        return Ok(());
    }
    let failed = |source| ServeError::AdminKey { path: path.to_owned(), source };
    let left = fs::read_to_string(partial(path)).unwrap_or_default();
    if catalog.authenticate(left.trim(), now_ms).is_some_and(|key| key.scope == Scope::Admin) {
        return publish(path).map_err(failed);
    }
    let secret = KeySecret::generate();
    let owner = sudo_user(std::env::var("SUDO_UID").ok(), std::env::var("SUDO_GID").ok());
    write(path, secret.expose(), owner).map_err(failed)?;
    let new = NewKey {
        tenant,
        name: "admin".to_owned(),
        scope: Scope::Admin,
        sandbox: None,
        forks: false,
        parent: None,
        created_ms: now_ms,
        expires_ms: None,
    };
    let row = catalog.create_key_with_secret(new, &secret).await.map_err(key)?;
    publish(path).map_err(failed)?;
    tracing::info!(key = %row.id, file = %path.display(), "admin key written");
    Ok(())
}

/// The user who called `sudo`, if any.
fn sudo_user(uid: Option<String>, gid: Option<String>) -> Option<(u32, u32)> {
    let uid: u32 = uid?.parse().ok()?;
    Some((uid, gid.and_then(|gid| gid.parse().ok()).unwrap_or(uid)))
}

/// The temporary name of the file, until its key is valid.
fn partial(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    partial.into()
}

/// Writes the file under its temporary name, readable for its owner only.
fn write(path: &Path, secret: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    let partial = partial(path);
    // A file left over from a crash may have another owner.
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
    File::open(directory)?.sync_all()
}

fn publish(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::rename(partial(path), path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[tokio::test]
    async fn the_first_start_writes_a_valid_key_and_later_starts_keep_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etc/admin.key");
        let catalog = Catalog::in_memory().unwrap();
        ensure(&catalog, &path, 1).await.unwrap();
        let secret = fs::read_to_string(&path).unwrap();
        let key = catalog.authenticate(secret.trim(), 2).expect("the written key is valid");
        assert_eq!(key.scope, Scope::Admin);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        ensure(&catalog, &path, 3).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), secret);
    }

    #[tokio::test]
    async fn a_crash_at_any_point_leaves_no_file_with_an_invalid_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.key");
        let catalog = Catalog::in_memory().unwrap();
        let opens = |secret: &str| catalog.authenticate(secret.trim(), 2).is_some();
        // Another admin key exists: the number of keys does not show whether the key of the file is valid.
        ensure(&catalog, &directory.path().join("other.key"), 1).await.unwrap();
        // A crash before the key was created: the secret in the file was never valid.
        write(&path, KeySecret::generate().expose(), None).unwrap();
        ensure(&catalog, &path, 1).await.unwrap();
        assert!(opens(&fs::read_to_string(&path).unwrap()));
        // A crash after the key was created, before the file was renamed.
        let secret = fs::read_to_string(&path).unwrap();
        fs::rename(&path, partial(&path)).unwrap();
        ensure(&catalog, &path, 1).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), secret);
        assert!(!partial(&path).exists());
    }

    #[test]
    fn the_user_who_called_sudo_owns_the_key() {
        assert_eq!(sudo_user(Some("1000".into()), None), Some((1000, 1000)));
        assert_eq!(sudo_user(Some("1000".into()), Some("100".into())), Some((1000, 100)));
        assert_eq!(sudo_user(Some("x".into()), None), None);
        assert_eq!(sudo_user(None, None), None);
    }

    #[test]
    fn the_key_file_gets_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.key");
        let me = rustix::process::getuid().as_raw();
        // Only root can change the owner of a file to another user; any user can "change" it to itself.
        let owner = if me == 0 { 12_345 } else { me };
        write(&path, "e2b_x", Some((owner, owner))).unwrap();
        publish(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
    }
}
