//! The keys about what agents remember, together.

use std::path::PathBuf;

use burrow_model::Remember;

use super::file::{ConfigError, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Of a sandbox whose creator does not say.
    pub remember: Remember,
    pub embedder: EmbedderConfig,
    /// Who writes summaries; extracts when absent.
    pub summaries: Option<EndpointConfig>,
    pub artifacts: ArtifactsConfig,
    pub consolidate: ConsolidateConfig,
    /// Largest JSON body of a request to memory.
    pub body_bytes: usize,
    pub artifact_bytes: u64,
    /// Most of one space on disk.
    pub space_bytes: u64,
    /// Most that the artifacts of one space take.
    pub space_artifact_bytes: u64,
    /// What memory leaves of its disk.
    pub disk_reserve_bytes: u64,
    pub open_spaces: usize,
    pub index_ram_bytes: u64,
}

/// What turns texts into vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedderConfig {
    BuiltIn,
    /// A model's files.
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
    /// Holds the key, if it wants one.
    pub key_file: Option<PathBuf>,
}

/// Where the bytes of artifacts are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactsConfig {
    /// `None`: beside the spaces.
    Folder(Option<PathBuf>),
    S3 {
        bucket: String,
        /// Another than Amazon's own.
        endpoint: Option<String>,
        region: String,
        access_key_file: PathBuf,
        secret_key_file: PathBuf,
    },
}

/// What is made smaller by itself, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsolidateConfig {
    /// `None`: only when asked.
    pub every_ms: Option<u64>,
    pub older_than_ms: u64,
    /// Of one space in one round.
    pub entries: u64,
    pub budget_ms: u64,
}

impl MemoryConfig {
    pub(super) fn of(settings: &Settings) -> Result<Self, ConfigError> {
        let size = |key| usize::try_from(settings.number(key)).expect("bounded by the table");
        let word = settings.text("memory.remember");
        let remember = Remember::ALL.into_iter().find(|remember| remember.as_str() == word);
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
                    settings.refuse("memory.consolidate_older_than", "must be a time; to consolidate nothing by itself set `memory.consolidate_every` to `never`")
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
    // Half of an endpoint is a mistake, whether it is used or not.
    let keys = ["memory.embed_url", "memory.embed_model", "memory.embed_key_file"];
    let endpoint = endpoint(settings, keys)?;
    match settings.text("memory.embedder").as_str() {
        "minilm" => match settings.path_if_any("memory.minilm_folder") {
            Some(folder) => Ok(EmbedderConfig::MiniLm { folder }),
            None => Err(settings.refuse("memory.embedder", "needs `memory.minilm_folder` beside it")),
        },
        "remote" => {
            let Some(endpoint) = endpoint else {
                return Err(settings.refuse(
                    "memory.embedder",
                    "needs `memory.embed_url` and `memory.embed_model` beside it",
                ));
            };
            let dimensions =
                settings.text_if_any("memory.embed_dimensions").and_then(|text| text.parse().ok());
            match dimensions {
                Some(dimensions) => Ok(EmbedderConfig::Remote { endpoint, dimensions }),
                None => Err(settings.refuse("memory.embedder", "needs `memory.embed_dimensions` beside it")),
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
        (Some(_), None) => Err(settings.refuse(url, format!("needs `{model}` beside it"))),
        (None, Some(_)) => Err(settings.refuse(model, format!("needs `{url}` beside it"))),
        (None, None) if key_file.is_some() => Err(settings.refuse(key, format!("needs `{url}` beside it"))),
        (None, None) => Ok(None),
    }
}

fn artifacts(settings: &Settings) -> Result<ArtifactsConfig, ConfigError> {
    let folder = settings.path_if_any("memory.artifacts_folder");
    let Some(bucket) = settings.text_if_any("memory.s3_bucket") else {
        for key in ["memory.s3_endpoint", "memory.s3_access_key_file", "memory.s3_secret_key_file"] {
            if settings.text_if_any(key).is_some() {
                return Err(settings.refuse(key, "needs `memory.s3_bucket` beside it"));
            }
        }
        return Ok(ArtifactsConfig::Folder(folder));
    };
    if folder.is_some() {
        return Err(settings.refuse("memory.s3_bucket", "does not go with `memory.artifacts_folder`"));
    }
    let file = |key: &'static str| {
        let file = settings.path_if_any(key);
        file.ok_or_else(|| settings.refuse("memory.s3_bucket", format!("needs `{key}` beside it")))
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
    use crate::config::Config;

    fn parse(text: &str) -> Result<MemoryConfig, ConfigError> {
        Config::parse(Path::new("/nowhere/config.toml"), text).map(|config| config.memory)
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn memory_needs_no_configuration() {
        let memory = parse("").unwrap();
        assert_eq!((memory.remember, memory.embedder), (Remember::Errors, EmbedderConfig::BuiltIn));
        assert_eq!(memory.artifacts, ArtifactsConfig::Folder(None));
        assert_eq!(memory.summaries, None);
        assert_eq!(memory.consolidate.every_ms, Some(24 * 3_600_000));
    }

    #[test]
    fn an_embedder_of_ones_own_is_named_in_full() {
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
        refused("[memory]\nembed_url = \"x\"\n", "needs");
        refused("[memory]\nembedder = \"best\"\n", "memory.embedder");
        refused("[memory]\nsummary_url = \"ftp://x\"\nsummary_model = \"m\"\n", "http://");
        refused("[memory]\nconsolidate_older_than = \"never\"\n", "consolidate_every");
    }

    #[test]
    fn artifacts_are_in_a_folder_or_in_a_bucket() {
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
