//! The tokens that were handed out to E2B's clients. A signed address without a sandbox is compared with these only.
//!
//! A signature is a hash of the token and does not identify it, so each candidate has to be tried. Such requests need
//! no key, so the number of candidates must not depend on the number of sandboxes: only the newest tokens are kept and
//! tried. A token that was revoked, or whose sandbox was deleted, is removed.
//!
//! Nothing is stored. After a start of the daemon, the first lookup adds the tokens of the newest leases, once.

use burrow_http::app::{App, Part};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_model::SandboxId;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::e2b::tokens::SignedAddress;

/// Maximum number of tokens, and of tries for one signed address.
pub const TOKENS_MAX: usize = 1000;

/// How many tokens are removed at once when there are too many, so that the search for invalid ones is rare.
const DROPPED_AT_ONCE: usize = TOKENS_MAX / 10;

/// Maximum number of waiting lookups. A lookup requires no API key, so one runs at a time, on its own thread, and few
/// may wait.
const LOOKUPS_MAX: usize = 16;

/// How many of them may come from one address, so that a flood of invalid addresses from one client does not keep out others.
const LOOKUPS_PER_PEER_MAX: usize = LOOKUPS_MAX / 2;

/// Lookups of the sandboxes of signed addresses.
#[derive(Debug)]
pub struct Lookups {
    by_peer: Mutex<HashMap<Option<IpAddr>, usize>>,
    places: Semaphore,
    pub running: Semaphore,
    /// Set when the tokens from before the start of this daemon were added.
    pub refilled: OnceCell<()>,
    tokens: Mutex<HandedOutTokens>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            by_peer: Mutex::default(),
            places: Semaphore::new(LOOKUPS_MAX),
            running: Semaphore::new(1),
            refilled: OnceCell::new(),
            tokens: Mutex::default(),
        }
    }
}

impl Part for Lookups {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Lookups {
    /// A place for a lookup; `None` if too many wait, in total or from this address.
    pub fn place(&self, peer: Option<IpAddr>) -> Option<LookupPlace<'_>> {
        let permit = self.places.try_acquire().ok()?;
        let mut by_peer = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        let own = by_peer.entry(peer).or_default();
        if *own >= LOOKUPS_PER_PEER_MAX {
            return None;
        }
        *own += 1;
        Some(LookupPlace { lookups: self, peer, _permit: permit })
    }

    pub fn tokens(&self) -> MutexGuard<'_, HandedOutTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the tokens of a sandbox when they are revoked.
    pub fn forget(&self, sandbox: &SandboxId) {
        self.tokens().remove(sandbox);
    }

    /// Number of signatures that were computed to find sandboxes of addresses.
    pub fn tries(&self) -> u64 {
        self.tokens().tries
    }
}

/// The right to wait for a lookup.
#[derive(Debug)]
pub struct LookupPlace<'a> {
    lookups: &'a Lookups,
    peer: Option<IpAddr>,
    _permit: SemaphorePermit<'a>,
}

impl Drop for LookupPlace<'_> {
    fn drop(&mut self) {
        let mut by_peer = self.lookups.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        let left = by_peer.get(&self.peer).map_or(0, |own| own.saturating_sub(1));
        if left == 0 {
            by_peer.remove(&self.peer);
        } else {
            by_peer.insert(self.peer, left);
        }
    }
}

/// A token and its generation.
#[derive(Clone, PartialEq, Eq)]
pub struct HandedOutToken {
    pub generation: u64,
    pub token: String,
}

impl std::fmt::Debug for HandedOutToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandedOutToken").field("generation", &self.generation).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub struct HandedOutTokens {
    /// With the position of each in the order in which they were handed out; negative positions are from before the
    /// start of this daemon.
    by_sandbox: HashMap<SandboxId, (i64, HandedOutToken)>,
    next: i64,
    /// Number of signatures computed so far.
    tries: u64,
}

impl HandedOutTokens {
    /// Adds a token as the newest. If there are too many, invalid ones are removed first, then the oldest.
    pub fn insert(
        &mut self,
        sandbox: &SandboxId,
        handed: HandedOutToken,
        is_good: impl Fn(&SandboxId, &HandedOutToken) -> bool,
    ) {
        if self.by_sandbox.len() >= TOKENS_MAX && !self.by_sandbox.contains_key(sandbox) {
            self.by_sandbox.retain(|id, (_, handed)| is_good(id, handed));
            let mut places: Vec<i64> = self.by_sandbox.values().map(|(place, _)| *place).collect();
            let excess = (places.len() + DROPPED_AT_ONCE).saturating_sub(TOKENS_MAX);
            if excess > 0 {
                places.sort_unstable();
                let oldest = places[excess - 1];
                self.by_sandbox.retain(|_, (place, _)| *place > oldest);
            }
        }
        self.next += 1;
        self.by_sandbox.insert(sandbox.clone(), (self.next, handed));
    }

