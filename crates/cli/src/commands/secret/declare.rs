//! The declaration of a secret: its ceiling, its slot in requests, and its placeholder in sandboxes.

use burrow_api::{SecretPlaceholder, SecretScope, SecretSlot};
use burrow_model::network::{HostPattern, Method, PathPattern};
use clap::ValueEnum;

use crate::commands::prelude::*;

#[derive(Debug, Args)]
pub(crate) struct Declaration {
    /// Requests it may be sent with: `[METHODS ]https://HOST[:PORT][/PATH]`, as in `POST,GET
    /// https://api.example.com/v1/**`
    #[arg(long, value_name = "REQUESTS", value_parser = scope)]
    allow: Vec<SecretScope>,
    /// Insert it into a header, as in `Authorization: Bearer {}`
    #[arg(long, value_name = "NAME[: FORMAT]", group = "slot", value_parser = header)]
    header: Option<NameAndFormat>,
    /// Insert it into the metadata of gRPC requests, as in `authorization=Bearer {}`
    #[arg(long, value_name = "NAME[=FORMAT]", group = "slot", value_parser = metadata)]
    grpc_metadata: Option<NameAndFormat>,
    /// Insert it into a query parameter
    #[arg(long, value_name = "NAME", group = "slot")]
    query: Option<String>,
    /// Send it as the password of this user, with `Authorization: Basic`
    #[arg(long, value_name = "USER", group = "slot")]
    basic: Option<String>,
    /// Use it as a client certificate chain and its key, in PEM
    #[arg(long, group = "slot")]
    client_cert: bool,
    /// Set this variable in sandboxes to a placeholder of the same form, which starts with PREFIX
    #[arg(long, value_name = "ENV[=PREFIX]", value_parser = placeholder)]
    placeholder: Option<SecretPlaceholder>,
    /// Ceiling, slot and placeholder of a known provider; other options override them
    #[arg(long, value_enum)]
    preset: Option<Preset>,
}

/// A declaration that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompleteDeclaration {
    pub(super) allow: Vec<SecretScope>,
    pub(super) slot: SecretSlot,
    pub(super) placeholder: Option<SecretPlaceholder>,
}

/// A header or a key of metadata, with its format.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NameAndFormat {
    name: String,
    format: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    Openai,
    Anthropic,
    Gemini,
    Github,
}

impl Declaration {
    pub(super) fn read(self) -> Result<CompleteDeclaration, Stop> {
        let known = self.preset.map(Preset::declared);
        let slot = self.slot().or_else(|| known.as_ref().map(|known| known.slot.clone()));
        let Some(slot) = slot else {
            return fail(
                "the slot of the secret is missing",
                "give `--header`, `--grpc-metadata`, `--query`, `--basic` or `--client-cert`, or a `--preset`",
            );
        };
        let (allow, placeholder) = known.map(|known| (known.allow, known.placeholder)).unwrap_or_default();
        let allow = if self.allow.is_empty() { allow } else { self.allow };
        if allow.is_empty() {
            return fail(
                "the requests that the secret may be sent with are missing",
                "give `--allow 'POST https://api.example.com/v1/**'`, or a `--preset`",
            );
        }
        Ok(CompleteDeclaration { allow, slot, placeholder: self.placeholder.or(placeholder) })
    }

    fn slot(&self) -> Option<SecretSlot> {
        if let Some(NameAndFormat { name, format }) = self.header.clone() {
            return Some(SecretSlot::Header { name, format });
        }
        if let Some(NameAndFormat { name, format }) = self.grpc_metadata.clone() {
            return Some(SecretSlot::GrpcMetadata { name, format });
        }
        if let Some(name) = self.query.clone() {
            return Some(SecretSlot::Query { name });
        }
        if let Some(user) = self.basic.clone() {
            return Some(SecretSlot::Basic { user });
        }
        self.client_cert.then_some(SecretSlot::ClientCert)
    }
}

impl Preset {
    fn declared(self) -> CompleteDeclaration {
        let (allow, header, format, env, prefix) = match self {
            Self::Openai => {
                let allow = "https://api.openai.com/v1/**";
                (allow, "authorization", Some("Bearer {}"), "OPENAI_API_KEY", "sk-")
            }
            Self::Anthropic => {
                ("https://api.anthropic.com/v1/**", "x-api-key", None, "ANTHROPIC_API_KEY", "sk-ant-")
            }
            Self::Gemini => {
                let allow = "https://generativelanguage.googleapis.com/**";
                (allow, "x-goog-api-key", None, "GEMINI_API_KEY", "AIza")
            }
            Self::Github => {
                ("https://api.github.com/**", "authorization", Some("Bearer {}"), "GITHUB_TOKEN", "ghp_")
            }
        };
        CompleteDeclaration {
            allow: vec![scope(allow).expect("the presets are checked by a test")],
            slot: SecretSlot::Header { name: header.to_owned(), format: format.map(str::to_owned) },
            placeholder: Some(SecretPlaceholder { env: env.to_owned(), prefix: prefix.to_owned() }),
        }
    }
}

fn scope(text: &str) -> Result<SecretScope, String> {
    let (methods, place) = text.trim().rsplit_once(char::is_whitespace).unwrap_or(("", text.trim()));
    let methods = methods.trim().split(',').filter(|method| !method.is_empty());
    let methods: Vec<String> = methods
        .map(|method| method.trim().parse::<Method>().map(|method| method.to_string()))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if place.starts_with("http://") {
        return Err("secrets are only sent over TLS: write `https://`".to_owned());
    }
    let place = place.strip_prefix("https://").unwrap_or(place);
    let (authority, path) = match place.find('/') {
        Some(at) => (&place[..at], Some(&place[at..])),
        None => (place, None),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            (host, Some(port.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())?))
        }
        None => (authority, None),
    };
    host.parse::<HostPattern>().map_err(|error| error.to_string())?;
    let paths = match path {
        Some(path) => vec![path.parse::<PathPattern>().map_err(|error| error.to_string())?.to_string()],
        None => Vec::new(),
    };
    Ok(SecretScope { host: host.to_owned(), port: port.filter(|port| *port != 443), methods, paths })
}

