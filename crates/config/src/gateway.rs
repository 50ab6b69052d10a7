//! The `[gateway]` keys.

use std::time::Duration;

use super::file::{ConfigError, Settings};

#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The domain, with its port if that is not the default port.
    pub domain: Option<String>,
    /// Clients use HTTPS.
    pub https: bool,
    /// Ports of sandboxes that E2B clients create are public by default.
    pub e2b_public_ports: bool,
    pub requests: usize,
    pub requests_per_sandbox: usize,
    /// Time limit for the first byte of a response.
    pub answer: Duration,
}

impl GatewayConfig {
    pub(super) fn of(settings: &Settings, tls: bool) -> Result<Self, ConfigError> {
        let domain = settings.text_if_any("gateway.domain").map(|domain| domain.to_ascii_lowercase());
        if domain.as_deref().is_some_and(|domain| !is_domain(domain)) {
            let problem = "must be a host name, like `boxes.example.com`, with a port if it needs one";
            return Err(settings.refuse("gateway.domain", problem));
        }
        Ok(Self {
            domain,
            https: tls || settings.flag("gateway.https"),
            e2b_public_ports: settings.flag("gateway.e2b_public_ports"),
            requests: settings.count("gateway.requests"),
            requests_per_sandbox: settings.count("gateway.requests_per_sandbox"),
            answer: Duration::from_secs(settings.number("gateway.answer_seconds")),
        })
    }

    /// The domain without its port.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref().map(|domain| domain.split(':').next().unwrap_or(domain))
    }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    let label = |label: &str| {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(good)
    };
    host.split('.').all(label) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_host_name_with_an_optional_port() {
        for (text, good) in [
            ("boxes.example.com", true),
            ("boxes.example.com:8443", true),
            ("boxes", true),
            ("", false),
            (".example.com", false),
            ("boxes.example.com.", false),
            ("https://boxes.example.com", false),
            ("boxes.example.com:0", false),
            ("boxes.example.com/x", false),
            ("*.example.com", false),
        ] {
            assert_eq!(is_domain(text), good, "{text}");
        }
    }
}
