//! Random bytes, and ids made of them.

#![expect(unsafe_code, reason = "getrandom has no safe wrapper among the features this workspace uses")]

/// A new exec id, for processes that the agent starts itself.
pub(super) fn new_id() -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut random = [0u8; 20];
    fill_random(&mut random);
    let mut id = String::from("exe");
    id.extend(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])));
    id
}

/// Random bytes from the kernel.
pub(super) fn fill_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and length are of one live slice.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        filled += usize::try_from(count).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_have_the_form_of_host_ids() {
        let id = new_id();
        assert_eq!(id.len(), 23);
        assert!(id.starts_with("exe"));
        assert!(id[3..].bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte)));
        assert_ne!(id, new_id());
    }
}
