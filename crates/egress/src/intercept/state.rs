//! What the intercepted connections of a sandbox share.

use std::sync::{Arc, Mutex, PoisonError};

use super::approvals::Approvals;
use super::compiled::CompiledPolicy;
use super::leaf::LeafConfigs;
use super::upstream::Pool;
use crate::policy::Policy;

/// The state of a sandbox's intercepted connections.
#[derive(Debug)]
pub(crate) struct InterceptState {
    pub(super) leaves: LeafConfigs,
    pub(super) pool: Arc<Pool>,
    pub(crate) approvals: Approvals,
    compiled: Mutex<Option<(Policy, Arc<CompiledPolicy>)>>,
}

impl InterceptState {
    pub(crate) fn new() -> Self {
        Self {
            leaves: LeafConfigs::new(),
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

    pub(super) fn compiled(&self, policy: &Policy) -> Arc<CompiledPolicy> {
        let mut kept = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, compiled)) = kept.as_ref()
            && of.is(policy)
        {
            return Arc::clone(compiled);
        }
        let compiled = Arc::new(CompiledPolicy::of(policy));
        *kept = Some((policy.clone(), Arc::clone(&compiled)));
        compiled
    }
}
