//! Receipts for standard input: a ping after the input, and its pong as the proof that the daemon has handed it on.

use bytes::Bytes;
use tokio_tungstenite::tungstenite::Message;

/// Which input the daemon is known to have handed on, by the number of bytes so far; its end counts as one more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receipts {
    sent: u64,
    received: u64,
    /// The ping that is under way: one at a time is enough.
    asked: Option<u64>,
}

impl Receipts {
    /// Input was taken from the queue.
    pub(crate) fn count(&mut self, units: usize) {
        self.sent += units as u64;
    }

    pub(crate) fn all_arrived(self) -> bool {
        self.received == self.sent
    }

    /// The next ping to send, if one is due.
    pub(crate) fn ask(&mut self) -> Option<Message> {
        if self.asked.is_some() || self.all_arrived() {
            return None;
        }
        self.asked = Some(self.sent);
        Some(Message::Ping(Bytes::copy_from_slice(&self.sent.to_be_bytes())))
    }

    pub(crate) fn take(&mut self, pong: &[u8]) {
        let Ok(bytes) = pong.try_into() else { return };
        let received = u64::from_be_bytes(bytes);
        if self.asked == Some(received) {
            self.received = received;
            self.asked = None;
        }
    }

    /// On a new connection everything counts from anew. Answers whether some input had no receipt.
    pub(crate) fn start_over(&mut self) -> bool {
        let in_doubt = !self.all_arrived();
        *self = Self { sent: self.sent, received: self.sent, asked: None };
        in_doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_in_doubt_until_its_own_pong_came() {
        let mut receipts = Receipts::default();
        assert!(receipts.ask().is_none(), "without input there is nothing to ask");
        receipts.count(5);
        let Some(Message::Ping(first)) = receipts.ask() else { panic!("a ping is due") };
        receipts.count(3);
        assert!(receipts.ask().is_none(), "one at a time");
        receipts.take(b"");
        receipts.take(&7u64.to_be_bytes());
        receipts.take(&first);
        assert!(!receipts.all_arrived(), "what came after the ping is not covered by it");
        let Some(Message::Ping(second)) = receipts.ask() else { panic!("another ping is due") };
        receipts.take(&second);
        assert!(receipts.all_arrived());
    }

    #[test]
    fn a_new_connection_starts_without_doubt() {
        let mut receipts = Receipts::default();
        receipts.count(5);
        assert!(receipts.start_over());
        assert!(!receipts.start_over() && receipts.all_arrived());
    }
}
