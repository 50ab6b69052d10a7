//! Checks whether this host can provide networks for sandboxes, and what to do if not.

use std::io;
use std::thread;

use super::netlink::SlotError;
use super::slot;

/// Why this host cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkUnavailable {
    pub reason: String,
    /// How to fix it, if known.
    pub fix: Option<String>,
}

/// Creates a complete slot, rules included, and drops it again, because any other check would be a guess. Blocks for
/// some milliseconds.
pub fn probe() -> Result<(), NetworkUnavailable> {
    let made = thread::scope(|scope| scope.spawn(|| slot::make(false)).join());
    match made {
        Ok(Ok(_slot)) => Ok(()),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_panic) => {
            Err(NetworkUnavailable { reason: "creating a network slot panicked".to_owned(), fix: None })
        }
    }
}

fn explain(error: &SlotError) -> NetworkUnavailable {
    let reason = format!("{error}: {}", error.source);
    NetworkUnavailable { reason, fix: remedy(error.step, &error.source).map(str::to_owned) }
}

/// How to fix a step that failed because of `source`.
pub(crate) fn remedy(step: &str, source: &io::Error) -> Option<&'static str> {
    match source.raw_os_error() {
        // A sandbox whose IPv6 cannot be configured as required does not start.
        Some(libc::EACCES) if step.contains("address") => {
            Some("sysctl -w net.ipv6.conf.default.disable_ipv6=0, or boot with ipv6.disable=1")
        }
        Some(libc::EPERM | libc::EACCES) => Some(
            "run burrow as root, and not inside a container that withholds CAP_SYS_ADMIN or CAP_NET_ADMIN",
        ),
        // The kernel's errors when a limit on namespaces is reached.
        Some(libc::ENOSPC | libc::EUSERS) => {
            Some("sysctl -w user.max_user_namespaces=65536 user.max_net_namespaces=65536")
        }
        Some(libc::EMFILE) => Some("raise the daemon's limit on open files (ulimit -n)"),
        _ if step.contains("rules") => Some("modprobe -a nf_tables nft_tproxy nft_socket nft_limit"),
        _ if step.contains("listener") && source.kind() == io::ErrorKind::AddrInUse => {
            Some("the kernel needs CONFIG_INET_DIAG_DESTROY to take a port from a process that hangs")
        }
        _ if step.contains("marked") => Some("the kernel needs CONFIG_IP_MULTIPLE_TABLES"),
        _ if step.contains("veth") => Some("modprobe veth"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(step: &'static str, errno: i32, fix: Option<&str>) {
        let unable = explain(&SlotError { step, source: io::Error::from_raw_os_error(errno) });
        assert!(unable.reason.starts_with(&format!("could not {step}: ")), "{}", unable.reason);
        match (&unable.fix, fix) {
            (Some(given), Some(part)) => assert!(given.contains(part), "{given}"),
            (given, expected) => assert_eq!(given.as_deref(), expected),
        }
    }

    #[test]
    fn a_failed_probe_names_a_fix() {
        check("create a user and a network namespace", libc::EPERM, Some("as root"));
        check("create a user and a network namespace", libc::ENOSPC, Some("max_user_namespaces"));
        check("load the gateway's rules", libc::ENOENT, Some("nf_tables"));
        check("create the veth pair", libc::EOPNOTSUPP, Some("modprobe veth"));
        check("create the gateway namespace", libc::EMFILE, Some("ulimit"));
        check("add an address", libc::EINVAL, None);
        check("add an address", libc::EACCES, Some("disable_ipv6"));
        check("open the listeners", libc::EADDRINUSE, Some("INET_DIAG_DESTROY"));
        check("route marked packets", libc::EOPNOTSUPP, Some("MULTIPLE_TABLES"));
    }

    #[test]
    fn this_host_can_provide_networks() {
        assert_eq!(probe(), Ok(()));
    }
}
