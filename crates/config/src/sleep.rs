//! The `[sleep]` keys.

use burrow_model::{PolicyError, SleepPolicy};

use super::file::{ConfigError, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleepConfig {
    /// The default for new sandboxes.
    pub policy: SleepPolicy,
    /// In thousandths of a core: higher CPU use counts as work.
    pub cpu_threshold_millis: u32,
}

impl SleepConfig {
    pub(super) fn of(settings: &Settings) -> Result<Self, ConfigError> {
        let policy = SleepPolicy {
            pause_after_ms: settings.span_if_any("sleep.pause_after"),
            hibernate_after_ms: settings.span_if_any("sleep.hibernate_after"),
            stop_after_ms: settings.span_if_any("sleep.stop_after"),
            start_on_use: settings.flag("sleep.start_on_use"),
        };
        if let Err(error) = policy.check() {
            let (key, problem) = match &error {
                PolicyError::Order { earlier, later } => {
                    (key(later), format!("must be longer than `{}`", key(earlier)))
                }
                // The table limits each of them to the range of the model.
                PolicyError::Time { field, .. } => (key(field), error.to_string()),
                PolicyError::Keep { .. } => ("sleep.pause_after", error.to_string()),
            };
            return Err(settings.refuse(key, problem));
        }
        let millis = u32::try_from(settings.number("sleep.cpu_threshold_millis"));
        Ok(Self { policy, cpu_threshold_millis: millis.expect("bounded by the table") })
    }
}

/// The key for a field of the model.
fn key(field: &str) -> &'static str {
    match field {
        "hibernate_after" => "sleep.hibernate_after",
        "stop_after" => "sleep.stop_after",
        _ => "sleep.pause_after",
    }
}