fn header(text: &str) -> Result<NameAndFormat, String> {
    named(text, ':')
}

fn metadata(text: &str) -> Result<NameAndFormat, String> {
    named(text, '=')
}

fn named(text: &str, mark: char) -> Result<NameAndFormat, String> {
    let (name, format) = match text.split_once(mark) {
        Some((name, format)) => (name, Some(format.trim())),
        None => (text, None),
    };
    let name: burrow_model::HeaderName =
        name.trim().parse().map_err(|error: burrow_model::SecretError| error.to_string())?;
    if let Some(format) = format {
        format.parse::<burrow_model::Format>().map_err(|error| error.to_string())?;
    }
    Ok(NameAndFormat { name: name.as_str().to_owned(), format: format.map(str::to_owned) })
}

fn placeholder(text: &str) -> Result<SecretPlaceholder, String> {
    let (env, prefix) = text.split_once('=').unwrap_or((text, ""));
    let spec = burrow_model::PlaceholderSpec { env: env.to_owned(), prefix: prefix.to_owned() };
    spec.check().map_err(|error| error.to_string())?;
    Ok(SecretPlaceholder { env: spec.env, prefix: spec.prefix })
}

/// In the format of `--allow`.
pub(super) fn scope_text(scope: &SecretScope) -> String {
    let methods = match scope.methods.is_empty() {
        true => String::new(),
        false => format!("{} ", scope.methods.join(",")),
    };
    let port = scope.port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{methods}https://{}{port}{}", scope.host, scope.paths.join(","))
}

pub(super) fn slot_text(slot: &SecretSlot) -> String {
    let with = |name: &str, mark: &str, format: &Option<String>| {
        format.as_ref().map_or_else(|| name.to_owned(), |format| format!("{name}{mark}{format}"))
    };
    match slot {
        SecretSlot::Header { name, format } => with(name, ": ", format),
        SecretSlot::GrpcMetadata { name, format } => format!("grpc {}", with(name, "=", format)),
        SecretSlot::Query { name } => format!("?{name}="),
        SecretSlot::Basic { user } => format!("basic {user}"),
        SecretSlot::ClientCert => "client certificate".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Declaration {
        Declaration {
            allow: Vec::new(),
            header: None,
            grpc_metadata: None,
            query: None,
            basic: None,
            client_cert: false,
            placeholder: None,
            preset: None,
        }
    }

    #[test]
    fn a_scope_is_parsed_as_it_is_shown() {
        for text in [
            "POST https://api.openai.com/v1/**",
            "POST,GET https://api.example.com:8443/v1/*",
            "https://*.example.com",
            "https://api.example.com/",
        ] {
            assert_eq!(scope_text(&scope(text).unwrap()), text);
        }
        assert_eq!(scope("get api.example.com:443").unwrap(), scope("GET https://api.example.com").unwrap());
        for bad in [
            "",
            "http://api.example.com",
            "https://",
            "https://a b",
            "G T https://a.example",
            "https://a:0",
            "https://a.example/../b",
            "https://a.example/v1?x=1",
        ] {
            assert!(scope(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_header_is_a_name_and_a_format() {
        let read = |text: &str| header(text).map(|named| (named.name, named.format));
        assert_eq!(read("Authorization: Bearer {}"), Ok(("authorization".into(), Some("Bearer {}".into()))));
        assert_eq!(read("X-Api-Key"), Ok(("x-api-key".into(), None)));
        for bad in ["", "Host: {}", "X: sk-real-secret", "X: {} {}"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
        assert_eq!(metadata("authorization=Bearer {}").unwrap().format.as_deref(), Some("Bearer {}"));
    }

    #[test]
    fn a_placeholder_is_a_variable_and_a_prefix() {
        let read = placeholder("OPENAI_API_KEY=sk-").unwrap();
        assert_eq!((read.env.as_str(), read.prefix.as_str()), ("OPENAI_API_KEY", "sk-"));
        assert_eq!(placeholder("TOKEN").unwrap().prefix, "");
        for bad in ["", "=x", "1A", "A B", "A=\"", "A=x\ny"] {
            assert!(placeholder(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_preset_is_complete_and_options_override_it() {
        for preset in Preset::value_variants() {
            let read = Declaration { preset: Some(*preset), ..nothing() }.read().unwrap();
            let SecretSlot::Header { name, format } = &read.slot else { panic!("{read:?}") };
            name.parse::<burrow_model::HeaderName>().unwrap();
            format.as_deref().unwrap_or("{}").parse::<burrow_model::Format>().unwrap();
            assert!(read.placeholder.is_some() && !read.allow.is_empty());
        }
        let own = Declaration { preset: Some(Preset::Openai), query: Some("key".into()), ..nothing() };
        assert_eq!(own.read().unwrap().slot, SecretSlot::Query { name: "key".into() });
    }

    #[test]
    fn an_incomplete_declaration_is_rejected_with_the_missing_part() {
        let hint = |declaration: Declaration| match declaration.read() {
            Err(Stop::Failed(failure)) => failure.hint.unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(hint(nothing()).contains("--header"));
        assert!(hint(Declaration { client_cert: true, ..nothing() }).contains("--allow"));
    }
}
