//! Input that a program has not read yet.
//!
//! A program that does not read its input fills this, and then its client waits, as at a pipe. Unless output waits for that
//! same client: it will not take it while it cannot say so (see `output`), so then more is kept, up to a bound at which the
//! channel is given up rather than stand still for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Kept of a program that is merely slow.
const BYTES_USUAL: usize = 2 << 20;

/// Kept of one whose output nobody takes.
const BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Input {
    pieces: VecDeque<(Bytes, OwnedSemaphorePermit)>,
    bytes: usize,
    /// Shared by all connections: one permit per byte.
    budget: Arc<Semaphore>,
}

/// No more can be kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Input {
    pub(crate) fn new(budget: Arc<Semaphore>) -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, budget }
    }

    /// Whether to listen for more. `stuck`: output waits for the client.
    pub(crate) fn takes_more(&self, stuck: bool) -> bool {
        self.bytes < if stuck { BYTES_MAX } else { BYTES_USUAL }
    }

    pub(crate) fn push(&mut self, piece: Bytes) -> Result<(), Overflow> {
        let count = u32::try_from(piece.len()).map_err(|_| Overflow)?;
        let permit = self.budget.clone().try_acquire_many_owned(count).map_err(|_| Overflow)?;
        self.bytes += piece.len();
        if self.bytes > BYTES_MAX {
            return Err(Overflow);
        }
        self.pieces.push_back((piece, permit));
        Ok(())
    }

    /// What is next to be read.
    pub(crate) fn front(&self) -> Option<Bytes> {
        self.pieces.front().map(|(piece, _)| piece.clone())
    }

    /// It was taken.
    pub(crate) fn pop(&mut self) {
        if let Some((piece, _)) = self.pieces.pop_front() {
            self.bytes -= piece.len();
        }
    }

    /// Nobody will read it.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_bounded_for_each_and_for_all() {
        let budget = Arc::new(Semaphore::new(100 << 20));
        let piece = Bytes::from(vec![0; 1 << 20]);
        let mut slow = Input::new(budget.clone());
        slow.push(piece.clone()).unwrap();
        assert!(slow.takes_more(false));
        slow.push(piece.clone()).unwrap();
        assert!(!slow.takes_more(false) && slow.takes_more(true));
        slow.pop();
        assert!(slow.takes_more(false));

        let mut stuck = Input::new(budget.clone());
        for _ in 0..64 {
            stuck.push(piece.clone()).unwrap();
        }
        assert!(!stuck.takes_more(true));
        assert_eq!(stuck.push(piece.clone()), Err(Overflow));
        drop(stuck);

        let mut others: Vec<Input> = (0..2).map(|_| Input::new(budget.clone())).collect();
        let taken = (0..110).filter(|at| others[at % 2].push(piece.clone()).is_ok()).count();
        assert_eq!(taken, 99, "one piece is still held by the slow one");
    }
}
