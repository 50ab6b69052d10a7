//! How many events one sandbox may add to the audit log: a sandbox that sends requests as fast as it can must not fill the
//! disk that the log shares with others.
//!
//! Of each kind, events up to a rate are recorded as they are. Further ones are combined into one event per [`FOLD_MS`],
//! which has their number and the sum of their bytes. So nothing is missing from the totals, and the rate is bounded.
//! Injections are no part of this: each of them is recorded, or not made. Alarms, removed secrets and approvals are recorded
//! one by one, too: each is about something that an operator must be able to see.

use std::collections::HashMap;

use burrow_audit::{Action, Event, Text};

use crate::limits::Bucket;

/// Events of one kind per second that are recorded one by one; six times as many after an idle time.
const EVENTS_PER_SECOND: u64 = 50;

/// Combined events of one kind are recorded this often.
const FOLD_MS: u64 = 5_000;

/// The rates of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct EventRate(HashMap<(&'static str, &'static str), Kind>);

#[derive(Debug)]
struct Kind {
    bucket: Bucket,
    folded: Option<FoldedEvents>,
}

/// Events that were combined.
#[derive(Debug)]
struct FoldedEvents {
    /// The first of them, with what all of them have in common.
    event: Event,
    count: u64,
    since_ms: u64,
}

impl EventRate {
    /// Returns the event if it is to be recorded now; otherwise it is combined with others.
    pub(crate) fn admit(&mut self, event: Event, now_ms: u64) -> Option<Event> {
        if matches!(event.action, Action::EgressAlarm | Action::EgressScrub | Action::EgressApproval) {
            return Some(event);
        }
        let kind = self.0.entry((event.action.as_str(), event.outcome.as_str()));
        let kind =
            kind.or_insert_with(|| Kind { bucket: Bucket::new(EVENTS_PER_SECOND, now_ms), folded: None });
        // While events are combined, later ones are too: they stay in order.
        if kind.folded.is_none() && kind.bucket.take(now_ms) {
            return Some(event);
        }
        match &mut kind.folded {
            Some(folded) => folded.add(&event),
            None => kind.folded = Some(FoldedEvents { event, count: 1, since_ms: now_ms }),
        }
        None
    }

    /// The combined events whose time is over, or all of them.
    pub(crate) fn due(&mut self, now_ms: u64, all: bool) -> Vec<Event> {
        let over = |folded: &FoldedEvents| all || now_ms.saturating_sub(folded.since_ms) >= FOLD_MS;
        let kinds = self.0.values_mut();
        kinds
            .filter_map(|kind| kind.folded.take_if(|folded| over(folded)))
            .map(FoldedEvents::into_event)
            .collect()
    }
}

impl FoldedEvents {
    fn add(&mut self, event: &Event) {
        fn common<T: PartialEq>(one: &mut Option<T>, other: Option<&T>) {
            if one.as_ref() != other {
                *one = None;
            }
        }
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
        };
        self.count += 1;
        let own = &mut self.event;
        own.at_ms = event.at_ms;
        own.bytes_in = sum(own.bytes_in, event.bytes_in);
        own.bytes_out = sum(own.bytes_out, event.bytes_out);
        own.duration_ms = sum(own.duration_ms, event.duration_ms);
        common(&mut own.rule, event.rule.as_ref());
        common(&mut own.host, event.host.as_ref());
        common(&mut own.port, event.port.as_ref());
        common(&mut own.method, event.method.as_ref());
        common(&mut own.path, event.path.as_ref());
        common(&mut own.status, event.status.as_ref());
        common(&mut own.secret, event.secret.as_ref());
        common(&mut own.reason, event.reason.as_ref());
    }

    fn into_event(self) -> Event {
        if self.count == 1 {
            return self.event;
        }
        let why =
            self.event.reason.as_ref().map(|reason| format!(": {}", reason.as_str())).unwrap_or_default();
        let reason = format!("{} events, combined{why}", self.count);
        Event { reason: Some(Text::new(&reason)), ..self.event }
    }
}

#[cfg(test)]
mod tests {
    use burrow_audit::Outcome;
    use burrow_model::TenantId;

    use super::*;

    fn event(action: Action, host: &str, bytes: u64) -> Event {
        let event = Event::new(1, TenantId::generate(), action, Outcome::Done);
        Event { host: Some(host.into()), bytes_in: Some(bytes), path: Some("/a".into()), ..event }
    }

    #[test]
    fn a_flood_of_requests_adds_few_events_and_its_total() {
        let mut rate = EventRate::default();
        let mut recorded = Vec::new();
        // 10,000 requests in ten seconds.
        for n in 0..10_000u64 {
            let host = if n % 2 == 0 { "a.test" } else { "b.test" };
            recorded.extend(rate.admit(event(Action::EgressAllow, host, 3), n));
            recorded.extend(rate.due(n, false));
        }
        recorded.extend(rate.due(10_000, true));
        assert!(recorded.len() < 700, "{}", recorded.len());
        assert_eq!(recorded.iter().filter_map(|event| event.bytes_in).sum::<u64>(), 30_000);
        let count = |event: &Event| {
            let reason = event.reason.as_ref().map_or("1 event", Text::as_str);
            reason.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap()
        };
        assert_eq!(recorded.iter().map(count).sum::<u64>(), 10_000);
        let combined = recorded.iter().find(|event| event.reason.is_some()).unwrap();
        assert_eq!((&combined.host, combined.path.as_ref().map(Text::as_str)), (&None, Some("/a")));
    }

    #[test]
    fn alarms_removed_secrets_and_approvals_are_never_combined() {
        let mut rate = EventRate::default();
        for action in [Action::EgressAlarm, Action::EgressScrub, Action::EgressApproval] {
            for n in 0..1_000 {
                let sent = event(action, &format!("{n}.test"), n);
                assert_eq!(rate.admit(sent.clone(), 0), Some(sent));
            }
        }
        assert!(rate.due(FOLD_MS, true).is_empty());
    }

    #[test]
    fn a_flood_of_one_kind_hides_no_event_of_another() {
        let mut rate = EventRate::default();
        for _ in 0..1_000 {
            rate.admit(event(Action::EgressDeny, "a.test", 0), 0);
        }
        assert!(rate.admit(event(Action::EgressAlarm, "a.test", 0), 0).is_some());
        assert_eq!(rate.due(FOLD_MS, false).len(), 1);
        assert!(rate.due(FOLD_MS, true).is_empty());
    }
}
