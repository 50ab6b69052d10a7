//! Flags for the memory of a sandbox: `--memory`, `--attach`, `--remember`.

use burrow_api::memory::{AttachedSpace, MemoryRequest, RememberMode, SpaceAccess};
use burrow_client::ClientError;

use crate::commands::prelude::*;

/// The memory settings of a sandbox.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MemoryFlags {
    /// Memory space to use, which outlives the sandbox; `own` for its own space
    #[arg(long, value_name = "SPACE", value_parser = space)]
    memory: Option<String>,
    /// Additional memory space, read-only (:ro, the default) or writable (:rw); may be repeated
    #[arg(long = "attach", value_name = "SPACE[:ro|rw]", value_parser = attached)]
    attach: Vec<AttachedSpace>,
    /// Execs that are recorded in memory automatically
    #[arg(long, value_name = "WHAT", value_parser = parse::one_of::<RememberMode>([
        parse::word("off", "No execs"),
        parse::word("errors", "Failed execs, and the commands that then succeeded"),
        parse::word("all", "All execs"),
    ]))]
    remember: Option<RememberMode>,
}

/// The flag of other programs for RAM has this name.
fn space(text: &str) -> Result<String, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) && burrow_model::parse_bytes(text).is_some() {
        return Err(format!("it takes the name of a memory space; for RAM, use `--ram {text}`"));
    }
    Ok(text.to_owned())
}

/// `SPACE`, `SPACE:ro`, `SPACE:rw`
fn attached(text: &str) -> Result<AttachedSpace, String> {
    let (space, access) = match text.rsplit_once(':') {
        None => (text, SpaceAccess::Read),
        Some((space, "ro")) => (space, SpaceAccess::Read),
        Some((space, "rw")) => (space, SpaceAccess::ReadWrite),
        Some(_) => return Err(format!("`{text}` is not SPACE, SPACE:ro or SPACE:rw")),
    };
    if space.is_empty() {
        return Err("no space is named".to_owned());
    }
    Ok(AttachedSpace { space: space.to_owned(), access })
}

impl MemoryFlags {
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_none() && self.attach.is_empty() && self.remember.is_none()
    }

    /// Merges the flags into the request of the file: spaces are added.
    pub(crate) fn over(self, base: Option<MemoryRequest>) -> Option<MemoryRequest> {
        if self.is_empty() {
            return base;
        }
        let mut request = base.unwrap_or_default();
        request.space = self.memory.or(request.space);
        request.remember = self.remember.or(request.remember);
        if !self.attach.is_empty() {
            let known = request.attached.take().unwrap_or_default();
            request.attached = Some(joined(known, self.attach, &[]));
        }
        Some(request)
    }

    /// The flags as a change of an existing sandbox; its attached spaces are kept, except those in `detach`.
    pub(crate) async fn change(
        self,
        client: &Client,
        sandbox: &str,
        detach: &[String],
    ) -> Result<Option<MemoryRequest>, ClientError> {
        if self.is_empty() && detach.is_empty() {
            return Ok(None);
        }
        let mut request = MemoryRequest { space: self.memory, attached: None, remember: self.remember };
        if !self.attach.is_empty() || !detach.is_empty() {
            let known =
                client.sandbox(sandbox).await?.memory.map(|memory| memory.attached).unwrap_or_default();
            // Responses name spaces by id, users by name.
            let mut added = Vec::new();
            for attached in self.attach {
                let space = client.space(&attached.space).await?.id;
                added.push(AttachedSpace { space, access: attached.access });
            }
            let mut detached = Vec::new();
            for space in detach {
                detached.push(client.space(space).await?.id);
            }
            request.attached = Some(joined(known, added, &detached));
        }
        Ok(Some(request))
    }
}

/// If a space is given twice, the last access mode counts.
fn joined(known: Vec<AttachedSpace>, added: Vec<AttachedSpace>, detached: &[String]) -> Vec<AttachedSpace> {
    let mut all = known;
    for attached in added {
        all.retain(|known| known.space != attached.space);
        all.push(attached);
    }
    all.retain(|known| !detached.contains(&known.space));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> MemoryFlags {
        parse::arguments(line)
    }

    #[test]
    fn a_space_is_attached_read_only_by_default() {
        assert_eq!(attached("team").unwrap().access, SpaceAccess::Read);
        assert_eq!(attached("team:ro").unwrap().access, SpaceAccess::Read);
        assert_eq!(
            attached("team:rw").unwrap(),
            AttachedSpace { space: "team".to_owned(), access: SpaceAccess::ReadWrite }
        );
        for bad in ["", ":rw", "team:write"] {
            assert!(attached(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn flags_override_the_file_and_add_to_its_spaces() {
        let base = MemoryRequest {
            space: Some("file".to_owned()),
            attached: Some(vec![attached("a").unwrap(), attached("b").unwrap()]),
            remember: Some(RememberMode::Off),
        };
        let request = flags("--memory ops --attach b:rw --attach c --remember errors")
            .over(Some(base.clone()))
            .unwrap();
        assert_eq!(request.space.as_deref(), Some("ops"));
        assert_eq!(request.remember, Some(RememberMode::Errors));
        let spaces = request.attached.unwrap();
        let names: Vec<_> =
            spaces.iter().map(|attached| (attached.space.as_str(), attached.access)).collect();
        assert_eq!(
            names,
            [("a", SpaceAccess::Read), ("b", SpaceAccess::ReadWrite), ("c", SpaceAccess::Read)]
        );
        assert_eq!(flags("").over(Some(base.clone())), Some(base));
        assert_eq!(flags("").over(None), None);
    }

    #[test]
    fn detached_spaces_are_removed_and_the_others_stay() {
        let all = joined(vec![attached("a").unwrap(), attached("b").unwrap()], Vec::new(), &["a".to_owned()]);
        assert_eq!(all, [attached("b").unwrap()]);
    }
}
