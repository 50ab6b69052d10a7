//! Where packages come from: the host's own mirror, or a configured one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::DiskError;
use crate::command::{command, find, run};

/// A mirror to use instead of the host's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// e.g. `http://mirror.example/debian`
    pub url: String,
    /// e.g. `bookworm`
    pub suite: String,
    pub components: Vec<String>,
    /// The keys that sign its indexes; `None`: those that the host's `apt` trusts.
    pub keyring: Option<PathBuf>,
}

/// The lines of a `sources.list`, and the host's settings for fetching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) entries: Vec<Entry>,
    /// Lines of an `apt.conf`: proxies, retries and the like.
    pub(super) settings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) url: String,
    pub(super) suite: String,
    pub(super) components: Vec<String>,
    pub(super) keyring: Option<PathBuf>,
}

impl Sources {
    pub(super) fn list(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            let signed = match &entry.keyring {
                Some(keyring) => format!("[signed-by={}] ", keyring.display()),
                None => String::new(),
            };
            text.push_str(&format!(
                "deb {signed}{} {} {}\n",
                entry.url,
                entry.suite,
                entry.components.join(" ")
            ));
        }
        text
    }
}

pub(super) fn of_mirror(mirror: &Mirror) -> Sources {
    let Mirror { url, suite, components, keyring } = mirror.clone();
    Sources { entries: vec![Entry { url, suite, components, keyring }], settings: host_settings() }
}

/// The host's distribution, from the host's own mirror. Only its release, updates and security fixes: repositories of
/// other vendors are the choice of the host's owner for the host, not for every sandbox.
pub(super) fn of_host() -> Result<Sources, DiskError> {
    if find("apt-get").is_none() {
        return Err(DiskError::NoMirror);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let host = Host::parse(&release).ok_or(DiskError::NoMirror)?;
    let format = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)";
    let targets = run(command("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let entries = parse_targets(&targets, &host);
    if entries.is_empty() {
        return Err(DiskError::NoMirror);
    }
    Ok(Sources { entries, settings: host_settings() })
}

/// The URLs of the host's own release, read from its files: `apt` itself would take seconds.
pub(super) fn urls_of_host(folder: &Path) -> Vec<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(host) = Host::parse(&release) else { return Vec::new() };
    let mut files = vec![folder.join("sources.list")];
    let more = fs::read_dir(folder.join("sources.list.d")).into_iter().flatten();
    files.extend(more.filter_map(|entry| entry.ok().map(|entry| entry.path())));
    let mut urls: Vec<String> = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => urls.extend(urls_of_list(&text, &host.codename)),
            Some("sources") => urls.extend(urls_of_stanzas(&text, &host.codename)),
            Some(_) | None => {}
        }
    }
    urls.sort();
    urls.dedup();
    urls
}

/// Lines like `deb [signed-by=…] URL SUITE COMPONENT…`.
fn urls_of_list(text: &str, codename: &str) -> Vec<String> {
    let url = |line: &str| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
        let mut words = rest.split_whitespace();
        let (url, suite) = (words.next()?, words.next()?);
        suite.starts_with(codename).then(|| url.to_owned())
    };
    text.lines().filter_map(url).collect()
}

/// Stanzas with `URIs:` and `Suites:`, separated by empty lines.
fn urls_of_stanzas(text: &str, codename: &str) -> Vec<String> {
    let mut urls = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            let found = stanza.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
            found.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let ours = field("Suites").iter().any(|suite| suite.starts_with(codename));
        let off = field("Enabled").first().is_some_and(|word| word == "no");
        if ours && !off && field("Types").iter().any(|kind| kind == "deb") {
            urls.extend(field("URIs"));
        }
    }
    urls
}

#[derive(Debug)]
struct Host {
    codename: String,
    components: &'static [&'static str],
    keyring: Option<PathBuf>,
}

impl Host {
    fn parse(os_release: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
            Some(line.trim_matches('"').to_owned())
        };
        // Derivatives with their own mirrors would need their own keys and components.
        let (components, keyring): (&'static [&'static str], _) = match field("ID")?.as_str() {
            "debian" => (&["main"], "/usr/share/keyrings/debian-archive-keyring.gpg"),
            "ubuntu" => (&["main", "universe"], "/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
            _ => return None,
        };
        let keyring = Some(PathBuf::from(keyring)).filter(|keyring| keyring.exists());
        Some(Self { codename: field("VERSION_CODENAME")?, components, keyring })
    }
}

fn parse_targets(targets: &str, host: &Host) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in targets.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [url, suite, component, origin] = fields[..] else { continue };
        // Without downloaded lists the origin is unknown, and printed as the format string.
        let ours = matches!(origin, "Debian" | "Ubuntu" | "" | "$(ORIGIN)");
        let rest = suite.strip_prefix(host.codename.as_str());
        let wanted =
            matches!(rest, Some("" | "-updates" | "-security")) && host.components.contains(&component);
        if !ours || !wanted {
            continue;
        }
        let known = entries.iter_mut().find(|entry| entry.url == url && entry.suite == suite);
        match known {
            Some(entry) if entry.components.iter().any(|known| known == component) => {}
            Some(entry) => entry.components.push(component.to_owned()),
            None => entries.push(Entry {
                url: url.to_owned(),
                suite: suite.to_owned(),
                components: vec![component.to_owned()],
                keyring: host.keyring.clone(),
            }),
        }
    }
    // The release itself comes first: programs that accept one mirror use the first.
    entries.sort_by_key(|entry| entry.suite.len());
    entries
}

