//! An outside host that speaks the protocols of real clients: HTTP/1.1 and HTTP/2 over TLS, with names that end in
//! `.example`.
//!
//! ```text
//!   https://NAME.example ──► its own certificate authority, one port ──► what NAME speaks (`apis`, `packages`, `streams`)
//! ```
//!
//! Every name requires its own secret, in its usual credential position, and answers 401 without it: a client that works
//! got the secret injected. Requests are recorded as they were received.

mod apis;
mod packages;
mod streams;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{TlsAcceptor, rustls};

use crate::harness::{Daemon, run};
use crate::island::{self, CONFIG, OUTSIDE};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

/// The hosts, and the credential position of each, as written in a policy.
pub(crate) const HOSTS: &[Host] = &[
    Host::new("curl", "{ header: Authorization, format: \"Bearer {}\" }", ""),
    Host::new("git", "{ basic: git }", ""),
    Host::new("pip", "{ basic: __token__ }", ""),
    Host::new("npm", "{ header: Authorization, format: \"Bearer {}\" }", "env: NPM_TOKEN, prefix: npm_"),
    Host::new("cargo", "{ header: Authorization }", "env: CARGO_REGISTRIES_TINY_TOKEN"),
    Host::new(
        "openai",
        "{ header: Authorization, format: \"Bearer {}\" }",
        "env: OPENAI_API_KEY, prefix: sk-proj-",
    ),
    Host::new("anthropic", "{ header: x-api-key }", "env: ANTHROPIC_API_KEY, prefix: sk-ant-api03-"),
    Host::new("grpc", "{ grpcMetadata: authorization, format: \"Bearer {}\" }", ""),
    Host::new("ws", "{ query: token }", ""),
    Host::new("java", "{ header: X-Key }", ""),
];

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    slot: &'static str,
    /// Empty: it has none.
    placeholder: &'static str,
}

impl Host {
    const fn new(name: &'static str, slot: &'static str, placeholder: &'static str) -> Self {
        Self { name, slot, placeholder }
    }
}

/// The secret of a host, until it is rotated.
pub(crate) fn secret_of(name: &str) -> String {
    format!("{name}+7f2ac1d0/9be84c36=real")
}

pub(crate) fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) version: http::Version,
    /// The first label of the host.
    pub(crate) host: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
}

