//! An image: what a sandbox starts from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{ImageId, ImageName, ImageRef};

/// Label of the sandboxes that the daemon creates for the steps of a build: they are listed only if this label is requested.
pub const BUILD_LABEL: &str = "burrow.build";

/// An image that exists on this host. Its files never change; its names may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: ImageId,
    /// Sorted; empty if newer images have taken over all its names.
    pub names: Vec<ImageName>,
    pub config: ImageConfig,
    /// Where its files come from.
    pub origin: ImageOrigin,
    /// The disk of its topmost layer, if its layers are kept.
    pub layer: Option<ImageId>,
    /// Bytes of its files, including those shared with other images.
    pub size_bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
}

impl Image {
    /// Its first name if it has one, else its id.
    pub fn reference(&self) -> ImageRef {
        self.names.first().map_or_else(|| ImageRef::Id(self.id.clone()), |name| ImageRef::Name(name.clone()))
    }

    /// Its title in messages: its first name, else its id.
    pub fn title(&self) -> &str {
        self.names.first().map_or(self.id.as_str(), ImageName::as_str)
    }
}

/// Where an image's files come from, for users to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageOrigin {
    /// `debian`, `pull`, `import`, `build` or `commit`; empty for images of the first version.
    #[serde(default)]
    pub kind: String,
    /// A reference with its digest, a file's format, a base image, a sandbox.
    #[serde(default)]
    pub of: Option<String>,
    /// Its steps, oldest first.
    #[serde(default)]
    pub history: Vec<ImageStep>,
}

/// One step in the creation of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageStep {
    /// As described by the recipe or by the registry's image.
    pub what: String,
    /// Bytes of files it added.
    pub size_bytes: u64,
    /// Key of the layer it created; a step that only changed the configuration has none.
    #[serde(default)]
    pub layer: Option<String>,
}

/// An image's defaults for the processes that run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    pub env: BTreeMap<String, String>,
    /// The user of an exec that does not specify one: a name or id known inside.
    pub user: Option<String>,
    pub workdir: Option<String>,
    /// What `burrow run` prepends to its command.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// What `burrow run` runs when it is given no command.
    #[serde(default)]
    pub cmd: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Like `8080/tcp`: shown to users, never opened automatically.
    #[serde(default)]
    pub exposed_ports: BTreeSet<String>,
}

impl ImageConfig {
    /// The command of `burrow run IMAGE args…`: a given command follows the entrypoint and replaces `cmd`. Empty if neither the
    /// image nor the user specifies anything.
    pub fn command(&self, given: &[String]) -> Vec<String> {
        let rest = if given.is_empty() { &self.cmd } else { given };
        self.entrypoint.iter().chain(rest).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_follows_the_entrypoint_and_replaces_the_default_arguments() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let both =
            ImageConfig { entrypoint: words("/run"), cmd: words("serve --all"), ..ImageConfig::default() };
        assert_eq!(both.command(&[]), words("/run serve --all"));
        assert_eq!(both.command(&words("help")), words("/run help"));
        let only = ImageConfig { cmd: words("bash"), ..ImageConfig::default() };
        assert_eq!(only.command(&words("ls")), words("ls"));
        assert_eq!(ImageConfig::default().command(&[]), Vec::<String>::new());
    }
}
