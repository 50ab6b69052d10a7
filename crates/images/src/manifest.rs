//! The JSON documents of images: indexes, manifests, configurations. Parsing is pure, bounded and strict.
//!
//! Docker's and OCI's documents differ only in their media types. A document that could be parsed as two kinds is
//! refused, since two programs would run two different images with the same digest (CVE-2021-41190).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    CONFIG_BYTES_MAX, Compression, DiffId, Digest, ImageError, ImageSpec, LAYERS_MAX, Layer,
    MANIFEST_BYTES_MAX, Platform, RunConfig,
};

/// The media types sent to registries as supported.
pub const ACCEPTED: [&str; 4] = [OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST];

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const SCHEMA_ONE: &str = "application/vnd.docker.distribution.manifest.v1+";

/// The supported layers: a tar, to whose media type the compression is added as `+gzip` or `.gzip`.
const LAYERS: [&str; 4] = [
    OCI_LAYER,
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// Variants of one image, including attestations.
const MANIFESTS_MAX: usize = 1000;

/// The document that a name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One image for several platforms.
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

/// An image for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// Refers to a document or layer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An image's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub run: RunConfig,
    pub platform: Platform,
    pub created: Option<String>,
    pub diff_ids: Vec<DiffId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: Option<u32>,
    media_type: Option<String>,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct RawConfig {
    architecture: Option<String>,
    os: Option<String>,
    variant: Option<String>,
    created: Option<String>,
    config: Option<RawRun>,
    rootfs: Option<RawRootFs>,
}

#[derive(Deserialize)]
struct RawRootFs {
    #[serde(default, deserialize_with = "null_as_empty")]
    diff_ids: Vec<DiffId>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawRun {
    user: Option<String>,
    exposed_ports: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    stop_signal: Option<String>,
}

fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses an index or manifest. `of` is for messages; `media_type` is what the transport declared, if it did.
pub fn parse(bytes: &[u8], of: &str, media_type: Option<&str>) -> Result<Document, ImageError> {
    const DOCUMENT: &str = "manifest";
    check_size(bytes, of, MANIFEST_BYTES_MAX)?;
    if media_type.is_some_and(|media_type| media_type.starts_with(SCHEMA_ONE)) {
        return Err(ImageError::SchemaOne { of: of.to_owned() });
    }
    let raw: RawDocument = serde_json::from_slice(bytes).map_err(|source| {
        // Of the old format, only the version is read.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            schema_version: u32,
        }
        match serde_json::from_slice::<Version>(bytes) {
            Ok(Version { schema_version: 1 }) => ImageError::SchemaOne { of: of.to_owned() },
            Ok(_) | Err(_) => ImageError::Json { document: DOCUMENT, of: of.to_owned(), source },
        }
    })?;
    if raw.schema_version == Some(1) {
        return Err(ImageError::SchemaOne { of: of.to_owned() });
    }
    let refused = |reason| ImageError::Document { document: DOCUMENT, of: of.to_owned(), reason };
    let inside = raw.media_type.as_deref().filter(|inside| !inside.is_empty());
    if let (Some(outside), Some(inside)) = (media_type.filter(|kind| ACCEPTED.contains(kind)), inside)
        && outside != inside
    {
        return Err(refused("its media type differs from the one that the registry sent"));
    }
    let kind = inside.or(media_type.filter(|kind| ACCEPTED.contains(kind)));
    match (raw.manifests, raw.config, raw.layers) {
        (Some(manifests), None, None)
            if kind.is_none_or(|kind| [OCI_INDEX, DOCKER_INDEX].contains(&kind)) =>
        {
            match manifests.len() {
                0..=MANIFESTS_MAX => Ok(Document::Index(manifests)),
                _ => Err(refused("it has too many variants")),
            }
        }
        (None, Some(config), Some(layers))
            if kind.is_none_or(|kind| [OCI_MANIFEST, DOCKER_MANIFEST].contains(&kind)) =>
        {
            manifest(of, config, layers).map(Document::Manifest)
        }
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            Err(refused("it is ambiguous: both an index and a manifest"))
        }
        (_, _, _) => match kind.filter(|kind| !ACCEPTED.contains(kind)) {
            Some(kind) => Err(media_type_error(of, kind)),
            None => Err(refused("it is neither an index nor a manifest")),
        },
    }
}

