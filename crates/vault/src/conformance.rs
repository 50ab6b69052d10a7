//! The conformance suite of sealers. Each driver's tests call [`check`].

use crate::{DataKey, Sealer};

/// Checks the contract of [`Sealer`]. `again` is the same sealer, opened once more; `stranger` has another key.
///
/// # Panics
/// If the contract is violated.
pub async fn check(sealer: &dyn Sealer, again: &dyn Sealer, stranger: &dyn Sealer) {
    let (one, two) = (fresh(), fresh());
    let key_id = sealer.key_id();
    assert_eq!(key_id, again.key_id(), "a key keeps its id");
    assert_ne!(key_id, stranger.key_id(), "two keys have different ids");
    assert!(sealer.knows(&key_id) && again.knows(&key_id));
    let (first, second) = (wrapped(sealer, &one).await, wrapped(sealer, &two).await);
    assert_ne!(first, second);
    let plain = first.windows(one.expose().len()).any(|window| window == one.expose());
    assert!(!plain, "a wrapped key does not contain the key");
    for opener in [sealer, again] {
        assert_eq!(opener.unwrap(&key_id, &first).await.expect("unwraps"), one);
        assert_eq!(opener.unwrap(&key_id, &first).await.expect("unwraps again"), one);
        assert_eq!(opener.unwrap(&key_id, &second).await.expect("unwraps"), two);
    }
    assert!(stranger.unwrap(&key_id, &first).await.is_err(), "another key unwraps nothing");
    assert!(sealer.unwrap("nobody:1", &first).await.is_err(), "an unknown key");
    assert!(!sealer.knows("nobody:1"));
    let mut changed = first.clone();
    changed[0] ^= 1;
    assert!(sealer.unwrap(&key_id, &changed).await.is_err(), "a modified key does not unwrap");
    assert!(sealer.unwrap(&key_id, b"").await.is_err(), "an empty key does not unwrap");
}

fn fresh() -> DataKey {
    DataKey::generate().expect("random bytes")
}

async fn wrapped(sealer: &dyn Sealer, key: &DataKey) -> Vec<u8> {
    sealer.wrap(key).await.expect("wraps")
}
