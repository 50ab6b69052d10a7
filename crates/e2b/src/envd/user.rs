//! A user of a sandbox, and its home directory.

use burrow_engine::Guest;
use burrow_guest::protocol::{FileEntry, Frame, ReadFile, Request as GuestRequest};

use burrow_http::error::ApiError;

/// Maximum number of bytes of `/etc/passwd` that are read for a user's home directory.
const PASSWD_BYTES_MAX: u64 = 256 << 10;

/// A user of the sandbox.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    /// Given by the client or the sandbox's template: then there is no alternative.
    pub(super) named: bool,
}

/// The home directory according to `/etc/passwd`. An unknown user causes an error of the guest when it is used.
pub(super) async fn home(guest: &Guest, user: &str) -> Result<Option<String>, ApiError> {
    if user == "root" {
        return Ok(Some("/root".to_owned()));
    }
    let path = "/etc/passwd".to_owned();
    let read = ReadFile { path, offset: 0, length: Some(PASSWD_BYTES_MAX) };
    let mut connection = guest.open(&GuestRequest::Read(read)).await?;
    let found = guest.reply::<FileEntry>(&mut connection).await;
    if found.is_err() {
        return Ok(None);
    }
    let (mut reader, _writer) = connection.split();
    let mut bytes = Vec::new();
    while let Some(Frame::Bytes(part)) = reader.next().await.map_err(|error| guest.error(error))? {
        bytes.extend_from_slice(&part);
        if bytes.len() as u64 > PASSWD_BYTES_MAX {
            break;
        }
    }
    Ok(home_in(&String::from_utf8_lossy(&bytes), user))
}

fn home_in(passwd: &str, user: &str) -> Option<String> {
    let own = |line: &&str| line.split(':').next() == Some(user);
    let home = passwd.lines().find(own)?.split(':').nth(5).filter(|home| home.starts_with('/'));
    Some(home.unwrap_or("/").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_directory_is_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/data/home:/bin/bash\nodd:x:1\n";
        assert_eq!(home_in(passwd, "user").as_deref(), Some("/data/home"));
        assert_eq!(home_in(passwd, "odd").as_deref(), Some("/"));
        assert_eq!(home_in(passwd, "nobody"), None);
    }
}