fn manifest(of: &str, config: Descriptor, layers: Vec<Descriptor>) -> Result<Manifest, ImageError> {
    if ![OCI_CONFIG, DOCKER_CONFIG, ""].contains(&config.media_type.as_str()) {
        return Err(media_type_error(of, &config.media_type));
    }
    if config.size > CONFIG_BYTES_MAX {
        return Err(ImageError::TooLarge {
            what: of.to_owned(),
            limit: CONFIG_BYTES_MAX,
            unit: "bytes of configuration",
        });
    }
    if layers.len() > LAYERS_MAX {
        return Err(ImageError::TooLarge { what: of.to_owned(), limit: LAYERS_MAX as u64, unit: "layers" });
    }
    Ok(Manifest { config, layers })
}

/// Parses an image's configuration. `of` is for messages.
pub fn parse_config(bytes: &[u8], of: &str) -> Result<Config, ImageError> {
    const DOCUMENT: &str = "configuration";
    check_size(bytes, of, CONFIG_BYTES_MAX)?;
    let raw: RawConfig = serde_json::from_slice(bytes).map_err(|source| ImageError::Json {
        document: DOCUMENT,
        of: of.to_owned(),
        source,
    })?;
    let refused = |reason| ImageError::Document { document: DOCUMENT, of: of.to_owned(), reason };
    let run = run_config(raw.config.unwrap_or_default());
    if has_zero_byte(&run) {
        return Err(refused("a string in it contains a NUL byte"));
    }
    let diff_ids = raw.rootfs.ok_or_else(|| refused("`rootfs` is missing"))?.diff_ids;
    if diff_ids.len() > LAYERS_MAX {
        return Err(ImageError::TooLarge { what: of.to_owned(), limit: LAYERS_MAX as u64, unit: "layers" });
    }
    let host = Platform::host();
    Ok(Config {
        run,
        platform: Platform {
            // Images of the first years contain neither.
            os: raw.os.filter(|os| !os.is_empty()).unwrap_or(host.os),
            architecture: raw.architecture.filter(|name| !name.is_empty()).unwrap_or(host.architecture),
            variant: raw.variant.filter(|variant| !variant.is_empty()),
        },
        created: raw.created.filter(|created| !created.is_empty()),
        diff_ids,
    })
}

fn run_config(raw: RawRun) -> RunConfig {
    let mut env: Vec<(String, String)> = Vec::new();
    for variable in raw.env.unwrap_or_default() {
        let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            continue;
        };
        match env.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => env.push((name.to_owned(), value.to_owned())),
        }
    }
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let workdir = some(raw.working_dir).map(|path| match path.starts_with('/') {
        true => path,
        false => format!("/{path}"),
    });
    RunConfig {
        env,
        user: some(raw.user),
        workdir,
        entrypoint: raw.entrypoint.unwrap_or_default(),
        cmd: raw.cmd.unwrap_or_default(),
        labels: raw.labels.unwrap_or_default(),
        exposed_ports: raw.exposed_ports.unwrap_or_default().into_keys().collect(),
        stop_signal: some(raw.stop_signal),
    }
}

fn has_zero_byte(run: &RunConfig) -> bool {
    let texts = run.entrypoint.iter().chain(&run.cmd).chain(&run.exposed_ports);
    let optional = [&run.user, &run.workdir, &run.stop_signal];
    let pairs = run.env.iter().map(|(name, value)| (name, value)).chain(&run.labels);
    texts
        .chain(optional.into_iter().flatten())
        .chain(pairs.flat_map(|(name, value)| [name, value]))
        .any(|text| text.contains('\0'))
}

/// Chooses the variant for `host` from an index: the same variant if there is one, else the first compatible one.
pub fn choose<'a>(
    manifests: &'a [Descriptor],
    host: &Platform,
    of: &str,
) -> Result<&'a Descriptor, ImageError> {
    let fits = |descriptor: &&Descriptor| {
        let fits = |platform: &Platform| platform.runs_on(host);
        ![OCI_INDEX, DOCKER_INDEX].contains(&descriptor.media_type.as_str())
            && descriptor.platform.as_ref().is_some_and(fits)
    };
    let exact = |descriptor: &&Descriptor| {
        fits(descriptor)
            && descriptor.platform.as_ref().is_some_and(|platform| platform.variant == host.variant)
    };
    if let Some(found) = manifests.iter().find(exact).or_else(|| manifests.iter().find(fits)) {
        return Ok(found);
    }
    // An index with one entry and no platform: the configuration contains the platform.
    match manifests {
        [only] if only.platform.is_none() => Ok(only),
        _ => Err(ImageError::Platform {
            of: of.to_owned(),
            wanted: host.to_string(),
            offered: offered(manifests),
        }),
    }
}

