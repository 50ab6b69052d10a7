//! Network: nft, and the daemon's port.

use std::net::TcpListener;

use burrow_daemon::probes;

use super::Check;
use super::packages::{Package, install};
use super::program::{Version, find, first_line, version_in};
use crate::context::Context;
use crate::local::LocalDaemon;

const AREA: &str = "network";
const NFT_FLOOR: Version = Version { major: 1, minor: 0 };

pub(super) async fn examine(ctx: &Context, daemon: Option<&LocalDaemon>) -> Vec<Check> {
    let mut checks = vec![nft().await, slot().await];
    if let Some(daemon) = daemon.filter(|_| ctx.is_local()) {
        checks.push(port(ctx, daemon).await);
    }
    checks
}

/// Makes a sandbox's network as the daemon would, and takes it away again.
async fn slot() -> Check {
    let name = "a sandbox's network";
    if !rustix::process::geteuid().is_root() {
        return Check::note(AREA, name, "only root can try it: sudo burrow doctor");
    }
    match tokio::task::spawn_blocking(probes::network).await {
        Ok(Ok(())) => Check::ok(AREA, name, "made and removed"),
        Ok(Err(unable)) => {
            let check = Check::fail(AREA, name, unable.reason);
            match unable.fix {
                Some(fix) => check.fix(fix),
                None => check,
            }
        }
        Err(panic) => Check::warn(AREA, name, format!("the attempt failed: {panic}")),
    }
}

async fn nft() -> Check {
    let Some(program) = find("nft") else {
        return Check::fail(AREA, "nft", "not found").fix(install(Package::Nftables));
    };
    let line = first_line(&program, "--version").await.unwrap_or_default();
    match version_in(&line) {
        Some(version) if version >= NFT_FLOOR => Check::ok(AREA, "nft", line),
        Some(_) => Check::fail(AREA, "nft", format!("{line} is older than {NFT_FLOOR}"))
            .fix(install(Package::Nftables)),
        None => Check::warn(AREA, "nft", format!("`{}` does not say its version", program.display())),
    }
}

/// Free, or the daemon's own.
async fn port(ctx: &Context, daemon: &LocalDaemon) -> Check {
    let answers = match ctx.client() {
        Ok(client) => client.health().await.is_ok(),
        Err(_) => false,
    };
    if answers {
        return Check::ok(AREA, "port", format!("the daemon answers at {}", ctx.args.url));
    }
    let listen = daemon.listen;
    match TcpListener::bind(listen) {
        Ok(_) => Check::ok(AREA, "port", format!("{listen} is free")),
        Err(error) => {
            Check::fail(AREA, "port", format!("could not listen on {listen}: {error}")).fix(format!(
                "sudo ss -ltnp 'sport = :{}' shows who does; or set another `listen` in the configuration",
                listen.port()
            ))
        }
    }
}
