//! Parses which port of which sandbox a request is for, from its host or its path. Pure.

use http::header::HOST;
use http::{HeaderMap, Uri};

/// Always supported: browsers resolve every name below it to the local host.
const LOCAL_DOMAIN: &str = "localhost";

/// The prefix of the path form.
const PATH_PREFIX: &str = "/p/";

/// A port of a sandbox, in the client's notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A well-formed id or name; whether it exists is not known.
    pub sandbox: String,
    pub port: u16,
    pub form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// `<port>-<sandbox>.<domain>`: its own origin.
    Host,
    /// `/p/<sandbox>/<port>/…` on the API's own origin.
    Path { prefix: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestAddress {
    Port(Target),
    /// It has the form of a port's address, but is invalid.
    Malformed(&'static str),
    /// A request to the API.
    Api,
}

/// The host of a request: from its target, else from its `Host` header.
pub fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(HOST).and_then(|host| host.to_str().ok()),
    }
}

/// The host form takes precedence over the path: with it, every path belongs to the sandbox.
pub fn addressed(authority: Option<&str>, path: &str, domain: Option<&str>) -> RequestAddress {
    match authority.map(|authority| of_host(authority, domain)) {
        None | Some(RequestAddress::Api) => of_path(path),
        Some(found @ (RequestAddress::Port(_) | RequestAddress::Malformed(_))) => found,
    }
}

fn of_host(authority: &str, domain: Option<&str>) -> RequestAddress {
    let Some(host) = without_port(authority) else { return RequestAddress::Api };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let below = |domain: &str| host.strip_suffix(domain).and_then(|rest| rest.strip_suffix('.'));
    // The operator's domain first: it may be below `localhost` itself.
    let Some(label) = domain.and_then(below).or_else(|| below(LOCAL_DOMAIN)) else {
        return RequestAddress::Api;
    };
    // Names and ids begin with a letter, so the first hyphen separates the port from the rest.
    let Some((digits, sandbox)) = label.split_once('-') else { return RequestAddress::Api };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return RequestAddress::Api;
    }
    target(sandbox, digits, Form::Host)
}

fn of_path(path: &str) -> RequestAddress {
    let Some(rest) = path.strip_prefix(PATH_PREFIX) else { return RequestAddress::Api };
    let mut parts = rest.splitn(3, '/');
    let (sandbox, port) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let prefix = format!("{PATH_PREFIX}{sandbox}/{port}");
    target(sandbox, port, Form::Path { prefix })
}

fn target(sandbox: &str, digits: &str, form: Form) -> RequestAddress {
    let Some(port) = parse_port(digits) else {
        return RequestAddress::Malformed("a port must be a number from 1 to 65535");
    };
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let begins = sandbox.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if !begins || sandbox.len() > 63 || !sandbox.bytes().all(good) {
        return RequestAddress::Malformed(
            "a sandbox must be given by its id, or by a name of 1 to 63 lower-case letters, digits and hyphens",
        );
    }
    RequestAddress::Port(Target { sandbox: sandbox.to_owned(), port, form })
}

/// Each port has one notation: no sign, no leading zero.
fn parse_port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

/// The host of `host` or `host:port`; `None` for bracketed addresses, which never belong to a sandbox.
fn without_port(authority: &str) -> Option<&str> {
    if authority.starts_with('[') {
        return None;
    }
    match authority.split_once(':') {
        None => Some(authority),
        Some((host, port)) => port.bytes().all(|b| b.is_ascii_digit()).then_some(host),
    }
}