fn offered(manifests: &[Descriptor]) -> String {
    let mut names: Vec<String> = manifests
        .iter()
        .filter_map(|descriptor| descriptor.platform.as_ref())
        // Attestations are listed like variants.
        .filter(|platform| platform.os != "unknown")
        .map(|platform| crate::error::shortened(&platform.to_string()))
        .collect();
    names.sort();
    names.dedup();
    names.truncate(20);
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Combines manifest and configuration, and checks that they describe the same image, for this host.
pub fn assemble(
    digest: Digest,
    manifest: &Manifest,
    config: Config,
    host: &Platform,
    of: &str,
) -> Result<ImageSpec, ImageError> {
    let mut layers = Vec::with_capacity(manifest.layers.len());
    for layer in &manifest.layers {
        layers.push(Layer {
            media_type: layer.media_type.clone(),
            digest: Some(layer.digest),
            size: layer.size,
            compression: compression(&layer.media_type)
                .ok_or_else(|| media_type_error(of, &layer.media_type))?,
        });
    }
    finish(digest, layers, config, host, of)
}

/// The last step, also for formats without manifests.
pub(crate) fn finish(
    digest: Digest,
    layers: Vec<Layer>,
    config: Config,
    host: &Platform,
    of: &str,
) -> Result<ImageSpec, ImageError> {
    let refused = |reason| ImageError::Document { document: "manifest", of: of.to_owned(), reason };
    if layers.is_empty() {
        return Err(refused("it has no layers"));
    }
    if layers.len() != config.diff_ids.len() {
        return Err(refused("the number of its layers differs from the one in its configuration"));
    }
    if !config.platform.runs_on(host) {
        return Err(ImageError::Platform {
            of: of.to_owned(),
            wanted: host.to_string(),
            offered: crate::error::shortened(&config.platform.to_string()),
        });
    }
    let Config { run, platform, created, diff_ids } = config;
    Ok(ImageSpec { digest, config: run, platform, created, diff_ids, layers })
}

fn compression(media_type: &str) -> Option<Compression> {
    let suffix = LAYERS.iter().find_map(|known| media_type.strip_prefix(known))?;
    match suffix {
        "" => Some(Compression::None),
        "+gzip" | ".gzip" => Some(Compression::Gzip),
        "+zstd" | ".zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

fn media_type_error(of: &str, media_type: &str) -> ImageError {
    ImageError::MediaType { of: of.to_owned(), media_type: crate::error::shortened(media_type) }
}

fn check_size(bytes: &[u8], of: &str, limit: u64) -> Result<(), ImageError> {
    match bytes.len() as u64 <= limit {
        true => Ok(()),
        false => Err(ImageError::TooLarge { what: of.to_owned(), limit, unit: "bytes of JSON" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn descriptor(media_type: &str) -> String {
        format!(r#"{{"mediaType":"{media_type}","digest":"{DIGEST}","size":5}}"#)
    }

    fn manifest_of(layers: &[&str]) -> String {
        let layers: Vec<String> = layers.iter().map(|layer| descriptor(layer)).collect();
        format!(
            r#"{{"schemaVersion":2,"mediaType":"{OCI_MANIFEST}","config":{},"layers":[{}]}}"#,
            descriptor(OCI_CONFIG),
            layers.join(",")
        )
    }

    #[test]
    fn media_types_of_both_formats_give_the_compression() {
        for (media_type, expected) in [
            ("application/vnd.oci.image.layer.v1.tar", Some(Compression::None)),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Some(Compression::Gzip)),
            ("application/vnd.oci.image.layer.v1.tar+zstd", Some(Compression::Zstd)),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", Some(Compression::Gzip)),
            ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", Some(Compression::Gzip)),
            ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", None),
            ("text/plain", None),
        ] {
            assert_eq!(compression(media_type), expected, "{media_type}");
        }
    }

    #[test]
    fn an_ambiguous_document_is_refused() {
        let both = format!(
            r#"{{"schemaVersion":2,"manifests":[],"config":{},"layers":[]}}"#,
            descriptor(OCI_CONFIG)
        );
        let error = parse(both.as_bytes(), "x", None).unwrap_err().to_string();
        assert!(error.contains("both an index and a manifest"), "{error}");
        let disguised = manifest_of(&[]);
        assert!(parse(disguised.as_bytes(), "x", Some(OCI_INDEX)).is_err());
        assert!(parse(disguised.as_bytes(), "x", Some("application/json")).is_ok());
    }

    #[test]
    fn manifests_of_schema_1_are_reported() {
        let old = br#"{"schemaVersion":1,"name":"x","tag":"latest","fsLayers":[],"signatures":[]}"#;
        assert!(matches!(parse(old, "x", None), Err(ImageError::SchemaOne { .. })));
        let kind = "application/vnd.docker.distribution.manifest.v1+prettyjws";
        assert!(matches!(parse(b"{}", "x", Some(kind)), Err(ImageError::SchemaOne { .. })));
    }

    #[test]
    fn other_media_types_are_reported() {
        let chart = manifest_of(&[]).replace(OCI_CONFIG, "application/vnd.cncf.helm.config.v1+json");
        let error = parse(chart.as_bytes(), "x", None).unwrap_err().to_string();
        assert!(error.contains("helm"), "{error}");
    }

    #[test]
    fn too_many_layers_are_refused() {
        let many = manifest_of(&vec![OCI_LAYER; 128]);
        assert!(matches!(parse(many.as_bytes(), "x", None), Err(ImageError::TooLarge { .. })));
        assert!(parse(manifest_of(&vec![OCI_LAYER; 127]).as_bytes(), "x", None).is_ok());
    }

    #[test]
    fn missing_and_null_fields_of_a_configuration_are_accepted() {
        let config = parse_config(br#"{"rootfs":{"type":"layers","diff_ids":null}}"#, "x").unwrap();
        assert_eq!(config.run, RunConfig::default());
        let config = parse_config(
            br#"{"rootfs":{"diff_ids":[]},"config":{"Env":null,"Cmd":null,"Labels":null,"User":""}}"#,
            "x",
        );
        assert_eq!(config.unwrap().run, RunConfig::default());
        assert!(parse_config(b"{}", "x").is_err());
    }

    #[test]
    fn the_process_configuration_is_parsed() {
        let config = parse_config(
            br#"{"architecture":"arm64","os":"linux","variant":"v8","created":"2024-01-01T00:00:00Z",
                "config":{"User":"app:staff","ExposedPorts":{"80/tcp":{}},"Env":["PATH=/bin","A=1","A=b=c","x"],
                "Entrypoint":["/run"],"Cmd":["a","b"],"WorkingDir":"srv","Labels":{"k":"v"},"StopSignal":"SIGINT"},
                "rootfs":{"type":"layers","diff_ids":[]}}"#,
            "x",
        )
        .unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(config.run.env, [pair("PATH", "/bin"), pair("A", "b=c")]);
        assert_eq!(config.run.user.as_deref(), Some("app:staff"));
        assert_eq!(config.run.workdir.as_deref(), Some("/srv"));
        assert_eq!((config.run.entrypoint.len(), config.run.cmd.len()), (1, 2));
        assert!(config.run.exposed_ports.contains("80/tcp"));
        assert_eq!(config.platform.to_string(), "linux/arm64/v8");
        let zero = br#"{"config":{"Env":["A=\u0000"]},"rootfs":{"diff_ids":[]}}"#;
        assert!(parse_config(zero, "x").is_err());
    }

    #[test]
    fn the_variant_for_this_host_is_chosen_and_attestations_are_not() {
        let manifest = |os: &str, architecture: &str, variant: Option<&str>| Descriptor {
            media_type: OCI_MANIFEST.to_owned(),
            digest: Digest::of(format!("{os}{architecture}{variant:?}").as_bytes()),
            size: 1,
            platform: Some(Platform {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
                variant: variant.map(str::to_owned),
            }),
            annotations: BTreeMap::new(),
        };
        let manifests = [
            manifest("unknown", "unknown", None),
            manifest("windows", "amd64", None),
            manifest("linux", "arm64", Some("v8")),
            manifest("linux", "amd64", Some("v3")),
            manifest("linux", "amd64", None),
        ];
        let host = |architecture: &str| Platform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        };
        assert_eq!(choose(&manifests, &host("amd64"), "x").unwrap(), &manifests[4]);
        assert_eq!(choose(&manifests, &host("arm64"), "x").unwrap(), &manifests[2]);
        let error = choose(&manifests, &host("s390x"), "x").unwrap_err().to_string();
        assert!(error.contains("linux/s390x") && error.contains("linux/amd64") && !error.contains("unknown"));
    }

    #[test]
    fn manifest_and_configuration_must_agree_on_the_layers() {
        let Document::Manifest(manifest) = parse(manifest_of(&[OCI_LAYER]).as_bytes(), "x", None).unwrap()
        else {
            panic!("a manifest was expected");
        };
        let config = |ids: usize| Config {
            run: RunConfig::default(),
            platform: Platform::host(),
            created: None,
            diff_ids: vec![DiffId(Digest::of(b"")); ids],
        };
        let digest = Digest::of(b"manifest");
        assert!(assemble(digest, &manifest, config(1), &Platform::host(), "x").is_ok());
        assert!(assemble(digest, &manifest, config(2), &Platform::host(), "x").is_err());
        let other = Platform { os: "plan9".to_owned(), ..Platform::host() };
        assert!(matches!(
            assemble(digest, &manifest, config(1), &other, "x"),
            Err(ImageError::Platform { .. })
        ));
    }
}
