//! Starts the egress process, and translates the configuration into its settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use burrow_egress::sets::host_sets;
use burrow_egress::supervisor::{Options, Supervisor};
use burrow_egress::{EgressError, Limits};
use burrow_engine::EgressSettings;
use burrow_model::{EgressRule, Name, NetworkPolicy};
use burrow_network::Network;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use burrow_config::{Config, EgressConfig};

/// The hidden role of the program; `egress` itself is a command for people.
pub(crate) const ROLE: &str = "egress-process";

/// A host set that is detected on this host: the hosts of the default image's packages.
const APT: &str = "apt";

/// Connects to the process of an earlier daemon, or starts one.
pub(crate) async fn open(
    config: &Config,
    program: &Path,
    network: Arc<dyn Network>,
) -> Result<Arc<Supervisor>, EgressError> {
    let EgressConfig { uid, connections, connections_per_second, ref roots, .. } = config.egress;
    let extra_roots = roots.as_deref().map(certificates).transpose()?.unwrap_or_default();
    Supervisor::open(Options {
        program: vec![program.as_os_str().to_owned(), OsString::from(ROLE)],
        run_dir: config.run_dir.join("egress"),
        uid,
        gid: uid,
        network,
        limits: Limits {
            connections_max: connections,
            connections_per_second,
            dns_per_second: connections_per_second,
            ..Limits::STANDARD
        },
        extra_roots,
    })
    .await
}

/// The certificates of a PEM file, in DER. A file without certificates is an error, because its effect would be hard to
/// find.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, EgressError> {
    let failed = |source| EgressError::Process { step: "read `egress.roots` for", source };
    let found: Result<Vec<_>, _> = std::fs::read(path).map_err(failed).map(|text| {
        CertificateDer::pem_slice_iter(&text).map(|found| found.map(|der| der.to_vec())).collect()
    })?;
    match found {
        Ok(found) if found.is_empty() => Err(failed(io::Error::other("it contains no certificate"))),
        Ok(found) => Ok(found),
        Err(error) => Err(failed(io::Error::other(error.to_string()))),
    }
}

/// Ends the process that serves `run_dir`. No daemon may be using it.
pub(crate) async fn end(run_dir: &Path) -> Result<(), EgressError> {
    Supervisor::remove_all(&run_dir.join("egress")).await
}

/// The settings from the configuration, with the predefined host sets and that of the package sources.
pub(crate) fn settings(config: &EgressConfig, package_urls: &[String]) -> EgressSettings {
    let mut rules: Vec<EgressRule> = Vec::new();
    for rule in package_urls.iter().filter_map(|url| rule_of(url)) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let mut found = BTreeMap::new();
    if !rules.is_empty() {
        found.insert(apt(), rules);
    }
    EgressSettings {
        default: NetworkPolicy {
            mode: config.mode,
            rules: config.rules.clone(),
            sets: Vec::new(),
            requests: Vec::new(),
            deny: Vec::new(),
            transforms: None,
        },
        sets: host_sets(found, &config.sets),
        allow_ranges: config.allow_ranges.clone(),
    }
}

fn apt() -> Name {
    APT.parse().expect("it is a name")
}

/// The rule that allows a URL: its scheme, host and port. `None` for anything other than a web host.
fn rule_of(url: &str) -> Option<EgressRule> {
    let (scheme, rest) = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    // Credentials before the host are not part of it.
    let host = authority.rsplit('@').next()?;
    format!("{scheme}://{host}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> EgressConfig {
        Config::parse(Path::new("burrow.toml"), text).unwrap().egress
    }

    #[test]
    fn package_sources_become_a_set_unless_one_is_configured() {
        let urls = [
            "http://packages.example/debian",
            "http://packages.example/debian-security",
            "https://user:pw@secure.example:8443/x",
            "cdrom:[Debian]/",
            "file:/srv/debian",
        ]
        .map(str::to_owned);
        let found = settings(&config(""), &urls);
        let rules: Vec<String> = found.sets[&apt()].iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["http://packages.example", "https://secure.example:8443"]);
        let own = settings(&config("[egress.sets]\napt = [\"mirror.example\"]\n"), &urls);
        assert_eq!(own.sets[&apt()], ["mirror.example".parse().unwrap()]);
        assert!(!settings(&config(""), &[]).sets.contains_key(&apt()));
    }

    #[test]
    fn the_default_policy_is_that_of_the_configuration() {
        let found = settings(&config("[egress]\ndefault = \"none\"\n"), &[]);
        assert_eq!(found.default.mode, burrow_model::NetworkMode::None);
    }
}
