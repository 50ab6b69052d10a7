//! Resources, which a client can read without a tool: files, snapshots, memories.
//!
//! ```text
//!  burrow://files/ABSOLUTE/PATH     burrow://snapshots/ID     burrow://memories/ID
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_api::memory::EntryFilter;
use burrow_client::{Client, MemorySelection, PageQuery, SnapshotQuery};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};

use crate::own_sandbox::OwnSandbox;
use crate::results::{failed, json};

const FILES: &str = "burrow://files/";
const SNAPSHOTS: &str = "burrow://snapshots/";
const MEMORIES: &str = "burrow://memories/";

/// Maximum number of each kind in a list.
const LISTED: u32 = 50;

/// A resource is read in one message; clients accept about a megabyte.
const BYTES_MAX: u64 = 512 << 10;

/// The address of a file. Characters that have a meaning in addresses are percent-encoded.
pub(crate) fn file_uri(path: &str) -> String {
    let mut uri = FILES.to_owned();
    for byte in path.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(byte.into())
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

/// Lists snapshots and memories; files are addressed by their path. Creates no sandbox: before the first use of a sandbox,
/// the list is empty.
pub(crate) async fn list(own: &OwnSandbox) -> Result<ListResourcesResult, ErrorData> {
    let Some((client, sandbox)) = own.reach_if_exists().await.map_err(internal)? else {
        return Ok(ListResourcesResult::with_all_items(Vec::new()));
    };
    let query = SnapshotQuery { sandbox: Some(sandbox.clone()), ..SnapshotQuery::default() };
    let page = PageQuery { limit: Some(LISTED), ..PageQuery::default() };
    let snapshots = client.list_snapshots(&query, &page).await;
    let snapshots = snapshots.map_err(failed("list the snapshots")).map_err(internal)?;
    let memory = client.memory(MemorySelection::now(&sandbox));
    let memories = memory.list(&EntryFilter::default(), &page).await;
    let memories = memories.map_err(failed("list the memories")).map_err(internal)?;
    let snapshots = snapshots.items.into_iter().map(|snapshot| {
        let name = snapshot.name.unwrap_or_else(|| snapshot.id.clone());
        Resource::new(format!("{SNAPSHOTS}{}", snapshot.id), name)
            .with_description(snapshot.description)
            .with_mime_type("application/json")
    });
    let memories = memories.items.into_iter().map(|entry| {
        let name = entry.text.lines().next().unwrap_or_default().chars().take(80).collect::<String>();
        Resource::new(format!("{MEMORIES}{}", entry.id), name).with_mime_type("application/json")
    });
    Ok(ListResourcesResult::with_all_items(snapshots.chain(memories).collect()))
}

pub(crate) fn templates() -> ListResourceTemplatesResult {
    let template =
        |uri: String, name: &str, what: &str| ResourceTemplate::new(uri, name).with_description(what);
    ListResourceTemplatesResult::with_all_items(vec![
        template(
            format!("{FILES}{{+path}}"),
            "file",
            "A file of the sandbox: its absolute path without the first slash",
        ),
        template(format!("{SNAPSHOTS}{{id}}"), "snapshot", "A snapshot, by name or id"),
        template(format!("{MEMORIES}{{id}}"), "memory", "A memory, by its id"),
    ])
}

pub(crate) async fn read(own: &OwnSandbox, uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let (client, sandbox) = own.reach().await.map_err(internal)?;
    let contents = if let Some(path) = uri.strip_prefix(FILES) {
        file(&client, &sandbox, uri, &format!("/{}", decoded(path)?)).await?
    } else if let Some(id) = uri.strip_prefix(SNAPSHOTS) {
        let found = client.snapshot(id).await.map_err(failed("read the snapshot"));
        ResourceContents::text(found.and_then(|it| json(&it)).map_err(unknown)?, uri)
    } else if let Some(id) = uri.strip_prefix(MEMORIES) {
        let memory = client.memory(MemorySelection::now(&sandbox));
        let found = memory.entry(id).await.map_err(failed("read the memory"));
        ResourceContents::text(found.and_then(|it| json(&it)).map_err(unknown)?, uri)
    } else {
        return Err(unknown(format!("no resource `{uri}`: see the resource templates")));
    };
    Ok(ReadResourceResult::new(vec![contents]).into())
}

/// Decodes percent-encoding.
fn decoded(path: &str) -> Result<String, ErrorData> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(unknown(format!(
                "`{path}` is not a valid path: `%` must be followed by two hexadecimal digits"
            )));
        };
        bytes.extend(u8::try_from(high * 16 + low));
    }
    String::from_utf8(bytes).map_err(|_| unknown(format!("`{path}` is not a valid path: it is not UTF-8")))
}

async fn file(client: &Client, sandbox: &str, uri: &str, path: &str) -> Result<ResourceContents, ErrorData> {
    let what = "read the file";
    let size = client.stat(sandbox, path, true).await.map_err(failed(what)).map_err(unknown)?.size;
    if size > BYTES_MAX {
        return Err(unknown(format!(
            "the file has {size} bytes, and a resource can have at most {BYTES_MAX}: use `sandbox_read_file`"
        )));
    }
    let bytes = client.read_file(sandbox, path).await.map_err(failed(what)).map_err(unknown)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.into_bytes()), uri),
    })
}

fn unknown(message: String) -> ErrorData {
    ErrorData::resource_not_found(message, None)
}

fn internal(message: String) -> ErrorData {
    ErrorData::internal_error(message, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_file_is_decoded_to_its_path() {
        for path in ["/srv/a b.txt", "/100%/ü?#", "/a"] {
            let uri = file_uri(path);
            assert_eq!(decoded(uri.strip_prefix(FILES).unwrap()).unwrap(), path[1..], "{uri}");
        }
    }

    #[test]
    fn a_path_in_a_uri_is_decoded_once() {
        for (path, expected) in [("srv/a.txt", "srv/a.txt"), ("a%20b%C3%BC", "a bü"), ("100%2525", "100%25")]
        {
            assert_eq!(decoded(path).unwrap(), expected);
        }
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert!(decoded(bad).is_err(), "{bad}");
        }
    }
}
