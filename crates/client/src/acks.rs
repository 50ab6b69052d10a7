//! Acknowledgements of standard input: a ping follows the input, and its pong proves that the daemon has forwarded the input.

use bytes::Bytes;
use tokio_tungstenite::tungstenite::Message;

/// Counts acknowledged input in bytes; the end of input counts as one more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InputAcks {
    sent_units: u64,
    acknowledged: u64,
    /// The ping that is in transit. One at a time is enough.
    pinged: Option<u64>,
}

impl InputAcks {
    /// Input was taken from the queue.
    pub(crate) fn sent(&mut self, units: usize) {
        self.sent_units += units as u64;
    }

    pub(crate) fn all_arrived(self) -> bool {
        self.acknowledged == self.sent_units
    }

    /// The next ping to send, if one is due.
    pub(crate) fn next_ping(&mut self) -> Option<Message> {
        if self.pinged.is_some() || self.all_arrived() {
            return None;
        }
        self.pinged = Some(self.sent_units);
        Some(Message::Ping(Bytes::copy_from_slice(&self.sent_units.to_be_bytes())))
    }

    pub(crate) fn pong(&mut self, payload: &[u8]) {
        let Ok(bytes) = payload.try_into() else { return };
        let acknowledged = u64::from_be_bytes(bytes);
        if self.pinged == Some(acknowledged) {
            self.acknowledged = acknowledged;
            self.pinged = None;
        }
    }

    /// For a new connection, counts from the beginning. Returns whether some input was not acknowledged.
    pub(crate) fn reset(&mut self) -> bool {
        let in_doubt = !self.all_arrived();
        *self = Self { sent_units: self.sent_units, acknowledged: self.sent_units, pinged: None };
        in_doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_in_doubt_until_its_own_pong_arrives() {
        let mut acks = InputAcks::default();
        assert!(acks.next_ping().is_none(), "without input no ping is due");
        acks.sent(5);
        let Some(Message::Ping(first)) = acks.next_ping() else { panic!("a ping is due") };
        acks.sent(3);
        assert!(acks.next_ping().is_none(), "one at a time");
        acks.pong(b"");
        acks.pong(&7u64.to_be_bytes());
        acks.pong(&first);
        assert!(!acks.all_arrived(), "input after the ping is not acknowledged by its pong");
        let Some(Message::Ping(second)) = acks.next_ping() else { panic!("another ping is due") };
        acks.pong(&second);
        assert!(acks.all_arrived());
    }

    #[test]
    fn a_new_connection_starts_without_unacknowledged_input() {
        let mut acks = InputAcks::default();
        acks.sent(5);
        assert!(acks.reset());
        assert!(!acks.reset() && acks.all_arrived());
    }
}
