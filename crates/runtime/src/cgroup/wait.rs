//! Waits until the kernel has performed a change of a cgroup file.
//!
//! The files can be polled, but the kernel's notification is rate-limited: it costs about 6 ms, while another read
//! after 20 µs costs 0.1 ms. So read again a few times quickly, then slowly, then give up.

use std::io;
use std::time::Duration;

/// A freeze or the end of a few processes takes two or three of these.
const EAGER_PAUSE: Duration = Duration::from_micros(20);
const EAGER_LOOKS: u32 = 64;

/// For many processes, or some in the middle of a long disk operation.
const PATIENT_PAUSE: Duration = Duration::from_millis(1);
/// About twenty seconds, on a busy machine more. A process that cannot be stopped by then hangs in the kernel.
const PATIENT_LOOKS: u32 = 20_000;

/// Polls until `done` returns true. `TimedOut` if it never does.
pub(super) fn until(mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    for look in 0..EAGER_LOOKS + PATIENT_LOOKS {
        if done()? {
            return Ok(());
        }
        std::thread::sleep(if look < EAGER_LOOKS { EAGER_PAUSE } else { PATIENT_PAUSE });
    }
    Err(io::ErrorKind::TimedOut.into())
}
