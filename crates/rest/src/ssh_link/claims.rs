//! Claims of public keys that were added by another API key. A login proves possession.
//!
//! ```text
//!   POST /v1/ssh/keys ─► 409, with a code ─► ssh claim+CODE@host, with that key ─► the key belongs to the claimant
//! ```
//!
//! Adding a public key requires no proof of the private key, so the first client that adds one may not be its owner. A
//! login with the code is such a proof, and identifies the claiming API key. Claims are kept in RAM: after a restart of
//! the daemon the client adds the key again, and gets another code.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_catalog::SshKeyRow;

/// Validity of a code.
pub const LIFE_MS: u64 = 10 * 60 * 1000;

/// Maximum number of claims. Beyond it, the oldest is dropped.
const CLAIMS_MAX: usize = 1024;

/// Maximum number of claims of one API key.
const CLAIMS_OF_KEY_MAX: usize = 16;

#[derive(Debug, Default)]
pub struct Claims {
    by_code: Mutex<HashMap<String, Claim>>,
}

#[derive(Debug)]
struct Claim {
    /// The row that is stored when possession is proven.
    row: SshKeyRow,
    expires_ms: u64,
}

impl Claims {
    /// Adds a claim, and returns its code. An earlier claim of the same API key for the same public key is dropped.
    pub fn begin(&self, row: SshKeyRow, now_ms: u64) -> String {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the kernel's random generator is available");
        let code = format!("{:032x}", u128::from_le_bytes(bytes));
        let mut claims = self.lock();
        claims.retain(|_, claim| {
            let same = claim.row.api_key == row.api_key && claim.row.fingerprint == row.fingerprint;
            claim.expires_ms > now_ms && !same
        });
        let of_key = claims.values().filter(|claim| claim.row.api_key == row.api_key).count();
        if of_key >= CLAIMS_OF_KEY_MAX {
            drop_oldest(&mut claims, |claim| claim.row.api_key == row.api_key);
        }
        if claims.len() >= CLAIMS_MAX {
            drop_oldest(&mut claims, |_| true);
        }
        claims.insert(code.clone(), Claim { row, expires_ms: now_ms.saturating_add(LIFE_MS) });
        code
    }

    /// The claim with this code, if it is for the public key of the login. A code is valid for one login.
    pub fn prove(&self, code: &str, fingerprint: &str, now_ms: u64) -> Option<SshKeyRow> {
        let mut claims = self.lock();
        let claim = claims.get(code)?;
        if claim.row.fingerprint != fingerprint || claim.expires_ms <= now_ms {
            return None;
        }
        claims.remove(code).map(|claim| claim.row)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Claim>> {
        self.by_code.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn drop_oldest(claims: &mut HashMap<String, Claim>, of: impl Fn(&Claim) -> bool) {
    let oldest = claims.iter().filter(|(_, claim)| of(claim)).min_by_key(|(_, claim)| claim.expires_ms);
    if let Some(code) = oldest.map(|(code, _)| code.clone()) {
        claims.remove(&code);
    }
}

#[cfg(test)]
mod tests {
    use burrow_model::{KeyId, SshKeyId, TenantId};

    use super::*;

    fn row(api_key: &KeyId, fingerprint: &str) -> SshKeyRow {
        SshKeyRow {
            id: SshKeyId::generate(),
            tenant: TenantId::generate(),
            api_key: api_key.clone(),
            name: String::new(),
            public_key: "ssh-ed25519 AAAA".to_owned(),
            fingerprint: fingerprint.to_owned(),
            created_ms: 1,
            last_used_ms: None,
        }
    }

    #[test]
    fn a_code_is_valid_once_for_its_public_key_and_for_ten_minutes() {
        let (claims, key) = (Claims::default(), KeyId::generate());
        let code = claims.begin(row(&key, "SHA256:one"), 1000);
        assert!(claims.prove(&code, "SHA256:two", 1000).is_none(), "another key was used");
        assert!(claims.prove("0000", "SHA256:one", 1000).is_none());
        assert!(claims.prove(&code, "SHA256:one", 1000 + LIFE_MS).is_none(), "too late");
        assert_eq!(claims.prove(&code, "SHA256:one", 999 + LIFE_MS).unwrap().api_key, key);
        assert!(claims.prove(&code, "SHA256:one", 1000).is_none(), "used");
        let first = claims.begin(row(&key, "SHA256:one"), 1000);
        let second = claims.begin(row(&key, "SHA256:one"), 1000);
        assert!(claims.prove(&first, "SHA256:one", 1000).is_none(), "replaced");
        assert!(claims.prove(&second, "SHA256:one", 1000).is_some());
    }

    #[test]
    fn claims_are_limited_per_key_and_in_total() {
        let (claims, greedy, other) = (Claims::default(), KeyId::generate(), KeyId::generate());
        let kept = claims.begin(row(&other, "SHA256:other"), 1);
        for number in 0..100 {
            claims.begin(row(&greedy, &format!("SHA256:{number}")), 2);
        }
        assert_eq!(claims.lock().len(), CLAIMS_OF_KEY_MAX + 1);
        assert!(claims.prove(&kept, "SHA256:other", 3).is_some(), "others are not dropped");
        for number in 0..2 * CLAIMS_MAX {
            claims.begin(row(&KeyId::generate(), &format!("SHA256:{number}")), 3);
        }
        assert_eq!(claims.lock().len(), CLAIMS_MAX);
    }
}
