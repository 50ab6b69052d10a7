//! How much disk and network throughput a sandbox may use.

use serde::{Deserialize, Serialize};

use crate::{LimitsError, MIB};

/// Limits per second. Unlike [`Limits`](crate::Limits), they are optional: `None` is as fast as the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Reads from its disk and writes to it, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib_per_second: Option<u32>,
    /// What it sends, and separately the same amount for what it receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mib_per_second: Option<u32>,
}

impl Rates {
    /// The maximum is more than any present host supports, and prevents overflows: the kernel counts a second's worth of
    /// nanoseconds times bytes in 64 bits.
    pub const MIB_PER_SECOND_MAX: u32 = 8192;

    /// As fast as the host.
    pub fn unlimited() -> Self {
        Self { disk_mib_per_second: None, network_mib_per_second: None }
    }

    pub fn is_unlimited(&self) -> bool {
        *self == Self::unlimited()
    }

    pub fn check(&self) -> Result<(), LimitsError> {
        let given = [
            ("disk_mib_per_second", self.disk_mib_per_second),
            ("network_mib_per_second", self.network_mib_per_second),
        ];
        let (min, max) = (1, Self::MIB_PER_SECOND_MAX);
        for (field, given) in given {
            if let Some(given) = given.filter(|given| !(min..=max).contains(given)) {
                return Err(LimitsError { field, given, min, max });
            }
        }
        Ok(())
    }

    pub fn disk_bytes_per_second(&self) -> Option<u64> {
        self.disk_mib_per_second.map(|rate| u64::from(rate) * MIB)
    }

    pub fn network_bytes_per_second(&self) -> Option<u64> {
        self.network_mib_per_second.map(|rate| u64::from(rate) * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_nothing_or_beyond_any_host_is_refused_by_name() {
        let network = |rate| Rates { network_mib_per_second: Some(rate), ..Rates::unlimited() };
        let error = network(0).check().unwrap_err();
        assert_eq!(error.to_string(), "`network_mib_per_second` must be from 1 to 8192, not 0");
        let disk = Rates { disk_mib_per_second: Some(8193), ..network(1) };
        assert_eq!(disk.check().unwrap_err().field, "disk_mib_per_second");
        for fine in [Rates::unlimited(), network(1), network(8192)] {
            assert_eq!(fine.check(), Ok(()));
        }
    }

    #[test]
    fn rates_are_counted_in_bytes_and_absent_ones_leave_no_trace() {
        let rates = Rates { disk_mib_per_second: Some(50), ..Rates::unlimited() };
        assert_eq!((rates.disk_bytes_per_second(), rates.network_bytes_per_second()), (Some(50 << 20), None));
        let text = serde_json::to_string(&rates).unwrap();
        assert_eq!(text, r#"{"disk_mib_per_second":50}"#);
        assert_eq!(serde_json::from_str::<Rates>(&text).unwrap(), rates);
        assert_eq!(serde_json::from_str::<Rates>("{}").unwrap(), Rates::unlimited());
    }
}
