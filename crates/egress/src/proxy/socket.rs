//! The socket options of connections.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Sets options on both sides of a flow: data is not delayed (`TCP_NODELAY`), and dead peers are detected
/// (keep-alive).
pub(crate) fn prepare(stream: &TcpStream) {
    // If a socket rejects an option, it works without it.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15));
    let _ = sockopt::set_tcp_keepcnt(stream, 4);
}
