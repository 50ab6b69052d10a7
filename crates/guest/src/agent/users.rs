//! Users and groups as defined by the sandbox's own `/etc/passwd` and `/etc/group`.
//!
//! The static agent has no name service switch, and root inside controls the files: they may be missing, huge, or a
//! FIFO. They are read with limits, and again each time, since `useradd` may just have run.

use std::collections::HashMap;

use rustix::fs::{Mode, OFlags};

use super::failure::fail;
use crate::protocol::{ErrorCode, RequestError};

/// A passwd file of some 50,000 users.
const FILE_BYTES_MAX: usize = 4 << 20;

/// NGROUPS_MAX of Linux.
const GROUPS_MAX: usize = 65_536;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) name: String,
    pub(super) home: String,
    pub(super) shell: String,
}

/// The names of all users and groups, for listings.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) users: HashMap<u32, String>,
    pub(super) groups: HashMap<u32, String>,
}

/// Resolves `name`, `uid`, `name:group` or `uid:gid`; root when absent.
pub(super) fn resolve(wanted: Option<&str>) -> Result<User, RequestError> {
    resolve_in(wanted, &read_bounded("/etc/passwd"), &read_bounded("/etc/group"))
}

pub(super) fn names() -> Names {
    let mut names = Names::default();
    for line in read_bounded("/etc/passwd").lines().filter_map(Passwd::parse) {
        names.users.entry(line.uid).or_insert_with(|| line.name.to_owned());
    }
    for line in read_bounded("/etc/group").lines().filter_map(Group::parse) {
        names.groups.entry(line.gid).or_insert_with(|| line.name.to_owned());
    }
    names
}

struct Passwd<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl<'a> Passwd<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let _password = fields.next()?;
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let _comment = fields.next()?;
        let home = fields.next()?;
        Some(Self { name, uid, gid, home, shell: fields.next().unwrap_or("") })
    }
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let _password = fields.next()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Self { name, gid, members: fields.next().unwrap_or("") })
    }
}

fn resolve_in(wanted: Option<&str>, passwd: &str, group: &str) -> Result<User, RequestError> {
    let wanted = wanted.unwrap_or("0");
    let (user_part, group_part) = match wanted.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (wanted, None),
    };
    let line = passwd.lines().filter_map(Passwd::parse).find(|line| line.name == user_part);
    let number = user_part.parse::<u32>().ok().filter(|&uid| uid != u32::MAX);
    let line = line.or_else(|| {
        passwd.lines().filter_map(Passwd::parse).find(|line| number.is_some_and(|uid| line.uid == uid))
    });
    let mut user = match (line, number) {
        (Some(line), _) => User {
            uid: line.uid,
            gid: line.gid,
            groups: Vec::new(),
            name: line.name.to_owned(),
            home: if line.home.starts_with('/') { line.home.to_owned() } else { "/".to_owned() },
            shell: if line.shell.is_empty() { "/bin/sh".to_owned() } else { line.shell.to_owned() },
        },
        (None, Some(uid)) => User {
            uid,
            gid: 0,
            groups: Vec::new(),
            name: uid.to_string(),
            home: if uid == 0 { "/root".to_owned() } else { "/".to_owned() },
            shell: "/bin/sh".to_owned(),
        },
        (None, None) => {
            return Err(fail(ErrorCode::UnknownUser, format_args!("unknown user `{user_part}`")));
        }
    };
    if let Some(wanted) = group_part {
        user.gid = group_id(wanted, group)?;
        user.groups = vec![user.gid];
    } else {
        user.groups = memberships(&user, group);
    }
    Ok(user)
}

fn group_id(wanted: &str, group: &str) -> Result<u32, RequestError> {
    let named = group.lines().filter_map(Group::parse).find(|line| line.name == wanted).map(|line| line.gid);
    named
        .or_else(|| wanted.parse().ok().filter(|&gid| gid != u32::MAX))
        .ok_or_else(|| fail(ErrorCode::UnknownUser, format_args!("unknown group `{wanted}`")))
}

fn memberships(user: &User, group: &str) -> Vec<u32> {
    let mut groups = vec![user.gid];
    for line in group.lines().filter_map(Group::parse) {
        if groups.len() == GROUPS_MAX {
            break;
        }
        if line.gid != user.gid && line.members.split(',').any(|member| member == user.name) {
            groups.push(line.gid);
        }
    }
    groups
}

/// The file's text; empty if it is not a regular file of a reasonable size.
fn read_bounded(path: &str) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return String::new() };
    let regular = rustix::fs::fstat(&file)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
    if !regular {
        return String::new();
    }
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 8192];
    while bytes.len() < FILE_BYTES_MAX {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh\nbroken\nodd:x:7:7::relative:\n";
    const GROUP: &str = "root:x:0:\nuser:x:1000:\nsudo:x:27:other,user\nvideo:x:44:user\n";

    #[track_caller]
    fn check(wanted: Option<&str>, uid: u32, gid: u32, groups: &[u32], home: &str) {
        let user = resolve_in(wanted, PASSWD, GROUP).unwrap();
        assert_eq!(
            (user.uid, user.gid, user.groups.as_slice(), user.home.as_str()),
            (uid, gid, groups, home)
        );
    }

    #[test]
    fn users_are_found_by_name_number_and_group() {
        check(None, 0, 0, &[0], "/root");
        check(Some("user"), 1000, 1000, &[1000, 27, 44], "/home/user");
        check(Some("1000"), 1000, 1000, &[1000, 27, 44], "/home/user");
        check(Some("user:sudo"), 1000, 27, &[27], "/home/user");
        check(Some("1000:5"), 1000, 5, &[5], "/home/user");
        check(Some("4242"), 4242, 0, &[0], "/");
        check(Some("odd"), 7, 7, &[7], "/");
    }

    #[test]
    fn unknown_users_and_groups_are_refused() {
        for wanted in ["nobody-here", "", "user:nogroup", "-1", "4294967295"] {
            let error = resolve_in(Some(wanted), PASSWD, GROUP).unwrap_err();
            assert_eq!(error.code, ErrorCode::UnknownUser, "{wanted}");
        }
    }
}