impl RecordedRequest {
    fn of<B>(request: &Request<B>) -> Self {
        let authority = request.uri().host().map(str::to_owned);
        let named = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = authority.or_else(|| named.map(str::to_owned)).unwrap_or_default();
        Self {
            version: request.version(),
            host: host.split('.').next().unwrap_or_default().to_owned(),
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The credential of the request, from any position.
    pub(crate) fn credential(&self) -> String {
        match self.host.as_str() {
            "anthropic" | "java" => {
                self.header(if self.host == "java" { "x-key" } else { "x-api-key" }).to_owned()
            }
            "ws" => {
                let mut given = self.query.split('&');
                given.find(|pair| pair.starts_with("token=")).unwrap_or_default().to_owned()
            }
            _ => self.header("authorization").to_owned(),
        }
    }
}

/// The credential position of a request, with the secret filled in.
fn expected(host: &str, secret: &str) -> String {
    match host {
        "git" => format!("Basic {}", base64(&format!("git:{secret}"))),
        "pip" => format!("Basic {}", base64(&format!("__token__:{secret}"))),
        "cargo" | "anthropic" | "java" => secret.to_owned(),
        "ws" => format!("token={}", secret.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")),
        _ => format!("Bearer {secret}"),
    }
}

struct State {
    folder: PathBuf,
    seen: Mutex<Vec<RecordedRequest>>,
    /// By host.
    secrets: Mutex<BTreeMap<String, String>>,
}

/// All hosts, on one address. They end when this is dropped.
pub(crate) struct Upstream {
    folder: tempfile::TempDir,
    state: Arc<State>,
    runtime: tokio::runtime::Runtime,
}

impl Upstream {
    /// On an island only: it takes over the names and the port.
    pub(crate) fn serve() -> Self {
        let folder = tempfile::Builder::new().prefix("burrow-upstream-").tempdir().unwrap();
        let names: Vec<String> = HOSTS.iter().map(|host| format!("{}.example", host.name)).collect();
        island::rewrite_hosts(&format!(
            "{OUTSIDE} {} stranger.example\n127.0.0.1 localhost\n",
            names.join(" ")
        ));
        certificates(folder.path(), &names);
        let secrets = HOSTS.iter().map(|host| (host.name.to_owned(), secret_of(host.name))).collect();
        let state = Arc::new(State {
            folder: folder.path().to_owned(),
            seen: Mutex::default(),
            secrets: Mutex::new(secrets),
        });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let acceptor = acceptor(folder.path());
        let address = (OUTSIDE.parse::<IpAddr>().unwrap(), 443);
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
        runtime.spawn(accept(listener, acceptor, Arc::clone(&state)));
        Self { folder, state, runtime }
    }

    /// The configuration of a daemon that trusts its certificates.
    pub(crate) fn config(&self) -> String {
        format!("{CONFIG}\negress.roots = \"{}\"", self.folder.path().join("ca.pem").display())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Requests that a host received, oldest first.
    pub(crate) fn seen_by(&self, host: &str) -> Vec<RecordedRequest> {
        self.seen().into_iter().filter(|seen| seen.host == host).collect()
    }

    /// Changes the secret that a host requires.
    pub(crate) fn expect(&self, host: &str, secret: &str) {
        self.state.secrets.lock().unwrap().insert(host.to_owned(), secret.to_owned());
    }

    /// Stores the secrets of these hosts, and returns a rule for each for sandboxes.
    pub(crate) fn grant(&self, daemon: &Daemon, hosts: &[&str], sandboxes: &[&str]) {
        let (mut secrets, mut rules) = (String::new(), String::new());
        for host in HOSTS.iter().filter(|host| hosts.contains(&host.name)) {
            let Host { name, slot, placeholder } = host;
            secrets += &format!(
                "  - name: {name}\n    from: {{ env: SECRET_{name} }}\n    allow: [{{ host: {name}.example }}]\n    slot: {slot}\n"
            );
            if !placeholder.is_empty() {
                secrets += &format!("    placeholder: {{ {placeholder} }}\n");
            }
            rules += &format!("    - {{ host: {name}.example, secret: {name} }}\n");
        }
        let file = self.folder.path().join("policy.yaml");
        fs::write(&file, format!("secrets:\n{secrets}egress:\n  rules:\n{rules}")).unwrap();
        let mut command = daemon.command(&["egress", "apply", "-f"]);
        command.arg(&file).args(sandboxes);
        for host in hosts {
            command.env(format!("SECRET_{host}"), secret_of(host));
        }
        run(&mut command);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // A stream that is not read must not delay the test.
        let nothing = tokio::runtime::Builder::new_current_thread().build().unwrap();
        std::mem::replace(&mut self.runtime, nothing).shutdown_background();
    }
}

fn certificates(folder: &Path, names: &[String]) {
    let at = |name: &str| folder.join(name).display().to_string();
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let mut authority = Command::new("openssl");
    authority.args(["req", "-x509", "-days", "2", "-subj", "/CN=burrow test authority"]).args(curve);
    run(authority.args(["-keyout", &at("ca.key"), "-out", &at("ca.pem")]));
    let mut request = Command::new("openssl");
    request.args(["req", "-subj", "/CN=burrow test"]).args(curve);
    run(request.args(["-keyout", &at("key.pem"), "-out", &at("request.pem")]));
    let names: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let extensions = format!("subjectAltName={}\nbasicConstraints=CA:FALSE\n", names.join(","));
    fs::write(at("names"), extensions).unwrap();
    let mut leaf = Command::new("openssl");
    leaf.args(["x509", "-req", "-days", "2", "-in", &at("request.pem"), "-CA", &at("ca.pem"), "-CAkey"]);
    leaf.args([&at("ca.key"), "-CAcreateserial", "-extfile", &at("names"), "-out", &at("cert.pem")]);
    run(&mut leaf);
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = versions.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: tokio::net::TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, std::convert::Infallible>(answer(&state, request).await) }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Answer {
    let seen = RecordedRequest::of(&request);
    state.seen.lock().unwrap().push(seen.clone());
    let secret = state.secrets.lock().unwrap().get(&seen.host).cloned().unwrap_or_default();
    let credential = seen.credential();
    if credential != expected(&seen.host, &secret) {
        // The answer repeats the credential that was sent, as some hosts do.
        let said = format!("{{\"error\": {{\"message\": \"wrong key: {credential}\"}}}}");
        return reply(StatusCode::UNAUTHORIZED, "application/json", said);
    }
    match seen.host.as_str() {
        "openai" | "anthropic" | "curl" | "java" => apis::answer(&seen, request).await,
        "git" | "pip" | "npm" | "cargo" => packages::answer(&state.folder, &seen, request).await,
        "grpc" | "ws" => streams::answer(&seen, request).await,
        _ => reply(StatusCode::NOT_FOUND, "text/plain", "nobody lives here"),
    }
}

fn reply(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).boxed_unsync();
    Response::builder().status(status).header("content-type", kind).body(body).unwrap()
}

async fn whole(request: Request<Incoming>) -> Bytes {
    request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}
