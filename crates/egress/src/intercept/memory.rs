//! Keeps secrets out of swap, as far as this process may (E-S12).

#![expect(unsafe_code, reason = "locking memory has no safe interface")]

use burrow_model::SecretBytes;

use crate::Directives;

/// Asks for the pages of all values to stay in memory. The bytes are cleared when they go; a page that stays locked after
/// that does no harm, and there are only so many.
pub(crate) fn keep_in_ram(directives: &Directives) {
    let keys = directives.authority.iter().map(|authority| &authority.key);
    directives.grants.iter().map(|grant| &grant.value).chain(keys).for_each(lock);
}

fn lock(secret: &SecretBytes) {
    let bytes = secret.expose();
    // SAFETY: the range is that of a live slice, and locking changes nothing in it. That it may not be locked (the limit of
    // this user is used up) is no reason not to serve: a host with swap should encrypt it.
    let _ = unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) };
}
