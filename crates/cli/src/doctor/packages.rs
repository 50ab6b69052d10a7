//! How to install packages on this distribution.

use std::fs;

/// The command that installs a package, which has the same name on all distributions.
pub(super) fn install(name: &str) -> String {
    install_on(&fs::read_to_string("/etc/os-release").unwrap_or_default(), name)
}

fn install_on(os_release: &str, name: &str) -> String {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let family = format!("{} {}", value("ID"), value("ID_LIKE"));
    let is = |names: &[&str]| family.split_whitespace().any(|word| names.contains(&word));
    if is(&["debian", "ubuntu"]) {
        format!("sudo apt-get install -y {name}")
    } else if is(&["fedora", "rhel", "centos"]) {
        format!("sudo dnf install -y {name}")
    } else if is(&["arch"]) {
        format!("sudo pacman -S --noconfirm {name}")
    } else if is(&["alpine"]) {
        format!("sudo apk add {name}")
    } else if is(&["suse", "opensuse", "opensuse-tumbleweed", "opensuse-leap"]) {
        format!("sudo zypper install -y {name}")
    } else {
        format!("install the package `{name}` with the package manager of your distribution")
    }
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
}