/// Whether a client that uses this host is on the daemon's own host.
pub fn is_local(authority: &str) -> bool {
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let host = bracketed.or_else(|| without_port(authority)).unwrap_or_default();
    host.eq_ignore_ascii_case(LOCAL_DOMAIN)
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether no page of another site can make a browser send this host to us. Such a page can make its own name resolve
/// to this host (DNS rebinding); it cannot use an IP address, a name below `localhost` or the operator's own domain.
pub fn is_own(authority: &str, domain: Option<&str>) -> bool {
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let host = bracketed.or_else(|| without_port(authority)).unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_at_or_below = |domain: &str| {
        let rest = host.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    host.parse::<std::net::IpAddr>().is_ok()
        || is_at_or_below(LOCAL_DOMAIN)
        || domain.is_some_and(is_at_or_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_host_names_are_not_our_own() {
        let domain = Some("boxes.example.com");
        for own in [
            "127.0.0.1:7700",
            "127.0.0.1",
            "[::1]:7700",
            "10.1.2.3",
            "localhost:7700",
            "LOCALHOST.",
            "x.localhost",
            "boxes.example.com:443",
            "a.boxes.example.com",
        ] {
            assert!(is_own(own, domain), "{own}");
        }
        for other in ["evil.example", "evil.example:7700", "evillocalhost", "xboxes.example.com", "", ":7700"]
        {
            assert!(!is_own(other, domain), "{other}");
        }
        assert!(!is_own("boxes.example.com", None));
    }

    #[track_caller]
    fn host(authority: &str, expected: Option<(u16, &str)>) {
        let found = addressed(Some(authority), "/v1/sandboxes", Some("boxes.example.com"));
        let expected = expected.map_or(RequestAddress::Api, |(port, sandbox)| {
            RequestAddress::Port(Target { sandbox: sandbox.to_owned(), port, form: Form::Host })
        });
        assert_eq!(found, expected, "{authority}");
    }

    #[test]
    fn the_host_form_is_parsed() {
        host("8080-my-3-box.localhost:7700", Some((8080, "my-3-box")));
        host("1-a.localhost", Some((1, "a")));
        host("65535-sbxaaaaaaaaaaaaaaaaaaaa.localhost:80", Some((65535, "sbxaaaaaaaaaaaaaaaaaaaa")));
        host("3000-Web.LocalHost:7700", Some((3000, "web")));
        host("3000-web.localhost.:7700", Some((3000, "web")));
        host("3000-web.boxes.example.com", Some((3000, "web")));
        host("3000-web.BOXES.example.com.:443", Some((3000, "web")));
        let below = addressed(Some("3000-web.boxes.localhost:443"), "/", Some("boxes.localhost"));
        assert!(matches!(below, RequestAddress::Port(target) if target.sandbox == "web"));
    }

    #[test]
    fn other_hosts_belong_to_the_api() {
        for authority in [
            "localhost:7700",
            "127.0.0.1:7700",
            "[::1]:7700",
            "[::1]",
            "burrow.example.com",
            "web.localhost",
            "web-8080.localhost",
            "8080.localhost",
            "-web.localhost",
            "8080-web.evillocalhost",
            "8080-web.notboxes.example.com",
            "8080-web.example.com",
            "8080-web.x.boxes.example.com.evil",
            "me@8080-web.localhost",
            "8080-web.localhost:7700:7700",
            "8080-web.localhost:x",
            "",
            ".",
            ".localhost",
        ] {
            host(authority, None);
        }
    }

    #[test]
    fn invalid_hosts_of_the_host_form_are_rejected() {
        for authority in [
            "0-web.localhost",
            "65536-web.localhost",
            "08080-web.localhost",
            "99999999999999999999-web.localhost",
            "80-.localhost",
            "80--web.localhost",
            "80-9web.localhost",
            "80-we_b.localhost",
            "80-web.sub.localhost",
        ] {
            let found = addressed(Some(authority), "/", None);
            assert!(matches!(found, RequestAddress::Malformed(_)), "{authority}: {found:?}");
        }
    }

    #[test]
    fn the_path_form_is_parsed_and_the_host_takes_precedence() {
        let path = |path: &str| addressed(Some("127.0.0.1:7700"), path, None);
        let expected = |sandbox: &str, port| {
            let form = Form::Path { prefix: format!("/p/{sandbox}/{port}") };
            RequestAddress::Port(Target { sandbox: sandbox.to_owned(), port, form })
        };
        assert_eq!(path("/p/web/8080/a/b"), expected("web", 8080));
        assert_eq!(path("/p/web/8080/"), expected("web", 8080));
        assert_eq!(path("/p/web/8080"), expected("web", 8080));
        assert_eq!(path("/p/web/80//evil"), expected("web", 80));
        for other in ["/", "/p", "/px/web/80", "/v1/p/web/80"] {
            assert_eq!(path(other), RequestAddress::Api, "{other}");
        }
        for bad in
            ["/p/", "/p/web", "/p/web/", "/p/web/x", "/p/we%62/80", "/p/../80", "/p/Web/80", "/p/web/080"]
        {
            assert!(matches!(path(bad), RequestAddress::Malformed(_)), "{bad}");
        }
        let both = addressed(Some("80-one.localhost"), "/p/two/90/", None);
        assert!(matches!(both, RequestAddress::Port(Target { port: 80, form: Form::Host, .. })), "{both:?}");
    }

    #[test]
    fn local_hosts_are_recognised() {
        for (authority, local) in [
            ("127.0.0.1:7700", true),
            ("localhost", true),
            ("[::1]:7700", true),
            ("10.0.0.1:7700", false),
            ("burrow.example.com", false),
            ("127.0.0.1.example.com", false),
        ] {
            assert_eq!(is_local(authority), local, "{authority}");
        }
    }
}
