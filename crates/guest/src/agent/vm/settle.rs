//! Updates a machine after it was frozen: the time, new random numbers, its name, its size.

#![expect(unsafe_code, reason = "the requests to the random device and to the disk have no safe interface")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_settime};

use super::connections;
use super::failure::{AtStep as _, Failure};
use super::group::Group;
use crate::protocol::VmSettle;

// From <linux/random.h>, <linux/fs.h> and the ext4 file system.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;

const ENTROPY_BYTES_MAX: usize = 64;

/// How often the agent checks whether the kernel has noticed that the disk has grown.
const GROW_LOOKS: u32 = 1000;
const GROW_LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) fn settle(group: &Group, settle: &VmSettle) -> Result<(), Failure> {
    set_clock(settle.unix_ns)?;
    if !settle.entropy.is_empty() {
        let bytes = unhex(&settle.entropy).ok_or(io::ErrorKind::InvalidData).at("read the random bytes")?;
        add_entropy(&bytes).at("reseed the random number generator")?;
    }
    if let Some(hostname) = &settle.hostname {
        rustix::system::sethostname(hostname.as_bytes()).at("set the host name")?;
    }
    group.set_pids(settle.pids)?;
    if settle.reset {
        connections::reset_outside().at("reset the outside connections")?;
    }
    Ok(())
}

pub(super) fn set_clock(unix_ns: u64) -> Result<(), Failure> {
    let now = Duration::from_nanos(unix_ns);
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let now = Timespec { tv_sec: seconds, tv_nsec: now.subsec_nanos().into() };
    clock_settime(ClockId::Realtime, now).at("set the clock")
}

/// Returns when everything written so far is on the disk.
pub(super) async fn sync() -> Result<(), Failure> {
    let synced = tokio::task::spawn_blocking(rustix::fs::sync).await;
    synced.map_err(|_| io::ErrorKind::Other).at("sync the disk")
}

/// The disk has grown to `bytes`, or is about to; the file system on it is grown too.
pub(super) async fn grow(bytes: u64) -> Result<(), Failure> {
    let disk = File::open("/dev/vda").at("open the disk")?;
    for _ in 0..GROW_LOOKS {
        if size(&disk).at("read the size of the disk")? >= bytes {
            let resized = tokio::task::spawn_blocking(move || resize(&disk)).await;
            return resized.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).at("grow the file system");
        }
        tokio::time::sleep(GROW_LOOK_EVERY).await;
    }
    Err(Failure::new("grow the file system", "the disk did not grow"))
}

fn size(disk: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: the kernel writes one number of 64 bits to the address that it is given.
    answer(unsafe { libc::ioctl(disk.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) })?;
    Ok(bytes)
}

fn resize(disk: &File) -> io::Result<()> {
    let root = File::open("/")?;
    let block = rustix::fs::fstatvfs(&root)?.f_bsize.max(1);
    let blocks: u64 = size(disk)? / block;
    // SAFETY: the kernel reads one number of 64 bits from the address that it is given.
    answer(unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) })
}

/// `struct rand_pool_info`, with space for the largest message.
#[repr(C)]
struct Pool {
    bits: libc::c_int,
    bytes: libc::c_int,
    buffer: [u8; ENTROPY_BYTES_MAX],
}

fn add_entropy(bytes: &[u8]) -> io::Result<()> {
    let bytes = &bytes[..bytes.len().min(ENTROPY_BYTES_MAX)];
    let length = libc::c_int::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut pool = Pool { bits: length * 8, bytes: length, buffer: [0; ENTROPY_BYTES_MAX] };
    pool.buffer[..bytes.len()].copy_from_slice(bytes);
    let device = File::options().write(true).open("/dev/urandom")?;
    // SAFETY: the structure is alive and contains its length; the second request has no argument.
    unsafe {
        answer(libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const pool))?;
        // Otherwise the generator would continue with its old state for up to a minute.
        answer(libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG, 0))
    }
}

fn answer(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_decoded_and_other_text_is_refused() {
        assert_eq!(unhex("00ff7a"), Some(vec![0, 255, 122]));
        for rubbish in ["0", "zz", "é0"] {
            assert_eq!(unhex(rubbish), None, "{rubbish}");
        }
    }
}
