//! How to install something on this distribution.

use std::fs;

/// The command that installs a package, with the distribution's own name for it.
pub(super) fn install(package: Package) -> String {
    install_on(&fs::read_to_string("/etc/os-release").unwrap_or_default(), package)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Package {
    Nftables,
    Qemu,
}

fn install_on(os_release: &str, package: Package) -> String {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let family = format!("{} {}", value("ID"), value("ID_LIKE"));
    let is = |names: &[&str]| family.split_whitespace().any(|word| names.contains(&word));
    let name = match package {
        Package::Nftables => "nftables",
        Package::Qemu if is(&["debian", "ubuntu"]) => "qemu-system-x86",
        Package::Qemu if is(&["fedora", "rhel", "centos"]) => "qemu-system-x86-core",
        Package::Qemu if is(&["arch"]) => "qemu-system-x86",
        Package::Qemu if is(&["alpine"]) => "qemu-system-x86_64",
        Package::Qemu => "qemu-x86",
    };
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
        format!("install the package `{name}` with your distribution's own tool")
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
            ("", "install the package `nftables` with your distribution's own tool"),
        ] {
            assert_eq!(install_on(os_release, Package::Nftables), command);
        }
    }
}
