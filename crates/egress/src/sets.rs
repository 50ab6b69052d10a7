//! The predefined host sets: the public hosts of package managers, by name.
//!
//! The operator can replace each of them, for example by the hosts of a company's mirror. The union of all of them is
//! the set [`ALL`]. Hosts are exact names: a wildcard would include every name that the operator of a domain, or of a
//! content delivery network, hands out.

use std::collections::BTreeMap;

use burrow_model::{EgressRule, Name};

/// The union of the predefined sets.
pub const ALL: &str = "packages";

/// `https://` allows TLS on port 443 only. Package managers of distributions also use HTTP on port 80, because packages
/// are signed.
const PREDEFINED: [(&str, &[&str]); 13] = [
    ("alpine", &["dl-cdn.alpinelinux.org"]),
    ("crates", &["https://crates.io", "https://index.crates.io", "https://static.crates.io"]),
    ("debian", &["deb.debian.org", "security.debian.org"]),
    (
        "dockerhub",
        &[
            "https://auth.docker.io",
            "https://index.docker.io",
            "https://registry-1.docker.io",
            "https://production.cloudflare.docker.com",
            "https://docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com",
        ],
    ),
    (
        "github",
        &[
            "https://github.com",
            "https://api.github.com",
            "https://codeload.github.com",
            "https://objects.githubusercontent.com",
            "https://raw.githubusercontent.com",
            "https://release-assets.githubusercontent.com",
        ],
    ),
    ("gitlab", &["https://gitlab.com"]),
    ("go", &["https://proxy.golang.org", "https://sum.golang.org"]),
    (
        "huggingface",
        &[
            "https://huggingface.co",
            "https://cdn-lfs.hf.co",
            "https://cdn-lfs-eu-1.hf.co",
            "https://cdn-lfs-us-1.hf.co",
            "https://cas-bridge.xethub.hf.co",
            "https://cas-server.xethub.hf.co",
            "https://transfer.xethub.hf.co",
        ],
    ),
    ("maven", &["https://repo.maven.apache.org", "https://repo1.maven.org"]),
    ("npm", &["https://registry.npmjs.org", "https://registry.yarnpkg.com"]),
    ("pypi", &["https://pypi.org", "https://files.pythonhosted.org"]),
    ("rubygems", &["https://rubygems.org", "https://index.rubygems.org"]),
    ("ubuntu", &["archive.ubuntu.com", "ports.ubuntu.com", "security.ubuntu.com"]),
];

/// The sets that exist on a host: the predefined ones, those in `found` (detected on this host), and those in
/// `configured`, each of which replaces one of the same name. [`ALL`] is the union of all but the configured sets with
/// new names, unless it is configured.
pub fn host_sets(
    found: BTreeMap<Name, Vec<EgressRule>>,
    configured: &BTreeMap<Name, Vec<EgressRule>>,
) -> BTreeMap<Name, Vec<EgressRule>> {
    let mut sets: BTreeMap<Name, Vec<EgressRule>> = predefined().collect();
    sets.extend(found);
    for (name, rules) in &mut sets {
        if let Some(own) = configured.get(name) {
            rules.clone_from(own);
        }
    }
    let mut all: Vec<EgressRule> = Vec::new();
    for rule in sets.values().flatten() {
        if !all.contains(rule) {
            all.push(rule.clone());
        }
    }
    sets.insert(name(ALL), all);
    sets.extend(configured.clone());
    sets
}

fn predefined() -> impl Iterator<Item = (Name, Vec<EgressRule>)> {
    let rule = |text: &&str| text.parse().expect("a test parses every rule");
    PREDEFINED.into_iter().map(move |(set, rules)| (name(set), rules.iter().map(rule).collect()))
}

fn name(text: &str) -> Name {
    text.parse().expect("a test parses every name")
}

#[cfg(test)]
mod tests {
    use burrow_model::HostPattern;

    use super::*;

    #[test]
    fn every_predefined_host_is_an_exact_name() {
        for (set, rules) in predefined() {
            assert!(!rules.is_empty(), "{set}");
            for rule in rules {
                assert!(matches!(rule.host, HostPattern::Exact(_)), "{set}: {rule}");
            }
        }
    }

    #[test]
    fn a_configured_set_replaces_the_predefined_one_and_its_part_of_the_union() {
        let configured = [
            (name("pypi"), vec!["https://mirror.example".parse().unwrap()]),
            (name("ours"), vec!["ours.example".parse().unwrap()]),
        ];
        let found = [(name("apt"), vec!["http://packages.example".parse().unwrap()])];
        let sets = host_sets(found.into(), &configured.into());
        let texts = |set: &str| sets[&name(set)].iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("pypi"), ["https://mirror.example"]);
        assert_eq!(texts("ours"), ["ours.example"]);
        let all = texts(ALL);
        for rule in ["https://mirror.example", "http://packages.example", "https://registry.npmjs.org"] {
            assert!(all.iter().any(|known| known == rule), "{rule}: {all:?}");
        }
        assert!(!all.iter().any(|rule| rule == "https://pypi.org" || rule == "ours.example"), "{all:?}");
        assert_eq!(sets.len(), 13 + 3, "apt, ours and the union");
    }

    #[test]
    fn the_union_can_be_configured_too() {
        let configured = [(name(ALL), vec!["https://mirror.example".parse().unwrap()])];
        let sets = host_sets(BTreeMap::new(), &configured.into());
        assert_eq!(sets[&name(ALL)].len(), 1);
        assert_eq!(sets[&name("pypi")].len(), 2);
    }
}
