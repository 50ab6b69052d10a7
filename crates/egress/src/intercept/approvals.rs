//! Requests that wait for somebody's yes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_model::network::{Approve, RequestRule};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::epoch_ms;

/// Requests of one sandbox that may wait at once: more than a person looks at.
const WAITING_MAX: usize = 32;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// By which it is decided, in its sandbox.
    pub number: u64,
    pub rule: String,
    pub approve: Approve,
    pub method: String,
    pub host: String,
    pub port: u16,
    /// Without its query.
    pub path: String,
    /// The secret that would go along.
    pub secret: Option<String>,
    /// Since when, in milliseconds since the epoch.
    pub since_ms: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    Yes,
    /// By somebody, or by an earlier yes to all the rule covers.
    Already,
    No,
    TooLate,
    /// Whoever asked has hung up.
    Gone,
    /// As many wait as may.
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct Approvals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, (Waiting, oneshot::Sender<bool>)>,
    /// Rules that were said yes to for good.
    agreed: Vec<RequestRule>,
}

impl Approvals {
    pub(crate) fn list(&self) -> Vec<Waiting> {
        self.state().waiting.values().map(|(waiting, _)| waiting.clone()).collect()
    }

    /// Says yes or no; `false` when nothing waits by that number.
    pub(crate) fn decide(&self, number: u64, yes: bool) -> bool {
        let Some((_, answer)) = self.state().waiting.remove(&number) else { return false };
        // Whoever waited may have gone this moment, which is as if nothing had waited.
        answer.send(yes).is_ok()
    }

    /// Keeps what was said about rules that are still there.
    pub(crate) fn retain(&self, rules: &[RequestRule]) {
        self.state().agreed.retain(|rule| rules.contains(rule));
    }

    /// Waits for a yes to a request that `rule` covers.
    pub(super) async fn ask(&self, rule: &RequestRule, request: Waiting, patience: Duration) -> Decided {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.agreed.contains(rule) {
                return Decided::Already;
            }
            if state.waiting.len() >= WAITING_MAX {
                return Decided::Full;
            }
            state.next += 1;
            let number = state.next;
            let request = Waiting { number, since_ms: epoch_ms(), ..request };
            state.waiting.insert(number, (request, sender));
            number
        };
        let _forget = Forget { approvals: self, number };
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(true)) => {
                let mut state = self.state();
                if rule.approve == Some(Approve::Session) && !state.agreed.contains(rule) {
                    state.agreed.push(rule.clone());
                }
                Decided::Yes
            }
            Ok(Ok(false) | Err(_)) => Decided::No,
            Err(_) => Decided::TooLate,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a request off the list, however it stopped waiting.
struct Forget<'a> {
    approvals: &'a Approvals,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.approvals.state().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burrow_model::network::{RequestScope, RuleMode};

    use super::*;

    fn rule(approve: Approve) -> RequestRule {
        RequestRule {
            scope: RequestScope::of("api.example".parse().unwrap()),
            mode: RuleMode::Intercept,
            secret: None,
            budget: None,
            approve: Some(approve),
        }
    }

    fn request() -> Waiting {
        Waiting {
            number: 0,
            rule: "r".to_owned(),
            approve: Approve::Once,
            method: "GET".to_owned(),
            host: "api.example".to_owned(),
            port: 443,
            path: "/".to_owned(),
            secret: None,
            since_ms: 0,
        }
    }

    async fn answered(approvals: &Arc<Approvals>, rule: &RequestRule, yes: bool) -> Decided {
        let asking = {
            let (approvals, rule) = (Arc::clone(approvals), rule.clone());
            tokio::spawn(async move { approvals.ask(&rule, request(), Duration::from_secs(30)).await })
        };
        let number = loop {
            if let Some(waiting) = approvals.list().first() {
                break waiting.number;
            }
            tokio::task::yield_now().await;
        };
        assert!(approvals.decide(number, yes));
        assert!(!approvals.decide(number, yes), "it is decided once");
        asking.await.unwrap()
    }

    #[tokio::test]
    async fn a_yes_counts_once_or_for_all_a_rule_covers() {
        let approvals = Arc::new(Approvals::default());
        let (once, session) = (rule(Approve::Once), rule(Approve::Session));
        assert_eq!(answered(&approvals, &once, true).await, Decided::Yes);
        assert_eq!(answered(&approvals, &once, false).await, Decided::No);
        assert_eq!(answered(&approvals, &session, false).await, Decided::No);
        assert_eq!(answered(&approvals, &session, true).await, Decided::Yes);
        let patience = Duration::from_secs(30);
        assert_eq!(approvals.ask(&session, request(), patience).await, Decided::Already);
        approvals.retain(&[]);
        assert_eq!(answered(&approvals, &session, false).await, Decided::No);
        assert_eq!(approvals.list(), []);
    }

    #[tokio::test]
    async fn nobody_waits_forever_and_not_too_many_wait() {
        let approvals = Arc::new(Approvals::default());
        let once = rule(Approve::Once);
        assert_eq!(approvals.ask(&once, request(), Duration::ZERO).await, Decided::TooLate);
        let asking: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let (approvals, once) = (Arc::clone(&approvals), once.clone());
                tokio::spawn(async move { approvals.ask(&once, request(), Duration::from_secs(600)).await })
            })
            .collect();
        while approvals.list().len() < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(approvals.ask(&once, request(), Duration::from_secs(600)).await, Decided::Full);
        for asked in asking {
            asked.abort();
            assert!(asked.await.unwrap_err().is_cancelled());
        }
        assert_eq!(approvals.list(), []);
    }
}
