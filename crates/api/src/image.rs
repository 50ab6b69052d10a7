//! Images on the wire.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A root filesystem that sandboxes start from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    pub id: String,
    /// Its first name; absent if newer images have taken all its names.
    pub name: Option<String>,
    pub names: Vec<String>,
    /// Total size of its files, including those it shares with other images.
    pub size_bytes: u64,
    pub created_ms: u64,
    pub config: ImageConfig,
    /// `debian`, `pull`, `import`, `build` or `commit`.
    pub origin: String,
    /// A reference with its digest, a base image, or a sandbox.
    pub origin_of: Option<String>,
}

/// `GET /v1/images/{image}`: everything about one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageDetail {
    #[serde(flatten)]
    pub image: Image,
    /// Size of the layers that no other image uses: removing the image frees at least this much.
    pub unique_bytes: u64,
    /// Lowest first.
    pub layers: Vec<ImageLayer>,
    /// The build steps, oldest first.
    pub history: Vec<ImageStep>,
    /// Sandboxes created from it, a hundred at most.
    pub used_by: Vec<String>,
}

/// A layer of an image. It is stored once, for all images that use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageLayer {
    /// Chain id, or the key of a build step.
    pub key: String,
    pub what: String,
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageStep {
    pub what: String,
    pub size_bytes: u64,
}

/// What an image specifies about processes that run in it.
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

/// The source of a new image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFrom {
    /// Debian packages from the host's mirror: the default image.
    #[default]
    Default,
    /// An OCI registry.
    Pull,
    /// Packages installed in another image.
    Packages,
    /// A recipe (build file).
    Recipe,
    /// A Dockerfile.
    Dockerfile,
    /// The files of a sandbox.
    Sandbox,
}

/// `POST /v1/images`: creates an image. The response is NDJSON of [`BuildProgress`].
///
/// Fields that do not belong to `from` must be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildImage {
    #[serde(default)]
    pub from: ImageFrom,
    /// Its name. When absent: `debian` for the default image, the reference for `pull`, else none.
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
    /// `pull`: credentials for the registry. Used for this pull and not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<RegistryCredentials>,
    /// `pull`: the registry speaks HTTP without TLS. Always allowed for loopback addresses.
    #[serde(default)]
    pub insecure: bool,
    /// `packages`: what to install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// `packages`: the image to install them in, by name or id; the default image when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// `recipe`: the text of the recipe. A recipe that copies files is sent to `/v1/images/build`, with its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    /// `dockerfile`: the text of the Dockerfile. One that copies files is sent to `/v1/images/build`, with its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// `dockerfile`: values of its arguments (`ARG`). They are part of the cache's keys, not of the image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub build_args: BTreeMap<String, String>,
    /// `dockerfile`: the name or number of the stage to build; the last one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `packages`, `recipe`, `dockerfile`: run every step, and do not use the cache of earlier builds.
    #[serde(default)]
    pub no_cache: bool,
    /// `recipe`, `dockerfile`: what its `run` steps may connect to; the daemon's default for sandboxes when absent. Packages are
    /// always fetched from the package sources of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<crate::NetworkRequest>,
    /// `sandbox`: the sandbox whose files are used, by name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// `sandbox`: changes to the configuration of the image that the sandbox was created from.
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

/// Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageConfigChange {
    /// Added to the existing variables.
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

/// One line of the response to a long request on images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BuildProgress {
    Stage {
        stage: String,
        /// From 0 to 100, where known.
        percent: Option<u8>,
    },
    /// The progress of one layer or step.
    Item {
        /// From 0.
        index: u32,
        /// How many there are.
        count: u32,
        /// The prefix of a digest, or the step as written in the recipe.
        what: String,
        state: ItemState,
        /// Bytes transferred so far.
        bytes: u64,
        /// Bytes in total, if known.
        bytes_total: Option<u64>,
    },
    /// Output of a build step.
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

/// The state of a layer or step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    Downloading,
    Unpacking,
    Running,
    /// It existed already.
    Cached,
    Done,
}

/// `POST /v1/images/{image}/tags`: adds a name to an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TagImage {
    #[schema(max_length = 255)]
    pub name: String,
}

/// What `POST /v1/images/prune` removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Pruned)]
pub struct PruneReport {
    /// Ids of images that had no name and no sandbox.
    pub images: Vec<String>,
    /// Number of removed layers that no image used, and of removed build steps.
    pub layers: u32,
    /// Size of the files that were removed.
    pub freed_bytes: u64,
}
