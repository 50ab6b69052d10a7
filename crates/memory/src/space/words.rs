//! Numbers for kinds, sessions, sources, users and agents.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// 0 means none.
pub(crate) type WordNo = u32;

#[derive(Debug, Default)]
pub(crate) struct Words(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    by_no: HashMap<WordNo, Arc<str>>,
    by_word: HashMap<Arc<str>, WordNo>,
    last: WordNo,
}

impl Words {
    pub(crate) fn insert(&self, no: WordNo, word: &str) {
        let word: Arc<str> = word.into();
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.last = table.last.max(no);
        table.by_no.insert(no, Arc::clone(&word));
        table.by_word.insert(word, no);
    }

    pub(crate) fn remove(&self, no: WordNo) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = table.by_no.remove(&no) {
            table.by_word.remove(&word);
        }
    }

    pub(crate) fn number(&self, word: &str) -> Option<WordNo> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_word.get(word).copied()
    }

    pub(crate) fn word(&self, no: WordNo) -> Option<Arc<str>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_no.get(&no).cloned()
    }

    pub(crate) fn last(&self) -> WordNo {
        self.0.read().unwrap_or_else(PoisonError::into_inner).last
    }
}
