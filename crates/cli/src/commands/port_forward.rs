//! `burrow port-forward`: local TCP ports that end in a sandbox.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use burrow_client::Client;
use clap::Args;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print;
use crate::print::escape::escape;

/// Connections at once over all ports, half of what one sandbox carries; one more waits.
const CONNECTIONS_MAX: usize = 128;

/// When we are out of descriptors, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Forward local TCP ports into a sandbox, until Ctrl-C
///
/// Anything over TCP: databases, SSH, debuggers. What listens inside may be bound to localhost only. A sandbox that is
/// stopped or asleep wakes with the first connection.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow port-forward web 5432                 localhost:5432 to port 5432 of web
  burrow port-forward web 8080:80 9229         several at once
  burrow port-forward web 0:5432               any free port; which one is printed")]
pub(crate) struct PortForwardArgs {
    /// Where to listen on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: IpAddr,
    sandbox: String,
    #[arg(value_name = "[LOCAL:]REMOTE", required = true)]
    ports: Vec<Forward>,
}

/// A local port and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forward {
    /// 0 takes a free one.
    local: u16,
    remote: u16,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let bad = || format!("`{text}` is not a port such as 8080, or two such as 8080:80");
        let remote = remote.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?;
        Ok(Self { local: local.parse().map_err(|_| bad())?, remote })
    }
}

pub(crate) async fn run(ctx: &Context, args: PortForwardArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    // A mistyped name is told now, not to whoever connects first.
    let sandbox = client.sandbox(&args.sandbox).await;
    let id = sandbox.or_fail(|| format!("could not find sandbox `{}`", args.sandbox))?.id;
    let mut listeners = Vec::new();
    for forward in &args.ports {
        let address = SocketAddr::from((args.address, forward.local));
        let listener =
            TcpListener::bind(address).await.or_fail(|| format!("could not listen on `{address}`"))?;
        let address = listener.local_addr().or_fail(|| format!("could not listen on `{address}`"))?;
        listeners.push((listener, address, forward.remote));
    }
    for (_, address, remote) in &listeners {
        print::line(&format!("{address} -> {}:{remote}", args.sandbox))?;
    }
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut forwards = JoinSet::new();
    for (listener, _, remote) in listeners {
        let target = Target { client: client.clone(), sandbox: id.clone(), remote };
        forwards.spawn(accept(listener, target, slots.clone()));
    }
    until_told_to_end().await
    // Dropping the set ends what is still open.
}

#[derive(Clone, Debug)]
struct Target {
    client: Client,
    sandbox: String,
    remote: u16,
}

async fn accept(listener: TcpListener, target: Target, slots: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((local, _)) => {
                    connections.spawn(carry(target.clone(), local, slot));
                }
                Err(error) => {
                    print::note(&format!("could not accept a connection: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(target: Target, local: TcpStream, _slot: OwnedSemaphorePermit) {
    let _ = local.set_nodelay(true);
    match target.client.connect_port(&target.sandbox, target.remote).await {
        Ok(connection) => {
            if let Err(error) = connection.carry(local).await {
                tell(target.remote, &error);
            }
        }
        Err(error) => {
            tell(target.remote, &error);
            // Only now: whoever sees the connection close finds the reason told.
            drop(local);
        }
    }
}

fn tell(remote: u16, error: &burrow_client::ClientError) {
    // Local programs hang up as they please.
    if matches!(error, burrow_client::ClientError::Local { .. }) {
        return;
    }
    let failure = Failure::new(format!("a connection to port {remote} ended")).because(error);
    print::note(&failure.to_string());
    if let Some(hint) = error.hint() {
        print::note(&format!("hint: {}", escape(&hint)));
    }
}

async fn until_told_to_end() -> Result<(), Stop> {
    let catch = |kind| signal(kind).or_fail(|| "could not wait for signals".to_owned());
    let (mut interrupt, mut terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        for (text, local, remote) in [("8080", 8080, 8080), ("8080:80", 8080, 80), ("0:80", 0, 80)] {
            assert_eq!(text.parse(), Ok(Forward { local, remote }), "{text}");
        }
        for bad in ["", "0", ":80", "80:", "80:0", "80:x", "70000", "1:2:3", "-1"] {
            assert!(bad.parse::<Forward>().is_err(), "{bad}");
        }
    }
}
