//! Network: nft, and the daemon's port.

use std::net::TcpListener;

use burrow_daemon::probes;

use super::Check;
use super::program::{Version, find, first_line, version_in};
use crate::context::Context;
use crate::local::LocalDaemon;

const NFT_FLOOR: Version = Version { major: 1, minor: 0 };

pub(super) async fn examine(ctx: &Context, daemon: Option<&LocalDaemon>) -> Vec<Check> {
    let mut checks = vec![nft().await, slot().await];
    if let Some(daemon) = daemon.filter(|_| ctx.is_local()) {
        checks.push(port(ctx, daemon).await);
        checks.push(egress_user(daemon.config.egress.uid));
    }
    checks
}

/// No other user should have the uid of the egress process: its processes could send it signals.
fn egress_user(uid: u32) -> Check {
    let name = "egress user";
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    match owner(&passwd, uid) {
        None => Check::ok(name, format!("no other user has uid {uid}")),
        Some(user) => {
            Check::warn(name, format!("uid {uid} is also `{user}`, which could kill the egress process"))
                .fix("set `egress.uid` in the configuration to a number that no user has")
        }
    }
}

fn owner(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

/// Creates and removes the network of a sandbox, like the daemon.
async fn slot() -> Check {
    let name = "sandbox network";
    if !rustix::process::geteuid().is_root() {
        return Check::note(name, "this check requires root: sudo burrow doctor");
    }
    match tokio::task::spawn_blocking(probes::network).await {
        Ok(Ok(())) => Check::ok(name, "created and removed"),
        Ok(Err(unable)) => Check::fail(name, unable.reason).fix_if(unable.fix),
        Err(panic) => Check::warn(name, format!("the attempt failed: {panic}")),
    }
}

async fn nft() -> Check {
    let Some(program) = find("nft") else {
        return Check::fail("nft", "not found").install("nftables");
    };
    let line = first_line(&program, "--version").await.unwrap_or_default();
    match version_in(&line) {
        Some(version) if version >= NFT_FLOOR => Check::ok("nft", line),
        Some(_) => Check::fail("nft", format!("{line} is older than {NFT_FLOOR}")).install("nftables"),
        None => Check::warn("nft", format!("`{}` does not print its version", program.display())),
    }
}

/// Whether the port is free, or used by the daemon.
async fn port(ctx: &Context, daemon: &LocalDaemon) -> Check {
    let answers = match ctx.client() {
        Ok(client) => client.health().await.is_ok(),
        Err(_) => false,
    };
    if answers {
        return Check::ok("port", format!("the daemon answers at {}", ctx.args.url));
    }
    let listen = daemon.config.listen;
    match TcpListener::bind(listen) {
        Ok(_) => Check::ok("port", format!("{listen} is free")),
        Err(error) => {
            Check::fail("port", format!("could not listen on {listen}: {error}")).fix(format!(
                "sudo ss -ltnp 'sport = :{}' shows which process does; or set another `listen` in the configuration",
                listen.port()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_uid_is_found() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh\n";
        assert_eq!(owner(passwd, 1000), Some("user"));
        assert_eq!(owner(passwd, 99_077), None);
    }
}
