//! Keeps secrets out of swap, as far as this process is permitted to (E-S12).

#![expect(unsafe_code, reason = "locking memory has no safe interface")]

use burrow_model::SecretBytes;

use crate::Directives;

/// Locks the pages of all secret values in RAM. The bytes are zeroed when they are freed; a page that stays locked
/// afterwards does no harm, and their number is limited.
pub(crate) fn keep_in_ram(directives: &Directives) {
    let keys = directives.authority.iter().map(|authority| &authority.key);
    let values =
        directives.grants.iter().flat_map(|grant| std::iter::once(&grant.value).chain(&grant.former));
    values.chain(keys).for_each(lock);
}

fn lock(secret: &SecretBytes) {
    let bytes = secret.expose();
    // SAFETY: the range is that of a live slice, and locking does not change it. A failure (the user's limit is
    // reached) is ignored: a host with swap should encrypt it.
    let _ = unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) };
}
