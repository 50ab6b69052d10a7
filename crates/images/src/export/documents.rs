//! The JSON documents of an exported image. They are serialised from types, so that the order of fields is always the
//! same.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::manifest::{OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST};
use crate::{Compression, DiffId, Digest, Platform, Reference, RunConfig};

#[derive(Serialize)]
struct Config<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a str>,
    architecture: &'a str,
    os: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    config: Run<'a>,
    rootfs: RootFs,
    history: [History<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Run<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    exposed_ports: BTreeMap<&'a str, Empty>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    entrypoint: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    cmd: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_signal: Option<&'a str>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: [DiffId; 1],
}

#[derive(Serialize)]
struct History<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a str>,
    created_by: &'static str,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<OciPlatform>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Clone, Serialize)]
struct OciPlatform {
    architecture: String,
    os: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    media_type: &'static str,
    config: Descriptor,
    layers: [Descriptor; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: &'static str,
    manifests: Vec<Descriptor>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Vec<String>,
    layers: [String; 1],
}

/// The file that marks a directory as an OCI layout.
pub(super) const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// The configuration of an image with one layer.
pub(crate) fn config(
    run: &RunConfig,
    platform: &Platform,
    created: Option<&str>,
    diff_id: DiffId,
) -> Vec<u8> {
    let ports = run.exposed_ports.iter().map(|port| (port.as_str(), Empty {})).collect();
    encode(&Config {
        created,
        architecture: &platform.architecture,
        os: &platform.os,
        variant: platform.variant.as_deref(),
        config: Run {
            user: run.user.as_deref(),
            exposed_ports: ports,
            env: run.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            entrypoint: &run.entrypoint,
            cmd: &run.cmd,
            working_dir: run.workdir.as_deref(),
            labels: &run.labels,
            stop_signal: run.stop_signal.as_deref(),
        },
        rootfs: RootFs { kind: "layers", diff_ids: [diff_id] },
        history: [History { created, created_by: "burrow" }],
    })
}

/// The manifest of an image with one layer, stored in this form.
pub(super) fn manifest(config: &[u8], layer: Digest, size: u64, compression: Compression) -> Vec<u8> {
    let suffix = match compression {
        Compression::None => "",
        Compression::Gzip => "+gzip",
        Compression::Zstd => "+zstd",
    };
    let descriptor = |media_type: String, digest: Digest, size: u64| Descriptor {
        media_type,
        digest,
        size,
        platform: None,
        annotations: BTreeMap::new(),
    };
    encode(&Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST,
        config: descriptor(OCI_CONFIG.to_owned(), Digest::of(config), config.len() as u64),
        layers: [descriptor(format!("{OCI_LAYER}{suffix}"), layer, size)],
    })
}

/// The index of the archive: the image, once for each of its names.
pub(super) fn index(manifest: &[u8], platform: &Platform, names: &[Reference]) -> Vec<u8> {
    let unnamed = Descriptor {
        media_type: OCI_MANIFEST.to_owned(),
        digest: Digest::of(manifest),
        size: manifest.len() as u64,
        platform: Some(OciPlatform {
            architecture: platform.architecture.clone(),
            os: platform.os.clone(),
            variant: platform.variant.clone(),
        }),
        annotations: BTreeMap::new(),
    };
    let named = names.iter().filter(|name| name.tag().is_some()).map(|name| {
        let mut annotations = BTreeMap::from([("io.containerd.image.name", name.to_string())]);
        if let Some(tag) = name.tag() {
            annotations.insert("org.opencontainers.image.ref.name", tag.to_owned());
        }
        Descriptor { annotations, ..unnamed.clone() }
    });
    let mut manifests: Vec<Descriptor> = named.collect();
    if manifests.is_empty() {
        manifests.push(unnamed);
    }
    encode(&Index { schema_version: 2, media_type: OCI_INDEX, manifests })
}

/// The manifest for `docker load`.
pub(super) fn saved(config: Digest, layer: Digest, names: &[Reference]) -> Vec<u8> {
    let tagged = |name: &Reference| name.tag().is_some() && name.digest().is_none();
    encode(&[DockerManifest {
        config: blob_name(config),
        repo_tags: names.iter().filter(|name| tagged(name)).map(Reference::familiar).collect(),
        layers: [blob_name(layer)],
    }])
}

pub(super) fn blob_name(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn encode(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("these types have string keys only")
}
