//! Paths that change automatically and say nothing about the work in a sandbox: summarised unless the user asks for all.

use std::sync::LazyLock;

use crate::glob::Glob;

/// Rules for such paths, by the label of their summary.
const RULES: &[(&str, &[&str])] = &[
    (
        "temporary files",
        &["/tmp/**", "/var/tmp/**", "/run/**", "/var/run/**", "/var/lock/**", "/dev/**", "*.swp", ".nfs*"],
    ),
    (
        "caches",
        &[
            "/var/cache/**",
            "/var/lib/apt/lists/**",
            "**/.cache/**",
            "__pycache__",
            "*.pyc",
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            "**/.npm/_cacache",
            "**/.npm/_logs",
            "**/node_modules/.cache",
            "**/.cargo/registry",
            "**/.cargo/git",
            "**/go/pkg/mod/cache",
            "/etc/ld.so.cache",
            "/var/lib/systemd/catalog",
        ],
    ),
    ("pid files", &["*.pid"]),
    ("logs", &["/var/log/**", "*.log"]),
    (
        "histories",
        &[".bash_history", ".python_history", ".node_repl_history", ".lesshst", ".viminfo", ".wget-hsts"],
    ),
    // Each fork gets its own: see the invariant that a fork gets its own identity before it runs.
    (
        "machine identity",
        &[
            "/etc/machine-id",
            "/var/lib/dbus/machine-id",
            "/etc/ssh/ssh_host_*",
            "/etc/hostname",
            "/etc/hosts",
            "/etc/resolv.conf",
            "/etc/mtab",
            "/var/lib/systemd/random-seed",
            "/etc/ssl/certs/ca-certificates.crt",
        ],
    ),
];

static GLOBS: LazyLock<Vec<(&'static str, Vec<Glob>)>> = LazyLock::new(|| {
    let parsed = |pattern: &&str| pattern.parse().expect("the built-in patterns are valid");
    RULES.iter().map(|(name, patterns)| (*name, patterns.iter().map(parsed).collect())).collect()
});

/// The label of a path that is noise; `None` for other paths.
pub fn of(path: &[u8]) -> Option<&'static str> {
    let matching = |(_, globs): &&(&str, Vec<Glob>)| globs.iter().any(|glob| glob.matches(path));
    GLOBS.iter().find(matching).map(|(name, _)| *name)
}

/// Files of the host in a sandbox's tree: not the user's work, and never merged.
pub fn is_hosts(path: &[u8]) -> bool {
    path == b"/.burrow" || path.starts_with(b"/.burrow/") || path == b"/usr/local/bin/burrow-memory"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_what_changes_by_itself() {
        for (path, name) in [
            ("/tmp/x", "temporary files"),
            ("/root/.cache/pip/a", "caches"),
            ("/srv/app/__pycache__/m.pyc", "caches"),
            ("/srv/app/server.pid", "pid files"),
            ("/var/log/dpkg.log", "logs"),
            ("/root/.bash_history", "histories"),
            ("/etc/machine-id", "machine identity"),
        ] {
            assert_eq!(of(path.as_bytes()), Some(name), "{path}");
        }
        for path in
            ["/tmp", "/srv/app/main.py", "/etc/passwd", "/root/catalog.txt", "/var/www/index.html", "/run"]
        {
            assert_eq!(of(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn the_files_of_the_host_are_recognised() {
        assert!(
            is_hosts(b"/.burrow/guest") && is_hosts(b"/.burrow") && is_hosts(b"/usr/local/bin/burrow-memory")
        );
        assert!(!is_hosts(b"/.burrows") && !is_hosts(b"/usr/local/bin/burrow"));
    }
}
