//! The `[memory]` keys.

use std::path::PathBuf;

use burrow_model::RememberMode;

use super::file::{ConfigError, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The default for new sandboxes.
    pub remember: RememberMode,
    pub embedder: EmbedderConfig,
    /// The endpoint that writes summaries; extracts of the texts when absent.
    pub summaries: Option<EndpointConfig>,
    pub artifacts: ArtifactsConfig,
    pub consolidate: ConsolidateConfig,
    /// Maximum size of a JSON body of a memory request.
    pub body_bytes: usize,
    pub artifact_bytes: u64,
    /// Maximum size of one space on disk.
    pub space_bytes: u64,
    /// Maximum size of the artifacts of one space.
    pub space_artifact_bytes: u64,
    /// Free space that memory leaves on its disk.
    pub disk_reserve_bytes: u64,
    pub open_spaces: usize,
    pub index_ram_bytes: u64,
}

/// The model that computes vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedderConfig {
    BuiltIn,
    /// The directory of the model's files.
    MiniLm {
        folder: PathBuf,
    },
    Remote {
        endpoint: EndpointConfig,
        dimensions: usize,
    },
}

/// An OpenAI-compatible endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Up to `/v1`.
    pub url: String,
    pub model: String,
    /// A file with the API key, if it requires one.
    pub key_file: Option<PathBuf>,
}

/// Where artifacts are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactsConfig {
    /// `None`: beside the spaces.
    Folder(Option<PathBuf>),
    S3 {
        bucket: String,
        /// A service other than Amazon's.
        endpoint: Option<String>,
        region: String,
        access_key_file: PathBuf,
        secret_key_file: PathBuf,
    },
}

/// Settings of automatic consolidation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsolidateConfig {
    /// `None`: only on request.
    pub every_ms: Option<u64>,
    pub older_than_ms: u64,
    /// Maximum entries of one space in one run.
    pub entries: u64,
    pub budget_ms: u64,
}

impl MemoryConfig {
    pub(super) fn of(settings: &Settings) -> Result<Self, ConfigError> {
        let size = |key| usize::try_from(settings.number(key)).expect("bounded by the table");
        let word = settings.text("memory.remember");
        let remember = RememberMode::ALL.into_iter().find(|remember| remember.as_str() == word);
        Ok(Self {
            remember: remember.expect("the table lists the ways there are"),
            embedder: embedder(settings)?,
            summaries: endpoint(
                settings,
                ["memory.summary_url", "memory.summary_model", "memory.summary_key_file"],
            )?,
            artifacts: artifacts(settings)?,
            consolidate: ConsolidateConfig {
                every_ms: settings.span_if_any("memory.consolidate_every"),
                older_than_ms: settings.span_if_any("memory.consolidate_older_than").ok_or_else(|| {
                    settings.refuse("memory.consolidate_older_than", "must be a time; to turn automatic consolidation off, set `memory.consolidate_every` to `never`")
                })?,
                entries: settings.number("memory.consolidate_entries"),
                budget_ms: settings.number("memory.consolidate_seconds") * 1000,
            },
            body_bytes: size("memory.body"),
            artifact_bytes: settings.number("memory.artifact"),
            space_bytes: settings.number("memory.space"),
            space_artifact_bytes: settings.number("memory.space_artifacts"),
            disk_reserve_bytes: settings.number("memory.disk_reserve"),
            open_spaces: size("memory.open_spaces"),
            index_ram_bytes: settings.number("memory.index_ram"),
        })
    }
}

fn embedder(settings: &Settings) -> Result<EmbedderConfig, ConfigError> {
    // An incomplete endpoint is an error, whether it is used or not.
    let keys = ["memory.embed_url", "memory.embed_model", "memory.embed_key_file"];
    let endpoint = endpoint(settings, keys)?;
    match settings.text("memory.embedder").as_str() {
        "minilm" => match settings.path_if_any("memory.minilm_folder") {
            Some(folder) => Ok(EmbedderConfig::MiniLm { folder }),
            None => Err(settings.refuse("memory.embedder", "requires `memory.minilm_folder`")),
        },
        "remote" => {
            let Some(endpoint) = endpoint else {
                return Err(settings
                    .refuse("memory.embedder", "requires `memory.embed_url` and `memory.embed_model`"));
            };
            let dimensions =
                settings.text_if_any("memory.embed_dimensions").and_then(|text| text.parse().ok());
            match dimensions {
                Some(dimensions) => Ok(EmbedderConfig::Remote { endpoint, dimensions }),
                None => Err(settings.refuse("memory.embedder", "requires `memory.embed_dimensions`")),
            }
        }
        _ => Ok(EmbedderConfig::BuiltIn),
    }
}

