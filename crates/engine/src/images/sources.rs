//! Finds the hosts from which an image's package manager fetches, so that a build may reach exactly these.

use std::collections::BTreeSet;

use burrow_model::{EgressRule, NetworkMode, NetworkPolicy};

/// Hosts in one image's sources: a distribution has a handful.
const HOSTS_MAX: usize = 64;

/// The file with package sources, and the directory with more.
pub(super) const FILE: &str = "etc/apt/sources.list";
pub(super) const FOLDER: &str = "etc/apt/sources.list.d";

/// A policy that allows the hosts in these source lists, in the one-line format or the one with fields.
pub(super) fn policy(texts: &[String]) -> NetworkPolicy {
    let hosts: BTreeSet<String> = texts.iter().flat_map(|text| hosts(text)).take(HOSTS_MAX).collect();
    let rules = hosts.iter().filter_map(|host| host.parse::<EgressRule>().ok()).collect();
    NetworkPolicy { mode: NetworkMode::Allowlist, rules, ..NetworkPolicy::closed() }
}

fn hosts(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(str::split_whitespace).filter_map(host)
}

/// `host:port` of a URL to which `apt` would connect.
fn host(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split('/').next()?;
    let authority = authority.rsplit('@').next()?;
    match authority.rsplit_once(':') {
        Some((name, given)) if given.parse::<u16>().is_ok() && !name.contains('*') => {
            Some(authority.to_owned())
        }
        Some(_) => None,
        // A pattern would allow hosts that the sources do not name.
        None if authority.is_empty() || authority.contains('*') => None,
        None => Some(format!("{authority}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_package_sources_are_read_and_only_their_hosts_are_allowed() {
        let list = "deb http://mirror.example/debian bookworm main\n# deb http://old.example x main\n\
                    deb [signed-by=/x] https://sec.example:8443/s bookworm main\ndeb file:/srv x main\ndeb http://*.example x\n";
        let fields =
            "Types: deb\nURIs: https://a.example/ubuntu/ http://user:pw@b.example/x\nSuites: noble\n";
        let found: Vec<String> = hosts(list).chain(hosts(fields)).collect();
        assert_eq!(found, ["mirror.example:80", "sec.example:8443", "a.example:443", "b.example:80"]);
        let policy = policy(&[list.to_owned(), fields.to_owned()]);
        assert_eq!((policy.mode, policy.rules.len()), (NetworkMode::Allowlist, 4));
        assert_eq!(super::policy(&[]), NetworkPolicy::closed());
    }
}
