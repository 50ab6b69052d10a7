//! Package managers inside a sandbox, against the mirrors that this host uses, which must be reachable.
//!
//! No host is named here: the host's own configuration of `apt`, `pip` and `npm` names the package sources. A part whose
//! mirror is unreachable, or whose client is not installed, is listed as skipped. `BURROW_TEST_ALLOW_RANGES` names ranges
//! that the egress process may connect to in addition to public addresses; the default is exactly the mirrors' own
//! addresses.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::process::Command;

use crate::harness::Daemon;

/// A small old package without dependencies.
const PIP_PACKAGE: &str = "six";
const NPM_PACKAGE: &str = "is-number";
const APT_PACKAGE: &str = "hello";

/// The last npm that runs on the Node.js of Debian 12.
const NPM: &str = "npm@9";

/// Listed at the end of the run. Not printed by a macro, whose output the test runner hides when a test passes.
pub(crate) fn skipped(part: &str, why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {part} in a sandbox: {why}");
}

/// Standard output of a command of the host, if it succeeds.
fn host(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    // The host's own cache would answer instead of the mirror.
    command.args(arguments).env("PIP_FIND_LINKS", "").env("PIP_NO_CACHE_DIR", "1");
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
}

/// `https://host:port` of a URL.
fn rule_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?;
    Some(format!("{scheme}://{host}"))
}

/// The addresses of a rule's host; empty if it cannot be resolved.
pub(crate) fn addresses_of(rule: &str) -> BTreeSet<String> {
    let host = rule.rsplit("://").next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let found = (host, 443).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip().to_string()).collect()
}

/// Where `pip` finds packages, and from where it downloads them.
fn pip_urls() -> Option<(String, Vec<String>)> {
    let of_pip = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";
    let index = host("pip", &["config", "get", "global.index-url"])
        .or_else(|| std::env::var("PIP_INDEX_URL").ok())
        .or_else(|| host("python3", &["-c", of_pip]))?;
    let arguments =
        ["install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", PIP_PACKAGE];
    let report: serde_json::Value = serde_json::from_str(&host("pip", &arguments)?).ok()?;
    let file = report["install"][0]["download_info"]["url"].as_str()?.to_owned();
    let rules = [rule_of(&index)?, rule_of(&file).filter(|rule| rule.starts_with("http"))?];
    Some((index, rules.into_iter().collect::<BTreeSet<_>>().into_iter().collect()))
}

fn npm_registry() -> Option<(String, String)> {
    let registry = host("npm", &["config", "get", "registry"])?;
    let rule = rule_of(&registry)?;
    Some((registry, rule))
}

