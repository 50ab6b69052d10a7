//! Buffers input that a program has not read yet.
//!
//! If a program does not read its input, the buffer fills and its client has to wait, as at a pipe. The exception: while output
//! waits for the same client, the client's window messages still have to be read (see `output`), so more input is buffered, up
//! to a limit at which the channel is closed instead of blocking forever.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Buffered for a program that is merely slow.
const BYTES_USUAL: usize = 2 << 20;

/// Buffered for a program whose output the client does not read.
const BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Input {
    pieces: VecDeque<(Bytes, OwnedSemaphorePermit)>,
    bytes: usize,
    /// Shared by all connections: one permit per byte.
    budget: Arc<Semaphore>,
}

/// The buffer or the budget is exhausted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Input {
    pub(crate) fn new(budget: Arc<Semaphore>) -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, budget }
    }

    /// Whether to read more from the client. `stuck`: output waits for the client.
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

    /// The next piece for the program.
    pub(crate) fn front(&self) -> Option<Bytes> {
        self.pieces.front().map(|(piece, _)| piece.clone())
    }

    /// Removes the front piece, which the program has taken.
    pub(crate) fn pop(&mut self) {
        if let Some((piece, _)) = self.pieces.pop_front() {
            self.bytes -= piece.len();
        }
    }

    /// Drops all input, because the program will not read it.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_limited_per_channel_and_in_total() {
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
