//! `burrow port-forward`: forwards local TCP ports into a sandbox.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::commands::prelude::*;
use crate::transfer::interrupt::Interrupts;

/// Concurrent connections over all ports, half the limit of a sandbox; further ones wait.
const CONNECTIONS_MAX: usize = 128;

/// Delay after a failed accept: without file descriptors, an immediate retry would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Forward local TCP ports into a sandbox, until Ctrl-C
///
/// Works for any TCP protocol: databases, SSH, debuggers. The server in the sandbox may listen on localhost only. A
/// sandbox that is stopped or asleep wakes up at the first connection.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow port-forward web 5432                 localhost:5432 to port 5432 of web
  burrow port-forward web 8080:80 9229         several at once
  burrow port-forward web 0:5432               any free port, which is printed")]
pub(crate) struct PortForwardArgs {
    /// Local address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: IpAddr,
    sandbox: String,
    #[arg(value_name = "[LOCAL:]REMOTE", required = true)]
    ports: Vec<PortForward>,
}

/// A local port and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortForward {
    /// 0 selects a free port.
    local: u16,
    remote: u16,
}

impl FromStr for PortForward {
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
    // Report a mistyped name now, not at the first connection.
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
    // Before the addresses are printed: a client that has read them may interrupt at once.
    let mut interrupts = Interrupts::install()?;
    for (_, address, remote) in &listeners {
        print::line(format!("{address} -> {}:{remote}", args.sandbox))?;
    }
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut forwards = JoinSet::new();
    for (listener, _, remote) in listeners {
        let target = ForwardTarget { client: client.clone(), sandbox: id.clone(), remote };
        forwards.spawn(accept(listener, target, permits.clone()));
    }
    interrupts.next().await;
    // Dropping the set closes open connections.
    Ok(())
}

#[derive(Clone, Debug)]
struct ForwardTarget {
    client: Client,
    sandbox: String,
    remote: u16,
}

async fn accept(listener: TcpListener, target: ForwardTarget, permits: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((local, _)) => {
                    connections.spawn(forward(target.clone(), local, permit));
                }
                Err(error) => {
                    print::note(format!("could not accept a connection: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn forward(target: ForwardTarget, local: TcpStream, _permit: OwnedSemaphorePermit) {
    let _ = local.set_nodelay(true);
    match target.client.connect_port(&target.sandbox, target.remote).await {
        Ok(connection) => {
            if let Err(error) = connection.carry(local).await {
                report(target.remote, &error);
            }
        }
        Err(error) => {
            report(target.remote, &error);
            // Closed only now, so that the reason is printed before the connection closes.
            drop(local);
        }
    }
}

fn report(remote: u16, error: &burrow_client::ClientError) {
    // A local program may close its connection at any time.
    if matches!(error, burrow_client::ClientError::Local { .. }) {
        return;
    }
    let failure = Failure::new(format!("a connection to port {remote} ended")).because(error);
    print::note(failure.to_string());
    if let Some(hint) = error.hint() {
        print::hint(&hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed() {
        for (text, local, remote) in [("8080", 8080, 8080), ("8080:80", 8080, 80), ("0:80", 0, 80)] {
            assert_eq!(text.parse(), Ok(PortForward { local, remote }), "{text}");
        }
        for bad in ["", "0", ":80", "80:", "80:0", "80:x", "70000", "1:2:3", "-1"] {
            assert!(bad.parse::<PortForward>().is_err(), "{bad}");
        }
    }
}
