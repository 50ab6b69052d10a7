//! The execs that a channel is attached to: a login is not offered a shell that another one uses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Execs that a channel is attached to.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttachedExecs(Arc<Mutex<HashSet<String>>>);

/// Marks an exec as attached until the channel ends.
#[derive(Debug)]
pub(crate) struct ExecGuard {
    all: AttachedExecs,
    exec: String,
}

impl ExecGuard {
    pub(crate) fn exec(&self) -> &str {
        &self.exec
    }
}

impl AttachedExecs {
    pub(crate) fn insert(&self, exec: &str) -> ExecGuard {
        self.with(|all| all.insert(exec.to_owned()));
        ExecGuard { all: self.clone(), exec: exec.to_owned() }
    }

    pub(crate) fn insert_if_free(&self, exec: &str) -> Option<ExecGuard> {
        let free = self.with(|all| all.insert(exec.to_owned()));
        free.then(|| ExecGuard { all: self.clone(), exec: exec.to_owned() })
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ExecGuard {
    fn drop(&mut self) {
        self.all.with(|all| all.remove(&self.exec));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_is_offered_to_one_channel_at_a_time() {
        let attached = AttachedExecs::default();
        let guard = attached.insert("exe1");
        assert!(attached.insert_if_free("exe1").is_none());
        drop(guard);
        let guard = attached.insert_if_free("exe1").unwrap();
        assert_eq!(guard.exec(), "exe1");
        assert!(attached.insert_if_free("exe2").is_some());
    }
}
