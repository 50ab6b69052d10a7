//! Flags for what a sandbox remembers and where: `--memory`, `--attach`, `--remember`.

use burrow_api::memory::{AttachedSpace, MemoryRequest, Remember, SpaceAccess};
use burrow_client::{Client, ClientError};
use clap::{Args, ValueEnum};

/// What a sandbox remembers, and where.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MemoryFlags {
    /// Space to remember in, which outlives it; `own` for its own
    #[arg(long, value_name = "SPACE")]
    memory: Option<String>,
    /// Space to search as well, to read (:ro, unless said otherwise) or to write to (:rw); may be repeated
    #[arg(long = "attach", value_name = "SPACE[:ro|rw]", value_parser = attached)]
    attach: Vec<AttachedSpace>,
    /// Which execs become memories by themselves
    #[arg(long, value_enum, value_name = "WHAT")]
    remember: Option<Which>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// None
    Off,
    /// Those that fail, and what then ended the failure
    Errors,
    /// All of them
    All,
}

impl From<Which> for Remember {
    fn from(which: Which) -> Self {
        match which {
            Which::Off => Self::Off,
            Which::Errors => Self::Errors,
            Which::All => Self::All,
        }
    }
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
        return Err("it names no space".to_owned());
    }
    Ok(AttachedSpace { space: space.to_owned(), access })
}

impl MemoryFlags {
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_none() && self.attach.is_empty() && self.remember.is_none()
    }

    /// These over the file's: spaces are added to the file's.
    pub(crate) fn over(self, base: Option<MemoryRequest>) -> Option<MemoryRequest> {
        if self.is_empty() {
            return base;
        }
        let mut request = base.unwrap_or_default();
        request.space = self.memory.or(request.space);
        request.remember = self.remember.map(Remember::from).or(request.remember);
        if !self.attach.is_empty() {
            let known = request.attached.take().unwrap_or_default();
            request.attached = Some(joined(known, self.attach, &[]));
        }
        Some(request)
    }

    /// As a change of a sandbox that is there, whose attached spaces stay but for those of `detach`.
    pub(crate) async fn change(
        self,
        client: &Client,
        sandbox: &str,
        detach: &[String],
    ) -> Result<Option<MemoryRequest>, ClientError> {
        if self.is_empty() && detach.is_empty() {
            return Ok(None);
        }
        let mut request =
            MemoryRequest { space: self.memory, attached: None, remember: self.remember.map(Remember::from) };
        if !self.attach.is_empty() || !detach.is_empty() {
            let known =
                client.sandbox(sandbox).await?.memory.map(|memory| memory.attached).unwrap_or_default();
            // Answers name spaces by id, people by name.
            let mut added = Vec::new();
            for attached in self.attach {
                let space = client.space(&attached.space).await?.id;
                added.push(AttachedSpace { space, access: attached.access });
            }
            let mut gone = Vec::new();
            for space in detach {
                gone.push(client.space(space).await?.id);
            }
            request.attached = Some(joined(known, added, &gone));
        }
        Ok(Some(request))
    }
}

/// A space that is given again is attached as it is given last.
fn joined(known: Vec<AttachedSpace>, added: Vec<AttachedSpace>, gone: &[String]) -> Vec<AttachedSpace> {
    let mut all = known;
    for attached in added {
        all.retain(|known| known.space != attached.space);
        all.push(attached);
    }
    all.retain(|known| !gone.contains(&known.space));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        memory: MemoryFlags,
    }

    fn flags(line: &str) -> MemoryFlags {
        Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).unwrap().memory
    }

    #[test]
    fn a_space_is_attached_to_be_read_unless_said_otherwise() {
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
    fn flags_win_over_the_file_and_add_to_its_spaces() {
        let base = MemoryRequest {
            space: Some("file".to_owned()),
            attached: Some(vec![attached("a").unwrap(), attached("b").unwrap()]),
            remember: Some(Remember::Off),
        };
        let request = flags("--memory ops --attach b:rw --attach c --remember errors")
            .over(Some(base.clone()))
            .unwrap();
        assert_eq!(request.space.as_deref(), Some("ops"));
        assert_eq!(request.remember, Some(Remember::Errors));
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
    fn what_is_taken_away_is_gone_and_the_rest_stays() {
        let all = joined(vec![attached("a").unwrap(), attached("b").unwrap()], Vec::new(), &["a".to_owned()]);
        assert_eq!(all, [attached("b").unwrap()]);
    }
}
