//! Addresses of ports that the client can open.

use http::{HeaderMap, Uri};

use super::access::TOKEN_PARAMETER;
use super::address;
use burrow_config::GatewayConfig;

/// Builds addresses for the client: below the configured domain; for clients on this host, below `localhost`; for
/// others, for which only the API's own host is known to resolve, in the path form.
#[derive(Debug)]
pub struct Links {
    scheme: &'static str,
    base: Base,
}

#[derive(Debug)]
enum Base {
    /// The part after the sandbox's label, including the port.
    Domain(String),
    /// The API's own host.
    Path(String),
}

impl Links {
    pub fn new(config: &GatewayConfig, uri: &Uri, headers: &HeaderMap) -> Self {
        let scheme = if config.https { "https" } else { "http" };
        let authority = address::authority(uri, headers).unwrap_or("localhost");
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        let port = port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        let base = match &config.domain {
            Some(domain) => Base::Domain(domain.clone()),
            None if address::is_local(authority) => {
                Base::Domain(port.map_or("localhost".to_owned(), |port| format!("localhost:{port}")))
            }
            None => Base::Path(authority.to_owned()),
        };
        Self { scheme, base }
    }

    pub fn plain(&self, sandbox: &str, port: u16) -> String {
        match &self.base {
            Base::Domain(domain) => format!("{}://{port}-{sandbox}.{domain}/", self.scheme),
            Base::Path(host) => format!("{}://{host}/p/{sandbox}/{port}/", self.scheme),
        }
    }

    pub fn signed(&self, sandbox: &str, port: u16, token: &str) -> String {
        format!("{}?{TOKEN_PARAMETER}={token}", self.plain(sandbox, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(domain: Option<&str>, https: bool, host: &str, expected: &str) {
        let defaults = burrow_config::Config::parse(std::path::Path::new("burrow.toml"), "").unwrap().gateway;
        let config = GatewayConfig { domain: domain.map(str::to_owned), https, ..defaults };
        let mut headers = HeaderMap::new();
        headers.insert("host", host.parse().unwrap());
        let links = Links::new(&config, &Uri::from_static("/v1/x"), &headers);
        assert_eq!(links.plain("web", 80), expected);
    }

    #[test]
    fn addresses_depend_on_how_the_client_reached_the_daemon() {
        check(None, false, "127.0.0.1:7700", "http://80-web.localhost:7700/");
        check(None, false, "localhost:7701", "http://80-web.localhost:7701/");
        check(None, false, "[::1]:7700", "http://80-web.localhost:7700/");
        check(None, false, "10.1.1.1:7700", "http://10.1.1.1:7700/p/web/80/");
        check(Some("boxes.example.com"), true, "10.1.1.1:7700", "https://80-web.boxes.example.com/");
        check(Some("boxes.example.com:8443"), true, "127.0.0.1", "https://80-web.boxes.example.com:8443/");
    }
}
