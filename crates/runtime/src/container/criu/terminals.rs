//! Replaces descriptors of shells that opened their terminal by the name `/dev/tty`.
//!
//! Debian's `sh` does so when it is interactive. CRIU restores such a descriptor only if its process is also the first
//! one found with that terminal open. But the process with the other end of the terminal, for example our agent, comes
//! first. So before a dump, the descriptor is replaced by a copy of one that names the same terminal by its real name.
//! Every shell on a terminal has one: its standard input.

use std::fs;
use std::io;

use super::hold::HeldThreads;

/// Descriptors of one process. A shell has a handful; the kernel's own limit is far higher.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// A descriptor to replace, and the descriptor to copy.
#[derive(Debug, PartialEq, Eq)]
struct Replacement {
    descriptor: u32,
    by: u32,
}

/// Replaces these descriptors in every process of a frozen machine.
pub(super) fn name(held: &mut HeldThreads) -> io::Result<()> {
    for (inner_pid, pid) in held.pids() {
        for Replacement { descriptor, by } in replacements(pid)? {
            let arguments = [u64::from(by), u64::from(descriptor), close_on_exec(pid, descriptor)?, 0, 0, 0];
            held.call(inner_pid, libc::SYS_dup3, arguments)?;
        }
    }
    Ok(())
}

fn replacements(pid: u32) -> io::Result<Vec<Replacement>> {
    let Some(terminal) = controlling_terminal(pid)? else { return Ok(Vec::new()) };
    let mut links = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.take(DESCRIPTORS_MAX) {
        let entry = entry?;
        let (Ok(number), Ok(link)) =
            (entry.file_name().to_string_lossy().parse(), fs::read_link(entry.path()))
        else {
            continue;
        };
        links.push((number, link.to_string_lossy().into_owned()));
    }
    Ok(choose(&links, &terminal))
}

fn choose(links: &[(u32, String)], terminal: &str) -> Vec<Replacement> {
    let by = links.iter().filter(|(_, link)| link == terminal).map(|(number, _)| *number).min();
    let Some(by) = by else { return Vec::new() };
    let nameless = links.iter().filter(|(_, link)| link == "/dev/tty");
    nameless.map(|(number, _)| Replacement { descriptor: *number, by }).collect()
}

/// The pseudo-terminal for which `/dev/tty` stands in the process, if it is one.
fn controlling_terminal(pid: u32) -> io::Result<Option<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit_once(')').and_then(|(_, fields)| terminal_of(fields)))
}

/// From the fields of `/proc/<pid>/stat` after the name: state, parent, group, session, terminal.
fn terminal_of(fields: &str) -> Option<String> {
    const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
    let number: i32 = fields.split_whitespace().nth(4)?.parse().ok()?;
    let device = u64::from(number.cast_unsigned());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PSEUDO_TERMINALS
        .contains(&major)
        .then(|| format!("/dev/pts/{}", (major - PSEUDO_TERMINALS.start()) * 256 + minor))
}

/// The `dup3` flag that keeps the descriptor's close-on-exec setting.
fn close_on_exec(pid: u32, descriptor: u32) -> io::Result<u64> {
    let about = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"))?;
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    Ok(flags & u64::from(libc::O_CLOEXEC.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_tty_is_replaced_by_the_real_terminal() {
        let links = |names: &[(u32, &str)]| -> Vec<(u32, String)> {
            names.iter().map(|(number, name)| (*number, (*name).to_owned())).collect()
        };
        let shell = links(&[(0, "/dev/pts/3"), (1, "/dev/pts/3"), (10, "/dev/tty"), (4, "pipe:[7]")]);
        assert_eq!(choose(&shell, "/dev/pts/3"), [Replacement { descriptor: 10, by: 0 }]);
        assert!(choose(&shell, "/dev/pts/4").is_empty(), "it only has another terminal");
        assert!(choose(&links(&[(0, "/dev/pts/3")]), "/dev/pts/3").is_empty());
    }

    #[test]
    fn the_terminal_is_read_from_its_device_number() {
        assert_eq!(terminal_of(" S 1 2 2 34819 2 0"), Some("/dev/pts/3".to_owned()));
        assert_eq!(terminal_of(" S 1 2 2 0 -1 0"), None);
    }
}
