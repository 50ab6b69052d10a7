//! How to install packages on this distribution.

use std::fs;

/// The command that installs a package, which has the same name on all distributions.
pub(super) fn install(name: &str) -> String {
    install_on(&os_release(), name)
}

/// The commands that install it without asking; none on an unknown distribution. A fresh Debian has no package lists.
pub(super) fn commands(name: &str) -> Vec<Vec<String>> {
    commands_on(&os_release(), name)
}

fn os_release() -> String {
    fs::read_to_string("/etc/os-release").unwrap_or_default()
}

fn install_on(os_release: &str, name: &str) -> String {
    match commands_on(os_release, name).last() {
        Some(words) => format!("sudo {}", words.join(" ")),
        None => format!("install the package `{name}` with the package manager of your distribution"),
    }
}

fn commands_on(os_release: &str, name: &str) -> Vec<Vec<String>> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let family = format!("{} {}", value("ID"), value("ID_LIKE"));
    let is = |names: &[&str]| family.split_whitespace().any(|word| names.contains(&word));
    let commands: &[&str] = if is(&["debian", "ubuntu"]) {
        &["apt-get update -q", "apt-get install -y"]
    } else if is(&["fedora", "rhel", "centos"]) {
        &["dnf install -y"]
    } else if is(&["arch"]) {
        &["pacman -S --noconfirm"]
    } else if is(&["alpine"]) {
        &["apk add"]
    } else if is(&["suse", "opensuse", "opensuse-tumbleweed", "opensuse-leap"]) {
        &["zypper install -y"]
    } else {
        &[]
    };
    let mut commands: Vec<Vec<String>> =
        commands.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    if let Some(install) = commands.last_mut() {
        install.push(name.to_owned());
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_has_its_own_command() {
        for (os_release, command) in [
            ("ID=debian\n", "sudo apt-get install -y nftables"),
            (
                "NAME=\"Linux Mint\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                "sudo apt-get install -y nftables",
            ),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "sudo dnf install -y nftables"),
            ("ID=arch\n", "sudo pacman -S --noconfirm nftables"),
            ("", "install the package `nftables` with the package manager of your distribution"),
        ] {
            assert_eq!(install_on(os_release, "nftables"), command);
        }
    }

    #[test]
    fn package_lists_are_updated_before_a_package_is_installed() {
        let shown: Vec<_> =
            commands_on("ID=debian\n", "nftables").iter().map(|words| words.join(" ")).collect();
        assert_eq!(shown, ["apt-get update -q", "apt-get install -y nftables"]);
        assert!(commands_on("", "nftables").is_empty());
    }
}
