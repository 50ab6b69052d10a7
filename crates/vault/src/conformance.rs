//! What every sealer keeps to. Each driver's tests call [`check`].

use crate::{DataKey, Sealer};

/// `again` is the same sealer, opened once more; `stranger` one with another key.
///
/// # Panics
/// Where the contract is broken.
pub async fn check(sealer: &dyn Sealer, again: &dyn Sealer, stranger: &dyn Sealer) {
    let (one, two) = (fresh(), fresh());
    let key_id = sealer.key_id();
    assert_eq!(key_id, again.key_id(), "a key keeps its name");
    assert_ne!(key_id, stranger.key_id(), "two keys have two names");
    assert!(sealer.knows(&key_id) && again.knows(&key_id));
    let (first, second) = (wrapped(sealer, &one).await, wrapped(sealer, &two).await);
    assert_ne!(first, second);
    let plain = first.windows(one.expose().len()).any(|window| window == one.expose());
    assert!(!plain, "a wrapped key does not hold the key");
    for opener in [sealer, again] {
        assert_eq!(opener.unwrap(&key_id, &first).await.expect("unwraps"), one);
        assert_eq!(opener.unwrap(&key_id, &first).await.expect("unwraps again"), one);
        assert_eq!(opener.unwrap(&key_id, &second).await.expect("unwraps"), two);
    }
    assert!(stranger.unwrap(&key_id, &first).await.is_err(), "a stranger unwraps nothing");
    assert!(sealer.unwrap("nobody:1", &first).await.is_err(), "a key it does not know");
    assert!(!sealer.knows("nobody:1"));
    let mut changed = first.clone();
    changed[0] ^= 1;
    assert!(sealer.unwrap(&key_id, &changed).await.is_err(), "what was changed does not unwrap");
    assert!(sealer.unwrap(&key_id, b"").await.is_err(), "nothing does not unwrap");
}

fn fresh() -> DataKey {
    DataKey::generate().expect("random bytes")
}

async fn wrapped(sealer: &dyn Sealer, key: &DataKey) -> Vec<u8> {
    sealer.wrap(key).await.expect("wraps")
}
