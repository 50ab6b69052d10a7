//! The limits of a sandbox on its host, and the sizes that users write.

use std::fmt;

use serde::{Deserialize, Serialize};

pub const MIB: u64 = 1 << 20;

/// The limits of a sandbox. Every sandbox has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// RAM, in MiB.
    pub ram_mib: u32,
    /// Processor time, in thousandths of a core.
    pub cpu_millis: u32,
    /// Processes and threads.
    pub pids: u32,
    /// Disk, in MiB, for the data that the sandbox wrote itself.
    pub disk_mib: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` must be from {min} to {max}, not {given}")]
pub struct LimitsError {
    pub field: &'static str,
    pub given: u32,
    pub min: u32,
    pub max: u32,
}

impl Limits {
    /// The minimum is what the guest agent and a shell need; the maximum exceeds all known machines, and prevents overflows.
    const BOUNDS: [(&'static str, u32, u32); 4] = [
        ("ram_mib", 32, 4 << 20),
        ("cpu_millis", 50, 1_024_000),
        ("pids", 16, 1 << 22),
        ("disk_mib", 16, 64 << 20),
    ];

    pub fn check(&self) -> Result<(), LimitsError> {
        let given = [self.ram_mib, self.cpu_millis, self.pids, self.disk_mib];
        for ((field, min, max), given) in Self::BOUNDS.into_iter().zip(given) {
            if !(min..=max).contains(&given) {
                return Err(LimitsError { field, given, min, max });
            }
        }
        Ok(())
    }
}

/// A number of bytes for people, with a unit: `1.5 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit < UNITS.len() - 1 {
            value /= 1024.0;
            unit += 1;
        }
        let decimals = usize::from(unit > 0 && value < 100.0);
        write!(f, "{value:.decimals$} {}", UNITS[unit])
    }
}

/// Parses a size as users write it: `512M`, `2G`, `1.5GiB`, `1048576`. Units are powers of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let bytes = number * (1u64 << shift) as f64;
    (bytes.is_finite() && bytes < (1u64 << 60) as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_out_of_bounds_is_named_with_its_bounds() {
        let limits = Limits { ram_mib: 512, cpu_millis: 1000, pids: 1, disk_mib: 1024 };
        let error = limits.check().unwrap_err();
        assert_eq!(error.to_string(), "`pids` must be from 16 to 4194304, not 1");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("512M"), Some(512 * MIB));
        assert_eq!(parse_bytes("1.5 GiB"), Some(1536 * MIB));
        assert_eq!(parse_bytes("4096"), Some(4096));
        for bad in ["", "M", "-1G", "1X", "1e999G", "9999999T"] {
            assert_eq!(parse_bytes(bad), None, "{bad:?}");
        }
    }
}