/// How the host's `apt` reaches its mirrors. Other settings are not copied.
fn host_settings() -> Vec<String> {
    if find("apt-config").is_none() {
        return Vec::new();
    }
    let dump = run(command("apt-config").arg("dump")).unwrap_or_default();
    dump.lines().filter(|line| concerns_fetching(line)).map(str::to_owned).collect()
}

fn concerns_fetching(line: &str) -> bool {
    const KEPT: [&str; 6] = [
        "Acquire::http::",
        "Acquire::https::",
        "Acquire::Check-Valid-Until ",
        "Acquire::Retries ",
        "Acquire::ForceIPv4 ",
        "Acquire::Queue-Mode ",
    ];
    KEPT.iter().any(|kept| line.starts_with(kept))
}

/// Whether the image contains the keyring, or only the host does.
pub(super) fn keyring_is_inside(rootfs: &Path, keyring: &Path) -> bool {
    keyring.strip_prefix("/").is_ok_and(|inside| rootfs.join(inside).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "\
http://mirror.example/security/|bookworm-security|main|Debian
http://mirror.example/debian/|bookworm|main|Debian
http://mirror.example/debian/|bookworm|contrib|Debian
http://mirror.example/debian/|bookworm-updates|main|Debian
http://mirror.example/debian/|bookworm-backports|main|Debian
https://vendor.example/linux/debian/|bookworm|stable|Vendor
https://vendor.example/pg/|bookworm-pgdg|main|Vendor
https://vendor.example/main/|bookworm|main|Vendor
";

    fn debian() -> Host {
        Host::parse("ID=debian\nVERSION_CODENAME=bookworm\n").unwrap()
    }

    #[test]
    fn only_the_distribution_itself_is_taken_and_its_release_comes_first() {
        let found: Vec<_> = parse_targets(TARGETS, &debian()).into_iter().map(|entry| entry.suite).collect();
        assert_eq!(found, ["bookworm", "bookworm-updates", "bookworm-security"]);
    }

    #[test]
    fn components_of_one_mirror_are_joined() {
        let host = Host::parse("ID=ubuntu\nVERSION_CODENAME=\"noble\"\n").unwrap();
        let targets =
            "http://u/|noble|main|Ubuntu\nhttp://u/|noble|universe|Ubuntu\nhttp://u/|noble|main|Ubuntu\n";
        let entries = parse_targets(targets, &host);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].components, ["main", "universe"]);
    }

    #[test]
    fn a_host_that_never_updated_its_lists_is_understood() {
        let targets = "http://mirror.example/debian/|bookworm|main|$(ORIGIN)\n";
        assert_eq!(parse_targets(targets, &debian()).len(), 1);
    }

    #[test]
    fn a_list_line_names_its_keys_when_there_are_any() {
        let mirror = Mirror {
            url: "http://m.example/debian".into(),
            suite: "trixie".into(),
            components: vec!["main".into(), "contrib".into()],
            keyring: Some("/keys.gpg".into()),
        };
        assert_eq!(
            of_mirror(&mirror).list(),
            "deb [signed-by=/keys.gpg] http://m.example/debian trixie main contrib\n"
        );
    }

    #[test]
    fn of_the_hosts_settings_only_those_for_fetching_are_taken() {
        assert!(concerns_fetching("Acquire::http::Proxy \"http://proxy.example:3128\";"));
        assert!(concerns_fetching("Acquire::Check-Valid-Until \"false\";"));
        assert!(!concerns_fetching("DPkg::Post-Invoke:: \"something\";"));
        assert!(!concerns_fetching("Dir::State \"/somewhere\";"));
    }

    #[test]
    fn the_urls_of_the_hosts_own_release_are_read_from_its_files() {
        let list = "# deb http://old.example/debian bookworm main\n\
                    deb [signed-by=/x arch=amd64] http://a.example/debian bookworm main\n\
                    deb http://other.example/x stable main\n\
                    deb-src http://b.example/debian bookworm main\n";
        assert_eq!(urls_of_list(list, "bookworm"), ["http://a.example/debian"]);
        let stanzas = "Types: deb deb-src\nURIs: http://a.example/debian http://c.example/debian\n\
                       Suites: bookworm bookworm-updates\nComponents: main\n\n\
                       Types: deb\nURIs: http://d.example/x\nSuites: bookworm\nEnabled: no\n\n\
                       Types: deb\nURIs: http://e.example/x\nSuites: stable\n";
        assert_eq!(
            urls_of_stanzas(stanzas, "bookworm"),
            ["http://a.example/debian", "http://c.example/debian"]
        );
    }
}