fn endpoint(
    settings: &Settings,
    [url, model, key]: [&'static str; 3],
) -> Result<Option<EndpointConfig>, ConfigError> {
    let key_file = settings.path_if_any(key);
    match (settings.text_if_any(url), settings.text_if_any(model)) {
        (Some(address), Some(model)) => {
            if !address.starts_with("http://") && !address.starts_with("https://") {
                return Err(settings.refuse(url, "must begin with `http://` or `https://`"));
            }
            Ok(Some(EndpointConfig { url: address.trim_end_matches('/').to_owned(), model, key_file }))
        }
        (Some(_), None) => Err(settings.refuse(url, format!("requires `{model}`"))),
        (None, Some(_)) => Err(settings.refuse(model, format!("requires `{url}`"))),
        (None, None) if key_file.is_some() => Err(settings.refuse(key, format!("requires `{url}`"))),
        (None, None) => Ok(None),
    }
}

fn artifacts(settings: &Settings) -> Result<ArtifactsConfig, ConfigError> {
    let folder = settings.path_if_any("memory.artifacts_folder");
    let Some(bucket) = settings.text_if_any("memory.s3_bucket") else {
        for key in ["memory.s3_endpoint", "memory.s3_access_key_file", "memory.s3_secret_key_file"] {
            if settings.text_if_any(key).is_some() {
                return Err(settings.refuse(key, "requires `memory.s3_bucket`"));
            }
        }
        return Ok(ArtifactsConfig::Folder(folder));
    };
    if folder.is_some() {
        return Err(settings.refuse("memory.s3_bucket", "cannot be combined with `memory.artifacts_folder`"));
    }
    let file = |key: &'static str| {
        let file = settings.path_if_any(key);
        file.ok_or_else(|| settings.refuse("memory.s3_bucket", format!("requires `{key}`")))
    };
    Ok(ArtifactsConfig::S3 {
        bucket,
        endpoint: settings.text_if_any("memory.s3_endpoint"),
        region: settings.text("memory.s3_region"),
        access_key_file: file("memory.s3_access_key_file")?,
        secret_key_file: file("memory.s3_secret_key_file")?,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn parse(text: &str) -> Result<MemoryConfig, ConfigError> {
        Config::parse(Path::new("/nowhere/config.toml"), text).map(|config| config.memory)
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn memory_requires_no_configuration() {
        let memory = parse("").unwrap();
        assert_eq!((memory.remember, memory.embedder), (RememberMode::Errors, EmbedderConfig::BuiltIn));
        assert_eq!(memory.artifacts, ArtifactsConfig::Folder(None));
        assert_eq!(memory.summaries, None);
        assert_eq!(memory.consolidate.every_ms, Some(24 * 3_600_000));
    }

    #[test]
    fn a_custom_embedder_must_be_configured_completely() {
        let memory = parse("[memory]\nembedder = \"minilm\"\nminilm_folder = \"/m\"\n").unwrap();
        assert_eq!(memory.embedder, EmbedderConfig::MiniLm { folder: "/m".into() });
        let text = "[memory]\nembedder = \"remote\"\nembed_url = \"http://[::1]:9/v1/\"\nembed_model = \"m\"\n\
                    embed_dimensions = 384\nembed_key_file = \"/k\"\n";
        let endpoint = EndpointConfig {
            url: "http://[::1]:9/v1".to_owned(),
            model: "m".to_owned(),
            key_file: Some("/k".into()),
        };
        assert_eq!(parse(text).unwrap().embedder, EmbedderConfig::Remote { endpoint, dimensions: 384 });
        refused("[memory]\nembedder = \"minilm\"\n", "memory.minilm_folder");
        refused("[memory]\nembedder = \"remote\"\n", "memory.embed_url");
        refused("[memory]\nembed_url = \"x\"\n", "requires");
        refused("[memory]\nembedder = \"best\"\n", "memory.embedder");
        refused("[memory]\nsummary_url = \"ftp://x\"\nsummary_model = \"m\"\n", "http://");
        refused("[memory]\nconsolidate_older_than = \"never\"\n", "consolidate_every");
    }

    #[test]
    fn artifacts_are_stored_in_a_directory_or_a_bucket() {
        let memory = parse("[memory]\nartifacts_folder = \"/a\"\n").unwrap();
        assert_eq!(memory.artifacts, ArtifactsConfig::Folder(Some("/a".into())));
        let text = "[memory]\ns3_bucket = \"b\"\ns3_access_key_file = \"/i\"\ns3_secret_key_file = \"/s\"\n";
        assert!(
            matches!(parse(text).unwrap().artifacts, ArtifactsConfig::S3 { region, .. } if region == "us-east-1")
        );
        refused("[memory]\ns3_bucket = \"b\"\n", "memory.s3_access_key_file");
        refused("[memory]\ns3_endpoint = \"http://x\"\n", "memory.s3_bucket");
        refused(&format!("{text}artifacts_folder = \"/a\"\n"), "artifacts_folder");
    }
}