    /// Adds tokens from before the start of this daemon, newest first, until the limit. Existing ones stay.
    pub fn refill(&mut self, older: Vec<(SandboxId, HandedOutToken)>) {
        for (back, (sandbox, handed)) in (1_i64..).zip(older) {
            if self.by_sandbox.len() >= TOKENS_MAX {
                return;
            }
            self.by_sandbox.entry(sandbox).or_insert((-back, handed));
        }
    }

    /// The sandbox whose token an address was signed with, and that token.
    pub fn signed_by(&mut self, signed: &SignedAddress) -> Option<(SandboxId, HandedOutToken)> {
        let mut tries = 0;
        let found = self.by_sandbox.iter().find(|(_, (_, handed))| {
            tries += 1;
            signed.is_by(&handed.token)
        });
        let found = found.map(|(id, (_, handed))| (id.clone(), handed.clone()));
        self.tries += tries;
        found
    }

    pub fn remove(&mut self, sandbox: &SandboxId) {
        self.by_sandbox.remove(sandbox);
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;

    use super::*;

    fn handed(number: usize) -> HandedOutToken {
        HandedOutToken { generation: 0, token: format!("token-{number}") }
    }

    fn signed_with(token: &str) -> SignedAddress {
        let words = format!("/x:read:user:{token}");
        let hash = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
        SignedAddress {
            path: "/x".into(),
            operation: "read",
            user: "user".into(),
            expires: None,
            signature: format!("v1_{}", STANDARD_NO_PAD.encode(hash)),
        }
    }

    #[test]
    fn one_client_leaves_lookups_to_others() {
        let lookups = Lookups::default();
        let (one, other) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let flood: Vec<_> = std::iter::from_fn(|| lookups.place(one)).collect();
        assert_eq!(flood.len(), LOOKUPS_PER_PEER_MAX);
        let good = lookups.place(other);
        assert!(good.is_some());
        drop(flood);
        assert!(lookups.place(one).is_some());
        drop(good);
        assert!(lookups.by_peer.lock().unwrap().is_empty());
    }

    #[test]
    fn an_address_is_tried_with_a_limited_number_of_tokens() {
        let mut tokens = HandedOutTokens::default();
        let ids: Vec<SandboxId> = (0..20_000).map(|_| SandboxId::generate()).collect();
        for (number, id) in ids.iter().enumerate() {
            tokens.insert(id, handed(number), |_, _| true);
            assert!(tokens.by_sandbox.len() <= TOKENS_MAX);
        }
        assert_eq!(tokens.signed_by(&signed_with("nobody's")), None);
        assert!(tokens.tries <= TOKENS_MAX as u64, "{} tries", tokens.tries);
        // The newest tokens are kept, the oldest removed.
        let newest = ids.len() - 1;
        let found = tokens.signed_by(&signed_with(&format!("token-{newest}"))).unwrap();
        assert_eq!(found, (ids[newest].clone(), handed(newest)));
        assert!(tokens.signed_by(&signed_with(&format!("token-{}", ids.len() - 800))).is_some());
        assert_eq!(tokens.signed_by(&signed_with("token-0")), None);
    }

    #[test]
    fn invalid_tokens_are_removed_first() {
        let mut tokens = HandedOutTokens::default();
        let ids: Vec<SandboxId> = (0..TOKENS_MAX).map(|_| SandboxId::generate()).collect();
        for (number, id) in ids.iter().enumerate() {
            tokens.insert(id, handed(number), |_, _| true);
        }
        let oldest = ids[0].clone();
        tokens.insert(&SandboxId::generate(), handed(TOKENS_MAX), |id, _| *id == oldest);
        assert_eq!(tokens.by_sandbox.len(), 2, "the oldest, which is valid, and the new one");
        tokens.remove(&oldest);
        assert_eq!(tokens.signed_by(&signed_with("token-0")), None);
    }

    #[test]
    fn tokens_from_before_a_start_replace_no_newer_ones() {
        let mut tokens = HandedOutTokens::default();
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        tokens.insert(&one, handed(1), |_, _| true);
        let mut older = vec![(one.clone(), handed(7)), (other.clone(), handed(2))];
        older.extend((0..2 * TOKENS_MAX).map(|number| (SandboxId::generate(), handed(10 + number))));
        tokens.refill(older);
        assert_eq!(tokens.by_sandbox.len(), TOKENS_MAX);
        assert_eq!(tokens.by_sandbox[&one].1, handed(1), "newer tokens stay");
        assert_eq!(tokens.by_sandbox[&other].1, handed(2));
    }
}
