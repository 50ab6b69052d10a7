//! Shells that opened their terminal by the name `/dev/tty`.
//!
//! Debian's `sh` does so when it is interactive. CRIU brings such a descriptor back only if the process that has it also
//! is the first it finds with that terminal open, which whoever holds the terminal's other end is before it: our agent, for
//! one. So the descriptor is replaced, before a dump, by a copy of one that names the same terminal as what it is, which
//! every shell on a terminal has: its standard input.

use std::fs;
use std::io;

use super::hold::Held;

/// Descriptors of one process, of which a shell has a handful; the kernel's own bound on them is far higher.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// A descriptor to be replaced, and by a copy of which.
#[derive(Debug, PartialEq, Eq)]
struct Replacement {
    descriptor: u32,
    by: u32,
}

/// Has every process of a machine that stands still name its terminal as what it is.
pub(super) fn name(held: &mut Held) -> io::Result<()> {
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

/// The pseudo-terminal that `/dev/tty` is to the process, if it is one.
fn controlling_terminal(pid: u32) -> io::Result<Option<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit_once(')').and_then(|(_, fields)| terminal_of(fields)))
}

/// From the fields of `/proc/<pid>/stat` that follow the name: state, parent, group, session, terminal.
fn terminal_of(fields: &str) -> Option<String> {
    const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
    let number: i32 = fields.split_whitespace().nth(4)?.parse().ok()?;
    let device = u64::from(number.cast_unsigned());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PSEUDO_TERMINALS
        .contains(&major)
        .then(|| format!("/dev/pts/{}", (major - PSEUDO_TERMINALS.start()) * 256 + minor))
}

/// What `dup3` is told to keep a descriptor closed, or open, on `exec`.
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
    fn a_nameless_terminal_is_replaced_by_the_one_it_is() {
        let links = |names: &[(u32, &str)]| -> Vec<(u32, String)> {
            names.iter().map(|(number, name)| (*number, (*name).to_owned())).collect()
        };
        let shell = links(&[(0, "/dev/pts/3"), (1, "/dev/pts/3"), (10, "/dev/tty"), (4, "pipe:[7]")]);
        assert_eq!(choose(&shell, "/dev/pts/3"), [Replacement { descriptor: 10, by: 0 }]);
        assert!(choose(&shell, "/dev/pts/4").is_empty(), "it has another one only");
        assert!(choose(&links(&[(0, "/dev/pts/3")]), "/dev/pts/3").is_empty());
    }

    #[test]
    fn the_terminal_is_read_from_its_device_number() {
        assert_eq!(terminal_of(" S 1 2 2 34819 2 0"), Some("/dev/pts/3".to_owned()));
        assert_eq!(terminal_of(" S 1 2 2 0 -1 0"), None);
    }
}
