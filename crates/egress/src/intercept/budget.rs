//! Counts how much of their budgets the rules have used.
//!
//! The caller passes the time. A window starts with its first request and lasts a minute or a day, independent of the
//! wall clock. Counts belong to the text of a rule: they continue if a new policy contains the rule unchanged.

use burrow_model::network::{Budget, RequestRule};
use serde::{Deserialize, Serialize};

const MINUTE_MS: u64 = 60 * 1_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// The remaining budget of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    /// The text of the rule.
    pub rule: String,
    pub budget: Budget,
    pub requests_this_minute: u64,
    pub requests_today: u64,
    pub bytes_out_today: u64,
    /// Seconds until the current minute and the current day end.
    pub minute_ends_in_s: u64,
    pub day_ends_in_s: u64,
}

/// The exhausted part of a budget, and when requests are possible again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BudgetExceeded {
    pub(super) what: &'static str,
    pub(super) retry_after_s: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Budgets {
    used: Vec<(RequestRule, Usage)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    minute: Window,
    day: Window,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began_ms: Option<u64>,
    count: u64,
}

impl Window {
    /// `true` if a new window starts.
    fn roll(&mut self, now_ms: u64, length_ms: u64) -> bool {
        let over = self.began_ms.is_none_or(|began| now_ms.saturating_sub(began) >= length_ms);
        if over {
            *self = Self { began_ms: Some(now_ms), count: 0 };
        }
        over
    }

    fn ends_in_s(self, now_ms: u64, length_ms: u64) -> u64 {
        let end = self.began_ms.map_or(now_ms, |began| began + length_ms);
        end.saturating_sub(now_ms).div_ceil(1_000)
    }
}

impl Budgets {
    /// Keeps the counts of rules that still exist.
    pub(crate) fn retain(&mut self, rules: &[RequestRule]) {
        self.used.retain(|(rule, _)| rules.contains(rule));
    }

    /// Counts one request, if the budget allows it.
    pub(super) fn take(&mut self, rule: &RequestRule, now_ms: u64) -> Result<(), BudgetExceeded> {
        let Some(budget) = rule.budget else { return Ok(()) };
        let used = self.of(rule, now_ms);
        let day = used.day.ends_in_s(now_ms, DAY_MS);
        let full = |limit: Option<u64>, count: u64| limit.is_some_and(|limit| count >= limit);
        if full(budget.bytes_out_per_day, used.bytes) {
            return Err(BudgetExceeded { what: "its bytes per day", retry_after_s: day.max(1) });
        }
        if full(budget.requests_per_day, used.day.count) {
            return Err(BudgetExceeded { what: "its requests per day", retry_after_s: day.max(1) });
        }
        if full(budget.requests_per_minute, used.minute.count) {
            let minute = used.minute.ends_in_s(now_ms, MINUTE_MS);
            return Err(BudgetExceeded { what: "its requests per minute", retry_after_s: minute.max(1) });
        }
        used.minute.count += 1;
        used.day.count += 1;
        Ok(())
    }

    /// Counts bytes to be sent; bytes that exceed the budget must not be sent.
    pub(super) fn spend(
        &mut self,
        rule: &RequestRule,
        bytes: u64,
        now_ms: u64,
    ) -> Result<(), BudgetExceeded> {
        let Some(limit) = rule.budget.and_then(|budget| budget.bytes_out_per_day) else { return Ok(()) };
        let used = self.of(rule, now_ms);
        let after = used.bytes.saturating_add(bytes);
        if after > limit {
            let retry_after_s = used.day.ends_in_s(now_ms, DAY_MS).max(1);
            return Err(BudgetExceeded { what: "its bytes per day", retry_after_s });
        }
        used.bytes = after;
        Ok(())
    }

    /// The remaining budget of each rule that has one.
    pub(crate) fn left(&mut self, rules: &[RequestRule], now_ms: u64) -> Vec<BudgetLeft> {
        let with_budget = rules.iter().filter_map(|rule| rule.budget.map(|budget| (rule, budget)));
        let mut left = Vec::new();
        for (rule, budget) in with_budget {
            let used = *self.of(rule, now_ms);
            left.push(BudgetLeft {
                rule: rule.to_string(),
                budget,
                requests_this_minute: used.minute.count,
                requests_today: used.day.count,
                bytes_out_today: used.bytes,
                minute_ends_in_s: used.minute.ends_in_s(now_ms, MINUTE_MS),
                day_ends_in_s: used.day.ends_in_s(now_ms, DAY_MS),
            });
        }
        left
    }

    fn of(&mut self, rule: &RequestRule, now_ms: u64) -> &mut Usage {
        let place = self.used.iter().position(|(own, _)| own == rule).unwrap_or_else(|| {
            self.used.push((rule.clone(), Usage::default()));
            self.used.len() - 1
        });
        let used = &mut self.used[place].1;
        used.minute.roll(now_ms, MINUTE_MS);
        if used.day.roll(now_ms, DAY_MS) {
            used.bytes = 0;
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use burrow_model::network::{RequestScope, RuleMode};

    use super::*;

    fn rule(budget: Budget) -> RequestRule {
        RequestRule {
            scope: RequestScope::of("api.example".parse().unwrap()),
            mode: RuleMode::Intercept,
            secret: None,
            budget: Some(budget),
            approve: None,
        }
    }

    #[test]
    fn a_budget_is_exhausted_and_renewed() {
        let rule =
            rule(Budget { requests_per_minute: Some(2), requests_per_day: Some(3), bytes_out_per_day: None });
        let mut budgets = Budgets::default();
        assert_eq!(budgets.take(&rule, 1_000), Ok(()));
        assert_eq!(budgets.take(&rule, 2_000), Ok(()));
        let spent = budgets.take(&rule, 31_000).unwrap_err();
        assert_eq!((spent.what, spent.retry_after_s), ("its requests per minute", 30));
        assert_eq!(budgets.take(&rule, 61_000), Ok(()));
        let spent = budgets.take(&rule, 200_000).unwrap_err();
        assert_eq!(spent.what, "its requests per day");
        // An unchanged rule keeps its counts; a changed rule starts at zero.
        budgets.retain(std::slice::from_ref(&rule));
        assert!(budgets.take(&rule, 201_000).is_err());
        let left = &budgets.left(std::slice::from_ref(&rule), 201_000)[0];
        assert_eq!((left.requests_today, left.requests_this_minute), (3, 0));
        budgets.retain(&[]);
        assert!(budgets.take(&rule, 202_000).is_ok());
    }

    #[test]
    fn bytes_are_counted_before_they_are_sent() {
        let rule = rule(Budget { bytes_out_per_day: Some(10), ..Budget::default() });
        let mut budgets = Budgets::default();
        assert!(budgets.take(&rule, 0).is_ok());
        assert!(budgets.spend(&rule, 8, 0).is_ok());
        assert!(budgets.spend(&rule, 3, 1).is_err());
        assert!(budgets.spend(&rule, 2, 1).is_ok());
        assert_eq!(budgets.take(&rule, 2).unwrap_err().what, "its bytes per day");
        assert!(budgets.take(&rule, DAY_MS + 1).is_ok());
    }
}
