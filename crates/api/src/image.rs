//! Images on the wire.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What sandboxes start from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    pub id: String,
    /// Its first name; absent when newer images took all its names over.
    pub name: Option<String>,
    pub names: Vec<String>,
    /// Bytes of its files, those it shares with other images included.
    pub size_bytes: u64,
    pub created_ms: u64,
    pub config: ImageConfig,
    /// `debian`, `pull`, `import`, `build` or `commit`.
    pub origin: String,
    /// A reference with its digest, a base image, a sandbox.
    pub origin_of: Option<String>,
}

/// `GET /v1/images/{image}`: everything about one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageDetail {
    #[serde(flatten)]
    pub image: Image,
    /// Bytes of layers that no other image stands on: what removing it would free at least.
    pub unique_bytes: u64,
    /// Lowest first.
    pub layers: Vec<ImageLayer>,
    /// What was done, oldest first.
    pub history: Vec<ImageStep>,
    /// Sandboxes made from it, a hundred at most.
    pub used_by: Vec<String>,
}

/// A layer that an image stands on. It is stored once, however many images do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageLayer {
    /// Chain id, or the key of a build's step.
    pub key: String,
    pub what: String,
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageStep {
    pub what: String,
    pub size_bytes: u64,
}

/// What an image says about the processes run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageConfig {
    pub env: BTreeMap<String, String>,
    pub user: Option<String>,
    pub workdir: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub exposed_ports: BTreeSet<String>,
}

/// Where a new image comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFrom {
    /// Debian packages of the host's mirror: the default image.
    #[default]
    Default,
    /// An OCI registry.
    Pull,
    /// Packages upon another image.
    Packages,
    /// A build file.
    Recipe,
    /// The files of a sandbox.
    Sandbox,
}

/// `POST /v1/images`: makes an image. The answer is NDJSON of [`BuildProgress`].
///
/// Fields that do not belong to `from` must be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildImage {
    #[serde(default)]
    pub from: ImageFrom,
    /// What to call it. When absent: `debian` for the default image, the reference for `pull`, else nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub name: Option<String>,
    /// `default`: build again even if the name exists.
    #[serde(default)]
    pub rebuild: bool,
    /// `pull`: where the image is, as in `registry.example.com/org/app:v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// `pull`: like `linux/amd64`; the host's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// `pull`: who asks the registry. Used for this pull and kept nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<RegistryCredentials>,
    /// `pull`: the registry speaks HTTP without TLS. Loopback does so without being asked.
    #[serde(default)]
    pub insecure: bool,
    /// `packages`: what to install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// `packages`: the image to install them in, by name or id; the default image when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// `recipe`: the build file's text. One that copies files is sent with them to `/v1/images/build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    /// `packages`, `recipe`: run every step, whatever is kept of earlier builds.
    #[serde(default)]
    pub no_cache: bool,
    /// `recipe`: what its `run` steps may reach; the daemon's default for sandboxes when absent. Packages are fetched
    /// from wherever the image's own sources are, whatever this says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<crate::NetworkRequest>,
    /// `sandbox`: whose files, by name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// `sandbox`: what the image says differently from the one the sandbox was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ImageConfigChange>,
}

/// A name and a password or token for a registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegistryCredentials {
    pub username: String,
    #[schema(format = Password)]
    pub password: String,
}

impl std::fmt::Debug for RegistryCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryCredentials")
            .field("username", &self.username)
            .field("password", &"***")
            .finish()
    }
}

/// Absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageConfigChange {
    /// Added to what is there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
}

/// One line of what a long request on images answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BuildProgress {
    Stage {
        stage: String,
        /// From 0 to 100, where known.
        percent: Option<u8>,
    },
    /// One layer or step of several.
    Item {
        /// From 0.
        index: u32,
        /// How many there are.
        count: u32,
        /// A digest's beginning, or the step as the recipe has it.
        what: String,
        state: ItemState,
        /// Bytes so far, of a transfer.
        bytes: u64,
        /// Bytes in all, where known.
        bytes_total: Option<u64>,
    },
    /// Output of a build's step.
    Output {
        text: String,
    },
    Done {
        image: Box<Image>,
        /// Further images of the same archive.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<Image>,
    },
    Error {
        error: crate::ErrorDetail,
    },
}

/// How far a layer or step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    Downloading,
    Unpacking,
    Running,
    /// It was there already.
    Cached,
    Done,
}

/// `POST /v1/images/{image}/tags`: gives an image one more name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TagImage {
    #[schema(max_length = 255)]
    pub name: String,
}

/// What `POST /v1/images/prune` removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pruned {
    /// Ids of images that had no name and no sandbox.
    pub images: Vec<String>,
    /// Layers that no image stands on, and steps kept for builds.
    pub layers: u32,
    /// Bytes of files in what was removed.
    pub freed_bytes: u64,
}
