//! Which sandbox a request is for, as E2B's clients name it, and the address that it comes from.

use std::net::IpAddr;

use axum::extract::Request;
use http::HeaderMap;

/// The port on which E2B's agent would listen inside. Nothing is forwarded to it: the daemon answers instead.
pub const ENVD_PORT: u16 = 49983;

/// The port inside on which the bridge listens, and on which E2B's clients expect it.
pub const CODE_PORT: u16 = 49999;

const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";

/// The address of the client; the server adds it to every request.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub IpAddr);

/// The sandbox that a request is for, in the client's notation. `None` for a signed address of a file.
#[derive(Clone, Debug)]
pub struct Addressee(pub Option<String>);

/// The sandbox and its port, from the headers.
pub fn addressed(headers: &HeaderMap) -> Option<(String, u16)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let sandbox = text(SANDBOX_ID).filter(|id| !id.is_empty())?;
    let port = match text(SANDBOX_PORT) {
        None => ENVD_PORT,
        Some(port) => port.parse().ok()?,
    };
    Some((sandbox.to_owned(), port))
}

/// Whether this is a signed address of a file, on the daemon's own host.
pub fn is_signed(request: &Request) -> bool {
    let signed = |query: &str| query.split('&').any(|pair| pair.starts_with("signature="));
    request.uri().path() == "/files" && request.uri().query().is_some_and(signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_and_port_are_read_from_headers() {
        let of = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            addressed(&headers)
        };
        assert_eq!(of(&[(SANDBOX_ID, "sbx1")]), Some(("sbx1".to_owned(), 49983)));
        assert_eq!(of(&[(SANDBOX_ID, "sbx1"), (SANDBOX_PORT, "8080")]), Some(("sbx1".to_owned(), 8080)));
        for none in
            [&[][..], &[(SANDBOX_ID, "")], &[(SANDBOX_PORT, "1")], &[(SANDBOX_ID, "a"), (SANDBOX_PORT, "x")]]
        {
            assert_eq!(of(none), None);
        }
    }
}
