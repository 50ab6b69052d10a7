//! What the intercepted connections of a sandbox share.

use std::sync::{Arc, Mutex, PoisonError};

use super::approvals::Approvals;
use super::compiled::Compiled;
use super::leaf::Leaves;
use super::upstream::Pool;
use crate::policy::Policy;

/// The state of a sandbox's intercepted connections.
#[derive(Debug)]
pub(crate) struct Intercept {
    pub(super) leaves: Leaves,
    pub(super) pool: Arc<Pool>,
    pub(crate) approvals: Approvals,
    compiled: Mutex<Option<(Policy, Arc<Compiled>)>>,
}

impl Intercept {
    pub(crate) fn new() -> Self {
        Self {
            leaves: Leaves::new(),
            pool: Arc::default(),
            approvals: Approvals::default(),
            compiled: Mutex::default(),
        }
    }

    /// Called for a new policy: approvals of unchanged rules are kept.
    pub(crate) fn policy_changed(&self, policy: &Policy) {
        let rules = policy.directives().map_or(&[][..], |directives| &directives.rules);
        self.approvals.retain(rules);
        self.pool.clear();
        *self.compiled.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn sweep(&self, now_ms: u64) {
        self.pool.sweep(now_ms);
    }

    pub(super) fn compiled(&self, policy: &Policy) -> Arc<Compiled> {
        let mut kept = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, compiled)) = kept.as_ref()
            && of.is(policy)
        {
            return Arc::clone(compiled);
        }
        let compiled = Arc::new(Compiled::of(policy));
        *kept = Some((policy.clone(), Arc::clone(&compiled)));
        compiled
    }
}
