//! The hash map of a search.

use std::collections::HashMap;

/// For the thousands of look-ups of one search. Each map has a new random seed, so that no text can cause collisions.
pub(super) type QuickMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
