//! The line of `/etc/hosts` that names a sandbox.
//!
//! Pure: text in, text out. The container driver writes the file from the host, the agent in a microVM and after a
//! fork; all of them use this, so that the line is always the same.
//!
//! ```text
//!   127.0.1.1   web web-parent web-grandparent # this sandbox
//! ```
//!
//! The sandbox's own name is first. The names after it are former ones: of the sandbox that it was forked from, and so
//! on. A program that is still running after a fork, or that reads its old files, may know its host by the old name (the nodes
//! of an Erlang cluster have it in their names), and must still be able to resolve it.
//!
//! Lines without the mark belong to the user and are not changed.

/// Ends the line that Burrow wrote.
pub const MARK: &str = "# this sandbox";

/// The host name of an image while it is built. It is the name of no sandbox, and as long as an id, so that a sandbox's name
/// fits in its place.
pub const IMAGE_HOSTNAME: &str = "sbxaaaaaaaaaaaaaaaaaaaa";

/// Former names that are kept, newest first. Each generation of forks adds one.
const FORMER_MAX: usize = 16;

const ADDRESS: &str = "127.0.1.1";

/// Whether the former names are kept in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerNames {
    Keep,
    /// For an image: sandboxes that are created from it are unrelated to the sandbox that built it.
    Drop,
}

/// The names in Burrow's line, the current one first. Empty if there is no such line.
pub fn names(hosts: &str) -> Vec<&str> {
    let Some(line) = hosts.lines().find(|line| is_ours(line)) else { return Vec::new() };
    let line = line.trim_end();
    line[..line.len() - MARK.len()].split_whitespace().skip(1).collect()
}

/// The file with `localhost` if it is missing (`sudo` complains if it cannot resolve the name of its host), the user's
/// lines, and the sandbox's name.
pub fn with_name(hosts: &str, hostname: &str, former: FormerNames) -> String {
    let mut text = String::new();
    if !has_localhost(hosts, "127.0.0.1") {
        text.push_str("127.0.0.1\tlocalhost\n");
    }
    if !has_localhost(hosts, "::1") {
        text.push_str("::1\tlocalhost ip6-localhost ip6-loopback\n");
    }
    text + &renamed(hosts, hostname, former)
}

/// The file with another name in Burrow's line; nothing else is changed.
pub fn renamed(hosts: &str, hostname: &str, former: FormerNames) -> String {
    let mut text = String::with_capacity(hosts.len() + hostname.len());
    for line in hosts.lines().filter(|line| !is_ours(line)) {
        text.push_str(line);
        text.push('\n');
    }
    let mut line = vec![hostname];
    if former == FormerNames::Keep {
        for name in names(hosts) {
            if name != IMAGE_HOSTNAME && !line.contains(&name) && line.len() <= FORMER_MAX {
                line.push(name);
            }
        }
    }
    text.push_str(&format!("{ADDRESS}\t{} {MARK}\n", line.join(" ")));
    text
}

fn is_ours(line: &str) -> bool {
    line.trim_end().ends_with(MARK)
}

fn has_localhost(hosts: &str, address: &str) -> bool {
    hosts.lines().any(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        words.next() == Some(address) && words.any(|word| word == "localhost")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1 localhost\n::1 localhost\n10.0.0.9 db\n";

    #[test]
    fn an_empty_hosts_file_gets_localhost_and_the_name() {
        assert_eq!(
            with_name("", "box", FormerNames::Keep),
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tbox # this sandbox\n"
        );
    }

    #[test]
    fn the_names_of_ancestors_stay_behind_the_new_one() {
        let mut hosts = format!("{LOCAL}127.0.1.1\tparent # this sandbox\n");
        // Both the host and the agent rename after a fork; the second time changes nothing.
        for name in ["child", "child", "grandchild"] {
            hosts = with_name(&hosts, name, FormerNames::Keep);
        }
        assert_eq!(hosts, format!("{LOCAL}127.0.1.1\tgrandchild child parent # this sandbox\n"));
        assert_eq!(names(&hosts), ["grandchild", "child", "parent"]);
    }

    #[test]
    fn a_former_name_that_is_used_again_is_listed_once() {
        let hosts = format!("{LOCAL}127.0.1.1\tb a # this sandbox\n");
        let hosts = renamed(&hosts, "a", FormerNames::Keep);
        assert_eq!(names(&hosts), ["a", "b"]);
    }

    #[test]
    fn the_number_of_former_names_is_bounded() {
        let mut hosts = String::new();
        for generation in 0..100 {
            hosts = with_name(&hosts, &format!("g{generation}"), FormerNames::Keep);
        }
        let names = names(&hosts);
        assert_eq!(names.len(), 1 + FORMER_MAX);
        assert_eq!((names[0], names[1]), ("g99", "g98"));
    }

    #[test]
    fn an_image_keeps_no_former_names() {
        let sandbox = format!("{LOCAL}127.0.1.1\tchild parent # this sandbox\n");
        let image = with_name(&sandbox, IMAGE_HOSTNAME, FormerNames::Drop);
        assert_eq!(image, format!("{LOCAL}127.0.1.1\t{IMAGE_HOSTNAME} # this sandbox\n"));
        assert_eq!(
            with_name(&image, "box", FormerNames::Keep),
            format!("{LOCAL}127.0.1.1\tbox # this sandbox\n")
        );
    }

    #[test]
    fn a_line_without_the_mark_is_not_changed() {
        let owners = format!("{LOCAL}127.0.1.1\tparent parent.example\n");
        assert_eq!(names(&owners), [""; 0]);
        assert_eq!(
            renamed(&owners, "child", FormerNames::Keep),
            format!("{owners}127.0.1.1\tchild # this sandbox\n")
        );
    }
}
