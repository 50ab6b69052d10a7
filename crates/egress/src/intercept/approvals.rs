//! Requests that wait for approval.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_model::network::{Approve, RequestRule};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::epoch_ms;

/// Largest number of requests of one sandbox that may wait: more than a person can review.
const WAITING_MAX: usize = 32;

/// A request that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// Identifies the request within its sandbox.
    pub number: u64,
    pub rule: String,
    pub approve: Approve,
    pub method: String,
    pub host: String,
    pub port: u16,
    /// Without the query.
    pub path: String,
    /// The secret that would be inserted.
    pub secret: Option<String>,
    /// When it started to wait, in milliseconds since the epoch.
    pub since_ms: u64,
}

/// The outcome of a request for approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApprovalOutcome {
    Yes,
    /// Approved, by another client or by an earlier approval of the whole rule.
    Already,
    No,
    TooLate,
    /// The program has closed its connection.
    Gone,
    /// Too many requests wait already.
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct Approvals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, (PendingApproval, oneshot::Sender<bool>)>,
    /// Rules that were approved for all requests they cover.
    agreed: Vec<RequestRule>,
}

impl Approvals {
    pub(crate) fn list(&self) -> Vec<PendingApproval> {
        self.state().waiting.values().map(|(waiting, _)| waiting.clone()).collect()
    }

    /// Approves or rejects a request; `false` if no request with this number waits.
    pub(crate) fn decide(&self, number: u64, yes: bool) -> bool {
        let Some((_, answer)) = self.state().waiting.remove(&number) else { return false };
        // The program may have disconnected just now; then the answer is as if no request had waited.
        answer.send(yes).is_ok()
    }

    /// Keeps the approvals of rules that still exist.
    pub(crate) fn retain(&self, rules: &[RequestRule]) {
        self.state().agreed.retain(|rule| rules.contains(rule));
    }

    /// Waits for the approval of a request that `rule` covers.
    pub(super) async fn ask(
        &self,
        rule: &RequestRule,
        request: PendingApproval,
        patience: Duration,
    ) -> ApprovalOutcome {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.agreed.contains(rule) {
                return ApprovalOutcome::Already;
            }
            if state.waiting.len() >= WAITING_MAX {
                return ApprovalOutcome::Full;
            }
            state.next += 1;
            let number = state.next;
            let request = PendingApproval { number, since_ms: epoch_ms(), ..request };
            state.waiting.insert(number, (request, sender));
            number
        };
        let _forget = RemoveOnDrop { approvals: self, number };
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(true)) => {
                let mut state = self.state();
                if rule.approve == Some(Approve::Session) && !state.agreed.contains(rule) {
                    state.agreed.push(rule.clone());
                }
                ApprovalOutcome::Yes
            }
            Ok(Ok(false) | Err(_)) => ApprovalOutcome::No,
            Err(_) => ApprovalOutcome::TooLate,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a request from the list when it stops waiting, for any reason.
struct RemoveOnDrop<'a> {
    approvals: &'a Approvals,
    number: u64,
}

impl Drop for RemoveOnDrop<'_> {
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

    fn request() -> PendingApproval {
        PendingApproval {
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

    async fn answered(approvals: &Arc<Approvals>, rule: &RequestRule, yes: bool) -> ApprovalOutcome {
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
    async fn an_approval_covers_one_request_or_the_whole_rule() {
        let approvals = Arc::new(Approvals::default());
        let (once, session) = (rule(Approve::Once), rule(Approve::Session));
        assert_eq!(answered(&approvals, &once, true).await, ApprovalOutcome::Yes);
        assert_eq!(answered(&approvals, &once, false).await, ApprovalOutcome::No);
        assert_eq!(answered(&approvals, &session, false).await, ApprovalOutcome::No);
        assert_eq!(answered(&approvals, &session, true).await, ApprovalOutcome::Yes);
        let patience = Duration::from_secs(30);
        assert_eq!(approvals.ask(&session, request(), patience).await, ApprovalOutcome::Already);
        approvals.retain(&[]);
        assert_eq!(answered(&approvals, &session, false).await, ApprovalOutcome::No);
        assert_eq!(approvals.list(), []);
    }

    #[tokio::test]
    async fn waiting_requests_are_limited_in_time_and_number() {
        let approvals = Arc::new(Approvals::default());
        let once = rule(Approve::Once);
        assert_eq!(approvals.ask(&once, request(), Duration::ZERO).await, ApprovalOutcome::TooLate);
        let asking: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let (approvals, once) = (Arc::clone(&approvals), once.clone());
                tokio::spawn(async move { approvals.ask(&once, request(), Duration::from_secs(600)).await })
            })
            .collect();
        while approvals.list().len() < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(approvals.ask(&once, request(), Duration::from_secs(600)).await, ApprovalOutcome::Full);
        for asked in asking {
            asked.abort();
            assert!(asked.await.unwrap_err().is_cancelled());
        }
        assert_eq!(approvals.list(), []);
    }
}