/// The URLs of the host's package sources, from its own configuration.
pub(crate) fn apt_rules() -> Vec<String> {
    let targets = host("apt-get", &["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    let rules: BTreeSet<String> = targets.unwrap_or_default().lines().filter_map(rule_of).collect();
    rules.into_iter().collect()
}

/// A daemon that may connect to the mirrors, whatever their addresses are.
pub(crate) fn daemon(rules: &[String]) -> Daemon {
    let ranges = std::env::var("BURROW_TEST_ALLOW_RANGES").ok().filter(|ranges| !ranges.is_empty());
    let ranges: Vec<String> = match ranges {
        Some(ranges) => ranges.split(',').map(str::to_owned).collect(),
        None => {
            rules.iter().flat_map(|rule| addresses_of(rule)).collect::<BTreeSet<_>>().into_iter().collect()
        }
    };
    Daemon::start_with(&format!("egress.allow_ranges = {ranges:?}"))
}

/// A sandbox that trusts the same certificate authorities as the host.
fn sandbox(daemon: &Daemon, rules: &[String]) {
    let mut arguments = vec!["create", "--name", "alpha", "--ram", "1G"];
    for rule in rules {
        arguments.extend(["--allow", rule.as_str()]);
    }
    daemon.ok(&arguments);
    let bundle = std::env::var("SSL_CERT_FILE").unwrap_or("/etc/ssl/certs/ca-certificates.crt".to_owned());
    if Path::new(&bundle).exists() {
        daemon.ok(&["cp", &bundle, "alpha:/root/ca.pem"]);
    }
}

const TRUST: &str = "export SSL_CERT_FILE=/root/ca.pem PIP_CERT=/root/ca.pem NODE_EXTRA_CA_CERTS=/root/ca.pem \
                     GIT_SSL_CAINFO=/root/ca.pem PIP_DISABLE_PIP_VERSION_CHECK=1; ";

#[test]
fn apt_get_works_with_rules_for_its_sources_where_the_mirror_is_reachable() {
    let rules = apt_rules();
    if rules.is_empty() || rules.iter().any(|rule| addresses_of(rule).is_empty()) {
        return skipped("apt-get", "the host's package sources cannot be looked up");
    }
    let daemon = daemon(&rules);
    sandbox(&daemon, &[]);
    let closed =
        daemon.cli(&["exec", "alpha", "-c", "apt-get -o Acquire::Retries=0 update 2>&1 | grep -c ^Err"]);
    assert_ne!(String::from_utf8_lossy(&closed.stdout).trim(), "0", "closed until opened");
    daemon.ok(&["update", "alpha", "--set", "apt"]);
    daemon.sh("alpha", "apt-get -q update && apt-get -q install -y --no-install-recommends hello");
    assert_eq!(daemon.sh("alpha", APT_PACKAGE), "Hello, world!");
}

#[test]
fn pip_installs_with_rules_for_its_hosts_where_the_index_is_reachable() {
    let Some((index, rules)) = pip_urls() else {
        return skipped("pip install", "the host's own pip cannot reach its index");
    };
    let daemon = daemon(&rules);
    sandbox(&daemon, &rules[..1]);
    let line = format!(
        "{TRUST}python3 -m venv /root/venv && /root/venv/bin/pip install -q --retries 0 --index-url {index} {PIP_PACKAGE}"
    );
    if rules.len() > 1 {
        // One host of two is not enough, and the exec reports which is missing.
        let request = serde_json::json!({ "command": line, "wait": true });
        let result = daemon.post("/v1/sandboxes/alpha/execs", &request).expect(200);
        assert_ne!(result["exec"]["outcome"]["exit_code"], 0, "{result}");
        let missing = rules[1].rsplit("://").next().unwrap();
        let denied = result["exec"]["egress_denied"].as_array().unwrap();
        assert!(denied.iter().any(|denied| denied["host"] == missing), "{result}");
        daemon.ok(&["egress", "allow", "alpha", &rules[1]]);
    }
    daemon.sh("alpha", &line);
    assert_eq!(daemon.sh("alpha", "/root/venv/bin/python -c 'import six; print(six.__name__)'"), PIP_PACKAGE);
}

#[test]
fn npm_installs_with_a_rule_for_its_registry_where_that_is_reachable() {
    let Some((registry, rule)) = npm_registry() else {
        return skipped("npm install", "the host has no npm that names a registry");
    };
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path().to_str().unwrap();
    if host("npm", &["pack", NPM, "--silent", "--pack-destination", folder_path]).is_none() {
        return skipped("npm install", "the host's own npm cannot reach its registry");
    }
    let mut rules = apt_rules();
    if rules.is_empty() || rules.iter().any(|rule| addresses_of(rule).is_empty()) {
        return skipped(
            "npm install",
            "the host's package sources cannot be looked up, and Node.js comes from there",
        );
    }
    rules.push(rule.clone());
    let daemon = daemon(&rules);
    sandbox(&daemon, &[]);
    daemon.ok(&["update", "alpha", "--set", "apt"]);
    daemon.sh("alpha", "apt-get -q update && apt-get -q install -y --no-install-recommends nodejs");
    let package = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    daemon.ok(&["cp", package.to_str().unwrap(), "alpha:/root/npm.tgz"]);
    let line = format!(
        "{TRUST}mkdir -p /root/npm /root/app && tar xzf /root/npm.tgz -C /root/npm && cd /root/app && \
         node /root/npm/package/bin/npm-cli.js install --no-audit --no-fund --registry {registry} {NPM_PACKAGE} >/dev/null && \
         node -p \"require('{NPM_PACKAGE}')(5)\""
    );
    // Denied: npm gives up at once, instead of after two more attempts in more than a minute.
    let request = serde_json::json!({ "command": format!("({line}) 2>&1"), "wait": true });
    let result = daemon.post("/v1/sandboxes/alpha/execs", &request).expect(200);
    let host = rule.rsplit("://").next().unwrap();
    assert_eq!(result["exec"]["egress_denied"][0]["host"], host, "{result}");
    assert!(result.to_string().contains("getaddrinfo ENOTFOUND"), "{result}");
    let questions = crate::host_sets::denied_questions(&daemon, "alpha", host);
    assert!((1..=4).contains(&questions), "three attempts are at least six questions; these are {questions}");
    daemon.ok(&["egress", "allow", "alpha", &rule]);
    assert_eq!(daemon.sh("alpha", &line), "true");
}
